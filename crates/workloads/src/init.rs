//! The guest's init: what the kernel starts first in the lab (`cargo xtask vm`).
//!
//! Mounts what a system has, loads the modules in `/lab/modules`, brings loopback up, runs `/lab/command` under
//! `sh -c`, and says on the control port how it ended. The command's stdout and stderr are pipes, as they would be
//! before `| cat`; splice(2) moves the bytes on to the ports, so that carrying them makes no read or write calls that
//! a trace of the guest would show.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::sys;

/// What is to be run.
const COMMAND: &str = "/lab/command";

/// Bytes of a command that is given to the shell as an argument.
const LONGEST_ARGUMENT: usize = 100_000;

/// Does all of it. Does not return: the host ends the machine once it has the exit status.
pub fn run() -> ! {
    if std::process::id() != 1 {
        eprintln!("init: this is for the lab's guest, where it is process 1");
        std::process::exit(1);
    }
    let mut control = None;
    if let Err(words) = guest(&mut control) {
        // On the port when it is there, else on the console, which the host shows when the machine stops.
        match &mut control {
            Some(port) => say(port, &format!("failed {}", words.replace('\n', " "))),
            None => eprintln!("init: {words}"),
        }
        if control.is_none() {
            sys::restart();
        }
    }
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

fn guest(control: &mut Option<File>) -> Result<(), String> {
    mounts()?;
    modules()?;
    *control = Some(port("control")?);
    let (stdout, stderr) = (port("stdout")?, port("stderr")?);
    sys::set_host_name("lab").map_err(|error| format!("setting the host name: {error}"))?;
    sys::interface_up("lo").map_err(|error| format!("bringing loopback up: {error}"))?;

    let command = fs::read_to_string(COMMAND).map_err(|error| format!("{COMMAND}: {error}"))?;
    let settle =
        fs::read_to_string("/lab/settle").ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    thread::sleep(Duration::from_millis(settle));
    let say_now = |control: &mut Option<File>, line: &str| {
        if let Some(port) = control {
            say(port, line);
        }
    };
    say_now(control, "ready");
    let mut child = Command::new("/bin/sh");
    // The kernel takes no argument of more than 128 KiB (MAX_ARG_STRLEN), and the matrix is longer.
    if command.len() < LONGEST_ARGUMENT {
        child.arg("-c").arg(command);
    } else {
        child.arg(COMMAND);
    }
    child.current_dir("/root").stdin(Stdio::null());
    child.stdout(Stdio::piped()).stderr(Stdio::piped());
    child.env_clear().env("PATH", "/bin").env("HOME", "/root").env("USER", "root").env("TERM", "dumb");
    child.env("SHELL", "/bin/sh").env("BTRACE_LAB", "1");
    // A process group of its own, as under a shell, so that signals to the group do not reach us.
    child.process_group(0);
    let mut child = child.spawn().map_err(|error| format!("running /bin/sh: {error}"))?;
    let carry = |from: Option<OwnedFd>, to: File| {
        thread::spawn(move || match from {
            Some(from) => sys::splice_all(from.as_fd(), to.as_fd()),
            None => Ok(0),
        })
    };
    let out = carry(child.stdout.take().map(OwnedFd::from), stdout);
    let err = carry(child.stderr.take().map(OwnedFd::from), stderr);
    let status = reap(child.id()).map_err(|error| format!("waiting for the command: {error}"))?;
    // What it left behind holds the pipes open; a command has ended when it has ended.
    sys::kill_all();
    let count = |carried: thread::JoinHandle<io::Result<u64>>, name: &str| match carried.join() {
        Ok(Ok(count)) => Ok(count),
        Ok(Err(error)) => Err(format!("carrying {name}: {error}")),
        Err(_) => Err(format!("carrying {name}: the thread panicked")),
    };
    let (out, err) = (count(out, "stdout")?, count(err, "stderr")?);
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    say_now(control, &format!("exit {code} {out} {err}"));
    Ok(())
}

/// Collects every child that ends, orphans included, until it is the one.
fn reap(child: u32) -> io::Result<ExitStatus> {
    loop {
        let (pid, status) = sys::wait_any()?;
        if pid == child {
            return Ok(status);
        }
    }
}

fn say(port: &mut File, line: &str) {
    // Without the port there is nobody to tell.
    let _ = port.write_all(format!("{line}\n").as_bytes());
}

fn mounts() -> Result<(), String> {
    // (what, where, whether the kernel must have it)
    let systems = [
        ("proc", "/proc", true),
        ("sysfs", "/sys", true),
        ("devtmpfs", "/dev", true),
        ("devpts", "/dev/pts", true),
        ("tmpfs", "/dev/shm", true),
        ("tmpfs", "/tmp", true),
        ("tmpfs", "/run", true),
        ("securityfs", "/sys/kernel/security", false),
        ("tracefs", "/sys/kernel/tracing", false),
        ("debugfs", "/sys/kernel/debug", false),
        ("bpf", "/sys/fs/bpf", false),
        ("cgroup2", "/sys/fs/cgroup", false),
    ];
    for (kind, place, needed) in systems {
        // The kernel makes the folders in /sys for what it has.
        let made = place.starts_with("/sys/") || fs::create_dir_all(place).is_ok();
        let mounted = sys::mount(kind, place);
        if let (true, Err(error)) = (needed, mounted) {
            return Err(format!("mounting {kind} on {place}: {error} (folder made: {made})"));
        }
    }
    sys::chmod("/tmp", 0o1777).map_err(|error| format!("/tmp: {error}"))?;
    let links = [
        ("/proc/self/fd", "/dev/fd"),
        ("fd/0", "/dev/stdin"),
        ("fd/1", "/dev/stdout"),
        ("fd/2", "/dev/stderr"),
    ];
    for (target, link) in links {
        symlink(target, link).map_err(|error| format!("{link}: {error}"))?;
    }
    Ok(())
}

fn modules() -> Result<(), String> {
    let mut files: Vec<PathBuf> =
        fs::read_dir("/lab/modules").into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    for file in files {
        let object = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        sys::load_module(&object).map_err(|error| format!("loading {}: {error}", file.display()))?;
    }
    Ok(())
}

/// Opens the virtio-serial port that the host named `lab.NAME`, once the kernel has made it.
fn port(name: &str) -> Result<File, String> {
    let wanted = format!("lab.{name}");
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let ports = fs::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten();
        let found = ports
            .map(|entry| entry.path())
            .find(|port| fs::read_to_string(port.join("name")).is_ok_and(|has| has.trim() == wanted));
        if let Some(device) =
            found.as_deref().and_then(Path::file_name).map(|file| Path::new("/dev").join(file))
            && let Ok(file) = OpenOptions::new().read(true).write(true).open(&device)
        {
            return Ok(file);
        }
        if Instant::now() > deadline {
            return Err(format!("no virtio-serial port {wanted}: are virtio_pci and virtio_console there?"));
        }
        thread::sleep(Duration::from_millis(2));
    }
}
