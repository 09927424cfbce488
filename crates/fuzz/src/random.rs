//! Random numbers that a seed makes again.

/// SplitMix64: every seed a sequence of its own, neighbouring seeds unlike each other.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Begins a sequence.
    pub fn new(seed: u64) -> Random {
        let mut random = Random(seed);
        random.0 = random.next();
        random
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; 0 for 0.
    pub fn below(&mut self, n: usize) -> usize {
        match n {
            0 => 0,
            n => (self.next() % n as u64) as usize,
        }
    }

    /// Once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> Option<&'a T> {
        all.get(self.below(all.len()))
    }

    /// A number at the edges that programs get wrong, or any.
    pub fn number(&mut self) -> u64 {
        const EDGES: [u64; 14] = [
            0,
            1,
            2,
            7,
            8,
            0x7f,
            0x80,
            0xff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            i64::MAX as u64,
            1 << 63,
            u64::MAX,
        ];
        match self.below(4) {
            0 => self.next(),
            1 => self.next() % 4096,
            _ => self.pick(&EDGES).copied().unwrap_or_default().wrapping_add(self.next() % 3).wrapping_sub(1),
        }
    }

    /// Changes bytes here and there: bits, words, blocks copied, cut out and put in.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(8) {
            let at = self.below(bytes.len());
            match self.below(8) {
                0 | 1 => {
                    let bit = self.below(8);
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << bit;
                    }
                }
                2 | 3 => {
                    let number = (self.number() as u32).to_le_bytes();
                    // Most fields of what we read are words.
                    let at = at & !3;
                    if let Some(word) = bytes.get_mut(at..at + 4) {
                        word.copy_from_slice(&number);
                    }
                }
                4 => {
                    let number = self.next() as u8;
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte = number;
                    }
                }
                5 => {
                    let (from, len) = (self.below(bytes.len()), self.below(64));
                    let part: Vec<u8> = bytes.iter().copied().skip(from).take(len).collect();
                    for (to, byte) in bytes.iter_mut().skip(at).zip(part) {
                        *to = byte;
                    }
                }
                6 => {
                    let len = self.below(16);
                    bytes.drain(at..(at + len).min(bytes.len()));
                }
                _ => {
                    let more: Vec<u8> = (0..self.below(16)).map(|_| self.next() as u8).collect();
                    bytes.splice(at..at, more);
                }
            }
        }
        if self.one_in(16) {
            bytes.truncate(self.below(bytes.len() + 1));
        }
    }

    /// The same for text: pieces of `words` and of any characters, put in, taken out, repeated.
    pub fn mutate_text(&mut self, text: &mut String, words: &[&str]) {
        let mut chars: Vec<char> = text.chars().collect();
        for _ in 0..=self.below(6) {
            let at = self.below(chars.len() + 1);
            match self.below(5) {
                0 => {
                    let word = self.pick(words).copied().unwrap_or_default();
                    chars.splice(at..at, word.chars());
                }
                1 => {
                    let code = (self.next() >> 40) as u32 % 0x11_0000;
                    chars.insert(at, char::from_u32(code).unwrap_or('\u{fffd}'));
                }
                2 => {
                    let end = (at + self.below(8)).min(chars.len());
                    chars.drain(at..end);
                }
                3 => {
                    let (from, len, times) = (self.below(chars.len()), self.below(12), self.below(20));
                    let part: Vec<char> = chars.iter().copied().skip(from).take(len).collect();
                    for _ in 0..times {
                        chars.splice(at..at, part.iter().copied());
                    }
                }
                _ => {
                    let ascii = (b' ' + (self.next() % 95) as u8) as char;
                    chars.insert(at, ascii);
                }
            }
        }
        *text = chars.into_iter().take(10_000).collect();
    }
}
