//! Lists of exceptions: what a filter finds, and pages that end.

use std::time::Duration;

use vayu_articles::outbox::{ExceptionCursor, ExceptionInfo, ExceptionState, Filter, NewEvent};

use crate::harness::{Scripted, Site, Step, drain, stop};

fn ids(found: &[ExceptionInfo]) -> Vec<i64> {
    found.iter().map(|info| info.outbox_id).collect()
}

/// Six dead letters of handler `h` (types and keys differ, the last two came an hour later) and as many of `i`.
fn dead_letters() -> (Site, Vec<i64>) {
    let site = Site::new();
    let types = ["order.placed", "order.paid", "user.born", "order.placed", "order.paid", "user.born"];
    let mut inserted = Vec::new();
    for (place, event_type) in types.iter().enumerate() {
        if place == 4 {
            let relay = poisoned(&site, &inserted);
            drain(&relay);
            stop(&relay);
            site.clock.advance(3_600_000);
        }
        let key = if place % 2 == 0 { "even" } else { "odd" };
        inserted.push(site.insert_event(NewEvent::from_json(*event_type, "{}").key(key)));
    }
    let relay = poisoned(&site, &inserted);
    drain(&relay);
    stop(&relay);
    (site, inserted)
}

fn poisoned(site: &Site, ids: &[i64]) -> vayu_articles::outbox::Relay {
    let handlers = [Scripted::new(), Scripted::new()];
    for handler in &handlers {
        ids.iter().for_each(|id| handler.script(*id, [Step::Poison]));
    }
    let [first, second] = handlers;
    site.relay().shared_handler("h", first).shared_handler("i", second).start().unwrap()
}

#[test]
fn a_filter_finds_what_fits_in_every_respect() {
    let (site, all) = dead_letters();
    let find = |change: &dyn Fn(&mut Filter)| {
        let mut filter = Filter::default().of_handler("h");
        change(&mut filter);
        ids(&site.operator().exceptions(&filter, None, 100).unwrap().exceptions)
    };
    assert_eq!(find(&|_| {}), all);
    assert_eq!(find(&|filter| filter.event_type = Some("order.paid".into())), [all[1], all[4]]);
    assert_eq!(find(&|filter| filter.event_type = Some("order.*".into())), [all[0], all[1], all[3], all[4]]);
    assert_eq!(find(&|filter| filter.key = Some("odd".into())), [all[1], all[3], all[5]]);
    assert_eq!(find(&|filter| filter.reason = Some("TOLD to".into())), all);
    assert_eq!(find(&|filter| filter.reason = Some("refused".into())), [] as [i64; 0]);
    assert_eq!(find(&|filter| filter.older_than = Some(Duration::from_secs(1_800))), all[..4]);
    assert_eq!(find(&|filter| filter.newer_than = Some(Duration::from_secs(1_800))), all[4..]);
    assert_eq!(find(&|filter| filter.states = vec![ExceptionState::Retry]), [] as [i64; 0]);
    let both = find(&|filter| {
        filter.key = Some("odd".into());
        filter.event_type = Some("user.born".into());
    });
    assert_eq!(both, [all[5]]);
    let everywhere = site.operator().exceptions(&Filter::default(), None, 100).unwrap();
    assert_eq!(everywhere.exceptions.len(), 12, "of both handlers");
    assert_eq!(everywhere.exceptions[0].event_type.as_deref(), Some("order.placed"));
    assert_eq!(everywhere.next, None);
}

#[test]
fn pages_go_through_everything_once_in_order_whatever_their_size() {
    let (site, all) = dead_letters();
    site.operator().discard(all[1], "h", "not wanted").unwrap();
    site.operator().replay(all[2], "i", false).unwrap();
    let filter = Filter::states(ExceptionState::ALL);
    let whole = site.operator().exceptions(&filter, None, 100).unwrap().exceptions;
    assert_eq!(whole.len(), 12);
    for size in [1, 2, 5, 12] {
        let (mut seen, mut place, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = site.operator().exceptions(&filter, place.as_ref(), size).unwrap();
            assert!(page.exceptions.len() <= size);
            seen.extend(page.exceptions);
            pages += 1;
            let Some(next) = page.next else { break };
            let text = next.to_string();
            assert_eq!(text.parse::<ExceptionCursor>().unwrap(), next);
            place = Some(next);
        }
        assert_eq!(seen, whole, "pages of {size}");
        assert_eq!(pages, 12usize.div_ceil(size));
    }
    assert!("4711".parse::<ExceptionCursor>().is_err());
}

#[test]
fn a_page_looks_at_a_bounded_number_of_rows_and_says_where_to_go_on() {
    let site = Site::new();
    site.foreign(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25000) \
         INSERT INTO deliveries (outbox_id, handler, event_key, state, reason, created_at, updated_at) \
         SELECT i, 'h', 'k' || i, 'dead_letter', iif(i = 25000, 'the one', 'others'), 0, 0 FROM n",
    )
    .unwrap();
    let mut filter = Filter::default();
    filter.reason = Some("the one".into());
    let (mut place, mut pages) = (None, 0);
    let found = loop {
        let page = site.operator().exceptions(&filter, place.as_ref(), 10).unwrap();
        pages += 1;
        if let Some(found) = page.exceptions.first() {
            break found.outbox_id;
        }
        place = Some(page.next.expect("goes on"));
    };
    assert_eq!((found, pages), (25_000, 3));
    filter.key = Some("k25000".into());
    let page = site.operator().exceptions(&filter, None, 10).unwrap();
    assert_eq!(ids(&page.exceptions), [25_000], "a key is found at once");
}

#[test]
fn what_fits_a_filter_is_replayed_in_order_and_what_needs_force_is_counted() {
    let (site, all) = dead_letters();
    let mut filter = Filter::default().of_handler("h");
    filter.event_type = Some("order.placed".into());
    let done = site.operator().replay_matching(&filter, false).unwrap();
    assert_eq!((done.replayed, done.left), (2, 0));
    filter.event_type = None;
    let handler = Scripted::new();
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    assert_eq!(handler.done(), [all[0], all[3]]);
    // `even` has its second still dead, `odd` its first: superseded by what was done since.
    let done = site.operator().replay_matching(&filter, false).unwrap();
    assert_eq!((done.replayed, done.left), (3, 1));
    handler.wait_calls(5);
    drain(&relay);
    assert_eq!(handler.done(), [all[0], all[3], all[2], all[4], all[5]]);
    assert_eq!(site.operator().replay_matching(&filter, true).unwrap().replayed, 1);
    handler.wait_calls(6);
    drain(&relay);
    assert_eq!(handler.done().last(), Some(&all[1]));
    stop(&relay);
}

#[test]
fn a_trace_tells_the_whole_trail_and_a_story_the_edited_payload() {
    let site = Site::new();
    let event = |id: &str| NewEvent::from_json("t", "1").key("a").correlation_id(id).causation_id("job-1");
    let first = site.insert_event(event("request-1"));
    site.insert_event(event("request-2"));
    let third = site.insert_event(event("request-1"));
    let trail = site.operator().trace("request-1", 10).unwrap();
    assert_eq!(trail.iter().map(|event| event.id).collect::<Vec<_>>(), [first, third]);
    assert_eq!(site.operator().trace("request-1", 1).unwrap().len(), 1);
    assert!(site.operator().trace("request-3", 10).unwrap().is_empty());
    let handler = Scripted::new();
    handler.script(first, [Step::Poison]);
    let relay = site.relay().shared_handler("h", handler.clone()).start().unwrap();
    drain(&relay);
    stop(&relay);
    site.operator().edit(first, "h", "{\"mended\": true}", true).unwrap();
    let story = site.operator().show(&first.to_string()).unwrap().unwrap();
    assert_eq!(story.event.unwrap().payload, "1", "the log never changes");
    assert_eq!(story.edited, [("h".to_owned(), "{\"mended\": true}".to_owned())]);
    let whats: Vec<_> = story.exceptions[0].history.iter().map(|entry| entry.what.as_str()).collect();
    assert_eq!(whats, ["poison", "edit"]);
    assert!(story.exceptions[0].edited);
}
