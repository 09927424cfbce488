//! Types of the lab's kernels: printed in the guest, and held against what pahole says of the same BTF here.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};

use serde_json::Value;

use super::Check;
use super::judging::NO_MODULE_TYPES;
use super::pahole;
use crate::apt;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "types: every struct and union as pahole has it",
        command: r"
            btrace types 'struct *,union *' >/tmp/types || exit
            gzip -c /tmp/types | base64; echo .; gzip -c /sys/kernel/btf/vmlinux | base64",
        judge: |ran| {
            ensure!(ran.status == 0 && ran.stderr.is_empty(), "{} {}", ran.status, ran.stderr);
            apt::ensure(&[("pahole", "pahole")])?;
            let (types, btf) = ran.stdout.split_once("\n.\n").context("two parts")?;
            let ours = String::from_utf8(unpacked(types)?).context("types")?;
            let mut file = tempfile::NamedTempFile::new().context("making a file")?;
            file.write_all(&unpacked(btf)?).context("writing a file")?;
            let theirs = pahole::layouts(&pahole::pahole(file.path()).map_err(|e| anyhow!(e))?);
            let (same, wrong) = pahole::compare(&pahole::layouts(&ours), &theirs);
            ensure!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), same + wrong.len(), wrong.join("\n"));
            ensure!(same > 5000, "{same} structs and unions");
            eprintln!("{same} structs and unions as pahole has them");
            Ok(())
        },
    },
    Check {
        name: "types: of a module, with its name and without; an unknown one",
        command: r"
            btrace types loop_device; btrace types --json loop:loop_device
            btrace types loop:no_such_type; btrace types loop:loop_device --expand 1 | grep -c 'struct work_struct {'",
        judge: |ran| {
            let said: Vec<&str> = ran.stderr.lines().collect();
            if ran.stdout == "0\n" {
                // Before 5.11.
                ensure!(said.len() == 4 && said[0].contains("no type is named loop_device"), "{said:?}");
                ensure!(said[1..].iter().all(|l| l.contains(NO_MODULE_TYPES)), "{said:?}");
                return Ok(());
            }
            ensure!(ran.status == 0 && said.len() == 1, "{} {said:?}", ran.status);
            ensure!(said[0].contains("no type is named no_such_type"), "{said:?}");
            let (text, rest) = ran.stdout.split_once("\n};\n").context("a definition")?;
            ensure!(text.starts_with("/* module loop */\nstruct loop_device {\n"), "{text}");
            let object = rest.lines().next().context("JSON")?;
            let object: Value = serde_json::from_str(object).context("JSON")?;
            schema::Schema::types().and_then(|schema| schema.check(&object)).map_err(|e| anyhow!(e))?;
            let size = format!("    /* size: {}, ", object["size"]);
            ensure!(object["module"] == "loop" && text.contains(&size), "{object}");
            ensure!(rest.lines().nth(1).is_some_and(|n| n != "0"), "nothing is expanded: {rest}");
            Ok(())
        },
    },
];

/// What was packed by gzip and written by base64.
fn unpacked(text: &str) -> Result<Vec<u8>> {
    let mut packed = tempfile::tempfile().context("making a file")?;
    packed.write_all(text.as_bytes()).context("writing a file")?;
    std::io::Seek::rewind(&mut packed).context("reading a file")?;
    let output = Command::new("sh")
        .args(["-c", "base64 -d | gzip -d"])
        .stdin(Stdio::from(packed))
        .output()
        .context("running base64 and gzip")?;
    ensure!(output.status.success(), "gzip: {}", String::from_utf8_lossy(&output.stderr));
    Ok(output.stdout)
}
