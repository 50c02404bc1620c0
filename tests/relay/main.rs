//! The relay from outside: real files, real threads, an injected clock.

mod crowd;
mod delivery;
mod exceptions;
mod harness;
mod holds;
mod hostile;
mod operator;
mod operator_check;
mod operator_lanes;
mod operator_list;
mod operator_races;
mod operator_resend;
mod outages;
mod ownership;
mod panics;
mod resilience;
mod retention;
mod signs;
mod strays;
mod threads;
mod threads_acts;
mod threads_moves;
mod threads_takeover;
