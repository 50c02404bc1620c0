//! The relay from outside: real files, real threads, an injected clock.

mod delivery;
mod exceptions;
mod harness;
mod hostile;
mod operator;
mod outages;
mod ownership;
mod resilience;
mod retention;
