//! The tables in which events are gathered, and what they have come to.

use crate::error::Error;
use crate::expressions::Gathered;
use crate::plan::{Plan, Probe};
use bpf::{Map, MapType};
use expr::tree::Function;
use std::collections::BTreeMap;

/// Memory of one table, all CPUs together: fewer keys where a value is large or the CPUs are many.
const MOST_MEMORY: u64 = 64 << 20;

/// Memory of all tables, which they share evenly.
const MOST_OF_ALL: u64 = 256 << 20;

/// Keys of a table, at least and at most.
const KEYS: (u64, u64) = (64, 16384);

/// What the kernel keeps of an entry beside its key and values (`struct htab_elem`, the pointer to the values), about.
const ENTRY: u64 = 64;

/// Maps that a program can use (`MAX_USED_MAPS`, include/linux/bpf_verifier.h).
const MOST_MAPS: usize = 64;

/// What a table has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Combinations of keys.
    pub keys: u32,
    /// Memory that it takes, all CPUs together, about.
    pub bytes: u64,
}

/// What an output has gathered.
#[derive(Clone, Debug)]
pub struct Tally<'p> {
    /// What it is.
    pub gathered: &'p Gathered,
    /// For each key what was gathered by it, in the order of the keys' bytes.
    pub entries: Vec<Entry>,
}

/// One key's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key's bytes; each part lies where [`crate::Key::offset`] says.
    pub key: Vec<u8>,
    /// What was gathered.
    pub value: Amount,
}

/// What was gathered by one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Amount {
    /// A number of events.
    Count(u64),
    /// A sum, a smallest or a largest value; how many events where that is known.
    Value(i128),
    /// A sum and of how many.
    Mean {
        /// Their sum.
        sum: i128,
        /// How many.
        count: u64,
    },
    /// How many in each bucket.
    Buckets(Vec<u64>),
}

/// The room of each table of a plan, by the number of its output.
///
/// Without `by` there is one entry, or one for each probe where those are kept apart, further places of its functions included.
pub(crate) fn rooms(probes: &[Probe], cpus: usize) -> BTreeMap<usize, (&Gathered, Room)> {
    let all = probes.iter().flat_map(|p| &p.layout.asked.gathered);
    let tables: BTreeMap<usize, &Gathered> = all.rev().map(|g| (g.number, g)).collect();
    let keyed = tables.values().filter(|g| !g.keys.is_empty()).count() as u64;
    let most = MOST_MEMORY.min(MOST_OF_ALL / keyed.max(1));
    let room = |gathered: &Gathered| {
        let values = u64::from(gathered.words()) * 8 * cpus as u64;
        if gathered.is_one() {
            return Room { keys: 1, bytes: values };
        }
        let keys = match gathered.keys.is_empty() {
            true => (2 * probes.len() as u64).clamp(1, KEYS.1),
            false => (most / values.max(1)).clamp(KEYS.0, KEYS.1),
        };
        let bytes = keys * (values + u64::from(gathered.key_size()) + ENTRY);
        Room { keys: keys as u32, bytes }
    };
    tables.into_iter().map(|(number, gathered)| (number, (gathered, room(gathered)))).collect()
}

/// Refuses more tables than a program can use beside its other maps.
pub(crate) fn check(probes: &[Probe], others: usize) -> Result<(), Error> {
    let most = MOST_MAPS.saturating_sub(others);
    let of = |probe: &Probe| probe.layout.asked.gathered.len();
    let wanted = probes.iter().map(of).max().unwrap_or(0);
    if wanted > most {
        return Err(Error::TooManyTables { wanted, most });
    }
    Ok(())
}

/// The tables of a plan by the numbers of their outputs, and what new entries are made from. `stop` is asked before each: the kernel
/// takes its time for a large one.
pub(crate) fn maps(
    plan: &Plan,
    stop: &mut dyn FnMut() -> bool,
) -> Result<(Vec<Option<Map>>, Option<Map>), Error> {
    let mut tables: Vec<Option<Map>> = Vec::new();
    let mut largest = 0;
    for (number, (gathered, room)) in rooms(&plan.probes, bpf::possible_cpus()?) {
        if stop() {
            return Err(Error::Stopped);
        }
        tables.resize_with(number, || None);
        let value = gathered.words() * 8;
        tables.push(Some(if gathered.is_one() {
            Map::create(MapType::PerCpuArray, "gathered", 4, value, room.keys)?
        } else {
            largest = largest.max(value);
            Map::create(MapType::PerCpuHash, "gathered", gathered.key_size(), value, room.keys)?
        }));
    }
    let zeros = (largest > 0).then(|| Map::create(MapType::Array, "zeros", 4, largest, 1)).transpose()?;
    Ok((tables, zeros))
}

/// What a table has come to.
pub(crate) fn tally<'p>(gathered: &'p Gathered, table: &Map) -> Result<Tally<'p>, Error> {
    let mut merged: BTreeMap<Vec<u8>, Amount> = BTreeMap::new();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    table.each_key(|key| {
        keys.push(key.to_vec());
        Ok(())
    })?;
    for mut key in keys {
        let Some(value) = table.lookup(&key)? else { continue };
        // An array's index, where there is one entry.
        key.resize(gathered.key_size() as usize, 0);
        let words = gathered.words() as usize;
        let per_cpu: Vec<u64> =
            value.chunks_exact(8).filter_map(|c| c.try_into().ok()).map(u64::from_ne_bytes).collect();
        for cpu in per_cpu.chunks_exact(words.max(1)) {
            let Some(amount) = amount(gathered, cpu) else { continue };
            // Which probe it was is of no interest.
            if let Some(probe) = key.get_mut(..8) {
                probe.fill(0);
            }
            match merged.get_mut(&key) {
                Some(known) => known.add(gathered.function, &amount),
                None => drop(merged.insert(key.clone(), amount)),
            }
        }
    }
    let entries = merged.into_iter().map(|(key, value)| Entry { key, value }).collect();
    Ok(Tally { gathered, entries })
}

/// What one CPU has of an entry; `None`: nothing yet.
fn amount(gathered: &Gathered, words: &[u64]) -> Option<Amount> {
    let word = |at: usize| words.get(at).copied().unwrap_or(0);
    let value = |word: u64| if gathered.signed { i128::from(word.cast_signed()) } else { i128::from(word) };
    // The upper half is what was carried out of the lower, whose sign is that of the values.
    let sum = || (i128::from(word(2).cast_signed()) << 64).wrapping_add(value(word(1)));
    match gathered.function {
        Function::Count => (word(0) > 0).then(|| Amount::Count(word(0))),
        Function::Sum => (word(0) > 0).then(|| Amount::Value(sum())),
        Function::Min | Function::Max => (word(0) > 0).then(|| Amount::Value(value(word(1)))),
        Function::Avg => (word(0) > 0).then(|| Amount::Mean { sum: sum(), count: word(0) }),
        Function::Hist | Function::LHist { .. } => {
            words.iter().any(|n| *n > 0).then(|| Amount::Buckets(words.to_vec()))
        }
    }
}

impl Amount {
    fn add(&mut self, function: Function, other: &Amount) {
        match (self, other) {
            (Amount::Count(a), Amount::Count(b)) => *a += b,
            (Amount::Value(a), Amount::Value(b)) => match function {
                Function::Min => *a = (*a).min(*b),
                Function::Max => *a = (*a).max(*b),
                _ => *a = a.saturating_add(*b),
            },
            (Amount::Mean { sum, count }, Amount::Mean { sum: s, count: c }) => {
                *sum = sum.saturating_add(*s);
                *count += c;
            }
            (Amount::Buckets(a), Amount::Buckets(b)) => a.iter_mut().zip(b).for_each(|(a, b)| *a += b),
            _ => {}
        }
    }
}
