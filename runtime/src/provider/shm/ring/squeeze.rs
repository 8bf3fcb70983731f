//! Messages of a shape that is common, without the zeros they have because of it.

use std::ops::{Range, RangeInclusive};

use crate::sys::shared::{LINE_OCTETS, Line};

/// Where the zeros are: the chunk lists of a version 2 Call without chunks,
const LISTS: Range<usize> = 16..32;
/// and the AUTH_NONE credential and verifier of its RPC header.
const NOBODY: Range<usize> = 56..72;
/// Octets of a message that fits a line without them, and would not with them.
pub(super) const SQUEEZED: RangeInclusive<usize> = NOBODY.end..=SQUEEZED_MAX;
pub(super) const SQUEEZED_MAX: usize = LINE_OCTETS + 32;

/// A message of that shape without its zeros.
pub(super) struct Squeezed<'a> {
    front: &'a [u8; LISTS.start],
    middle: &'a [u8; NOBODY.start - LISTS.end],
    rest: &'a [u8],
}

impl<'a> Squeezed<'a> {
    /// Looks whether a message has the shape.
    #[inline]
    pub(super) fn of(message: &'a [u8]) -> Option<Self> {
        let (front, rest) = message.split_first_chunk::<{ NOBODY.end }>()?;
        if message.len() > SQUEEZED_MAX || front[LISTS] != [0; 16] || front[NOBODY] != [0; 16] {
            return None;
        }
        let middle = front[LISTS.end..].first_chunk()?;
        Some(Self { front: front.first_chunk()?, middle, rest })
    }

    /// Puts it into a line; behind it there is no meaning.
    #[inline]
    pub(super) fn put(&self, line: Line<'_>) {
        line.put::<FRONT, _>(self.front);
        line.put::<MIDDLE, _>(self.middle);
        if !self.rest.is_empty() {
            let mut rest = [0; LINE_OCTETS - REST];
            rest.iter_mut().zip(self.rest).for_each(|(to, from)| *to = *from);
            line.put::<REST, _>(&rest);
        }
    }

    /// Puts it to the beginning of `octets`.
    pub(super) fn copy_to(&self, octets: &mut [u8; LINE_OCTETS]) {
        octets[FRONT..MIDDLE].copy_from_slice(self.front);
        octets[MIDDLE..REST].copy_from_slice(self.middle);
        octets[REST..].iter_mut().zip(self.rest).for_each(|(to, from)| *to = *from);
    }
}

/// Where on its line each part is.
const FRONT: usize = 0;
const MIDDLE: usize = LISTS.start;
const REST: usize = MIDDLE + NOBODY.start - LISTS.end;

/// Makes the message of a line whole again; it is as long as `message`, which is in [`SQUEEZED`].
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
            assert!(Squeezed::of(&all).is_none(), "{length}: it has no zeros");
            let squeezed = Squeezed::of(&call);
            assert_eq!(squeezed.is_some(), SQUEEZED.contains(&call.len()), "{length}");
            let Some(squeezed) = squeezed else { continue };
            let (mut line, mut same) = ([0; LINE_OCTETS], [0; LINE_OCTETS]);
            squeezed.copy_to(&mut line);
            let (shared, _fd) = Shared::create(c"test", 4096).unwrap();
            let ring = Ring::new(shared, 0, 4096);
            squeezed.put(ring.line(64));
            ring.line(64).copy_to(&mut same);
            assert_eq!(line, same, "either way");
            let mut again = vec![0xaa; call.len()];
            expand(ring.line(64), &mut again);
            assert_eq!(again, call);
            for at in LISTS.chain(NOBODY) {
                let mut other = call.clone();
                other[at] = 1;
                assert!(Squeezed::of(&other).is_none(), "{length}: octet {at} is not zero");
            }
        }
    }
}
