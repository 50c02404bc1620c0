//! Varnish dies, stays away and comes back.

use vayu_articles::article::ArticlePatch;
use vayu_articles::outbox::LaneState;

use super::harness::{Fronted, SHAPES, wait_until};

#[test]
fn an_outage_of_varnish_spends_nothing_and_is_caught_up_with() {
    for shape in SHAPES {
        let Some(mut site) = Fronted::start(shape, None) else { return };
        for number in 0..10 {
            site.post(&format!("p{number}"), "old", &["t"]);
        }
        site.drain();
        site.warm("/articles/p0");
        let backend = site.origin_port();
        site.varnish.kill();
        for number in 0..10 {
            site.update(&format!("p{number}"), ArticlePatch::default().content("new"));
        }
        let cdn_pauses = || {
            let lanes = site.relay.status();
            lanes.iter().any(|lane| lane.handler == "cdn" && matches!(lane.state, LaneState::Paused { .. }))
        };
        wait_until("the lane pauses", cdn_pauses);
        assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0, "nothing is spent");
        site.varnish.up(backend);
        let paths: Vec<String> = (0..10).map(|number| format!("/articles/p{number}")).collect();
        site.wait_for_lane("cdn");
        assert_eq!(site.count("SELECT count(*) FROM deliveries"), 0);
        site.assert_fresh(paths.iter().map(String::as_str));
        assert!(site.warm("/articles/p3").body.contains("new"));
    }
}
