//! `cargo xtask soak`: a long trace under load in the lab, and what may be left of one that was killed.
//!
//! In one guest with 2 CPUs under a load of file and network calls:
//!
//! 1. btrace traces `vfs_*` for the time asked for; its resident memory is read every ten seconds. A part of the load is reads
//!    of a size that nothing else reads, and they are counted on both sides. Now and then a second btrace traces one process that
//!    makes a known number of calls.
//! 2. Another is killed by SIGKILL while it traces, and one while it attaches; what BPF objects and hooks there are is compared
//!    with what there was before.
//!
//! In the end the kernel's log is looked at. No clock decides anything but how long it goes on.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};

use crate::Failure;
use crate::frames::Ran;
use crate::vm::{self, VmOptions};

/// Trace `vfs_*` in the lab for minutes under load: no kernel warning, memory flat, counts consistent, nothing left
/// behind by a tracer that was killed.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Kernel of the lab: 5.10, 6.1, 6.12 or 7.2
    #[arg(long, value_name = "VERSION", default_value = "6.12")]
    kernel: String,

    /// How long the trace goes on
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(2..=600))]
    minutes: u32,
}

/// Memory may grow by no more after the first minute: an allocator's slack, and names met for the first time.
const GROWTH_KIB: u64 = 512;

/// Memory is flat from here on, in seconds of the trace.
const SETTLED: f64 = 60.0;

/// Calls of each process that is traced alone.
const ALONE: u64 = 20_000;

/// Beyond the trace itself: boot, attach and detach on a busy machine, the killed ones.
const BESIDES: Duration = Duration::from_secs(900);

/// Runs the soak; gives back 1 when something was not as it must be.
pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    soak(arguments).map_err(|error| Failure::new(1, error))
}

fn soak(arguments: &Arguments) -> Result<u8> {
    let seconds = u64::from(arguments.minutes) * 60;
    eprintln!("soak: {} minutes on {}", arguments.minutes, arguments.kernel);
    let script = format!("seconds={seconds}; alone={ALONE}\n{SCRIPT}");
    let options = VmOptions {
        timeout: Duration::from_secs(seconds) + BESIDES,
        ..VmOptions::new(&arguments.kernel, script)
    };
    let outcome = vm::run(&options)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ran = Ran { status: outcome.status, stdout: text(&outcome.stdout), stderr: text(&outcome.stderr) };
    let findings = match Findings::of(&ran) {
        Ok(findings) => findings,
        Err(error) => {
            eprint!("{}{}", ran.stdout, ran.stderr);
            return Err(error);
        }
    };
    let wrong = findings.wrong();
    if !wrong.is_empty() {
        eprint!("{}{}", ran.stdout, ran.stderr);
    }
    for wrong in &wrong {
        eprintln!("soak: WRONG: {wrong}");
    }
    let verdict = if wrong.is_empty() { "ok" } else { "FAILED" };
    println!(
        "soak {} {} min: {verdict}: {}",
        arguments.kernel,
        arguments.minutes,
        findings.summary(arguments.minutes)
    );
    Ok(u8::from(!wrong.is_empty()))
}

/// What runs in the guest. It says what it finds, one line each; [`Findings`] judges. Every wait has an end.
const SCRIPT: &str = r#"
now() { cut -d ' ' -f 1 /proc/uptime; }
hooks() { wc -l </sys/kernel/tracing/enabled_functions; }
warnings() { dmesg | grep -E 'WARNING:|BUG:|Oops|general protection|rcu.*(stall|starved)|lockup|blocked for more than'; }
until_said() { for i in $(seq 1200); do grep -q "$1" "$2" 2>/dev/null && return; sleep 0.1; done; echo "never said: $1" >&2; exit 99; }
ended() { for i in $(seq 3000); do kill -0 $1 2>/dev/null || break; sleep 0.1; done; kill -9 $1 2>/dev/null && echo "had to be killed" >&2; wait $1; }

# Files and connections until /tmp/stop is there; the reads of SIZE bytes made so far in /tmp/reads.NAME.
load() {
    n=0
    until [ -e /tmp/stop ]; do
        workloads read-zero 500 $2 || echo "load failed" >&2
        n=$((n + 500)); echo $n >/tmp/reads.$1
        mkdir -p /tmp/load.$1/a/b
        dd if=/dev/zero of=/tmp/load.$1/a/file bs=16k count=64 2>/dev/null
        cat /tmp/load.$1/a/file >/tmp/load.$1/a/b/copy; ls -lR /tmp/load.$1 >/dev/null; rm -r /tmp/load.$1
        workloads connect-loopback 50 >/dev/null || echo "load failed" >&2
        workloads threads 2 200; workloads exec-true 2; workloads open-missing 100 /no/such/file
    done
}
loads() { rm -f /tmp/stop; load 1 $1 & l1=$!; load 2 $1 & l2=$!; }
no_loads() { : >/tmp/stop; ended $l1; ended $l2; }

# One process, all of whose reads are known, traced by a btrace of its own that ends with it.
alone() {
    rm -f /tmp/pid /tmp/said.alone
    workloads --pid --wait read-zero $alone 512 >/tmp/pid & w=$!; until_said '[0-9]' /tmp/pid
    btrace -k vfs_read --filter-pid $w -o /dev/null 2>/tmp/said.alone & e=$!; until_said running /tmp/said.alone
    kill -USR1 $w; ended $w; ended $e; echo "alone $? $(grep ' printed, ' /tmp/said.alone)"
}

# Waits until there is what there was before, or says what there is.
left() {
    for i in $(seq 600); do
        workloads bpf-objects >/tmp/after
        if cmp -s /tmp/before /tmp/after && [ "$(hooks)" = "$hooks" ]; then echo "left nothing"; return; fi
        sleep 0.1
    done
    echo "left $(hooks) hooks and $(tr '\n' ',' </tmp/after) of $hooks and $(tr '\n' ',' </tmp/before)"
}

workloads bpf-objects >/tmp/before || exit; hooks=$(hooks) || exit; warned=$(warnings | wc -l)

mkfifo /tmp/events
workloads tally 'vfs_read args=' count=4099, </tmp/events >/tmp/tally & t=$!
loads 4097
btrace -k 'vfs_*' >/tmp/events 2>/tmp/said & b=$!; until_said running /tmp/said
# Attached under load; the reads that are known are those from here on.
no_loads; loads 4099
start=$(now); i=0
while sleep 10; kill -0 $b 2>/dev/null; do
    echo "rss $(now) $start $(grep VmRSS /proc/$b/status | tr -dc 0-9)"
    i=$((i + 1)); [ $((i % 3)) = 0 ] && alone
    now | grep -q . && [ $(now | cut -d . -f 1) -ge $((${start%.*} + seconds)) ] && break
done
workloads bpf-objects | cut -d ' ' -f 1 | sort | uniq -c | tr '\n' ' ' | sed 's/^/held /'; echo
no_loads
kill -INT $b; ended $b; echo "status $?"; grep ' printed, ' /tmp/said | sed 's/^/summary /'
ended $t; echo "tally $(tr '\n' ' ' </tmp/tally)"; echo "reads $(cat /tmp/reads.1) $(cat /tmp/reads.2)"
left

loads 4097
rm -f /tmp/said; btrace -k 'vfs_*' -o /dev/null 2>/tmp/said & b=$!; until_said running /tmp/said; sleep 5
echo "during $(hooks) hooks, $(workloads bpf-objects | wc -l) objects"
kill -9 $b; wait $b 2>/dev/null; echo "killed $?"; left
btrace -k 'vfs_*,ip_*' -o /dev/null 2>/dev/null & b=$!; for i in $(seq 100); do [ $(workloads bpf-objects | wc -l) -gt $(($(wc -l </tmp/before) + 3)) ] && break; done
kill -9 $b; wait $b 2>/dev/null; echo "killed $?"; left
no_loads
warnings | tail -n +$((warned + 1)) | sed 's/^/warned /'
echo end
"#;

/// What a btrace said at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Summary {
    printed: u64,
    lost: u64,
    /// Calls while the probe was running on that CPU.
    unseen: u64,
}

impl Summary {
    /// From the line that says so.
    fn of(line: &str) -> Result<Summary> {
        let number = |words: &[&str]| {
            words
                .iter()
                .find_map(|word| {
                    line.split_once(word).and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok())
                })
                .with_context(|| format!("no number before {words:?} in {line:?}"))
        };
        Ok(Summary {
            printed: number(&[" events printed", " event printed"])?,
            lost: number(&[" lost"])?,
            unseen: if line.contains(" not seen") {
                number(&[" calls not seen", " call not seen"])?
            } else {
                0
            },
        })
    }

    /// Whether `made` calls can have come to this, of which `printed` were printed.
    fn accounts_for(&self, made: u64, printed: u64) -> bool {
        printed <= made && made <= printed + self.lost + self.unseen
    }
}

/// Everything that the guest said.
#[derive(Debug)]
struct Findings {
    /// Resident memory: seconds of the trace, KiB.
    memory: Vec<(f64, u64)>,
    /// Of the tracers of one process: exit status and summary.
    alone: Vec<(u8, Summary)>,
    status: u8,
    summary: Summary,
    /// Lines that came out, those of vfs_read, and those of the reads that are known.
    tally: [u64; 3],
    /// Reads that are known.
    reads: u64,
    /// BPF objects while the trace went on.
    held: String,
    /// What the killed ones held, and how they ended.
    during: String,
    killed: Vec<String>,
    /// What was left, of all three.
    left: Vec<String>,
    warned: Vec<String>,
    /// What the guest said on stderr.
    said: String,
}

impl Findings {
    fn of(ran: &Ran) -> Result<Findings> {
        ensure!(
            ran.status == 0 && ran.stdout.trim_end().ends_with("\nend"),
            "the guest's script ended early, status {}",
            ran.status
        );
        let all = |word: &str| -> Vec<&str> {
            ran.stdout.lines().filter_map(|l| l.strip_prefix(word)?.strip_prefix(' ')).collect()
        };
        let one = |word: &str| match all(word).as_slice() {
            [line] => Ok(*line),
            lines => Err(anyhow!("{} lines of {word:?}", lines.len())),
        };
        let memory = all("rss").into_iter().map(|line| {
            let mut numbers = line.split(' ').filter_map(|n| n.parse::<f64>().ok());
            match (numbers.next(), numbers.next(), numbers.next()) {
                (Some(now), Some(start), Some(kib)) => Ok((now - start, kib as u64)),
                _ => Err(anyhow!("memory: {line:?}")),
            }
        });
        let alone = all("alone").into_iter().map(|line| {
            let (status, line) = line.split_once(' ').context("alone")?;
            Ok((status.parse()?, Summary::of(line)?))
        });
        let tally: Vec<u64> = numbers(one("tally")?);
        Ok(Findings {
            memory: memory.collect::<Result<_>>()?,
            alone: alone.collect::<Result<_>>()?,
            status: one("status")?.parse()?,
            summary: Summary::of(one("summary")?)?,
            tally: tally.as_slice().try_into().context("three tallies")?,
            reads: numbers(one("reads")?).iter().sum(),
            held: one("held")?.split_ascii_whitespace().collect::<Vec<_>>().join(" "),
            during: one("during")?.to_string(),
            killed: all("killed").into_iter().map(str::to_string).collect(),
            left: all("left").into_iter().map(str::to_string).collect(),
            warned: all("warned").into_iter().map(str::to_string).collect(),
            said: ran.stderr.clone(),
        })
    }

    /// Memory when it has settled, and the most there was then.
    fn settled(&self) -> Option<(u64, u64)> {
        let settled: Vec<u64> = self.memory.iter().filter(|(at, _)| *at >= SETTLED).map(|m| m.1).collect();
        Some((*settled.first()?, *settled.iter().max()?))
    }

    /// What is not as it must be, a line each.
    fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut must = |fine: bool, else_: String| {
            if !fine {
                wrong.push(else_);
            }
        };
        must(self.status == 0, format!("btrace ended with {}", self.status));
        match self.settled() {
            Some((first, most)) => must(
                most <= first + GROWTH_KIB,
                format!("memory grew from {first} to {most} KiB after the first minute"),
            ),
            None => must(false, "no memory was read after the first minute".into()),
        }
        let [lines, vfs_read, known] = self.tally;
        must(
            lines == self.summary.printed,
            format!("{lines} lines came, and {} are said to be printed", self.summary.printed),
        );
        must(known > 0 && vfs_read >= known, format!("{vfs_read} vfs_read, {known} of the known ones"));
        must(
            self.summary.accounts_for(self.reads, known),
            format!("{} known reads, {known} of them printed: {:?}", self.reads, self.summary),
        );
        must(!self.alone.is_empty(), "no process was traced alone".into());
        for (status, summary) in &self.alone {
            let seen = summary.printed + summary.lost;
            must(
                *status == 0 && seen <= ALONE && ALONE <= seen + summary.unseen,
                format!("{ALONE} calls of a process traced alone: status {status}, {summary:?}"),
            );
        }
        must(
            !numbers(&self.during).contains(&0) && numbers(&self.during).len() == 2,
            format!("the one to be killed held nothing: {}", self.during),
        );
        must(
            self.killed == ["137", "137"],
            format!("killed by SIGKILL, and ended with {}", self.killed.join(", ")),
        );
        must(self.left.len() == 3, format!("{} of 3 looks at what was left", self.left.len()));
        for left in self.left.iter().filter(|l| *l != "nothing") {
            must(false, format!("left behind: {left}"));
        }
        for line in &self.warned {
            must(false, format!("the kernel said: {line}"));
        }
        must(self.said.is_empty(), format!("the guest said: {}", self.said.trim()));
        wrong
    }

    fn summary(&self, minutes: u32) -> String {
        let (first, most) = self.settled().unwrap_or_default();
        let Summary { printed, lost, unseen } = self.summary;
        let alone =
            self.alone.iter().fold((0, 0, 0), |(p, l, u), (_, s)| (p + s.printed, l + s.lost, u + s.unseen));
        format!(
            "{printed} printed ({}/s), {lost} lost, {unseen} not seen; of {} known reads {} printed; {} processes alone, {} calls: {} printed, \
             {} lost, {} not seen; memory {first} KiB after a minute, at most {most}; held {}; killed: {}, left {}; {} kernel warnings",
            printed / (u64::from(minutes) * 60).max(1),
            self.reads,
            self.tally[2],
            self.alone.len(),
            self.alone.len() as u64 * ALONE,
            alone.0,
            alone.1,
            alone.2,
            self.held,
            self.during,
            self.left.join("/"),
            self.warned.len(),
        )
    }
}

/// The decimal numbers among the words.
fn numbers(text: &str) -> Vec<u64> {
    text.split_ascii_whitespace().filter_map(|w| w.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(change: impl Fn(String) -> String) -> Ran {
        let stdout = "rss 100.5 90.0 9000\nrss 151.0 90.0 9700\nalone 0 btrace: 19990 events printed, 6 lost (a larger \
             --buffer-size or a narrower filter loses fewer), 4 calls not seen: the probe was running on that CPU already\n\
             rss 160.0 90.0 9710\nheld 3 link 4 map 2 program\nstatus 0\nsummary btrace: 1000 events printed, 10 lost, 1 call \
             not seen: x\ntally 1000 700 495\nreads 300 200\nleft nothing\nduring 66 hooks, 9 objects\nkilled 137\nleft \
             nothing\nkilled 137\nleft nothing\nend\n";
        Ran { status: 0, stdout: change(stdout.to_string()), stderr: String::new() }
    }

    #[test]
    fn a_good_soak() {
        let findings = Findings::of(&ran(|s| s)).unwrap();
        assert_eq!(findings.wrong(), Vec::<String>::new());
        assert_eq!(findings.settled(), Some((9700, 9710)));
        assert_eq!(findings.alone, [(0, Summary { printed: 19990, lost: 6, unseen: 4 })]);
        assert_eq!(findings.summary, Summary { printed: 1000, lost: 10, unseen: 1 });
    }

    #[test]
    fn each_defect_is_told() {
        for (from, to, told) in [
            ("0 9710", "0 10500", "memory grew"),
            ("tally 1000", "tally 999", "999 lines came"),
            ("tally 1000 700 495", "tally 1000 700 488", "known reads"),
            ("tally 1000 700 495", "tally 1000 700 501", "known reads"),
            ("19990", "19989", "traced alone"),
            ("19990", "19995", "traced alone"),
            ("alone 0", "alone 1", "traced alone"),
            ("during 66", "during 0", "held nothing"),
            ("left nothing\nend", "left 66 hooks\nend", "left behind"),
            ("left nothing\nend", "end", "2 of 3 looks"),
            ("killed 137\nleft nothing\nend", "killed 2\nleft nothing\nend", "SIGKILL"),
            ("end\n", "warned [1.0] WARNING: CPU\nend\n", "the kernel said"),
            ("status 0", "status 1", "ended with 1"),
        ] {
            let findings = Findings::of(&ran(|s| s.replacen(from, to, 1))).unwrap();
            let wrong = findings.wrong();
            assert!(wrong.len() == 1 && wrong[0].contains(told), "{from} -> {to}: {wrong:?}");
        }
        assert!(Findings::of(&ran(|s| s.replace("end\n", ""))).is_err());
        assert!(Findings::of(&ran(|s| s.replace("summary", "x"))).is_err());
    }
}
