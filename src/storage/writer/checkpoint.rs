//! Moving the write-ahead log into the database file: the queue-writer's business, after its answers are given.

use rusqlite::Connection;

/// Pages written to the log between two checkpoints.
const PAGES_BETWEEN: usize = 1_000;

/// Decides after each commit whether a checkpoint is due. Without commits there is none.
#[derive(Debug)]
pub(super) struct Checkpoints {
    /// Pages in the log when the last one was done.
    pages_at_last: usize,
    /// Size of the log, in bytes, above which it shall be started afresh.
    wal_limit: u64,
    page_size: Option<u64>,
}

impl Checkpoints {
    pub(super) fn new(wal_limit: u64) -> Self {
        Self { pages_at_last: 0, wal_limit, page_size: None }
    }

    /// `pages`: in the log after the last commit.
    pub(super) fn after_commit(&mut self, connection: &Connection, pages: usize) {
        if pages < self.pages_at_last {
            // The log was started afresh.
            self.pages_at_last = 0;
        }
        if pages - self.pages_at_last < PAGES_BETWEEN {
            return;
        }
        self.pages_at_last = pages;
        let size = pages as u64 * self.page_size(connection);
        // RESTART does not wait for readers here: the connection has no busy timeout.
        let restart = size > self.wal_limit;
        let sql = if restart { "PRAGMA wal_checkpoint(RESTART)" } else { "PRAGMA wal_checkpoint(PASSIVE)" };
        let moved = connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        match moved {
            Ok((busy, in_log, done)) => report(restart, size, (busy, in_log, done)),
            Err(error) => log::warn!("event=checkpoint_failed restart={restart} wal_bytes={size} error=\"{error}\""),
        }
    }

    fn page_size(&mut self, connection: &Connection) -> u64 {
        const USUAL: u64 = 4_096;
        *self.page_size.get_or_insert_with(|| {
            let size = connection.pragma_query_value(None, "page_size", |row| row.get::<_, i64>(0));
            size.ok().and_then(|size| u64::try_from(size).ok()).unwrap_or(USUAL)
        })
    }
}

fn report(restart: bool, size: u64, (busy, in_log, done): (i64, i64, i64)) {
    if restart && (busy != 0 || done < in_log) {
        log::warn!(
            "event=wal_large wal_bytes={size} pages={in_log} checkpointed={done} \
             note=\"a long read or another process keeps the log from starting afresh\""
        );
    } else {
        log::debug!("event=checkpoint restart={restart} wal_bytes={size} pages={in_log} checkpointed={done}");
    }
}
