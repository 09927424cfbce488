//! The machine code of programs that are in the kernel, and the source lines that they were loaded with.

use crate::error::Result;
use crate::prog::Program;
use crate::sys::{ProgInfoRaw, addr_mut};

/// Where the kernel put a program's machine code (`struct bpf_prog_info`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Jited {
    /// Its BTF object, which has the texts; 0 when it was loaded without.
    pub btf_id: u32,
    /// Its functions, the main one first: address and bytes of machine code. Empty when it is not compiled, or where
    /// the kernel hides addresses (kernel.kptr_restrict).
    pub functions: Vec<(u64, u32)>,
    /// Its lines, in the order of its instructions. Empty when it was loaded without line_info, too.
    pub lines: Vec<JitedLine>,
}

/// The first instruction of a source line (`struct bpf_line_info`, and the address that belongs to it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitedLine {
    /// Address of its machine code.
    pub address: u64,
    /// Index of the BPF instruction, as translated by the verifier.
    pub instruction: u32,
    /// File name: offset in the BTF's strings.
    pub file: u32,
    /// The line's text: offset in the BTF's strings.
    pub text: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1; 0 when not known.
    pub column: u32,
}

/// Most functions of a program (`BPF_MAX_SUBPROGS`, and room to spare), and most lines (`BPF_COMPLEXITY_LIMIT_INSNS`).
const MOST_FUNCTIONS: u32 = 4096;
const MOST_LINES: u32 = 1_000_000;

/// Bytes of a line_info record that this crate reads.
const LINE_INFO: u32 = 16;

impl Program {
    /// Where its machine code lies, and where in it each source line begins (BPF_OBJ_GET_INFO_BY_FD).
    pub fn jited(&self) -> Result<Jited> {
        let mut raw = ProgInfoRaw::default();
        self.fill(&mut raw)?;
        let functions = raw.nr_jited_ksyms.min(raw.nr_jited_func_lens);
        let lines = raw.nr_line_info.min(raw.nr_jited_line_info);
        let size = raw.line_info_rec_size;
        let functions = if functions <= MOST_FUNCTIONS { functions } else { 0 };
        let lines = if lines <= MOST_LINES && (LINE_INFO..=1024).contains(&size) { lines } else { 0 };
        let mut starts = vec![0u64; functions as usize];
        let mut lengths = vec![0u32; functions as usize];
        let mut records = vec![0u8; lines as usize * size as usize];
        let mut addresses = vec![0u64; lines as usize];
        let mut again = ProgInfoRaw {
            jited_ksyms: addr_mut(&mut starts),
            nr_jited_ksyms: functions,
            jited_func_lens: addr_mut(&mut lengths),
            nr_jited_func_lens: functions,
            line_info: addr_mut(&mut records),
            nr_line_info: lines,
            line_info_rec_size: if lines > 0 { size } else { 0 },
            jited_line_info: addr_mut(&mut addresses),
            nr_jited_line_info: lines,
            jited_line_info_rec_size: if lines > 0 { size_of::<u64>() as u32 } else { 0 },
            ..Default::default()
        };
        self.fill(&mut again)?;
        let word = |record: &[u8], at: usize| {
            record.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
        };
        // The kernel takes a buffer's address back when it writes nothing to it.
        let functions = if again.jited_ksyms != 0 && again.jited_func_lens != 0 {
            starts.into_iter().zip(lengths).filter(|(start, _)| *start != 0).collect()
        } else {
            Vec::new()
        };
        let lines = if size > 0 && again.jited_line_info != 0 {
            let records = records.chunks_exact(size as usize).zip(addresses);
            let line = |(record, address)| JitedLine {
                address,
                instruction: word(record, 0),
                file: word(record, 4),
                text: word(record, 8),
                line: word(record, 12) >> 10,
                column: word(record, 12) & 0x3ff,
            };
            records.map(line).filter(|l| l.address != 0).collect()
        } else {
            Vec::new()
        };
        Ok(Jited { btf_id: raw.btf_id, functions, lines })
    }
}
