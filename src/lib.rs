//! Articles whose every change commits together with a durable event, and the relay that delivers it.

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod article;
#[cfg(feature = "cli")]
pub mod cli;
pub mod clock;
#[cfg(feature = "server")]
pub mod http;
pub mod lifecycle;
pub mod outbox;
pub mod queue;
pub mod service;
pub mod sinks;
pub mod storage;

pub use rusqlite;

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;
