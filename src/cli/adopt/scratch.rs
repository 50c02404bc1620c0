//! A folder of one's own for as long as it is needed.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use uuid::Uuid;

use crate::cli::CliError;
use crate::cli::settings::DataDir;

/// A folder that only its owner may read, removed with all it holds when this is dropped.
pub(super) struct Scratch(PathBuf);

impl Scratch {
    /// # Errors
    /// The folder cannot be made.
    pub(super) fn create() -> Result<Self, CliError> {
        let path = std::env::temp_dir().join(format!("vayu-adopt-{}", Uuid::now_v7()));
        let mut builder = fs::DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        let failed = |error| CliError::failed(format!("cannot make the folder {}: {error}", path.display()));
        builder.create(&path).map_err(failed)?;
        Ok(Self(path))
    }

    /// A folder with a copy of the database in `data`, if there is one: what is done to it can be thrown away.
    ///
    /// # Errors
    /// The database cannot be copied.
    pub(super) fn twin_of(data: &Path) -> Result<Self, CliError> {
        let scratch = Self::create()?;
        let Ok(dir) = DataDir::existing(data) else { return Ok(scratch) };
        let copy = || -> rusqlite::Result<()> {
            let conn = Connection::open_with_flags(dir.articles(), OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            conn.busy_timeout(std::time::Duration::from_secs(10))?;
            let to = scratch.path().join("articles.db");
            conn.execute("VACUUM INTO ?1", [to.to_string_lossy()])?;
            Ok(())
        };
        let failed =
            |error| CliError::failed(format!("cannot copy {} for a dry run: {error}", dir.articles().display()));
        copy().map_err(failed)?;
        Ok(scratch)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It lies in the folder for temporary files: what cannot be removed here is removed with those.
        let _ = fs::remove_dir_all(&self.0);
    }
}
