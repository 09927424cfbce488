//! Messages on stderr, each one line.

use std::fmt;
use std::io::Write;

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

/// Prints a line. There is nobody left to tell when stderr is closed.
pub fn say(message: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{message}");
}
