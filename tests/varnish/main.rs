//! A real Varnish with the repository's own VCL in front of the server: no page that a reader gets is stale once the relay
//! has delivered. Without Varnish these tests are skipped, unless `REQUIRE_SERVICES=1`.
#![cfg(all(feature = "server", feature = "cli"))]

mod changes;
mod harness;
mod outage;
mod program;
mod race;
mod rules;
#[path = "../serve_support/mod.rs"]
mod serve_support;
mod storm;
