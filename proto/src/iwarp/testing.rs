//! What the tests of this module share.

pub(super) use haulage_test_support::Rng;
pub(super) use haulage_test_support::hex::vector;

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

#[test]
fn the_check_value_of_32_zero_octets_is_that_of_iscsi() {
    let state = CRC32C(super::CRC_INIT, &[0; 32]);
    assert_eq!(!state, 0x8a91_36aa);
    assert_eq!(super::crc_octets(state), [0xaa, 0x36, 0x91, 0x8a]);
}
