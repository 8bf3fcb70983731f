//! What the tests of this module share.

use std::string::String;
use std::vec::Vec;

use super::Crc32c;

/// CRC32C bit by bit, from the polynomial alone.
pub(super) const CRC32C: Crc32c = |mut state, bytes| {
    for byte in bytes {
        state ^= u32::from(*byte);
        for _ in 0..8 {
            state = state >> 1 ^ if state & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    state
};

/// Reads an annotated vector: hex digits, blanks, and `#` to the end of the line.
pub(super) fn vector(text: &str) -> Vec<u8> {
    let digits: String = text
        .lines()
        .flat_map(|line| line.split('#').next().unwrap().chars())
        .filter(|c| !c.is_whitespace())
        .collect();
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).unwrap())
        .collect()
}

/// A small generator (xorshift64*), for schedules that replay.
pub(super) struct Rng(pub(super) u64);

impl Rng {
    /// Draws below `bound`.
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from(self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33).unwrap() % bound
    }
}

#[test]
fn the_check_value_of_32_zero_octets_is_that_of_iscsi() {
    let state = CRC32C(super::CRC_INIT, &[0; 32]);
    assert_eq!(!state, 0x8a91_36aa);
    assert_eq!(super::crc_octets(state), [0xaa, 0x36, 0x91, 0x8a]);
}
