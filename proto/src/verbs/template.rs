//! Header templates: octets that many messages begin with, and the offsets of the words that differ.
//!
//! A template does not interpret its octets. Its creator gives it a number, which is valid on one queue pair and in one
//! direction; a provider may send the octets once and only the number from then on.

use core::fmt;

/// The octets that many messages begin with, in whole words, and the offsets of the words of a [`HeaderPatch`] in them.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HeaderTemplate {
    /// The octets, with zeros in the words of the patch and after the last octet.
    octets: [u8; Self::LEN_MAX],
    length: u8,
    offsets: PatchOffsets,
}

/// The offsets of the words of a [`HeaderPatch`] in a [`HeaderTemplate`], in octets.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchOffsets {
    /// The offsets of the XID: in the transport header and in the RPC header. Both are equal if the template holds the
    /// XID once.
    pub xid: [u8; 2],
    /// The offset of the credit word.
    pub credit: u8,
}

/// The words in which messages with the same [`HeaderTemplate`] differ.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderPatch {
    /// The XID, at each of its offsets.
    pub xid: u32,
    /// The credit word.
    pub credit: u32,
}

/// The number of a template on one queue pair and in one direction. It denotes the same template until the queue pair
/// is destroyed.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TemplateId(u8);

/// A template and its number.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct NamedTemplate<'a> {
    /// The number of the template.
    pub id: TemplateId,
    /// The template.
    pub template: &'a HeaderTemplate,
}

impl HeaderTemplate {
    /// The length of the longest template, in octets.
    pub const LEN_MAX: usize = 96;

    /// Makes a template of `octets`, ignoring the words at `offsets`. Returns `None` if there are more than
    /// [`LEN_MAX`](Self::LEN_MAX) octets, if they are not whole words, if an offset is not that of a word, or if two
    /// different words of the patch are in the same pair of words.
    pub const fn new(octets: &[u8], offsets: PatchOffsets) -> Option<Self> {
        let PatchOffsets { xid: [first, second], credit } = offsets;
        let length = octets.len();
        let is_whole = length <= Self::LEN_MAX && length.is_multiple_of(WORD);
        if !is_whole || !has(length, first) || !has(length, second) || !has(length, credit) {
            return None;
        }
        let is_shared = first != second && share_pair(first, second);
        if is_shared || share_pair(first, credit) || share_pair(second, credit) {
            return None;
        }
        let mut all = [0; Self::LEN_MAX];
        let (mut room, mut rest, mut at) = (all.as_mut_slice(), octets, 0_u8);
        while let ([place, room_left @ ..], [octet, octets_left @ ..]) = (room, rest) {
            if !holds(first, at) && !holds(second, at) && !holds(credit, at) {
                *place = *octet;
            }
            (room, rest, at) = (room_left, octets_left, at.wrapping_add(1));
        }
        #[expect(clippy::cast_possible_truncation, reason = "it was compared")]
        let length = length as u8;
        Some(Self { octets: all, length, offsets })
    }

    /// Returns the length of the template in octets: at least one word.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    #[inline]
    pub const fn len(&self) -> usize {
        self.length as usize
    }

    /// Returns the octets, with zeros in the words of the patch.
    #[inline]
    pub fn octets(&self) -> &[u8] {
        self.octets.get(..self.len()).unwrap_or_default()
    }

    /// Returns the offsets of the words of a patch.
    #[inline]
    pub const fn offsets(&self) -> PatchOffsets {
        self.offsets
    }

    /// Writes the octets and a patch to the beginning of `message`. Returns `None`, and writes nothing, if `message` is
    /// too short. The function is inlined so that the compiler resolves all lookups in a constant template.
    #[inline(always)]
    pub fn put(&self, message: &mut [u8], patch: HeaderPatch) -> Option<()> {
        message.get_mut(..self.len())?.copy_from_slice(self.octets());
        self.put_patch(message, patch)
    }

    /// Writes a patch to `message`, which begins with the octets of the template. Returns `None`, and writes nothing,
    /// if `message` is too short.
    ///
    /// A pair of words that holds a word of the patch is made from the template, not from `message`: a load of octets
    /// that a wider store has just written stalls.
    #[inline(always)]
    pub fn put_patch(&self, message: &mut [u8], patch: HeaderPatch) -> Option<()> {
        let PatchOffsets { xid: [first, second], credit } = self.offsets;
        let (pairs, last) = message.get_mut(..self.len())?.as_chunks_mut();
        let (from, _) = self.octets().as_chunks();
        for (offset, value) in [(first, patch.xid), (second, patch.xid), (credit, patch.credit)] {
            let at = usize::from(offset) / PAIR;
            match (pairs.get_mut(at), from.get(at)) {
                (Some(pair), Some(from)) => {
                    let value = u64::from(value) << if holds_first(offset) { 32 } else { 0 };
                    *pair = (u64::from_be_bytes(*from) | value).to_be_bytes();
                }
                _ => *last.first_chunk_mut()? = value.to_be_bytes(),
            }
        }
        Some(())
    }
}

impl fmt::Debug for HeaderTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeaderTemplate").field(&self.octets()).field(&self.offsets).finish()
    }
}

impl TemplateId {
    /// The number of templates that one queue pair can have in one direction.
    pub const COUNT: usize = 16;

    /// Returns the identifier of this number, or `None` if it is not below [`COUNT`](Self::COUNT).
    #[inline]
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < Self::COUNT { Some(Self(number)) } else { None }
    }

    /// Returns the number, an index below [`COUNT`](Self::COUNT).
    #[inline]
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Returns whether `length` octets of whole words have a word at this offset.
const fn has(length: usize, offset: u8) -> bool {
    (offset as usize) < length && (offset as usize).is_multiple_of(WORD)
}

/// Returns whether the word at an offset holds the octet `at`.
const fn holds(offset: u8, at: u8) -> bool {
    offset as usize / WORD == at as usize / WORD
}

/// Returns whether the words at two offsets are in the same pair.
const fn share_pair(one: u8, other: u8) -> bool {
    one as usize / PAIR == other as usize / PAIR
}

/// Returns whether the word at an offset is the first of its pair.
#[inline]
const fn holds_first(offset: u8) -> bool {
    (offset as usize).is_multiple_of(PAIR)
}

/// The length of a word in octets, and of a pair of words.
const WORD: usize = 4;
const PAIR: usize = 8;
const _: () = assert!(HeaderTemplate::LEN_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn octets(length: u8) -> Vec<u8> {
        (1..=length).collect()
    }

    #[test]
    fn a_patch_is_put_where_it_belongs_and_nothing_else_is_changed() {
        let patch = HeaderPatch { xid: 0xa1a2_a3a4, credit: 0xc1c2_c3c4 };
        for length in (4..=96).step_by(4) {
            for xid in [[0, 0], [0, length - 4], [length - 4, 4], [8, 12]] {
                for credit in (0..length).step_by(4) {
                    let offsets = PatchOffsets { xid, credit };
                    let template = HeaderTemplate::new(&octets(length), offsets);
                    let [first, second, third] = [xid[0], xid[1], credit].map(|offset| offset / 8);
                    let is_apart = first != third && second != third;
                    let is_apart = is_apart && (first != second || xid[0] == xid[1]);
                    let is_one = is_apart && xid.iter().all(|offset| *offset < length);
                    assert_eq!(template.is_some(), is_one, "{length} {offsets:?}");
                    let Some(template) = template else { continue };
                    let mut expected = octets(length);
                    let words = [(xid[0], patch.xid), (xid[1], patch.xid), (credit, patch.credit)];
                    for (offset, word) in words {
                        let at = usize::from(offset);
                        expected[at..at + 4].copy_from_slice(&word.to_be_bytes());
                    }
                    expected.extend([0x55; 3]);
                    let mut message = std::vec![0x55; usize::from(length) + 3];
                    assert_eq!(template.put(&mut message, patch), Some(()));
                    assert_eq!(message, expected, "{offsets:?}");
                    let mut short = std::vec![0x55; usize::from(length) - 1];
                    assert_eq!(template.put(&mut short, patch), None);
                    assert!(short.iter().all(|octet| *octet == 0x55));
                }
            }
        }
    }

    #[test]
    fn what_is_no_template_is_not_made_one() {
        let made = |length: usize, xid, credit| {
            HeaderTemplate::new(&[1; 104][..length], PatchOffsets { xid, credit }).is_some()
        };
        assert!(made(96, [0, 92], 8) && made(96, [92, 92], 8));
        assert!(!made(100, [0, 0], 8), "too long");
        assert!(!made(0, [0, 0], 0) && !made(8, [0, 0], 8), "no room for a patch");
        assert!(!made(10, [0, 0], 8), "half a word");
        assert!(!made(44, [44, 0], 8) && !made(44, [0, 44], 8) && !made(44, [0, 0], 44));
        assert!(!made(44, [0, 255], 8) && !made(44, [0, 42], 8) && !made(44, [0, 0], 10));
        assert!(!made(44, [0, 8], 8), "one word for both");
        assert!(!made(44, [0, 4], 8) && !made(44, [0, 16], 20), "two words of one pair");
    }

    #[test]
    fn what_is_in_the_place_of_a_patch_does_not_tell_templates_apart() {
        let offsets = PatchOffsets { xid: [0, 16], credit: 8 };
        let made = |octets: &[u8]| HeaderTemplate::new(octets, offsets).unwrap();
        let with = |a, b| [[0; 4], [a; 4], [0; 4], [b; 4], [0; 4]];
        assert_eq!(made(&[7; 20]).octets(), with(7, 7).as_flattened());
        assert_eq!(made(&[7; 20]), made(with(7, 7).as_flattened()));
        assert_ne!(made(&[7; 20]), made(with(7, 8).as_flattened()));
    }

    #[test]
    fn there_are_no_more_numbers_than_are_counted() {
        let numbers: Vec<_> = (0..=u8::MAX).filter_map(TemplateId::new).collect();
        assert_eq!(numbers.len(), TemplateId::COUNT);
        assert!((0..).zip(&numbers).all(|(number, id)| id.number() == number));
    }
}
