//! Ordered start and reversed stop of named services, each bounded in time.
//!
//! A [`Manager`] starts its services in the order of their registration and stops them in reverse. Every hook runs on a
//! thread of its own, so that one that never returns is cut by its deadline, named, and left behind while the others
//! are still stopped. A failed start stops what was started and returns the original error. A thread spawned through a
//! [`Spawner`] that ends while its service runs makes the service [`Failed`](ServiceState::Failed) and brings the rest
//! down in order. Panics in hooks and threads are errors like any other; the first error wins.
//!
//! ```
//! use std::time::Instant;
//! use vayu_articles::lifecycle::{BoxError, Manager, ManagerOptions, Service, StartContext};
//!
//! struct Greeter;
//! impl Service for Greeter {
//!     fn name(&self) -> &str {
//!         "greeter"
//!     }
//!     fn start(&self, _ctx: &StartContext) -> Result<(), BoxError> {
//!         Ok(())
//!     }
//!     fn stop(&self, _deadline: Instant) -> Result<(), BoxError> {
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut manager = Manager::new(ManagerOptions::default());
//! manager.register(Greeter)?;
//! manager.start()?;
//! assert!(manager.handle().is_ready());
//! assert_eq!(manager.stop("end of the example").exit_code(), 0);
//! # Ok(())
//! # }
//! ```

mod drive;
mod handle;
mod manager;
mod report;
mod service;
mod shared;
mod spawner;

pub use handle::{Handle, SIGNAL_ECHO, SIGNAL_EXIT_CODE, ServiceState, ServiceStatus, SignalReply, Status};
pub use manager::{Manager, ManagerOptions, ServiceOptions};
pub use report::{Cause, Failure, Fault, HookKind, Outcome, RegisterError, StartError};
pub use service::{BoxError, Interrupted, Service, StartContext};
pub use spawner::Spawner;
pub(crate) use spawner::{panic_text, spawn_thread};
