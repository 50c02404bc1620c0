//! From an article's Markdown to the text that is searched and shown in snippets.
//!
//! With the cargo feature `sinks` it is the text a reader of the page sees: headings, paragraphs, list items, table cells,
//! code, the text of links, the descriptions of images; no marks, no addresses of links, no languages of code blocks, no tags
//! of raw HTML. Without the feature there is no Markdown parser, and it is the text as it was written.

/// Which of the two a build extracts. A file holds the revision of its texts and is indexed anew by a build with another;
/// raise both numbers, past each other, when what is extracted changes.
pub(super) const REVISION: i64 = if cfg!(feature = "sinks") { 2 } else { 1 };

/// The text to index of an article.
#[cfg(feature = "sinks")]
pub(super) fn plain_text(title: &str, markdown: &str) -> String {
    // The parser is foreign code, and a rebuild that dies of one article's text would die of it for ever.
    std::panic::catch_unwind(|| markdown::text_of(title, markdown)).unwrap_or_else(|_| {
        log::error!("article is indexed with its marks, since they cannot be parsed title={title:?}");
        markdown.to_owned()
    })
}

/// The text to index of an article.
#[cfg(not(feature = "sinks"))]
pub(super) fn plain_text(_title: &str, markdown: &str) -> String {
    markdown.to_owned()
}

#[cfg(feature = "sinks")]
mod markdown {
    use pulldown_cmark::{Event, HeadingLevel, Tag, TagEnd};

    use super::super::raw_html;
    use crate::sinks::render::{parser, same_title};

    /// Goes through the events once and keeps none of them, so that nesting costs nothing.
    pub(super) fn text_of(title: &str, markdown: &str) -> String {
        let mut text = Text { out: String::with_capacity(markdown.len()), html: String::new(), hidden: false };
        let mut events = parser(markdown).peekable();
        let mut title_to_come =
            matches!(events.peek(), Some(Event::Start(Tag::Heading { level: HeadingLevel::H1, .. })));
        for event in events {
            let heading_ends = title_to_come && matches!(event, Event::End(TagEnd::Heading(_)));
            text.take(event);
            if heading_ends {
                title_to_come = false;
                if same_title(title, &text.out) {
                    // The page leaves it out as well.
                    text.out.clear();
                }
            }
        }
        text.out.truncate(text.out.trim_end().len());
        text.out
    }

    struct Text {
        out: String,
        /// The block of raw HTML under way, which comes line by line.
        html: String,
        /// Inside of an element whose text no reader sees.
        hidden: bool,
    }

    impl Text {
        fn take(&mut self, event: Event<'_>) {
            match event {
                Event::Text(text) | Event::Code(text) if !self.hidden => self.out.push_str(&text),
                Event::SoftBreak => self.gap(' '),
                Event::HardBreak | Event::Rule => self.gap('\n'),
                Event::Html(html) => self.html.push_str(&html),
                Event::InlineHtml(tag) => {
                    self.hidden = raw_html::hides(&tag);
                    raw_html::push_text(&tag, &mut self.out);
                }
                Event::End(TagEnd::HtmlBlock) => {
                    self.gap('\n');
                    raw_html::push_text(&std::mem::take(&mut self.html), &mut self.out);
                    self.gap('\n');
                }
                Event::Start(Tag::TableCell) => self.gap(' '),
                // The row's end is still to be told from the cell's.
                Event::End(TagEnd::TableCell) => {}
                Event::Start(tag) => self.bound(tag.to_end()),
                Event::End(tag) => self.bound(tag),
                _ => {}
            }
        }

        /// Begins a new line where a block begins or ends. What runs within a line, can run within a word.
        fn bound(&mut self, tag: TagEnd) {
            match tag {
                TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough | TagEnd::Link | TagEnd::Image => {}
                _ => {
                    self.hidden = false;
                    self.gap('\n');
                }
            }
        }

        fn gap(&mut self, blank: char) {
            if self.out.ends_with(|last: char| !last.is_whitespace()) {
                self.out.push(blank);
            }
        }
    }
}

#[cfg(all(test, feature = "sinks"))]
mod tests {
    use super::*;

    fn text(markdown: &str) -> String {
        plain_text("Title", markdown)
    }

    #[test]
    fn what_a_reader_sees_is_left() {
        for (markdown, plain) in [
            ("It is *your* **own** ~~old~~ `code`.", "It is your own old code."),
            ("mid*dle*", "middle"),
            ("# Title\n\nText", "Text"),
            ("## Setup\nDo\n---\nIt", "Setup\nDo\nIt"),
            ("one\ntwo  \nthree\n\nfour", "one two\nthree\nfour"),
            ("```toml\n[dependencies]\nx = \"1\"\n```\nafter", "[dependencies]\nx = \"1\"\nafter"),
            ("    indented *code*", "indented *code*"),
            ("- a\n- b\n  - c\n1. d", "a\nb\nc\nd"),
            ("- [ ] todo\n- [x] done", "todo\ndone"),
            ("|It|means|\n|--|:--|\n|`Do`|a \\| b|", "It means\nDo a | b"),
            ("[text](https://a.test/x \"t\") ![alt *text*](/i.png)", "text alt text"),
            ("[text][1]\n\n[1]: https://a.test", "text"),
            ("<https://a.test/x>", "https://a.test/x"),
            ("Footnote[^1].\n\n[^1]: The note", "Footnote.\nThe note"),
            ("> quoted\n> > twice", "quoted\ntwice"),
            ("\\*stars\\* &amp; [brackets] # | a_b_c 2 * 3 * 4", "*stars* & [brackets] # | a_b_c 2 * 3 * 4"),
            ("a<br>b <kbd>Ctrl</kbd>+<b>C</b> <!-- no -->c", "a b Ctrl+C c"),
            ("a <script>alert(1)</script>b", "a b"),
            ("<div title=\"a > b\">\ntext &lt;x&gt;\n</div>\n\nafter", "text <x>\nafter"),
            ("<script>\nalert(1)\n</script>\n\nafter", "after"),
            ("", ""),
        ] {
            let text = text(markdown);
            let lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
            assert_eq!(lines.join("\n"), plain, "{markdown}");
        }
    }

    #[test]
    fn nesting_and_raw_html_without_end_lose_no_text_and_no_time() {
        for opening in ["> ", "- ", "*a **b ", "[", "![", "<b>x ", "<div>", "<!-- -->", "<a b='"] {
            let text = text(&format!("{}end\n\nafter", opening.repeat(50_000)));
            assert!(text.ends_with("after"), "{opening}");
        }
    }
}
