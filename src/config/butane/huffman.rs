//! Deflate blocks as Go's `compress/flate` writes them: its choice among the three block types, and its codes.

/// Maximum number of tokens in a block.
pub(super) const MAX_TOKENS: usize = 1 << 14;
/// Maximum size of a stored block.
const MAX_STORED: usize = 65_535;
/// Number of codes for bytes, the end of a block, and lengths.
const LITERALS: usize = 286;
/// Number of codes for distances.
const OFFSETS: usize = 30;
const END_OF_BLOCK: usize = 256;
const FIRST_LENGTH: usize = 257;
/// The order in which the lengths of the code length codes are written.
const ORDER: [usize; 19] = [
    16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15,
];

/// A byte, or a repetition.
#[derive(Debug, Clone, Copy)]
pub(super) enum Token {
    /// A byte.
    Literal(u8),
    /// The length minus 3, and the distance minus 1.
    Repetition(u16, u16),
}

impl Token {
    /// Creates a byte.
    pub(super) fn literal(byte: u8) -> Self {
        Self::Literal(byte)
    }

    /// Creates a repetition with this length and distance.
    pub(super) fn repetition(length: usize, offset: usize) -> Self {
        let less =
            |number: usize, by: usize| u16::try_from(number.saturating_sub(by)).unwrap_or_default();
        Self::Repetition(less(length, 3), less(offset, 1))
    }
}

/// Returns the code for a length, its number of extra bits, and their value.
fn length_code(length: u16) -> (usize, u32, u32) {
    let length = u32::from(length);
    if length == 255 {
        return (28, 0, 0);
    }
    if length < 8 {
        return (length as usize, 0, 0);
    }
    let extra = length.ilog2() - 2;
    let code = 4 * (extra + 1) + ((length >> extra) & 3);
    (code as usize, extra, length & ((1 << extra) - 1))
}

/// Returns the same for a distance.
fn offset_code(offset: u16) -> (usize, u32, u32) {
    let offset = u32::from(offset);
    if offset < 4 {
        return (offset as usize, 0, 0);
    }
    let extra = offset.ilog2() - 1;
    let code = 2 * (extra + 1) + ((offset >> extra) & 1);
    (code as usize, extra, offset & ((1 << extra) - 1))
}

/// A code: its bits, first bit lowest, and their number; zero for an unused code.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Code {
    bits: u32,
    length: u32,
}

/// Returns the number of bits of all counted codes.
fn size_of(codes: &[Code], counts: &[u32]) -> u64 {
    let sizes = codes.iter().zip(counts);
    sizes
        .map(|(code, count)| u64::from(code.length) * u64::from(*count))
        .sum()
}

/// Writes blocks.
#[derive(Debug, Default)]
pub(super) struct BlockWriter {
    out: Vec<u8>,
    bits: u64,
    count: u32,
}

/// The codes of a block, and the size of their description.
struct Tables {
    literal_counts: Vec<u32>,
    offset_counts: Vec<u32>,
    literals: Vec<Code>,
    offsets: Vec<Code>,
    /// Number of codes in the description, of both kinds.
    shown: (usize, usize),
    /// The description: codes, and the extra value of codes from 16 on.
    description: Vec<(usize, u32)>,
    description_counts: Vec<u32>,
    description_codes: Vec<Code>,
    /// Number of lengths of codes in [`ORDER`] that are written.
    described: usize,
}

impl BlockWriter {
    /// Writes a block. `input` are the bytes behind its tokens, if they are still known.
    pub(super) fn write_block(&mut self, tokens: &[Token], input: Option<&[u8]>) {
        let tables = Tables::from_tokens(tokens);
        let storable = input.filter(|input| input.len() <= MAX_STORED);
        // Extra bits are the same with both kinds of codes; Go counts them only to compare with a stored block.
        let extra = if storable.is_some() {
            tables.extra_bits()
        } else {
            0
        };
        let (fixed_literals, fixed_offsets) = fixed_codes();
        let fixed = 3
            + size_of(&fixed_literals, &tables.literal_counts)
            + size_of(&fixed_offsets, &tables.offset_counts)
            + extra;
        let dynamic = tables.dynamic_size() + extra;
        if let Some(input) = storable
            && ((input.len() as u64) + 5) * 8 < fixed.min(dynamic)
        {
            self.write_stored_header(input.len());
            self.out.extend(input);
            return;
        }
        if dynamic < fixed {
            self.write_dynamic_header(&tables);
            self.write_tokens(tokens, &tables.literals, &tables.offsets);
        } else {
            self.write_bits(2, 3);
            self.write_tokens(tokens, &fixed_literals, &fixed_offsets);
        }
    }

    /// Ends the data with an empty block that uses fixed codes.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.write_bits(3, 3);
        self.write_bits(0, 7);
        self.fill_byte();
        self.out
    }

    fn fill_byte(&mut self) {
        if self.count > 0 {
            self.write_bits(0, 8 - self.count);
        }
    }

    fn write_bits(&mut self, bits: u32, count: u32) {
        self.bits |= u64::from(bits) << self.count;
        self.count += count;
        while self.count >= 8 {
            self.out.push((self.bits & 0xff) as u8);
            self.bits >>= 8;
            self.count -= 8;
        }
    }

    fn write_code(&mut self, code: Code) {
        self.write_bits(code.bits, code.length);
    }

    fn write_stored_header(&mut self, length: usize) {
        self.write_bits(0, 3);
        self.fill_byte();
        let length = u16::try_from(length).unwrap_or_default();
        self.out.extend(length.to_le_bytes());
        self.out.extend((!length).to_le_bytes());
    }

    fn write_dynamic_header(&mut self, tables: &Tables) {
        let number = |value: usize, less: usize| u32::try_from(value - less).unwrap_or_default();
        self.write_bits(4, 3);
        self.write_bits(number(tables.shown.0, 257), 5);
        self.write_bits(number(tables.shown.1, 1), 5);
        self.write_bits(number(tables.described, 4), 4);
        for place in ORDER.into_iter().take(tables.described) {
            self.write_bits(tables.description_codes[place].length, 3);
        }
        for (code, value) in &tables.description {
            self.write_code(tables.description_codes[*code]);
            match code {
                16 => self.write_bits(*value, 2),
                17 => self.write_bits(*value, 3),
                18 => self.write_bits(*value, 7),
                _ => {}
            }
        }
    }

    fn write_tokens(&mut self, tokens: &[Token], literals: &[Code], offsets: &[Code]) {
        for token in tokens {
            match *token {
                Token::Literal(byte) => self.write_code(literals[usize::from(byte)]),
                Token::Repetition(length, offset) => {
                    let (code, extra, value) = length_code(length);
                    self.write_code(literals[FIRST_LENGTH + code]);
                    self.write_bits(value, extra);
                    let (code, extra, value) = offset_code(offset);
                    self.write_code(offsets[code]);
                    self.write_bits(value, extra);
                }
            }
        }
        self.write_code(literals[END_OF_BLOCK]);
    }
}

impl Tables {
    fn from_tokens(tokens: &[Token]) -> Self {
        let (literal_counts, offset_counts) = count_codes(tokens);

        let used = |counts: &[u32]| {
            counts
                .iter()
                .rposition(|count| *count != 0)
                .map_or(0, |last| last + 1)
        };
        let shown = (used(&literal_counts), used(&offset_counts));
        let literals = make_codes(&literal_counts, 15);
        let offsets = make_codes(&offset_counts, 15);
        let lengths = literals
            .iter()
            .take(shown.0)
            .chain(offsets.iter().take(shown.1));
        let lengths: Vec<u32> = lengths.map(|code| code.length).collect();
        let description = encode_lengths(&lengths);
        let mut description_counts = vec![0u32; ORDER.len()];
        for (code, _) in &description {
            description_counts[*code] += 1;
        }
        let described = ORDER
            .iter()
            .rposition(|place| description_counts[*place] != 0);
        Self {
            description_codes: make_codes(&description_counts, 7),
            described: described.map_or(4, |last| last + 1).max(4),
            literal_counts,
            offset_counts,
            literals,
            offsets,
            shown,
            description,
            description_counts,
        }
    }

    fn extra_bits(&self) -> u64 {
        // The codes of the shortest lengths and distances have no extra bits.
        let lengths = (8..28usize).map(|code| {
            let extra = (code / 4 - 1) as u64;
            extra * u64::from(self.literal_counts[FIRST_LENGTH + code])
        });
        let offsets = (4..OFFSETS).map(|code| {
            let extra = (code / 2 - 1) as u64;
            extra * u64::from(self.offset_counts[code])
        });
        lengths.chain(offsets).sum()
    }

    /// Returns the size with dynamic codes, without extra bits.
    fn dynamic_size(&self) -> u64 {
        let extra = [(16, 2), (17, 3), (18, 7)];
        let extra = extra
            .iter()
            .map(|(code, bits)| u64::from(self.description_counts[*code]) * bits);
        3 + 5
            + 5
            + 4
            + 3 * self.described as u64
            + size_of(&self.description_codes, &self.description_counts)
            + extra.sum::<u64>()
            + size_of(&self.literals, &self.literal_counts)
            + size_of(&self.offsets, &self.offset_counts)
    }
}

/// Encodes the code lengths by their runs: 16 repeats the last one, 17 and 18 are runs of zeros.
fn encode_lengths(lengths: &[u32]) -> Vec<(usize, u32)> {
    let mut described = Vec::new();
    let mut rest = lengths;
    while let Some(first) = rest.first() {
        let mut count = rest.iter().take_while(|length| *length == first).count();
        rest = rest.get(count..).unwrap_or_default();
        let mut add = |code: usize, run: usize, less: usize| {
            described.push((code, u32::try_from(run - less).unwrap_or_default()));
        };
        let length = *first as usize;
        if length == 0 {
            while count >= 11 {
                let run = count.min(138);
                add(18, run, 11);
                count -= run;
            }
            if count >= 3 {
                add(17, count, 3);
                count = 0;
            }
        } else {
            add(length, 0, 0);
            count -= 1;
            while count >= 3 {
                let run = count.min(6);
                add(16, run, 3);
                count -= run;
            }
        }
        for _ in 0..count {
            add(length, 0, 0);
        }
    }
    described
}

/// Returns the fixed codes of the format.
fn fixed_codes() -> (Vec<Code>, Vec<Code>) {
    let reversed = |bits: u32, length: u32| Code {
        bits: bits.reverse_bits() >> (32 - length),
        length,
    };
    let literal = |number: u32| match number {
        0..=143 => reversed(number + 48, 8),
        144..=255 => reversed(number + 400 - 144, 9),
        256..=279 => reversed(number - 256, 7),
        _ => reversed(number + 192 - 280, 8),
    };
    let literals = (0..286).map(literal).collect();
    (
        literals,
        (0..30).map(|number| reversed(number, 5)).collect(),
    )
}

/// Creates codes of at most this many bits for everything with a count.
fn make_codes(counts: &[u32], most_bits: usize) -> Vec<Code> {
    let mut codes = vec![Code::default(); counts.len()];
    let used = counts.iter().enumerate().filter(|(_, count)| **count != 0);
    let mut list: Vec<(u32, usize)> = used.map(|(number, count)| (*count, number)).collect();
    if list.len() <= 2 {
        for (bits, (_, number)) in (0..).zip(&list) {
            codes[*number] = Code { bits, length: 1 };
        }
        return codes;
    }
    // By count, then by symbol.
    list.sort_unstable();
    let mut next: u32 = 0;
    let mut rest = list.as_mut_slice();
    for (length, count) in (1u32..).zip(code_lengths(&counts_of(rest), most_bits)) {
        next <<= 1;
        let (before, chunk) = rest.split_at_mut(rest.len().saturating_sub(count));
        chunk.sort_unstable_by_key(|(_, number)| *number);
        for (_, number) in chunk {
            let bits = next.reverse_bits() >> (32 - length);
            codes[*number] = Code { bits, length };
            next += 1;
        }
        rest = before;
    }
    codes
}

fn counts_of(list: &[(u32, usize)]) -> Vec<u64> {
    list.iter().map(|(count, _)| u64::from(*count)).collect()
}

/// One row in the search for lengths: codes of at most this many bits.
#[derive(Clone, Copy)]
struct Row {
    /// The last chosen sum.
    last: u64,
    next_leaf: u64,
    next_pair: u64,
    /// Number of items that this row still has to provide.
    needed: usize,
}

/// Infinity: nothing is left.
const NONE: u64 = u64::MAX;

/// Returns the number of codes with 1, 2, 3... bits, by the boundary package merge algorithm. A pair precedes an equal leaf, as
/// in Go. The counts have to be sorted, and at least three.
fn code_lengths(counts: &[u64], most_bits: usize) -> Vec<usize> {
    let count = |index: usize| counts.get(index).copied().unwrap_or(NONE);
    let most_bits = most_bits.min(counts.len() - 1);
    let first = Row {
        last: count(1),
        next_leaf: count(2),
        next_pair: count(0).saturating_add(count(1)),
        needed: 0,
    };
    let mut rows = vec![first; most_bits + 2];
    rows[0].needed = 0;
    rows[1].next_pair = NONE;
    // Number of leaves to the left of the ancestors of each row's last item.
    let mut leaves = vec![vec![0usize; most_bits + 1]; most_bits + 1];
    for (level, row) in leaves.iter_mut().enumerate().skip(1) {
        row[level] = 2;
    }
    rows[most_bits].needed = 2 * counts.len() - 4;
    let mut level = most_bits;
    loop {
        let row = rows[level];
        if row.next_pair == NONE && row.next_leaf == NONE {
            rows[level].needed = 0;
            rows[level + 1].next_pair = NONE;
            level += 1;
            if level > most_bits {
                break;
            }
            continue;
        }
        if row.next_leaf < row.next_pair {
            leaves[level][level] += 1;
            rows[level].last = row.next_leaf;
            rows[level].next_leaf = count(leaves[level][level]);
        } else {
            rows[level].last = row.next_pair;
            let below: Vec<usize> = leaves[level - 1].iter().take(level).copied().collect();
            leaves[level][..level].copy_from_slice(&below);
            rows[level - 1].needed = 2;
        }
        rows[level].needed -= 1;
        if rows[level].needed == 0 {
            if level == most_bits {
                break;
            }
            rows[level + 1].next_pair = row.last.saturating_add(rows[level].last);
            level += 1;
        } else {
            while rows[level - 1].needed > 0 {
                level -= 1;
            }
        }
    }
    let top = &leaves[most_bits];
    (1..=most_bits)
        .rev()
        .map(|level| top[level] - top[level - 1])
        .collect()
}
/// Returns how often each code of literals and lengths, and each code of distances, occurs.
fn count_codes(tokens: &[Token]) -> (Vec<u32>, Vec<u32>) {
    let mut literal_counts = vec![0u32; LITERALS];
    let mut offset_counts = vec![0u32; OFFSETS];
    literal_counts[END_OF_BLOCK] = 1;
    for token in tokens {
        match *token {
            Token::Literal(byte) => literal_counts[usize::from(byte)] += 1,
            Token::Repetition(length, offset) => {
                literal_counts[FIRST_LENGTH + length_code(length).0] += 1;
                offset_counts[offset_code(offset).0] += 1;
            }
        }
    }
    // There is a distance code even if none occurs.
    if offset_counts.iter().all(|count| *count == 0) {
        offset_counts[0] = 1;
    }
    (literal_counts, offset_counts)
}
