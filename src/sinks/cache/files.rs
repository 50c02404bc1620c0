//! Files of the cache: whole or not there.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::SystemTime;

use uuid::Uuid;

/// Ends every file, after the check sum.
const MAGIC: &[u8; 8] = b"vayupage";

/// The page in `path`; `None` when there is none or it is not whole.
pub(super) fn read(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = fs::read(path).ok()?;
    let length = bytes.len().checked_sub(16)?;
    let (page, trailer) = bytes.split_at(length);
    let whole = trailer[8..] == *MAGIC && trailer[..8] == check_sum(page).to_le_bytes();
    if !whole {
        log::warn!("page cache: a page is damaged and rendered again path={}", path.display());
        return None;
    }
    bytes.truncate(length);
    Some(bytes)
}

/// Writes a page under a temporary name and renames it, so that no reader ever sees a part of it. It is not synced: what a power failure
/// leaves of it is told by the check sum.
pub(super) fn write(temporary: &Path, path: &Path, page: &[u8]) -> io::Result<()> {
    let unfinished = temporary.join(Uuid::new_v4().to_string());
    let outcome = write_new(&unfinished, page).and_then(|()| {
        fs::rename(&unfinished, path).or_else(|error| match (error.kind(), path.parent()) {
            (io::ErrorKind::NotFound, Some(folder)) => {
                fs::create_dir_all(folder)?;
                fs::rename(&unfinished, path)
            }
            _ => Err(error),
        })
    });
    outcome.inspect_err(|_| {
        let _ = fs::remove_file(&unfinished);
    })
}

fn write_new(path: &Path, page: &[u8]) -> io::Result<()> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    let mut file = options.open(path).or_else(|error| match (error.kind(), path.parent()) {
        (io::ErrorKind::NotFound, Some(folder)) => {
            fs::create_dir_all(folder)?;
            options.open(path)
        }
        _ => Err(error),
    })?;
    file.write_all(page)?;
    file.write_all(&check_sum(page).to_le_bytes())?;
    file.write_all(MAGIC)
}

/// Tells a torn page from a whole one; no defence against somebody who can write to the folder.
fn check_sum(page: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut sum = page.len() as u64;
    let mut mix = |word: [u8; 8]| sum = (sum.rotate_left(23) ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    let (words, rest) = page.as_chunks::<8>();
    words.iter().for_each(|word| mix(*word));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    mix(last);
    sum ^ (sum >> 32)
}

/// The names in a folder; none when there is no such folder.
pub(super) fn names(folder: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
        Ok(entries) => {
            entries.filter_map(|entry| entry.map(|entry| entry.file_name().into_string().ok()).transpose()).collect()
        }
    }
}

/// Deletes the files of a folder whose name is `chosen`, at most `budget`; returns their number.
pub(super) fn remove_matching(folder: &Path, budget: usize, chosen: impl Fn(&str) -> bool) -> io::Result<usize> {
    let mut removed = 0;
    for name in names(folder)?.into_iter().filter(|name| chosen(name)).take(budget) {
        removed += usize::from(remove(&folder.join(name))?);
    }
    Ok(removed)
}

/// Deletes the oldest files of a folder until it holds at most seven eighths of both limits, once it is beyond one.
pub(super) fn trim(folder: &Path, max_files: usize, max_bytes: u64) -> io::Result<usize> {
    let mut files: Vec<(SystemTime, u64, String)> = Vec::new();
    for name in names(folder)? {
        // One that another process has just deleted is no trouble.
        if let Ok(data) = fs::metadata(folder.join(&name)) {
            files.push((data.modified().unwrap_or(SystemTime::UNIX_EPOCH), data.len(), name));
        }
    }
    let (mut count, mut bytes) = (files.len(), files.iter().map(|file| file.1).sum::<u64>());
    if count <= max_files && bytes <= max_bytes {
        return Ok(0);
    }
    files.sort();
    let mut removed = 0;
    for (_, length, name) in files {
        if count <= max_files / 8 * 7 && bytes <= max_bytes / 8 * 7 {
            break;
        }
        removed += usize::from(remove(&folder.join(name))?);
        count -= 1;
        bytes -= length;
    }
    Ok(removed)
}

fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_page_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/page");
        let page = "0123456789abcdef".repeat(1_000);
        write(&folder.path().join("tmp"), &path, page.as_bytes()).unwrap();
        assert_eq!(read(&path).unwrap(), page.as_bytes());
        let stored = fs::read(&path).unwrap();
        for torn in [&stored[..0], &stored[..10], &stored[..stored.len() - 1], &stored[16..]] {
            fs::write(&path, torn).unwrap();
            assert_eq!(read(&path), None, "{} bytes", torn.len());
        }
        for hole in [0..8, 4_096..8_192, stored.len() - 24..stored.len() - 16] {
            let mut torn = stored.clone();
            torn[hole].fill(0);
            fs::write(&path, torn).unwrap();
            assert_eq!(read(&path), None);
        }
        for length in 0..40 {
            write(&folder.path().join("tmp"), &path, &page.as_bytes()[..length]).unwrap();
            assert_eq!(read(&path).unwrap(), &page.as_bytes()[..length]);
        }
        assert!(names(&folder.path().join("tmp")).unwrap().is_empty());
    }

    #[test]
    fn a_folder_is_trimmed_from_its_oldest_file() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..16_u64 {
            let path = folder.path().join(number.to_string());
            fs::write(&path, [0; 100]).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000 + number);
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
        assert_eq!(trim(folder.path(), 16, 1_600).unwrap(), 0);
        assert_eq!(trim(folder.path(), 8, 10_000).unwrap(), 9);
        let mut left = names(folder.path()).unwrap();
        left.sort();
        assert_eq!(left, ["10", "11", "12", "13", "14", "15", "9"]);
        assert_eq!(trim(folder.path(), 100, 320).unwrap(), 5);
    }
}
