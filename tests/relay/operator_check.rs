//! `check` finds each broken rule, and mends what it can without losing anything.

use vayu_articles::outbox::{self, Breach, CheckReport, ExceptionState};

use crate::harness::{Scripted, Site, Step, drain, stop};

/// A site after a quiet life: three events delivered, one of them a dead letter.
fn lived() -> (Site, Vec<i64>) {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "a", "a"]);
    handler.script(ids[2], [Step::Poison]);
    let relay = site.relay().shared_handler("h", handler).start().unwrap();
    drain(&relay);
    stop(&relay);
    (site, ids)
}

fn check(site: &Site) -> CheckReport {
    outbox::check(&site.database).unwrap()
}

fn breaches(site: &Site) -> Vec<Breach> {
    check(site).findings.iter().map(|finding| finding.breach).collect()
}

fn row(id: i64, key: &str, state: &str) -> String {
    let due = if state == "retry" { "0" } else { "NULL" };
    format!(
        "INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at) \
         VALUES ({id}, 'h', {key}, '{state}', {due}, 0, 0);"
    )
}

#[test]
fn nothing_is_found_where_the_relay_lived_alone() {
    let (site, _) = lived();
    let report = check(&site);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.lanes, report.exceptions), (1, 1));
}

#[test]
fn broken_order_is_found_and_mended() {
    for (first, second, breach) in [
        ("retry", "retry", Breach::TwoHeads),
        ("parked", "retry", Breach::RetryBehindOpen),
        ("done", "waiting", Breach::WaitingWithoutHead),
    ] {
        let (site, ids) = lived();
        site.foreign(&format!("{}{}", row(ids[0], "'a'", first), row(ids[1], "'a'", second))).unwrap();
        let report = check(&site);
        assert_eq!(report.findings.len(), 1, "{report:?}");
        let finding = &report.findings[0];
        assert_eq!((finding.breach, finding.outbox_id, finding.is_mendable()), (breach, Some(ids[1]), true));
        assert!(finding.remedy.contains("--fix"));
        assert_eq!(outbox::mend(&site.database, &report).unwrap(), 1);
        assert!(check(&site).is_clean());
        let state = if second == "waiting" { ExceptionState::Retry } else { ExceptionState::Waiting };
        assert!(site.ids_in_state(state).contains(&ids[1]));
        // What is mended already stays as it is.
        outbox::mend(&site.database, &report).unwrap();
        assert!(check(&site).is_clean());
    }
}

#[test]
fn a_row_without_key_that_waits_is_woken() {
    let (site, ids) = lived();
    site.foreign("INSERT INTO event_outbox (event_type, payload) VALUES ('t', '{}')").unwrap();
    site.foreign(&row(ids[2] + 1, "NULL", "waiting")).unwrap();
    let report = check(&site);
    assert_eq!(breaches(&site), [Breach::WaitingWithoutHead]);
    outbox::mend(&site.database, &report).unwrap();
    assert_eq!(site.ids_in_state(ExceptionState::Retry), [ids[2] + 1]);
}

#[test]
fn rows_whose_event_is_gone_are_closed_and_the_next_of_the_key_is_due() {
    let (site, ids) = lived();
    site.foreign(&format!("{}{}{}", row(-1, "'a'", "parked"), row(ids[1], "'a'", "waiting"), row(-2, "'b'", "done")))
        .unwrap();
    assert_eq!(breaches(&site), [Breach::EventMissing, Breach::EventMissing]);
    assert_eq!(outbox::mend(&site.database, &check(&site)).unwrap(), 2);
    assert_eq!(breaches(&site), [Breach::EventMissing], "the discarded one is still there, with its story");
    assert_eq!(site.in_state(ExceptionState::Discarded)[0].reason.as_deref(), Some("event_missing"));
    assert_eq!(site.ids_in_state(ExceptionState::Retry), [ids[1]]);
}

#[test]
fn rows_that_nobody_delivers_or_that_do_not_fit_are_found() {
    let (site, ids) = lived();
    site.foreign("UPDATE deliveries SET superseded_by = outbox_id").unwrap();
    assert_eq!(breaches(&site), [Breach::BadException]);
    site.foreign("UPDATE deliveries SET superseded_by = NULL, history = 'no list'").unwrap();
    assert_eq!(breaches(&site), [Breach::BadException]);
    site.foreign("UPDATE deliveries SET history = '[]', payload = '{'").unwrap();
    assert_eq!(breaches(&site), [Breach::BadException]);
    site.foreign("UPDATE deliveries SET payload = NULL, attempts = -1").unwrap();
    assert_eq!(breaches(&site), [Breach::BadException]);
    site.foreign("PRAGMA ignore_check_constraints = 1; UPDATE deliveries SET attempts = 0, state = 'lost'").unwrap();
    assert_eq!(breaches(&site), [Breach::BadException]);
    site.foreign("UPDATE deliveries SET state = 'dead_letter', event_key = 'b'").unwrap();
    assert_eq!(breaches(&site), [Breach::KeyDiffers]);
    site.foreign("UPDATE deliveries SET event_key = 'a', handler = 'gone'").unwrap();
    assert_eq!(breaches(&site), [Breach::NoLane]);
    let finding = &check(&site).findings[0];
    assert_eq!((finding.handler.as_deref(), finding.outbox_id), (Some("gone"), Some(ids[2])));
    assert!(finding.remedy.contains("handler retire gone"));
}

#[test]
fn lanes_that_are_not_as_they_should_be_are_found() {
    let (site, ids) = lived();
    site.foreign(&format!("UPDATE lanes SET cursor = {}", ids[2] + 100)).unwrap();
    assert_eq!(breaches(&site), [Breach::CursorBeyondLog]);
    assert!(site.foreign("INSERT INTO event_outbox (event_type, payload) VALUES ('t', '{}')").is_err());
    outbox::mend(&site.database, &check(&site)).unwrap();
    assert!(check(&site).is_clean());
    assert!(site.insert("z") > ids[2] + 100);
    site.foreign("UPDATE lanes SET running_id = 1").unwrap();
    assert_eq!(breaches(&site), [Breach::RunningOfNobody]);
    outbox::mend(&site.database, &check(&site)).unwrap();
    let dead = "11111111-1111-4111-8111-111111111111";
    site.foreign(&format!("UPDATE lanes SET owner = '{dead}', owned_since = 1, running_id = 1")).unwrap();
    let noted = || check(&site).notes.iter().map(|note| note.breach).collect::<Vec<_>>();
    assert_eq!(noted(), [Breach::UnknownOwner]);
    std::fs::write(site.folder.path().join(format!("site.db-owner-{dead}.lock")), "4711\n").unwrap();
    assert_eq!(noted(), [Breach::DeadOwner]);
    assert!(check(&site).is_clean(), "a crash breaks no rule");
    assert!(!check(&site).notes[0].is_mendable(), "who takes it over counts the crash");
    site.foreign("UPDATE lanes SET owner = NULL, running_id = NULL").unwrap();
    assert_eq!(breaches(&site), [Breach::BadLane]);
    site.foreign("UPDATE lanes SET owned_since = NULL, event_types = 'all'").unwrap();
    assert_eq!(breaches(&site), [Breach::BadLane]);
}

#[test]
fn a_living_owner_is_no_finding() {
    let (site, _) = lived();
    let relay = site.relay().shared_handler("h", Scripted::new()).start().unwrap();
    drain(&relay);
    assert!(check(&site).is_clean());
    stop(&relay);
}

#[test]
fn a_changed_schema_is_found_with_the_sql_that_mends_it() {
    let (site, _) = lived();
    site.foreign(
        "DROP TRIGGER event_outbox_immutable; CREATE INDEX mine ON deliveries(reason); DROP INDEX deliveries_due; \
         CREATE INDEX deliveries_due ON deliveries(handler); \
         CREATE TRIGGER yours AFTER INSERT ON event_outbox BEGIN SELECT 1; END",
    )
    .unwrap();
    let report = check(&site);
    let found = |breach| report.findings.iter().filter(move |finding| finding.breach == breach).count();
    assert_eq!(found(Breach::SchemaMissing), 1);
    assert_eq!(found(Breach::SchemaDiffers), 1);
    assert_eq!(found(Breach::SchemaForeign), 2);
    let missing = report.findings.iter().find(|finding| finding.breach == Breach::SchemaMissing).unwrap();
    let sql = missing.remedy.split_once(": ").unwrap().1;
    site.foreign(&format!("{sql}; DROP INDEX mine; DROP TRIGGER yours")).unwrap();
    assert_eq!(breaches(&site), [Breach::SchemaDiffers], "the remedy is SQL that works");
}

#[test]
fn a_report_lists_a_bounded_number_of_findings_and_counts_the_rest() {
    let (site, _) = lived();
    site.foreign(
        "WITH RECURSIVE n(i) AS (SELECT 1000 UNION ALL SELECT i + 1 FROM n WHERE i < 5999) \
         INSERT INTO deliveries (outbox_id, handler, event_key, state, created_at, updated_at) \
         SELECT i, 'h', 'k' || i, 'done', 0, 0 FROM n",
    )
    .unwrap();
    let report = check(&site);
    assert_eq!((report.findings.len(), report.more), (outbox::MAX_FINDINGS, 4_000));
    assert_eq!(report.exceptions, 5_001);
    assert!(!report.is_clean());
}
