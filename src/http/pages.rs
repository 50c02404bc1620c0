//! The reader's pages: index, article, tag, search. Public, so drafts do not exist here.
//!
//! Which article a slug means, and in which state, is asked of the database at each request; the rendered page comes
//! from the cache under exactly that state. So a page can be missing from the cache, but never stale.

use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{HeaderMap, StatusCode};

use super::conditional::{self, Condition};
use super::edge::keyed;
use super::engine::Response;
use super::problem::Problem;
use super::request::Query;
use crate::article::{ArticleStamp, ArticleSummary, Kind, ListQuery, Page, Status, tag_key};
use crate::service::ArticleService;
use crate::sinks::cache::{PageCache, PageKey};
use crate::sinks::cdn::keys;
use crate::sinks::render::{Renderer, SITE_CSS};
use crate::sinks::search::{SearchError, SearchIndex};

pub(super) type Answer = Result<Response, Problem>;

/// Articles on one page of a listing.
const PER_PAGE: u32 = 20;
/// What is read of each text for its excerpt, characters.
const OPENING_CHARS: u32 = 1_500;
/// No scripts, no foreign styles, no frames; images may come from anywhere, since posts show them.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src * data:; media-src *; form-action 'self'; \
    base-uri 'none'; frame-ancestors 'none'";
/// Caches in between may keep a page but must ask each time; the entity tag makes that cheap.
const REVALIDATE: HeaderValue = HeaderValue::from_static("no-cache");

pub(super) struct Pages {
    articles: ArticleService,
    search: Arc<SearchIndex>,
    cache: PageCache,
    renderer: Renderer,
    fingerprint: String,
}

impl Pages {
    pub(super) fn new(
        articles: ArticleService,
        search: Arc<SearchIndex>,
        cache: PageCache,
        renderer: Renderer,
    ) -> Self {
        let fingerprint = renderer.fingerprint();
        Self { articles, search, cache, renderer, fingerprint }
    }

    pub(super) fn article(&self, slug: &str, headers: &HeaderMap) -> Answer {
        let found = self.articles.get(slug)?.filter(|article| article.status == Status::Published);
        let slug_key = keys::slug(slug);
        let Some(article) = found else { return Ok(keyed(self.not_found(), [&*slug_key])) };
        let stamp = ArticleStamp::of(&article);
        let tag = format!("\"{}.{}\"", conditional::state_of(&stamp), self.fingerprint);
        let response = self.conditional(headers, &tag, || {
            self.cache.get_or_render(&PageKey::Article(&stamp), || Ok(self.renderer.article(&article)))
        })?;
        Ok(keyed(response, [&*keys::article(&article.id), &slug_key]))
    }

    pub(super) fn index(&self, query: &Query, headers: &HeaderMap) -> Answer {
        // Standing pages have no place among what is new.
        let kind = Some(Kind::Post);
        let list = ListQuery { page: query.number("page", 1)?, limit: PER_PAGE, kind, ..ListQuery::default() };
        self.listing(keys::LISTS, "index", list.page, headers, || {
            let page = self.articles.list(&list)?;
            if page.items.is_empty() && list.page > 1 {
                return Ok(None);
            }
            Ok(Some(self.renderer.index(&page, &self.openings(&page, OPENING_CHARS)?, &self.articles.tags()?)))
        })
    }

    pub(super) fn tag(&self, tag: &str, query: &Query, headers: &HeaderMap) -> Answer {
        let key = tag_key(tag);
        let page = query.number("page", 1)?;
        let list = ListQuery { page, limit: PER_PAGE, tag: Some(key.clone()), ..ListQuery::default() };
        self.listing(&keys::tag(&key), &format!("tag:{key}"), page, headers, || {
            let Some(known) = self.articles.tags()?.into_iter().find(|known| known.tag == key) else {
                return Ok(None);
            };
            let page = self.articles.list(&list)?;
            if page.items.is_empty() && list.page > 1 {
                return Ok(None);
            }
            Ok(Some(self.renderer.tag(&known.label, &page, &self.openings(&page, OPENING_CHARS)?)))
        })
    }

    pub(super) fn search(&self, query: &Query) -> Answer {
        let words = query.get("q")?.unwrap_or_default();
        if words.trim().is_empty() {
            return Ok(self.html(StatusCode::OK, self.renderer.search("", None)));
        }
        let (status, page) = match self.search.search(words, query.number("page", 1)?, PER_PAGE) {
            Ok(found) if found.items.is_empty() && found.page > 1 => return Ok(self.not_found()),
            Ok(found) => (StatusCode::OK, self.renderer.search(words, Some(&found))),
            Err(error @ SearchError::InvalidQuery { .. }) => {
                (StatusCode::BAD_REQUEST, self.renderer.error("Search", &error.to_string()))
            }
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, self.renderer.error("Search", &error.to_string())),
        };
        Ok(self.html(status, page))
    }

    pub(super) fn asset(&self, name: &str, headers: &HeaderMap) -> Answer {
        if name != "site.css" {
            return Ok(self.not_found());
        }
        let tag = format!("\"css.{}\"", self.fingerprint);
        let css = || Ok(SITE_CSS.as_bytes().to_vec());
        let response = keyed(self.conditional(headers, &tag, css)?, []);
        Ok(response.header(CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8")))
    }

    pub(super) fn not_found(&self) -> Response {
        self.html(StatusCode::NOT_FOUND, self.renderer.not_found())
    }

    pub(super) fn articles(&self) -> &ArticleService {
        &self.articles
    }

    pub(super) fn renderer(&self) -> &Renderer {
        &self.renderer
    }

    /// Where readers reach the site, if the settings say so; without a slash at its end.
    pub(super) fn base_url(&self) -> Option<&str> {
        let base = self.renderer.site().base_url.trim_end_matches('/');
        (!base.is_empty()).then_some(base)
    }

    /// The beginnings of a page's texts.
    pub(super) fn openings(&self, page: &Page<ArticleSummary>, chars: u32) -> Result<Vec<String>, Problem> {
        let ids: Vec<&str> = page.items.iter().map(|item| item.id.as_str()).collect();
        Ok(self.articles.repository().openings(&ids, chars)?)
    }

    /// A page made from many articles, which a change of what `key` names makes stale; `None` means that there is no such page.
    pub(super) fn listing(
        &self,
        key: &str,
        name: &str,
        page: u32,
        headers: &HeaderMap,
        render: impl FnOnce() -> Result<Option<String>, Problem>,
    ) -> Answer {
        self.listing_for("", name, page, headers, render).map(|response| keyed(response, [key]))
    }

    /// The same for a page that is sent differently to each `audience`, though it is cached once.
    pub(super) fn listing_for(
        &self,
        audience: &str,
        name: &str,
        page: u32,
        headers: &HeaderMap,
        render: impl FnOnce() -> Result<Option<String>, Problem>,
    ) -> Answer {
        // Read before anything that goes into the list: a change in between then only means that a newer list is filed
        // under an older state, which nobody asks for again.
        let site = self.articles.repository().site_version()?.to_string();
        let name = format!("{name}?page={page}");
        let audience: String = audience.bytes().map(|byte| format!("{byte:02x}")).collect();
        let tag = format!("\"{site}.{page}.{}{audience}\"", self.fingerprint);
        let key = PageKey::Listing { name: &name, site: &site };
        let page = match self.cache.get(&key) {
            Some(page) => page,
            None => match render()? {
                Some(page) => {
                    self.cache.put(&key, &page);
                    page.into_bytes()
                }
                None => return Ok(self.not_found()),
            },
        };
        self.conditional(headers, &tag, || Ok(page))
    }

    /// 304 for who has the page already, else the page with its tag.
    fn conditional(&self, headers: &HeaderMap, tag: &str, page: impl FnOnce() -> Result<Vec<u8>, Problem>) -> Answer {
        let known = Condition::if_none_match(headers)?.matches_weakly(tag);
        let response =
            if known { Response::new(StatusCode::NOT_MODIFIED, "") } else { self.html(StatusCode::OK, page()?) };
        Ok(match conditional::header_value(tag) {
            Some(value) => response.header(ETAG, value).header(CACHE_CONTROL, REVALIDATE),
            None => response,
        })
    }

    fn html(&self, status: StatusCode, page: impl Into<Bytes>) -> Response {
        const HEADERS: [(HeaderName, &str); 5] = [
            (CONTENT_TYPE, "text/html; charset=utf-8"),
            (CONTENT_SECURITY_POLICY, POLICY),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (X_FRAME_OPTIONS, "DENY"),
            (REFERRER_POLICY, "strict-origin-when-cross-origin"),
        ];
        HEADERS
            .into_iter()
            .fold(Response::new(status, page), |page, (name, value)| page.header(name, HeaderValue::from_static(value)))
    }
}
