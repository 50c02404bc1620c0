//! Failures that cannot be brought about from outside: a COMMIT that fails, a writer that dies, a disk that is full.

mod waking;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use rusqlite::{Connection, ffi};
use tempfile::TempDir;

use super::{INBOX_RESERVE, Pending, QueueWriter, TaskOptions, lock};
use crate::lifecycle::{Cause, Manager, ManagerOptions};
use crate::storage::{Component, Database, Fault, Options, TransactError};

/// Failures to come, in order; each happens once.
#[derive(Debug, Default)]
pub(super) struct Injected(Mutex<VecDeque<Failure>>);

#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// Run on the write connection before the next transaction.
    SetUp(String),
    DieBeforeCommit,
    DieAfterCommit,
    /// COMMIT reports a failed sync; `applied` says what really became of it.
    CommitFails {
        applied: bool,
    },
    /// So far nothing is wrong with it.
    CommitWorks,
    ReopenFails,
}

/// For the tests of what stands on the writer.
impl QueueWriter {
    /// After so many commits one reports a failed sync; `applied` says what really became of it.
    pub(crate) fn commit_fails_after(&self, commits: usize, applied: bool) {
        let works = std::iter::repeat_with(|| Failure::CommitWorks).take(commits);
        lock(&self.shared.injected.0).extend(works.chain([Failure::CommitFails { applied }]));
    }

    pub(crate) fn injected_failures_left(&self) -> usize {
        lock(&self.shared.injected.0).len()
    }

    #[cfg(feature = "server")]
    pub(crate) fn die_at_the_next_commit(&self) {
        lock(&self.shared.injected.0).push_back(Failure::DieBeforeCommit);
    }

    /// The database may grow to so many pages; it is full at once if it has them.
    pub(crate) fn limit_pages(&self, pages: u32) {
        lock(&self.shared.injected.0).push_back(Failure::SetUp(format!("PRAGMA max_page_count = {pages}")));
    }
}

impl Injected {
    pub(super) fn set_up(&self, connection: &Connection) {
        while let Some(Failure::SetUp(sql)) = self.next_if(|failure| matches!(failure, Failure::SetUp(_))) {
            connection.execute_batch(&sql).expect("the test's statement");
        }
    }

    pub(super) fn commit(
        &self,
        connection: &Connection,
        commit: impl FnOnce() -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let of_commit = |failure: &Failure| !matches!(failure, Failure::SetUp(_) | Failure::ReopenFails);
        match self.next_if(of_commit) {
            Some(Failure::DieBeforeCommit) => panic!("injected: dies before COMMIT"),
            Some(Failure::DieAfterCommit) => {
                commit().expect("the commit");
                panic!("injected: dies after COMMIT")
            }
            Some(Failure::CommitFails { applied }) => {
                if applied {
                    commit()?;
                } else {
                    connection.execute_batch("ROLLBACK")?;
                }
                Err(failed_sync())
            }
            Some(Failure::CommitWorks | Failure::SetUp(_) | Failure::ReopenFails) | None => commit(),
        }
    }

    pub(super) fn reopen(&self) -> Result<(), Fault> {
        match self.next_if(|failure| *failure == Failure::ReopenFails) {
            Some(_) => Err(Fault::from(failed_sync())),
            None => Ok(()),
        }
    }

    fn next_if(&self, is_due: impl Fn(&Failure) -> bool) -> Option<Failure> {
        let mut failures = lock(&self.0);
        if failures.front().is_some_and(is_due) { failures.pop_front() } else { None }
    }
}

fn failed_sync() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_IOERR_FSYNC), Some("injected: fsync failed".to_owned()))
}

const LIMIT: Duration = Duration::from_secs(30);

const NOTES: Component = Component {
    name: "notes",
    migrations: &["CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE) STRICT"],
};

type Failed = TransactError<rusqlite::Error>;

struct Bench {
    database: Database,
    _directory: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let database = Database::open(directory.path().join("test.db"), &[NOTES], options).expect("a database");
        Self { database, _directory: directory }
    }

    fn writer(&self) -> &QueueWriter {
        self.database.writer()
    }

    fn inject(&self, failures: impl IntoIterator<Item = Failure>) {
        lock(&self.writer().shared.injected.0).extend(failures);
    }

    /// Holds the writer inside a task until the returned sender is dropped.
    fn hold(&self) -> (crossbeam_channel::Sender<()>, Pending<(), rusqlite::Error>) {
        let (entered, inside) = bounded(1);
        let (release, released) = bounded::<()>(0);
        let pending = self.submit(None, move |_| {
            let _ = entered.try_send(());
            let _ = released.recv_timeout(LIMIT);
            Ok(())
        });
        inside.recv_timeout(LIMIT).expect("the task runs");
        (release, pending)
    }

    fn submit<T: Send + 'static>(
        &self,
        probe: Option<super::Probe>,
        f: impl FnMut(&rusqlite::Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Pending<T, rusqlite::Error> {
        self.writer().submit(TaskOptions { probe, ..TaskOptions::default() }, f).expect("room")
    }

    /// A group of three: a writing task with a probe, one that fails before writing, and one that writes.
    fn group(&self, with_probe: bool) -> [Result<i64, Failed>; 3] {
        let (release, held) = self.hold();
        let probe = with_probe.then(|| Box::new(|connection: &Connection| has(connection, "first")) as super::Probe);
        let first = self.submit(probe, |tx| insert(tx, "first"));
        let erring = self.submit(None, |_| Err::<i64, _>(rusqlite::Error::QueryReturnedNoRows));
        let second = self.submit(None, |tx| insert(tx, "second"));
        drop(release);
        let _ = held.wait();
        [first, erring, second].map(Pending::wait)
    }

    fn texts(&self) -> Vec<String> {
        let read = self.database.read(|connection| {
            let mut statement = connection.prepare("SELECT text FROM notes ORDER BY id")?;
            statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<Vec<String>>>()
        });
        read.expect("a read")
    }

    fn close(&self) {
        self.database.close(Instant::now() + LIMIT).expect("a clean stop");
    }
}

fn insert(connection: &Connection, text: &str) -> rusqlite::Result<i64> {
    connection.prepare_cached("INSERT INTO notes (text) VALUES (?1)")?.insert([text])
}

fn has(connection: &Connection, text: &str) -> rusqlite::Result<bool> {
    connection.query_row("SELECT EXISTS (SELECT 1 FROM notes WHERE text = ?1)", [text], |row| row.get(0))
}

fn recovery_commits(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("SELECT commits FROM vayu_recovery", [], |row| row.get(0))
}

#[test]
fn a_failed_commit_that_was_applied_is_found_and_answered_as_such() {
    let bench = Bench::new();
    let woken = bench.writer().subscribe();
    bench.inject([Failure::CommitFails { applied: true }]);
    let [first, erring, second] = bench.group(true);
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    assert!(matches!(erring, Err(TransactError::Task(_))), "{erring:?}");
    assert_eq!(bench.texts(), ["first", "second"]);
    assert_eq!(bench.database.read(recovery_commits).expect("a read"), 1);
    woken.recv_timeout(LIMIT).expect("a wake-up");
    bench.writer().transact(|tx| insert(tx, "after")).expect("a write");
    bench.close();
}

#[test]
fn a_task_that_wrote_nothing_does_not_speak_for_a_group_whose_commit_failed() {
    let bench = Bench::new();
    bench.inject([Failure::CommitFails { applied: true }]);
    let (release, held) = bench.hold();
    // It had nothing to change, so its effect is never found.
    let idle = bench.submit(Some(Box::new(|_| Ok(false))), |_| Ok(7));
    let probe: super::Probe = Box::new(|connection| has(connection, "written"));
    let writing = bench.submit(Some(probe), |tx| insert(tx, "written"));
    drop(release);
    let _ = held.wait();
    assert_eq!(idle.wait().expect("nothing went wrong for it"), 7);
    writing.wait().expect("it was applied");
    assert_eq!(bench.texts(), ["written"]);
    bench.close();
}

#[test]
fn a_failed_commit_that_was_not_applied_is_answered_with_the_fault() {
    let bench = Bench::new();
    bench.inject([Failure::CommitFails { applied: false }]);
    for answer in bench.group(true) {
        assert!(matches!(&answer, Err(TransactError::Database(fault)) if fault.is_io()), "{answer:?}");
    }
    assert!(bench.writer().last_fault().is_some_and(|fault| fault.is_io()));
    assert!(bench.texts().is_empty());
    assert_eq!(bench.database.read(recovery_commits).expect("a read"), 1);
    bench.writer().transact(|tx| insert(tx, "after")).expect("a write");
    bench.writer().transact(|tx| insert(tx, "and after")).expect("a write");
    assert_eq!(bench.writer().last_fault(), None);
    bench.close();
}

#[test]
fn a_failed_commit_that_nobody_can_look_up_is_unknown() {
    for (with_probe, more) in [(false, None), (true, Some(Failure::ReopenFails))] {
        let bench = Bench::new();
        bench.inject([Failure::CommitFails { applied: true }].into_iter().chain(more));
        let [first, erring, second] = bench.group(with_probe);
        for answer in [first, second] {
            assert!(matches!(answer, Err(TransactError::OutcomeUnknown(_))), "{answer:?}");
        }
        // Of this one it is known that it wrote nothing.
        assert!(matches!(erring, Err(TransactError::Database(_))), "{erring:?}");
        bench.writer().transact(|tx| insert(tx, "after")).expect("a write");
        bench.close();
    }
}

#[test]
fn a_recovery_whose_own_commit_fails_leaves_the_outcome_unknown() {
    let bench = Bench::new();
    bench.inject([Failure::CommitFails { applied: true }, Failure::CommitFails { applied: false }]);
    let [first, ..] = bench.group(true);
    assert!(matches!(first, Err(TransactError::OutcomeUnknown(_))), "{first:?}");
    bench.writer().transact(|tx| insert(tx, "after")).expect("a write");
    bench.close();
}

#[test]
fn a_conflict_with_rows_that_were_not_committed_is_not_answered_as_a_conflict() {
    let bench = Bench::new();
    bench.inject([Failure::CommitFails { applied: false }]);
    let (release, held) = bench.hold();
    let probe = Box::new(|connection: &Connection| has(connection, "same"));
    let first = bench.submit(Some(probe), |tx| insert(tx, "same"));
    let conflicting = bench.submit(None, |tx| insert(tx, "same"));
    let panicking = bench.submit(None, |tx| if has(tx, "same")? { panic!("on purpose") } else { Ok(0) });
    drop(release);
    let _ = held.wait();
    for answer in [first, conflicting, panicking].map(Pending::wait) {
        assert!(matches!(&answer, Err(TransactError::Database(fault)) if fault.is_io()), "{answer:?}");
    }
    bench.close();
}

#[test]
fn a_probe_that_fails_or_panics_is_passed_over() {
    let bench = Bench::new();
    bench.inject([Failure::CommitFails { applied: true }]);
    let (release, held) = bench.hold();
    let failing = bench.submit(Some(Box::new(|_| Err(rusqlite::Error::InvalidQuery))), |tx| insert(tx, "one"));
    let panicking = bench.submit(Some(Box::new(|_| panic!("on purpose"))), |tx| insert(tx, "two"));
    let working = bench.submit(Some(Box::new(|connection| has(connection, "three"))), |tx| insert(tx, "three"));
    drop(release);
    for answer in [failing, panicking, working].map(Pending::wait) {
        answer.expect("applied");
    }
    held.wait().expect("applied");
    bench.close();
}

#[test]
fn case_c59_a_dying_writer_leaves_every_caller_answered_and_says_what_it_knows() {
    for (failure, written) in [(Failure::DieBeforeCommit, 0), (Failure::DieAfterCommit, 2)] {
        let options = Options { group_rows: 3, ..Options::default() };
        let bench = Bench::with(options);
        let writer = bench.writer();
        let (release, held) = bench.hold();
        let taken = [bench.submit(None, |tx| insert(tx, "one")), bench.submit(None, |tx| insert(tx, "two"))];
        let waiting = [bench.submit(None, |tx| insert(tx, "three")), bench.submit(None, |tx| insert(tx, "four"))];
        bench.inject([failure]);
        drop(release);
        assert!(matches!(held.wait(), Err(TransactError::OutcomeUnknown(_))));
        for task in taken {
            let answer = task.wait();
            assert!(matches!(answer, Err(TransactError::OutcomeUnknown(_))), "{answer:?}");
        }
        for task in waiting {
            let answer = task.wait();
            assert!(matches!(answer, Err(TransactError::Stopped)), "{answer:?}");
        }
        // Reads go on; writes are turned away at once.
        assert_eq!(bench.texts().len(), written);
        let late: Failed = writer.transact(|tx| insert(tx, "late")).expect_err("a dead writer");
        assert!(matches!(late, TransactError::Stopped), "{late:?}");
        assert!(!writer.is_running());
        bench.close();
        assert_eq!((writer.stats().waiting_jobs, writer.stats().waiting_bytes), (0, 0));
    }
}

#[test]
fn case_c59_a_dying_writer_fails_its_service_and_brings_the_program_down() {
    let directory = tempfile::tempdir().expect("a directory");
    let database = Database::new(directory.path().join("test.db"), &[NOTES], Options::default());
    let mut manager = Manager::new(ManagerOptions::default());
    manager.register(database.storage_service()).expect("a name");
    manager.register(database.writer_service()).expect("a name");
    manager.start().expect("a start");
    database.writer().transact(|tx| insert(tx, "written")).expect("a write");
    lock(&database.writer().shared.injected.0).push_back(Failure::DieBeforeCommit);
    let answer = database.writer().transact(|tx| insert(tx, "lost"));
    assert!(matches!(answer, Err(TransactError::OutcomeUnknown(_))), "{answer:?}");
    assert!(matches!(manager.wait(), Cause::Failed(_)));
    assert!(!manager.handle().is_ready());
    assert_ne!(manager.stop("the test ends").exit_code(), 0);
    assert!(database.pool_state().is_none());
}

#[test]
fn callers_racing_with_a_dying_writer_all_come_back() {
    for _ in 0..20 {
        let bench = Bench::new();
        std::thread::scope(|scope| {
            for caller in 0..8 {
                let writer = bench.writer().clone();
                scope.spawn(move || {
                    for n in 0.. {
                        let text = format!("{caller}/{n}");
                        match writer.transact(move |tx| insert(tx, &text)) {
                            Ok(_) => {}
                            Err(TransactError::Stopped | TransactError::OutcomeUnknown(_)) => break,
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                });
            }
            bench.writer().transact(|tx| insert(tx, "begun")).expect("a write");
            bench.inject([Failure::DieBeforeCommit]);
        });
        bench.close();
    }
}

#[test]
fn case_c59_a_full_database_answers_the_whole_group_with_the_fault_and_heals_by_itself() {
    let bench = Bench::new();
    bench.writer().transact(|tx| insert(tx, "neighbour")).expect("a write");
    // The least SQLite takes is the size the file has.
    bench.inject([Failure::SetUp("PRAGMA max_page_count = 1".to_owned())]);
    let big = "y".repeat(100_000);
    let (release, held) = bench.hold();
    let neighbour = bench.submit(None, |tx| tx.execute("UPDATE notes SET text = 'changed' WHERE id = 1", []));
    let large = bench.submit(None, move |tx| insert(tx, &big));
    drop(release);
    assert!(matches!(held.wait(), Err(TransactError::Database(fault)) if fault.is_full()));
    assert!(matches!(neighbour.wait(), Err(TransactError::Database(fault)) if fault.is_full()));
    assert!(matches!(large.wait(), Err(TransactError::Database(fault)) if fault.is_full()));
    assert!(bench.writer().last_fault().is_some_and(|fault| fault.is_full()));
    assert_eq!(bench.texts(), ["neighbour"]);

    // Where SQLite undoes only the statement, only its task is answered so.
    let (release, held) = bench.hold();
    let neighbour = bench.submit(None, |tx| tx.execute("UPDATE notes SET text = 'changed' WHERE id = 1", []));
    let large = bench.submit(None, |tx| {
        tx.execute("INSERT INTO notes (text) SELECT hex(zeroblob(50000)) || value FROM json_each('[1,2]')", [])
    });
    drop(release);
    held.wait().expect("an answer");
    neighbour.wait().expect("room");
    assert!(matches!(large.wait(), Err(TransactError::Database(fault)) if fault.is_full()));
    assert!(bench.writer().last_fault().is_some_and(|fault| fault.is_full()));
    assert_eq!(bench.texts(), ["changed"]);

    bench.inject([Failure::SetUp("PRAGMA max_page_count = 1000000".to_owned())]);
    bench.writer().transact(|tx| insert(tx, &"z".repeat(100_000))).expect("room again");
    bench.writer().transact(|tx| insert(tx, "after")).expect("a write");
    assert_eq!(bench.writer().last_fault(), None);
    bench.close();
}

#[test]
fn the_crates_own_work_neither_counts_nor_is_turned_away_and_wakes_only_if_it_says_so() {
    let options = Options { max_jobs: 2, ..Options::default() };
    let bench = Bench::with(options);
    let writer = bench.writer();
    let (release, held) = bench.hold();
    let waiting = [bench.submit(None, |tx| insert(tx, "one")), bench.submit(None, |tx| insert(tx, "two"))];
    let own: Vec<_> =
        (0..100).map(|n| writer.submit_internal(false, move |tx| insert(tx, &n.to_string())).expect("room")).collect();
    assert_eq!(writer.stats().waiting_jobs, 2);
    let refused: Failed = writer.transact(|tx| insert(tx, "three")).expect_err("no room");
    assert!(matches!(refused, TransactError::Saturated { .. }), "{refused:?}");
    drop(release);
    held.wait().expect("an answer");
    for task in waiting.into_iter().chain(own) {
        task.wait().expect("an answer");
    }

    let woken = writer.subscribe();
    let order = || writer.submit_internal(false, |_| Ok::<_, rusqlite::Error>(())).and_then(Pending::wait);
    order().expect("an answer");
    while woken.try_recv().is_ok() {}
    order().expect("an answer");
    order().expect("an answer");
    assert!(woken.try_recv().is_err(), "woken by work that said no");
    writer.submit_internal(true, |tx| insert(tx, "woken")).and_then(Pending::wait).expect("an answer");
    woken.recv_timeout(LIMIT).expect("a wake-up");
    bench.close();
}

#[test]
fn what_a_caller_gave_up_is_left_out_of_its_group_and_its_neighbours_are_written() {
    let bench = Bench::new();
    let (release, held) = bench.hold();
    let before = bench.submit(None, |tx| insert(tx, "before"));
    let options = TaskOptions { deadline: Some(Instant::now()), ..TaskOptions::default() };
    let given_up: Failed = bench.writer().transact_with(options, |tx| insert(tx, "given up")).expect_err("too late");
    assert!(matches!(given_up, TransactError::DeadlineExceeded), "{given_up:?}");
    let after = bench.submit(None, |tx| insert(tx, "after"));
    drop(release);
    held.wait().expect("an answer");
    for task in [before, after] {
        task.wait().expect("written");
    }
    assert_eq!(bench.texts(), ["before", "after"]);
    bench.close();
}

#[test]
fn a_stop_during_a_group_that_is_run_again_still_undoes_the_failing_task_alone() {
    let bench = Bench::new();
    let (release, held) = bench.hold();
    let first = bench.submit(None, |tx| insert(tx, "first"));
    let failing = bench.submit(None, |tx| {
        insert(tx, "failing")?;
        Err::<i64, _>(rusqlite::Error::QueryReturnedNoRows)
    });
    let second = bench.submit(None, |tx| insert(tx, "second"));
    std::thread::scope(|scope| {
        scope.spawn(|| bench.writer().stop(Instant::now() + LIMIT).expect("a clean stop"));
        let until = Instant::now() + LIMIT;
        loop {
            let options = TaskOptions { deadline: Some(Instant::now()), ..TaskOptions::default() };
            match bench.writer().transact_with(options, |tx| insert(tx, "late")) {
                Err(TransactError::Stopped) => break,
                _ => assert!(Instant::now() < until, "the stop is not seen"),
            }
            std::thread::yield_now();
        }
        drop(release);
    });
    held.wait().expect("an answer");
    first.wait().expect("written");
    second.wait().expect("written");
    let failed = failing.wait();
    assert!(matches!(failed, Err(TransactError::Task(_))), "{failed:?}");
    assert_eq!(bench.texts(), ["first", "second"]);
    bench.close();
}

#[test]
fn what_callers_gave_up_does_not_use_up_the_reserve() {
    let options = Options { max_jobs: 1, ..Options::default() };
    let bench = Bench::with(options);
    let writer = bench.writer();
    let (release, held) = bench.hold();
    let mut given_up = 0;
    loop {
        let deadline = Some(Instant::now());
        match writer.transact_with(TaskOptions { deadline, ..TaskOptions::default() }, |tx| insert(tx, "late")) {
            Err(TransactError::DeadlineExceeded) => given_up += 1,
            Err(TransactError::Saturated { .. }) => break,
            other => panic!("{other:?}"),
        }
        assert!(given_up <= INBOX_RESERVE, "no bound");
    }
    assert!(given_up > INBOX_RESERVE / 4);
    let own = writer.submit_internal(false, |tx| insert(tx, "own")).expect("room");
    drop(release);
    held.wait().expect("an answer");
    own.wait().expect("an answer");
    assert_eq!(bench.texts(), ["own"]);
    bench.close();
}
