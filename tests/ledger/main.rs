//! The inbox ledger: each handler once per event, whatever the broker, the clock and the processes do.

mod claims;
mod crash;
mod foreign_rows;
mod harness;
mod outcomes;
