//! Acts on a lane that nobody runs: rewind, rename, retire.

use vayu_articles::outbox::{ExceptionState, HeldLane, LaneError, LaneState, NewEvent, RewindTo};
use vayu_articles::storage::TransactError;

use crate::harness::{LONG, START_MS, Scripted, Site, Step, drain, stop, wait_until};

fn held(site: &Site) -> HeldLane {
    site.operator().hold_and_wait("h", LONG).unwrap()
}

#[test]
fn a_lane_goes_back_to_an_id_an_event_a_time_or_the_start_and_never_forward() {
    let site = Site::new();
    let at = |hour: i64| NewEvent::from_json("t", "{}").key("a").occurred_at(START_MS + hour * 3_600_000);
    let events: Vec<NewEvent> = (0..9).map(at).collect();
    let ids: Vec<i64> = events.iter().map(|event| site.insert_event(event.clone())).collect();
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    for (to, first) in [
        (RewindTo::Id(ids[4]), 4),
        (RewindTo::Event(events[3].event_id.clone()), 3),
        (RewindTo::Time(START_MS + 2 * 3_600_000), 2),
        (RewindTo::Time(START_MS + 3_600_001), 2),
        (RewindTo::Time(0), 0),
        (RewindTo::Start, 0),
    ] {
        let lane = held(&site);
        lane.rewind(&to).unwrap();
        lane.give_back().unwrap();
        let handler = Scripted::new();
        let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
        drain(&relay);
        stop(&relay);
        assert_eq!(handler.done(), ids[first..], "{to:?}");
    }
    let lane = held(&site);
    lane.rewind(&RewindTo::Start).unwrap();
    let refused = |to| lane.rewind(&to).unwrap_err();
    assert!(matches!(refused(RewindTo::Id(ids[4])), TransactError::Task(LaneError::NotBehind { cursor: 0 })));
    assert!(matches!(refused(RewindTo::Event("none".into())), TransactError::Task(LaneError::NoSuchEvent)));
    assert!(matches!(refused(RewindTo::Time(i64::MAX)), TransactError::Task(LaneError::NoSuchEvent)));
    site.operator().release("h").unwrap();
    assert!(matches!(refused(RewindTo::Start), TransactError::Task(LaneError::NotHeld)));
}

#[test]
fn what_is_open_keeps_its_turn_after_a_rewind_and_what_fails_now_goes_before_it() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "a", "a", "a", "b", "a"]);
    // The first goes well after a failure, the third is open, the fourth and the sixth wait behind it.
    handler.script(ids[0], [Step::Fail]);
    handler.script(ids[2], [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    site.advance(&relay, 5);
    handler.wait_calls(5);
    drain(&relay);
    assert_eq!(site.ids_in_state(ExceptionState::Done), [ids[0]]);
    assert_eq!(site.ids_in_state(ExceptionState::Retry), [ids[2]]);
    let before = handler.calls().len();
    handler.script(ids[1], [Step::Fail]);
    let lane = held(&site);
    let done = lane.rewind(&RewindTo::Start).unwrap();
    assert_eq!(done.done_forgotten, 1);
    // What is open is due by the time the lane begins: it must not run ahead of the two before it.
    site.clock.advance(5_000);
    lane.give_back().unwrap();
    relay.notify();
    handler.wait_calls(before + 3);
    drain(&relay);
    assert_eq!(handler.ids()[before..], [ids[0], ids[1], ids[4]], "the second failed: the others of `a` wait");
    assert_eq!(site.ids_in_state(ExceptionState::Retry), [ids[1]]);
    assert_eq!(site.ids_in_state(ExceptionState::Waiting), [ids[2], ids[3], ids[5]]);
    site.advance(&relay, 5);
    handler.wait_calls(before + 7);
    drain(&relay);
    assert_eq!(handler.ids()[before + 3..], [ids[1], ids[2], ids[3], ids[5]]);
    stop(&relay);
}

#[test]
fn dead_letters_and_discarded_ones_stay_closed_through_a_rewind() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b", "c"]);
    handler.script(ids[0], [Step::Poison]);
    handler.script(ids[1], [Step::Poison]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    site.operator().discard(ids[1], "h", "no").unwrap();
    let lane = held(&site);
    lane.rewind(&RewindTo::Start).unwrap();
    lane.give_back().unwrap();
    handler.wait_calls(4);
    drain(&relay);
    assert_eq!(handler.ids()[3..], [ids[2]]);
    assert_eq!(site.ids_in_state(ExceptionState::DeadLetter), [ids[0]]);
    assert_eq!(site.ids_in_state(ExceptionState::Discarded), [ids[1]]);
    stop(&relay);
}

#[test]
fn many_done_rows_are_forgotten_in_batches() {
    let site = Site::new();
    let relay = site.relay().shared_handler("h", Scripted::new()).start().unwrap();
    drain(&relay);
    stop(&relay);
    site.foreign(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) \
         INSERT INTO event_outbox (event_type, payload) SELECT 't', '{}' FROM n; \
         INSERT INTO deliveries (outbox_id, handler, state, created_at, updated_at) \
         SELECT id, 'h', 'done', 0, 0 FROM event_outbox; UPDATE lanes SET cursor = 2500",
    )
    .unwrap();
    let done = held(&site).rewind(&RewindTo::Id(100)).unwrap();
    assert_eq!((done.from, done.to, done.done_forgotten), (2_500, 99, 2_401));
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 99);
}

#[test]
fn a_lane_whose_owner_died_can_be_rewound_and_is_still_taken_over_with_care() {
    let site = Site::new();
    let ids = site.insert_all(&["a", "b"]);
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    let dead = "11111111-1111-4111-8111-111111111111";
    site.foreign(&format!("UPDATE lanes SET owner = '{dead}', owned_since = 0, running_id = {}", ids[1])).unwrap();
    std::fs::write(site.folder.path().join(format!("site.db-owner-{dead}.lock")), "4711\n").unwrap();
    let lane = held(&site);
    lane.rewind(&RewindTo::Start).unwrap();
    lane.give_back().unwrap();
    assert_eq!(site.operator().lanes().unwrap()[0].owner.as_deref(), Some(dead), "who takes it over has to know");
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    handler.wait_calls(4);
    drain(&relay);
    assert_eq!(handler.done(), [ids[0], ids[1], ids[0], ids[1]]);
    stop(&relay);
}

#[test]
fn a_renamed_handler_keeps_its_cursor_and_its_exceptions() {
    let site = Site::new();
    let handler = Scripted::new();
    let ids = site.insert_all(&["a", "b"]);
    handler.script(ids[0], [Step::Poison]);
    let relay =
        site.relay().shared_handler("h", handler.clone()).shared_handler("other", Scripted::new()).start().unwrap();
    drain(&relay);
    let mut lane = held(&site);
    let refused = |lane: &mut HeldLane, name: &str| lane.rename(name).unwrap_err();
    assert!(matches!(refused(&mut lane, "other"), TransactError::Task(LaneError::NameTaken(_))));
    assert!(matches!(refused(&mut lane, "no name"), TransactError::Task(LaneError::InvalidName(_))));
    lane.rename("new").unwrap();
    lane.give_back().unwrap();
    // The program that has it under the old name delivers nothing more, rather than all of it once more.
    relay.notify();
    wait_until("the relay says so", || {
        relay
            .status()
            .iter()
            .any(|lane| matches!(&lane.state, LaneState::Waiting { reason } if reason.contains("renamed or retired")))
    });
    stop(&relay);
    assert_eq!(handler.calls().len(), 2);
    let lanes = site.operator().lanes().unwrap();
    assert_eq!(lanes.iter().map(|lane| lane.handler.as_str()).collect::<Vec<_>>(), ["new", "other"]);
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("new", handler.clone()).start().unwrap();
    drain(&relay);
    assert!(handler.calls().is_empty(), "its cursor came along");
    site.operator().replay(ids[0], "new", false).unwrap();
    handler.wait_calls(1);
    drain(&relay);
    stop(&relay);
}

#[test]
fn the_name_of_a_retired_handler_is_free_for_another_and_what_it_discarded_is_not_the_others() {
    let site = Site::new();
    let (former, handler) = (Scripted::new(), Scripted::new());
    let ids = site.insert_all(&["a", "b", "c"]);
    former.script(ids[0], [Step::Poison]);
    former.script(ids[1], [Step::Poison]);
    handler.script(ids[0], [Step::Poison]);
    let relay = site.relay().shared_handler("name", former).shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    let former = site.operator().hold_and_wait("name", LONG).unwrap();
    assert_eq!(former.retire("no longer wanted").unwrap(), 2);
    // Another 2,500, more than one transaction removes.
    site.foreign(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) \
         INSERT INTO deliveries (outbox_id, handler, state, created_at, updated_at) \
         SELECT i + 1000, 'name', 'discarded', 0, 0 FROM n",
    )
    .unwrap();
    // What is dead still is nobody's to remove.
    let dead =
        |state: &str| format!("UPDATE deliveries SET state = '{state}' WHERE handler = 'name' AND outbox_id = 3000");
    site.foreign(&dead("dead_letter")).unwrap();
    let mut lane = held(&site);
    let taken = lane.rename("name").unwrap_err();
    assert!(matches!(taken, TransactError::Task(LaneError::NameTaken(_))), "{taken}");
    assert_eq!(site.count("SELECT count(*) FROM deliveries WHERE handler = 'name'"), 2_502, "nothing was changed");
    assert_eq!(site.operator().discard_without_lane("name", "left over").unwrap(), 1);
    lane.rename("name").unwrap();
    lane.rewind(&RewindTo::Start).unwrap();
    lane.give_back().unwrap();
    assert_eq!(site.count("SELECT count(*) FROM deliveries"), 1);
    assert_eq!(site.ids_in_state(ExceptionState::DeadLetter), [ids[0]], "its own came along");
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("name", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    assert_eq!(handler.done(), ids[1..], "also what only the former handler of that name gave up");
}

#[test]
fn a_retired_handler_keeps_nothing_of_the_log_and_its_exceptions_are_discarded() {
    let site = Site::new();
    let handler = Scripted::parking();
    let ids = site.insert_all(&["a", "a", "b"]);
    handler.script(ids[0], [Step::Poison]);
    handler.script(ids[2], [Step::Fail]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    assert_eq!(held(&site).undelivered().unwrap(), 0);
    assert_eq!(held(&site).retire("no longer wanted").unwrap(), 3);
    assert!(site.operator().lanes().unwrap().is_empty());
    let discarded = site.in_state(ExceptionState::Discarded);
    assert_eq!(discarded.len(), 3);
    assert_eq!(discarded[1].history.last().unwrap().what, "retire");
    assert!(vayu_articles::outbox::check(&site.database).unwrap().is_clean());
    // What an earlier lane left is retired, too.
    site.foreign("UPDATE deliveries SET state = 'dead_letter'").unwrap();
    assert_eq!(site.operator().discard_without_lane("h", "left over").unwrap(), 3);
    let relay = site.relay().shared_handler("h", Scripted::new()).start().unwrap();
    drain(&relay);
    let has_lane = site.operator().discard_without_lane("h", "x").unwrap_err();
    assert!(matches!(has_lane, TransactError::Task(LaneError::HasLane)), "{has_lane:?}");
    stop(&relay);
}
