//! `make crash`: processes that write and deliver are killed again and again, at random moments and inside handlers,
//! alone and two on one file, with and without an event that kills its process. Afterwards the books are judged.

mod child;
mod job_judge;
mod jobs;
mod judge;
mod record;
mod site;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use child::{HANDLERS, LONG, Process};
use judge::Evidence;
use site::wait_until;

/// Answered writes before a round's kill.
const ACKED_PER_ROUND: usize = 500;
/// A killer needs one death unseen and three while it runs alone; the rest is for neighbours that died along.
const KILLER_DEATHS_MAX: usize = 8;

#[derive(Debug, Default)]
struct Tally {
    kills_in_handler: usize,
    two_process_rounds: usize,
    takeovers: usize,
    killers: usize,
}

struct Run<'f> {
    folder: &'f Path,
    tally: Tally,
    killed_ns: HashMap<u32, u64>,
    planted: BTreeSet<(String, i64)>,
    /// Who owned each lane when it was last looked at.
    owners: HashMap<String, String>,
    /// Bytes read of the book of answers, and lines found in it.
    acks: (u64, usize),
}

fn main() -> ExitCode {
    if std::env::var(child::FOLDER).is_ok() {
        child::live();
        return ExitCode::SUCCESS;
    }
    let rounds = match std::env::var("ROUNDS").map(|rounds| rounds.parse::<usize>()) {
        Err(_) => 40,
        Ok(Ok(rounds)) if rounds > 0 => rounds,
        Ok(_) => {
            eprintln!("ROUNDS has to be a number above 0");
            return ExitCode::FAILURE;
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run {
        folder: folder.path(),
        tally: Tally::default(),
        killed_ns: HashMap::new(),
        planted: BTreeSet::new(),
        owners: HashMap::new(),
        acks: (0, 0),
    };
    for round in 0..rounds {
        run.round(round);
        eprintln!("round {} of {rounds}: {:?}", round + 1, run.tally);
    }
    run.drain();
    report(rounds, &run)
}

impl Run<'_> {
    fn round(&mut self, round: usize) {
        let two = matches!(round % 4, 0 | 3);
        let in_handler = matches!(round % 4, 0 | 1);
        let killer = round % 4 == 2;
        let acked_before = self.acked();
        let mut first = self.start(4);
        let mut second = two.then(|| self.start(2));
        self.count_takeovers(&mut first);
        if killer {
            self.planted_killer(&mut first);
        }
        wait_until("enough writes are answered", || self.acked() - acked_before >= ACKED_PER_ROUND);
        let victim_is_second = if in_handler {
            self.trap(&mut first, second.as_mut())
        } else {
            at_a_random_moment();
            two && fastrand::bool()
        };
        let survivor = match second.take() {
            Some(second) if victim_is_second => {
                self.kill(second);
                Some(first)
            }
            Some(second) => {
                self.kill(first);
                Some(second)
            }
            None => {
                self.kill(first);
                None
            }
        };
        if let Some(mut survivor) = survivor {
            self.tally.two_process_rounds += 1;
            self.count_takeovers(&mut survivor);
            self.end(survivor, in_handler);
        }
    }

    fn start(&self, writers: usize) -> Process {
        let folder = self.folder.to_str().unwrap();
        let process = Process::start(&[], &[(child::FOLDER, folder), (child::WRITERS, &writers.to_string())]);
        if !process.wait_for("ready", LONG) {
            eprintln!("a process died before it was ready");
        }
        process
    }

    fn kill(&mut self, mut process: Process) {
        let at = process.kill();
        self.killed_ns.insert(process.id(), at);
    }

    /// Half of those that survive a kill are killed too, the others stop in good order: if no trap is set in them.
    fn end(&mut self, mut process: Process, armed: bool) {
        if armed || fastrand::bool() {
            at_a_random_moment();
            self.kill(process);
        } else {
            process.order("stop");
            assert!(process.wait_for("stopped", LONG), "a process did not stop in good order");
            assert!(process.wait().success());
            self.owners.clear();
        }
    }

    /// Waits until every lane has a living owner, or the process that should own them has died again.
    fn count_takeovers(&mut self, process: &mut Process) {
        let before = std::mem::take(&mut self.owners);
        wait_until("every lane has a living owner", || {
            self.owners = site::owners(self.folder);
            let alive = |owner: &String| site::is_alive(self.folder, owner);
            HANDLERS.iter().all(|handler| self.owners.get(*handler).is_some_and(alive)) || process.has_died()
        });
        let taken = self.owners.iter().filter(|(handler, owner)| before.get(*handler).is_some_and(|was| was != *owner));
        self.tally.takeovers += taken.count();
    }

    /// Kills the process from inside; it is started again until the event is given up.
    fn planted_killer(&mut self, process: &mut Process) {
        let known = self.planted.len();
        process.order("plant");
        self.tally.killers += 1;
        let mut deaths = 0;
        loop {
            wait_until("the killer strikes or is given up", || {
                process.has_died() || site::crash_loops(self.folder).len() > known
            });
            self.planted = site::killers(self.folder);
            if site::crash_loops(self.folder).len() > known {
                return;
            }
            deaths += 1;
            assert!(deaths <= KILLER_DEATHS_MAX, "a killer is not given up after {deaths} deaths");
            self.killed_ns.insert(process.id(), site::last_sign_of_life(self.folder, process.id()));
            *process = self.start(4);
            self.count_takeovers(process);
        }
    }

    /// Waits until one of the two is inside a handler; `true` if it is the second.
    fn trap(&mut self, first: &mut Process, mut second: Option<&mut Process>) -> bool {
        let handler = HANDLERS[fastrand::usize(0..HANDLERS.len())];
        let point = if fastrand::bool() { "start" } else { "end" };
        // Never among the first: an event that is killed three times while it runs alone is rightly condemned.
        let order = format!("arm {handler} {point} {}", fastrand::usize(5..40));
        first.order(&order);
        if let Some(second) = second.as_mut() {
            second.order(&order);
        }
        let mut is_second = false;
        wait_until("a process is inside a handler", || {
            let look = Duration::from_millis(5);
            is_second = second.as_ref().is_some_and(|second| second.wait_for("inside", look));
            is_second || first.wait_for("inside", look)
        });
        self.tally.kills_in_handler += 1;
        is_second
    }

    /// The last process delivers what is left and stops in good order.
    fn drain(&mut self) {
        let mut last = self.start(0);
        self.count_takeovers(&mut last);
        wait_until("no job is due any more", || jobs::is_drained(self.folder));
        wait_until("nothing is open", || site::is_drained(self.folder));
        last.order("stop");
        assert!(last.wait_for("stopped", LONG), "the last process did not stop in good order");
        assert!(last.wait().success());
        assert!(site::owners(self.folder).is_empty(), "after a clean stop no lane is owned");
    }

    /// Lines of the book of answers; only what was appended since the last look is read.
    fn acked(&mut self) -> usize {
        let (read, lines) = &mut self.acks;
        let mut more = Vec::new();
        if let Ok(mut book) = File::open(child::book_of(self.folder, "acks")) {
            book.seek(SeekFrom::Start(*read)).unwrap();
            book.read_to_end(&mut more).unwrap();
        }
        *read += more.len() as u64;
        *lines += more.iter().filter(|byte| **byte == b';').count();
        *lines
    }
}

/// The one wait that is for time itself: no condition knows when a kill comes.
fn at_a_random_moment() {
    std::thread::sleep(Duration::from_millis(fastrand::u64(0..300)));
}

/// The books' lines, the promised one last; fails when a count after `repeated`, or after `applied`, is not 0, when finished
/// work came again too late, or when the run did too little. Each reason stands on standard output too.
fn report(rounds: usize, run: &Run<'_>) -> ExitCode {
    let evidence: Evidence = site::evidence(run.folder, &run.killed_ns);
    let counts = judge::judge(&evidence);
    let jobs = job_judge::judge(&jobs::evidence(run.folder));
    let oldest_ms = judge::oldest_repeat_ns(&evidence) / 1_000_000;
    eprintln!("of the {} repeats the oldest was finished {oldest_ms} ms before its kill", counts.repeated);
    let enough = did_enough(rounds, run, &evidence, &jobs);
    if !enough {
        println!("crash too_little {:?} crash_loops={:?}", run.tally, evidence.crash_loops);
    }
    if counts.late_repeats > 0 {
        let late = counts.late_repeats;
        println!("crash late_repeats={late} of work that was written, or must have been, before the kill");
    }
    print_jobs(&jobs);
    print_counts(rounds, &run.tally, evidence.acked.len(), &counts);
    if enough && counts.is_clean() && jobs.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// So that a run cannot pass by doing nothing.
fn did_enough(rounds: usize, run: &Run<'_>, evidence: &Evidence, jobs: &job_judge::Counts) -> bool {
    let Tally { kills_in_handler, two_process_rounds, takeovers, killers } = run.tally;
    evidence.acked.len() >= ACKED_PER_ROUND * rounds
        && kills_in_handler * 4 >= rounds
        && two_process_rounds * 4 >= rounds
        && takeovers >= rounds
        && killers >= (rounds + 1) / 4
        && evidence.crash_loops.len() == killers
        && jobs.accepted >= rounds
        && jobs.applied >= rounds
}

fn print_jobs(jobs: &job_judge::Counts) {
    println!(
        "crash jobs accepted={} applied={} lost={} twice={} without_event={} out_of_order={} left={}",
        jobs.accepted, jobs.applied, jobs.lost, jobs.twice, jobs.without_event, jobs.out_of_order, jobs.left,
    );
}

fn print_counts(rounds: usize, tally: &Tally, acked: usize, counts: &judge::Counts) {
    println!(
        "crash rounds={rounds} acked={acked} kills_in_handler={} two_process_rounds={} takeovers={} repeated={} lost={} \
         articles_without_event={} events_without_article={} overlapping_runs={} out_of_order={} undelivered={}",
        tally.kills_in_handler,
        tally.two_process_rounds,
        tally.takeovers,
        counts.repeated,
        counts.lost,
        counts.articles_without_event,
        counts.events_without_article,
        counts.overlapping_runs,
        counts.out_of_order,
        counts.undelivered,
    );
}
