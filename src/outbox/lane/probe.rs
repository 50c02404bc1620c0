//! Probes: an event answered `Unavailable`, and one of another key tells an outage from one dead address.

use std::collections::HashSet;

use super::call::Called;
use super::{Ahead, Interrupt, Lane};
use crate::outbox::Event;
use crate::outbox::log::{self, Body, Exception, LogRow};

/// Log rows that a pass reads when it is going to probe: nearly always an event of another key is among them.
pub(super) const PROBE_DEPTH: usize = 256;
/// Log rows in one page of the search beyond them.
const PAGE: usize = 1_024;

/// How far the log has been searched in vain, so that the next probe for the same event need not begin anew: all that
/// it met there was of the same few keys.
#[derive(Debug)]
pub(super) struct Sought {
    /// The event that is `Unavailable`, and where the lane stood.
    of: (i64, i64),
    /// The last row that was looked at.
    through: i64,
    /// Keys met on the way: a later event of them must not run before the earlier.
    met: HashSet<String>,
}

impl Lane {
    /// Tries one event of another key; its outcome counts, whatever it is, unless it too is `Unavailable`.
    pub(super) fn transport_works(
        &mut self,
        down: &Event,
        due: &[Exception],
        log: &[LogRow],
        finished: &mut HashSet<i64>,
    ) -> Result<bool, Interrupt> {
        let other_due = due.iter().find(|exception| {
            let other_key = exception.key.is_none() || exception.key != down.key;
            other_key && !finished.contains(&exception.id) && !exception.superseded && exception.crashes == 0
        });
        if let Some(exception) = other_due
            && let Body::Event(event) = &exception.body
        {
            let called = self.call(event, false)?;
            if matches!(called, Called::Unavailable { .. }) {
                return Ok(false);
            }
            finished.insert(exception.id);
            let verdict = self.verdict(called, exception.attempts);
            self.conclude_exception(exception, verdict);
            return Ok(true);
        }
        let mut met: HashSet<&str> = down.key.as_deref().into_iter().collect();
        let beyond;
        let row = match self.runnable_of_another_key(log, &mut met) {
            Some(row) => row,
            None => {
                let through = log.last().map_or(down.id, |row| row.id).max(self.progress.position());
                let met = met.into_iter().map(str::to_owned).collect();
                let of = (down.id, self.progress.position());
                match self.runnable_beyond(Sought { of, through, met })? {
                    Some(row) => {
                        beyond = row;
                        &beyond
                    }
                    None => return Ok(false),
                }
            }
        };
        let Body::Event(event) = &row.body else { return Ok(false) };
        let called = self.call(event, false)?;
        if matches!(called, Called::Unavailable { .. }) {
            return Ok(false);
        }
        let dead_below = row.dead_below || event.key.as_deref().is_some_and(|key| self.progress.has_dead(key));
        self.ahead.insert(row.id, Ahead { key: event.key.clone(), dead_below, called });
        Ok(true)
    }

    /// The first event of the log that may run now though those before it have not: none of its key is among them.
    fn runnable_of_another_key<'r>(&self, log: &'r [LogRow], met: &mut HashSet<&'r str>) -> Option<&'r LogRow> {
        log.iter().find(|row| {
            let may_run = self.may_run_now(row) && row.key().is_none_or(|key| !met.contains(key));
            met.extend(row.key());
            may_run
        })
    }

    /// Whether nothing but what is before it in the log keeps this row from being run.
    fn may_run_now(&self, row: &LogRow) -> bool {
        matches!(row.body, Body::Event(_))
            && !row.own_row
            && !self.ahead.contains_key(&row.id)
            && row.key().is_none_or(|_| !self.is_blocked(row))
    }

    /// The same for what the pass has not read: one address may be dead for any number of events in a row, and all other
    /// events come after them. Looks at types and keys, a page at a time, to the end of the log.
    fn runnable_beyond(&mut self, start: Sought) -> Result<Option<LogRow>, Interrupt> {
        let mut sought = match self.sought.take() {
            Some(sought) if sought.of == start.of && sought.through >= start.through => sought,
            _ => start,
        };
        let mut unchanging = true;
        while !self.past_deadline() {
            let (through, matcher) = (sought.through, &self.matcher);
            let page = self
                .database
                .read(|connection| log::read_places(connection, matcher, through, PAGE))
                .map_err(|error| Interrupt::Database(format!("reading failed: {error}")))?;
            for place in page.places {
                if place.key.as_ref().is_some_and(|key| sought.met.contains(key)) {
                    continue;
                }
                match self.row_that_may_run(place.id)? {
                    Some(row) => return Ok(Some(row)),
                    // Another time it may.
                    None => unchanging = false,
                }
                sought.met.extend(place.key);
            }
            match page.end {
                Some(end) => sought.through = end,
                None => break,
            }
        }
        self.sought = unchanging.then_some(sought);
        Ok(None)
    }

    fn row_that_may_run(&mut self, id: i64) -> Result<Option<LogRow>, Interrupt> {
        let (name, matcher) = (self.name.as_str(), &mut self.matcher);
        let row = self
            .database
            .read(|connection| log::read_row(connection, matcher, id, name))
            .map_err(|error| Interrupt::Database(format!("reading failed: {error}")))?;
        Ok(row.filter(|row| self.may_run_now(row)))
    }
}
