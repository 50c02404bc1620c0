//! A ledger on a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use vayu_articles::clock::ManualClock;
use vayu_articles::outbox::{
    DispatchError, Event, LEDGER_COMPONENT, Ledger, LedgerEntry, LedgerOptions, LedgerOutcome, NewEvent,
};
use vayu_articles::storage::{Database, Options};

pub const START: i64 = 1_790_000_000_000;
pub const LEASE_MS: i64 = 1_800_000;
pub const HANDLER: &str = "mail";

pub struct Desk {
    pub ledger: Ledger,
    pub database: Database,
    pub clock: Arc<ManualClock>,
    pub folder: TempDir,
}

impl Desk {
    pub fn new() -> Self {
        Self::with(LedgerOptions::default())
    }

    pub fn with(options: LedgerOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::new(START));
        let database = open(&folder, &clock);
        let ledger = Ledger::new(&database, options).unwrap();
        Self { ledger, database, clock, folder }
    }

    /// A second ledger on the same file, as another process would have it.
    pub fn another(&self) -> Ledger {
        let mut options = LedgerOptions::default();
        // In truth the other process's calls are not waited for; here they are in this one.
        options.turn_limit = Duration::from_millis(20);
        Ledger::new(&open(&self.folder, &self.clock), options).unwrap()
    }

    pub fn entry(&self, event_id: &str) -> LedgerEntry {
        let mut entries = self.ledger.show(event_id).unwrap();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries.remove(0)
    }

    pub fn sql(&self, text: &'static str) {
        self.database.writer().transact(move |tx| tx.execute(text, [])).unwrap();
    }

    /// Runs the event once; a run counts in `runs`.
    pub fn run(&self, event_id: &str, answer: Result<(), DispatchError>) -> (LedgerOutcome, u32) {
        run(&self.ledger, event_id, answer)
    }
}

pub fn open(folder: &TempDir, clock: &Arc<ManualClock>) -> Database {
    let mut options = Options::default();
    options.clock = Arc::<ManualClock>::clone(clock);
    Database::open(folder.path().join("worker.db"), &[LEDGER_COMPONENT], options).unwrap()
}

pub fn run(ledger: &Ledger, event_id: &str, answer: Result<(), DispatchError>) -> (LedgerOutcome, u32) {
    let mut runs = 0;
    let outcome = ledger.run_once(event_id, HANDLER, || {
        runs += 1;
        answer
    });
    (outcome.unwrap(), runs)
}

/// An event of `key` at a position of the log.
pub fn event(id: i64, key: &str) -> Event {
    let mut event = NewEvent::from_json("note.changed.v1", format!("{{\"n\":{id}}}")).key(key);
    event.event_id = format!("event-{id}");
    event.into_event(id)
}
