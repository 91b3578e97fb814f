//! CRC-32C (Castagnoli), the checksum of etcd's log and snapshots.

/// The polynomial, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;
/// Bytes processed in one step.
const LANES: usize = 8;

static TABLES: [[u32; 256]; LANES] = make_tables();

#[allow(
    clippy::cast_possible_truncation,
    reason = "the index of a table of 256 fits"
)]
const fn make_tables() -> [[u32; 256]; LANES] {
    let mut tables = [[0; 256]; LANES];
    let mut byte = 0;
    while byte < 256 {
        let mut sum = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 {
                (sum >> 1) ^ POLYNOMIAL
            } else {
                sum >> 1
            };
            bit += 1;
        }
        tables[0][byte] = sum;
        byte += 1;
    }
    let mut lane = 1;
    while lane < LANES {
        let mut byte = 0;
        while byte < 256 {
            let below = tables[lane - 1][byte];
            tables[lane][byte] = (below >> 8) ^ tables[0][(below & 0xff) as usize];
            byte += 1;
        }
        lane += 1;
    }
    tables
}

/// Returns the checksum of `bytes` that follow bytes with the checksum `before`; 0 is the checksum of nothing.
pub(super) fn update_crc(before: u32, bytes: &[u8]) -> u32 {
    let table = |lane: usize, byte: u32| TABLES[lane][(byte & 0xff) as usize];
    let mut sum = !before;
    let mut steps = bytes.chunks_exact(LANES);
    for step in &mut steps {
        let low = sum ^ u32::from_le_bytes([step[0], step[1], step[2], step[3]]);
        let high = u32::from_le_bytes([step[4], step[5], step[6], step[7]]);
        sum = table(7, low)
            ^ table(6, low >> 8)
            ^ table(5, low >> 16)
            ^ table(4, low >> 24)
            ^ table(3, high)
            ^ table(2, high >> 8)
            ^ table(1, high >> 16)
            ^ table(0, high >> 24);
    }
    for byte in steps.remainder() {
        sum = (sum >> 8) ^ table(0, sum ^ u32::from(*byte));
    }
    !sum
}

#[cfg(test)]
mod tests {
    use super::update_crc;

    #[test]
    fn the_sum_is_that_of_the_standard_in_one_step_or_in_many() {
        assert_eq!(update_crc(0, b"123456789"), 0xe306_9283);
        assert_eq!(update_crc(0, b""), 0);
        let bytes: Vec<u8> = (0..=255).collect();
        for cut in 0..bytes.len() {
            let (first, second) = bytes.split_at(cut);
            assert_eq!(
                update_crc(update_crc(0, first), second),
                update_crc(0, &bytes)
            );
        }
    }
}
