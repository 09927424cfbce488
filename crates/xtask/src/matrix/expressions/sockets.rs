//! Connections over loopback: ports, addresses, headers of packets.

use super::{Check, Run, named, outputs, runs};
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(in super::super) const CHECKS: &[Check] = &[CONNECTIONS, HEADERS, ONE_PORT];

/// `LOCAL PORT` of each connection, as the workload says.
fn connections<'l>(lines: &[&'l str]) -> Result<BTreeSet<(u64, u64)>> {
    let pair = |line: &&'l str| -> Result<(u64, u64)> {
        let (local, port) = line.split_once(' ').with_context(|| line.to_string())?;
        Ok((local.parse()?, port.parse()?))
    };
    lines.iter().map(pair).collect()
}

/// Two outputs of each event, as numbers.
fn pairs(run: &Run, at: [usize; 2]) -> Result<Vec<(u64, u64)>> {
    let number = |event: &Value, at: usize| {
        outputs(event).get(at).and_then(|o| o["value"].as_u64()).with_context(|| format!("{at}: {event}"))
    };
    run.events.iter().map(|e| Ok((number(e, at[0])?, number(e, at[1])?))).collect()
}

const CONNECTIONS: Check = Check {
    name: "expressions: ports and addresses of connections, in the modes; members of the whole socket by a cast; states by name",
    command: r#"
        for m in entry exit both; do
            echo "= $m"
            run $m -k tcp_connect --mode $m --filter-arg 'ip4(sk->__sk_common.skc_daddr) == "127.0.0.1"' \
                --filter-arg 'sk->__sk_common.skc_state in (TCP_SYN_SENT, TCP_ESTABLISHED)' \
                --output-arg 'sk->__sk_common.skc_num' --output-arg 'port(sk->__sk_common.skc_dport)' \
                --output-arg 'ip4(sk->__sk_common.skc_daddr)' --output-arg '((struct tcp_sock *)sk)->inet_conn.icsk_inet.sk.__sk_common.skc_num' \
                --output-arg 'ntohs(sk->__sk_common.skc_dport) == port(sk->__sk_common.skc_dport)' --output-arg '((struct inet_sock *)sk)->inet_sport' \
                -c 'workloads connect-loopback 5 >/tmp/ports'
            cp /tmp/ports /tmp/ports.$m
        done >/tmp/all
        for m in entry exit both; do sed "s/^/$m /" /tmp/ports.$m; done
        grep -v '^= ' /tmp/all
        run nobody -k tcp_connect --filter-arg 'ip4(sk->__sk_common.skc_daddr) in ("127.0.0.2", "10.0.0.1")' -c 'workloads connect-loopback 5'
        run other -k tcp_connect --filter-arg 'ip4(sk->__sk_common.skc_daddr) != "127.0.0.1" || sk->__sk_common.skc_state == TCP_LISTEN' -c 'workloads connect-loopback 5'"#,
    judge: |ran| {
        let (lines, runs) = runs(ran)?;
        for (mode, ends) in [("entry", 1), ("exit", 1), ("both", 2)] {
            let said: Vec<&str> =
                lines.iter().filter_map(|l| l.strip_prefix(mode)?.strip_prefix(' ')).collect();
            let said = connections(&said)?;
            ensure!(said.len() == 5, "{said:?}");
            let run = named(&runs, mode)?;
            run.has(5 * ends)?;
            let seen = pairs(run, [0, 1])?;
            ensure!(seen.iter().copied().collect::<BTreeSet<_>>() == said, "{mode}: {seen:?}, not {said:?}");
            for event in &run.events {
                let [local, _, address, cast, same, source] = outputs(event) else {
                    anyhow::bail!("{event}")
                };
                ensure!(address["text"] == "127.0.0.1" && address["value"] == 0x0100_007f, "{event}");
                ensure!(cast["value"] == local["value"] && same["value"] == 1, "{event}");
                let swapped = local["value"].as_u64().context("local")? as u16;
                ensure!(source["value"] == swapped.swap_bytes(), "{event}");
            }
        }
        named(&runs, "nobody")?.has(0)?;
        named(&runs, "other")?.has(0)
    },
};

/// The headers of a packet.
const HEADERS: Check = Check {
    name: "expressions: headers of packets by casts of sums: the packets that open connections, and what they hold",
    command: r#"
        ip='((struct iphdr *)(skb->head + skb->network_header))'; tcp='((struct tcphdr *)(skb->head + skb->transport_header))'
        run syn -k tcp_v4_rcv --mode entry --filter-arg "$tcp->syn && !$tcp->ack" --filter-arg "$ip->version == 4 && $ip->protocol == 6" \
            --output-arg "port($tcp->source)" --output-arg "port($tcp->dest)" --output-arg "ip4($ip->saddr)" --output-arg "$ip->ihl * 4" \
            --output-arg "ntohs($ip->tot_len) - $ip->ihl * 4 == skb->len" --output-arg "$tcp->doff >= 5" --output-arg "*$ip" --output-arg "buf($ip, 4)" \
            -c 'workloads connect-loopback 5 >/tmp/ports'
        cat /tmp/ports >/tmp/before; cat /tmp/o >/tmp/keep
        run answer -k tcp_v4_rcv --mode entry --filter-arg "$tcp->syn && $tcp->ack" --output-arg "skb->dev->name" --output-arg 'skb->dev->ifindex == 1' \
            -c 'workloads connect-loopback 4'
        echo '== ports 0 -'; sed 's/\(.*\) \(.*\)/[\1,\2]/' /tmp/before"#,
    judge: |ran| {
        let (text, ports) = ran.stdout.split_once("== ports 0 -\n").context("no ports")?;
        let ports =
            ports.lines().map(|l| Ok(serde_json::from_str(l)?)).collect::<Result<BTreeSet<(u64, u64)>>>()?;
        let ran = crate::frames::Ran { status: ran.status, stdout: text.into(), stderr: ran.stderr.clone() };
        let (_, runs) = runs(&ran)?;
        let syn = named(&runs, "syn")?;
        syn.has(5)?;
        let seen = pairs(syn, [0, 1])?;
        ensure!(seen.iter().copied().collect::<BTreeSet<_>>() == ports, "{seen:?}, not {ports:?}");
        for event in &syn.events {
            let [_, _, source, header, lengths, offset, whole, raw] = outputs(event) else {
                anyhow::bail!("{event}")
            };
            ensure!(source["text"] == "127.0.0.1" && header["value"] == 20, "{event}");
            ensure!(lengths["value"] == 1 && offset["value"] == 1, "{event}");
            ensure!(
                whole["value"]["version"] == 4
                    && whole["value"]["ihl"] == 5
                    && whole["value"]["protocol"] == 6,
                "{event}"
            );
            ensure!(
                raw["value"].as_str().is_some_and(|hex| hex.starts_with("4500") && hex.len() == 8),
                "{event}"
            );
        }
        let answer = named(&runs, "answer")?;
        answer.has(4)?;
        answer.shows(&[json!("lo"), json!(1)])
    },
};

const ONE_PORT: Check = Check {
    name: "expressions: the connections to one port, whoever makes them and in whatever context, and no others",
    command: r#"
        waiting connect-loopback 6; one=$w; before=$(awk '$4 == "0A" { print substr($2, index($2, ":") + 1) }' /proc/net/tcp)
        waiting connect-loopback 3; other=$w
        echo $before
        traced -k tcp_v4_connect,inet_accept,tcp_v4_rcv,tcp_v4_do_rcv --mode entry --json -o /tmp/o \
            --filter-arg "tcp_v4_rcv:port(((struct tcphdr *)(skb->head + skb->transport_header))->dest) == 0x$before && ((struct tcphdr *)(skb->head + skb->transport_header))->syn" \
            --filter-arg "tcp_v4_connect:port(((struct sockaddr_in *)uaddr)->sin_port) == 0x$before" --filter-arg 'inet_accept:0' \
            --filter-arg "tcp_v4_do_rcv:sk->__sk_common.skc_num == 0x$before"
        kill -USR1 $other; wait $other; kill -USR1 $one; wait $one
        kill -INT $b; wait $b; cat /tmp/said >&2; grep -o '"target":"[a-z0-9_]*"' /tmp/o | sort | uniq -c"#,
    judge: |ran| {
        let lines: Vec<&str> = ran.stdout.lines().map(str::trim).collect();
        let of = |name: &str| {
            let found = lines.iter().find_map(|l| l.strip_suffix(&format!(" \"target\":\"{name}\"")));
            found.and_then(|n| n.parse::<u32>().ok()).unwrap_or(0)
        };
        ensure!(ran.stderr.contains(" 0 lost"), "{}", ran.stderr);
        ensure!((of("tcp_v4_connect"), of("tcp_v4_rcv")) == (6, 6), "{lines:?}");
        // The packet that opens a connection and, until it is open, the one that answers.
        ensure!(of("tcp_v4_do_rcv") >= 6 && of("inet_accept") == 0, "{lines:?}");
        Ok(())
    },
};
