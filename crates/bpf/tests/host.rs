//! The door against the running kernel: needs root and a kernel that loads BPF; says so on stderr where it cannot.

use bpf::{Held, Load, Map, MapType, ProgType, Program, RingBuf, TestRun};
use std::ops::ControlFlow;
use std::os::fd::{AsFd, AsRawFd};

/// `struct bpf_insn` as the kernel reads it on a little-endian machine.
fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    u64::from(code)
        | u64::from(dst | src << 4) << 8
        | u64::from(off as u16) << 16
        | u64::from(imm as u32) << 32
}

/// Whether this machine lets us load anything; a refusal is printed, so that a skipped test is seen.
fn may_load() -> bool {
    bpf::raise_limits();
    let probe = [insn(0xb7, 0, 0, 0, 0), insn(0x95, 0, 0, 0, 0)];
    match Program::load(&Load::new("probe", ProgType::SocketFilter, &probe)) {
        Ok(_) => true,
        Err(e) if e.is_permission() => {
            eprintln!("SKIP: this machine refuses to load BPF programs: {e}");
            false
        }
        Err(e) => panic!("{e}"),
    }
}

#[test]
fn a_program_returns_what_it_computes() {
    if !may_load() {
        return;
    }
    let code = [insn(0xb7, 0, 0, 0, 42), insn(0x95, 0, 0, 0, 0)];
    let prog = Program::load(&Load::new("answer", ProgType::SocketFilter, &code)).expect("load");
    let out = prog.test_run(&TestRun { data: &[0; 14], ..Default::default() }).expect("run");
    assert_eq!(out.retval, 42);
    let info = prog.info().expect("info");
    assert!(info.id > 0 && info.xlated_len >= 16 && info.recursion_misses == 0, "{info:?}");
}

/// `r0 = 0; exit`.
const NOTHING: [u64; 2] = [0xb7, 0x95];

#[test]
fn a_program_is_found_by_id_with_all_that_is_known_of_it() {
    if !may_load() {
        return;
    }
    let prog =
        Program::load(&Load::new("a_name_of_over_15", ProgType::SocketFilter, &NOTHING)).expect("load");
    let id = prog.info().expect("info").id;
    assert!(bpf::program_ids().expect("ids").contains(&id));
    assert_eq!(
        bpf::program_ids_of_process(std::process::id()).expect("own").iter().filter(|i| **i == id).count(),
        1
    );
    let found = Program::by_id(id).expect("by id").expect("there");
    let details = found.details().expect("details");
    assert_eq!(details, prog.details().expect("details"));
    assert_eq!((details.id, details.ty, details.name.as_str()), (id, 1, "a_name_of_over_"));
    assert!(details.btf_id == 0 && details.func_info.is_empty(), "{details:?}");
    assert!(details.tag != [0; 8] && details.jited_len > 0, "{details:?}");
    drop((prog, found));
    assert!(Program::by_id(u32::MAX >> 1).expect("by id").is_none());
    let gone = bpf::program_ids_of_process(u32::MAX >> 1).expect_err("no such process");
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn programs_that_tail_calls_lead_to() {
    if !may_load() {
        return;
    }
    let prog = Program::load(&Load::new("jumped_to", ProgType::SocketFilter, &NOTHING)).expect("load");
    let id = prog.info().expect("info").id;
    let led_to = || {
        bpf::tail_called_programs().expect("list").into_iter().filter(|(to, _)| *to == id).collect::<Vec<_>>()
    };
    assert!(led_to().is_empty());
    let map = Map::create(MapType::ProgArray, "some_jumps", 4, 4, 8).expect("create");
    map.update(&5u32.to_ne_bytes(), &prog.as_fd().as_raw_fd().to_ne_bytes()).expect("update");
    assert_eq!(led_to(), [(id, "some_jumps".to_string())]);
}

#[test]
fn pins_lead_to_programs_and_nothing_else_does() {
    if !may_load() {
        return;
    }
    let file = tempfile::NamedTempFile::new().expect("file");
    let error = bpf::pinned_program_id(file.path()).expect_err("no pin");
    assert!(error.is_permission(), "{error}");
    let error = bpf::pinned_program_id(std::path::Path::new("/no/such/pin")).expect_err("no file");
    assert_eq!(error.errno(), Some(2), "{error}");
}

#[test]
fn a_refused_program_comes_with_the_verifiers_reason() {
    if !may_load() {
        return;
    }
    // r0 is never set.
    let err = Program::load(&Load::new("bad", ProgType::SocketFilter, &[insn(0x95, 0, 0, 0, 0)]))
        .expect_err("refused");
    assert!(err.log().is_some_and(|l| l.contains("R0 !read_ok")), "{err:?}");
    assert!(!err.is_permission());
}

#[test]
fn hash_and_array_elements() {
    if !may_load() {
        return;
    }
    let map = Map::create(MapType::Hash, "h", 8, 4, 16).expect("create");
    assert_eq!(map.lookup(&1u64.to_ne_bytes()).expect("lookup"), None);
    map.update(&1u64.to_ne_bytes(), &7u32.to_ne_bytes()).expect("update");
    map.update(&2u64.to_ne_bytes(), &8u32.to_ne_bytes()).expect("update");
    assert_eq!(map.lookup(&1u64.to_ne_bytes()).expect("lookup"), Some(7u32.to_ne_bytes().to_vec()));
    let mut keys = Vec::new();
    let note = |key: &[u8]| {
        keys.push(key.to_vec());
        Ok(())
    };
    map.each_key(note).expect("keys");
    keys.sort_unstable();
    assert_eq!(keys, [1u64.to_ne_bytes(), 2u64.to_ne_bytes()]);
    assert!(map.delete(&1u64.to_ne_bytes()).expect("delete"));
    assert!(!map.delete(&1u64.to_ne_bytes()).expect("delete"));
    assert!(map.update(&[0; 3], &[0; 4]).is_err(), "a key of the wrong size must not reach the kernel");
    let counts = Map::create(MapType::PerCpuArray, "c", 4, 8, 1).expect("create");
    assert_eq!(counts.sum_u64(0).expect("sum"), 0);
}

#[test]
fn each_key_comes_once_though_it_is_deleted() {
    if !may_load() {
        return;
    }
    let map = Map::create(MapType::Hash, "h", 8, 4, 300).expect("create");
    for n in 0..300u64 {
        map.update(&n.to_ne_bytes(), &[0; 4]).expect("update");
    }
    let mut seen = std::collections::BTreeSet::new();
    let even = |key: &[u8]| {
        assert!(seen.insert(key.to_vec()), "twice: {key:?}");
        if key[0].is_multiple_of(2) {
            assert!(map.delete(key)?);
        }
        Ok(())
    };
    map.each_key(even).expect("keys");
    assert_eq!(seen.len(), 300);
    let mut left = 0;
    let count = |key: &[u8]| {
        left += usize::from(key[0] % 2 == 1);
        Ok(())
    };
    map.each_key(count).expect("keys");
    assert_eq!(left, 150);
}

#[test]
fn maps_and_links_are_listed_by_id() {
    if !may_load() {
        return;
    }
    let map = Map::create(MapType::Hash, "listed", 8, 4, 16).expect("create");
    let info =
        std::fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_fd().as_raw_fd())).expect("fdinfo");
    let id = info.lines().find_map(|l| l.strip_prefix("map_id:")).expect("map_id");
    let ids = bpf::map_ids().expect("maps");
    assert!(ids.contains(&id.trim().parse().expect("a number")), "{id} in {ids:?}");
    let links = bpf::link_ids().expect("links");
    assert!(ids.is_sorted() && links.is_sorted(), "{ids:?} {links:?}");
}

/// Sends `len` bytes starting with the packet's length word through `bpf_ringbuf_output`, `times` times.
fn sender(ring: &Map, len: i32) -> Program {
    let fd = ring.as_fd().as_raw_fd();
    let code = [
        // *(u64 *)(fp - 8 ...) filled with r7 = skb->len, so that every byte sent is initialised
        insn(0x61, 7, 1, 0, 0),
        insn(0x7b, 10, 7, -8, 0),
        insn(0x7b, 10, 7, -16, 0),
        insn(0x7b, 10, 7, -24, 0),
        insn(0x18, 1, 1, 0, fd),
        insn(0, 0, 0, 0, 0),
        insn(0xbf, 2, 10, 0, 0),
        insn(0x07, 2, 0, 0, -24),
        insn(0xb7, 3, 0, 0, len),
        insn(0xb7, 4, 0, 0, 0),
        insn(0x85, 0, 0, 0, 130),
        insn(0x95, 0, 0, 0, 0),
    ];
    Program::load(&Load::new("sender", ProgType::SocketFilter, &code)).expect("load")
}

#[test]
fn the_ring_gives_every_record_once_round_after_round() {
    if !may_load() {
        return;
    }
    let size = 4096u32;
    let mut ring =
        RingBuf::new(Map::create(MapType::RingBuf, "r", 0, 0, size).expect("create")).expect("map");
    // With header and padding 24 and 15 bytes take 32 and 24, so that records come to lie across the end of 4096.
    let long = sender(ring.map(), 24);
    let odd = sender(ring.map(), 15);
    let mut seen = 0u64;
    for round in 0..50u32 {
        for i in 0..20u32 {
            let len = 14 + (round * 20 + i) % 1000;
            let data = vec![0u8; len as usize];
            let prog = if i.is_multiple_of(2) { &long } else { &odd };
            let out = prog.test_run(&TestRun { data: &data, ..Default::default() }).expect("run");
            assert_eq!(out.retval, 0, "the ring has room");
        }
        let mut i = 0u32;
        let done = ring
            .drain(|record| {
                assert_eq!(record.len(), if i.is_multiple_of(2) { 24 } else { 15 });
                let sent = u64::from((round * 20 + i) % 1000).to_ne_bytes(); // skb->len, less the Ethernet header
                assert!(record.iter().zip(sent.iter().cycle()).all(|(got, sent)| got == sent), "{record:?}");
                i += 1;
                seen += 1;
                ControlFlow::Continue(())
            })
            .expect("drain");
        assert_eq!(done.records, 20);
        assert_eq!(ring.pending(), 0);
    }
    assert_eq!(seen, 1000);
}

#[test]
fn a_full_ring_refuses_and_a_reader_that_stops_loses_nothing() {
    if !may_load() {
        return;
    }
    let mut ring =
        RingBuf::new(Map::create(MapType::RingBuf, "r", 0, 0, 4096).expect("create")).expect("map");
    let prog = sender(ring.map(), 24);
    let mut sent = 0;
    while prog.test_run(&TestRun { data: &[0; 14], ..Default::default() }).expect("run").retval == 0 {
        sent += 1;
        assert!(sent < 1000, "a 4 KiB ring never filled");
    }
    let mut first = 0;
    let done = ring
        .drain(|_| {
            first += 1;
            if first == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .expect("drain");
    assert!(done.stopped && done.records == 3);
    let rest = ring.drain(|_| ControlFlow::Continue(())).expect("drain");
    assert_eq!(rest.records, sent - 3);
}

#[test]
fn a_held_command_has_not_begun_and_then_runs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mark = dir.path().join("mark");
    let mut held = Held::spawn(&format!("echo ran > {}; exit 5", mark.display())).expect("spawn");
    let exe = std::fs::read_link(format!("/proc/{}/exe", held.pid())).expect("exe");
    assert_ne!(exe, std::env::current_exe().expect("exe"), "it is the shell already");
    assert!(!mark.exists() && held.try_wait().expect("wait").is_none());
    held.release().expect("release");
    assert_eq!(held.wait().expect("wait").code(), Some(5));
    assert!(mark.exists());
}

#[test]
fn a_held_command_dropped_unreleased_never_runs() {
    let dir = tempfile::tempdir().expect("tempdir");
    let mark = dir.path().join("mark");
    let held = Held::spawn(&format!("echo ran > {}", mark.display())).expect("spawn");
    let proc_dir = format!("/proc/{}", held.pid());
    drop(held);
    assert!(!std::path::Path::new(&proc_dir).exists(), "killed and reaped");
    assert!(!mark.exists());
}

#[test]
fn a_held_command_has_the_signals_that_we_were_started_with() {
    let dir = tempfile::tempdir().expect("tempdir");
    let out = dir.path().join("status");
    // This thread's: the C library blocks all signals in one that is just starting another, as the main one may be.
    let own = std::fs::read_to_string("/proc/thread-self/status").expect("status");
    let blocked =
        |status: &str| status.lines().find(|l| l.starts_with("SigBlk")).map(str::to_string).expect("SigBlk");
    let before = blocked(&own);
    // In a thread of its own, for the mask is a thread's.
    let path = out.clone();
    std::thread::spawn(move || {
        let _signals = bpf::Signals::block().expect("block");
        let mut held = Held::spawn(&format!("cat /proc/self/status > {}", path.display())).expect("spawn");
        held.release().expect("release");
        assert!(held.wait().expect("wait").success());
    })
    .join()
    .expect("thread");
    assert_eq!(blocked(&std::fs::read_to_string(&out).expect("status")), before);
}

#[test]
fn a_terminated_command_takes_what_it_has_started_along() {
    let dir = tempfile::tempdir().expect("tempdir");
    let said = dir.path().join("pids");
    // A shell that waits for a shell that waits.
    let command = format!(
        "sh -c 'sleep 600 & echo $$ $! >{0}.part; mv {0}.part {0}; wait; true'; true",
        said.display()
    );
    let mut held = Held::spawn(&command).expect("spawn");
    held.release().expect("release");
    while !said.exists() {
        assert!(held.try_wait().expect("wait").is_none(), "ended early");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pids: Vec<u32> = std::fs::read_to_string(&said)
        .expect("pids")
        .split_whitespace()
        .map(|pid| pid.parse().expect("pid"))
        .collect();
    let [shell, sleep] = pids[..] else { panic!("{pids:?}") };
    // Whoever inherits them may never wait for them: a zombie has ended too.
    let runs = |pid: u32| {
        std::fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|behind| !behind.starts_with(" Z")))
    };
    assert!(runs(shell) && runs(sleep));
    held.terminate();
    assert!(!held.wait().expect("wait").success());
    while runs(shell) || runs(sleep) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}
