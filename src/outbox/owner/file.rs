//! An owner's file: how it is made, what stands in it, and whether it is still the one that was made.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;

/// So often a file is made anew that somebody removes while it is made.
const CREATE_TRIES: u32 = 5;

/// Most that is read of a file: 10,000 handlers with the longest names, each of which has a thread at least.
const MAX_BYTES: u64 = 1 << 20;

/// Under its final name the file is never seen unlocked while its owner lives, nor without the names of its handlers.
pub(super) fn create_locked(path: &Path, handlers: &[String]) -> io::Result<File> {
    let mut tries = 1;
    loop {
        match try_create_locked(path, handlers) {
            // Another process has just taken the unfinished file for one that was left behind.
            Err(error) if is_fleeting(&error) && tries < CREATE_TRIES => tries += 1,
            done => return done,
        }
    }
}

fn is_fleeting(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotFound)
}

fn try_create_locked(path: &Path, handlers: &[String]) -> io::Result<File> {
    let mut temporary = path.as_os_str().to_os_string();
    temporary.push(".new");
    let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&temporary)?;
    let made = file.try_lock().map_err(io::Error::from).and_then(|()| {
        // A disk that is full must not keep the relay from starting.
        let _ = file.write_all(Inscription::text(&file, handlers).as_bytes());
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

/// What an owner writes into its file: two lines, and then one for each of its handlers. Older versions wrote nothing, or less;
/// a full disk may cut it short.
#[derive(Debug, Default)]
pub(super) struct Inscription {
    /// For people.
    pub(super) pid: Option<u32>,
    /// [`number_of`] the file. Only with its line end: half a number would be another one.
    number: Option<u64>,
}

impl Inscription {
    /// The handlers' names hold no line ends (`relay::is_name`). Without a number its line is empty: a handler's name may
    /// look like one.
    fn text(file: &File, handlers: &[String]) -> String {
        let pid = std::process::id();
        let number = file.metadata().ok().and_then(|metadata| number_of(&metadata));
        let number = number.map(|number| number.to_string()).unwrap_or_default();
        let mut text = format!("{pid}\n{number}\n");
        handlers.iter().for_each(|name| text.extend([name, "\n"]));
        text
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

/// The process id in an owner's file, if the file names this handler.
pub(super) fn pid_beside(file: &File, handler: &str) -> Option<u32> {
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
    let mut lines = text.split_inclusive('\n').map(|line| line.strip_suffix('\n'));
    let pid = lines.next()??.parse().ok()?;
    lines.skip(1).any(|line| line == Some(handler)).then_some(pid)
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
