//! What can be done to articles, and how it is made ready outside any transaction.

use rusqlite::Connection;
use uuid::Uuid;

use super::input::{ArticlePatch, Expected, NewArticle};
use super::model::{Article, ArticleEvent, CREATED, Status};
use super::spare::Spare;
use super::tags::Tag;
use super::validate::{self, CheckedPatch};
use super::{ArticleError, rows, slug, sql, tags};
use crate::outbox::{InsertError, NewEvent};

/// A change to one article.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// Creates an article.
    Create(NewArticle),
    /// Changes the article that has `slug`. A patch that would change nothing writes nothing and emits no event.
    Update {
        /// Its present slug.
        slug: String,
        /// What to change.
        patch: ArticlePatch,
        /// What it must be for that.
        expected: Expected,
    },
    /// Deletes the article that has `slug`.
    Delete {
        /// Its present slug.
        slug: String,
        /// What it must be for that.
        expected: Expected,
    },
    /// Publishes the article with this id, whose time has come. If that is not its time (any more), nothing is changed.
    Publish {
        /// The article's id.
        id: String,
        /// The time it was scheduled for, milliseconds since the Unix epoch.
        publish_at: i64,
    },
    /// Creates an article from a source outside, or brings it up to date, once per content of the source.
    ///
    /// An article that was edited or deleted since its last import is left as it is.
    Import {
        /// What names the source for ever, such as its path within the imported folder; 1 to 4,096 bytes.
        source: String,
        /// What tells one content of the source from another; 1 to 4,096 bytes.
        hash: String,
        /// What the source says now.
        article: NewArticle,
    },
}

/// A checked mutation with its ids and its time. Applying it twice, in two transactions of which the first was rolled
/// back, does the same twice.
#[derive(Debug, Clone)]
pub struct PreparedMutation {
    pub(super) now_ms: i64,
    /// Complete for a creation under its first slug; otherwise its type, key and payload are still to come.
    pub(super) event: NewEvent,
    pub(super) change: Change,
}

#[derive(Debug, Clone)]
pub(super) enum Change {
    Create(Draft),
    Update { slug: String, patch: CheckedPatch, expected: Expected },
    Delete { slug: String, expected: Expected },
    Publish { id: String, publish_at: i64 },
    Import { source: String, hash: String, draft: Draft },
}

/// An article ready to be inserted.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub article: Article,
    /// What the caller is answered with.
    pub spare: Spare,
    pub tags: Vec<Tag>,
    /// The slug was asked for, not derived.
    pub explicit_slug: bool,
    /// The id was given, not minted.
    pub explicit_id: bool,
    /// `created_at` and `updated_at` as given.
    pub times: (Option<i64>, Option<i64>),
}

impl Mutation {
    /// Checks every field, mints ids and fixes the time, all before any transaction.
    ///
    /// # Errors
    /// [`ArticleError::Invalid`]: a field of the article or patch, `correlation_id`, `causation_id`, `source`, `hash`.
    pub fn prepare(
        self,
        now_ms: i64,
        correlation_id: Option<String>,
        causation_id: Option<String>,
    ) -> Result<PreparedMutation, ArticleError> {
        validate::trace("correlation_id", correlation_id.as_deref())?;
        validate::trace("causation_id", causation_id.as_deref())?;
        let mut event = NewEvent::from_json(CREATED, "").occurred_at(now_ms);
        event.correlation_id = correlation_id;
        event.causation_id = causation_id;
        let change = self.check(now_ms)?;
        if let Change::Create(draft) | Change::Import { draft, .. } = &change {
            event.payload = payload(&draft.article.event(None))?;
            event.key = Some(draft.article.id.clone());
        }
        Ok(PreparedMutation { now_ms, event, change })
    }

    fn check(self, now_ms: i64) -> Result<Change, ArticleError> {
        Ok(match self {
            Self::Create(article) => Change::Create(Draft::new(article, now_ms)?),
            Self::Update { slug, patch, expected } => Change::Update { slug, patch: validate::patch(patch)?, expected },
            Self::Delete { slug, expected } => Change::Delete { slug, expected },
            Self::Publish { id, publish_at } => {
                validate::id(&id)?;
                Change::Publish { id, publish_at }
            }
            Self::Import { source, hash, article } => {
                validate::source("source", &source)?;
                validate::source("hash", &hash)?;
                Change::Import { source, hash, draft: Draft::new(article, now_ms)? }
            }
        })
    }
}

impl PreparedMutation {
    /// The id of the event that this mutation emits, if it emits one.
    pub fn event_id(&self) -> &str {
        &self.event.event_id
    }

    /// Gives the event the id that the mutation had when it was first made ready.
    pub(crate) fn set_event_id(&mut self, event_id: String) {
        self.event.event_id = event_id;
    }

    /// When it was made ready, milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> i64 {
        self.now_ms
    }

    /// The id of the article that it creates, if it creates one.
    pub fn created_id(&self) -> Option<&str> {
        match &self.change {
            Change::Create(draft) => Some(&draft.article.id),
            _ => None,
        }
    }

    /// The correlation id that its event will bear.
    pub fn correlation_id(&self) -> Option<&str> {
        self.event.correlation_id.as_deref()
    }

    /// Whether this mutation's event is in the log, and so the mutation in the tables, as neither is there without the
    /// other: answers what became of a COMMIT whose outcome is unknown. An import that only noted a new hash, since its
    /// text is the same, has no event and is known by that note.
    ///
    /// # Errors
    /// As SQLite reports it.
    pub fn is_logged(&self, conn: &Connection) -> rusqlite::Result<bool> {
        if rows::exists(conn, sql::HAS_EVENT, &self.event.event_id)? {
            return Ok(true);
        }
        match &self.change {
            Change::Import { source, hash, .. } => conn.prepare_cached(sql::HAS_SOURCE)?.exists([source, hash]),
            _ => Ok(false),
        }
    }

    /// Rough size of what it carries, in bytes.
    pub fn bytes(&self) -> usize {
        const OVERHEAD: usize = 1024;
        let carried = match &self.change {
            Change::Create(draft) | Change::Import { draft, .. } => draft.article.content.len(),
            Change::Update { patch, .. } => patch.content.as_ref().map_or(0, String::len),
            Change::Delete { .. } | Change::Publish { .. } => 0,
        };
        OVERHEAD + carried + self.event.payload.len()
    }

    /// Rough number of rows it writes.
    pub fn rows(&self) -> usize {
        2 + match &self.change {
            Change::Create(draft) | Change::Import { draft, .. } => draft.tags.len(),
            Change::Update { patch, .. } => patch.tags.as_ref().map_or(0, Vec::len),
            Change::Delete { .. } | Change::Publish { .. } => 1,
        }
    }

    /// The event of this mutation with what is known only inside the transaction.
    pub(super) fn event(&self, event_type: &str, body: &ArticleEvent) -> Result<NewEvent, ArticleError> {
        let mut event = self.event.clone();
        event.event_type = event_type.to_owned();
        event.key = Some(body.id.clone());
        event.payload = payload(body)?;
        Ok(event)
    }

    /// Twelve random characters for a slug's last resort: the tail of the event's id.
    pub(super) fn random_suffix(&self) -> &str {
        let id = &self.event.event_id;
        &id[id.len() - 12..]
    }
}

impl Draft {
    fn new(new: NewArticle, now_ms: i64) -> Result<Self, ArticleError> {
        validate::title(&new.title)?;
        validate::content(&new.content)?;
        new.slug.as_deref().map_or(Ok(()), slug::check)?;
        new.id.as_deref().map_or(Ok(()), validate::id)?;
        new.created_at.map_or(Ok(()), |at| validate::time("created_at", at))?;
        new.updated_at.map_or(Ok(()), |at| validate::time("updated_at", at))?;
        new.publish_at.map_or(Ok(()), |at| validate::time("publish_at", at))?;
        let (status, publish_at) = match new.publish_at {
            Some(at) if at > now_ms => (Status::Scheduled, Some(at)),
            Some(_) => (Status::Published, None),
            None if new.status == Status::Scheduled => return Err(validate::unscheduled()),
            None => (new.status, None),
        };
        let tags = tags::check(&new.tags)?;
        let (explicit_slug, explicit_id) = (new.slug.is_some(), new.id.is_some());
        let created_at = new.created_at.unwrap_or(now_ms);
        let article = Article {
            id: new.id.unwrap_or_else(|| Uuid::now_v7().to_string()),
            kind: new.kind,
            status,
            slug: new.slug.unwrap_or_else(|| slug::slug_from_title(&new.title)),
            title: new.title,
            content: new.content,
            tags: tags::labels(&tags),
            version: 1,
            created_at,
            updated_at: new.updated_at.unwrap_or(created_at),
            publish_at,
        };
        let (spare, times) = (Spare::of(&article), (new.created_at, new.updated_at));
        Ok(Self { article, spare, tags, explicit_slug, explicit_id, times })
    }

    /// The draft as a change to the article that an earlier import made: its id stays, and so does its slug unless one
    /// was asked for.
    pub(super) fn as_patch(&self) -> CheckedPatch {
        CheckedPatch {
            title: Some(self.article.title.clone()),
            content: Some(self.article.content.clone()),
            slug: self.explicit_slug.then(|| self.article.slug.clone()),
            tags: Some(self.tags.clone()),
            kind: Some(self.article.kind),
            status: Some(self.article.status),
            publish_at: self.article.publish_at.map(Some),
            created_at: self.times.0,
        }
    }
}

/// Cannot fail for these types; if it did, the mutation would be refused before its first write.
fn payload(event: &ArticleEvent) -> Result<String, ArticleError> {
    serde_json::to_string(event)
        .map_err(|error| ArticleError::Event(InsertError::Invalid { field: "payload", reason: error.to_string() }))
}
