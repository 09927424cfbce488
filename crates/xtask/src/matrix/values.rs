//! What an event says of the object behind a pointer: sockets, addresses, paths, packets, code, BPF objects.

use super::Check;
use super::judging::{json, no_loss};
use crate::frames::Ran;
use anyhow::{Context, Result, anyhow, ensure};
use schema::Schema;
use serde_json::Value;

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "case 22: sockets: TCP over loopback, with the workload's ports, in the order that people read",
        command: r"
            btrace -k tcp_connect --mode entry -o /tmp/said-a -c 'workloads connect-loopback 20 >/tmp/said-ports'; s=$?
            cat /tmp/said-ports; cat /tmp/said-a; exit $s",
        judge: |ran| {
            let ports = ports(ran);
            ensure!(
                ran.status == 0 && ports.len() == 20,
                "status {}, {} connections",
                ran.status,
                ports.len()
            );
            for (local, remote) in ports {
                let shown = format!("{{TCP SYN_SENT 127.0.0.1:{local} -> 127.0.0.1:{remote}}}) cpu=");
                ensure!(ran.stdout.lines().filter(|l| l.contains(&shown)).count() == 1, "no {shown}");
            }
            Ok(())
        },
    },
    Check {
        name: "sockets: listening, accepted and closed, at both ends of the call, as JSON too",
        command: r"
            btrace -k inet_csk_accept -o /tmp/said-a -c 'workloads connect-loopback 5 >/tmp/said-ports'; s=$?
            cat /tmp/said-ports; cat /tmp/said-a
            btrace -k inet_csk_accept --json -c 'workloads connect-loopback 1 >/dev/null'; exit $s",
        judge: |ran| {
            let ports = ports(ran);
            ensure!(ran.status == 0 && ports.len() == 5, "{} connections", ports.len());
            for (local, remote) in &ports {
                let listening = format!("{{TCP LISTEN 127.0.0.1:{remote}}}");
                let accepted = format!("{{TCP ESTABLISHED 127.0.0.1:{remote} -> 127.0.0.1:{local}}}");
                let found = ran.stdout.lines().find(|l| l.contains(&accepted));
                ensure!(found.is_some_and(|l| l.contains(&listening)), "{listening} {accepted}");
            }
            let line = ran.stdout.lines().last().context("JSON")?;
            let event: Value = serde_json::from_str(line)?;
            let sk = &event["args"][0];
            let port = sk["pointee"]["local_port"].as_u64().context("local_port")?;
            ensure!(sk["summary"] == format!("TCP LISTEN 127.0.0.1:{port}"), "{sk}");
            let accepted = &event["retval"]["pointee"];
            ensure!(
                accepted["state"]["text"] == "ESTABLISHED" && accepted["state"]["value"] == 1,
                "{accepted}"
            );
            ensure!(accepted["local_address"]["value"] == u32::from_le_bytes([127, 0, 0, 1]), "{accepted}");
            let remote = &accepted["remote_port"];
            let raw = u16::try_from(remote["value"].as_u64().context("raw port")?)?;
            let port = raw.swap_bytes().to_string();
            ensure!(remote["text"].as_str() == Some(port.as_str()), "{remote}");
            fits(line)
        },
    },
    Check {
        name: "sockets: IPv6, and the address that is connected to",
        command: "btrace -k tcp_v6_connect -c 'timeout 5 nc ::1 7778 </dev/null 2>/dev/null; :'",
        judge: |ran| {
            no_loss(ran)?;
            let line = ran.stdout.lines().next().context("an event")?;
            let local = line.split_once("{TCP SYN_SENT [::1]:").context("local address")?.1;
            let local = local.split_once(" -> [::1]:7778}, (struct sockaddr").context("remote address")?.0;
            ensure!(local.parse::<u16>().is_ok_and(|p| p > 1024), "port {local}");
            ensure!(
                line.contains("addr=0xffff") && line.contains("{[::1]:7778}, (int)addr_len=28)"),
                "{line}"
            );
            Ok(())
        },
    },
    Check {
        name: "socket addresses in the kernel and in user memory; a socket's file; no pointee of NULL",
        command: r"
            btrace -k __sys_connect,security_socket_connect,__sys_connect_file --mode entry -o /tmp/said-a -c 'workloads connect-loopback 3 >/tmp/said-ports; logger x'
            cat /tmp/said-ports; cat /tmp/said-a
            btrace -k __dev_queue_xmit --mode entry -c 'workloads connect-loopback 3 >/dev/null'",
        judge: |ran| {
            for (_, remote) in ports(ran) {
                let address = format!("{{127.0.0.1:{remote}}}, (int)addrlen=16");
                let of = |name: &str| {
                    ran.stdout.lines().filter(|l| l.starts_with(name) && l.contains(&address)).count()
                };
                let all = ["__sys_connect ", "security_socket_connect ", "__sys_connect_file "].map(of);
                ensure!(all == [3; 3], "{all:?} with {address}");
            }
            ensure!(ports(ran).len() == 3);
            let count = |what: &str| ran.stdout.lines().filter(|l| l.contains(what)).count();
            ensure!(count("sock=0x") >= 3 && count("{TCP CLOSE 0.0.0.0:0}, ") == 3, "unconnected sockets");
            ensure!(count("{UNIX \"/dev/log\"}, (int)addrlen=") >= 1, "/dev/log");
            ensure!(
                count("(struct file *)file=0xffff") >= 3 && count("{path=\"socket:[") >= 3,
                "sockets' files"
            );
            let sent: Vec<&str> = ran.stdout.lines().filter(|l| l.starts_with("__dev_queue_xmit ")).collect();
            ensure!(sent.len() >= 9, "{} packets", sent.len());
            for line in sent {
                let shown = line.split_once("{len=").context("sk_buff")?.1;
                let (len, rest) = shown.split_once(", protocol=IP, dev=\"lo\"}, ").context("on lo")?;
                ensure!(len.parse::<u32>().is_ok_and(|l| (40..1500).contains(&l)), "{line}");
                ensure!(rest.contains("=0x0) cpu="), "NULL has no pointee: {line}");
            }
            Ok(())
        },
    },
    Check {
        name: "paths: across mounts, of what is in no tree, and too long to be whole",
        command: r"
            mkdir -p /tmp/v/a1/b2/c3/d4/e5/f6/g7/h8/i9/j10/k11/l12/m13 /tmp/v/mnt; mount -t tmpfs none /tmp/v/mnt; echo hi >/tmp/v/mnt/known
            long=$(printf '%080d' 7); echo hi >/tmp/v/$long; echo hi >/tmp/v/a1/b2/c3/d4/e5/f6/g7/h8/i9/j10/k11/l12/m13/deep
            btrace -k vfs_read -c 'for f in /tmp/v/mnt/known /tmp/v/0* /tmp/v/a1/b2/c3/d4/e5/f6/g7/h8/i9/j10/k11/l12/m13/deep /dev/zero; do dd if=$f bs=9 count=1 2>/dev/null; done | cat >/dev/null'
            btrace -k vfs_open --json -c 'cat /tmp/v/mnt/known >/dev/null'; s=$?; umount /tmp/v/mnt; exit $s",
        judge: |ran| {
            ensure!(ran.status == 0, "status {}", ran.status);
            let count = |what: &str| ran.stdout.lines().filter(|l| l.contains(what)).count();
            ensure!(count("{path=\"/tmp/v/mnt/known\"}, (char *)buf=0x") >= 1, "the file on its own mount");
            ensure!(count("{path=\"/dev/zero\"}") == 1, "devtmpfs");
            ensure!(count("{path=\"pipe:[") >= 1, "the pipe");
            let name = "0".repeat(62);
            ensure!(count(&format!("/v/{name}…\"}}")) >= 1, "a long name is cut, and says so");
            let deep: Vec<_> = ran.stdout.lines().filter(|l| l.contains("/m13/deep\"}")).collect();
            ensure!(
                !deep.is_empty() && deep.iter().all(|l| l.contains("{path=\"…/") && !l.contains("/a1/")),
                "{deep:?}"
            );
            ensure!(deep.iter().all(|l| l.contains("/g7/h8/i9/j10/k11/l12/m13/deep")), "{deep:?}");
            let opened = ran.stdout.lines().filter(|l| l.starts_with('{')).map(|l| {
                fits(l)?;
                Ok(serde_json::from_str::<Value>(l)?)
            });
            let opened: Vec<Value> = opened.collect::<Result<_>>()?;
            ensure!(
                opened.iter().any(|e| e["args"][0]["pointee"]["path"] == "/tmp/v/mnt/known"),
                "{opened:?}"
            );
            Ok(())
        },
    },
    Check {
        name: "memory that cannot be read shows the error, and nothing that was there before",
        command: r"
            btrace -k __sys_connect --mode entry -c 'workloads connect-loopback 2 >/dev/null; workloads connect-fault 2'
            btrace -k __sys_connect --mode entry --json -c 'workloads connect-loopback 2 >/dev/null; workloads connect-fault 2'",
        judge: |ran| {
            let faults: Vec<_> = ran.stdout.lines().filter(|l| l.contains("0x8")).collect();
            let faults: Vec<_> = faults.into_iter().filter(|l| l.contains("EFAULT")).collect();
            ensure!(faults.len() == 4, "{} events", faults.len());
            ensure!(
                faults[..2].iter().all(|l| l.contains("addr=0x8{EFAULT}, (int)addrlen=16")),
                "{faults:?}"
            );
            for line in &faults[2..] {
                fits(line)?;
                let address = serde_json::from_str::<Value>(line)?["args"][1].take();
                let only = address["pointee"].as_object().context("pointee")?;
                ensure!(only.len() == 1 && only["family"]["error"] == "EFAULT", "{address}");
                ensure!(address["summary"].is_null(), "{address}");
            }
            Ok(())
        },
    },
    Check {
        name: "dentries and inodes: names within the file system, mode and device",
        command: r#"
            mkdir /tmp/vv; chmod 1777 /tmp/vv; echo >/tmp/vv/gone
            btrace -k vfs_mkdir,vfs_unlink --mode entry -c 'mkdir /tmp/vv/new; rm /tmp/vv/gone; mkdir "/tmp/vv/$(printf "\tx")"'"#,
        judge: |ran| {
            no_loss(ran)?;
            ensure!(ran.stdout.lines().count() == 3, "{} events", ran.stdout.lines().count());
            for (line, path) in ran.stdout.lines().zip(["/vv/new", "/vv/gone", r"/vv/\tx"]) {
                let path = format!("{{path=\"{path}\"}}");
                let path_in_root = path.replace("/vv/", "/tmp/vv/");
                ensure!(line.contains(&path) || line.contains(&path_in_root), "{line}");
                ensure!(line.contains("(struct inode *)dir=0xffff") && line.contains("{ino="), "{line}");
                ensure!(line.contains(", mode=drwxrwxrwt, dev=0:"), "{line}");
            }
            Ok(())
        },
    },
    Check {
        name: "pointers to code have the symbol that kallsyms has, as arguments and behind pointers",
        command: r"
            btrace -t workqueue_queue_work,timer_start --json --limit-events 40 -o /tmp/said-a
            btrace -k call_rcu --json --limit-events 10 -o /tmp/said-b -c 'for i in 1 2 3 4 5 6; do mkdir /tmp/r; rmdir /tmp/r; done; sleep 0.5'
            btrace -k call_rcu --limit-events 1 -o /tmp/said-c -c 'for i in 1 2 3 4 5 6; do mkdir /tmp/r; rmdir /tmp/r; done; sleep 0.5'
            cat /tmp/said-a /tmp/said-b; cat /tmp/said-c; cat /proc/kallsyms | grep -i ' t '",
        judge: |ran| {
            let mut seen = 0;
            let mut symbols = std::collections::HashMap::<u64, Vec<&str>>::new();
            for line in ran.stdout.lines().filter(|l| l.starts_with("ffff")) {
                let mut words = line.split_ascii_whitespace();
                let address =
                    words.next().and_then(|a| u64::from_str_radix(a, 16).ok()).context("address")?;
                symbols.entry(address).or_default().extend(words.nth(1));
            }
            let mut check = |code: &Value| {
                let address = code["value"].as_str().and_then(|a| u64::from_str_radix(&a[2..], 16).ok());
                let names = symbols.get(&address.unwrap_or(0)).map(Vec::as_slice).unwrap_or_default();
                let name = code["symbol"].as_str().unwrap_or("none");
                seen += 1;
                ensure!(names.contains(&name) && code["offset"] == 0, "{code} is {names:?}");
                Ok(())
            };
            for line in ran.stdout.lines().filter(|l| l.starts_with('{')) {
                fits(line)?;
                let event: Value = serde_json::from_str(line)?;
                match event["target"].as_str() {
                    Some("workqueue_queue_work") => check(&event["args"][2]["pointee"]["func"])?,
                    Some("timer_start") => check(&event["args"][0]["pointee"]["function"])?,
                    _ => check(&event["args"][1])?,
                }
            }
            ensure!(seen >= 41, "{seen} functions");
            let text = ran.stdout.lines().find(|l| l.starts_with("call_rcu args=(")).context("call_rcu")?;
            let func = text.split_once("func=0xffff").and_then(|(_, r)| r.split_once('(')).context("func")?.1;
            let name = func.split_once(')').context("symbol")?.0;
            ensure!(symbols.values().flatten().any(|n| *n == name), "{text}");
            Ok(())
        },
    },
    Check {
        name: "kallsyms without addresses: code without names, and one line that says why",
        command: r"
            echo 2 >/proc/sys/kernel/kptr_restrict
            btrace -t timer_start --limit-events 3; s=$?
            echo 0 >/proc/sys/kernel/kptr_restrict; exit $s",
        judge: |ran| {
            ensure!(ran.status == 0, "exit status {}", ran.status);
            ensure!(ran.stderr.matches("kernel.kptr_restrict=0").count() == 1, "{}", ran.stderr);
            for line in ran.stdout.lines() {
                ensure!(
                    line.contains("{function=0xffff") && !line.contains("function=0xffffffff)("),
                    "{line}"
                );
                let function = line.split_once("{function=").context("function")?.1;
                ensure!(function.split([',', '}']).next().is_some_and(|f| !f.contains('(')), "{line}");
            }
            Ok(())
        },
    },
    Check {
        name: "case 22: errors in pointers, by name, with nothing behind them",
        command: r"
            btrace -k 'do_fil{p,e}_open' -c 'workloads open-missing 2 /no/such/file'
            btrace -k 'do_fil{p,e}_open' --json -c 'workloads open-missing 2 /no/such/file'",
        judge: |ran| {
            let missing: Vec<_> = ran.stdout.lines().filter(|l| l.contains("\"/no/such/file\"")).collect();
            ensure!(missing.len() == 4, "{} events", missing.len());
            for line in &missing[..2] {
                ensure!(line.contains("{name=\"/no/such/file\"}"), "{line}");
                ensure!(line.contains(" retval=(struct file *)ERR_PTR(-2 ENOENT) cpu="), "{line}");
            }
            for line in &missing[2..] {
                fits(line)?;
                let retval = serde_json::from_str::<Value>(line)?["retval"].take();
                ensure!(retval["error"] == "ENOENT" && retval["pointee"].is_null(), "{retval}");
            }
            Ok(())
        },
    },
    Check {
        name: "BPF programs and maps: id and name",
        command: r#"
            btrace -k security_bpf_prog,security_bpf_map --mode entry -c 'btrace -k vfs_unlink --limit-events 1 -o /dev/null -c "echo >/tmp/z; rm /tmp/z"'"#,
        judge: |ran| {
            let named = |name: &str| {
                let lines = ran.stdout.lines().filter(|l| l.contains(&format!(", name=\"{name}\"}}")));
                lines.filter(|l| l.contains("{id=") && !l.contains("{id=0,")).count()
            };
            ensure!(named("ex_vfs_unlink") >= 1 && named("counters") >= 1 && named("events") >= 1, "names");
            Ok(())
        },
    },
    Check {
        name: "enumerations by name, and tasks",
        command: "btrace -t hrtimer_start,sched_switch --json --limit-events 60 -c 'sleep 0.3; sleep 0.3; workloads fork 30'",
        judge: |ran| {
            let events = json(ran)?;
            ran.stdout.lines().try_for_each(fits)?;
            let timers: Vec<_> = events.iter().filter(|e| e["target"] == "hrtimer_start").collect();
            ensure!(
                timers.iter().any(|e| {
                    let mode = &e["args"][1]["value"];
                    mode["name"].as_str().is_some_and(|n| n.starts_with("HRTIMER_MODE_"))
                        && mode["value"].is_u64()
                }),
                "{timers:?}"
            );
            for event in events.iter().filter(|e| e["target"] == "sched_switch") {
                let args = event["args"].as_array().context("args")?;
                let prev = args.iter().find(|a| a["name"] == "prev").context("prev")?;
                ensure!(
                    prev["pointee"]["comm"] == event["comm"] && prev["pointee"]["tid"] == event["tid"],
                    "{event}"
                );
            }
            Ok(())
        },
    },
    Check {
        name: "events of every kind fit the schema of docs/json.schema.json",
        command: r"
            btrace -k 'vfs_*,tcp_connect,__dev_queue_xmit' --json --output-stack -c 'workloads connect-loopback 2 >/dev/null; ls /proc >/dev/null; cat /proc/self/mounts >/dev/null; mkdir /tmp/w; rmdir /tmp/w'
            btrace -k do_sys_openat2 --json --mode both -c 'workloads open-missing 2 /x'",
        judge: |ran| {
            let events = json(ran)?;
            ensure!(events.len() > 30 && ran.status == 0, "{} events", events.len());
            ran.stdout.lines().try_for_each(fits)
        },
    },
    Check {
        name: "colour when asked for, never in a pipe by itself; only addresses when asked for",
        command: r"
            for f in '--color always' '--color auto' '--no-pointees'; do
                btrace -k vfs_read $f -c 'dd if=/dev/zero of=/dev/null bs=9 count=1 2>/dev/null' | grep count=
            done",
        judge: |ran| {
            let lines: Vec<&str> =
                ran.stdout.lines().filter(|l| l.contains("/dev/zero") || !l.contains('{')).collect();
            let of = |escapes: bool, path: bool| {
                lines.iter().filter(|l| l.contains('\x1b') == escapes && l.contains("{path=") == path).count()
            };
            ensure!(of(true, true) == 1 && of(false, true) == 1 && of(false, false) >= 1, "{lines:?}");
            let coloured = lines.iter().find(|l| l.contains('\x1b')).context("coloured")?;
            ensure!(coloured.starts_with("\x1b[1mvfs_read\x1b[0m args=("), "{coloured:?}");
            Ok(())
        },
    },
];

/// The pairs of ports that the workload printed.
fn ports(ran: &Ran) -> Vec<(u16, u16)> {
    let pair = |line: &str| {
        let (local, remote) = line.split_once(' ')?;
        Some((local.parse().ok()?, remote.parse().ok()?))
    };
    ran.stdout.lines().filter_map(pair).collect()
}

/// Whether a line is an event as the schema has it.
fn fits(line: &str) -> Result<()> {
    let schema = Schema::event().map_err(|e| anyhow!(e))?;
    schema.check(&serde_json::from_str(line)?).map_err(|e| anyhow!("{e}: {line}"))
}
