//! Messages on stderr, each one line.

use std::collections::BTreeSet;
use std::fmt;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

struct Stderr;

impl log::Log for Stderr {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        match record.level() {
            log::Level::Error | log::Level::Warn => say(format_args!("btrace: {}", record.args())),
            _ => say(format_args!("{}", record.args())),
        }
    }

    fn flush(&self) {}
}

/// Sets the level: warnings; `-v` what is done and why; `-vv` the programs too.
pub fn init(verbose: u8) {
    static LOGGER: Stderr = Stderr;
    let level = match verbose {
        0 => log::LevelFilter::Warn,
        1 => log::LevelFilter::Debug,
        _ => log::LevelFilter::Trace,
    };
    // Only a second call can fail, and there is none.
    if log::set_logger(&LOGGER).is_ok() {
        log::set_max_level(level);
    }
}

/// Prints a line, unless it was printed so before: for what concerns the machine, and comes up again and again.
pub fn say_once(message: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(message.into()) {
        say(format_args!("{message}"));
    }
}

/// Prints a line. There is nobody left to tell when stderr is closed.
pub fn say(message: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{message}");
}
