//! Page sizes, and human-readable sizes.

use std::fmt;

/// A number of octets that is displayed in human-readable units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Octets(pub(crate) usize);

impl fmt::Display for Octets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(GIB, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let fits =
            units.into_iter().find(|(unit, _)| self.0 >= *unit && self.0.is_multiple_of(*unit));
        match fits {
            Some((unit, name)) => write!(f, "{} {name}", self.0 / unit),
            None => write!(f, "{} octets", self.0),
        }
    }
}

/// The size of a 4 KiB page in octets, which is the unit of page runs.
pub(crate) const PAGE: usize = 4096;
/// The size of a 2 MiB page in octets.
pub(crate) const MIB_2: usize = 2 << 20;
/// The size of a 1 GiB page in octets.
pub(crate) const GIB: usize = 1 << 30;
/// The octets of a tract: as many as a pool takes from a reservoir at a time, if there are so many in a row.
pub(crate) const TRACT: usize = MIB_2;
/// The pages of a tract.
pub(crate) const TRACT_PAGES: u32 = 512;

const _: () = assert!(TRACT_PAGES as usize * PAGE == TRACT);
