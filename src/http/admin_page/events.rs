//! Finding events, one event's whole story, and the question before a discard.

use std::fmt::Write as _;

use super::frame::{document, key};
use super::overview::{badge, push_exception};
use super::session::Operator;
use crate::http::problem::Problem;
use crate::http::request::Query;
use crate::http::site::Parts;
use crate::http::view::rfc3339;
use crate::outbox::{Event, EventStory};
use crate::sinks::escape;

/// Most events in a list.
const MOST: usize = 50;
/// Characters shown of a payload.
const PAYLOAD: usize = 20_000;

/// What was asked for: one event by its number or id, else a list by correlation id, slug or type.
pub(super) fn page(parts: &Parts, operator: &Operator, asked: &str) -> Result<String, Problem> {
    if !asked.is_empty()
        && let Some(story) = parts.operator.show(asked)?
    {
        return Ok(story_page(&story, operator));
    }
    let events = if asked.is_empty() { Vec::new() } else { find(parts, asked)? };
    let mut main = format!("<section class=\"card\">\n<h1>Events for “{}”</h1>\n", escape(asked));
    if events.is_empty() {
        main.push_str(
            "<p class=\"empty\">None. Correlation ids are found at any age; slugs and types among the newest 10,000 \
             events.</p>\n",
        );
    } else {
        main.push_str("<ul class=\"rows\">\n");
        for event in &events {
            let _ = writeln!(
                main,
                "<li><p class=\"what\"><a href=\"/admin/event?q={}\">Event {}</a> {} <small>{}</small></p></li>",
                event.id,
                event.id,
                escape(&event.event_type),
                rfc3339(event.occurred_at)
            );
        }
        main.push_str("</ul>\n");
    }
    main.push_str("</section>\n");
    Ok(document("Events", Some(operator), &main))
}

fn find(parts: &Parts, asked: &str) -> Result<Vec<Event>, Problem> {
    let traced = parts.operator.trace(asked, MOST)?;
    if !traced.is_empty() {
        return Ok(traced);
    }
    let key = parts.articles.get(asked)?.map(|article| article.id);
    Ok(parts.operator.look_back(Some(asked), key.as_deref(), MOST)?)
}

fn story_page(story: &EventStory, operator: &Operator) -> String {
    let mut main = String::from("<section class=\"card\">\n");
    match &story.event {
        Some(event) => push_event(&mut main, event),
        None => {
            let why = story.undecodable.as_deref().unwrap_or("it was removed, its exceptions are left");
            let _ = write!(main, "<h1>Event</h1>\n<p class=\"bad\">{}</p>\n", escape(why));
        }
    }
    main.push_str("</section>\n<section class=\"card\">\n<h2>Where it stands</h2>\n<ul class=\"standing\">\n");
    for (handler, standing) in &story.lanes {
        let good = matches!(standing.as_str(), "delivered" | "done");
        let _ = writeln!(main, "<li>{} {}</li>", escape(handler), badge(standing, good));
    }
    main.push_str("</ul>\n</section>\n");
    for row in &story.exceptions {
        let _ = write!(main, "<section class=\"card\">\n<h2>{}</h2>\n<ul class=\"rows\">\n", escape(&row.handler));
        push_exception(&mut main, row, operator);
        let _ = write!(
            main,
            "</ul>\n<p class=\"hint\">{} failed calls, {} crashes, {} replays</p>\n<ol class=\"history\">\n",
            row.attempts, row.crashes, row.replays
        );
        for entry in &row.history {
            let (at, what, reason) = (rfc3339(entry.at), escape(&entry.what), escape(&entry.reason));
            let _ = writeln!(main, "<li><small>{at}</small> <strong>{what}</strong> {reason}</li>");
        }
        main.push_str("</ol>\n</section>\n");
    }
    document("Event", Some(operator), &main)
}

fn push_event(main: &mut String, event: &Event) {
    let none = || "–".to_owned();
    let correlation = event.correlation_id.as_ref().map_or_else(none, |id| {
        format!("<a href=\"/admin/event?q={}\">{}</a>", crate::sinks::encode_segment(id), escape(id))
    });
    let _ = write!(
        main,
        "<h1>Event {}</h1>\n<dl class=\"facts\">\n<dt>Type</dt><dd>{}</dd>\n<dt>Committed</dt><dd>{}</dd>\n\
         <dt>Event id</dt><dd>{}</dd>\n<dt>Key</dt><dd>{}</dd>\n<dt>Correlation id</dt><dd>{correlation}</dd>\n\
         <dt>Caused by</dt><dd>{}</dd>\n</dl>\n<h2>Payload</h2>\n<pre>{}</pre>\n",
        event.id,
        escape(&event.event_type),
        rfc3339(event.occurred_at),
        escape(&event.event_id),
        event.key.as_deref().map_or_else(none, escape),
        event.causation_id.as_deref().map_or_else(none, escape),
        escape(&payload(&event.payload))
    );
}

fn payload(text: &str) -> String {
    let read = serde_json::from_str::<serde_json::Value>(text);
    let pretty = read.ok().and_then(|value| serde_json::to_string_pretty(&value).ok());
    pretty.as_deref().unwrap_or(text).chars().take(PAYLOAD).collect()
}

/// Asks for a reason before an event is given up.
pub(super) fn confirm(operator: &Operator, query: &Query) -> Result<String, Problem> {
    let (id, handler) = (query.get("id")?.unwrap_or_default(), query.get("handler")?.unwrap_or_default());
    let (id, handler) = (escape(id), escape(handler));
    let main = format!(
        "<section class=\"card narrow\">\n<h1>Discard event {id}?</h1>\n\
         <p>It is given up for <strong>{handler}</strong>, for good. The next event of its key goes on.</p>\n\
         <form method=\"post\" action=\"/admin/act\">{}<input type=\"hidden\" name=\"act\" value=\"discard\">\
         <input type=\"hidden\" name=\"id\" value=\"{id}\"><input type=\"hidden\" name=\"handler\" value=\"{handler}\">\n\
         <label for=\"reason\">Why</label>\n<input id=\"reason\" name=\"reason\" maxlength=\"2000\" required autofocus>\n\
         <button class=\"danger\">Discard it</button> <a class=\"button quiet\" href=\"/admin\">Keep it</a>\n</form>\n</section>\n",
        key(operator)
    );
    Ok(document("Discard", Some(operator), &main))
}
