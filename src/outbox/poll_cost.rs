//! What a poll costs behind a long history, in steps of SQLite's machine: a measure that no load disturbs.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, StatementStatus};

use super::lane::read_due;
use super::log::{BatchLimits, Matcher, read_log};
use super::operator::{Filter, dead_letter_page};
use super::standing::Questions;
use super::{EventFilter, sql};

/// Live rows, alike in both databases: events ahead of the cursor, due exceptions, dead letters on the page.
const LIVE: i64 = 100;

/// A database with `delivered` events behind the cursor, dead letters and rows that wait behind one failed
/// key, and the live rows after them. Filled without the triggers, which ask something of each row.
fn database(delivered: i64, dead: i64, waiting: i64) -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    // As every connection of a database is opened.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).unwrap();
    connection.set_prepared_statement_cache_capacity(256);
    for migration in super::COMPONENT.migrations {
        connection.execute_batch(migration).unwrap();
    }
    let fill = format!(
        "DROP TRIGGER event_outbox_ids;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {all})
         INSERT INTO event_outbox (id, event_id, event_type, event_key, payload, occurred_at)
         SELECT i, i, 't',
             -- The live ones lie between the keys of the dead letters, where most has to be asked of them.
             iif(i > {delivered}, 'dead' || ((i - {delivered}) * {dead} / {LIVE}) || '-live', 'k' || i), '{{}}', i FROM n;
         INSERT INTO lanes (handler, event_types, on_dead_letter, cursor) VALUES ('h', '[\"*\"]', 'continue', {delivered});
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {dead})
         INSERT INTO deliveries (outbox_id, handler, event_key, state, created_at, updated_at)
         SELECT i, 'h', 'dead' || i, 'dead_letter', 0, 0 FROM n;
         WITH RECURSIVE n(i) AS (SELECT {dead} + 1 UNION ALL SELECT i + 1 FROM n WHERE i < {dead} + {waiting})
         INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at)
         SELECT i, 'h', 'one', iif(i = {dead} + 1, 'retry', 'waiting'), iif(i = {dead} + 1, 5000, NULL), 0, 0 FROM n;
         WITH RECURSIVE n(i) AS (SELECT {delivered} - {LIVE} + 1 UNION ALL SELECT i + 1 FROM n WHERE i < {delivered})
         INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at)
         SELECT i, 'h', 'due' || i, 'retry', 0, 0, 0 FROM n;",
        all = delivered + LIVE,
    );
    connection.execute_batch(&fill).unwrap();
    connection
}

/// Steps that the statement took since the last look; it was never compiled anew.
fn steps(connection: &Connection, text: &str) -> i64 {
    let statement = connection.prepare_cached(text).unwrap();
    assert_eq!(statement.get_status(StatementStatus::RePrepare), 0, "{text}");
    i64::from(statement.reset_status(StatementStatus::VmStep))
}

/// Runs a statement to its end.
fn run(connection: &Connection, text: &str, parameters: impl rusqlite::Params) -> i64 {
    let mut statement = connection.prepare_cached(text).unwrap();
    let mut rows = statement.query(parameters).unwrap();
    while rows.next().unwrap().is_some() {}
    drop(rows);
    drop(statement);
    steps(connection, text)
}

/// Steps of all statements that reading a batch takes, with what is asked of its rows.
fn batch_with_answers(connection: &Connection, cursor: i64) -> i64 {
    let mut matcher = Matcher::new(EventFilter::All);
    let limits = BatchLimits { rows: LIVE as usize, bytes: 8 << 20 };
    let of_all = || sql::ALL.iter().map(|(_, text)| steps(connection, text)).sum::<i64>();
    of_all();
    let ask = Questions::worth_asking(connection, "h", cursor).unwrap();
    let rows = read_log(connection, &mut matcher, cursor, limits, ("h", ask)).unwrap();
    assert_eq!(rows.len(), LIVE as usize);
    assert!(rows.iter().all(|row| !row.blocked && !row.dead_below), "they are live");
    of_all()
}

/// A poll, a batch, a claim of what is due, a page of dead letters, and what an operator asks of one key.
fn costs(connection: &Connection, cursor: i64) -> Vec<(&'static str, i64)> {
    let far = 1_000_000;
    let page = || dead_letter_page(connection, &Filter::default().of_handler("h"), LIVE as usize).unwrap();
    page();
    let list = steps(connection, sql::LIST);
    vec![
        ("poll: lane", run(connection, sql::READ_LANE, ["h"])),
        ("poll: next", run(connection, sql::NEXT_ID, [cursor])),
        ("poll: questions", run(connection, sql::HAS_EXCEPTIONS, ("h", cursor))),
        ("batch", run(connection, sql::READ_LOG, (cursor, LIVE, 1_000))),
        ("batch with what is asked of it", batch_with_answers(connection, cursor)),
        ("due", run(connection, sql::READ_DUE, ("h", 1_000, LIVE, cursor))),
        ("stranded", run(connection, sql::READ_STRANDED, ("h", far, LIVE, cursor))),
        ("suspects", run(connection, sql::READ_CRASHED, ("h", LIVE, cursor))),
        ("a row to run", run(connection, sql::READ_EXCEPTION_TO_RUN, (cursor, "h", 1_000))),
        ("dead letters", list),
        ("head of a key", run(connection, sql::LOWEST_OPEN, ("h", "one"))),
        ("one of a key", run(connection, sql::LIST_OF_KEY, ("h", 0, "dead1"))),
    ]
}

#[test]
fn case_c48_a_poll_and_a_page_cost_the_same_behind_a_million_events() {
    let alone = costs(&database(1_000, LIVE, 1), 1_000);
    let behind = costs(&database(1_000_000, 10_000, 100_000), 1_000_000);
    for ((what, alone), (_, behind)) in alone.into_iter().zip(behind) {
        assert!(alone > 0 && behind <= 2 * alone, "{what}: {behind} steps behind a history, {alone} without");
    }
}

/// Steps of all statements with which a lane at the begin of its log finds what is due, while so many due rows lie beyond
/// its position, and how many it finds.
fn due_of_a_rewound_lane(beyond: i64) -> (i64, usize) {
    let connection = database(1_000, 1, 1);
    let rows = format!(
        "DELETE FROM deliveries;
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {LIVE} + {beyond})
         INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, updated_at)
         SELECT iif(i <= {LIVE}, i, i + 1000), 'h', 'due' || i, 'retry', iif(i % 2, 0, 5000), 0, 0 FROM n;"
    );
    connection.execute_batch(&rows).unwrap();
    let all_steps = || sql::ALL.iter().map(|(_, text)| steps(&connection, text)).sum::<i64>();
    let look = || read_due(&connection, "h", (1_000, 1_000_000), (LIVE, 1_000 + beyond), 8 << 20, |_| true).unwrap();
    look();
    all_steps();
    let found = look().len();
    (all_steps(), found)
}

#[test]
fn case_c48_a_lane_that_was_rewound_does_not_walk_what_is_due_beyond_it() {
    let (few, found_among_few) = due_of_a_rewound_lane(100);
    let (many, found_among_many) = due_of_a_rewound_lane(100_000);
    assert_eq!((found_among_few, found_among_many), (LIVE as usize / 2, LIVE as usize / 2));
    assert!(many <= few + 100, "{many} steps with 100,000 due rows beyond, {few} with 100");
}
