//! `name args=((type)name=value, …) retval=(type)value cpu=N process=(tgid:comm) duration=… time=…`, after `cpu` the
//! context if it is no task; then, if asked for, the stack: `Func stack:` and a line for each frame and each function inlined there.

use super::paint::Paint;
use super::{Paths, Stacks, Symbols, branches, decimal, error_name, fault, outputs, pointee, title};
use crate::clock::{self, Clock};
use std::marker::PhantomData;
use trace::{Context, Event, Probe, Text, Value};

/// Renders events as lines for people.
pub struct TextLines<P> {
    probes: Vec<Fixed>,
    clock: Clock,
    pub(super) stacks: Option<Stacks>,
    paths: Option<Paths>,
    pub(super) symbols: Option<Symbols>,
    paint: PhantomData<P>,
}

/// What every event of a probe has in common.
struct Fixed {
    head: Vec<u8>,
    args: Vec<Vec<u8>>,
    retval: Vec<u8>,
    outputs: Vec<Vec<u8>>,
}

impl<P: Paint> TextLines<P> {
    /// Prepares for the events of these probes.
    pub fn new(
        probes: &[Probe],
        clock: Clock,
        stacks: Option<Stacks>,
        paths: Option<Paths>,
        symbols: Option<Symbols>,
    ) -> TextLines<P> {
        let (label, end) = P::LABEL;
        let fixed = |probe: &Probe| {
            let args = probe.layout.args.iter().enumerate().map(|(index, arg)| {
                let comma = if index > 0 { ", " } else { "" };
                format!("{comma}{label}({}){}={end}", arg.type_name, arg.name).into_bytes()
            });
            let retval = |r: &trace::Argument| format!(" {label}retval=({}){end}", r.type_name);
            let (name, rest) = P::NAME;
            Fixed {
                head: format!("{}{name}{}{rest}{} args=(", arrow(probe), title(probe, probes), compat(probe))
                    .into_bytes(),
                args: args.collect(),
                retval: probe.layout.ret.as_ref().map_or(String::new(), retval).into_bytes(),
                outputs: outputs::labels(probe, P::LABEL),
            }
        };
        let probes = probes.iter().map(fixed).collect();
        TextLines { probes, clock, stacks, paths, symbols, paint: PhantomData }
    }

    /// Appends one event, newline included.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let Some(fixed) = self.probes.get(event.index()) else { return };
        let symbols = self.symbols.as_ref();
        out.extend_from_slice(&fixed.head);
        for (arg, prefix) in event.args().zip(&fixed.args) {
            out.extend_from_slice(prefix);
            value(&arg, symbols, out);
        }
        out.push(b')');
        if let Some(retval) = event.retval() {
            out.extend_from_slice(&fixed.retval);
            value(&retval, symbols, out);
            if let Some(name) = error_name(&retval) {
                out.push(b' ');
                out.extend_from_slice(P::ERROR.0.as_bytes());
                out.extend_from_slice(name.as_bytes());
                out.extend_from_slice(P::ERROR.1.as_bytes());
            }
        }
        outputs::line(event, &fixed.outputs, symbols, out);
        if let Some((number, compat)) = event.system_call() {
            out.extend_from_slice(b" syscall=");
            match trace::syscall_name(number, compat) {
                Some(name) => out.extend_from_slice(name.as_bytes()),
                None => out.push(b'?'),
            }
            if compat {
                out.extend_from_slice(b" compat");
            }
        }
        out.extend_from_slice(P::CPU.as_bytes());
        decimal(event.cpu(), out);
        if let Some(context) = event.context().filter(|c| *c != Context::Task) {
            out.extend_from_slice(P::CONTEXT.as_bytes());
            out.extend_from_slice(context.name().as_bytes());
        }
        out.extend_from_slice(P::PROCESS.as_bytes());
        decimal(event.tgid(), out);
        out.push(b':');
        comm(event.comm(), out);
        out.push(b')');
        if event.tid() != event.tgid() {
            out.extend_from_slice(P::TID.as_bytes());
            decimal(event.tid(), out);
        }
        if let Some(call) = event.call() {
            out.extend_from_slice(P::CALL.as_bytes());
            btf::fast_hex(call, out);
        }
        if event.probe.layout.entry_time.is_some() {
            out.extend_from_slice(P::DURATION.0.as_bytes());
            match event.duration_ns() {
                Some(ns) => clock::duration(ns, out),
                None => out.push(b'?'),
            }
            out.extend_from_slice(P::DURATION.1.as_bytes());
        }
        out.extend_from_slice(P::TIME.as_bytes());
        self.clock.local(event.time_ns(), out);
        out.push(b'\n');
        if let (Some(stacks), Some(snapshot)) = (&mut self.stacks, event.branches()) {
            branches::text(stacks, snapshot, out);
        }
        if let (Some(stacks), Some(stack)) = (&mut self.stacks, event.stack()) {
            stacks.text(stack, out);
        }
        if let (Some(stacks), Some(paths)) = (&mut self.stacks, &mut self.paths) {
            paths.text(event, stacks, out);
        }
    }
}

/// Which way a call goes, where entries and exits are both shown.
fn arrow(probe: &Probe) -> &'static str {
    match (probe.layout.call, probe.layout.entry_time) {
        (None, _) => "",
        (Some(_), None) => "→ ",
        (Some(_), Some(_)) => "← ",
    }
}

/// Marks the system calls of 32-bit programs: their numbers are not those of the 64-bit ones.
fn compat(probe: &Probe) -> &'static str {
    if probe.target.syscall.as_ref().is_some_and(|call| call.compat) { " compat" } else { "" }
}

/// A thread's name; anything that could harm a terminal or break the line is escaped.
fn comm(comm: &[u8], out: &mut Vec<u8>) {
    if comm.iter().all(|b| b.is_ascii_graphic() || *b == b' ') {
        out.extend_from_slice(comm);
    } else {
        btf::escape_text(comm, out);
    }
}

fn value(value: &Value<'_>, symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    match &value.field.shape {
        btf::Shape::Struct { .. } => super::symbols::named(&value.field.shape, value.bytes, symbols, out),
        shape => shape.text(value.bytes, out),
    }
    if value.field.function
        && let Some(symbol) = symbols.and_then(|s| s.resolve(super::format::number(value.bytes)))
    {
        out.push(b'(');
        super::symbols::function(&symbol, out);
        out.push(b')');
    }
    if let Some(text) = value.text().filter(|t| *t != Text::NotRead) {
        out.push(b'(');
        quoted(text, out);
        out.push(b')');
    }
    if !value.field.notes.is_empty() {
        pointee::text(value, symbols, out);
    }
}

/// A text in quotes, `…` when cut; the error if it could not be read.
pub(super) fn quoted(text: Text<'_>, out: &mut Vec<u8>) {
    match text {
        Text::Read { bytes, cut } => {
            out.push(b'"');
            btf::escape_text(bytes, out);
            out.push(b'"');
            if cut {
                out.extend_from_slice("…".as_bytes());
            }
        }
        Text::Fault(error) => out.extend_from_slice(fault(error).as_bytes()),
        Text::NotRead => out.push(b'?'),
    }
}
