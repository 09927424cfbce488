//! What hits a target: a command of the user's, or for targets that many ask about something that btrace does itself.

use anyhow::{Context, ensure};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use trace::{Target, TargetKind};

/// Does something that hits the target, so many times.
type Act = Box<dyn FnMut(u64) -> io::Result<()>>;

/// What hits a target.
pub struct Driver {
    /// What it does, once: `a read of /dev/zero`.
    pub what: String,
    /// Whether this process does it, so that its hits can be told from others'.
    pub ours: bool,
    act: Act,
}

impl Driver {
    /// A command, run each time.
    pub fn command(command: &str) -> Driver {
        let command = command.to_string();
        let what = format!("sh -c '{command}'");
        let act = move |count| {
            for _ in 0..count {
                let status = Command::new("sh")
                    .args(["-c", &command])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status()?;
                if !status.success() {
                    return Err(io::Error::other(format!("the command ended with {status}")));
                }
            }
            Ok(())
        };
        Driver { what, ours: false, act: Box::new(act) }
    }

    /// The one that hits this target, if btrace knows any.
    pub fn known(target: &Target) -> anyhow::Result<Option<Driver>> {
        if target.module.is_some() {
            return Ok(None);
        }
        let wanted =
            |known: &&Known| known.kind == target.kind && known.names.contains(&target.name.as_str());
        let Some(known) = KNOWN.iter().find(wanted) else { return Ok(None) };
        bpf::stay_on_this_cpu()?;
        let act = (known.make)().with_context(|| format!("to hit {} by {}", target.name, known.what))?;
        Ok(Some(Driver { what: known.what.into(), ours: true, act }))
    }

    /// Does it so many times.
    pub fn run(&mut self, count: u64) -> anyhow::Result<()> {
        (self.act)(count).with_context(|| self.what.clone())
    }
}

/// A line of the table of what btrace hits by itself.
struct Known {
    kind: TargetKind,
    names: &'static [&'static str],
    /// What is done once.
    what: &'static str,
    make: fn() -> anyhow::Result<Act>,
}

use TargetKind::{Function, Tracepoint};

/// Targets that btrace hits by itself. To add one is to add a line, and what hits it below. How often it does is counted by a
/// program, never assumed.
const KNOWN: &[Known] = &[
    Known {
        kind: Function,
        names: &["vfs_read", "ksys_read", "__x64_sys_read", "rw_verify_area", "read_iter_zero", "read_zero"],
        what: "a read of 8 bytes of /dev/zero",
        make: read_zero,
    },
    Known {
        kind: Function,
        names: &["vfs_write", "ksys_write", "__x64_sys_write", "write_null"],
        what: "a write of 8 bytes to /dev/null",
        make: write_null,
    },
    Known {
        kind: Function,
        names: &[
            "vfs_open",
            "do_sys_openat2",
            "__x64_sys_openat",
            "do_filp_open",
            "path_openat",
            "do_dentry_open",
            "filp_close",
            "__x64_sys_close",
        ],
        what: "opening and closing /dev/null",
        make: open_null,
    },
    Known { kind: Tracepoint, names: &["sys_enter", "sys_exit"], what: "a call of getppid", make: parent_id },
    Known {
        kind: Function,
        names: &["__x64_sys_getppid", "__do_sys_getppid"],
        what: "a call of getppid",
        make: parent_id,
    },
    Known {
        kind: Tracepoint,
        names: &["sched_switch", "sched_waking", "sched_wakeup"],
        what: "a byte to another thread on this CPU and back, through pipes",
        make: pipes,
    },
    Known {
        kind: Function,
        names: &["schedule", "__schedule", "try_to_wake_up", "pipe_read", "pipe_write"],
        what: "a byte to another thread on this CPU and back, through pipes",
        make: pipes,
    },
    Known {
        kind: Tracepoint,
        names: &["netlink_extack"],
        what: "an RTM_GETLINK message that is too short",
        make: bad_message,
    },
    Known {
        kind: Function,
        names: &[
            "do_trace_netlink_extack",
            "netlink_rcv_skb",
            "rtnetlink_rcv_msg",
            "rtnl_getlink",
            "netlink_unicast",
            "netlink_sendmsg",
            "netlink_ack",
        ],
        what: "an RTM_GETLINK message that is too short",
        make: bad_message,
    },
    Known {
        kind: Function,
        names: &[
            "tcp_connect",
            "tcp_v4_connect",
            "inet_stream_connect",
            "__inet_stream_connect",
            "__sys_connect",
            "__x64_sys_connect",
        ],
        what: "a TCP connection to a port of 127.0.0.1 that nobody listens at",
        make: connect,
    },
];

fn read_zero() -> anyhow::Result<Act> {
    let mut file = File::open("/dev/zero").context("/dev/zero")?;
    Ok(Box::new(move |count| {
        let mut buffer = [0u8; 8];
        for _ in 0..count {
            file.read_exact(&mut buffer)?;
        }
        Ok(())
    }))
}

fn write_null() -> anyhow::Result<Act> {
    let mut file = File::options().write(true).open("/dev/null").context("/dev/null")?;
    Ok(Box::new(move |count| {
        for _ in 0..count {
            file.write_all(&[0; 8])?;
        }
        Ok(())
    }))
}

fn open_null() -> anyhow::Result<Act> {
    Ok(Box::new(|count| (0..count).try_for_each(|_| File::open("/dev/null").map(drop))))
}

fn parent_id() -> anyhow::Result<Act> {
    Ok(Box::new(|count| {
        for _ in 0..count {
            std::hint::black_box(std::os::unix::process::parent_id());
        }
        Ok(())
    }))
}

/// Two threads on one CPU: each that waits for the other gives it the CPU.
fn pipes() -> anyhow::Result<Act> {
    let (mut here, mut to_us) = io::pipe().context("pipe")?;
    let (mut there, mut to_them) = io::pipe().context("pipe")?;
    // It ends with this process, or with the pipe.
    std::thread::Builder::new().name("cost".into()).spawn(move || {
        let mut byte = [0u8; 1];
        while there.read_exact(&mut byte).and_then(|()| to_us.write_all(&byte)).is_ok() {}
    })?;
    Ok(Box::new(move |count| {
        let mut byte = [0u8; 1];
        for _ in 0..count {
            to_them.write_all(&byte)?;
            here.read_exact(&mut byte)?;
        }
        Ok(())
    }))
}

/// rtnetlink(7): a request whose fixed part is cut short is refused with a reason, `Invalid header length`
/// (`__nlmsg_parse`, lib/nlattr.c).
fn bad_message() -> anyhow::Result<Act> {
    const RTM_GETLINK: u16 = 18;
    const NLM_F_REQUEST: u16 = 1;
    let mut socket = File::from(bpf::netlink_route_socket()?);
    // struct nlmsghdr, and 4 bytes of a struct ifinfomsg that has 16.
    let mut message = Vec::new();
    message.extend(20u32.to_ne_bytes());
    message.extend(RTM_GETLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0u8; 12]);
    let mut answer = [0u8; 4096];
    let mut once = move || {
        socket.write_all(&message)?;
        // `struct nlmsgerr` follows the header: the error first.
        let length = socket.read(&mut answer)?;
        Ok::<bool, io::Error>(length >= 20 && answer.get(16..20) != Some(&[0; 4][..]))
    };
    ensure!(once()?, "the kernel takes a message that is too short");
    Ok(Box::new(move |count| (0..count).try_for_each(|_| once().map(drop))))
}

/// The answer to the first segment says that nobody listens, so that nothing of the connection stays.
fn connect() -> anyhow::Result<Act> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
    let address = free.context("127.0.0.1")?;
    Ok(Box::new(move |count| {
        for _ in 0..count {
            match TcpStream::connect(address) {
                Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => return Err(error),
                // Somebody has taken the port meanwhile: it is a connection all the same.
                _ => {}
            }
        }
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_target_has_two_lines() {
        let mut seen = std::collections::BTreeSet::new();
        for known in KNOWN {
            for name in known.names {
                assert!(seen.insert((known.kind.to_string(), *name)), "{name}");
            }
        }
    }

    #[test]
    fn what_hits_them_runs() {
        for known in KNOWN {
            let mut act = (known.make)().expect(known.what);
            act(3).expect(known.what);
        }
    }

    #[test]
    fn a_command_that_fails_is_told_of() {
        assert!(Driver::command("exit 0").run(2).is_ok());
        let error = Driver::command("exit 3").run(1).expect_err("it fails");
        assert!(format!("{error:#}").contains("exit status: 3"), "{error:#}");
    }
}
