//! Admission, deadlines, stop: every caller gets exactly one answer, and nobody waits for ever.

mod storage_support;

use std::time::{Duration, Instant};

use crossbeam_channel::bounded;
use storage_support::{Held, LIMIT, Scratch, close, insert, submit, wait_until};
use vayu_articles::storage::{Database, OpenError, Options, TaskOptions, TransactError};

type Failed = TransactError<rusqlite::Error>;

fn sized(bytes: usize) -> TaskOptions {
    TaskOptions { bytes, ..TaskOptions::default() }
}

#[test]
fn too_many_jobs_are_turned_away_at_once_and_room_comes_back() {
    let scratch = Scratch::new();
    let mut options = Options::default();
    options.max_jobs = 3;
    let database = scratch.open_with(options);
    let writer = database.writer();
    let held = Held::new(writer);
    let waiting: Vec<_> = (0..3).map(|n| submit(writer, &n.to_string())).collect();
    assert_eq!(writer.stats().waiting_jobs, 3);
    let refused: Failed = writer.transact(|tx| insert(tx, "too many")).unwrap_err();
    assert!(matches!(refused, TransactError::Saturated { jobs: 3, bytes: 0 }), "{refused:?}");
    held.release();
    waiting.into_iter().for_each(|task| {
        task.wait().unwrap();
    });
    writer.transact(|tx| insert(tx, "room again")).unwrap();
    assert_eq!(scratch.texts(), ["0", "1", "2", "room again"]);
    close(&database);
}

#[test]
fn too_many_bytes_are_turned_away_and_one_task_beyond_the_limit_is_too_large() {
    let scratch = Scratch::new();
    let mut options = Options::default();
    options.max_bytes = 1_000;
    let database = scratch.open_with(options);
    let writer = database.writer();
    let held = Held::new(writer);
    let waiting = writer.submit(sized(600), |tx| insert(tx, "600 bytes")).unwrap();
    let refused: Failed = writer.submit(sized(401), |tx| insert(tx, "401 bytes")).unwrap_err();
    assert!(matches!(refused, TransactError::Saturated { jobs: 1, bytes: 600 }), "{refused:?}");
    let refused: Failed = writer.submit(sized(1_001), |tx| insert(tx, "1001 bytes")).unwrap_err();
    assert!(matches!(refused, TransactError::TooLarge { bytes: 1_001, limit: 1_000 }), "{refused:?}");
    held.release();
    waiting.wait().unwrap();
    writer.transact_with(sized(1_000), |tx| insert(tx, "1000 bytes")).unwrap();
    assert_eq!(scratch.texts(), ["600 bytes", "1000 bytes"]);
    assert_eq!((writer.stats().waiting_jobs, writer.stats().waiting_bytes), (0, 0));
    close(&database);
}

#[test]
fn a_deadline_cancels_a_task_that_was_not_taken_and_frees_its_room() {
    let scratch = Scratch::new();
    let mut options = Options::default();
    options.max_jobs = 1;
    let database = scratch.open_with(options);
    let writer = database.writer();
    let held = Held::new(writer);
    let at_once = TaskOptions { deadline: Some(Instant::now() + Duration::from_millis(5)), ..TaskOptions::default() };
    let late: Failed = writer.transact_with(at_once, |tx| insert(tx, "late")).unwrap_err();
    assert!(matches!(late, TransactError::DeadlineExceeded), "{late:?}");
    let next = submit(writer, "next");
    held.release();
    next.wait().unwrap();
    assert_eq!(scratch.texts(), ["next"]);
    close(&database);
}

#[test]
fn a_deadline_does_not_cancel_a_task_that_was_taken() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let (entered, inside) = bounded(1);
    let deadline = Instant::now() + Duration::from_millis(20);
    let options = TaskOptions { deadline: Some(deadline), ..TaskOptions::default() };
    let task = database
        .writer()
        .submit(options, move |tx| {
            entered.send(()).unwrap();
            while Instant::now() < deadline + Duration::from_millis(20) {
                std::thread::yield_now();
            }
            insert(tx, "taken")
        })
        .unwrap();
    if inside.recv_timeout(LIMIT).is_ok() {
        task.wait().unwrap();
        assert_eq!(scratch.texts(), ["taken"]);
    }
    close(&database);
}

#[test]
fn a_task_whose_deadline_has_passed_is_not_taken_although_nobody_waits() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer();
    let held = Held::new(writer);
    let options = TaskOptions { deadline: Some(Instant::now()), ..TaskOptions::default() };
    let late = writer.submit(options, |tx| insert(tx, "late")).unwrap();
    held.release();
    writer.transact(|tx| insert(tx, "other")).unwrap();
    let late: Failed = late.wait().unwrap_err();
    assert!(matches!(late, TransactError::DeadlineExceeded), "{late:?}");
    assert_eq!(scratch.texts(), ["other"]);
    close(&database);
}

#[test]
fn stop_writes_what_was_accepted_and_turns_later_ones_away() {
    let scratch = Scratch::new();
    let mut options = Options::default();
    options.group_rows = 2;
    let database = scratch.open_with(options);
    let writer = database.writer().clone();
    let held = Held::new(&writer);
    let accepted: Vec<_> = (0..20).map(|n| submit(&writer, &n.to_string())).collect();
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| database.close(Instant::now() + LIMIT));
        wait_until("the writer turns tasks away", || !writer.is_running());
        let late: Failed = writer.transact(|tx| insert(tx, "late")).unwrap_err();
        assert!(matches!(late, TransactError::Stopped), "{late:?}");
        held.release();
        stopping.join().unwrap().unwrap();
    });
    accepted.into_iter().for_each(|task| {
        task.wait().unwrap();
    });
    assert_eq!(scratch.texts().len(), 20);
    let late: Failed = writer.transact(|tx| insert(tx, "late")).unwrap_err();
    assert!(matches!(late, TransactError::Stopped), "{late:?}");
    close(&database);
}

#[test]
fn case_c58_callers_racing_with_a_stop_are_all_answered_truly() {
    for _ in 0..20 {
        let scratch = Scratch::new();
        let database = scratch.open();
        let written = std::thread::scope(|scope| {
            let callers: Vec<_> = (0..8)
                .map(|caller| {
                    let writer = database.writer().clone();
                    scope.spawn(move || {
                        let mut written = Vec::new();
                        for n in 0.. {
                            let text = format!("{caller}/{n}");
                            let task = text.clone();
                            match writer.transact(move |tx| insert(tx, &task)) {
                                Ok(_) => written.push(text),
                                Err(TransactError::Stopped) => break,
                                Err(other) => panic!("{other:?}"),
                            }
                        }
                        written
                    })
                })
                .collect();
            wait_until("something is written", || database.writer().stats().tasks > 20);
            close(&database);
            callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect::<std::collections::BTreeSet<_>>()
        });
        assert_eq!(scratch.texts().into_iter().collect::<std::collections::BTreeSet<_>>(), written);
    }
}

#[test]
fn g10_a_stop_is_over_at_its_deadline_and_what_was_not_taken_is_answered() {
    let scratch = Scratch::new();
    let mut options = Options::default();
    options.group_rows = 1;
    let database = scratch.open_with(options);
    let writer = database.writer();
    let held = Held::new(writer);
    let waiting: Vec<_> = (0..5).map(|n| submit(writer, &n.to_string())).collect();
    let error = database.close(Instant::now() + Duration::from_millis(10)).unwrap_err();
    assert!(error.to_string().contains("queue-writer"), "{error}");
    held.release();
    for task in waiting {
        let answer = task.wait();
        assert!(matches!(answer, Err(TransactError::Stopped)), "{answer:?}");
    }
    close(&database);
    assert!(scratch.texts().is_empty());
}

#[test]
fn stop_is_legal_before_the_start_and_twice_and_a_second_start_is_refused() {
    let scratch = Scratch::new();
    let database = Database::new(&scratch.path, &[], Options::default());
    close(&database);
    let early: Failed = database.writer().transact(|tx| insert(tx, "early")).unwrap_err();
    assert!(matches!(early, TransactError::Stopped), "{early:?}");
    assert!(!scratch.path.exists(), "I/O before the start");

    let database = scratch.open();
    close(&database);
    close(&database);
}

#[test]
fn a_task_cannot_stop_its_own_writer_and_a_stop_from_elsewhere_still_works() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let inner = database.clone();
    let refused = database
        .writer()
        .transact(move |_| {
            let refused = inner.close(Instant::now() + Duration::from_millis(10)).unwrap_err();
            Ok::<_, rusqlite::Error>(refused.to_string())
        })
        .unwrap();
    assert!(refused.contains("its own end"), "{refused}");
    close(&database);
}

#[test]
fn waiting_on_the_writers_own_thread_is_refused() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let writer = database.writer().clone();
    let (inner, submitted) = database
        .writer()
        .transact(move |_| {
            let inner = writer.transact(|tx| insert(tx, "inner"));
            let submitted = writer.submit(TaskOptions::default(), |tx| insert(tx, "inner")).unwrap().wait();
            Ok::<_, rusqlite::Error>((inner, submitted))
        })
        .unwrap();
    assert!(matches!(inner, Err(TransactError::WouldDeadlock)), "{inner:?}");
    assert!(matches!(submitted, Err(TransactError::WouldDeadlock)), "{submitted:?}");
    assert!(scratch.texts().is_empty());

    // Another database's writer is another thread.
    let other = Scratch::new();
    let other_database = other.open();
    let other_writer = other_database.writer().clone();
    database
        .writer()
        .transact(move |_| {
            other_writer.transact(|tx| insert(tx, "elsewhere")).map_err(|_| rusqlite::Error::InvalidQuery)
        })
        .unwrap();
    assert_eq!(other.texts(), ["elsewhere"]);
    close(&other_database);
    close(&database);
}

#[test]
fn the_writer_ends_when_its_last_handle_is_gone() {
    let scratch = Scratch::new();
    let database = scratch.open();
    let task = submit(database.writer(), "accepted");
    let (alive, gone) = bounded::<()>(0);
    let also = database
        .writer()
        .submit(TaskOptions::default(), move |_| {
            let _kept = &alive;
            Ok::<_, rusqlite::Error>(())
        })
        .unwrap();
    drop(database);
    task.wait().unwrap();
    also.wait().unwrap();
    assert!(gone.recv_timeout(LIMIT).is_err());
    assert_eq!(scratch.texts(), ["accepted"]);
}

#[test]
fn settings_out_of_range_are_refused() {
    let scratch = Scratch::new();
    let changes: [fn(&mut Options); 6] = [
        |options| options.readers = 0,
        |options| options.read_wait = Duration::ZERO,
        |options| options.read_limit = Duration::MAX,
        |options| options.busy_deadline = Duration::MAX,
        |options| options.max_jobs = usize::MAX,
        |options| options.group_rows = 0,
    ];
    for change in changes {
        let mut options = Options::default();
        change(&mut options);
        let refused = Database::open(&scratch.path, &[], options).unwrap_err();
        assert!(matches!(refused, OpenError::Options(_)), "{refused:?}");
    }
    assert!(!scratch.path.exists());
}
