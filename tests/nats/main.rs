//! The NATS sink, the worker and their command line against a real broker, which the tests start, kill and start again.
//!
//! They are skipped, and say so, where there is no `nats-server`, unless `REQUIRE_SERVICES=1`.
#![cfg(feature = "nats")]

mod adoption;
mod at_once;
#[cfg(all(unix, feature = "server", feature = "cli"))]
mod cli;
mod deletion;
mod fixtures;
mod foreign;
mod login;
mod order;
mod origin;
mod outage;
mod sink;
mod support;
#[path = "../waiting/mod.rs"]
mod waiting;
mod worker;
mod worker_outage;
