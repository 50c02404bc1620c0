//! What programs read: the Atom feed (RFC 4287) and the site map (sitemaps.org).

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::markdown;
use super::pages::SiteInfo;
use crate::article::{ArticleSummary, tag_key};
use crate::clock::rfc3339;
use crate::sinks::html::{encode_segment, escape};

/// One article of the feed.
#[derive(Debug, Clone)]
pub struct FeedEntry<'a> {
    /// The article.
    pub article: &'a ArticleSummary,
    /// The beginning of its text.
    pub opening: &'a str,
    /// Whether that is the whole text. Then the entry holds it, else a summary alone.
    pub whole: bool,
}

/// The feed's document. Its own address is `/feed.xml`.
pub(super) fn atom(site: &SiteInfo, entries: &[FeedEntry<'_>]) -> String {
    let base = site.base();
    let updated = entries.iter().map(|entry| entry.article.updated_at).max().unwrap_or(0);
    let (lang, name) = (escape(&site.lang), xml(&site.name));
    let mut out = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n\
         <feed xmlns=\"http://www.w3.org/2005/Atom\" xml:lang=\"{lang}\">\n\
         <id>{}</id>\n<title>{name}</title>\n",
        feed_id(site)
    );
    if !site.tagline.is_empty() {
        let _ = writeln!(out, "<subtitle>{}</subtitle>", xml(&site.tagline));
    }
    let _ = write!(
        out,
        "<updated>{}</updated>\n<author><name>{name}</name></author>\n\
         <link rel=\"self\" type=\"application/atom+xml\" href=\"{base}/feed.xml\"/>\n\
         <link rel=\"alternate\" type=\"text/html\" href=\"{base}/\"/>\n\
         <generator version=\"{}\">vayu-articles</generator>\n",
        rfc3339(updated),
        env!("CARGO_PKG_VERSION")
    );
    entries.iter().for_each(|entry| push_entry(&mut out, &base, entry));
    out.push_str("</feed>\n");
    out
}

fn push_entry(out: &mut String, base: &str, entry: &FeedEntry<'_>) {
    let article = entry.article;
    let rendered = markdown(&article.title, entry.opening);
    let url = format!("{base}/articles/{}", encode_segment(&article.slug));
    let _ = write!(
        out,
        "<entry>\n<id>{}</id>\n<title>{}</title>\n<link rel=\"alternate\" type=\"text/html\" href=\"{url}\"/>\n\
         <published>{}</published>\n<updated>{}</updated>\n",
        entry_id(&article.id),
        xml(&article.title),
        rfc3339(article.created_at),
        rfc3339(article.updated_at)
    );
    for label in &article.tags {
        let _ = writeln!(out, "<category term=\"{}\" label=\"{}\"/>", xml(&tag_key(label)), xml(label));
    }
    let _ = writeln!(out, "<summary>{}</summary>", xml(&rendered.description));
    if entry.whole {
        let _ = writeln!(out, "<content type=\"html\" xml:base=\"{url}\">{}</content>", xml(&rendered.html));
    }
    out.push_str("</entry>\n");
}

/// The entry's name for good: the article's own UUID, or one made from an id that is none.
fn entry_id(id: &str) -> String {
    match Uuid::try_parse(id) {
        Ok(uuid) => format!("urn:uuid:{uuid}"),
        Err(_) => made_up("article", id),
    }
}

fn feed_id(site: &SiteInfo) -> String {
    let base = site.base();
    if base.is_empty() { made_up("feed", &site.name) } else { format!("{base}/feed.xml") }
}

/// A UUID of version 8 that stands for a text.
fn made_up(what: &str, text: &str) -> String {
    let hash = Sha256::digest(format!("vayu-articles {what} {text}"));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    format!("urn:uuid:{}", uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

/// One file of the site map: paths (encoded, beginning with `/`) below `base`, with the time of the last change.
pub fn sitemap(base: &str, paths: &[(String, Option<i64>)]) -> String {
    let mut out = opening("urlset");
    for (path, changed) in paths {
        let _ = write!(out, "<url><loc>{base}{}</loc>", xml(path));
        if let Some(changed) = changed {
            let _ = write!(out, "<lastmod>{}</lastmod>", rfc3339(*changed));
        }
        out.push_str("</url>\n");
    }
    out.push_str("</urlset>\n");
    out
}

/// The site map's index, where one file does not hold all: the files are `/sitemap-1.xml` up to `/sitemap-{files}.xml`.
pub fn sitemap_index(base: &str, files: u32) -> String {
    let mut out = opening("sitemapindex");
    for number in 1..=files {
        let _ = writeln!(out, "<sitemap><loc>{base}/sitemap-{number}.xml</loc></sitemap>");
    }
    out.push_str("</sitemapindex>\n");
    out
}

fn opening(root: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<{root} xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n"
    )
}

/// `text` for use in XML: escaped, and without the characters that XML cannot hold at all.
fn xml(text: &str) -> String {
    let fits = |c: &char| !matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}');
    if text.chars().all(|c| fits(&c)) { escape(text) } else { escape(&text.chars().filter(fits).collect::<String>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_no_uuid_gets_one_and_always_the_same() {
        assert_eq!(entry_id("0199A3B2-7c0f-7000-8000-000000000000"), "urn:uuid:0199a3b2-7c0f-7000-8000-000000000000");
        let made = entry_id("post_17");
        assert_eq!(made, entry_id("post_17"));
        assert_ne!(made, entry_id("post_18"));
        let uuid = Uuid::try_parse(made.strip_prefix("urn:uuid:").unwrap()).unwrap();
        assert_eq!(uuid.get_version_num(), 8);
    }

    #[test]
    fn what_xml_cannot_hold_is_left_out() {
        assert_eq!(xml("a\u{b}b<\t\u{ffff}&"), "ab&lt;\t&amp;");
    }
}
