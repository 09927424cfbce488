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
//!  …  u64[]   arguments by register slot, then the return value's slots
//!  …          texts and notes, each at a multiple of 8
//!  …  i64     if a stack is captured: its bytes, or a negative error
//!  …  u64[]   its frames, innermost first: room for one of [`stack::ROOMS`], the rest is not ours to read
//! ```
//! The record's length is the ring buffer's to know.

use crate::error::Error;
use crate::kernel::Kernel;
use crate::notes::{Behind, NoteField, Step, behind, is_function_pointer};
use crate::plan::Method;
use crate::pointee::{self, Form, Pointee};
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
    /// Register slots that it takes: 2 for a structure of 9 to 16 bytes by value, else 1.
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

/// Layout of a probe's record.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Offset of the entry time, at exits.
    pub entry_time: Option<u32>,
    /// Offset of the call's number, where entries and exits are both taken.
    pub call: Option<u32>,
    /// Arguments in order.
    pub args: Vec<Argument>,
    /// Return value, unless void or not captured.
    pub ret: Option<Argument>,
    /// Whether the context is captured.
    pub context: bool,
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
}

/// Largest size of a value in registers.
const TWO_REGISTERS: u64 = 16;

impl Layout {
    /// Lays out everything `target` has to say under `method`.
    pub(crate) fn new(
        kernel: &Kernel,
        target: &Target,
        method: Method,
        paired: bool,
        captures: Captures,
    ) -> Result<Layout, Error> {
        let btf = &*kernel.types_of(target)?;
        let Captures { string_size, pointees, context, stack } = captures;
        let mut at = header::END;
        let entry_time = (method == Method::Fexit).then(|| take(&mut at, 8));
        let call = paired.then(|| take(&mut at, 8));
        let mut slot = 0;
        let mut args = Vec::with_capacity(target.params.len());
        for (index, param) in target.params.iter().enumerate() {
            let name = if param.name.is_empty() { format!("arg{index}") } else { param.name.clone() };
            args.push(argument(btf, target, name, param.ty, &mut slot, &mut at)?);
        }
        let returns = method == Method::Fexit && btf.get(btf.resolve(target.ret))?.kind() != Kind::Void;
        let mut ret = match returns {
            true => Some(argument(btf, target, "retval".into(), target.ret, &mut slot, &mut at)?),
            false => None,
        };
        let types = target.params.iter().map(|p| p.ty).chain(returns.then_some(target.ret));
        for (arg, ty) in args.iter_mut().chain(ret.as_mut()).zip(types) {
            if let Some(char_ptr) = btf.is_char_ptr(ty) {
                arg.string = Some(string(&mut at, string_size, char_ptr.is_const));
            }
            if pointees && let Some((line, object)) = line_of(btf, ty) {
                let Behind { notes, steps } =
                    behind(kernel, btf, line, object, arg.offset, &mut at, string_size);
                (arg.notes, arg.steps, arg.form) = (notes, steps, line.form);
            }
        }
        let stack = stack.then(|| take(&mut at, 8));
        Ok(Layout { entry_time, call, args, ret, context, stack, size: at })
    }

    /// Bytes that one event takes in the ring buffer, the ring's own header included; frames of a stack come on top,
    /// [`Layout::stack_bytes`].
    pub fn ring_bytes(&self) -> u32 {
        (self.size + 8).next_multiple_of(8)
    }

    /// Bytes that the frames of a stack take, by how many there are; `None` when no stack is taken.
    pub fn stack_bytes(&self) -> Option<[u32; 3]> {
        self.stack.map(|_| stack::ROOMS.map(|frames| frames * stack::FRAME))
    }
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
    slot: &mut u32,
    at: &mut u32,
) -> Result<Argument, Error> {
    let size = btf.size_of(ty)?;
    if size > TWO_REGISTERS {
        return Err(Error::Target {
            target: target.name.clone(),
            reason: format!(
                "{} {name} is {size} bytes by value; tracing programs see values of at most 16",
                btf.type_name(ty)
            ),
        });
    }
    let slots = if size > 8 { 2 } else { 1 };
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
