//! What `mr-pool` calls a block.

/// Names a block: its run, and its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) first: u32,
    pub(crate) index: u8,
}
