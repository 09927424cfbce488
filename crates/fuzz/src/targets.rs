//! Patterns: read or refused with a reason, and what is read can be looked for.

use crate::Fuzz;
use crate::random::Random;
use std::path::Path;
use trace::{Filter, Kernel, Mode, Pattern, Plan, ProgramSpec, Request, TargetKind, TargetSpec, split_list};

const SEEDS: &[&str] = &[
    "vfs_read",
    "vfs_{read,write},tcp_*",
    "loop:lo_*",
    "sched:sched_switch",
    "vmlinux:vfs_read",
    "*:*",
    "tcp_[sr]*",
    "tcp_[!a-c]?ack",
    "{a,{b,c}d,e}*{f,g}",
    "a,b_{c,d},e",
    "nf-tables:nft_*",
    "**",
    "183:sub_*",
    "n:handle_{in,e}gress:*",
    "t:0123456789abcdef",
    "p:/sys/fs/bpf/a:b/c:main",
    "pid:1:*",
];

const WORDS: &[&str] = &[
    "*",
    "**",
    "?",
    "[",
    "]",
    "[!",
    "[a-",
    "{",
    "}",
    "{a,",
    ",",
    ":",
    "::",
    "!",
    "\\",
    "vfs_",
    "read",
    "_",
    "-",
    "é",
    "\u{202e}",
    "\0",
    "\n",
    "*{a,b,_}",
    "{,}",
    "[^]]",
    "sched_switch",
    "{*,}",
];

/// A kernel of a few functions to look in.
pub struct TargetFuzz {
    kernel: Kernel,
}

impl TargetFuzz {
    /// Makes it.
    pub fn new() -> anyhow::Result<TargetFuzz> {
        let btf = btf::Btf::from_bytes(crate::btf::kernel())?;
        Ok(TargetFuzz { kernel: Kernel::new(btf, Path::new("/nowhere"))? })
    }
}

impl Fuzz for TargetFuzz {
    fn run(&mut self, random: &mut Random) -> Result<(), String> {
        let mut text = random.pick(SEEDS).map_or(String::new(), ToString::to_string);
        random.mutate_text(&mut text, WORDS);
        let parts = split_list(&text);
        if parts.join(",") != text {
            return Err(format!("{text:?} was split into {parts:?}"));
        }
        for part in parts {
            if let Ok(pattern) = Pattern::new(part) {
                let same = pattern.matches(part);
                if !pattern.is_glob() && (!same || pattern.matches(&format!("{part}x"))) {
                    return Err(format!("{part:?} does not match itself alone"));
                }
                for name in ["", "vfs_read", "a_long_name_of_a_function_with_many_parts_in_it_0123456789"] {
                    pattern.matches(name);
                }
            }
            match ProgramSpec::new(part) {
                Ok(spec) => check(&spec.to_string(), part)?,
                Err(error) => check(&error.to_string(), part)?,
            }
            let kind = *random.pick(&[TargetKind::Function, TargetKind::Tracepoint]).ok_or("no kind")?;
            let spec = match TargetSpec::new(kind, part, random.one_in(2)) {
                Ok(spec) => spec,
                Err(error) => {
                    check(&error.to_string(), part)?;
                    continue;
                }
            };
            // A name that is not there is looked for in kallsyms too, which takes long.
            if !spec.pattern.is_glob() && !random.one_in(2000) {
                continue;
            }
            if let Err(error) = trace::list(&self.kernel, &spec) {
                check(&error.to_string(), part)?;
            }
            let request = Request {
                programs: Vec::new(),
                pointees: true,
                targets: vec![spec],
                mode: Mode::Both,
                filter: Filter::default(),
                expressions: Default::default(),
                force: false,
                path: None,
                stack: false,
                branches: false,
                string_size: 64,
                ring_size: 1 << 16,
            };
            if let Err(error) = Plan::new(&self.kernel, &request) {
                check(&error.to_string(), part)?;
            }
        }
        Ok(())
    }
}

/// An error is one line that a terminal can take, and not as long as what it speaks of.
fn check(error: &str, of: &str) -> Result<(), String> {
    if error.is_empty() || error.chars().any(char::is_control) {
        return Err(format!("{of:?} is refused by {error:?}"));
    }
    if error.len() > 10_000 {
        return Err(format!("an error of {} bytes", error.len()));
    }
    Ok(())
}
