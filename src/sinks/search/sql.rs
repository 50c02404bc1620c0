//! Every statement the index runs.

/// Marks a file as a search index of this crate (`vays`), so that no other database is ever taken for one.
pub const APPLICATION_ID: i64 = 0x7661_7973;
/// `user_version` of the layout below; a file with another one is built anew.
pub const SCHEMA_VERSION: i64 = 2;
pub const SCHEMA: &str = include_str!("../../../sql/search/schema.sql");

pub const FIND_DOC: &str = "SELECT doc_id, version, indexed FROM docs WHERE article_id = ?1";
pub const INSERT_DOC: &str = "INSERT INTO docs (article_id, version, updated_at, indexed, slug, title, tags, created_at) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
pub const UPDATE_DOC: &str = "UPDATE docs SET article_id = ?1, version = ?2, updated_at = ?3, indexed = ?4, slug = ?5, \
     title = ?6, tags = ?7, created_at = ?8 WHERE doc_id = ?9";
pub const DELETE_DOC: &str = "DELETE FROM docs WHERE doc_id = ?1";
pub const INSERT_FTS: &str = "INSERT INTO fts (rowid, title, tags, content) VALUES (?1, ?2, ?3, ?4)";
pub const UPDATE_FTS: &str = "UPDATE fts SET title = ?2, tags = ?3, content = ?4 WHERE rowid = ?1";
pub const DELETE_FTS: &str = "DELETE FROM fts WHERE rowid = ?1";

pub const READ_STATE: &str = "SELECT applied_id, applied_event, built, rebuild, rebuild_after, rebuild_id, rebuild_event, \
     revision FROM state WHERE one = 1";
pub const SET_APPLIED: &str = "UPDATE state SET applied_id = ?1, applied_event = ?2 \
     WHERE one = 1 AND (applied_id IS NULL OR applied_id < ?1)";
pub const BEGIN_REBUILD: &str = "UPDATE state SET rebuild = ?1, rebuild_after = NULL, rebuild_id = ?2, rebuild_event = ?3, \
     built = built AND revision = ?4, revision = ?4 WHERE one = 1";
pub const FORGET_APPLIED: &str = "UPDATE state SET applied_id = NULL, applied_event = NULL WHERE one = 1";
pub const ADVANCE_REBUILD: &str = "UPDATE state SET rebuild_after = ?1 WHERE one = 1";
pub const END_REBUILD: &str = "UPDATE state SET built = 1, rebuild = 0, rebuild_after = NULL, rebuild_id = NULL, rebuild_event = NULL \
     WHERE one = 1";
pub const DOCS_AFTER: &str = "SELECT article_id, doc_id, version, updated_at, indexed FROM docs \
     WHERE article_id > ?1 ORDER BY article_id LIMIT ?2";

pub const SEARCH: &str = "SELECT d.article_id, d.slug, d.title, substr(fts.content, 1, ?2), d.tags, d.created_at, -fts.rank \
     FROM fts JOIN docs AS d ON d.doc_id = fts.rowid WHERE fts MATCH ?1 ORDER BY fts.rank LIMIT ?3 OFFSET ?4";
pub const COUNT: &str = "SELECT count(*) FROM fts WHERE fts MATCH ?1";
pub const INTEGRITY_CHECK: &str = "INSERT INTO fts (fts, rank) VALUES ('integrity-check', 1)";
pub const COUNT_DOCS: &str = "SELECT count(*) FROM docs WHERE indexed = 1";

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::{Connection, params_from_iter};

    #[test]
    fn every_statement_uses_an_index_and_sorts_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        for sql in [
            FIND_DOC,
            UPDATE_DOC,
            DELETE_DOC,
            UPDATE_FTS,
            DELETE_FTS,
            READ_STATE,
            SET_APPLIED,
            DOCS_AFTER,
            SEARCH,
            COUNT,
        ] {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let nothing = vec![rusqlite::types::Null; statement.parameter_count()];
            let rows = statement.query_map(params_from_iter(nothing), |row| row.get::<_, String>(3)).unwrap();
            let plan = rows.collect::<Result<Vec<_>, _>>().unwrap().join("; ");
            // "SCAN fts VIRTUAL TABLE INDEX n:M…" is a search in the full-text index.
            let scans = plan.replace("SCAN fts VIRTUAL TABLE INDEX", "").contains("SCAN");
            assert!(!scans && !plan.contains("B-TREE"), "{sql}: {plan}");
        }
    }
}
