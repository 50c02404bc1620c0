//! What the service manager is told: that the program is ready, that it stops, and that it is alive.
//!
//! Without `NOTIFY_SOCKET` in the environment, which systemd sets for `Type=notify`, all of this does nothing.

use std::thread::JoinHandle;

use crossbeam_channel::{RecvTimeoutError, Sender};
use sd_notify::NotifyState;

use crate::lifecycle::{Handle, spawn_thread};

/// Tells the service manager; ends with the program's stop.
#[derive(Debug, Default)]
pub(super) struct Notifier {
    /// Dropped first, which ends the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Notifier {
    /// Says that everything has started and, where a watchdog is asked for, goes on saying so while the manager
    /// answers. A service that fails ends the program by itself.
    pub(super) fn ready(handle: Handle, address: &str) -> Self {
        tell(&[NotifyState::Ready, NotifyState::Status(&format!("serves {address}"))]);
        let Some(limit) = sd_notify::watchdog_enabled() else { return Self::default() };
        let (stop, stopped) = crossbeam_channel::bounded::<()>(0);
        let every = limit / 2;
        let watch = move || {
            while matches!(stopped.recv_timeout(every), Err(RecvTimeoutError::Timeout)) {
                // Whoever holds the manager's lock for ever keeps this from going on, and the watchdog barks.
                let _ = handle.status();
                tell(&[NotifyState::Watchdog]);
            }
        };
        match spawn_thread("watchdog".to_owned(), watch) {
            Ok(thread) => Self { stop: Some(stop), thread: Some(thread) },
            Err(error) => {
                log::error!("event=watchdog the service manager will hear no sign of life: {error}");
                Self::default()
            }
        }
    }

    /// Says that the stop has begun.
    pub(super) fn stopping(&self, cause: &str) {
        tell(&[NotifyState::Stopping, NotifyState::Status(&format!("stops: {cause}"))]);
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // It only waits and sends; a panic in it has nothing to tell here.
            let _ = thread.join();
        }
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        log::warn!("event=notify the service manager cannot be told: {error}");
    }
}
