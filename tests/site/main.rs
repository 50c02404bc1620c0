//! The whole site over real sockets: API, pages, search and health, with the relay and its sinks behind them.
#![cfg(feature = "server")]

mod api;
mod harness;
mod pages;
