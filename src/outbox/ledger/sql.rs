//! Every SQL statement of the ledger, in one place. A test walks [`ALL`] with EXPLAIN QUERY PLAN.
//!
//! States are literals, written the way the partial indexes write them: a bound parameter cannot use such an index.

use crate::storage::statements;

statements! {
    HAS_LEDGER = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'processed_events')";
    HAS_LANES = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'lanes')";

    READ_ROW = "SELECT state, token, owner, started_at, attempts, crashes, replays, next_attempt_at, reason, history, \
        event FROM processed_events WHERE event_id = ?1 AND handler = ?2";
    /// An earlier event of the key that is not closed yet: since when it runs, or when it is due.
    OPEN_BELOW = "SELECT event_id, coalesce(next_attempt_at, started_at) FROM processed_events \
        INDEXED BY processed_events_open \
        WHERE handler = ?1 AND event_key = ?2 AND position < ?3 AND (state = 'in_progress' OR state = 'retry') \
        ORDER BY position LIMIT 1";
    /// The same with what was stored of it.
    EVENT_BELOW = "SELECT event, attempts, replays FROM processed_events INDEXED BY processed_events_open \
        WHERE handler = ?1 AND event_key = ?2 AND position < ?3 AND (state = 'in_progress' OR state = 'retry') \
        ORDER BY position LIMIT 1";
    /// A few claims at most: one for each thread that runs a handler, in each process.
    CLAIMS_OF_OWNER = "SELECT EXISTS (SELECT 1 FROM processed_events INDEXED BY processed_events_claims \
        WHERE state = 'in_progress' AND owner = ?1)";

    // --- a claim and its end ---------------------------------------------------------------------------------------
    NEW_CLAIM = "INSERT INTO processed_events (event_id, handler, state, token, owner, started_at, event_key, position, \
        event, created_at, updated_at) VALUES (?1, ?2, 'in_progress', ?3, ?4, ?5, ?6, ?7, ?8, ?5, ?5)";
    /// The stored event stands if there is one: an operator may have edited it.
    CLAIM_AGAIN = "UPDATE processed_events SET state = 'in_progress', token = ?3, owner = ?4, started_at = ?5, \
        next_attempt_at = NULL, crashes = ?6, history = ?7, event = coalesce(event, ?8), updated_at = ?5 \
        WHERE event_id = ?1 AND handler = ?2";
    /// The clock was set back since the claim: its age counts from now, at worst.
    REBASE_CLAIM = "UPDATE processed_events SET started_at = ?3 WHERE event_id = ?1 AND handler = ?2";
    FINISH = "UPDATE processed_events SET state = 'done', token = NULL, owner = NULL, started_at = NULL, \
        next_attempt_at = NULL, crashes = 0, event = NULL, history = ?3, processed_at = ?4, updated_at = ?4 \
        WHERE event_id = ?1 AND handler = ?2";
    RELEASE = "UPDATE processed_events SET state = 'retry', token = NULL, owner = NULL, started_at = NULL, \
        next_attempt_at = ?3, attempts = ?4, crashes = ?5, reason = ?6, history = ?7, updated_at = ?8 \
        WHERE event_id = ?1 AND handler = ?2";
    GIVE_UP = "UPDATE processed_events SET state = 'dead_letter', token = NULL, owner = NULL, started_at = NULL, \
        next_attempt_at = NULL, attempts = ?3, crashes = ?4, reason = ?5, history = ?6, \
        event = coalesce(event, ?8), processed_at = ?7, updated_at = ?7 WHERE event_id = ?1 AND handler = ?2";
    /// Nothing was spent on it and nobody asked for it: it says no more than that it was begun.
    UNSPENT = "SELECT EXISTS (SELECT 1 FROM processed_events WHERE event_id = ?1 AND handler = ?2 AND state = 'retry' \
        AND attempts = 0 AND crashes = 0 AND replays = 0 AND history = '[]')";
    FORGET = "DELETE FROM processed_events WHERE event_id = ?1 AND handler = ?2";
    /// Asked first: the update sets up a temporary table even when there is nothing to update.
    DEAD_BELOW = "SELECT EXISTS (SELECT 1 FROM processed_events INDEXED BY processed_events_fresh_dead \
        WHERE handler = ?1 AND event_key = ?2 AND position < ?3 AND state = 'dead_letter' AND superseded_by IS NULL)";
    SUPERSEDE_DEAD = "UPDATE processed_events INDEXED BY processed_events_fresh_dead SET superseded_by = ?3, \
        updated_at = ?4 WHERE handler = ?1 AND event_key = ?2 AND position < ?3 \
        AND state = 'dead_letter' AND superseded_by IS NULL";

    // --- what nobody will bring again ------------------------------------------------------------------------------
    /// Due, or due further ahead than any backoff (the clock was set back); only those that were replayed, or whose time
    /// was long ago.
    DUE = "SELECT event, attempts, replays FROM processed_events INDEXED BY processed_events_due \
        WHERE handler = ?1 AND state = 'retry' AND next_attempt_at <= ?2 AND event IS NOT NULL \
        AND (replays > 0 OR next_attempt_at <= ?3) ORDER BY next_attempt_at, event_id LIMIT ?4";
    STRANDED = "SELECT event, attempts, replays FROM processed_events INDEXED BY processed_events_due \
        WHERE handler = ?1 AND state = 'retry' AND next_attempt_at > ?2 AND event IS NOT NULL \
        ORDER BY next_attempt_at, event_id LIMIT ?3";
    ABANDONED = "SELECT event, attempts, replays FROM processed_events INDEXED BY processed_events_claims \
        WHERE handler = ?1 AND state = 'in_progress' AND started_at <= ?2 AND event IS NOT NULL \
        ORDER BY started_at, event_id LIMIT ?3";

    // --- retention -------------------------------------------------------------------------------------------------
    OVER = "SELECT event_id, handler FROM processed_events INDEXED BY processed_events_over \
        WHERE (state = 'done' OR state = 'discarded') AND processed_at < ?1 \
        ORDER BY processed_at, event_id, handler LIMIT ?2";

    // --- the operator ----------------------------------------------------------------------------------------------
    LIST_OF_HANDLER = "SELECT event_id, handler, state, owner, started_at, attempts, crashes, replays, next_attempt_at, \
        processed_at, event_key, position, event, superseded_by, reason, history, created_at, updated_at \
        FROM processed_events WHERE state = ?1 AND state <> 'done' AND handler = ?2 AND event_id > ?3 \
        ORDER BY event_id LIMIT ?4";
    LIST_ALL = "SELECT event_id, handler, state, owner, started_at, attempts, crashes, replays, next_attempt_at, \
        processed_at, event_key, position, event, superseded_by, reason, history, created_at, updated_at \
        FROM processed_events WHERE state = ?1 AND state <> 'done' AND (handler, event_id) > (?2, ?3) \
        ORDER BY handler, event_id LIMIT ?4";
    /// From one handler to the next, whatever the number of its entries.
    NEXT_HANDLER = "SELECT handler FROM processed_events INDEXED BY processed_events_listed \
        WHERE state = ?1 AND state <> 'done' AND handler > ?2 ORDER BY handler LIMIT 1";
    LAST_CLOSED = "SELECT handler FROM processed_events INDEXED BY processed_events_over \
        WHERE (state = 'done' OR state = 'discarded') ORDER BY processed_at DESC LIMIT ?1";
    ENTRIES_OF_EVENT = "SELECT event_id, handler, state, owner, started_at, attempts, crashes, replays, next_attempt_at, \
        processed_at, event_key, position, event, superseded_by, reason, history, created_at, updated_at \
        FROM processed_events WHERE event_id = ?1 ORDER BY handler LIMIT ?2";
    CHECK_ROWS = "SELECT event_id, handler, event_key, position, event FROM processed_events \
        WHERE state = ?1 AND state <> 'done' AND (handler, event_id) > (?2, ?3) ORDER BY handler, event_id LIMIT ?4";
    READ_DEAD = "SELECT state, replays, superseded_by, reason, history, event FROM processed_events \
        WHERE event_id = ?1 AND handler = ?2";
    REPLAY_ROW = "UPDATE processed_events SET state = 'retry', next_attempt_at = ?3, crashes = ?4, history = ?5, \
        attempts = 0, replays = replays + 1, processed_at = NULL, superseded_by = NULL, updated_at = ?3 \
        WHERE event_id = ?1 AND handler = ?2";
    SET_EVENT = "UPDATE processed_events SET event = ?3 WHERE event_id = ?1 AND handler = ?2";
    DISCARD_ROW = "UPDATE processed_events SET state = 'discarded', token = NULL, owner = NULL, started_at = NULL, \
        next_attempt_at = NULL, reason = ?3, history = ?4, processed_at = ?5, updated_at = ?5 \
        WHERE event_id = ?1 AND handler = ?2";
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// Read as a whole on purpose: the schema, and the few claims there are.
    const SMALL_SCANS: [&str; 3] =
        ["sqlite_schema", "CONSTANT ROW", "processed_events USING INDEX processed_events_claims"];

    #[test]
    fn case_c48_every_statement_of_the_ledger_uses_an_index_or_a_range_of_the_primary_key() {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        for migration in super::super::COMPONENT.migrations {
            connection.execute_batch(migration).unwrap();
        }
        for (name, text) in ALL {
            let plan = crate::storage::plan_of(&connection, text);
            for step in &plan {
                assert!(!step.contains("TEMP B-TREE"), "{name}: {plan:#?}");
                let scans = step.strip_prefix("SCAN ");
                let whole = scans.is_some_and(|what| !SMALL_SCANS.iter().any(|allowed| what.starts_with(allowed)));
                // An INDEXED BY that only walks its partial index in order is a range of its own.
                let walks_partial = scans.is_some_and(|what| what.contains("processed_events_over"));
                assert!(!whole || walks_partial, "{name}: {plan:#?}");
            }
        }
    }
}
