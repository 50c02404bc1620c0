//! `outbox show|trace`: an event's story, and the trail of a correlation id.

use super::output::{Output, moment, printable, say};
use super::{CliError, ShowArgs, TraceArgs, json};
use crate::outbox::{Event, EventStory, ExceptionInfo, Operator};

pub(super) fn show(operator: &Operator, args: &ShowArgs, out: &mut Output) -> Result<(), CliError> {
    let story = operator.show(&args.event).map_err(|error| CliError::failed(error.to_string()))?;
    let Some(story) = story else {
        return Err(CliError::failed(format!("neither the log nor an exception knows an event {:?}", args.event)));
    };
    if args.shape.json {
        return json::print(&json::story(&story), out);
    }
    show_event(&story, out)?;
    let lanes: Vec<_> = story.lanes.iter().map(|(lane, state)| [printable(lane), state.clone()]).collect();
    out.table(["HANDLER", "STATE"], &lanes)?;
    for exception in &story.exceptions {
        out.line("")?;
        show_exception(exception, out)?;
    }
    for (handler, payload) in &story.edited {
        out.line("")?;
        out.line(&format!("{} gets this payload instead: {}", printable(handler), printable(payload)))?;
    }
    Ok(())
}

fn show_exception(exception: &ExceptionInfo, out: &mut Output) -> Result<(), CliError> {
    let (handler, calls) = (printable(&exception.handler), exception.attempts);
    out.line(&format!("{handler}  failed calls: {calls}  replays: {}", exception.replays))?;
    if let Some(at) = exception.next_attempt_at {
        out.line(&format!("  next try at {}", moment(at)))?;
    }
    if let Some(by) = exception.superseded_by {
        out.line(&format!("  superseded by event {by} of its key, which is done"))?;
    }
    for entry in &exception.history {
        out.line(&format!("  {}  {}  {}", moment(entry.at), printable(&entry.what), printable(&entry.reason)))?;
    }
    Ok(())
}

fn show_event(story: &EventStory, out: &mut Output) -> Result<(), CliError> {
    if let Some(event) = &story.event {
        let dash = |text: &Option<String>| printable(text.as_deref().unwrap_or("-"));
        out.line(&format!("id           {}", event.id))?;
        out.line(&format!("event_id     {}", printable(&event.event_id)))?;
        out.line(&format!("type         {}", printable(&event.event_type)))?;
        out.line(&format!("key          {}", dash(&event.key)))?;
        out.line(&format!("occurred     {}", moment(event.occurred_at)))?;
        out.line(&format!("correlation  {}", dash(&event.correlation_id)))?;
        out.line(&format!("causation    {}", dash(&event.causation_id)))?;
        out.line(&format!("payload      {}", printable(&event.payload)))?;
    } else {
        let why = story.undecodable.as_deref().unwrap_or("the log no longer holds it");
        out.line(&format!("the event cannot be shown: {}", printable(why)))?;
    }
    out.line("")?;
    Ok(())
}

pub(super) fn trace(operator: &Operator, args: &TraceArgs, out: &mut Output) -> Result<(), CliError> {
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let events = operator.trace(&args.correlation_id, limit).map_err(|error| CliError::failed(error.to_string()))?;
    if args.shape.json {
        return json::print(&json::trail(&args.correlation_id, &events), out);
    }
    if events.is_empty() {
        out.flush()?;
        say("the log holds no event of that correlation id");
        return Ok(());
    }
    let rows: Vec<_> = events.iter().map(row).collect();
    out.table(["ID", "OCCURRED", "TYPE", "KEY", "CAUSED BY"], &rows)?;
    Ok(())
}

fn row(event: &Event) -> [String; 5] {
    let dash = |text: &Option<String>| printable(text.as_deref().unwrap_or("-"));
    [
        event.id.to_string(),
        moment(event.occurred_at),
        printable(&event.event_type),
        dash(&event.key),
        dash(&event.causation_id),
    ]
}
