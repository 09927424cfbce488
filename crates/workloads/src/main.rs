//! Workloads for tests: each makes known system calls, with known arguments, a known number of times.
//!
//! `workloads --help` lists them. Exit status 0 says that every call did what it was expected to.

mod empty;
mod init;
mod objects;
mod programs;
mod sys;
mod tally;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::time::Duration;

const HELP: &str = "\
Make known system calls a known number of times.

Usage: workloads [--pid] [--wait] [--time] WORKLOAD

Workloads:
  read-zero N SIZE      open /dev/zero, then read(2) SIZE bytes of it N times
  open-missing N PATH   openat(2) of PATH, which must be missing, N times (ENOENT)
  open-fault N          openat(2) with a path that cannot be read, N times (EFAULT)
  list-fault N          getdents64(2) of / to where nothing can be written, N times (EFAULT)
  connect-loopback N    connect(2) N times to a listener of its own on 127.0.0.1; prints LOCAL PORT of each
  connect-fault N       connect(2) N times with an address that cannot be read (EFAULT)
  exec-true N           fork, then execve(2) of /bin/true, N times, one after the other
  fork N                fork N times; each child exits at once
  threads N COUNT       N threads, each of which reads 512 bytes of /dev/zero COUNT times
  bind-used             bind(2) a TCP port that is taken (EADDRINUSE); prints it
  netlink-bad           ask rtnetlink for device 1, then something it does not know (EOPNOTSUPP)
  sleep-ms N            clock_nanosleep for N milliseconds
  bpf-programs N [PIN]  load BPF programs that call each other, pin one at PIN, and run them N times
  cgroup-namespace CMD  sh -c CMD in a cgroup namespace of its own; fails as CMD does
  bpf-objects           print what BPF programs, maps and links there are, KIND ID of each
  only-objects FILE     wait until there are none but those that FILE lists; 10 s at most, or fail
  tally WORD...         read stdin to its end; print how many lines there were, and how many had each WORD in them
  empty-fentry FUNC     attach a BPF program that does nothing to FUNC's entry, say so, and keep it until killed
  fentry FUNC FILE      the same with the BPF instructions in FILE

Options:
  --pid    print the process number first
  --wait   start on SIGUSR1, or on a line on stdin
  --time   print how long the calls took together, in ns of CLOCK_MONOTONIC: opening, forking of threads and
           printing left out

Exit status: 0 if every call did what it was expected to, 1 if one did not, 2 for a wrong command line.
";

/// What ended a workload early.
enum Trouble {
    /// The command line, or a part of it, makes no sense.
    Usage(String),
    /// A call did not do what it was expected to.
    Unexpected(String),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Trouble::Unexpected(error.to_string())
    }
}

type Outcome<T = ()> = Result<T, Trouble>;

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().collect();
    if arguments.first().is_some_and(|name| name == "init" || name.ends_with("/init")) {
        init::run();
    }
    arguments.remove(0);
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble::Unexpected(words)) => {
            eprintln!("workloads: {}: {words}", arguments.join(" "));
            ExitCode::from(1)
        }
        Err(Trouble::Usage(words)) => {
            eprintln!("workloads: {words}; see workloads --help");
            ExitCode::from(2)
        }
    }
}

/// What was asked, but for the numbers of the workload.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request<'a> {
    pid: bool,
    wait: bool,
    time: bool,
    help: bool,
    /// The workload's name and its arguments.
    words: Vec<&'a str>,
}

impl<'a> Request<'a> {
    fn parse(arguments: &'a [String]) -> Outcome<Request<'a>> {
        let mut request = Request::default();
        for argument in arguments {
            match argument.as_str() {
                "--pid" => request.pid = true,
                "--wait" => request.wait = true,
                "--time" => request.time = true,
                "--help" | "-h" => request.help = true,
                option if option.starts_with("--") => {
                    return Err(Trouble::Usage(format!("no option {option}")));
                }
                word => request.words.push(word),
            }
        }
        Ok(request)
    }
}

/// A workload that is ready: all that is not the calls themselves has been done.
type Ready = Box<dyn FnOnce() -> Outcome<Done>>;

/// What there is to say afterwards.
#[derive(Default)]
struct Done {
    lines: Vec<String>,
    /// The time of the calls alone, where the workload knows better than the caller.
    time: Option<Duration>,
}

fn run(arguments: &[String]) -> Outcome {
    let request = Request::parse(arguments)?;
    if request.help {
        print!("{HELP}");
        return Ok(());
    }
    let workload = prepare(&request.words)?;
    let signal = if request.wait { Some(sys::user_signal()?) } else { None };
    if request.pid {
        println!("{}", std::process::id());
        io::stdout().flush()?;
    }
    if let Some(signal) = signal {
        wait_for_start(signal)?;
    }
    let start = sys::monotonic();
    let done = workload()?;
    let took = done.time.unwrap_or_else(|| sys::monotonic() - start);
    for line in done.lines {
        println!("{line}");
    }
    if request.time {
        println!("{}", took.as_nanos());
    }
    Ok(io::stdout().flush()?)
}

fn prepare(words: &[&str]) -> Outcome<Ready> {
    let number = |text: &str| match text.parse::<u64>() {
        Ok(number) => Ok(number),
        Err(error) => Err(Trouble::Usage(format!("{text}: {error}"))),
    };
    Ok(match words {
        ["read-zero", count, size] => {
            let (count, mut buffer) = (number(count)?, vec![0; number(size)? as usize]);
            let zero = sys::open("/dev/zero")?;
            Box::new(move || read_zero(&zero, count, &mut buffer))
        }
        ["open-missing", count, path] => {
            let count = number(count)?;
            let path = CString::new(*path).map_err(|_| Trouble::Usage("a NUL in PATH".into()))?;
            Box::new(move || open_missing(count, &path))
        }
        ["open-fault", count] => {
            let count = number(count)?;
            Box::new(move || open_fault(count))
        }
        ["list-fault", count] => {
            let count = number(count)?;
            let folder = sys::open("/")?;
            Box::new(move || list_fault(count, &folder))
        }
        ["connect-loopback", count] => {
            let count = number(count)?;
            let listener = sys::tcp_socket()?;
            sys::bind(listener.as_fd(), 0)?;
            sys::listen(listener.as_fd(), 8)?;
            let port = sys::own_address(listener.as_fd())?.port();
            Box::new(move || connect_loopback(count, &listener, port))
        }
        ["connect-fault", count] => {
            let (count, socket) = (number(count)?, sys::tcp_socket()?);
            Box::new(move || connect_fault(count, &socket))
        }
        ["exec-true", count] => {
            let (count, path) = (number(count)?, c"/bin/true".to_owned());
            Box::new(move || {
                children(count, || {
                    // Only a failed call comes back.
                    sys::exec(&path);
                    127
                })
            })
        }
        ["fork", count] => {
            let count = number(count)?;
            Box::new(move || children(count, || 0))
        }
        ["threads", threads, count] => {
            let (threads, count) = (number(threads)?, number(count)?);
            Box::new(move || read_in_threads(threads, count))
        }
        ["bind-used"] => {
            let taken = sys::tcp_socket()?;
            sys::bind(taken.as_fd(), 0)?;
            let port = sys::own_address(taken.as_fd())?.port();
            let second = sys::tcp_socket()?;
            Box::new(move || bind_used(&taken, &second, port))
        }
        ["netlink-bad"] => {
            let mut socket = File::from(sys::netlink_socket()?);
            Box::new(move || netlink_bad(&mut socket))
        }
        ["sleep-ms", time] => {
            let time = Duration::from_millis(number(time)?);
            Box::new(move || Ok(sys::sleep(time).map(|()| Done::default())?))
        }
        ["bpf-programs", count, pin @ ..] if pin.len() < 2 => {
            let count = u32::try_from(number(count)?).map_err(|e| Trouble::Usage(format!("{count}: {e}")))?;
            let programs = programs::Programs::load(pin.first().copied()).map_err(Trouble::Unexpected)?;
            Box::new(move || programs.run(count).map(|()| Done::default()).map_err(Trouble::Unexpected))
        }
        ["cgroup-namespace", command] => {
            let command = command.to_string();
            sys::new_cgroup_namespace()?;
            Box::new(move || {
                let status = std::process::Command::new("/bin/sh").args(["-c", &command]).status()?;
                let failed = || Trouble::Unexpected(status.to_string());
                status.success().then(Done::default).ok_or_else(failed)
            })
        }
        ["only-objects", file] => {
            let file = file.to_string();
            Box::new(move || objects::wait_for(&file).map(|()| Done::default()))
        }
        ["bpf-objects"] => Box::new(|| Ok(Done { lines: objects::list()?, time: None })),
        ["tally", words @ ..] => {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            Box::new(move || Ok(Done { lines: tally::lines(io::stdin().lock(), &words)?, time: None }))
        }
        ["empty-fentry", function] => attached(empty::attach(function).map_err(Trouble::Unexpected)?),
        ["fentry", function, file] => {
            attached(empty::attach_file(function, file).map_err(Trouble::Unexpected)?)
        }
        [] => return Err(Trouble::Usage("no workload".into())),
        words => return Err(Trouble::Usage(format!("no such workload: {}", words.join(" ")))),
    })
}

/// Says that something is attached, and keeps it until the process is killed.
fn attached(kept: impl Sized + 'static) -> Ready {
    Box::new(move || {
        println!("attached");
        io::stdout().flush()?;
        let _kept = kept;
        loop {
            std::thread::park();
        }
    })
}

/// Until SIGUSR1 or a line on stdin; the end of stdin is neither.
fn wait_for_start(signal: OwnedFd) -> Outcome {
    let stdin = io::stdin();
    let mut stdin_open = true;
    loop {
        let fds = [signal.as_fd(), stdin.as_fd()];
        let ready = sys::poll(&fds[..if stdin_open { 2 } else { 1 }])?;
        if ready[0] {
            return Ok(());
        }
        if ready.get(1) == Some(&true) {
            let mut byte = [0];
            match stdin.lock().read(&mut byte)? {
                0 => stdin_open = false,
                _ if byte == *b"\n" => return Ok(()),
                _ => {}
            }
        }
    }
}

/// An error unless the call gave what it should.
fn expect<T>(
    what: impl FnOnce() -> String,
    result: io::Result<T>,
    fine: impl FnOnce(&T) -> bool,
) -> Outcome<T> {
    match result {
        Ok(value) if fine(&value) => Ok(value),
        Ok(_) => Err(Trouble::Unexpected(format!("{}: not the result expected", what()))),
        Err(error) => Err(Trouble::Unexpected(format!("{}: {error}", what()))),
    }
}

fn read_zero(zero: &OwnedFd, count: u64, buffer: &mut [u8]) -> Outcome<Done> {
    let size = buffer.len();
    for _ in 0..count {
        expect(
            || format!("read of {size} bytes"),
            sys::read(zero.as_fd(), buffer),
            |length| *length == size,
        )?;
    }
    Ok(Done::default())
}

fn open_missing(count: u64, path: &CString) -> Outcome<Done> {
    for _ in 0..count {
        match sys::open_c(path) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => return Err(Trouble::Unexpected(format!("openat: {error}, not ENOENT"))),
            Ok(_) => return Err(Trouble::Unexpected(format!("{} exists", path.to_string_lossy()))),
        }
    }
    Ok(Done::default())
}

fn open_fault(count: u64) -> Outcome<Done> {
    for _ in 0..count {
        match sys::open_nowhere() {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {}
            Err(error) => return Err(Trouble::Unexpected(format!("openat: {error}, not EFAULT"))),
            Ok(()) => return Err(Trouble::Unexpected("openat read a path that is not there".into())),
        }
    }
    Ok(Done::default())
}

fn list_fault(count: u64, folder: &OwnedFd) -> Outcome<Done> {
    for _ in 0..count {
        match sys::entries_nowhere(folder.as_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {}
            Err(error) => return Err(Trouble::Unexpected(format!("getdents64: {error}, not EFAULT"))),
            Ok(()) => return Err(Trouble::Unexpected("getdents64 wrote where no memory is".into())),
        }
    }
    Ok(Done::default())
}

fn connect_loopback(count: u64, listener: &OwnedFd, port: u16) -> Outcome<Done> {
    let mut done = Done::default();
    for _ in 0..count {
        let socket = sys::tcp_socket()?;
        expect(|| format!("connect to port {port}"), sys::connect(socket.as_fd(), port), |()| true)?;
        let _accepted = expect(|| "accept".into(), sys::accept(listener.as_fd()), |_| true)?;
        done.lines.push(format!("{} {port}", sys::own_address(socket.as_fd())?.port()));
    }
    Ok(done)
}

fn connect_fault(count: u64, socket: &OwnedFd) -> Outcome<Done> {
    for _ in 0..count {
        match sys::connect_nowhere(socket.as_fd()) {
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => {}
            Err(error) => return Err(Trouble::Unexpected(format!("connect: {error}, not EFAULT"))),
            Ok(()) => return Err(Trouble::Unexpected("connect read what is not there".into())),
        }
    }
    Ok(Done::default())
}

/// Forks, and waits for, one child after the other; each must exit with 0.
fn children(count: u64, child: impl Fn() -> i32) -> Outcome<Done> {
    for _ in 0..count {
        let pid = expect(|| "fork".into(), sys::fork(&child), |_| true)?;
        let status = expect(|| format!("wait for {pid}"), sys::wait(pid), |_| true)?;
        if !status.success() {
            return Err(Trouble::Unexpected(format!("child {pid}: {status}")));
        }
    }
    Ok(Done::default())
}

fn read_in_threads(threads: u64, count: u64) -> Outcome<Done> {
    let start = sys::monotonic();
    let running: Vec<_> = (0..threads)
        .map(|_| {
            std::thread::spawn(move || {
                let zero = sys::open("/dev/zero")?;
                read_zero(&zero, count, &mut [0; 512])
            })
        })
        .collect();
    for thread in running {
        thread.join().map_err(|_| Trouble::Unexpected("a thread panicked".into()))??;
    }
    Ok(Done { lines: Vec::new(), time: Some(sys::monotonic() - start) })
}

/// `struct nlmsghdr` and `struct ifinfomsg` for device 1 (include/uapi/linux/netlink.h, rtnetlink.h).
fn device_request(kind: u16) -> [u8; 32] {
    let mut message = [0; 32];
    message[0] = 32;
    message[4..6].copy_from_slice(&kind.to_ne_bytes());
    message[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message[20] = 1;
    message
}

/// Of each answer the kind of message, and the number behind its header: of an error the error.
fn netlink_bad(socket: &mut File) -> Outcome<Done> {
    /// Far behind the last that there is (`RTM_MAX`).
    const UNKNOWN: u16 = 0x7ff0;
    for (kind, error) in [(libc::RTM_GETLINK, None), (UNKNOWN, Some(-libc::EOPNOTSUPP))] {
        socket.write_all(&device_request(kind))?;
        let mut answer = [0; 16384];
        let size = socket.read(&mut answer)?;
        let of = |from: usize| answer[from..from + 4].try_into().map_or(0, i32::from_ne_bytes);
        let is_error = i32::from(answer[4]) == libc::NLMSG_ERROR && answer[5] == 0;
        if size < 20 || is_error != error.is_some() || error.is_some_and(|error| of(16) != error) {
            return Err(Trouble::Unexpected(format!(
                "netlink message {kind:#x}: {:?}",
                &answer[..size.min(20)]
            )));
        }
    }
    Ok(Done::default())
}

fn bind_used(_taken: &OwnedFd, second: &OwnedFd, port: u16) -> Outcome<Done> {
    match sys::bind(second.as_fd(), port) {
        Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {
            Ok(Done { lines: vec![port.to_string()], time: None })
        }
        Err(error) => Err(Trouble::Unexpected(format!("bind: {error}, not EADDRINUSE"))),
        Ok(()) => Err(Trouble::Unexpected(format!("port {port} was bound twice"))),
    }
}
