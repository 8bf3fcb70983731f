//! Octets that differ at every offset and for every salt.

use crate::Rng;

/// Fills `bytes` with the pattern of `salt`.
pub fn fill(bytes: &mut [u8], salt: u64) {
    let mut rng = Rng::new(salt);
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next().to_le_bytes()[..chunk.len()]);
    }
}

/// Returns the first `length` octets of the pattern of `salt`.
pub fn of(length: usize, salt: u64) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fill(&mut bytes, salt);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_does_not_depend_on_where_it_is_cut() {
        assert_eq!(of(64, 1)[..13], of(13, 1));
        assert_ne!(of(13, 1), of(13, 2));
    }
}
