//! Finding the Markdown files below a path.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Deepest folder that is entered, counted from the path given (which is 0).
const MAX_DEPTH: usize = 32;
/// Most files one import takes; a folder with more is a mistake in the path.
const MAX_FILES: usize = 200_000;
/// Largest file that is read: the longest article (5 MB), its front matter, and CRLF line ends that go away.
const MAX_FILE_BYTES: u64 = 11 * 1024 * 1024;

/// A Markdown file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MarkdownFile {
    /// Where it is.
    pub path: PathBuf,
    /// Path relative to the folder given, with `/`; of a single file its name.
    pub relative: String,
}

/// What a search found.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Sorted by relative path.
    pub files: Vec<MarkdownFile>,
    /// Folders and entries that could not be read: where and why. The search went on without them.
    pub failed: Vec<(PathBuf, String)>,
}

/// Finds the `.md` and `.markdown` files in `root`, or takes `root` itself if it is a file.
///
/// Hidden files and folders (a leading dot) and `node_modules` are skipped. A link to a file is read; a link to a folder is not entered, so
/// no loop can form.
///
/// # Errors
/// `root` itself cannot be read.
pub(super) fn find(root: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    if fs::metadata(root)?.is_file() {
        let relative = root.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        found.files.push(MarkdownFile { path: root.to_owned(), relative });
        return Ok(found);
    }
    let entries = fs::read_dir(root)?;
    walk(entries, "", 0, &mut found);
    found.files.sort_by(|a, b| a.relative.cmp(&b.relative));
    Ok(found)
}

/// Reads a file whole, up to the size limit. The error is a sentence for the report.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = fs::File::open(path).map_err(|e| format!("cannot open: {e}"))?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|e| format!("cannot read: {e}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("larger than {} MiB, which no article is", MAX_FILE_BYTES >> 20));
    }
    Ok(bytes)
}

fn walk(entries: fs::ReadDir, prefix: &str, depth: usize, found: &mut Found) {
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(e) => {
                found.failed.push((PathBuf::from(prefix), format!("cannot list the folder: {e}")));
                return;
            }
        };
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else {
            // Two such names could look the same, and one article would then overwrite the other.
            found.failed.push((path, "its name is not UTF-8: rename it".to_owned()));
            continue;
        };
        if name.starts_with('.') || name == "node_modules" {
            continue;
        }
        let relative = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        match entry.file_type() {
            Err(e) => found.failed.push((path, format!("cannot look at it: {e}"))),
            Ok(kind) if kind.is_dir() => enter(path, &relative, depth + 1, found),
            Ok(_) if is_markdown(&path) && fs::metadata(&path).map_or(true, |meta| meta.is_file()) => {
                if found.files.len() == MAX_FILES {
                    let reason = format!("more than {MAX_FILES} files: import the folders below one by one");
                    found.failed.push((path, reason));
                    return;
                }
                found.files.push(MarkdownFile { path, relative });
            }
            Ok(_) => {}
        }
    }
}

fn enter(path: PathBuf, relative: &str, depth: usize, found: &mut Found) {
    if depth > MAX_DEPTH {
        found.failed.push((path, format!("more than {MAX_DEPTH} folders deep")));
        return;
    }
    match fs::read_dir(&path) {
        Ok(entries) => walk(entries, relative, depth, found),
        Err(e) => found.failed.push((path, format!("cannot list the folder: {e}"))),
    }
}

fn is_markdown(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("md") || extension.eq_ignore_ascii_case("markdown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relative(root: &Path) -> Vec<String> {
        find(root).expect("readable").files.into_iter().map(|file| file.relative).collect()
    }

    fn put(root: &Path, name: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("has a parent")).expect("create folder");
        fs::write(path, "x").expect("write");
    }

    #[test]
    fn files_come_sorted_and_hidden_ones_and_others_are_skipped() {
        let dir = tempfile::tempdir().expect("tempdir");
        for name in [
            "b.md",
            "a/c.markdown",
            "a/B.MD",
            ".git/x.md",
            ".hidden.md",
            "node_modules/p/README.md",
            "note.txt",
            "a/md",
            "Z.md",
        ] {
            put(dir.path(), name);
        }
        assert_eq!(relative(dir.path()), ["Z.md", "a/B.MD", "a/c.markdown", "b.md"]);
        assert_eq!(relative(&dir.path().join("a/md")), ["md"], "a file that is named is taken whatever its ending");
    }

    #[cfg(unix)]
    #[test]
    fn a_link_to_a_folder_is_not_entered_and_a_dangling_link_is_reported_when_read() {
        let dir = tempfile::tempdir().expect("tempdir");
        put(dir.path(), "a/post.md");
        std::os::unix::fs::symlink(dir.path(), dir.path().join("a/loop")).expect("symlink");
        std::os::unix::fs::symlink(dir.path().join("a/post.md"), dir.path().join("link.md")).expect("symlink");
        std::os::unix::fs::symlink(dir.path().join("gone"), dir.path().join("dangling.md")).expect("symlink");
        assert_eq!(relative(dir.path()), ["a/post.md", "dangling.md", "link.md"]);
        assert!(read(&dir.path().join("dangling.md")).expect_err("gone").starts_with("cannot open"));
    }

    #[test]
    fn folders_beyond_the_depth_limit_are_reported_and_the_rest_is_found() {
        let dir = tempfile::tempdir().expect("tempdir");
        put(dir.path(), &format!("{}deep.md", "d/".repeat(MAX_DEPTH + 1)));
        put(dir.path(), &format!("{}ok.md", "e/".repeat(MAX_DEPTH)));
        let found = find(dir.path()).expect("readable");
        assert_eq!((found.files.len(), found.failed.len()), (1, 1));
    }

    #[test]
    fn a_path_that_is_not_there_is_an_error() {
        let dir = tempfile::tempdir().expect("tempdir");
        assert_eq!(find(&dir.path().join("none")).expect_err("absent").kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_larger_than_any_article_is_refused_unread() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("big.md");
        fs::File::create(&path).and_then(|file| file.set_len(MAX_FILE_BYTES + 1)).expect("sparse file");
        assert!(read(&path).expect_err("too large").contains("larger than"));
    }
}
