//! Attaching or detaching that takes long: on a terminal a line that counts, and is gone when it is done; elsewhere a plain
//! line now and then, lest a log fill up.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use trace::{Counted, Method, Progress};

/// What ends sooner is not worth a line.
const ON_TERMINAL: Duration = Duration::from_millis(500);
/// And in a log even less.
const ELSEWHERE: Duration = Duration::from_secs(1);
/// Between two counts.
const COUNT: Duration = Duration::from_millis(100);
/// And in a log, where each is a line.
const COUNT_ELSEWHERE: Duration = Duration::from_secs(10);

/// What has been shown so far.
pub struct Shown {
    method: Option<Method>,
    terminal: bool,
    since: Instant,
    detaching: bool,
    /// When the line was last written, and its width.
    line: Option<(Instant, usize)>,
}

impl Shown {
    /// For targets attached by this method.
    pub fn new(method: Option<Method>) -> Shown {
        let terminal = std::io::stderr().is_terminal();
        Shown { method, terminal, since: Instant::now(), detaching: false, line: None }
    }

    /// Shows the progress, if it is time.
    pub fn tell(&mut self, progress: Progress) {
        let out = self.next(progress, Instant::now());
        write(&out);
    }

    /// Takes the line away, if there is one.
    pub fn clear(&mut self) {
        write(&self.erased());
    }

    /// What is to be written at a time; often nothing.
    fn next(&mut self, progress: Progress, now: Instant) -> String {
        let mut out = String::new();
        if progress.detaching != self.detaching {
            out = self.erased();
            self.detaching = progress.detaching;
            self.since = now;
        }
        let due = match (self.terminal, &self.line) {
            (true, None) => now - self.since >= ON_TERMINAL,
            (true, Some((at, _))) => now - *at >= COUNT,
            (false, None) => now - self.since >= ELSEWHERE,
            (false, Some((at, _))) => now - *at >= COUNT_ELSEWHERE,
        };
        if due && progress.done < progress.of {
            let line = line(progress, self.method);
            let width = line.chars().count();
            // Spaces over what was longer.
            let before = self.line.map_or(0, |(_, width)| width);
            out += &match self.terminal {
                true => format!("\r{line}{:1$}", "", before.saturating_sub(width)),
                false => format!("{line}\n"),
            };
            self.line = Some((now, width));
        }
        out
    }

    fn erased(&mut self) -> String {
        match self.line.take() {
            Some((_, width)) if self.terminal => format!("\r{:1$}\r", "", width),
            _ => String::new(),
        }
    }
}

/// There is nobody left to tell when stderr is closed.
fn write(text: &str) {
    if !text.is_empty() {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }
}

fn line(Progress { counted, detaching, done, of }: Progress, method: Option<Method>) -> String {
    let (done, of) = (grouped(done), grouped(of));
    if detaching {
        return format!("btrace: detaching {done} of {of}…");
    }
    let what = if counted == Counted::Blocks { " blocks" } else { "" };
    let method = method.map_or(String::new(), |m| format!(" ({m})"));
    format!("btrace: attaching {done} of {of}{what}{method}… Ctrl-C stops")
}

/// `1,234,567`.
fn grouped(n: usize) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn attaching(done: usize) -> Progress {
        Progress { counted: Counted::Targets, detaching: false, done, of: 2800 }
    }

    fn shown(terminal: bool) -> (Shown, Instant) {
        let now = Instant::now();
        (Shown { method: Some(Method::Fentry), terminal, since: now, detaching: false, line: None }, now)
    }

    #[test]
    fn a_terminals_line_counts_and_is_erased() {
        let (mut shown, start) = shown(true);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(shown.next(attaching(5), at(499)), "");
        let first = shown.next(attaching(1234), at(500));
        assert_eq!(first, "\rbtrace: attaching 1,234 of 2,800 (fentry)… Ctrl-C stops");
        assert_eq!(shown.next(attaching(1240), at(550)), "", "not every 5 ms");
        assert_eq!(shown.next(attaching(2800), at(600)), "", "done");
        assert_eq!(shown.erased(), format!("\r{}\r", " ".repeat(first.chars().count() - 1)));
        assert_eq!(shown.erased(), "");
    }

    #[test]
    fn a_stop_turns_it_into_detaching() {
        let (mut shown, start) = shown(true);
        let at = |ms| start + Duration::from_millis(ms);
        assert!(!shown.next(attaching(9), at(600)).is_empty());
        let detaching = |done| Progress { counted: Counted::Links, detaching: true, done, of: 18 };
        assert!(shown.next(detaching(0), at(700)).ends_with(" \r"), "the old line goes");
        assert_eq!(shown.next(detaching(4), at(1300)), "\rbtrace: detaching 4 of 18…");
    }

    #[test]
    fn blocks_are_called_so() {
        let blocks = Progress { counted: Counted::Blocks, detaching: false, done: 7, of: 251 };
        assert_eq!(
            line(blocks, Some(Method::Kprobe)),
            "btrace: attaching 7 of 251 blocks (kprobe)… Ctrl-C stops"
        );
    }

    #[test]
    fn a_log_gets_a_line_now_and_then() {
        let (mut shown, start) = shown(false);
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(shown.next(attaching(5), at(999)), "");
        let line = shown.next(attaching(50), at(1000));
        assert_eq!(line, "btrace: attaching 50 of 2,800 (fentry)… Ctrl-C stops\n");
        assert_eq!(shown.next(attaching(500), at(10_999)), "");
        assert!(shown.next(attaching(600), at(11_000)).starts_with("btrace: attaching 600 of"));
        assert_eq!(shown.erased(), "");
    }

    #[test]
    fn digits_in_groups() {
        let all = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(all, ["0", "999", "1,000", "1,234,567"]);
    }
}
