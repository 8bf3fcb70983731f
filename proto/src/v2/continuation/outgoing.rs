//! The division of an outgoing Payload stream over messages.

use core::ops::Range;

use crate::v2::header::MIDDLE_WIRE_LEN;

/// A division of one Payload stream over the fewest messages, all of them full but for the last, and for the odd octets of
/// a limit that is no multiple of four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    payload_length: u32,
    /// The number of octets in each message except the last.
    middle_length: u32,
    middle_count: u32,
}

/// The part of the Payload stream that one message carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The range of the Payload stream.
    pub range: Range<usize>,
    /// `rdma_remaining`: the number of octets after the range.
    pub remaining: u32,
    /// Whether this is the last message. Only the last one has chunks and may be sent with
    /// invalidation.
    pub is_last: bool,
}

impl Split {
    /// Divides `payload_length` octets over messages of at most `message_max` octets, the last of which has a header of
    /// `last_header_length` octets. Returns `None` if the headers leave no room for payload.
    pub fn new(
        payload_length: usize,
        message_max: usize,
        last_header_length: usize,
    ) -> Option<Self> {
        let last = message_max.checked_sub(last_header_length)?;
        let payload_length = u32::try_from(payload_length).ok()?;
        // [V2-4.1-2] the stream may be divided at any offset, and is sent in order.
        let before_last = payload_length.saturating_sub(u32::try_from(last).unwrap_or(u32::MAX));
        if before_last == 0 {
            return Some(Self { payload_length, middle_length: 0, middle_count: 0 });
        }
        let middle_length = u32::try_from(Self::part_max(message_max)).unwrap_or(!3);
        let is_partial = before_last.checked_rem(middle_length)? != 0;
        let middle_count =
            before_last.checked_div(middle_length)?.saturating_add(is_partial.into());
        Some(Self { payload_length, middle_length, middle_count })
    }

    /// Returns the octets that a message of at most `message_max` octets carries if it is not the last.
    pub const fn part_max(message_max: usize) -> usize {
        // E7: whole words, for a peer that decodes each part by itself.
        message_max.saturating_sub(MIDDLE_WIRE_LEN) & !3
    }

    /// Returns the number of messages: one is Simple format, more are Continued format.
    pub const fn messages(&self) -> u32 {
        self.middle_count.saturating_add(1)
    }

    /// Returns the part that each message carries, in posting order.
    pub fn pieces(self) -> impl Iterator<Item = Piece> {
        //~ V2-4.1-2: `.map` -> `.rev().map`
        (0..self.messages()).map(move |index| {
            let is_last = index == self.middle_count;
            let start = index.saturating_mul(self.middle_length).min(self.payload_length);
            let end = if is_last {
                self.payload_length
            } else {
                start.saturating_add(self.middle_length).min(self.payload_length)
            };
            // E7: what is still to come after this one, so nothing after the last.
            let remaining = self.payload_length.saturating_sub(end);
            Piece { range: to_usize(start)..to_usize(end), remaining, is_last }
        })
    }
}

fn to_usize(length: u32) -> usize {
    usize::try_from(length).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;

    #[test]
    fn what_fits_one_message_is_not_divided() {
        let split = Split::new(100, 128, 28).unwrap();
        let pieces: Vec<_> = split.pieces().collect();
        assert_eq!(split.messages(), 1);
        assert_eq!(pieces, [Piece { range: 0..100, remaining: 0, is_last: true }]);
    }

    #[test]
    fn pieces_are_full_in_order_and_count_down_to_zero() {
        // 108 octets in a MIDDLE, 88 in the last.
        let split = Split::new(300, 128, 40).unwrap();
        let pieces: Vec<_> = split.pieces().collect();
        assert_eq!(split.messages(), 3);
        let expected = [(0..108, 192, false), (108..216, 84, false), (216..300, 0, true)];
        let expected =
            expected.map(|(range, remaining, is_last)| Piece { range, remaining, is_last });
        assert_eq!(pieces, expected);
    }

    #[test]
    fn every_division_covers_the_stream_within_the_limit() {
        for payload in 0..400 {
            for message_max in [24, 25, 41, 64, 127] {
                for last_header in [16, 24, 41, 64] {
                    let Some(split) = Split::new(payload, message_max, last_header) else {
                        assert!(last_header > message_max);
                        continue;
                    };
                    let mut at = 0;
                    for piece in split.pieces() {
                        let header = if piece.is_last { last_header } else { MIDDLE_WIRE_LEN };
                        assert_eq!(piece.range.start, at);
                        assert!(header + piece.range.len() <= message_max);
                        assert!(piece.is_last || !piece.range.is_empty(), "each makes progress");
                        at = piece.range.end;
                        let behind = u32::try_from(payload - at).unwrap();
                        assert_eq!((piece.remaining, piece.is_last), (behind, piece.is_last));
                    }
                    assert_eq!(at, payload);
                    assert_eq!(split.pieces().filter(|piece| piece.is_last).count(), 1);
                    let fewer = split.middle_count.saturating_sub(1) as usize;
                    let middle = (message_max - MIDDLE_WIRE_LEN) / 4 * 4;
                    let room = fewer * middle + message_max - last_header;
                    assert!(split.middle_count == 0 || room < payload, "no message too many");
                }
            }
        }
    }

    #[test]
    fn every_part_of_whole_words_has_whole_words() {
        for payload in (0..400).step_by(4) {
            for message_max in 24..200 {
                for last_header in (16..=64).step_by(4).filter(|header| *header <= message_max) {
                    let split = Split::new(payload, message_max, last_header).unwrap();
                    for Piece { range, remaining, .. } in split.pieces() {
                        let case = (payload, message_max, last_header);
                        assert!(range.len().is_multiple_of(4), "{case:?}: {range:?}");
                        assert!(remaining.is_multiple_of(4), "{case:?}: {remaining}");
                    }
                }
            }
        }
    }

    #[test]
    fn where_nothing_but_headers_fits_nothing_is_divided() {
        assert_eq!(Split::new(10, 20, 20), None, "a MIDDLE would be empty");
        assert_eq!(Split::new(10, 39, 40), None, "the last header does not fit");
        assert_eq!(Split::new(0, 40, 40).map(|split| split.messages()), Some(1));
    }
}
