//! Who owns a lane: a relay proves that it lives by an OS lock on a file beside the database.
//!
//! The operating system gives the lock back when the last handle is closed, so also when the process dies in any way;
//! a stopped, suspended or stuck process keeps it. No clock takes part.
//!
//! The lock is on a file, not on a name: once somebody has put a copy in its place (a restore, a program that keeps folders
//! alike), that copy can be locked while the owner lives. So the file holds its own number in the file system: one that
//! holds another's proves as little as one that is missing.
//!
//! It names the relay's handlers, too: a lane that nobody owns at this moment may be about to be taken by a relay that lives,
//! and an operator must not take it away from that.

mod file;

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use uuid::Uuid;

use self::file::{Inscription, create_locked, is_one_of, pid_beside, remove_if_dead};

/// How long the file of an owner must be missing without a break before the owner counts as dead.
const MISSING_FOR: Duration = Duration::from_secs(2);
/// And how many looks in a row must miss it: two looks with a long stop of this process in between prove nothing.
const MISSING_LOOKS: u32 = 5;
/// Most handles kept after the file was removed under us and put back.
const MAX_HANDLES: usize = 64;
/// How the file's name ends, and that of one which is being made.
const LOCK: &str = ".lock";
const UNFINISHED: &str = ".lock.new";

/// This relay's proof of life. The lock ends with the last clone of the `Arc` that lane threads share.
#[derive(Debug)]
pub(super) struct OwnerLock {
    id: String,
    path: PathBuf,
    /// Which the file names.
    handlers: Vec<String>,
    handles: Mutex<Vec<File>>,
    left_behind: AtomicBool,
}

impl OwnerLock {
    /// Creates and locks a fresh owner file beside `database` (its canonical path) that names `handlers`.
    pub(super) fn create(database: &Path, handlers: Vec<String>) -> io::Result<Self> {
        let id = Uuid::new_v4().to_string();
        let path = owner_path(database, &id);
        let file = create_locked(&path, &handlers)?;
        Ok(Self { id, path, handlers, handles: Mutex::new(vec![file]), left_behind: AtomicBool::new(false) })
    }

    /// The owner's name as `lanes.owner` holds it.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// A lane still names this owner: its file stays when the lock ends, and proves at once that the owner is dead.
    pub(super) fn leave_behind(&self) {
        self.left_behind.store(true, Ordering::Relaxed);
    }

    /// Puts the file back if somebody removed it, or put another one in its place. Cheap: it looks at what the name and the
    /// handle mean.
    pub(super) fn keep(&self) -> io::Result<()> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        if is_one_of(&self.path, &handles)? {
            return Ok(());
        }
        if handles.len() >= MAX_HANDLES {
            handles.remove(0);
        }
        handles.push(create_locked(&self.path, &self.handlers)?);
        log::warn!("outbox owner_file=restored path={}", self.path.display());
        Ok(())
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        if self.left_behind.load(Ordering::Relaxed) {
            return;
        }
        // Still locked while it is removed, so nobody can take it for a dead owner's file in between.
        let _ = fs::remove_file(&self.path);
    }
}

/// What is known of another owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Liveness {
    Alive,
    Dead,
}

/// What the owner file tells of a lane's owner, at one look and from any process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OwnerState {
    /// The lane has no owner.
    NoOwner,
    /// A process holds the lock: the relay lives, even if it is stopped or stuck.
    Alive,
    /// Nobody holds the lock: the next relay with that handler takes over at once.
    Dead,
    /// The file is missing, a copy is in its place, or it cannot be read. A living owner puts its own back within a second;
    /// the lane of a dead one is taken over after two seconds.
    Unknown,
}

/// One look at an owner, with the process id that its file names.
///
/// The lock is asked for shared and given back at once. Relays ask for it shared too, so a look cannot make them take
/// the owner for alive; it may only delay the removal of a dead owner's file.
pub(super) fn look(database: &Path, owner: &str) -> (OwnerState, Option<u32>) {
    if Uuid::parse_str(owner).is_err() {
        return (OwnerState::Unknown, None);
    }
    let Ok(file) = File::open(owner_path(database, owner)) else { return (OwnerState::Unknown, None) };
    let inscription = Inscription::read(&file);
    let state = match file.try_lock_shared() {
        Ok(()) if inscription.is_of_another(&file) => OwnerState::Unknown,
        Ok(()) => OwnerState::Dead,
        Err(TryLockError::WouldBlock) => OwnerState::Alive,
        Err(TryLockError::Error(_)) => OwnerState::Unknown,
    };
    (state, inscription.pid)
}

/// The process id of a relay that lives and has this handler, whether it owns the lane at this moment or not. At most
/// `limit` files are looked at. Relays of older versions did not name their handlers.
pub(super) fn living_relay(database: &Path, handler: &str, limit: usize) -> io::Result<Option<u32>> {
    let mut living = None;
    let mut seen = 0;
    visit_files(database, LOCK, |_, path| {
        let named = File::open(path).ok().and_then(|file| Some((pid_beside(&file, handler)?, file)));
        living = named.filter(|(_, file)| is_locked(file)).map(|(pid, _)| pid);
        seen += 1;
        living.is_none() && seen < limit
    })?;
    Ok(living)
}

/// Asked for shared, as in [`look`].
fn is_locked(file: &File) -> bool {
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Since when an owner's own file has not been found.
#[derive(Debug)]
struct Missing {
    owner: String,
    since: Instant,
    looks: u32,
}

/// Watches the owner of one lane from outside.
#[derive(Debug, Default)]
pub(super) struct OwnerWatch {
    missing: Option<Missing>,
}

impl OwnerWatch {
    /// Whether `owner` is dead for certain. Any doubt means alive: a living owner is never robbed.
    pub(super) fn check(&mut self, database: &Path, owner: &str, now: Instant) -> Liveness {
        // An owner name that is no UUID was never ours; it must not be able to name a path either.
        if Uuid::parse_str(owner).is_err() {
            return self.missing_since(owner, now);
        }
        let path = owner_path(database, owner);
        let liveness = match File::open(&path) {
            // Shared, so that two watchers who look at the same moment do not take each other for the owner.
            Ok(file) => match file.try_lock_shared() {
                Ok(()) if Inscription::read(&file).is_of_another(&file) => return self.missing_since(owner, now),
                Ok(()) => Liveness::Dead,
                Err(TryLockError::WouldBlock | TryLockError::Error(_)) => Liveness::Alive,
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return self.missing_since(owner, now),
            Err(_) => Liveness::Alive,
        };
        self.missing = None;
        liveness
    }

    fn missing_since(&mut self, owner: &str, now: Instant) -> Liveness {
        match &mut self.missing {
            Some(missing) if missing.owner == owner => {
                missing.looks = missing.looks.saturating_add(1);
                if missing.looks >= MISSING_LOOKS && now.saturating_duration_since(missing.since) >= MISSING_FOR {
                    return Liveness::Dead;
                }
            }
            _ => self.missing = Some(Missing { owner: owner.to_owned(), since: now, looks: 1 }),
        }
        Liveness::Alive
    }
}

/// Removes the file of a dead owner that owns nothing any more.
pub(super) fn remove_owner_file(database: &Path, owner: &str) {
    if Uuid::parse_str(owner).is_ok() {
        remove_if_dead(&owner_path(database, owner));
    }
}

/// The owners whose files lie beside `database` and can be locked: they are dead, or a copy is in the place of their file,
/// which they put back themselves if they live. At most `limit`.
pub(super) fn dead_owners(database: &Path, limit: usize) -> io::Result<Vec<String>> {
    let mut dead = Vec::new();
    visit_files(database, LOCK, |owner, path| {
        if File::open(path).is_ok_and(|file| file.try_lock_shared().is_ok()) {
            dead.push(owner.to_owned());
        }
        dead.len() < limit
    })?;
    Ok(dead)
}

/// Removes what processes left behind that were killed while they made their file. At most `limit`; one that is being made
/// at this moment is made anew.
pub(super) fn remove_unfinished(database: &Path, limit: usize) -> io::Result<()> {
    let mut seen = 0;
    visit_files(database, UNFINISHED, |_, path| {
        remove_if_dead(path);
        seen += 1;
        seen < limit
    })
}

/// Shows the files beside `database` that are named after an owner and end like this, until `visit` has seen enough.
fn visit_files(database: &Path, ending: &str, mut visit: impl FnMut(&str, &Path) -> bool) -> io::Result<()> {
    let (Some(folder), Some(name)) = (database.parent(), database.file_name()) else { return Ok(()) };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut prefix = name.to_os_string();
    prefix.push("-owner-");
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let Some(rest) = strip_prefix(&entry.file_name(), &prefix) else { continue };
        let Some(owner) = rest.strip_suffix(ending).filter(|owner| Uuid::parse_str(owner).is_ok()) else { continue };
        if !visit(owner, &entry.path()) {
            break;
        }
    }
    Ok(())
}

fn strip_prefix(name: &OsString, prefix: &OsString) -> Option<String> {
    name.to_str()?.strip_prefix(prefix.to_str()?).map(str::to_owned)
}

fn owner_path(database: &Path, owner: &str) -> PathBuf {
    let mut name = database.as_os_str().to_os_string();
    name.push(format!("-owner-{owner}{LOCK}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_owner_is_alive_and_a_dropped_one_is_dead_after_its_file_was_missing_for_two_seconds() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let owner = create(&database);
        let id = owner.id().to_owned();
        let mut watch = OwnerWatch::default();
        let start = Instant::now();
        assert_eq!(watch.check(&database, &id, start), Liveness::Alive);
        drop(owner);
        assert_eq!(watch.check(&database, &id, start), Liveness::Alive, "just gone: the file may be put back");
        assert_eq!(dead_after_looks(&mut watch, &database, &id, start + Duration::from_secs(2)), Some(3));
    }

    fn create(database: &Path) -> OwnerLock {
        OwnerLock::create(database, vec!["mail".into(), "4711".into()]).unwrap()
    }

    /// How many further looks at this moment it takes until the owner counts as dead.
    fn dead_after_looks(watch: &mut OwnerWatch, database: &Path, owner: &str, at: Instant) -> Option<u32> {
        (0..10).find(|_| watch.check(database, owner, at) == Liveness::Dead)
    }

    #[test]
    fn a_watcher_that_was_stopped_itself_does_not_take_its_own_gap_for_a_missing_file() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let owner = create(&database);
        fs::remove_file(owner_path(&database, owner.id())).unwrap();
        let mut watch = OwnerWatch::default();
        let start = Instant::now();
        assert_eq!(watch.check(&database, owner.id(), start), Liveness::Alive);
        // Both processes were stopped for a minute; the watcher is the first to go on.
        let later = start + Duration::from_secs(60);
        assert_eq!(watch.check(&database, owner.id(), later), Liveness::Alive);
        owner.keep().unwrap();
        assert_eq!(dead_after_looks(&mut watch, &database, owner.id(), later), None);
    }

    #[test]
    fn a_look_tells_the_living_from_the_dead_with_their_process_ids() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let owner = create(&database);
        let id = owner.id().to_owned();
        assert_eq!(look(&database, &id), (OwnerState::Alive, Some(std::process::id())));
        owner.leave_behind();
        drop(owner);
        assert_eq!(look(&database, &id), (OwnerState::Dead, Some(std::process::id())));
        // One who looks at this moment does not make a dead owner seem alive.
        let looks = File::open(owner_path(&database, &id)).unwrap();
        looks.try_lock_shared().unwrap();
        assert_eq!(OwnerWatch::default().check(&database, &id, Instant::now()), Liveness::Dead);
        drop(looks);
        fs::write(owner_path(&database, &id), "not a number").unwrap();
        assert_eq!(look(&database, &id), (OwnerState::Dead, None));
        remove_owner_file(&database, &id);
        assert_eq!(look(&database, &id), (OwnerState::Unknown, None));
        assert_eq!(look(&database, "../../etc/passwd"), (OwnerState::Unknown, None));
    }

    #[test]
    fn a_living_relay_is_found_by_each_of_its_handlers_and_a_dead_one_by_none() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let found = |handler: &str| living_relay(&database, handler, 10).unwrap();
        assert_eq!(found("mail"), None);
        let owner = create(&database);
        let id = owner.id().to_owned();
        let pid = Some(std::process::id());
        assert_eq!([found("mail"), found("4711"), found("mai"), found("")], [pid, pid, None, None]);
        fs::remove_file(owner_path(&database, &id)).unwrap();
        owner.keep().unwrap();
        assert_eq!(found("4711"), pid, "the file that it puts back names them, too");
        owner.leave_behind();
        drop(owner);
        assert_eq!(found("mail"), None);
    }

    #[test]
    fn the_file_of_an_older_version_or_one_cut_short_names_no_handler_that_it_does_not_have() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let path = owner_path(&database, &Uuid::new_v4().to_string());
        for (text, found) in [
            ("", None),
            ("12", None),
            ("12\n", None),
            ("12\n4711\n", None),
            ("12\n4711\nmail", None),
            ("12\n\nmail\n", Some(12)),
            ("12\n99\nother\nmail\nma", Some(12)),
            ("twelve\n99\nmail\n", None),
        ] {
            fs::write(&path, text).unwrap();
            let held = File::open(&path).unwrap();
            held.lock().unwrap();
            let [mail, number] = ["mail", "4711"].map(|handler| living_relay(&database, handler, 10).unwrap());
            assert_eq!((mail, number), (found, None), "{text:?}");
        }
    }

    #[test]
    fn two_watchers_do_not_take_each_other_for_the_owner() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let id = Uuid::new_v4().to_string();
        fs::write(owner_path(&database, &id), "").unwrap();
        let another = File::open(owner_path(&database, &id)).unwrap();
        another.try_lock_shared().unwrap();
        assert_eq!(OwnerWatch::default().check(&database, &id, Instant::now()), Liveness::Dead);
    }

    #[test]
    fn an_owner_that_leaves_a_lane_behind_is_dead_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let owner = create(&database);
        let id = owner.id().to_owned();
        owner.leave_behind();
        drop(owner);
        assert_eq!(OwnerWatch::default().check(&database, &id, Instant::now()), Liveness::Dead);
    }

    #[test]
    fn a_file_that_can_be_locked_means_dead_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let id = Uuid::new_v4().to_string();
        fs::write(owner_path(&database, &id), "").unwrap();
        assert_eq!(OwnerWatch::default().check(&database, &id, Instant::now()), Liveness::Dead);
        assert_eq!(dead_owners(&database, 10).unwrap().as_slice(), std::slice::from_ref(&id));
        remove_owner_file(&database, &id);
        assert!(!owner_path(&database, &id).exists());
    }

    #[test]
    fn an_owner_puts_its_removed_file_back_and_stays_alive() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let owner = create(&database);
        fs::remove_file(owner_path(&database, owner.id())).unwrap();
        let mut watch = OwnerWatch::default();
        let start = Instant::now();
        assert_eq!(watch.check(&database, owner.id(), start), Liveness::Alive);
        owner.keep().unwrap();
        assert_eq!(watch.check(&database, owner.id(), start + Duration::from_secs(5)), Liveness::Alive);
        assert!(dead_owners(&database, 10).unwrap().is_empty());
    }

    #[test]
    fn an_owner_name_cannot_reach_another_folder() {
        let folder = tempfile::tempdir().unwrap();
        let mut watch = OwnerWatch::default();
        let start = Instant::now();
        let name = "../../etc/passwd";
        assert_eq!(watch.check(&folder.path().join("a.db"), name, start), Liveness::Alive);
        let later = start + Duration::from_secs(3);
        assert_eq!(dead_after_looks(&mut watch, &folder.path().join("a.db"), name, later), Some(3));
    }

    #[test]
    #[cfg(unix)]
    fn a_copy_in_the_place_of_a_living_owners_file_proves_nothing_and_is_replaced_by_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let owner = create(&database);
        let id = owner.id().to_owned();
        let mut watch = OwnerWatch::default();
        let start = Instant::now();
        for round in 1..=3 {
            replace_by_a_copy(&owner_path(&database, &id));
            assert_eq!(
                watch.check(&database, &id, start),
                Liveness::Alive,
                "as a missing one: the owner may put it back"
            );
            assert_eq!(look(&database, &id), (OwnerState::Unknown, Some(std::process::id())));
            owner.keep().unwrap();
            assert_eq!(look(&database, &id), (OwnerState::Alive, Some(std::process::id())), "round {round}");
            let later = start + Duration::from_secs(60);
            assert_eq!(dead_after_looks(&mut watch, &database, &id, later), None);
        }
        let handles = owner.handles.lock().unwrap().len();
        owner.keep().unwrap();
        assert_eq!(owner.handles.lock().unwrap().len(), handles, "its own file is left as it is");
    }

    #[test]
    #[cfg(unix)]
    fn a_copy_of_a_dead_owners_file_means_dead_after_two_seconds_and_is_removed_like_it() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let owner = create(&database);
        let id = owner.id().to_owned();
        owner.leave_behind();
        drop(owner);
        replace_by_a_copy(&owner_path(&database, &id));
        let mut watch = OwnerWatch::default();
        let start = Instant::now();
        assert_eq!(watch.check(&database, &id, start), Liveness::Alive);
        assert_eq!(dead_after_looks(&mut watch, &database, &id, start + Duration::from_secs(2)), Some(3));
        assert_eq!(dead_owners(&database, 10).unwrap().as_slice(), std::slice::from_ref(&id));
        remove_owner_file(&database, &id);
        assert!(!owner_path(&database, &id).exists());
    }

    /// As `cp` and `mv` do it, a restore, or a program that keeps folders alike.
    #[cfg(unix)]
    fn replace_by_a_copy(path: &Path) {
        let copy = path.with_extension("copy");
        fs::copy(path, &copy).unwrap();
        fs::rename(&copy, path).unwrap();
    }

    #[test]
    fn what_a_process_left_that_was_killed_amid_a_start_is_removed_and_what_one_still_makes_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let path = |owner: Uuid| folder.path().join(format!("a.db-owner-{owner}.lock.new"));
        let (left, made) = (path(Uuid::new_v4()), path(Uuid::new_v4()));
        fs::write(&left, "").unwrap();
        fs::write(folder.path().join("a.db-owner-somebody.lock.new"), "").unwrap();
        let maker = File::create(&made).unwrap();
        maker.try_lock().unwrap();
        remove_unfinished(&database, 10).unwrap();
        assert!(!left.exists() && made.exists());
        assert!(folder.path().join("a.db-owner-somebody.lock.new").exists(), "not ours");
    }
}
