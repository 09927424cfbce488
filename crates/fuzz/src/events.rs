//! Records: whatever a probe's record holds, it is a line of text and an object of JSON.

use crate::Fuzz;
use crate::random::Random;
use btrace::clock::Clock;
use btrace::render::{Renderer, Style};
use std::path::Path;
use trace::{Event, Filter, Kernel, Mode, Plan, Probe, Request, TargetKind, TargetSpec};

/// Functions whose layouts are unlike each other, of those that most kernels have.
const FUNCTIONS: &str = "{vfs,tcp,ip,bpf,nf,do_sys,security,sk,skb,kmem_cache,__x64_sys_o}*";

/// Probes with their layouts, and both ways to render.
pub struct EventFuzz {
    probes: Vec<Probe>,
    text: Renderer,
    json: Renderer,
}

impl EventFuzz {
    /// Plans a trace of many functions and tracepoints, of this kernel if it shows its types.
    pub fn new() -> anyhow::Result<EventFuzz> {
        let mut probes = small()?;
        match Kernel::running() {
            Ok(kernel) => {
                for mode in [Mode::Both, Mode::Entry] {
                    probes.extend(plan(&kernel, FUNCTIONS, mode)?);
                }
            }
            Err(error) => eprintln!("fuzz: SKIP the running kernel's layouts: {error}"),
        }
        let renderer = |json| {
            let style = Style { json, colour: false, verbose: true };
            anyhow::Ok(Renderer::new(style, &probes, Clock::new()?, Default::default(), None))
        };
        Ok(EventFuzz { text: renderer(false)?, json: renderer(true)?, probes })
    }
}

fn small() -> anyhow::Result<Vec<Probe>> {
    let kernel = Kernel::new(btf::Btf::from_bytes(crate::btf::kernel())?, Path::new("/nowhere"))?;
    plan(&kernel, "*", Mode::Both)
}

fn plan(kernel: &Kernel, functions: &str, mode: Mode) -> anyhow::Result<Vec<Probe>> {
    let request = Request {
        programs: Vec::new(),
        pointees: true,
        targets: vec![
            TargetSpec::new(TargetKind::Function, functions, false)?,
            TargetSpec::new(TargetKind::Tracepoint, "*", false)?,
        ],
        mode,
        filter: Filter::default(),
        expressions: Default::default(),
        force: true,
        path: None,
        stack: mode == Mode::Both,
        branches: mode == Mode::Both,
        string_size: 64,
        ring_size: 1 << 16,
    };
    Ok(Plan::new(kernel, &request)?.probes)
}

impl Fuzz for EventFuzz {
    fn run(&mut self, random: &mut Random) -> Result<(), String> {
        let record = self.record(random);
        let Some(event) = Event::new(&self.probes, &record) else { return Ok(()) };
        let (mut text, mut json) = (Vec::new(), Vec::new());
        self.text.event(&event, &mut text);
        self.json.event(&event, &mut json);
        let name = || event.probe.target.label();
        let text = std::str::from_utf8(&text).map_err(|e| format!("{}: text is not UTF-8: {e}", name()))?;
        if !text.ends_with('\n') || text.chars().any(|c| c.is_control() && c != '\n') {
            return Err(format!("{}: not lines of printable text: {text:?}", name()));
        }
        if event.stack().is_none() && event.branches().is_none() && text.lines().count() != 1 {
            return Err(format!("{}: {} lines: {text:?}", name(), text.lines().count()));
        }
        let line = json.strip_suffix(b"\n").filter(|line| !line.contains(&b'\n'));
        let line = line.ok_or_else(|| format!("{}: JSON is not one line", name()))?;
        let object: serde_json::Value = serde_json::from_slice(line)
            .map_err(|e| format!("{}: {e}: {}", name(), String::from_utf8_lossy(line)))?;
        match object["args"].as_array() {
            Some(args) if args.len() == event.probe.layout.args.len() => Ok(()),
            _ => Err(format!("{}: not all arguments are there: {object}", name())),
        }
    }
}

impl EventFuzz {
    /// A record for some probe: of the right length or not, its bytes random, zero, small numbers or text.
    fn record(&self, random: &mut Random) -> Vec<u8> {
        // Now and then a probe that there is not.
        let beyond = usize::from(random.one_in(50));
        let index = random.below(self.probes.len() + beyond);
        let size = self.probes.get(index).map_or(64, |p| p.layout.size) as usize;
        let mut record = Vec::with_capacity(size + 1024);
        while record.len() < size + 1024 {
            let word = match random.below(6) {
                0 => random.next(),
                1 => 0,
                2 => random.number(),
                // Lengths of texts and stacks, and errors.
                3 => random.below(80) as u64,
                4 => -(random.below(200) as i64) as u64,
                _ => u64::from_le_bytes([(); 8].map(|()| b' ' + random.below(95) as u8)),
            };
            record.extend_from_slice(&word.to_ne_bytes());
        }
        // u32 at byte 8: the probe.
        if let Some(probe) = record.get_mut(8..12) {
            probe.copy_from_slice(&(index as u32).to_ne_bytes());
        }
        let len = match random.below(8) {
            0 => random.below(size + 1),
            1 => size,
            _ => size + 8 * random.below(128),
        };
        record.truncate(len);
        record
    }
}
