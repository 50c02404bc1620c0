//! The frame around every page.

use std::sync::LazyLock;

use sha2::{Digest as _, Sha256};

use super::pages::SiteInfo;
use super::{SITE_CSS, SITE_CSS_PATH};
use crate::sinks::html::escape;

/// What one page puts into the frame.
pub(super) struct Frame<'a> {
    /// Plain text; the site's name is added.
    pub title: &'a str,
    /// Plain text for search engines; may be empty.
    pub description: &'a str,
    /// Its one address, as an encoded path; empty for a page that is no page of its own.
    pub path: &'a str,
    /// What the search box holds.
    pub query: &'a str,
    /// Whether search engines shall leave it out.
    pub unlisted: bool,
    /// HTML.
    pub main: &'a str,
}

/// The whole document.
pub(super) fn document(site: &SiteInfo, frame: &Frame<'_>) -> String {
    let name = escape(&site.name);
    let title = match frame.title {
        "" => name.clone(),
        title => format!("{} · {name}", escape(title)),
    };
    let description = match frame.description {
        "" => String::new(),
        text => format!("<meta name=\"description\" content=\"{}\">\n", escape(text)),
    };
    let robots = if frame.unlisted { "<meta name=\"robots\" content=\"noindex\">\n" } else { "" };
    let canonical = match (site.base().as_str(), frame.path) {
        ("", _) | (_, "") => String::new(),
        (base, path) => format!("<link rel=\"canonical\" href=\"{base}{}\">\n", escape(path)),
    };
    let tagline = match site.tagline.as_str() {
        "" => String::new(),
        text => format!("<p class=\"tagline\">{}</p>\n", escape(text)),
    };
    let (lang, query, main, sheet) = (escape(&site.lang), escape(frame.query), frame.main, sheet_url());
    format!(
        "<!doctype html>\n\
         <html lang=\"{lang}\">\n\
         <head>\n\
         <meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n\
         {description}{robots}{canonical}\
         <link rel=\"alternate\" type=\"application/atom+xml\" title=\"{name}\" href=\"/feed.xml\">\n\
         <link rel=\"stylesheet\" href=\"{sheet}\">\n\
         </head>\n\
         <body>\n\
         <a class=\"skip\" href=\"#main\">Skip to the text</a>\n\
         <header class=\"site-header\">\n\
         <div class=\"brand\"><a href=\"/\">{name}</a>\n{tagline}</div>\n\
         <form class=\"search\" role=\"search\" action=\"/search\">\n\
         <label class=\"hidden\" for=\"q\">Search</label>\n\
         <input id=\"q\" type=\"search\" name=\"q\" maxlength=\"200\" placeholder=\"Search\" value=\"{query}\">\n\
         <button type=\"submit\">Search</button>\n\
         </form>\n\
         </header>\n\
         <main id=\"main\">\n{main}</main>\n\
         <footer class=\"site-footer\"><p>{name} · <a href=\"/feed.xml\">Feed</a> · served by vayu-articles</p></footer>\n\
         </body>\n\
         </html>\n"
    )
}

/// The style sheet's address; changes with its text, so that it may be cached for good.
fn sheet_url() -> &'static str {
    static URL: LazyLock<String> = LazyLock::new(|| format!("{SITE_CSS_PATH}?v={}", short_hash(&[SITE_CSS])));
    &URL
}

/// Twelve hexadecimal digits that differ when any of the texts does.
pub(super) fn short_hash(texts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
