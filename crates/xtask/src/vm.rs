//! Boots a kernel under qemu, runs one command in it as root, and gives back what it wrote and its exit status.
//!
//! The guest speaks through three virtio-serial ports, each a socket here: `stdout` and `stderr` carry the command's
//! bytes as they are, and `control` says in lines when the command starts and how it ended, with the number of bytes
//! it wrote, so that nothing can be lost unseen. The console (kernel messages) is a fourth socket, kept for the error
//! that shows its end. Between the command and its ports stand pipes, as before `| cat`: what a command wrote in the
//! instant before a panic may still be in one, and is lost with the guest.
//!
//! The sockets are abstract and the initramfs has no name: nothing is left behind, however we die; and qemu dies with
//! the thread that started it.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::initramfs::{self, Addition, Contents};
use crate::kernels::Kernel;
use crate::modules::{Module, Modules};
use crate::{apt, guest};

/// What to boot and run.
#[derive(Debug, Clone)]
pub struct VmOptions {
    /// A label of [`crate::kernels::STOCK`], or the path of a kernel image.
    pub kernel: String,
    /// One CPU on which one instruction takes exactly one nanosecond of guest time, so that time counts instructions.
    pub icount: bool,
    /// CPUs; under icount there is one.
    pub cpus: u32,
    /// Guest memory in MiB.
    pub memory_mib: u32,
    /// Further files for the guest.
    pub additions: Vec<Addition>,
    /// Kernel modules to load first, by name, with what they depend on.
    pub modules: Vec<String>,
    /// A btrace binary to use in place of the workspace's own.
    pub btrace: Option<PathBuf>,
    /// Further words for the kernel's command line.
    pub kernel_arguments: String,
    /// Further arguments of qemu's.
    pub qemu_arguments: Vec<String>,
    /// Run under `sh -c` as root, with /dev/null as its stdin.
    pub command: String,
    /// How long the command may take.
    pub timeout: Duration,
    /// Where its output goes.
    pub output: Output,
    /// Copy the guest's console to our stderr as it comes.
    pub show_console: bool,
}

/// Where the command's stdout and stderr go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Output {
    /// Into [`VmOutcome`].
    Capture,
    /// To our own stdout and stderr, as it comes.
    PassThrough,
}

impl VmOptions {
    /// The command on the kernel, everything else as usual: 2 CPUs, 1 GiB, twenty minutes, output captured.
    pub fn new(kernel: impl Into<String>, command: impl Into<String>) -> Self {
        VmOptions {
            kernel: kernel.into(),
            icount: false,
            cpus: 2,
            memory_mib: 1024,
            additions: Vec::new(),
            modules: Vec::new(),
            btrace: None,
            kernel_arguments: String::new(),
            qemu_arguments: Vec::new(),
            command: command.into(),
            timeout: Duration::from_secs(1200),
            output: Output::Capture,
            show_console: false,
        }
    }
}

/// How the command ended.
#[derive(Debug)]
pub struct VmOutcome {
    /// Its exit status; 128 and the signal's number when a signal ended it.
    pub status: u8,
    /// What it wrote, when captured.
    pub stdout: Vec<u8>,
    /// What it wrote, when captured.
    pub stderr: Vec<u8>,
    /// The end of the guest's console.
    #[allow(dead_code, reason = "part of every outcome, though no chore looks at it yet")]
    pub console: String,
    /// What `uname -r` says in the guest.
    pub release: String,
    /// From the start of qemu to the start of the command, on the host's clock.
    pub boot: Duration,
}

/// The guest gave no exit status: it panicked, hung, or never came up.
#[derive(Debug)]
pub struct VmFailure {
    /// What happened.
    pub reason: String,
    /// The end of the guest's console.
    pub console: String,
    /// What the command had written, when captured.
    pub stdout: Vec<u8>,
    /// What the command had written, when captured.
    pub stderr: Vec<u8>,
}

impl fmt::Display for VmFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.reason)?;
        let stdout = String::from_utf8_lossy(&self.stdout);
        let stderr = String::from_utf8_lossy(&self.stderr);
        for (what, text) in [("stdout", &*stdout), ("stderr", &*stderr), ("the console", &self.console)] {
            if !text.trim().is_empty() {
                write!(f, "\n--- the end of {what}:\n{}", last_lines(text, 60))?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for VmFailure {}

/// Programs the lab needs, and Debian's packages of them.
const PROGRAMS: &[(&str, &str)] =
    &[("qemu-system-x86_64", "qemu-system-x86"), ("busybox", "busybox-static"), ("setpriv", "util-linux")];

/// Modules that carry the guest's ports, where they are not built in (they are, in Debian's 6.12 and later).
const TRANSPORT: &[&str] = &["virtio_pci", "virtio_console"];

/// How long a boot may take: 3 s here, but a machine may be busy.
const BOOT_LIMIT: Duration = Duration::from_secs(180);

/// How long the guest idles before the command under icount, in its own time (next to nothing in ours, since idle
/// time is skipped). Until about 2 s after its start, kernel threads finish the boot and the clock source changes, on
/// the one CPU that shall be counted.
const SETTLE: Duration = Duration::from_millis(2000);

/// Boots, runs and waits. See the module's page.
///
/// # Errors
/// [`VmFailure`] when the guest gave no exit status; [`apt::NeedsRoot`] when a program is missing and we may not
/// install it; else what could not be built, fetched or read.
pub fn run(options: &VmOptions) -> Result<VmOutcome> {
    apt::ensure(PROGRAMS)?;
    let kernel = Kernel::named(&options.kernel)?;
    let mut binaries = guest::build(options.btrace.is_none())?;
    if options.btrace.is_some() {
        binaries.btrace.clone_from(&options.btrace);
    }
    let modules = modules(&kernel, &options.modules)?;
    let contents = Contents {
        binaries: &binaries,
        modules: &modules,
        additions: &options.additions,
        command: &options.command,
        settle: if options.icount { SETTLE } else { Duration::ZERO },
    };
    let initramfs = initramfs::build(&contents)?;

    let start = Instant::now();
    let mut machine = Machine::start(options, &kernel, &initramfs)?;
    let (sender, messages) = mpsc::channel();
    let console =
        Pump::start(machine.door(CONSOLE)?, console_sink(options.show_console), Keep::End(1 << 16), None);
    let pass_through = options.output == Output::PassThrough;
    let keep = if pass_through { Keep::Nothing } else { Keep::All };
    let sink = |own: io::Result<File>| if pass_through { own.map(Some) } else { Ok(None) };
    let start_pump = |door, sink, what| Pump::start(door, sink, keep, Some((what, sender.clone())));
    let stdout =
        start_pump(machine.door(STDOUT)?, sink(own(&io::stdout())).context("opening stdout")?, "stdout");
    let stderr =
        start_pump(machine.door(STDERR)?, sink(own(&io::stderr())).context("opening stderr")?, "stderr");
    listen(machine.door(CONTROL)?, sender);

    let mut boot = Duration::ZERO;
    // Who has qemu log what it executes has time.
    let limit = if options.qemu_arguments.is_empty() { BOOT_LIMIT } else { BOOT_LIMIT * 8 };
    let waited = wait(&messages, start, options.timeout, &mut boot, limit).and_then(|(status, sent)| {
        for (pump, name, sent) in [(&stdout, "stdout", sent.0), (&stderr, "stderr", sent.1)] {
            pump.wait_for(sent).map_err(|error| format!("{name} is not whole: {error}"))?;
        }
        Ok(status)
    });
    let qemu_said = machine.stop();
    let console = clean_console(&console.finish());
    match waited {
        Ok(status) => Ok(VmOutcome {
            status,
            stdout: stdout.take(),
            stderr: stderr.take(),
            console: last_lines(&console, 200).to_owned(),
            release: kernel.release,
            boot,
        }),
        Err(reason) => {
            let panic = console.lines().find_map(|line| line.find("Kernel panic").map(|at| &line[at..]));
            let reason = match panic {
                Some(panic) => format!("{reason}: {panic}"),
                None if !qemu_said.is_empty() => format!("{reason}; qemu said: {qemu_said}"),
                None => reason,
            };
            Err(VmFailure {
                reason: format!("kernel {} ({}): {reason}", options.kernel, kernel.release),
                console,
                stdout: stdout.take(),
                stderr: stderr.take(),
            }
            .into())
        }
    }
}

/// The modules to load: those that carry the ports, and those asked for.
fn modules(kernel: &Kernel, asked: &[String]) -> Result<Vec<Module>> {
    let Some(folder) = &kernel.modules else {
        if let Some(name) = asked.first() {
            bail!("no module {name}: there are no modules beside {}", kernel.image.display());
        }
        return Ok(Vec::new());
    };
    let list = Modules::list(folder)?;
    let mut modules: Vec<Module> = Vec::new();
    let transport = TRANSPORT.iter().copied().filter(|name| list.has(name));
    for name in transport.chain(asked.iter().map(String::as_str)) {
        for module in list.with_dependencies(name)? {
            if !modules.iter().any(|have| have.name == module.name) {
                modules.push(module);
            }
        }
    }
    Ok(modules)
}

/// What the guest says on its control port, one line each (`crates/workloads/src/init.rs` writes them).
#[derive(Debug, PartialEq, Eq)]
enum Message {
    /// `ready`: the command starts now.
    Ready,
    /// `exit STATUS STDOUT-BYTES STDERR-BYTES`: it has ended.
    Exit { status: u8, stdout: u64, stderr: u64 },
    /// `failed WORDS`: init could not do its own work.
    Failed(String),
    /// The guest is gone. (This one and the next are said on this side.)
    Gone,
    /// What it wrote could not be passed on.
    Stuck(String),
}

impl Message {
    fn parse(line: &str) -> Message {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["ready"] => return Message::Ready,
            ["exit", status, stdout, stderr] => {
                if let (Ok(status), Ok(stdout), Ok(stderr)) = (status.parse(), stdout.parse(), stderr.parse())
                {
                    return Message::Exit { status, stdout, stderr };
                }
            }
            _ => {}
        }
        Message::Failed(line.strip_prefix("failed ").unwrap_or(line).to_owned())
    }
}

/// Reads the control port until the guest is gone.
fn listen(door: UnixStream, sender: mpsc::Sender<Message>) {
    thread::spawn(move || {
        let lines = BufReader::new(door).lines().map_while(Result::ok);
        for message in lines.map(|line| Message::parse(&line)).chain([Message::Gone]) {
            if sender.send(message).is_err() {
                break;
            }
        }
    });
}

/// Waits for the command to start and to end: its status, and how many bytes it wrote to stdout and stderr.
fn wait(
    messages: &mpsc::Receiver<Message>,
    start: Instant,
    timeout: Duration,
    boot: &mut Duration,
    limit: Duration,
) -> Result<(u8, (u64, u64)), String> {
    let mut deadline = start + limit;
    let mut started = false;
    loop {
        match messages.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Message::Ready) => {
                started = true;
                *boot = start.elapsed();
                deadline = Instant::now() + timeout;
            }
            Ok(Message::Exit { status, stdout, stderr }) => return Ok((status, (stdout, stderr))),
            Ok(Message::Failed(words)) => return Err(format!("the guest's init failed: {words}")),
            Ok(Message::Stuck(words)) => return Err(words),
            Err(RecvTimeoutError::Timeout) if started => {
                return Err(format!("the command did not end within {} s (--timeout)", timeout.as_secs()));
            }
            Err(RecvTimeoutError::Timeout) => {
                return Err(format!("the guest did not come up within {} s", limit.as_secs()));
            }
            Ok(Message::Gone) | Err(RecvTimeoutError::Disconnected) => {
                let when = if started { "the command ended" } else { "it was up" };
                return Err(format!("the guest stopped before {when}"));
            }
        }
    }
}

/// The sockets between qemu and us, by their place in [`DOORS`].
const DOORS: [&str; 4] = ["console", "control", "stdout", "stderr"];
const CONSOLE: usize = 0;
const CONTROL: usize = 1;
const STDOUT: usize = 2;
const STDERR: usize = 3;

/// A running qemu. Dropping it kills it.
struct Machine {
    qemu: Child,
    doors: [Option<UnixStream>; DOORS.len()],
}

impl Machine {
    fn start(options: &VmOptions, kernel: &Kernel, initramfs: &File) -> Result<Machine> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Abstract names are the machine's, not ours alone: the hash's random seed makes them hard to guess.
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let seed = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), count);
        let name = |door: &str| format!("btrace-lab-{}-{count}-{seed:016x}-{door}", std::process::id());
        let mut listeners = Vec::new();
        for door in DOORS {
            let address = SocketAddr::from_abstract_name(name(door)).context("naming a socket")?;
            let listener = UnixListener::bind_addr(&address).context("opening a socket for qemu")?;
            listener.set_nonblocking(true).context("opening a socket for qemu")?;
            listeners.push(listener);
        }

        // qemu gets SIGKILL from the kernel when the thread that starts it here is gone.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        command.args(machine_arguments(options.icount));
        command.args(["-smp", &processors(options).to_string()]);
        command.args(["-m", &format!("{}M", options.memory_mib)]);
        command.arg("-kernel").arg(&kernel.image);
        // qemu opens our file through us, since it has no name of its own.
        command.arg("-initrd").arg(format!("/proc/{}/fd/{}", std::process::id(), initramfs.as_raw_fd()));
        command.arg("-append").arg(kernel_command_line(options));
        for door in DOORS {
            let name = name(door);
            command.arg("-chardev").arg(format!("socket,id={door},path={name},abstract=on,tight=on"));
            if door == "console" {
                command.args(["-serial", "chardev:console"]);
            } else {
                command.arg("-device").arg(format!("virtserialport,chardev={door},name=lab.{door}"));
            }
        }
        command.args(&options.qemu_arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let qemu = command.spawn().context("running setpriv qemu-system-x86_64")?;
        let mut machine = Machine { qemu, doors: [const { None }; DOORS.len()] };
        machine.connect(&listeners)?;
        Ok(machine)
    }

    /// Waits until qemu has opened all sockets, which it does before anything else.
    fn connect(&mut self, listeners: &[UnixListener]) -> Result<()> {
        let deadline = Instant::now() + BOOT_LIMIT;
        while self.doors.iter().any(Option::is_none) {
            for (door, listener) in self.doors.iter_mut().zip(listeners) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        stream.set_nonblocking(false).context("opening a socket for qemu")?;
                        *door = Some(stream);
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error).context("waiting for qemu"),
                }
            }
            if let Some(status) = self.qemu.try_wait().context("waiting for qemu")? {
                bail!("qemu did not start ({status}): {}", self.stop());
            }
            if Instant::now() > deadline {
                bail!("qemu did not start within {} s", BOOT_LIMIT.as_secs());
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    fn door(&mut self, which: usize) -> Result<UnixStream> {
        self.doors[which].take().ok_or_else(|| anyhow!("qemu did not open the {} socket", DOORS[which]))
    }

    /// Kills qemu, if it still runs, and gives back what it had to say.
    fn stop(&mut self) -> String {
        // It fails when qemu is gone already, which is as well.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        let mut said = String::new();
        if let Some(mut stderr) = self.qemu.stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        said.trim().to_owned()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The machine: q35, which boots as fast as any; no device but the ports and the console.
///
/// Five-level page tables only cost time, and few machines have them.
fn machine_arguments(icount: bool) -> Vec<&'static str> {
    let mut arguments = vec!["-no-user-config", "-nodefaults", "-display", "none", "-no-reboot"];
    arguments.extend(["-machine", "q35", "-cpu", "max,la57=off", "-device", "virtio-serial-pci"]);
    arguments.extend(if icount {
        // shift=0: one instruction, one nanosecond. sleep=off: an idle guest skips to its next timer.
        ["-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off"].as_slice()
    } else {
        // One host thread takes turns with the CPUs. With one thread each (thread=multi) a CPU now and then goes on running
        // the old translation of kernel text that another has just patched, which is what attaching does all the time:
        // an int3 that nobody owns any more, an oops or an endless loop in a guest that did nothing wrong.
        ["-accel", "tcg,thread=single"].as_slice()
    });
    arguments
}

/// CPUs of the guest: an exact clock has one.
fn processors(options: &VmOptions) -> u32 {
    if options.icount { 1 } else { options.cpus }
}

/// A panic or an oops reboots at once, which ends qemu.
fn kernel_command_line(options: &VmOptions) -> String {
    let mut line =
        "console=ttyS0 quiet panic=-1 oops=panic tsc=reliable no_timer_check cryptomgr.notests".to_owned();
    if options.icount {
        // The TSC counts instructions; the kernel would measure its rate a few millionths wrong.
        line.push_str(" tsc_early_khz=1000000");
    }
    if !options.kernel_arguments.is_empty() {
        line.push(' ');
        line.push_str(&options.kernel_arguments);
    }
    line
}

/// Our own stdout or stderr, without the standard library's buffer.
fn own(stream: &impl AsFd) -> io::Result<File> {
    stream.as_fd().try_clone_to_owned().map(File::from)
}

fn console_sink(show: bool) -> Option<File> {
    // Without a stderr there is nowhere to show it.
    if show { own(&io::stderr()).ok() } else { None }
}

/// How much of a stream to keep.
#[derive(Debug, Clone, Copy)]
enum Keep {
    All,
    Nothing,
    /// About so many bytes of its end.
    End(usize),
}

/// A thread that copies a socket to a file, or keeps it, or both.
struct Pump {
    state: Arc<(Mutex<Pumped>, Condvar)>,
    thread: thread::JoinHandle<()>,
}

#[derive(Default)]
struct Pumped {
    kept: Vec<u8>,
    count: u64,
    ended: Option<io::Result<()>>,
}

impl Pump {
    /// `report`: who is told when the sink takes no more, and its name.
    fn start(
        mut door: UnixStream,
        mut sink: Option<File>,
        keep: Keep,
        report: Option<(&'static str, mpsc::Sender<Message>)>,
    ) -> Pump {
        let state = Arc::new((Mutex::new(Pumped::default()), Condvar::new()));
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || {
            let (pumped, changed) = &*shared;
            let mut buffer = vec![0; 1 << 16];
            let end = loop {
                let length = match door.read(&mut buffer) {
                    Ok(0) => break Ok(()),
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => break Err(error),
                };
                let data = &buffer[..length];
                if let Some(Err(error)) = sink.as_mut().map(|sink| sink.write_all(data)) {
                    if let Some((name, sender)) = report {
                        // Nobody waits any more when it fails.
                        let _ = sender.send(Message::Stuck(format!("writing to {name}: {error}")));
                    }
                    break Err(error);
                }
                let mut pumped = pumped.lock().unwrap_or_else(PoisonError::into_inner);
                pumped.count += length as u64;
                match keep {
                    Keep::Nothing => {}
                    Keep::All => pumped.kept.extend_from_slice(data),
                    Keep::End(size) => {
                        pumped.kept.extend_from_slice(data);
                        if pumped.kept.len() > 2 * size {
                            let excess = pumped.kept.len() - size;
                            pumped.kept.drain(..excess);
                        }
                    }
                }
                changed.notify_all();
            };
            pumped.lock().unwrap_or_else(PoisonError::into_inner).ended = Some(end);
            changed.notify_all();
        });
        Pump { state, thread }
    }

    /// Waits until so many bytes have passed.
    fn wait_for(&self, count: u64) -> Result<(), String> {
        let (pumped, changed) = &*self.state;
        let mut pumped = pumped.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if pumped.count >= count {
                return Ok(());
            }
            if let Some(end) = &pumped.ended {
                return Err(match end {
                    Ok(()) => format!("{} bytes of {count} came", pumped.count),
                    Err(error) => error.to_string(),
                });
            }
            pumped = changed.wait(pumped).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// What was kept so far.
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.state.0.lock().unwrap_or_else(PoisonError::into_inner).kept)
    }

    /// What was kept, once the other side is gone.
    fn finish(self) -> Vec<u8> {
        let state = Arc::clone(&self.state);
        // A thread that panicked has kept what it had.
        let _ = self.thread.join();
        std::mem::take(&mut state.0.lock().unwrap_or_else(PoisonError::into_inner).kept)
    }
}

/// The console as text for people: no carriage returns, no escape sequences (the firmware clears the screen).
fn clean_console(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut clean = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\x1b' if characters.peek() == Some(&'[') => {
                characters.next();
                // A control sequence ends with its first letter.
                for part in characters.by_ref() {
                    if part.is_ascii_alphabetic() {
                        break;
                    }
                }
            }
            '\x1b' => {
                characters.next();
            }
            '\n' | '\t' => clean.push(character),
            _ if character.is_control() => {}
            _ => clean.push(character),
        }
    }
    clean
}

/// The last lines of a text, at most so many.
fn last_lines(text: &str, count: usize) -> &str {
    let text = text.trim_end();
    text.rmatch_indices('\n').nth(count.saturating_sub(1)).map_or(text, |(at, _)| &text[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_guest() {
        assert_eq!(Message::parse("ready"), Message::Ready);
        assert_eq!(
            Message::parse("exit 7 5000000 4"),
            Message::Exit { status: 7, stdout: 5_000_000, stderr: 4 }
        );
        assert_eq!(Message::parse("failed no port"), Message::Failed("no port".into()));
        assert_eq!(Message::parse("exit 256 0 0"), Message::Failed("exit 256 0 0".into()));
    }

    #[test]
    fn the_end_of_a_text() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc");
        assert_eq!(last_lines("a\nb\nc\n", 3), "a\nb\nc");
        assert_eq!(last_lines("a\nb\nc\n", 9), "a\nb\nc");
        assert_eq!(last_lines("", 2), "");
    }

    #[test]
    fn a_console_for_people() {
        assert_eq!(
            clean_console(b"\x1bc\x1b[?7l\x1b[2J\x1b[0mSeaBIOS\r\n[    0.1] hi\r\n"),
            "SeaBIOS\n[    0.1] hi\n"
        );
    }

    #[test]
    fn a_pump_counts_keeps_and_ends() {
        let (mut guest, host) = UnixStream::pair().unwrap();
        let pump = Pump::start(host, None, Keep::All, None);
        guest.write_all(b"abc").unwrap();
        pump.wait_for(3).unwrap();
        drop(guest);
        assert_eq!(pump.wait_for(4), Err("3 bytes of 4 came".into()));
        assert_eq!(pump.finish(), b"abc");
    }

    #[test]
    fn a_pump_that_keeps_the_end() {
        let (mut guest, host) = UnixStream::pair().unwrap();
        let pump = Pump::start(host, None, Keep::End(4), None);
        for _ in 0..100 {
            guest.write_all(b"abcd").unwrap();
        }
        drop(guest);
        let kept = pump.finish();
        assert!(kept.ends_with(b"abcd") && kept.len() <= 8, "{kept:?}");
    }

    #[test]
    fn waiting_for_the_command() {
        let (sender, receiver) = mpsc::channel();
        let mut boot = Duration::ZERO;
        let mut wait = |receiver: &mpsc::Receiver<Message>, timeout: Duration| {
            super::wait(receiver, Instant::now(), timeout, &mut boot, BOOT_LIMIT)
        };
        sender.send(Message::Ready).unwrap();
        sender.send(Message::Exit { status: 3, stdout: 1, stderr: 2 }).unwrap();
        assert_eq!(wait(&receiver, Duration::from_secs(60)), Ok((3, (1, 2))));
        sender.send(Message::Ready).unwrap();
        assert!(wait(&receiver, Duration::ZERO).unwrap_err().contains("did not end within 0 s"));
        sender.send(Message::Stuck("stdout".into())).unwrap();
        assert_eq!(wait(&receiver, Duration::from_secs(60)), Err("stdout".into()));
        sender.send(Message::Ready).unwrap();
        sender.send(Message::Gone).unwrap();
        drop(sender);
        assert!(wait(&receiver, Duration::from_secs(60)).unwrap_err().contains("before the command ended"));
        assert!(wait(&receiver, Duration::from_secs(60)).unwrap_err().contains("before it was up"));
    }

    #[test]
    fn icount_is_one_cpu_and_an_exact_clock() {
        let mut options = VmOptions::new("6.12", "true");
        assert_eq!(processors(&options), 2);
        options.icount = true;
        assert_eq!(processors(&options), 1);
        assert!(machine_arguments(true).contains(&"shift=0,sleep=off"));
        options.kernel_arguments = "nosmap".into();
        assert!(kernel_command_line(&options).ends_with("tsc_early_khz=1000000 nosmap"));
    }
}
