//! One region of memory, in the largest pages that the system offers.
//!
//! # Normal operation
//!
//! Kinds of pages are tried in order, largest first; the first that works is used, and the report
//! says why the larger ones failed and which command would change that. The region is bound to a
//! NUMA node if one is configured, excluded from forked children (copy on write would replace pages
//! that an RNIC has pinned), and filled with pages at once, so that the data path causes no page
//! faults.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use self::machine::Machine;
use self::map::Mapping;
pub use self::map::map_memfd;
pub use self::pages::{Declined, PageKind, PagePreference, PageReport};
use crate::error::PoolError;

mod machine;
#[allow(unsafe_code, reason = "memory is asked of the system, and given back")]
mod map;
mod pages;
#[cfg(test)]
mod tests;

/// Memory of the system, which is returned when the region is dropped.
#[derive(Debug)]
pub(crate) struct Region {
    mapping: Mapping,
}

impl Region {
    /// Maps `bytes` octets, rounded up for the pages of `preference`, and fills them with pages.
    pub(crate) fn new(
        bytes: usize,
        preference: PagePreference,
        node: Option<u32>,
    ) -> Result<(Self, PageReport), PoolError> {
        let machine = match preference {
            PagePreference::Heap => Machine::default(),
            _ => Machine::read(node),
        };
        let kinds = preference.kinds();
        let mut declined = Vec::new();
        for &kind in kinds {
            if let Some(refused) = machine.refuses(kind, bytes) {
                declined.push(refused);
                continue;
            }
            match Self::of_kind(kind, bytes, node, preference) {
                Ok((mapping, unbound)) => {
                    let report = PageReport {
                        kind,
                        bytes,
                        huge_bytes: huge_bytes(kind, &mapping),
                        node: node.filter(|_| unbound.is_none() && kind != PageKind::Heap),
                        unbound,
                        unlocked: lock(kind, &mapping),
                        declined,
                    };
                    return Ok((Self { mapping }, report));
                }
                Err(error) => declined.push(machine.explain(kind, bytes, &error)),
            }
        }
        // The smallest kind was tried last, and its reason holds for the others, too.
        let reason = declined.pop().map_or_else(String::new, |last| last.reason);
        Err(PoolError::NoMemory { bytes, reason })
    }

    /// Returns the address of the octet at `offset`, which must be within the region.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        self.mapping.at(offset)
    }

    /// Returns the number of octets.
    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Returns the memfd by which another process can map the region, if there is one.
    pub(crate) fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.mapping.memfd()
    }

    fn of_kind(
        kind: PageKind,
        bytes: usize,
        node: Option<u32>,
        preference: PagePreference,
    ) -> io::Result<(Mapping, Option<String>)> {
        let shared = preference == PagePreference::Shared;
        let mapping = match kind {
            PageKind::Huge if shared => Mapping::shared_huge(bytes),
            _ if shared => Mapping::shared(bytes),
            PageKind::Gigantic => Mapping::gigantic(bytes),
            PageKind::Huge => Mapping::huge(bytes),
            PageKind::Transparent => Mapping::transparent(bytes),
            PageKind::Small => Mapping::small(bytes),
            PageKind::Heap => return Ok((Mapping::heap(bytes)?, None)),
        }?;
        let bound = node.map(|node| mapping.bind(node));
        let unbound = bound.and_then(Result::err).map(|error| error.to_string());
        mapping.keep_from_children()?;
        mapping.populate()?;
        if shared && kind == PageKind::Transparent {
            mapping.collapse()?;
        }
        Ok((mapping, unbound))
    }
}

/// Locks the pages, unless their kind is never swapped. Returns the reason if that fails.
fn lock(kind: PageKind, mapping: &Mapping) -> Option<String> {
    match kind {
        PageKind::Transparent | PageKind::Small => {
            mapping.lock().err().map(|error| error.to_string())
        }
        PageKind::Gigantic | PageKind::Huge | PageKind::Heap => None,
    }
}

fn huge_bytes(kind: PageKind, mapping: &Mapping) -> usize {
    match kind {
        PageKind::Gigantic | PageKind::Huge => mapping.len(),
        PageKind::Transparent => {
            let maps = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
            machine::huge_bytes(&maps, mapping.at(0).addr().get(), mapping.len())
        }
        PageKind::Small | PageKind::Heap => 0,
    }
}
