//! What keeps the sanitiser's time in proportion to a text's length, whatever the text is made of.
//!
//! Its time grows with the square of several things: the depth, the raw tags left open, the attributes of a tag, and what has to be
//! escaped between two tags. One post of 5 MB made of nothing else would keep it busy for hours. No text is lost here: too
//! much raw HTML is shown as text, and only addresses and the like that no reader could use are emptied.

use pulldown_cmark::{CodeBlockKind, CowStr, Event, Tag, TagEnd};

/// Levels of quotes, lists and emphasis, at most. The sanitiser's time grows with the square of the depth, and 5 MB of `>`
/// would keep it busy for hours.
const DEPTH_MAX: usize = 64;
/// Tags opened by raw HTML, at most, for the same reason: nobody can tell cheaply which of them are closed.
const RAW_TAGS_MAX: usize = 5_000;
/// Blanks and slashes in raw HTML, at most: each may begin an attribute, and the sanitiser compares those of a tag pairwise.
const RAW_GAPS_MAX: usize = 20_000;
/// Blocks and spans of a text with a raw table, at most: what stands in a table and does not belong there is moved out of
/// it, past all that was moved before.
const RAW_TABLE_SPANS_MAX: usize = 20_000;
/// Characters that HTML can only write as `&…;` in one paragraph of a text with raw HTML, at most, or the like in
/// several: the sanitiser's time grows with the square of their number between two tags. A text without raw HTML may have
/// any number.
const RAW_ESCAPES_MAX: usize = 5_000;
/// Such characters in one attribute (the address of a link, the description of an image), at most.
const ATTRIBUTE_ESCAPES_MAX: usize = 200;
/// Such characters between two tags, at most; then an empty comment, which the sanitiser takes out, comes between them.
const RUN_ESCAPES_MAX: usize = 200;

/// The parser's events within those bounds; they still have to be [`interrupted`].
pub(super) fn events<'a>(parser: impl Iterator<Item = Event<'a>>) -> Vec<Event<'a>> {
    let mut events = flattened(parser);
    tame_raw_html(&mut events);
    tame_attributes(&mut events);
    events
}

/// The events without what is nested beyond [`DEPTH_MAX`]; the text in there stays.
fn flattened<'a>(parser: impl Iterator<Item = Event<'a>>) -> Vec<Event<'a>> {
    let mut depth = 0_usize;
    let shallow = |event: &Event<'_>| match event {
        Event::Start(_) => {
            depth += 1;
            depth <= DEPTH_MAX
        }
        Event::End(_) => {
            depth = depth.saturating_sub(1);
            depth < DEPTH_MAX
        }
        _ => true,
    };
    parser.filter(shallow).collect()
}

/// Shows raw HTML as text where there is too much of it, or too much text around it.
fn tame_raw_html(events: &mut [Event<'_>]) {
    let (mut opened, mut gaps, mut run, mut runs) = (0, 0, 0_usize, 0_usize);
    let (mut spans, mut table) = (0, false);
    for event in events.iter() {
        match event {
            Event::Html(html) | Event::InlineHtml(html) => {
                let pairs = html.as_bytes().windows(2);
                opened += pairs.filter(|pair| pair[0] == b'<' && pair[1].is_ascii_alphabetic()).count();
                gaps += html.bytes().filter(|byte| byte.is_ascii_whitespace() || *byte == b'/').count();
                run += html.bytes().filter(|byte| *byte == b'&').count();
                table |= html.as_bytes().windows(6).any(|tag| tag.eq_ignore_ascii_case(b"<table"));
            }
            Event::Text(text) => run += text.bytes().filter(|byte| b"&<>".contains(byte)).count(),
            Event::Start(_) | Event::End(_) | Event::Code(_) => {
                spans += usize::from(matches!(event, Event::Start(_)));
                runs += run * run;
                run = 0;
            }
            _ => {}
        }
    }
    runs += run * run;
    let tables = !table || spans <= RAW_TABLE_SPANS_MAX;
    if tables && opened <= RAW_TAGS_MAX && gaps <= RAW_GAPS_MAX && runs <= RAW_ESCAPES_MAX * RAW_ESCAPES_MAX {
        return;
    }
    for event in events {
        if let Event::Html(html) | Event::InlineHtml(html) = event {
            *event = Event::Text(std::mem::replace(html, CowStr::Borrowed("")));
        }
    }
}

/// Empties what would become an attribute with too many escapes.
fn tame_attributes(events: &mut [Event<'_>]) {
    let mut images = 0_usize;
    let mut described = 0;
    for event in events {
        if let Event::Start(Tag::Image { .. }) = event {
            images += 1;
            described = if images == 1 { 0 } else { described };
        }
        match event {
            Event::Start(Tag::Link { dest_url, title, .. } | Tag::Image { dest_url, title, .. }) => {
                for attribute in [dest_url, title] {
                    if escapes_of(attribute) > ATTRIBUTE_ESCAPES_MAX {
                        *attribute = CowStr::Borrowed("");
                    }
                }
            }
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) if escapes_of(info) > ATTRIBUTE_ESCAPES_MAX => {
                *info = CowStr::Borrowed("");
            }
            // A note's name stands in its address and in the link to it, and has to stay the same in both.
            Event::FootnoteReference(name) | Event::Start(Tag::FootnoteDefinition(name))
                if escapes_of(name) > ATTRIBUTE_ESCAPES_MAX =>
            {
                *name = CowStr::from(name.replace(|char: char| char.is_ascii() && is_escaped(char as u8), ""));
            }
            Event::End(TagEnd::Image) => images = images.saturating_sub(1),
            Event::Text(text) | Event::Code(text) if images > 0 => {
                described += escapes_of(text);
                if described > ATTRIBUTE_ESCAPES_MAX {
                    *text = CowStr::Borrowed("");
                }
            }
            _ => {}
        }
    }
}

/// The events with an empty comment after so many characters that have to be escaped. A text with raw HTML has fewer
/// than that matters, and is left alone: a comment could end up inside something of its own.
pub(super) fn interrupted(events: Vec<Event<'_>>) -> Vec<Event<'_>> {
    if events.iter().any(|event| matches!(event, Event::Html(_) | Event::InlineHtml(_))) {
        return events;
    }
    let mut out = Vec::with_capacity(events.len());
    let (mut images, mut run) = (0_usize, 0);
    for event in events {
        match event {
            Event::Start(Tag::Image { .. }) => images += 1,
            Event::End(TagEnd::Image) => images = images.saturating_sub(1),
            _ => {}
        }
        match event {
            Event::Text(text) if images == 0 && run + escapes_of(&text) > RUN_ESCAPES_MAX => {
                let mut from = 0;
                for (at, byte) in text.bytes().enumerate() {
                    run += usize::from(is_escaped(byte));
                    if run > RUN_ESCAPES_MAX {
                        // All of these bytes are characters of their own, so this is a boundary.
                        out.push(Event::Text(CowStr::from(text[from..at].to_owned())));
                        out.push(Event::InlineHtml(CowStr::Borrowed("<!---->")));
                        (from, run) = (at, 1);
                    }
                }
                out.push(Event::Text(CowStr::from(text[from..].to_owned())));
            }
            Event::Code(text) if images == 0 && escapes_of(&text) > RUN_ESCAPES_MAX => {
                // A span cannot be interrupted from outside; as text it can be.
                out.extend(interrupted(vec![Event::Text(text)]));
                run = RUN_ESCAPES_MAX;
            }
            event => {
                if let Event::Text(text) | Event::Code(text) = &event {
                    run += escapes_of(text);
                } else if matches!(event, Event::Start(_) | Event::End(_)) {
                    run = 0;
                }
                out.push(event);
            }
        }
    }
    out
}

fn escapes_of(text: &str) -> usize {
    text.bytes().filter(|byte| is_escaped(*byte)).count()
}

fn is_escaped(byte: u8) -> bool {
    matches!(byte, b'&' | b'<' | b'>' | b'"' | b'\'')
}
