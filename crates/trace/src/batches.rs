//! One link for many functions, and what to do when the kernel refuses it: it does not say which of them is at fault, nor for
//! how many it has memory.
//!
//! The halves are tried, down to the functions at fault. After ENOMEM nothing as large is tried again: kernels 6.7 to 6.11
//! have a limit for return probes of a few thousand functions, whatever memory there is (`objpool_init`, lib/objpool.c).

/// Why a link was refused.
pub trait Refusal: std::fmt::Display {
    /// The kernel had no memory for it.
    fn is_out_of_memory(&self) -> bool;
}

impl Refusal for bpf::Error {
    fn is_out_of_memory(&self) -> bool {
        bpf::Error::is_out_of_memory(self)
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Batches<'a, T, L> {
    /// Links, each with the places that it serves.
    pub links: Vec<(L, &'a [T])>,
    /// At some time the kernel had no memory for as many as were asked.
    pub short_of_memory: bool,
}

/// Attaches to all places at once, if the kernel lets us, else in parts. Ends after `most` refusals: what is left then is in
/// no link.
pub fn attach<'a, T, L, E: Refusal>(
    places: &'a [T],
    most: usize,
    mut link: impl FnMut(&[T]) -> Result<L, E>,
) -> Batches<'a, T, L> {
    let mut batches = Batches { links: Vec::new(), short_of_memory: false };
    let (mut largest, mut refusals) = (usize::MAX, 0);
    // The next to be tried is the last.
    let mut left = vec![places];
    while let Some(part) = left.pop() {
        if part.is_empty() {
            continue;
        }
        if let Some((first, rest)) = part.split_at_checked(largest)
            && !rest.is_empty()
        {
            left.extend([rest, first]);
            continue;
        }
        match link(part) {
            Ok(link) => batches.links.push((link, part)),
            Err(error) => {
                refusals += 1;
                log::trace!("{} functions: {error}", part.len());
                if refusals > most {
                    break;
                }
                let half = part.len() / 2;
                if error.is_out_of_memory() {
                    batches.short_of_memory = true;
                    largest = half.max(1);
                }
                if half > 0 {
                    let (first, rest) = part.split_at(half);
                    left.extend([rest, first]);
                }
            }
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum No {
        #[error("no memory")]
        Memory,
        #[error("refused")]
        Place,
    }

    impl Refusal for No {
        fn is_out_of_memory(&self) -> bool {
            matches!(self, No::Memory)
        }
    }

    /// Attaches 0 to `count`, where no more than `room` go at once and `bad` never do.
    fn attached(count: u32, room: usize, bad: &[u32], most: usize) -> (Vec<u32>, usize, usize, bool) {
        let places: Vec<u32> = (0..count).collect();
        let mut refusals = 0;
        let batches = attach(&places, most, |part| {
            let refused = if part.len() > room {
                Err(No::Memory)
            } else if part.iter().any(|p| bad.contains(p)) {
                Err(No::Place)
            } else {
                Ok(())
            };
            refusals += usize::from(refused.is_err());
            refused
        });
        let served = batches.links.iter().flat_map(|((), part)| part.iter().copied()).collect();
        (served, batches.links.len(), refusals, batches.short_of_memory)
    }

    #[test]
    fn case_14_thousands_for_which_there_is_no_memory_go_in_batches() {
        let all: Vec<u32> = (0..8000).collect();
        // 8000, 4000, 2000, 1000 are refused; then 500 at a time, each at the first try.
        assert_eq!(attached(8000, 999, &[], 400), (all.clone(), 16, 4, true));
        assert_eq!(attached(8000, 8000, &[], 400), (all.clone(), 1, 0, false));
        assert_eq!(attached(8000, 7999, &[], 400), (all, 2, 1, true));
        assert_eq!(attached(3, 1, &[], 400), (vec![0, 1, 2], 3, 1, true));
    }

    #[test]
    fn the_functions_at_fault_are_found_and_the_others_attached() {
        let (served, links, refusals, short) = attached(1000, 1000, &[0, 500, 999], 400);
        assert_eq!(served, (1..999).filter(|p| *p != 500).collect::<Vec<u32>>());
        assert!(links < 40 && refusals < 40 && !short, "{links} links, {refusals} refusals");
        let (served, .., short) = attached(1000, 300, &[7], 400);
        assert!(served.len() == 999 && !served.contains(&7) && short);
    }

    #[test]
    fn nothing_at_all_comes_to_an_end() {
        assert_eq!(attached(0, 0, &[], 400), (vec![], 0, 0, false));
        assert_eq!(attached(1, 0, &[], 400), (vec![], 0, 1, true));
        let (served, links, refusals, _) = attached(5000, 0, &[], 400);
        assert_eq!((served, links, refusals), (vec![], 0, 401));
    }
}
