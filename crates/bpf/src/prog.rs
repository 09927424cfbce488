//! BPF programs: load, test run, information.

use crate::error::{Error, Result};
use crate::sys::{self, GetInfo, ProgLoad, TestRunAttr, addr, addr_mut, bpf, bpf_fd};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// The program types in use (include/uapi/linux/bpf.h, `enum bpf_prog_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ProgType {
    /// A packet filter; runs everywhere under a test run.
    SocketFilter = 1,
    /// A kprobe or kretprobe, one or many: the context is `struct pt_regs`.
    Kprobe = 2,
    /// A tracepoint as perf records it: the context is the record.
    Tracepoint = 5,
    /// A raw tracepoint: arguments as untyped 64-bit words.
    RawTracepoint = 17,
    /// fentry, fexit, tp_btf: arguments typed by BTF.
    Tracing = 26,
    /// Runs in process context by test run alone.
    Syscall = 31,
}

/// Where a tracing program goes (`enum bpf_attach_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum AttachType {
    /// For program types that have none.
    None = 0,
    /// BPF_TRACE_RAW_TP: tp_btf.
    TpBtf = 23,
    /// BPF_TRACE_FENTRY.
    Fentry = 24,
    /// BPF_TRACE_FEXIT.
    Fexit = 25,
    /// BPF_TRACE_KPROBE_MULTI: kprobes by ftrace, many at once (5.18).
    KprobeMulti = 42,
    /// BPF_TRACE_KPROBE_SESSION: the same, entry and return by one program (6.10).
    KprobeSession = 56,
    /// BPF_TRACE_FSESSION: entry and exit of a function by one program (7.0).
    Fsession = 58,
    /// BPF_TRACE_FENTRY_MULTI: fentry for many functions at once (7.2).
    FentryMulti = 59,
    /// BPF_TRACE_FSESSION_MULTI: fsession for many functions at once (7.2).
    FsessionMulti = 61,
}

/// What a tracing program's `attach_btf_id` is of.
#[derive(Clone, Copy, Debug, Default)]
pub enum AttachTo<'a> {
    /// vmlinux's BTF.
    #[default]
    Kernel,
    /// A module's BTF object, from [`crate::module_btf`] (5.11).
    Module(BorrowedFd<'a>),
    /// The BTF of a BPF program, which is given itself: the id is of one of its functions.
    Program(BorrowedFd<'a>),
}

impl AttachTo<'_> {
    /// `attach_prog_fd`, which is also `attach_btf_obj_fd`.
    fn fd(self) -> u32 {
        match self {
            AttachTo::Kernel => 0,
            AttachTo::Module(fd) | AttachTo::Program(fd) => fd.as_raw_fd() as u32,
        }
    }
}

/// Everything BPF_PROG_LOAD is told.
#[derive(Clone, Copy, Debug)]
pub struct Load<'a> {
    /// At most 15 bytes reach the kernel.
    pub name: &'a str,
    /// Program type.
    pub ty: ProgType,
    /// Attach type the verifier checks against.
    pub attach_type: AttachType,
    /// BTF id of the function or of the tracepoint's typedef; 0 when not typed.
    pub attach_btf_id: u32,
    /// What `attach_btf_id` is of.
    pub attach_to: AttachTo<'a>,
    /// It may sleep (BPF_F_SLEEPABLE), as programs of type syscall must.
    pub sleepable: bool,
    /// Encoded instructions, `struct bpf_insn` each.
    pub insns: &'a [u64],
    /// BTF that func_info and line_info refer to.
    pub btf: Option<BorrowedFd<'a>>,
    /// `struct bpf_func_info`: instruction offset, type id.
    pub func_info: &'a [[u32; 2]],
    /// `struct bpf_line_info`: instruction offset, file name, line text (string offsets), line << 10 | column.
    pub line_info: &'a [[u32; 4]],
}

impl<'a> Load<'a> {
    /// A program of instructions alone.
    pub fn new(name: &'a str, ty: ProgType, insns: &'a [u64]) -> Load<'a> {
        Load {
            name,
            ty,
            attach_type: AttachType::None,
            attach_btf_id: 0,
            attach_to: AttachTo::Kernel,
            sleepable: false,
            insns,
            btf: None,
            func_info: &[],
            line_info: &[],
        }
    }
}

/// A loaded program.
#[derive(Debug)]
pub struct Program {
    fd: OwnedFd,
    name: String,
}

impl AsFd for Program {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const BPF_F_SLEEPABLE: u32 = 1 << 4;

/// The log buffer for a refused load: the verifier keeps the end of what does not fit only from 6.4 on, so it is
/// made large enough for any program of ours.
const LOG_SIZE: usize = 1 << 20;

impl Program {
    /// A program by its descriptor; `name` is what errors call it.
    pub(crate) fn of(fd: OwnedFd, name: String) -> Program {
        Program { fd, name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Loads a program under a GPL-compatible licence, without a log; when it is refused, loads again with the log
    /// on, so that [`Error::Load`] can say why.
    pub fn load(load: &Load<'_>) -> Result<Program> {
        let mut attr = ProgLoad {
            prog_type: load.ty as u32,
            insn_cnt: load.insns.len() as u32,
            insns: addr(load.insns),
            license: c"Dual MIT/GPL".as_ptr() as u64,
            prog_flags: if load.sleepable { BPF_F_SLEEPABLE } else { 0 },
            prog_name: sys::object_name(load.name),
            expected_attach_type: load.attach_type as u32,
            prog_btf_fd: load.btf.map_or(0, |fd| fd.as_raw_fd() as u32),
            func_info_rec_size: 8,
            func_info: addr(load.func_info),
            func_info_cnt: load.func_info.len() as u32,
            line_info_rec_size: 16,
            line_info: addr(load.line_info),
            line_info_cnt: load.line_info.len() as u32,
            attach_btf_id: load.attach_btf_id,
            attach_prog_fd: load.attach_to.fd(),
            ..Default::default()
        };
        if load.btf.is_none() {
            attr.func_info_rec_size = 0;
            attr.line_info_rec_size = 0;
        }
        let name = load.name.to_string();
        // EAGAIN: a signal came while the verifier ran; the call is to be made again (libbpf does so five times).
        let mut source = std::io::Error::from_raw_os_error(libc::EAGAIN);
        for _ in 0..5 {
            match bpf_fd(sys::PROG_LOAD, &mut attr) {
                Ok(fd) => return Ok(Program { fd, name }),
                Err(e) => source = e,
            }
            if source.raw_os_error() != Some(libc::EAGAIN) {
                break;
            }
        }
        let mut log = vec![0u8; LOG_SIZE];
        attr.log_buf = addr_mut(&mut log);
        attr.log_size = log.len() as u32;
        attr.log_level = 1;
        match bpf_fd(sys::PROG_LOAD, &mut attr) {
            Ok(fd) => Ok(Program { fd, name }),
            Err(_) => Err(Error::Load { name, source, log: log_text(&log) }),
        }
    }

    /// Runs the program once or more in this task's context (BPF_PROG_TEST_RUN).
    pub fn test_run(&self, run: &TestRun<'_>) -> Result<TestRunOutput> {
        let mut attr = TestRunAttr {
            prog_fd: self.fd.as_raw_fd() as u32,
            data_in: addr(run.data),
            data_size_in: run.data.len() as u32,
            ctx_in: addr(run.ctx),
            ctx_size_in: run.ctx.len() as u32,
            repeat: run.repeat,
            ..Default::default()
        };
        bpf(sys::PROG_TEST_RUN, &mut attr)
            .map_err(|source| Error::Sys { action: format!("test run of program {}", self.name), source })?;
        Ok(TestRunOutput { retval: attr.retval, duration_ns: attr.duration })
    }

    /// What the kernel knows of the program (BPF_OBJ_GET_INFO_BY_FD). Fields that this kernel lacks are 0.
    pub fn info(&self) -> Result<ProgInfo> {
        let mut raw = [0u64; 32];
        let mut attr = GetInfo {
            bpf_fd: self.fd.as_raw_fd() as u32,
            info_len: size_of_val(&raw) as u32,
            info: addr_mut(&mut raw),
        };
        bpf(sys::OBJ_GET_INFO_BY_FD, &mut attr).map_err(|source| Error::Sys {
            action: format!("information on program {}", self.name),
            source,
        })?;
        // struct bpf_prog_info, in 64-bit words: id is the high half of the first, jited_prog_len the low half of
        // the third; recursion_misses follows run_time_ns and run_cnt.
        Ok(ProgInfo {
            id: (raw[0] >> 32) as u32,
            jited_len: raw[2] as u32,
            xlated_len: (raw[2] >> 32) as u32,
            recursion_misses: raw[26],
            verified_insns: (raw[27] & 0xffff_ffff) as u32,
        })
    }
}

/// Input of a test run.
#[derive(Debug, Default)]
pub struct TestRun<'a> {
    /// Packet bytes, for packet programs (at least 14).
    pub data: &'a [u8],
    /// Context bytes: for a raw tracepoint its arguments, 8 bytes each.
    pub ctx: &'a [u8],
    /// Runs in a row; 0 means 1. A raw tracepoint takes none.
    pub repeat: u32,
}

/// Outcome of a test run.
#[derive(Clone, Copy, Debug)]
pub struct TestRunOutput {
    /// r0 at exit, its low 32 bits.
    pub retval: u32,
    /// Mean time of one run, in ns.
    pub duration_ns: u32,
}

/// A few fields of `struct bpf_prog_info`.
#[derive(Clone, Copy, Debug)]
pub struct ProgInfo {
    /// Program id, as bpftool shows it.
    pub id: u32,
    /// Bytes of machine code; 0 when interpreted.
    pub jited_len: u32,
    /// Bytes of instructions after verification.
    pub xlated_len: u32,
    /// Calls that were skipped because the program was already running on that CPU (5.12 and later).
    pub recursion_misses: u64,
    /// Instructions that the verifier walked through, each as often as it did (5.16 and later).
    pub verified_insns: u32,
}

/// A log buffer as text, up to its terminator.
pub(crate) fn log_text(log: &[u8]) -> String {
    let end = log.iter().position(|b| *b == 0).unwrap_or(log.len());
    String::from_utf8_lossy(log.get(..end).unwrap_or_default()).into_owned()
}
