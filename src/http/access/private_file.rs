//! Small files for their owner's eyes only, and whether they have changed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// Largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// What tells one state of a file from another; `None` if it is not there.
pub(super) type Stamp = Option<FileStamp>;

/// Identity, size and times: a file that was replaced, written to, or written to and set back differs in one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FileStamp {
    len: u64,
    modified: Option<std::time::SystemTime>,
    #[cfg(unix)]
    inode: (u64, u64, i64, i64),
}

/// # Errors
/// The file is there but cannot be looked at.
pub(super) fn stamp(path: &Path) -> io::Result<Stamp> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(FileStamp {
        len: metadata.len(),
        modified: metadata.modified().ok(),
        #[cfg(unix)]
        inode: {
            use std::os::unix::fs::MetadataExt;
            (metadata.dev(), metadata.ino(), metadata.ctime(), metadata.ctime_nsec())
        },
    }))
}

/// The text of the file; `None` if it is not there.
///
/// # Errors
/// It cannot be read, is too large, or is not UTF-8.
pub(super) fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut text = String::new();
    file.take(MAX_BYTES + 1).read_to_string(&mut text)?;
    if text.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is larger than {MAX_BYTES} bytes")));
    }
    Ok(Some(text))
}

/// Puts `text` in the place of what is there, as a whole and on disk.
///
/// # Errors
/// As the file system reports them.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let fresh = write_beside(path, text)?;
    fs::rename(&fresh, path).inspect_err(|_| discard(&fresh))?;
    sync_folder(path)
}

/// Writes a file that is not there yet; `false` if it is.
///
/// # Errors
/// As the file system reports them.
pub(super) fn create(path: &Path, text: &str) -> io::Result<bool> {
    let fresh = write_beside(path, text)?;
    // Under its final name it is whole from the first moment, and never replaces another.
    let linked = fs::hard_link(&fresh, path);
    discard(&fresh);
    match linked {
        Ok(()) => sync_folder(path).map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

/// Others may read it, which a file of tokens should not allow.
#[cfg(unix)]
pub(super) fn is_open_to_others(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).is_ok_and(|metadata| metadata.mode() & 0o077 != 0)
}

/// Unknown here.
#[cfg(not(unix))]
pub(super) fn is_open_to_others(_: &Path) -> bool {
    false
}

fn write_beside(path: &Path, text: &str) -> io::Result<PathBuf> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", Uuid::new_v4().simple()));
    let fresh = path.with_file_name(name);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let mut file = options.open(&fresh)?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map(|()| fresh.clone()).inspect_err(|_| discard(&fresh))
}

fn discard(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        log::warn!("event=left_behind path={path:?} error=\"{error}\"");
    }
}

fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => {
            File::open(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })?.sync_all()
        }
        _ => Ok(()),
    }
}
