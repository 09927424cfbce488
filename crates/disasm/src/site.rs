//! Places that the kernel patches, by their bytes and by the names they lead to.

use crate::decoded::{Class, Decoded};
use crate::{Flow, Symbol};
use std::fmt;

/// What the kernel patches, or patched, at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Site<'a> {
    /// The no-op at a function's entry where ftrace writes its call (`-mfentry`, `-fpatchable-function-entry`).
    Fentry,
    /// The call that someone put there: ftrace, a BPF trampoline; newer kernels jump to that.
    FentryCall,
    /// A no-op of 5 or 2 bytes amid code. A static branch, static call or alternative that is off leaves one, but a
    /// compiler may align with one too: bytes do not tell.
    Nop,
    /// A jump within the function in 5 bytes where 2 would do: no assembler writes that, text patching does (a static branch that is on).
    PatchedJump,
    /// A static branch: only callers can know.
    StaticBranch(StaticBranch<'a>),
    /// A call or jump of a static call: through its trampoline (`__SCT__…`), or of its target, with its name, which only callers can
    /// know.
    StaticCall(Option<&'a str>),
    /// An indirect call or jump through a thunk (`__x86_indirect_thunk_…`).
    Retpoline,
    /// A return through a thunk (`__x86_return_thunk` and its kin).
    ReturnThunk,
    /// Filler that nothing runs into.
    Padding,
}

/// A place where code goes on or jumps, by a key that is switched at run time (include/linux/jump_label.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticBranch<'a> {
    /// Its key, if it has a name.
    pub key: Option<Symbol<'a>>,
    /// Whether the key is on. A branch that is likely jumps when it is off.
    pub is_on: bool,
    /// Where it jumps to when it does, if it does not now.
    pub target: Option<Target<'a>>,
}

/// Where a static branch would jump to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target<'a> {
    /// The address.
    pub address: u64,
    /// Its name.
    pub symbol: Option<Symbol<'a>>,
}

impl fmt::Display for Site<'_> {
    /// In a few words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Site::Fentry => "fentry",
            Site::FentryCall => "fentry call",
            Site::Nop => "static branch, alternative or filler",
            Site::PatchedJump => "patched at run time",
            Site::StaticBranch(branch) => return branch.fmt(f),
            Site::StaticCall(Some(name)) => return write!(f, "static call {name}"),
            Site::StaticCall(None) => "static call",
            Site::Retpoline => "retpoline",
            Site::ReturnThunk => "return thunk",
            Site::Padding => "padding",
        })
    }
}

impl fmt::Display for StaticBranch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("static branch, key ")?;
        match self.key {
            Some(Symbol { name, offset: 0, .. }) => f.write_str(name)?,
            Some(Symbol { name, offset, .. }) => write!(f, "{name}+{offset:#x}")?,
            None => f.write_str("without a name")?,
        }
        f.write_str(if self.is_on { " (on)" } else { " (off)" })?;
        match self.target {
            Some(Target { symbol: Some(symbol), .. }) => {
                write!(f, ", to {}+{:#x}", symbol.name, symbol.offset)
            }
            Some(Target { address, .. }) => write!(f, ", to {address:#x}"),
            None => Ok(()),
        }
    }
}

/// Returns by way of these: arch/x86/lib/retpoline.S.
const RETURN_THUNKS: [&str; 7] = [
    "__x86_return_thunk",
    "its_return_thunk",
    "retbleed_return_thunk",
    "srso_return_thunk",
    "srso_alias_return_thunk",
    "call_depth_return_thunk",
    "__x86_return_skl",
];

/// What ftrace calls, or has called from a function's entry.
const TRACERS: [&str; 6] =
    ["__fentry__", "ftrace_caller", "ftrace_regs_caller", "ftrace_trampoline", "bpf_trampoline_", "_mcount"];

/// What is known of an instruction's surroundings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    /// It is the first, or follows the mark for indirect branches that is.
    pub at_entry: bool,
    /// What precedes falls through to it, or something jumps to it.
    pub is_reached: bool,
    /// Its target lies in the listing.
    pub stays: bool,
}

/// What an instruction is for, as far as that is sure. `target` is what its direct target is called.
pub(crate) fn recognise(
    decoded: &Decoded,
    bytes: &[u8],
    around: Surroundings,
    target: Option<Symbol<'_>>,
) -> Option<Site<'static>> {
    const NOP5: [u8; 5] = [0x0f, 0x1f, 0x44, 0, 0];
    // What kernels before 5.13 made of them (`k8_nops`, arch/x86/kernel/alternative.c).
    const K8_NOP5: [u8; 5] = [0x66, 0x66, 0x66, 0x66, 0x90];
    const NOP2: [u8; 2] = [0x66, 0x90];
    const ARM_NOP: [u8; 4] = [0x1f, 0x20, 0x03, 0xd5];
    match (decoded.class, decoded.flow) {
        (Class::Filler | Class::Nop | Class::Zeros, _) if !around.is_reached => Some(Site::Padding),
        (Class::Nop, _) if around.at_entry && (bytes == NOP5 || bytes == K8_NOP5 || bytes == ARM_NOP) => {
            Some(Site::Fentry)
        }
        (Class::Nop, _) if bytes == NOP5 || bytes == K8_NOP5 || bytes == NOP2 => Some(Site::Nop),
        (_, Flow::Call | Flow::Jump | Flow::Branch) => {
            let entered = target.filter(|symbol| symbol.offset == 0 || around.at_entry);
            let named = entered.and_then(|symbol| by_name(symbol.name, decoded.flow, around.at_entry));
            let patched = decoded.flow == Flow::Jump && around.stays && is_needlessly_long(bytes);
            named.or(patched.then_some(Site::PatchedJump))
        }
        _ => None,
    }
}

/// Whether a jump takes five bytes for what two can say.
fn is_needlessly_long(bytes: &[u8]) -> bool {
    let distance = match bytes {
        [0xe9, distance @ ..] => <[u8; 4]>::try_from(distance).map(i32::from_le_bytes),
        _ => return false,
    };
    // From the end of the longer instruction, three bytes further on than that of the shorter.
    distance.is_ok_and(|distance| (-131..=124).contains(&distance))
}

fn by_name(name: &str, flow: Flow, at_entry: bool) -> Option<Site<'static>> {
    if name.starts_with("__x86_indirect_") {
        Some(Site::Retpoline)
    } else if RETURN_THUNKS.contains(&name) {
        Some(Site::ReturnThunk)
    } else if name.starts_with("__SCT__") {
        Some(Site::StaticCall(None))
    } else if at_entry
        && matches!(flow, Flow::Call | Flow::Jump)
        && TRACERS.iter().any(|tracer| name.starts_with(tracer))
    {
        Some(Site::FentryCall)
    } else {
        None
    }
}
