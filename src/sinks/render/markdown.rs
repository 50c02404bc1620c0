//! Markdown into HTML that is safe to serve.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use ammonia::Builder;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

use super::tame;
use crate::article::slug_from_title;

/// Characters of the description, at most.
const DESCRIPTION_CHARS: usize = 160;
/// Classes that the renderer itself writes; besides them only `language-…` on code passes.
const CLASSES: [&str; 6] = [
    "footnote-reference",
    "footnote-definition",
    "footnote-definition-label",
    "align-left",
    "align-center",
    "align-right",
];

/// A rendered text.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rendered {
    /// Sanitised HTML: no script, no event handler, no inline style, no link but http, https, mailto, tel or relative.
    pub html: String,
    /// The beginning as plain text, up to 160 characters.
    pub description: String,
}

/// Renders CommonMark with tables, footnotes, strikethrough and task lists for a page whose heading is `title`: the
/// text's headings stand below it and get ids, and a first heading that repeats the title is left out. Raw HTML is kept as far as it is harmless.
pub fn markdown(title: &str, text: &str) -> Rendered {
    let mut events = tame::events(parser(text));
    drop_title(&mut events, title);
    let description = description(&events, DESCRIPTION_CHARS);
    name_headings(&mut events);
    let events = tame::interrupted(events);
    let mut html = String::with_capacity(text.len() + text.len() / 2);
    html::push_html(&mut html, events.into_iter());
    let html = SANITISER.clean(&classes_for_alignment(html)).to_string();
    Rendered { html, description }
}

/// The beginning of a text as plain text, up to `chars` characters: paragraphs without headings and code.
pub fn excerpt(title: &str, text: &str, chars: usize) -> String {
    let mut events = tame::events(parser(text));
    drop_title(&mut events, title);
    description(&events, chars)
}

/// The one way in which articles are read as Markdown.
pub(in crate::sinks) fn parser(text: &str) -> Parser<'_> {
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    Parser::new_ext(text, options)
}

/// Whether a first heading only repeats the title.
pub(in crate::sinks) fn same_title(title: &str, heading: &str) -> bool {
    heading.trim().to_lowercase() == title.trim().to_lowercase()
}

/// The renderer aligns table cells by inline styles, which a strict content security policy forbids. In text, a
/// quotation mark is escaped, so what is replaced here stands in a tag.
fn classes_for_alignment(html: String) -> String {
    if !html.contains("style=\"text-align") {
        return html;
    }
    ["left", "center", "right"].iter().fold(html, |html, side| {
        html.replace(&format!("style=\"text-align: {side}\""), &format!("class=\"align-{side}\""))
    })
}

/// Removes the first heading if it says what the page's heading says.
fn drop_title(events: &mut Vec<Event<'_>>, title: &str) {
    if !matches!(events.first(), Some(Event::Start(Tag::Heading { level: HeadingLevel::H1, .. }))) {
        return;
    }
    let Some(end) = events.iter().position(|event| matches!(event, Event::End(TagEnd::Heading(_)))) else { return };
    if same_title(title, &text_of(&events[..end])) {
        events.drain(..=end);
    }
}

/// Gives each heading an id, and moves all of them so that the highest stands right below the page's own heading.
fn name_headings(events: &mut [Event<'_>]) {
    let levels = events.iter().filter_map(|event| match event {
        Event::Start(Tag::Heading { level, .. }) => Some(*level as usize),
        _ => None,
    });
    let highest = levels.min().unwrap_or(1);
    let mut taken: HashMap<String, usize> = HashMap::new();
    for at in 0..events.len() {
        let name = match &mut events[at] {
            Event::Start(Tag::Heading { level, .. }) => {
                *level = moved(*level, highest);
                heading_name(&events[at..], &mut taken)
            }
            Event::End(TagEnd::Heading(level)) => {
                *level = moved(*level, highest);
                continue;
            }
            _ => continue,
        };
        if let Event::Start(Tag::Heading { id, .. }) = &mut events[at] {
            *id = Some(CowStr::from(name));
        }
    }
}

fn heading_name(from_heading: &[Event<'_>], taken: &mut HashMap<String, usize>) -> String {
    let end = from_heading.iter().position(|event| matches!(event, Event::End(TagEnd::Heading(_)))).unwrap_or(0);
    let base = slug_from_title(&text_of(&from_heading[..end]));
    let times = taken.entry(base.clone()).or_insert(0);
    *times += 1;
    if *times == 1 { base } else { format!("{base}-{times}") }
}

fn moved(level: HeadingLevel, highest: usize) -> HeadingLevel {
    HeadingLevel::try_from((level as usize + 2 - highest).min(6)).unwrap_or(HeadingLevel::H6)
}

fn text_of(events: &[Event<'_>]) -> String {
    let mut text = String::new();
    for event in events {
        match event {
            Event::Text(part) | Event::Code(part) => text.push_str(part),
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            _ => {}
        }
    }
    text
}

/// The first paragraphs, without headings and code.
fn description(events: &[Event<'_>], most: usize) -> String {
    let mut text = String::new();
    let mut chars = 0;
    let mut inside = false;
    for event in events {
        match event {
            Event::Start(Tag::Paragraph) => inside = true,
            Event::End(TagEnd::Paragraph) => {
                inside = false;
                text.push(' ');
            }
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            Event::Text(part) | Event::Code(part) if inside => {
                text.push_str(part);
                chars += part.chars().count();
            }
            _ => {}
        }
        if chars > most {
            break;
        }
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= most {
        return text;
    }
    let cut: String = text.chars().take(most.saturating_sub(1)).collect();
    let whole_words = cut.rsplit_once(' ').map_or(cut.as_str(), |(words, _)| words);
    format!("{whole_words}…")
}

static SANITISER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut builder = Builder::default();
    builder
        .add_tags(["input"])
        .add_tag_attributes("input", ["checked"])
        .set_tag_attribute_value("input", "type", "checkbox")
        .set_tag_attribute_value("input", "disabled", "")
        .set_tag_attribute_value("img", "loading", "lazy")
        .url_schemes(HashSet::from(["http", "https", "mailto", "tel"]))
        .attribute_filter(|_, attribute, value| match attribute {
            "class" => {
                let kept: Vec<&str> = value.split_whitespace().filter(|class| is_allowed(class)).collect();
                (!kept.is_empty()).then(|| kept.join(" ").into())
            }
            _ => Some(value.into()),
        });
    for heading in ["h1", "h2", "h3", "h4", "h5", "h6", "div"] {
        builder.add_tag_attributes(heading, ["id"]);
    }
    for classed in ["code", "sup", "div", "td", "th"] {
        builder.add_tag_attributes(classed, ["class"]);
    }
    builder
});

fn is_allowed(class: &str) -> bool {
    CLASSES.contains(&class) || class.starts_with("language-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn html(text: &str) -> String {
        markdown("Title", text).html
    }

    #[test]
    fn markdown_becomes_html() {
        assert_eq!(html("# Title\n\nHello *you*"), "<p>Hello <em>you</em></p>\n");
        assert_eq!(html("# Other"), "<h2 id=\"other\">Other</h2>\n");
        assert_eq!(html("## A\n## A"), "<h2 id=\"a\">A</h2>\n<h2 id=\"a-2\">A</h2>\n");
        assert_eq!(html("# Title\n## A\n###### B"), "<h2 id=\"a\">A</h2>\n<h6 id=\"b\">B</h6>\n");
        assert_eq!(html("# A\n## B"), "<h2 id=\"a\">A</h2>\n<h3 id=\"b\">B</h3>\n");
        assert!(html("```rust\nfn\n```").contains("<code class=\"language-rust\">"));
        assert!(html("|a|b|\n|:-:|--|\n|c|d|").contains("<td class=\"align-center\">c</td>"));
        let tasks = html("- [x] done\n- [ ] open");
        assert_eq!(tasks.matches("type=\"checkbox\"").count(), 2, "{tasks}");
        assert_eq!(tasks.matches("checked=").count(), 1, "{tasks}");
        assert!(html("a[^1]\n\n[^1]: note").contains("footnote-definition"));
        assert!(html("~~x~~").contains("<del>x</del>"));
    }

    #[test]
    fn what_could_run_is_taken_out() {
        for hostile in [
            "<script>alert(1)</script>",
            "<img src=x onerror=alert(1)>",
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt&#58;alert(1))",
            "<a href=\"data:text/html,<script>alert(1)</script>\">x</a>",
            "<p style=\"background:url(//evil)\" onclick=alert(1)>x</p>",
            "<iframe src=//evil></iframe><object data=x></object><embed src=x>",
            "<svg><script>alert(1)</script></svg><math><mi xlink:href=\"javascript:alert(1)\">",
            "<form action=//evil><input name=q type=password></form>",
            "<style>@import '//evil'</style><link rel=stylesheet href=//evil>",
            "<base href=//evil><meta http-equiv=refresh content='0;url=//evil'>",
            "![x](javascript:alert(1))",
            "<div class=\"site-header evil\" id=\"x\"><h1 onmouseover=alert(1)>",
        ] {
            let html = html(hostile).to_lowercase();
            for evil in [
                "<script",
                "javascript:",
                "onerror",
                "onclick",
                "onmouseover",
                "<iframe",
                "<object",
                "<embed",
                "<svg",
                "style",
                "data:",
                "<form",
                "<base",
                "<meta",
                "password",
                "site-header",
                "<link",
            ] {
                assert!(!html.contains(evil), "{hostile} gave {html}");
            }
        }
    }

    #[test]
    fn a_description_is_plain_and_short() {
        let described = |text: &str| markdown("T", text).description;
        assert_eq!(described("# T\n\nOne *two*\nthree.\n\n```\ncode\n```\n\nfour"), "One two three. four");
        let long = described(&"word ".repeat(100));
        assert!(long.chars().count() <= DESCRIPTION_CHARS && long.ends_with("word…"), "{long}");
        assert_eq!(described(""), "");
    }

    #[test]
    fn nesting_without_end_costs_no_time_without_end() {
        for opening in ["> ", "<div>", "<b>x ", "- ", "*a **b "] {
            let html = html(&(opening.repeat(50_000) + "end"));
            assert!(html.contains("end"), "{opening}");
        }
        assert!(html(&"<i>x</i> ".repeat(3_000)).contains("<i>"));
        let misplaced = html(&format!("<TABLE>\n\n{}", "a\n\n".repeat(60_000)));
        assert!(misplaced.contains("&lt;TABLE&gt;"), "shown as text");
    }

    #[test]
    fn escapes_without_end_cost_no_time_without_end_and_no_character() {
        const MANY: usize = 50_000;
        let ands = "&".repeat(MANY);
        let escaped = |html: &str| html.matches("&amp;").count();
        for text in [ands.clone(), "&\n".repeat(MANY), format!("```\n{ands}\n```"), format!("`{ands}`")] {
            let html = html(&text);
            assert_eq!(escaped(&html), MANY, "{}", &html[..80]);
            assert!(!html.contains("<!--"));
        }
        let note = format!("x[^{ands}]\n\n[^{ands}]: note");
        assert!(html(&note).contains("note"));
        for text in [format!("[x](/{ands} \"{ands}\")"), format!("![{ands}](/x)"), format!("``` {ands}\nx\n```")] {
            assert!(html(&text).len() < 1_000, "{}", &text[..20]);
        }
        for raw in [format!("<p>{ands}"), format!("<p title='{ands}'>x"), format!("<table>\n\n{ands}")] {
            assert!(escaped(&html(&raw)) >= MANY, "shown as text: {}", &raw[..20]);
        }
        // Many apart are as good as few.
        let apart = "'a' & <b>\n\n".repeat(4_000);
        assert!(html(&apart).contains("<b>"), "raw HTML stays");
        let attributes: String = (0..MANY).map(|n| format!(" a{n}=1")).collect();
        assert!(html(&format!("<p{attributes}>x")).contains("a9=1"), "shown as text");
        let few = html("`&` and [a&b](/x?a=1&b=2&c='3') and ![\"a\" & <b>](/y) <kbd>&</kbd>");
        assert_eq!(escaped(&few), 6, "{few}");
    }
}
