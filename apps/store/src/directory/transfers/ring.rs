//! The ring by which data moves beside the core.

use haulage::provider::Waker;
use haulage::sys::files::FileRing;
use haulage::sys::uring::Unavailable;
use haulage_mr_pool::Pool;

use super::under_way::UnderWay;

/// Asynchronous file I/O, by io_uring.
#[derive(Debug)]
pub struct Ring(pub(in crate::directory) FileRing<UnderWay>);

impl Ring {
    /// Creates a ring over a core's memory. A completion wakes the core.
    ///
    /// # Errors
    /// io_uring is not available.
    pub fn new(pool: &Pool, waker: &Waker) -> Result<Self, Unavailable> {
        FileRing::new(RING_MAX, pool, waker).map(Self)
    }

    /// Returns whether the memory is registered with io_uring, which makes transfers a little faster.
    pub fn is_registered(&self) -> bool {
        self.0.is_registered()
    }
}

/// Maximum number of transfers between files and memory in flight: 128 READs, WRITEs and syncs each.
const RING_MAX: u16 = 384;
