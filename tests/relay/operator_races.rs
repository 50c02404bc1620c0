//! An operator's act while a call runs: the act wins, and the order of the key holds.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use vayu_articles::outbox::{
    DiscardError, DispatchError, EditError, Event, ExceptionState, Handler, HoldError, LaneState, OnDeadLetter, Relay,
    ReplayError, ResumeError, RewindTo,
};
use vayu_articles::storage::TransactError;

use crate::harness::{LONG, Site, drain, stop, wait_until};

type Answer = Result<(), DispatchError>;

/// A handler whose every call waits to be told how to end.
struct Told {
    began: Sender<Event>,
    answers: Receiver<Answer>,
    park: bool,
}

impl Handler for Told {
    fn handle(&self, event: &Event) -> Answer {
        self.began.send(event.clone()).unwrap();
        self.answers.recv_timeout(LONG).expect("an answer")
    }

    fn on_dead_letter(&self) -> OnDeadLetter {
        if self.park { OnDeadLetter::ParkKey } else { OnDeadLetter::Continue }
    }
}

struct Stage {
    site: Site,
    relay: Relay,
    begins: Receiver<Event>,
    answer: Sender<Answer>,
}

impl Stage {
    fn new(park: bool) -> Self {
        let site = Site::new();
        let (began, begins) = unbounded();
        let (answer, answers) = bounded(100);
        let handler = Arc::new(Told { began, answers, park });
        let relay = site.relay().shared_handler("h", handler).start().unwrap();
        Self { site, relay, begins, answer }
    }

    fn begun(&self) -> Event {
        self.begins.recv_timeout(LONG).expect("a call")
    }

    fn ends(&self, answer: Answer) {
        self.answer.send(answer).unwrap();
    }

    /// The next call is of this event and ends so.
    fn runs(&self, id: i64, answer: Answer) {
        assert_eq!(self.begun().id, id);
        self.ends(answer);
    }

    /// Waits until the lane has written all it knows.
    fn quiet(&self) {
        drain(&self.relay);
        assert!(self.begins.try_recv().is_err(), "nothing more is called");
    }

    fn ids(&self, state: ExceptionState) -> Vec<i64> {
        self.site.ids_in_state(state)
    }
}

fn poison() -> Answer {
    Err(DispatchError::poison("bad"))
}

fn fail() -> Answer {
    Err(DispatchError::retry("again"))
}

#[test]
fn an_event_that_runs_for_the_first_time_can_be_discarded_whatever_its_outcome() {
    for outcome in [Ok(()), fail(), poison()] {
        let stage = Stage::new(true);
        let ids = stage.site.insert_all(&["a", "a", "b"]);
        assert_eq!(stage.begun().id, ids[0]);
        stage.site.operator().discard(ids[0], "h", "skip it").unwrap();
        stage.ends(outcome.clone());
        // A lane that took the key for blocked runs `b` before it looks at what waited.
        let mut then = [stage.begun().id, 0];
        stage.ends(Ok(()));
        then[1] = stage.begun().id;
        stage.ends(Ok(()));
        then.sort_unstable();
        assert_eq!(then, ids[1..]);
        stage.quiet();
        assert_eq!(stage.ids(ExceptionState::Discarded), [ids[0]], "{outcome:?}");
        assert_eq!(stage.site.count("SELECT count(*) FROM deliveries WHERE state <> 'discarded'"), 0);
        stop(&stage.relay);
    }
}

#[test]
fn an_event_ahead_of_the_handler_is_skipped_and_one_behind_it_cannot_be() {
    let stage = Stage::new(false);
    let ids = stage.site.insert_all(&["a"]);
    assert_eq!(stage.begun().id, ids[0]);
    let more = stage.site.insert_all(&["a", "b"]);
    stage.site.operator().discard(more[0], "h", "never mind").unwrap();
    stage.ends(Ok(()));
    stage.runs(more[1], Ok(()));
    stage.quiet();
    stop(&stage.relay);
    let refused = |id, handler: &str| stage.site.operator().discard(id, handler, "x").unwrap_err();
    assert!(matches!(refused(ids[0], "h"), TransactError::Task(DiscardError::Delivered)));
    assert!(matches!(refused(more[1] + 1, "h"), TransactError::Task(DiscardError::NotFound)));
    assert!(matches!(refused(more[1], "nobody"), TransactError::Task(DiscardError::NotFound)));
    assert!(matches!(refused(more[0], "h"), TransactError::Task(DiscardError::Closed(ExceptionState::Discarded))));
}

#[test]
fn an_edit_while_the_event_runs_makes_it_run_again_with_the_new_payload() {
    for outcome in [Ok(()), fail(), poison()] {
        let stage = Stage::new(false);
        let ids = stage.site.insert_all(&["a", "a"]);
        stage.runs(ids[0], fail());
        stage.quiet();
        stage.site.advance(&stage.relay, 5);
        assert_eq!(stage.begun().payload, "{}");
        stage.site.operator().edit(ids[0], "h", "{\"v\":2}", false).unwrap();
        stage.ends(outcome.clone());
        let again = stage.begun();
        assert_eq!((again.id, again.payload.as_str(), again.attempts), (ids[0], "{\"v\":2}", 0), "{outcome:?}");
        stage.ends(Ok(()));
        stage.runs(ids[1], Ok(()));
        stage.quiet();
        assert_eq!(stage.ids(ExceptionState::Done), [ids[0]]);
        let closed = stage.site.operator().edit(ids[0], "h", "1", true).unwrap_err();
        assert!(matches!(closed, TransactError::Task(EditError::Closed(ExceptionState::Done))), "{closed:?}");
        stop(&stage.relay);
    }
}

#[test]
fn a_payload_that_is_no_json_or_too_large_is_refused_and_an_edit_needs_no_force_after_three_replays() {
    let stage = Stage::new(false);
    let ids = stage.site.insert_all(&["a"]);
    stage.runs(ids[0], poison());
    stage.quiet();
    for bad in ["", "{", &format!("\"{}\"", "x".repeat(1 << 20))] {
        let error = stage.site.operator().edit(ids[0], "h", bad, true).unwrap_err();
        assert!(matches!(&error, TransactError::Task(EditError::Payload(_))), "{error:?}");
    }
    for _ in 0..3 {
        stage.site.operator().replay(ids[0], "h", false).unwrap();
        stage.runs(ids[0], poison());
        stage.quiet();
    }
    let refused = stage.site.operator().replay(ids[0], "h", false).unwrap_err();
    assert!(matches!(refused, TransactError::Task(ReplayError::TooOften)), "{refused:?}");
    stage.site.operator().edit(ids[0], "h", "2", false).unwrap();
    assert_eq!(stage.begun().payload, "2");
    stage.ends(poison());
    stage.quiet();
    stage.site.operator().replay(ids[0], "h", true).unwrap();
    assert_eq!(stage.begun().payload, "2", "an edited payload stays");
    stage.ends(Ok(()));
    stage.quiet();
    stop(&stage.relay);
}

#[test]
fn a_replay_while_a_later_event_of_its_key_runs_does_not_bring_an_old_state_back() {
    let stage = Stage::new(false);
    let mut ids = stage.site.insert_all(&["a"]);
    stage.runs(ids[0], poison());
    stage.quiet();
    ids.push(stage.site.insert("a"));
    assert_eq!(stage.begun().id, ids[1]);
    stage.site.operator().replay(ids[0], "h", false).unwrap();
    stage.ends(Ok(()));
    wait_until("it is superseded", || stage.ids(ExceptionState::DeadLetter) == [ids[0]]);
    stage.quiet();
    let refused = stage.site.operator().replay(ids[0], "h", false).unwrap_err();
    assert!(matches!(refused, TransactError::Task(ReplayError::Superseded { by }) if by == ids[1]), "{refused:?}");
    let refused = stage.site.operator().edit(ids[0], "h", "3", false).unwrap_err();
    assert!(matches!(refused, TransactError::Task(EditError::Superseded { by }) if by == ids[1]), "{refused:?}");
    stage.site.operator().replay(ids[0], "h", true).unwrap();
    stage.runs(ids[0], Ok(()));
    stage.quiet();
    stop(&stage.relay);
}

#[test]
fn what_is_superseded_is_a_dead_letter_also_where_a_failing_event_parks_its_key() {
    let stage = Stage::new(true);
    let mut ids = stage.site.insert_all(&["a"]);
    stage.runs(ids[0], poison());
    stage.quiet();
    stage.site.operator().resume("h", "a").unwrap();
    ids.push(stage.site.insert("a"));
    assert_eq!(stage.begun().id, ids[1]);
    stage.site.operator().replay(ids[0], "h", false).unwrap();
    stage.ends(Ok(()));
    wait_until("it is superseded", || stage.ids(ExceptionState::DeadLetter) == [ids[0]]);
    stage.quiet();
    let refused = stage.site.operator().replay(ids[0], "h", false).unwrap_err();
    assert!(matches!(refused, TransactError::Task(ReplayError::Superseded { by }) if by == ids[1]), "{refused:?}");
    // It holds nobody up: a later one of its key is done already.
    let next = stage.site.insert("a");
    stage.runs(next, Ok(()));
    stage.quiet();
    stop(&stage.relay);
}

#[test]
fn a_replay_while_a_later_event_of_its_key_fails_goes_first() {
    let stage = Stage::new(false);
    let ids = stage.site.insert_all(&["a", "a"]);
    stage.runs(ids[0], poison());
    stage.runs(ids[1], fail());
    stage.quiet();
    stage.site.advance(&stage.relay, 5);
    assert_eq!(stage.begun().id, ids[1]);
    stage.site.operator().replay(ids[0], "h", false).unwrap();
    let twice = stage.site.operator().replay(ids[0], "h", false).unwrap_err();
    assert!(matches!(twice, TransactError::Task(ReplayError::NotDead(ExceptionState::Retry))), "twice is once");
    assert_eq!(stage.ids(ExceptionState::Waiting), [ids[1]]);
    stage.ends(fail());
    stage.runs(ids[0], Ok(()));
    stage.runs(ids[1], Ok(()));
    stage.quiet();
    assert_eq!(stage.ids(ExceptionState::Done), ids);
    stop(&stage.relay);
}

#[test]
fn a_resumed_key_goes_on_at_once_and_its_parked_event_is_a_dead_letter() {
    let stage = Stage::new(true);
    let ids = stage.site.insert_all(&["a", "a"]);
    stage.runs(ids[0], poison());
    stage.quiet();
    assert_eq!(stage.ids(ExceptionState::Parked), [ids[0]]);
    // The call of another key runs while the operator acts.
    let other = stage.site.insert("b");
    assert_eq!(stage.begun().id, other);
    let resumed = std::thread::scope(|scope| {
        let acts = [0, 1].map(|_| scope.spawn(|| stage.site.operator().resume("h", "a")));
        acts.map(|act| act.join().unwrap())
    });
    assert_eq!(resumed.iter().filter(|done| done.is_ok()).count(), 1, "twice at once is once: {resumed:?}");
    stage.ends(Ok(()));
    stage.runs(ids[1], Ok(()));
    stage.quiet();
    assert_eq!(stage.ids(ExceptionState::DeadLetter), [ids[0]]);
    let nothing = stage.site.operator().resume("h", "a").unwrap_err();
    assert!(matches!(nothing, TransactError::Task(ResumeError::NotParked)), "{nothing:?}");
    stop(&stage.relay);
}

#[test]
fn a_hold_waits_for_the_running_call_within_its_bound_and_is_taken_back_beyond_it() {
    let stage = Stage::new(false);
    let ids = stage.site.insert_all(&["a", "b"]);
    assert_eq!(stage.begun().id, ids[0]);
    let late = stage.site.operator().hold_and_wait("h", Duration::from_millis(50)).unwrap_err();
    let TransactError::Task(HoldError::StillOwned { pid, .. }) = &late else { panic!("{late:?}") };
    assert_eq!(*pid, Some(std::process::id()));
    assert!(!stage.site.operator().lanes().unwrap()[0].held, "as it was before");
    let lane = std::thread::scope(|scope| {
        let waits = scope.spawn(|| stage.site.operator().hold_and_wait("h", LONG).unwrap());
        wait_until("the hold is there", || stage.site.operator().lanes().unwrap()[0].held);
        stage.ends(Ok(()));
        // Whether the lane takes one more or not, it lets go.
        while !waits.is_finished() {
            if stage.begins.recv_timeout(Duration::from_millis(20)).is_ok() {
                stage.ends(Ok(()));
            }
        }
        waits.join().unwrap()
    });
    let info = &stage.site.operator().lanes().unwrap()[0];
    assert_eq!((info.held, info.owner.as_deref()), (true, None));
    wait_until("the relay says so", || stage.relay.status()[0].state == LaneState::Held);
    lane.give_back().unwrap();
    if info.cursor < ids[1] {
        stage.runs(ids[1], Ok(()));
    }
    stage.quiet();
    stop(&stage.relay);
}

#[test]
fn a_rewind_asked_for_during_a_call_waits_for_it_and_delivers_again_from_there() {
    let stage = Stage::new(false);
    let ids = stage.site.insert_all(&["a", "b", "c"]);
    stage.runs(ids[0], Ok(()));
    stage.runs(ids[1], Ok(()));
    assert_eq!(stage.begun().id, ids[2]);
    let lane = std::thread::scope(|scope| {
        let waits = scope.spawn(|| stage.site.operator().hold_and_wait("h", LONG).unwrap());
        wait_until("the hold is there", || stage.site.operator().lanes().unwrap()[0].held);
        stage.ends(Ok(()));
        waits.join().unwrap()
    });
    let done = lane.rewind(&RewindTo::Id(ids[1])).unwrap();
    assert_eq!((done.from, done.to), (ids[2], ids[0]));
    lane.give_back().unwrap();
    stage.runs(ids[1], Ok(()));
    stage.runs(ids[2], Ok(()));
    stage.quiet();
    stop(&stage.relay);
}
