//! The outbox in a program's own database, beside the program's own tables, with closures as handlers.
//!
//! `cargo run --example outbox_only [FILE]` places an order, mails about it and counts it; run it again with the same
//! FILE and the lanes go on where they stopped.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use vayu_articles::outbox::{self, DispatchError, Event, NewEvent, Operator, Relay};
use vayu_articles::rusqlite;
use vayu_articles::storage::{Database, Options};

#[derive(Debug, Serialize, Deserialize)]
struct OrderPlaced {
    item: String,
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let folder = tempfile::tempdir()?;
    let path = std::env::args_os().nth(1).map_or_else(|| folder.path().join("shop.db"), Into::into);

    // The program's own schema, made by its own means: the outbox keeps away from it and from `user_version`.
    rusqlite::Connection::open(&path)?.execute_batch(
        "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, item TEXT NOT NULL, placed_at INTEGER NOT NULL)",
    )?;
    let database = Database::open(&path, &[outbox::COMPONENT], Options::default())?;

    let mails = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&mails);
    let relay = Relay::builder(&database)
        .handler_fn("mail", move |event: &Event| {
            let order: OrderPlaced = event.json()?;
            let key = event.key.as_deref().unwrap_or("an order");
            println!("mail: your {} is on its way ({key}, event {})", order.item, event.event_id);
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .handler_for("stock", &["order.*"], |event: &Event| {
            let order: OrderPlaced = event.json()?;
            if order.item.is_empty() {
                return Err(DispatchError::poison("an order for nothing"));
            }
            println!("stock: one {} less", order.item);
            Ok(())
        })
        .start()?;

    for item in ["tea", "kettle", ""] {
        let order = place_order(&database, item)?;
        println!("order {order} is committed together with its event");
    }

    let soon = Instant::now() + Duration::from_secs(10);
    if !relay.wait_drained(soon) {
        return Err("the events were not delivered in time".into());
    }
    for lane in Operator::new(&database).stats()?.lanes {
        println!("lane {}: cursor {}, {} dead letters", lane.handler, lane.cursor, lane.exceptions.dead_letter);
    }
    println!("{} mails in this run", mails.load(Ordering::Relaxed));
    relay.stop(soon)?;
    database.close(soon)
}

/// The order and its event, in one transaction: either both exist or neither.
fn place_order(database: &Database, item: &str) -> Result<i64, Box<dyn Error + Send + Sync>> {
    let item = item.to_owned();
    // What is made anew each time is made before the task, which may run twice.
    let event = NewEvent::new("order.placed.v1", &OrderPlaced { item: item.clone() })?;
    let now = database.clock().now_ms();
    let order = database.writer().transact(move |tx| -> Result<i64, outbox::InsertError> {
        let order: i64 = tx
            .prepare_cached("INSERT INTO orders (item, placed_at) VALUES (?1, ?2) RETURNING id")?
            .query_row((&item, now), |row| row.get(0))?;
        outbox::insert(tx, &event.clone().key(format!("order-{order}")))?;
        Ok(order)
    })?;
    Ok(order)
}
