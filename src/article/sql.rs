//! Every SQL text of this module, so that a test can walk them.

use super::{Kind, Status};
use crate::storage::statements;

// The lists are made by [`list`] and [`count`].
statements! {
    INSERT_ARTICLE = "\
        INSERT INTO articles (id, kind, status, slug, title, version, created_at, updated_at, content, publish_at) \
        VALUES (?1, ?2, ?3, ?4, ?5, 1, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING";
    INSERT_TAG =
        "INSERT INTO article_tags (article_id, tag, position, label) VALUES (?1, ?2, ?3, ?4)";
    DELETE_TAGS = "DELETE FROM article_tags WHERE article_id = ?1";

    /// Leaves the columns alone that stand in an index.
    UPDATE_TEXT = "\
        UPDATE articles SET title = ?3, version = version + 1, updated_at = ?4, content = ?5 WHERE id = ?1 AND version = ?2";
    UPDATE_ALL = "\
        UPDATE articles SET title = ?3, version = version + 1, updated_at = ?4, content = ?5, \
        kind = ?6, status = ?7, slug = ?8, created_at = ?9, publish_at = ?10 WHERE id = ?1 AND version = ?2";
    DELETE_ARTICLE = "DELETE FROM articles WHERE id = ?1 AND version = ?2";

    ARTICLE_BY_SLUG = "\
        SELECT id, kind, status, slug, title, version, created_at, updated_at, content, publish_at FROM articles \
        WHERE slug = ?1";
    ARTICLE_BY_ID = "\
        SELECT id, kind, status, slug, title, version, created_at, updated_at, content, publish_at FROM articles \
        WHERE id = ?1";
    TAGS_OF = "SELECT label FROM article_tags WHERE article_id = ?1 ORDER BY position";
    HAS_SLUG = "SELECT 1 FROM articles WHERE slug = ?1";
    HAS_ID = "SELECT 1 FROM articles WHERE id = ?1";

    HAS_EVENT = "SELECT 1 FROM event_outbox WHERE event_id = ?1";

    SOURCE = "SELECT article_id, hash, version FROM article_sources WHERE source = ?1";
    HAS_SOURCE = "SELECT 1 FROM article_sources WHERE source = ?1 AND hash = ?2";
    PUT_SOURCE = "\
        INSERT INTO article_sources (source, article_id, hash, version, imported_at) VALUES (?1, ?2, ?3, ?4, ?5) \
        ON CONFLICT (source) DO UPDATE SET article_id = ?2, hash = ?3, version = ?4, imported_at = ?5";

    REQUEST_KEY =
        "SELECT fingerprint, outcomes FROM request_keys WHERE scope = ?1 AND key = ?2 AND created_at > ?3";
    HAS_REQUEST_KEY =
        "SELECT 1 FROM request_keys WHERE scope = ?1 AND key = ?2 AND fingerprint = ?3";
    /// What stood there before was past its time.
    PUT_REQUEST_KEY = "\
        INSERT INTO request_keys (scope, key, fingerprint, created_at, outcomes) VALUES (?1, ?2, ?3, ?4, ?5) \
        ON CONFLICT (scope, key) DO UPDATE SET fingerprint = ?3, created_at = ?4, outcomes = ?5";
    PRUNE_REQUEST_KEYS = "\
        DELETE FROM request_keys WHERE id IN \
        (SELECT id FROM request_keys WHERE created_at <= ?1 ORDER BY created_at LIMIT ?2)";

    ARTICLES_AFTER = "\
        SELECT id, kind, status, slug, title, version, created_at, updated_at, content, publish_at FROM articles \
        WHERE id > ?1 ORDER BY id LIMIT ?2";
    STAMPS_AFTER = "SELECT id, version, updated_at FROM articles WHERE id > ?1 ORDER BY id LIMIT ?2";
    /// The beginning of a text, in characters.
    OPENING = "SELECT substr(content, 1, ?2) FROM articles WHERE id = ?1";
    /// Where published articles of a kind are, newest first, after a creation time and id. (`INDEXED BY`: never sorted.)
    ADDRESSES = "\
        SELECT id, slug, created_at, updated_at FROM articles INDEXED BY articles_newest \
        WHERE status = 'published' AND kind = ?1 AND (created_at, id) < (?2, ?3) ORDER BY created_at DESC, id DESC LIMIT ?4";
    /// The place in that order after which a number of articles stand.
    ADDRESS_AT = "\
        SELECT created_at, id FROM articles INDEXED BY articles_newest \
        WHERE status = 'published' AND kind = ?1 ORDER BY created_at DESC, id DESC LIMIT 1 OFFSET ?2";
    NEWEST_EVENT = "SELECT id, event_id FROM event_outbox ORDER BY id DESC LIMIT 1";
    /// The sequence outlives the rows that retention removes.
    EVENT_SEQUENCE = "SELECT seq FROM sqlite_sequence WHERE name = 'event_outbox'";
    NEWEST_ARTICLE = "SELECT max(id) FROM articles";

    /// The label is the one that the oldest article with the tag gave it (a bare column beside `min` comes from its row).
    TAG_COUNTS = "\
        SELECT tag, label, count(*), min(article_id) FROM article_tags GROUP BY tag ORDER BY tag";
    TAG_COUNTS_OF_STATUS = "\
        SELECT tag, label, count(*), min(article_id) FROM article_tags CROSS JOIN articles ON id = article_id \
        WHERE status = ?1 GROUP BY tag ORDER BY tag";
}

/// One page of a list, newest first: parameters are limit, offset and, with `tagged`, the tag's key.
///
/// Each stored status and kind is a branch of its own that the index delivers in order; SQLite merges the branches
/// without sorting. By tag, the tag's articles are looked up and sorted.
pub(super) fn list(status: Option<Status>, kind: Option<Kind>, tagged: bool) -> String {
    const COLUMNS: &str = "id, kind, status, slug, title, version, created_at, updated_at, publish_at";
    if tagged {
        let filter = filters(status, kind);
        return format!(
            "SELECT {COLUMNS} FROM article_tags CROSS JOIN articles ON id = article_id WHERE tag = ?3{filter} \
             ORDER BY created_at DESC, id DESC LIMIT ?1 OFFSET ?2"
        );
    }
    let branch = |(index, filter): (&str, String)| {
        format!("SELECT {COLUMNS} FROM articles INDEXED BY {index} WHERE {}", filter.trim_start_matches(" AND "))
    };
    let branches: Vec<String> = branches(status, kind).into_iter().map(branch).collect();
    format!("{} ORDER BY created_at DESC, id DESC LIMIT ?1 OFFSET ?2", branches.join(" UNION ALL "))
}

/// How many articles [`list`] runs over: the parameter is, with `tagged`, the tag's key.
pub(super) fn count(status: Option<Status>, kind: Option<Kind>, tagged: bool) -> String {
    let filter = filters(status, kind);
    if tagged {
        return format!(
            "SELECT count(*) FROM article_tags CROSS JOIN articles ON id = article_id WHERE tag = ?1{filter}"
        );
    }
    let of = |status| format!("SELECT count(*) FROM articles WHERE true{}", filters(status, kind));
    match status {
        // The index of all articles does not tell drafts from scheduled ones; that of the scheduled does.
        Some(Status::Draft) => {
            let stored = "SELECT count(*) FROM articles WHERE status = 'draft'".to_owned() + &of_kind(kind);
            format!("SELECT ({stored}) - ({})", of(Some(Status::Scheduled)))
        }
        _ => of(status),
    }
}

fn filters(status: Option<Status>, kind: Option<Kind>) -> String {
    let status = match status {
        None => "",
        Some(Status::Draft) => " AND status = 'draft' AND publish_at IS NULL",
        // Only drafts have a time.
        Some(Status::Scheduled) => " AND publish_at IS NOT NULL",
        Some(Status::Published) => " AND status = 'published'",
    };
    status.to_owned() + &of_kind(kind)
}

fn of_kind(kind: Option<Kind>) -> String {
    kind.map_or_else(String::new, |kind| format!(" AND kind = '{kind}'"))
}

/// The index that delivers a part of the list in order, and that part's filter.
fn branches(status: Option<Status>, kind: Option<Kind>) -> Vec<(&'static str, String)> {
    let kinds = || Kind::ALL.iter().filter(move |k| kind.is_none_or(|kind| kind == **k));
    let stored =
        |status: &str| kinds().map(|k| ("articles_newest", format!("status = '{status}' AND kind = '{k}'"))).collect();
    let narrowed = |status, index| kinds().map(|k| (index, filters(Some(status), Some(*k)))).collect();
    match status {
        None => [stored("draft"), stored("published")].concat(),
        Some(Status::Published) => stored("published"),
        Some(Status::Draft) => narrowed(Status::Draft, "articles_newest"),
        Some(Status::Scheduled) => narrowed(Status::Scheduled, "articles_scheduled"),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    fn database() -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        for component in [crate::outbox::COMPONENT, crate::article::COMPONENT] {
            component.migrations.iter().for_each(|migration| conn.execute_batch(migration).unwrap());
        }
        conn
    }

    fn plan(conn: &Connection, sql: &str) -> String {
        crate::storage::plan_of(conn, sql).join("; ")
    }

    #[test]
    fn no_statement_scans_what_grows() {
        let conn = database();
        // One row, the first entry of an index, and tables that are summed up as a whole.
        let may_scan = [EVENT_SEQUENCE, NEWEST_ARTICLE, NEWEST_EVENT, TAG_COUNTS, TAG_COUNTS_OF_STATUS];
        for (name, sql) in ALL {
            let plan = plan(&conn, sql);
            assert!(may_scan.contains(sql) || !plan.contains("SCAN"), "{name}: {plan}");
            // An article has at most twenty tags.
            assert!(*sql == TAGS_OF || !plan.contains("TEMP B-TREE"), "{name}: {plan}");
        }
    }

    #[test]
    fn lists_come_sorted_from_the_index() {
        let conn = database();
        let statuses = [None, Some(Status::Draft), Some(Status::Scheduled), Some(Status::Published)];
        for (status, kind) in statuses.iter().flat_map(|s| [None, Some(Kind::Post), Some(Kind::Page)].map(|k| (*s, k)))
        {
            let list_plan = plan(&conn, &list(status, kind, false));
            assert!(
                !list_plan.contains("TEMP B-TREE") && !list_plan.contains("SCAN"),
                "{status:?} {kind:?}: {list_plan}"
            );
            let count_plan = plan(&conn, &count(status, kind, false));
            assert!(count_plan.contains("COVERING INDEX"), "{status:?} {kind:?}: {count_plan}");
            let tag_plan = plan(&conn, &list(status, kind, true)) + &plan(&conn, &count(status, kind, true));
            assert!(!tag_plan.contains("SCAN"), "{status:?} {kind:?}: {tag_plan}");
        }
    }
}
