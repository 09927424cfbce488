//! Every target for a while, from fixed seeds: what was found once is not found again, and the drivers work.

use fuzz::{Target, Until};

/// How many executions: seconds, not minutes, without optimisation.
fn clean(target: Target, executions: u64) {
    let report = fuzz::run(target, 1, Until::Executions(executions)).expect("begin");
    assert_eq!(report.executions, executions, "{:?}", report.findings);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn btf() {
    clean(Target::Btf, 1_000);
}

#[test]
fn events() {
    clean(Target::Events, 10_000);
}

#[test]
fn targets() {
    clean(Target::Targets, 5_000);
}

#[test]
fn flags() {
    clean(Target::Flags, 1_000);
}

#[test]
fn lines() {
    clean(Target::Lines, 2_000);
}

#[test]
fn expr() {
    clean(Target::Expr, 10_000);
}

#[test]
fn disasm() {
    clean(Target::Disasm, 10_000);
}
