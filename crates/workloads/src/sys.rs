//! System calls as they are, one function each, so that a trace shows what was asked and nothing else.

use std::ffi::CString;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// The call's result, or its error.
fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a NUL in a path"))
}

/// openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC).
pub fn open(path: &str) -> io::Result<OwnedFd> {
    open_c(&c_string(path)?)
}

/// [`open`] with the path ready, for loops.
pub fn open_c(path: &CString) -> io::Result<OwnedFd> {
    // SAFETY: the path is a NUL-terminated string that outlives the call.
    let fd = check(
        unsafe { libc::openat(libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }.into(),
    )?;
    // SAFETY: the call has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// openat of a path that lies where no memory is.
pub fn open_nowhere() -> io::Result<()> {
    let nowhere = std::ptr::without_provenance(8);
    // SAFETY: the kernel reads user memory with care; that it cannot is what is wanted.
    check(unsafe { libc::openat(libc::AT_FDCWD, nowhere, libc::O_RDONLY) }.into()).map(drop)
}

/// getdents64 of a folder to where no memory is.
pub fn entries_nowhere(folder: BorrowedFd<'_>) -> io::Result<()> {
    let nowhere = std::ptr::without_provenance_mut::<u8>(8);
    // SAFETY: the kernel writes user memory with care; that it cannot is what is wanted.
    check(unsafe { libc::syscall(libc::SYS_getdents64, folder.as_raw_fd(), nowhere, 4096) }).map(drop)
}

/// read(fd, buffer, its length).
pub fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is writable for the length given.
    let length = unsafe { libc::read(fd.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    check(length as libc::c_long).map(|length| length as usize)
}

/// CLOCK_MONOTONIC.
pub fn monotonic() -> Duration {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a timespec to write to. The call cannot fail for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// clock_nanosleep for so long, whole even when signals come.
pub fn sleep(time: Duration) -> io::Result<()> {
    let mut left =
        libc::timespec { tv_sec: time.as_secs() as libc::time_t, tv_nsec: time.subsec_nanos().into() };
    loop {
        let want = left;
        // SAFETY: both point to timespecs that live through the call.
        match unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const want, &raw mut left) } {
            0 => return Ok(()),
            libc::EINTR => {}
            error => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// The address of a port of this machine, as the calls take it.
fn loopback(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from(Ipv4Addr::LOCALHOST).to_be() },
        sin_zero: [0; 8],
    }
}

/// socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0).
pub fn tcp_socket() -> io::Result<OwnedFd> {
    // SAFETY: no memory is passed.
    let fd = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) }.into())?;
    // SAFETY: the call has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// A socket to the kernel's routing tables and devices.
pub fn netlink_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: numbers only.
    let fd = check(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) }.into())?;
    // SAFETY: just made by the kernel, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// bind to 127.0.0.1:`port`; 0 takes a free one.
pub fn bind(socket: BorrowedFd<'_>, port: u16) -> io::Result<()> {
    let address = loopback(port);
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is a sockaddr_in of the size given.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) }.into()).map(drop)
}

/// listen with so long a queue.
pub fn listen(socket: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) }.into()).map(drop)
}

/// connect to 127.0.0.1:`port`.
pub fn connect(socket: BorrowedFd<'_>, port: u16) -> io::Result<()> {
    let address = loopback(port);
    let size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address is a sockaddr_in of the size given.
    check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), size) }.into()).map(drop)
}

/// connect to an address that lies where no memory is.
pub fn connect_nowhere(socket: BorrowedFd<'_>) -> io::Result<()> {
    let nowhere = std::ptr::without_provenance(8);
    let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: the kernel reads user memory with care; that it cannot is what is wanted.
    check(unsafe { libc::connect(socket.as_raw_fd(), nowhere, size) }.into()).map(drop)
}

/// accept4 with SOCK_CLOEXEC; the peer's address is not asked for.
pub fn accept(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (none, no_size) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: null pointers say that no address is wanted.
    let fd = check(unsafe { libc::accept4(socket.as_raw_fd(), none, no_size, libc::SOCK_CLOEXEC) }.into())?;
    // SAFETY: the call has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// getsockname: the socket's own address.
pub fn own_address(socket: BorrowedFd<'_>) -> io::Result<SocketAddrV4> {
    let mut address = loopback(0);
    let mut size = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the address may be written for the size given.
    check(unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut size) }.into())?;
    Ok(SocketAddrV4::new(u32::from_be(address.sin_addr.s_addr).into(), u16::from_be(address.sin_port)))
}

/// fork; the child does `child` and exits with what it gives.
pub fn fork(child: impl FnOnce() -> i32) -> io::Result<u32> {
    // SAFETY: the callers are single-threaded, so the child may do what any process may; it leaves by _exit, so
    // buffers are not written twice.
    match check(unsafe { libc::fork() }.into())? {
        0 => {
            let status = child();
            // SAFETY: ends the process.
            unsafe { libc::_exit(status) }
        }
        pid => Ok(pid as u32),
    }
}

/// execve(path, [path], no environment). Gives back why it failed.
pub fn exec(path: &CString) -> io::Error {
    let arguments = [path.as_ptr(), std::ptr::null()];
    let environment = [std::ptr::null()];
    // SAFETY: path and arguments are NUL-terminated strings, both lists end with a null pointer, and all of them
    // outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// wait4 for one child.
pub fn wait(pid: u32) -> io::Result<ExitStatus> {
    wait4(pid as i32).map(|(_, status)| status)
}

/// wait4 for any child: its process number and status.
pub fn wait_any() -> io::Result<(u32, ExitStatus)> {
    wait4(-1)
}

fn wait4(pid: i32) -> io::Result<(u32, ExitStatus)> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is an int to write to.
        match check(unsafe { libc::waitpid(pid, &raw mut status, 0) }.into()) {
            Ok(pid) => return Ok((pid as u32, ExitStatus::from_raw(status))),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Keeps SIGUSR1 from ending us, and gives a descriptor that is readable once it has come.
pub fn user_signal() -> io::Result<OwnedFd> {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset fills the set, and the other calls only read it.
    let fd = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGUSR1);
        check(libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()).into())?;
        check(libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC).into())?
    };
    // SAFETY: the call has just given us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// poll until one of the descriptors is readable or at its end; says of each whether it is.
pub fn poll(fds: &[BorrowedFd<'_>]) -> io::Result<Vec<bool>> {
    let mut wanted: Vec<libc::pollfd> =
        fds.iter().map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }).collect();
    // SAFETY: the list is writable for the length given.
    check(unsafe { libc::poll(wanted.as_mut_ptr(), wanted.len() as libc::nfds_t, -1) }.into())?;
    Ok(wanted.iter().map(|entry| entry.revents != 0).collect())
}

/// splice from a pipe to a virtio-serial port until the pipe's writers are gone: the number of bytes.
pub fn splice_all(from: BorrowedFd<'_>, to: BorrowedFd<'_>) -> io::Result<u64> {
    let mut total = 0;
    loop {
        // The port's driver takes an empty pipe for a finished one, so wait for data here.
        let mut wanted = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `wanted` is one pollfd, writable.
        match check(unsafe { libc::poll(&raw mut wanted, 1, -1) }.into()) {
            Ok(_) if wanted.revents & libc::POLLIN == 0 => return Ok(total),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        let (none, no_offset) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: null pointers say that neither side has an offset.
        let moved = unsafe { libc::splice(from.as_raw_fd(), none, to.as_raw_fd(), no_offset, 1 << 20, 0) };
        match check(moved as libc::c_long) {
            Ok(moved) => total += moved as u64,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// mount of a file system that needs no device.
pub fn mount(kind: &str, place: &str) -> io::Result<()> {
    let (kind, place) = (c_string(kind)?, c_string(place)?);
    // SAFETY: the strings are NUL-terminated and outlive the call; there is no data.
    let result = unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    check(result.into()).map(drop)
}

/// unshare of the cgroup namespace.
pub fn new_cgroup_namespace() -> io::Result<()> {
    // SAFETY: no memory is involved.
    check(unsafe { libc::unshare(libc::CLONE_NEWCGROUP) }.into()).map(drop)
}

/// chmod.
pub fn chmod(path: &str, mode: u32) -> io::Result<()> {
    let path = c_string(path)?;
    // SAFETY: the path is NUL-terminated and outlives the call.
    check(unsafe { libc::chmod(path.as_ptr(), mode) }.into()).map(drop)
}

/// init_module without parameters. One that is loaded already is as well.
pub fn load_module(object: &[u8]) -> io::Result<()> {
    // SAFETY: the object is readable for the length given, the parameters are an empty string.
    let result = unsafe { libc::syscall(libc::SYS_init_module, object.as_ptr(), object.len(), c"".as_ptr()) };
    match check(result) {
        Err(error) if error.raw_os_error() != Some(libc::EEXIST) => Err(error),
        _ => Ok(()),
    }
}

/// sethostname.
pub fn set_host_name(name: &str) -> io::Result<()> {
    // SAFETY: the name is readable for the length given.
    check(unsafe { libc::sethostname(name.as_ptr().cast(), name.len()) }.into()).map(drop)
}

/// Sets IFF_UP on a network interface, by netdevice(7).
pub fn interface_up(name: &str) -> io::Result<()> {
    let socket = tcp_socket()?;
    // SAFETY: ifreq is plain data, for which zeroes are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero, to end the name.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request is an ifreq that lives through the call.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) }.into())?;
    // SAFETY: the call above has filled this field of the union.
    unsafe { request.ifr_ifru.ifru_flags |= libc::IFF_UP as libc::c_short };
    // SAFETY: as above.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) }.into()).map(drop)
}

/// SIGKILL to every process but ourselves (we are process 1).
pub fn kill_all() {
    // SAFETY: no memory is passed. It fails when there is nobody else.
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Restarts the machine, which ends it in the lab.
pub fn restart() {
    // SAFETY: no memory is passed; we are init of a machine without disks.
    unsafe { libc::reboot(libc::RB_AUTOBOOT) };
}
