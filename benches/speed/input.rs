//! What is written: articles of 2 KB with two tags, the same for the product and for the raw loop.

use uuid::Uuid;
use vayu_articles::article::NewArticle;

const PARAGRAPH: &str = "An outbox is a table beside your own tables: what happened is written there in the very \
    transaction that made it happen, and a relay tells everybody later, once and again until they have heard it. ";

/// Text of exactly 2,048 bytes.
pub fn content(number: usize) -> String {
    let mut text = format!("Number {number}. ");
    while text.len() < 2_048 {
        text.push_str(PARAGRAPH);
    }
    text.truncate(2_048);
    text
}

pub fn title(series: &str, number: usize) -> String {
    format!("Notes on {series} number {number}")
}

pub fn slug(series: &str, number: usize) -> String {
    format!("notes-on-{series}-number-{number}")
}

pub fn tags(number: usize) -> [String; 2] {
    [format!("topic-{}", number % 50), format!("author-{}", number % 7)]
}

/// The article as a caller hands it to the product.
pub fn article(series: &str, number: usize) -> NewArticle {
    NewArticle::new(title(series, number), content(number)).tags(tags(number))
}

pub fn articles(series: &str, numbers: std::ops::Range<usize>) -> Vec<NewArticle> {
    numbers.map(|number| article(series, number)).collect()
}

/// The same for the raw loop: every value that a statement binds is there before the clock starts.
pub struct Item {
    pub id: String,
    pub slug: String,
    pub title: String,
    pub content: String,
    pub tags: [String; 2],
    pub event_id: String,
    pub payload: String,
    pub at: i64,
}

impl Item {
    pub fn new(series: &str, number: usize) -> Self {
        let (id, slug, title, tags) = (uuid(), slug(series, number), title(series, number), tags(number));
        let payload = payload(&id, 1, &slug, &title, &tags, "null");
        Self {
            id,
            slug,
            title,
            content: content(number),
            tags,
            event_id: uuid(),
            payload,
            at: 1_767_225_600_000 + number as i64,
        }
    }
}

pub fn items(series: &str, numbers: std::ops::Range<usize>) -> Vec<Item> {
    numbers.map(|number| Item::new(series, number)).collect()
}

/// An event's payload, as the product writes it.
pub fn payload(id: &str, version: i64, slug: &str, title: &str, tags: &[String; 2], previous: &str) -> String {
    let [first, second] = tags;
    format!(
        r#"{{"id":"{id}","version":{version},"kind":"post","slug":"{slug}","title":"{title}","status":"published","tags":["{first}","{second}"],"previous":{previous}}}"#
    )
}

pub fn uuid() -> String {
    Uuid::now_v7().to_string()
}
