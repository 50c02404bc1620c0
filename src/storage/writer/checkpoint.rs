//! Moving the write-ahead log into the database file: the queue-writer's business, after its answers are given.
//!
//! A log can start afresh only at a moment when no reader needs any of it. With several readers whose snapshots overlap
//! such a moment never comes by itself while somebody writes: each commit leaves some reader behind. So above a limit the
//! writer pauses: new snapshots then all see the newest state, and once those that are older have ended, nobody needs the
//! log. Our own end within the read limit; for a foreign one that does not, the writer does not pause again until it has
//! moved on.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use crate::storage::Options;

/// Pages written to the log between two checkpoints.
const PAGES_BETWEEN: usize = 1_000;
/// How long the first pause may last; each further one twice as long, up to twice the read limit.
const FIRST_PATIENCE: Duration = Duration::from_millis(100);
/// Between two tries within a pause.
const LOOK: Duration = Duration::from_millis(1);
/// After a pause in vain the log grows by this part of the limit before the next one.
const GROWTH_PART: u64 = 4;

/// Decides after each commit whether a checkpoint is due. Without commits there is none.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Pages in the log when the last one was done.
    pages_at_last: usize,
    /// Size of the log, in bytes, above which it shall be started afresh.
    wal_limit: u64,
    page_size: Option<u64>,
    pauses: Pauses,
}

/// When the writer may pause for readers, and how long.
#[derive(Debug)]
struct Pauses {
    patience: Duration,
    /// Both generations of our own snapshots, old and newest, have ended by then.
    longest: Duration,
    /// Size of the log at which the next pause is due.
    next_at: u64,
    /// Pages checkpointed when a pause of the longest kind was in vain: somebody else's reader needs what follows.
    stuck_at: Option<i64>,
}

/// What SQLite says of a checkpoint.
#[derive(Debug, Clone, Copy)]
struct Moved {
    busy: bool,
    in_log: i64,
    done: i64,
}

impl Checkpoints {
    pub(super) fn new(options: &Options) -> Self {
        let longest = options.read_limit.saturating_mul(2);
        let pauses = Pauses { patience: FIRST_PATIENCE.min(longest), longest, next_at: 0, stuck_at: None };
        Self { pages_at_last: 0, wal_limit: options.wal_limit, page_size: None, pauses }
    }

    /// `pages`: in the log after the last commit.
    pub(super) fn is_due(&mut self, pages: usize) -> bool {
        if pages < self.pages_at_last {
            // The log was started afresh.
            self.pages_at_last = 0;
        }
        pages - self.pages_at_last >= PAGES_BETWEEN
    }

    /// `stopping` ends a pause.
    pub(super) fn run(&mut self, connection: &Connection, pages: usize, stopping: impl Fn() -> bool) {
        self.pages_at_last = pages;
        let size = pages as u64 * self.page_size(connection);
        let ended = if size > self.wal_limit { self.restart(connection, size, stopping) } else { passive(connection) };
        match ended {
            Ok(Moved { in_log, done, .. }) => {
                log::debug!("event=checkpoint wal_bytes={size} pages={in_log} checkpointed={done}");
            }
            Err(error) => log::warn!("event=checkpoint_failed wal_bytes={size} error=\"{error}\""),
        }
    }

    /// Has the log start afresh, if need be with a pause.
    fn restart(&mut self, connection: &Connection, size: u64, stopping: impl Fn() -> bool) -> rusqlite::Result<Moved> {
        let mut moved = restart(connection)?;
        let part = (self.wal_limit / GROWTH_PART).max(1);
        let Some(patience) = (!moved.is_whole()).then(|| self.pauses.take(size, part, moved.done)).flatten() else {
            return Ok(self.reported(moved, size, Duration::ZERO));
        };
        let began = Instant::now();
        while !moved.is_whole() && began.elapsed() < patience && !stopping() {
            std::thread::sleep(LOOK);
            moved = restart(connection)?;
        }
        self.pauses.ended(moved, patience);
        Ok(self.reported(moved, size, began.elapsed()))
    }

    fn reported(&mut self, moved: Moved, size: u64, paused: Duration) -> Moved {
        let (ms, Moved { in_log, done, .. }) = (paused.as_millis(), moved);
        if moved.is_whole() {
            self.pauses.reset();
            if ms > 0 {
                log::info!("event=wal_restarted wal_bytes={size} paused_ms={ms}");
            }
        } else {
            log::warn!(
                "event=wal_large wal_bytes={size} pages={in_log} checkpointed={done} paused_ms={ms} \
                 note=\"a long read or another process keeps the log from starting afresh\""
            );
        }
        moved
    }

    fn page_size(&mut self, connection: &Connection) -> u64 {
        const USUAL: u64 = 4_096;
        *self.page_size.get_or_insert_with(|| {
            let size = connection.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0));
            size.ok().and_then(|size| u64::try_from(size).ok()).unwrap_or(USUAL)
        })
    }
}

impl Pauses {
    /// How long to pause now; `None`: not now.
    fn take(&mut self, size: u64, part: u64, done: i64) -> Option<Duration> {
        if self.stuck_at == Some(done) || size < self.next_at {
            return None;
        }
        self.stuck_at = None;
        self.next_at = size.saturating_add(part);
        Some(self.patience)
    }

    fn ended(&mut self, moved: Moved, patience: Duration) {
        if !moved.is_whole() && patience >= self.longest {
            self.stuck_at = Some(moved.done);
        }
        self.patience = self.patience.saturating_mul(2).min(self.longest);
    }

    fn reset(&mut self) {
        self.patience = FIRST_PATIENCE.min(self.longest);
        self.next_at = 0;
        self.stuck_at = None;
    }
}

impl Moved {
    /// Nobody needs anything of the log any more.
    fn is_whole(self) -> bool {
        !self.busy && self.done >= self.in_log
    }
}

fn passive(connection: &Connection) -> rusqlite::Result<Moved> {
    checkpoint(connection, "PRAGMA wal_checkpoint(PASSIVE)")
}

/// Does not wait for readers by itself: the connection has no busy timeout.
fn restart(connection: &Connection) -> rusqlite::Result<Moved> {
    checkpoint(connection, "PRAGMA wal_checkpoint(RESTART)")
}

fn checkpoint(connection: &Connection, sql: &str) -> rusqlite::Result<Moved> {
    connection.query_row(sql, [], |row| {
        Ok(Moved { busy: row.get::<_, i64>(0)? != 0, in_log: row.get(1)?, done: row.get(2)? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_vain(done: i64) -> Moved {
        Moved { busy: true, in_log: 1_000_000, done }
    }

    #[test]
    fn pauses_grow_keep_their_distance_and_end_when_a_foreign_reader_is_stuck() {
        let mut pauses = Checkpoints::new(&Options::default()).pauses;
        let (mut size, mut taken) = (100, Vec::new());
        while pauses.stuck_at.is_none() {
            assert_eq!(pauses.take(size - 1, 10, 7).filter(|_| !taken.is_empty()), None, "too early");
            let patience = pauses.take(size + 10, 10, 7).unwrap();
            pauses.ended(in_vain(7), patience);
            taken.push(patience.as_millis());
            size += 20;
        }
        assert_eq!(taken, [100, 200, 400, 800, 1_600, 3_200, 4_000]);
        assert_eq!(pauses.take(u64::MAX, 10, 7), None, "it waits for nobody who does not move");
        assert!(pauses.take(u64::MAX, 10, 8).is_some(), "it has moved");
        pauses.reset();
        assert_eq!(pauses.take(1, 10, 7), Some(FIRST_PATIENCE));
    }
}
