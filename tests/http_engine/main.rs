//! The HTTP engine over real sockets.
//!
//! A test that expects something to be cut gives it a short deadline and waits for the end of the connection; what must
//! succeed has ample ones. So none depends on speed.
#![cfg(feature = "server")]

mod basics;
mod framing;
mod limits;
mod stop;
mod support;
