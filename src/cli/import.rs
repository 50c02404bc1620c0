//! `import PATH`: Markdown files become articles, batch by batch, with a report.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use sha2::{Digest, Sha256};

use super::app::App;
use super::dates;
use super::delivery::{Delivery, Further};
use super::front_matter::{self, Document, DocumentError};
use super::markdown_files::{self, Found, MarkdownFile};
use super::output::{Output, say};
use super::settings::{CdnLanes, DataDir, Settings};
use super::{CliError, ImportArgs, exit};
use crate::article::{Applied, Kept, NewArticle};
use crate::queue::WriteError;
use crate::service::WriteContext;

/// Most files in one transaction.
const BATCH_FILES: usize = 100;
/// Text after which a batch is closed, in bytes: keeps memory and the transaction small.
const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// What is to be imported: the files, and the name of the collection that they belong to.
#[derive(Debug)]
pub(super) struct Source {
    root: PathBuf,
    collection: String,
    found: Found,
}

/// One file for the service: what names it for ever, what tells its contents apart, and what it says.
pub(super) type Item = (String, String, NewArticle);

/// How the files fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Report {
    pub created: usize,
    pub updated: usize,
    pub unchanged: usize,
    /// The file has changed, but its article was edited or deleted since the last import.
    pub kept: usize,
    /// An index of a folder, without a text of its own.
    pub skipped: usize,
    pub failed: usize,
    /// Kept for later by a frozen site.
    pub deferred: usize,
}

/// `import PATH`.
pub(super) fn run(settings: &Settings, args: &ImportArgs) -> Result<u8, CliError> {
    let source = Source::open(&args.path, args.name.as_deref()).map_err(CliError::Failed)?;
    let cdn = settings.cdn()?;
    let dir = DataDir::for_articles(&settings.data)?;
    let app = App::open(&dir, settings)?.at_site(settings.site.as_deref());
    let imported = import(&app, &source).and_then(|report| Ok((report, deliver(&app, cdn, settings)?)));
    app.close()?;
    let (report, undelivered) = imported?;
    let mut out = Output::new();
    out.line(&report.to_string())?;
    out.flush()?;
    for lane in undelivered {
        say(&format!("not everything is delivered yet by {lane}; `serve`, or the next import, goes on with it"));
    }
    Ok(if report.failed == 0 { exit::OK } else { exit::FAILED })
}

fn deliver(app: &App, cdn: Option<CdnLanes>, settings: &Settings) -> Result<Vec<String>, CliError> {
    Delivery::new(app, app.pages()?, cdn, Further::default(), settings.relay())?.drain()
}

/// Stores every file of `source`, and says on stderr what needs saying.
///
/// # Errors
/// The site is read-only, or the database fails: no file is to blame, and the next one would fare no better.
pub(super) fn import(app: &App, source: &Source) -> Result<Report, CliError> {
    let context = WriteContext::default();
    source
        .store(
            |items| {
                let answers = app.articles.import_bulk(items, &context)?;
                answers.into_iter().map(own).collect()
            },
            say,
        )
        .map_err(|error| CliError::failed(format!("{error}; what came before is stored, import again to go on")))
}

/// What became of a file, `None` for what a frozen site keeps for later; the outer error is no file's own.
fn own(answer: Result<Applied, WriteError>) -> Result<Result<Option<Applied>, WriteError>, WriteError> {
    match answer {
        Ok(applied) => Ok(Ok(Some(applied))),
        Err(WriteError::Deferred { .. }) => Ok(Ok(None)),
        Err(error @ WriteError::Article(_)) => Ok(Err(error)),
        Err(error) => Err(error),
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { created, updated, unchanged, kept, skipped, failed, deferred } = self;
        let files = created + updated + unchanged + kept + skipped + failed + deferred;
        let noun = if files == 1 { "file" } else { "files" };
        write!(
            f,
            "{files} {noun}: {created} created, {updated} updated, {unchanged} unchanged, {kept} kept because edited or deleted since, \
             {failed} failed"
        )?;
        if *deferred > 0 {
            write!(f, ", {deferred} accepted for later, since the site is frozen")?;
        }
        if *skipped > 0 {
            write!(f, ", {skipped} skipped")?;
        }
        Ok(())
    }
}

impl Source {
    /// Finds the files below `path`. `name` names the collection; the folder's own name by default.
    ///
    /// # Errors
    /// A sentence for the user: the path cannot be read or holds no Markdown.
    pub(super) fn open(path: &Path, name: Option<&str>) -> Result<Self, String> {
        let found = markdown_files::find(path).map_err(|e| format!("cannot import {}: {e}", path.display()))?;
        if found.files.is_empty() && found.failed.is_empty() {
            return Err(format!("no .md or .markdown files in {}", path.display()));
        }
        let collection = match name {
            Some(name) => name.to_owned(),
            None => folder_name(path).unwrap_or_else(|| "import".to_owned()),
        };
        Ok(Self { root: path.to_owned(), collection, found })
    }

    /// Stores every file through `store`, which answers each item of a batch with one result, in order. Whatever
    /// needs saying goes to `say`, a line each.
    ///
    /// # Errors
    /// `store` failed as a whole; what came before is stored, and importing again goes on from there.
    pub(super) fn store<E: Display>(
        &self,
        store: impl FnMut(Vec<Item>) -> Result<Vec<Result<Option<Applied>, E>>, E>,
        mut say: impl FnMut(&str),
    ) -> Result<Report, E> {
        let progress = progress_bar(self.found.files.len());
        // A line of text takes the bar's place, and the bar goes on below it.
        let say = |line: &str| progress.suspend(|| say(line));
        let mut run = Run { source: self, store, say, report: Report::default(), batch: Batch::default() };
        for (path, reason) in &self.found.failed {
            run.fail(&path.display().to_string(), reason);
        }
        for file in &self.found.files {
            run.take(file)?;
            progress.inc(1);
        }
        run.flush()?;
        let report = run.report;
        progress.finish_and_clear();
        Ok(report)
    }
}

/// One import under way.
struct Run<'a, S, P> {
    source: &'a Source,
    store: S,
    say: P,
    report: Report,
    batch: Batch,
}

#[derive(Default)]
struct Batch {
    names: Vec<String>,
    items: Vec<Item>,
    bytes: usize,
}

impl<S, P, E> Run<'_, S, P>
where
    S: FnMut(Vec<Item>) -> Result<Vec<Result<Option<Applied>, E>>, E>,
    P: FnMut(&str),
    E: Display,
{
    fn take(&mut self, file: &MarkdownFile) -> Result<(), E> {
        let name = self.shown(file);
        let bytes = match markdown_files::read(&file.path) {
            Ok(bytes) => bytes,
            Err(reason) => {
                self.fail(&name, &reason);
                return Ok(());
            }
        };
        let document = match front_matter::parse(&bytes) {
            Ok(document) => document,
            Err(DocumentError::NoContent) if is_index(&file.relative) => {
                self.report.skipped += 1;
                (self.say)(&format!("note: {name}: skipped, an index without a text of its own"));
                return Ok(());
            }
            Err(error) => {
                self.fail(&name, &error.to_string());
                return Ok(());
            }
        };
        if document.zone_assumed {
            (self.say)(&format!("note: {name}: a time without a zone was taken as UTC"));
        }
        self.batch.bytes += document.body.len();
        let source = format!("{}/{}", self.source.collection, file.relative);
        let article = article(document, &file.relative, &self.source.collection);
        self.batch.items.push((source, sha256(&bytes), article));
        self.batch.names.push(name);
        if self.batch.names.len() >= BATCH_FILES || self.batch.bytes >= BATCH_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), E> {
        let Batch { names, items, .. } = std::mem::take(&mut self.batch);
        if names.is_empty() {
            return Ok(());
        }
        let results = (self.store)(items)?;
        for (name, result) in names.iter().zip(results) {
            self.count(name, result);
        }
        Ok(())
    }

    fn count(&mut self, name: &str, result: Result<Option<Applied>, E>) {
        match result {
            Err(error) => self.fail(name, &error.to_string()),
            Ok(None) => self.report.deferred += 1,
            Ok(Some(Applied::Created(_))) => self.report.created += 1,
            Ok(Some(Applied::Updated(_))) => self.report.updated += 1,
            Ok(Some(Applied::Kept { reason: Kept::Edited, article })) => {
                let slug = article.map(|article| article.slug).unwrap_or_default();
                self.report.kept += 1;
                (self.say)(&format!(
                    "kept: {name}: the file has changed, but so was the article {slug:?} since its import"
                ));
            }
            Ok(Some(Applied::Kept { reason: Kept::Deleted, .. })) => {
                self.report.kept += 1;
                (self.say)(&format!(
                    "kept: {name}: the file has changed, but its article was deleted since its import"
                ));
            }
            Ok(_) => self.report.unchanged += 1,
        }
    }

    fn fail(&mut self, name: &str, reason: &str) {
        self.report.failed += 1;
        (self.say)(&format!("failed: {name}: {reason}"));
    }

    /// The file's path as the user would write it.
    fn shown(&self, file: &MarkdownFile) -> String {
        if self.source.root.is_file() { file.path.display().to_string() } else { file.relative.clone() }
    }
}

fn article(document: Document, relative: &str, collection: &str) -> NewArticle {
    let (dated, name) = split_date(name_of(relative, collection));
    let title = document.title.unwrap_or_else(|| name.replace(['-', '_'], " ").trim().to_owned());
    let created_at = document.created_at.or(dated);
    let mut article =
        NewArticle::new(title, document.body).tags(document.tags).kind(document.kind).status(document.status);
    article.slug = document.slug;
    article.created_at = created_at;
    // A site generator's "updated" may be older than its "date"; an article is never older than its creation.
    article.updated_at = match (created_at, document.updated_at) {
        (Some(created), Some(updated)) => Some(created.max(updated)),
        (_, updated) => updated,
    };
    article
}

/// The file's name without its ending; an index file is named by its folder.
fn name_of<'a>(relative: &'a str, collection: &'a str) -> &'a str {
    if is_index(relative) { relative.rsplit('/').nth(1).unwrap_or(collection) } else { stem(relative) }
}

fn is_index(relative: &str) -> bool {
    matches!(stem(relative), "index" | "_index")
}

fn stem(relative: &str) -> &str {
    let file = relative.rsplit('/').next().unwrap_or(relative);
    file.rsplit_once('.').map_or(file, |(stem, _)| stem)
}

/// `2026-03-01-trip-to-rome`, as Jekyll names its posts, is a date (milliseconds since the Unix epoch) and a name.
fn split_date(name: &str) -> (Option<i64>, &str) {
    let dated = || {
        let (date, rest) = name.split_at_checked(10)?;
        let rest = rest.strip_prefix('-').filter(|rest| !rest.is_empty())?;
        let shaped =
            date.bytes().enumerate().all(|(at, b)| if matches!(at, 4 | 7) { b == b'-' } else { b.is_ascii_digit() });
        let moment = shaped.then(|| dates::parse(date).ok()).flatten()?;
        Some((Some(moment.ms), rest))
    };
    dated().unwrap_or((None, name))
}

/// The folder's own name, also of `.` and of links; of a file, that of the folder it lies in.
fn folder_name(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let folder = if path.is_file() { path.parent()? } else { &path };
    Some(folder.file_name()?.to_string_lossy().into_owned())
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// On stderr, and only when that is a terminal.
fn progress_bar(files: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(files as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} files  {elapsed}") {
        bar.set_style(style);
    }
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::article::ArticleError;

    #[test]
    fn a_title_comes_from_the_file_name_or_the_folder_of_an_index() {
        let title =
            |relative, collection| article(front_matter::parse(b"Text").expect("readable"), relative, collection).title;
        assert_eq!(title("a-first_post.md", "blog"), "a first post");
        assert_eq!(title("2026/trip-to-rome/index.md", "blog"), "trip to rome");
        assert_eq!(title("index.md", "my-blog"), "my blog");
        assert_eq!(title("v1.2.markdown", "blog"), "v1.2");
        assert_eq!(title("2026-03-01-trip-to-rome.md", "blog"), "trip to rome");
        assert_eq!(title("2026-03-01.md", "blog"), "2026 03 01");
    }

    #[test]
    fn a_date_in_the_file_name_counts_where_the_front_matter_has_none() {
        let created = |text: &str, relative| {
            article(front_matter::parse(text.as_bytes()).expect("readable"), relative, "blog").created_at
        };
        assert_eq!(created("x", "1970-01-02-a.md"), Some(86_400_000));
        assert_eq!(created("x", "1970-01-02-a/index.md"), Some(86_400_000));
        assert_eq!(created("---\ndate: 1970-01-03\n---\nx", "1970-01-02-a.md"), Some(172_800_000));
        for relative in [
            "1970-13-02-a.md",
            "1970-1-2-abc.md",
            "1970-01-02a.md",
            "1970-01-02-.md",
            "\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}\u{e9}-a.md",
        ] {
            assert_eq!(created("x", relative), None, "{relative}");
        }
    }

    #[test]
    fn only_what_an_article_does_not_allow_is_its_files_own_fault() {
        let full = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL), None);
        assert!(own(Err(ArticleError::Sqlite(full).into())).is_err(), "the disk is full for every file");
        assert!(own(Err(WriteError::Stopped)).is_err());
        let taken = ArticleError::SlugTaken { slug: "a".to_owned() };
        assert!(matches!(own(Err(taken.into())), Ok(Err(WriteError::Article(_)))));
        assert!(matches!(own(Err(WriteError::Deferred { job: 1 })), Ok(Ok(None))));
    }

    #[test]
    fn a_collection_is_named_by_its_folder_or_by_the_user() {
        let dir = tempfile::tempdir().expect("tempdir");
        let posts = dir.path().join("posts");
        std::fs::create_dir(&posts).expect("create");
        std::fs::write(posts.join("a.md"), "x").expect("write");
        let name = |path: &Path, name| Source::open(path, name).expect("readable").collection;
        assert_eq!(name(&posts, None), "posts");
        assert_eq!(name(&posts.join("."), None), "posts");
        assert_eq!(name(&posts.join("a.md"), None), "posts", "a file alone is the same source as in its folder");
        assert_eq!(name(&posts, Some("blog")), "blog");
    }

    #[test]
    fn an_update_time_before_the_creation_is_raised_to_it() {
        let document = front_matter::parse(b"---\ndate: 2026-02-01\nupdated: 2026-01-01\n---\nx").expect("readable");
        let article = article(document, "a.md", "blog");
        assert_eq!(article.updated_at, article.created_at);
    }
}
