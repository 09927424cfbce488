//! One JSON object a line. The fields are described in docs/json.md; they are stable.

use super::{Paths, Stacks, Symbols, branches, decimal, error_name, fault, pointee, pointer_error};
use crate::clock::Clock;
use symbols::Resolved;
use trace::{Event, Probe, Stack, TargetKind, Text, Value};

/// Renders events as JSON lines.
pub struct Json {
    probes: Vec<Fixed>,
    pub(super) clock: Clock,
    pub(super) stacks: Option<Stacks>,
    paths: Option<Paths>,
    pub(super) symbols: Option<Symbols>,
}

/// What every event of a probe has in common.
struct Fixed {
    head: Vec<u8>,
    args: Vec<Vec<u8>>,
    retval: Vec<u8>,
}

/// A string as JSON, quotes included.
fn string(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    quoted(text.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

pub(super) fn quoted(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    btf::escape_json(bytes, out);
    out.push(b'"');
}

impl Json {
    /// Prepares for the events of these probes.
    pub fn new(
        probes: &[Probe],
        clock: Clock,
        stacks: Option<Stacks>,
        paths: Option<Paths>,
        symbols: Option<Symbols>,
    ) -> Json {
        let fixed = |probe: &Probe| {
            let args = probe.layout.args.iter().enumerate().map(|(index, arg)| {
                let comma = if index > 0 { "," } else { "" };
                let (name, ty) = (string(&arg.name), string(&arg.type_name));
                format!("{comma}{{\"name\":{name},\"type\":{ty},\"value\":").into_bytes()
            });
            let retval = probe.layout.ret.as_ref().map_or(String::new(), |r| {
                format!(",\"retval\":{{\"type\":{},\"value\":", string(&r.type_name))
            });
            // Of a BPF program's function the program is told apart, so that the name can be relied on.
            let name = match &probe.target.program {
                Some(_) => string(&probe.target.name),
                None => string(&probe.target.label()),
            };
            let method = string(probe.method.name());
            let program = probe.target.program.as_ref().map_or(String::new(), |function| {
                let program = &function.program;
                let (name, tag) = (string(&program.name), string(&program.tag));
                format!(",\"program\":{{\"id\":{},\"name\":{name},\"tag\":{tag}}}", program.id)
            });
            let syscall = probe.target.syscall.as_ref().map_or(String::new(), |call| {
                format!("\"syscall\":{},\"compat\":{},", string(&call.name), call.compat)
            });
            let event = match (probe.target.kind, probe.at_exit) {
                (TargetKind::Tracepoint, _) => "tracepoint",
                (_, false) => "entry",
                (_, true) => "exit",
            };
            let module = probe.target.module.as_deref().map_or("null".to_string(), string);
            Fixed {
                head: format!("{{\"target\":{name},\"module\":{module}{program},{syscall}\"method\":{method},\"event\":\"{event}\",\"time\":\"")
                    .into_bytes(),
                args: args.collect(),
                retval: retval.into_bytes(),
            }
        };
        Json { probes: probes.iter().map(fixed).collect(), clock, stacks, paths, symbols }
    }

    /// Appends one event, newline included.
    pub fn event(&mut self, event: &Event<'_>, out: &mut Vec<u8>) {
        let Some(fixed) = self.probes.get(event.index()) else { return };
        let symbols = self.symbols.as_ref();
        out.extend_from_slice(&fixed.head);
        self.clock.utc(event.time_ns(), out);
        out.extend_from_slice(b"\",\"time_ns\":");
        decimal(event.time_ns(), out);
        out.extend_from_slice(b",\"cpu\":");
        decimal(event.cpu(), out);
        if let Some(context) = event.context() {
            out.extend_from_slice(b",\"context\":\"");
            out.extend_from_slice(context.name().as_bytes());
            out.push(b'"');
        }
        out.extend_from_slice(b",\"pid\":");
        decimal(event.tgid(), out);
        out.extend_from_slice(b",\"tid\":");
        decimal(event.tid(), out);
        out.extend_from_slice(b",\"comm\":");
        quoted(event.comm(), out);
        if let Some((number, compat)) = event.system_call() {
            out.extend_from_slice(b",\"syscall\":");
            match trace::syscall_name(number, compat) {
                Some(name) => quoted(name.as_bytes(), out),
                None => out.extend_from_slice(b"null"),
            }
            out.extend_from_slice(if compat { b",\"compat\":true" } else { b",\"compat\":false" });
        }
        if let Some(call) = event.call() {
            out.extend_from_slice(b",\"call\":\"");
            btf::fast_hex(call, out);
            out.push(b'"');
        }
        if event.probe.layout.entry_time.is_some() {
            out.extend_from_slice(b",\"duration_ns\":");
            match event.duration_ns() {
                Some(ns) => decimal(ns, out),
                None => out.extend_from_slice(b"null"),
            }
        }
        out.extend_from_slice(b",\"args\":[");
        for (arg, prefix) in event.args().zip(&fixed.args) {
            out.extend_from_slice(prefix);
            value(&arg, pointer_error(&arg), symbols, out);
        }
        out.push(b']');
        if let Some(retval) = event.retval() {
            out.extend_from_slice(&fixed.retval);
            let error = error_name(&retval).or_else(|| pointer_error(&retval));
            value(&retval, error, symbols, out);
        }
        super::outputs::json(event, symbols, out);
        if let (Some(stacks), Some(snapshot)) = (&mut self.stacks, event.branches()) {
            out.extend_from_slice(b",\"lbr\":");
            branches::json(stacks, snapshot, out);
        }
        if let (Some(stacks), Some(stack)) = (&mut self.stacks, event.stack()) {
            out.extend_from_slice(b",\"stack\":");
            match stack {
                Stack::Frames(frames) => stacks.json(frames, out),
                Stack::Fault(error) => error_value(error, out),
            }
        }
        if let (Some(stacks), Some(paths)) = (&mut self.stacks, &mut self.paths) {
            paths.json(event, stacks, out);
        }
        out.extend_from_slice(b"}\n");
    }
}

/// The rest of a value's object, from the value on.
fn value(value: &Value<'_>, error: Option<&str>, symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    value.field.shape.json(value.bytes, out);
    if value.field.function {
        symbol_fields(symbols, super::format::number(value.bytes), out);
    }
    if let Some(text) = value.text().filter(|t| *t != Text::NotRead) {
        out.extend_from_slice(b",\"text\":");
        text_value(text, out);
    }
    if !value.field.notes.is_empty() {
        pointee::json(value, symbols, out);
    }
    if let Some(name) = error {
        out.extend_from_slice(b",\"error\":\"");
        out.extend_from_slice(name.as_bytes());
        out.push(b'"');
    }
    out.push(b'}');
}

/// The symbol of an address of code, as members after others: those of a stack's frame.
pub(super) fn symbol_fields(symbols: Option<&Symbols>, address: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"symbol\":");
    symbol(symbols.and_then(|s| s.resolve(address)), out);
}

/// The rest of a frame from the symbol's name on.
pub(super) fn symbol(symbol: Option<Resolved<'_>>, out: &mut Vec<u8>) {
    let Some(symbol) = symbol else {
        return out.extend_from_slice(b"null,\"offset\":null,\"module\":null");
    };
    quoted(symbol.name.as_bytes(), out);
    out.extend_from_slice(b",\"offset\":");
    decimal(symbol.offset, out);
    out.extend_from_slice(b",\"module\":");
    match symbol.module {
        Some(module) => quoted(module.as_bytes(), out),
        None => out.extend_from_slice(b"null"),
    }
}

/// A string; one that was cut ends in `…` as in the text; one that could not be read is `{"error":"EFAULT"}`.
pub(super) fn text_value(text: Text<'_>, out: &mut Vec<u8>) {
    match text {
        Text::Read { bytes, cut } => {
            out.push(b'"');
            btf::escape_json(bytes, out);
            if cut {
                out.extend_from_slice("…".as_bytes());
            }
            out.push(b'"');
        }
        Text::Fault(error) => error_value(error, out),
        Text::NotRead => out.extend_from_slice(b"null"),
    }
}

pub(super) fn error_value(error: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"error\":");
    quoted(fault(error).as_bytes(), out);
    out.push(b'}');
}
