//! `backup FILE`: a consistent copy of the articles and their outbox, or of a worker's ledger, while they are written.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::output::Output;
use super::settings::DataDir;
use super::{BackupArgs, CliError, exit};

/// How long to wait for a lock of another process.
const BUSY: Duration = Duration::from_secs(10);
const COPY: &str = "VACUUM INTO ?1";
const COUNT_ARTICLES: &str = "SELECT count(*) FROM articles";
const COUNT_LEDGER: &str = "SELECT count(*) FROM processed_events";
const NEWEST_EVENT: &str = "SELECT coalesce(max(id), 0) FROM event_outbox";

/// What a copy holds.
struct Copied {
    bytes: u64,
    holds: String,
}

/// Copies the database of the data folder to a file that is not there yet.
pub(super) fn run(data: &Path, args: &BackupArgs) -> Result<u8, CliError> {
    let dir = DataDir::of_either(data).map_err(CliError::Failed)?;
    let begun = Instant::now();
    let file = &args.file;
    let failed = |error: String| CliError::failed(format!("no backup was made at {}: {error}", file.display()));
    if file.symlink_metadata().is_ok() {
        return Err(failed("there is a file already, and it is left as it is; name another, or remove it".to_owned()));
    }
    // A worker keeps no articles.
    let of_worker = !dir.articles().exists();
    let source = if of_worker { dir.worker() } else { dir.articles() };
    let copied = copy(&source, file, of_worker).map_err(failed)?;
    let mut out = Output::new();
    out.line(&format!(
        "{}: {} bytes, {}, in {:.1} s",
        file.display(),
        copied.bytes,
        copied.holds,
        begun.elapsed().as_secs_f64()
    ))?;
    out.flush()?;
    Ok(exit::OK)
}

/// Under another name first, so that the name is only ever that of a whole copy.
fn copy(from: &Path, to: &Path, of_worker: bool) -> Result<Copied, String> {
    let part = Part::beside(to).map_err(|error| format!("cannot write there: {error}"))?;
    let source = open_to_read(from).map_err(|error| format!("{} cannot be read: {error}", from.display()))?;
    let target = part.0.to_str().ok_or("its path is not UTF-8")?;
    source.execute(COPY, [target]).map_err(|error| format!("copying {} failed: {error}", from.display()))?;
    let copied = look_at(&part.0, of_worker)?;
    publish(&part.0, to).map_err(|error| error.to_string())?;
    Ok(copied)
}

pub(super) fn open_to_read(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
}

/// Reads the copy once, so that what cannot be read is found now and not when it is needed.
fn look_at(copy: &Path, of_worker: bool) -> Result<Copied, String> {
    let unreadable = |error: rusqlite::Error| format!("the copy cannot be read: {error}");
    let connection = open_to_read(copy).map_err(unreadable)?;
    let verdict: String =
        connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).map_err(unreadable)?;
    if verdict != "ok" {
        return Err(format!("the copy is damaged, as the database must be: {verdict}; see `check`"));
    }
    let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(unreadable);
    let holds = if of_worker {
        format!("{} entries of a worker's ledger", one(COUNT_LEDGER)?)
    } else {
        format!("{} articles, newest event {}", one(COUNT_ARTICLES)?, one(NEWEST_EVENT)?)
    };
    let bytes = fs::metadata(copy).map_err(|error| error.to_string())?.len();
    Ok(Copied { bytes, holds })
}

/// Durably gives the copy its name, unless somebody else took that meanwhile.
fn publish(part: &Path, to: &Path) -> io::Result<()> {
    File::open(part)?.sync_all()?;
    match fs::hard_link(part, to) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Err(error),
        // A file system without hard links.
        Err(_) if to.symlink_metadata().is_err() => fs::rename(part, to)?,
        Err(error) => return Err(error),
    }
    File::open(folder_of(to))?.sync_all()
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file on its way, removed when it goes out of use.
struct Part(PathBuf);

impl Part {
    /// An empty file, readable by its owner alone: SQLite fills an empty file, and refuses any other.
    fn beside(to: &Path) -> io::Result<Self> {
        let name = to.file_name().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "that names no file"))?;
        let path = folder_of(to).join(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        for end in ["", "-journal", "-wal", "-shm"] {
            let mut path = self.0.clone().into_os_string();
            path.push(end);
            // Nothing is there after a rename, and the others are rarely.
            let _ = fs::remove_file(path);
        }
    }
}
