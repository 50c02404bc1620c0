//! The search lane against a raw FTS5 loop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vayu_articles::article::ArticleRepository;
use vayu_articles::outbox::{Event, Handler, NewEvent};
use vayu_articles::rusqlite::{Connection, params};
use vayu_articles::service::WriteContext;
use vayu_articles::sinks::search::{SearchIndex, SearchOptions};

use crate::RUNS;
use crate::figures::{Figure, Outcome, Sides, rates};
use crate::input::{self, Item};
use crate::place::{self, Site};
use crate::sizes::Sizes;

/// Articles per transaction, on both sides.
const BATCH: usize = 256;
const TURNS: usize = 2;

/// Batches of events through the sink, which reads each article and indexes a batch in one transaction.
pub fn index(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let folder = place::folder()?;
    let site = Site::open(folder.path(), "articles.db")?;
    let mut events = Vec::new();
    for start in (0..sizes.search).step_by(1_000) {
        let batch = input::articles("searching", start..(start + 1_000).min(sizes.search));
        for created in site.service.create_bulk(batch, &WriteContext::default())? {
            let id = created?.id;
            let payload = input::payload(&id, 1, "a-slug", "a title", &input::tags(0), "null");
            let event = NewEvent::from_json("article.created.v1", payload).key(id);
            events.push(event.into_event(events.len() as i64 + 1));
        }
    }
    let items = input::items("searching", 0..sizes.search);
    let mut runs = Vec::new();
    for run in 0..RUNS {
        let raw = raw_index(&folder.path().join(format!("raw-{run}.db")))?;
        let source = Arc::new(ArticleRepository::new(site.database.clone()));
        let index = SearchIndex::new(folder.path().join(format!("search-{run}.db")), source, SearchOptions::default());
        let mut sides = Sides { items: sizes.search, ..Sides::default() };
        for turn in 0..TURNS {
            let part = turn * sizes.search / TURNS..(turn + 1) * sizes.search / TURNS;
            sides.baseline += index_raw(&raw, &items[part.clone()])?;
            sides.product += index_product(&index, &events[part])?;
        }
        index.close();
        runs.push(sides);
    }
    site.close()?;
    Ok(vec![rates("search.index.ratio", ">= 0.70", format!("{} articles", sizes.search), &runs)])
}

fn index_product(index: &SearchIndex, events: &[Event]) -> Outcome<Duration> {
    let began = Instant::now();
    for batch in events.chunks(BATCH) {
        index.handle_batch(batch)?;
    }
    Ok(began.elapsed())
}

fn raw_index(path: &std::path::Path) -> Outcome<Connection> {
    let connection = Connection::open(path)?;
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.execute_batch(
        "CREATE VIRTUAL TABLE fts USING fts5(title, tags, content, tokenize = \"unicode61 remove_diacritics 2\")",
    )?;
    Ok(connection)
}

fn index_raw(connection: &Connection, items: &[Item]) -> Outcome<Duration> {
    let mut insert = connection.prepare("INSERT INTO fts (title, tags, content) VALUES (?1, ?2, ?3)")?;
    let tags: Vec<String> = items.iter().map(|item| item.tags.join("\n")).collect();
    let began = Instant::now();
    for group in items.iter().zip(&tags).collect::<Vec<_>>().chunks(BATCH) {
        let tx = connection.unchecked_transaction()?;
        for (item, tags) in group {
            insert.execute(params![item.title, tags, item.content])?;
        }
        tx.commit()?;
    }
    Ok(began.elapsed())
}
