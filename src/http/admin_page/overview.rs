//! The first page: services, queue, throughput, lanes, dead letters.

use std::fmt::Write as _;

use super::frame::{document, key};
use super::session::Operator;
use crate::http::health::{Health, LaneHealth};
use crate::http::problem::Problem;
use crate::http::site::Parts;
use crate::outbox::{ExceptionCursor, ExceptionInfo, ExceptionState, Filter};
use crate::sinks::{encode_segment, escape};
use crate::storage::RecentCounts;

/// Dead letters on the page.
const ROWS: usize = 25;

/// The page; `done` is what an act has just come to, `cursor` where the list of dead letters goes on.
pub(super) fn page(
    parts: &Parts,
    operator: &Operator,
    done: Option<&str>,
    cursor: Option<&str>,
) -> Result<String, Problem> {
    let health = (parts.health)();
    let mut main = String::from("<h1 class=\"hidden\">Overview</h1>\n");
    if let Some(done) = done {
        let _ = writeln!(main, "<p class=\"done\" role=\"status\">{}</p>", escape(done));
    }
    push_summary(&mut main, &health);
    main.push_str("<div class=\"columns\">\n");
    push_services(&mut main, &health);
    push_queue(&mut main, parts);
    main.push_str("</div>\n");
    push_lanes(&mut main, parts, operator)?;
    push_dead(&mut main, parts, operator, cursor)?;
    super::jobs::push(&mut main, parts, operator)?;
    Ok(document("Overview", Some(operator), &main))
}

fn push_summary(main: &mut String, health: &Health) {
    let color = health.color();
    let words = match color {
        "green" => "All is well",
        "yellow" => "Serving, but not all is well",
        _ => "Not ready",
    };
    let _ = write!(main, "<section class=\"state {color}\" aria-label=\"State\">\n<h2>{words}</h2>\n");
    let reasons = health.reasons();
    if !reasons.is_empty() {
        let items: String = reasons.iter().map(|reason| format!("<li>{}</li>\n", escape(reason))).collect();
        let _ = write!(main, "<ul>\n{items}</ul>\n");
    }
    main.push_str("</section>\n");
}

fn push_services(main: &mut String, health: &Health) {
    main.push_str(
        "<section class=\"card\">\n<h2>Services</h2>\n<table>\n<thead><tr><th>Service</th><th>State</th>\
         <th class=\"number\">For</th><th class=\"number\">Start</th></tr></thead>\n<tbody>\n",
    );
    for service in &health.services {
        let start = service.start_ms.map_or_else(|| "–".to_owned(), |ms| format!("{ms} ms"));
        let _ = writeln!(
            main,
            "<tr><td>{}</td><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{start}</td></tr>",
            escape(&service.name),
            badge(&service.state, service.state == "running"),
            span(service.for_ms)
        );
    }
    main.push_str("</tbody>\n</table>\n</section>\n");
}

fn push_queue(main: &mut String, parts: &Parts) {
    let writer = parts.articles.repository().database().writer();
    let (stats, measured) = (writer.stats(), writer.distributions());
    let last = |counts: &RecentCounts| {
        counts.counts[counts.counts.len().saturating_sub(7)..counts.counts.len() - 1].iter().sum::<u64>()
    };
    #[allow(clippy::cast_precision_loss)] // Shown with one digit.
    let rate = last(&measured.recent_tasks) as f64 / 60.0;
    let calls = parts.relay.status().iter().fold(RecentCounts::default(), |all, lane| all.plus(&lane.recent_calls));
    let _ = write!(
        main,
        "<section class=\"card\">\n<h2>Throughput</h2>\n<dl class=\"figures\">\n\
         <div><dt>Waiting writes</dt><dd>{}</dd></div>\n<div><dt>Committed per second</dt><dd>{rate:.1}</dd></div>\n\
         <div><dt>Last commit</dt><dd>{:.1} ms</dd></div>\n</dl>\n",
        stats.waiting_jobs,
        std::time::Duration::from_micros(stats.last_commit_us).as_secs_f64() * 1_000.0
    );
    push_chart(main, "Writes", &measured.recent_tasks);
    push_chart(main, "Deliveries", &calls);
    main.push_str("<p class=\"hint\">Ten minutes, a bar for ten seconds.</p>\n</section>\n");
}

/// A bar for each interval, the newest at the right.
fn push_chart(main: &mut String, name: &str, recent: &RecentCounts) {
    let (most, total) = (recent.counts.iter().max().copied().unwrap_or(0), recent.counts.iter().sum::<u64>());
    let width = recent.counts.len() * 5;
    let _ = write!(
        main,
        "<figure>\n<figcaption>{name} <small>{total} in all, at most {most} in ten seconds</small></figcaption>\n\
         <svg viewBox=\"0 0 {width} 40\" role=\"img\" aria-label=\"{name}: {total} in ten minutes\" preserveAspectRatio=\"none\">\n\
         <rect class=\"ground\" x=\"0\" y=\"39\" width=\"{width}\" height=\"1\"></rect>\n"
    );
    for (at, count) in recent.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let height = (count * 38).div_ceil(most.max(1)).max(1);
        let _ = writeln!(
            main,
            "<rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"4\" height=\"{height}\"></rect>",
            at * 5,
            39 - height
        );
    }
    main.push_str("</svg>\n</figure>\n");
}

fn push_lanes(main: &mut String, parts: &Parts, operator: &Operator) -> Result<(), Problem> {
    main.push_str("<section class=\"card\">\n<h2>Lanes</h2>\n<div class=\"scroll\">\n<table>\n<thead><tr><th>Handler</th><th>State</th>\
         <th class=\"number\">Behind</th><th class=\"number\">Oldest</th><th class=\"number\">To retry</th>\
         <th class=\"number\">Dead</th><th>Act</th></tr></thead>\n<tbody>\n");
    let running = Health::lanes_of(&parts.relay, &parts.operator.lanes()?);
    for lane in &running {
        push_lane(main, lane, operator);
    }
    main.push_str("</tbody>\n</table>\n</div>\n</section>\n");
    Ok(())
}

fn push_lane(main: &mut String, lane: &LaneHealth, operator: &Operator) {
    let backlog = lane.backlog.clone().unwrap_or_default();
    let name = escape(&lane.handler);
    let mut reason = String::new();
    if let Some(why) = &lane.reason {
        let _ = write!(reason, "<br><small>{}</small>", escape(why));
    }
    if let Some(until) = &backlog.paused_until {
        let _ = write!(reason, "<br><small>tries again at {}</small>", escape(until));
    }
    let (act, word) = if lane.state == "held" || lane.held { ("release", "Release") } else { ("hold", "Hold") };
    let button = format!(
        "<form method=\"post\" action=\"/admin/act\">{}<input type=\"hidden\" name=\"act\" value=\"{act}\">\
         <input type=\"hidden\" name=\"handler\" value=\"{name}\"><button class=\"quiet\">{word}<span class=\"hidden\"> {name}</span></button></form>",
        key(operator)
    );
    let _ = writeln!(
        main,
        "<tr><td>{name}</td><td>{}{reason}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
         <td class=\"number\">{}</td><td class=\"number\">{}</td><td>{button}</td></tr>",
        badge(&lane.state, lane.healthy),
        backlog.lag_events,
        span(backlog.lag_ms.max(0).unsigned_abs()),
        backlog.retrying + backlog.waiting,
        backlog.dead_letters + backlog.parked
    );
}

fn push_dead(main: &mut String, parts: &Parts, operator: &Operator, cursor: Option<&str>) -> Result<(), Problem> {
    let filter = Filter::states([ExceptionState::DeadLetter, ExceptionState::Parked]);
    let after = cursor.map(str::parse::<ExceptionCursor>).transpose();
    let after = after.map_err(|reason| Problem::bad_parameter("cursor", reason))?;
    let page = parts.operator.exceptions(&filter, after.as_ref(), ROWS)?;
    main.push_str("<section class=\"card\" id=\"dead\">\n<h2>Dead letters</h2>\n");
    if page.exceptions.is_empty() && page.next.is_none() {
        main.push_str("<p class=\"empty\">None. Every event has gone through, or is on its way.</p>\n");
    } else {
        main.push_str("<ul class=\"rows\">\n");
        page.exceptions.iter().for_each(|row| push_exception(main, row, operator));
        main.push_str("</ul>\n");
    }
    if let Some(next) = page.next {
        let next = encode_segment(&next.to_string());
        let _ = writeln!(main, "<p><a rel=\"next\" href=\"/admin?cursor={next}#dead\">Further ones →</a></p>");
    }
    main.push_str("</section>\n");
    Ok(())
}

/// An exception with what can be done about it.
pub(super) fn push_exception(main: &mut String, row: &ExceptionInfo, operator: &Operator) {
    let (id, handler) = (row.outbox_id, escape(&row.handler));
    let _ = write!(
        main,
        "<li>\n<p class=\"what\"><a href=\"/admin/event?q={id}\">Event {id}</a> for <strong>{handler}</strong> {} \
         <small>{}</small></p>\n<p class=\"reason\">{}</p>\n",
        badge(row.state.stored(), matches!(row.state, ExceptionState::Done)),
        escape(row.event_type.as_deref().unwrap_or("the event is gone")),
        escape(row.reason.as_deref().unwrap_or("no reason was given"))
    );
    let dead = matches!(row.state, ExceptionState::DeadLetter | ExceptionState::Parked);
    main.push_str("<div class=\"acts\">\n");
    if dead {
        let _ = writeln!(
            main,
            "<form method=\"post\" action=\"/admin/act\">{}<input type=\"hidden\" name=\"act\" value=\"replay\">\
             <input type=\"hidden\" name=\"id\" value=\"{id}\"><input type=\"hidden\" name=\"handler\" value=\"{handler}\">\
             <button>Replay<span class=\"hidden\"> event {id} for {handler}</span></button></form>",
            key(operator)
        );
    }
    if !matches!(row.state, ExceptionState::Done | ExceptionState::Discarded) {
        let _ = writeln!(
            main,
            "<a class=\"button quiet\" href=\"/admin/confirm?id={id}&amp;handler={}\">Discard…<span class=\"hidden\"> event {id} for {handler}</span></a>",
            encode_segment(&row.handler)
        );
    }
    main.push_str("</div>\n</li>\n");
}

/// A word in a coloured field.
pub(super) fn badge(word: &str, good: bool) -> String {
    format!("<span class=\"badge {}\">{}</span>", if good { "good" } else { "bad" }, escape(&word.replace('_', " ")))
}

/// A length of time in its largest unit.
fn span(ms: u64) -> String {
    match ms / 1_000 {
        0 => format!("{ms} ms"),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} d", seconds / 86_400),
    }
}
