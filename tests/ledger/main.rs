//! The inbox ledger: each handler once per event, whatever the broker, the clock and the processes do.

mod claims;
mod harness;
mod outcomes;
