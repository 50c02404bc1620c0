//! A few read connections to the index, opened when first needed.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::file;

/// SQLite looks at a reader's deadline once in so many steps of its machine.
const STEPS_PER_LOOK: i32 = 1_000;

/// A bounded set of read connections.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    most: usize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Connection>,
    open: usize,
    /// Grows when the file is replaced; connections of an earlier epoch are closed when they come back.
    epoch: u64,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum NoReader {
    /// All stayed in use.
    Busy,
    /// SQLite failed, on the file of this epoch.
    Sqlite { error: rusqlite::Error, epoch: u64 },
}

impl Readers {
    pub fn new(path: &Path, most: usize) -> Self {
        Self { path: path.to_owned(), most: most.max(1), state: Mutex::default(), returned: Condvar::new() }
    }

    /// Runs `read` on a connection, and interrupts it after `limit`; `None` when there is no index yet.
    pub fn with<T>(
        &self,
        wait: Duration,
        limit: Duration,
        read: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, NoReader> {
        let Some(mut lent) = self.borrow(Instant::now() + wait)? else { return Ok(None) };
        let Some(connection) = lent.connection.as_mut() else { return Ok(None) };
        let deadline = Instant::now() + limit;
        let answer = connection
            .progress_handler(STEPS_PER_LOOK, Some(move || Instant::now() > deadline))
            .and_then(|()| read(connection));
        if answer.is_err() {
            // Whatever state it is in, the next reader shall not have it.
            lent.connection = None;
        }
        let epoch = lent.epoch;
        answer.map(Some).map_err(|error| NoReader::Sqlite { error, epoch })
    }

    /// Forgets every connection: the file under them was replaced.
    pub fn renew(&self) {
        let mut state = self.lock();
        state.epoch += 1;
        state.open -= state.idle.len();
        state.idle.clear();
        self.returned.notify_all();
    }

    /// Which file the readers see: another number after each [`renew`](Self::renew).
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    fn borrow(&self, until: Instant) -> Result<Option<Lent<'_>>, NoReader> {
        let mut state = self.lock();
        loop {
            let epoch = state.epoch;
            if let Some(connection) = state.idle.pop() {
                return Ok(Some(Lent { readers: self, connection: Some(connection), epoch }));
            }
            if state.open < self.most {
                state.open += 1;
                drop(state);
                // From here on the place is given back when `lent` drops, whether or not opening succeeds.
                let mut lent = Lent { readers: self, connection: None, epoch };
                lent.connection = file::open_reader(&self.path).map_err(|error| NoReader::Sqlite { error, epoch })?;
                return Ok(lent.connection.is_some().then_some(lent));
            }
            let left = until.checked_duration_since(Instant::now()).ok_or(NoReader::Busy)?;
            state = self.returned.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection in use; goes back when dropped, also in a panic.
struct Lent<'a> {
    readers: &'a Readers,
    connection: Option<Connection>,
    epoch: u64,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.readers.lock();
        match self.connection.take() {
            Some(connection) if self.epoch == state.epoch && connection.is_autocommit() => state.idle.push(connection),
            _ => state.open -= 1,
        }
        self.readers.returned.notify_one();
    }
}
