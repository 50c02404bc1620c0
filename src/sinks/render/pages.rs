//! The site's pages.

use std::fmt::Write as _;

use super::feed::{FeedEntry, atom};
use super::layout::{Frame, document, short_hash};
use super::{SITE_CSS, date, excerpt, markdown};
use crate::article::{Article, ArticleSummary, Page, TagCount, tag_key};
use crate::sinks::html::{encode_segment, escape};
use crate::sinks::search::SearchPage;

/// To be raised when a page's shape changes: pages cached by an older build are then left behind.
const REVISION: &str = "2";
/// Tags shown on the index.
const TAGS_MAX: usize = 30;
/// Characters of a text shown in a list, at most.
const EXCERPT_CHARS: usize = 240;

/// What the pages say of the site itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SiteInfo {
    /// The site's name (default `Articles`).
    pub name: String,
    /// A line below it; empty (the default) leaves it out.
    pub tagline: String,
    /// Language of the texts as in HTML's `lang` (default `en`).
    pub lang: String,
    /// Where readers reach the site, such as `https://example.org`; empty (the default) if that is not known. Then
    /// pages name no address of their own, and the feed's links are relative.
    pub base_url: String,
}

impl Default for SiteInfo {
    fn default() -> Self {
        Self { name: "Articles".to_owned(), tagline: String::new(), lang: "en".to_owned(), base_url: String::new() }
    }
}

impl SiteInfo {
    /// The site's address in HTML and XML, without a slash at its end.
    pub(super) fn base(&self) -> String {
        escape(self.base_url.trim_end_matches('/'))
    }
}

/// Makes whole pages. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Renderer {
    site: SiteInfo,
}

impl Renderer {
    /// A renderer for this site.
    pub fn new(site: SiteInfo) -> Self {
        Self { site }
    }

    /// What it says of the site.
    pub fn site(&self) -> &SiteInfo {
        &self.site
    }

    /// A short name of everything besides the articles that decides how a page looks: pages made under another one are out of date.
    pub fn fingerprint(&self) -> String {
        let SiteInfo { name, tagline, lang, base_url } = &self.site;
        short_hash(&[REVISION, env!("CARGO_PKG_VERSION"), SITE_CSS, name, tagline, lang, base_url])
    }

    /// The page of one article.
    pub fn article(&self, article: &Article) -> String {
        let rendered = markdown(&article.title, &article.content);
        let mut main = String::with_capacity(rendered.html.len() + 1_024);
        let _ = write!(
            main,
            "<article class=\"post\">\n<header>\n<h1>{}</h1>\n<p class=\"meta\">{}",
            escape(&article.title),
            date::element(article.created_at)
        );
        const A_DAY_MS: i64 = 86_400_000;
        if article.updated_at.saturating_sub(article.created_at) >= A_DAY_MS {
            let _ = write!(main, " · updated {}", date::element(article.updated_at));
        }
        main.push_str("</p>\n");
        main.push_str(&tag_list(article.tags.iter().map(String::as_str)));
        let _ = write!(main, "</header>\n<div class=\"text\">\n{}</div>\n</article>\n", rendered.html);
        self.page(&article.title, &rendered.description, &format!("/articles/{}", encode_segment(&article.slug)), &main)
    }

    /// The list of all articles, with the site's tags. `openings` are the beginnings of the articles' texts, in the order
    /// of the page; where there is none, the list shows the title alone.
    pub fn index(&self, page: &Page<ArticleSummary>, openings: &[String], tags: &[TagCount]) -> String {
        let mut main = String::from("<h1 class=\"hidden\">Articles</h1>\n");
        main.push_str(&listing(page, openings, "/"));
        if !tags.is_empty() {
            main.push_str("<nav class=\"all-tags\" aria-label=\"Tags\">\n<h2>Tags</h2>\n<ul class=\"tags\">\n");
            let mut shown: Vec<&TagCount> = tags.iter().collect();
            shown.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.tag.cmp(&b.tag)));
            for tag in shown.into_iter().take(TAGS_MAX) {
                let (url, label, count) = (encode_segment(&tag.tag), escape(&tag.label), tag.count);
                let _ = writeln!(main, "<li><a href=\"/tags/{url}\">{label} <small>{count}</small></a></li>");
            }
            main.push_str("</ul>\n</nav>\n");
        }
        self.page(&numbered("", page.page), &self.site.tagline, &at_page("/", page.page), &main)
    }

    /// The list of the articles with one tag, which is written as `label`; `openings` as for the [index](Self::index).
    pub fn tag(&self, label: &str, page: &Page<ArticleSummary>, openings: &[String]) -> String {
        let (heading, base) = (escape(label), format!("/tags/{}", encode_segment(&tag_key(label))));
        let articles = if page.total == 1 { "article" } else { "articles" };
        let mut main = format!("<h1>{heading}</h1>\n<p class=\"meta\">{} {articles}</p>\n", page.total);
        main.push_str(&listing(page, openings, &base));
        self.page(&numbered(label, page.page), "", &at_page(&base, page.page), &main)
    }

    /// The Atom feed with these articles, to be served at `/feed.xml`.
    pub fn feed(&self, entries: &[FeedEntry<'_>]) -> String {
        atom(&self.site, entries)
    }

    /// What a search found; `None` when nothing was searched for.
    pub fn search(&self, query: &str, found: Option<&SearchPage>) -> String {
        let mut main = String::from("<h1>Search</h1>\n");
        match found {
            None => main.push_str("<p class=\"empty\">Type a word or two above.</p>\n"),
            Some(page) if page.total == 0 => {
                let _ = writeln!(main, "<p class=\"empty\">Nothing found for “{}”.</p>", escape(query));
            }
            Some(page) => main.push_str(&hits(query, page)),
        }
        self.special(&format!("Search: {query}"), query, &main)
    }

    /// The page for an address that leads nowhere.
    pub fn not_found(&self) -> String {
        let main = "<h1>Not found</h1>\n<p>There is no such page here. It may have been renamed or deleted: \
                    try the search, or <a href=\"/\">all articles</a>.</p>\n";
        self.special("Not found", "", main)
    }

    /// A page that says what went wrong.
    pub fn error(&self, heading: &str, message: &str) -> String {
        let main = format!("<h1>{}</h1>\n<p>{}</p>\n", escape(heading), escape(message));
        self.special(heading, "", &main)
    }

    fn page(&self, title: &str, description: &str, path: &str, main: &str) -> String {
        document(&self.site, &Frame { title, description, path, query: "", unlisted: false, main })
    }

    fn special(&self, title: &str, query: &str, main: &str) -> String {
        document(&self.site, &Frame { title, description: "", path: "", query, unlisted: true, main })
    }
}

fn numbered(title: &str, page: u32) -> String {
    match (title, page) {
        (title, 1) => title.to_owned(),
        ("", page) => format!("Page {page}"),
        (title, page) => format!("{title}, page {page}"),
    }
}

/// The address of one page of a list.
fn at_page(base: &str, page: u32) -> String {
    if page == 1 { base.to_owned() } else { format!("{base}?page={page}") }
}

fn listing(page: &Page<ArticleSummary>, openings: &[String], base: &str) -> String {
    if page.items.is_empty() {
        return "<p class=\"empty\">Nothing here yet.</p>\n".to_owned();
    }
    let mut out = String::from("<ol class=\"listing\">\n");
    let openings = openings.iter().map(String::as_str).chain(std::iter::repeat(""));
    for (item, opening) in page.items.iter().zip(openings) {
        let (url, title) = (encode_segment(&item.slug), escape(&item.title));
        let _ = write!(
            out,
            "<li>\n<h2><a href=\"/articles/{url}\">{title}</a></h2>\n<p class=\"meta\">{}</p>\n",
            date::element(item.created_at)
        );
        let excerpt = excerpt(&item.title, opening, EXCERPT_CHARS);
        if !excerpt.is_empty() {
            let _ = writeln!(out, "<p class=\"snippet\">{}</p>", escape(&excerpt));
        }
        out.push_str(&tag_list(item.tags.iter().map(String::as_str)));
        out.push_str("</li>\n");
    }
    out.push_str("</ol>\n");
    out.push_str(&pager(page.page, page.limit, page.total, ["← Newer", "Older →"], |number| at_page(base, number)));
    out
}

fn hits(query: &str, page: &SearchPage) -> String {
    let noun = if page.total == 1 { "article" } else { "articles" };
    let mut out =
        format!("<p class=\"meta\">{} {noun} for “{}”</p>\n<ol class=\"listing hits\">\n", page.total, escape(query));
    for hit in &page.items {
        // Both texts come escaped from the index.
        let (url, title, snippet) = (encode_segment(&hit.slug), &hit.title_html, &hit.snippet);
        let date = date::element(hit.created_at);
        let _ = write!(
            out,
            "<li>\n<h2><a href=\"/articles/{url}\">{title}</a></h2>\n<p class=\"snippet\">{snippet}</p>\n\
             <p class=\"meta\">{date}</p>\n</li>\n"
        );
    }
    out.push_str("</ol>\n");
    let encoded = encode_segment(query);
    out.push_str(&pager(page.page, page.limit, page.total, ["← Previous", "Next →"], |number| {
        format!("/search?q={encoded}&amp;page={number}")
    }));
    out
}

fn tag_list<'a>(labels: impl Iterator<Item = &'a str>) -> String {
    let mut out = String::new();
    for label in labels {
        let (url, label) = (encode_segment(&tag_key(label)), escape(label));
        let _ = writeln!(out, "<li><a href=\"/tags/{url}\" rel=\"tag\">{label}</a></li>");
    }
    if out.is_empty() { out } else { format!("<ul class=\"tags\">\n{out}</ul>\n") }
}

/// Links to the neighbours; nothing where there is one page only. `url` gives escaped HTML.
fn pager(page: u32, limit: u32, total: u64, [back, on]: [&str; 2], url: impl Fn(u32) -> String) -> String {
    let pages = u32::try_from(total.div_ceil(u64::from(limit.max(1)))).unwrap_or(u32::MAX);
    if pages <= 1 {
        return String::new();
    }
    let mut out = String::from("<nav class=\"pager\" aria-label=\"Pages\">\n");
    if page > 1 {
        let _ = writeln!(out, "<a rel=\"prev\" href=\"{}\">{back}</a>", url(page - 1));
    }
    let _ = writeln!(out, "<span>Page {page} of {pages}</span>");
    if page < pages {
        let _ = writeln!(out, "<a rel=\"next\" href=\"{}\">{on}</a>", url(page + 1));
    }
    out.push_str("</nav>\n");
    out
}
