//! Randomness that can be had again.

use super::Case;

/// Numbers that can be had again (splitmix64).
pub struct Random(u64);

impl Random {
    /// `VM_SEED`, or another one each time; said, so that a failure can be repeated.
    pub fn seeded(case: &Case) -> Self {
        let now = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        let given = std::env::var("VM_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        Self::told(case, given.unwrap_or_else(now))
    }

    /// `VM_SEED`, or this one; said.
    pub fn seeded_with(case: &Case, seed: u64) -> Self {
        let given = std::env::var("VM_SEED").ok();
        let given = given.and_then(|seed| seed.parse().ok());
        Self::told(case, given.unwrap_or(seed))
    }

    fn told(case: &Case, seed: u64) -> Self {
        case.tell(&format!("VM_SEED={seed}"));
        Self::of(seed)
    }

    /// The numbers of this seed.
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to this, without it.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit.max(1) as u64).unwrap()
    }

    /// From 0 to 1.
    pub fn fraction(&mut self) -> f64 {
        self.next() as f64 / u64::MAX as f64
    }
}
