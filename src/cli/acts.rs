//! `outbox replay|edit|discard|resume`: what an operator does with events.

use std::io::Read;

use serde_json::json;

use super::exceptions::must_be_known;
use super::output::{Output, printable};
use super::{CliError, DiscardArgs, EditArgs, ReplayArgs, ResumeArgs, json};
use crate::outbox::{
    DiscardError, EditError, EventStory, ExceptionState, MAX_PAYLOAD_BYTES, Operator, ReplayError, ResumeError,
};
use crate::storage::TransactError;

pub(super) fn replay(operator: &Operator, args: &ReplayArgs, out: &mut Output) -> Result<(), CliError> {
    let handler = &args.handler;
    let Some(event) = &args.event else { return replay_many(operator, args, out) };
    let id = position(operator, event)?;
    operator.replay(id, handler, args.force).map_err(|error| match must_be_known(operator, handler) {
        Err(unknown) if matches!(error, TransactError::Task(ReplayError::NoHandler)) => unknown,
        _ => replay_refused(id, handler, error),
    })?;
    if args.shape.json {
        return json::print(&json!({ "handler": handler, "id": id, "replayed": 1, "left": 0 }), out);
    }
    out.line(&format!("event {id} is due again for {}", printable(handler)))?;
    Ok(())
}

fn replay_many(operator: &Operator, args: &ReplayArgs, out: &mut Output) -> Result<(), CliError> {
    let handler = &args.handler;
    let filter = args.filter.filter(Some(handler), &[ExceptionState::DeadLetter]);
    if !filter.states.iter().all(|state| matches!(state, ExceptionState::DeadLetter | ExceptionState::Parked)) {
        return Err(CliError::Usage("only what is dead_letter or parked can be replayed".to_owned()));
    }
    let done =
        operator.replay_matching(&filter, args.force).map_err(|error| match must_be_known(operator, handler) {
            Err(unknown) if matches!(error, TransactError::Task(ReplayError::NoHandler)) => unknown,
            _ => CliError::failed(error.to_string()),
        })?;
    if args.shape.json {
        let document = json!({ "handler": handler, "id": null, "replayed": done.replayed, "left": done.left });
        return json::print(&document, out);
    }
    let left = match done.left {
        0 => String::new(),
        left => format!(", left: {left} (they need --force, or their event is gone)"),
    };
    out.line(&format!("{}: due again: {}{left}", printable(handler), done.replayed))?;
    Ok(())
}

fn replay_refused(id: i64, handler: &str, error: TransactError<ReplayError>) -> CliError {
    let hint = match &error {
        TransactError::Task(ReplayError::Superseded { .. } | ReplayError::TooOften) => "; --force overrules that",
        TransactError::Task(ReplayError::Delivered | ReplayError::NotDead(ExceptionState::Done)) => " (--force)",
        _ => "",
    };
    CliError::failed(format!("event {id} at {handler:?} was not replayed: {error}{hint}"))
}

pub(super) fn edit(operator: &Operator, args: &EditArgs, out: &mut Output) -> Result<(), CliError> {
    let EditArgs { handler, event, payload, force, shape } = args;
    let payload = if payload == "-" { read_stdin()? } else { payload.clone() };
    let id = position(operator, event)?;
    operator.edit(id, handler, payload, *force).map_err(|error| {
        if let (TransactError::Task(EditError::NotFound), Err(unknown)) = (&error, must_be_known(operator, handler)) {
            return unknown;
        }
        let hint = match &error {
            TransactError::Task(EditError::Superseded { .. }) => "; --force overrules that",
            _ => "",
        };
        CliError::failed(format!("event {id} at {handler:?} was not edited: {error}{hint}"))
    })?;
    if shape.json {
        return json::print(&json!({ "handler": handler, "id": id, "edited": true }), out);
    }
    out.line(&format!("event {id} is due again for {}, with the new payload", printable(handler)))?;
    Ok(())
}

pub(super) fn read_stdin() -> Result<String, CliError> {
    let mut text = String::new();
    // One byte more than is allowed, so that too much is seen as such.
    let read = std::io::stdin().take(MAX_PAYLOAD_BYTES as u64 + 1).read_to_string(&mut text);
    read.map_err(|error| CliError::failed(format!("the payload cannot be read from stdin: {error}")))?;
    Ok(text)
}

pub(super) fn discard(operator: &Operator, args: &DiscardArgs, out: &mut Output) -> Result<(), CliError> {
    let DiscardArgs { handler, event, reason, shape } = args;
    let id = position(operator, event)?;
    operator.discard(id, handler, reason).map_err(|error| match must_be_known(operator, handler) {
        Err(unknown) if matches!(error, TransactError::Task(DiscardError::NotFound)) => unknown,
        _ => CliError::failed(format!("event {id} at {handler:?} was not discarded: {error}")),
    })?;
    if shape.json {
        return json::print(&json!({ "handler": handler, "id": id, "discarded": true }), out);
    }
    out.line(&format!("event {id} is given up for {}; the next of its key goes on", printable(handler)))?;
    Ok(())
}

pub(super) fn resume(operator: &Operator, args: &ResumeArgs, out: &mut Output) -> Result<(), CliError> {
    let ResumeArgs { handler, key, shape } = args;
    let passed = operator.resume(handler, key).map_err(|error| match must_be_known(operator, handler) {
        Err(unknown) if matches!(error, TransactError::Task(ResumeError::NotParked)) => unknown,
        _ => CliError::failed(format!("key {key:?} at {handler:?} was not resumed: {error}")),
    })?;
    if shape.json {
        return json::print(&json!({ "handler": handler, "key": key, "passed_over": passed }), out);
    }
    let ids: Vec<String> = passed.iter().map(i64::to_string).collect();
    let (key, handler) = (printable(key), printable(handler));
    out.line(&format!("key {key} goes on for {handler} without event {}, now a dead letter", ids.join(", ")))?;
    Ok(())
}

/// The log position of an event that is named by it or by its event id.
pub(super) fn position(operator: &Operator, event: &str) -> Result<i64, CliError> {
    if let Ok(id) = event.parse() {
        return Ok(id);
    }
    let story = operator.show(event).map_err(|error| CliError::failed(error.to_string()))?;
    let of_event = |story: &EventStory| story.event.as_ref().map(|event| event.id);
    let id = story.and_then(|story| of_event(&story).or_else(|| Some(story.exceptions.first()?.outbox_id)));
    id.ok_or_else(|| CliError::failed(format!("the log knows no event {event:?}: name its number or its event id")))
}
