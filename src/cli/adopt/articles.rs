//! Articles, drafts, pages and scheduled posts.

use std::collections::HashSet;

use rusqlite::Row;

use super::columns::{self, label, number, plain, text, time, unreadable};
use super::report::Fate;
use super::{Adoption, BATCH_BYTES, BATCH_ROWS, fingerprint};
use crate::article::{
    Applied, ArticleError, Kind, MAX_SLUG_CHARS, MAX_TAG_CHARS, MAX_TAGS, NewArticle, Status, slug_from_title, tag_key,
};
use crate::cli::CliError;
use crate::queue::WriteError;
use crate::service::WriteContext;

const ARTICLES: &str = "articles";
const POSTS: &str = "scheduled_posts";
/// How many addresses are tried for an article whose own is taken.
pub(super) const SLUG_TRIES: u32 = 50;

/// A row as an article, with what changed on the way.
struct Come {
    label: String,
    source: String,
    hash: String,
    article: NewArticle,
    notes: Vec<String>,
}

impl Adoption<'_> {
    /// # Errors
    /// The source cannot be read, or nothing can be stored.
    pub(super) fn articles(&mut self) -> Result<(), CliError> {
        let wanted =
            ["id", "title", "slug", "content", "tags", "created_at", "updated_at", "status", "is_page", "domain_id"];
        let conn = self.source.conn();
        // Slugs that can stay as they are come first, so that none loses its address to one that has to change.
        let order = "ORDER BY slug GLOB '*[^a-z0-9_-]*' OR slug = '', rowid";
        let Some(sql) = columns::select(conn, ARTICLES, &wanted, order)? else { return Ok(()) };
        let tags = columns::select(conn, "article_tags", &["tag"], "WHERE article_id = ?1 ORDER BY rowid")?;
        let mut tags = tags.map(|sql| conn.prepare(&sql)).transpose().map_err(unreadable)?;
        let mut statement = conn.prepare(&sql).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(row) = rows.next().map_err(unreadable)? {
            self.bar.inc(1);
            match article(row, tags.as_mut()) {
                Ok(come) => {
                    bytes += come.article.content.len();
                    batch.push(come);
                }
                Err(reason) => self.report.say(ARTICLES, &label(row, 0), Fate::Refused, &reason)?,
            }
            if batch.len() >= BATCH_ROWS || bytes >= BATCH_BYTES {
                self.store(ARTICLES, std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        self.store(ARTICLES, batch)
    }

    /// # Errors
    /// As [`articles`](Self::articles).
    pub(super) fn scheduled_posts(&mut self) -> Result<(), CliError> {
        let wanted = ["id", "title", "slug", "content", "tags", "created_at", "publish_at", "status", "error"];
        let conn = self.source.conn();
        let Some(sql) = columns::select(conn, POSTS, &wanted, "ORDER BY rowid")? else { return Ok(()) };
        let mut statement = conn.prepare(&sql).map_err(unreadable)?;
        let mut rows = statement.query([]).map_err(unreadable)?;
        let mut batch = Vec::new();
        while let Some(row) = rows.next().map_err(unreadable)? {
            self.bar.inc(1);
            let name = label(row, 0);
            match plain(row, 7, "status").as_deref() {
                Ok("scheduled") => match scheduled(row) {
                    Ok(come) => batch.push(come),
                    Err(reason) => self.report.say(POSTS, &name, Fate::Refused, &reason)?,
                },
                Ok("published") => self.report.finished(POSTS),
                Ok(status) => {
                    let error = plain(row, 8, "error").unwrap_or_default();
                    let reason = format!("its status is {status:?}, nothing waits for its time {error}");
                    self.report.say(POSTS, &name, Fate::LeftOut, reason.trim_end())?;
                }
                Err(reason) => self.report.say(POSTS, &name, Fate::Refused, reason)?,
            }
            if batch.len() >= BATCH_ROWS {
                self.store(POSTS, std::mem::take(&mut batch))?;
            }
        }
        self.store(POSTS, batch)
    }

    fn store(&mut self, table: &'static str, batch: Vec<Come>) -> Result<(), CliError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.still_stands()?;
        let items = batch.iter().map(|come| (come.source.clone(), come.hash.clone(), come.article.clone())).collect();
        let answers = self.app.articles.import_bulk(items, &WriteContext::default()).map_err(not_stored)?;
        for (mut come, answer) in batch.into_iter().zip(answers) {
            let answer = match answer {
                Err(WriteError::Article(ArticleError::SlugTaken { .. })) => self.store_elsewhere(&mut come)?,
                answer => answer,
            };
            self.count(table, &come, answer)?;
        }
        Ok(())
    }

    /// Looks for a free address near the one that is taken.
    fn store_elsewhere(&self, come: &mut Come) -> Result<Result<Applied, WriteError>, CliError> {
        let wanted = come.article.slug.clone().unwrap_or_default();
        let mut last = None;
        for number in 2..=SLUG_TRIES {
            let slug = numbered(&wanted, number);
            come.article.slug = Some(slug.clone());
            let item = (come.source.clone(), come.hash.clone(), come.article.clone());
            let answers = self.app.articles.import_bulk(vec![item], &WriteContext::default()).map_err(not_stored)?;
            let Some(answer) = answers.into_iter().next() else { break };
            if !matches!(answer, Err(WriteError::Article(ArticleError::SlugTaken { .. }))) {
                come.notes.push(format!("the slug {wanted:?} is taken, so it is {slug:?} here"));
                return Ok(answer);
            }
            last = Some(answer);
        }
        Ok(last.unwrap_or_else(|| Err(WriteError::Internal("no answer".to_owned()))))
    }

    fn count(&mut self, table: &'static str, come: &Come, answer: Result<Applied, WriteError>) -> Result<(), CliError> {
        match answer {
            Ok(Applied::Created(_)) => {
                self.report.adopted(table);
                for note in &come.notes {
                    self.report.say(table, &come.label, Fate::Changed, note)?;
                }
            }
            // Ids of the original are random: one that is taken here came before, from the queue.
            Ok(_) | Err(WriteError::Article(ArticleError::IdTaken { .. })) => self.report.known(table),
            Err(WriteError::Article(error)) => {
                self.report.say(table, &come.label, Fate::Refused, &error.to_string())?;
            }
            // No fault of the row: the next one would not fare better.
            Err(error) => return Err(not_stored(error)),
        }
        Ok(())
    }
}

fn not_stored(error: WriteError) -> CliError {
    let hint = match error {
        WriteError::Deferred { .. } | WriteError::ReadOnly | WriteError::JournalFull { .. } => {
            "; the site was frozen meanwhile: `thaw` it, let `serve` apply what waits, then adopt again to go on"
        }
        _ => "; what came before is stored, adopt again to go on",
    };
    CliError::failed(format!("{error}{hint}"))
}

fn article(row: &Row<'_>, tags: Option<&mut rusqlite::Statement<'_>>) -> Result<Come, String> {
    let mut come = basics(row)?;
    let id = come.article.id.clone().unwrap_or_default();
    come.article.updated_at = time(row, 6, "updated_at")?;
    if number(row, 8) != 0 {
        come.article.kind = Kind::Page;
    }
    let domain = plain(row, 9, "domain_id")?;
    if !domain.is_empty() && domain != "0" {
        come.article.status = Status::Draft;
        come.notes.push(format!("it belongs to the further domain {domain:?}, so it is a draft here"));
    }
    match plain(row, 7, "status")?.as_str() {
        "" | "published" => {}
        "draft" => come.article.status = Status::Draft,
        other => {
            come.article.status = Status::Draft;
            come.notes.push(format!("its status was {other:?}, so it is a draft here"));
        }
    }
    let exact = tags.map_or_else(
        || Ok(Vec::new()),
        |statement| {
            let rows = statement.query_map([&id], |row| row.get::<_, String>(0)).map_err(|error| error.to_string())?;
            rows.collect::<rusqlite::Result<Vec<_>>>().map_err(|error| format!("its tags: {error}"))
        },
    )?;
    let given = if exact.is_empty() { split(&plain(row, 4, "tags")?) } else { exact };
    come.article.tags = tags_of(given, &mut come.notes);
    Ok(come)
}

fn scheduled(row: &Row<'_>) -> Result<Come, String> {
    let mut come = basics(row)?;
    come.article.publish_at = time(row, 6, "publish_at")?;
    if come.article.publish_at.is_none() {
        return Err("it has no publish_at".to_owned());
    }
    come.article.tags = tags_of(split(&plain(row, 4, "tags")?), &mut come.notes);
    Ok(come)
}

/// Id, title, slug, content and creation, from the first columns.
fn basics(row: &Row<'_>) -> Result<Come, String> {
    let id = text(row, 0, "id")?.filter(|id| !id.is_empty()).ok_or("it has no id")?;
    let title = plain(row, 1, "title")?;
    let given = plain(row, 2, "slug")?;
    let content = plain(row, 3, "content")?;
    let mut notes = Vec::new();
    let slug = slug_of(&given, &title);
    if slug != given {
        notes.push(format!("the slug {given:?} is {slug:?} here"));
    }
    let mut article = NewArticle::new(title, content);
    article.slug = Some(slug);
    article.created_at = time(row, 5, "created_at")?;
    let (source, hash) = (format!("vayupress/{id}"), fingerprint(&[&id]));
    article.id = Some(id.clone());
    Ok(Come { label: id, source, hash, article, notes })
}

/// The same slug if it can be one here, else one as near as possible.
pub(super) fn slug_of(given: &str, title: &str) -> String {
    let fits = given.len() <= MAX_SLUG_CHARS
        && given.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && given.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c));
    match (fits, given.trim().is_empty()) {
        (true, _) => given.to_owned(),
        (false, false) => slug_from_title(given),
        (false, true) => slug_from_title(title),
    }
}

/// What is tried as the `number`th for `slug`; the first is the slug itself.
pub(super) fn numbered(slug: &str, number: u32) -> String {
    if number < 2 {
        return slug.to_owned();
    }
    let ending = format!("-{number}");
    let stem: String = slug.chars().take(MAX_SLUG_CHARS - ending.len()).collect();
    stem + &ending
}

/// The original joins tags with commas.
fn split(joined: &str) -> Vec<String> {
    joined.split(',').map(str::trim).filter(|tag| !tag.is_empty()).map(str::to_owned).collect()
}

fn tags_of(given: Vec<String>, notes: &mut Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for tag in given {
        let tag = tag.trim();
        let fits = !tag.is_empty() && tag.chars().count() <= MAX_TAG_CHARS && !tag.chars().any(char::is_control);
        if !fits || (kept.len() == MAX_TAGS && !seen.contains(&tag_key(tag))) {
            notes.push(format!("without the tag {:?}: at most {MAX_TAGS} of {MAX_TAG_CHARS} characters", shown(tag)));
        } else if seen.insert(tag_key(tag)) {
            kept.push(tag.to_owned());
        }
    }
    kept
}

fn shown(text: &str) -> String {
    text.chars().take(60).collect()
}
