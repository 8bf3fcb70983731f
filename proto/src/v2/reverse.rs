//! The reverse direction: the support that a client announces, and the Calls that a server may then make (sections 4.6,
//! 5.2.5).

use super::properties::{REVERSE_CONT, REVERSE_GENL, REVERSE_SIMPLE};
use crate::chunk::Format;

/// The level of support for the reverse direction. Each level includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The reverse direction is not supported.
    None,
    /// Simple format without chunks, [V2-4.6.4-1] the least that may be supported.
    Simple,
    /// Simple and Continued format without chunks.
    Continued,
    /// All formats and chunks of the forward direction.
    General,
}

impl Level {
    /// Returns the level that a Reverse-Direction Support property stands for. An unknown value counts as no support.
    pub const fn of(property: u32) -> Self {
        match property {
            REVERSE_SIMPLE => Self::Simple,
            REVERSE_CONT => Self::Continued,
            REVERSE_GENL => Self::General,
            _ => Self::None,
        }
    }

    /// Returns whether a message of this format without chunks may be sent.
    pub fn allows(self, format: Format) -> bool {
        let needed = match format {
            Format::Simple => Self::Simple,
            Format::Continued { .. } => Self::Continued,
            Format::Special => Self::General,
        };
        self >= needed
    }

    /// Returns whether a message with chunks, of any format, may be sent.
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
