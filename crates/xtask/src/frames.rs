//! Several commands in one boot: each is run on its own, and what it wrote and how it ended comes back apart.
//!
//! The guest's stdout carries, for each command, a line `@@ STATUS STDOUT-BYTES STDERR-BYTES BEGIN END` (seconds
//! since the boot), then those bytes.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::vm::{self, VmOptions};

/// What a command did.
#[derive(Debug)]
pub struct Ran {
    /// Exit status; 128 and the signal's number when a signal ended it.
    pub status: u8,
    /// What it wrote.
    pub stdout: String,
    /// What it wrote.
    pub stderr: String,
}

/// Seconds that a command may take in the guest, so that one that hangs fails alone. Busybox then says 143.
const LONGEST: u32 = 200;

/// Runs the commands in order in one guest; each under `sh -c`, in a subshell of its own.
///
/// # Errors
/// Whatever [`vm::run`] says, or a guest that did not answer for each command.
pub fn run(options: &VmOptions, commands: &[&str]) -> Result<Vec<Ran>> {
    Ok(timed(options, commands)?.into_iter().map(|(ran, _)| ran).collect())
}

/// The same, and with each how long it took by the guest's clock.
///
/// # Errors
/// Those of [`run`].
pub fn timed(options: &VmOptions, commands: &[&str]) -> Result<Vec<(Ran, Duration)>> {
    let mut script = String::new();
    for (index, command) in commands.iter().enumerate() {
        // A here-document keeps the command's own quotes.
        script.push_str(&format!(
            "cat >/tmp/frame.sh <<'END_OF_FRAME_{index}'\n{command}\nEND_OF_FRAME_{index}\n\
             echo 'lab: command {index}' >/dev/kmsg\n\
             read begin _ </proc/uptime\n\
             timeout -k 5 {LONGEST} sh /tmp/frame.sh >/tmp/frame.out 2>/tmp/frame.err; s=$?\n\
             [ $s = 143 ] && {{ killall -9 btrace workloads; echo 'the lab ended it after {LONGEST} s'; }} >>/tmp/frame.err 2>&1\n\
             read end _ </proc/uptime\n\
             echo \"@@ $s $(stat -c %s /tmp/frame.out) $(stat -c %s /tmp/frame.err) $begin $end\"\n\
             cat /tmp/frame.out /tmp/frame.err\n"
        ));
    }
    let outcome = vm::run(&VmOptions { command: script, ..options.clone() })?;
    let ran = parse(&outcome.stdout)?;
    if ran.len() != commands.len() {
        bail!("{} of {} commands answered", ran.len(), commands.len());
    }
    Ok(ran)
}

fn parse(mut bytes: &[u8]) -> Result<Vec<(Ran, Duration)>> {
    let mut ran = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|b| *b == b'\n').context("a frame without its first line")?;
        let (line, rest) = bytes.split_at(end + 1);
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_ascii_whitespace();
        if !line.starts_with("@@ ") {
            bail!("not the start of a frame: {line:?}");
        }
        words.next();
        let mut number = || -> Result<usize> { Ok(words.next().unwrap_or_default().parse()?) };
        let (status, out, err) = (number()?, number()?, number()?);
        let mut seconds = || -> Result<f64> { Ok(words.next().unwrap_or_default().parse()?) };
        let (begin, end) = (seconds()?, seconds()?);
        let took = Duration::try_from_secs_f64(end - begin).context("the guest's clock")?;
        let whole = out.checked_add(err).filter(|n| *n <= rest.len()).context("a frame that is cut short")?;
        let (out, err) = (&rest[..out], &rest[out..whole]);
        let done = Ran {
            status: u8::try_from(status)?,
            stdout: String::from_utf8_lossy(out).into_owned(),
            stderr: String::from_utf8_lossy(err).into_owned(),
        };
        ran.push((done, took));
        bytes = &rest[whole..];
    }
    Ok(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_apart() {
        let ran = parse(b"@@ 0 3 2 1.50 3.75\nab\ner@@ 7 0 0 3.75 3.75\n").unwrap();
        let (ran, took): (Vec<Ran>, Vec<Duration>) = ran.into_iter().unzip();
        assert_eq!((ran[0].status, ran[0].stdout.as_str(), ran[0].stderr.as_str()), (0, "ab\n", "er"));
        assert_eq!(took, [Duration::from_millis(2250), Duration::ZERO]);
        assert_eq!((ran[1].status, ran[1].stdout.as_str()), (7, ""));
        assert!(parse(b"").unwrap().is_empty());
    }

    #[test]
    fn broken_frames_are_errors() {
        for bad in [
            &b"@@ 0 3 2 1 2\nab"[..],
            b"x\n",
            b"@@ 0 0",
            b"@@ 999 0 0 1 2\n",
            b"@@ 0 99999999999999999999 0 1 2\n",
            b"@@ 0 0 0\n",
            b"@@ 0 0 0 2 1\n",
            b"@@ 0 0 0 1 nan\n",
        ] {
            assert!(parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
