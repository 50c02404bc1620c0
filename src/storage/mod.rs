//! SQLite as this project uses it: opening, migrations, the reader pool and the queue-writer thread.
//!
//! A [`Database`] is one file with a pool of read connections and one write connection, which a thread of its own, the
//! queue-writer, holds. Reads are closures given to [`Database::read`], each in one snapshot. Writes are closures given
//! to [`QueueWriter::transact`]: whatever waits is written in one transaction (group commit), and each caller is
//! answered only after that transaction has committed.
//!
//! ```
//! use vayu_articles::storage::{Component, Database, Options};
//!
//! const NOTES: Component =
//!     Component { name: "notes", migrations: &["CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT) STRICT"] };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("notes.db");
//! let database = Database::open(&path, &[NOTES], Options::default())?;
//! let id = database.writer().transact(|tx| {
//!     tx.prepare_cached("INSERT INTO notes (text) VALUES (?1)")?.insert(["hello"])
//! })?;
//! let text: String = database.read(|connection| {
//!     connection.query_row("SELECT text FROM notes WHERE id = ?1", [id], |row| row.get(0))
//! })?;
//! assert_eq!(text, "hello");
//! database.close(std::time::Instant::now() + std::time::Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```

mod database;
mod distribution;
mod error;
mod fault;
mod guard;
mod migrate;
mod open;
mod options;
mod readers;
mod recent;
mod statements;
mod writer;

pub use database::{Database, StorageService, WriterService};
pub use distribution::Distribution;
pub use error::{OpenError, ReadError, TransactError};
pub use fault::Fault;
pub use migrate::Component;
pub use open::AutoVacuum;
pub use options::{Options, Synchronous};
pub use readers::PoolState;
pub(crate) use recent::Recent;
pub use recent::RecentCounts;
#[cfg(test)]
pub(crate) use statements::plan_of;
pub(crate) use statements::statements;
pub use writer::{Pending, Probe, QueueWriter, TaskOptions, WriterDistributions, WriterStats};
