//! gzip exactly as Go's `compress/gzip` produces it at its best level, because the compressed bytes are part of the hash that
//! names a rendered config.
//!
//! Any other implementation produces different bytes for the same contents. This one searches for repetitions in Go's order and
//! with Go's limits; `huffman` writes them with Go's codes.

use super::huffman::{BlockWriter, MAX_TOKENS, Token};

const WINDOW: usize = 1 << 15;
const WINDOW_MASK: usize = WINDOW - 1;
/// Minimum length of a repetition; shorter ones are written literally.
const SHORTEST: usize = 4;
/// Longest repetition.
const LONGEST: usize = 258;
const HASH_BITS: u32 = 17;
/// Maximum distance of a repetition of the minimum length.
const NEAR: usize = 4096;
/// Maximum number of earlier positions that are compared.
const TRIES: usize = 4096;
/// Offset at which the table is rebased.
const MAX_HASH_OFFSET: usize = 1 << 24;
const NO_BLOCK: usize = usize::MAX;

/// Compresses bytes, including the header and trailer of gzip.
pub(super) fn compress_gzip(bytes: &[u8]) -> Vec<u8> {
    // No name, no time, best compression, unknown OS.
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 0xff];
    packed.extend(Packer::new().pack(bytes));
    let mut checksum = flate2::Crc::new();
    checksum.update(bytes);
    packed.extend(checksum.sum().to_le_bytes());
    packed.extend(checksum.amount().to_le_bytes());
    packed
}

/// The state of packing.
struct Packer {
    writer: BlockWriter,
    /// Two windows of the input.
    window: Vec<u8>,
    /// Number of bytes in the window.
    end: usize,
    /// The current position.
    index: usize,
    /// The start of the block that is not yet written.
    block_start: usize,
    tokens: Vec<Token>,
    /// The last position of each hash, counted from `hash_offset`.
    head: Vec<u32>,
    /// For each position, the previous one with the same hash.
    previous: Vec<u32>,
    hash_offset: usize,
    chain_head: usize,
    /// The length of the repetition at the previous byte.
    length: usize,
    offset: usize,
    /// True if the previous byte is not yet written.
    is_pending: bool,
}

impl Packer {
    fn new() -> Self {
        Self {
            writer: BlockWriter::default(),
            window: vec![0; 2 * WINDOW],
            end: 0,
            index: 0,
            block_start: 0,
            tokens: Vec::with_capacity(MAX_TOKENS + 1),
            head: vec![0; 1 << HASH_BITS],
            previous: vec![0; WINDOW],
            hash_offset: 1,
            chain_head: 0,
            length: SHORTEST - 1,
            offset: 0,
            is_pending: false,
        }
    }

    fn pack(mut self, mut bytes: &[u8]) -> Vec<u8> {
        while !bytes.is_empty() {
            self.process_input(false);
            let taken = self.fill_window(bytes);
            bytes = bytes.get(taken..).unwrap_or_default();
        }
        self.process_input(true);
        self.writer.finish()
    }

    /// Copies bytes into the window; returns their number.
    fn fill_window(&mut self, bytes: &[u8]) -> usize {
        if self.index >= 2 * WINDOW - (SHORTEST + LONGEST) {
            self.window.copy_within(WINDOW.., 0);
            self.index -= WINDOW;
            self.end -= WINDOW;
            self.block_start = match self.block_start {
                start if start >= WINDOW && start != NO_BLOCK => start - WINDOW,
                _ => NO_BLOCK,
            };
            self.hash_offset += WINDOW;
            if self.hash_offset > MAX_HASH_OFFSET {
                self.count_anew();
            }
        }
        let room = 2 * WINDOW - self.end;
        let count = room.min(bytes.len());
        let (window, end) = (&mut self.window, self.end);
        for (place, byte) in window.iter_mut().skip(end).zip(bytes) {
            *place = *byte;
        }
        self.end += count;
        count
    }

    fn count_anew(&mut self) {
        let delta = self.hash_offset - 1;
        self.hash_offset = 1;
        self.chain_head = self.chain_head.saturating_sub(delta);
        let delta = u32::try_from(delta).unwrap_or(u32::MAX);
        for place in self.previous.iter_mut().chain(&mut self.head) {
            *place = place.saturating_sub(delta);
        }
    }

    /// Adds the bytes at a position to the table; returns the previous entry.
    fn enter_position(&mut self, index: usize) -> u32 {
        let bytes = self
            .window
            .get(index..index + SHORTEST)
            .and_then(|bytes| bytes.try_into().ok());
        let hash = u32::from_be_bytes(bytes.unwrap_or_default()).wrapping_mul(0x1e35_a7bd);
        let slot = (hash >> (32 - HASH_BITS)) as usize;
        let before = self.head[slot];
        self.previous[index & WINDOW_MASK] = before;
        self.head[slot] = u32::try_from(index + self.hash_offset).unwrap_or_default();
        before
    }

    /// Processes the input as long as enough bytes are known, or up to its end.
    fn process_input(&mut self, is_last: bool) {
        if self.end - self.index < SHORTEST + LONGEST && !is_last {
            return;
        }
        let last_entered = self.end.saturating_sub(SHORTEST - 1);
        loop {
            let ahead = self.end - self.index;
            if ahead < SHORTEST + LONGEST && !is_last {
                return;
            }
            if ahead == 0 {
                return self.flush();
            }
            if self.index < last_entered {
                self.chain_head = self.enter_position(self.index) as usize;
            }
            self.advance(ahead, last_entered);
        }
    }

    fn flush(&mut self) {
        if self.is_pending {
            self.tokens
                .push(Token::literal(self.window[self.index - 1]));
            self.is_pending = false;
        }
        if !self.tokens.is_empty() {
            self.write_block(self.index);
        }
    }

    /// Decides how to write the previous byte, now that the repetition at this one is known.
    fn advance(&mut self, ahead: usize, last_entered: usize) {
        let (before, before_offset) = (self.length, self.offset);
        (self.length, self.offset) = (SHORTEST - 1, 0);
        let least = self.index.saturating_sub(WINDOW);
        let head = self.chain_head.checked_sub(self.hash_offset);
        if let Some(head) = head.filter(|head| *head >= least)
            && ahead > before
            && before < LONGEST
            && let Some((length, offset)) = self.find_longest(head, ahead)
        {
            (self.length, self.offset) = (length, offset);
        }
        if before >= SHORTEST && self.length <= before {
            self.tokens.push(Token::repetition(before, before_offset));
            let end = self.index + before - 1;
            self.index += 1;
            while self.index < end {
                if self.index < last_entered {
                    self.enter_position(self.index);
                }
                self.index += 1;
            }
            self.is_pending = false;
            self.length = SHORTEST - 1;
            if self.tokens.len() == MAX_TOKENS {
                self.write_block(self.index);
            }
            return;
        }
        if self.is_pending {
            self.tokens
                .push(Token::literal(self.window[self.index - 1]));
            if self.tokens.len() == MAX_TOKENS {
                self.write_block(self.index);
            }
        }
        self.index += 1;
        self.is_pending = true;
    }

    /// Returns the longest repetition at the current position: its length and its distance.
    fn find_longest(&self, head: usize, ahead: usize) -> Option<(usize, usize)> {
        let start = self.index;
        let longest = ahead.min(LONGEST);
        let window = self.window.get(..start + longest)?;
        let own = window.get(start..)?;
        let mut found = None;
        let mut length = SHORTEST - 1;
        let mut last = *own.get(length)?;
        let mut place = head;
        for _ in 0..TRIES {
            if window.get(place + length) == Some(&last) {
                let other = window.get(place..).unwrap_or_default();
                let equal = other.iter().zip(own).take_while(|(a, b)| a == b).count();
                let distance = start - place;
                if equal > length && (equal > SHORTEST || distance <= NEAR) {
                    (length, found) = (equal, Some((equal, distance)));
                    if equal >= longest {
                        break;
                    }
                    last = *own.get(equal)?;
                }
            }
            if place + WINDOW == start {
                break;
            }
            let before = self.previous[place & WINDOW_MASK] as usize;
            match before.checked_sub(self.hash_offset) {
                Some(before) if before + WINDOW >= start => place = before,
                _ => break,
            }
        }
        found
    }

    fn write_block(&mut self, index: usize) {
        if index == 0 {
            return;
        }
        let input = (self.block_start <= index).then_some(self.block_start..index);
        let input = input.and_then(|range| self.window.get(range));
        self.writer.write_block(&self.tokens, input);
        self.block_start = index;
        self.tokens.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn unpack(packed: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed)
            .read_to_end(&mut bytes)
            .unwrap();
        bytes
    }

    /// Returns pseudo-random bytes with this many different values.
    fn noise(count: usize, values: u64) -> Vec<u8> {
        let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut bytes = Vec::new();
        for _ in 0..count {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push(u8::try_from(state % values).unwrap());
        }
        bytes
    }

    #[test]
    fn packed_bytes_unpack_to_the_same() {
        let lines: String = (0..3500)
            .map(|n| format!("setting.{n} = value {}\n", n % 97))
            .collect();
        let mut inputs = vec![
            Vec::new(),
            b"a".to_vec(),
            b"abc".to_vec(),
            vec![b'x'; 100_000],
            lines.into_bytes(),
        ];
        for (count, values) in [(300, 2), (5_000, 3), (20_000, 20), (150_000, 256)] {
            inputs.push(noise(count, values));
        }
        for input in inputs {
            assert_eq!(
                unpack(&compress_gzip(&input)),
                input,
                "{} bytes",
                input.len()
            );
        }
    }
}
