//! The states of jobs and of the site, against a model of them.

use proptest::prelude::*;
use vayu_articles::jobs::{JobStatus, MAX_REPLAYS, Mode, NewJob};

use crate::harness::Site;

#[derive(Debug, Clone)]
enum Step {
    /// A write to one of three articles, of a program: a change of its content, which exists for the first two only.
    Write(usize),
    Enqueue(usize),
    Cancel(usize),
    Replay(usize, bool),
    Discard(usize),
    Mode(usize),
    Run,
}

#[derive(Debug, Clone, PartialEq)]
struct Model {
    mode: Mode,
    draining: bool,
    jobs: Vec<Option<(JobStatus, u32, usize)>>,
    versions: [i64; 2],
}

impl Model {
    fn pending(&self) -> bool {
        self.jobs.iter().flatten().any(|job| job.0 == JobStatus::Pending)
    }

    fn write(&mut self, article: usize) -> &'static str {
        if self.mode == Mode::ReadOnly {
            return "read_only";
        }
        if self.mode == Mode::Journal || self.draining {
            self.jobs.push(Some((JobStatus::Pending, 0, article)));
            return "deferred";
        }
        match self.versions.get_mut(article) {
            Some(version) => {
                *version += 1;
                "applied"
            }
            None => "not_found",
        }
    }

    fn set_mode(&mut self, mode: Mode) {
        self.draining = mode == Mode::Open
            && (self.draining && self.mode == Mode::Open || self.mode != Mode::Open && self.pending());
        self.mode = mode;
    }

    fn run(&mut self) {
        if self.mode != Mode::Open {
            return;
        }
        for job in self.jobs.iter_mut().flatten().filter(|job| job.0 == JobStatus::Pending) {
            job.0 = match self.versions.get_mut(job.2) {
                Some(version) => {
                    *version += 1;
                    JobStatus::Applied
                }
                None if job.1 >= MAX_REPLAYS => JobStatus::Quarantined,
                None => JobStatus::DeadLetter,
            };
        }
        self.draining = false;
    }

    fn replay(&mut self, at: usize, force: bool) -> bool {
        let Some(Some(job)) = self.jobs.get_mut(at) else { return false };
        let allowed = match job.0 {
            JobStatus::DeadLetter | JobStatus::Cancelled => job.1 < MAX_REPLAYS || force,
            JobStatus::Quarantined => force,
            _ => false,
        };
        if allowed {
            (job.0, job.1) = (JobStatus::Pending, job.1 + 1);
        }
        allowed
    }

    fn cancel(&mut self, at: usize) -> bool {
        match self.jobs.get_mut(at) {
            Some(Some(job)) if job.0 == JobStatus::Pending => {
                job.0 = JobStatus::Cancelled;
                true
            }
            _ => false,
        }
    }

    fn discard(&mut self, at: usize) -> bool {
        let given_up = |status| matches!(status, JobStatus::DeadLetter | JobStatus::Quarantined | JobStatus::Cancelled);
        match self.jobs.get_mut(at) {
            Some(job @ Some(_)) if job.is_some_and(|job| given_up(job.0)) => {
                *job = None;
                true
            }
            _ => false,
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3_usize).prop_map(Step::Write),
        2 => (0..3_usize).prop_map(Step::Enqueue),
        1 => (0..12_usize).prop_map(Step::Cancel),
        3 => (0..12_usize, any::<bool>()).prop_map(|(at, force)| Step::Replay(at, force)),
        1 => (0..12_usize).prop_map(Step::Discard),
        2 => (0..3_usize).prop_map(Step::Mode),
        3 => Just(Step::Run),
    ]
}

fn body(article: usize, number: usize) -> String {
    format!(r#"{{"slug": "page-{article}", "patch": {{"content": "{number}"}}}}"#)
}

/// The real thing does what the model does, and stands where it stands.
fn compare(steps: &[Step]) {
    let site = Site::new();
    for article in 0..2 {
        site.applied(crate::harness::create(&format!("Page {article}")));
    }
    let mut model = Model { mode: Mode::Open, draining: false, jobs: Vec::new(), versions: [1, 1] };
    let mut ids: Vec<i64> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let id = |at: usize| ids.get(at).copied().unwrap_or(-1);
        match step {
            Step::Write(article) => {
                let change = crate::harness::update(&format!("page-{article}"), &number.to_string());
                let answer = match site.write(change) {
                    Ok(vayu_articles::queue::Receipt::Deferred { job }) => {
                        ids.push(job);
                        "deferred"
                    }
                    Ok(_) => "applied",
                    Err(error) => error.code(),
                };
                assert_eq!(answer, model.write(*article), "{step:?}");
            }
            Step::Enqueue(article) => {
                let new = NewJob::new("update", body(*article, number));
                ids.push(site.jobs.enqueue(vec![new]).unwrap()[0].unwrap());
                model.jobs.push(Some((JobStatus::Pending, 0, *article)));
            }
            Step::Cancel(at) => assert_eq!(site.jobs.cancel(id(*at), None).is_ok(), model.cancel(*at), "{step:?}"),
            Step::Replay(at, force) => {
                assert_eq!(site.jobs.replay(id(*at), *force).is_ok(), model.replay(*at, *force), "{step:?}");
            }
            Step::Discard(at) => assert_eq!(site.jobs.discard(id(*at), "x").is_ok(), model.discard(*at), "{step:?}"),
            Step::Mode(at) => {
                site.jobs.set_mode(Mode::ALL[*at], None).unwrap();
                model.set_mode(Mode::ALL[*at]);
            }
            Step::Run => {
                site.run();
                model.run();
            }
        }
        let info = site.jobs.mode().unwrap();
        assert_eq!((info.mode, info.draining), (model.mode, model.draining), "{step:?}");
        let jobs: Vec<_> =
            ids.iter().map(|id| site.jobs.show(*id).unwrap().map(|job| (job.status, job.replays))).collect();
        let expected: Vec<_> = model.jobs.iter().map(|job| job.map(|job| (job.0, job.1))).collect();
        assert_eq!(jobs, expected, "{step:?}");
        for (article, version) in model.versions.iter().enumerate() {
            assert_eq!(site.article(&format!("page-{article}")).unwrap().version, *version, "{step:?}");
        }
    }
    let events = site.events().len() as i64;
    assert_eq!(events, model.versions.iter().sum::<i64>(), "one event for each change");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 64, ..ProptestConfig::default() })]

    #[test]
    fn jobs_and_modes_do_what_their_model_does(steps in prop::collection::vec(step(), 1..40)) {
        compare(&steps);
    }
}
