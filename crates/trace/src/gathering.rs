//! The tables in which events are gathered, and what they have come to.

use crate::error::Error;
use crate::expressions::Gathered;
use crate::plan::Plan;
use bpf::{Map, MapType};
use expr::tree::Function;
use std::collections::BTreeMap;

/// Memory of one table, all CPUs together: fewer keys where a value is large or the CPUs are many.
const MOST_MEMORY: u64 = 64 << 20;

/// Keys of a table, at most and at least.
const KEYS: (u64, u64) = (64, 16384);

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

/// The tables of a plan by the numbers of their outputs, and what new entries are made from.
pub(crate) fn maps(plan: &Plan) -> Result<(Vec<Option<Map>>, Option<Map>), Error> {
    let mut tables: Vec<Option<Map>> = Vec::new();
    let mut largest = 0;
    let cpus = bpf::possible_cpus()? as u64;
    for gathered in plan.probes.iter().flat_map(|p| &p.layout.asked.gathered) {
        if tables.len() <= gathered.number {
            tables.resize_with(gathered.number + 1, || None);
        }
        let Some(table) = tables.get_mut(gathered.number).filter(|table| table.is_none()) else { continue };
        let (key, value) = (gathered.key_size(), gathered.words() * 8);
        let keys = (MOST_MEMORY / (u64::from(value) * cpus).max(1)).clamp(KEYS.0, KEYS.1);
        largest = largest.max(value);
        *table = Some(Map::create(MapType::PerCpuHash, "gathered", key, value, keys as u32)?);
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
