//! Where each field of an event lies. A record is made for one probe and holds what that probe captures, no more.
//!
//! ```text
//!  0  u64     kernel time, ns (bpf_ktime_get_ns: CLOCK_MONOTONIC)
//!  8  u32     probe, an index into the plan
//! 12  u16     CPU
//! 14  u16     bits 8 to 23 of the preempt count: what was interrupted, see [`crate::Context`]; 0 if not captured
//! 16  u32     tid (the kernel's pid)
//! 20  u32     tgid (what user space calls the process id)
//! 24  char[16] comm
//! 40  u64     at exits only: kernel time at entry, ns; 0 when the entry was not seen
//!  …  u64     with entries and exits both: the call's number, the same for its two events
//!  …  u64[]   arguments by register slot (of a system call's wrapper: the registers behind it), then the return value's
//!             slots
//!  …          texts and notes, each at a multiple of 8
//!  …          what expressions show, each a status (u64) and its value (see `expr::Room`), and notes of what they point to
//!  …  u64[10] if a stack is captured in a BPF program: the words where the trampoline keeps the arguments and beyond
//!  …  u64     if the executed path is captured: how many hits there were; then i32[512], their offsets from the function's address
//!  …  i64     if branch records are captured: their bytes, or a negative error; then room for 32 of 24 bytes
//!  …  i64     if a stack is captured: its bytes, or a negative error
//!  …  u64[]   its frames, innermost first: room for one of [`stack::ROOMS`], the rest is not ours to read
//! ```
//! The record's length is the ring buffer's to know.

use crate::branches;
use crate::error::Error;
use crate::expressions::{Asked, Compile};
use crate::kernel::Kernel;
use crate::notes::{Behind, NoteField, Step, behind, is_function_pointer};
use crate::pointee::{self, Form, Pointee};
use crate::syscalls::{self, Syscall, Told};
use crate::target::Target;
use btf::{Btf, Kind, Shape, TypeId};

/// Offsets in the header, in bytes.
pub(crate) mod header {
    pub const TIME: u32 = 0;
    pub const PROBE: u32 = 8;
    pub const CPU: u32 = 12;
    pub const CONTEXT: u32 = 14;
    pub const TID: u32 = 16;
    pub const TGID: u32 = 20;
    pub const COMM: u32 = 24;
    pub const COMM_SIZE: u32 = 16;
    pub const END: u32 = 40;
}

/// Kernel stacks in the record.
///
/// A record's size must be a constant where it is reserved, and most stacks are far shorter than the longest: so the
/// stack is taken first, into the program's own stack, and the smallest room that holds it is reserved.
pub(crate) mod stack {
    /// Frames that a record has room for, by size class.
    pub const ROOMS: [u32; 3] = [20, 44, MOST];
    /// Most frames of any stack (`PERF_MAX_STACK_DEPTH`).
    pub const MOST: u32 = 127;
    /// Frames taken at first; if they are that many, there may be more. 352 bytes of the 512 that a program has.
    pub const FIRST: u32 = ROOMS[1];
    /// Bytes of a frame.
    pub const FRAME: u32 = 8;
    /// Words from where a trampoline keeps a BPF function's arguments to the address that the function returns to: at most 6
    /// arguments, the return value, the frame pointer, the address to go on at, and that one.
    pub const WORDS: u32 = 10;
}

/// A text in the record: `i32` length as the kernel's string helpers return it (terminator counted; negative: the
/// error; [`NOT_READ`]), then that many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringField {
    /// Offset of the length word.
    pub offset: u32,
    /// Room for text and terminator.
    pub size: u32,
    /// Read wherever it points; else only when it points into the kernel: a `char *` that is not const and points to
    /// user memory is a buffer far more often than a text.
    pub user_too: bool,
}

/// Length word of a text that was not read on purpose.
pub(crate) const NOT_READ: i32 = i32::MIN;

/// One argument, or the return value.
#[derive(Clone, Debug)]
pub struct Argument {
    /// Its name; `argN` where BTF has none.
    pub name: String,
    /// Its type in C.
    pub type_name: String,
    /// How its bytes read.
    pub shape: Shape,
    /// Size of the value in bytes; it begins at the first byte of the slot.
    pub size: u32,
    /// Offset in the record of its first register slot.
    pub offset: u32,
    /// Its first register slot in the program's context.
    pub(crate) slot: u32,
    /// Slots of 8 bytes that it takes: 1 but for structures by value; 0 for what [`Layout::registers`] has.
    pub(crate) slots: u32,
    /// Text it points to.
    pub string: Option<StringField>,
    /// Whether it points to code.
    pub function: bool,
    /// What is shown of the object it points to.
    pub notes: Vec<NoteField>,
    /// How that is put in text.
    pub form: Form,
    /// How the program has it.
    pub(crate) steps: Vec<Step>,
}

/// Part of the `struct pt_regs` that the first argument points to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registers {
    /// Offset in the record.
    pub offset: u32,
    /// Offset in the structure.
    pub from: u32,
    /// Bytes.
    pub size: u32,
    /// Offsets in the record of upper halves that count for nothing.
    pub cleared: Vec<u32>,
}

/// Which system call an event is of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Number {
    /// Offset in the record of the number (`u64`) and, behind it, the task's status (`u32`).
    pub offset: u32,
    /// Where both are found.
    pub told: Told,
}

/// Layout of a probe's record.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Offset of the entry time, at exits.
    pub entry_time: Option<u32>,
    /// Offset of the call's number, where entries and exits are both taken.
    pub call: Option<u32>,
    /// Arguments in order.
    pub args: Vec<Argument>,
    /// Registers of the program that made a system call, in which the arguments lie.
    pub(crate) registers: Option<Registers>,
    /// Which system call it is, for the tracepoints of all.
    pub(crate) number: Option<Number>,
    /// Return value, unless void or not captured.
    pub ret: Option<Argument>,
    /// What expressions ask of it.
    pub asked: Asked,
    /// Whether the context is captured.
    pub context: bool,
    /// Offset of the words around a BPF program's trampoline, [`stack::WORDS`] of them: what tells its caller.
    pub(crate) words: Option<u32>,
    /// Offset of the executed path: `u32` hits, so many as there were, and from the next multiple of 8 on [`crate::path::HITS`] `i32`.
    pub(crate) path: Option<u32>,
    /// Offset of the branch records' length; their room follows.
    pub(crate) branches: Option<u32>,
    /// Offset of the stack's length, the last thing in the record's constant part; its frames follow.
    pub stack: Option<u32>,
    /// Size of the record in bytes, without the frames of a stack: a multiple of 8.
    pub size: u32,
}

/// What every event of a plan carries beside its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Captures {
    /// Room of a text, bytes.
    pub string_size: u32,
    /// What is behind pointers to structures.
    pub pointees: bool,
    /// The context, which not every kernel tells.
    pub context: bool,
    /// The kernel stack.
    pub stack: bool,
    /// The executed path, at exits.
    pub path: bool,
    /// The CPU's branch records.
    pub branches: bool,
}

/// Which end of a call an event is of, and how it is got at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    /// The return rather than the entry.
    pub at_exit: bool,
    /// Both ends are taken.
    pub paired: bool,
    /// By a kprobe, which sees the stack: values of any size within reason.
    pub by_kprobe: bool,
}

impl End {
    fn largest(self) -> u64 {
        if self.by_kprobe { ON_STACK } else { TWO_REGISTERS }
    }
}

/// Largest size of a value in registers.
const TWO_REGISTERS: u64 = 16;

/// Largest size of an argument by value that is taken from the stack.
const ON_STACK: u64 = 256;

impl Layout {
    /// Lays out everything `target` has to say under `method`.
    pub(crate) fn new(
        kernel: &Kernel,
        target: &Target,
        end: End,
        captures: Captures,
        compile: &Compile<'_>,
    ) -> Result<Layout, Error> {
        let btf = &*kernel.types_of(target)?;
        let Captures { string_size, pointees, context, stack, path, branches } = captures;
        let mut at = header::END;
        let entry_time = end.at_exit.then(|| take(&mut at, 8));
        let call = end.paired.then(|| take(&mut at, 8));
        let mut slot = 0;
        let mut args = Vec::with_capacity(target.params.len());
        let syscall = match &target.syscall {
            Some(call) if end.at_exit && call.overwrites_registers() => {
                if !end.paired {
                    log::warn!(
                        "{}: its registers may be overwritten when it returns; --mode entry and --mode both show its arguments",
                        target.label()
                    );
                }
                None
            }
            call => call.as_ref(),
        };
        let mut registers = None;
        if let Some(call) = syscall {
            // The wrapper's own argument.
            slot = 1;
            (registers, args) = behind_wrapper(call, &mut at, string_size);
            if pointees {
                for arg in &mut args {
                    behind_user_pointer(kernel, arg, &mut at, string_size);
                }
            }
        }
        for (index, param) in target.params.iter().enumerate().filter(|_| syscall.is_none()) {
            let name = if param.name.is_empty() { format!("arg{index}") } else { param.name.clone() };
            let (btf, ty) = target.argument_type(kernel, btf, index, param.ty);
            args.push(argument(btf, target, name, ty, end.largest(), &mut slot, &mut at)?);
        }
        let kind = btf.get(btf.resolve(target.ret))?.kind();
        // What is returned by value goes through memory or two registers, and only kprobes reach such functions.
        let returns = end.at_exit && kind != Kind::Void && !kind.is_composite();
        let mut ret = match returns {
            true => {
                Some(argument(btf, target, "retval".into(), target.ret, TWO_REGISTERS, &mut slot, &mut at)?)
            }
            false => None,
        };
        let declared = target.params.iter().enumerate().filter(|_| syscall.is_none());
        let types = declared.map(|(index, p)| target.argument_type(kernel, btf, index, p.ty));
        let types = types.chain(returns.then_some((btf, target.ret)));
        let typed = args.iter_mut().filter(|_| syscall.is_none()).chain(ret.as_mut());
        for (arg, (btf, ty)) in typed.zip(types) {
            if let Some(char_ptr) = btf.is_char_ptr(ty) {
                arg.string = Some(string(&mut at, string_size, char_ptr.is_const));
            }
            if pointees && let Some((line, object)) = line_of(btf, ty) {
                let Behind { notes, steps } =
                    behind(kernel, btf, line, object, arg.offset, &mut at, string_size);
                (arg.notes, arg.steps, arg.form) = (notes, steps, line.form);
            }
        }
        if target.address.is_some() && syscall.is_none() {
            // Registers as they are: most hold addresses.
            for arg in args.iter_mut().chain(ret.as_mut()) {
                arg.type_name = "unsigned long".into();
                arg.shape = Shape::Ptr { ty: "void *".into(), code: false };
            }
        }
        let asked = compile.of(target, end, captures, &mut at)?;
        let words = (stack && target.program.is_some()).then(|| take(&mut at, stack::WORDS * stack::FRAME));
        let number = syscalls::told(kernel, target).map(|told| Number { offset: take(&mut at, 16), told });
        let path = (path && end.at_exit).then(|| take(&mut at, 8 + 4 * crate::path::HITS));
        // What only gathers writes no record.
        let branches = (branches && !asked.silent).then(|| take(&mut at, 8 + branches::ROOM));
        let stack = stack.then(|| take(&mut at, 8));
        Ok(Layout {
            entry_time,
            call,
            args,
            registers,
            number,
            ret,
            asked,
            context,
            words,
            path,
            branches,
            stack,
            size: at,
        })
    }

    /// Equal for layouts that the same instructions fill. Those copy whole registers, whatever is in them; only where `returns` are
    /// tested does the size of what is returned count.
    pub(crate) fn filled_alike(&self, returns: bool) -> Alike {
        let mut numbers = vec![self.size];
        numbers.extend([self.entry_time, self.call, self.branches, self.stack].map(|at| at.unwrap_or(0)));
        numbers.extend([u32::from(self.ret.is_some()), u32::from(self.context)]);
        let mut rest = String::new();
        for arg in self.args.iter().chain(&self.ret) {
            numbers.extend([arg.slot, arg.slots, arg.offset]);
            let text = arg.string.map(|s| [s.offset, s.size, u32::from(s.user_too)]);
            numbers.extend(text.unwrap_or_default());
            if !arg.steps.is_empty() {
                rest += &format!("{:?}", arg.steps);
            }
        }
        if let (true, Some(ret)) = (returns, &self.ret) {
            rest += &format!("{} {:?}", ret.size, ret.shape);
        }
        if !self.asked.is_empty() {
            rest += &format!("{:?}", self.asked);
        }
        if self.registers.is_some() || self.number.is_some() || self.words.is_some() {
            rest += &format!("{:?}", (&self.registers, self.number, self.words));
        }
        Alike { numbers, rest }
    }

    /// Whether the executed path is captured.
    pub fn has_path(&self) -> bool {
        self.path.is_some()
    }

    /// Bytes that one event takes in the ring buffer, the ring's own header included; frames of a stack come on top,
    /// [`Layout::stack_bytes`].
    pub fn ring_bytes(&self) -> u32 {
        (self.size + 8).next_multiple_of(8)
    }

    /// Bytes that branch records take of it; `None` when none are taken.
    pub fn branch_bytes(&self) -> Option<u32> {
        self.branches.map(|_| 8 + branches::ROOM)
    }

    /// Bytes that the frames of a stack take, by how many there are; `None` when no stack is taken.
    pub fn stack_bytes(&self) -> Option<[u32; 3]> {
        self.stack.map(|_| stack::ROOMS.map(|frames| frames * stack::FRAME))
    }
}

/// What the instructions that fill a record depend on, see [`Layout::filled_alike`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Alike {
    /// Offsets and sizes, as many as the numbers of arguments say.
    numbers: Vec<u32>,
    /// What few layouts have.
    rest: String,
}

pub(crate) fn take(at: &mut u32, size: u32) -> u32 {
    let here = *at;
    *at += size.next_multiple_of(8);
    here
}

fn argument(
    btf: &Btf,
    target: &Target,
    name: String,
    ty: TypeId,
    largest: u64,
    slot: &mut u32,
    at: &mut u32,
) -> Result<Argument, Error> {
    let size = btf.size_of(ty)?;
    if size > largest {
        return Err(Error::Target {
            target: target.name.clone(),
            reason: format!(
                "{} {name} is {size} bytes by value; at most {largest} can be shown",
                btf.type_name(ty)
            ),
        });
    }
    let slots = size.div_ceil(8).max(1) as u32;
    let arg = Argument {
        name,
        type_name: btf.type_name(ty),
        shape: Shape::of(btf, ty, &btf::Limits::default()),
        size: size as u32,
        offset: take(at, slots * 8),
        slot: *slot,
        slots,
        string: None,
        function: is_function_pointer(btf, ty),
        notes: Vec::new(),
        form: Form::default(),
        steps: Vec::new(),
    };
    *slot += slots;
    Ok(arg)
}

/// A system call's arguments, and the registers that hold them.
fn behind_wrapper(call: &Syscall, at: &mut u32, string_size: u32) -> (Option<Registers>, Vec<Argument>) {
    let offsets = || call.params.iter().map(|p| p.offset);
    let (Some(from), Some(last)) = (offsets().min(), offsets().max()) else { return (None, Vec::new()) };
    let size = last - from + 8;
    let offset = take(at, size);
    let mut registers = Registers { offset, from, size, cleared: Vec::new() };
    let mut args = Vec::with_capacity(call.params.len());
    for param in &call.params {
        let here = offset + param.offset - from;
        if param.lower_half && param.size > 4 {
            registers.cleared.push(here + 4);
        }
        args.push(Argument {
            name: param.name.clone(),
            type_name: param.type_name.clone(),
            shape: param.shape.clone(),
            size: param.size,
            offset: here,
            slot: 0,
            slots: 0,
            string: None,
            function: false,
            notes: Vec::new(),
            form: Form::default(),
            steps: Vec::new(),
        });
    }
    for (arg, _) in args.iter_mut().zip(&call.params).filter(|(_, param)| param.text) {
        arg.string = Some(string(at, string_size, true));
    }
    (Some(registers), args)
}

/// What is shown of the address that a system call's argument points to, in user memory: of other structures nothing, for most
/// of the table's are the kernel's own.
fn behind_user_pointer(kernel: &Kernel, arg: &mut Argument, at: &mut u32, string_size: u32) {
    if arg.type_name != "struct sockaddr *" {
        return;
    }
    let object = kernel.btf.find(Kind::Struct, "sockaddr");
    if let Some((line, object)) = pointee::of("sockaddr").zip(object) {
        let Behind { notes, steps } = behind(kernel, &kernel.btf, line, object, arg.offset, at, string_size);
        (arg.notes, arg.steps, arg.form) = (notes, steps, line.form);
    }
}

fn string(at: &mut u32, size: u32, user_too: bool) -> StringField {
    StringField { offset: take(at, 4 + size), size, user_too }
}

/// The table's line for what a pointer points to, and that object's type.
fn line_of(btf: &Btf, ty: TypeId) -> Option<(&'static Pointee, TypeId)> {
    let pointer = btf.get(btf.resolve(ty)).ok().filter(|t| t.kind() == Kind::Ptr)?;
    let object = btf.resolve(pointer.target()?);
    let strukt = btf.get(object).ok().filter(|t| t.kind() == Kind::Struct)?;
    Some((pointee::of(strukt.name()?)?, object))
}
