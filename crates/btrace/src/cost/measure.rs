//! What a hit takes, with a program there and without, in turn.

use super::drive::Driver;
use std::time::{Duration, Instant};
use trace::{Way, Ways};

/// Times that the driver is timed in a row, each time with or without a program.
const IN_A_ROW: usize = 15;

/// How long one such time is to take, about: long beside a look at the clock, short beside a tick of the scheduler.
const LENGTH: Duration = Duration::from_micros(300);

/// The same where the clock counts instructions: no longer than makes the clock's own rounding small, for what hits a place takes another way
/// through the kernel from time to time, and the shorter the rows, the more are free of that. More of them, too.
const EXACT_LENGTH: Duration = Duration::from_micros(20);
const EXACT_IN_A_ROW: usize = 100;

/// Most hits in one of them.
const MOST: u64 = 100_000;

/// How a place is measured.
#[derive(Clone, Copy, Debug)]
pub struct Measuring {
    /// Rounds.
    pub rounds: u32,
    /// The clock counts instructions.
    pub exact: bool,
    /// What the driver does in one timed row.
    pub count: u64,
}

impl Measuring {
    /// Finds out how often the driver is to act in a row.
    pub fn new(driver: &mut Driver, rounds: u32, exact: bool) -> anyhow::Result<Measuring> {
        let mut count = 1;
        if driver.ours {
            // The first time is not like the others.
            driver.run(1)?;
            let length = if exact { EXACT_LENGTH } else { LENGTH };
            while count < MOST && elapsed(driver, count)? < length {
                count *= 2;
            }
        }
        Ok(Measuring { rounds, exact, count: count.min(MOST) })
    }

    /// What one act takes, in ns, with what is attached now: the least of a row, for interrupts and others' turns on this CPU
    /// only add to it.
    fn act(&self, driver: &mut Driver) -> anyhow::Result<f64> {
        let times = match (driver.ours, self.exact) {
            (true, true) => EXACT_IN_A_ROW,
            (true, false) => IN_A_ROW,
            (false, _) => 1,
        };
        let mut least = f64::INFINITY;
        for _ in 0..times {
            least = least.min(elapsed(driver, self.count)?.as_nanos() as f64 / self.count as f64);
        }
        Ok(least)
    }

    /// The least, what counts, and the most of some values: the middle one, or of instructions, to which interrupts can only
    /// add, the least.
    pub fn of(&self, values: &mut [f64]) -> (f64, f64, f64) {
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        let counts = if self.exact { 0 } else { values.len() / 2 };
        (at(0), at(counts), at(values.len().saturating_sub(1)))
    }

    /// One round of one way: what an act takes without a program, and with one.
    pub fn round(&self, driver: &mut Driver, ways: &Ways<'_>, way: Way) -> anyhow::Result<(f64, f64)> {
        let bare = self.act(driver)?;
        let placed = ways.empty(way).map_err(|refusal| anyhow::anyhow!("{way}, a second time: {refusal}"))?;
        if driver.ours {
            driver.run(1)?;
        }
        let with = self.act(driver)?;
        drop(placed);
        Ok((bare, with))
    }
}

fn elapsed(driver: &mut Driver, count: u64) -> anyhow::Result<Duration> {
    let start = Instant::now();
    driver.run(count)?;
    Ok(start.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_times_the_middle_counts_and_of_instructions_the_least() {
        let measuring = |exact| Measuring { rounds: 3, exact, count: 1 };
        assert_eq!(measuring(false).of(&mut [5.0, 1.0, 3.0]), (1.0, 3.0, 5.0));
        assert_eq!(measuring(true).of(&mut [5.0, 1.0, 3.0]), (1.0, 1.0, 5.0));
        assert!(measuring(true).of(&mut []).1.is_nan());
    }
}
