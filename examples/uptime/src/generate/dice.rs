//! Chance that is the same on every machine and in every version: a small generator of our own
//! (`SplitMix64`).

/// Draws numbers.
pub(super) struct Dice(u64);

impl Dice {
    /// Dice of their own for each of many: what one draws does not change what another draws.
    pub(super) fn new(seed: u64, nth: u64) -> Self {
        let mut dice = Self(seed);
        let start = dice.next() ^ nth.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self(start)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 128 bits.
    pub(super) fn bits(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    /// A number from 0 up to, not including, `end`; 0 if `end` is not above it.
    pub(super) fn below(&mut self, end: i64) -> i64 {
        let span = u128::from(end.max(0).unsigned_abs());
        // The top of a product is even enough for spans far below 2^64.
        ((u128::from(self.next()) * span) >> 64) as i64
    }

    /// Whether something happens that happens in this share of cases.
    pub(super) fn chance(&mut self, share: f64) -> bool {
        let drawn = f64::from((self.next() >> 32) as u32) / 2_f64.powi(32);
        drawn < share
    }

    /// One of several.
    pub(super) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[((u128::from(self.next()) * of.len() as u128) >> 64) as usize]
    }
}
