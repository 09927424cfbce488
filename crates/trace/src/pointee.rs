//! What a person wants to know of the object behind a pointer, beside its address.
//!
//! A table: to show more, add a line. Paths are followed through the running kernel's own BTF, so that offsets are
//! never written down; a member that this kernel does not have is left out on it, and the rest is shown. Members that
//! lie close together are read by one probe read (see [`crate::notes`]).

/// Members worth showing of some structures.
#[derive(Debug)]
pub struct Pointee {
    /// Tags of the structures.
    pub structs: &'static [&'static str],
    /// Read as this structure, which lies at the beginning of theirs: `struct tcp_sock` as `struct sock`.
    pub view: Option<&'static str>,
    /// Such pointers also lead to user memory: read there when the address says so.
    pub user: bool,
    /// How it is put in text.
    pub form: Form,
    /// The members.
    pub show: &'static [Show],
}

/// One member.
#[derive(Debug)]
pub struct Show {
    /// What it is called.
    pub label: &'static str,
    /// Path of members from the object: `.` inside an object, `->` through a pointer, `[0]` an array's first element; empty:
    /// the object itself. `(tag)` in front reads the object as another structure. Of several, separated by `|`, the first
    /// that this kernel has.
    pub path: &'static str,
    /// How it reads.
    pub format: Format,
    /// Shown only when a member before it (by label) has one of these values.
    pub when: Option<(&'static str, &'static [u64])>,
}

/// How what is shown of an object is put in text. (JSON always has the members.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `label=value, …`
    #[default]
    Members,
    /// `TCP ESTABLISHED 127.0.0.1:40000 -> 127.0.0.1:80`, from members called as in [`SOCKET`].
    Socket,
    /// `127.0.0.1:80`, from members called as in [`ADDRESS`].
    Address,
}

/// How a value reads, where its type does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As its type says; a pointer to a function with its symbol; `char[]` and `char *` as text.
    #[default]
    Plain,
    /// `0x1f`
    Hex,
    /// `0644`
    Octal,
    /// IPv4 address in network order.
    Ip4,
    /// IPv6 address.
    Ip6,
    /// Port in network order.
    Port,
    /// Ethernet protocol in network order, by name: `IPV6`.
    EtherType,
    /// Address family by name: `INET`.
    Family,
    /// Socket type by name: `STREAM`.
    SocketType,
    /// IP protocol by name: `TCP`.
    Protocol,
    /// TCP state by name: `LISTEN`.
    TcpState,
    /// Ethernet address.
    Mac,
    /// File type and permissions: `-rw-r--r--`.
    Mode,
    /// Device number of the kernel's: `8:1`.
    Device,
    /// A walk from a `struct path`, or from a `struct dentry` to the root of its file system.
    Path,
    /// A `struct qstr`: as many bytes as it says.
    Name,
}

const fn show(label: &'static str, path: &'static str) -> Show {
    Show { label, path, format: Format::Plain, when: None }
}

impl Show {
    const fn as_(self, format: Format) -> Show {
        Show { format, ..self }
    }

    const fn when(self, label: &'static str, values: &'static [u64]) -> Show {
        Show { when: Some((label, values)), ..self }
    }
}

const fn line(structs: &'static [&'static str], show: &'static [Show]) -> Pointee {
    Pointee { structs, view: None, user: false, form: Form::Members, show }
}

impl Pointee {
    const fn view(self, view: &'static str) -> Pointee {
        Pointee { view: Some(view), ..self }
    }

    const fn form(self, form: Form) -> Pointee {
        Pointee { form, ..self }
    }

    const fn or_user(self) -> Pointee {
        Pointee { user: true, ..self }
    }
}

/// Address families (include/linux/socket.h).
mod family {
    pub const UNIX: &[u64] = &[1];
    pub const INET: &[u64] = &[2];
    pub const INET6: &[u64] = &[10];
    pub const NETLINK: &[u64] = &[16];
}

/// Of a `struct sock`.
const SOCKET: &[Show] = &[
    show("family", "__sk_common.skc_family").as_(Format::Family),
    show("type", "sk_type").as_(Format::SocketType),
    show("protocol", "sk_protocol").as_(Format::Protocol).when("family", &[2, 10]),
    show("state", "__sk_common.skc_state").as_(Format::TcpState),
    show("local_address", "__sk_common.skc_rcv_saddr").as_(Format::Ip4).when("family", family::INET),
    show("local_address", "__sk_common.skc_v6_rcv_saddr").as_(Format::Ip6).when("family", family::INET6),
    show("local_port", "__sk_common.skc_num").when("family", &[2, 10]),
    show("remote_address", "__sk_common.skc_daddr").as_(Format::Ip4).when("family", family::INET),
    show("remote_address", "__sk_common.skc_v6_daddr").as_(Format::Ip6).when("family", family::INET6),
    show("remote_port", "__sk_common.skc_dport").as_(Format::Port).when("family", &[2, 10]),
    show("path", "(unix_sock)addr->name[0].sun_path").when("family", family::UNIX),
];

/// The same of a `struct socket`, through its `sk`.
const SOCKET_OF: &[Show] = &[
    show("family", "sk->__sk_common.skc_family").as_(Format::Family),
    show("type", "sk->sk_type").as_(Format::SocketType),
    show("protocol", "sk->sk_protocol").as_(Format::Protocol).when("family", &[2, 10]),
    show("state", "sk->__sk_common.skc_state").as_(Format::TcpState),
    show("local_address", "sk->__sk_common.skc_rcv_saddr").as_(Format::Ip4).when("family", family::INET),
    show("local_address", "sk->__sk_common.skc_v6_rcv_saddr").as_(Format::Ip6).when("family", family::INET6),
    show("local_port", "sk->__sk_common.skc_num").when("family", &[2, 10]),
    show("remote_address", "sk->__sk_common.skc_daddr").as_(Format::Ip4).when("family", family::INET),
    show("remote_address", "sk->__sk_common.skc_v6_daddr").as_(Format::Ip6).when("family", family::INET6),
    show("remote_port", "sk->__sk_common.skc_dport").as_(Format::Port).when("family", &[2, 10]),
];

/// The same of what is no full socket yet, or no more: it begins with a `struct sock_common`, and is TCP's.
const SOCKET_COMMON: &[Show] = &[
    show("family", "skc_family").as_(Format::Family),
    show("state", "skc_state").as_(Format::TcpState),
    show("local_address", "skc_rcv_saddr").as_(Format::Ip4).when("family", family::INET),
    show("local_address", "skc_v6_rcv_saddr").as_(Format::Ip6).when("family", family::INET6),
    show("local_port", "skc_num").when("family", &[2, 10]),
    show("remote_address", "skc_daddr").as_(Format::Ip4).when("family", family::INET),
    show("remote_address", "skc_v6_daddr").as_(Format::Ip6).when("family", family::INET6),
    show("remote_port", "skc_dport").as_(Format::Port).when("family", &[2, 10]),
];

/// Of a `struct sockaddr`.
const ADDRESS: &[Show] = &[
    show("family", "(sockaddr_in)sin_family").as_(Format::Family),
    show("address", "(sockaddr_in)sin_addr").as_(Format::Ip4).when("family", family::INET),
    show("address", "(sockaddr_in6)sin6_addr").as_(Format::Ip6).when("family", family::INET6),
    show("port", "(sockaddr_in)sin_port").as_(Format::Port).when("family", &[2, 10]),
    show("path", "(sockaddr_un)sun_path").when("family", family::UNIX),
    show("pid", "(sockaddr_nl)nl_pid").when("family", family::NETLINK),
];

/// Structures that begin with a `struct sock`.
const SOCKETS: &[&str] = &[
    "sock",
    "inet_sock",
    "inet_connection_sock",
    "tcp_sock",
    "tcp6_sock",
    "udp_sock",
    "udp6_sock",
    "raw_sock",
    "raw6_sock",
    "unix_sock",
    "netlink_sock",
    "packet_sock",
    "vsock_sock",
    "mptcp_sock",
];

/// The table.
pub const POINTEES: &[Pointee] = &[
    // Processes.
    line(&["task_struct"], &[show("pid", "tgid"), show("tid", "pid"), show("comm", "comm")]),
    line(&["linux_binprm"], &[show("filename", "filename")]),
    line(&["pid"], &[show("nr", "numbers[0].nr")]),
    line(&["cred"], &[show("uid", "uid.val"), show("gid", "gid.val"), show("euid", "euid.val")]),
    line(
        &["kernel_clone_args"],
        &[show("flags", "flags").as_(Format::Hex), show("exit_signal", "exit_signal")],
    ),
    line(
        &["kernel_siginfo"],
        &[show("signo", "si_signo"), show("errno", "si_errno"), show("code", "si_code")],
    ),
    line(&["ksignal"], &[show("sig", "sig")]),
    line(&["rq"], &[show("cpu", "cpu"), show("nr_running", "nr_running")]),
    line(&["cgroup"], &[show("id", "kn->id"), show("name", "kn->name")]),
    line(&["kernfs_node"], &[show("id", "id"), show("name", "name")]),
    line(&["mm_struct"], &[show("comm", "owner->comm")]),
    line(
        &["vm_area_struct"],
        &[
            show("start", "vm_start").as_(Format::Hex),
            show("end", "vm_end").as_(Format::Hex),
            show("path", "vm_file->f_path").as_(Format::Path),
        ],
    ),
    line(
        &["vm_fault"],
        &[show("address", "address").as_(Format::Hex), show("flags", "flags").as_(Format::Hex)],
    ),
    // Files.
    line(&["file"], &[show("path", "f_path").as_(Format::Path)]),
    line(&["path"], &[show("path", "").as_(Format::Path)]),
    line(&["dentry"], &[show("path", "").as_(Format::Path)]),
    line(&["kiocb"], &[show("path", "ki_filp->f_path").as_(Format::Path), show("pos", "ki_pos")]),
    line(
        &["inode"],
        &[
            show("ino", "i_ino"),
            show("mode", "i_mode").as_(Format::Mode),
            show("dev", "i_sb->s_dev").as_(Format::Device),
        ],
    ),
    line(&["super_block"], &[show("id", "s_id"), show("type", "s_type->name")]),
    line(&["file_system_type"], &[show("name", "name")]),
    line(
        &["vfsmount"],
        &[show("type", "mnt_sb->s_type->name"), show("dev", "mnt_sb->s_dev").as_(Format::Device)],
    ),
    line(&["filename"], &[show("name", "name")]),
    line(&["qstr"], &[show("name", "").as_(Format::Name)]),
    line(&["open_how"], &[show("flags", "flags").as_(Format::Hex), show("mode", "mode").as_(Format::Octal)])
        .or_user(),
    line(&["iov_iter"], &[show("count", "count")]),
    line(&["ctl_table"], &[show("procname", "procname")]),
    line(&["attribute"], &[show("name", "name")]),
    // Disks.
    line(&["gendisk"], &[show("disk", "disk_name")]),
    line(&["block_device"], &[show("dev", "bd_dev").as_(Format::Device)]),
    line(
        &["bio"],
        &[
            show("disk", "bi_bdev->bd_disk->disk_name|bi_disk->disk_name"),
            show("sector", "bi_iter.bi_sector"),
            show("size", "bi_iter.bi_size"),
        ],
    ),
    line(
        &["request"],
        &[
            show("disk", "q->disk->disk_name|rq_disk->disk_name"),
            show("sector", "__sector"),
            show("len", "__data_len"),
        ],
    ),
    // Networks.
    line(SOCKETS, SOCKET).view("sock").form(Form::Socket),
    line(&["socket"], SOCKET_OF).form(Form::Socket),
    line(
        &["sock_common", "request_sock", "inet_request_sock", "tcp_request_sock", "inet_timewait_sock"],
        SOCKET_COMMON,
    )
    .view("sock_common")
    .form(Form::Socket),
    line(
        &[
            "sockaddr",
            "sockaddr_storage",
            "__kernel_sockaddr_storage",
            "sockaddr_unsized",
            "sockaddr_in",
            "sockaddr_in6",
            "sockaddr_un",
        ],
        ADDRESS,
    )
    .form(Form::Address)
    .or_user(),
    line(
        &["sk_buff"],
        &[show("len", "len"), show("protocol", "protocol").as_(Format::EtherType), show("dev", "dev->name")],
    ),
    line(&["net_device"], &[show("name", "name"), show("ifindex", "ifindex")]),
    line(&["net"], &[show("inum", "ns.inum")]),
    line(
        &["nf_hook_state"],
        &[
            show("hook", "hook"),
            show("pf", "pf").as_(Format::Family),
            show("in", "in->name"),
            show("out", "out->name"),
        ],
    ),
    line(&["napi_struct"], &[show("dev", "dev->name"), show("weight", "weight")]),
    line(
        &["ethhdr"],
        &[
            show("source", "h_source").as_(Format::Mac),
            show("dest", "h_dest").as_(Format::Mac),
            show("proto", "h_proto").as_(Format::EtherType),
        ],
    ),
    line(
        &["iphdr"],
        &[
            show("saddr", "saddr").as_(Format::Ip4),
            show("daddr", "daddr").as_(Format::Ip4),
            show("protocol", "protocol").as_(Format::Protocol),
        ],
    ),
    line(
        &["ipv6hdr"],
        &[
            show("saddr", "saddr").as_(Format::Ip6),
            show("daddr", "daddr").as_(Format::Ip6),
            show("nexthdr", "nexthdr").as_(Format::Protocol),
        ],
    ),
    line(
        &["tcphdr", "udphdr"],
        &[show("source", "source").as_(Format::Port), show("dest", "dest").as_(Format::Port)],
    ),
    line(&["in6_addr"], &[show("address", "").as_(Format::Ip6)]),
    line(
        &["flowi4"],
        &[
            show("saddr", "saddr").as_(Format::Ip4),
            show("daddr", "daddr").as_(Format::Ip4),
            show("proto", "__fl_common.flowic_proto").as_(Format::Protocol),
        ],
    ),
    line(
        &["flowi6"],
        &[
            show("saddr", "saddr").as_(Format::Ip6),
            show("daddr", "daddr").as_(Format::Ip6),
            show("proto", "__fl_common.flowic_proto").as_(Format::Protocol),
        ],
    ),
    line(&["nlmsghdr"], &[show("len", "nlmsg_len"), show("type", "nlmsg_type"), show("pid", "nlmsg_pid")]),
    // BPF.
    line(&["bpf_prog"], &[show("id", "aux->id"), show("name", "aux->name")]),
    line(&["bpf_prog_aux"], &[show("id", "id"), show("name", "name")]),
    line(&["bpf_map"], &[show("id", "id"), show("name", "name")]),
    line(&["bpf_link"], &[show("id", "id"), show("prog_id", "prog->aux->id")]),
    // Work to be done later, and by whom.
    line(&["work_struct"], &[show("func", "func")]),
    line(&["delayed_work"], &[show("func", "work.func")]),
    line(&["workqueue_struct"], &[show("name", "name")]),
    line(&["timer_list"], &[show("function", "function"), show("expires", "expires")]),
    line(&["hrtimer"], &[show("function", "function")]),
    line(&["callback_head"], &[show("func", "func")]),
    line(&["tasklet_struct"], &[show("func", "func|callback")]),
    line(&["softirq_action"], &[show("action", "action")]),
    line(&["irqaction"], &[show("irq", "irq"), show("name", "name"), show("handler", "handler")]),
    line(&["irq_desc"], &[show("irq", "irq_data.irq"), show("name", "action->name")]),
    line(&["notifier_block"], &[show("call", "notifier_call")]),
    // The kernel's own.
    line(&["module"], &[show("name", "name")]),
    line(&["device"], &[show("name", "kobj.name")]),
    line(&["device_driver", "bus_type"], &[show("name", "name")]),
    line(&["kobject"], &[show("name", "name")]),
    line(&["timespec64"], &[show("sec", "tv_sec"), show("nsec", "tv_nsec")]),
];

/// The line for a structure, if it has one.
pub fn of(strukt: &str) -> Option<&'static Pointee> {
    POINTEES.iter().find(|p| p.structs.contains(&strukt))
}

/// Structures that lines name beside those they are for: to be found by name.
pub(crate) fn views() -> impl Iterator<Item = &'static str> {
    POINTEES.iter().flat_map(|line| {
        let casts = line.show.iter().flat_map(|s| s.path.split('|')).filter_map(|p| split_cast(p).0);
        line.view.into_iter().chain(casts)
    })
}

/// A path's cast, and the rest.
pub(crate) fn split_cast(path: &str) -> (Option<&str>, &str) {
    match path.strip_prefix('(').and_then(|p| p.split_once(')')) {
        Some((cast, rest)) => (Some(cast), rest),
        None => (None, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        let mut seen = Vec::new();
        for line in POINTEES {
            for name in line.structs {
                assert!(!seen.contains(name), "{name} has two lines");
                seen.push(*name);
            }
            for (at, show) in line.show.iter().enumerate() {
                if let Some((label, values)) = show.when {
                    let on = line.show[..at].iter().find(|s| s.label == label).expect("a member before it");
                    assert!(on.when.is_none() && !values.is_empty(), "{} of {:?}", show.label, line.structs);
                }
            }
        }
    }
}
