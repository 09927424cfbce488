//! The machine code on the way to a program: functions that leave no frame are found in it, and all of it can be shown.

use super::depth::{Frame, Path};
use crate::disassemble;
use crate::list::print;
use crate::run::Reported;
use btrace::cli::Args;
use btrace::render::is_thunk;
use clap::Parser;
use std::ops::Range;
use symbols::{Live, Table};
use trace::{Target, TargetKind, Way};

/// Bytes of a call, `e8` and how far (x86-64).
const CALL: u64 = 5;

/// Of a tracepoint's function so much is shown whole; of a larger one the call alone.
const SMALL: u64 = 512;

/// A function that was called on the way and jumped to the next, as compilers make calls at a function's end: it is on no stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jumped {
    /// The index of the frame that it led to.
    pub before: usize,
    /// It.
    pub function: Frame,
}

/// Finds them: what the calls on the way call, where that is not what has the next frame. A call whose target is in a register tells nothing.
/// `read`: bytes of live code. `gone`: the traced function has no frame, so that the last
/// frame's call is that of the function.
pub fn jumped(
    path: &Path,
    table: &Table,
    gone: bool,
    read: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Vec<Jumped> {
    let mut found = Vec::new();
    if !cfg!(target_arch = "x86_64") {
        return found;
    }
    for (at, callee) in path.frames.iter().enumerate() {
        let beyond = path.from.as_ref().filter(|_| !gone);
        let Some(caller) = path.frames.get(at + 1).or(beyond) else { continue };
        let Some(target) = call_before(caller.address, &read) else { continue };
        let Some(symbol) = table.resolve(target).filter(|s| s.offset == 0 && !is_thunk(s.name)) else {
            continue;
        };
        if target != callee.address.wrapping_sub(callee.offset) && callee.name.is_some() {
            found.push(Jumped { before: at, function: Frame::of(target, Some(symbol)) });
        }
    }
    found
}

/// Where the call goes that returns to an address.
fn call_before(address: u64, read: &impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<u64> {
    let bytes = read(address.wrapping_sub(CALL), CALL as usize)?;
    target(&bytes, address)
}

/// Where a call goes whose bytes these are, and which ends at an address.
fn target(bytes: &[u8], end: u64) -> Option<u64> {
    match bytes.split_first() {
        Some((0xe8, far)) => {
            Some(end.wrapping_add_signed(i64::from(i32::from_le_bytes(far.try_into().ok()?))))
        }
        _ => None,
    }
}

/// Shows it: the place that is patched, what is called from there on to the program, and a program, whose
/// code is there.
pub fn show(
    way: Way,
    target: &Target,
    path: &Path,
    table: &Table,
    live: Option<&Live>,
    program: Option<Range<u64>>,
) -> anyhow::Result<()> {
    print(format!("# {way} on {}\n", target.label()).as_bytes())?;
    let start = |frame: &Frame| format!("{:#x}", frame.address.wrapping_sub(frame.offset));
    match (target.kind, &path.from) {
        (TargetKind::Tracepoint, Some(from)) => {
            let extent = table.extent(from.address);
            match extent.and_then(|e| Some(e.end? - e.address)).is_some_and(|bytes| bytes <= SMALL) {
                true => listed(&["-k", &start(from)])?,
                false => {
                    listed(&["-k", &format!("{:#x}", from.address.wrapping_sub(CALL)), "-B", "16"])?;
                }
            }
        }
        _ => {
            let module = target.module.as_ref().map_or(String::new(), |module| format!("{module}:"));
            listed(&["-k", &format!("{module}{}", target.name), "-B", "16"])?;
        }
    }
    let mut places: Vec<String> = Vec::new();
    for (at, frame) in path.frames.iter().enumerate().skip(1).rev() {
        places.extend(path.jumped.iter().filter(|j| j.before == at).map(|j| start(&j.function)));
        places.push(start(frame));
        if frame.name.as_deref().is_some_and(|name| name.starts_with("bpf_trampoline_")) {
            places.extend(enters(frame, table, live).iter().map(|address| format!("{address:#x}")));
        }
    }
    places.extend(program.map(|code| format!("{:#x}", code.start)));
    match places.is_empty() {
        true => Ok(()),
        false => listed(&["-k", &places.join(",")]),
    }
}

/// What a trampoline has called of the kernel's before the program.
fn enters(trampoline: &Frame, table: &Table, live: Option<&Live>) -> Vec<u64> {
    let start = trampoline.address.wrapping_sub(trampoline.offset);
    let Ok(len) = usize::try_from(trampoline.offset.min(4096)) else { return Vec::new() };
    let Some(bytes) = live.and_then(|live| live.read(start, len).ok()) else { return Vec::new() };
    let mut found = Vec::new();
    for (at, call) in bytes.windows(CALL as usize).enumerate() {
        let Some(target) = target(call, start + at as u64 + CALL) else { continue };
        let is_enter = table.resolve(target).is_some_and(|s| s.offset == 0 && s.name.starts_with("__bpf_"));
        if is_enter && !found.contains(&target) {
            found.push(target);
        }
    }
    found
}

/// `btrace -d` of these.
fn listed(flags: &[&str]) -> anyhow::Result<()> {
    let args = Args::try_parse_from(["btrace", "-d"].iter().chain(flags).copied())?;
    match disassemble::run(&args) {
        // Said already; the table comes all the same.
        Err(error) if error.is::<Reported>() => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_read_back_from_where_it_returns_to() {
        assert_eq!(target(&[0xe8, 0x10, 0, 0, 0], 0x1000), Some(0x1010));
        assert_eq!(target(&[0xe8, 0xfb, 0xff, 0xff, 0xff], 0x1000), Some(0xffb));
        // Through a register, and what could not be read.
        assert_eq!(target(&[0x90, 0x90, 0x90, 0xff, 0xd0], 0x1000), None);
        assert_eq!(target(&[0xe8, 0x10], 0x1000), None);
        assert_eq!(target(&[], 0x1000), None);
    }
}
