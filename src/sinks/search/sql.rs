//! Every statement the index runs.

use crate::storage::statements;

/// Marks a file as a search index of this crate (`vays`), so that no other database is ever taken for one.
pub const APPLICATION_ID: i64 = 0x7661_7973;
/// `user_version` of the layout below; a file with another one is built anew.
pub const SCHEMA_VERSION: i64 = 2;
pub const SCHEMA: &str = include_str!("../../../sql/search/schema.sql");

statements! {
    FIND_DOC = "SELECT doc_id, version, indexed FROM docs WHERE article_id = ?1";
    INSERT_DOC = "INSERT INTO docs (article_id, version, updated_at, indexed, slug, title, tags, created_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    UPDATE_DOC = "UPDATE docs SET article_id = ?1, version = ?2, updated_at = ?3, indexed = ?4, slug = ?5, \
         title = ?6, tags = ?7, created_at = ?8 WHERE doc_id = ?9";
    DELETE_DOC = "DELETE FROM docs WHERE doc_id = ?1";
    INSERT_FTS = "INSERT INTO fts (rowid, title, tags, content) VALUES (?1, ?2, ?3, ?4)";
    UPDATE_FTS = "UPDATE fts SET title = ?2, tags = ?3, content = ?4 WHERE rowid = ?1";
    DELETE_FTS = "DELETE FROM fts WHERE rowid = ?1";

    READ_STATE = "SELECT applied_id, applied_event, built, rebuild, rebuild_after, rebuild_id, rebuild_event, \
         revision FROM state WHERE one = 1";
    SET_APPLIED = "UPDATE state SET applied_id = ?1, applied_event = ?2 \
         WHERE one = 1 AND (applied_id IS NULL OR applied_id < ?1)";
    BEGIN_REBUILD = "UPDATE state SET rebuild = ?1, rebuild_after = NULL, rebuild_id = ?2, rebuild_event = ?3, \
         built = built AND revision = ?4, revision = ?4 WHERE one = 1";
    FORGET_APPLIED = "UPDATE state SET applied_id = NULL, applied_event = NULL WHERE one = 1";
    ADVANCE_REBUILD = "UPDATE state SET rebuild_after = ?1 WHERE one = 1";
    END_REBUILD = "UPDATE state SET built = 1, rebuild = 0, rebuild_after = NULL, rebuild_id = NULL, rebuild_event = NULL \
         WHERE one = 1";
    DOCS_AFTER = "SELECT article_id, doc_id, version, updated_at, indexed FROM docs \
         WHERE article_id > ?1 ORDER BY article_id LIMIT ?2";

    SEARCH = "SELECT d.article_id, d.slug, d.title, substr(fts.content, 1, ?2), d.tags, d.created_at, -fts.rank \
         FROM fts JOIN docs AS d ON d.doc_id = fts.rowid WHERE fts MATCH ?1 ORDER BY fts.rank LIMIT ?3 OFFSET ?4";
    COUNT = "SELECT count(*) FROM fts WHERE fts MATCH ?1";
    INTEGRITY_CHECK = "INSERT INTO fts (fts, rank) VALUES ('integrity-check', 1)";
    COUNT_DOCS = "SELECT count(*) FROM docs WHERE indexed = 1";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::plan_of;
    use rusqlite::Connection;

    #[test]
    fn every_statement_uses_an_index_and_sorts_nothing() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(SCHEMA).unwrap();
        // The check of an operator counts all documents.
        for (name, sql) in ALL.iter().filter(|(name, _)| *name != "COUNT_DOCS") {
            let plan = plan_of(&connection, sql).join("; ");
            // "SCAN fts VIRTUAL TABLE INDEX n:M…" is a search in the full-text index.
            let scans = plan.replace("SCAN fts VIRTUAL TABLE INDEX", "").contains("SCAN");
            assert!(!scans && !plan.contains("B-TREE"), "{name}: {plan}");
        }
    }
}
