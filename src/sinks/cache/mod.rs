//! Rendered pages on disk, under names that cannot go stale.
//!
//! A page's name holds what it was made from: an article's id, version, change time and mark, or the state of the whole site
//! for a list. Whoever answers a request reads the present article from the database first and asks for that
//! very page. So whether an event came early, late, twice or never, and also after a restored backup, an old page has a name
//! nobody asks for any more. The [`PageHandler`] merely keeps the folder small and warm: it renders ahead and deletes.
//!
//! Nothing here can fail a request: a page that cannot be read or stored is rendered. Pages are written under a temporary name and
//! renamed, and carry a check sum instead of being synced, so what a power failure left half-written is not served.
//!
//! Size: at most about [`CacheOptions::max_files`] article pages and [`CacheOptions::max_bytes`] bytes, over 256 folders
//! which are trimmed one by one, the oldest pages first; lists of earlier states are deleted at the next event.

mod files;
mod handler;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sha2::{Digest as _, Sha256};

pub use handler::PageHandler;

use crate::article::ArticleStamp;

/// Folders over which article pages are spread.
const SHARDS: usize = 256;
/// One in so many stored pages has its folder trimmed.
const TRIM_EVERY: u64 = 32;

/// Limits of a [`PageCache`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CacheOptions {
    /// Article pages kept, about (default 100,000).
    pub max_files: usize,
    /// Bytes of article pages kept, about (default 1 GiB).
    pub max_bytes: u64,
    /// A longer page is rendered at each request (default 32 MiB: the longest article has a shorter one, and takes
    /// longest to render).
    pub max_page_bytes: usize,
    /// Lists kept of one state of the site (default 2,000).
    pub max_listings: usize,
}

impl Default for CacheOptions {
    fn default() -> Self {
        Self { max_files: 100_000, max_bytes: 1 << 30, max_page_bytes: 32 << 20, max_listings: 2_000 }
    }
}

/// What a page was made from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PageKey<'a> {
    /// The page of one article in one state.
    Article(&'a ArticleStamp),
    /// A page made from many articles.
    Listing {
        /// Which one: for example its path with its query. Any text.
        name: &'a str,
        /// The state of all articles, read before the page's content: see
        /// [`ArticleSource::site_version`](super::ArticleSource::site_version).
        site: &'a str,
    },
}

/// A folder of rendered pages. Cheap to clone; several processes may share the folder.
#[derive(Debug, Clone)]
pub struct PageCache {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// The caller's folder; holds one folder of pages per fingerprint.
    folder: PathBuf,
    pages: PathBuf,
    options: CacheOptions,
    stored: AtomicU64,
    failing: AtomicBool,
    /// State of the site, and how many of its lists were stored.
    listings: Mutex<(String, usize)>,
}

impl PageCache {
    /// A cache in `folder`, which is created. `fingerprint` names everything but the articles that decides how a page looks
    /// ([`Renderer::fingerprint`](super::render::Renderer::fingerprint)): pages of another one are not served.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub fn open(folder: impl AsRef<Path>, fingerprint: &str, options: CacheOptions) -> io::Result<Self> {
        let folder = folder.as_ref().to_owned();
        let pages = folder.join(format!("pages-{}", safe_name(fingerprint)));
        std::fs::create_dir_all(&pages)?;
        let inner = Inner {
            folder,
            pages,
            options,
            stored: AtomicU64::new(0),
            failing: AtomicBool::new(false),
            listings: Mutex::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The page under `key`: from the folder, or else as `render` makes it, which is then stored as far as possible.
    ///
    /// # Errors
    /// Only what `render` returns; nothing is stored then.
    pub fn get_or_render<E>(
        &self,
        key: &PageKey<'_>,
        render: impl FnOnce() -> Result<String, E>,
    ) -> Result<Vec<u8>, E> {
        if let Some(page) = self.get(key) {
            return Ok(page);
        }
        let page = render()?;
        self.put(key, &page);
        Ok(page.into_bytes())
    }

    /// The stored page, if there is one and it is whole.
    pub fn get(&self, key: &PageKey<'_>) -> Option<Vec<u8>> {
        files::read(&self.inner.path(key))
    }

    /// Stores a page; says whether that worked. Failing is noted in the log, once until it works again.
    pub fn put(&self, key: &PageKey<'_>, page: &str) -> bool {
        let inner = &*self.inner;
        if page.len() > inner.options.max_page_bytes || !inner.admits(key) {
            return false;
        }
        let path = inner.path(key);
        match files::write(&inner.pages.join("tmp"), &path, page.as_bytes()) {
            Ok(()) => {
                if inner.failing.swap(false, Ordering::Relaxed) {
                    log::info!("page cache works again folder={}", inner.folder.display());
                }
                let stored = inner.stored.fetch_add(1, Ordering::Relaxed);
                if let (PageKey::Article(_), Some(shard), true) =
                    (key, path.parent(), stored.is_multiple_of(TRIM_EVERY))
                {
                    inner.note(files::trim(
                        shard,
                        inner.options.max_files / SHARDS,
                        inner.options.max_bytes / SHARDS as u64,
                    ));
                }
                true
            }
            Err(error) => {
                inner.note(Err(error));
                false
            }
        }
    }

    /// Deletes the pages of an article, but for the one of state `keep`; returns their number.
    ///
    /// # Errors
    /// The folder cannot be read. A page left behind wastes its space and is not served.
    pub fn remove_article(&self, id: &str, keep: Option<&ArticleStamp>) -> io::Result<usize> {
        let shard = self.inner.shard(id);
        let kept = keep.map(article_file);
        files::remove_matching(&shard, usize::MAX, |name| {
            let of_article = name.split_once('.').is_some_and(|(stem, _)| stem == safe_name(id));
            of_article && Some(name) != kept.as_deref()
        })
    }

    /// Deletes the lists of every state of the site but `site`, at most `budget` files; returns their number.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn remove_listings_but(&self, site: &str, budget: usize) -> io::Result<usize> {
        let current = safe_name(site);
        let mut removed = 0;
        for folder in files::names(&self.inner.pages.join("lists"))? {
            if folder != current && removed < budget {
                let folder = self.inner.pages.join("lists").join(folder);
                removed += files::remove_matching(&folder, budget - removed, |_| true)?;
                // Not empty when the budget has run out: the next call goes on.
                let _ = std::fs::remove_dir(&folder);
            }
        }
        Ok(removed)
    }

    /// Deletes what an earlier run left: half-written pages, and pages of another fingerprint.
    ///
    /// # Errors
    /// The folder cannot be read or something in it not deleted.
    pub fn tidy(&self) -> io::Result<()> {
        files::remove_matching(&self.inner.pages.join("tmp"), usize::MAX, |_| true)?;
        for name in files::names(&self.inner.folder)? {
            let path = self.inner.folder.join(&name);
            if name.starts_with("pages-") && path != self.inner.pages {
                std::fs::remove_dir_all(path)?;
            }
        }
        Ok(())
    }
}

impl Inner {
    fn path(&self, key: &PageKey<'_>) -> PathBuf {
        match key {
            PageKey::Article(stamp) => self.shard(&stamp.id).join(article_file(stamp)),
            PageKey::Listing { name, site } => {
                self.pages.join("lists").join(safe_name(site)).join(format!("{}.html", hash(name)))
            }
        }
    }

    fn shard(&self, id: &str) -> PathBuf {
        self.pages.join("articles").join(&hash(id)[..2])
    }

    /// Whether there is room for another list: what a stranger can ask for must not fill the disk.
    fn admits(&self, key: &PageKey<'_>) -> bool {
        let PageKey::Listing { site, .. } = key else { return true };
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        if listings.0 != *site {
            *listings = ((*site).to_owned(), 0);
        }
        listings.1 += 1;
        listings.1 <= self.options.max_listings
    }

    fn note(&self, outcome: io::Result<usize>) {
        if let Err(error) = outcome
            && !self.failing.swap(true, Ordering::Relaxed)
        {
            log::warn!(
                "page cache cannot be written, pages are rendered instead folder={} error={error}",
                self.folder.display()
            );
        }
    }
}

fn article_file(stamp: &ArticleStamp) -> String {
    let mark = stamp.mark.unwrap_or(0);
    format!("{}.{}.{}.{mark:016x}.html", safe_name(&stamp.id), stamp.version, stamp.updated_at)
}

/// `text` as a part of a file name: as it is when it is short and made of `a-z`, `0-9` and `-`, otherwise its hash. So no text
/// leads out of the folder, and no two meet even where file names know no case.
fn safe_name(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match text.len() {
        1..=40 if text.bytes().all(plain) => text.to_owned(),
        _ => format!("_{}", hash(text)),
    }
}

/// 32 hexadecimal digits.
fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
