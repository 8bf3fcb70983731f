//! Messages of a shape that is common, without the zeros they have because of it.

use std::ops::{Range, RangeInclusive};

use crate::sys::shared::LINE_OCTETS;

/// Where the zeros are: the chunk lists of a version 2 Call without chunks,
const LISTS: Range<usize> = 16..32;
/// and the AUTH_NONE credential and verifier of its RPC header.
const NOBODY: Range<usize> = 56..72;
/// Octets of a message that fits a line without them, and would not with them.
pub(super) const SQUEEZED: RangeInclusive<usize> = NOBODY.end..=SQUEEZED_MAX;
pub(super) const SQUEEZED_MAX: usize = LINE_OCTETS + 32;

/// Puts a message without its zeros into a line, if it has that shape; behind it there is no meaning.
/// Returns whether it has.
#[inline]
pub(super) fn squeeze(message: &[u8], line: &mut [u8; LINE_OCTETS]) -> bool {
    let Some((front, rest)) = message.split_first_chunk::<{ NOBODY.end }>() else { return false };
    if message.len() > SQUEEZED_MAX || front[LISTS] != [0; 16] || front[NOBODY] != [0; 16] {
        return false;
    }
    line[..16].copy_from_slice(&front[..16]);
    line[16..40].copy_from_slice(&front[32..56]);
    line[40..].iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    true
}

/// Makes the message whole again; it is as long as `message`, which is in [`SQUEEZED`].
#[inline]
pub(super) fn expand(line: &[u8; LINE_OCTETS], message: &mut [u8]) {
    let Some((front, rest)) = message.split_first_chunk_mut::<{ NOBODY.end }>() else { return };
    front[..16].copy_from_slice(&line[..16]);
    front[LISTS].fill(0);
    front[32..56].copy_from_slice(&line[16..40]);
    front[NOBODY].fill(0);
    rest.iter_mut().zip(&line[40..]).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_squeezed_comes_out_as_it_was_and_only_what_has_the_zeros_is() {
        for length in 0..120 {
            let all: Vec<u8> = (1..=length).collect();
            let mut call = all.clone();
            for at in LISTS.chain(NOBODY) {
                call.get_mut(at).into_iter().for_each(|octet| *octet = 0);
            }
            let mut line = [0; LINE_OCTETS];
            assert!(!squeeze(&all, &mut line), "{length}: it has no zeros");
            let squeezed = squeeze(&call, &mut line);
            assert_eq!(squeezed, SQUEEZED.contains(&call.len()), "{length}");
            if !squeezed {
                continue;
            }
            let mut again = vec![0xaa; call.len()];
            expand(&line, &mut again);
            assert_eq!(again, call);
            for at in LISTS.chain(NOBODY) {
                let mut other = call.clone();
                other[at] = 1;
                assert!(!squeeze(&other, &mut line), "{length}: octet {at} is not zero");
            }
        }
    }
}
