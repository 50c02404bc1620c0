//! 60 % patches, 30 % creations, 10 % deletions, against the same statements raw.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use vayu_articles::article::{ArticlePatch, Expected, NewArticle};
use vayu_articles::rusqlite::{Connection, OptionalExtension, Row, Statement, params};
use vayu_articles::service::WriteContext;

use crate::RUNS;
use crate::figures::{Figure, Outcome, Sides, rates};
use crate::input::{self, Item};
use crate::place::{self, Site};
use crate::raw::{Inserts, RawDatabase};
use crate::sizes::Sizes;
use crate::write::at_once;

const CALLERS: usize = 64;
const TURNS: usize = 4;
/// Articles that each caller has at the beginning; patches and deletions go round among its own.
const OWNED: usize = 20;

enum Step<C> {
    Create(C),
    Patch(String),
    Delete,
}

/// What one caller still has, oldest first.
struct Caller {
    series: String,
    slugs: VecDeque<String>,
    next: usize,
}

pub fn mixed(sizes: &Sizes) -> Outcome<Vec<Figure>> {
    let per_caller = sizes.callers64 / CALLERS / TURNS;
    let runs = (0..RUNS).map(|_| one_run(per_caller)).collect::<Outcome<Vec<_>>>()?;
    let size = format!("{} operations", per_caller * CALLERS * TURNS);
    Ok(vec![rates("write.mixed.ratio", ">= 0.75", size, &runs)])
}

fn one_run(per_caller: usize) -> Outcome<Sides> {
    let folder = place::folder()?;
    let site = Site::open(folder.path(), "product.db")?;
    let raw = RawDatabase::create(folder.path(), "raw.db")?;
    let mut callers: Vec<Caller> = (0..CALLERS).map(Caller::new).collect();
    let mut raw_callers: Vec<Caller> = (0..CALLERS).map(Caller::new).collect();
    for caller in &callers {
        let articles = input::articles(&caller.series, 0..OWNED);
        for answer in site.service.create_bulk(articles, &WriteContext::default())? {
            answer?;
        }
        raw.write(&input::items(&caller.series, 0..OWNED), OWNED)?;
    }
    let mut sides = Sides { items: per_caller * CALLERS * TURNS, ..Sides::default() };
    for _ in 0..TURNS {
        let steps: Vec<_> = raw_callers.iter_mut().map(|caller| caller.steps(per_caller, Item::new)).collect();
        sides.baseline += run_raw(&raw.connection, &mut raw_callers, steps)?;
        let steps: Vec<_> = callers.iter_mut().map(|caller| caller.steps(per_caller, input::article)).collect();
        sides.product += run_product(&site, &mut callers, steps)?;
    }
    site.close()?;
    Ok(sides)
}

impl Caller {
    fn new(number: usize) -> Self {
        let series = format!("caller-{number}");
        let slugs = (0..OWNED).map(|article| input::slug(&series, article)).collect();
        Self { series, slugs, next: OWNED }
    }

    fn steps<C>(&mut self, count: usize, create: impl Fn(&str, usize) -> C) -> Vec<Step<C>> {
        (0..count)
            .map(|step| match step % 10 {
                3 | 6 | 9 => {
                    self.next += 1;
                    Step::Create(create(&self.series, self.next))
                }
                5 => Step::Delete,
                _ => Step::Patch(input::content(step)),
            })
            .collect()
    }

    /// The article whose turn it is, which then goes to the end of the line.
    fn turn(&mut self) -> Outcome<String> {
        let slug = self.slugs.pop_front().ok_or("no article left")?;
        self.slugs.push_back(slug.clone());
        Ok(slug)
    }
}

fn run_product(site: &Site, callers: &mut [Caller], steps: Vec<Vec<Step<NewArticle>>>) -> Outcome<Duration> {
    let context = WriteContext::default();
    at_once(callers.iter_mut().zip(steps).collect(), |(caller, steps)| {
        for step in steps {
            match step {
                Step::Create(article) => {
                    let article = site.service.create(article, &context)?;
                    caller.slugs.push_back(article.slug);
                }
                Step::Patch(content) => {
                    let patch = ArticlePatch::default().content(content);
                    site.service.update(&caller.turn()?, patch, Expected::any(), &context)?;
                }
                Step::Delete => {
                    let slug = caller.slugs.pop_front().ok_or("no article left")?;
                    site.service.delete(&slug, Expected::any(), &context)?;
                }
            }
        }
        Ok(())
    })
}

fn run_raw(connection: &Connection, callers: &mut [Caller], steps: Vec<Vec<Step<Item>>>) -> Outcome<Duration> {
    let mut statements = Statements::prepare(connection)?;
    let mut rounds: Vec<_> = steps.into_iter().map(Vec::into_iter).collect();
    let began = Instant::now();
    // One step of each caller is a transaction of 64.
    loop {
        let tx = connection.unchecked_transaction()?;
        let mut done = 0;
        for (caller, steps) in callers.iter_mut().zip(&mut rounds) {
            let Some(step) = steps.next() else { continue };
            done += 1;
            match step {
                Step::Create(item) => {
                    statements.inserts.create(&item)?;
                    caller.slugs.push_back(item.slug);
                }
                Step::Patch(content) => statements.patch(&caller.turn()?, &content)?,
                Step::Delete => statements.delete(&caller.slugs.pop_front().ok_or("no article left")?)?,
            }
        }
        tx.commit()?;
        if done == 0 {
            return Ok(began.elapsed());
        }
    }
}

/// An article's row as the raw loop reads it before it writes.
struct Before {
    id: String,
    slug: String,
    title: String,
    version: i64,
    tags: [String; 2],
}

struct Statements<'c> {
    inserts: Inserts<'c>,
    find: Statement<'c>,
    tags: Statement<'c>,
    update: Statement<'c>,
    delete: Statement<'c>,
    delete_tags: Statement<'c>,
}

impl<'c> Statements<'c> {
    fn prepare(connection: &'c Connection) -> Outcome<Self> {
        Ok(Self {
            inserts: Inserts::prepare(connection)?,
            find: connection.prepare(
                "SELECT id, kind, status, slug, title, version, created_at, updated_at, content FROM articles \
                 WHERE slug = ?1",
            )?,
            tags: connection.prepare("SELECT label FROM article_tags WHERE article_id = ?1 ORDER BY position")?,
            update: connection.prepare(
                "UPDATE articles SET title = ?3, version = version + 1, updated_at = ?4, content = ?5 \
                 WHERE id = ?1 AND version = ?2",
            )?,
            delete: connection.prepare("DELETE FROM articles WHERE id = ?1 AND version = ?2")?,
            delete_tags: connection.prepare("DELETE FROM article_tags WHERE article_id = ?1")?,
        })
    }

    fn before(&mut self, slug: &str) -> Outcome<Before> {
        let found = self.find.query_row([slug], |row: &Row<'_>| {
            // Every column, since a patch is laid over the whole article.
            let _: (String, String, i64, i64, String) =
                (row.get(1)?, row.get(2)?, row.get(6)?, row.get(7)?, row.get(8)?);
            let tags = Default::default();
            Ok(Before { id: row.get(0)?, slug: row.get(3)?, title: row.get(4)?, version: row.get(5)?, tags })
        });
        let mut before = found.optional()?.ok_or("the article is gone")?;
        let mut rows = self.tags.query([&before.id])?;
        for tag in &mut before.tags {
            *tag = rows.next()?.ok_or("a tag is missing")?.get(0)?;
        }
        Ok(before)
    }

    fn patch(&mut self, slug: &str, content: &str) -> Outcome<()> {
        let before = self.before(slug)?;
        self.update.execute(params![before.id, before.version, before.title, 1, content])?;
        self.event(&before, "article.updated.v1")
    }

    fn delete(&mut self, slug: &str) -> Outcome<()> {
        let before = self.before(slug)?;
        self.delete.execute(params![before.id, before.version])?;
        self.delete_tags.execute([&before.id])?;
        self.event(&before, "article.deleted.v1")
    }

    fn event(&mut self, before: &Before, event_type: &str) -> Outcome<()> {
        let Before { id, slug, title, version, tags: tags @ [first, second] } = before;
        let previous = format!(r#"{{"slug":"{slug}","status":"published","tags":["{first}","{second}"]}}"#);
        let payload = input::payload(id, version + 1, slug, title, tags, &previous);
        self.inserts.event(&input::uuid(), event_type, id, &payload, 1)
    }
}
