//! Where a returned value came from: the instructions that a call executed, by its path, are gone through, and it is followed what became of
//! each result on its way to the return register. What an instruction does that is not known here makes what it may have written
//! unknown: nothing is guessed.

use disasm::{Arch, Disassembler, Flow, Line, NoSymbols, Syntax, TargetKind};
use std::collections::{BTreeMap, BTreeSet};
use trace::Exit;
use trace::path::{Code, Path, Step};

/// Where a value is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// What the call at this address returned.
    Call(u64),
    /// The instruction at this address made it, or read it.
    Made(u64),
    /// Not known.
    Unknown,
}

/// A register, or a word of the stack frame by the text of its operand.
type Place = u16;

/// Registers, each with the names of its parts; the return value is in the first. The others that a function saves for its caller come last.
const REGISTERS: [&[&str]; 15] = [
    &["rax", "eax", "ax", "al", "ah"],
    &["rcx", "ecx", "cx", "cl", "ch"],
    &["rdx", "edx", "dx", "dl", "dh"],
    &["rsi", "esi", "si", "sil"],
    &["rdi", "edi", "di", "dil"],
    &["r8", "r8d", "r8w", "r8b"],
    &["r9", "r9d", "r9w", "r9b"],
    &["r10", "r10d", "r10w", "r10b"],
    &["r11", "r11d", "r11w", "r11b"],
    &["rbx", "ebx", "bx", "bl", "bh"],
    &["rbp", "ebp", "bp", "bpl"],
    &["r12", "r12d", "r12w", "r12b"],
    &["r13", "r13d", "r13w", "r13b"],
    &["r14", "r14d", "r14w", "r14b"],
    &["r15", "r15d", "r15w", "r15b"],
];

/// The return value's.
const RESULT: Place = 0;
/// Registers that a call does not keep are those before it.
const KEPT: Place = 9;
/// Words of the stack come behind the registers.
const STACK: Place = REGISTERS.len() as Place;

/// What an instruction does to places.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Op {
    Call(u64),
    Copy {
        from: Place,
        to: Place,
    },
    Make {
        to: Place,
        at: u64,
    },
    /// What it writes there is not followed.
    Lose(Vec<Place>),
    /// The stack pointer moved, so that its operands mean other words.
    LoseStack,
}

/// A call on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// The instruction.
    pub at: u64,
    /// What it calls, unless a register tells.
    pub to: Option<u64>,
}

/// A block, as far as values go.
#[derive(Clone, Debug, Default)]
struct Block {
    ops: Vec<Op>,
    calls: Vec<Called>,
}

/// A function, ready for paths of its calls to be gone through.
#[derive(Clone, Debug)]
pub struct Origins {
    blocks: Vec<Block>,
    /// Instructions as they are written, of those that make values.
    texts: BTreeMap<u64, String>,
    places: usize,
}

impl Origins {
    /// Of a function. `keeps`: whether a function at an address keeps all registers, as few do that are called amid others' code.
    pub fn of(code: &Code, keeps: &dyn Fn(u64) -> bool) -> Origins {
        let mut reader = Reader::default();
        let list = code.blocks.list();
        let all: Vec<Vec<Instruction>> =
            list.iter().map(|block| decode(code.bytes(block.start, block.end), block.start)).collect();
        reader.escaped = all.iter().flatten().filter_map(escapes).min();
        let leaves = |exit: Exit| matches!(exit, Exit::Jump(to) if code.blocks.at(to).is_none());
        let blocks =
            all.iter().zip(list).map(|(all, block)| reader.block(all, keeps, leaves(block.exit))).collect();
        Origins { blocks, texts: reader.texts, places: usize::from(STACK) + reader.words.len() }
    }

    /// Where the value came from that a call returned.
    pub fn returned(&self, code: &Code, path: &Path) -> Origin {
        if path.cut > 0 || !path.visits.last().is_some_and(|last| code.leaves(last.block)) {
            return Origin::Unknown;
        }
        let mut places = vec![Origin::Unknown; self.places];
        let lose = |places: &mut Vec<Origin>| places.fill(Origin::Unknown);
        for visit in &path.visits {
            // After an exception of the block before, its instructions did not all run, and its handler may have written a register.
            if matches!(visit.step, Step::Unknown | Step::Faulted) {
                lose(&mut places);
            }
            let Some(block) = self.blocks.get(visit.block) else { continue };
            for op in &block.ops {
                match op {
                    Op::Call(at) => {
                        for (place, origin) in places.iter_mut().enumerate() {
                            let made = matches!(origin, Origin::Made(_)) && place >= usize::from(STACK);
                            if place < usize::from(KEPT) || made {
                                *origin = Origin::Unknown;
                            }
                        }
                        set(&mut places, RESULT, Origin::Call(*at));
                    }
                    Op::Copy { from, to } => {
                        let origin = places.get(usize::from(*from)).copied().unwrap_or(Origin::Unknown);
                        set(&mut places, *to, origin);
                    }
                    Op::Make { to, at } => set(&mut places, *to, Origin::Made(*at)),
                    Op::Lose(all) => all.iter().for_each(|place| set(&mut places, *place, Origin::Unknown)),
                    Op::LoseStack => {
                        places
                            .iter_mut()
                            .skip(usize::from(STACK))
                            .for_each(|origin| *origin = Origin::Unknown);
                    }
                }
            }
        }
        places.first().copied().unwrap_or(Origin::Unknown)
    }

    /// The calls that were made on a path, each once, in their order.
    pub fn calls(&self, path: &Path) -> Vec<Called> {
        let mut known = BTreeSet::new();
        let blocks = path.visits.iter().filter_map(|visit| self.blocks.get(visit.block));
        blocks.flat_map(|block| &block.calls).filter(|call| known.insert(call.at)).cloned().collect()
    }

    /// The call at an address.
    pub fn call(&self, at: u64) -> Option<&Called> {
        self.blocks.iter().flat_map(|block| &block.calls).find(|call| call.at == at)
    }

    /// An instruction that made a value, in AT&T's syntax.
    pub fn text(&self, at: u64) -> &str {
        self.texts.get(&at).map_or("", String::as_str)
    }
}

fn set(places: &mut [Origin], place: Place, origin: Origin) {
    if let Some(known) = places.get_mut(usize::from(place)) {
        *known = origin;
    }
}

/// An instruction.
struct Instruction {
    at: u64,
    flow: Flow,
    /// What it calls or jumps to.
    to: Option<u64>,
    mnemonic: String,
    operands: Vec<String>,
}

fn decode(bytes: &[u8], address: u64) -> Vec<Instruction> {
    let mut disassembler = Disassembler::new(Arch::X86_64, Syntax::Att);
    let mut lines = disassembler.decode(bytes, address, &NoSymbols);
    let mut all = Vec::new();
    while let Some(line) = lines.next_line() {
        let Line::Instruction(one) = line else { continue };
        let to = one.targets.iter().find(|t| matches!(t.kind, TargetKind::Call | TargetKind::Jump));
        all.push(Instruction {
            at: one.address,
            flow: one.flow,
            to: to.map(|target| target.address),
            mnemonic: one.mnemonic().to_string(),
            operands: operands(one.operands()),
        });
    }
    all
}

/// `a,b(c,d),e` at the commas that are in no parentheses.
fn operands(text: &str) -> Vec<String> {
    let mut depth = 0u32;
    let parts = text.split(|c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.map(|part| part.trim().to_string()).filter(|part| !part.is_empty()).collect()
}

/// The register that an operand is.
fn register(operand: &str) -> Option<Place> {
    let name = operand.strip_prefix('%')?;
    REGISTERS.iter().position(|names| names.contains(&name)).and_then(|at| Place::try_from(at).ok())
}

/// Whether all of a register, or its half that a value of 32 bits is in, is meant: what is in less is no error.
fn is_wide(operand: &str) -> bool {
    operand
        .strip_prefix('%')
        .is_some_and(|name| REGISTERS.iter().any(|names| names.iter().take(2).any(|wide| *wide == name)))
}

/// Where in the stack frame an operand is: `0x8(%rsp)` is at 8.
fn on_stack(operand: &str) -> Option<i64> {
    let offset = operand.strip_suffix("(%rsp)")?;
    let (sign, digits) = match offset.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, offset),
    };
    match digits.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok().map(|n| sign * n),
        None if digits.is_empty() => Some(0),
        None => digits.parse::<i64>().ok().map(|n| sign * n),
    }
}

/// From where on an instruction makes the stack frame known by pointer, so that others may write it.
fn escapes(one: &Instruction) -> Option<i64> {
    let (source, to) = (one.operands.first()?, one.operands.last()?);
    if one.mnemonic.starts_with("lea") {
        return match on_stack(source) {
            Some(offset) => Some(offset),
            // By an index, wherever.
            None => source.contains("%rsp").then_some(i64::MIN),
        };
    }
    // The pointer itself goes elsewhere.
    (one.mnemonic.starts_with("mov") && source == "%rsp" && to != "%rbp").then_some(i64::MIN)
}

/// Reads instructions.
#[derive(Default)]
struct Reader {
    /// Words of the stack frame, each with its number.
    words: BTreeMap<i64, Place>,
    texts: BTreeMap<u64, String>,
    /// From there on the stack frame is not ours alone.
    escaped: Option<i64>,
}

/// Instructions that write no register, by how they begin.
const WRITE_NOTHING: &[&str] = &[
    "test", "cmp", "nop", "endbr", "ud2", "ud1", "lfence", "mfence", "sfence", "pause", "int3", "cli", "sti",
    "clac", "stac", "prefetch",
];

/// Instructions that write nothing but their last operand, by how they begin.
const WRITE_LAST: &[&str] = &[
    "mov", "lea", "add", "sub", "and", "or", "xor", "shl", "shr", "sar", "sal", "rol", "ror", "neg", "not",
    "inc", "dec", "set", "cmov", "adc", "sbb", "bsf", "bsr", "bswap", "tzcnt", "lzcnt", "popcnt", "btc",
    "btr", "bts", "andn",
];

/// What hands a word on as it is.
const MOVES: [&str; 5] = ["mov", "movl", "movq", "movslq", "movabs"];

impl Reader {
    /// `leaves`: its jump is a call, and returns what that returned.
    fn block(&mut self, all: &[Instruction], keeps: &dyn Fn(u64) -> bool, leaves: bool) -> Block {
        let mut block = Block::default();
        for one in all {
            match one.flow {
                Flow::Call if one.to.is_some_and(keeps) => {}
                Flow::Jump if !leaves => {}
                Flow::Call | Flow::IndirectCall | Flow::Jump => {
                    block.calls.push(Called { at: one.at, to: one.to });
                    block.ops.push(Op::Call(one.at));
                }
                Flow::IndirectJump => block.ops.push(Op::Lose((0..STACK).collect())),
                Flow::Branch | Flow::Return | Flow::Trap | Flow::Invalid => {}
                Flow::Next => block.ops.extend(self.op(one)),
            }
        }
        block
    }

    /// A place that an operand is, if it is followed.
    fn place(&mut self, operand: &str) -> Option<Place> {
        if let Some(register) = register(operand) {
            return Some(register);
        }
        let offset = on_stack(operand)?;
        if self.escaped.is_some_and(|from| offset >= from) {
            return None;
        }
        let next = STACK.saturating_add(Place::try_from(self.words.len()).ok()?);
        Some(*self.words.entry(offset).or_insert(next))
    }

    fn make(&mut self, to: Place, one: &Instruction) -> Op {
        self.texts.insert(one.at, format!("{} {}", one.mnemonic, one.operands.join(",")));
        Op::Make { to, at: one.at }
    }

    fn op(&mut self, one: &Instruction) -> Vec<Op> {
        let mnemonic = one.mnemonic.strip_prefix("lock ").unwrap_or(&one.mnemonic);
        let begins = |words: &[&str]| words.iter().any(|word| mnemonic.starts_with(word));
        let last = one.operands.last().cloned().unwrap_or_default();
        let swaps = begins(&["cmpxchg", "xadd", "xchg"]);
        if mnemonic.starts_with("push") || last == "%rsp" && !begins(WRITE_NOTHING) {
            return vec![Op::LoseStack];
        }
        if mnemonic.starts_with("pop") && !mnemonic.starts_with("popcnt") {
            return vec![Op::LoseStack, Op::Lose(register(&last).into_iter().collect())];
        }
        if mnemonic.starts_with("leave") {
            return vec![Op::LoseStack, Op::Lose(register("%rbp").into_iter().collect())];
        }
        // A sign is extended within the register: the value is the same.
        if matches!(mnemonic, "cltq" | "cwtl") || matches!(mnemonic, "bt" | "btw" | "btl" | "btq") {
            return Vec::new();
        }
        if begins(WRITE_NOTHING) && !swaps {
            return Vec::new();
        }
        // `movsq (%rsi),%es:(%rdi)`
        let is_string = one.operands.iter().any(|operand| operand.starts_with("%es:"));
        if begins(WRITE_LAST) && !is_string {
            return self.place(&last).map(|to| self.written(one, mnemonic, to)).into_iter().collect();
        }
        let implied: &[&str] = match mnemonic {
            _ if begins(&["cpuid", "cmpxchg8b", "cmpxchg16b"]) => &["%rax", "%rbx", "%rcx", "%rdx"],
            _ if begins(&["cmpxchg"]) => &["%rax"],
            _ if swaps => &[],
            _ => &["%rax", "%rcx", "%rdx", "%rsi", "%rdi"],
        };
        let words =
            one.operands.iter().flat_map(|operand| operand.split(|c: char| !c.is_ascii_alphanumeric()));
        let named = words.filter_map(|word| register(&format!("%{word}")));
        let mut lost: Vec<Place> = implied.iter().filter_map(|name| register(name)).chain(named).collect();
        lost.extend(self.place(&last));
        vec![Op::Lose(lost)]
    }

    /// What an instruction does that writes its last operand alone.
    fn written(&mut self, one: &Instruction, mnemonic: &str, to: Place) -> Op {
        let is_whole = |operand: &String| !operand.starts_with('%') || is_wide(operand);
        match one.operands.as_slice() {
            [from, _] if MOVES.contains(&mnemonic) && one.operands.iter().all(is_whole) => {
                match self.place(from) {
                    Some(from) => Op::Copy { from, to },
                    None => self.make(to, one),
                }
            }
            _ => self.make(to, one),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trace::path::Visit;
    use trace::{Blocks, Part};

    const BASE: u64 = 0xffff_ffff_8100_0000;

    /// Of a function that is executed from its first block to its last, one after the other.
    fn returned(bytes: &[u8]) -> Origin {
        let parts = vec![Part { address: BASE, bytes: bytes.to_vec() }];
        let blocks = Blocks::of(&parts, Arch::X86_64, &[], |_| false);
        let code = Code {
            name: "f".into(),
            module: None,
            address: BASE,
            parts,
            blocks,
            unprobed: BTreeSet::new(),
            told: BTreeSet::new(),
        };
        let visit = |block| Visit { block, step: Step::Fell, inferred: false };
        let path = Path { visits: (0..code.blocks.list().len()).map(visit).collect(), cut: 0 };
        Origins::of(&code, &|to| to == KEEPS).returned(&code, &path)
    }

    /// Called by `CALL`, and by `KEEP`, from the code's beginning.
    const CALL: [u8; 5] = [0xe8, 0, 0, 0x10, 0];
    /// A call to a function that keeps all registers, as the third instruction behind two of 5 and 2 bytes.
    const KEEP: [u8; 5] = [0xe8, 0, 0, 0x20, 0];
    const KEEPS: u64 = BASE + 7 + 5 + 0x20_0000;
    const RET: u8 = 0xc3;

    #[test]
    fn a_callees_value_is_followed_to_the_return() {
        // call; test eax,eax; ret
        assert_eq!(returned(&[&CALL[..], &[0x85, 0xc0, RET]].concat()), Origin::Call(BASE));
        // call; mov ebx,eax; call; mov eax,ebx; ret
        let kept = [&CALL[..], &[0x89, 0xc3], &CALL, &[0x89, 0xd8, RET]].concat();
        assert_eq!(returned(&kept), Origin::Call(BASE));
        // The same in ecx, which a call does not keep.
        let clobbered = [&CALL[..], &[0x89, 0xc1], &CALL, &[0x89, 0xc8, RET]].concat();
        assert_eq!(returned(&clobbered), Origin::Unknown);
        // call; mov [rsp+8],eax; call; mov eax,[rsp+8]; ret
        let spilled = [&CALL[..], &[0x89, 0x44, 0x24, 0x08], &CALL, &[0x8b, 0x44, 0x24, 0x08, RET]].concat();
        assert_eq!(returned(&spilled), Origin::Call(BASE));
        // The same where somebody has a pointer to [rsp+8] (lea rdi,[rsp+8] first): read anew.
        let shared = [&[0x48, 0x8d, 0x7c, 0x24, 0x08][..], &spilled].concat();
        assert_eq!(returned(&shared), Origin::Made(BASE + 5 + 5 + 4 + 5));
        // call; test eax,eax; js R; R: ret, and a call amid that keeps registers
        assert_eq!(returned(&[&CALL[..], &[0x89, 0xc3], &KEEP, &[RET]].concat()), Origin::Call(BASE));
        // lock dec dword [rbx]; lock cmpxchg [rdi],ecx
        let locked = |op: &[u8]| returned(&[&CALL[..], op, &[RET]].concat());
        assert_eq!(locked(&[0xf0, 0xff, 0x0b]), Origin::Call(BASE));
        assert_eq!(locked(&[0xf0, 0x0f, 0xb1, 0x0f]), Origin::Unknown);
    }

    #[test]
    fn a_value_that_is_made_is_told_by_its_instruction() {
        // call; mov eax,-22; ret
        assert_eq!(
            returned(&[&CALL[..], &[0xb8, 0xea, 0xff, 0xff, 0xff, RET]].concat()),
            Origin::Made(BASE + 5)
        );
        // call; or eax,-5; ret
        assert_eq!(returned(&[&CALL[..], &[0x83, 0xc8, 0xfb, RET]].concat()), Origin::Made(BASE + 5));
        // A byte of it is none: call; movzx eax,bl; ret
        assert_eq!(returned(&[&CALL[..], &[0x0f, 0xb6, 0xc3, RET]].concat()), Origin::Made(BASE + 5));
        // cpuid writes what is in no operand.
        assert_eq!(returned(&[&CALL[..], &[0x0f, 0xa2, RET]].concat()), Origin::Unknown);
    }

    #[test]
    fn a_jump_out_of_the_function_is_a_call() {
        let jump = [0xe9, 0, 0, 0x10, 0];
        assert_eq!(returned(&[&CALL[..], &jump].concat()), Origin::Call(BASE + 5));
    }

    #[test]
    fn operands_are_split_at_their_commas() {
        assert_eq!(operands("0x8(%rax,%rbx,4),%ecx"), ["0x8(%rax,%rbx,4)", "%ecx"]);
        assert_eq!(operands(""), [""; 0]);
        assert_eq!(
            ["0x10(%rsp)", "(%rsp)", "-8(%rsp)", "8(%rax)"].map(on_stack),
            [Some(16), Some(0), Some(-8), None]
        );
    }
}
