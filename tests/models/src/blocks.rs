//! The block of `mr-pool`.

/// A block: its run, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) first: u32,
    pub(crate) index: u8,
}
