//! Several commands in one boot: each is run on its own, and what it wrote and how it ended comes back apart.
//!
//! The guest's stdout carries, for each command, a line `@@ STATUS STDOUT-BYTES STDERR-BYTES`, then those bytes.

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
    let mut script = String::new();
    for (index, command) in commands.iter().enumerate() {
        // A here-document keeps the command's own quotes.
        script.push_str(&format!(
            "cat >/tmp/frame.sh <<'END_OF_FRAME_{index}'\n{command}\nEND_OF_FRAME_{index}\n\
             echo 'lab: command {index}' >/dev/kmsg\n\
             timeout -k 5 {LONGEST} sh /tmp/frame.sh >/tmp/frame.out 2>/tmp/frame.err; s=$?\n\
             [ $s = 143 ] && {{ killall -9 btrace workloads; echo 'the lab ended it after {LONGEST} s'; }} >>/tmp/frame.err 2>&1\n\
             echo \"@@ $s $(stat -c %s /tmp/frame.out) $(stat -c %s /tmp/frame.err)\"\n\
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

fn parse(mut bytes: &[u8]) -> Result<Vec<Ran>> {
    let mut ran = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|b| *b == b'\n').context("a frame without its first line")?;
        let (line, rest) = bytes.split_at(end + 1);
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_ascii_whitespace();
        let mut number = || -> Result<usize> { Ok(words.next().unwrap_or_default().parse()?) };
        if !line.starts_with("@@ ") {
            bail!("not the start of a frame: {line:?}");
        }
        let _ = number();
        let (status, out, err) = (number()?, number()?, number()?);
        let whole = out.checked_add(err).filter(|n| *n <= rest.len()).context("a frame that is cut short")?;
        let (out, err) = (&rest[..out], &rest[out..whole]);
        ran.push(Ran {
            status: u8::try_from(status)?,
            stdout: String::from_utf8_lossy(out).into_owned(),
            stderr: String::from_utf8_lossy(err).into_owned(),
        });
        bytes = &rest[whole..];
    }
    Ok(ran)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_apart() {
        let ran = parse(b"@@ 0 3 2\nab\ner@@ 7 0 0\n").unwrap();
        assert_eq!((ran[0].status, ran[0].stdout.as_str(), ran[0].stderr.as_str()), (0, "ab\n", "er"));
        assert_eq!((ran[1].status, ran[1].stdout.as_str()), (7, ""));
        assert!(parse(b"").unwrap().is_empty());
    }

    #[test]
    fn broken_frames_are_errors() {
        for bad in
            [&b"@@ 0 3 2\nab"[..], b"x\n", b"@@ 0 0", b"@@ 999 0 0\n", b"@@ 0 99999999999999999999 0\n"]
        {
            assert!(parse(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
