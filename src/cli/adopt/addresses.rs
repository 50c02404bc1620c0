//! Which article here a slug of the source means.
//!
//! The original's jobs name articles by slug. An article may have another slug here than there, and that slug may belong to another
//! article there: so a slug leads to the source's article, whose id it kept, and from there to its slug here. What jobs that wait
//! will have changed by then is kept beside.

use std::collections::HashMap;

use super::articles::{SLUG_TRIES, numbered, slug_of};
use super::source::Source;
use crate::article::{ArticleRepository, RepositoryError};
use crate::cli::CliError;

/// Where a slug of the source leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    /// The slug here.
    At(String),
    /// The source has no such article, and no job that waits makes one: a change of it changes nothing.
    Nowhere,
    /// The source has the article with this id, which is not here.
    NotHere(String),
}

/// Slugs of the source and of here, as they will be once the jobs that wait are applied. Holds a slug for each job of the source that
/// waits, of which there is a limited number.
pub(super) struct Addresses<'a> {
    source: &'a Source,
    articles: &'a ArticleRepository,
    /// A slug of the source that a job makes leads to one here; one that a job deletes leads to none.
    coming: HashMap<String, Option<String>>,
    /// Slugs here that jobs take or set free.
    taken: HashMap<String, bool>,
}

impl<'a> Addresses<'a> {
    pub(super) fn new(source: &'a Source, articles: &'a ArticleRepository) -> Self {
        Self { source, articles, coming: HashMap::new(), taken: HashMap::new() }
    }

    /// Where the article is that has `slug` in the source when its job's turn comes.
    ///
    /// # Errors
    /// One of the databases cannot be read.
    pub(super) fn find(&self, slug: &str) -> Result<Address, CliError> {
        match self.coming.get(slug) {
            Some(Some(here)) => return Ok(Address::At(here.clone())),
            Some(None) => return Ok(Address::Nowhere),
            None => {}
        }
        let id = self.source.article_id(slug)?;
        let Some(id) = id else { return Ok(Address::Nowhere) };
        let article = self.articles.by_id(&id).map_err(not_read)?;
        Ok(article.map_or(Address::NotHere(id), |article| Address::At(article.slug)))
    }

    /// The slug that a new article gets here: its own if that can be one and is free, else one near it.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(super) fn choose(&self, id: &str, slug: &str, title: &str) -> Result<String, CliError> {
        if let Some(article) = self.articles.by_id(id).map_err(not_read)? {
            return Ok(article.slug);
        }
        let wanted = slug_of(slug, title);
        for number in 1..=SLUG_TRIES {
            let slug = numbered(&wanted, number);
            let is_taken = match self.taken.get(&slug) {
                Some(taken) => *taken,
                None => self.articles.by_slug(&slug).map_err(not_read)?.is_some(),
            };
            if !is_taken {
                return Ok(slug);
            }
        }
        Ok(wanted)
    }

    /// A job that waits makes an article with this slug there, and that slug here.
    pub(super) fn comes(&mut self, there: &str, here: &str) {
        self.coming.insert(there.to_owned(), Some(here.to_owned()));
        self.taken.insert(here.to_owned(), true);
    }

    /// A job that waits deletes the article.
    pub(super) fn goes(&mut self, there: &str, here: &str) {
        self.coming.insert(there.to_owned(), None);
        self.taken.insert(here.to_owned(), false);
    }
}

pub(super) fn not_read(error: RepositoryError) -> CliError {
    CliError::failed(format!("{error}; adopt again to go on"))
}
