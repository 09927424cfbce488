//! Calls of one function as qemu's log has them, one after the other, though tasks take turns: a call that slept goes on in the midst of what
//! is taken for a later one. They are taken apart by the paths that were printed; each step in the log serves for one path.

use std::ops::Range;

/// Times that a call may have slept.
const MOST_PIECES: usize = 4;

/// The calls in the log.
#[derive(Clone, Debug)]
pub struct Log {
    calls: Vec<Vec<u64>>,
    taken: Vec<bool>,
    /// Behind the last that was taken whole: in the log's order the next is soon found.
    next: usize,
    /// Where calls begin.
    entry: u64,
    /// The end of the call that was under way when the log began has been found.
    has_oldest: bool,
}

impl Log {
    /// Of calls by the blocks that they came to.
    pub fn new(calls: Vec<Vec<u64>>) -> Log {
        let entry = calls.iter().find_map(|call| call.first()).copied().unwrap_or_default();
        Log { taken: vec![false; calls.len()], calls, next: 0, entry, has_oldest: false }
    }

    /// The calls that are left.
    pub fn left(&self) -> impl Iterator<Item = &Vec<u64>> {
        self.calls.iter().zip(&self.taken).filter(|(_, taken)| !**taken).map(|(call, _)| call)
    }

    /// Takes a call of which this holds.
    pub fn take(&mut self, is_it: impl Fn(&[u64]) -> bool) -> bool {
        let fits = |at: &usize| {
            self.taken.get(*at) == Some(&false) && self.calls.get(*at).is_some_and(|call| is_it(call))
        };
        let found = (self.next..self.calls.len()).find(fits).or_else(|| (0..self.next).find(fits));
        let Some(at) = found else { return false };
        self.taken.iter_mut().skip(at).take(1).for_each(|taken| *taken = true);
        self.next = at;
        true
    }

    /// Takes a path that lies in several pieces: it begins a call, and goes on in later ones. Or it is all in one, and what follows it there, behind
    /// its return, is of a call that nobody printed.
    /// Of several calls that began so it is the first, or the last: each may leave others without their pieces.
    pub fn take_apart(&mut self, path: &[u64], last_first: bool) -> bool {
        let count = self.calls.len();
        for at in (0..count).map(|at| if last_first { count - 1 - at } else { at }) {
            let Some(begun) = self.calls.get(at).filter(|_| self.taken.get(at) == Some(&false)) else {
                continue;
            };
            if begun.starts_with(path) {
                if let Some(call) = self.calls.get_mut(at) {
                    call.drain(..path.len());
                }
                return true;
            }
            if let Some((first, second)) = self.around_oldest(begun, path) {
                if let Some(call) = self.calls.get_mut(at) {
                    call.drain(second);
                    call.drain(first);
                }
                self.has_oldest = true;
                return true;
            }
            let Some(rest) = path.strip_prefix(begun.as_slice()).filter(|_| !begun.is_empty()) else {
                continue;
            };
            let Some(pieces) = self.pieces(rest, at + 1, MOST_PIECES) else { continue };
            self.taken.iter_mut().skip(at).take(1).for_each(|taken| *taken = true);
            for (call, piece) in pieces {
                if let Some(call) = self.calls.get_mut(call) {
                    call.drain(piece);
                }
            }
            return true;
        }
        false
    }

    /// The two pieces of a path between which lies the end of a call that began before the log: of the one that had the log begin. It has no
    /// beginning there, so it is in the midst of another's; it ends where the path ends.
    fn around_oldest(&self, begun: &[u64], path: &[u64]) -> Option<(Range<usize>, Range<usize>)> {
        let common = begun.iter().zip(path).take_while(|(a, b)| a == b).count();
        if self.has_oldest || common == 0 {
            return None;
        }
        let (split, rest) = (1..=common).rev().find_map(|split| {
            let rest = path.get(split..).filter(|rest| !rest.is_empty())?;
            begun.ends_with(rest).then_some((split, rest))
        })?;
        let second = begun.len().checked_sub(rest.len())?..begun.len();
        let between = begun.get(split..second.start)?;
        let is_an_end = between.last() == path.last() && !between.contains(&self.entry);
        is_an_end.then_some((0..split, second))
    }

    /// Where the rest of a path lies, from a call on, in so many pieces at most; the pieces' calls go up.
    fn pieces(&self, rest: &[u64], from: usize, most: usize) -> Option<Vec<(usize, Range<usize>)>> {
        if most == 0 {
            return None;
        }
        for at in from..self.calls.len() {
            let Some(call) = self.calls.get(at).filter(|_| self.taken.get(at) == Some(&false)) else {
                continue;
            };
            // A call's own beginning is its own.
            let own = usize::from(call.first() == Some(&self.entry));
            for start in own..call.len() {
                let here = call.get(start..).unwrap_or_default();
                let common = here.iter().zip(rest).take_while(|(a, b)| a == b).count();
                let piece = start..start + common;
                if common == rest.len() {
                    return Some(vec![(at, piece)]);
                }
                if common > 0
                    && common == here.len()
                    && let Some(more) = self.pieces(rest.get(common..)?, at + 1, most - 1)
                {
                    return Some([vec![(at, piece)], more].concat());
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_taken_once() {
        let mut log = Log::new(vec![vec![0, 1], vec![0, 2], vec![0, 1]]);
        assert!(log.take(|call| call == [0, 1]) && log.take(|call| call == [0, 1]));
        assert!(!log.take(|call| call == [0, 1]));
        assert!(log.take(|call| call == [0, 2]), "an earlier one");
        assert_eq!(log.left().count(), 0);
    }

    #[test]
    fn a_call_that_slept_is_taken_out_of_another() {
        // 0 1 2 3 slept behind 1, twice behind 2; meanwhile 0 1 5 and 0 6.
        let mut log = Log::new(vec![vec![0, 1], vec![0, 1, 2], vec![0, 6, 3, 4]]);
        assert!(!log.take(|call| call == [0, 1, 2, 3]));
        assert!(!log.take_apart(&[0, 1, 2, 9], false));
        assert!(!log.take_apart(&[0, 2, 3], false), "no call began so");
        assert!(log.take_apart(&[0, 1, 2, 3], false));
        assert_eq!(log.left().collect::<Vec<_>>(), [&vec![0, 1], &vec![0, 6, 4]]);
        assert!(log.take_apart(&[0, 1, 4], false) && log.take(|call| call == [0, 6]));
        // The end of a call that began before the log, behind a whole one; and, a piece that is left, in the midst of one.
        let mut log = Log::new(vec![vec![0, 1, 7, 8], vec![0, 7]]);
        assert!(log.take_apart(&[0, 1], false));
        assert_eq!(log.left().collect::<Vec<_>>(), [&vec![7, 8], &vec![0, 7]]);
        assert!(log.take(|call| call == [0, 7]));
    }

    #[test]
    fn which_call_that_began_so_it_is_may_matter() {
        // Two that began with 0 1: the first went on with 3, before the second began, which went on with 2.
        let mut log = Log::new(vec![vec![0, 1], vec![0, 5, 3], vec![0, 1], vec![0, 6, 2]]);
        assert!(log.take_apart(&[0, 1, 2], false) && !log.take_apart(&[0, 1, 3], false));
        let mut log = Log::new(vec![vec![0, 1], vec![0, 5, 3], vec![0, 1], vec![0, 6, 2]]);
        assert!(log.take_apart(&[0, 1, 2], true) && log.take_apart(&[0, 1, 3], true));
    }

    #[test]
    fn the_end_of_the_call_that_began_the_log_lies_in_anothers_once() {
        let mut log = Log::new(vec![vec![0, 1, 5, 9, 2, 9], vec![0, 1, 5, 9, 3, 9]]);
        assert!(!log.take_apart(&[0, 1, 4, 9], false), "no such end");
        assert!(!log.take_apart(&[0, 4, 2, 9], false), "it went on otherwise");
        assert!(log.take_apart(&[0, 1, 2, 9], false));
        assert_eq!(log.left().collect::<Vec<_>>(), [&vec![5, 9], &vec![0, 1, 5, 9, 3, 9]]);
        assert!(!log.take_apart(&[0, 1, 3, 9], false), "one call alone began it");
    }
}
