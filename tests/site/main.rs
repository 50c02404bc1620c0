//! The whole site over real sockets: API, pages, search and health, with the relay and its sinks behind them.
#![cfg(feature = "server")]

mod access;
mod admin;
mod admin_page;
mod api;
#[path = "../article_support/mod.rs"]
mod article_support;
mod browser;
mod described;
mod edge;
mod feeds;
mod harness;
mod health;
mod hostile;
mod jobs;
mod markup;
mod metrics;
mod pages;
mod pressure;
#[path = "../recorder/mod.rs"]
mod recorder;
mod retries;
mod storm;
#[path = "../waiting/mod.rs"]
mod waiting;
