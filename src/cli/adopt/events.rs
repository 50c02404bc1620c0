//! Events that the original has not delivered.

use rusqlite::{OptionalExtension, Row, Transaction};
use serde_json::{Value, json};

use super::addresses::not_read;
use super::batch::{Batch, Incoming, Stored, is_double};
use super::columns::{self, label, plain, time, unreadable};
use super::report::Fate;
use super::{Adoption, fingerprint, times};
use crate::article::{ArticleEvent, CREATED, DELETED, Kind, Previous, Status, UPDATED};
use crate::cli::CliError;
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
        let mut batch = Batch::new();
        while let Some(row) = rows.next().map_err(unreadable)? {
            self.bar.inc(1);
            let name = label(row, 0);
            match Old::read(row) {
                Ok(old) => self.take_event(name, &old, &mut batch)?,
                Err(reason) => self.report.say(EVENTS, &name, Fate::Refused, &reason)?,
            }
            if batch.is_full() {
                self.store_events(&mut batch)?;
            }
        }
        self.store_events(&mut batch)
    }

    fn take_event(&mut self, name: String, old: &Old, batch: &mut Batch<NewEvent>) -> Result<(), CliError> {
        if old.standing == Standing::Done {
            self.report.finished(EVENTS);
            return Ok(());
        }
        if let Some(reason) = self.stays(old)? {
            return self.report.say(EVENTS, &name, Fate::LeftOut, &reason);
        }
        let envelope = match old.envelope() {
            Ok(envelope) => envelope,
            Err(reason) => return self.report.say(EVENTS, &name, Fate::Refused, &reason),
        };
        let origin = format!("{EVENTS}/{name}/{}", fingerprint(&[&old.event_type, &old.payload]));
        match self.event(old, &envelope, &name)? {
            Ok(event) => batch.push(Incoming {
                label: name,
                origin,
                earlier: Some(format!("{EVENTS}/{}", event.event_id)),
                bytes: old.payload.len(),
                row: event,
            }),
            Err(reason) => self.report.say(EVENTS, &name, Fate::Refused, &reason)?,
        }
        Ok(())
    }

    /// Why the row stays behind by rule.
    fn stays(&self, old: &Old) -> Result<Option<String>, CliError> {
        if renamed(&old.event_type) == CACHE_INVALIDATED {
            return Ok(Some("the page cache here follows the articles' own events".to_owned()));
        }
        let event_id = old.envelope().ok().and_then(|envelope| Some(envelope["event_id"].as_str()?.to_owned()));
        if let Some(event_id) = event_id
            && self.was_delivered(&event_id)?
        {
            return Ok(Some(format!("its event {event_id} stands in delivered_events")));
        }
        if old.standing == Standing::Dead && !self.with_dead {
            return Ok(Some(format!("it is dead ({}); --with-dead takes it over", old.dead_reason)));
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

    /// The inner error is the row's own.
    fn event(&self, old: &Old, envelope: &Value, name: &str) -> Result<Result<NewEvent, String>, CliError> {
        let event_type = renamed(&old.event_type);
        // An old row holds the payload without an envelope.
        let inner = if envelope["payload"].is_object() { &envelope["payload"] } else { envelope };
        let payload = match event_type {
            CREATED | UPDATED | DELETED => match self.payload(event_type, inner)? {
                Ok(payload) => payload,
                Err(reason) => return Ok(Err(reason)),
            },
            _ => inner.clone(),
        };
        let mut event = match NewEvent::new(event_type, &payload) {
            Ok(event) => event,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let word = |field: &str| envelope[field].as_str().filter(|word| !word.is_empty()).map(str::to_owned);
        event.event_id =
            word("event_id").unwrap_or_else(|| format!("vayupress-{name}-{}", fingerprint(&[&envelope.to_string()])));
        event.key = payload["id"].as_str().map(str::to_owned);
        (event.correlation_id, event.causation_id) = (word("correlation_id"), word("causation_id"));
        event.occurred_at = match word("occurred_at").and_then(|text| times::parse(&text).ok()) {
            Some(occurred_at) => Some(occurred_at),
            None => match &old.created_at {
                Ok(created_at) => *created_at,
                Err(reason) => return Ok(Err(reason.clone())),
            },
        };
        Ok(Ok(event))
    }

    /// The original's events name id, slug and tags; what else handlers here want is read from the article. The inner error is the
    /// row's own.
    fn payload(&self, event_type: &str, inner: &Value) -> Result<Result<Value, String>, CliError> {
        // Its structs have no JSON names, so that the fields are spelled as in Go.
        let field = |name: &str, go: &str| if inner[go].is_null() { inner[name].clone() } else { inner[go].clone() };
        let word = |name: &str, go: &str| field(name, go).as_str().unwrap_or_default().to_owned();
        let (id, slug) = (word("id", "ID"), word("slug", "Slug"));
        let tags: Vec<String> = field("tags", "Tags")
            .as_array()
            .map(|tags| tags.iter().filter_map(|tag| tag.as_str().map(str::to_owned)).collect())
            .unwrap_or_default();
        let id = if id.is_empty() { self.source.article_id(&slug)? } else { Some(id) };
        let Some(id) = id else { return Ok(Err("it names no article id, and no article has its slug".to_owned())) };
        let article = self.app.articles.repository().by_id(&id).map_err(not_read)?;
        // It may have another slug here.
        let slug = article.as_ref().map_or(slug, |article| article.slug.clone());
        let (kind, status, title, version) = match &article {
            Some(article) => {
                let status = if article.status == Status::Published { Status::Published } else { Status::Draft };
                (article.kind, status, article.title.clone(), article.version)
            }
            None => (Kind::Post, Status::Published, String::new(), 1),
        };
        let previous = (event_type != CREATED).then(|| Previous { slug: slug.clone(), status, tags: tags.clone() });
        let tags = if event_type == DELETED { Vec::new() } else { tags };
        Ok(Ok(json!(ArticleEvent { id, version, kind, slug, title, status, tags, previous })))
    }

    fn store_events(&mut self, batch: &mut Batch<NewEvent>) -> Result<(), CliError> {
        for (incoming, stored) in self.store_batch(batch, put)? {
            match stored {
                Stored::Adopted => self.report.adopted(EVENTS),
                Stored::Known => self.report.known(EVENTS),
                Stored::Refused(reason) => self.report.say(EVENTS, &incoming.label, Fate::Refused, &reason)?,
            }
        }
        Ok(())
    }
}

/// A row of the source, read.
struct Old {
    event_type: String,
    payload: String,
    standing: Standing,
    dead_reason: String,
    created_at: Result<Option<i64>, String>,
}

/// Where a row of the source stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Waits,
    Done,
    Dead,
}

impl Old {
    /// # Errors
    /// A column that matters is not what it should be: the row stays, lest a part of it be lost.
    fn read(row: &Row<'_>) -> Result<Self, String> {
        let standing = match plain(row, 3, "status")?.as_str() {
            "" | "pending" => Standing::Waits,
            "delivered" => Standing::Done,
            "dead_letter" => Standing::Dead,
            other => {
                let shown: String = other.chars().take(60).collect();
                return Err(format!("its status {shown:?} is unknown; set it to pending there if it is to come"));
            }
        };
        Ok(Self {
            event_type: plain(row, 1, "event_type")?,
            payload: plain(row, 2, "payload")?,
            standing,
            dead_reason: plain(row, 4, "dead_reason").unwrap_or_else(|reason| reason),
            created_at: time(row, 5, "created_at"),
        })
    }

    fn envelope(&self) -> Result<Value, String> {
        let value: Value =
            serde_json::from_str(&self.payload).map_err(|error| format!("its payload is no JSON: {error}"))?;
        if value.is_object() { Ok(value) } else { Err("its payload is no JSON object".to_owned()) }
    }
}

/// An event whose id is in the log is here, whoever brought it.
fn put(tx: &Transaction<'_>, event: &NewEvent, _now_ms: i64) -> Result<Stored, InsertError> {
    match outbox::insert(tx, event) {
        Ok(_) => Ok(Stored::Adopted),
        Err(error) if is_double(&error) => Ok(Stored::Known),
        Err(error) => Err(error),
    }
}

/// What events are called that date from before they had an envelope.
fn renamed(event_type: &str) -> &str {
    match event_type {
        "ArticleCreated" => CREATED,
        "ArticleUpdated" => UPDATED,
        "ArticleDeleted" => DELETED,
        "CacheInvalidated" => CACHE_INVALIDATED,
        _ => event_type,
    }
}
