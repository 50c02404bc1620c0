//! Rows that foreign hands left in the ledger: bytes that are no UTF-8, counts beyond any range, events that are none. They are
//! seen, and keep nobody from anything.

use vayu_articles::outbox::{DispatchError, LedgerOutcome, LedgerQuery, LedgerState};

use crate::harness::*;

/// Three rows whose id is no UTF-8, of a handler whose name is none either, and one that is well but for its contents.
fn put_foreign_rows(desk: &Desk, state: &'static str) {
    let row = |id: &str, handler: &str| {
        format!(
            "INSERT INTO processed_events (event_id, handler, state, token, owner, started_at, attempts, crashes, replays, \
             next_attempt_at, processed_at, event_key, position, event, reason, history, created_at, updated_at) \
             VALUES ({id}, {handler}, '{state}', 't', CAST(x'ff' AS TEXT), 1, 9223372036854775807, -7, 5000000000, 1, 1, \
             CAST(x'c328' AS TEXT), -1, CAST(x'7bff7d' AS TEXT), CAST(x'6f6bff' AS TEXT), CAST(x'5bff' AS TEXT), 1, 1)"
        )
    };
    let rows = [
        row("CAST(x'ff41' AS TEXT)", "CAST(x'6dff' AS TEXT)"),
        row("CAST(x'ff42' AS TEXT)", "'mail'"),
        row("CAST(x'80' AS TEXT)", "'mail'"),
        row("'known'", "'mail'"),
    ];
    desk.database.writer().transact(move |tx| rows.iter().try_for_each(|row| tx.execute(row, []).map(|_| ()))).unwrap();
}

#[test]
fn rows_that_are_no_text_or_out_of_range_are_listed_each_once_and_hide_no_other() {
    let desk = Desk::new();
    put_foreign_rows(&desk, "dead_letter");
    for id in ["a", "z"] {
        desk.run(id, Err(DispatchError::poison("never")));
    }
    for handler in [None, Some(HANDLER.to_owned())] {
        let (all, mut query, mut seen) = (if handler.is_none() { 6 } else { 5 }, LedgerQuery::default(), Vec::new());
        (query.handler, query.limit) = (handler, 1);
        loop {
            let page = desk.ledger.entries(&query).unwrap();
            let Some(last) = page.last() else { break };
            query.after = Some(last.place.clone());
            seen.extend(page);
            assert!(seen.len() <= all, "paging goes round: {seen:?}");
        }
        assert_eq!(seen.len(), all, "{seen:?}");
        let strange: Vec<_> = seen.iter().filter(|entry| entry.event_id.contains('\u{fffd}')).collect();
        assert_eq!(strange.len(), all - 3);
    }
    let known = desk.entry("known");
    assert_eq!((known.attempts, known.crashes, known.replays), (u32::MAX, 0, u32::MAX));
    assert_eq!((known.owner.as_deref(), known.reason.as_deref()), (Some("\u{fffd}"), Some("ok\u{fffd}")));
    assert_eq!((known.key.as_deref(), known.position), (Some("\u{fffd}("), Some(-1)));
    assert!(known.event.is_none() && known.history.is_empty());
}

#[test]
fn they_are_replayed_discarded_and_forgotten_like_any_other() {
    let desk = Desk::new();
    put_foreign_rows(&desk, "dead_letter");
    desk.ledger.replay("known", HANDLER, true).unwrap();
    assert_eq!(desk.ledger.due(HANDLER, 10).unwrap().len(), 0, "what is no event is not made one");
    assert_eq!(desk.run("known", Ok(())), (LedgerOutcome::Done, 1), "the broker's own delivery runs it");
    assert_eq!(desk.entry("known").state, LedgerState::Done);

    let desk = Desk::new();
    put_foreign_rows(&desk, "discarded");
    desk.run("done", Ok(()));
    desk.clock.advance(31 * 86_400_000);
    assert_eq!(desk.ledger.prune(|| false).unwrap(), 5, "no row stands in the way of retention");
}

#[test]
fn one_that_is_open_delays_its_key_alone() {
    let desk = Desk::new();
    put_foreign_rows(&desk, "in_progress");
    assert!(desk.ledger.due(HANDLER, 10).unwrap().is_empty());
    assert_eq!(desk.run("other", Ok(())), (LedgerOutcome::Done, 1));
    desk.ledger.discard("known", HANDLER, "no event").unwrap();
    assert_eq!(desk.entry("known").state, LedgerState::Discarded);
}

#[test]
fn a_check_names_the_rows_that_nothing_can_move_and_how_to_be_rid_of_them() {
    let desk = Desk::new();
    desk.ledger.run_event(&event(1, "k"), HANDLER, |_| Err(DispatchError::poison("never"))).unwrap();
    desk.ledger.run_event(&event(2, "l"), HANDLER, |_| Err(DispatchError::retry("no"))).unwrap();
    desk.run("named", Err(DispatchError::poison("never")));
    let report = desk.ledger.check().unwrap();
    assert!(report.is_clean() && report.entries == 3, "{report:?}");
    put_foreign_rows(&desk, "retry");
    desk.sql("UPDATE processed_events SET position = 7 WHERE event_id = 'event-2'");
    let report = desk.ledger.check().unwrap();
    assert_eq!((report.entries, report.findings.len(), report.more), (7, 5, 0), "{report:?}");
    for finding in report.findings {
        match finding.event_id.as_str() {
            "known" | "event-2" => desk.ledger.discard(&finding.event_id, &finding.handler, "damaged").unwrap(),
            _ => {
                let statement = finding.remedy[finding.remedy.find("DELETE").unwrap()..].to_owned();
                let removed = desk.database.writer().transact(move |tx| tx.execute(&statement, [])).unwrap();
                assert_eq!(removed, 1, "{}", finding.remedy);
            }
        }
    }
    assert!(desk.ledger.check().unwrap().is_clean());
}
