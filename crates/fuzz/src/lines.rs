//! ELF and DWARF: whatever the file, each address has lines or none, soon; and code, or none.

use crate::Fuzz;
use crate::random::Random;
use anyhow::{Context, ensure};
use std::process::Command;

/// What the seeds are made of: functions, inlined ones, a loop, two sections of code.
const SOURCE: &str = "volatile int counter;
static inline __attribute__((always_inline)) int inner(int n) { counter += n; return counter; }
static inline __attribute__((always_inline)) int middle(int n) { return inner(n) * inner(n + 1); }
int outer(int n) { for (int i = 0; i < n; i++) counter += middle(i); return counter; }
int __attribute__((section(\".text.unlikely\"))) cold(int n) { return n * middle(n); }
int _start(void) { return outer(counter) + cold(1); }
";

/// Good files, to be spoilt.
pub struct LinesFuzz {
    seeds: Vec<Vec<u8>>,
}

impl LinesFuzz {
    /// Linked and unlinked, DWARF 4 and 5, with and without compression, as gcc and objcopy make them.
    pub fn new() -> anyhow::Result<LinesFuzz> {
        let folder = tempfile::tempdir().context("folder")?;
        std::fs::write(folder.path().join("seed.c"), SOURCE).context("seed.c")?;
        let mut seeds = Vec::new();
        for flags in [
            &["-gdwarf-4"][..],
            &["-gdwarf-5"],
            &["-gdwarf-5", "-gz=zlib"],
            &["-gdwarf-4", "-c"],
            &["-gdwarf-5", "-c"],
        ] {
            let mut gcc = Command::new("gcc");
            gcc.current_dir(&folder).args([
                "-O2",
                "-ffreestanding",
                "-nostdlib",
                "-static",
                "-Wl,-Ttext=0x1000",
            ]);
            let output = gcc.args(flags).args(["seed.c", "-o", "seed"]).output().context("gcc")?;
            ensure!(output.status.success(), "gcc {flags:?}: {}", String::from_utf8_lossy(&output.stderr));
            seeds.push(std::fs::read(folder.path().join("seed")).context("seed")?);
        }
        Ok(LinesFuzz { seeds })
    }
}

impl Fuzz for LinesFuzz {
    fn run(&mut self, random: &mut Random) -> Result<(), String> {
        let mut bytes = random.pick(&self.seeds).cloned().unwrap_or_default();
        let spoilt = !random.one_in(64);
        if spoilt {
            random.mutate(&mut bytes);
        }
        let mut addresses: Vec<u64> = (0..16).map(|_| random.number()).collect();
        addresses.extend((0..0x200).step_by(8).flat_map(|at| [at, 0x1000 + at]));
        // A module's too are where they are asked for.
        let at = [(".text".to_string(), 0x1000), (".text.unlikely".to_string(), random.number())].into();
        let code = symbols::code_in(&bytes, &at, &addresses);
        if !spoilt && !code.is_ok_and(|read| read.iter().any(|bytes| !bytes.is_empty())) {
            return Err("a good file without code".into());
        }
        match symbols::lines::lines_in(&bytes, &addresses) {
            Ok(lines) if lines.len() != addresses.len() => Err("not an answer for each address".into()),
            Ok(lines) if !spoilt && lines.iter().all(|l| l.inlined().is_empty()) => {
                Err("a good file without inlined functions".into())
            }
            Err(error) if !spoilt => Err(format!("a good file: {error}")),
            _ => Ok(()),
        }
    }
}
