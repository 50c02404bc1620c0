//! Whatever comes in: slugs of any text, and any sequence of mutations against a model that is a map.

mod article_support;

use std::collections::HashMap;

use article_support::{Site, create};
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use vayu_articles::article::{
    Applied, Article, ArticlePatch, Expected, Kind, MAX_SLUG_CHARS, Mutation, NewArticle, Status, slug_from_title,
};
use vayu_articles::queue::{WriteJob, Writer};

fn is_slug(slug: &str) -> bool {
    (1..=MAX_SLUG_CHARS).contains(&slug.len())
        && slug.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
        && !slug.starts_with('-')
        && !slug.ends_with('-')
        && !slug.contains("--")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn every_title_has_a_well_formed_slug(title in any::<String>()) {
        let slug = slug_from_title(&title);
        prop_assert!(is_slug(&slug), "{:?} became {:?}", title, slug);
        prop_assert_eq!(slug_from_title(&slug), slug.as_str(), "a slug is its own slug");
        prop_assert_eq!(slug_from_title(&format!(" \u{200b}{title}\u{feff} !")), slug, "edges do not count");
    }

    #[test]
    fn every_long_title_has_a_well_formed_slug(title in "[\\p{L}\\p{M}\\p{N}\\p{P}\\p{Z}\\p{S}]{150,500}") {
        let slug = slug_from_title(&title);
        prop_assert!(is_slug(&slug), "{:?} became {:?}", title, slug);
    }

    #[test]
    fn composed_and_decomposed_titles_have_one_slug(title in "[a-zA-Zà-ÿĀ-ſΑ-ωА-я ]{1,40}") {
        use unicode_normalization::UnicodeNormalization;
        let composed: String = title.nfc().collect();
        let decomposed: String = title.nfd().collect();
        prop_assert_eq!(slug_from_title(&composed), slug_from_title(&decomposed));
    }
}

fn json() -> impl Strategy<Value = serde_json::Value> {
    use serde_json::Value;
    let name = prop_oneof!["title|content|slug|tags|kind|status|id|version", any::<String>()];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        "post|page|draft|published".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 16, 6, |inner| proptest::collection::vec(inner, 0..6).prop_map(Value::from));
    proptest::collection::hash_map(name, value, 0..8).prop_map(|fields| fields.into_iter().collect())
}

proptest! {
    #[test]
    fn g12_any_json_is_an_article_or_an_error_that_names_a_field(json in json()) {
        for checked in [
            NewArticle::from_json(&json).map(Mutation::Create),
            ArticlePatch::from_json(&json)
                .map(|patch| Mutation::Update { slug: "x".into(), patch, expected: Expected::any() }),
        ] {
            if let Err(error) = checked.and_then(|mutation| mutation.prepare(0, None, None)) {
                prop_assert_eq!(error.code(), "invalid");
                prop_assert!(error.field().is_some());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn g12_what_is_accepted_is_stored_exactly(
        texts in proptest::collection::vec((any::<String>(), any::<String>(), any::<Option<String>>()), 1..20),
        tags in proptest::collection::vec("\\PC{0,8}", 0..4),
    ) {
        let site = Site::new();
        let writer = site.direct();
        for (title, content, slug) in texts {
            let mut new = NewArticle::new(title.clone(), content.clone()).tags(tags.clone());
            new.slug = slug;
            match writer.enqueue(create(new)).map(|receipt| receipt.into_applied().unwrap().into_article().unwrap()) {
                Ok(article) => {
                    prop_assert_eq!((&article.title, &article.content), (&title, &content));
                    prop_assert_eq!(site.repository().by_slug(&article.slug).unwrap(), Some(article));
                }
                Err(error) => prop_assert!(matches!(error.code(), "invalid" | "slug_taken"), "{}", error),
            }
        }
        site.assert_log_explains_articles();
    }
}

/// Small alphabets, so that slugs meet.
#[derive(Debug, Clone)]
enum Step {
    Create { title: u8, slug: Option<u8>, tags: Vec<u8> },
    Update { slug: u8, title: Option<u8>, rename: Option<u8>, tags: Option<Vec<u8>>, draft: Option<bool> },
    Delete { slug: u8, version: Option<i64> },
}

fn step() -> impl Strategy<Value = Step> {
    let tags = || proptest::collection::vec(0..4_u8, 0..4);
    prop_oneof![
        3 => (0..5_u8, proptest::option::of(0..5_u8), tags())
            .prop_map(|(title, slug, tags)| Step::Create { title, slug, tags }),
        4 => (0..6_u8, proptest::option::of(0..5_u8), proptest::option::of(0..6_u8), proptest::option::of(tags()),
              proptest::option::of(any::<bool>()))
            .prop_map(|(slug, title, rename, tags, draft)| Step::Update { slug, title, rename, tags, draft }),
        2 => (0..6_u8, proptest::option::weighted(0.3, 1..4_i64))
            .prop_map(|(slug, version)| Step::Delete { slug, version }),
    ]
}

fn slug_name(n: u8) -> String {
    format!("t{n}")
}

fn title_name(n: u8) -> String {
    format!("T{n}")
}

fn tag_names(tags: &[u8]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for tag in tags {
        let name = format!("tag {tag}");
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn status(draft: bool) -> Status {
    if draft { Status::Draft } else { Status::Published }
}

fn mutation(step: &Step) -> Mutation {
    match step {
        Step::Create { title, slug, tags } => {
            let mut new = NewArticle::new(title_name(*title), "x").tags(tag_names(tags));
            new.slug = slug.map(slug_name);
            Mutation::Create(new)
        }
        Step::Update { slug, title, rename, tags, draft } => {
            let mut patch = ArticlePatch::default();
            patch.title = title.map(title_name);
            patch.slug = rename.map(slug_name);
            patch.tags = tags.as_deref().map(tag_names);
            patch.status = draft.map(status);
            Mutation::Update { slug: slug_name(*slug), patch, expected: Expected::any() }
        }
        Step::Delete { slug, version } => {
            let expected = version.map_or_else(Expected::any, Expected::version);
            Mutation::Delete { slug: slug_name(*slug), expected }
        }
    }
}

/// What an article is, as far as the steps can tell.
#[derive(Debug, Clone, PartialEq)]
struct Modelled {
    title: String,
    tags: Vec<String>,
    status: Status,
    version: i64,
}

/// Does the step in the model; the answer is the code of the error or the name of what was applied.
fn in_model(model: &mut HashMap<String, Modelled>, step: &Step, given_slug: Option<&str>) -> &'static str {
    match step {
        Step::Create { title, slug, tags } => {
            if slug.is_some_and(|slug| model.contains_key(&slug_name(slug))) {
                return "slug_taken";
            }
            let slug = slug.map_or_else(|| given_slug.unwrap().to_owned(), slug_name);
            let article =
                Modelled { title: title_name(*title), tags: tag_names(tags), status: Status::Published, version: 1 };
            assert!(model.insert(slug, article).is_none(), "a derived slug was given twice");
            "created"
        }
        Step::Update { slug, title, rename, tags, draft } => {
            let slug = slug_name(*slug);
            let Some(before) = model.get(&slug) else { return "not_found" };
            let mut after = before.clone();
            title.iter().for_each(|title| after.title = title_name(*title));
            tags.iter().for_each(|tags| after.tags = tag_names(tags));
            draft.iter().for_each(|draft| after.status = status(*draft));
            let renamed = rename.map(slug_name).filter(|new| *new != slug);
            if after == *before && renamed.is_none() {
                return "unchanged";
            }
            if renamed.as_ref().is_some_and(|new| model.contains_key(new)) {
                return "slug_taken";
            }
            after.version += 1;
            model.remove(&slug);
            model.insert(renamed.unwrap_or(slug), after);
            "updated"
        }
        Step::Delete { slug, version } => {
            let slug = slug_name(*slug);
            match model.get(&slug) {
                None => "not_found",
                Some(article) if version.is_some_and(|version| version != article.version) => "stale",
                Some(_) => {
                    model.remove(&slug);
                    "deleted"
                }
            }
        }
    }
}

fn name_of(applied: &Applied) -> &'static str {
    match applied {
        Applied::Created(_) => "created",
        Applied::Updated(_) => "updated",
        Applied::Deleted(_) => "deleted",
        Applied::Unchanged(_) => "unchanged",
        _ => "other",
    }
}

fn modelled(article: Article) -> (String, Modelled) {
    let Article { title, tags, status, version, slug, .. } = article;
    (slug, Modelled { title, tags, status, version })
}

fn check(steps: &[Step]) -> TestCaseResult {
    let site = Site::new();
    let writer = site.direct();
    let mut model = HashMap::new();
    let mut changes = 0;
    for step in steps {
        let answer = writer.enqueue(WriteJob::new(mutation(step))).map(|receipt| receipt.into_applied().unwrap());
        let slug = answer.as_ref().ok().and_then(|applied| Some(applied.article()?.slug.as_str()));
        let expected = in_model(&mut model, step, slug);
        let got = answer.as_ref().map_or_else(|error| error.code(), name_of);
        prop_assert_eq!(got, expected, "{:?}", step);
        changes += usize::from(answer.is_ok_and(|applied| applied.changed()));
    }
    let stored: HashMap<_, _> = site.articles().into_iter().map(modelled).collect();
    prop_assert_eq!(stored, model);
    prop_assert_eq!(site.events().len(), changes);
    site.assert_log_explains_articles();
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_mutations_does_what_a_map_would(steps in proptest::collection::vec(step(), 1..60)) {
        check(&steps)?;
    }
}

#[test]
fn a_batch_does_what_its_jobs_would_do_alone() {
    let (alone, together) = (Site::new(), Site::new());
    let new =
        |n: u8| NewArticle::new(title_name(n % 3), "x").kind(Kind::Post).tags(tag_names(&[n % 4])).id(format!("a{n}"));
    let jobs: Vec<WriteJob> = (0..24).map(|n| create(new(n))).collect();
    let writer = alone.direct();
    jobs.iter().for_each(|job| drop(writer.enqueue(job.clone())));
    together.direct().enqueue_batch(jobs).unwrap();
    let comparable = |site: &Site| -> Vec<(String, Vec<String>)> {
        site.articles().into_iter().map(|article| (article.slug, article.tags)).collect()
    };
    assert_eq!(comparable(&alone), comparable(&together));
}
