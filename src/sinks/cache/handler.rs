//! The lane of the page cache.

use std::io;
use std::sync::Arc;

use super::{PageCache, PageKey};
use crate::article::{ArticleStamp, Status};
use crate::outbox::{DispatchError, Event, EventFilter, Handler, LaneStart};
use crate::sinks::change::{Change, article_event_types};
use crate::sinks::render::Renderer;
use crate::sinks::source::ArticleSource;

/// Lists deleted at one event, at most.
const LISTINGS_PER_EVENT: usize = 1_000;

/// Renders the page of an article that changed, and deletes its earlier pages and the lists of earlier states.
///
/// Trouble with the folder is logged and no failure of the event: an old page is never served, and a missing one is rendered when
/// asked for.
#[derive(Clone)]
pub struct PageHandler {
    cache: PageCache,
    source: Arc<dyn ArticleSource>,
    renderer: Renderer,
}

impl PageHandler {
    /// A handler that fills and cleans `cache`.
    pub fn new(cache: PageCache, source: Arc<dyn ArticleSource>, renderer: Renderer) -> Self {
        Self { cache, source, renderer }
    }

    fn refresh(&self, change: &Change) -> Result<(), DispatchError> {
        let id = &change.article.id;
        let article = self.source.article(id)?.filter(|article| article.status == Status::Published);
        let stamp = article.as_ref().map(ArticleStamp::of);
        if let (Some(article), Some(stamp)) = (&article, &stamp) {
            let key = PageKey::Article(stamp);
            // A newer version has an event of its own: let that one render it.
            if article.version <= change.article.version && self.cache.get(&key).is_none() {
                self.cache.put(&key, &self.renderer.article(article));
            }
        }
        note(self.cache.remove_article(id, stamp.as_ref()));
        Ok(())
    }
}

impl Handler for PageHandler {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.refresh(&Change::of(event)?)?;
        note(self.cache.remove_listings_but(&self.source.site_version()?, LISTINGS_PER_EVENT));
        Ok(())
    }

    fn filter(&self) -> EventFilter {
        article_event_types()
    }

    fn begin(&self, _lane: &LaneStart) -> Result<(), DispatchError> {
        note(self.cache.tidy().map(|()| 0));
        Ok(())
    }
}

fn note(outcome: io::Result<usize>) {
    if let Err(error) = outcome {
        log::warn!("page cache: old pages stay for now error={error}");
    }
}

impl std::fmt::Debug for PageHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageHandler").field("cache", &self.cache).finish_non_exhaustive()
    }
}
