//! What an application does with articles: every write through a [`Writer`], every read through the repository.

use std::sync::Arc;
use std::time::Instant;

use crate::article::{
    Applied, Article, ArticleError, ArticlePatch, ArticleRepository, ArticleSummary, Expected, ListQuery, Mutation,
    NewArticle, Page, RepositoryError, RequestKey, Status, TagCount,
};
use crate::queue::{Receipt, WriteError, WriteJob, Writer};

/// Creates, changes, deletes, imports, finds and lists articles. Cheap to clone.
///
/// A write is answered once it is committed together with its event; the article in the answer is what was committed. While the
/// site is frozen (see [`jobs`](crate::jobs)) there is no article to answer with: [`WriteError::Deferred`] then names the job that
/// was committed in its stead.
///
/// ```
/// use std::sync::Arc;
/// use std::time::{Duration, Instant};
/// use vayu_articles::article::{self, ArticlePatch, ArticleRepository, Expected, NewArticle};
/// use vayu_articles::queue::SqliteWriter;
/// use vayu_articles::service::{ArticleService, WriteContext};
/// use vayu_articles::{outbox, storage};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let directory = tempfile::tempdir()?;
/// let components = [outbox::COMPONENT, article::COMPONENT];
/// let database = storage::Database::open(directory.path().join("site.db"), &components, storage::Options::default())?;
/// let articles = ArticleRepository::new(database.clone());
/// let service = ArticleService::new(Arc::new(SqliteWriter::new(&database)), articles);
///
/// let context = WriteContext::correlated("request-17");
/// let article = service.create(NewArticle::new("Don’t panic", "Towel first.").tags(["Advice"]), &context)?;
/// assert_eq!(article.slug, "dont-panic");
///
/// let patch = ArticlePatch::default().content("Towel first, always.");
/// let article = service.update("dont-panic", patch, Expected::exactly(&article), &context)?;
/// assert_eq!((article.version, article.tags), (2, vec!["Advice".to_owned()]));
/// # database.close(Instant::now() + Duration::from_secs(10))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ArticleService {
    writer: Arc<dyn Writer>,
    articles: ArticleRepository,
}

/// What a write has from the request that asks for it. The default has nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteContext {
    /// Stands on the event; 1 to 256 bytes without control characters.
    pub correlation_id: Option<String>,
    /// What caused the request; as the correlation id.
    pub causation_id: Option<String>,
    /// When the caller gives up. A write that was taken by then is still applied and answered.
    pub deadline: Option<Instant>,
    /// Makes a repetition harmless: see [`WriteJob::key`].
    pub key: Option<RequestKey>,
}

impl WriteContext {
    /// A context with this correlation id.
    pub fn correlated(id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..Self::default() }
    }

    fn job(&self, mutation: Mutation) -> WriteJob {
        let mut job = WriteJob::new(mutation);
        job.correlation_id.clone_from(&self.correlation_id);
        job.causation_id.clone_from(&self.causation_id);
        job.deadline = self.deadline;
        job.key.clone_from(&self.key);
        job
    }
}

impl ArticleService {
    /// A service over `writer` and `articles`, which must work on one database.
    pub fn new(writer: Arc<dyn Writer>, articles: ArticleRepository) -> Self {
        Self { writer, articles }
    }

    /// Creates an article.
    ///
    /// # Errors
    /// `invalid`, `slug_taken` (only for an explicit slug), or what the writer says.
    pub fn create(&self, article: NewArticle, context: &WriteContext) -> Result<Article, WriteError> {
        self.write(Mutation::Create(article), context)
    }

    /// Creates 1 to 1,000 articles in one transaction, with one result per article in their order: a refused one leaves
    /// the others committed.
    ///
    /// # Errors
    /// Nothing was written: no article or too many of them, or what the writer says of the whole.
    pub fn create_bulk(
        &self,
        articles: Vec<NewArticle>,
        context: &WriteContext,
    ) -> Result<Vec<Result<Article, WriteError>>, WriteError> {
        if articles.is_empty() {
            return Err(ArticleError::invalid("articles", "must be at least one").into());
        }
        let jobs = articles.into_iter().map(|article| context.job(Mutation::Create(article))).collect();
        let answers = self.writer.enqueue_batch(jobs)?;
        Ok(answers.into_iter().map(|answer| answer.and_then(article_of)).collect())
    }

    /// Changes what `patch` names in the article that has `slug`; the rest stays, whoever else is changing it.
    ///
    /// # Errors
    /// `invalid`, `not_found`, `stale` (another than `expected`), `slug_taken`, or what the writer says.
    pub fn update(
        &self,
        slug: &str,
        patch: ArticlePatch,
        expected: Expected,
        context: &WriteContext,
    ) -> Result<Article, WriteError> {
        self.write(Mutation::Update { slug: slug.to_owned(), patch, expected }, context)
    }

    /// Deletes the article that has `slug` and returns it as it last was.
    ///
    /// # Errors
    /// `not_found`, `stale` (another than `expected`), or what the writer says.
    pub fn delete(&self, slug: &str, expected: Expected, context: &WriteContext) -> Result<Article, WriteError> {
        self.write(Mutation::Delete { slug: slug.to_owned(), expected }, context)
    }

    /// Creates the article of an outside source or brings it up to date; says what it did.
    ///
    /// The same `hash` again changes nothing; an article edited or deleted since its last import is left as it is.
    ///
    /// # Errors
    /// `invalid`, `slug_taken` (only for an explicit slug), `id_taken`, or what the writer says.
    pub fn import(
        &self,
        source: &str,
        hash: &str,
        article: NewArticle,
        context: &WriteContext,
    ) -> Result<Applied, WriteError> {
        let mutation = Mutation::Import { source: source.to_owned(), hash: hash.to_owned(), article };
        self.writer.enqueue(context.job(mutation)).and_then(Receipt::applied)
    }

    /// [`import`](Self::import) for up to 1,000 `(source, hash, article)` in one transaction, with one result each.
    ///
    /// # Errors
    /// Nothing was written: too many, or what the writer says of the whole.
    pub fn import_bulk(
        &self,
        items: Vec<(String, String, NewArticle)>,
        context: &WriteContext,
    ) -> Result<Vec<Result<Applied, WriteError>>, WriteError> {
        let job = |(source, hash, article)| context.job(Mutation::Import { source, hash, article });
        let answers = self.writer.enqueue_batch(items.into_iter().map(job).collect())?;
        Ok(answers.into_iter().map(|answer| answer.and_then(Receipt::applied)).collect())
    }

    /// What a change under the context's key led to before; `None` without a key or if it is a fresh one. The writes look
    /// for themselves; this is for callers that check something first which the change itself has altered.
    ///
    /// # Errors
    /// The database could not answer.
    pub fn repeated(&self, context: &WriteContext) -> Result<Option<Result<Article, WriteError>>, RepositoryError> {
        let Some(key) = &context.key else { return Ok(None) };
        let outcome = self.articles.remembered(key)?;
        Ok(outcome.map(|outcome| article_of(outcome?.into())))
    }

    /// The article that has `slug`, whatever its status; `None` if there is none.
    ///
    /// # Errors
    /// The database could not answer.
    pub fn get(&self, slug: &str) -> Result<Option<Article>, RepositoryError> {
        self.articles.by_slug(slug)
    }

    /// One page of articles, newest first.
    ///
    /// # Errors
    /// A page or limit out of range, or the database could not answer.
    pub fn list(&self, query: &ListQuery) -> Result<Page<ArticleSummary>, RepositoryError> {
        self.articles.list(query)
    }

    /// The tags of the published articles, each with its count.
    ///
    /// # Errors
    /// The database could not answer.
    pub fn tags(&self) -> Result<Vec<TagCount>, RepositoryError> {
        self.articles.tags(Some(Status::Published))
    }

    /// The repository behind the reads.
    pub fn repository(&self) -> &ArticleRepository {
        &self.articles
    }

    fn write(&self, mutation: Mutation, context: &WriteContext) -> Result<Article, WriteError> {
        self.writer.enqueue(context.job(mutation)).and_then(article_of)
    }
}

fn article_of(receipt: Receipt) -> Result<Article, WriteError> {
    let article = receipt.applied()?.into_article();
    article.ok_or_else(|| WriteError::Internal("the writer answered a change without its article".to_owned()))
}

impl std::fmt::Debug for ArticleService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArticleService").field("articles", &self.articles).finish_non_exhaustive()
    }
}
