//! An owner's file: how it is made, what stands in it, and whether it is still the one that was made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// So often a file is made anew that somebody removes while it is made.
const CREATE_TRIES: u32 = 5;

/// Under its final name the file is never seen unlocked while its owner lives.
pub(super) fn create_locked(path: &Path) -> io::Result<File> {
    let mut tries = 1;
    loop {
        match try_create_locked(path) {
            // Another process has just taken the unfinished file for one that was left behind.
            Err(error) if is_fleeting(&error) && tries < CREATE_TRIES => tries += 1,
            done => return done,
        }
    }
}

fn is_fleeting(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotFound)
}

fn try_create_locked(path: &Path) -> io::Result<File> {
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(".new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&temporary)?;
    let made = file.try_lock().map_err(io::Error::from).and_then(|()| {
        // A disk that is full must not keep the relay from starting.
        let _ = file.write_all(Inscription::text(&file).as_bytes());
        fs::rename(&temporary, path)
    });
    if let Err(error) = made {
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    Ok(file)
}

pub(super) fn remove_if_dead(path: &Path) {
    if let Ok(file) = File::open(path)
        && file.try_lock().is_ok()
    {
        let _ = fs::remove_file(path);
    }
}

/// What an owner writes into its file. Older versions wrote nothing, or the process id alone; a full disk may cut it short.
#[derive(Debug, Default)]
pub(super) struct Inscription {
    /// For people.
    pub(super) pid: Option<u32>,
    /// [`number_of`] the file. Only with its line end: half a number would be another one.
    number: Option<u64>,
}

impl Inscription {
    fn text(file: &File) -> String {
        let pid = std::process::id();
        match file.metadata().ok().and_then(|metadata| number_of(&metadata)) {
            Some(number) => format!("{pid}\n{number}\n"),
            None => format!("{pid}\n"),
        }
    }

    pub(super) fn read(file: &File) -> Self {
        /// More than two numbers with their line ends.
        const MAX_BYTES: u64 = 64;
        let mut text = String::new();
        if file.take(MAX_BYTES).read_to_string(&mut text).is_err() {
            return Self::default();
        }
        let mut lines = text.split_inclusive('\n');
        let pid = lines.next().and_then(|line| line.trim().parse().ok());
        let number = lines.next().and_then(|line| line.strip_suffix('\n')?.parse().ok());
        Self { pid, number }
    }

    /// Whether it was read in a copy: the lock of the owner, if that lives, is not on this file.
    pub(super) fn is_of_another(&self, file: &File) -> bool {
        let Some(written) = self.number else { return false };
        file.metadata().ok().and_then(|metadata| number_of(&metadata)) != Some(written)
    }
}

/// The file's number in its file system. As long as its owner has it open no other file gets that number. The device's number
/// is not asked for: it may be another one when the machine has started anew.
#[cfg(unix)]
fn number_of(metadata: &fs::Metadata) -> Option<u64> {
    Some(std::os::unix::fs::MetadataExt::ino(metadata))
}

#[cfg(not(unix))]
fn number_of(_: &fs::Metadata) -> Option<u64> {
    None
}

/// Whether the name means one of these open files; where files have no numbers, whether it means any file.
pub(super) fn is_one_of(path: &Path, handles: &[File]) -> io::Result<bool> {
    let there = match fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(handles.iter().rev().any(|file| file.metadata().is_ok_and(|held| is_same_file(&there, &held))))
}

#[cfg(unix)]
fn is_same_file(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same_file(_: &fs::Metadata, _: &fs::Metadata) -> bool {
    true
}
