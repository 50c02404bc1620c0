//! Articles whose every change commits together with a durable event, and the relay that delivers it.
//!
//! Three things in one crate, each usable without the next:
//!
//! - [`lifecycle`]: named services that start in order and stop in reverse, each within its time.
//! - [`storage`] and [`outbox`]: one SQLite file with a thread that writes in groups, an event log in it, and a
//!   [`Relay`](outbox::Relay) that delivers every event to every handler, at least once and in order per key. Inside your
//!   own database, beside your own tables; start with [`outbox`].
//! - [`jobs`]: writes that wait, the modes of a site, and articles published at a time.
//! - [`article`], [`queue`] and [`service`]: the article service, with [`sinks`] for search, rendered pages, CDN purges and webhooks.
//!   With the feature `server`, the module `http` serves it; with `cli`, the module `cli` is the program's command line.
//!
//! Everything is synchronous: threads and blocking calls, no async runtime outside the HTTP engine and
//! the parts of the feature `nats`.
//!
//! | feature | brings | default |
//! |---|---|---|
//! | none | outbox, storage, articles, lifecycle, full-text search | |
//! | `sinks` | rendered pages and their cache, CDN purges, webhooks | with `server` and `cli` |
//! | `server` | the HTTP engine, the API and the pages | yes |
//! | `cli` | the commands of the program | yes |
//! | `nats` | handing events on to NATS JetStream, and the worker that takes them from there | |
//!
//! [`rusqlite`] is re-exported, since its transaction is part of the interface: use `vayu_articles::rusqlite`, not
//! another version. Its types would be others, and Cargo refuses two packages that link SQLite.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod article;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
#[cfg(feature = "server")]
pub mod http;
pub mod jobs;
pub mod lifecycle;
pub mod outbox;
pub mod queue;
pub mod service;
pub mod sinks;
pub mod storage;
#[cfg(feature = "nats")]
pub mod worker;

pub use rusqlite;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
