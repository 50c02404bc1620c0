//! `search QUERY`.

use super::app::App;
use super::output::{Output, printable, say};
use super::settings::{DataDir, Settings};
use super::{CliError, SearchArgs, exit};

/// Searches the index file; the articles' database is not opened.
pub(super) fn run(settings: &Settings, args: &SearchArgs) -> Result<u8, CliError> {
    let dir = DataDir::of_either(&settings.data).map_err(CliError::Failed)?;
    if !dir.search().exists() {
        let missing = "there is no search index yet: `serve`, or an `import`, makes it from the articles";
        return Err(CliError::failed(missing));
    }
    let found = App::new(&dir, settings)
        .search
        .search(&args.query, 1, args.limit)
        .map_err(|error| CliError::failed(error.to_string()))?;
    let mut out = Output::new();
    for hit in &found.items {
        let snippet = printable(&text_of(&hit.snippet));
        out.line(&format!("{}\t{}\t{}", hit.slug, printable(&hit.title), snippet.trim()))?;
    }
    out.flush()?;
    let listed = u64::try_from(found.items.len()).unwrap_or(u64::MAX);
    if found.total == 0 {
        say("nothing found");
    } else if found.total > listed {
        say(&format!("{listed} of {}; --limit N shows more", found.total));
    }
    Ok(exit::OK)
}

/// The text of a snippet, whose only markup is `<mark>` and escaped characters.
fn text_of(html: &str) -> String {
    let mut text = html.replace("<mark>", "").replace("</mark>", "");
    for (escaped, plain) in [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&#x27;", "'")] {
        text = text.replace(escaped, plain);
    }
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sinks::escape;

    #[test]
    fn a_snippet_reads_as_it_was_written() {
        let written = "if a < b && c > \"d\" { 'x' } // &lt;";
        assert_eq!(text_of(&format!("<mark>{}</mark>", escape(written))), written);
    }
}
