//! Who may run, and who may end a run.

use crossbeam_channel::{Sender, bounded};
use std::time::Duration;

use vayu_articles::outbox::{Ledger, LedgerError, LedgerOptions, LedgerOutcome, LedgerSetupError, LedgerState};
use vayu_articles::storage::{Database, Options, TransactError};

use crate::harness::{Desk, HANDLER, LEASE_MS, START, event, run};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_fresh_claim_held_elsewhere_defers_until_its_lease_ends() {
    let desk = Desk::new();
    let another = desk.another();
    let ran = desk.ledger.run_once("a", HANDLER, || {
        for claimer in [&desk.ledger, &another] {
            assert_eq!(run(claimer, "a", Ok(())), (LedgerOutcome::Deferred { until: START + LEASE_MS }, 0));
        }
        desk.clock.advance(LEASE_MS - 1);
        assert_eq!(run(&another, "a", Ok(())).1, 0, "not a millisecond early");
        Ok(())
    });
    assert_eq!(ran.unwrap(), LedgerOutcome::Done);
}

#[test]
fn an_old_claim_is_taken_over_and_its_stale_owner_ends_nothing() {
    let desk = Desk::new();
    let another = desk.another();
    for stale_ends in [Ok(()), Err(vayu_articles::outbox::DispatchError::retry("stale"))] {
        let id = if stale_ends.is_ok() { "finishes" } else { "releases" };
        let (inside, entered) = bounded(1);
        let (go_on, waits) = bounded(1);
        std::thread::scope(|scope| {
            let stale = scope.spawn(|| {
                desk.ledger.run_once(id, HANDLER, || {
                    inside.send(()).unwrap();
                    waits.recv_timeout(SOON).unwrap();
                    stale_ends
                })
            });
            entered.recv_timeout(SOON).unwrap();
            desk.clock.advance(LEASE_MS);
            // The takeover happens while the stale owner is still inside; its turn alone does not come then.
            let newer = scope.spawn(|| another_takes_over(&another, id, &go_on));
            assert_eq!(newer.join().unwrap(), LedgerOutcome::Done);
            assert_eq!(stale.join().unwrap().unwrap(), LedgerOutcome::Lost);
        });
        let entry = desk.entry(id);
        assert_eq!((entry.state, entry.attempts), (LedgerState::Done, 0), "{entry:?}");
    }
}

/// Lets the stale owner end its run while the newer claim is held.
fn another_takes_over(another: &Ledger, id: &str, go_on: &Sender<()>) -> LedgerOutcome {
    let outcome = another.run_once(id, HANDLER, || {
        go_on.send(()).unwrap();
        Ok(())
    });
    outcome.unwrap()
}

#[test]
fn a_clock_that_was_set_back_starts_the_lease_anew_instead_of_for_ever() {
    let desk = Desk::new();
    let another = desk.another();
    let day = 86_400_000;
    desk.clock.set(START + day);
    let ran = desk.ledger.run_once("a", HANDLER, || {
        desk.clock.set(START);
        assert_eq!(run(&another, "a", Ok(())), (LedgerOutcome::Deferred { until: START + LEASE_MS }, 0));
        assert_eq!(desk.entry("a").started_at, Some(START));
        Ok(())
    });
    assert_eq!(ran.unwrap(), LedgerOutcome::Done, "its token still counts");
}

#[test]
fn a_dead_owners_claim_is_taken_over_at_once_and_alone() {
    let desk = Desk::new();
    desk.run("other", Ok(()));
    let orphan = "UPDATE processed_events SET state = 'in_progress', token = 'x', \
                  owner = '00000000-0000-4000-8000-000000000000', started_at = created_at, processed_at = NULL";
    desk.sql(orphan);
    let lock = desk.folder.path().join("worker.db-owner-00000000-0000-4000-8000-000000000000.lock");
    let lock = lock.parent().unwrap().canonicalize().unwrap().join(lock.file_name().unwrap());
    std::fs::write(&lock, "").unwrap();
    for crash in 1..3 {
        let outcome = desk.ledger.run_once("other", HANDLER, || {
            assert_eq!(desk.entry("other").crashes, crash, "counted before it runs");
            Ok(())
        });
        assert_eq!(outcome.unwrap(), LedgerOutcome::Done);
        // The next death, with the count of the one before.
        desk.sql(orphan);
        let count = if crash == 1 {
            "UPDATE processed_events SET crashes = 1"
        } else {
            "UPDATE processed_events SET crashes = 2"
        };
        desk.sql(count);
    }
    let (outcome, runs) = desk.run("other", Ok(()));
    assert_eq!((outcome, runs), (LedgerOutcome::DeadLetter { reason: "crash_loop".into() }, 0));
    desk.ledger.replay("other", HANDLER, false).unwrap();
    assert_eq!(desk.entry("other").crashes, 2, "one more death is enough after a replay");
}

#[test]
fn a_read_error_is_an_error_and_runs_nothing() {
    let desk = Desk::new();
    desk.run("a", Ok(()));
    let raw = rusqlite::Connection::open(desk.folder.path().join("worker.db")).unwrap();
    raw.execute_batch("ALTER TABLE processed_events RENAME TO elsewhere").unwrap();
    for id in ["a", "b"] {
        let error =
            desk.ledger.run_once(id, HANDLER, || unreachable!("an unreadable ledger runs nothing")).unwrap_err();
        assert!(matches!(error, LedgerError::Read(_)), "{error:?}");
    }
    raw.execute_batch("ALTER TABLE elsewhere RENAME TO processed_events").unwrap();
    assert_eq!(desk.run("a", Ok(())), (LedgerOutcome::Skipped, 0));
}

#[test]
fn a_claim_that_cannot_be_written_runs_nothing() {
    let desk = Desk::new();
    let raw = rusqlite::Connection::open(desk.folder.path().join("worker.db")).unwrap();
    raw.execute_batch(
        "CREATE TRIGGER no_claims BEFORE INSERT ON processed_events BEGIN SELECT RAISE(ABORT, 'not now'); END",
    )
    .unwrap();
    let error = desk.ledger.run_once("a", HANDLER, || unreachable!("no claim, no run")).unwrap_err();
    assert!(matches!(error, LedgerError::Claim(TransactError::Task(_))), "{error:?}");
    raw.execute_batch("DROP TRIGGER no_claims").unwrap();
    assert_eq!(desk.run("a", Ok(())), (LedgerOutcome::Done, 1));
}

#[test]
fn an_end_that_could_not_be_written_is_written_when_the_event_comes_again() {
    let desk = Desk::new();
    let raw = rusqlite::Connection::open(desk.folder.path().join("worker.db")).unwrap();
    raw.execute_batch(
        "CREATE TRIGGER no_ends BEFORE UPDATE ON processed_events BEGIN SELECT RAISE(ABORT, 'not now'); END",
    )
    .unwrap();
    let error = desk.ledger.run_once("a", HANDLER, || Ok(())).unwrap_err();
    assert!(matches!(error, LedgerError::NotRecorded(_)), "{error:?}");
    let still = desk.ledger.run_once("a", HANDLER, || unreachable!("it ran already"));
    assert!(matches!(still, Err(LedgerError::NotRecorded(_))), "{still:?}");
    raw.execute_batch("DROP TRIGGER no_ends").unwrap();
    let outcome = desk.ledger.run_once("a", HANDLER, || unreachable!("it ran already")).unwrap();
    assert_eq!(outcome, LedgerOutcome::Done);
    assert_eq!(desk.run("a", Ok(())), (LedgerOutcome::Skipped, 0));
}

#[test]
fn case_c47_a_ledger_that_would_forget_too_early_is_not_constructed() {
    let desk = Desk::new();
    let mut options = LedgerOptions::default();
    options.retention = Duration::from_secs(3_600);
    let refused = Ledger::new(&desk.database, options).unwrap_err();
    assert!(matches!(refused, LedgerSetupError::RetentionTooShort { .. }), "{refused:?}");
}

#[test]
fn names_and_databases_that_cannot_work_are_refused() {
    let desk = Desk::new();
    for (event_id, handler) in [("", HANDLER), ("a", ""), ("a\0b", HANDLER), (&*"x".repeat(513), HANDLER)] {
        let refused = desk.ledger.run_once(event_id, handler, || unreachable!()).unwrap_err();
        assert!(matches!(refused, LedgerError::Invalid { .. }), "{refused:?}");
    }
    let mut keyed = event(1, "k");
    keyed.key = Some(String::new());
    assert!(matches!(desk.ledger.run_event(&keyed, HANDLER, |_| unreachable!()), Err(LedgerError::Invalid { .. })));
    let plain = Database::open(desk.folder.path().join("plain.db"), &[], Options::default()).unwrap();
    let refused = Ledger::new(&plain, LedgerOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("outbox::LEDGER_COMPONENT"), "{refused}");
    let unopened = Database::new(desk.folder.path().join("new.db"), &[], Options::default());
    assert!(matches!(Ledger::new(&unopened, LedgerOptions::default()), Err(LedgerSetupError::NotOpen)));
}
