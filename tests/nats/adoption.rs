//! A stream and consumers that were there before: three fields change, the rest stays; what the broker refuses is told.

use std::time::Duration;

use serde_json::{Value, json};
use vayu_articles::outbox::{Handler as _, LaneStart};
use vayu_articles::sinks::nats::{NatsOptions, NatsSink};

use crate::fixtures::{Runs, STREAM, consumer, nats, options, publish, start, stop, wait_acknowledged};
use crate::support::{Gate, Server, logged, record_log, wait_until};

const HOUR: u64 = 3_600_000_000_000;

fn look_after(options: NatsOptions) {
    NatsSink::new(options).unwrap().begin(&LaneStart::new(0, None)).unwrap();
}

fn stream(server: &Server, name: &str) -> Value {
    server.api(&format!("STREAM.INFO.{name}"), &Value::Null)["config"].clone()
}

fn make(server: &Server, user: &str, call: &str, config: &Value) -> Value {
    let made = server.api_as(user, call, config);
    assert!(made.get("error").is_none(), "{made}");
    made["config"].clone()
}

#[test]
fn a_stream_that_is_absent_is_made_with_a_window_of_an_hour() {
    let Some(server) = Server::start() else { return };
    look_after(nats(&server, 0));
    let config = stream(&server, STREAM);
    assert_eq!(config["duplicate_window"], json!(HOUR), "{config}");
    assert_eq!((&config["subjects"], &config["storage"]), (&json!(["vayu.events.>"]), &json!("file")), "{config}");
}

#[test]
fn a_foreign_stream_is_adopted_one_field_changes_and_the_rest_stays() {
    let Some(server) = Server::start() else { return };
    let theirs = json!({
        "name": STREAM, "description": "ours since 2019", "subjects": ["vayu.>", "other"], "retention": "limits",
        "storage": "file", "max_age": 24 * HOUR, "max_msgs_per_subject": 77, "duplicate_window": HOUR / 30,
        "num_replicas": 1, "max_msg_size": 1_000_000, "deny_delete": true, "deny_purge": true,
    });
    let mut wanted = make(&server, "", &format!("STREAM.CREATE.{STREAM}"), &theirs);
    assert_eq!(wanted["description"], "ours since 2019");
    look_after(nats(&server, 0));
    wanted["duplicate_window"] = json!(HOUR);
    assert_eq!(stream(&server, STREAM), wanted);
    // What is right is left alone.
    look_after(nats(&server, 0));
    assert_eq!(stream(&server, STREAM), wanted);
}

#[test]
fn a_foreign_stream_and_consumer_are_adopted_three_fields_change_and_the_rest_stays() {
    let Some(server) = Server::start() else { return };
    let theirs = json!({
        "name": STREAM, "description": "ours", "subjects": ["vayu.>"], "retention": "limits", "storage": "file",
        "max_age": 24 * HOUR, "duplicate_window": HOUR / 30, "num_replicas": 1,
    });
    let mut wanted_stream = make(&server, "", &format!("STREAM.CREATE.{STREAM}"), &theirs);
    let theirs = json!({
        "durable_name": "worker-notes", "description": "ours too", "ack_policy": "explicit", "deliver_policy": "all",
        "ack_wait": 7_000_000_000_u64, "max_deliver": 5, "max_ack_pending": 1, "filter_subject": "vayu.events.>",
        "max_waiting": 99, "sample_freq": "13%", "replay_policy": "instant", "inactive_threshold": 9 * HOUR,
    });
    let create = format!("CONSUMER.DURABLE.CREATE.{STREAM}.worker-notes");
    let mut wanted = make(&server, "", &create, &json!({ "stream_name": STREAM, "config": theirs }));

    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::default();
    let worker = start(folder.path(), options(&server, 0), runs.handler("one"));
    publish(&server, 0, 0..5);
    wait_acknowledged(&server, "worker-notes", 5);
    stop(&worker);
    runs.assert_once_and_in_order(5);
    (wanted["max_deliver"], wanted["ack_wait"]) = (json!(-1), json!(30_000_000_000_u64));
    wanted_stream["duplicate_window"] = json!(HOUR);
    assert_eq!(consumer(&server, "worker-notes")["config"], wanted);
    assert_eq!(stream(&server, STREAM), wanted_stream);
}

/// Two users: `all` may do everything, `little` may not change a stream or a consumer.
fn with_users() -> Option<Server> {
    Server::start_with(
        "authorization { users: [\n\
         { user: all, password: all }\n\
         { user: little, password: little, permissions: { publish: { deny: [\n\
           \"$JS.API.STREAM.UPDATE.>\", \"$JS.API.CONSUMER.DURABLE.CREATE.>\", \"$JS.API.CONSUMER.CREATE.>\"\n\
         ] } } }\n\
         ] }",
    )
}

#[test]
fn a_refused_update_is_a_warning_with_the_command_and_the_start_goes_on() {
    let Some(server) = with_users() else { return };
    record_log();
    let theirs = json!({ "name": "REFUSED", "subjects": ["refused.>"], "duplicate_window": HOUR / 60 });
    let stream = make(&server, "all", "STREAM.CREATE.REFUSED", &theirs);
    let theirs = json!({
        "durable_name": "worker-notes", "ack_policy": "explicit", "ack_wait": 9_000_000_000_u64, "max_deliver": 4,
        "max_ack_pending": 1, "filter_subject": "refused.>",
    });
    let call = "CONSUMER.DURABLE.CREATE.REFUSED.worker-notes";
    let consumer = make(&server, "all", call, &json!({ "stream_name": "REFUSED", "config": theirs }));

    let mut options = options(&server, 0);
    options.nats.servers = vec![server.url_as("little:little")];
    options.nats.ack_timeout = Duration::from_secs(1);
    (options.nats.stream, options.nats.prefix) = ("REFUSED".into(), "refused".into());
    options.ack_wait = Duration::from_millis(30_500);
    let folder = tempfile::tempdir().unwrap();
    let runs = Runs::default();
    let sink = NatsSink::new(options.nats.clone()).unwrap();
    let worker = start(folder.path(), options, runs.handler("one"));
    sink.handle_batch(&[0, 1, 2].map(crate::fixtures::event)).unwrap();
    wait_until("all have run", || runs.len() == 3);
    stop(&worker);

    for command in [
        "by_hand=\"nats stream edit REFUSED --dupe-window=3600s\"",
        "by_hand=\"nats consumer edit REFUSED worker-notes --max-deliver=-1 --wait=30500ms\"",
    ] {
        let lines = logged(command);
        assert!(
            !lines.is_empty() && lines.iter().all(|line| line.starts_with("WARN nats update=refused")),
            "{lines:?}"
        );
        assert!(lines[0].to_lowercase().contains("permissions violation"), "and why: {lines:?}");
    }
    let config = |call: &str| server.api_as("all", call, &Value::Null)["config"].clone();
    assert_eq!(config("STREAM.INFO.REFUSED"), stream);
    assert_eq!(config("CONSUMER.INFO.REFUSED.worker-notes"), consumer);
}

/// Two workers on a consumer that brings a message again after a second without a sign of life, and a call that lasts for longer.
fn a_long_call_stays_with_its_worker(server: &Server) {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (runs, gate) = (Runs::default(), Gate::default());
    let hold = gate.clone();
    let handler = move |number| {
        if number == 0 {
            hold.pass();
        }
    };
    let options = options(server, 0);
    let first = start(folders[0].path(), options.clone(), runs.handler_with("one", handler.clone()));
    let second = start(folders[1].path(), options, runs.handler_with("other", handler));
    publish(server, 0, 0..5);
    gate.wait_for(1);
    server.wait_for_redeliveries("probe", 3);
    gate.open();
    wait_acknowledged(server, "worker-notes", 5);
    [&first, &second].into_iter().for_each(stop);
    runs.assert_once_and_in_order(5);
    assert_eq!(consumer(server, "worker-notes")["num_redelivered"], 0);
}

fn make_consumer(server: &Server, config: &Value) -> Value {
    look_after(nats(server, 0));
    let call = format!("CONSUMER.DURABLE.CREATE.{STREAM}.worker-notes");
    let answer = server.api(&call, &json!({ "stream_name": STREAM, "config": config }));
    assert!(answer.get("error").is_none(), "{answer}");
    answer["config"].clone()
}

#[test]
fn a_consumer_with_a_backoff_of_its_own_is_given_signs_of_life_by_that_and_the_command_that_mends_it_is_told() {
    let Some(server) = Server::start() else { return };
    record_log();
    let second = HOUR / 3_600;
    let mut theirs = json!({
        "durable_name": "worker-notes", "description": "with patience", "ack_policy": "explicit", "deliver_policy": "all",
        "max_deliver": 5, "backoff": [second, 2 * second], "max_ack_pending": 1, "filter_subject": "vayu.events.>",
        "replay_policy": "instant",
    });
    let made = make_consumer(&server, &theirs);
    a_long_call_stays_with_its_worker(&server);
    let kept = consumer(&server, "worker-notes")["config"].clone();
    assert_eq!((&kept["backoff"], &kept["description"]), (&made["backoff"], &made["description"]), "theirs");
    let command =
        format!("by_hand=\"nats consumer edit {STREAM} worker-notes --backoff=none --wait=30s --max-deliver=-1\"");
    let lines = logged(&command);
    assert!(!lines.is_empty() && lines.iter().all(|line| line.starts_with("WARN")), "{lines:?}");
    // As the command does it, and the broker takes it.
    theirs.as_object_mut().unwrap().remove("backoff");
    (theirs["max_deliver"], theirs["ack_wait"]) = (json!(-1), json!(30 * second));
    let mended = make_consumer(&server, &theirs);
    assert_eq!((&mended["max_deliver"], &mended["ack_wait"]), (&json!(-1), &json!(30 * second)));
}

#[test]
fn an_update_that_the_broker_finds_impossible_is_a_warning_too() {
    let Some(server) = Server::start() else { return };
    record_log();
    // No window may be longer than the stream's memory.
    let theirs =
        json!({ "name": "BRIEF", "subjects": ["brief.>"], "duplicate_window": HOUR / 60, "max_age": HOUR / 2 });
    let made = make(&server, "", "STREAM.CREATE.BRIEF", &theirs);
    let mut options = nats(&server, 0);
    (options.stream, options.prefix) = ("BRIEF".into(), "brief".into());
    let sink = NatsSink::new(options).unwrap();
    sink.handle(&crate::fixtures::event(0)).unwrap();
    assert_eq!((stream(&server, "BRIEF"), server.messages_in("BRIEF")), (made, 1));
    let lines = logged("by_hand=\"nats stream edit BRIEF --dupe-window=3600s\"");
    assert!(lines.len() == 1 && lines[0].starts_with("WARN"), "{lines:?}");
}

#[test]
fn what_may_not_be_changed_and_does_not_fit_is_said() {
    let Some(server) = Server::start() else { return };
    record_log();
    let theirs = json!({ "name": "MISFIT", "subjects": ["misfit.>"], "max_age": 0 });
    make(&server, "", "STREAM.CREATE.MISFIT", &theirs);
    server.publish_raw("misfit.0.t", &[], b"{}");
    server.publish_raw("misfit.7.t", &[], b"{}");
    let theirs = json!({
        "durable_name": "worker-notes-0of2", "ack_policy": "explicit", "max_ack_pending": 50, "filter_subject": "misfit.>",
    });
    let call = "CONSUMER.DURABLE.CREATE.MISFIT.worker-notes-0of2";
    make(&server, "", call, &json!({ "stream_name": "MISFIT", "config": theirs }));
    let mut options = options(&server, 2);
    (options.nats.stream, options.nats.prefix) = ("MISFIT".into(), "misfit".into());
    let folder = tempfile::tempdir().unwrap();
    let worker = start(folder.path(), options, Runs::default().handler("one"));
    for said in [
        "stream=MISFIT subjects_of_other_partitions=1 partitions=2",
        "stream=MISFIT max_age_s=0 remembered_s=2592000: its messages outlive the ledger",
        "consumer=worker-notes-0of2 max_ack_pending=50: order is kept only with 1",
        "by_hand=\"nats consumer edit MISFIT worker-notes-0of2 --max-pending=1\"",
        "consumer=worker-notes-0of2 filter_subject=\"misfit.>\" wanted=\"misfit.0.>\"",
    ] {
        wait_until(said, || logged(said).iter().any(|line| line.starts_with("WARN")));
    }
    stop(&worker);
    // And a stream that does not take the subjects.
    let mut options = nats(&server, 0);
    (options.stream, options.prefix) = ("MISFIT".into(), "elsewhere".into());
    look_after(options);
    assert_eq!(logged("stream=MISFIT does not take elsewhere.>").len(), 1);
}
