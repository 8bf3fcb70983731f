//! What tells a core from the others of its server.

use std::fmt;

/// Cores that one server can have.
pub const CORES_MAX: u8 = 128;

/// The number of a core among those of one server: less than [`CORES_MAX`].
///
/// The names of a core's connections and Calls carry it: another core of the server finds nothing by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CoreNumber(u8);

impl CoreNumber {
    /// The number of the first core of a server, and of the only one.
    pub const FIRST: Self = Self(0);

    /// Returns the number, or `None` if no server has that many cores.
    pub const fn new(number: u8) -> Option<Self> {
        if number < CORES_MAX { Some(Self(number)) } else { None }
    }

    /// Returns the number that the low seven bits of a name's prefix are.
    pub(crate) const fn of_prefix(prefix: u8) -> Self {
        Self(prefix % CORES_MAX)
    }

    /// Returns the number as an integer.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for CoreNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What no two cores of one server have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreIdentity {
    /// The core's number.
    pub number: CoreNumber,
    /// The seed of its XIDs.
    pub seed: u64,
}

impl From<u64> for CoreIdentity {
    /// Returns the identity of the only core of a server.
    fn from(seed: u64) -> Self {
        Self { number: CoreNumber::FIRST, seed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_fits_the_seven_bits_that_names_have_for_it() {
        for number in 0..=u8::MAX {
            let core = CoreNumber::new(number);
            assert_eq!(core.is_some(), number < 128);
            let Some(core) = core else { continue };
            assert_eq!((core.get(), core.to_string()), (number, number.to_string()));
            assert_eq!([number, 0x80 | number].map(CoreNumber::of_prefix), [core; 2]);
        }
    }
}
