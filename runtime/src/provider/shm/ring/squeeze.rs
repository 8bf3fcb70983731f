//! Squeezed messages: Calls of a common shape, without the zeros of that shape.

use std::ops::{Range, RangeInclusive};

use crate::sys::shared::{LINE_OCTETS, Line};

/// The first run of zeros: the chunk lists of a version 2 Call without chunks.
const LISTS: Range<usize> = 16..32;
/// The second run of zeros: the AUTH_NONE credential and verifier of the RPC header.
const NOBODY: Range<usize> = 56..72;
/// Lengths of messages that fit a line without the zeros, and would not with them.
pub(super) const SQUEEZED: RangeInclusive<usize> = NOBODY.end..=SQUEEZED_MAX;
pub(super) const SQUEEZED_MAX: usize = LINE_OCTETS + 32;

/// Returns a message of this shape without its zeros, as the words of a line; words beyond the message are undefined.
/// Inlined, so that words are read one by one, as they were written: reading two at once would wait until both have
/// reached the cache, and with them everything written to rings before.
#[inline(always)]
pub(super) fn squeeze(message: &[u8]) -> Option<[u64; LINE_OCTETS / 8]> {
    let (front, rest) = message.split_first_chunk::<{ NOBODY.end }>()?;
    let words: &[[u8; 8]; NOBODY.end / 8] = front.as_chunks().0.try_into().ok()?;
    let [a, b, list, lists, c, d, e, nobody, none] = words.map(u64::from_ne_bytes);
    if message.len() > SQUEEZED_MAX || list | lists | nobody | none != 0 {
        return None;
    }
    let [f, g] = if rest.is_empty() { [0; 2] } else { two_words(rest) };
    Some([a, b, c, d, e, f, g])
}

/// Returns at most sixteen octets as words, padded with zeros.
fn two_words(octets: &[u8]) -> [u64; 2] {
    let mut words = [[0; 8]; 2];
    words.as_flattened_mut().iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
    words.map(u64::from_ne_bytes)
}

/// Offsets on the line of the three parts of such a message.
const FRONT: usize = 0;
const MIDDLE: usize = LISTS.start;
const REST: usize = MIDDLE + NOBODY.start - LISTS.end;

/// Restores the message of a line; its length is that of `message`, which is in [`SQUEEZED`].
#[inline]
pub(super) fn expand(line: Line<'_>, message: &mut [u8]) {
    let Some((front, rest)) = message.split_first_chunk_mut::<{ NOBODY.end }>() else { return };
    if let Some(part) = front.first_chunk_mut::<{ LISTS.start }>() {
        line.get::<FRONT, _>(part);
    }
    front[LISTS].fill(0);
    if let Some(part) = front[LISTS.end..].first_chunk_mut::<{ NOBODY.start - LISTS.end }>() {
        line.get::<MIDDLE, _>(part);
    }
    front[NOBODY].fill(0);
    if !rest.is_empty() {
        let mut part = [0; LINE_OCTETS - REST];
        line.get::<REST, _>(&mut part);
        rest.iter_mut().zip(part).for_each(|(to, from)| *to = from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::shared::{Ring, Shared};

    #[test]
    fn what_is_squeezed_comes_out_as_it_was_and_only_what_has_the_zeros_is() {
        for length in 0..120 {
            let all: Vec<u8> = (1..=length).collect();
            let mut call = all.clone();
            for at in LISTS.chain(NOBODY) {
                call.get_mut(at).into_iter().for_each(|octet| *octet = 0);
            }
            assert_eq!(squeeze(&all), None, "{length}: it has no zeros");
            let squeezed = squeeze(&call);
            assert_eq!(squeezed.is_some(), SQUEEZED.contains(&call.len()), "{length}");
            let Some(squeezed) = squeezed else { continue };
            let (shared, _fd) = Shared::create(c"test", 4096).unwrap();
            let ring = Ring::new(shared, 0, 4096);
            ring.line(64).store(&squeezed);
            let mut again = vec![0xaa; call.len()];
            expand(ring.line(64), &mut again);
            assert_eq!(again, call);
            for at in LISTS.chain(NOBODY) {
                let mut other = call.clone();
                other[at] = 1;
                assert_eq!(squeeze(&other), None, "{length}: octet {at} is not zero");
            }
        }
    }
}
