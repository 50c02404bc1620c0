//! What a handler's exceptions say of a batch of log rows: which of them have a row already, whose key is blocked, and
//! above whose dead letters they lie.
//!
//! Few keys have exceptions, or few of those lie between the keys of a batch. So the batch's keys are sorted, and the
//! index is entered only where it may meet them: from a key of the batch to the next key of the index that is not
//! smaller, from there to the next of the batch, and so on. That takes at most as many looks as there are keys on the
//! side that has fewer, instead of two for each row.

use rusqlite::{Connection, OptionalExtension};

use super::log::LogRow;
use super::sql;

/// What has to be asked of log rows, beyond what they hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Questions {
    /// Has this handler a row for it?
    own_row: bool,
    /// Is an exception of its key open?
    pub(super) open: bool,
    /// Is there a dead letter of its key that nothing supersedes?
    dead: bool,
}

impl Questions {
    /// What is worth asking of the rows after `position`: three looks into indices for a batch.
    pub(super) fn worth_asking(connection: &Connection, handler: &str, position: i64) -> rusqlite::Result<Self> {
        connection.prepare_cached(sql::HAS_EXCEPTIONS)?.query_row((handler, position), |row| {
            Ok(Self { own_row: row.get(0)?, open: row.get(1)?, dead: row.get(2)? })
        })
    }

    /// Puts the answers on the rows.
    pub(super) fn answer(self, connection: &Connection, handler: &str, rows: &mut [LogRow]) -> rusqlite::Result<()> {
        if self.own_row {
            mark_own_rows(connection, handler, rows)?;
        }
        if !self.open && !self.dead {
            return Ok(());
        }
        let mut keys: Vec<(&str, usize)> =
            rows.iter().enumerate().filter_map(|(index, row)| Some((row.key()?, index))).collect();
        keys.sort_unstable();
        let above = |asked: bool, statement| match asked {
            true => above_lowest(connection, handler, statement, &keys, rows),
            false => Ok(Vec::new()),
        };
        let blocked = above(self.open, sql::NEXT_OPEN_KEY)?;
        let dead_below = above(self.dead, sql::NEXT_DEAD_KEY)?;
        blocked.into_iter().for_each(|index| rows[index].blocked = true);
        dead_below.into_iter().for_each(|index| rows[index].dead_below = true);
        Ok(())
    }
}

fn mark_own_rows(connection: &Connection, handler: &str, rows: &mut [LogRow]) -> rusqlite::Result<()> {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
    let mut statement = connection.prepare_cached(sql::OWN_ROWS)?;
    let mut found = statement.query((first.id, last.id, handler))?;
    while let Some(row) = found.next()? {
        let id: i64 = row.get(0)?;
        if let Ok(index) = rows.binary_search_by_key(&id, |row| row.id) {
            rows[index].own_row = true;
        }
    }
    Ok(())
}

/// Places of the rows that lie above the lowest exception of their key. `keys` is sorted.
fn above_lowest(
    connection: &Connection,
    handler: &str,
    statement: &str,
    keys: &[(&str, usize)],
    rows: &[LogRow],
) -> rusqlite::Result<Vec<usize>> {
    let mut statement = connection.prepare_cached(statement)?;
    let mut above = Vec::new();
    let mut rest = keys;
    while let Some((first, _)) = rest.first() {
        let next = statement
            .query_row((handler, first), |row| Ok((row.get_ref(0)?.as_bytes()?.to_vec(), row.get::<_, i64>(1)?)))
            .optional()?;
        let Some((key, lowest)) = next else { break };
        rest = &rest[rest.partition_point(|(before, _)| before.as_bytes() < key.as_slice())..];
        let same = rest.partition_point(|(same, _)| same.as_bytes() <= key.as_slice());
        above.extend(rest[..same].iter().map(|(_, index)| *index).filter(|index| rows[*index].id > lowest));
        rest = &rest[same..];
    }
    Ok(above)
}

#[cfg(test)]
mod tests {
    use super::super::log::{Body, Undecodable};
    use super::*;

    fn rows(keys: &[&str]) -> Vec<LogRow> {
        let row = |(index, key): (usize, &&str)| LogRow {
            id: 100 + index as i64,
            body: Body::Bad(Undecodable { key: (!key.is_empty()).then(|| (*key).to_owned()), reason: String::new() }),
            own_row: false,
            blocked: false,
            dead_below: false,
        };
        keys.iter().enumerate().map(row).collect()
    }

    fn database(exceptions: &[(i64, &str, Option<&str>, &str)]) -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        super::super::COMPONENT.migrations.iter().for_each(|sql| connection.execute_batch(sql).unwrap());
        for exception in exceptions {
            connection
                .execute(
                    "INSERT INTO deliveries (outbox_id, handler, event_key, state, next_attempt_at, created_at, \
                     updated_at) VALUES (?1, ?2, ?3, ?4, 1, 1, 1)",
                    *exception,
                )
                .unwrap();
        }
        connection
    }

    fn answered(connection: &Connection, keys: &[&str]) -> Vec<(bool, bool, bool)> {
        let mut rows = rows(keys);
        let ask = Questions::worth_asking(connection, "h", 99).unwrap();
        ask.answer(connection, "h", &mut rows).unwrap();
        rows.iter().map(|row| (row.own_row, row.blocked, row.dead_below)).collect()
    }

    #[test]
    fn rows_learn_of_exceptions_of_their_key_below_them_and_of_no_others() {
        let connection = database(&[
            (1, "h", Some("a"), "dead_letter"),
            (2, "h", Some("c"), "retry"),
            (3, "h", Some("c"), "waiting"),
            (4, "other", Some("b"), "retry"),
            (5, "h", None, "retry"),
            (6, "h", Some("d"), "done"),
            (104, "h", Some("e"), "parked"),
            (104, "other", Some("e"), "parked"),
        ]);
        let (no, blocked, dead) = ((false, false, false), (false, true, false), (false, false, true));
        let keys = ["e", "c", "a", "b", "e", "c", "d", "", "zz", "e"];
        let want = [no, blocked, dead, no, (true, false, false), blocked, no, no, no, blocked];
        assert_eq!(answered(&connection, &keys), want);
        assert_eq!(answered(&connection, &[]), []);
        assert_eq!(answered(&connection, &["", ""]), [no, no]);
    }

    #[test]
    fn the_answers_are_those_of_a_look_at_each_row() {
        let random = |n: u64| n.wrapping_mul(6_364_136_223_846_793_005).rotate_left(31) ^ n.wrapping_mul(0x9E37_79B9);
        for seed in 1..40_u64 {
            let name = |n: u64| format!("key-{}", random(seed * 1_000 + n) % (seed + 1));
            let states = ["retry", "dead_letter", "done", "waiting", "parked", "discarded"];
            let mut exceptions = Vec::new();
            for n in 0..seed {
                exceptions.push((80 + 2 * n as i64, name(n), states[(random(n + seed) % 6) as usize]));
            }
            let given: Vec<_> =
                exceptions.iter().map(|(id, key, state)| (*id, "h", Some(key.as_str()), *state)).collect();
            let connection = database(&given);
            let keys: Vec<String> = (0..30).map(|n| name(500 + n)).collect();
            let found = answered(&connection, &keys.iter().map(String::as_str).collect::<Vec<_>>());
            for (index, key) in keys.iter().enumerate() {
                let id = 100 + index as i64;
                let below = |open: bool| {
                    exceptions.iter().any(|(other, of, state)| {
                        let wanted = if open {
                            matches!(*state, "retry" | "waiting" | "parked")
                        } else {
                            *state == "dead_letter"
                        };
                        of == key && *other < id && wanted
                    })
                };
                let own = exceptions.iter().any(|(other, ..)| *other == id);
                assert_eq!(found[index], (own, below(true), below(false)), "seed {seed}, row {id}");
            }
        }
    }
}
