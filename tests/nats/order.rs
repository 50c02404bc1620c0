//! Order per article and who shares the load: with partitions, without, and with several events of one at once.

use std::path::Path;

use serde_json::json;

use crate::fixtures::{Runs, consumer, options, publish, start, stop, wait_acknowledged};
use crate::support::{Gate, Server, wait_until};

/// Until each of these consumers has so many pull requests: the broker serves the one that waits longest, so from here
/// on the workers take turns.
fn wait_asked(server: &Server, consumers: &[String], requests: u64) {
    for name in consumers {
        wait_until("they ask for messages", || consumer(server, name)["num_waiting"] == json!(requests));
    }
}

fn partitions(count: u32) -> Vec<String> {
    (0..count).map(|partition| format!("worker-notes-{partition}of{count}")).collect()
}

#[test]
fn two_workers_share_the_load_and_a_clean_stop_of_one_loses_and_doubles_nothing() {
    const COUNT: usize = 400;
    let Some(server) = Server::start() else { return };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (runs, gate) = (Runs::default(), Gate::default());
    let go = |who: &str, folder: &Path| {
        let gate = gate.clone();
        let half = move |number| {
            if number >= COUNT / 2 {
                gate.pass();
            }
        };
        start(folder, options(&server, 4), runs.handler_with(who, half))
    };
    let first = go("first", folders[0].path());
    let second = go("second", folders[1].path());
    wait_asked(&server, &partitions(4), 2);
    publish(&server, 4, 0..COUNT);
    // Each partition has one event in somebody's hands, half of all is done, and now one worker has to stop.
    gate.wait_for(4);
    assert!(runs.by("first") > 0 && runs.by("second") > 0, "both work");
    assert_eq!(runs.most_at_once(), 4, "all partitions at once, and one event of each");
    std::thread::scope(|scope| {
        let stopping = scope.spawn(|| stop(&first));
        gate.open();
        stopping.join().unwrap();
    });
    let by_first = runs.by("first");
    wait_until("all have run", || runs.len() == COUNT);
    stop(&second);
    assert_eq!(runs.by("first"), by_first, "stopped is stopped");
    runs.assert_once_and_in_order(COUNT);
    for name in partitions(4) {
        let info = consumer(&server, &name);
        assert_eq!((&info["num_ack_pending"], &info["num_pending"]), (&json!(0), &json!(0)), "{info}");
    }
}

#[test]
fn without_partitions_two_workers_keep_the_order_one_event_at_a_time() {
    const COUNT: usize = 60;
    let Some(server) = Server::start() else { return };
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let runs = Runs::default();
    let first = start(folders[0].path(), options(&server, 0), runs.handler("first"));
    let second = start(folders[1].path(), options(&server, 0), runs.handler("second"));
    wait_asked(&server, &["worker-notes".to_owned()], 2);
    publish(&server, 0, 0..COUNT);
    wait_acknowledged(&server, "worker-notes", COUNT as u64);
    [&first, &second].into_iter().for_each(stop);
    assert!(runs.by("first") > 0 && runs.by("second") > 0);
    assert_eq!(runs.most_at_once(), 1);
    assert_eq!(runs.numbers(), (0..COUNT).collect::<Vec<_>>());
}

#[test]
fn several_in_flight_run_at_once_without_order_and_each_still_once() {
    const COUNT: usize = 60;
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (runs, gate) = (Runs::default(), Gate::default());
    let mut options = options(&server, 0);
    options.in_flight = 4;
    let hold = gate.clone();
    let worker = start(folder.path(), options, runs.handler_with("one", move |_| hold.pass()));
    publish(&server, 0, 0..COUNT);
    gate.wait_for(4);
    gate.open();
    wait_acknowledged(&server, "worker-notes", COUNT as u64);
    stop(&worker);
    runs.assert_once(COUNT);
}
