//! Which instructions of a listing are jumped to from within it.

/// Labels in the order in which the listing comes to them, by how far into it they are; a label's number is its place plus one.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    offsets: Vec<u64>,
    /// Address of the listing.
    address: u64,
    /// A bit for each byte of the listing: an instruction begins there.
    starts: Vec<u64>,
    /// The next label the listing comes to.
    next: usize,
}

impl Labels {
    /// Begins anew, for a listing of so many bytes.
    pub fn begin(&mut self, length: usize) {
        self.offsets.clear();
        self.starts.clear();
        self.starts.resize(length.div_ceil(64), 0);
        self.next = 0;
    }

    /// An instruction begins so far into the listing.
    pub fn instruction(&mut self, offset: usize) {
        if let Some(word) = self.starts.get_mut(offset / 64) {
            *word |= 1 << (offset % 64);
        }
    }

    /// A jump goes so far into the listing.
    pub fn jump(&mut self, offset: u64) {
        self.offsets.push(offset);
    }

    /// All is known: jumps into the midst of instructions have no label.
    pub fn finish(&mut self, address: u64) {
        self.offsets.sort_unstable();
        self.offsets.dedup();
        let starts = &self.starts;
        self.offsets.retain(|offset| {
            starts.get((offset / 64) as usize).is_some_and(|word| word >> (offset % 64) & 1 == 1)
        });
        self.address = address;
    }

    /// The label of an address.
    pub fn at(&self, address: u64) -> Option<u32> {
        let place = self.offsets.binary_search(&address.wrapping_sub(self.address)).ok()?;
        u32::try_from(place + 1).ok()
    }

    /// The label at the instruction the listing has come to; asked in the order of addresses.
    pub fn come_to(&mut self, address: u64) -> Option<u32> {
        if self.offsets.get(self.next) != Some(&address.wrapping_sub(self.address)) {
            return None;
        }
        self.next += 1;
        u32::try_from(self.next).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_numbered_by_address_and_only_where_instructions_begin() {
        let mut labels = Labels::default();
        for round in 0..2 {
            labels.begin(200);
            for offset in [0, 3, 64, 127, 199] {
                labels.instruction(offset);
            }
            for offset in [199, 3, 65, 64, 3, 200] {
                labels.jump(offset);
            }
            labels.finish(1000);
            assert_eq!(labels.at(1003), Some(1), "round {round}");
            assert_eq!((labels.at(1064), labels.at(1199), labels.at(1065)), (Some(2), Some(3), None));
            let met: Vec<_> = [1000, 1003, 1064, 1127, 1199].map(|at| labels.come_to(at)).into();
            assert_eq!(met, [None, Some(1), Some(2), None, Some(3)]);
        }
    }
}
