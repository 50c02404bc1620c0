//! Articles: what they are, what is a valid one, and how a transaction changes one together with its event.
//!
//! The path of a change: a [`Mutation`] is checked and given its ids and time by [`Mutation::prepare`], outside any
//! transaction; [`apply`] then writes the article, its tags and its event inside one. [`ArticleRepository`] reads.
//!
//! Policies, the same everywhere:
//! - Slugs follow one rule for all scripts (see [`slug_from_title`]). A derived slug that is taken gets a suffix; an
//!   explicit one is a conflict. A new title does not change the slug.
//! - Tags are trimmed and compared without regard to case (see [`tag_key`]); repetitions are dropped, empty ones refused.
//! - U+0000 is refused in every field.
//! - A patch that changes nothing writes nothing and emits no event.
//! - `publish_at` decides: with a time to come the article is scheduled, with one that has passed it is published now, whatever
//!   `status` says beside it. An article published by its time bears that time as `created_at`, so that it comes first in lists.

mod apply;
mod error;
mod input;
mod model;
mod mutation;
mod repository;
mod request_key;
mod rows;
mod slug;
mod spare;
mod sql;
mod tags;
mod validate;
mod wire;

pub use apply::{Applied, Kept, apply};
pub use error::ArticleError;
pub use input::{ArticlePatch, Expected, NewArticle};
pub use model::{Article, ArticleEvent, CREATED, DELETED, Kind, Previous, Status, UPDATED};
pub use mutation::{Mutation, PreparedMutation};
pub use repository::{
    ArticleAddress, ArticleRepository, ArticleStamp, ArticleSummary, ListQuery, Page, RepositoryError, SiteVersion,
    TagCount,
};
pub use request_key::{MAX_REQUEST_KEY_BYTES, REQUEST_KEY_KEPT_MS, RequestKey, prune_request_keys};
pub(crate) use request_key::{Outcome, Outcomes, is_remembered, once};
pub use slug::{MAX_SLUG_CHARS, slug_from_title};
pub use tags::{MAX_TAG_CHARS, MAX_TAGS, tag_key};
pub use validate::{MAX_CONTENT_BYTES, MAX_TITLE_CHARS};

use crate::storage;

/// The tables of this module.
pub const COMPONENT: storage::Component = storage::Component {
    name: "articles",
    migrations: &[
        include_str!("../../sql/articles/0001_articles.sql"),
        include_str!("../../sql/articles/0002_request_keys.sql"),
        include_str!("../../sql/articles/0003_schedule.sql"),
    ],
};
