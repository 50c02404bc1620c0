//! Every SQL statement of the outbox, in one place. A test walks [`ALL`] with EXPLAIN QUERY PLAN.
//!
//! States are literals, since a bound parameter cannot use a partial index; the list of the open states is always
//! written the way the index `deliveries_open` writes it, for the same reason. `INDEXED BY` stands where SQLite would
//! otherwise take `deliveries_state` and walk every row of a state for each event.

use crate::storage::statements;

/// What the operator sees of an exception.
macro_rules! exception_columns {
    () => {
        "outbox_id, handler, event_key, state, attempts, crashes, replays, next_attempt_at, superseded_by, reason, \
         history, created_at, updated_at, payload IS NOT NULL, \
         (SELECT event_type FROM event_outbox WHERE id = outbox_id)"
    };
}

/// A row that is to be run, with its event.
macro_rules! exception_to_run {
    () => {
        "e.id, e.event_id, e.event_type, e.event_key, \
         CASE WHEN d.payload IS NOT NULL THEN d.payload WHEN octet_length(e.payload) <= ?3 THEN e.payload END, \
         e.correlation_id, e.causation_id, e.occurred_at, \
         d.event_key, d.state, d.attempts, d.crashes, d.replays, d.superseded_by, d.payload, \
         instr(d.history, '\"what\":\"forced replay\"') > 0, d.outbox_id"
    };
}

/// A handler's exceptions in one state, after a log position.
macro_rules! in_state {
    ($state:literal) => {
        concat!(" FROM deliveries WHERE state = '", $state, "' AND handler = ?1 AND outbox_id > ?2")
    };
}

statements! {
    INSERT_EVENT = "INSERT INTO event_outbox \
        (event_id, event_type, event_key, payload, correlation_id, causation_id, occurred_at) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, coalesce(?7, CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)))";

    HAS_OUTBOX = "SELECT count(*) = 3 FROM sqlite_schema \
        WHERE type = 'table' AND name IN ('event_outbox', 'lanes', 'deliveries')";

    // --- reading the log -------------------------------------------------------------------------------------------
    /// What has to be asked of log rows: has anybody a row beyond the position, has the handler an open row, has it a
    /// dead letter that nothing supersedes. A lane that has failed nothing asks nothing.
    HAS_EXCEPTIONS = "SELECT EXISTS (SELECT 1 FROM deliveries WHERE outbox_id > ?2), \
        EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_open \
            WHERE handler = ?1 AND (state = 'retry' OR state = 'waiting' OR state = 'parked')), \
        EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_fresh_dead \
            WHERE handler = ?1 AND state = 'dead_letter' AND superseded_by IS NULL)";
    /// The log after a position. Too large a payload is not loaded.
    READ_LOG = "SELECT id, event_id, event_type, event_key, \
        CASE WHEN octet_length(payload) <= ?3 THEN payload END, correlation_id, causation_id, occurred_at \
        FROM event_outbox WHERE id > ?1 ORDER BY id LIMIT ?2";
    /// A stretch of the log without what is long.
    READ_PLACES = "SELECT id, event_type, event_key FROM event_outbox WHERE id > ?1 ORDER BY id LIMIT ?2";
    /// A handler's rows among a stretch of the log.
    OWN_ROWS = "SELECT outbox_id FROM deliveries WHERE outbox_id >= ?1 AND outbox_id <= ?2 AND handler = ?3";
    /// The first key from here on that has an open row, with the lowest of them.
    NEXT_OPEN_KEY = "SELECT event_key, outbox_id FROM deliveries INDEXED BY deliveries_open \
        WHERE handler = ?1 AND event_key >= ?2 AND (state = 'retry' OR state = 'waiting' OR state = 'parked') \
        ORDER BY event_key, outbox_id LIMIT 1";
    /// The same for dead letters that nothing supersedes.
    NEXT_DEAD_KEY = "SELECT event_key, outbox_id FROM deliveries INDEXED BY deliveries_fresh_dead \
        WHERE handler = ?1 AND event_key >= ?2 AND state = 'dead_letter' AND superseded_by IS NULL \
        ORDER BY event_key, outbox_id LIMIT 1";
    /// Newest first, to find the last event a lane has behind it.
    READ_BACK = "SELECT id, event_id, event_type FROM event_outbox WHERE id <= ?1 ORDER BY id DESC LIMIT ?2";
    EVENT_ID_OF = "SELECT event_id FROM event_outbox WHERE id = ?1";
    LAST_ID = "SELECT coalesce(max(id), 0) FROM event_outbox";

    // --- reading exceptions ----------------------------------------------------------------------------------------
    // After a rewind there are some beyond the lane's position: those wait until the lane has come to them again (that
    // is the last parameter but for a limit), or they would run before earlier events of their key.
    NEXT_ID = "SELECT id FROM event_outbox WHERE id > ?1 ORDER BY id LIMIT 1";
    //
    // These find ids, most of them in an index alone: a lane skips those that it has run already. What is left is read
    // by READ_EXCEPTION_TO_RUN.
    READ_DUE = "SELECT outbox_id FROM deliveries \
        WHERE handler = ?1 AND state = 'retry' AND next_attempt_at <= ?2 AND outbox_id <= ?4 \
        ORDER BY next_attempt_at, outbox_id LIMIT ?3";
    /// Beyond the longest backoff: the clock was set back since.
    READ_STRANDED = "SELECT outbox_id FROM deliveries \
        WHERE handler = ?1 AND state = 'retry' AND next_attempt_at > ?2 AND outbox_id <= ?4 \
        ORDER BY next_attempt_at, outbox_id LIMIT ?3";
    /// Up to `?3`.
    COUNT_WITHIN = "SELECT count(*) FROM (SELECT 1 FROM deliveries \
        WHERE state = 'retry' AND handler = ?1 AND outbox_id <= ?2 LIMIT ?3)";
    /// READ_DUE and READ_STRANDED in one, for few rows up to the position and maybe many that are due beyond it.
    READ_DUE_WITHIN = "SELECT outbox_id FROM deliveries INDEXED BY deliveries_state \
        WHERE state = 'retry' AND handler = ?1 AND outbox_id <= ?4 AND (next_attempt_at <= ?2 OR next_attempt_at > ?3) \
        ORDER BY outbox_id";
    READ_CRASHED = "SELECT outbox_id FROM deliveries INDEXED BY deliveries_crashed \
        WHERE handler = ?1 AND crashes > 0 AND state = 'retry' AND outbox_id <= ?3 ORDER BY outbox_id LIMIT ?2";
    /// A row, whether another one of its key is open behind it, and its event as READ_EVENT has it.
    READ_EXCEPTION_TO_RUN = concat!("SELECT ", exception_to_run!(), ", \
        EXISTS (SELECT 1 FROM deliveries behind WHERE behind.handler = ?2 AND behind.event_key = d.event_key \
            AND behind.outbox_id > ?1 \
            AND (behind.state = 'retry' OR behind.state = 'waiting' OR behind.state = 'parked')) \
        FROM deliveries d LEFT JOIN event_outbox e ON e.id = d.outbox_id WHERE d.outbox_id = ?1 AND d.handler = ?2");
    /// The same of all that waits behind a head, in order; of each it is taken for granted that more are behind it.
    READ_WAITING = concat!("SELECT ", exception_to_run!(), ", 1 \
        FROM deliveries d INDEXED BY deliveries_open LEFT JOIN event_outbox e ON e.id = d.outbox_id \
        WHERE d.handler = ?2 AND d.event_key = ?5 AND d.outbox_id > ?1 AND d.outbox_id <= ?6 \
        AND (d.state = 'retry' OR d.state = 'waiting' OR d.state = 'parked') ORDER BY d.outbox_id LIMIT ?4");
    /// An operator edited or replayed the row since the run began.
    ASKED_FOR_AGAIN = "SELECT EXISTS (SELECT 1 FROM deliveries WHERE outbox_id = ?1 AND handler = ?2 \
        AND (replays <> ?3 OR payload IS NOT ?4) AND (state = 'retry' OR state = 'waiting'))";
    READ_EVENT = "SELECT id, event_id, event_type, event_key, \
        CASE WHEN octet_length(payload) <= ?2 THEN payload END, correlation_id, causation_id, occurred_at \
        FROM event_outbox WHERE id = ?1";

    // --- lanes -----------------------------------------------------------------------------------------------------
    READ_LANE = "SELECT owner, held, cursor, single_step_to, running_id, paused_until, outage_since FROM lanes \
        WHERE handler = ?1";
    NEW_LANE = "INSERT INTO lanes (handler, event_types, on_dead_letter, cursor) VALUES (?1, ?2, ?3, \
        CASE WHEN ?4 THEN coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event_outbox'), 0) ELSE 0 END) \
        ON CONFLICT DO NOTHING";
    TAKE_LANE = "UPDATE lanes SET owner = ?2, owned_since = ?3, event_types = ?4, on_dead_letter = ?5, \
        single_step_to = ?6, running_id = NULL, \
        paused_until = NULL, pause_reason = NULL, outage_since = NULL WHERE handler = ?1";
    GIVE_UP_LANE = "UPDATE lanes SET owner = NULL, owned_since = NULL, running_id = NULL \
        WHERE handler = ?1 AND owner = ?2";
    /// Where the log was emptied or replaced by hand, its ids would start below the cursor and be refused for ever.
    RAISE_SEQUENCE = "UPDATE sqlite_sequence SET seq = ?1 WHERE name = 'event_outbox' AND seq < ?1";
    NEW_SEQUENCE = "INSERT INTO sqlite_sequence (name, seq) SELECT 'event_outbox', ?1 \
        WHERE ?1 > 0 AND NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'event_outbox')";
    /// The row a number of places after a position, or the last one.
    SINGLE_STEP_END = "SELECT max(id) FROM (SELECT id FROM event_outbox WHERE id > ?1 ORDER BY id LIMIT ?2)";
    /// The last row of a handler that is open or may be replayed: beyond the cursor only after a rewind.
    LAST_ROW = "SELECT max(coalesce((SELECT max(outbox_id) FROM deliveries WHERE state = 'retry' AND handler = ?1), 0), \
        coalesce((SELECT max(outbox_id) FROM deliveries WHERE state = 'waiting' AND handler = ?1), 0), \
        coalesce((SELECT max(outbox_id) FROM deliveries WHERE state = 'parked' AND handler = ?1), 0), \
        coalesce((SELECT max(outbox_id) FROM deliveries WHERE state = 'dead_letter' AND handler = ?1), 0))";
    /// The last row of any handler.
    LAST_ROW_OF_ALL = "SELECT coalesce(max(outbox_id), 0) FROM deliveries";
    LANES_OF_OWNER = "SELECT count(*) FROM lanes WHERE owner = ?1";
    /// Tells whether an operator has asked for the lane meanwhile.
    MOVE_CURSOR = "UPDATE lanes SET cursor = ?4, running_id = ?5 WHERE handler = ?1 AND owner = ?2 AND cursor = ?3 \
        RETURNING held";
    SET_PAUSE = "UPDATE lanes SET paused_until = ?2, pause_reason = ?3, outage_since = ?4 WHERE handler = ?1";
    END_SINGLE_STEP = "UPDATE lanes SET single_step_to = NULL WHERE handler = ?1";

    // --- writing exceptions ----------------------------------------------------------------------------------------
    /// A row that is there already is an operator's doing and stands.
    NEW_EXCEPTION = "INSERT INTO deliveries (outbox_id, handler, event_key, state, attempts, next_attempt_at, reason, \
        history, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9) ON CONFLICT DO NOTHING";
    /// The row if it is still what the run began with; one that waited may have become due meanwhile.
    READ_RUN = "SELECT history, state, crashes > 0, (SELECT other.outbox_id FROM deliveries other \
        WHERE other.handler = ?2 AND other.event_key = ?3 AND other.outbox_id <> ?1 \
        AND (other.state = 'retry' OR other.state = 'waiting' OR other.state = 'parked') \
        ORDER BY other.outbox_id LIMIT 1) FROM deliveries \
        WHERE outbox_id = ?1 AND handler = ?2 AND replays = ?5 AND payload IS ?6 \
        AND (state = ?4 OR (?4 = 'waiting' AND state = 'retry'))";
    /// One that waited and went well at its first run, if nobody has touched it meanwhile but to make it due.
    DELETE_WAITED = "DELETE FROM deliveries WHERE outbox_id = ?1 AND handler = ?2 \
        AND (state = 'waiting' OR state = 'retry') AND replays = 0 AND payload IS NULL AND history = '[]'";
    CLOSE_DONE = "UPDATE deliveries SET state = 'done', crashes = 0, next_attempt_at = NULL, history = ?3, \
        updated_at = ?4 WHERE outbox_id = ?1 AND handler = ?2";
    FAIL_ROW = "UPDATE deliveries SET state = ?3, attempts = ?4, crashes = 0, next_attempt_at = ?5, reason = ?6, \
        history = ?7, updated_at = ?8 WHERE outbox_id = ?1 AND handler = ?2";
    /// From retry to retry: an index whose columns are set is written, be it with the same values.
    FAIL_AGAIN = "UPDATE deliveries SET attempts = ?3, next_attempt_at = ?4, reason = ?5, history = ?6, \
        updated_at = ?7 WHERE outbox_id = ?1 AND handler = ?2";
    READ_HISTORY = "SELECT history FROM deliveries WHERE outbox_id = ?1 AND handler = ?2";
    NEXT_OPEN = "SELECT outbox_id, state FROM deliveries WHERE handler = ?1 AND event_key = ?2 AND outbox_id > ?3 \
        AND (state = 'retry' OR state = 'waiting' OR state = 'parked') ORDER BY outbox_id LIMIT 1";
    LOWEST_OPEN = "SELECT outbox_id, state FROM deliveries WHERE handler = ?1 AND event_key = ?2 \
        AND (state = 'retry' OR state = 'waiting' OR state = 'parked') ORDER BY outbox_id LIMIT 1";
    MAKE_DUE = "UPDATE deliveries SET state = 'retry', next_attempt_at = ?3, updated_at = ?3 \
        WHERE outbox_id = ?1 AND handler = ?2";
    HAS_DEAD = "SELECT EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_fresh_dead \
        WHERE handler = ?1 AND state = 'dead_letter' AND superseded_by IS NULL)";
    DEAD_BELOW = "SELECT EXISTS (SELECT 1 FROM deliveries INDEXED BY deliveries_fresh_dead WHERE handler = ?1 \
        AND event_key = ?2 AND outbox_id < ?3 AND state = 'dead_letter' AND superseded_by IS NULL)";
    SUPERSEDE_DEAD = "UPDATE deliveries INDEXED BY deliveries_fresh_dead SET superseded_by = ?3, updated_at = ?4 \
        WHERE handler = ?1 AND event_key = ?2 AND outbox_id < ?3 AND state = 'dead_letter' AND superseded_by IS NULL";
    SUPERSEDE_REPLAYED = "UPDATE deliveries SET superseded_by = ?3, updated_at = ?4 \
        WHERE handler = ?1 AND event_key = ?2 AND outbox_id < ?3 \
        AND (state = 'retry' OR state = 'waiting' OR state = 'parked') AND replays > 0 AND superseded_by IS NULL \
        AND instr(history, '\"what\":\"forced replay\"') = 0";
    /// Waiting rows in order, and whether nothing open of their key is below them.
    READ_ORPHANS = "SELECT w.outbox_id, w.event_key, NOT EXISTS (SELECT 1 FROM deliveries d \
        WHERE d.handler = ?1 AND d.event_key = w.event_key AND d.outbox_id < w.outbox_id \
        AND (d.state = 'retry' OR d.state = 'waiting' OR d.state = 'parked')) \
        FROM deliveries w WHERE w.state = 'waiting' AND w.handler = ?1 AND w.outbox_id > ?2 \
        ORDER BY w.outbox_id LIMIT ?3";
    WAKE_ORPHAN = "UPDATE deliveries SET state = 'retry', next_attempt_at = ?3, updated_at = ?3 \
        WHERE outbox_id = ?1 AND handler = ?2 AND state = 'waiting'";
    READ_KEY = "SELECT event_key FROM deliveries WHERE outbox_id = ?1 AND handler = ?2";
    READ_CRASHES = "SELECT crashes, state FROM deliveries WHERE outbox_id = ?1 AND handler = ?2";
    NEW_CRASHED = "INSERT INTO deliveries (outbox_id, handler, event_key, state, crashes, next_attempt_at, reason, \
        history, created_at, updated_at) \
        SELECT id, ?2, event_key, 'retry', 1, ?3, ?4, ?5, ?3, ?3 FROM event_outbox WHERE id = ?1";
    /// An operator may have replayed an earlier event of its key while it ran.
    CRASHED_WAITS = "UPDATE deliveries SET state = 'waiting', next_attempt_at = NULL \
        WHERE outbox_id = ?1 AND handler = ?2 AND EXISTS (SELECT 1 FROM deliveries d \
        WHERE d.handler = ?2 AND d.event_key = deliveries.event_key \
        AND d.outbox_id < ?1 AND (d.state = 'retry' OR d.state = 'waiting' OR d.state = 'parked'))";
    COUNT_CRASH = "UPDATE deliveries SET crashes = ?3, state = ?4, next_attempt_at = ?5, reason = ?6, history = ?7, \
        updated_at = ?8 WHERE outbox_id = ?1 AND handler = ?2";

    // --- retention -------------------------------------------------------------------------------------------------
    /// Rows that every lane has passed, in order.
    OLD_ROWS = "SELECT id, occurred_at FROM event_outbox \
        WHERE id > ?1 AND id <= (SELECT min(cursor) FROM lanes) ORDER BY id LIMIT ?2";
    HAS_LIVE_EXCEPTION = "SELECT EXISTS (SELECT 1 FROM deliveries \
        WHERE outbox_id = ?1 AND state <> 'done' AND state <> 'discarded')";
    DELETE_EXCEPTIONS = "DELETE FROM deliveries WHERE outbox_id = ?1";
    DELETE_EVENT = "DELETE FROM event_outbox WHERE id = ?1";

    // --- the operator ----------------------------------------------------------------------------------------------
    /// A scan on purpose: one row per handler.
    LIST_LANES = "SELECT handler, event_types, on_dead_letter, held, cursor, owner, owned_since, paused_until, \
        pause_reason, outage_since FROM lanes ORDER BY handler";
    EVENT_TYPES = "SELECT event_types FROM lanes WHERE handler = ?1";
    OLDEST_PENDING = "SELECT occurred_at FROM event_outbox WHERE id > ?1 ORDER BY id LIMIT 1";
    OLDEST_OPEN = "SELECT coalesce((SELECT occurred_at FROM event_outbox WHERE id = outbox_id), created_at) \
        FROM deliveries WHERE handler = ?1 AND outbox_id = (SELECT min(outbox_id) FROM deliveries \
        INDEXED BY deliveries_open WHERE handler = ?1 AND (state = 'retry' OR state = 'waiting' OR state = 'parked'))";
    /// The newest rows, without their payloads.
    LOOK_BACK = "SELECT id, event_type, event_key FROM event_outbox WHERE id <= ?1 ORDER BY id DESC LIMIT ?2";
    /// At most `?3` of them.
    COUNT_IN_STATE = "SELECT count(*) FROM (SELECT 1 FROM deliveries WHERE state = ?1 AND handler = ?2 LIMIT ?3)";
    /// Exceptions of a handler after a log position, in the wanted states, merged in the order of the positions.
    LIST = concat!(
        "SELECT ", exception_columns!(), in_state!("dead_letter"), " AND ?3 UNION ALL ",
        "SELECT ", exception_columns!(), in_state!("parked"), " AND ?4 UNION ALL ",
        "SELECT ", exception_columns!(), in_state!("retry"), " AND ?5 UNION ALL ",
        "SELECT ", exception_columns!(), in_state!("waiting"), " AND ?6 UNION ALL ",
        "SELECT ", exception_columns!(), in_state!("discarded"), " AND ?7 UNION ALL ",
        "SELECT ", exception_columns!(), in_state!("done"), " AND ?8 ORDER BY 1");
    /// The same of one key, whatever the state.
    LIST_OF_KEY = concat!(
        "SELECT ", exception_columns!(), " FROM deliveries INDEXED BY deliveries_open \
            WHERE handler = ?1 AND outbox_id > ?2 AND event_key = ?3 \
            AND (state = 'retry' OR state = 'waiting' OR state = 'parked') UNION ALL ",
        "SELECT ", exception_columns!(), " FROM deliveries INDEXED BY deliveries_closed_key \
            WHERE handler = ?1 AND outbox_id > ?2 AND event_key = ?3 \
            AND (state = 'dead_letter' OR state = 'discarded' OR state = 'done') ORDER BY 1");
    NEXT_HANDLER = "SELECT min(handler) FROM deliveries WHERE state = ?1 AND handler > ?2";
    EXCEPTIONS_OF_EVENT = concat!("SELECT ", exception_columns!(), " FROM deliveries WHERE outbox_id = ?1 ORDER BY handler");
    READ_EXCEPTION = concat!("SELECT ", exception_columns!(), " FROM deliveries WHERE outbox_id = ?1 AND handler = ?2");
    /// Payloads that an operator put in place of the event's own.
    EDITED_PAYLOADS = "SELECT handler, payload FROM deliveries WHERE outbox_id = ?1 AND payload IS NOT NULL ORDER BY handler";
    ID_OF_EVENT = "SELECT id FROM event_outbox WHERE event_id = ?1";
    TRACE = "SELECT id FROM event_outbox WHERE correlation_id = ?1 ORDER BY id LIMIT ?2";
    NOT_HELD = "SELECT handler FROM lanes WHERE held = 0 ORDER BY handler";
    ALL_HELD = "SELECT count(*) > 0 AND min(held) = 1 FROM lanes";
    SET_PAYLOAD = "UPDATE deliveries SET payload = ?3 WHERE outbox_id = ?1 AND handler = ?2";
    /// Only the first of a key can be parked, or one that failed while an earlier one was replayed. Found from the state: a
    /// lane has few that are parked, a key may have many that wait.
    PARKED_OF_KEY = "SELECT outbox_id, history FROM deliveries INDEXED BY deliveries_state \
        WHERE state = 'parked' AND handler = ?1 AND event_key = ?2 ORDER BY outbox_id LIMIT ?3";
    PASS_OVER = "UPDATE deliveries SET state = 'dead_letter', history = ?3, updated_at = ?4 \
        WHERE outbox_id = ?1 AND handler = ?2 AND state = 'parked'";
    DONE_ABOVE = "SELECT outbox_id FROM deliveries WHERE state = 'done' AND handler = ?1 AND outbox_id > ?2 \
        ORDER BY outbox_id LIMIT ?3";
    DELETE_EXCEPTION = "DELETE FROM deliveries WHERE outbox_id = ?1 AND handler = ?2";
    /// What a dead owner ran is far ahead now: should it kill again, that is found out when the lane comes to it.
    SET_CURSOR = "UPDATE lanes SET cursor = ?2, single_step_to = NULL, running_id = NULL, paused_until = NULL, \
        pause_reason = NULL, outage_since = NULL WHERE handler = ?1";
    EVENT_FROM = "SELECT id, occurred_at FROM event_outbox WHERE id >= ?1 ORDER BY id LIMIT 1";
    ROWS_IN_STATE = "SELECT outbox_id, history FROM deliveries WHERE state = ?1 AND handler = ?2 \
        ORDER BY outbox_id LIMIT ?3";
    RENAME_ROWS = "UPDATE deliveries SET handler = ?3 WHERE state = ?1 AND handler = ?2";
    RENAME_LANE = "UPDATE lanes SET handler = ?2 WHERE handler = ?1";
    TYPES_AFTER = "SELECT event_type FROM event_outbox WHERE id > ?1 ORDER BY id LIMIT ?2";
    DELETE_LANE = "DELETE FROM lanes WHERE handler = ?1";
    /// What was first of a key so far waits for a replayed row.
    HEAD_WAITS = "UPDATE deliveries SET state = 'waiting', next_attempt_at = NULL, updated_at = ?3 \
        WHERE outbox_id = ?1 AND handler = ?2";
    SET_HELD = "UPDATE lanes SET held = ?2 WHERE handler = ?1";
    /// An event that has no exception yet: it is skipped, or the run under way no longer counts.
    DISCARD_AHEAD = "INSERT INTO deliveries (outbox_id, handler, event_key, state, reason, history, created_at, \
        updated_at) SELECT id, ?2, event_key, 'discarded', ?3, ?4, ?5, ?5 FROM event_outbox WHERE id = ?1";
    DISCARD_ROW = "UPDATE deliveries SET state = 'discarded', crashes = 0, next_attempt_at = NULL, reason = ?3, \
        history = ?4, updated_at = ?5 WHERE outbox_id = ?1 AND handler = ?2";
    /// A row as if it had failed once, for an event that went through at the first try.
    NEW_DELIVERED = "INSERT INTO deliveries (outbox_id, handler, event_key, state, history, created_at, updated_at) \
        SELECT id, ?2, event_key, 'done', '[]', ?3, ?3 FROM event_outbox WHERE id = ?1";
    REPLAY_ROW = "UPDATE deliveries SET state = ?3, next_attempt_at = ?4, crashes = ?5, history = ?6, updated_at = ?7, \
        attempts = 0, replays = min(replays, 9223372036854775806) + 1, superseded_by = NULL \
        WHERE outbox_id = ?1 AND handler = ?2";

    // --- check -----------------------------------------------------------------------------------------------------
    /// Exceptions in the order of their primary key, each with what stands around it.
    CHECK_ROWS = "SELECT d.outbox_id, d.handler, d.event_key, d.state, d.next_attempt_at, d.superseded_by, \
        CASE WHEN json_valid(d.history) THEN json_type(d.history) = 'array' ELSE 0 END, d.payload IS NULL OR json_valid(d.payload), \
        coalesce(octet_length(d.payload), 0), d.attempts >= 0 AND d.crashes >= 0 AND d.replays >= 0, \
        EXISTS (SELECT 1 FROM event_outbox e WHERE e.id = d.outbox_id), \
        EXISTS (SELECT 1 FROM event_outbox e WHERE e.id = d.outbox_id AND e.event_key IS NOT d.event_key) \
            AND d.event_key IS NOT NULL, \
        EXISTS (SELECT 1 FROM lanes l WHERE l.handler = d.handler), \
        (SELECT o.state FROM deliveries o INDEXED BY deliveries_open WHERE o.handler = d.handler \
            AND o.event_key = d.event_key AND o.outbox_id < d.outbox_id \
            AND (o.state = 'retry' OR o.state = 'waiting' OR o.state = 'parked') ORDER BY o.outbox_id LIMIT 1) \
        FROM deliveries d WHERE (d.outbox_id, d.handler) > (?1, ?2) ORDER BY d.outbox_id, d.handler LIMIT ?3";
    CHECK_LANES = "SELECT handler, event_types, held, cursor, owner, owned_since, running_id, paused_until, outage_since, \
        coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'event_outbox'), 0) FROM lanes ORDER BY handler";
    SCHEMA = "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL \
        AND (tbl_name IN ('event_outbox', 'lanes', 'deliveries') OR name = 'event_status')";
    WAIT_BEHIND = "UPDATE deliveries SET state = 'waiting', next_attempt_at = NULL, updated_at = ?3 \
        WHERE outbox_id = ?1 AND handler = ?2 AND state = 'retry' AND EXISTS (SELECT 1 FROM deliveries d \
        WHERE d.handler = ?2 AND d.event_key = deliveries.event_key AND d.outbox_id < ?1 \
        AND (d.state = 'retry' OR d.state = 'waiting' OR d.state = 'parked'))";
    CLEAR_RUNNING = "UPDATE lanes SET running_id = NULL WHERE handler = ?1 AND owner IS NULL";
    READ_STATE = "SELECT state, event_key, history FROM deliveries WHERE outbox_id = ?1 AND handler = ?2";
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// Statements that read a whole small table on purpose: one row per handler, or the statistics over exceptions.
    const SMALL_SCANS: [&str; 5] = [
        "lanes",
        "sqlite_schema",
        "sqlite_sequence",
        "deliveries USING COVERING INDEX deliveries_state",
        "CONSTANT ROW",
    ];

    /// What may walk the rows of one state: the operator's lists, a page of the walk after a lane was taken, and a page of what a
    /// lane that was rewound has behind it.
    const STATE_WALKS: [&str; 11] = [
        "COUNT_WITHIN",
        "READ_DUE_WITHIN",
        "COUNT_IN_STATE",
        "LIST",
        "NEXT_HANDLER",
        "READ_ORPHANS",
        "PARKED_OF_KEY",
        "DONE_ABOVE",
        "ROWS_IN_STATE",
        "RENAME_ROWS",
        "LAST_ROW",
    ];

    #[test]
    fn case_c48_no_statement_of_the_lanes_walks_all_rows_of_a_state() {
        for (name, text) in ALL.iter().filter(|(name, _)| !STATE_WALKS.contains(name)) {
            let plan = plan_of(text);
            assert!(!plan.iter().any(|step| step.contains("deliveries_state")), "{name}: {plan:#?}");
        }
    }

    fn database() -> rusqlite::Connection {
        let connection = rusqlite::Connection::open_in_memory().unwrap();
        for migration in super::super::COMPONENT.migrations {
            connection.execute_batch(migration).unwrap();
        }
        connection
    }

    fn plan_of(text: &str) -> Vec<String> {
        crate::storage::plan_of(&database(), text)
    }

    #[test]
    fn case_c48_every_statement_uses_an_index_or_a_range_of_the_primary_key() {
        for (name, text) in ALL {
            let plan = plan_of(text);
            for step in &plan {
                assert!(!step.contains("TEMP B-TREE"), "{name}: {plan:#?}");
                let whole_table = step.strip_prefix("SCAN ").is_some_and(|what| {
                    let a_subquery = what.starts_with('(');
                    !a_subquery && !SMALL_SCANS.iter().any(|allowed| what.starts_with(allowed))
                });
                assert!(!whole_table, "{name}: {plan:#?}");
            }
        }
    }
}
