//! An operator's act while a lane of several threads runs, its calls held inside: the act wins over what the call comes
//! to, and per key no two run at once, first completions are in order, and nothing is lost.

use std::sync::Arc;

use vayu_articles::outbox::{ExceptionState, Relay, ReplayError, ResumeError};
use vayu_articles::storage::TransactError;

use crate::crowd::*;
use crate::harness::*;

const EVENTS_OF_KEY: usize = 6;

/// A lane over as many keys as it has threads, with some events of each, in turns.
struct Scene {
    site: Site,
    crowd: Arc<Crowd>,
    relay: Relay,
    ids: Vec<i64>,
    busy: bool,
}

impl Scene {
    /// `busy`: the first events of the other keys stay inside, so that all threads have a call under way and the cursor
    /// stands. `before` says how the events of the first key end.
    fn new((batch, busy): (usize, bool), parks: bool, before: impl FnOnce(&Crowd, &[i64])) -> Self {
        let keys = keys_of_each_thread();
        let site = Site::new();
        let crowd = Crowd::with(batch, parks);
        let in_turns: Vec<&str> = (0..EVENTS_OF_KEY).flat_map(|_| keys.iter().map(String::as_str)).collect();
        let ids = site.insert_all(&in_turns);
        before(&crowd, &of_first_key(&ids));
        if busy {
            ids[1..THREADS].iter().for_each(|id| crowd.shut(*id));
        }
        let relay = start(&site, &crowd);
        let scene = Self { site, crowd, relay, ids, busy };
        if busy {
            scene.crowd.wait_inside(&scene.ids[1..THREADS]);
        }
        scene
    }

    fn ids(&self) -> Vec<i64> {
        of_first_key(&self.ids)
    }

    fn wait_state(&self, state: ExceptionState, ids: &[i64]) {
        wait_until("the exceptions are there", || {
            self.relay.notify();
            self.site.ids_in_state(state) == ids
        });
    }

    /// The first event of the first key has failed and is inside once more.
    fn head_inside(&self) -> i64 {
        let head = self.ids()[0];
        self.wait_state(ExceptionState::Retry, &[head]);
        self.crowd.shut(head);
        self.site.advance(&self.relay, 5);
        self.crowd.wait_inside(&[head]);
        head
    }

    /// Lets all go on until everything is done but `given_up` events.
    fn finish(self, given_up: usize) -> Self {
        self.ids.iter().for_each(|id| self.crowd.open(*id));
        wait_until("all are done", || {
            self.site.advance(&self.relay, 11);
            first_of_each(self.crowd.done()).len() == self.ids.len() - given_up
        });
        drain(&self.relay);
        self.crowd.check();
        self.crowd.judge(&self.site);
        for open in [ExceptionState::Retry, ExceptionState::Waiting, ExceptionState::Parked] {
            assert!(self.site.ids_in_state(open).is_empty(), "{open:?} is left");
        }
        stop(&self.relay);
        self
    }

    /// Where in the order of all calls the first one is that fits.
    fn place(&self, fits: impl Fn(&Seen) -> bool) -> usize {
        self.crowd.state().calls.iter().position(fits).expect("a call")
    }
}

/// The events of the first key; the keys take turns.
fn of_first_key(ids: &[i64]) -> Vec<i64> {
    ids.iter().copied().step_by(THREADS).collect()
}

/// Alone and in batches, with the other threads' calls inside and without.
fn each_way() -> impl Iterator<Item = (usize, bool)> {
    [1, 8].into_iter().flat_map(|batch| [false, true].map(|busy| (batch, busy)))
}

const ENDS: [End; 4] = [End::Well, End::Fail, End::Poison, End::Panic];

#[test]
fn an_edit_while_several_threads_run_makes_the_event_run_again_before_the_others_of_its_key() {
    const EDITED: &str = "{\"v\":2}";
    for way in each_way() {
        for end in ENDS {
            let scene = Scene::new(way, false, |crowd, ids| crowd.ends_with(ids[0], "{}", End::Fail));
            let head = scene.head_inside();
            scene.site.operator().edit(head, "h", EDITED, false).unwrap();
            scene.crowd.ends_with(head, "{}", end);
            let scene = scene.finish(0);
            let edited = scene.place(|call| call.id == head && call.payload == EDITED);
            let next = scene.ids()[1];
            assert!(edited < scene.place(|call| call.id == next), "{way:?} {end:?}");
            let calls = scene.crowd.calls_of(head);
            let of_edited: Vec<u32> =
                calls.iter().filter(|call| call.payload == EDITED).map(|call| call.attempts).collect();
            assert_eq!(of_edited, [0], "once, with all its attempts: {way:?} {end:?} {calls:?}");
            assert_eq!(scene.site.ids_in_state(ExceptionState::Done), [head]);
        }
    }
}

#[test]
fn a_discard_while_several_threads_run_wins_whatever_the_call_comes_to() {
    for way in each_way() {
        for end in ENDS {
            // It runs for the first time.
            let scene = Scene::new(way, false, |crowd, ids| crowd.shut(ids[0]));
            let head = scene.ids()[0];
            scene.crowd.wait_inside(&[head]);
            scene.site.operator().discard(head, "h", "not wanted").unwrap();
            scene.crowd.ends(head, end);
            let scene = scene.finish(usize::from(end != End::Well));
            assert_eq!(scene.site.ids_in_state(ExceptionState::Discarded), [head], "{way:?} {end:?}");
            // It has failed and runs once more.
            let scene = Scene::new(way, true, |crowd, ids| crowd.ends(ids[0], End::Fail));
            let head = scene.head_inside();
            let calls = scene.crowd.calls_of(head).len();
            scene.site.operator().discard(head, "h", "not wanted").unwrap();
            scene.crowd.ends(head, end);
            let scene = scene.finish(usize::from(end != End::Well));
            assert_eq!(scene.site.ids_in_state(ExceptionState::Discarded), [head], "{way:?} {end:?}");
            assert_eq!(scene.crowd.calls_of(head).len(), calls, "it is not called again");
        }
    }
}

#[test]
fn a_discard_of_events_in_line_and_of_rows_that_wait_holds_up_nothing() {
    for way in each_way() {
        let scene = Scene::new(way, false, |crowd, ids| crowd.shut(ids[0]));
        let ids = scene.ids();
        scene.crowd.wait_inside(&ids[..1]);
        // Behind the call that runs, on the same thread: read already, so perhaps called, but its outcome counts no more.
        scene.crowd.ends(ids[1], End::Poison);
        scene.site.operator().discard(ids[1], "h", "not wanted").unwrap();
        scene.crowd.ends(ids[0], End::Fail);
        scene.crowd.open(ids[0]);
        scene.wait_state(ExceptionState::Retry, &ids[..1]);
        if !scene.busy {
            scene.wait_state(ExceptionState::Waiting, &ids[2..]);
            scene.site.operator().discard(ids[3], "h", "nor this").unwrap();
        }
        scene.crowd.ends(ids[0], End::Well);
        let (busy, given_up) = (scene.busy, if scene.busy { vec![ids[1]] } else { vec![ids[1], ids[3]] });
        let scene = scene.finish(given_up.len());
        assert_eq!(scene.site.ids_in_state(ExceptionState::Discarded), given_up, "{way:?}");
        assert!(busy || scene.crowd.calls_of(ids[3]).is_empty());
    }
}

#[test]
fn a_resume_while_several_threads_run_lets_the_key_go_on_in_order() {
    for way in each_way() {
        let scene = Scene::new(way, true, |crowd, ids| crowd.ends(ids[0], End::Poison));
        let head = scene.ids()[0];
        scene.wait_state(ExceptionState::Parked, &[head]);
        let key = scene.site.in_state(ExceptionState::Parked)[0].key.clone().unwrap();
        let resumed = std::thread::scope(|scope| {
            let resume = || scene.site.operator().resume("h", &key);
            let acts = [0, 1, 2].map(|_| scope.spawn(resume));
            acts.map(|act| act.join().unwrap())
        });
        let refused = |act: &Result<_, _>| matches!(act, Err(TransactError::Task(ResumeError::NotParked)));
        assert_eq!(resumed.iter().filter(|act| refused(act)).count(), 2, "twice at once is once: {resumed:?}");
        let scene = scene.finish(1);
        assert_eq!(scene.site.ids_in_state(ExceptionState::DeadLetter), [head], "{way:?}");
        assert_eq!(scene.crowd.calls_of(head).len(), if way.0 == 1 { 1 } else { 2 }, "in its batch, and alone");
    }
}

#[test]
fn a_replay_while_a_later_event_of_its_key_runs_among_several_threads_is_superseded_or_goes_first() {
    for way in each_way() {
        for second_fails in [false, true] {
            let scene = Scene::new(way, false, |crowd, ids| {
                crowd.ends(ids[0], End::Poison);
                crowd.shut(ids[1]);
            });
            let ids = scene.ids();
            scene.crowd.wait_inside(&ids[1..2]);
            scene.wait_state(ExceptionState::DeadLetter, &ids[..1]);
            let acts = std::thread::scope(|scope| {
                let replay = || scene.site.operator().replay(ids[0], "h", false);
                [0, 1].map(|_| scope.spawn(replay)).map(|act| act.join().unwrap())
            });
            assert_eq!(acts.iter().filter(|act| act.is_ok()).count(), 1, "twice at once is once: {acts:?}");
            let before = scene.crowd.calls_of(ids[0]).len();
            if second_fails {
                // What was replayed goes first now, and this time it goes well.
                scene.crowd.ends(ids[0], End::Well);
                scene.crowd.ends(ids[1], End::Fail);
                scene.crowd.open(ids[1]);
                scene.crowd.wait("the first is done", |state| state.done.contains(&ids[0]));
                assert!(!scene.crowd.done().contains(&ids[1]));
                scene.crowd.ends(ids[1], End::Well);
                scene.finish(0);
                continue;
            }
            let scene = scene.finish(1);
            assert_eq!(scene.crowd.calls_of(ids[0]).len(), before, "an old state does not come back: {way:?}");
            let refused = scene.site.operator().replay(ids[0], "h", false).unwrap_err();
            assert!(matches!(refused, TransactError::Task(ReplayError::Superseded { .. })), "{refused:?}");
        }
    }
}
