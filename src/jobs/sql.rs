//! Every SQL statement of the jobs, in one place. A test walks [`ALL`] with EXPLAIN QUERY PLAN.
//!
//! States are literals, since a bound parameter cannot use a partial index. `INDEXED BY` stands where SQLite would otherwise take
//! `write_jobs_status` and walk, or sort, every pending row.

use crate::storage::statements;

statements! {
    // --- the mode --------------------------------------------------------------------------------------------------
    /// Read inside each transaction that writes articles.
    MODE = "SELECT mode, draining FROM write_mode WHERE one = 1";
    MODE_INFO = "SELECT mode, draining, since, reason, held FROM write_mode WHERE one = 1";
    SET_MODE = "UPDATE write_mode SET mode = ?1, draining = ?2, since = ?3, reason = ?4 WHERE one = 1";
    SET_HELD = "UPDATE write_mode SET held = ?1 WHERE one = 1";
    END_DRAIN = "UPDATE write_mode SET draining = 0 WHERE one = 1";

    // --- the line --------------------------------------------------------------------------------------------------
    READY_IDS = "SELECT id FROM write_jobs INDEXED BY write_jobs_ready WHERE status = 'pending' AND run_at IS NULL ORDER BY id LIMIT ?1";
    DUE_IDS = "SELECT id FROM write_jobs INDEXED BY write_jobs_due WHERE status = 'pending' AND run_at <= ?1 ORDER BY run_at, id LIMIT ?2";
    NEXT_RUN_AT = "SELECT run_at FROM write_jobs INDEXED BY write_jobs_due WHERE status = 'pending' AND run_at > ?1 ORDER BY run_at LIMIT 1";
    HAS_READY = "SELECT EXISTS (SELECT 1 FROM write_jobs INDEXED BY write_jobs_ready WHERE status = 'pending' AND run_at IS NULL)";
    /// The lowest and the highest id that wait: as many can wait, at most, as lie between them.
    READY_SPAN = "SELECT \
        (SELECT id FROM write_jobs INDEXED BY write_jobs_ready WHERE status = 'pending' AND run_at IS NULL ORDER BY id LIMIT 1), \
        (SELECT id FROM write_jobs INDEXED BY write_jobs_ready WHERE status = 'pending' AND run_at IS NULL ORDER BY id DESC LIMIT 1)";
    COUNT_READY = "SELECT count(*) FROM \
        (SELECT 1 FROM write_jobs INDEXED BY write_jobs_ready WHERE status = 'pending' AND run_at IS NULL LIMIT ?1)";
    LOAD = "SELECT operation, CASE WHEN octet_length(body) <= ?2 THEN body END, octet_length(body), correlation_id, \
        event_id, replays FROM write_jobs WHERE id = ?1";
    STANDING = "SELECT status, replays FROM write_jobs WHERE id = ?1";
    FINISH = "UPDATE write_jobs SET status = 'applied', article_id = ?2, slug = ?3, event_id = ?4, last_error = NULL, \
        updated_at = ?5 WHERE id = ?1";
    FAIL = "UPDATE write_jobs SET status = ?2, last_error = ?3, updated_at = ?4 WHERE id = ?1";

    // --- inserting -------------------------------------------------------------------------------------------------
    INSERT = "INSERT INTO write_jobs (id, status, replays, run_at, operation, correlation_id, idempotency_key, event_id, \
        article_id, last_error, created_at, updated_at, body) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11, ?12) ON CONFLICT DO NOTHING";
    /// Among those that wait, of which there is a bounded number.
    IS_WAITING = "SELECT EXISTS (SELECT 1 FROM write_jobs INDEXED BY write_jobs_ready \
        WHERE status = 'pending' AND run_at IS NULL AND event_id = ?1)";

    // --- taking over -----------------------------------------------------------------------------------------------
    IS_ADOPTED = "SELECT 1 FROM adopted WHERE origin = ?1";
    MARK_ADOPTED = "INSERT INTO adopted (origin, adopted_at) VALUES (?1, ?2) ON CONFLICT DO NOTHING";

    // --- publications ----------------------------------------------------------------------------------------------
    PUBLICATION = "SELECT id, run_at FROM write_jobs \
        WHERE operation = 'publish' AND article_id = ?1 AND status = 'pending' LIMIT 1";
    MOVE_PUBLICATION = "UPDATE write_jobs SET run_at = ?2, body = ?3, correlation_id = ?4, updated_at = ?5 WHERE id = ?1";
    CANCEL_PUBLICATIONS = "UPDATE write_jobs SET status = 'cancelled', updated_at = ?2 \
        WHERE operation = 'publish' AND article_id = ?1 AND status = 'pending'";
    /// Scheduled articles whose job is missing; one that failed is not made again.
    UNPLANNED = "SELECT a.id, a.publish_at FROM articles a INDEXED BY articles_scheduled WHERE a.publish_at IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM write_jobs j WHERE j.operation = 'publish' AND j.article_id = a.id \
            AND (j.status = 'pending' OR j.status = 'dead_letter' OR j.status = 'quarantined')) LIMIT ?1";

    // --- the operator's view ---------------------------------------------------------------------------------------
    SHOW = "SELECT id, status, replays, run_at, operation, correlation_id, idempotency_key, event_id, article_id, slug, \
        last_error, created_at, updated_at, body FROM write_jobs WHERE id = ?1";
    LIST = "SELECT id, status, replays, run_at, operation, correlation_id, idempotency_key, event_id, article_id, slug, \
        last_error, created_at, updated_at, NULL FROM write_jobs \
        WHERE status = ?1 AND (updated_at, id) > (?2, ?3) ORDER BY updated_at, id LIMIT ?4";
    COUNT = "SELECT count(*) FROM (SELECT 1 FROM write_jobs WHERE status = ?1 LIMIT ?2)";
    COUNT_SCHEDULED = "SELECT count(*) FROM (SELECT 1 FROM write_jobs INDEXED BY write_jobs_due WHERE status = 'pending' AND run_at > ?1 LIMIT ?2)";
    OLDEST_READY = "SELECT created_at FROM write_jobs INDEXED BY write_jobs_ready WHERE status = 'pending' AND run_at IS NULL ORDER BY id LIMIT 1";
    REPLAY = "UPDATE write_jobs SET status = 'pending', run_at = NULL, replays = replays + 1, updated_at = ?2 WHERE id = ?1";
    CANCEL = "UPDATE write_jobs SET status = 'cancelled', last_error = ?2, updated_at = ?3 WHERE id = ?1";
    DELETE = "DELETE FROM write_jobs WHERE id = ?1";

    // --- pruning ---------------------------------------------------------------------------------------------------
    HAS_OLD = "SELECT EXISTS (SELECT 1 FROM write_jobs WHERE status = ?1 AND updated_at < ?2)";
    PRUNE = "DELETE FROM write_jobs WHERE id IN \
        (SELECT id FROM write_jobs WHERE status = ?1 AND updated_at < ?2 ORDER BY updated_at, id LIMIT ?3)";
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::storage::plan_of;

    #[test]
    fn no_statement_scans_or_sorts_what_grows() {
        let conn = Connection::open_in_memory().unwrap();
        for component in [crate::outbox::COMPONENT, crate::article::COMPONENT, crate::jobs::COMPONENT] {
            component.migrations.iter().for_each(|migration| conn.execute_batch(migration).unwrap());
        }
        for (name, sql) in ALL {
            let plan = plan_of(&conn, sql);
            // A partial index that holds nothing else is read from its beginning, up to a LIMIT.
            let walks_a_part = ["write_jobs_ready", "write_jobs_due", "articles_scheduled"];
            let harmless = |line: &&String| {
                walks_a_part.iter().any(|index| line.contains(index))
                    || line.contains("CONSTANT")
                    || line.contains("(subquery")
            };
            assert!(plan.iter().filter(|line| line.contains("SCAN")).all(|line| harmless(&line)), "{name}: {plan:#?}");
            assert!(!plan.iter().any(|line| line.contains("TEMP B-TREE")), "{name}: {plan:#?}");
        }
    }
}
