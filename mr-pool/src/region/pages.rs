//! Kinds of pages: those to try, those in use, and the reasons why better ones are not.

use std::fmt;

use crate::size::{GIB, MIB_2, Octets, PAGE};

/// The kinds of pages to try, in order, until one works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PagePreference {
    /// 1 GiB, 2 MiB, transparent huge pages, 4 KiB.
    Best,
    /// Transparent huge pages, 4 KiB. Needs nothing reserved by the administrator.
    Transparent,
    /// 4 KiB.
    Small,
    /// 2 MiB, transparent huge pages, 4 KiB, in a sealed memfd that a peer on the same machine can map: the `shm`
    /// provider exposes memory of such a region. A peer that has mapped the region is trusted with all of it: see
    /// "Shared regions" in the documentation of the crate.
    Shared,
    /// The heap, for tests, which then depend on no system setting.
    Heap,
}

impl PagePreference {
    /// Returns the kinds to try, in order.
    pub(super) const fn kinds(self) -> &'static [PageKind] {
        use PageKind::{Gigantic, Heap, Huge, Small, Transparent};
        match self {
            Self::Best => &[Gigantic, Huge, Transparent, Small],
            Self::Transparent => &[Transparent, Small],
            Self::Small => &[Small],
            Self::Shared => &[Huge, Transparent, Small],
            Self::Heap => &[Heap],
        }
    }

    /// Rounds a length up to a multiple of the page size, at least one page.
    pub(crate) fn round_up(self, bytes: usize) -> Option<usize> {
        let page = match self {
            Self::Best | Self::Transparent | Self::Shared => MIB_2,
            Self::Small | Self::Heap => PAGE,
        };
        bytes.max(1).checked_next_multiple_of(page)
    }
}

/// The kind of pages of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// 1 GiB pages, reserved by the administrator.
    Gigantic,
    /// 2 MiB pages, reserved by the administrator.
    Huge,
    /// 2 MiB pages where the system has them, 4 KiB pages elsewhere.
    Transparent,
    /// 4 KiB pages.
    Small,
    /// Memory of the heap.
    Heap,
}

impl PageKind {
    /// Returns the name of the kind in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gigantic => "1 GiB pages",
            Self::Huge => "2 MiB pages",
            Self::Transparent => "transparent huge pages",
            Self::Small => "4 KiB pages",
            Self::Heap => "heap",
        }
    }

    /// Returns the size of one page in octets.
    pub const fn size(self) -> usize {
        match self {
            Self::Gigantic => GIB,
            Self::Huge | Self::Transparent => MIB_2,
            Self::Small | Self::Heap => PAGE,
        }
    }
}

/// A report on the pages of a region, and on the reasons why better kinds are not in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PageReport {
    /// The kind of pages in use.
    pub kind: PageKind,
    /// The size of the region in octets.
    pub bytes: usize,
    /// The number of octets in pages of 2 MiB and more, as far as the system reports it.
    pub huge_bytes: usize,
    /// The NUMA node that the region is bound to.
    pub node: Option<u32>,
    /// The reason why the region is not bound to the configured node.
    pub unbound: Option<String>,
    /// The reason why the memory could not be locked, so that the system may swap it out.
    pub unlocked: Option<String>,
    /// The kinds of pages that were tried before, best first.
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
#[non_exhaustive]
pub struct Declined {
    /// The kind of pages.
    pub kind: PageKind,
    /// The reason why it could not be used.
    pub reason: String,
    /// The command that would make it usable, if there is one.
    pub command: Option<String>,
}

impl fmt::Display for Declined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no {}: {}", self.kind.name(), self.reason)?;
        self.command.as_ref().map_or(Ok(()), |command| write!(f, " (try: {command})"))
    }
}
