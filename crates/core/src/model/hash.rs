//! Stable hashes, the same on every machine and in every version.

/// Hashes a text (FNV-1a).
pub(crate) fn of(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Applies the finaliser of SplitMix64, which spreads every bit over all others.
pub(crate) fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The increment of SplitMix64.
pub(crate) const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;
