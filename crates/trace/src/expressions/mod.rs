//! Expressions of a request: which targets each is for, and what they come to there.

mod gathered;
mod scope;
mod shown;

pub use gathered::{Gathered, Key, KeyKind};
pub(crate) use shown::VALUE;
pub use shown::{Shown, ShownKind};

use crate::abilities;
use crate::error::Error;
use crate::kernel::Kernel;
use crate::layout::Captures;
use crate::pattern::Pattern;
use crate::request::TargetKind;
use crate::suggest;
use crate::syscalls;
use crate::target::Target;
use expr::Symbol;
use expr::tree::{Root, Statement, Test};
use std::cell::OnceCell;
use std::collections::HashMap;

/// An expression as it was given.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its text.
    pub text: String,
    /// The targets that it is for; `None`: all.
    pub target: Option<Pattern>,
}

impl Written {
    /// Reads `expression` or `target:expression`; the target is a name or a glob of `*` alone, with a module or system in front
    /// if need be.
    pub fn new(text: &str) -> Result<Written, Error> {
        let name = |text: &str| {
            let first =
                text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '_' | '*'));
            first && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '*' | '.'))
        };
        let (mut target, mut rest) = (None, text);
        if let Some((first, after)) = text.split_once(':').filter(|(first, _)| name(first)) {
            (target, rest) = (Some(first.to_string()), after);
            if let Some((second, after)) = after.split_once(':').filter(|(second, _)| name(second)) {
                (target, rest) = (Some(format!("{first}:{second}")), after);
            }
        }
        if rest.trim().is_empty() {
            return Err(Error::Pattern { pattern: text.into(), reason: "an empty expression".into() });
        }
        let target = target.map(|name| Pattern::new(&name)).transpose()?;
        Ok(Written { text: rest.trim().into(), target })
    }

    /// Whether it is for a target.
    fn is_for(&self, target: &Target) -> bool {
        let Some(pattern) = &self.target else { return true };
        // A tracepoint's system, which BTF does not know, says nothing that its name does not.
        let name = match (target.kind, pattern.as_str().split_once(':')) {
            (TargetKind::Tracepoint, Some((_, name))) => {
                Pattern::new(name).is_ok_and(|p| p.matches(&target.name))
            }
            _ => false,
        };
        name || pattern.matches(&target.name) || pattern.matches(&target.label())
    }
}

/// Expressions of a request.
#[derive(Clone, Debug, Default)]
pub struct Expressions {
    /// What has to hold of an event; all that are for its target.
    pub filters: Vec<Written>,
    /// What its events show, or what is gathered of them.
    pub outputs: Vec<Written>,
}

impl Expressions {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty() && self.outputs.is_empty()
    }

    /// Refuses one that is for none of the targets.
    pub(crate) fn all_meant(&self, targets: &[Target]) -> Result<(), Error> {
        let filters = self.filters.iter().map(|written| ("--filter-arg", written));
        let mut all = filters.chain(self.outputs.iter().map(|written| ("--output-arg", written)));
        let Some((flag, idle)) = all.find(|(_, written)| !targets.iter().any(|t| written.is_for(t))) else {
            return Ok(());
        };
        let target = idle.target.as_ref().map_or("", |t| t.as_str()).to_string();
        let hint = suggest::near_names(&target, targets.iter().map(|t| t.name.as_str()));
        Err(Error::Idle { flag, text: idle.text.clone(), target, hint })
    }
}

/// Tests that were written as one expression.
#[derive(Clone, Debug)]
pub(crate) struct Conjuncts {
    /// As it was written.
    pub text: String,
    /// All of them have to hold.
    pub tests: Vec<Test>,
}

/// What has to hold of an event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tests {
    /// Asked when the call begins, for both of its ends.
    pub at_entry: Vec<Conjuncts>,
    /// Asked when it returns: what it returned, and how long it took, is not known before.
    pub at_exit: Vec<Conjuncts>,
}

/// What is asked of a target's events beside its arguments.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    pub(crate) tests: Tests,
    /// What each event shows.
    pub shown: Vec<Shown>,
    /// What is gathered of them.
    pub gathered: Vec<Gathered>,
    /// Nothing but what is gathered is wanted: no event is sent.
    pub(crate) silent: bool,
}

impl Asked {
    /// Nothing but what is gathered is wanted: no event is sent.
    pub fn is_silent(&self) -> bool {
        self.silent
    }

    /// What has to hold of an event, as it was written: what is asked when the call begins, then what is asked at its end. One whose
    /// parts are asked at either is in both.
    pub fn filters(&self) -> [impl Iterator<Item = &str>; 2] {
        [&self.tests.at_entry, &self.tests.at_exit].map(|all| all.iter().map(|c| c.text.as_str()))
    }

    /// Whether nothing is.
    pub(crate) fn is_empty(&self) -> bool {
        self.tests.at_entry.is_empty()
            && self.tests.at_exit.is_empty()
            && self.shown.is_empty()
            && self.gathered.is_empty()
    }
}

/// What compiling expressions needs to know, and what it has found out.
pub(crate) struct Compile<'k> {
    pub kernel: &'k Kernel,
    pub expressions: &'k Expressions,
    /// Addresses of variables of the kernel, once one is wanted that BTF does not have.
    symbols: OnceCell<Variables>,
    /// Why programs cannot ask for a cgroup, once one is wanted.
    no_cgroup: OnceCell<Option<String>>,
}

/// What kallsyms has of the kernel's variables.
#[derive(Default)]
struct Variables {
    /// Addresses of those that expressions could mean; 0 where it is hidden.
    addresses: HashMap<String, u64>,
    /// It has none at all.
    none: bool,
}

/// A variable that every kernel has: where kallsyms has variables, it has this one.
const ANY_VARIABLE: &str = "init_task";

impl<'k> Compile<'k> {
    pub fn new(kernel: &'k Kernel, expressions: &'k Expressions) -> Compile<'k> {
        Compile { kernel, expressions, symbols: OnceCell::new(), no_cgroup: OnceCell::new() }
    }

    /// The address of a variable of the kernel. Whether a word is one shows in kallsyms alone, which is read once for all that
    /// the expressions could mean.
    fn symbol(&self, name: &str) -> Symbol {
        let all = self.symbols.get_or_init(|| {
            let texts = self.expressions.filters.iter().chain(&self.expressions.outputs);
            let words: std::collections::HashSet<&str> = texts
                .flat_map(|written| written.text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
                .filter(|word| !word.is_empty())
                .chain([ANY_VARIABLE])
                .collect();
            let found = symbols::find_where(|name| words.contains(name)).unwrap_or_else(|error| {
                log::debug!("no addresses of variables: {error}");
                Vec::new()
            });
            let own = found.into_iter().filter(|s| s.module.is_none());
            let addresses: HashMap<String, u64> = own.map(|s| (s.name, s.address)).collect();
            let none = !addresses.contains_key(ANY_VARIABLE);
            Variables { addresses, none }
        });
        match all.addresses.get(name) {
            Some(0) => Symbol::Hidden,
            Some(address) => Symbol::At(*address),
            None if all.none => Symbol::Untold,
            None => Symbol::Unknown,
        }
    }

    /// Why the kernel does not tell what begins with a dollar. Who may load no programs is told that when one is to be loaded.
    fn untold(&self, name: &str, captures: Captures) -> Option<String> {
        match name {
            "ctx" if !captures.context && !abilities::raw_tp().is_err_and(|refusal| refusal.permission) => Some(
                "this kernel does not tell where its preempt count is (CONFIG_KALLSYMS_ALL, and types of its variables in BTF, as from 5.12 on)"
                    .into(),
            ),
            "cgroup" => self
                .no_cgroup
                .get_or_init(|| {
                    let refused = abilities::cgroup_id().err().filter(|refusal| !refusal.permission)?;
                    Some(format!("this kernel does not tell a task's cgroup (CONFIG_CGROUPS): {refused}"))
                })
                .clone(),
            _ => None,
        }
    }

    /// What is asked of a target at one of its ends. What is shown takes room from `at` on.
    pub fn of(
        &self,
        target: &Target,
        end: crate::layout::End,
        captures: Captures,
        at: &mut u32,
    ) -> Result<Asked, Error> {
        let mut asked = Asked::default();
        if self.expressions.is_empty() {
            return Ok(asked);
        }
        let symbol = |name: &str| self.symbol(name);
        let untold = |name: &str| self.untold(name, captures);
        let own = self.kernel.types_of(target)?;
        let scope = scope::of(self.kernel, &own, target, end, &symbol, &untold)?;
        for written in self.expressions.filters.iter().filter(|w| w.is_for(target)) {
            let wrong = |source| wrong("--filter-arg", &written.text, target, source);
            let tests = expr::filter(&written.text, &scope).map_err(wrong)?;
            let (mut at_entry, mut at_exit) = (Vec::new(), Vec::new());
            for test in tests.conjuncts() {
                if needs_exit(&test) { at_exit.push(test) } else { at_entry.push(test) }
            }
            let into = [(&mut asked.tests.at_entry, at_entry), (&mut asked.tests.at_exit, at_exit)];
            for (list, tests) in into {
                if !tests.is_empty() {
                    list.push(Conjuncts { text: written.text.clone(), tests });
                }
            }
        }
        if end.paired && !asked.tests.at_exit.is_empty() {
            let reason = "--filter-arg: what a call returns and how long it takes is not known at its entry, which --mode both shows \
                          at once: use --mode exit";
            return Err(Error::Target { target: target.label(), reason: reason.into() });
        }
        let call = syscalls::number_argument(self.kernel, target);
        let (mut gathers, mut shows) = (false, false);
        for (number, written) in self.expressions.outputs.iter().enumerate() {
            if !written.is_for(target) {
                continue;
            }
            let wrong = |source| wrong("--output-arg", &written.text, target, source);
            let statement = match expr::output(&written.text, &scope) {
                // Both ends are shown, and this is known at one of them.
                Err(_) if end.paired && !end.at_exit && exit_alone(&written.text) => {
                    let there = crate::layout::End { at_exit: true, ..end };
                    let scope = scope::of(self.kernel, &own, target, there, &symbol, &untold)?;
                    let gathered = matches!(expr::output(&written.text, &scope), Ok(Statement::Aggregate(_)));
                    (gathers, shows) = (gathers || gathered, shows || !gathered);
                    continue;
                }
                statement => statement.map_err(wrong)?,
            };
            match &statement {
                Statement::Output(_) => shows = true,
                Statement::Aggregate(_) => gathers = true,
            }
            match statement {
                Statement::Output(output) => {
                    let shown = Shown::new(self.kernel, &scope, &written.text, output, captures, at);
                    asked.shown.push(shown);
                }
                Statement::Aggregate(aggregate) => {
                    // Of a call's two ends the later one knows more.
                    if !end.paired || end.at_exit {
                        let gathered =
                            Gathered::new(&scope, &written.text, number, aggregate, call).map_err(wrong)?;
                        asked.gathered.push(gathered);
                    }
                }
            }
        }
        asked.silent = gathers && !shows;
        Ok(asked)
    }
}

/// Whether a text names what is known at a call's return only.
fn exit_alone(text: &str) -> bool {
    text.contains("$retval") || text.contains("$duration")
}

fn needs_exit(test: &Test) -> bool {
    let mut needs = false;
    test.roots(&mut |root| needs |= matches!(root, Root::Retval | Root::Duration));
    needs
}

fn wrong(flag: &'static str, text: &str, target: &Target, source: expr::Error) -> Error {
    let kind = if target.kind == TargetKind::Tracepoint { "tracepoint " } else { "" };
    Error::Expression { flag, text: text.into(), target: format!("{kind}{}", target.label()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> (Option<String>, String) {
        let written = Written::new(text).expect(text);
        (written.target.map(|t| t.as_str().to_string()), written.text)
    }

    #[test]
    fn an_expression_may_be_for_one_target() {
        let some = |target: &str, text: &str| (Some(target.to_string()), text.to_string());
        assert_eq!(split("len > 3"), (None, "len > 3".into()));
        assert_eq!(split("vfs_read:count > 3"), some("vfs_read", "count > 3"));
        assert_eq!(split("tcp_*: sk->x"), some("tcp_*", "sk->x"));
        assert_eq!(split("nf_conntrack:nf_ct_get:skb"), some("nf_conntrack:nf_ct_get", "skb"));
        assert_eq!(split("a ? b : c"), (None, "a ? b : c".into()));
        assert_eq!(split("a?b:c"), (None, "a?b:c".into()));
        assert_eq!(split("$pid"), (None, "$pid".into()));
        assert_eq!(split("f: a ? b : c"), some("f", "a ? b : c"));
        assert_eq!(split("1 ? 2:3"), (None, "1 ? 2:3".into()));
    }
}
