//! A function's listing as text or as a JSON object.

use crate::words::count;
use btrace::cli::Args;
use disasm::render::{Colour, Options, Plain, Text};
use disasm::{Disassembler, Flow, Frame, Instruction, Line, Symbol, Symbols, TargetKind};
use serde_json::{Map, Value, json};

/// What a function is headed by.
#[derive(Clone, Copy)]
pub struct Head<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its module; `bpf` of BPF programs and trampolines.
    pub module: Option<&'a str>,
    /// C prototype, where one is known.
    pub prototype: Option<&'a str>,
    /// Of a BPF program's function, the program's id.
    pub program: Option<u32>,
    /// Where the listing begins.
    pub address: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// Something to be said before the instruction at an address: source text, instructions of BPF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// The address.
    pub address: u64,
    /// A line, without `; ` and end.
    pub text: String,
}

/// How listings are shown.
pub struct Show {
    json: bool,
    colour: bool,
    options: Options,
}

impl Show {
    /// As the flags say.
    pub fn new(args: &Args, is_terminal: bool) -> Show {
        Show {
            json: args.json,
            colour: btrace::render::colour_wanted(args.color, is_terminal),
            options: Options { bytes: !args.disasm_no_bytes, ..Options::default() },
        }
    }

    /// Text without colour, for measurements.
    pub fn plain() -> Show {
        Show { json: false, colour: false, options: Options::default() }
    }

    /// Appends a function's listing.
    pub fn function<S: Symbols>(
        &self,
        disassembler: &mut Disassembler,
        symbols: &S,
        head: &Head<'_>,
        before: &[Before],
        out: &mut Vec<u8>,
    ) {
        if self.json {
            return object(disassembler, symbols, head, before, out);
        }
        heading(head, out);
        if self.colour {
            text(&Text::<Colour>::new(self.options), disassembler, symbols, head, before, out);
        } else {
            text(&Text::<Plain>::new(self.options), disassembler, symbols, head, before, out);
        }
        out.push(b'\n');
    }
}

fn heading(head: &Head<'_>, out: &mut Vec<u8>) {
    if let Some(prototype) = head.prototype {
        out.extend_from_slice(format!("; {prototype}\n").as_bytes());
    }
    let module = match (head.module, head.program) {
        (_, Some(id)) => format!(" [bpf:{id}]"),
        (Some(module), None) => format!(" [{module}]"),
        (None, None) => String::new(),
    };
    out.extend_from_slice(
        format!(
            "; {}{module} at {:#x} ({})\n",
            head.name,
            head.address,
            count(head.bytes.len() as u64, "byte")
        )
        .as_bytes(),
    );
}

fn text<P: disasm::render::Paint, S: Symbols>(
    text: &Text<P>,
    disassembler: &mut Disassembler,
    symbols: &S,
    head: &Head<'_>,
    before: &[Before],
    out: &mut Vec<u8>,
) {
    let mut before = before.iter().peekable();
    let mut lines = disassembler.decode(head.bytes, head.address, symbols);
    while let Some(line) = lines.next_line() {
        let here = match &line {
            Line::Source(source) => source.address,
            Line::Label { address, .. } => *address,
            Line::Instruction(instruction) => instruction.address,
        };
        while let Some(one) = before.next_if(|one| one.address <= here) {
            out.extend_from_slice(P::SOURCE.0.as_bytes());
            out.extend_from_slice(b"; ");
            out.extend_from_slice(one.text.as_bytes());
            out.extend_from_slice(P::SOURCE.1.as_bytes());
            out.push(b'\n');
        }
        // Without a source position a header says nothing that the heading has not said.
        if !matches!(&line, Line::Source(source) if source.chain.is_empty()) {
            text.write(&line, out);
        }
    }
}

/// One object on a line: see docs/json.md.
fn object<S: Symbols>(
    disassembler: &mut Disassembler,
    symbols: &S,
    head: &Head<'_>,
    before: &[Before],
    out: &mut Vec<u8>,
) {
    let mut instructions: Vec<Value> = Vec::new();
    let mut before = before.iter().peekable();
    let mut source: Option<Vec<Value>> = None;
    let mut label = None;
    let mut lines = disassembler.decode(head.bytes, head.address, symbols);
    while let Some(line) = lines.next_line() {
        match line {
            Line::Source(at) => source = Some(at.chain.iter().map(frame).collect()),
            Line::Label { number, .. } => label = Some(number),
            Line::Instruction(instruction) => {
                let mut one = of_instruction(&instruction);
                if let Some(number) = label.take() {
                    one.insert("label".into(), json!(number));
                }
                if let Some(source) = source.take().filter(|s| !s.is_empty()) {
                    one.insert("source".into(), json!(source));
                }
                let mut texts = Vec::new();
                while let Some(text) = before.next_if(|b| b.address <= instruction.address) {
                    texts.push(json!(text.text));
                }
                if !texts.is_empty() {
                    one.insert("before".into(), Value::Array(texts));
                }
                instructions.push(Value::Object(one));
            }
        }
    }
    let mut object = Map::new();
    object.insert("function".into(), json!(head.name));
    if let Some(module) = head.module {
        object.insert("module".into(), json!(module));
    }
    if let Some(id) = head.program {
        object.insert("program".into(), json!(id));
    }
    if let Some(prototype) = head.prototype {
        object.insert("prototype".into(), json!(prototype));
    }
    object.insert("address".into(), json!(format!("{:#x}", head.address)));
    object.insert("size".into(), json!(head.bytes.len()));
    object.insert("instructions".into(), Value::Array(instructions));
    out.extend_from_slice(Value::Object(object).to_string().as_bytes());
    out.push(b'\n');
}

fn of_instruction(instruction: &Instruction<'_>) -> Map<String, Value> {
    let mut one = Map::new();
    one.insert("address".into(), json!(format!("{:#x}", instruction.address)));
    one.insert(
        "bytes".into(),
        json!(instruction.bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()),
    );
    one.insert("mnemonic".into(), json!(instruction.mnemonic()));
    if !instruction.operands().is_empty() {
        one.insert("operands".into(), json!(instruction.operands()));
    }
    if instruction.flow == Flow::Invalid {
        one.insert("invalid".into(), json!(true));
    }
    let targets: Vec<Value> = instruction
        .targets
        .iter()
        .map(|target| {
            let mut to = Map::new();
            let kind = match target.kind {
                TargetKind::Call => "call",
                TargetKind::Jump => "jump",
                TargetKind::Data => "data",
                TargetKind::PerCpu => "per_cpu",
                TargetKind::Immediate => "immediate",
            };
            to.insert("kind".into(), json!(kind));
            to.insert("address".into(), json!(format!("{:#x}", target.address)));
            if let Some(symbol) = &target.symbol {
                to.insert("symbol".into(), of_symbol(symbol));
            }
            if let Some(label) = target.label {
                to.insert("label".into(), json!(label));
            }
            if let Some(at) = &target.location {
                to.insert("source".into(), frame(at));
            }
            Value::Object(to)
        })
        .collect();
    if !targets.is_empty() {
        one.insert("targets".into(), Value::Array(targets));
    }
    if let Some(site) = instruction.site {
        one.insert("site".into(), json!(site.to_string()));
    }
    one
}

fn of_symbol(symbol: &Symbol<'_>) -> Value {
    let mut object = Map::new();
    object.insert("name".into(), json!(symbol.name));
    object.insert("offset".into(), json!(symbol.offset));
    if let Some(module) = symbol.module {
        object.insert("module".into(), json!(module));
    }
    Value::Object(object)
}

fn frame(frame: &Frame<'_>) -> Value {
    let mut object = Map::new();
    if !frame.function.is_empty() {
        object.insert("function".into(), json!(frame.function));
    }
    object.insert("file".into(), json!(frame.file));
    object.insert("line".into(), json!(frame.line));
    if frame.column > 0 {
        object.insert("column".into(), json!(frame.column));
    }
    Value::Object(object)
}
