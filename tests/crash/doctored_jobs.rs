//! The judge of the jobs is handed doctored rows, one for each kind of breach, and must see it.

use crate::job_judge::{Counts, Emitted, Evidence, Job, judge};

/// Four kept writes to two articles, one that can never be applied, one taken back, and a scheduled one that came when it
/// was its turn: nothing is wrong with them.
fn clean() -> Evidence {
    let job = |id: i64, status: &str, in_line: bool| Job {
        id,
        status: status.into(),
        event: (status == "applied").then(|| format!("event-{id}")),
        in_line,
    };
    let event = |job: i64, article: &str| Emitted { job, article: article.into(), event: format!("event-{job}") };
    Evidence {
        accepted: (1..=7).collect(),
        events: vec![event(1, "a"), event(2, "b"), event(7, "a"), event(3, "a"), event(4, "b")],
        jobs: vec![
            job(1, "applied", true),
            job(2, "applied", true),
            job(3, "applied", true),
            job(4, "applied", true),
            job(5, "dead_letter", true),
            job(6, "cancelled", true),
            job(7, "applied", false),
        ],
    }
}

const CLEAN: Counts = Counts { accepted: 7, applied: 5, lost: 0, twice: 0, without_event: 0, out_of_order: 0, left: 0 };

fn doctored(doctor: impl FnOnce(&mut Evidence)) -> Counts {
    let mut evidence = clean();
    doctor(&mut evidence);
    let counts = judge(&evidence);
    assert!(!counts.is_clean());
    counts
}

#[test]
fn jobs_in_all_states_are_counted_and_nothing_is_wrong_with_them() {
    assert_eq!(judge(&clean()), CLEAN);
    assert!(CLEAN.is_clean());
}

#[test]
fn an_accepted_job_without_a_row_is_lost() {
    let counts = doctored(|evidence| _ = evidence.accepted.insert(8));
    assert_eq!(counts, Counts { accepted: 8, lost: 1, ..CLEAN });
}

#[test]
fn a_second_event_of_a_job_and_one_of_a_job_that_is_not_applied_are_seen() {
    let again = |job: i64| Emitted { job, article: "c".into(), event: format!("another-{job}") };
    let counts = doctored(|evidence| evidence.events.push(again(4)));
    assert_eq!(counts, Counts { twice: 1, ..CLEAN });
    for given_up in [5, 6] {
        let counts = doctored(|evidence| evidence.events.push(again(given_up)));
        assert_eq!(counts, Counts { twice: 1, ..CLEAN });
    }
}

#[test]
fn an_applied_job_whose_event_is_missing_or_anothers_is_seen() {
    let counts = doctored(|evidence| _ = evidence.events.remove(1));
    assert_eq!(counts, Counts { without_event: 1, ..CLEAN });
    let counts = doctored(|evidence| evidence.events[1].event = "event-3".into());
    assert_eq!(counts, Counts { without_event: 1, ..CLEAN });
}

#[test]
fn a_kept_write_that_overtook_an_earlier_one_to_its_article_is_seen() {
    let counts = doctored(|evidence| evidence.events.swap(0, 3));
    assert_eq!(counts, Counts { out_of_order: 1, ..CLEAN });
    // Across articles nobody promised an order.
    let mut evidence = clean();
    evidence.events.swap(0, 1);
    assert_eq!(judge(&evidence), CLEAN);
}

#[test]
fn a_job_that_still_waits_is_seen() {
    let counts = doctored(|evidence| evidence.jobs[4].status = "pending".into());
    assert_eq!(counts, Counts { left: 1, ..CLEAN });
}
