//! Events that the original has not delivered.

use rusqlite::{OptionalExtension, Row};
use serde_json::{Value, json};

use super::columns::{self, label, plain, time, unreadable};
use super::report::Fate;
use super::{Adoption, fingerprint, times};
use crate::article::{ArticleEvent, CREATED, DELETED, Kind, Previous, Status, UPDATED};
use crate::cli::CliError;
use crate::jobs::{is_adopted, mark_adopted};
use crate::outbox::{self, InsertError, NewEvent};

const EVENTS: &str = "event_outbox";
/// Here the page cache follows the article's own events.
const CACHE_INVALIDATED: &str = "cache.invalidated.v1";

impl Adoption<'_> {
    /// # Errors
    /// The source cannot be read, or nothing can be stored.
    pub(super) fn events(&mut self) -> Result<(), CliError> {
        let wanted = ["id", "event_type", "payload", "status", "dead_reason", "created_at"];
        let conn = self.source.conn();
        let Some(sql) = columns::select(conn, EVENTS, &wanted, "ORDER BY id")? else { return Ok(()) };
        let mut statement = conn.prepare(&sql).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        while let Some(row) = rows.next().map_err(unreadable)? {
            self.bar.inc(1);
            let name = label(row, 0);
            if plain(row, 3, "status").is_ok_and(|status| status == "delivered") {
                self.report.finished(EVENTS);
                continue;
            }
            match self.stays(row)? {
                Some(reason) => self.report.say(EVENTS, &name, Fate::LeftOut, &reason)?,
                None => match self.event(row, &name) {
                    Ok(event) => self.store_event(&name, event)?,
                    Err(reason) => self.report.say(EVENTS, &name, Fate::Refused, &reason)?,
                },
            }
        }
        Ok(())
    }

    /// Why the row stays behind by rule.
    fn stays(&self, row: &Row<'_>) -> Result<Option<String>, CliError> {
        let event_type = plain(row, 1, "event_type").unwrap_or_default();
        if event_type == CACHE_INVALIDATED {
            return Ok(Some("the page cache here follows the articles' own events".to_owned()));
        }
        let event_id = envelope(row).ok().and_then(|envelope| Some(envelope["event_id"].as_str()?.to_owned()));
        if let Some(event_id) = event_id
            && self.was_delivered(&event_id)?
        {
            return Ok(Some(format!("its event {event_id} stands in delivered_events")));
        }
        if plain(row, 3, "status").is_ok_and(|status| status == "dead_letter") && !self.with_dead {
            let reason = plain(row, 4, "dead_reason").unwrap_or_default();
            return Ok(Some(format!("it is dead ({reason}); --with-dead takes it over")));
        }
        Ok(None)
    }

    fn was_delivered(&self, event_id: &str) -> Result<bool, CliError> {
        let conn = self.source.conn();
        let Some(sql) = columns::select(conn, "delivered_events", &["event_id"], "WHERE event_id = ?1")? else {
            return Ok(false);
        };
        let found = conn.prepare_cached(&sql).and_then(|mut found| found.query_row([event_id], |_| Ok(())).optional());
        Ok(found.map_err(unreadable)?.is_some())
    }

    fn event(&self, row: &Row<'_>, name: &str) -> Result<NewEvent, String> {
        let event_type = plain(row, 1, "event_type")?;
        let envelope = envelope(row)?;
        // An old row holds the payload without an envelope.
        let inner = if envelope["payload"].is_object() { &envelope["payload"] } else { &envelope };
        let payload = match event_type.as_str() {
            CREATED | UPDATED | DELETED => self.payload(&event_type, inner)?,
            _ => inner.clone(),
        };
        let mut event = NewEvent::new(event_type, &payload).map_err(|error| error.to_string())?;
        let word = |field: &str| envelope[field].as_str().filter(|word| !word.is_empty()).map(str::to_owned);
        event.event_id =
            word("event_id").unwrap_or_else(|| format!("vayupress-{name}-{}", fingerprint(&[&envelope.to_string()])));
        event.key = payload["id"].as_str().map(str::to_owned);
        (event.correlation_id, event.causation_id) = (word("correlation_id"), word("causation_id"));
        let occurred = word("occurred_at").and_then(|text| times::parse(&text).ok());
        event.occurred_at = occurred.or(time(row, 5, "created_at")?);
        Ok(event)
    }

    /// The original's events name id, slug and tags; what else handlers here want is read from the article.
    fn payload(&self, event_type: &str, inner: &Value) -> Result<Value, String> {
        let word = |field: &str| inner[field].as_str().unwrap_or_default().to_owned();
        let (id, slug) = (word("id"), word("slug"));
        let tags: Vec<String> = inner["tags"]
            .as_array()
            .map(|tags| tags.iter().filter_map(|tag| tag.as_str().map(str::to_owned)).collect())
            .unwrap_or_default();
        let article = self.app.articles.repository().by_id(&id).map_err(|error| error.to_string())?;
        let id = match (&article, id.is_empty()) {
            (_, false) => id,
            (_, true) => {
                let found = self.app.articles.get(&slug).map_err(|error| error.to_string())?;
                found.map(|article| article.id).ok_or("it names no article id")?
            }
        };
        let (kind, status, title, version) = match &article {
            Some(article) => {
                let status = if article.status == Status::Published { Status::Published } else { Status::Draft };
                (article.kind, status, article.title.clone(), article.version)
            }
            None => (Kind::Post, Status::Published, String::new(), 1),
        };
        let previous = (event_type != CREATED).then(|| Previous { slug: slug.clone(), status, tags: tags.clone() });
        let tags = if event_type == DELETED { Vec::new() } else { tags };
        Ok(json!(ArticleEvent { id, version, kind, slug, title, status, tags, previous }))
    }

    fn store_event(&mut self, name: &str, event: NewEvent) -> Result<(), CliError> {
        self.still_stands()?;
        let origin = format!("{EVENTS}/{}", event.event_id);
        let now_ms = self.app.database.clock().now_ms();
        let stored = self.app.database.writer().transact(move |tx| {
            if is_adopted(tx, &origin)? {
                return Ok(false);
            }
            outbox::insert(tx, &event)?;
            mark_adopted(tx, &origin, now_ms)?;
            Ok::<_, InsertError>(true)
        });
        match stored {
            Ok(true) => self.report.adopted(EVENTS),
            Ok(false) => self.report.known(EVENTS),
            Err(crate::storage::TransactError::Task(error)) => {
                self.report.say(EVENTS, name, Fate::Refused, &error.to_string())?;
            }
            Err(error) => return Err(CliError::failed(format!("{error}; adopt again to go on"))),
        }
        Ok(())
    }
}

fn envelope(row: &Row<'_>) -> Result<Value, String> {
    let payload = plain(row, 2, "payload")?;
    let value: Value = serde_json::from_str(&payload).map_err(|error| format!("its payload is no JSON: {error}"))?;
    if value.is_object() { Ok(value) } else { Err("its payload is no JSON object".to_owned()) }
}
