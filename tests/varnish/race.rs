//! A page that is on its way into the cache while it is purged.

use std::thread;
use std::time::Duration;

use vayu_articles::article::ArticlePatch;
use vayu_articles::sinks::cdn::CdnShape;

use super::harness::{AGAIN, Fronted, SHAPES};

/// Varnish asks, the server reads the old state, the change commits and is purged, and only then the old answer comes.
fn an_old_answer_comes_after_the_purge(shape: CdnShape, again: Option<Duration>) -> Option<Fronted> {
    let site = Fronted::start(shape, again)?;
    site.post("edited", "old text", &[]);
    site.post("deleted", "old text", &[]);
    site.wait_for_lane("cdn");
    let slow = ["/articles/edited", "/articles/deleted"];
    for path in slow {
        site.barrier.hold(path);
    }
    thread::scope(|scope| {
        let readers = slow.map(|path| scope.spawn(|| site.get(path)));
        slow.iter().for_each(|path| site.barrier.wait_for(path));
        site.update("edited", ArticlePatch::default().content("new text"));
        site.delete("deleted");
        site.wait_for_lane("cdn");
        site.barrier.release();
        for reader in readers {
            let page = reader.join().unwrap();
            assert!(page.status == 200 && page.body.contains("old text"), "{page:?}");
        }
    });
    Some(site)
}

#[test]
fn case_c39_an_answer_that_was_under_way_during_a_purge_is_purged_by_the_second() {
    let check = |shape: CdnShape| {
        let Some(site) = an_old_answer_comes_after_the_purge(shape, Some(AGAIN)) else { return };
        site.drain();
        let edited = site.get("/articles/edited");
        assert!(edited.body.contains("new text"), "{} {edited:?}", shape.as_str());
        assert_eq!(site.get("/articles/deleted").status, 404, "{}", shape.as_str());
        site.assert_fresh(["/articles/edited", "/articles/deleted", "/"]);
    };
    // At once: each waits for its second purge.
    thread::scope(|scope| SHAPES.into_iter().for_each(|shape| drop(scope.spawn(move || check(shape)))));
}

/// Why there is a second purge: Varnish compares bans and purges with what it has, and not with what it waits for.
#[test]
fn case_c39_without_the_second_purge_varnish_keeps_what_it_had_asked_for_before() {
    for shape in SHAPES {
        let Some(site) = an_old_answer_comes_after_the_purge(shape, None) else { return };
        let kept = site.get("/articles/edited");
        assert!(kept.is_hit() && kept.body.contains("old text"), "{}: the documents say otherwise", shape.as_str());
    }
}
