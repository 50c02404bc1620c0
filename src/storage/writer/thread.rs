//! The queue-writer's thread: waits for work, writes it in groups, answers, wakes, checkpoints.

use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst, fence};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError};

use super::checkpoint::Checkpoints;
use super::connection::{Settings, Writable};
use super::health::Health;
use super::sleepers::Sleepers;
use super::task::{Ticket, Verdict};
use super::{GONE, Message, RUNNING, Shared, lock};
use crate::storage::Options;

/// Everything the thread owns. Field order is drop order: the group's callers are answered first, then the connection
/// is closed, then the inbox is emptied.
pub(super) struct Writer {
    pub(super) group: Vec<Member>,
    /// Was taken from the inbox but would have burst the group.
    pub(super) carried: Option<Ticket>,
    pub(super) connection: Option<Writable>,
    pub(super) settings: Settings,
    pub(super) caps: Caps,
    pub(super) busy_deadline: Duration,
    /// Callers that the last group answered.
    pub(super) answered: usize,
    /// How long a group waits for one of them that is not there yet.
    pub(super) patience: Duration,
    checkpoints: Checkpoints,
    pub(super) health: Health,
    pub(super) inbox: Inbox,
    /// Tells a waiting stop, by its end, that all of the above is gone.
    _alive: Sender<()>,
}

/// A task of the running group, and its answer once that is certain.
pub(super) struct Member {
    pub(super) ticket: Ticket,
    pub(super) verdict: Option<Verdict>,
    pub(super) taken: bool,
    /// Its last run failed.
    pub(super) erred: bool,
    /// Its last run changed rows.
    pub(super) wrote: bool,
}

/// What one transaction may hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Caps {
    pub(super) rows: usize,
    pub(super) bytes: usize,
}

/// The receiving end. However the thread ends, whoever still waits is answered.
pub(super) struct Inbox {
    pub(super) shared: Arc<Shared>,
    messages: Receiver<Message>,
}

impl Writer {
    pub(super) fn new(
        shared: Arc<Shared>,
        messages: Receiver<Message>,
        settings: Settings,
        connection: Writable,
        options: &Options,
        alive: Sender<()>,
    ) -> Self {
        Self {
            group: Vec::new(),
            carried: None,
            connection: Some(connection),
            settings,
            caps: Caps { rows: options.group_rows, bytes: options.group_bytes },
            busy_deadline: options.busy_deadline,
            answered: 0,
            patience: Duration::ZERO,
            checkpoints: Checkpoints::new(options),
            health: Health::default(),
            inbox: Inbox { shared, messages },
            _alive: alive,
        }
    }

    /// Works until a stop is asked for and everything accepted is answered.
    pub(super) fn run(mut self) {
        self.inbox.shared.id.mark_this_thread();
        while let Some(first) = self.next_task() {
            self.collect(first);
            let wake = self.write_group();
            if wake {
                self.inbox.shared.wake_subscribers();
            }
            if let Some(writable) = &self.connection {
                let pages = self.inbox.shared.counters.wal_pages.load(Relaxed);
                if self.checkpoints.is_due(pages) {
                    self.inbox.sleepers().wake_all();
                    let shared = &self.inbox.shared;
                    self.checkpoints.run(&writable.connection, pages, || shared.phase() != RUNNING);
                }
            }
        }
        self.inbox.sleepers().wake_all();
    }

    /// The next task to write; `None` when the writer is to end.
    fn next_task(&mut self) -> Option<Ticket> {
        if self.inbox.stop_is_overdue() {
            return None;
        }
        if let Some(carried) = self.carried.take() {
            return Some(carried);
        }
        self.inbox.next()
    }

    /// The first task and whatever else waits, up to the caps.
    fn collect(&mut self, first: Ticket) {
        self.group.clear();
        let mut room = self.caps;
        room.charge(&first);
        self.group.push(Member::new(first));
        while let Some(ticket) = self.next_fitting(&mut room) {
            self.group.push(Member::new(ticket));
        }
    }

    /// The next waiting task, if it still fits into the group; one that does not begins the next group.
    pub(super) fn next_fitting(&mut self, room: &mut Caps) -> Option<Ticket> {
        if !self.has_room(room) {
            return None;
        }
        let ticket = self.inbox.try_next()?;
        if ticket.rows > room.rows || ticket.bytes > room.bytes {
            self.carried = Some(ticket);
            return None;
        }
        room.charge(&ticket);
        Some(ticket)
    }

    pub(super) fn has_room(&self, room: &Caps) -> bool {
        self.carried.is_none() && room.rows > 0 && room.bytes > 0
    }

    /// What is left of the caps once the group is counted.
    pub(super) fn room(&self) -> Caps {
        let mut room = self.caps;
        self.group.iter().for_each(|member| room.charge(&member.ticket));
        room
    }
}

impl Member {
    pub(super) fn new(ticket: Ticket) -> Self {
        Self { ticket, verdict: None, taken: false, erred: false, wrote: false }
    }
}

impl Caps {
    fn charge(&mut self, ticket: &Ticket) {
        self.rows = self.rows.saturating_sub(ticket.rows);
        self.bytes = self.bytes.saturating_sub(ticket.bytes);
    }
}

impl Inbox {
    /// Waits for a task; `None` when a stop was asked for and nothing is left.
    fn next(&self) -> Option<Ticket> {
        loop {
            if !self.is_running() {
                return self.try_next();
            }
            let message = match self.messages.try_recv() {
                Err(TryRecvError::Empty) if self.sleepers().wake_one() => continue,
                Err(TryRecvError::Empty) => self.messages.recv().ok(),
                other => other.ok(),
            };
            match message {
                Some(Message::Task(ticket)) => return Some(ticket),
                Some(Message::Stop) => {}
                None => return None,
            }
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.shared.phase() == RUNNING
    }

    pub(super) fn sleepers(&self) -> &Sleepers {
        &self.shared.callers.sleepers
    }

    fn try_next(&self) -> Option<Ticket> {
        loop {
            match self.messages.try_recv() {
                Ok(Message::Task(ticket)) => return Some(ticket),
                Ok(Message::Stop) => {}
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return None,
            }
        }
    }

    /// A stop was asked for and its time is over: what is left is answered `Stopped`.
    pub(super) fn stop_is_overdue(&self) -> bool {
        !self.is_running() && lock(&self.shared.stop_by).is_some_and(|by| Instant::now() >= by)
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        self.shared.phase.store(GONE, SeqCst);
        fence(SeqCst);
        self.sleepers().wake_all();
        // Nothing is accepted any more, so this ends; each ticket answers its caller when it is dropped.
        while let Ok(message) = self.messages.try_recv() {
            drop(message);
        }
    }
}
