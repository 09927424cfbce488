//! `name args=((type)name=value, …) retval=(type)value cpu=N process=(tgid:comm) duration=… time=…`, after `cpu` the
//! context if it is no task; then, if asked for, the stack: `Func stack:` and a line for each frame.

use super::{Stacks, decimal, error_name, fault, title};
use crate::clock::{self, Clock};
use trace::{Context, Event, Note, Probe, Text, Value};

/// Renders events as lines for people.
pub struct TextLines {
    probes: Vec<Fixed>,
    clock: Clock,
    stacks: Option<Stacks>,
}

/// What every event of a probe has in common.
struct Fixed {
    head: Vec<u8>,
    args: Vec<Vec<u8>>,
    retval: Vec<u8>,
}

impl TextLines {
    /// Prepares for the events of these probes.
    pub fn new(probes: &[Probe], clock: Clock, stacks: Option<Stacks>) -> TextLines {
        let fixed = |probe: &Probe| {
            let args = probe.layout.args.iter().enumerate().map(|(index, arg)| {
                let comma = if index > 0 { ", " } else { "" };
                format!("{comma}({}){}=", arg.type_name, arg.name).into_bytes()
            });
            let retval =
                probe.layout.ret.as_ref().map_or(String::new(), |r| format!(" retval=({})", r.type_name));
            Fixed {
                head: format!("{}{}{} args=(", arrow(probe), title(probe, probes), compat(probe))
                    .into_bytes(),
                args: args.collect(),
                retval: retval.into_bytes(),
            }
        };
        TextLines { probes: probes.iter().map(fixed).collect(), clock, stacks }
    }

    /// Appends one event, newline included.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let Some(fixed) = self.probes.get(event.index()) else { return };
        out.extend_from_slice(&fixed.head);
        for (arg, prefix) in event.args().zip(&fixed.args) {
            out.extend_from_slice(prefix);
            value(&arg, out);
        }
        out.push(b')');
        if let Some(retval) = event.retval() {
            out.extend_from_slice(&fixed.retval);
            value(&retval, out);
            if let Some(name) = error_name(&retval) {
                out.push(b' ');
                out.extend_from_slice(name.as_bytes());
            }
        }
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
        out.extend_from_slice(b" cpu=");
        decimal(event.cpu(), out);
        if let Some(context) = event.context().filter(|c| *c != Context::Task) {
            out.extend_from_slice(b" context=");
            out.extend_from_slice(context.name().as_bytes());
        }
        out.extend_from_slice(b" process=(");
        decimal(event.tgid(), out);
        out.push(b':');
        comm(event.comm(), out);
        out.push(b')');
        if event.tid() != event.tgid() {
            out.extend_from_slice(b" tid=");
            decimal(event.tid(), out);
        }
        if let Some(call) = event.call() {
            out.extend_from_slice(b" call=");
            btf::fast_hex(call, out);
        }
        if event.probe.layout.entry_time.is_some() {
            out.extend_from_slice(b" duration=");
            match event.duration_ns() {
                Some(ns) => clock::duration(ns, out),
                None => out.push(b'?'),
            }
        }
        out.extend_from_slice(b" time=");
        self.clock.local(event.time_ns(), out);
        out.push(b'\n');
        if let (Some(stacks), Some(stack)) = (&self.stacks, event.stack()) {
            stacks.text(stack, out);
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

fn value(value: &Value<'_>, out: &mut Vec<u8>) {
    value.field.shape.text(value.bytes, out);
    let null = value.bytes.iter().all(|b| *b == 0);
    if let Some(text) = value.text().filter(|_| !null) {
        match text {
            Text::NotRead => {}
            text => {
                out.push(b'(');
                quoted(text, out);
                out.push(b')');
            }
        }
    }
    let mut open = false;
    for (label, note) in value.notes().filter(|_| !null) {
        out.extend_from_slice(if open { b", " } else { b"{" });
        open = true;
        out.extend_from_slice(label.as_bytes());
        out.push(b'=');
        match note {
            Note::Text(text) => quoted(text, out),
            Note::Value { shape, bytes } => shape.text(bytes, out),
            Note::Fault(error) => out.extend_from_slice(fault(error).as_bytes()),
        }
    }
    if open {
        out.push(b'}');
    }
}

fn quoted(text: Text<'_>, out: &mut Vec<u8>) {
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
