//! Expressions computed by the oracle and by the running kernel: equal, on every one.
//!
//! `EXPR_CASES=n` sets how many programs of generated expressions are made (400 without it).
#![allow(clippy::unwrap_used, missing_docs)]

mod common;

use asm::Cpu;
use common::World;
use common::generate;
use common::image::Image;
use common::run::{self, Machine, TEXT};
use common::table::{OUTPUTS, TESTS, VALUES};
use expr::tree::{Output, Statement};
use expr::{Failure, eval};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::RefCell;

/// What has been compared.
#[derive(Debug, Default)]
struct Tally {
    equal: usize,
    /// NULL on the way.
    null: usize,
    /// What could not be read.
    faults: usize,
    holds: usize,
    /// Reads memory of which the oracle does not know what is there.
    unknown: usize,
}

fn read(world: &World, text: &str) -> Result<Output, String> {
    match expr::output(text, &world.scope()) {
        Ok(Statement::Output(output)) => Ok(output),
        Ok(Statement::Aggregate(_)) => Err(format!("{text}: an aggregate")),
        Err(error) => Err(format!("{error}\n{}", error.point(text))),
    }
}

/// Outputs by one program against the oracle.
fn compare_outputs(
    world: &World,
    machine: &Machine,
    image: &Image,
    texts: &[String],
    cpu: Cpu,
    tally: &mut Tally,
) -> Result<(), String> {
    let types = world.scope().types;
    let mut all = Vec::new();
    let mut wanted = Vec::new();
    for text in texts {
        let output = read(world, text)?;
        let len = match &output {
            Output::Value(place) => types.size(&place.ty).unwrap() as u32,
            _ => 0,
        };
        let value = eval::output(&output, image, TEXT, len);
        if image.unknown.replace(false) {
            tally.unknown += 1;
            continue;
        }
        wanted.push(value);
        all.push((text.clone(), output));
    }
    let got = machine.outputs(world, &all, cpu)?;
    for (((text, output), wanted), got) in all.iter().zip(wanted).zip(got) {
        let same = match (&wanted, &got) {
            (Ok(wanted), Ok(got)) => got.starts_with(wanted),
            // A read that fails in the kernel's memory may have been tried in user memory too, with an error of its own.
            (Err(wanted), Err(got)) => {
                wanted == got
                    || (wanted.span == got.span && (wanted.errno, got.errno) == (Some(34), Some(14)))
            }
            _ => false,
        };
        if !same {
            return Err(format!(
                "{text}: the oracle {wanted:x?}, the kernel {got:x?}\n{output:?}\n{texts:?}"
            ));
        }
        match wanted {
            Ok(_) => tally.equal += 1,
            Err(Failure { errno: None, .. }) => tally.null += 1,
            Err(_) => tally.faults += 1,
        }
    }
    Ok(())
}

fn compare_filter(
    world: &World,
    machine: &Machine,
    image: &Image,
    text: &str,
    cpu: Cpu,
    tally: &mut Tally,
) -> Result<(), String> {
    let test = expr::filter(text, &world.scope()).map_err(|e| format!("{e}\n{}", e.point(text)))?;
    let wanted = eval::test(&test, image);
    if image.unknown.replace(false) {
        tally.unknown += 1;
        return Ok(());
    }
    let got = machine.filter(&test, text, cpu)?;
    if wanted != got {
        return Err(format!("{text}: the oracle {wanted}, the kernel {got}\n{test:?}"));
    }
    tally.equal += 1;
    tally.holds += usize::from(wanted);
    Ok(())
}

macro_rules! skip_unless_loadable {
    () => {
        if let Some(why) = run::refusal() {
            println!("SKIP: this machine loads no BPF programs: {why}");
            return;
        }
    };
}

#[test]
fn written() {
    skip_unless_loadable!();
    for world in common::worlds() {
        written_of(&world);
    }
}

fn written_of(world: &World) {
    let machine = Machine::new();
    let mut tally = Tally::default();
    let mut wrong = Vec::new();
    let values = VALUES.iter().filter(|(_, ty)| *ty != "!").map(|(text, _)| *text);
    let outputs: Vec<String> = values.chain(OUTPUTS.iter().copied()).map(String::from).collect();
    for (seed, cpu) in (1..4).zip(run::cpus().into_iter().cycle()) {
        let image = Image::new(world, machine.base, seed, false);
        machine.set(&image);
        // Alone, and so many in one program that they share what they read.
        for size in [1, 12] {
            for some in outputs.chunks(size) {
                wrong.extend(compare_outputs(world, &machine, &image, some, cpu, &mut tally).err());
            }
        }
        for text in TESTS {
            wrong.extend(compare_filter(world, &machine, &image, text, cpu, &mut tally).err());
        }
    }
    println!("{} outputs and {} filters: {tally:?}", outputs.len(), TESTS.len());
    assert!(wrong.is_empty(), "{} wrong: {}", wrong.len(), wrong[..wrong.len().min(12)].join("\n"));
    assert!(tally.null > 50 && tally.faults > 50 && tally.equal > 2000, "{tally:?}");
}

/// Outputs of one program, and a filter.
#[derive(Clone, Debug)]
struct Case {
    outputs: Vec<String>,
    filter: String,
    seed: u64,
    v4: bool,
}

#[test]
fn generated() {
    skip_unless_loadable!();
    let cases = std::env::var("EXPR_CASES").map_or(400, |n| n.parse().unwrap());
    let worlds = common::worlds();
    let machine = Machine::new();
    let cpus = run::cpus();
    let tally = RefCell::new(Tally::default());
    let case =
        (proptest::collection::vec(generate::output(), 1..6), generate::test(), any::<u64>(), any::<bool>())
            .prop_map(|(outputs, filter, seed, v4)| Case { outputs, filter, seed, v4 });
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2000, ..Config::default() };
    let result = TestRunner::new(config).run(&case, |case| {
        let world = &worlds[(case.seed >> 32) as usize % worlds.len()];
        let image = Image::new(world, machine.base, case.seed, false);
        machine.set(&image);
        let cpu = cpus[usize::from(case.v4) % cpus.len()];
        let tally = &mut tally.borrow_mut();
        compare_outputs(world, &machine, &image, &case.outputs, cpu, tally).map_err(TestCaseError::fail)?;
        compare_filter(world, &machine, &image, &case.filter, cpu, tally).map_err(TestCaseError::fail)
    });
    println!("{cases} programs of outputs and filters: {:?}", tally.borrow());
    if let Err(error) = result {
        panic!("{error}");
    }
    let tally = tally.borrow();
    let all = tally.equal + tally.null + tally.faults;
    assert!(
        cases < 400 || (all > 1000 && tally.unknown < all / 4 && tally.null > 0 && tally.faults > 0),
        "{tally:?}"
    );
}
