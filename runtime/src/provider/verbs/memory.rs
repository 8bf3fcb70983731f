//! The memory of a provider that its device knows.

use haulage_mr_pool::{Pool, Source};
use haulage_proto::verbs::QpNum;

use super::config::Unavailable;
use super::copies::Copies;
use super::domains::{ConnectionDomain, Domains, Prepared};
use crate::sys::ibverbs::{Device, Refused, Region, Registered, WindowUse};

/// Our memory, registered for our own use, and the protection domains it is in.
#[derive(Debug)]
pub(super) struct Memory {
    regions: Vec<Region>,
    copies: Copies,
    domains: Domains,
}

impl Memory {
    /// Begins with the memory for copies of short messages.
    pub(super) fn new(domains: Domains, windows: WindowUse) -> Result<Self, Unavailable> {
        let (copies, region) = Copies::new(domains.first(), windows)?;
        Ok(Self { regions: vec![region], copies, domains })
    }

    /// Registers the memory of `pool`.
    pub(super) fn add(&mut self, pool: &Pool, windows: WindowUse) -> Result<(), Unavailable> {
        let region = Region::new(self.domains.first(), pool, windows)
            .map_err(|refused| Unavailable::memory(pool.usable(), refused))?;
        self.regions.push(region);
        Ok(())
    }

    /// Copies a short message; `None` if there is no memory for it.
    pub(super) fn copy(&self, octets: &[u8]) -> Option<Source> {
        self.copies.make(octets)
    }

    /// Has a domain of its own prepared for a connection.
    pub(super) fn prepare(&mut self, device: &Device, qp: QpNum) -> Result<(), Refused> {
        self.domains.prepare(device, &self.regions, qp)
    }

    /// Returns whether domains are being prepared.
    pub(super) const fn prepares(&self) -> bool {
        self.domains.prepares()
    }

    /// Returns the result of preparing a domain, if one is ready.
    pub(super) fn next(&mut self) -> Option<Prepared> {
        self.domains.next()
    }

    /// Deregisters the memory in the domain of a connection that is gone.
    pub(super) fn let_go(&mut self, regions: Vec<Region>) {
        self.deregister(regions.into_iter().map(Region::into_registered).collect());
    }

    /// Deregisters memory that was prepared for a connection.
    pub(super) fn deregister(&mut self, registered: Vec<Registered>) {
        self.domains.let_go(registered);
    }

    /// Returns our memory, in the first domain.
    pub(super) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Returns the domain in which our memory was registered at first, for a connection.
    pub(super) fn first_domain(&self) -> ConnectionDomain {
        self.domains.first_domain()
    }

    pub(super) const fn domains(&self) -> &Domains {
        &self.domains
    }
}
