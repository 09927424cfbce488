//! Functions that share a traced name, and copies that the compiler made: looked for while the trace runs, then traced too.
//!
//! Only kallsyms knows them, and reading it takes longer than everything else at the start (70 to 97 ms). So it is read on a
//! thread of its own, of the lowest priority, once the first events have been printed, or when none came for 200 ms; a trace
//! that ends sooner waits for it, so that it never ends unsaid.

use crate::logging::say;
use std::thread::JoinHandle;
use trace::{Elsewhere, Function, Plan, Remark, Session};

/// At most so many names are told without `-v`.
const NAMED: usize = 5;

/// The question, put or not yet.
pub struct Namesakes {
    functions: Vec<Function>,
    asked: Option<JoinHandle<Result<Vec<Elsewhere>, trace::Error>>>,
    /// Functions of which nothing is attached yet.
    absent: Vec<String>,
}

impl Namesakes {
    /// For the functions that a session traces by name.
    pub fn of(session: &Session) -> Namesakes {
        let functions = session.functions();
        let absent = functions.iter().filter(|f| !f.attached).map(|f| f.name.clone()).collect();
        Namesakes { functions, asked: None, absent }
    }

    /// Whether the answer is still to come.
    pub fn is_open(&self) -> bool {
        !self.functions.is_empty() || self.asked.is_some()
    }

    /// Begins to look, unless that was done.
    pub fn look(&mut self) {
        let functions = std::mem::take(&mut self.functions);
        if functions.is_empty() {
            return;
        }
        let work = move || {
            // The reader and what is traced come first.
            bpf::lower_thread_priority();
            trace::elsewhere(&functions)
        };
        match std::thread::Builder::new().name("namesakes".into()).spawn(work) {
            Ok(thread) => self.asked = Some(thread),
            Err(error) => {
                log::warn!("whether functions share their names is not known: start a thread: {error}")
            }
        }
    }

    /// Attaches to what was found, if the answer has come. Says whether there are new probes.
    pub fn attach(&mut self, plan: &mut Plan, session: &mut Session) -> bool {
        if !self.asked.as_ref().is_some_and(JoinHandle::is_finished) {
            return false;
        }
        let found = self.answer();
        let known = session.probes().len();
        say_remarks(&session.attach_further(plan, &found));
        session.probes().len() > known
    }

    /// The trace has ended: waits for the answer, and says what was not traced.
    pub fn finish(&mut self) {
        self.look();
        if self.asked.is_some() {
            let late = self.answer();
            say_remarks(&late.iter().map(Elsewhere::too_late).collect::<Vec<_>>());
        }
    }

    fn answer(&mut self) -> Vec<Elsewhere> {
        let Some(thread) = self.asked.take() else { return Vec::new() };
        let found = match thread.join() {
            Ok(Ok(found)) => found,
            Ok(Err(error)) => {
                say(format_args!("btrace: whether other functions have the same name is not known: {error}"));
                return Vec::new();
            }
            Err(_) => {
                log::error!(
                    "whether functions share their names is not known: please report this as a defect of btrace"
                );
                return Vec::new();
            }
        };
        let nowhere = self.absent.iter().filter(|name| !found.iter().any(|e| &e.function.name == *name));
        say_all(nowhere.map(|name| format!("{name}: not traced: the kernel has no function of that name any more (it was inlined everywhere)")).collect());
        found
    }
}

/// What is true of several functions is said of them together, with `-v` of each.
fn say_remarks(remarks: &[Remark]) {
    say_all(match log::log_enabled!(log::Level::Debug) {
        true => remarks.iter().map(Remark::to_string).collect(),
        false => Remark::together(remarks),
    });
}

fn say_all(lines: Vec<String>) {
    let named = if log::log_enabled!(log::Level::Debug) { lines.len() } else { NAMED };
    let more = lines.len().saturating_sub(named);
    for line in lines.iter().take(named) {
        say(format_args!("btrace: {line}"));
    }
    if more > 0 {
        say(format_args!("btrace: and {more} more functions of which this is true (-v names them)"));
    }
}
