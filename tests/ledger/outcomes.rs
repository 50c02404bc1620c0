//! What each end of a run leaves behind.

use vayu_articles::outbox::{DispatchError, LedgerActError, LedgerOptions, LedgerOutcome, LedgerQuery, LedgerState};
use vayu_articles::storage::TransactError;

use crate::harness::{Desk, HANDLER, LEASE_MS, START, event, run};

#[test]
fn done_is_skipped_for_ever_and_by_everybody() {
    let desk = Desk::new();
    assert_eq!(desk.run("a", Ok(())), (LedgerOutcome::Done, 1));
    assert_eq!(desk.run("a", Ok(())), (LedgerOutcome::Skipped, 0));
    assert_eq!(run(&desk.another(), "a", Ok(())), (LedgerOutcome::Skipped, 0));
    let other = desk.ledger.run_once("a", "another handler", || Ok(())).unwrap();
    assert_eq!(other, LedgerOutcome::Done, "each handler has an entry of its own");
    desk.clock.advance(29 * 86_400_000);
    assert_eq!(desk.run("a", Ok(())), (LedgerOutcome::Skipped, 0));
}

#[test]
fn a_failure_releases_counts_and_waits_as_a_local_relay_does() {
    let desk = Desk::new();
    let failed = |attempts, until| LedgerOutcome::Retry { reason: "no".into(), attempts, until };
    let no = || Err(DispatchError::retry("no"));
    assert_eq!(desk.run("a", no()), (failed(1, START + 5_000), 1));
    assert_eq!(desk.run("a", no()), (LedgerOutcome::Deferred { until: START + 5_000 }, 0), "not due yet");
    desk.clock.advance(5_000);
    // Counted durably: another process goes on counting.
    assert_eq!(run(&desk.another(), "a", no()), (failed(2, START + 15_000), 1));
    desk.clock.advance(10_000);
    assert_eq!(desk.run("a", no()), (LedgerOutcome::DeadLetter { reason: "no".into() }, 1));
    assert_eq!(desk.run("a", no()), (LedgerOutcome::DeadLetter { reason: "no".into() }, 0), "never again by itself");
    let entry = desk.entry("a");
    assert_eq!((entry.state, entry.attempts), (LedgerState::DeadLetter, 3));
    assert_eq!(entry.history.len(), 4, "{:?}", entry.history);
}

#[test]
fn a_panic_releases_and_its_text_is_kept() {
    let desk = Desk::new();
    let outcome = desk.ledger.run_once("a", HANDLER, || panic!("boom {}", 7)).unwrap();
    assert!(matches!(&outcome, LedgerOutcome::Retry { reason, .. } if reason == "panicked: boom 7"), "{outcome:?}");
    desk.clock.advance(5_000);
    assert_eq!(desk.run("a", Ok(())), (LedgerOutcome::Done, 1));
}

#[test]
fn an_outage_spends_nothing_and_leaves_nothing_behind() {
    let desk = Desk::new();
    for _ in 0..10 {
        let (outcome, runs) = desk.run("a", Err(DispatchError::unavailable("down")));
        assert_eq!((outcome, runs), (LedgerOutcome::Unavailable { reason: "down".into(), retry_after: None }, 1));
    }
    assert!(desk.ledger.show("a").unwrap().is_empty(), "released: as if it had never been claimed");
    for _ in 0..10 {
        let outcome = desk.ledger.run_event(&event(1, "k"), HANDLER, |_| Err(DispatchError::unavailable("down")));
        assert!(matches!(outcome, Ok(LedgerOutcome::Unavailable { .. })), "{outcome:?}");
    }
    assert_eq!(desk.entry("event-1").attempts, 0);
    assert_eq!(desk.ledger.run_event(&event(1, "k"), HANDLER, |_| Ok(())).unwrap(), LedgerOutcome::Done);
}

#[test]
fn only_what_has_spent_nothing_is_let_go() {
    let desk = Desk::new();
    let run = |id, answer: Result<(), DispatchError>| desk.ledger.run_event(&event(id, "k"), HANDLER, |_| answer);
    let let_go = |id: &str| desk.ledger.let_go(id, HANDLER).unwrap();
    assert!(!let_go("event-1"), "there is none");
    run(1, Err(DispatchError::unavailable("down"))).unwrap();
    assert!(let_go("event-1") && desk.ledger.show("event-1").unwrap().is_empty());
    let ran = desk.ledger.run_event(&event(1, "k"), HANDLER, |_| {
        assert!(!let_go("event-1"), "it runs");
        Ok(())
    });
    assert_eq!(ran.unwrap(), LedgerOutcome::Done);
    assert!(!let_go("event-1"), "it is done");
    run(2, Err(DispatchError::retry("no"))).unwrap();
    assert!(!let_go("event-2"), "a call failed");
    desk.clock.advance(5_000);
    run(2, Err(DispatchError::poison("never"))).unwrap();
    assert!(!let_go("event-2"), "a dead letter");
    desk.ledger.replay("event-2", HANDLER, true).unwrap();
    run(2, Err(DispatchError::unavailable("down"))).unwrap();
    assert!(!let_go("event-2"), "an operator wants it");
    assert_eq!(desk.entry("event-2").state, LedgerState::Retry);
}

#[test]
fn poison_is_a_dead_letter_at_once_with_its_event() {
    let desk = Desk::new();
    let bad = event(1, "k");
    let outcome = desk.ledger.run_event(&bad, HANDLER, |_| Err(DispatchError::poison("never"))).unwrap();
    assert_eq!(outcome, LedgerOutcome::DeadLetter { reason: "poison: never".into() });
    let listed = desk.ledger.entries(&LedgerQuery::default()).unwrap();
    assert_eq!(listed.len(), 1);
    let kept = listed[0].event.as_ref().expect("the event is kept");
    assert_eq!((&kept.payload, &kept.event_type, &kept.key), (&bad.payload, &bad.event_type, &bad.key));
    assert!(listed[0].history.iter().any(|entry| entry.what == "dead_letter"));
}

#[test]
fn a_dead_letter_is_replayed_from_the_ledger_alone() {
    let desk = Desk::new();
    let poison = || Err(DispatchError::poison("never"));
    desk.ledger.run_event(&event(1, "k"), HANDLER, |_| poison()).unwrap();
    assert!(desk.ledger.due(HANDLER, 10).unwrap().is_empty(), "dead is dead");
    desk.ledger.replay("event-1", HANDLER, false).unwrap();
    let again = desk.ledger.replay("event-1", HANDLER, false);
    assert!(matches!(again, Err(TransactError::Task(LedgerActError::WrongState(LedgerState::Retry)))), "{again:?}");
    let due = desk.ledger.due(HANDLER, 10).unwrap();
    assert_eq!(due.len(), 1);
    let outcome = desk.ledger.run_event(&due[0], HANDLER, |event| {
        assert_eq!((event.attempts, event.replays, event.payload.as_str()), (0, 1, "{\"n\":1}"));
        Ok(())
    });
    assert_eq!(outcome.unwrap(), LedgerOutcome::Done);
    assert!(desk.ledger.due(HANDLER, 10).unwrap().is_empty());
    for _ in 0..3 {
        desk.ledger.run_event(&event(2, "k"), HANDLER, |_| poison()).unwrap();
        desk.ledger.replay("event-2", HANDLER, false).unwrap();
    }
    desk.ledger.run_event(&event(2, "k"), HANDLER, |_| poison()).unwrap();
    let fourth = desk.ledger.replay("event-2", HANDLER, false);
    assert!(matches!(fourth, Err(TransactError::Task(LedgerActError::TooOften))), "{fourth:?}");
    desk.ledger.replay("event-2", HANDLER, true).unwrap();
}

#[test]
fn a_later_done_event_supersedes_a_dead_one_of_its_key() {
    let desk = Desk::new();
    desk.ledger.run_event(&event(1, "k"), HANDLER, |_| Err(DispatchError::poison("never"))).unwrap();
    desk.ledger.run_event(&event(2, "other"), HANDLER, |_| Ok(())).unwrap();
    assert_eq!(desk.entry("event-1").superseded_by, None);
    desk.ledger.run_event(&event(3, "k"), HANDLER, |_| Ok(())).unwrap();
    assert_eq!(desk.entry("event-1").superseded_by, Some(3));
    let refused = desk.ledger.replay("event-1", HANDLER, false);
    assert!(matches!(refused, Err(TransactError::Task(LedgerActError::Superseded { by: 3 }))), "{refused:?}");
    desk.ledger.replay("event-1", HANDLER, true).unwrap();
}

#[test]
fn an_event_waits_for_the_earlier_ones_of_its_key() {
    let desk = Desk::new();
    let outcome = desk.ledger.run_event(&event(1, "k"), HANDLER, |_| Err(DispatchError::retry("no"))).unwrap();
    assert_eq!(outcome, LedgerOutcome::Retry { reason: "no".into(), attempts: 1, until: START + 5_000 });
    let blocked = desk.ledger.run_event(&event(2, "k"), HANDLER, |_| unreachable!("it waits")).unwrap();
    assert_eq!(blocked, LedgerOutcome::Deferred { until: START + 5_000 });
    assert_eq!(desk.ledger.run_event(&event(3, "other"), HANDLER, |_| Ok(())).unwrap(), LedgerOutcome::Done);
    desk.clock.advance(5_000);
    assert_eq!(desk.ledger.run_event(&event(1, "k"), HANDLER, |_| Ok(())).unwrap(), LedgerOutcome::Done);
    assert_eq!(desk.ledger.run_event(&event(2, "k"), HANDLER, |_| Ok(())).unwrap(), LedgerOutcome::Done);
}

#[test]
fn what_the_broker_forgot_is_due_after_a_lease() {
    let desk = Desk::new();
    desk.ledger.run_event(&event(1, "k"), HANDLER, |_| Err(DispatchError::retry("no"))).unwrap();
    desk.clock.advance(5_000 + LEASE_MS - 1);
    assert!(desk.ledger.due(HANDLER, 10).unwrap().is_empty(), "the broker may still bring it");
    desk.clock.advance(1);
    assert_eq!(desk.ledger.due(HANDLER, 10).unwrap().len(), 1);
    desk.clock.set(START - 3_600_000);
    assert_eq!(desk.ledger.due(HANDLER, 10).unwrap().len(), 1, "the clock was set back");
    let ran = desk.ledger.run_event(&event(1, "k"), HANDLER, |_| Ok(())).unwrap();
    assert_eq!(ran, LedgerOutcome::Done, "further ahead than any backoff means due");
}

#[test]
fn a_discard_wins_over_the_run_that_goes_on() {
    let desk = Desk::new();
    let outcome = desk.ledger.run_event(&event(1, "k"), HANDLER, |_| {
        desk.ledger.discard("event-1", HANDLER, "not wanted").unwrap();
        Ok(())
    });
    assert_eq!(outcome.unwrap(), LedgerOutcome::Lost);
    assert_eq!(desk.entry("event-1").state, LedgerState::Discarded);
    assert_eq!(desk.ledger.run_event(&event(1, "k"), HANDLER, |_| Ok(())).unwrap(), LedgerOutcome::Discarded);
    let again = desk.ledger.discard("event-1", HANDLER, "twice");
    assert!(matches!(again, Err(TransactError::Task(LedgerActError::WrongState(_)))), "{again:?}");
}

#[test]
fn case_c47_done_entries_go_after_thirty_days_and_nothing_else_does() {
    let mut options = LedgerOptions::default();
    options.rows_per_task = 7;
    let desk = Desk::with(options);
    for id in 0..50 {
        desk.run(&format!("done-{id}"), Ok(()));
    }
    desk.ledger.run_event(&event(1, "dead"), HANDLER, |_| Err(DispatchError::poison("never"))).unwrap();
    desk.ledger.run_event(&event(2, "failing"), HANDLER, |_| Err(DispatchError::retry("no"))).unwrap();
    desk.clock.advance(30 * 86_400_000);
    desk.run("young", Ok(()));
    assert_eq!(desk.ledger.prune(|| false).unwrap(), 0, "thirty days are kept to the millisecond");
    desk.clock.advance(1);
    assert_eq!(desk.ledger.prune(|| true).unwrap(), 0, "a stop is heard between two tasks");
    assert_eq!(desk.ledger.prune(|| false).unwrap(), 50);
    assert_eq!(desk.run("young", Ok(())), (LedgerOutcome::Skipped, 0));
    desk.clock.advance(365 * 86_400_000);
    desk.ledger.prune(|| false).unwrap();
    assert_eq!(desk.entry("event-1").state, LedgerState::DeadLetter, "whatever its age");
    assert_eq!(desk.entry("event-2").state, LedgerState::Retry);
    desk.ledger.discard("event-1", HANDLER, "old").unwrap();
    desk.clock.advance(31 * 86_400_000);
    assert_eq!(desk.ledger.prune(|| false).unwrap(), 1, "only by command");
}

#[test]
fn an_edited_dead_letter_runs_with_its_new_payload_also_when_the_broker_brings_the_old_one() {
    let desk = Desk::new();
    let edit = |id: &str, payload: &str, force: bool| desk.ledger.edit(id, HANDLER, payload, force);
    for id in [1, 2] {
        desk.ledger.run_event(&event(id, "k"), HANDLER, |_| Err(DispatchError::poison("never"))).unwrap();
    }
    edit("event-1", "{\"n\":100}", false).unwrap();
    // Again, while it waits for its call.
    edit("event-1", "{\"n\":101}", false).unwrap();
    let due = desk.ledger.due(HANDLER, 10).unwrap();
    assert_eq!((due.len(), due[0].payload.as_str(), due[0].edited), (1, "{\"n\":101}", true));
    let ran = desk.ledger.run_event(&event(1, "k"), HANDLER, |event| {
        assert_eq!((event.payload.as_str(), event.edited, event.attempts), ("{\"n\":101}", true, 0));
        let running = edit("event-1", "{}", true);
        assert!(matches!(running, Err(TransactError::Task(LedgerActError::Running))), "{running:?}");
        Ok(())
    });
    assert_eq!(ran.unwrap(), LedgerOutcome::Done);
    let closed = edit("event-1", "{}", true);
    assert!(matches!(closed, Err(TransactError::Task(LedgerActError::WrongState(LedgerState::Done)))), "{closed:?}");
    assert_eq!(desk.entry("event-1").history.iter().filter(|entry| entry.what == "edit").count(), 2);
    desk.ledger.run_event(&event(3, "k"), HANDLER, |_| Ok(())).unwrap();
    let superseded = edit("event-2", "{}", false);
    assert!(matches!(superseded, Err(TransactError::Task(LedgerActError::Superseded { by: 3 }))), "{superseded:?}");
    let no_json = edit("event-2", "{", true);
    assert!(matches!(no_json, Err(TransactError::Task(LedgerActError::Payload(_)))), "{no_json:?}");
    edit("event-2", "{}", true).unwrap();
    desk.run("named", Err(DispatchError::poison("never")));
    let nothing = edit("named", "{}", true);
    assert!(matches!(nothing, Err(TransactError::Task(LedgerActError::NoEvent))), "{nothing:?}");
}

/// The case names a million events; these thousand pass the retention three times, and the bound is one of days.
#[test]
fn case_c47_the_ledger_holds_what_its_retention_names_however_much_went_through() {
    const A_DAY: i64 = 10;
    let desk = Desk::new();
    let count = || {
        let all = "SELECT count(*) FROM processed_events";
        desk.database.read(|connection| connection.query_row(all, [], |row| row.get::<_, i64>(0))).unwrap()
    };
    for day in 0..100 {
        for number in 0..A_DAY {
            assert_eq!(desk.run(&format!("{day}-{number}"), Ok(())), (LedgerOutcome::Done, 1));
        }
        desk.ledger.prune(|| false).unwrap();
        // Thirty days, and what has just reached that age.
        assert_eq!(count(), A_DAY * (day + 1).min(31), "on day {day}");
        desk.clock.advance(86_400_000);
    }
}
