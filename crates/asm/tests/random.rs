//! Random programs: what is emitted passes the verifier and computes what the evaluator says.
//!
//! `ASM_CASES=n` sets the number of programs (512 without it). Each is assembled for both instruction sets.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use asm::{Alu, Arg, Cmp, Error, Func, Helper, MapId, Operand, Program, Reg, Size, Slot, SubId, Width};
use common::TestMap;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::RefCell;

/// The one-element map of results, and an array to look up in.
const OUT: MapId = MapId(0);
const OUT_SIZE: u32 = 512;
const ARRAY: MapId = MapId(1);
const ELEMENT: u32 = 16;
const ELEMENTS: u32 = 4;

#[derive(Clone, Copy, Debug)]
enum Val {
    /// One of the values at hand.
    Reg(u16),
    Imm(i64),
}

#[derive(Clone, Copy, Debug)]
struct Cond(Cmp, Width, u16, Val);

/// A place in memory: which pointer, and where from it.
#[derive(Clone, Copy, Debug)]
struct Place(u16, u16);

#[derive(Clone, Debug)]
enum Stmt {
    Imm(i64),
    Alu(Alu, Width, Val, Val),
    AluTo(u16, Alu, Width, Val),
    Assign(u16, Val),
    Neg(Width, u16),
    Not(Width, u16),
    Ext(bool, Size, u16),
    Bytes(bool, Size, u16),
    Load(Place, Size, bool),
    Store(Place, Size, Val),
    LoadSlot(Place, Size, bool),
    StoreSlot(Place, Size, Val),
    Atomic(Place, bool, Val),
    Fetch(Place, bool, Val),
    Pointer(Place),
    MovePointer(Place),
    Context(u8),
    Time,
    Copy {
        to: Place,
        from: Place,
        len: u8,
    },
    Lookup {
        index: Val,
        found: Vec<Stmt>,
        missing: Vec<Stmt>,
    },
    Update {
        index: u8,
        from: Place,
    },
    Sub(u16, [Val; 5]),
    Callback {
        count: u8,
        stop: u8,
        at: Place,
    },
    If(Cond, bool, Vec<Stmt>, Vec<Stmt>),
    Loop(u8, Vec<Stmt>),
    Labelled(Vec<Stmt>),
    Leave(Cond, Leave),
    Block(u8, Vec<Stmt>),
    /// A variable set to small constants under conditions, then compared.
    Flag {
        var: u16,
        first: i8,
        sets: Vec<(Cond, i8)>,
        test: (Cmp, Width, i8),
        then: Vec<Stmt>,
        els: Vec<Stmt>,
    },
    Line(u8),
}

#[derive(Clone, Copy, Debug)]
enum Leave {
    Break,
    Continue,
    /// Of one of the labelled blocks around.
    Block(u8),
    Return(Val),
}

#[derive(Clone, Debug)]
struct Script {
    vars: u8,
    slots: Vec<u8>,
    subs: Vec<(u8, Vec<Stmt>)>,
    body: Vec<Stmt>,
    ctx: [u64; 4],
    seed: u64,
}

const EDGES: [i64; 22] = [
    0,
    1,
    -1,
    2,
    7,
    31,
    32,
    33,
    63,
    64,
    255,
    256,
    0x7fff,
    -0x8000,
    0x7fff_ffff,
    -0x8000_0000,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX,
    i64::MIN,
    0x0123_4567_89ab_cdef,
];

fn imm() -> impl Strategy<Value = i64> {
    prop_oneof![4 => proptest::sample::select(&EDGES[..]), 1 => -20i64..20, 1 => any::<i64>(), 1 => any::<i32>().prop_map(i64::from)]
}

fn val() -> impl Strategy<Value = Val> {
    prop_oneof![3 => any::<u16>().prop_map(Val::Reg), 2 => imm().prop_map(Val::Imm)]
}

fn alu() -> impl Strategy<Value = Alu> {
    use Alu::*;
    proptest::sample::select(&[Add, Sub, Mul, Div, Mod, Or, And, Xor, Lsh, Rsh, Arsh][..])
}

fn width() -> impl Strategy<Value = Width> {
    prop_oneof![Just(Width::W32), Just(Width::W64)]
}

fn size() -> impl Strategy<Value = Size> {
    proptest::sample::select(&[Size::B, Size::H, Size::W, Size::DW][..])
}

fn cmp() -> impl Strategy<Value = Cmp> {
    use Cmp::*;
    proptest::sample::select(&[Eq, Ne, Gt, Ge, Lt, Le, SGt, SGe, SLt, SLe, Set][..])
}

fn cond() -> impl Strategy<Value = Cond> {
    (cmp(), width(), any::<u16>(), val()).prop_map(|(c, w, a, b)| Cond(c, w, a, b))
}

fn place() -> impl Strategy<Value = Place> {
    (any::<u16>(), any::<u16>()).prop_map(|(p, o)| Place(p, o))
}

fn simple() -> impl Strategy<Value = Stmt> {
    prop_oneof![
        2 => imm().prop_map(Stmt::Imm),
        8 => (alu(), width(), val(), val()).prop_map(|(o, w, a, b)| Stmt::Alu(o, w, a, b)),
        4 => (any::<u16>(), alu(), width(), val()).prop_map(|(v, o, w, b)| Stmt::AluTo(v, o, w, b)),
        2 => (any::<u16>(), val()).prop_map(|(v, b)| Stmt::Assign(v, b)),
        1 => (width(), any::<u16>()).prop_map(|(w, a)| Stmt::Neg(w, a)),
        1 => (width(), any::<u16>()).prop_map(|(w, a)| Stmt::Not(w, a)),
        2 => (any::<bool>(), size(), any::<u16>()).prop_map(|(s, z, a)| Stmt::Ext(s, z, a)),
        1 => (any::<bool>(), size(), any::<u16>()).prop_map(|(s, z, a)| Stmt::Bytes(s, z, a)),
        3 => (place(), size(), any::<bool>()).prop_map(|(p, z, s)| Stmt::Load(p, z, s)),
        3 => (place(), size(), val()).prop_map(|(p, z, v)| Stmt::Store(p, z, v)),
        2 => (place(), size(), any::<bool>()).prop_map(|(p, z, s)| Stmt::LoadSlot(p, z, s)),
        2 => (place(), size(), val()).prop_map(|(p, z, v)| Stmt::StoreSlot(p, z, v)),
        1 => (place(), any::<bool>(), val()).prop_map(|(p, w, v)| Stmt::Atomic(p, w, v)),
        1 => (place(), any::<bool>(), val()).prop_map(|(p, w, v)| Stmt::Fetch(p, w, v)),
        1 => place().prop_map(Stmt::Pointer),
        1 => place().prop_map(Stmt::MovePointer),
        1 => any::<u8>().prop_map(Stmt::Context),
        3 => Just(Stmt::Time),
        2 => (place(), place(), any::<u8>()).prop_map(|(to, from, len)| Stmt::Copy { to, from, len }),
        1 => (any::<u8>(), place()).prop_map(|(index, from)| Stmt::Update { index, from }),
        2 => (any::<u16>(), proptest::array::uniform5(val())).prop_map(|(n, a)| Stmt::Sub(n, a)),
        1 => (any::<u8>(), any::<u8>(), place()).prop_map(|(count, stop, at)| Stmt::Callback { count, stop, at }),
        1 => (cond(), leave()).prop_map(|(c, l)| Stmt::Leave(c, l)),
        1 => any::<u8>().prop_map(Stmt::Line),
    ]
}

fn leave() -> impl Strategy<Value = Leave> {
    prop_oneof![3 => Just(Leave::Break), 3 => Just(Leave::Continue), 3 => any::<u8>().prop_map(Leave::Block), 1 => val().prop_map(Leave::Return)]
}

fn stmt() -> impl Strategy<Value = Stmt> {
    simple().prop_recursive(3, 40, 8, |inner| {
        let block = || proptest::collection::vec(inner.clone(), 0..8);
        prop_oneof![
            4 => (cond(), any::<bool>(), block(), block()).prop_map(|(c, u, t, e)| Stmt::If(c, u, t, e)),
            2 => (any::<u8>(), block()).prop_map(|(n, b)| Stmt::Loop(n, b)),
            2 => block().prop_map(Stmt::Labelled),
            1 => (val(), block(), block())
                .prop_map(|(index, found, missing)| Stmt::Lookup { index, found, missing }),
            1 => (any::<u8>(), block()).prop_map(|(n, b)| Stmt::Block(n, b)),
            3 => (
                any::<u16>(),
                -1i8..3,
                proptest::collection::vec((cond(), -1i8..3), 0..5),
                (cmp(), width(), -1i8..3),
                block(),
                block(),
            )
                .prop_map(|(var, first, sets, test, then, els)| {
                    Stmt::Flag { var, first, sets, test, then, els }
                }),
        ]
    })
}

fn script() -> impl Strategy<Value = Script> {
    let body = || proptest::collection::vec(prop_oneof![3 => simple(), 1 => stmt()], 1..36);
    let small = proptest::collection::vec(prop_oneof![5 => simple(), 1 => stmt()], 0..10);
    (
        1u8..20,
        proptest::collection::vec(8u8..40, 1..4),
        proptest::collection::vec((0u8..=5, small), 0..3),
        body(),
        any::<[u64; 4]>(),
        any::<u64>(),
    )
        .prop_map(|(vars, slots, subs, body, ctx, seed)| Script { vars, slots, subs, body, ctx, seed })
}

#[derive(Clone, Copy, PartialEq)]
enum Area {
    Slot(Slot),
    Out,
    Element,
}

/// What can be named at one point of a function.
#[derive(Clone)]
struct Scope<'s> {
    vals: Vec<Reg>,
    vars: Vec<Reg>,
    /// A pointer, the bytes behind it, and a name for the memory it leads to.
    pointers: Vec<(Reg, u32, Area)>,
    slots: Vec<(Slot, u32)>,
    subs: &'s [(SubId, usize)],
    callback: SubId,
    main: bool,
    /// How often the verifier walks this, within a function.
    times: u32,
    in_loop: bool,
    labels: Vec<asm::Label>,
}

impl Scope<'_> {
    fn reg(&self, n: u16) -> Reg {
        let n = usize::from(n) % (self.vals.len() + self.vars.len());
        *self.vals.get(n).unwrap_or_else(|| &self.vars[n - self.vals.len()])
    }

    fn var(&self, n: u16) -> Reg {
        self.vars[usize::from(n) % self.vars.len()]
    }

    fn val(&self, v: Val) -> Operand {
        match v {
            Val::Reg(n) => self.reg(n).into(),
            Val::Imm(v) => v.into(),
        }
    }

    /// A pointer and an offset where `size` aligned bytes are.
    fn at(&self, Place(p, off): Place, size: u32) -> Option<(Reg, i32)> {
        let (r, len, _) = *self.pointers.get(usize::from(p) % self.pointers.len().max(1))?;
        let places = (len.checked_sub(size)?) / size.min(8) + 1;
        Some((r, (u32::from(off) % places * size.min(8)) as i32))
    }

    fn in_slot(&self, Place(p, off): Place, size: u32) -> Option<(Slot, i32)> {
        let (s, len) = *self.slots.get(usize::from(p) % self.slots.len().max(1))?;
        let places = (len.checked_sub(size)?) / size + 1;
        Some((s, (u32::from(off) % places * size) as i32))
    }
}

fn fill(f: &mut Func<'_>, slot: Slot, len: u32, with: Operand) {
    let mut at = 0;
    for size in [Size::DW, Size::W, Size::H, Size::B] {
        while at + size.bytes() <= len {
            let v = if at % 16 == 8 { Operand::Imm((0x0101_0101 * i64::from(at)) ^ 0x55) } else { with };
            f.store_slot(size, slot, at as i32, v);
            at += size.bytes();
        }
    }
}

fn stmts(f: &mut Func<'_>, list: &[Stmt], s: &mut Scope<'_>) {
    for one in list {
        write(f, one, s);
    }
}

fn when(f: &mut Func<'_>, Cond(cmp, width, a, b): Cond, s: &Scope<'_>, then: impl FnOnce(&mut Func<'_>)) {
    f.if_(cmp, width, s.reg(a), s.val(b), then);
}

fn write(f: &mut Func<'_>, stmt: &Stmt, s: &mut Scope<'_>) {
    let new = match *stmt {
        Stmt::Imm(v) => f.imm(v),
        Stmt::Alu(op, w, a, b) => f.alu(op, w, s.val(a), s.val(b)),
        Stmt::AluTo(v, op, w, b) => return f.alu_to(s.var(v), op, w, s.val(b)),
        Stmt::Assign(v, b) => return f.assign(s.var(v), s.val(b)),
        Stmt::Neg(w, a) => f.neg(w, s.reg(a)),
        Stmt::Not(w, a) => f.not(w, s.reg(a)),
        Stmt::Ext(true, size, a) => f.sext(s.reg(a), size),
        Stmt::Ext(false, size, a) => f.zext(s.reg(a), size),
        Stmt::Bytes(true, size, a) => f.to_be(s.reg(a), size),
        Stmt::Bytes(false, size, a) => f.swap(s.reg(a), size),
        Stmt::Load(p, size, signed) => match s.at(p, size.bytes()) {
            Some((p, off)) if signed => f.load_signed(size, p, off),
            Some((p, off)) => f.load(size, p, off),
            None => return,
        },
        Stmt::Store(p, size, v) => {
            if let Some((p, off)) = s.at(p, size.bytes()) {
                f.store(size, p, off, s.val(v));
            }
            return;
        }
        Stmt::LoadSlot(p, size, signed) => match s.in_slot(p, size.bytes()) {
            Some((slot, off)) if signed => f.load_slot_signed(size, slot, off),
            Some((slot, off)) => f.load_slot(size, slot, off),
            None => return,
        },
        Stmt::StoreSlot(p, size, v) => {
            if let Some((slot, off)) = s.in_slot(p, size.bytes()) {
                f.store_slot(size, slot, off, s.val(v));
            }
            return;
        }
        Stmt::Atomic(p, wide, v) => {
            let size = if wide { Size::DW } else { Size::W };
            if let Some((p, off)) = s.at(p, size.bytes()) {
                f.atomic_add(size, p, off, s.val(v));
            }
            return;
        }
        Stmt::Fetch(p, wide, v) => {
            let size = if wide { Size::DW } else { Size::W };
            match s.at(p, size.bytes()) {
                Some((p, off)) => f.fetch_add(size, p, off, s.val(v)),
                None => return,
            }
        }
        Stmt::Pointer(Place(n, off)) => {
            let n = usize::from(n) % (s.slots.len() + 1);
            let pointer = match s.slots.get(n) {
                Some((slot, len)) => {
                    let off = u32::from(off) % len / 8 * 8;
                    (f.slot_addr(*slot, off as i32), len - off, Area::Slot(*slot))
                }
                None => {
                    let off = u32::from(off) % OUT_SIZE / 8 * 8;
                    (f.map_value(OUT, off), OUT_SIZE - off, Area::Out)
                }
            };
            return s.pointers.push(pointer);
        }
        Stmt::MovePointer(p) => {
            if let Some((r, off)) = s.at(p, 8) {
                let (_, len, area) = *s.pointers.iter().find(|p| p.0 == r).unwrap();
                let moved = f.alu(Alu::Add, Width::W64, r, off);
                s.pointers.push((moved, len - off as u32, area));
            }
            return;
        }
        Stmt::Context(n) if s.main => {
            let ctx = f.ctx();
            f.load(Size::DW, ctx, i32::from(n % 4) * 8)
        }
        Stmt::Context(n) => f.imm(n.into()),
        Stmt::Time => {
            let time = f.call(Helper::KTIME_GET_NS, &[]);
            f.alu(Alu::And, Width::W64, time, 0)
        }
        Stmt::Copy { to, from, len } => {
            let len = u32::from(len % 24) + 1;
            // The kernel copies forward, so overlapping copies are left out.
            let area = |r: Reg| s.pointers.iter().find(|p| p.0 == r).map(|p| p.2);
            match (s.at(to, len), s.at(from, len)) {
                (Some((to, a)), Some((from, b))) if area(to) != area(from) => {
                    f.call(Helper::PROBE_READ_KERNEL, &[Arg::Offset(to, a), len.into(), Arg::Offset(from, b)])
                }
                _ => return,
            }
        }
        Stmt::Lookup { index, ref found, ref missing } => {
            let key = f.slot(4, 4);
            let index = f.alu(Alu::And, Width::W32, s.val(index), 7);
            f.store_slot(Size::W, key, 0, index);
            let value = f.call(Helper::MAP_LOOKUP_ELEM, &[ARRAY.into(), key.into()]);
            let (mut yes, mut no) = (s.clone(), s.clone());
            yes.pointers.push((value, ELEMENT, Area::Element));
            return f.if_else(
                Cmp::Ne,
                Width::W64,
                value,
                0,
                |f| stmts(f, found, &mut yes),
                |f| stmts(f, missing, &mut no),
            );
        }
        Stmt::Update { index, from } => match s.at(from, ELEMENT) {
            Some((from, off)) => {
                let key = f.slot(4, 4);
                f.store_slot(Size::W, key, 0, i32::from(index % 8));
                let from = Arg::Offset(from, off);
                let status = f.call(Helper::MAP_UPDATE_ELEM, &[ARRAY.into(), key.into(), from, 0.into()]);
                // Before 6.4 an `int`, whose upper half in r0 is anything.
                f.sext(status, Size::W)
            }
            None => return,
        },
        Stmt::Sub(n, args) => {
            if s.subs.is_empty() || s.times > 4 {
                return;
            }
            let (sub, nparams) = s.subs[usize::from(n) % s.subs.len()];
            let args: Vec<Arg> = args[..nparams].iter().map(|v| s.val(*v).into()).collect();
            f.call_sub(sub, &args)
        }
        Stmt::Callback { count, stop, at } => {
            if !s.main || s.times > 4 || !common::kernel().loops {
                return;
            }
            let Some((slot, off)) = s.in_slot(at, 8) else { return };
            f.store_slot(Size::DW, slot, off, i32::from(stop % 6));
            // Not 0: 6.18 then never walks the callback, drops it as dead and fails to find it ("verifier bug: No program
            // to jit").
            let count = i32::from(count % 5 + 1).into();
            f.call(Helper::LOOP, &[count, Arg::Sub(s.callback), Arg::SlotAddr(slot, off), 0.into()])
        }
        Stmt::If(Cond(cmp, width, a, b), unlikely, ref then, ref els) => {
            let (mut yes, mut no) = (s.clone(), s.clone());
            let (a, b) = (s.reg(a), s.val(b));
            return if els.is_empty() && unlikely {
                f.if_unlikely(cmp, width, a, b, |f| stmts(f, then, &mut yes));
            } else if els.is_empty() {
                f.if_(cmp, width, a, b, |f| stmts(f, then, &mut yes));
            } else {
                f.if_else(cmp, width, a, b, |f| stmts(f, then, &mut yes), |f| stmts(f, els, &mut no));
            };
        }
        Stmt::Loop(n, ref body) => {
            let max = (u32::from(n) % 5).min(8 / s.times);
            let mut inner = s.clone();
            inner.times *= max.max(1);
            inner.in_loop = true;
            inner.labels.clear();
            return f.loop_(max, |f, i| {
                inner.vals.push(i);
                stmts(f, body, &mut inner);
            });
        }
        Stmt::Labelled(ref body) => {
            let mut inner = s.clone();
            return f.labelled(|f, label| {
                inner.labels.push(label);
                stmts(f, body, &mut inner);
            });
        }
        Stmt::Leave(c, leave) => {
            return match leave {
                Leave::Return(v) => when(f, c, s, |f| f.ret(s.val(v))),
                Leave::Block(n) => {
                    if !s.labels.is_empty() {
                        when(f, c, s, |f| f.leave(s.labels[usize::from(n) % s.labels.len()]));
                    }
                }
                _ if !s.in_loop => {}
                Leave::Break => when(f, c, s, |f| f.break_()),
                Leave::Continue => when(f, c, s, |f| f.continue_()),
            };
        }
        Stmt::Block(len, ref body) => {
            // A block of its own with a slot of its own.
            let len = u32::from(len % 32) + 8;
            let mut inner = s.clone();
            let with = s.reg(len as u16);
            let one = f.imm(1);
            return f.if_(Cmp::Eq, Width::W64, one, 1, |f| {
                let slot = f.slot(len, 8);
                fill(f, slot, len, with.into());
                inner.slots.push((slot, len));
                let p = f.slot_addr(slot, 0);
                inner.pointers.push((p, len, Area::Slot(slot)));
                stmts(f, body, &mut inner);
            });
        }
        Stmt::Flag { var, first, ref sets, test: (cmp, width, with), ref then, ref els } => {
            let var = s.var(var);
            f.assign(var, i32::from(first));
            for (cond, v) in sets {
                when(f, *cond, s, |f| f.assign(var, i32::from(*v)));
            }
            let (mut yes, mut no) = (s.clone(), s.clone());
            let with = i32::from(with);
            return f.if_else(
                cmp,
                width,
                var,
                with,
                |f| stmts(f, then, &mut yes),
                |f| stmts(f, els, &mut no),
            );
        }
        Stmt::Line(n) => return f.line(&format!("text {n}"), u32::from(n) + 1, 1),
    };
    s.vals.push(new);
}

fn function(
    f: &mut Func<'_>,
    script: &Script,
    body: &[Stmt],
    nparams: Option<usize>,
    subs: &[(SubId, usize)],
    callback: SubId,
) {
    let main = nparams.is_none();
    let mut s = Scope {
        vals: Vec::new(),
        vars: Vec::new(),
        pointers: Vec::new(),
        slots: Vec::new(),
        subs,
        callback,
        main,
        times: 1,
        in_loop: false,
        labels: Vec::new(),
    };
    for n in 0..nparams.unwrap_or(0) {
        s.vals.push(f.param(n));
    }
    let (vars, slots) = if main { (script.vars, &script.slots[..]) } else { (2, &script.slots[..1]) };
    for n in 0..vars {
        let v = f.var();
        f.assign(v, EDGES[(usize::from(n) * 5 + script.seed as usize % 7) % EDGES.len()]);
        s.vars.push(v);
    }
    if main {
        let ctx = f.ctx();
        for n in 0..4 {
            s.vals.push(f.load(Size::DW, ctx, n * 8));
        }
    }
    for len in slots {
        let len = u32::from(*len);
        let slot = f.slot(len, 8);
        let with = s.reg(len as u16);
        fill(f, slot, len, with.into());
        s.slots.push((slot, len));
        let p = f.slot_addr(slot, 0);
        s.pointers.push((p, len, Area::Slot(slot)));
    }
    let p = f.map_value(OUT, 0);
    s.pointers.push((p, OUT_SIZE, Area::Out));
    stmts(f, body, &mut s);
    // Everything at hand is alive to here.
    let all: Vec<Reg> = s.vals.iter().chain(&s.vars).copied().collect();
    if main {
        let out = f.map_value(OUT, 0);
        for (i, r) in all.iter().take(OUT_SIZE as usize / 8).enumerate() {
            f.store(Size::DW, out, i as i32 * 8, *r);
        }
        f.ret(all[all.len() / 2]);
    } else {
        let mut sum = f.imm(0);
        for r in all {
            sum = f.alu(Alu::Add, Width::W64, sum, r);
        }
        f.ret(sum);
    }
}

fn build(script: &Script) -> Program {
    let mut program = Program::new("random", "random.rs");
    let callback = program.sub("callback", 2, |f| {
        let (i, at) = (f.param(0), f.param(1));
        let old = f.load(Size::DW, at, 0);
        f.if_(Cmp::Eq, Width::W64, i, old, |f| f.ret(1));
        f.ret(0);
    });
    let mut subs = Vec::new();
    for (n, (nparams, body)) in script.subs.iter().enumerate() {
        let nparams = usize::from(*nparams);
        let known = subs.clone();
        let id = program.sub(&format!("sub{n}"), nparams, |f| {
            function(f, script, body, Some(nparams), &known, callback);
        });
        subs.push((id, nparams));
    }
    program.main(|f| function(f, script, &script.body, None, &subs, callback));
    program
}

#[derive(Default, Debug)]
struct Tally {
    programs: usize,
    loads: usize,
    instructions: usize,
    spilling: usize,
    too_much_stack: usize,
}

#[test]
fn kernel_and_evaluator_agree() {
    let cases = std::env::var("ASM_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(512);
    let refusal = &common::kernel().refusal;
    let tally = RefCell::new(Tally::default());
    let config = Config {
        cases,
        max_shrink_iters: 4000,
        failure_persistence: None,
        max_global_rejects: cases / 4 + 100,
        ..Config::default()
    };
    let result = TestRunner::new(config).run(&script(), |script| check(&script, refusal.is_none(), &tally));
    println!("{:?}", tally.borrow());
    if let Err(e) = result {
        panic!("{e}");
    }
    if let Some(why) = refusal {
        println!("SKIP: {cases} programs were assembled and evaluated but not loaded: {why}");
    }
}

fn check(script: &Script, loadable: bool, tally: &RefCell<Tally>) -> Result<(), TestCaseError> {
    let program = build(script);
    let ctx: Vec<u8> = script.ctx.iter().flat_map(|w| w.to_ne_bytes()).collect();
    let bytes =
        |n: u32| (0..n).map(|i| (script.seed.rotate_left(i * 7) as u8) ^ i as u8).collect::<Vec<u8>>();
    let maps = [
        TestMap { value_size: OUT_SIZE, values: bytes(OUT_SIZE) },
        TestMap { value_size: ELEMENT, values: bytes(ELEMENT * ELEMENTS) },
    ];
    let fail = |what: String| TestCaseError::fail(format!("{what}\n{}", program.dump()));
    let expected = common::evaluate(&program, &ctx, &maps).map_err(|e| fail(format!("evaluator: {e}")))?;
    for options in &common::kernel().options {
        let code = match program.assemble(options) {
            Ok(code) => code,
            Err(Error::Stack { .. }) => {
                tally.borrow_mut().too_much_stack += 1;
                return Err(TestCaseError::reject("stack"));
            }
            Err(e) => return Err(fail(format!("assemble: {e}"))),
        };
        if !loadable {
            continue;
        }
        let got = common::run(&code, &ctx, &maps)
            .map_err(|e| fail(format!("{options:?}: {e}\n{}", code.dump())))?;
        if got != expected {
            return Err(fail(format!(
                "{options:?}\nkernel    {got:x?}\nevaluator {expected:x?}\n{}",
                code.dump()
            )));
        }
        let mut tally = tally.borrow_mut();
        tally.loads += 1;
        tally.instructions += code.insns.len();
        tally.spilling += usize::from(code.dump().contains("= *(u64 *)(r10 -"));
    }
    tally.borrow_mut().programs += 1;
    Ok(())
}
