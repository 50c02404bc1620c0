//! Articles as pages: Markdown into safe HTML, and the site's pages around it.
//!
//! Pages are whole HTML5 documents without scripts and inline styles; all they refer to is the style sheet [`SITE_CSS`], to be
//! served at [`SITE_CSS_PATH`]. Every value goes through [`escape`](super::escape); article texts go through a sanitiser.
//! The same input gives the same bytes, so a page can be cached by its article's version.

mod date;
mod feed;
mod layout;
mod markdown;
mod pages;
mod tame;

pub use feed::{FeedEntry, sitemap, sitemap_index};
pub use markdown::{Rendered, excerpt, markdown};
pub(in crate::sinks) use markdown::{parser, same_title};
pub use pages::{Renderer, SiteInfo};

/// The style sheet of all pages: light and dark, from phone to desktop.
pub const SITE_CSS: &str = include_str!("site.css");
/// Where the pages expect it.
pub const SITE_CSS_PATH: &str = "/assets/site.css";
