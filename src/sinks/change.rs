//! An article event as the sinks read it.

use crate::article::{ArticleEvent, CREATED, DELETED, Status, UPDATED};
use crate::outbox::{DispatchError, Event, EventFilter};

/// The event types every sink here handles.
pub fn article_event_types() -> EventFilter {
    EventFilter::Types([CREATED, UPDATED, DELETED].map(str::to_owned).to_vec())
}

/// One change of one article.
#[derive(Debug)]
pub(crate) struct Change {
    pub deleted: bool,
    pub article: ArticleEvent,
}

/// Longest id of an article that is looked for; the service's own are UUIDs of 36 bytes.
const ID_BYTES_MAX: usize = 512;

impl Change {
    /// Reads `event`. One that cannot be read never will be: `Poison`.
    pub fn of(event: &Event) -> Result<Self, DispatchError> {
        let deleted = match event.event_type.as_str() {
            CREATED | UPDATED => false,
            DELETED => true,
            other => return Err(DispatchError::poison(format!("no article event: type {other:?}"))),
        };
        let article: ArticleEvent = event.json().map_err(|error| {
            DispatchError::poison(format!("the payload of {} is not readable: {error}", event.event_type))
        })?;
        if article.id.is_empty() || article.id.len() > ID_BYTES_MAX {
            return Err(DispatchError::poison("the article's id is empty or too long"));
        }
        Ok(Self { deleted, article })
    }

    /// Whether the public saw the article before the change.
    #[cfg_attr(not(feature = "sinks"), allow(dead_code))]
    pub fn public_before(&self) -> bool {
        self.article.previous.as_ref().is_some_and(|previous| previous.status == Status::Published)
    }

    /// Whether the public sees it after the change.
    #[cfg_attr(not(feature = "sinks"), allow(dead_code))]
    pub fn public_after(&self) -> bool {
        !self.deleted && self.article.status == Status::Published
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::NewEvent;

    #[test]
    fn what_is_no_article_event_is_poison() {
        for (event_type, payload) in [("order.paid.v1", "{}"), (CREATED, "{}"), (UPDATED, "nonsense"), (DELETED, "[]")]
        {
            let event = NewEvent::from_json(event_type, payload).into_event(1);
            assert!(matches!(Change::of(&event), Err(DispatchError::Poison { .. })), "{event_type} {payload}");
        }
    }

    /// An origin answers nothing to them that tells them from an outage.
    #[test]
    fn an_id_that_no_article_can_have_is_poison() {
        let change_of = |id: &str| {
            let payload = serde_json::json!({ "id": id, "version": 1, "kind": "post", "slug": "s", "title": "T",
                "status": "published", "tags": [] });
            Change::of(&NewEvent::from_json(CREATED, payload.to_string()).into_event(1))
        };
        for id in ["", &"x".repeat(70_000)] {
            assert!(matches!(change_of(id), Err(DispatchError::Poison { .. })), "{} bytes", id.len());
        }
        assert!(change_of("one").is_ok());
    }
}
