//! What this test program logs.

use std::sync::{Mutex, Once};

use log::{Level, LevelFilter, Log, Metadata, Record};

static LINES: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

struct Recorder;

impl Log for Recorder {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn log(&self, record: &Record<'_>) {
        LINES.lock().unwrap().push((record.level(), record.args().to_string()));
    }
    fn flush(&self) {}
}

/// Has everything recorded from now on, from debug on.
pub fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Recorder).unwrap();
        log::set_max_level(LevelFilter::Debug);
    });
}

/// The lines so far that hold `what`; other tests log too.
pub fn logged(what: &str) -> Vec<(Level, String)> {
    LINES.lock().unwrap().iter().filter(|(_, line)| line.contains(what)).cloned().collect()
}
