//! Keeps foreign code that was lent a connection away from what belongs to the lender: the transaction, the schema and
//! the settings.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::{Connection, ffi};

/// Pragmas that only look, or that free pages in small steps; everything else is a setting of the connection.
const HARMLESS_PRAGMAS: [&str; 19] = [
    "collation_list",
    "compile_options",
    "data_version",
    "database_list",
    "foreign_key_check",
    "foreign_key_list",
    "freelist_count",
    "function_list",
    "incremental_vacuum",
    "index_info",
    "index_list",
    "index_xinfo",
    "integrity_check",
    "module_list",
    "page_count",
    "quick_check",
    "table_info",
    "table_list",
    "table_xinfo",
];

/// Settings that may be looked at, without a value.
const READABLE_PRAGMAS: [&str; 12] = [
    "application_id",
    "auto_vacuum",
    "cache_size",
    "encoding",
    "foreign_keys",
    "journal_mode",
    "max_page_count",
    "page_size",
    "query_only",
    "schema_version",
    "synchronous",
    "user_version",
];

/// Switched on while foreign code has the connection. Used on one thread at a time, hence the relaxed order.
#[derive(Debug, Default)]
pub(super) struct Guard {
    lent: AtomicBool,
    committing: AtomicBool,
    denied: Mutex<Option<&'static str>>,
}

impl Guard {
    /// Installs the guard, once per connection: installing it expires prepared statements.
    pub(super) fn install(connection: &mut Connection) -> rusqlite::Result<Arc<Self>> {
        let guard = Arc::new(Self::default());
        let asked = Arc::clone(&guard);
        connection.authorizer(Some(move |context: AuthContext<'_>| asked.judge(&context.action)))?;
        Ok(guard)
    }

    /// Refuses every COMMIT outside of [`committing`](Self::committing), whoever asks for it.
    pub(super) fn install_commit_hook(self: &Arc<Self>, connection: &mut Connection) -> rusqlite::Result<()> {
        let asked = Arc::clone(self);
        connection.commit_hook(Some(move || !asked.committing.load(Relaxed)))
    }

    /// Runs foreign code with the guard on. The code must not unwind.
    pub(super) fn lend<R>(&self, f: impl FnOnce() -> R) -> R {
        self.set_lent(true);
        let result = f();
        self.set_lent(false);
        result
    }

    /// Switches the guard on or off.
    pub(super) fn set_lent(&self, lent: bool) {
        self.lent.store(lent, Relaxed);
    }

    /// Runs a COMMIT of our own.
    pub(super) fn committing<R>(&self, f: impl FnOnce() -> R) -> R {
        self.committing.store(true, Relaxed);
        let result = f();
        self.committing.store(false, Relaxed);
        result
    }

    /// What was denied since the last call.
    pub(super) fn take_denied(&self) -> Option<&'static str> {
        self.denied.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn judge(&self, action: &AuthAction<'_>) -> Authorization {
        if !self.lent.load(Relaxed) {
            return Authorization::Allow;
        }
        let Some(what) = forbidden(action) else {
            return Authorization::Allow;
        };
        *self.denied.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
        Authorization::Deny
    }
}

/// What the action is called if borrowers may not do it.
fn forbidden(action: &AuthAction<'_>) -> Option<&'static str> {
    match action {
        AuthAction::Transaction { .. } => Some("BEGIN, COMMIT or ROLLBACK"),
        AuthAction::Savepoint { .. } => Some("SAVEPOINT"),
        AuthAction::Attach { .. } | AuthAction::Detach { .. } => Some("ATTACH or DETACH"),
        AuthAction::Pragma { pragma_name, pragma_value } => {
            let among = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(pragma_name));
            let allowed = among(&HARMLESS_PRAGMAS) || (pragma_value.is_none() && among(&READABLE_PRAGMAS));
            (!allowed).then_some("a PRAGMA that changes settings")
        }
        AuthAction::Delete { .. }
        | AuthAction::Function { .. }
        | AuthAction::Insert { .. }
        | AuthAction::Read { .. }
        | AuthAction::Recursive
        | AuthAction::Select
        | AuthAction::Update { .. } => None,
        // An ATTACH whose file is an expression has no name at this point.
        AuthAction::Unknown { code, .. } => {
            matches!(*code, ffi::SQLITE_ATTACH | ffi::SQLITE_DETACH).then_some("ATTACH or DETACH")
        }
        _ => Some("a change of the schema (DDL), REINDEX or ANALYZE"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_is_not_the_writers_is_refused_even_if_it_gets_past_the_authorizer() {
        let mut connection = Connection::open_in_memory().expect("a database");
        connection.execute_batch("CREATE TABLE t (x)").expect("a table");
        let guard = Guard::install(&mut connection).expect("a guard");
        guard.install_commit_hook(&mut connection).expect("a hook");
        let count = || connection.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0)).expect("a count");
        connection.execute_batch("BEGIN; INSERT INTO t VALUES (1)").expect("not lent");
        assert!(connection.execute_batch("COMMIT").is_err());
        assert_eq!(count(), 0);
        connection.execute_batch("BEGIN; INSERT INTO t VALUES (1)").expect("not lent");
        guard.committing(|| connection.execute_batch("COMMIT")).expect("our own");
        assert_eq!(count(), 1);
    }

    #[test]
    fn denials_name_what_was_tried_once() {
        let mut connection = Connection::open_in_memory().expect("a database");
        let guard = Guard::install(&mut connection).expect("a guard");
        assert!(guard.lend(|| connection.execute_batch("CREATE TABLE t (x)")).is_err());
        assert!(guard.take_denied().is_some_and(|what| what.contains("DDL")));
        assert_eq!(guard.take_denied(), None);
        connection.execute_batch("CREATE TABLE t (x)").expect("not lent any more");
    }
}
