//! Tracepoints without types, as on a kernel that refuses tp_btf: the same events.

use std::ops::ControlFlow;
use trace::{
    Filter, Kernel, Method, Mode, Note, Pattern, Plan, Request, Scope, Session, TargetKind, TargetSpec, Text,
};

#[test]
fn an_untyped_tracepoint_gives_the_same_event() {
    bpf::raise_limits();
    let (kernel, own) = match (Kernel::running(), trace::own_tgid()) {
        (Ok(kernel), Ok(own)) => (kernel, own),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("SKIP: {error}");
            return;
        }
    };
    let pattern = Pattern::new("sched_process_exec").expect("pattern");
    let request = Request {
        targets: vec![TargetSpec { kind: TargetKind::Tracepoint, pattern, scope: Scope::Kernel }],
        programs: Vec::new(),
        mode: Mode::Exit,
        filter: Filter { followed: true, ..Filter::default() },
        expressions: Default::default(),
        force: false,
        path: None,
        stack: false,
        branches: false,
        string_size: 64,
        pointees: true,
        ring_size: 1 << 16,
    };
    let mut plan = Plan::new(&kernel, &request).expect("plan");
    plan.probes[0].method = Method::RawTp;
    let mut session = match Session::start(&plan, own, &mut || false) {
        Err(trace::Error::Permission(error)) => {
            eprintln!("SKIP: {error}");
            return;
        }
        started => started.expect("start"),
    };
    let mut command = bpf::Held::spawn("/bin/true; :").expect("command");
    assert!(session.attach(&plan, &mut |_| false).expect("attach"));
    assert_eq!(session.probes()[0].method.name(), "raw_tp");
    command.release().expect("release");
    assert!(command.wait().expect("wait").success());
    session.detach(&mut |_| false);
    let mut seen = Vec::new();
    session
        .drain(|event| {
            let bprm = event.args().nth(2).expect("bprm");
            if let Some((_, Note::Text(Text::Read { bytes, .. }))) = bprm.notes().next() {
                seen.push((event.comm().to_vec(), bytes.to_vec()));
            }
            ControlFlow::Continue(())
        })
        .expect("drain");
    assert_eq!(seen, [(b"true".to_vec(), b"/bin/true".to_vec())]);
}
