//! A group must look as if each task had run in a transaction of its own, in order. Random groups of well and badly
//! behaved tasks, which see and depend on each other's rows, are compared with a model that does just that.

mod storage_support;

use std::collections::BTreeSet;

use proptest::prelude::*;
use rusqlite::Transaction;
use storage_support::{Held, Scratch, close, insert};
use vayu_articles::storage::{Component, Database, Options, Pending, TaskOptions, TransactError};

/// An id that is used again would make up, within a group, for a link that an earlier task left dangling: a constraint
/// that is checked at COMMIT is checked for the group as a whole.
const TABLES: Component = Component {
    name: "model",
    migrations: &["CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, text TEXT NOT NULL UNIQUE) STRICT;
         CREATE TABLE links (note INTEGER NOT NULL REFERENCES notes(id) DEFERRABLE INITIALLY DEFERRED) STRICT;
         CREATE TRIGGER notes_ban BEFORE INSERT ON notes WHEN NEW.text = 'banned'
           BEGIN SELECT RAISE(ROLLBACK, 'banned'); END"],
};

#[derive(Debug, Clone, Copy)]
enum Act {
    Insert(u8),
    /// Writes a row of its own, then inserts: a conflict comes after a write.
    InsertLate(u8),
    Delete(u8),
    /// A row that refers to a note, or to nothing: only COMMIT tells.
    Link(u8),
    FailLate,
    /// Panics over a row that refers to nothing: such a row is never committed, so there is none.
    PanicOverDangling,
    Panic,
    PanicLate,
    /// A trigger ends the transaction.
    Ban,
    /// The same, but the task says that all is well.
    BanQuietly,
    Commit,
}

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Applied,
    Task,
    Panicked,
    Refused,
}

fn act() -> impl Strategy<Value = Act> {
    let key = 0..5_u8;
    prop_oneof![
        6 => key.clone().prop_map(Act::Insert),
        3 => key.clone().prop_map(Act::InsertLate),
        3 => key.clone().prop_map(Act::Delete),
        2 => key.prop_map(Act::Link),
        1 => Just(Act::FailLate),
        1 => Just(Act::PanicOverDangling),
        1 => Just(Act::Panic),
        1 => Just(Act::PanicLate),
        1 => Just(Act::Ban),
        1 => Just(Act::BanQuietly),
        1 => Just(Act::Commit),
    ]
}

const LINK: &str = "INSERT INTO links (note) VALUES (coalesce((SELECT id FROM notes WHERE text = ?1), 1000000))";

const DANGLING: &str = "SELECT EXISTS (SELECT 1 FROM links WHERE note = 1000000)";

fn run(tx: &Transaction<'_>, act: Act, index: usize) -> rusqlite::Result<()> {
    let mark = |tx: &Transaction<'_>| insert(tx, &format!("mark {index}"));
    match act {
        Act::Insert(key) => insert(tx, &key.to_string()).map(drop),
        Act::InsertLate(key) => mark(tx).and_then(|_| insert(tx, &key.to_string())).map(drop),
        Act::Delete(key) => tx.execute("DELETE FROM notes WHERE text = ?1", [key.to_string()]).map(drop),
        Act::Link(key) => tx.execute(LINK, [key.to_string()]).map(drop),
        Act::FailLate => mark(tx).and(Err(rusqlite::Error::QueryReturnedNoRows)),
        Act::PanicOverDangling => {
            let dangling: bool = tx.query_row(DANGLING, [], |row| row.get(0))?;
            assert!(!dangling, "on purpose, over a row that will not be committed");
            Ok(())
        }
        Act::Panic => panic!("on purpose"),
        Act::PanicLate => {
            mark(tx)?;
            panic!("on purpose, late")
        }
        Act::Ban => insert(tx, "banned").map(drop),
        Act::BanQuietly => {
            mark(tx)?;
            let _ = insert(tx, "banned");
            Ok(())
        }
        Act::Commit => mark(tx).and_then(|_| tx.execute_batch("COMMIT")),
    }
}

#[derive(Default)]
struct Model {
    texts: BTreeSet<String>,
    linked: BTreeSet<String>,
}

impl Model {
    fn run(&mut self, act: Act, index: usize) -> Outcome {
        match act {
            Act::Insert(key) => self.insert(key.to_string()),
            Act::InsertLate(key) => {
                let outcome = self.insert(key.to_string());
                if outcome == Outcome::Applied {
                    self.texts.insert(format!("mark {index}"));
                }
                outcome
            }
            Act::Delete(key) if self.linked.contains(&key.to_string()) => Outcome::Refused,
            Act::Delete(key) => {
                self.texts.remove(&key.to_string());
                Outcome::Applied
            }
            Act::Link(key) if self.texts.contains(&key.to_string()) => {
                self.linked.insert(key.to_string());
                Outcome::Applied
            }
            Act::Link(_) | Act::Ban | Act::BanQuietly | Act::Commit => Outcome::Refused,
            Act::PanicOverDangling => Outcome::Applied,
            Act::FailLate => Outcome::Task,
            Act::Panic | Act::PanicLate => Outcome::Panicked,
        }
    }

    fn insert(&mut self, text: String) -> Outcome {
        if self.texts.insert(text) { Outcome::Applied } else { Outcome::Task }
    }
}

fn outcome(pending: Pending<(), rusqlite::Error>) -> Outcome {
    match pending.wait() {
        Ok(()) => Outcome::Applied,
        Err(TransactError::Task(_)) => Outcome::Task,
        Err(TransactError::Panicked(_)) => Outcome::Panicked,
        Err(TransactError::Refused(_)) => Outcome::Refused,
        Err(other) => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_group_is_as_good_as_a_transaction_for_each(
        acts in prop::collection::vec(act(), 1..40),
        group_rows in 2..50_usize,
    ) {
        let scratch = Scratch::new();
        let mut options = Options::default();
        options.group_rows = group_rows;
        let database = Database::open(&scratch.path, &[TABLES], options).unwrap();
        let writer = database.writer();
        let held = Held::new(writer);
        let submit = |(index, act): (usize, &Act)| {
            let act = *act;
            writer.submit(TaskOptions::default(), move |tx| run(tx, act, index)).unwrap()
        };
        let pending: Vec<_> = acts.iter().enumerate().map(submit).collect();
        held.release();
        let outcomes: Vec<_> = pending.into_iter().map(outcome).collect();

        let mut model = Model::default();
        let expected: Vec<_> = acts.iter().enumerate().map(|(index, act)| model.run(*act, index)).collect();
        prop_assert_eq!(outcomes, expected);
        prop_assert_eq!(scratch.texts().into_iter().collect::<BTreeSet<_>>(), model.texts);
        close(&database);
    }
}
