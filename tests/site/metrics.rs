//! What a monitor is told.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use crate::harness::{TestSite, WRITE_TOKEN};

/// Value by name with labels; and every family has its help and type before its lines.
fn values(text: &str) -> BTreeMap<String, f64> {
    let mut families = BTreeSet::new();
    let mut helped = BTreeSet::new();
    let mut values = BTreeMap::new();
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(help.len() > 8 && helped.insert(name.to_owned()), "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, _) = rest.split_once(' ').unwrap();
            assert!(families.insert(name.to_owned()), "{name} twice");
        } else if !line.starts_with("# UNIT ") {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let family = name.split('{').next().unwrap();
            let bare = ["_total", "_bucket", "_sum", "_count"].iter().find_map(|end| family.strip_suffix(end));
            assert!([Some(family), bare].iter().flatten().any(|name| families.contains(*name)), "{line}");
            assert!(values.insert(name.to_owned(), value.parse().unwrap()).is_none(), "{line} twice");
        }
    }
    assert!(families.iter().all(|name| name.starts_with("vayu_")), "{families:?}");
    assert_eq!(helped, families);
    values
}

#[test]
fn a_monitor_is_told_of_queue_lanes_storage_services_and_requests() {
    let site = TestSite::new();
    for n in 0..5 {
        assert_eq!(site.post(json!({"title": format!("Post {n}"), "content": "x"})).status, 201);
    }
    site.drain();
    site.get("/");
    site.get("/articles/none");
    let answer = site.send_as_is("GET", "/metrics", &[], None);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0"));
    let values = values(&answer.body);
    let value = |name: &str| *values.get(name).unwrap_or_else(|| panic!("{name} in {}", answer.body));
    assert_eq!(value("vayu_queue_jobs"), 0.0);
    assert_eq!(value("vayu_queue_waiting_bytes"), 0.0);
    assert!(value("vayu_queue_tasks_total") >= 5.0);
    for name in ["vayu_queue_wait_seconds", "vayu_queue_commit_seconds", "vayu_queue_group_tasks"] {
        assert!(value(&format!("{name}_count")) >= 5.0 && value(&format!("{name}_sum")) > 0.0, "{name}");
        assert_eq!(value(&format!("{name}_bucket{{le=\"+Inf\"}}")), value(&format!("{name}_count")), "{name}");
    }
    assert_eq!(value("vayu_outbox_events_total"), 5.0);
    for handler in ["search", "cache"] {
        let of = |name: &str| value(&format!("{name}{{handler=\"{handler}\"}}"));
        assert!(of("vayu_lane_attempts_total") >= 5.0);
        for zero in
            ["vayu_lane_lag_events", "vayu_lane_lag_seconds", "vayu_lane_dead_letters", "vayu_lane_pauses_total"]
        {
            assert_eq!(of(zero), 0.0, "{zero}");
        }
        for status in ["pending", "retry", "waiting", "parked", "dead_letter", "discarded", "done"] {
            assert_eq!(value(&format!("vayu_lane_events{{handler=\"{handler}\",status=\"{status}\"}}")), 0.0);
        }
        assert_eq!(value(&format!("vayu_lane_state{{handler=\"{handler}\",state=\"running\"}}")), 1.0);
    }
    assert!(value("vayu_storage_wal_bytes") > 0.0);
    let connections = ["busy", "idle"].map(|state| value(&format!("vayu_storage_connections{{state=\"{state}\"}}")));
    assert_eq!(connections[0] + connections[1], 4.0);
    assert_eq!(value("vayu_service_state{service=\"relay\",state=\"running\"}"), 1.0);
    assert_eq!(value("vayu_ready"), 1.0);
    assert!(value("vayu_engine_connections") >= 1.0 && value("vayu_engine_requests_in_flight") >= 1.0);
    assert!(value("vayu_engine_requests_total") >= 8.0 && value("vayu_engine_accepted_total") >= 1.0);
    for zero in ["vayu_engine_refused_total", "vayu_engine_panicked_total", "vayu_engine_cut_total"] {
        assert_eq!(value(zero), 0.0, "{zero}");
    }
    assert_eq!(value("vayu_http_requests_total{route=\"api\",status=\"201\"}"), 5.0);
    assert_eq!(value("vayu_http_requests_total{route=\"page\",status=\"404\"}"), 1.0);
    assert_eq!(value("vayu_http_request_seconds_count{route=\"page\"}"), 2.0);
}

#[test]
fn who_is_not_on_this_machine_needs_an_administrators_token_for_the_metrics() {
    let site = TestSite::new();
    let status = |headers: &[(&str, &str)]| site.send_as_is("GET", "/metrics", headers, None).status;
    assert_eq!(status(&[]), 200);
    // Through a proxy on this machine, or under a name of the outside.
    for proxied in [("x-forwarded-for", "203.0.113.9"), ("forwarded", "for=203.0.113.9"), ("host", "blog.example")] {
        assert_eq!(status(&[proxied]), 401, "{proxied:?}");
        assert_eq!(site.send("GET", "/metrics", &[proxied], None).status, 200, "{proxied:?}");
        let pen = format!("Bearer {WRITE_TOKEN}");
        assert_eq!(status(&[proxied, ("authorization", &pen)]), 403, "{proxied:?}");
    }
    assert_eq!(site.send_as_is("POST", "/metrics", &[], None).status, 405);
}

#[test]
fn no_stranger_makes_the_list_of_counters_grow() {
    let site = TestSite::new();
    let lines = || site.get("/metrics").body.lines().filter(|line| line.starts_with("vayu_http_")).count();
    for path in ["/x", "/api/x", "/articles/x", "/sitemap-9.xml", "/assets/x"] {
        site.get(path);
    }
    lines();
    let before = lines();
    for n in 0..50 {
        site.get(&format!("/nowhere-{n}"));
        site.get(&format!("/api/v1/nowhere-{n}"));
        site.get(&format!("/articles/a-{n}"));
    }
    assert_eq!(lines(), before);
}
