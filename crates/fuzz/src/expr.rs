//! Expressions: read or refused with a place and a reason; what is read computes in a program what the oracle says.

use crate::Fuzz;
use crate::random::Random;
use asm::{Func, MapId, Memory, Options, Program, Reg, Size};
use btf::{Btf, Builder, Kind, NewMember, TypeId};
use expr::tree::{Output, Root, Statement, Test};
use expr::{Compiler, Failure, Room, Scope, Source, Symbol, Tid, Types, Variable, eval};

const SEEDS: &[&str] = &[
    "skb->dev->ifindex == 1 && skb->len > 100",
    "skb->sk->port",
    "ntohs(skb->sk->port) in (80, 443)",
    "str(skb->dev->name, 8)",
    "skb->dev->name == \"eth0\"",
    "$comm in (\"bash\", \"sh\") || !skb",
    "container_of(&skb->len, struct sk_buff, len)->dev",
    "(u64)skb->head + skb->off * 2",
    "*(u16 *)(skb->head + skb->off)",
    "skb->cb[skb->len % 8] ? skb->len : -1",
    "sizeof(struct sk_buff) / sizeof skb->cb[0]",
    "skb->flags.low << 3 | skb->flags.wide >> n",
    "ip6(skb->cb) == \"::1\"",
    "mac(skb->cb) != \"00:11:22:33:44:55\"",
    "hist($duration) by ($comm, skb->dev->ifindex)",
    "lhist(skb->len, 0, 1000, 100)",
    "count() by (n, str(skb->dev->name))",
    "buf(skb->head, skb->len & 63)",
    "hex(skb->head, 16)",
    "pair.b - pair.a",
    "n / (n - n) % 3",
    "((struct net_device *)skb->head)->name[2]",
    "state == CLOSE || state in (OPEN, 5)",
    "a ? b : c ? d : e",
    "-2147483648 / -1",
    "&skb->dev[1] - skb->dev",
    "*skb",
    "path(skb)",
    "'\\x41' + '\\n'",
    "$args[0]",
    "$retval < 0",
];

const OPERATORS: &[&str] = &[
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "<<",
    ">>",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "!=",
    "&&",
    "||",
    "? 1 :",
    "? skb->len :",
    "? n :",
];

const FORMS: &[&str] = &[
    "!({})",
    "-({})",
    "~({})",
    "(u8)({})",
    "(short)({})",
    "(_Bool)({})",
    "(long)({})",
    "({}) in (0, n, 1)",
    "skb->cb[({}) & 7]",
    "*(int *)(skb->head + (({}) & 15))",
    "ntohs({})",
    "hex({})",
    "skb->flex[({}) & 3]",
    "(skb + (({}) & 1))->dev",
    "sum({})",
    "buf(skb, {})",
    "max({}) by (n)",
    "skb->dev ? ({}) : 2",
    "(struct sk_buff *)(({}) & 512)",
];

const WORDS: &[&str] = &[
    "(",
    ")",
    "[",
    "]",
    "->",
    ".",
    ",",
    "?",
    ":",
    "+",
    "-",
    "*",
    "/",
    "%",
    "&",
    "|",
    "^",
    "~",
    "!",
    "<<",
    ">>",
    "<=",
    "==",
    "!=",
    "&&",
    "||",
    "in",
    "by",
    "sizeof",
    "(u8)",
    "(struct sk_buff *)",
    "(unsigned long)",
    "(_Bool)",
    "$comm",
    "$pid",
    "$task",
    "$args[",
    "$retval",
    "skb",
    "skb->dev",
    "dev",
    "->len",
    "n",
    "pair",
    "state",
    "CLOSE",
    "\"eth0\"",
    "'a'",
    "0",
    "1",
    "0x",
    "0xffffffffffffffff",
    "9223372036854775808",
    "1ull",
    "str(",
    "hex(",
    "buf(",
    "ip4(",
    "ip6(",
    "mac(",
    "ksym(",
    "path(",
    "ntohl(",
    "container_of(",
    "hist(",
    "lhist(",
    "count()",
    "é",
    "\u{202e}",
    "\0",
    "\n",
    "\"",
    "'",
    "\\",
    "$",
    "++",
    "=",
    "struct",
    "enum",
    "void *",
    "flags.odd",
    "flags.whole",
    "self",
    "->next",
    "((((((((",
    "))))))))",
    "!!!!!!!!",
    "- - - - ",
    "skb->self->self->self->self",
    "i?1:",
];

/// What programs and oracle read: this many bytes.
const BYTES: usize = 2048;
const ROOTS: usize = 1024;
const DATA: MapId = MapId(0);
const OUT: MapId = MapId(1);
const OUT_SIZE: u32 = 16 << 10;
const TEXT: u32 = 24;
const COMM: &[u8; 16] = b"bash\0\0\0\0\0\0\0\0\0\0\0\0";

/// Types to name, and memory to read.
pub struct ExprFuzz {
    btf: Btf,
    args: Vec<(&'static str, TypeId)>,
    bytes: Vec<u8>,
}

impl ExprFuzz {
    /// Makes it.
    pub fn new() -> anyhow::Result<ExprFuzz> {
        let (bytes, args) = types();
        Ok(ExprFuzz { btf: Btf::from_bytes(bytes)?, args, bytes: memory() })
    }

    fn scope(&self) -> Scope<'_> {
        let types = Types::new(vec![&self.btf]);
        let variable = |name: &str, id: TypeId| {
            let tid = Tid { space: 0, id };
            Variable { name: name.into(), ty: types.ty(tid), spelled: Some(tid) }
        };
        Scope {
            target: "probed".into(),
            args: self.args.iter().map(|(name, id)| variable(name, *id)).collect(),
            retval: Some(Variable { name: String::new(), ty: expr::Ty::INT, spelled: None }),
            no_retval: String::new(),
            duration: true,
            symbol: &|name| match name {
                "jiffies" => Symbol::At(0xffff_ffff_8200_0000),
                "init_task" => Symbol::Hidden,
                _ => Symbol::Untold,
            },
            untold: &|name| (name == "cgroup").then(|| "it is not told".into()),
            types,
        }
    }
}

impl Fuzz for ExprFuzz {
    fn run(&mut self, random: &mut Random) -> Result<(), String> {
        let mut text = random.pick(SEEDS).map_or(String::new(), ToString::to_string);
        // Most texts that are changed mean nothing: some are put together so that they do.
        let meant = random.one_in(2);
        while meant && random.one_in(2) {
            let more = random.pick(SEEDS).copied().unwrap_or_default();
            let sign = random.pick(OPERATORS).copied().unwrap_or_default();
            text = format!("({text}) {sign} ({more})");
        }
        if meant && random.one_in(3) {
            text = random.pick(FORMS).copied().unwrap_or_default().replace("{}", &text);
        }
        if !meant && random.one_in(4) {
            let more = random.pick(SEEDS).copied().unwrap_or_default();
            let sign = random.pick(WORDS).copied().unwrap_or_default();
            text = format!("({text}) {sign} ({more})");
        }
        if !meant || random.one_in(4) {
            random.mutate_text(&mut text, WORDS);
        }
        if random.one_in(32) {
            let (what, times) = (random.pick(WORDS).copied().unwrap_or_default(), random.below(2000));
            let (before, after) =
                (what.repeat(times), if random.one_in(2) { ")".repeat(times) } else { String::new() });
            text = format!("{before}{text}{after}");
        }
        let scope = self.scope();
        let _ = expr::spelled(&scope.types, &text);
        if let Err(error) = expr::value(&text, &scope) {
            check(&error, &text)?;
        }
        match expr::filter(&text, &scope) {
            Ok(test) => self.filter(&test, &text)?,
            Err(error) => check(&error, &text)?,
        }
        match expr::output(&text, &scope) {
            Ok(Statement::Output(output)) => self.output(&scope, &output, &text)?,
            Ok(Statement::Aggregate(aggregate)) => {
                for key in &aggregate.keys {
                    self.output(&scope, key, &text)?;
                }
                if let Some(value) = aggregate.value {
                    self.output(&scope, &Output::Scalar(value, expr::tree::Format::Plain), &text)?;
                }
            }
            Err(error) => check(&error, &text)?,
        }
        Ok(())
    }
}

impl ExprFuzz {
    /// A filter that returns 2 where it holds.
    fn filter(&self, test: &Test, text: &str) -> Result<(), String> {
        let mut program = Program::new("filter", "fuzz");
        program.main(|f| {
            let mark = |f: &mut Func<'_>, text: &str| f.line(text, 1, 1);
            let mut compiler = Compiler::new(&Words, &mark);
            let all = test.clone().conjuncts();
            compiler.foresee(&all, []);
            compiler.require(f, &all, text, 1);
            f.ret(2);
        });
        let Some((returned, memory)) = self.evaluate(&program, text)? else { return Ok(()) };
        let holds = eval::test(test, &Oracle { memory: &memory, bytes: &self.bytes });
        if returned != u64::from(holds) + 1 {
            return Err(format!("{text:?}: the oracle says {holds}, the program {returned}"));
        }
        Ok(())
    }

    fn output(&self, scope: &Scope<'_>, output: &Output, text: &str) -> Result<(), String> {
        let len = match output {
            Output::Value(place) => scope.types.size(&place.ty).unwrap_or(8) as u32,
            _ => 0,
        };
        let room = Room::of(output, 0, TEXT, len);
        if room.size > OUT_SIZE {
            return Err(format!("{text:?} takes room for {} bytes", room.size));
        }
        let mut program = Program::new("output", "fuzz");
        program.main(|f| {
            let mark = |f: &mut Func<'_>, text: &str| f.line(text, 1, 1);
            let mut compiler = Compiler::new(&Words, &mark);
            compiler.foresee([], [output]);
            let record = f.map_value(OUT, 0);
            compiler.output(f, output, text, record, room);
        });
        let Some((_, memory)) = self.evaluate(&program, text)? else { return Ok(()) };
        let wanted = eval::output(output, &Oracle { memory: &memory, bytes: &self.bytes }, TEXT, len);
        let out = memory.map(OUT).unwrap_or_default();
        let status = out.first_chunk().map_or(u64::MAX, |word| u64::from_le_bytes(*word));
        let same = match (&wanted, Failure::of(status)) {
            (Ok(value), None) => out.get(8..).is_some_and(|record| record.starts_with(value)),
            (Err(wanted), Some(got)) => {
                wanted.span == got.span && wanted.errno.is_some() == got.errno.is_some()
            }
            _ => false,
        };
        if !same {
            let got = out.get(..room.size as usize);
            return Err(format!("{text:?}: the oracle says {wanted:x?}, the program {got:x?}"));
        }
        Ok(())
    }

    /// What a program returns and leaves behind; `None` if it is too large for one.
    fn evaluate(&self, program: &Program, text: &str) -> Result<Option<(u64, Memory)>, String> {
        if let Err(error) = program.assemble(&Options::default()) {
            // There is so much stack and no more.
            return match error {
                asm::Error::Stack { .. } => Ok(None),
                error => Err(format!("{text:?}: {error}")),
            };
        }
        let mut machine = asm::Machine::new(&[]);
        machine.memory.add_map(DATA, BYTES, &self.bytes);
        machine.memory.add_map(OUT, OUT_SIZE as usize, &[0xa5; OUT_SIZE as usize]);
        machine.helpers = Some(Box::new(|helper, args, memory| match (helper, args) {
            (asm::Helper::GET_CURRENT_COMM, [to, _]) => memory.write(*to, COMM).map(|()| Some(0)),
            _ => Ok(None),
        }));
        let returned = program.evaluate(&mut machine).map_err(|e| format!("{text:?}: {e}"))?;
        Ok(Some((returned, machine.memory)))
    }
}

/// Everything that is brought lies in the map.
struct Words;

fn root_at(root: Root, slot: u32) -> u32 {
    let number = match root {
        Root::Arg(n) => u32::from(n).min(15),
        Root::Retval => 16,
        Root::Pid => 17,
        Root::Tid => 18,
        Root::Cpu => 19,
        Root::Cgroup => 20,
        Root::Ns => 21,
        Root::Duration => 22,
        Root::Context => 23,
        Root::Task => 24,
        Root::PerCpu(_) => 25,
    };
    ROOTS as u32 + number * 16 + slot.min(1) * 8
}

impl Source for Words {
    fn word(&self, f: &mut Func<'_>, root: Root, slot: u32) -> Reg {
        let at = f.map_value(DATA, root_at(root, slot));
        f.load(Size::DW, at, 0)
    }

    fn typed(&self, _root: Root) -> bool {
        false
    }
}

struct Oracle<'m> {
    memory: &'m Memory,
    bytes: &'m [u8],
}

impl eval::Machine for Oracle<'_> {
    fn root(&self, root: Root, slot: u32) -> u64 {
        let word = self.bytes.get(root_at(root, slot) as usize..).and_then(|rest| rest.first_chunk());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }

    fn read(&self, address: u64, out: &mut [u8]) -> Result<(), u16> {
        let bytes = self.memory.read(address, out.len()).map_err(|_| 14u16)?;
        out.copy_from_slice(bytes);
        Ok(())
    }

    fn comm(&self) -> [u8; 16] {
        *COMM
    }
}

/// Where the first bytes lie that an evaluated program is given.
fn base() -> u64 {
    Memory::default().add(&[0])
}

/// Some bytes of everything, with pointers where `types` has them.
fn memory() -> Vec<u8> {
    let base = base();
    let mut random = Random::new(7);
    let mut bytes: Vec<u8> = (0..BYTES / 8).flat_map(|_| random.number().to_le_bytes()).collect();
    let mut put = |at: usize, word: u64| {
        if let Some(to) = bytes.get_mut(at..at + 8) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    };
    // Two sk_buffs at 0 and 256, devices at 512 and 576.
    for (at, dev, other) in [(0, 512, 256), (256, 0, 0)] {
        put(at, if dev > 0 { base + dev } else { 0 });
        put(at + 8, base + 640);
        put(at + 24, base + 700);
        put(at + 32, base + other);
    }
    put(512, u64::from_le_bytes(*b"eth0\0\0\0\0"));
    put(576, u64::from_le_bytes(*b"lo\0\0\0\0\0\0"));
    let arguments = [base, base + 512, 1 << 40, 5, 0, 0, 0, 9, 7, 7];
    for (n, word) in (0..).zip(arguments) {
        put(ROOTS + n * 16, word);
    }
    put(root_at(Root::Task, 0) as usize, base + 256);
    bytes
}

/// A few types, and what the arguments are.
fn types() -> (Vec<u8>, Vec<(&'static str, TypeId)>) {
    let at = NewMember::at;
    let bit = |name, ty, bit_offset, bitfield_size| NewMember { name, ty, bit_offset, bitfield_size };
    let mut b = Builder::new();
    let char_ = b.int("char", 1, true);
    let byte = b.int("unsigned char", 1, false);
    let short = b.int("unsigned short", 2, false);
    let int = b.int("int", 4, true);
    let uint = b.int("unsigned int", 4, false);
    let long = b.int("long", 8, true);
    let ulong = b.int("unsigned long", 8, false);
    let bool_ = b.bool("_Bool");
    let float = b.float("float", 4);
    let state = b.enumeration("state", 4, true, &[("CLOSE", -1), ("OPEN", 3)]);
    let name = b.array(char_, uint, 16);
    let cb = b.array(byte, uint, 8);
    let flex = b.array(int, uint, 0);
    let bytes = b.ptr(byte);
    let void = b.ptr(TypeId(0));
    let sock = b.strukt("sock", 8, &[at("port", short, 0), at("closed", bool_, 2), at("real", float, 4)]);
    let sock_p = b.ptr(sock);
    let dev =
        b.strukt("net_device", 24, &[at("name", name, 0), at("ifindex", int, 16), at("state", state, 20)]);
    let dev_p = b.ptr(dev);
    let flags = b.strukt(
        "flags",
        24,
        &[
            bit("low", uint, 0, 3),
            bit("odd", long, 5, 40),
            bit("whole", ulong, 47, 64),
            bit("wide", int, 111, 32),
        ],
    );
    let buff_p = TypeId(dev_p.0 + 4);
    let hidden = b.fwd("hidden", false);
    let choice = b.union("", 8, &[at("off", int, 0), at("hidden", hidden, 0)]);
    assert_eq!((flags.0 + 1, choice.0 + 1), (hidden.0, buff_p.0));
    let buff = TypeId(buff_p.0 + 1);
    b.ptr(buff);
    b.strukt(
        "sk_buff",
        96,
        &[
            at("dev", dev_p, 0),
            at("sk", sock_p, 8),
            at("len", uint, 16),
            at("head", bytes, 24),
            at("self", buff_p, 32),
            at("cb", cb, 40),
            at("", choice, 48),
            at("flags", flags, 56),
            at("data", void, 80),
            at("flex", flex, 88),
        ],
    );
    let pair = b.strukt("pair", 16, &[at("a", long, 0), at("b", short, 8), at("c", cb, 8)]);
    let tagged = b.qualified(Kind::Const, int);
    let args = vec![
        ("skb", buff_p),
        ("dev", dev_p),
        ("n", tagged),
        ("pair", pair),
        ("state", state),
        ("i", long),
        ("real", float),
        ("", ulong),
    ];
    (b.finish(), args)
}

/// An error is one line that a terminal can take, its place is in the text, and pointing at it takes two lines.
fn check(error: &expr::Error, of: &str) -> Result<(), String> {
    let message = error.to_string();
    if message.is_empty() || message.chars().any(char::is_control) || message.len() > 10_000 {
        return Err(format!("{of:?} is refused by {message:?}"));
    }
    let (start, end) = (error.span.start as usize, error.span.end as usize);
    if start > end || of.get(start..end).is_none() {
        return Err(format!("{of:?} is refused at {start} to {end}: {message}"));
    }
    if error.point(of).lines().count() != 2 {
        return Err(format!("{of:?}: {message}: {:?}", error.point(of)));
    }
    Ok(())
}
