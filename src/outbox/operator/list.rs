//! Lists of exceptions: filters and pages.
//!
//! A page walks one index in the order of handler and log position, from where the page before ended. Handler, states
//! and key choose the range of the index; the rest of a filter is judged row by row. So that this costs a bounded time
//! behind any number of rows, a page ends after [`MAX_LOOKED_AT`] rows, full or not, and says where to go on.

use std::fmt;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row};

use super::Operator;
use super::exception::{ExceptionInfo, ExceptionState, exception_info, lossy, state_of};
use crate::outbox::policy::millis;
use crate::outbox::{EventFilter, sql};
use crate::storage::ReadError;

/// Most rows in one page of [`Operator::exceptions`].
pub const MAX_PAGE: usize = 1_000;
/// Rows that one page looks at, at most.
const MAX_LOOKED_AT: usize = 10_000;

/// Which exceptions are meant: those that fit in every respect. The default is all dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// In one of these states; `[DeadLetter]` by default.
    pub states: Vec<ExceptionState>,
    /// Of this handler only.
    pub handler: Option<String>,
    /// Of this event type; `order.*` means all that begin with `order.`, as in a handler's filter.
    pub event_type: Option<String>,
    /// Of this key only.
    pub key: Option<String>,
    /// Whose last failure contains this text, in upper or lower case.
    pub reason: Option<String>,
    /// That became exceptions longer ago than this.
    pub older_than: Option<Duration>,
    /// That became exceptions within this time.
    pub newer_than: Option<Duration>,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            states: vec![ExceptionState::DeadLetter],
            handler: None,
            event_type: None,
            key: None,
            reason: None,
            older_than: None,
            newer_than: None,
        }
    }
}

impl Filter {
    /// Everything in one of these states.
    pub fn states(states: impl Into<Vec<ExceptionState>>) -> Self {
        Self { states: states.into(), ..Self::default() }
    }

    /// Those of this handler among them.
    #[must_use]
    pub fn of_handler(mut self, handler: impl Into<String>) -> Self {
        self.handler = Some(handler.into());
        self
    }
}

/// Where a page ended. As text it is `ID@HANDLER`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExceptionCursor {
    /// The handler whose rows were looked at last.
    pub handler: String,
    /// The log position looked at last.
    pub outbox_id: i64,
}

impl ExceptionCursor {
    /// Just after this row.
    pub fn after(handler: impl Into<String>, outbox_id: i64) -> Self {
        Self { handler: handler.into(), outbox_id }
    }
}

impl fmt::Display for ExceptionCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.outbox_id, self.handler)
    }
}

impl std::str::FromStr for ExceptionCursor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('@').and_then(|(id, handler)| Some(Self::after(handler, id.parse().ok()?)));
        parsed.ok_or_else(|| format!("no such place in a list: {text:?}; it looks like 4711@search"))
    }
}

/// One page of exceptions, by handler and log position.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExceptionPage {
    /// At most as many as asked for. There may be fewer, even none, and still a next page: with a filter that little
    /// fits, a page ends after a bounded number of rows.
    pub exceptions: Vec<ExceptionInfo>,
    /// Where the next page begins; `None` when this is the last.
    pub next: Option<ExceptionCursor>,
}

impl Operator {
    /// One page of exceptions by handler and log position, at most `limit` of them (1 to [`MAX_PAGE`]). `after` is the
    /// [`next`](ExceptionPage::next) of the page before.
    ///
    /// # Errors
    /// As the read reports it.
    pub fn exceptions(
        &self,
        filter: &Filter,
        after: Option<&ExceptionCursor>,
        limit: usize,
    ) -> Result<ExceptionPage, ReadError<rusqlite::Error>> {
        let now = self.database.clock().now_ms();
        self.database.read(|connection| Walk::new(filter, now, limit, MAX_LOOKED_AT).page(connection, after))
    }
}

/// Reads one page.
#[derive(Debug)]
pub(super) struct Walk<'f> {
    filter: &'f Filter,
    types: Option<EventFilter>,
    reason: Option<String>,
    /// Created at the latest, and at the earliest.
    created: (i64, i64),
    /// Nothing beyond this log position.
    until: i64,
    limit: usize,
    looks_left: usize,
}

impl<'f> Walk<'f> {
    /// A page of `limit` rows that looks at no more than `looks`.
    pub(super) fn new(filter: &'f Filter, now: i64, limit: usize, looks: usize) -> Self {
        let ago = |age: Duration| now.saturating_sub(millis(age));
        Self {
            filter,
            types: filter.event_type.clone().map(|pattern| EventFilter::Types(vec![pattern])),
            reason: filter.reason.as_ref().map(|text| text.to_lowercase()),
            created: (filter.older_than.map_or(i64::MAX, ago), filter.newer_than.map_or(i64::MIN, ago)),
            until: i64::MAX,
            limit: limit.clamp(1, MAX_PAGE),
            looks_left: looks,
        }
    }

    /// Nothing beyond this log position: so a walk that goes on batch after batch comes to an end.
    pub(super) fn up_to(mut self, last: i64) -> Self {
        self.until = last;
        self
    }

    pub(super) fn page(
        mut self,
        connection: &Connection,
        after: Option<&ExceptionCursor>,
    ) -> rusqlite::Result<ExceptionPage> {
        let mut page = ExceptionPage::default();
        let mut place = self.first(connection, after)?;
        while let Some((handler, after_id)) = place {
            self.walk_handler(connection, &handler, after_id, &mut page)?;
            if page.next.is_some() || self.filter.handler.is_some() {
                break;
            }
            place = self.next_handler(connection, &handler)?.map(|next| (next, i64::MIN));
        }
        Ok(page)
    }

    /// The handler to begin with, and the log position after which to begin.
    fn first(
        &self,
        connection: &Connection,
        after: Option<&ExceptionCursor>,
    ) -> rusqlite::Result<Option<(String, i64)>> {
        Ok(match (&self.filter.handler, after) {
            (Some(handler), Some(after)) if after.handler == *handler => Some((handler.clone(), after.outbox_id)),
            (Some(handler), Some(after)) if after.handler > *handler => None,
            (Some(handler), _) => Some((handler.clone(), i64::MIN)),
            (None, Some(after)) => Some((after.handler.clone(), after.outbox_id)),
            (None, None) => self.next_handler(connection, "")?.map(|handler| (handler, i64::MIN)),
        })
    }

    /// The next handler that has a row in one of the states.
    fn next_handler(&self, connection: &Connection, after: &str) -> rusqlite::Result<Option<String>> {
        let mut next: Option<String> = None;
        for state in &self.filter.states {
            let found: Option<String> = connection
                .prepare_cached(sql::NEXT_HANDLER)?
                .query_row((state.stored(), after), |row| lossy(row, 0))
                .optional()?
                .flatten();
            next = match (next, found) {
                (Some(next), Some(found)) => Some(next.min(found)),
                (next, found) => next.or(found),
            };
        }
        Ok(next)
    }

    fn walk_handler(
        &mut self,
        connection: &Connection,
        handler: &str,
        after: i64,
        page: &mut ExceptionPage,
    ) -> rusqlite::Result<()> {
        let wanted = |state| self.filter.states.contains(&state);
        let mut statement;
        let mut rows = match &self.filter.key {
            Some(key) => {
                statement = connection.prepare_cached(sql::LIST_OF_KEY)?;
                statement.query((handler, after, key))?
            }
            None => {
                let [dead, parked, retry, waiting, discarded, done] = ExceptionState::ALL.map(wanted);
                statement = connection.prepare_cached(sql::LIST)?;
                statement.query((handler, after, dead, parked, retry, waiting, discarded, done))?
            }
        };
        let mut last = ExceptionCursor::after(handler, after);
        while let Some(row) = rows.next()? {
            if row.get::<_, i64>(0)? > self.until {
                break;
            }
            if self.looks_left == 0 {
                page.next = Some(last);
                return Ok(());
            }
            self.looks_left -= 1;
            if self.fits(row)? {
                if page.exceptions.len() == self.limit {
                    page.next = Some(last);
                    return Ok(());
                }
                page.exceptions.push(exception_info(row)?);
            }
            last.outbox_id = row.get(0)?;
        }
        Ok(())
    }

    fn fits(&self, row: &Row<'_>) -> rusqlite::Result<bool> {
        let (latest, earliest) = self.created;
        let created: i64 = row.get(11)?;
        if created > latest || created < earliest {
            return Ok(false);
        }
        if self.filter.key.is_some() && !self.filter.states.contains(&state_of(row, 3)?) {
            return Ok(false);
        }
        if let Some(part) = &self.reason {
            let reason = lossy(row, 9)?.unwrap_or_default();
            if !reason.to_lowercase().contains(part.as_str()) {
                return Ok(false);
            }
        }
        Ok(match &self.types {
            Some(types) => lossy(row, 14)?.is_some_and(|event_type| types.matches(&event_type)),
            None => true,
        })
    }
}

/// The first page, on a connection of the caller's: to measure what it costs.
#[cfg(test)]
pub(in crate::outbox) fn page_of(
    connection: &Connection,
    filter: &Filter,
    limit: usize,
) -> rusqlite::Result<ExceptionPage> {
    Walk::new(filter, 0, limit, MAX_LOOKED_AT).page(connection, None)
}
