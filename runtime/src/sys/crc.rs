//! CRC32C by the instructions of this machine.
//!
//! Long runs go through `crc-fast` (carry-less multiplication), short ones through the CRC32 instruction, which has
//! latency but no set-up. `SHORT_MAX` is the length at which they cost the same.

use crc_fast::{CrcAlgorithm, Digest};
use haulage_mr_pool::Sink;

/// Adds `bytes` to a raw CRC32C register.
pub fn crc32c(state: u32, bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if bytes.len() <= SHORT_MAX && std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the function needs SSE 4.2, which this processor has: it was just asked.
        return unsafe { short(state, bytes) };
    }
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(state));
    digest.update(bytes);
    // The register has 32 bits; the crate's type is that of its widest CRC.
    u32::try_from(digest.get_state()).unwrap_or_default()
}

/// Adds `length` octets of `sink`, from `offset`, to a raw CRC32C register.
///
/// For octets that a system call has just received straight into their place. A range that is not inside the sink adds
/// nothing, so that its CRC cannot match.
pub fn crc32c_of_sink(state: u32, sink: &mut Sink, offset: usize, length: usize) -> u32 {
    let Some((start, length)) = sink.raw(offset, length) else { return state };
    // SAFETY: `raw` returned a range inside the sink's memory, which its pool keeps mapped. While a
    // sink view exists nobody but its holder, the software RNIC, writes the memory: the application
    // has no access, and a peer has none but through us. We hold the view exclusively.
    let bytes = unsafe { std::slice::from_raw_parts(start.as_ptr(), length) };
    crc32c(state, bytes)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(state: u32, bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let mut wide = u64::from(state);
    for word in words {
        wide = _mm_crc32_u64(wide, u64::from_le_bytes(*word));
    }
    // The instruction leaves the upper half zero.
    let mut state = u32::try_from(wide).unwrap_or_default();
    for octet in rest {
        state = _mm_crc32_u8(state, *octet);
    }
    state
}

/// The longest run for which the CRC32 instruction is faster.
#[cfg(target_arch = "x86_64")]
const SHORT_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_32_zero_octets_is_that_of_iscsi() {
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8a91_36aa);
    }

    #[test]
    fn every_length_and_split_agrees_with_the_polynomial() {
        let by_bit = |mut state: u32, bytes: &[u8]| {
            for byte in bytes {
                state ^= u32::from(*byte);
                for _ in 0..8 {
                    state = state >> 1 ^ if state & 1 == 1 { 0x82f6_3b78 } else { 0 };
                }
            }
            state
        };
        let bytes: Vec<u8> = (0..2000_u32).map(|i| (i * 7 % 251).to_le_bytes()[0]).collect();
        for length in (0..600).chain([1023, 1024, 1025, 1999]) {
            let expected = by_bit(!0, &bytes[..length]);
            assert_eq!(crc32c(!0, &bytes[..length]), expected, "{length}");
            let cut = length / 3;
            assert_eq!(crc32c(crc32c(!0, &bytes[..cut]), &bytes[cut..length]), expected);
        }
    }
}
