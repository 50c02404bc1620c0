//! The arguments of `outbox` and `handler`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};

use super::settings::ListState;

/// Which outbox, and what to do with it.
#[derive(Debug, Args)]
pub struct OutboxArgs {
    /// Database of a program that has the outbox in it, instead of the one in the data folder; it must exist
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "data")]
    pub database: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: OutboxCommand,
}

/// How to show it.
#[derive(Debug, Clone, Copy, Args)]
pub struct ShapeArgs {
    /// Print one JSON document
    #[arg(long)]
    pub json: bool,
}

/// What to do with the outbox.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum OutboxCommand {
    /// How far each handler is, and what waits or failed
    Stats(ShapeArgs),
    /// The events that failed or wait behind a failed one
    List(ListArgs),
    /// One event, and how it fared with each handler
    Show(ShowArgs),
    /// All events of one correlation id, oldest first
    Trace(TraceArgs),
    /// Deliver dead letters or parked events once more, with fresh attempts: one, those that fit, or all
    ///
    /// The relay of a running `serve` takes it up by itself; without one, the next `serve` or `import` does.
    Replay(ReplayArgs),
    /// Deliver a failed event to one handler with another payload; the log keeps the first
    Edit(EditArgs),
    /// Give up for good an event that failed or waits, a dead letter, or one that a handler has still before it
    ///
    /// The next event of its key goes on. An event that runs at this moment is given up too: its outcome no longer counts.
    Discard(DiscardArgs),
    /// Let a key go on without the parked event that holds it; that becomes a dead letter
    Resume(ResumeArgs),
    /// Find what breaks an invariant, and say how to mend it; exit code 1 if there is something
    Check(CheckArgs),
}

/// Which exceptions.
#[derive(Debug, Clone, Args)]
pub struct FilterArgs {
    /// Of this event type; `order.*` means all that begin with `order.`
    #[arg(long = "type", value_name = "TYPE")]
    pub event_type: Option<String>,
    /// Of this key
    #[arg(long)]
    pub key: Option<String>,
    /// Whose reason contains this text, in upper or lower case
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// That failed first longer ago than this: 90s, 15m, 12h or 7d
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub older_than: Option<Duration>,
    /// That failed first within this time: 90s, 15m, 12h or 7d
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub newer_than: Option<Duration>,
    /// In this state [default for `list`: dead_letter, parked, retry and waiting; for `replay`: dead_letter]
    #[arg(long, value_name = "STATE", value_enum)]
    pub state: Option<ListState>,
}

/// Which exceptions to list.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Of this handler only
    #[arg(long, value_name = "NAME")]
    pub handler: Option<String>,
    /// Which of them
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Most lines
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub limit: u32,
    /// The next page: where the one before says that it ends (with --handler an id will do)
    #[arg(long, value_name = "PLACE")]
    pub after: Option<String>,
    /// How to show them
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// Which event to show.
#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The event's number in the log, or its event id
    pub event: String,
    /// How to show it
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// Which trail to show.
#[derive(Debug, Args)]
pub struct TraceArgs {
    /// The correlation id
    pub correlation_id: String,
    /// Most events
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    pub limit: u32,
    /// How to show them
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// What to replay.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("fitting").args(["event_type", "key", "reason", "older_than", "newer_than", "state"]).multiple(true))]
pub struct ReplayArgs {
    /// The handler's name
    pub handler: String,
    /// The event's number in the log, or its event id
    #[arg(required_unless_present_any = ["all", "fitting"], conflicts_with = "fitting")]
    pub event: Option<String>,
    /// Also one that was delivered, as long as the log holds it; or when a later event of the same key was delivered since, or
    /// after three replays. Receivers that know the event by its id get it under another one
    #[arg(long)]
    pub force: bool,
    /// All dead letters of the handler, in order, but those that would need --force
    #[arg(long, conflicts_with_all = ["event", "force", "fitting"])]
    pub all: bool,
    /// Those that fit, in order
    #[command(flatten)]
    pub filter: FilterArgs,
    /// How to tell what was done
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// What to deliver instead.
#[derive(Debug, Args)]
pub struct EditArgs {
    /// The handler's name
    pub handler: String,
    /// The event's number in the log, or its event id
    pub event: String,
    /// The new payload: JSON, at most 1 MiB; `-` reads it from stdin
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub payload: String,
    /// Also when a later event of the same key was delivered since
    #[arg(long)]
    pub force: bool,
    /// How to tell what was done
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// What to discard.
#[derive(Debug, Args)]
pub struct DiscardArgs {
    /// The handler's name
    pub handler: String,
    /// The event's number in the log, or its event id
    pub event: String,
    /// Why; it is kept with the event
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// How to tell what was done
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// What to resume.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The handler's name
    pub handler: String,
    /// The key that is held
    pub key: String,
    /// How to tell what was done
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// How to check.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Mend what can be mended without losing anything, then check again
    #[arg(long)]
    pub fix: bool,
    /// How to show it
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// Which outbox's handlers, and what to do with them.
#[derive(Debug, Args)]
pub struct HandlersArgs {
    /// Database of a program that has the outbox in it, instead of the one in the data folder; it must exist
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "data")]
    pub database: Option<PathBuf>,
    /// What to do
    #[command(subcommand)]
    pub command: HandlerCommand,
}

/// What to do with the handlers.
#[derive(Debug, Subcommand)]
#[non_exhaustive]
pub enum HandlerCommand {
    /// Every handler the database knows: its filter, how far it is, who runs it
    List(ShapeArgs),
    /// Let a handler finish its running call and deliver nothing more, until it is released
    ///
    /// Its events are kept meanwhile. A hold outlasts restarts.
    Hold(HandlerArgs),
    /// End a hold
    Release(HandlerArgs),
    /// Deliver again what a handler has behind it; also to fill up one that began at the end
    ///
    /// Holds the handler, waits until its running call is over, moves it back, and releases it unless it was held before.
    #[command(visible_alias = "backfill")]
    Rewind(RewindArgs),
    /// Give a handler and its exceptions another name; refused while a program that runs has it
    Rename(RenameArgs),
    /// Forget a handler for good and discard what it left; refused while a program that runs has it
    ///
    /// It says how many failed events were discarded, and how many events of the log the handler never got.
    Retire(RetireArgs),
}

/// Which handler.
#[derive(Debug, Args)]
pub struct HandlerArgs {
    /// The handler's name
    pub name: String,
    /// How to tell what was done
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// How far back.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("place").args(["to", "since", "to_start"]).required(true))]
pub struct RewindArgs {
    /// The handler's name
    pub name: String,
    /// The first event to deliver again: its number in the log, or its event id
    #[arg(long, value_name = "EVENT")]
    pub to: Option<String>,
    /// Begin with the first event of this time or later, such as 2026-03-01T09:30:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<i64>,
    /// All that the log still holds
    #[arg(long)]
    pub to_start: bool,
    /// Seconds to wait for a running call
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600), value_name = "SECONDS")]
    pub wait: u64,
    /// How to tell what was done
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// Which name.
#[derive(Debug, Args)]
pub struct RenameArgs {
    /// The handler's name
    pub name: String,
    /// Its new name
    pub new_name: String,
    /// Seconds to wait for a running call
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600), value_name = "SECONDS")]
    pub wait: u64,
    /// How to tell what was done
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// Which handler to forget.
#[derive(Debug, Args)]
pub struct RetireArgs {
    /// The handler's name
    pub name: String,
    /// Why; it is kept with what is discarded
    #[arg(long, value_name = "TEXT", default_value = "the handler is retired")]
    pub reason: String,
    /// Seconds to wait for a running call
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600), value_name = "SECONDS")]
    pub wait: u64,
    /// How to tell what was done
    #[command(flatten)]
    pub shape: ShapeArgs,
}

/// `90s`, `15m`, `12h` or `7d`.
fn age(text: &str) -> Result<Duration, String> {
    let explain = || "write a number and s, m, h or d, such as 15m".to_owned();
    let unit = text.chars().last().ok_or_else(explain)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(explain()),
    };
    let number: u64 = text[..text.len() - 1].parse().map_err(|_| explain())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(explain)
}

/// A moment with its zone, as milliseconds since the Unix epoch.
fn time(text: &str) -> Result<i64, String> {
    let explain = |_| "write a time with its zone, such as 2026-03-01T09:30:00Z".to_owned();
    text.parse::<jiff::Timestamp>().map(jiff::Timestamp::as_millisecond).map_err(explain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_and_times_are_read_or_explained() {
        assert_eq!(age("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(age("7d"), Ok(Duration::from_secs(604_800)));
        for bad in ["", "s", "7", "-1d", "7 d", "1y", "99999999999999999999d", "7é"] {
            assert!(age(bad).is_err(), "{bad}");
        }
        assert_eq!(time("1970-01-01T00:00:01Z"), Ok(1_000));
        assert_eq!(time("1970-01-01T01:00:01+01:00"), Ok(1_000));
        assert!(time("1970-01-01T00:00:01").is_err(), "without a zone it could be any of them");
    }
}
