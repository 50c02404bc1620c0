//! Which addresses a change makes stale.

use std::collections::HashSet;

use super::CdnOptions;
use crate::article::tag_key;
use crate::sinks::change::Change;
use crate::sinks::html::encode_segment;

/// Paths of this program's own site that show articles at every change, besides those that an event names.
pub const SITE_PATHS: &[&str] = &["/feed.xml", "/sitemap.xml"];

/// The path, as purges by address spell it, of what the decoded segments `path` name on this program's own site; `None` if no
/// purge ever names it. A cache that is purged by address must keep nothing else, and nothing with a query.
///
/// ```
/// use vayu_articles::sinks::cdn::named_path;
///
/// assert_eq!(named_path(&["tags", "c++"]).as_deref(), Some("/tags/c%2B%2B"));
/// assert_eq!(named_path(&["search"]), None);
/// ```
pub fn named_path(path: &[&str]) -> Option<String> {
    let (folder, segment) = match *path {
        [""] => ("/", ""),
        ["articles", slug] => ("/articles/", slug),
        ["tags", tag] if tag_key(tag) == tag => ("/tags/", tag),
        ["api", "v1", "articles"] => ("/api/v1/articles", ""),
        ["api", "v1", "articles", slug] => ("/api/v1/articles/", slug),
        ["api", "v1", "tags"] => ("/api/v1/tags", ""),
        [name] => {
            let path = SITE_PATHS.iter().find(|path| path.strip_prefix('/') == Some(name))?;
            (*path, "")
        }
        _ => return None,
    };
    Some(format!("{folder}{}", encode_segment(segment)))
}

/// The addresses to purge after `changes`, each once: articles under their new and old names, the home page, lists, tags.
pub(super) fn stale(options: &CdnOptions, changes: &[Change]) -> Vec<String> {
    let mut urls = Urls { base: options.base_url.trim_end_matches('/'), seen: HashSet::new(), list: Vec::new() };
    let public: Vec<&Change> =
        changes.iter().filter(|change| change.public_before() || change.public_after()).collect();
    if public.is_empty() {
        return urls.list;
    }
    for change in &public {
        slugs(change).for_each(|slug| urls.add("/articles/", slug));
    }
    urls.add("/", "");
    if options.api {
        for change in &public {
            slugs(change).for_each(|slug| urls.add("/api/v1/articles/", slug));
        }
        urls.add("/api/v1/articles", "");
        urls.add("/api/v1/tags", "");
    }
    for path in &options.further_paths {
        urls.add(path, "");
    }
    for change in &public {
        let before = change.article.previous.iter().flat_map(|previous| &previous.tags);
        change.article.tags.iter().chain(before).for_each(|label| urls.add("/tags/", &tag_key(label)));
    }
    urls.list
}

fn slugs(change: &Change) -> impl Iterator<Item = &str> {
    let before = change.article.previous.as_ref().map(|previous| previous.slug.as_str());
    std::iter::once(change.article.slug.as_str()).chain(before)
}

struct Urls<'a> {
    base: &'a str,
    seen: HashSet<String>,
    list: Vec<String>,
}

impl Urls<'_> {
    fn add(&mut self, path: &str, segment: &str) {
        let url = format!("{}{path}{}", self.base, encode_segment(segment));
        if self.seen.insert(url.clone()) {
            self.list.push(url);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::article::{ArticleEvent, Kind, Previous, Status};

    fn change(
        deleted: bool,
        slug: &str,
        status: Status,
        tags: &[&str],
        previous: Option<(&str, Status, &[&str])>,
    ) -> Change {
        let owned = |tags: &[&str]| tags.iter().map(|tag| (*tag).to_owned()).collect();
        let previous =
            previous.map(|(slug, status, tags)| Previous { slug: slug.to_owned(), status, tags: owned(tags) });
        let (id, title) = ("id".to_owned(), "T".to_owned());
        let article = ArticleEvent {
            id,
            version: 2,
            kind: Kind::Post,
            slug: slug.to_owned(),
            title,
            status,
            tags: owned(tags),
            previous,
        };
        Change { deleted, article }
    }

    fn urls(changes: &[Change]) -> Vec<String> {
        stale(&CdnOptions::new("http://cdn.test/purge", "https://site.test/"), changes)
    }

    #[test]
    fn case_c37_old_and_new_names_and_tags_are_purged() {
        let renamed = change(false, "b", Status::Published, &["y", "z"], Some(("a", Status::Published, &["x", "y"])));
        let expected = [
            "/articles/b",
            "/articles/a",
            "/",
            "/api/v1/articles/b",
            "/api/v1/articles/a",
            "/api/v1/articles",
            "/api/v1/tags",
            "/tags/y",
            "/tags/z",
            "/tags/x",
        ];
        assert_eq!(urls(&[renamed]), expected.map(|path| format!("https://site.test{path}")));
    }

    #[test]
    fn case_c14_a_tag_is_one_segment_whatever_is_in_it() {
        let tags = ["Tom Jones, Jr.", "a b", "x;y", "日本", "a/../b?c#d%"];
        let urls = urls(&[change(false, "a", Status::Published, &tags, None)]);
        let of_tags: Vec<&str> = urls.iter().filter_map(|url| url.strip_prefix("https://site.test/tags/")).collect();
        let expected = ["tom%20jones%2C%20jr.", "a%20b", "x%3By", "%E6%97%A5%E6%9C%AC", "a%2F..%2Fb%3Fc%23d%25"];
        assert_eq!(of_tags, expected);
    }

    #[test]
    fn every_purged_address_is_a_named_path_and_its_spelling_is_the_same() {
        let mut options = CdnOptions::new("http://cdn.test/purge", "https://site.test");
        options.further_paths = SITE_PATHS.iter().map(|path| (*path).to_owned()).collect();
        let tags = ["A b", "x;y", "日本", "a/../b?c#d%", "c++"];
        let urls = stale(&options, &[change(false, "a-b_c", Status::Published, &tags, None)]);
        assert_eq!(urls.len(), 7 + tags.len());
        for url in urls {
            let path = url.strip_prefix("https://site.test/").unwrap();
            let decoded: Vec<String> = path.split('/').map(decoded).collect();
            let segments: Vec<&str> = decoded.iter().map(String::as_str).collect();
            assert_eq!(named_path(&segments), Some(format!("/{path}")));
        }
        for other in [&["search"][..], &["tags", "Rust"], &["sitemap-1.xml"], &["admin"], &["articles", "a", ""]] {
            assert_eq!(named_path(other), None, "{other:?}");
        }
    }

    fn decoded(segment: &str) -> String {
        let mut bytes = segment.bytes();
        let mut out = Vec::new();
        while let Some(byte) = bytes.next() {
            let hex: String =
                if byte == b'%' { bytes.by_ref().take(2).map(char::from).collect() } else { String::new() };
            out.push(u8::from_str_radix(&hex, 16).unwrap_or(byte));
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_the_public_never_saw_needs_no_purge() {
        let draft = |previous| change(false, "d", Status::Draft, &["x"], previous);
        assert!(urls(&[draft(None), draft(Some(("e", Status::Draft, &[])))]).is_empty());
        assert!(urls(&[change(true, "d", Status::Draft, &[], Some(("d", Status::Draft, &["x"])))]).is_empty());
        let withdrawn = urls(&[draft(Some(("e", Status::Published, &["w"])))]);
        for path in ["/articles/e", "/tags/w", "/"] {
            assert!(withdrawn.contains(&format!("https://site.test{path}")), "{path}");
        }
        assert!(!urls(&[change(true, "d", Status::Published, &[], Some(("d", Status::Published, &["x"])))]).is_empty());
    }
}
