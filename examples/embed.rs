//! The outbox inside somebody else's server: a blocking HTTP server of another crate takes orders, and three closures
//! hear of each, at least once and in order, whatever happens to the process in between.
//!
//! ```sh
//! cargo run --example embed -- 127.0.0.1:8090 shop.db
//! curl -d '{"item": "kettle", "count": 2}' http://127.0.0.1:8090/orders
//! curl http://127.0.0.1:8090/orders
//! ```
//!
//! Stop it with Ctrl-C or `kill -9`: what was answered is stored, and what was not yet delivered is delivered by the next
//! run. Order something impossible (`"count": 0`) to see a dead letter.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use oxhttp::Server;
use oxhttp::model::{Body, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use uuid::Uuid;
use vayu_articles::outbox::{self, DispatchError, Event, InsertError, NewEvent, Operator, Relay};
use vayu_articles::rusqlite::Connection;
use vayu_articles::storage::{Component, Database, Options};

/// The shop's own table, beside those of the outbox. A program with a schema of its own brings no component at all.
const SHOP: Component = Component {
    name: "shop",
    migrations: &["CREATE TABLE orders (id TEXT PRIMARY KEY, item TEXT NOT NULL, count INTEGER NOT NULL) STRICT"],
};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), BoxError> {
    let mut arguments = std::env::args().skip(1);
    let addr: SocketAddr = arguments.next().as_deref().unwrap_or("127.0.0.1:8090").parse()?;
    let path = arguments.next().unwrap_or_else(|| "shop.db".to_owned());

    let database = Database::open(path, &[outbox::COMPONENT, SHOP], Options::default())?;
    let relay = start_relay(&database)?;
    let server = Server::new(move |request| answer(&database, request)).bind(addr).spawn()?;
    println!("listening on http://{addr}/orders");
    server.join()?;
    drop(relay);
    Ok(())
}

/// Three handlers, each with a lane of its own: none delays, repeats or blocks another.
fn start_relay(database: &Database) -> Result<Relay, BoxError> {
    let sold = Arc::new(AtomicI64::new(0));
    let relay = Relay::builder(database)
        .handler_fn("mail", |event: &Event| {
            let order: Value = event.json()?;
            println!("mail: thank you for order {}", order["id"]);
            Ok(())
        })
        .handler_fn("warehouse", |event: &Event| {
            let order: Value = event.json()?;
            if order["count"] == 0 {
                return Err(DispatchError::poison("nobody can pack nothing"));
            }
            // The event's id is the same at each delivery: a warehouse that remembers it packs once.
            println!("warehouse: pack {} x {} ({})", order["count"], order["item"], event.event_id);
            Ok(())
        })
        .handler_for("statistics", &["order.placed.*"], move |event: &Event| {
            let order: Value = event.json()?;
            let count = order["count"].as_i64().unwrap_or(0);
            println!("statistics: {} sold since the start", sold.fetch_add(count, Ordering::Relaxed) + count);
            Ok(())
        })
        .start()?;
    Ok(relay)
}

fn answer(database: &Database, request: &mut Request<Body>) -> Response<Body> {
    let answered = match (request.method(), request.uri().path()) {
        (&Method::POST, "/orders") => {
            let body = std::mem::replace(request.body_mut(), Body::empty());
            place(database, body)
        }
        (&Method::GET, "/orders") => list(database),
        (&Method::GET, "/dead-letters") => dead_letters(database),
        _ => Err((StatusCode::NOT_FOUND, "POST or GET /orders, or GET /dead-letters".to_owned())),
    };
    let (status, body) = match answered {
        Ok(value) => (StatusCode::OK, value),
        Err((status, reason)) => (status, json!({ "error": reason })),
    };
    let response = Response::builder().status(status).header("content-type", "application/json");
    response.body(Body::from(format!("{body}\n"))).unwrap_or_default()
}

type Answer = Result<Value, (StatusCode, String)>;

/// The order and its event commit together; the customer hears of it after that commit.
fn place(database: &Database, body: Body) -> Answer {
    let text = body.to_string().map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))?;
    let order: Value = serde_json::from_str(&text).map_err(|e| (StatusCode::BAD_REQUEST, e.to_string()))?;
    let (Some(item), Some(count)) = (order["item"].as_str(), order["count"].as_i64()) else {
        return Err((StatusCode::BAD_REQUEST, "give an item (text) and a count (number)".to_owned()));
    };
    // Ids are made before the task, which may run more than once.
    let (id, item) = (Uuid::now_v7().to_string(), item.to_owned());
    let placed = json!({ "id": id, "item": item, "count": count });
    let event = NewEvent::new("order.placed.v1", &placed).map_err(internal)?.key(&id);
    database
        .writer()
        .transact(move |tx| -> Result<(), InsertError> {
            tx.execute("INSERT INTO orders (id, item, count) VALUES (?1, ?2, ?3)", (&id, &item, count))?;
            outbox::insert(tx, &event)?;
            Ok(())
        })
        .map_err(internal)?;
    Ok(placed)
}

fn list(database: &Database) -> Answer {
    let read = |connection: &Connection| {
        let mut orders = connection.prepare_cached("SELECT id, item, count FROM orders ORDER BY id DESC LIMIT 20")?;
        let row = |row: &vayu_articles::rusqlite::Row<'_>| {
            Ok(json!({
                "id": row.get::<_, String>(0)?, "item": row.get::<_, String>(1)?, "count": row.get::<_, i64>(2)?
            }))
        };
        orders.query_map([], row)?.collect::<Result<Vec<_>, _>>()
    };
    database.read(read).map(Value::from).map_err(internal)
}

fn dead_letters(database: &Database) -> Answer {
    let found = Operator::new(database).exceptions(&outbox::Filter::default(), None, 50).map_err(internal)?;
    let shown =
        |dead: &outbox::ExceptionInfo| json!({ "id": dead.outbox_id, "handler": dead.handler, "reason": dead.reason });
    Ok(found.exceptions.iter().map(shown).collect())
}

fn internal(error: impl Display) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
}
