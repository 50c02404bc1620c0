//! The article service over HTTP: a JSON API, search, pages for readers, and health for whoever operates it.
//!
//! [`engine`] moves bytes and knows no articles; [`Site`] answers requests and knows no sockets. Together:
//!
//! ```
//! use std::sync::Arc;
//! use vayu_articles::http::Site;
//! use vayu_articles::http::engine::{Engine, EngineOptions};
//!
//! /// A service to be registered after the relay.
//! fn server(site: &Site) -> Arc<Engine> {
//!     Arc::new(site.serve_on(EngineOptions::default()))
//! }
//! ```

pub mod access;
mod admin;
mod admin_page;
mod api;
mod by_id;
mod conditional;
mod edge;
pub mod engine;
mod feeds;
mod health;
mod idempotency;
mod jobs;
mod local;
mod metrics;
mod openapi;
mod pages;
mod problem;
mod request;
mod route;
mod site;
#[cfg(test)]
mod tests;
mod trace;
mod view;

pub use access::{Access, Caller, Role};
pub use edge::Edge;
pub use health::{Health, LaneBacklog, LaneHealth, ServiceHealth};
pub use problem::Problem;
pub use site::{Site, SiteParts};
pub use view::rfc3339;
