//! A copy made ahead of time.

use std::sync::{Mutex, PoisonError};

use super::model::Article;

/// Larger articles are copied when it comes to that, so that what waits to be written is not twice as large.
const MAX_BYTES: usize = 16 << 10;

/// A second article like the first, made where many threads can: what the one writing thread answers with, it need not copy.
#[derive(Debug, Default)]
pub(super) struct Spare(Mutex<Option<Article>>);

impl Spare {
    pub(super) fn of(article: &Article) -> Self {
        Self(Mutex::new((article.content.len() <= MAX_BYTES).then(|| article.clone())))
    }

    /// The spare one; when it was given away before, another copy of `article`.
    pub(super) fn take(&self, article: &Article) -> Article {
        let spare = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        spare.unwrap_or_else(|| article.clone())
    }
}

impl Clone for Spare {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::article::{Mutation, NewArticle};

    #[test]
    fn a_task_that_is_run_again_answers_with_the_same_article() {
        for content in ["short".to_owned(), "long".repeat(MAX_BYTES)] {
            let prepared = Mutation::Create(NewArticle::new("A title", content)).prepare(1, None, None).unwrap();
            let crate::article::mutation::Change::Create(draft) = &prepared.change else { panic!("a creation") };
            for _ in 0..2 {
                assert_eq!(draft.spare.take(&draft.article), draft.article);
            }
            assert_eq!(draft.clone().spare.take(&draft.article), draft.article);
        }
    }
}
