//! SQL as constants that a test can walk.

/// Declares statements as `NAME = "SQL";`, visible in the module around, and for tests the list `ALL` of their names and texts.
///
/// No statement can be left out of that list: a test that walks it with [`plan_of`] sees each one.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr;)*) => {
        $($(#[$doc])* pub(super) const $name: &str = $text;)*
        #[cfg(test)]
        pub(super) const ALL: &[(&str, &str)] = &[$((stringify!($name), $name)),*];
    };
}
pub(crate) use statements;

/// The steps by which SQLite would run `sql`, as EXPLAIN QUERY PLAN words them. Parameters are NULL.
#[cfg(test)]
pub(crate) fn plan_of(conn: &rusqlite::Connection, sql: &str) -> Vec<String> {
    let mut explain =
        conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap_or_else(|error| panic!("{sql}: {error}"));
    let parameters = vec![rusqlite::types::Null; explain.parameter_count()];
    let steps = explain.query_map(rusqlite::params_from_iter(parameters), |row| row.get(3)).expect("a plan");
    steps.collect::<Result<_, _>>().expect("text")
}
