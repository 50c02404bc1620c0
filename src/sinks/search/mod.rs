//! Full-text search: an FTS5 index in a file of its own, kept in step with the articles by a lane.
//!
//! Shape of the file: `docs` holds per article the last applied version, written in the same transaction as the
//! article's row in the full-text table; `state` holds the newest event applied. An older or repeated event therefore changes nothing,
//! and a file that is behind the log, ahead of it, of another database, damaged or absent is noticed when the lane
//! begins and brought in step from the articles, while searches go on.
//!
//! What is searched, and shown in snippets, is the text a reader of the page sees, not the Markdown: the address of a link is
//! not found, its text is. Without the cargo feature `sinks` nothing here reads Markdown, and the text is searched as it was
//! written. A file from a build of the other kind is indexed anew when the lane begins.
//!
//! Words are found without regard to case and diacritics. Scripts written without spaces (Chinese, Japanese, Thai, …) are indexed
//! character by character, so every part of a sentence is found. Characters that are neither letters nor digits
//! separate words and are not searched for. There is no stemming; a word that ends in `*` finds all that begin with it.

mod failure;
mod file;
mod index;
mod model;
mod plain;
mod query;
#[cfg(feature = "sinks")]
mod raw_html;
mod readers;
mod rebuild;
mod snippet;
mod sql;
mod text;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, Transaction, TransactionBehavior};

pub use model::{Hit, SearchError, SearchOptions, SearchPage};
pub use rebuild::RebuildReport;
pub use text::{MAX_QUERY_CHARS, MAX_QUERY_WORDS};

use super::change::{Change, article_event_types};
use super::source::ArticleSource;
use crate::outbox::{DispatchError, Event, EventFilter, Handler, LaneStart};
use failure::Failure;
use query::{count, hits};
use readers::{NoReader, Readers};
use rebuild::Standing;

/// Most hits on one page.
pub const MAX_LIMIT: u32 = 100;
/// Hits beyond this rank are counted and not listed.
pub const MAX_RANK: u32 = 10_000;

/// Events in one transaction of the index, at most.
const BATCH: usize = 256;

/// The search index: answers searches, and is the [`Handler`] that keeps it up to date. Cheap to clone.
#[derive(Clone)]
pub struct SearchIndex {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    source: Arc<dyn ArticleSource>,
    options: SearchOptions,
    readers: Readers,
    /// `None` until first needed, and after the file turned out to be damaged.
    writer: Mutex<Option<Connection>>,
    /// The readers' epoch in which one of them met damage, plus one; 0 when none has.
    damaged: AtomicU64,
    closed: AtomicBool,
}

impl SearchIndex {
    /// An index in the file `path`, fed from `source`. No I/O happens before the first use; a missing file is created by
    /// the lane, and finds nothing until then.
    pub fn new(path: impl AsRef<Path>, source: Arc<dyn ArticleSource>, options: SearchOptions) -> Self {
        let path = path.as_ref().to_owned();
        let inner = Inner {
            readers: Readers::new(&path, options.readers),
            path,
            source,
            options,
            writer: Mutex::new(None),
            damaged: AtomicU64::new(0),
            closed: AtomicBool::new(false),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Finds the published articles that hold every word of `query`; see the module's text for what a word is. `page` counts
    /// from 1 and `limit` is held to 1..=[`MAX_LIMIT`].
    ///
    /// A query without a letter or digit finds nothing.
    ///
    /// # Errors
    /// A [`SearchError`]; none because of the characters in `query`.
    pub fn search(&self, query: &str, page: u32, limit: u32) -> Result<SearchPage, SearchError> {
        let (page, limit) = (page.max(1), limit.clamp(1, MAX_LIMIT));
        let mut answer = SearchPage { items: Vec::new(), page, limit, total: 0 };
        let Some(expression) = text::match_expression(query)? else { return Ok(answer) };
        let inner = &*self.inner;
        let found = inner.read(|connection| {
            // One snapshot, so that the count and the hits are of one state.
            let tx = connection.transaction()?;
            let total = tx.prepare_cached(sql::COUNT)?.query_row([&expression], count)?;
            Ok((total, hits(&tx, query, &expression, page, limit)?))
        });
        match found {
            Ok(Some((total, items))) => (answer.total, answer.items) = (total, items),
            Ok(None) => {}
            Err(error) => return Err(inner.search_error(error)),
        }
        Ok(answer)
    }

    /// Articles that can be found.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn len(&self) -> Result<u64, SearchError> {
        let counted = |connection: &mut Connection| connection.query_row(sql::COUNT_DOCS, [], count);
        match self.inner.read(counted) {
            Ok(count) => Ok(count.unwrap_or(0)),
            Err(error) => Err(self.inner.search_error(error)),
        }
    }

    /// Whether no article can be found.
    ///
    /// # Errors
    /// As [`search`](Self::search).
    pub fn is_empty(&self) -> Result<bool, SearchError> {
        self.len().map(|count| count == 0)
    }

    /// Indexes every article again, page by page; searches go on, and the lane too.
    ///
    /// # Errors
    /// [`SearchError::Unavailable`]; what is done stays done, and the rest follows at the next start of the lane.
    pub fn rebuild(&self) -> Result<RebuildReport, SearchError> {
        let begun = self.inner.write(|tx| {
            let state = index::read_state(tx)?;
            Ok(rebuild::start(tx, Standing::Foreign, state.applied.as_ref())?)
        });
        begun.and_then(|()| self.inner.finish_rebuild(None)).map_err(SearchError::from)
    }

    /// Indexes articles again until all are done or the time is up, and says which; called again, it goes on where it
    /// stopped. What is left when nobody calls again is done at the next start of the lane.
    ///
    /// # Errors
    /// As [`rebuild`](Self::rebuild).
    pub fn rebuild_until(&self, until: Instant) -> Result<(RebuildReport, bool), SearchError> {
        let begun = self.inner.write(|tx| {
            let state = index::read_state(tx)?;
            if state.rebuild == 0 || state.revision != plain::REVISION {
                rebuild::start(tx, Standing::Foreign, state.applied.as_ref())?;
            }
            Ok(())
        });
        begun.and_then(|()| self.inner.go_on(Some(until))).map_err(SearchError::from)
    }

    /// Lets FTS5 compare its index with the text it holds.
    ///
    /// # Errors
    /// [`SearchError::Unavailable`] when they differ; the file is then built anew by the lane, or by [`rebuild`](Self::rebuild).
    pub fn check(&self) -> Result<(), SearchError> {
        self.inner.write(|tx| Ok(tx.execute(sql::INTEGRITY_CHECK, []).map(drop)?)).map_err(SearchError::from)
    }

    /// Ends a rebuild under way after its page, and lets none begin: to be called when the program stops, before it waits
    /// for the lane. Events and searches are still served.
    pub fn close(&self) {
        self.inner.closed.store(true, Ordering::SeqCst);
    }
}

impl Handler for SearchIndex {
    fn handle(&self, event: &Event) -> Result<(), DispatchError> {
        self.handle_batch(std::slice::from_ref(event))
    }

    fn handle_batch(&self, events: &[Event]) -> Result<(), DispatchError> {
        let changes = events.iter().map(Change::of).collect::<Result<Vec<_>, _>>()?;
        self.inner.build_if_lost()?;
        let mut done = 0;
        while done < events.len() {
            done += self.inner.apply(&changes[done..], &events[done..])?;
        }
        Ok(())
    }

    fn batch_limit(&self) -> usize {
        BATCH
    }

    fn filter(&self) -> EventFilter {
        article_event_types()
    }

    fn begin(&self, lane: &LaneStart) -> Result<(), DispatchError> {
        let inner = &*self.inner;
        let judged = inner.write(|tx| judge(tx, lane, &*inner.source));
        let standing = match judged {
            // The file under it was useless and is gone now: judge the new one.
            Err(Failure::Damaged(_)) => inner.write(|tx| judge(tx, lane, &*inner.source))?,
            judged => judged?,
        };
        if standing != Standing::InStep {
            log::info!("search index rebuild begins reason={:?}", standing.reason());
            let report = inner.finish_rebuild(None)?;
            log::info!(
                "search index rebuild done seen={} written={} removed={}",
                report.seen,
                report.written,
                report.removed
            );
        }
        Ok(())
    }
}

/// Finds out how the file stands, and notes a rebuild in it if it needs one.
fn judge(tx: &Transaction<'_>, lane: &LaneStart, source: &dyn ArticleSource) -> Result<Standing, Failure> {
    let state = index::read_state(tx)?;
    if rebuild::resumes(&state, lane) {
        return Ok(Standing::Behind);
    }
    let standing = match rebuild::standing(&state, lane, source)? {
        // An operator's rebuild that was cut short.
        Standing::InStep if state.rebuild != 0 => Standing::Foreign,
        standing => standing,
    };
    if standing != Standing::InStep {
        rebuild::start(tx, standing, lane.last_event.as_ref())?;
    }
    if standing == Standing::Foreign {
        tx.execute(sql::FORGET_APPLIED, [])?;
    }
    Ok(standing)
}

impl Inner {
    /// Applies as many of the events as go into one transaction; returns their number.
    fn apply(&self, changes: &[Change], events: &[Event]) -> Result<usize, Failure> {
        let oldest = events.iter().map(|event| event.id).min();
        self.write_with(|connection| {
            // The place in the log cannot tell that the newest transactions were lost if one of them held an event from
            // before that place (one that was retried). Such a transaction is synced to the disk.
            let late = oldest <= index::read_state(connection)?.applied.map(|(id, _)| id);
            connection.pragma_update(None, "synchronous", if late { "FULL" } else { "NORMAL" })?;
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = apply_some(&tx, &*self.source, changes, events)?;
            tx.commit()?;
            Ok(done)
        })
    }

    /// Builds a file that is new or was lost while the lane ran, as far as one slice goes.
    fn build_if_lost(&self) -> Result<(), Failure> {
        let state = self.write_with(|connection| Ok(index::read_state(connection)?))?;
        let ours = state.revision == plain::REVISION;
        if state.built && ours {
            return Ok(());
        }
        if state.rebuild == 0 || !ours {
            self.write(|tx| Ok(rebuild::start(tx, Standing::Foreign, None)?))?;
        }
        self.finish_rebuild(Some(Instant::now() + self.options.rebuild_slice)).map(drop)
    }

    fn read<T>(&self, read: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<Option<T>, NoReader> {
        self.readers.with(self.options.read_wait, self.options.search_time, read)
    }

    fn finish_rebuild(&self, until: Option<Instant>) -> Result<RebuildReport, Failure> {
        let (report, ended) = self.go_on(until)?;
        if ended {
            return Ok(report);
        }
        let reason = "the search index is being rebuilt".to_owned();
        Err(Failure::Source(DispatchError::Unavailable { reason, retry_after: Some(Duration::ZERO) }))
    }

    /// Rebuilds page by page; says whether it came to the end in time.
    fn go_on(&self, until: Option<Instant>) -> Result<(RebuildReport, bool), Failure> {
        let mut report = RebuildReport::default();
        loop {
            if self.closed.load(Ordering::SeqCst) {
                return Err(Failure::unavailable(
                    "the search index is being closed; its rebuild goes on at the next start",
                ));
            }
            let ended = self.write(|tx| {
                let mut state = index::read_state(tx)?;
                if state.rebuild == 0 && !state.built {
                    // The file was replaced in the middle.
                    rebuild::start(tx, Standing::Foreign, None)?;
                    state = index::read_state(tx)?;
                }
                Ok(state.rebuild == 0 || rebuild::page(tx, &*self.source, &state, &mut report)?)
            })?;
            if ended || until.is_some_and(|until| Instant::now() > until) {
                return Ok((report, ended));
            }
        }
    }

    /// Runs `work` in a transaction of the index.
    fn write<T>(&self, work: impl FnOnce(&Transaction<'_>) -> Result<T, Failure>) -> Result<T, Failure> {
        self.write_with(|connection| {
            let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let answer = work(&tx)?;
            tx.commit()?;
            Ok(answer)
        })
    }

    /// Runs `work` on the write connection, opening it first if need be. A file that turns out to be damaged is set aside.
    fn write_with<T>(&self, work: impl FnOnce(&mut Connection) -> Result<T, Failure>) -> Result<T, Failure> {
        let mut writer = self.lock_writer();
        // A report that comes late, of a file that was replaced since, must not cost its successor.
        let reported = self.damaged.swap(0, Ordering::SeqCst);
        if reported == self.readers.epoch() + 1 {
            self.discard_file(&mut writer)?;
        }
        if writer.is_none() {
            *writer = Some(file::open_writer(&self.path)?);
            // Opening may have replaced the file.
            self.readers.renew();
        }
        let Some(connection) = &mut *writer else { return Err(Failure::unavailable("the search index is not open")) };
        match work(connection) {
            Err(Failure::Sqlite(error)) if file::is_damage(&error) => {
                log::error!(
                    "search index is damaged and is built anew path={} error={:?}",
                    self.path.display(),
                    error.to_string()
                );
                self.discard_file(&mut writer)?;
                Err(Failure::Damaged(error.to_string()))
            }
            answer => answer,
        }
    }

    fn discard_file(&self, writer: &mut MutexGuard<'_, Option<Connection>>) -> Result<(), Failure> {
        **writer = None;
        let outcome = file::set_aside(&self.path);
        self.readers.renew();
        outcome.inspect_err(|_| self.report_damage(self.readers.epoch()))
    }

    fn report_damage(&self, epoch: u64) {
        self.damaged.store(epoch + 1, Ordering::SeqCst);
    }

    fn lock_writer(&self) -> MutexGuard<'_, Option<Connection>> {
        // A panic in the middle rolled its transaction back; the connection is sound.
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn search_error(&self, error: NoReader) -> SearchError {
        let (error, epoch) = match error {
            NoReader::Busy => return SearchError::Busy,
            NoReader::Sqlite { error, epoch } => (error, epoch),
        };
        if error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted) {
            return SearchError::TooSlow;
        }
        if file::is_damage(&error) {
            // Only the lane replaces the file: a request must not wait for that.
            self.report_damage(epoch);
            log::error!("search index is damaged path={} error={:?}", self.path.display(), error.to_string());
        }
        SearchError::Unavailable { reason: error.to_string() }
    }
}

fn apply_some(
    tx: &Transaction<'_>,
    source: &dyn ArticleSource,
    changes: &[Change],
    events: &[Event],
) -> Result<usize, Failure> {
    let (mut bytes, mut done) = (0, 0);
    for change in changes {
        if bytes > rebuild::TRANSACTION_BYTES {
            break;
        }
        bytes += index::apply(tx, source, change)?;
        done += 1;
    }
    if let Some(newest) = events[..done].iter().max_by_key(|event| event.id) {
        index::set_applied(tx, newest.id, &newest.event_id)?;
    }
    Ok(done)
}

impl fmt::Debug for SearchIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchIndex").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::article::{Article, ArticleStamp, Kind, Status};

    /// One article, and a log that knows nothing.
    struct OneArticle(Article);

    impl ArticleSource for OneArticle {
        fn article(&self, id: &str) -> Result<Option<Article>, DispatchError> {
            Ok((id == self.0.id).then(|| self.0.clone()))
        }

        fn stamps_after(&self, after: Option<&str>, _: u32) -> Result<Vec<ArticleStamp>, DispatchError> {
            let later = after.is_none_or(|after| *after < *self.0.id);
            Ok(later.then(|| ArticleStamp::of(&self.0)).into_iter().collect())
        }

        fn event_id_at(&self, _: i64) -> Result<Option<String>, DispatchError> {
            Ok(None)
        }

        fn site_version(&self) -> Result<String, DispatchError> {
            Ok("1".to_owned())
        }
    }

    fn index(folder: &tempfile::TempDir) -> SearchIndex {
        let article = Article {
            id: "a-1".to_owned(),
            kind: Kind::Post,
            status: Status::Published,
            slug: "heron".to_owned(),
            title: "Heron".to_owned(),
            content: "It stands.".to_owned(),
            tags: Vec::new(),
            version: 1,
            created_at: 0,
            updated_at: 0,
            publish_at: None,
        };
        SearchIndex::new(folder.path().join("search.db"), Arc::new(OneArticle(article)), SearchOptions::default())
    }

    #[test]
    fn a_late_report_of_damage_does_not_cost_the_file_that_replaced_the_damaged_one() {
        let folder = tempfile::tempdir().unwrap();
        let index = index(&folder);
        let inner = &*index.inner;
        std::fs::write(&inner.path, vec![0x5a; 9_000]).unwrap();
        let before = inner.readers.epoch();
        index.begin(&LaneStart::new(0, None)).unwrap();
        let report = |epoch| {
            let not_a_database = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_NOTADB);
            let error = rusqlite::Error::SqliteFailure(not_a_database, None);
            inner.search_error(NoReader::Sqlite { error, epoch })
        };
        let _ = report(before);
        assert_eq!(index.rebuild().unwrap().seen, 1);
        assert_eq!(index.search("stands", 1, 10).unwrap().total, 1);
        // A report of the present file is taken seriously, and the next work of the lane begins anew, in full.
        let _ = report(inner.readers.epoch());
        assert!(inner.write_with(|connection| Ok(!index::read_state(connection)?.built)).unwrap(), "a fresh file");
        assert_eq!(inner.finish_rebuild(None).unwrap().seen, 1, "a file replaced in the middle of a rebuild is filled");
        assert_eq!(index.search("stands", 1, 10).unwrap().total, 1);
    }
}
