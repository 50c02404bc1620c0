//! Stream and consumer as this build needs them: made if absent, mended if they are there, in the few fields that matter.
//!
//! Configurations are read and written as JSON documents and not as structs, so that what a newer server or an operator
//! has put there goes back as it was.

use std::time::Duration;

use serde_json::{Value, json};

use super::broker::{Broker, NO_CONSUMER, NO_STREAM, Refusal};
use super::options::NatsOptions;
use super::subject::filter;

/// A consumer that a worker wants.
#[derive(Debug, Clone)]
pub(crate) struct ConsumerWish {
    pub(crate) name: String,
    pub(crate) filter: String,
    pub(crate) ack_wait: Duration,
    /// Most messages under way, over all workers; only for one that is made.
    pub(crate) max_ack_pending: u32,
}

/// A field that has to have a certain value, and the option of the `nats` command that sets it.
struct Need {
    field: &'static str,
    value: Value,
    option: String,
}

/// Makes the stream if it is absent; compares its `duplicate_window` if not.
///
/// # Errors
/// It is not there and cannot be made, or the broker does not answer. A refused update is no error but a warning.
pub(crate) async fn stream(broker: &Broker, options: &NatsOptions) -> Result<(), Refusal> {
    let name = &options.stream;
    let (info, create) = (format!("STREAM.INFO.{name}"), format!("STREAM.CREATE.{name}"));
    let Some(config) = found_or_made(broker, &info, NO_STREAM, &create, &new_stream(options)).await? else {
        log::info!("nats stream={name} made subjects={}", filter(&options.prefix, None));
        return Ok(());
    };
    warn_of_other_subjects(&config, options);
    let window = Need {
        field: "duplicate_window",
        value: nanos(options.duplicate_window),
        option: format!("--dupe-window={}", written(options.duplicate_window)),
    };
    let by_hand = format!("nats stream edit {name}");
    mend(broker, config, &[window], &format!("STREAM.UPDATE.{name}"), &by_hand, |config| config).await.map(drop)
}

/// Makes the durable consumer if it is absent; compares its `max_deliver` and `ack_wait` if not. Returns after how long
/// without a sign of life it brings a message again: as wished, or sooner if the broker does not take that.
///
/// # Errors
/// As [`stream`].
pub(crate) async fn consumer(broker: &Broker, stream: &str, wish: &ConsumerWish) -> Result<Duration, Refusal> {
    let name = &wish.name;
    let call = format!("CONSUMER.DURABLE.CREATE.{stream}.{name}");
    let wrap = |config: Value| json!({ "stream_name": stream, "config": config });
    let info = format!("CONSUMER.INFO.{stream}.{name}");
    let Some(config) = found_or_made(broker, &info, NO_CONSUMER, &call, &wrap(new_consumer(wish))).await? else {
        log::info!("nats consumer={name} stream={stream} made filter={}", wish.filter);
        return Ok(wish.ack_wait);
    };
    warn_of_other_order(&config, stream, wish);
    let mut by_hand = format!("nats consumer edit {stream} {name}");
    let mut needs = vec![Need { field: "max_deliver", value: json!(-1), option: "--max-deliver=-1".to_owned() }];
    let wait = format!("--wait={}", written(wish.ack_wait));
    if has_backoff(&config) {
        // An operator's own, which stays. Under it the broker takes no other `ack_wait`, and some take no unlimited
        // `max_deliver`, so by hand it has to go first.
        by_hand = format!("{by_hand} --backoff=none {wait}");
        warn_of_backoff(&config, name, &by_hand);
    } else {
        needs.push(Need { field: "ack_wait", value: nanos(wish.ack_wait), option: wait });
    }
    let config = mend(broker, config, &needs, &call, &by_hand, wrap).await?;
    Ok(wait_in_force(&config, wish.ack_wait))
}

fn has_backoff(config: &Value) -> bool {
    config.get("backoff").and_then(Value::as_array).is_some_and(|waits| !waits.is_empty())
}

/// The shortest of all waits that the broker may go by, and of ours.
fn wait_in_force(config: &Value, ours: Duration) -> Duration {
    let backoff = config.get("backoff").and_then(Value::as_array);
    let waits = backoff.into_iter().flatten().chain(config.get("ack_wait")).filter_map(Value::as_u64);
    waits.filter(|wait| *wait > 0).map(Duration::from_nanos).fold(ours, Duration::min)
}

/// Warns of what a worker cannot do anything about: messages that no consumer of this number of partitions is sent, since
/// the sink has, or had, another number; and a stream that may bring a message again after the ledger has forgotten it.
///
/// # Errors
/// The broker does not answer.
pub(crate) async fn compare(broker: &Broker, options: &NatsOptions, remembered: Duration) -> Result<(), Refusal> {
    let ask = json!({ "subjects_filter": filter(&options.prefix, None) });
    let info = broker.api(&format!("STREAM.INFO.{}", options.stream), &ask).await?;
    let subjects = info.pointer("/state/subjects").and_then(Value::as_object);
    let strays = subjects.into_iter().flatten().filter(|(subject, _)| !is_consumed(subject, options)).count();
    let (stream, partitions) = (&options.stream, options.partitions);
    if strays > 0 {
        log::warn!(
            "nats stream={stream} subjects_of_other_partitions={strays} partitions={partitions}: `serve` and its workers \
             need the same number"
        );
    }
    let max_age = info.pointer("/config/max_age").and_then(Value::as_u64).unwrap_or(0);
    let for_ever = max_age == 0 && !options.max_age.is_zero();
    if for_ever || Duration::from_nanos(max_age) > remembered {
        log::warn!(
            "nats stream={stream} max_age_s={} remembered_s={}: its messages outlive the ledger, so give the worker the \
             stream's --nats-max-age",
            max_age / 1_000_000_000,
            remembered.as_secs()
        );
    }
    Ok(())
}

/// Whether some consumer of ours is sent messages of this subject. Without partitions one is sent all.
fn is_consumed(subject: &str, options: &NatsOptions) -> bool {
    let rest = subject.strip_prefix(&options.prefix).and_then(|rest| rest.strip_prefix('.'));
    let partition = rest.and_then(|rest| rest.split('.').next()).and_then(|token| token.parse::<u32>().ok());
    options.partitions == 0 || partition.is_some_and(|partition| partition < options.partitions)
}

/// The configuration of what is there, or `None` once it was made.
///
/// A relay and its workers, started together on a new broker, all find nothing and all make it. The broker serves one and
/// refuses the others, each time for another reason ("subjects overlap", "name already in use"); so a refusal counts only
/// if there is still nothing afterwards.
async fn found_or_made(
    broker: &Broker,
    info: &str,
    absent: u64,
    create: &str,
    wanted: &Value,
) -> Result<Option<Value>, Refusal> {
    let config = |info: Value| Some(info.get("config").cloned().unwrap_or_default());
    match broker.api(info, &Value::Null).await {
        Err(refusal) if refusal.is(absent) => {}
        found => return found.map(config),
    }
    let refused = match broker.api(create, wanted).await {
        Ok(_) => return Ok(None),
        Err(refusal @ Refusal::Said { .. }) => refusal,
        Err(refusal) => return Err(refusal),
    };
    match broker.api(info, &Value::Null).await {
        Err(refusal) if refusal.is(absent) => Err(refused),
        found => found.map(config),
    }
}

fn new_stream(options: &NatsOptions) -> Value {
    json!({
        "name": options.stream,
        "description": "made by vayu-articles",
        "subjects": [filter(&options.prefix, None)],
        "retention": "limits",
        "storage": "file",
        "discard": "old",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_bytes": -1,
        "max_age": nanos(options.max_age),
        "duplicate_window": nanos(options.duplicate_window),
        "num_replicas": options.replicas.max(1),
    })
}

fn new_consumer(wish: &ConsumerWish) -> Value {
    json!({
        "durable_name": wish.name,
        "description": "made by vayu-articles worker",
        "deliver_policy": "all",
        "ack_policy": "explicit",
        "ack_wait": nanos(wish.ack_wait),
        "max_deliver": -1,
        "max_ack_pending": wish.max_ack_pending,
        "filter_subject": wish.filter,
        "replay_policy": "instant",
    })
}

/// Sends the configuration back with the fields that differ, and returns the one that is in force then. A refusal is
/// told, and nothing else happens.
async fn mend(
    broker: &Broker,
    config: Value,
    needs: &[Need],
    call: &str,
    by_hand: &str,
    wrap: impl FnOnce(Value) -> Value,
) -> Result<Value, Refusal> {
    let wrong: Vec<&Need> = needs.iter().filter(|need| !is(&config, need)).collect();
    let mut wanted = config.clone();
    let Some(fields) = wanted.as_object_mut().filter(|_| !wrong.is_empty()) else { return Ok(config) };
    let mut options = String::new();
    for need in wrong {
        let before = fields.insert(need.field.to_owned(), need.value.clone()).unwrap_or_default();
        log::warn!("nats {by_hand:?} field={} before={before} after={}", need.field, need.value);
        options = format!("{options} {}", need.option);
    }
    match broker.api(call, &wrap(wanted)).await {
        Ok(mut answer) => Ok(answer.get_mut("config").map(Value::take).unwrap_or_default()),
        Err(Refusal::Down(text)) => Err(Refusal::Down(text)),
        Err(refusal) => {
            log::warn!("nats update=refused reason={:?} by_hand=\"{by_hand}{options}\"", refusal.to_string());
            Ok(config)
        }
    }
}

/// Absent numbers are zero on the wire.
fn is(config: &Value, need: &Need) -> bool {
    let found = config.get(need.field).cloned().unwrap_or(json!(0));
    found == need.value
}

fn warn_of_other_subjects(config: &Value, options: &NatsOptions) {
    let wanted = filter(&options.prefix, None);
    let subjects = config.get("subjects").and_then(Value::as_array);
    let covers = |subject: &Value| subject.as_str().is_some_and(|subject| covers(subject, &wanted));
    if !subjects.is_some_and(|subjects| subjects.iter().any(covers)) {
        log::warn!("nats stream={} does not take {wanted}: add that subject, or publishing will wait", options.stream);
    }
}

/// Whether everything of `wanted`, which ends in `>`, is of `subject`, too.
fn covers(subject: &str, wanted: &str) -> bool {
    let mut wanted = wanted.split('.');
    for token in subject.split('.') {
        match (token, wanted.next()) {
            (">", Some(_)) => return true,
            (_, None | Some(">")) => return false,
            ("*", _) => {}
            (token, Some(want)) if token == want => {}
            _ => return false,
        }
    }
    wanted.next().is_none()
}

fn warn_of_other_order(config: &Value, stream: &str, wish: &ConsumerWish) {
    let name = &wish.name;
    let pending = config.get("max_ack_pending").and_then(Value::as_i64).unwrap_or(0);
    if wish.max_ack_pending == 1 && pending != 1 {
        log::warn!(
            "nats consumer={name} max_ack_pending={pending}: order is kept only with 1 by_hand=\"nats consumer edit \
             {stream} {name} --max-pending=1\""
        );
    }
    let filter = config.get("filter_subject").and_then(Value::as_str).unwrap_or_default();
    if filter != wish.filter {
        log::warn!(
            "nats consumer={name} filter_subject={filter:?} wanted={:?}: give it another --worker-name",
            wish.filter
        );
    }
}

fn warn_of_backoff(config: &Value, name: &str, by_hand: &str) {
    let backoff = config.get("backoff").unwrap_or(&Value::Null);
    log::warn!(
        "nats consumer={name} backoff={backoff}: it overrides ack_wait, so the worker gives signs of life by the shortest \
         of these by_hand=\"{by_hand} --max-deliver=-1\""
    );
}

/// As the `nats` command reads it.
fn written(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}

fn nanos(duration: Duration) -> Value {
    json!(u64::try_from(duration.as_nanos()).unwrap_or(i64::MAX as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_the_stream_covers_ours_or_does_not() {
        for subject in [">", "vayu.>", "vayu.events.>", "*.>", "vayu.*.>", "*.*.>"] {
            assert!(covers(subject, "vayu.events.>"), "{subject}");
        }
        for subject in ["", "vayu", "vayu.events", "vayu.events.*", "vayu.events.a.>", "vayu.*.*", "other.>", "*.a.>"] {
            assert!(!covers(subject, "vayu.events.>"), "{subject}");
        }
    }

    #[test]
    fn a_duration_is_written_whole() {
        assert_eq!([30_000, 1_500].map(|ms| written(Duration::from_millis(ms))), ["30s", "1500ms"]);
    }

    #[test]
    fn the_shortest_wait_counts_whoever_has_set_it() {
        let ours = Duration::from_secs(30);
        for (config, wanted) in [
            (json!({}), 30_000),
            (json!({ "ack_wait": 0, "backoff": null }), 30_000),
            (json!({ "ack_wait": 90_000_000_000_u64, "backoff": [] }), 30_000),
            (json!({ "ack_wait": 9_000_000_000_u64 }), 9_000),
            (json!({ "ack_wait": 5_000_000_000_u64, "backoff": [5_000_000_000_u64, 400_000_000_u64] }), 400),
        ] {
            assert_eq!(wait_in_force(&config, ours), Duration::from_millis(wanted), "{config}");
        }
    }

    #[test]
    fn a_message_of_another_number_of_partitions_is_seen_to_reach_nobody() {
        let mut options = NatsOptions::new(["nats://x"]);
        assert!(is_consumed("vayu.events.article.created.v1", &options) && is_consumed("vayu.events.7.a", &options));
        options.partitions = 4;
        assert!(is_consumed("vayu.events.3.article.created.v1", &options));
        for stray in ["vayu.events.4.article.created.v1", "vayu.events.article.created.v1", "other.3.a"] {
            assert!(!is_consumed(stray, &options), "{stray}");
        }
    }
}
