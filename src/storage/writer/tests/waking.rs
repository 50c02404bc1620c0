//! Nobody whose answer is there sleeps on because of what a neighbour or another process does.

use std::panic::panic_any;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use rusqlite::Connection;

use super::{Bench, LIMIT, insert};
use crate::storage::{Options, TransactError};

const CALLERS: usize = 6;

/// Panics when it is dropped, and so does what it panics with.
struct Bomb;
struct Shrapnel;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic_any(Shrapnel);
    }
}

impl Drop for Shrapnel {
    fn drop(&mut self) {
        panic!("a payload that panics");
    }
}

/// Takes its time to be dropped.
struct Slow(Receiver<()>);

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.recv_timeout(2 * LIMIT);
    }
}

/// Callers that wait for their answers while the writer is held, and where each says how it was answered.
fn waiting_callers(bench: &Bench) -> (Vec<JoinHandle<()>>, Receiver<Result<(), String>>) {
    let (sender, answers) = unbounded();
    let call = |number: usize| {
        let (writer, sender): (_, Sender<Result<(), String>>) = (bench.writer().clone(), sender.clone());
        thread::spawn(move || {
            let answer = writer.transact(move |tx| insert(tx, &format!("caller {number}")).map(drop));
            let _ = sender.send(answer.map_err(|error| error.to_string()));
        })
    };
    let callers: Vec<_> = (0..CALLERS).map(call).collect();
    let until = Instant::now() + LIMIT;
    while bench.writer().stats().waiting_jobs < CALLERS {
        assert!(Instant::now() < until, "the callers did not come");
        thread::yield_now();
    }
    // That they are asleep cannot be seen; one that is not yet passes in any case.
    thread::sleep(Duration::from_millis(20));
    (callers, answers)
}

fn all_answered(answers: &Receiver<Result<(), String>>) {
    for _ in 0..CALLERS {
        assert_eq!(answers.recv_timeout(LIMIT), Ok(Ok(())), "a caller sleeps though its group was committed");
    }
}

#[test]
fn a_closure_that_takes_its_time_to_be_dropped_keeps_no_neighbour_asleep() {
    let bench = Bench::new();
    let (gate, _held) = bench.hold();
    let (callers, answers) = waiting_callers(&bench);
    let (go_on, slow) = bounded(1);
    let slow = Slow(slow);
    let pending = bench.submit(None, move |tx| {
        let _held = &slow;
        insert(tx, "slow")
    });
    drop(gate);
    all_answered(&answers);
    assert!(pending.wait().is_ok(), "its own caller need not wait for it either");
    drop(go_on);
    callers.into_iter().for_each(|caller| caller.join().expect("an end"));
    bench.close();
}

#[test]
fn a_drop_that_panics_twice_takes_neither_the_writer_nor_a_neighbour_down() {
    let bench = Bench::new();
    let (gate, _held) = bench.hold();
    let (callers, answers) = waiting_callers(&bench);
    let bomb = Bomb;
    let pending = bench.submit(None, move |tx| {
        let _held = &bomb;
        insert(tx, "bomb")
    });
    drop(gate);
    all_answered(&answers);
    assert!(pending.wait().is_ok());
    callers.into_iter().for_each(|caller| caller.join().expect("an end"));
    assert!(bench.writer().transact(|tx| insert(tx, "after")).is_ok(), "the writer is there");
    bench.close();
}

#[test]
fn a_result_that_nobody_waits_for_may_panic_when_it_is_dropped() {
    let bench = Bench::new();
    let (gate, _held) = bench.hold();
    let (callers, answers) = waiting_callers(&bench);
    drop(bench.submit(None, |tx| insert(tx, "bomb").map(|_| Bomb)));
    drop(gate);
    all_answered(&answers);
    callers.into_iter().for_each(|caller| caller.join().expect("an end"));
    assert!(bench.writer().transact(|tx| insert(tx, "after")).is_ok(), "the writer is there");
    bench.close();
}

#[test]
fn callers_wake_while_the_writer_waits_for_the_lock() {
    let bench = Bench::with(Options { busy_deadline: 4 * LIMIT, ..Options::default() });
    let path = bench._directory.path().join("test.db");
    let other = Connection::open(path).expect("a connection");
    assert!(bench.writer().transact(|tx| insert(tx, "first")).is_ok());
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock");

    // Two have their answers already and are elsewhere: nobody goes on from them.
    let (woken, awake) = bounded(1);
    let third = thread::spawn(move || {
        thread::park();
        let _ = woken.send(());
    });
    let elsewhere = || thread::current();
    let mut callers = vec![elsewhere(), elsewhere(), third.thread().clone()];
    let pending = bench.submit(None, |tx| insert(tx, "second"));
    let until = Instant::now() + LIMIT;
    while !bench.writer().shared.sender.is_empty() {
        assert!(Instant::now() < until, "the writer does not begin");
        thread::yield_now();
    }
    bench.writer().shared.callers.sleepers.add(&mut callers);
    assert_eq!(awake.recv_timeout(LIMIT), Ok(()), "it sleeps until another process gives the lock back");
    other.execute_batch("COMMIT").expect("the lock");
    let answer: Result<i64, TransactError<rusqlite::Error>> = pending.wait();
    assert!(answer.is_ok());
    third.join().expect("an end");
    bench.close();
}
