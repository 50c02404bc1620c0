//! Rows that are stored together, each once.
//!
//! A batch is one transaction: each row of it commits with the note that it came, or the batch is as if it had never been. A run that
//! is killed between two batches is completed by the next run.

use std::fmt;

use rusqlite::{Connection, ErrorCode, Transaction, ffi};

use super::Adoption;
use crate::cli::CliError;
use crate::jobs::{Mode, ModeInfo, is_adopted, mark_adopted, mode_info};
use crate::outbox::InsertError;
use crate::storage::{TaskOptions, TransactError};

/// Rows of one transaction, at most.
const ROWS_MAX: usize = 200;
/// Bytes of text after which a batch is stored.
const BYTES_MAX: usize = 4 << 20;
/// As much of the queue of writes is asked for at most: what is larger than the queue would never be let in, and nobody else waits in it.
const CHARGE_MAX: usize = 32 << 20;

/// A row of the source as it will be here.
#[derive(Debug, Clone)]
pub(super) struct Incoming<T> {
    /// What names it, for people.
    pub label: String,
    /// What names it for ever: made of what the source holds, so that another translation of it is still the same row.
    pub origin: String,
    /// What earlier versions of this program named it.
    pub earlier: Option<String>,
    /// Of its texts.
    pub bytes: usize,
    pub row: T,
}

/// How a row fared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stored {
    Adopted,
    /// It came in an earlier run, or its like is here.
    Known,
    Refused(String),
}

/// Rows that wait to be stored.
#[derive(Debug)]
pub(super) struct Batch<T> {
    rows: Vec<Incoming<T>>,
    bytes: usize,
}

/// Writes one row; the error is that of the row alone if it [`is_of_the_row`].
pub(super) type Insert<T> = fn(&Transaction<'_>, &T, i64) -> Result<Stored, InsertError>;

/// Why a whole batch was not stored.
#[derive(Debug)]
enum BatchError {
    NotOpen(ModeInfo),
    Sqlite(InsertError),
}

impl<T> Batch<T> {
    pub(super) fn new() -> Self {
        Self { rows: Vec::new(), bytes: 0 }
    }

    pub(super) fn push(&mut self, row: Incoming<T>) {
        self.bytes += row.bytes;
        self.rows.push(row);
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= ROWS_MAX || self.bytes >= BYTES_MAX
    }
}

impl Adoption<'_> {
    /// Stores the batch, which is empty afterwards, and tells how each of its rows fared.
    ///
    /// # Errors
    /// The source has changed, the site is not open any more, or the database fails: nothing of the batch is stored then.
    pub(super) fn store_batch<T: Clone + Send + 'static>(
        &self,
        batch: &mut Batch<T>,
        insert: Insert<T>,
    ) -> Result<Vec<(Incoming<T>, Stored)>, CliError> {
        let Batch { rows, bytes } = std::mem::replace(batch, Batch::new());
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        self.source.still_stands()?;
        let now_ms = self.app.database.clock().now_ms();
        let options =
            TaskOptions { bytes: (2 * bytes).min(CHARGE_MAX), rows: 2 * rows.len(), ..TaskOptions::default() };
        let incoming = rows.clone();
        let stored = self.app.database.writer().transact_with(options, move |tx| {
            let info = mode_info(tx)?;
            if !is_open(&info) {
                return Err(BatchError::NotOpen(info));
            }
            incoming.iter().map(|row| store(tx, row, insert, now_ms)).collect::<Result<Vec<_>, _>>()
        });
        match stored {
            Ok(stored) => Ok(rows.into_iter().zip(stored).collect()),
            Err(TransactError::Task(BatchError::NotOpen(info))) => Err(not_open(&info)),
            Err(error) => Err(CliError::failed(format!("{error}; what came before is stored, adopt again to go on"))),
        }
    }

    /// Whether the row with this origin came in an earlier run.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(super) fn came_before(&self, origin: &str, earlier: Option<&str>) -> Result<bool, CliError> {
        let known = self.app.database.read(|conn| is_known(conn, origin, earlier));
        known.map_err(|error| CliError::failed(format!("{error}; adopt again to go on")))
    }
}

fn store<T>(
    tx: &Transaction<'_>,
    incoming: &Incoming<T>,
    insert: Insert<T>,
    now_ms: i64,
) -> Result<Stored, BatchError> {
    if is_known(tx, &incoming.origin, incoming.earlier.as_deref())? {
        return Ok(Stored::Known);
    }
    let stored = match insert(tx, &incoming.row, now_ms) {
        Ok(stored) => stored,
        Err(error) if is_of_the_row(&error) => Stored::Refused(error.to_string()),
        Err(error) => return Err(BatchError::Sqlite(error)),
    };
    if !matches!(stored, Stored::Refused(_)) {
        mark_adopted(tx, &incoming.origin, now_ms)?;
    }
    Ok(stored)
}

fn is_known(conn: &Connection, origin: &str, earlier: Option<&str>) -> rusqlite::Result<bool> {
    Ok(is_adopted(conn, origin)? || earlier.map_or(Ok(false), |earlier| is_adopted(conn, earlier))?)
}

/// Whether another row may fare better. The statement that failed left nothing behind, and the transaction goes on.
fn is_of_the_row(error: &InsertError) -> bool {
    match error {
        InsertError::Sqlite(error) => error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation),
        _ => true,
    }
}

/// Whether the error says that there is one already.
pub(super) fn is_double(error: &InsertError) -> bool {
    let InsertError::Sqlite(error) = error else { return false };
    error.sqlite_error().is_some_and(|error| error.extended_code == ffi::SQLITE_CONSTRAINT_UNIQUE)
}

/// Whether changes are applied at once.
pub(super) fn is_open(info: &ModeInfo) -> bool {
    info.mode == Mode::Open && !info.draining
}

pub(super) fn not_open(info: &ModeInfo) -> CliError {
    CliError::failed(match info.mode {
        Mode::Open => {
            "writes from a freeze still wait: let `serve` apply them, then adopt again; what came before is stored"
        }
        _ => "the site is frozen: `thaw` it first, then adopt again; what came before is stored",
    })
}

impl From<rusqlite::Error> for BatchError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(InsertError::Sqlite(error))
    }
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOpen(info) => write!(f, "the site is {}", info.mode),
            Self::Sqlite(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for BatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotOpen(_) => None,
            Self::Sqlite(error) => Some(error),
        }
    }
}
