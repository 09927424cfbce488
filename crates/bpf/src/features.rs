//! Trying what this kernel grants: programs of two instructions, and links that are gone at once.
//!
//! Nothing runs and nothing stays: a probe is for an answer alone. Program and attach types are plain numbers here, for a
//! kernel may be asked about one that nothing else in this crate uses.

use crate::error::{Error, Result};
use crate::link;
use crate::map::{Map, MapType};
use crate::perf_event::{self, PerfEvent};
use crate::sys::{self, LinkKprobeMulti, LinkTracingMulti, ProgLoad, addr, addr_mut, bpf_fd};
use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

/// `r0 = 0; exit`.
const NOTHING: [u64; 2] = [0xb7, 0x95];

/// `BPF_PROG_TYPE_KPROBE`.
pub const PROG_TYPE_KPROBE: u32 = 2;
/// `BPF_PROG_TYPE_RAW_TRACEPOINT`.
pub const PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
/// `BPF_PROG_TYPE_TRACING`.
pub const PROG_TYPE_TRACING: u32 = 26;

/// A program of two instructions, loaded.
#[derive(Debug)]
pub struct Tried {
    fd: OwnedFd,
    attach_type: u32,
}

/// Loads a program that does nothing: `enum bpf_prog_type`, `enum bpf_attach_type`, and the BTF id that it is for (0: none).
///
/// A refusal carries the verifier's log, when there is one.
pub fn try_load(prog_type: u32, attach_type: u32, attach_btf_id: u32) -> Result<Tried> {
    try_instructions(&NOTHING, prog_type, attach_type, attach_btf_id)
}

/// Whether atomic additions give the old value (5.12; some processors later): a program that has one is loaded.
pub fn try_fetch_add() -> Result<()> {
    // r1 = 1; *(u64 *)(r10 - 8) = r1; r1 = atomic_fetch_add((u64 *)(r10 - 8), r1); r0 = 0; exit
    const FETCHING: [u64; 5] = [0x1_0000_01b7, 0xfff8_1a7b, 0x1_fff8_1adb, NOTHING[0], NOTHING[1]];
    try_instructions(&FETCHING, PROG_TYPE_RAW_TRACEPOINT, 0, 0).map(drop)
}

fn try_instructions(insns: &[u64], prog_type: u32, attach_type: u32, attach_btf_id: u32) -> Result<Tried> {
    let mut log = vec![0u8; 4096];
    let mut attr = ProgLoad {
        prog_type,
        insn_cnt: insns.len() as u32,
        insns: addr(insns),
        license: c"Dual MIT/GPL".as_ptr() as u64,
        prog_name: sys::object_name("tried"),
        expected_attach_type: attach_type,
        attach_btf_id,
        log_level: 1,
        log_size: log.len() as u32,
        log_buf: addr_mut(&mut log),
        ..Default::default()
    };
    match bpf_fd(sys::PROG_LOAD, &mut attr) {
        Ok(fd) => Ok(Tried { fd, attach_type }),
        Err(source) => Err(Error::Load { name: "tried".into(), source, log: crate::prog::log_text(&log) }),
    }
}

impl Tried {
    /// Attaches it to one function by name through `kprobe_multi`, and detaches.
    pub fn kprobe_multi(&self, function: &str) -> Result<()> {
        let name = c_string(function)?;
        let names = [name.as_ptr() as u64];
        let (prog_fd, attach_type) = self.numbers();
        let attr = LinkKprobeMulti { prog_fd, attach_type, cnt: 1, syms: addr(&names), ..Default::default() };
        link::create(attr, || "attach by kprobe_multi".into()).map(drop)
    }

    /// Attaches it to one function by BTF id through `tracing_multi`, and detaches.
    pub fn tracing_multi(&self, btf_id: u32) -> Result<()> {
        let ids = [btf_id];
        let (prog_fd, attach_type) = self.numbers();
        let attr = LinkTracingMulti { prog_fd, attach_type, cnt: 1, ids: addr(&ids), ..Default::default() };
        link::create(attr, || "attach by tracing_multi".into()).map(drop)
    }

    /// Its descriptor and its attach type.
    fn numbers(&self) -> (u32, u32) {
        (self.fd.as_raw_fd() as u32, self.attach_type)
    }
}

/// Opens a kprobe (`at_return`: a kretprobe) on a function as a perf event, never enabled, and closes it.
///
/// `pmu` is the number in `/sys/bus/event_source/devices/kprobe/type`; `return_bit` the bit of `config` that its
/// `format/retprobe` names.
pub fn try_kprobe(pmu: u32, function: &str, at_return: Option<u32>) -> Result<()> {
    let name = c_string(function)?;
    let event = PerfEvent {
        ty: pmu,
        config: at_return.map_or(0, |bit| 1u64.checked_shl(bit).unwrap_or(0)),
        flags: perf_event::DISABLED,
        config1: name.as_ptr() as u64,
        ..Default::default()
    };
    perf_event::open(event, 0, -1, || "open a kprobe".into()).map(drop)
}

/// Creates a ring buffer of the smallest size that any page size allows, and lets it go.
pub fn try_ring_buffer() -> Result<()> {
    Map::create(MapType::RingBuf, "tried", 0, 0, 64 << 10).map(drop)
}

fn c_string(name: &str) -> Result<CString> {
    CString::new(name).map_err(|_| Error::Protocol(format!("name {name:?} holds a zero byte")))
}
