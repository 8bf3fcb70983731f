//! Sizes: those of pages, and any as people write them.

use std::fmt;

/// A number of octets, as people write it.
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

/// Octets of a page of 4 KiB, the unit that runs of blocks are made of.
pub(crate) const PAGE: usize = 4096;
/// Octets of a page of 2 MiB.
pub(crate) const MIB_2: usize = 2 << 20;
/// Octets of a page of 1 GiB.
pub(crate) const GIB: usize = 1 << 30;
