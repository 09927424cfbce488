//! Every operation on every pair of edge values, in every form an operand can have: kernel and evaluator agree.
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use asm::{Alu, Cmp, Func, MapId, Operand, Program, Reg, Size, Width};
use common::TestMap;

const IN: MapId = MapId(0);
const OUT: MapId = MapId(1);

const EDGES: [i64; 20] = [
    0,
    1,
    -1,
    2,
    -7,
    31,
    32,
    33,
    63,
    64,
    0xff,
    0x8000,
    0x7fff_ffff,
    -0x8000_0000,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX,
    i64::MIN,
    0x0123_4567_89ab_cdef,
];
const PAIRS: usize = EDGES.len() * EDGES.len();

/// Which operands are constants. (Both: folded when assembled.)
const FORMS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

/// A program that stores what `each` makes of every pair.
fn table(
    name: &str,
    (a_known, b_known): (bool, bool),
    each: impl Fn(&mut Func<'_>, Operand, Operand) -> Reg,
) -> Program {
    let mut program = Program::new(name, "edges.rs");
    program.main(|f| {
        let out = f.map_value(OUT, 0);
        let values = f.map_value(IN, 0);
        for (i, a) in EDGES.iter().enumerate() {
            for (j, b) in EDGES.iter().enumerate() {
                let mut operand = |known: bool, n: usize, v: i64| -> Operand {
                    if known { v.into() } else { f.load(Size::DW, values, n as i32 * 8).into() }
                };
                let (a, b) = (operand(a_known, i, *a), operand(b_known, j, *b));
                let r = each(f, a, b);
                f.store(Size::DW, out, (i * EDGES.len() + j) as i32 * 8, r);
            }
        }
        f.ret(0);
    });
    program
}

/// Compares kernel and evaluator; gives how many values were compared.
fn agree(program: &Program) -> usize {
    let values = EDGES.iter().flat_map(|v| v.to_ne_bytes()).collect();
    let maps = [
        TestMap { value_size: EDGES.len() as u32 * 8, values },
        TestMap { value_size: PAIRS as u32 * 8, values: vec![0xee; PAIRS * 8] },
    ];
    let expected = common::evaluate(program, &[0; 8], &maps).unwrap();
    for options in &common::kernel().options {
        let code = program.assemble(options).unwrap();
        if common::kernel().refusal.is_some() {
            continue;
        }
        let got = common::run(&code, &[0; 8], &maps).unwrap_or_else(|e| panic!("{e}\n{}", program.dump()));
        for (n, (got, want)) in got.maps[1].chunks(8).zip(expected.maps[1].chunks(8)).enumerate() {
            let (a, b) = (EDGES[n / EDGES.len()], EDGES[n % EDGES.len()]);
            assert_eq!(
                got,
                want,
                "{} of {a:#x} and {b:#x}, {options:?}",
                program.dump().lines().next().unwrap()
            );
        }
    }
    PAIRS
}

fn report(what: &str, compared: usize) {
    match &common::kernel().refusal {
        None => {
            let sets = common::kernel().options.len();
            println!("{what}: {compared} values compared, for each of {sets} instruction sets");
        }
        Some(why) => {
            println!("SKIP: {what}: evaluated and assembled only, this machine loads no programs: {why}")
        }
    }
}

#[test]
fn arithmetic() {
    use Alu::*;
    let mut compared = 0;
    for op in [Add, Sub, Mul, Div, Mod, Or, And, Xor, Lsh, Rsh, Arsh] {
        for width in [Width::W32, Width::W64] {
            for form in FORMS {
                let program = table(&format!("{op:?}_{width:?}"), form, |f, a, b| f.alu(op, width, a, b));
                compared += agree(&program);
            }
        }
    }
    report("arithmetic", compared);
}

#[test]
fn comparisons() {
    use Cmp::*;
    let mut compared = 0;
    for cmp in [Eq, Ne, Gt, Ge, Lt, Le, SGt, SGe, SLt, SLe, Set] {
        for width in [Width::W32, Width::W64] {
            for form in FORMS {
                let program = table(&format!("{cmp:?}_{width:?}"), form, |f, a, b| {
                    let result = f.var();
                    f.assign(result, 0);
                    let a = match a {
                        Operand::Reg(r) => r,
                        Operand::Imm(v) => f.imm(v),
                    };
                    f.if_(cmp, width, a, b, |f| f.assign(result, 1));
                    result
                });
                compared += agree(&program);
            }
        }
    }
    report("comparisons", compared);
}

#[test]
fn one_operand() {
    let mut compared = 0;
    let sizes = [Size::B, Size::H, Size::W, Size::DW];
    for known in [false, true] {
        // The second operand chooses what is done with the first.
        let program = table("unary", (known, true), |f, a, b| {
            let a = match a {
                Operand::Reg(r) => r,
                Operand::Imm(v) => f.imm(v),
            };
            let n = EDGES.iter().position(|e| b == Operand::Imm(*e)).unwrap();
            match n {
                0..4 => f.sext(a, sizes[n]),
                4..8 => f.zext(a, sizes[n - 4]),
                8..12 => f.to_be(a, sizes[n - 8]),
                12..16 => f.swap(a, sizes[n - 12]),
                16 => f.neg(Width::W32, a),
                17 => f.neg(Width::W64, a),
                18 => f.not(Width::W32, a),
                _ => f.not(Width::W64, a),
            }
        });
        compared += agree(&program);
    }
    report("one operand", compared);
}
