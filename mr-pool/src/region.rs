//! One region of memory, in the best pages the machine has.
//!
//! # Normal operation
//!
//! Kinds of pages are tried in order, largest first; the first that works is taken, and the report
//! says why the larger ones did not and which command would change that. The region is bound to a
//! NUMA node if one is asked for, kept out of forked children (a copy on write would part us from
//! memory an RNIC has pinned), and filled with pages at once, so no fault waits in the data path.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use self::machine::Machine;
use self::map::Mapping;
pub use self::map::map_memfd;
use crate::blocks::PAGE;
use crate::error::PoolError;

mod machine;
#[allow(unsafe_code, reason = "memory is asked of the system, and given back")]
mod map;
#[cfg(test)]
mod tests;

/// Which pages to try, each in turn, until one works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PagePreference {
    /// 1 GiB, 2 MiB, transparent huge pages, 4 KiB.
    Best,
    /// Transparent huge pages, 4 KiB. Needs nothing reserved by the administrator.
    Transparent,
    /// 4 KiB.
    Small,
    /// 2 MiB, transparent huge pages, 4 KiB; in a sealed memfd, which a peer on the same machine can
    /// map: what the `shm` provider exposes lies in such a region. A peer that has mapped it is trusted with
    /// all of it: see "Shared regions" in the documentation of the crate.
    Shared,
    /// The allocator's heap: for tests, which then need nothing of the machine.
    Heap,
}

impl PagePreference {
    /// Returns the kinds to try, in order.
    const fn kinds(self) -> &'static [PageKind] {
        use PageKind::{Gigantic, Heap, Huge, Small, Transparent};
        match self {
            Self::Best => &[Gigantic, Huge, Transparent, Small],
            Self::Transparent => &[Transparent, Small],
            Self::Small => &[Small],
            Self::Shared => &[Huge, Transparent, Small],
            Self::Heap => &[Heap],
        }
    }

    /// Rounds a length up to what these pages need, at least one page.
    pub(crate) fn round_up(self, bytes: usize) -> Option<usize> {
        let page = match self {
            Self::Best | Self::Transparent | Self::Shared => MIB_2,
            Self::Small | Self::Heap => PAGE,
        };
        bytes.max(1).checked_next_multiple_of(page)
    }
}

/// What a region is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// 1 GiB pages, reserved by the administrator.
    Gigantic,
    /// 2 MiB pages, reserved by the administrator.
    Huge,
    /// 2 MiB pages where the system finds them, 4 KiB pages elsewhere.
    Transparent,
    /// 4 KiB pages.
    Small,
    /// The allocator's heap.
    Heap,
}

impl PageKind {
    /// Returns the name reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gigantic => "1 GiB pages",
            Self::Huge => "2 MiB pages",
            Self::Transparent => "transparent huge pages",
            Self::Small => "4 KiB pages",
            Self::Heap => "heap",
        }
    }

    /// Returns the octets of one page.
    pub const fn size(self) -> usize {
        match self {
            Self::Gigantic => GIB,
            Self::Huge | Self::Transparent => MIB_2,
            Self::Small | Self::Heap => PAGE,
        }
    }
}

/// What a region is made of, and what stood in the way of better.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageReport {
    /// The pages in use.
    pub kind: PageKind,
    /// Octets of the region.
    pub bytes: usize,
    /// Octets that are in pages of 2 MiB and more, as far as the system tells.
    pub huge_bytes: usize,
    /// The NUMA node the region is bound to.
    pub node: Option<u32>,
    /// Why it is not bound to the node that was asked for.
    pub unbound: Option<String>,
    /// Why the memory could not be locked, so that the system may swap it out.
    pub unlocked: Option<String>,
    /// The kinds that were tried before, best first.
    pub declined: Vec<Declined>,
}

impl fmt::Display for PageReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {}", Octets(self.bytes), self.kind.name())?;
        if self.kind == PageKind::Transparent {
            write!(f, ", {} of it in huge ones", Octets(self.huge_bytes))?;
        }
        if let Some(node) = self.node {
            write!(f, ", on node {node}")?;
        }
        if let Some(reason) = &self.unbound {
            write!(f, ", on any node: {reason}")?;
        }
        if let Some(reason) = &self.unlocked {
            write!(f, ", not locked: {reason}")?;
        }
        self.declined.iter().try_for_each(|declined| write!(f, "; {declined}"))
    }
}

/// A kind of pages that could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declined {
    /// The kind.
    pub kind: PageKind,
    /// Why not.
    pub reason: String,
    /// The command that would make it usable, where there is one.
    pub command: Option<String>,
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}: {}", self.kind.name(), self.reason)?;
        self.command.as_ref().map_or(Ok(()), |command| write!(f, " (try: {command})"))
    }
}

/// Memory taken from the system, given back when dropped.
#[derive(Debug)]
pub(crate) struct Region {
    mapping: Mapping,
}

impl Region {
    /// Takes `bytes`, rounded up as `preference` says, and fills them with pages.
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
            match Self::of_kind(kind, bytes, node, preference == PagePreference::Shared) {
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
        // The smallest kind was the last, and what stopped it stops the others.
        let reason = declined.pop().map_or_else(String::new, |last| last.reason);
        Err(PoolError::NoMemory { bytes, reason })
    }

    /// Returns the octet at `offset`, which is within the region.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        self.mapping.at(offset)
    }

    /// Returns what another process needs to map the region, if it may.
    pub(crate) fn memfd(&self) -> Option<BorrowedFd<'_>> {
        self.mapping.memfd()
    }

    fn of_kind(
        kind: PageKind,
        bytes: usize,
        node: Option<u32>,
        shared: bool,
    ) -> io::Result<(Mapping, Option<String>)> {
        let mapping = match kind {
            _ if shared => Mapping::shared(bytes, kind == PageKind::Huge),
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

/// Locks the pages, unless their kind is never swapped. Returns why not.
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

const GIB: usize = 1 << 30;
const MIB_2: usize = 2 << 20;
