//! Threads whose unexpected end is noticed.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::report::Fault;
use super::shared::Shared;

/// Spawns named threads whose unexpected end (a return or a panic while the service runs) is reported to the manager.
#[derive(Debug, Clone)]
pub struct Spawner {
    service: Arc<str>,
    link: Option<Link>,
}

/// The service's place at its manager.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
}

impl Spawner {
    pub(super) fn managed(service: Arc<str>, shared: Arc<Shared>, index: usize) -> Self {
        Self { service, link: Some(Link { shared, index }) }
    }

    pub(super) fn link(&self) -> Option<&Link> {
        self.link.as_ref()
    }

    /// Whether a manager hears of threads that end.
    pub(crate) fn is_managed(&self) -> bool {
        self.link.is_some()
    }

    /// A spawner without a manager, for a component used alone: an ending thread is only logged, at level error when it
    /// panicked.
    pub fn standalone(service: &str) -> Self {
        Self { service: service.into(), link: None }
    }

    /// Spawns a named thread. It may return once its service is being stopped; before that its return makes the service
    /// Failed (a return during the start does so when the start succeeds). A panic always does, with the thread's name
    /// and the panic's text as the reason, and is also what joining the handle gives.
    ///
    /// # Errors
    /// The system has no thread left to give.
    pub fn spawn<F>(&self, thread: &str, f: F) -> io::Result<JoinHandle<()>>
    where
        F: FnOnce() + Send + 'static,
    {
        let ticket = self.link.as_ref().map(|link| link.shared.thread_begins(link.index, thread));
        let (spawner, name) = (self.clone(), thread.to_owned());
        let spawned = spawn_thread(thread.to_owned(), move || {
            let end = catch_unwind(AssertUnwindSafe(f));
            let panic = end.as_ref().err().map(|payload| panic_text(&**payload));
            spawner.thread_ended(ticket, name, panic);
            if let Err(payload) = end {
                resume_unwind(payload);
            }
        });
        if let (Err(_), Some(link), Some(ticket)) = (&spawned, &self.link, ticket) {
            link.shared.thread_not_begun(link.index, ticket);
        }
        spawned
    }

    /// Makes the service Failed for `reason` while its threads go on, as if one of them had died: the program is brought
    /// down in order. Without a manager the reason is logged.
    pub fn fail(&self, reason: &str) {
        match &self.link {
            Some(link) => link.shared.reported(link.index, reason),
            None => log::error!("service={} phase=failed reason={reason:?}", self.service),
        }
    }

    fn thread_ended(&self, ticket: Option<u64>, thread: String, panic: Option<String>) {
        if let Some(text) = &panic {
            log::error!("service={} thread={thread} panic={text:?}", self.service);
        } else {
            log::debug!("service={} thread={thread} returned", self.service);
        }
        if let (Some(link), Some(ticket)) = (&self.link, ticket) {
            let fault = match panic {
                Some(text) => Fault::ThreadPanicked { thread, text },
                None => Fault::ThreadReturned { thread },
            };
            link.shared.thread_ended(link.index, ticket, fault);
        }
    }
}

/// What a caught panic said.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without text".to_owned())
}

/// Spawns a named thread that no manager watches.
///
/// # Errors
/// The system has no thread left to give; the error says which one it would have been, and what limits them.
pub(crate) fn spawn_thread<T: Send + 'static>(
    name: String,
    f: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.clone()).spawn(f).map_err(|error| {
        let reason = format!(
            "the thread {name} cannot be started: {error}; raise what limits the program's threads and memory (ulimit -u and -v, \
             TasksMax and MemoryMax of its unit), or set fewer threads"
        );
        io::Error::new(error.kind(), reason)
    })
}
