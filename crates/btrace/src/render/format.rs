//! Values whose type does not say how a person reads them: addresses, ports, protocols, modes (see [`trace::Format`]).

use super::{decimal, hexadecimal};
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use trace::Format;

/// Appends a value as text. False, and nothing appended, where the type says it all, or the bytes are too few.
pub fn text(format: Format, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let number = number(bytes);
    match format {
        Format::Plain | Format::Path | Format::Name => return false,
        Format::Hex => hexadecimal(number, out),
        Format::Octal => display(format_args!("0{number:o}"), out),
        Format::Ip4 => match bytes.first_chunk::<4>() {
            Some(octets) => display(Ipv4Addr::from(*octets), out),
            None => return false,
        },
        Format::Ip6 => match bytes.first_chunk::<16>() {
            Some(octets) => display(Ipv6Addr::from(*octets), out),
            None => return false,
        },
        Format::Mac => match bytes.first_chunk::<6>() {
            Some([a, b, c, d, e, f]) => {
                display(format_args!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}"), out);
            }
            None => return false,
        },
        Format::Port => decimal((number as u16).swap_bytes(), out),
        Format::EtherType => {
            let protocol = (number as u16).swap_bytes();
            match ether_type(protocol) {
                Some(name) => out.extend_from_slice(name.as_bytes()),
                None => hexadecimal(protocol.into(), out),
            }
        }
        Format::Family => named(family(number), number, out),
        Format::SocketType => named(socket_type(number), number, out),
        Format::Protocol => named(protocol(number), number, out),
        Format::TcpState => named(tcp_state(number), number, out),
        Format::Mode => mode(number as u32, out),
        Format::Device => {
            // MAJOR and MINOR of include/linux/kdev_t.h.
            decimal(number >> 20, out);
            out.push(b':');
            decimal(number & 0xf_ffff, out);
        }
    }
    true
}

/// Appends a value as JSON has it raw: bytes that are no number of the machine's as hexadecimal digits in their order.
pub fn raw(format: Format, shape: &btf::Shape, bytes: &[u8], out: &mut Vec<u8>) {
    match format {
        Format::Ip6 | Format::Mac => {
            out.push(b'"');
            bytes.iter().for_each(|b| display(format_args!("{b:02x}"), out));
            out.push(b'"');
        }
        // `struct in_addr` is its only member.
        Format::Ip4 => decimal(number(bytes), out),
        _ => shape.json(bytes, out),
    }
}

/// The first bytes, up to eight, as a number of the machine's.
pub fn number(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    u64::from_le_bytes(word)
}

fn display(value: impl std::fmt::Display, out: &mut Vec<u8>) {
    // A vector takes everything.
    let _ = write!(out, "{value}");
}

fn named(name: Option<&str>, number: u64, out: &mut Vec<u8>) {
    match name {
        Some(name) => out.extend_from_slice(name.as_bytes()),
        None => decimal(number, out),
    }
}

/// As `ls -l` has it (include/uapi/linux/stat.h).
fn mode(mode: u32, out: &mut Vec<u8>) {
    out.push(match mode & 0o170_000 {
        0o140_000 => b's',
        0o120_000 => b'l',
        0o100_000 => b'-',
        0o060_000 => b'b',
        0o040_000 => b'd',
        0o020_000 => b'c',
        0o010_000 => b'p',
        _ => b'?',
    });
    // Each third, its special bit, and the letter for that.
    for (shift, special, letter) in [(6, 0o4000, b's'), (3, 0o2000, b's'), (0, 0o1000, b't')] {
        let bits = mode >> shift;
        out.push(if bits & 4 != 0 { b'r' } else { b'-' });
        out.push(if bits & 2 != 0 { b'w' } else { b'-' });
        out.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => b'x',
            (false, false) => b'-',
        });
    }
}

/// include/uapi/linux/if_ether.h
fn ether_type(protocol: u16) -> Option<&'static str> {
    Some(match protocol {
        0x0001 => "802_3",
        0x0003 => "ALL",
        0x0004 => "802_2",
        0x0800 => "IP",
        0x0806 => "ARP",
        0x8035 => "RARP",
        0x8100 => "8021Q",
        0x86dd => "IPV6",
        0x8808 => "PAUSE",
        0x8847 => "MPLS_UC",
        0x8848 => "MPLS_MC",
        0x8863 => "PPP_DISC",
        0x8864 => "PPP_SES",
        0x888e => "PAE",
        0x88a8 => "8021AD",
        0x88cc => "LLDP",
        0x88e5 => "MACSEC",
        0x88f7 => "1588",
        _ => return None,
    })
}

/// include/linux/socket.h
pub fn family(number: u64) -> Option<&'static str> {
    const NAMES: [&str; 46] = [
        "UNSPEC",
        "UNIX",
        "INET",
        "AX25",
        "IPX",
        "APPLETALK",
        "NETROM",
        "BRIDGE",
        "ATMPVC",
        "X25",
        "INET6",
        "ROSE",
        "DECnet",
        "NETBEUI",
        "SECURITY",
        "KEY",
        "NETLINK",
        "PACKET",
        "ASH",
        "ECONET",
        "ATMSVC",
        "RDS",
        "SNA",
        "IRDA",
        "PPPOX",
        "WANPIPE",
        "LLC",
        "IB",
        "MPLS",
        "CAN",
        "TIPC",
        "BLUETOOTH",
        "IUCV",
        "RXRPC",
        "ISDN",
        "PHONET",
        "IEEE802154",
        "CAIF",
        "ALG",
        "NFC",
        "VSOCK",
        "KCM",
        "QIPCRTR",
        "SMC",
        "XDP",
        "MCTP",
    ];
    NAMES.get(usize::try_from(number).ok()?).copied()
}

/// include/linux/net.h
pub fn socket_type(number: u64) -> Option<&'static str> {
    Some(match number {
        1 => "STREAM",
        2 => "DGRAM",
        3 => "RAW",
        4 => "RDM",
        5 => "SEQPACKET",
        6 => "DCCP",
        10 => "PACKET",
        _ => return None,
    })
}

/// include/uapi/linux/in.h
pub fn protocol(number: u64) -> Option<&'static str> {
    Some(match number {
        0 => "IP",
        1 => "ICMP",
        2 => "IGMP",
        4 => "IPIP",
        6 => "TCP",
        12 => "PUP",
        17 => "UDP",
        33 => "DCCP",
        41 => "IPV6",
        46 => "RSVP",
        47 => "GRE",
        50 => "ESP",
        51 => "AH",
        58 => "ICMPV6",
        94 => "BEETPH",
        103 => "PIM",
        108 => "COMP",
        115 => "L2TP",
        132 => "SCTP",
        136 => "UDPLITE",
        137 => "MPLS",
        143 => "ETHERNET",
        255 => "RAW",
        256 => "SMC",
        262 => "MPTCP",
        _ => return None,
    })
}

/// include/net/tcp_states.h
pub fn tcp_state(number: u64) -> Option<&'static str> {
    const NAMES: [&str; 13] = [
        "ESTABLISHED",
        "SYN_SENT",
        "SYN_RECV",
        "FIN_WAIT1",
        "FIN_WAIT2",
        "TIME_WAIT",
        "CLOSE",
        "CLOSE_WAIT",
        "LAST_ACK",
        "LISTEN",
        "CLOSING",
        "NEW_SYN_RECV",
        "BOUND_INACTIVE",
    ];
    NAMES.get(usize::try_from(number).ok()?.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: Format, bytes: &[u8]) -> String {
        let mut out = Vec::new();
        assert!(text(format, bytes, &mut out), "{format:?}");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn addresses_and_ports_are_in_network_order() {
        assert_eq!(shown(Format::Ip4, &[127, 0, 0, 1]), "127.0.0.1");
        let mut local = [0; 16];
        local[15] = 1;
        assert_eq!(shown(Format::Ip6, &local), "::1");
        assert_eq!(shown(Format::Port, &[0, 80]), "80");
        assert_eq!(shown(Format::Port, &[0xff, 0xff]), "65535");
        assert_eq!(shown(Format::Mac, &[0, 1, 2, 0xaa, 0xbb, 0xcc]), "00:01:02:aa:bb:cc");
        assert!(!text(Format::Ip6, &[0; 15], &mut Vec::new()), "too few bytes");
    }

    #[test]
    fn numbers_with_names() {
        assert_eq!(shown(Format::EtherType, &[0x86, 0xdd]), "IPV6");
        assert_eq!(shown(Format::EtherType, &[0x12, 0x34]), "0x1234");
        assert_eq!(shown(Format::Family, &[45, 0]), "MCTP");
        assert_eq!(shown(Format::Family, &[46, 0]), "46");
        assert_eq!(shown(Format::TcpState, &[10]), "LISTEN");
        assert_eq!(shown(Format::TcpState, &[0]), "0");
        assert_eq!(shown(Format::Protocol, &262u16.to_le_bytes()), "MPTCP");
        assert_eq!(shown(Format::SocketType, &[5, 0]), "SEQPACKET");
    }

    #[test]
    fn modes_and_devices() {
        assert_eq!(shown(Format::Mode, &0o100_644u16.to_le_bytes()), "-rw-r--r--");
        assert_eq!(shown(Format::Mode, &0o041_777u16.to_le_bytes()), "drwxrwxrwt");
        assert_eq!(shown(Format::Mode, &0o104_644u16.to_le_bytes()), "-rwSr--r--");
        assert_eq!(shown(Format::Device, &((8u32 << 20) | 17).to_le_bytes()), "8:17");
        assert_eq!(shown(Format::Hex, &31u32.to_le_bytes()), "0x1f");
    }
}
