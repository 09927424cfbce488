//! Kernel time as wall-clock time.
//!
//! Events carry CLOCK_MONOTONIC. The offset to the wall clock is taken once, at the start, so that the differences
//! between printed times are the kernel's own; a clock set while we run does not bend them.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::io::Write;

const SECOND: u64 = 1_000_000_000;

/// Turns kernel times into text; remembers the last second, since events come in order.
#[derive(Clone, Debug)]
pub struct Clock {
    /// Wall clock minus CLOCK_MONOTONIC, ns.
    offset: i64,
    zone: TimeZone,
    /// Start of the remembered second, wall-clock ns, and how it reads.
    second: u64,
    local: Vec<u8>,
    utc: Vec<u8>,
}

impl Clock {
    /// Takes the offset, and the local time zone.
    pub fn new() -> anyhow::Result<Clock> {
        let mut clock = Clock {
            offset: bpf::realtime_offset_ns()?,
            zone: TimeZone::system(),
            second: 0,
            local: Vec::new(),
            utc: Vec::new(),
        };
        clock.remember(0);
        Ok(clock)
    }

    #[cfg(test)]
    fn fixed(offset: i64, zone: TimeZone) -> Clock {
        let mut clock = Clock { offset, zone, second: 0, local: Vec::new(), utc: Vec::new() };
        clock.remember(0);
        clock
    }

    fn remember(&mut self, second: u64) {
        self.second = second;
        self.local.clear();
        self.utc.clear();
        let Ok(seconds) = i64::try_from(second / SECOND) else { return };
        let Ok(stamp) = Timestamp::from_second(seconds) else { return };
        let local = stamp.to_zoned(self.zone.clone());
        // Writing to a Vec cannot fail.
        let _ = write!(self.local, "{}", local.strftime("%H:%M:%S."));
        let _ = write!(self.utc, "{}", stamp.strftime("%Y-%m-%dT%H:%M:%S."));
    }

    /// Nanoseconds within the remembered second, having remembered the right one.
    fn locate(&mut self, time_ns: u64) -> u64 {
        let wall = time_ns.wrapping_add_signed(self.offset);
        let within = wall.wrapping_sub(self.second);
        if within < SECOND {
            return within;
        }
        self.remember(wall - wall % SECOND);
        wall % SECOND
    }

    /// `21:34:53.123456789`, local time.
    pub fn local(&mut self, time_ns: u64, out: &mut Vec<u8>) {
        let within = self.locate(time_ns);
        out.extend_from_slice(&self.local);
        nine_digits(within, out);
    }

    /// `2025-03-16T13:34:53.123456789Z`.
    pub fn utc(&mut self, time_ns: u64, out: &mut Vec<u8>) {
        let within = self.locate(time_ns);
        out.extend_from_slice(&self.utc);
        nine_digits(within, out);
        out.push(b'Z');
    }

    /// Now, as the tool's own messages show it: `2025/03/16 21:34:53`.
    pub fn now(&self) -> String {
        Timestamp::now().to_zoned(self.zone.clone()).strftime("%Y/%m/%d %H:%M:%S").to_string()
    }
}

fn nine_digits(mut n: u64, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 9];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (n % 10) as u8;
        n /= 10;
    }
    out.extend_from_slice(&digits);
}

/// `123ns`, `1.234us`, `12.345ms`, `1.234s`: three digits after the point, cut, never rounded up.
pub fn duration(ns: u64, out: &mut Vec<u8>) {
    let (unit, name): (u64, &[u8]) = match ns {
        0..1_000 => (1, b"ns"),
        1_000..1_000_000 => (1_000, b"us"),
        1_000_000..SECOND => (1_000_000, b"ms"),
        _ => (SECOND, b"s"),
    };
    out.extend_from_slice(itoa::Buffer::new().format(ns / unit).as_bytes());
    if unit > 1 {
        let thousandths = ns % unit / (unit / 1_000);
        out.push(b'.');
        for digit in [thousandths / 100, thousandths / 10 % 10, thousandths % 10] {
            out.push(b'0' + digit as u8);
        }
    }
    out.extend_from_slice(name);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(f: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        f(&mut out);
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn durations() {
        let d = |ns| text(|out| duration(ns, out));
        assert_eq!(d(0), "0ns");
        assert_eq!(d(999), "999ns");
        assert_eq!(d(1_000), "1.000us");
        assert_eq!(d(1_234), "1.234us");
        assert_eq!(d(999_999), "999.999us");
        assert_eq!(d(12_345_678), "12.345ms");
        assert_eq!(d(6_000_000_001), "6.000s");
        assert_eq!(d(u64::MAX), "18446744073.709s", "64 bits, no wrap after 4.3 s");
    }

    #[test]
    fn times_follow_the_kernels() {
        let start = 1_742_132_093_000_000_000;
        let mut clock = Clock::fixed(start, TimeZone::fixed(jiff::tz::offset(8)));
        assert_eq!(text(|o| clock.local(1_002_003, o)), "21:34:53.001002003");
        assert_eq!(text(|o| clock.utc(1_002_003, o)), "2025-03-16T13:34:53.001002003Z");
        assert_eq!(text(|o| clock.local(SECOND - 1, o)), "21:34:53.999999999");
        assert_eq!(text(|o| clock.local(SECOND, o)), "21:34:54.000000000");
        assert_eq!(text(|o| clock.local(5, o)), "21:34:53.000000005", "an older event after a newer one");
    }
}
