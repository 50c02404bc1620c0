//! The relay as a service of the manager: what a lane's thread that dies does to the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use vayu_articles::lifecycle::{Manager, ManagerOptions, ServiceState};
use vayu_articles::outbox::{self, DispatchError, Event, EventFilter, Handler, Relay};
use vayu_articles::rusqlite::Connection;
use vayu_articles::storage::{Database, Options};

/// Panics outside its calls, where only the lane's own thread is hit.
struct Broken {
    asked: Arc<AtomicUsize>,
    /// Which question it does not survive.
    question: &'static str,
}

impl Broken {
    fn answer<T>(&self, question: &str, answer: T) -> T {
        if question == self.question {
            self.asked.fetch_add(1, Ordering::SeqCst);
            panic!("{question} is broken");
        }
        answer
    }
}

impl Handler for Broken {
    fn handle(&self, _: &Event) -> Result<(), DispatchError> {
        Ok(())
    }

    fn filter(&self) -> EventFilter {
        self.answer("filter", EventFilter::All)
    }

    fn batch_limit(&self) -> usize {
        self.answer("batch_limit", 1)
    }
}

#[test]
fn case_c59_a_lane_that_dies_outside_its_calls_fails_the_relay_and_ends_the_program() {
    for question in ["filter", "batch_limit"] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("site.db");
        let database = Database::new(&path, &[outbox::COMPONENT], Options::default());
        let asked = Arc::new(AtomicUsize::new(0));
        let relay = Relay::builder(&database)
            .handler_fn("sound", |_: &Event| Ok(()))
            .handler("broken", Broken { asked: asked.clone(), question })
            .build()
            .unwrap();
        let mut manager = Manager::new(ManagerOptions::default());
        manager.register(database.storage_service()).unwrap();
        manager.register(database.writer_service()).unwrap();
        manager.register(relay).unwrap();
        // Whether the start notices it or the lane dies later: the program ends with a failure that names the relay.
        let outcome = match manager.start() {
            Ok(()) => {
                let cause = manager.wait();
                assert!(!manager.handle().is_ready());
                manager.stop(cause.to_string())
            }
            Err(error) => {
                assert!(error.to_string().contains("relay"), "{error}");
                manager.stop("the start failed")
            }
        };
        assert_eq!(asked.load(Ordering::SeqCst), 1, "{question}");
        assert_ne!(outcome.exit_code(), 0, "{outcome}");
        assert!(outcome.to_string().contains("relay"), "{outcome}");
        assert_eq!(manager.handle().status().service("relay").unwrap().state, ServiceState::Failed);
        let conn = Connection::open(&path).unwrap();
        let owned = "SELECT count(*) FROM lanes WHERE owner IS NOT NULL AND handler = 'sound'";
        assert_eq!(conn.query_row(owned, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "{question}");
    }
}
