//! Handlers that ship with the crate: the search index, the page cache, the CDN purge and webhooks.
//!
//! Each is a [`Handler`](crate::outbox::Handler) over the three article events and holds to the same rules:
//!
//! - An event is a hint that an article changed. What a sink stores comes from the article's *current* state, read by
//!   id through [`ArticleSource`]; so an event that is repeated, late or overtaken by a newer one does no harm.
//! - Nothing is dropped by comparing log positions; where an order matters, the article's version decides.
//! - Only published articles reach what the public sees. A draft is treated like an article that does not exist.
//!
//! `search` needs nothing but SQLite; `render`, `cache`, `cdn` and `webhook` come with the cargo feature `sinks`. `webhook`, and
//! `nats` with the feature of that name, hand the events of any outbox on as they are and know no articles.

#[cfg(feature = "sinks")]
mod answer;
#[cfg(feature = "sinks")]
pub mod cache;
#[cfg(feature = "sinks")]
pub mod cdn;
mod change;
#[cfg(feature = "sinks")]
pub mod cloud_event;
mod html;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "sinks")]
pub mod render;
pub mod search;
mod source;
#[cfg(feature = "sinks")]
pub mod webhook;

pub use change::article_event_types;
pub use html::{encode_segment, escape};
pub use source::ArticleSource;
