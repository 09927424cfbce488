//! Branches taken on the way from a traced place to a program, from the processor's own records.
//!
//! A program that takes them before anything else is attached. Its newest records are of its own calls; the branch that arrived
//! at it is the last one that counts. The first is the one that left the traced place: at an entry the call that the method put there,
//! at a return what follows the function's own.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A branch: from where, to where.
pub type Branch = (u64, u64);

/// Branches on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Taken {
    /// How many were seen.
    pub count: usize,
    /// The records reach back to the traced place; otherwise there were more.
    pub whole: bool,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}{}", self.count, if self.whole { "" } else { "+" }))
    }
}

/// The ends of a way.
#[derive(Clone, Debug)]
pub struct Ends {
    /// Code of the traced place.
    pub place: Vec<Range<u64>>,
    /// Code of the program.
    pub program: Range<u64>,
    /// Whether the program runs when the place is entered, when it is left, or at both (then entries are counted).
    pub runs: Runs,
}

/// When a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    Entry,
    Return,
    Both,
}

/// So far into a function its entry may be patched: `endbr64`, and a call.
const PATCHED: u64 = 9;

impl Ends {
    /// Of records, newest first, those on the way; `None` where they are not of this way. `is_thunk`: code that all indirect jumps and
    /// returns go through.
    pub fn taken(&self, records: &[Branch], is_thunk: impl Fn(u64) -> bool) -> Option<Taken> {
        let arrived = records.iter().position(|(_, to)| self.program.contains(to))?;
        let way = records.get(arrived..)?;
        let place = |address: &u64| self.place.iter().find(|place| place.contains(address));
        let left = way.iter().position(|(from, to)| place(from).is_some() && place(to).is_none());
        let Some(left) = left else {
            return Some(Taken { count: way.len(), whole: false });
        };
        let (from, _) = way.get(left)?;
        let at_entry = place(from).is_some_and(|place| from - place.start <= PATCHED);
        let count = match self.runs {
            Runs::Entry => left + 1,
            Runs::Both if at_entry => left + 1,
            Runs::Both => return None,
            // The function's own return is none of the way, nor is the thunk that it goes through.
            Runs::Return => match left.checked_sub(1).and_then(|after| way.get(after)) {
                Some((from, _)) if is_thunk(*from) => left - 1,
                _ => left,
            },
        };
        Some(Taken { count, whole: true })
    }
}

/// What most snapshots say; of such as as many say, the least, for interrupts on the way only add to it.
pub fn most_often(all: impl Iterator<Item = Taken>) -> Option<Taken> {
    let mut times: BTreeMap<Taken, usize> = BTreeMap::new();
    for one in all {
        *times.entry(one).or_default() += 1;
    }
    let most = *times.values().max()?;
    times.into_iter().find(|(_, count)| *count == most).map(|(taken, _)| taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: u64 = 0x1000;
    const TRAMPOLINE: u64 = 0x5000;
    const PROGRAM: u64 = 0x6000;
    const ENTER: u64 = 0x7000;
    const THUNK: u64 = 0x8000;

    fn taken(runs: Runs, oldest_first: &[Branch]) -> Option<Taken> {
        let place = PLACE..PLACE + 0x100;
        let ends = Ends { place: std::iter::once(place).collect(), program: PROGRAM..PROGRAM + 0x40, runs };
        let records: Vec<Branch> = oldest_first.iter().rev().copied().collect();
        ends.taken(&records, |address| address == THUNK)
    }

    /// The trampoline's call of `__bpf_prog_enter`, its return, the call of the program; then what the program calls.
    const REST: [Branch; 5] = [
        (TRAMPOLINE + 0x39, ENTER),
        (ENTER + 0x10, ENTER + 0x20),
        (ENTER + 0x54, TRAMPOLINE + 0x3e),
        (TRAMPOLINE + 0x4a, PROGRAM),
        (PROGRAM + 0x20, 0x9000),
    ];

    #[test]
    fn an_entrys_way_begins_with_the_call_that_was_put_there() {
        let mut all = vec![(0x2000, PLACE), (PLACE + 4, TRAMPOLINE)];
        all.extend(REST);
        assert_eq!(taken(Runs::Entry, &all), Some(Taken { count: 5, whole: true }));
        assert_eq!(taken(Runs::Both, &all), Some(Taken { count: 5, whole: true }));
        // A branch within the place is none that leaves it.
        all.insert(1, (PLACE + 0x10, PLACE + 0x4));
        assert_eq!(taken(Runs::Entry, &all), Some(Taken { count: 5, whole: true }));
    }

    #[test]
    fn a_returns_way_begins_after_the_functions_own() {
        let mut all = vec![(PLACE + 4, TRAMPOLINE), (TRAMPOLINE + 0x80, PLACE + 9)];
        all.push((PLACE + 0x60, TRAMPOLINE + 0x88));
        all.extend(REST);
        assert_eq!(taken(Runs::Return, &all), Some(Taken { count: 4, whole: true }));
        assert_eq!(taken(Runs::Both, &all), None, "entries are counted");
        all.splice(2..3, [(PLACE + 0x60, THUNK), (THUNK, TRAMPOLINE + 0x88)]);
        assert_eq!(taken(Runs::Return, &all), Some(Taken { count: 4, whole: true }));
    }

    #[test]
    fn records_that_do_not_reach_back_say_so() {
        let cut = taken(Runs::Entry, &REST);
        assert_eq!(cut, Some(Taken { count: 4, whole: false }));
        assert_eq!(cut.map(|taken| taken.to_string()), Some("4+".into()));
        assert_eq!(taken(Runs::Entry, &[(PLACE + 4, TRAMPOLINE)]), None, "it never arrived");
        assert_eq!(taken(Runs::Entry, &[]), None);
    }

    /// An end of a branch as the article prints it, `0x…:name+0x17 (file:line)`: its address, where the function begins, its name.
    fn end(text: &str) -> Option<(u64, u64, &str)> {
        let (address, symbol) = text.get(text.find("0x")? + 2..)?.split_once(':')?;
        let (name, offset) = symbol.split(' ').next()?.split_once("+0x")?;
        let address = u64::from_str_radix(address, 16).ok()?;
        Some((address, address - u64::from_str_radix(offset, 16).ok()?, name))
    }

    /// What the article's records come to, from a function of its to a program of its.
    fn of_the_article(stack: usize, place: &str, program: &str) -> Option<Taken> {
        const ARTICLE: &str = include_str!("../render/branches/article.txt");
        let lines = ARTICLE.split("\n\n").nth(stack)?.lines();
        let both =
            lines.filter_map(|line| line.split_once(" -> ")).filter_map(|(a, b)| Some((end(a)?, end(b)?)));
        let both: Vec<_> = both.collect();
        let code = |name: &str, bytes: u64| {
            let start = both.iter().flat_map(|(a, b)| [a, b]).find(|end| end.2 == name)?.1;
            Some(start..start + bytes)
        };
        let ends =
            Ends { place: vec![code(place, 0x200)?], program: code(program, 0x100)?, runs: Runs::Entry };
        let records: Vec<Branch> = both.iter().rev().map(|(from, to)| (from.0, to.0)).collect();
        ends.taken(&records, |_| false)
    }

    #[test]
    fn the_articles_records_are_counted_as_in_the_article() {
        let whole = |count| Some(Taken { count, whole: true });
        assert_eq!(of_the_article(2, "tcp_connect", "k_tcp_connect"), whole(16));
        assert_eq!(of_the_article(3, "k_tcp_connect", "fentry_fn"), whole(8));
        // It counts its own way into the program too, a jump to a trampoline: 8.
        assert_eq!(of_the_article(1, "__tcf_qdisc_find.part.0", "tp__netlink_extack"), whole(7));
    }

    #[test]
    fn what_most_say_counts() {
        let taken = |count, whole| Taken { count, whole };
        let all = [taken(9, true), taken(5, true), taken(9, true), taken(5, true), taken(31, false)];
        assert_eq!(most_often(all.into_iter()), Some(taken(5, true)));
        assert_eq!(most_often([].into_iter()), None);
    }
}
