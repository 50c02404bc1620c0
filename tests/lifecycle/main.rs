//! The lifecycle manager: order, deadlines, failures, and that nothing is left running.
//!
//! No test depends on speed: what must succeed has half a minute, what must overrun never returns before it has.

mod logs;
mod model;
mod order;
#[path = "../recorder/mod.rs"]
mod recorder;
mod start;
mod stop;
mod support;
mod threads;
