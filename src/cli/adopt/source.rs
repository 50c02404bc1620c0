//! The source, opened so that neither it nor what lies beside it is changed.
//!
//! | what lies there | how it is read |
//! |---|---|
//! | `-wal` and `-shm`: in use, or left by a crash | read-only, the shared memory too (`readonly_shm`); the writer goes on, and none of the files changes |
//! | a `-wal` with contents, but no `-shm`: a copy, or the remains of a crash | both files are copied, and the copy is read |
//! | neither, and the file says WAL: at rest | as immutable, since SQLite would make both files otherwise; each batch looks whether that still holds |
//! | neither, and no WAL | read-only; locks keep writers away |
//!
//! `immutable` beside a writer would read torn pages, and a backup would have to make the `-shm` as any reader does.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OpenFlags, OptionalExtension, Row};

use super::columns;
use super::scratch::Scratch;
use crate::cli::CliError;

const BUSY: Duration = Duration::from_secs(10);
/// The name of the original's database, where a folder is given.
const USUAL_NAME: &str = "vayupress.db";
/// Byte of the header that says 2 for WAL.
const READ_VERSION: usize = 19;

/// A database of the original, in one snapshot.
pub(super) struct Source {
    conn: Connection,
    path: PathBuf,
    at_rest: Option<Stamp>,
    _copy: Option<Scratch>,
}

/// What a writer would change.
#[derive(PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    modified: Option<SystemTime>,
}

impl Source {
    /// Opens the file, or the usual one in the folder.
    ///
    /// # Errors
    /// It cannot be read, or is no database of the original.
    pub(super) fn open(given: &Path) -> Result<Self, CliError> {
        let path = if given.is_dir() { given.join(USUAL_NAME) } else { given.to_owned() };
        let failed = |reason: &dyn std::fmt::Display| CliError::failed(format!("{}: {reason}", path.display()));
        let path = fs::canonicalize(&path).map_err(|error| failed(&error))?;
        let wal_bytes = fs::metadata(beside(&path, "-wal")).map_or(0, |found| found.len());
        let has_shm = beside(&path, "-shm").exists();
        let (mut at_rest, mut copy) = (None, None);
        let conn = if has_shm {
            connect(&path, "mode=ro&readonly_shm=1")
        } else if wal_bytes > 0 {
            let scratch = copied(&path)?;
            let conn = connect(&scratch.path().join(USUAL_NAME), "mode=ro");
            copy = Some(scratch);
            conn
        } else if is_wal(&path).map_err(|error| failed(&error))? {
            at_rest = Some(Stamp::of(&path).map_err(|error| failed(&error))?);
            connect(&path, "immutable=1")
        } else {
            connect(&path, "mode=ro")
        };
        let conn = conn.map_err(|error| failed(&error))?;
        check_kind(&conn).map_err(|reason| failed(&reason))?;
        Ok(Self { conn, path, at_rest, _copy: copy })
    }

    pub(super) fn conn(&self) -> &Connection {
        &self.conn
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The id of the article with this slug; `None` if there is none, or none that is text.
    ///
    /// # Errors
    /// The source cannot be read.
    pub(super) fn article_id(&self, slug: &str) -> Result<Option<String>, CliError> {
        let find = self.conn.prepare_cached("SELECT id FROM articles WHERE slug = ?1");
        let id = find.and_then(|mut find| {
            let text = |row: &Row<'_>| Ok(columns::text(row, 0, "id").ok().flatten());
            find.query_row([slug], text).optional()
        });
        Ok(id.map_err(columns::unreadable)?.flatten())
    }

    /// To be asked after rows were read and before they are stored.
    ///
    /// # Errors
    /// The file was at rest, and somebody has opened it since: what was read may be torn.
    pub(super) fn still_stands(&self) -> Result<(), CliError> {
        let Some(stamp) = &self.at_rest else { return Ok(()) };
        let quiet = !beside(&self.path, "-wal").exists() && Stamp::of(&self.path).is_ok_and(|now| now == *stamp);
        if quiet {
            return Ok(());
        }
        let path = self.path.display();
        Err(CliError::failed(format!(
            "{path}: another program has opened it meanwhile; adopt again to go on from here"
        )))
    }
}

impl Stamp {
    fn of(path: &Path) -> std::io::Result<Self> {
        let found = fs::metadata(path)?;
        Ok(Self { bytes: found.len(), modified: found.modified().ok() })
    }
}

/// One read transaction for everything that follows.
fn connect(path: &Path, how: &str) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(format!("file:{}?{how}", in_uri(path)), flags)?;
    conn.busy_timeout(BUSY)?;
    conn.execute_batch("PRAGMA query_only = 1; BEGIN; SELECT count(*) FROM sqlite_schema;")?;
    Ok(conn)
}

/// The path as it stands in a URI: SQLite decodes `%` and ends the path at `?` and `#`.
fn in_uri(path: &Path) -> String {
    path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23")
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

fn is_wal(path: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    fs::File::open(path)?.take(20).read_to_end(&mut head)?;
    Ok(head.get(READ_VERSION) == Some(&2))
}

fn copied(path: &Path) -> Result<Scratch, CliError> {
    let scratch = Scratch::create()?;
    let to = scratch.path().join(USUAL_NAME);
    let copy = fs::copy(path, &to).and_then(|_| fs::copy(beside(path, "-wal"), beside(&to, "-wal")));
    let failed = |error| CliError::failed(format!("cannot copy {} to read it: {error}", path.display()));
    copy.map(|_| scratch).map_err(failed)
}

fn check_kind(conn: &Connection) -> Result<(), String> {
    let has = |table: &str| -> Result<bool, String> {
        let sql = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        conn.prepare(sql).and_then(|mut found| found.exists([table])).map_err(|error| error.to_string())
    };
    if has("vayu_schema")? {
        return Err("this is a database of vayu-articles itself, not of VayuPress".to_owned());
    }
    if !has("articles")? {
        return Err("this is no database of VayuPress: it has no table `articles`".to_owned());
    }
    Ok(())
}
