//! The reverse direction: what a client announces, and a server may ask of it (sections 4.6, 5.2.5).

use super::properties::{REVERSE_CONT, REVERSE_GENL, REVERSE_SIMPLE};
use crate::chunk::Format;

/// How much of the reverse direction is supported. Each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    None,
    /// Simple format without chunks. [V2-4.6.4-1] as little as that may be all.
    Simple,
    /// Also Continued format without chunks.
    Continued,
    /// Everything the forward direction has.
    General,
}

impl Level {
    /// Returns the level that a Reverse-Direction Support property stands for. What we do not know may
    /// be anything, so nothing is asked of it.
    pub const fn of(property: u32) -> Self {
        match property {
            REVERSE_SIMPLE => Self::Simple,
            REVERSE_CONT => Self::Continued,
            REVERSE_GENL => Self::General,
            _ => Self::None,
        }
    }

    /// Returns whether a message of this format, without chunks, can be sent.
    pub fn allows(self, format: Format) -> bool {
        let needed = match format {
            Format::Simple => Self::Simple,
            Format::Continued { .. } => Self::Continued,
            Format::Special => Self::General,
        };
        self >= needed
    }

    /// Returns whether a message with chunks, of any format, can be sent.
    pub fn allows_chunks(self) -> bool {
        self >= Self::General
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_allows_what_its_property_says() {
        let formats = [Format::Simple, Format::Continued { messages: 2 }, Format::Special];
        let expected = [
            (0, [false; 3], false),
            (1, [true, false, false], false),
            (2, [true, true, false], false),
            (3, [true; 3], true),
            (4, [false; 3], false),
        ];
        for (property, without_chunks, with_chunks) in expected {
            let level = Level::of(property);
            assert_eq!(formats.map(|format| level.allows(format)), without_chunks);
            assert_eq!(level.allows_chunks(), with_chunks);
        }
    }
}
