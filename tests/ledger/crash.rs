//! Workers in processes of their own, killed inside a handler, and many claimers at once.

use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use vayu_articles::outbox::{DispatchError, LEDGER_COMPONENT, Ledger, LedgerOptions, LedgerOutcome, LedgerState};
use vayu_articles::storage::{Database, Options};

use crate::harness::{HANDLER, event};

const DATABASE: &str = "VAYU_LEDGER_DATABASE";

fn ledger(path: &Path) -> (Database, Ledger) {
    let database = Database::open(path, &[LEDGER_COMPONENT], Options::default()).unwrap();
    let ledger = Ledger::new(&database, LedgerOptions::default()).unwrap();
    (database, ledger)
}

/// Not a test of its own: a worker that is inside its handler until it is killed.
#[test]
fn child_is_inside_its_handler() {
    let Ok(path) = std::env::var(DATABASE) else { return };
    let (_database, ledger) = ledger(Path::new(&path));
    let outcome = ledger.run_event(&event(1, "k"), HANDLER, |_| {
        println!("\ninside");
        // Ends when the parent hangs up, whatever else happens.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        Ok(())
    });
    panic!("not killed: {outcome:?}");
}

fn child(path: &Path) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::child_is_inside_its_handler", "--nocapture"])
        .env(DATABASE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "inside"), "it ended without being inside");
    child
}

#[test]
fn a_killed_workers_event_is_run_at_once_by_the_next_and_a_killer_is_given_up_after_three_deaths() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker.db");
    for death in 1..=3_u32 {
        let mut child = child(&path);
        let (database, here) = ledger(&path);
        let meanwhile = here.run_event(&event(1, "k"), HANDLER, |_| unreachable!("its owner lives")).unwrap();
        assert!(matches!(meanwhile, LedgerOutcome::Deferred { .. }), "{meanwhile:?}");
        let behind = here.run_event(&event(2, "k"), HANDLER, |_| unreachable!("it waits its turn")).unwrap();
        assert!(matches!(behind, LedgerOutcome::Deferred { .. }), "{behind:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        if death < 3 {
            // Taken over with no waiting, as long as the process that takes over lives.
            let outcome = here.run_event(&event(1, "k"), HANDLER, |_| Err(DispatchError::unavailable("not here")));
            assert!(matches!(outcome, Ok(LedgerOutcome::Unavailable { .. })), "{outcome:?}");
            // A clean end cleared the count; for the test it stands as if none had come between.
            let count = format!("UPDATE processed_events SET crashes = {death}");
            database.writer().transact(move |tx| tx.execute(&count, [])).unwrap();
        } else {
            let outcome = here.run_event(&event(1, "k"), HANDLER, |_| unreachable!("a killer")).unwrap();
            assert_eq!(outcome, LedgerOutcome::DeadLetter { reason: "crash_loop".into() });
            let entry = here.show("event-1").unwrap().remove(0);
            assert_eq!((entry.state, entry.crashes), (LedgerState::DeadLetter, 3));
            assert!(entry.event.is_some(), "the dead letter is complete");
            assert_eq!(here.run_event(&event(2, "k"), HANDLER, |_| Ok(())).unwrap(), LedgerOutcome::Done);
        }
    }
}

#[test]
fn many_claimers_run_each_event_once_and_never_at_the_same_time() {
    const EVENTS: i64 = 40;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker.db");
    let ledgers = [ledger(&path), ledger(&path)];
    let running: Mutex<HashMap<i64, u32>> = Mutex::default();
    let (done, skipped) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for claimer in 0..6_i64 {
            let (ledgers, running, done, skipped) = (&ledgers, &running, &done, &skipped);
            scope.spawn(move || {
                let ledger = &ledgers[usize::try_from(claimer % 2).unwrap()].1;
                for turn in 0..EVENTS {
                    let id = (turn + claimer * 5) % EVENTS + 1;
                    let outcome = ledger.run_event(&event(id, &format!("key-{id}")), HANDLER, |_| {
                        assert_eq!(running.lock().unwrap().insert(id, 1), None, "{id} runs twice");
                        std::thread::yield_now();
                        running.lock().unwrap().remove(&id);
                        Ok(())
                    });
                    match outcome.unwrap() {
                        LedgerOutcome::Done => done.fetch_add(1, Ordering::SeqCst),
                        LedgerOutcome::Skipped => skipped.fetch_add(1, Ordering::SeqCst),
                        LedgerOutcome::Deferred { .. } => 0,
                        other => panic!("{other:?}"),
                    };
                }
            });
        }
    });
    assert_eq!(done.into_inner(), u32::try_from(EVENTS).unwrap(), "each once");
    assert!(skipped.into_inner() > 0);
}
