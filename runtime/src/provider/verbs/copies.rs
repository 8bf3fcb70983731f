//! Copies of short messages of ours, in memory of the provider's own.
//!
//! # Memory ownership
//!
//! A copy is a shared lease that nobody holds but the view in the send queue: it is free again when that view is
//! dropped, by whichever way the request ends. The memory is registered like the core's, in each connection's domain.

use std::sync::Arc;

use haulage_mr_pool::{PagePreference, Pool, PoolConfig, Source};

use super::config::Unavailable;
use crate::sys::ibverbs::{Domain, Refused, Region, WindowUse};

/// The memory of one provider for copies.
#[derive(Debug)]
pub(super) struct Copies(Pool);

impl Copies {
    /// Takes the memory from the system, and registers it.
    pub(super) fn new(
        domain: &Arc<Domain>,
        windows: WindowUse,
    ) -> Result<(Self, Region), Unavailable> {
        let config = PoolConfig { bytes: BYTES, pages: PagePreference::Small, node: None };
        let pool = Pool::new(&config).map_err(|error| {
            Refused::of("taking memory for short messages", std::io::Error::other(error))
        })?;
        let region = Region::new(domain, &pool, windows);
        let region = region.map_err(|refused| Unavailable::memory(pool.usable(), refused))?;
        Ok((Self(pool), region))
    }

    /// Copies a message of at most [`COPY_MAX`] octets; `None` if there is no memory for it.
    pub(super) fn make(&self, octets: &[u8]) -> Option<Source> {
        // All are equally long, so that each fits wherever one was.
        let mut lease = self.0.lease(COPY_MAX)?;
        lease.bytes_mut().get_mut(..octets.len())?.copy_from_slice(octets);
        lease.share().source(0..octets.len())
    }
}

/// Octets of the longest message that is copied: Calls and Replies whose arguments and results are short, or in chunks.
pub(super) const COPY_MAX: usize = 256;
/// 512 copies, and octets that hold nothing.
const BYTES: usize = 512 * COPY_MAX + (4 << 10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_free_again_when_its_view_is_dropped() {
        let config = PoolConfig { bytes: BYTES, pages: PagePreference::Heap, node: None };
        let copies = Copies(Pool::new(&config).unwrap());
        let _nothing = copies.0.lease(64).unwrap();
        for round in 0..2 {
            let message: Vec<u8> = (0..=u8::MAX).map(|octet| octet ^ round).collect();
            let lengths = (0..).map(|at| at % (COPY_MAX + 1));
            let all: Vec<_> = lengths.map_while(|length| copies.make(&message[..length])).collect();
            assert!(all.len() >= 512, "{}", all.len());
            let is_whole =
                |(at, copy): (usize, &Source)| copy.bytes() == &message[..at % (COPY_MAX + 1)];
            assert!(all.iter().enumerate().all(is_whole));
        }
        assert!(copies.make(&[0; COPY_MAX + 1]).is_none());
    }
}
