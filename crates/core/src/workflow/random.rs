//! Numbers that are the same on every replay.

/// The number of a run at its how manieth request.
pub(super) fn number(run: &str, count: u32) -> u64 {
    mix(hash(run).wrapping_add(u64::from(count).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A short text that differs when the text differs.
pub(super) fn short(text: &str) -> String {
    format!("{:016x}", hash(text))
}

/// FNV-1a: the same on every machine and in every version.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The last step of SplitMix64, which spreads every bit over all others.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
