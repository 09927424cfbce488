//! Expressions in the running kernel, over an image that lies in a map.

use super::World;
use super::image::{Image, SIZE, root_at};
use asm::{Code, Cpu, Func, MapId, Options, Program, Reg, Size};
use expr::tree::{Output, Root, Test};
use expr::{Compiler, Failure, Room, Source};
use std::os::fd::{AsFd, AsRawFd};

const DATA: MapId = MapId(0);
const OUT: MapId = MapId(1);
const OUT_SIZE: u32 = 16 << 10;
/// How much of a text is read, terminator included.
pub const TEXT: u32 = 40;

/// Finds everything in the map.
#[derive(Debug)]
struct Words;

impl Source for Words {
    fn word(&self, f: &mut Func<'_>, root: Root, slot: u32) -> Reg {
        let at = f.map_value(DATA, root_at(root, slot) as u32);
        f.load(Size::DW, at, 0)
    }

    fn typed(&self, _root: Root) -> bool {
        false
    }
}

/// What came of an output: its value's bytes, or why there are none.
pub type Got = Result<Vec<u8>, Failure>;

#[derive(Debug)]
pub struct Machine {
    data: bpf::Map,
    out: bpf::Map,
    /// Where the image lies.
    pub base: u64,
}

/// Why this machine runs no programs, if it does not.
pub fn refusal() -> Option<String> {
    bpf::raise_limits();
    let mut program = Program::new("smallest", "test");
    program.main(|f| f.ret(0));
    match load(&program.assemble(&Options::default()).unwrap(), &[]) {
        Ok(_) => None,
        Err(e) if e.is_permission() => Some(e.to_string()),
        Err(e) => panic!("the smallest program is refused, and not for want of permission: {e:?}"),
    }
}

/// The instruction sets that this kernel takes: version 4 from Linux 6.6.
pub fn cpus() -> Vec<Cpu> {
    let mut signs = Program::new("signs", "test");
    signs.main(|f| {
        let time = f.call(asm::Helper::KTIME_GET_NS, &[]);
        let low = f.sext(time, Size::B);
        f.ret(low);
    });
    let takes = |cpu: &Cpu| load(&signs.assemble(&Options { cpu: *cpu }).unwrap(), &[]).is_ok();
    [Cpu::V3, Cpu::V4].into_iter().filter(takes).collect()
}

fn load(code: &Code, maps: &[&dyn AsFd]) -> bpf::Result<bpf::Program> {
    let insns = code.relocate(|m| maps[m.0 as usize].as_fd().as_raw_fd()).unwrap();
    let btf = bpf::load_btf(&code.btf)?;
    bpf::Program::load(&bpf::Load {
        btf: Some(btf.as_fd()),
        func_info: &code.func_info_raw(),
        line_info: &code.line_info_raw(),
        ..bpf::Load::new("expr", bpf::ProgType::RawTracepoint, &insns)
    })
}

impl Machine {
    pub fn new() -> Machine {
        let data = bpf::Map::create(bpf::MapType::Array, "data", 4, SIZE as u32, 1).unwrap();
        let out = bpf::Map::create(bpf::MapType::Array, "out", 4, OUT_SIZE, 1).unwrap();
        let mut machine = Machine { data, out, base: 0 };
        let mut program = Program::new("where", "test");
        program.main(|f| {
            let at = f.map_value(DATA, 0);
            f.store(Size::DW, at, 0, at);
        });
        machine.run(&program, Cpu::V3).unwrap();
        let data = machine.data.lookup(&[0; 4]).unwrap().unwrap();
        machine.base = u64::from_le_bytes(data[..8].try_into().unwrap());
        assert!(machine.base > 1 << 63, "{:x}", machine.base);
        machine
    }

    /// Fills the map.
    pub fn set(&self, image: &Image) {
        assert_eq!(image.base, self.base);
        self.data.update(&[0; 4], &image.bytes).unwrap();
    }

    fn run(&self, program: &Program, cpu: Cpu) -> Result<u32, String> {
        let code = program.assemble(&Options { cpu }).map_err(|e| e.to_string())?;
        let loaded = load(&code, &[&self.data, &self.out]).map_err(|e| {
            let log = e.log().unwrap_or_default();
            format!("{e}\n{}\n{}", &log[log.len().saturating_sub(6000)..], code.dump())
        })?;
        let run = bpf::TestRun { data: &[], ctx: &[], repeat: 0 };
        Ok(loaded.test_run(&run).map_err(|e| e.to_string())?.retval)
    }

    /// Runs outputs in one program, and gives what each left in its record.
    pub fn outputs(&self, world: &World, all: &[(String, Output)], cpu: Cpu) -> Result<Vec<Got>, String> {
        let types = world.scope().types;
        let rooms: Vec<Room> = all
            .iter()
            .scan(0, |offset, (_, output)| {
                let len = match output {
                    Output::Value(place) => types.size(&place.ty).unwrap() as u32,
                    _ => 0,
                };
                let room = Room::of(output, *offset, TEXT, len);
                *offset += room.size;
                Some(room)
            })
            .collect();
        assert!(rooms.last().is_none_or(|room| room.offset + room.size <= OUT_SIZE));
        self.out.update(&[0; 4], &[0xa5; OUT_SIZE as usize]).unwrap();
        let mut program = Program::new("outputs", "test");
        program.main(|f| {
            let record = f.map_value(OUT, 0);
            let mark = |f: &mut Func<'_>, text: &str| f.line(text, 1, 1);
            let mut compiler = Compiler::new(&Words, &mark);
            compiler.foresee([], all.iter().map(|(_, output)| output));
            for ((text, output), room) in all.iter().zip(&rooms) {
                compiler.output(f, output, text, record, *room);
            }
        });
        self.run(&program, cpu)?;
        let out = self.out.lookup(&[0; 4]).unwrap().unwrap();
        let end = rooms.last().map_or(0, |room| room.offset + room.size);
        assert!(out[end as usize..].iter().all(|byte| *byte == 0xa5), "written behind the last record");
        Ok(rooms
            .iter()
            .map(|room| {
                let record = &out[room.offset as usize..][..room.size as usize];
                let status = u64::from_le_bytes(record[..8].try_into().unwrap());
                match Failure::of(status) {
                    Some(failure) => Err(failure),
                    None => Ok(record[8..].to_vec()),
                }
            })
            .collect())
    }

    /// Runs a filter.
    pub fn filter(&self, test: &Test, text: &str, cpu: Cpu) -> Result<bool, String> {
        let mut program = Program::new("filter", "test");
        program.main(|f| {
            let mark = |f: &mut Func<'_>, text: &str| f.line(text, 1, 1);
            let mut compiler = Compiler::new(&Words, &mark);
            let all = test.clone().conjuncts();
            compiler.foresee(&all, []);
            compiler.require(f, &all, text, 1);
            f.ret(2);
        });
        match self.run(&program, cpu)? {
            1 => Ok(false),
            2 => Ok(true),
            other => Err(format!("a filter that returns {other}")),
        }
    }
}
