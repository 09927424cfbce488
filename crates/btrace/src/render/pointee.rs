//! What is shown of the object behind a pointer.

use super::json::{error_value, quoted, symbol_fields, text_value};
use super::symbols::{Symbols, function};
use super::text::quoted as quoted_text;
use super::{fault, format};
use trace::{Form, Format, Note, Output, PathText, Value};

/// What has an object behind it.
pub trait Behind<'a> {
    /// How it is put in text.
    fn form(&self) -> Form;
    /// What is shown of it.
    fn notes(&self) -> impl Iterator<Item = (&'static str, Note<'a>)>;
}

impl<'a> Behind<'a> for Value<'a> {
    fn form(&self) -> Form {
        self.field.form
    }

    fn notes(&self) -> impl Iterator<Item = (&'static str, Note<'a>)> {
        Value::notes(self)
    }
}

impl<'a> Behind<'a> for Output<'a> {
    fn form(&self) -> Form {
        self.shown.form
    }

    fn notes(&self) -> impl Iterator<Item = (&'static str, Note<'a>)> {
        Output::notes(self)
    }
}

/// Appends the path behind an output, in quotes.
pub fn path_of<'a>(value: &impl Behind<'a>, out: &mut Vec<u8>) {
    match value.notes().next() {
        Some((_, note)) => member(&note, None, out),
        None => out.push(b'?'),
    }
}

/// Appends it in braces: `{TCP ESTABLISHED 127.0.0.1:40000 -> 127.0.0.1:80}`, `{pid=1, comm="init"}`; nothing if there is
/// nothing, the error alone if nothing could be read.
pub fn text<'a>(value: &impl Behind<'a>, symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    let mut notes = value.notes().peekable();
    let Some((_, first)) = notes.peek() else { return };
    out.push(b'{');
    if let Note::Fault(error) = first
        && value.notes().all(|(_, note)| matches!(note, Note::Fault(_)))
    {
        out.extend_from_slice(fault(*error).as_bytes());
    } else {
        match value.form() {
            Form::Socket => Endpoint::of(value).socket(out),
            Form::Address => Endpoint::of(value).address(out),
            Form::Members => {
                let mut comma = false;
                for (label, note) in notes {
                    if std::mem::replace(&mut comma, true) {
                        out.extend_from_slice(b", ");
                    }
                    out.extend_from_slice(label.as_bytes());
                    out.push(b'=');
                    member(&note, symbols, out);
                }
            }
        }
    }
    out.push(b'}');
}

fn member(note: &Note<'_>, symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    match note {
        Note::Text(text) => quoted_text(*text, out),
        Note::Value { shape, format, function: code, bytes } => {
            if !format::text(*format, bytes, out) {
                shape.text(bytes, out);
            }
            if let (true, Some(symbol)) = (*code, symbols.and_then(|s| s.resolve(format::number(bytes)))) {
                out.push(b'(');
                function(&symbol, out);
                out.push(b')');
            }
        }
        Note::Path(path) => {
            out.push(b'"');
            self::path(path, btf::escape_text, out);
            out.push(b'"');
        }
        Note::Fault(error) => out.extend_from_slice(fault(*error).as_bytes()),
    }
}

/// Appends a path: `/dev/zero`, `…/lib/x` when there is more above, `pipe:[12]` for what is in no tree.
fn path(path: &PathText<'_>, escape: impl Fn(&[u8], &mut Vec<u8>), out: &mut Vec<u8>) {
    if let Some(name) = path.alone() {
        // Names that file systems make up (d_dname), as in /proc/PID/fd.
        let kind = match path.mode & 0o170_000 {
            0o010_000 => "pipe",
            0o140_000 => "socket",
            _ if name.is_empty() => "inode",
            _ if name.starts_with(b"[") => {
                out.extend_from_slice(b"anon_inode:");
                return escape(name, out);
            }
            _ => return escape(name, out),
        };
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b":[");
        super::decimal(path.ino, out);
        out.push(b']');
        return;
    }
    if path.is_cut() {
        out.extend_from_slice("…".as_bytes());
    }
    for name in path.names() {
        out.push(b'/');
        if PathText::is_name_cut(name) {
            escape(trace::whole_characters(name.get(..name.len() - 1).unwrap_or(name)), out);
            out.extend_from_slice("…".as_bytes());
        } else {
            escape(name, out);
        }
    }
}

/// Appends it as JSON, after the value: `,"pointee":{…}`, and `,"summary":"…"` where the text is more than its members.
pub fn json<'a>(value: &impl Behind<'a>, symbols: Option<&Symbols>, out: &mut Vec<u8>) {
    let mut open = false;
    for (label, note) in value.notes() {
        out.extend_from_slice(if open { b"," } else { b",\"pointee\":{" });
        open = true;
        quoted(label.as_bytes(), out);
        out.push(b':');
        match note {
            Note::Text(text) => text_value(text, out),
            Note::Value { shape, bytes, function: true, .. } => {
                out.extend_from_slice(b"{\"value\":");
                shape.json(bytes, out);
                symbol_fields(symbols, format::number(bytes), out);
                out.push(b'}');
            }
            Note::Value { shape, format: Format::Plain, bytes, .. } => shape.json(bytes, out),
            Note::Value { shape, format, bytes, .. } => {
                out.extend_from_slice(b"{\"value\":");
                format::raw(format, shape, bytes, out);
                out.extend_from_slice(b",\"text\":\"");
                // Formats are made of what needs no escape.
                if !format::text(format, bytes, out) {
                    out.push(b'?');
                }
                out.extend_from_slice(b"\"}");
            }
            Note::Path(path) => {
                out.push(b'"');
                self::path(&path, btf::escape_json, out);
                out.push(b'"');
            }
            Note::Fault(error) => error_value(error, out),
        }
    }
    if !open {
        return;
    }
    out.push(b'}');
    if value.form() != Form::Members && !value.notes().all(|(_, n)| matches!(n, Note::Fault(_))) {
        let mut summary = Vec::new();
        let endpoint = Endpoint::of(value);
        match value.form() {
            Form::Socket => endpoint.socket(&mut summary),
            _ => endpoint.address(&mut summary),
        }
        out.extend_from_slice(b",\"summary\":");
        quoted(&summary, out);
    }
}

/// The members of a socket or of an address, by their labels.
#[derive(Default)]
struct Endpoint<'a> {
    family: Option<u64>,
    kind: Option<u64>,
    protocol: Option<u64>,
    state: Option<u64>,
    local: Side<'a>,
    remote: Side<'a>,
    path: Option<trace::Text<'a>>,
    pid: Option<u64>,
}

/// Address and port.
#[derive(Clone, Copy, Default)]
struct Side<'a> {
    address: Option<(Format, &'a [u8])>,
    port: Option<(Format, &'a [u8])>,
}

impl<'a> Endpoint<'a> {
    fn of(value: &impl Behind<'a>) -> Endpoint<'a> {
        let mut all = Endpoint::default();
        for (label, note) in value.notes() {
            match note {
                Note::Value { format, bytes, .. } => match label {
                    "family" => all.family = Some(format::number(bytes)),
                    "type" => all.kind = Some(format::number(bytes)),
                    "protocol" => all.protocol = Some(format::number(bytes)),
                    "state" => all.state = Some(format::number(bytes)),
                    "local_address" | "address" => all.local.address = Some((format, bytes)),
                    "local_port" | "port" => all.local.port = Some((format, bytes)),
                    "remote_address" => all.remote.address = Some((format, bytes)),
                    "remote_port" => all.remote.port = Some((format, bytes)),
                    "pid" => all.pid = Some(format::number(bytes)),
                    _ => {}
                },
                Note::Text(text) => all.path = Some(text),
                _ => {}
            }
        }
        all
    }

    /// `TCP ESTABLISHED 127.0.0.1:40000 -> 127.0.0.1:80`, `UDP 0.0.0.0:68`, `UNIX STREAM LISTEN "/run/x"`, `NETLINK RAW`.
    fn socket(&self, out: &mut Vec<u8>) {
        let internet = matches!(self.family, Some(2 | 10));
        let tcp = self.protocol.is_none_or(|p| matches!(p, 6 | 262));
        let stream = matches!(self.kind, None | Some(1 | 5));
        if internet && self.protocol.is_none() {
            // Without a protocol of its own: a request for a connection, or what is left of one.
            out.extend_from_slice(b"TCP");
        } else if let (true, Some(protocol)) = (internet, self.protocol) {
            name(Some(protocol), format::protocol, out);
        } else {
            name(self.family, format::family, out);
            out.push(b' ');
            name(self.kind, format::socket_type, out);
        }
        if (internet && tcp) || (!internet && stream && self.family == Some(1)) {
            out.push(b' ');
            name(self.state, format::tcp_state, out);
        }
        if internet {
            out.push(b' ');
            self.local.text(out);
            if !self.remote.is_none() {
                out.extend_from_slice(b" -> ");
                self.remote.text(out);
            }
        }
        self.path(out);
    }

    /// `127.0.0.1:80`, `[::1]:80`, `UNIX "/run/x"`, `NETLINK pid=1`, `UNSPEC`.
    fn address(&self, out: &mut Vec<u8>) {
        if self.local.address.is_some() {
            return self.local.text(out);
        }
        name(self.family, format::family, out);
        if let Some(pid) = self.pid {
            out.extend_from_slice(b" pid=");
            super::decimal(pid, out);
        }
        self.path(out);
    }

    fn path(&self, out: &mut Vec<u8>) {
        if let Some(path) = self.path.filter(|p| !matches!(p, trace::Text::NotRead)) {
            out.push(b' ');
            quoted_text(path, out);
        }
    }
}

fn name(number: Option<u64>, names: fn(u64) -> Option<&'static str>, out: &mut Vec<u8>) {
    match (number, number.and_then(names)) {
        (_, Some(name)) => out.extend_from_slice(name.as_bytes()),
        (Some(number), None) => super::decimal(number, out),
        (None, None) => out.push(b'?'),
    }
}

impl Side<'_> {
    /// Whether all of it is zero: not connected.
    fn is_none(&self) -> bool {
        [self.address, self.port].iter().flatten().all(|(_, bytes)| bytes.iter().all(|b| *b == 0))
    }

    fn text(&self, out: &mut Vec<u8>) {
        let Some((format, address)) = self.address else { return out.push(b'?') };
        let brackets = format == Format::Ip6;
        if brackets {
            out.push(b'[');
        }
        if !format::text(format, address, out) {
            out.push(b'?');
        }
        if brackets {
            out.push(b']');
        }
        out.push(b':');
        match self.port {
            Some((format, port)) if format::text(format, port, out) => {}
            Some((_, port)) => super::decimal(format::number(port), out),
            None => out.push(b'?'),
        }
    }
}
