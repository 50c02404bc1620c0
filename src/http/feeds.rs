//! What programs read of the site: the Atom feed, the site map, `robots.txt`. Public, so drafts do not exist here.
//!
//! A site map needs whole addresses. They begin as the settings say; without that, as the request itself calls this
//! server, and such an answer is for that client alone: the cached file holds paths only.

use std::borrow::Cow;

use hyper::HeaderMap;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue, VARY};

use super::edge::keyed;
use super::engine::Response;
use super::pages::{Answer, Pages};
use super::problem::Problem;
use crate::article::{Kind, ListQuery};
use crate::sinks::cdn::keys;
use crate::sinks::encode_segment;
use crate::sinks::render::{FeedEntry, sitemap, sitemap_index};

/// Articles in the feed.
const FEED_ENTRIES: u32 = 20;
/// A longer text is in the feed with its summary alone, characters.
const FEED_CHARS: u32 = 100_000;
/// Most addresses in one file, as sitemaps.org has it.
const ADDRESSES_PER_FILE: u32 = 50_000;
/// Addresses read in one snapshot.
const ADDRESSES_PER_READ: u32 = 1_000;
const ATOM: HeaderValue = HeaderValue::from_static("application/atom+xml; charset=utf-8");
const XML: HeaderValue = HeaderValue::from_static("application/xml; charset=utf-8");
/// Readers' pages may be indexed; what answers to questions, and what is not for readers, need not.
const ROBOTS: &str = "User-agent: *\nDisallow: /admin\nDisallow: /api/\nDisallow: /search\n";

/// Whether there may be something at this path.
pub(super) fn is_known(path: &[&str]) -> bool {
    let [name] = path else { return false };
    matches!(*name, "feed.xml" | "sitemap.xml" | "robots.txt") || sitemap_number(name).is_some()
}

/// The number in `sitemap-1.xml`, written without leading zeros.
fn sitemap_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("sitemap-")?.strip_suffix(".xml")?;
    let number = digits.parse().ok().filter(|number| *number > 0)?;
    (digits == u32::to_string(&number)).then_some(number)
}

impl Pages {
    /// What stands at the root of the site under this name.
    pub(super) fn for_programs(&self, name: &str, headers: &HeaderMap) -> Answer {
        match (name, sitemap_number(name)) {
            ("feed.xml", _) => self.feed(headers),
            ("sitemap.xml", _) => self.sitemap(headers),
            ("robots.txt", _) => Ok(self.robots()),
            (_, Some(number)) => self.sitemap_part(number, headers),
            (_, None) => Ok(self.not_found()),
        }
    }

    /// The newest posts.
    fn feed(&self, headers: &HeaderMap) -> Answer {
        let response = self.listing(keys::LISTS, "feed", 1, headers, || {
            let list = ListQuery { limit: FEED_ENTRIES, kind: Some(Kind::Post), ..ListQuery::default() };
            let page = self.articles().list(&list)?;
            let openings = self.openings(&page, FEED_CHARS + 1)?;
            let entry = |(article, opening)| FeedEntry { article, opening, whole: is_whole(opening) };
            let entries: Vec<FeedEntry<'_>> =
                page.items.iter().zip(openings.iter().map(String::as_str)).map(entry).collect();
            Ok(Some(self.renderer().feed(&entries)))
        })?;
        Ok(response.header(CONTENT_TYPE, ATOM))
    }

    /// The site map: all addresses, or the list of the files that hold them.
    fn sitemap(&self, headers: &HeaderMap) -> Answer {
        self.map_file(headers, "sitemap", || {
            let parts = self.parts()?;
            let files = parts.files(ADDRESSES_PER_FILE);
            if files > 1 { Ok(Some(sitemap_index("", files))) } else { self.addresses(&parts, 1, ADDRESSES_PER_FILE) }
        })
    }

    /// One of the files that the site map lists, from 1.
    fn sitemap_part(&self, number: u32, headers: &HeaderMap) -> Answer {
        self.map_file(headers, &format!("sitemap-{number}"), || {
            self.addresses(&self.parts()?, number, ADDRESSES_PER_FILE)
        })
    }

    /// What crawlers may look at.
    fn robots(&self) -> Response {
        let mut text = ROBOTS.to_owned();
        if let Some(base) = self.base_url() {
            text = format!("{text}Sitemap: {base}/sitemap.xml\n");
        }
        Response::text(hyper::StatusCode::OK, text)
    }

    fn map_file(
        &self,
        headers: &HeaderMap,
        name: &str,
        make: impl FnOnce() -> Result<Option<String>, Problem>,
    ) -> Answer {
        let base = match self.base_url() {
            Some(base) => Cow::Borrowed(base),
            None => Cow::Owned(called(headers)?),
        };
        let mut response = keyed(self.listing_for(&base, name, 1, headers, make)?, [keys::LISTS]);
        if !response.status.is_success() {
            return Ok(response);
        }
        if let Ok(paths) = std::str::from_utf8(&response.body) {
            response.body = paths.replace("<loc>/", &format!("<loc>{base}/")).into();
        }
        let response = response.header(CONTENT_TYPE, XML);
        Ok(match self.base_url() {
            Some(_) => response,
            None => response
                .header(VARY, HeaderValue::from_static("host"))
                .header(CACHE_CONTROL, HeaderValue::from_static("private, no-cache")),
        })
    }

    fn parts(&self) -> Result<Parts, Problem> {
        let total = |kind| {
            let list = ListQuery { limit: 1, kind: Some(kind), ..ListQuery::default() };
            let total = self.articles().list(&list)?.total;
            Ok::<_, Problem>(u32::try_from(total).unwrap_or(u32::MAX))
        };
        let mut front = vec!["/".to_owned()];
        front.extend(self.articles().tags()?.iter().map(|tag| format!("/tags/{}", encode_segment(&tag.tag))));
        Ok(Parts { front, posts: total(Kind::Post)?, pages: total(Kind::Page)? })
    }

    /// The addresses of file `number`: the front pages, then the posts, then the pages. `None` beyond the last file.
    fn addresses(&self, parts: &Parts, number: u32, per_file: u32) -> Result<Option<String>, Problem> {
        if number > parts.files(per_file) {
            return Ok(None);
        }
        let skip = (number - 1).saturating_mul(per_file);
        let (front, posts) = (parts.front_len(), parts.posts);
        let (from, to) = window(skip, per_file, 0, front);
        let mut paths: Vec<(String, Option<i64>)> =
            parts.front[from as usize..to as usize].iter().map(|path| (path.clone(), None)).collect();
        for (kind, before, count) in
            [(Kind::Post, front, posts), (Kind::Page, front.saturating_add(posts), parts.pages)]
        {
            let (from, to) = window(skip, per_file, before, count);
            self.push_articles(&mut paths, kind, from, to - from)?;
        }
        Ok(Some(sitemap("", &paths)))
    }

    fn push_articles(
        &self,
        paths: &mut Vec<(String, Option<i64>)>,
        kind: Kind,
        skip: u32,
        mut left: u32,
    ) -> Result<(), Problem> {
        let mut last = None;
        while left > 0 {
            let limit = left.min(ADDRESSES_PER_READ);
            let found = self.articles().repository().addresses(kind, last.as_ref(), skip, limit)?;
            let path = |slug: &str| format!("/articles/{}", encode_segment(slug));
            paths.extend(found.iter().map(|article| (path(&article.slug), Some(article.updated_at))));
            if found.len() < limit as usize {
                return Ok(());
            }
            left -= limit;
            last = found.into_iter().next_back();
        }
        Ok(())
    }
}

/// What the site map is made of.
struct Parts {
    /// Encoded paths.
    front: Vec<String>,
    posts: u32,
    pages: u32,
}

impl Parts {
    fn front_len(&self) -> u32 {
        u32::try_from(self.front.len()).unwrap_or(u32::MAX)
    }

    fn files(&self, per_file: u32) -> u32 {
        let all = u64::from(self.front_len()) + u64::from(self.posts) + u64::from(self.pages);
        u32::try_from(all.div_ceil(u64::from(per_file))).unwrap_or(u32::MAX)
    }
}

/// Of `count` things that begin at `before` in the whole: which of them lie among the `size` after `skip`.
fn window(skip: u32, size: u32, before: u32, count: u32) -> (u32, u32) {
    let end = skip.saturating_add(size).saturating_sub(before).min(count);
    (skip.saturating_sub(before).min(end), end)
}

fn is_whole(opening: &str) -> bool {
    opening.chars().count() <= FEED_CHARS as usize
}

/// How the client calls this server.
fn called(headers: &HeaderMap) -> Result<String, Problem> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).filter(|host| is_host(host));
    let host = host.ok_or_else(|| Problem::bad_request("the Host header names no host"))?;
    Ok(format!("http://{host}"))
}

fn is_host(host: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    !host.is_empty() && host.len() <= 255 && host.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_lies_in_exactly_one_window() {
        let (front, posts, pages) = (3, 10, 4);
        let mut seen = vec![0; 17];
        for file in 0..5 {
            for (before, count) in [(0, front), (front, posts), (front + posts, pages)] {
                let (from, to) = window(file * 4, 4, before, count);
                (from..to).for_each(|at| seen[(before + at) as usize] += 1);
            }
        }
        assert_eq!(seen, vec![1; 17]);
        assert_eq!(Parts { front: vec![String::new(); 3], posts, pages }.files(4), 5);
        assert_eq!(Parts { front: vec![String::new()], posts: 49_999, pages: 0 }.files(50_000), 1);
        assert_eq!(Parts { front: vec![String::new()], posts: 50_000, pages: 0 }.files(50_000), 2);
    }

    #[test]
    fn a_host_cannot_bring_its_own_markup() {
        assert!(is_host("example.org") && is_host("[::1]:8080") && is_host("127.0.0.1:80"));
        for bad in ["", "a<b", "a/b", "a b", "a@b", "a\"b", &"a".repeat(300)] {
            assert!(!is_host(bad), "{bad}");
        }
    }
}
