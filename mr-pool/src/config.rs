//! What a pool, or a reservoir, is made of.

use crate::region::PagePreference;

/// The configuration of a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolConfig {
    /// The size in octets, rounded up to whole pages: 2 MiB if huge pages are preferred, else 4 KiB. 1 GiB pages are
    /// used only if the size is a multiple of 1 GiB.
    pub bytes: usize,
    /// The kinds of pages to try.
    pub pages: PagePreference,
    /// The NUMA node to take memory from; `None` leaves it to the system.
    pub node: Option<u32>,
}
