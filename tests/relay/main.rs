//! The relay from outside: real files, real threads, an injected clock.

mod delivery;
mod exceptions;
mod harness;
mod operator;
mod outages;
mod ownership;
mod panics;
mod resilience;
mod retention;
mod threads;
