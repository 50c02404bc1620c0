//! Jobs, modes and scheduled publishing from outside.

mod foreign;
mod freeze;
mod harness;
mod journal;
mod line;
mod model;
mod schedule;
#[path = "../waiting/mod.rs"]
mod waiting;
