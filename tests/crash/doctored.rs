//! The judge of the crash runs is handed doctored books, one for each kind of breach, and must see it.

use crate::judge::{
    Answered, Counts, Evidence, FLUSH_AFTER_NS, Logged, NOTICED_NS, REPEATED_NS, judge, oldest_repeat_ns,
};
use crate::record::{Point, Record};

/// Two articles, four events, one handler, one kill: nothing is wrong with it.
fn clean() -> Evidence {
    let event =
        |id: i64, article: &str, version: i64, deletes: bool| Logged { id, article: article.into(), version, deletes };
    let mut evidence = Evidence {
        acked: vec![("a".into(), 1), ("a".into(), 2), ("b".into(), 1)],
        articles: [("a".to_owned(), 2)].into(),
        log: vec![event(1, "a", 1, false), event(2, "b", 1, false), event(3, "a", 2, false), event(4, "b", 2, true)],
        killed_ns: [(10, 450)].into(),
        ..Evidence::default()
    };
    let records = [
        record(Point::Start, 1, 100, 10),
        record(Point::End, 1, 150, 10),
        record(Point::Start, 2, 200, 10),
        record(Point::End, 2, 250, 10),
        record(Point::Start, 3, 400, 10),
        // Killed at 450; its successor repeats what was not written down.
        record(Point::Start, 2, 500, 11),
        record(Point::End, 2, 550, 11),
        record(Point::Start, 3, 600, 11),
        record(Point::End, 3, 650, 11),
        record(Point::Start, 4, 700, 11),
        record(Point::End, 4, 750, 11),
    ];
    evidence.runs.insert("h".into(), records.to_vec());
    evidence
}

fn record(point: Point, event: i64, at_ns: u64, process: u32) -> Record {
    Record { point, event, at_ns, process }
}

fn doctored(doctor: impl FnOnce(&mut Evidence)) -> Counts {
    let mut evidence = clean();
    doctor(&mut evidence);
    let counts = judge(&evidence);
    assert!(!counts.is_clean());
    counts
}

fn runs_of(evidence: &mut Evidence) -> &mut Vec<Record> {
    evidence.runs.get_mut("h").unwrap()
}

const ONE_REPEAT: Counts = Counts {
    repeated: 1,
    lost: 0,
    articles_without_event: 0,
    events_without_article: 0,
    overlapping_runs: 0,
    out_of_order: 0,
    undelivered: 0,
    late_repeats: 0,
};

#[test]
fn a_clean_run_counts_its_repeats_and_nothing_else() {
    assert_eq!(judge(&clean()), ONE_REPEAT);
    assert!(judge(&clean()).is_clean());
}

#[test]
fn an_answered_write_that_is_gone_is_lost() {
    let counts = doctored(|evidence| evidence.acked.push(("a".into(), 3)));
    assert_eq!(counts, Counts { lost: 1, ..ONE_REPEAT });
}

#[test]
fn an_article_or_a_version_that_no_event_tells_of_is_seen() {
    let counts = doctored(|evidence| _ = evidence.articles.insert("c".into(), 1));
    assert_eq!(counts, Counts { articles_without_event: 1, ..ONE_REPEAT });
    let counts = doctored(|evidence| _ = evidence.articles.insert("b".into(), 1));
    assert_eq!(counts, Counts { articles_without_event: 1, ..ONE_REPEAT });
}

#[test]
fn an_event_whose_article_is_not_there_is_seen() {
    let counts = doctored(|evidence| evidence.articles.clear());
    assert_eq!(counts, Counts { events_without_article: 1, ..ONE_REPEAT });
    let counts = doctored(|evidence| _ = evidence.articles.insert("a".into(), 1));
    assert_eq!(counts, Counts { events_without_article: 1, articles_without_event: 1, ..ONE_REPEAT });
}

#[test]
fn two_runs_at_once_are_seen_also_when_the_first_never_ended() {
    let counts = doctored(|evidence| runs_of(evidence)[2].at_ns = 140);
    assert_eq!(counts, Counts { overlapping_runs: 1, ..ONE_REPEAT });
    let counts = doctored(|evidence| _ = evidence.killed_ns.insert(10, 520));
    assert_eq!(counts, Counts { overlapping_runs: 1, ..ONE_REPEAT });
}

#[test]
fn a_later_event_of_a_key_that_is_done_first_is_seen() {
    let counts = doctored(|evidence| {
        let runs = runs_of(evidence);
        (runs[0].event, runs[1].event) = (3, 3);
        (runs[7].event, runs[8].event) = (1, 1);
    });
    assert_eq!(counts, Counts { out_of_order: 1, ..ONE_REPEAT });
}

#[test]
fn an_event_without_a_completion_is_undelivered_unless_it_is_a_planted_killer_in_the_dead_letters() {
    let cut = |evidence: &mut Evidence| runs_of(evidence).truncate(9);
    assert_eq!(doctored(cut), Counts { undelivered: 1, ..ONE_REPEAT });
    let this = || ("h".to_owned(), 4);
    let planted = doctored(|evidence| {
        cut(evidence);
        evidence.planted.insert(this());
    });
    assert_eq!(planted, Counts { undelivered: 1, ..ONE_REPEAT }, "it must have become a dead letter");
    let condemned = doctored(|evidence| {
        cut(evidence);
        evidence.crash_loops.insert(this());
    });
    assert_eq!(condemned, Counts { undelivered: 1, ..ONE_REPEAT }, "an innocent one");
    let mut evidence = clean();
    cut(&mut evidence);
    evidence.planted.insert(this());
    evidence.crash_loops.insert(this());
    assert_eq!(judge(&evidence), ONE_REPEAT);
    let delivered = doctored(|evidence| _ = evidence.crash_loops.insert(this()));
    assert_eq!(delivered, Counts { undelivered: 1, ..ONE_REPEAT }, "condemned though it was done");
}

#[test]
fn a_repeat_that_no_kill_explains_is_seen() {
    let counts = doctored(|evidence| evidence.killed_ns.clear());
    assert_eq!(counts, Counts { late_repeats: 1, ..ONE_REPEAT });
    let counts = doctored(|evidence| {
        let later = 2 * REPEATED_NS;
        runs_of(evidence)[4..].iter_mut().for_each(|record| record.at_ns += later);
        evidence.killed_ns.insert(10, 450 + later);
    });
    assert_eq!(counts, Counts { late_repeats: 1, ..ONE_REPEAT });
}

#[test]
fn what_an_idle_lane_never_wrote_may_not_come_again() {
    // Its last call had ended; it had all the time to write it down.
    let idle = |evidence: &mut Evidence| {
        let runs = runs_of(evidence);
        runs.remove(4);
        runs[4..].iter_mut().for_each(|record| record.at_ns += 2 * REPEATED_NS);
        evidence.killed_ns.insert(10, 450 + 2 * REPEATED_NS);
    };
    assert_eq!(doctored(idle), Counts { late_repeats: 1, ..ONE_REPEAT });
    // One that was held in the last call, after its effect, had none.
    let mut evidence = clean();
    idle(&mut evidence);
    evidence.trapped.insert(("h".to_owned(), 10));
    assert_eq!(judge(&evidence), ONE_REPEAT);
}

#[test]
fn the_age_of_repeated_work_is_what_its_process_had_left_to_write_it_down() {
    assert_eq!(oldest_repeat_ns(&clean()), 400 - 250, "until the call in which it died");
    let mut evidence = clean();
    runs_of(&mut evidence).remove(4);
    assert_eq!(oldest_repeat_ns(&evidence), 450 - 250, "until the kill");
}

/// The kill comes so long after the repeated work was finished, and the queue-writer has answered these writes meanwhile.
fn killed_after(gap_ns: u64, answered: &[(u64, u64)]) -> Counts {
    let mut evidence = clean();
    runs_of(&mut evidence)[4..].iter_mut().for_each(|record| record.at_ns += gap_ns);
    evidence.killed_ns.insert(10, 450 + gap_ns);
    let write = |(from_ns, until_ns): &(u64, u64)| Answered { from_ns: *from_ns, until_ns: *until_ns };
    evidence.answered.insert(10, answered.iter().map(write).collect());
    judge(&evidence)
}

#[test]
fn work_that_the_queue_writer_must_have_written_may_not_come_again() {
    // Finished at 250. A write handed over 50 ms later is answered, and one that was handed over after that.
    let first = (250 + FLUSH_AFTER_NS, 300 + FLUSH_AFTER_NS);
    let second = (first.1 + NOTICED_NS, first.1 + NOTICED_NS + 50);
    let gap = second.1;
    let breach = Counts { late_repeats: 1, ..ONE_REPEAT };
    assert_eq!(killed_after(gap, &[first, second]), breach);
    assert!(gap < REPEATED_NS, "a fixed limit alone would not see it");
    // Not so when the flush may not have been due, may not have left, or may be in the writer's hands when the kill comes.
    assert_eq!(killed_after(gap, &[(first.0 - 1, first.1), second]), ONE_REPEAT);
    assert_eq!(killed_after(gap, &[first, (second.0 - 1, second.1)]), ONE_REPEAT);
    assert_eq!(killed_after(second.0, &[first, (second.0, 2 * second.1)]), ONE_REPEAT);
    assert_eq!(killed_after(gap, &[]), ONE_REPEAT, "nobody knows how the disk was");
    assert_eq!(killed_after(FLUSH_AFTER_NS, &[first]), ONE_REPEAT);
}

#[test]
fn a_torn_line_is_no_record() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("book");
    let whole = record(Point::End, 7, 8, 9);
    let book = crate::record::Book::open(&path).unwrap();
    book.write(&whole.line()).unwrap();
    std::fs::write(&path, std::fs::read_to_string(&path).unwrap() + "\nstart 8 9").unwrap();
    crate::record::Book::open(&path).unwrap().write(&whole.line()).unwrap();
    let records: Vec<_> = crate::record::read(&path).iter().filter_map(|words| Record::parse(words)).collect();
    assert_eq!(records, [whole.clone(), whole]);
}
