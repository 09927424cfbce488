//! What can stop a trace before it starts, each in one line that says what to do.

use crate::request::TargetKind;
use std::path::PathBuf;

/// Why a request cannot be carried out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A target pattern that cannot be read.
    #[error("{pattern:?}: {reason}")]
    Pattern {
        /// As given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No target of that name.
    #[error("no {kind} is named {name}{hint}")]
    Unknown {
        /// What was looked for.
        kind: TargetKind,
        /// As given.
        name: String,
        /// Near matches or what the kernel knows of it, ready to append; may be empty.
        hint: String,
    },
    /// No cgroup of that path.
    #[error("cgroup {path}: {reason}")]
    Cgroup {
        /// As given.
        path: String,
        /// Why not.
        reason: String,
    },
    /// The kernel shows no type information.
    #[error(
        "no kernel type information at {}: {reason}. btrace reads every prototype from it: it takes a kernel built \
         with CONFIG_DEBUG_INFO_BTF=y, and sysfs mounted on /sys", path.display()
    )]
    NoBtf {
        /// Where it was looked for.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The BTF lacks something every kernel that we can trace has.
    #[error("the kernel's BTF has no {what}; this kernel is older than any that btrace can trace (5.8)")]
    Kernel {
        /// What was looked for.
        what: String,
    },
    /// The kernel has no helper that takes branch records.
    #[error(
        "--output-lbr: this kernel does not give branch records to BPF programs (no bpf_get_branch_snapshot; since 5.16)"
    )]
    NoBranchSnapshot,
    /// BTF that cannot be read.
    #[error("kernel BTF: {0}")]
    Btf(#[from] btf::Error),
    /// We may not use bpf(2) at all.
    #[error(
        "not permitted to use BPF ({0}): run btrace as root, or with CAP_BPF, CAP_PERFMON and CAP_SYS_RESOURCE"
    )]
    Permission(bpf::Error),
    /// The kernel refuses a whole class of programs.
    #[error(
        "this kernel refuses {method} programs (EPERM, and no reason given), so btrace cannot trace functions here; \
         tracepoints it can: btrace -t 'sched_*'"
    )]
    MethodRefused {
        /// fentry or fexit.
        method: &'static str,
        /// The kernel's answer.
        cause: bpf::Error,
    },
    /// The verifier or the attach refused one target.
    #[error("{target}: {reason}")]
    Target {
        /// Name of the target.
        target: String,
        /// Why, in terms of the target.
        reason: String,
    },
    /// What the executed path takes is not there.
    #[error("{flag}: {reason}")]
    Path {
        /// The option that it was for.
        flag: &'static str,
        /// What is missing.
        reason: String,
    },
    /// An expression for a target that there is not.
    #[error(
        "{flag}: no target is named {target}, which '{text}' is for (F:EXPR is for target F alone){hint}"
    )]
    Idle {
        /// Where it was given.
        flag: &'static str,
        /// The expression without its target.
        text: String,
        /// The target's name or pattern.
        target: String,
        /// Near matches, ready to append.
        hint: String,
    },
    /// An expression that means nothing at a target.
    #[error("{flag}: {source}\n{}", source.point(text))]
    Expression {
        /// Where it was given.
        flag: &'static str,
        /// As given.
        text: String,
        /// The target.
        target: String,
        /// What is wrong, and where.
        source: expr::Error,
    },
    /// More is gathered than a program can have tables for.
    #[error(
        "{wanted} --output-arg gather at a target, at most {most} can: a program uses 64 maps, some of them for other things"
    )]
    TooManyTables {
        /// How many do.
        wanted: usize,
        /// How many can.
        most: usize,
    },
    /// The caller wanted no more of it.
    #[error("stopped")]
    Stopped,
    /// None of several targets could be traced.
    #[error("none of the {count} targets can be traced; the first, {first}")]
    AllFailed {
        /// How many there were.
        count: usize,
        /// The first with its reason.
        first: String,
    },
    /// A program of ours that the assembler turned down: a defect in btrace.
    #[error("{target}: cannot generate the program: {source}")]
    Assemble {
        /// Name of the target.
        target: String,
        /// The assembler's reason.
        source: asm::Error,
    },
    /// A system call failed.
    #[error(transparent)]
    Sys(#[from] bpf::Error),
}
