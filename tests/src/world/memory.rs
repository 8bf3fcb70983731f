//! One end's memory: blocks that cannot be read while the peer or a work request may use them.
//!
//! # Memory ownership
//! A block belongs to the end. Reading it while a work request uses it, or while any of it is exposed to the peer,
//! panics and fails the test.

use std::ops::Range;

use haulage_proto::verbs::{Access, ClaimedSegment, Handle};

/// Blocks, and the handles that expose them.
#[derive(Debug, Default)]
pub struct Memory {
    blocks: Vec<Option<Block>>,
    free: Vec<usize>,
    grants: Vec<Option<HandleState>>,
    free_grants: Vec<usize>,
    /// Number of handles reserved so far, which varies the key of each.
    reserved: u32,
}

/// Names a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockId(usize);

/// Part of a block, handed to a work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The block.
    pub block: BlockId,
    /// The octets in the block.
    pub range: Range<usize>,
}

#[derive(Debug)]
struct Block {
    bytes: Vec<u8>,
    /// Number of work requests that use it.
    posted: usize,
    /// Number of handles that expose it.
    exposed: usize,
}

/// The state of a handle: reserved, or open.
#[derive(Debug)]
struct HandleState {
    handle: Handle,
    open: Option<(Access, u64, Part)>,
}

impl Memory {
    /// Takes a block that holds `bytes`.
    pub fn lease(&mut self, bytes: Vec<u8>) -> BlockId {
        let block = Some(Block { bytes, posted: 0, exposed: 0 });
        match self.free.pop() {
            Some(at) => {
                self.blocks[at] = block;
                BlockId(at)
            }
            None => {
                self.blocks.push(block);
                BlockId(self.blocks.len() - 1)
            }
        }
    }

    /// Releases a block, and returns its octets.
    pub fn release(&mut self, id: BlockId) -> Vec<u8> {
        let block = self.blocks[id.0].take().expect("a block is released once");
        assert_eq!(block.posted, 0, "a block is released that a work request still uses");
        assert_eq!(block.exposed, 0, "a block is released that the peer can still reach");
        self.free.push(id.0);
        block.bytes
    }

    /// Reads a block.
    pub fn bytes(&self, id: BlockId) -> &[u8] {
        let block = self.block(id);
        assert_eq!(block.posted, 0, "a block is read that a work request still uses");
        assert_eq!(block.exposed, 0, "a block is read that the peer can still reach");
        &block.bytes
    }

    /// Returns the length of a block.
    pub fn length(&self, id: BlockId) -> usize {
        self.block(id).bytes.len()
    }

    /// Counts a work request that uses a block.
    pub fn post(&mut self, id: BlockId) {
        self.block_mut(id).posted += 1;
    }

    /// Counts the completion of a work request that used a block.
    pub fn complete(&mut self, id: BlockId) {
        let block = self.block_mut(id);
        block.posted = block.posted.checked_sub(1).expect("it was posted");
    }

    /// Returns the octets that a posted work request sends.
    pub fn source(&self, part: &Part) -> Vec<u8> {
        let block = self.block(part.block);
        assert!(block.posted > 0, "a source belongs to its work request");
        block.bytes[part.range.clone()].to_vec()
    }

    /// Fills the octets that a posted work request reads into.
    pub fn fill(&mut self, part: &Part, bytes: &[u8]) {
        let block = self.block_mut(part.block);
        assert!(block.posted > 0, "a sink belongs to its work request");
        block.bytes[part.range.clone()].copy_from_slice(bytes);
    }

    /// Reserves a handle, which exposes nothing yet.
    pub fn reserve_handle(&mut self) -> Handle {
        let at = self.free_grants.pop().unwrap_or(self.grants.len());
        // Zero stands for no handle. A slot's handle differs from the last ones in its place.
        self.reserved = self.reserved.wrapping_add(1);
        let slot = u32::try_from(at + 1).expect("few handles");
        let handle = Handle(slot << 16 | self.reserved & 0xffff);
        let grant = Some(HandleState { handle, open: None });
        if at == self.grants.len() {
            self.grants.push(grant);
        } else {
            self.grants[at] = grant;
        }
        handle
    }

    /// Exposes part of a block to the peer.
    pub fn expose(&mut self, handle: Handle, access: Access, offset: u64, part: Part) {
        let block = self.block_mut(part.block);
        assert!(part.range.end <= block.bytes.len(), "it opens more than the block");
        block.exposed += 1;
        let grant = self.grant_mut(handle).expect("a handle is reserved before it is opened");
        assert!(grant.open.is_none(), "a handle is opened once");
        grant.open = Some((access, offset, part));
    }

    /// Invalidates a handle for good. Returns whether it was open.
    pub fn invalidate(&mut self, handle: Handle) -> bool {
        let Some(grant) = self.grant_mut(handle) else { return false };
        let Some((_, _, part)) = grant.open.take() else { return false };
        self.grants[slot(handle)] = None;
        self.free_grants.push(slot(handle));
        self.block_mut(part.block).exposed -= 1;
        true
    }

    /// Returns the octets that a peer names, if they are exposed to it with this access.
    fn claimed(&self, claim: &ClaimedSegment, access: Access) -> Option<Part> {
        let grant = self.grants.get(slot(claim.handle()))?.as_ref()?;
        let (granted, offset, part) = grant.open.as_ref()?;
        let start = usize::try_from(claim.offset().checked_sub(*offset)?).ok()?;
        let start = part.range.start.checked_add(start)?;
        let end = start.checked_add(claim.length() as usize)?;
        let inside = end <= part.range.end && grant.handle == claim.handle();
        (inside && *granted == access).then_some(Part { block: part.block, range: start..end })
    }

    /// Returns octets that the peer may read; `None` if it may not.
    pub fn remote_read(&self, claim: &ClaimedSegment) -> Option<Vec<u8>> {
        let part = self.claimed(claim, Access::RemoteRead)?;
        Some(self.block(part.block).bytes[part.range].to_vec())
    }

    /// Writes octets that the peer may write. Returns whether it may.
    pub fn remote_write(&mut self, claim: &ClaimedSegment, bytes: &[u8]) -> bool {
        let Some(part) = self.claimed(claim, Access::RemoteWrite) else { return false };
        self.block_mut(part.block).bytes[part.range].copy_from_slice(bytes);
        true
    }

    /// Returns the number of blocks leased, and of handles reserved.
    pub fn in_use(&self) -> (usize, usize) {
        (self.blocks.len() - self.free.len(), self.grants.len() - self.free_grants.len())
    }

    fn block(&self, id: BlockId) -> &Block {
        self.blocks[id.0].as_ref().expect("the block is there")
    }

    fn block_mut(&mut self, id: BlockId) -> &mut Block {
        self.blocks[id.0].as_mut().expect("the block is there")
    }

    fn grant_mut(&mut self, handle: Handle) -> Option<&mut HandleState> {
        let grant = self.grants.get_mut(slot(handle))?.as_mut()?;
        (grant.handle == handle).then_some(grant)
    }
}

fn slot(handle: Handle) -> usize {
    ((handle.0 >> 16) as usize).wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use haulage_proto::verbs::Segment;

    fn claim(handle: Handle, offset: u64, length: u32) -> ClaimedSegment {
        ClaimedSegment::try_from(Segment { handle, length, offset }).expect("it does not wrap")
    }

    #[test]
    fn a_peer_reaches_what_was_opened_to_it_and_nothing_else() {
        let mut memory = Memory::default();
        let block = memory.lease((0..10).collect());
        let (read, write) = (memory.reserve_handle(), memory.reserve_handle());
        memory.expose(read, Access::RemoteRead, 100, Part { block, range: 2..6 });
        memory.expose(write, Access::RemoteWrite, 0, Part { block, range: 6..8 });
        assert_eq!(memory.remote_read(&claim(read, 101, 3)).as_deref(), Some(&[3, 4, 5][..]));
        for (handle, offset, length) in [(read, 99, 1), (read, 101, 4), (write, 0, 1)] {
            assert_eq!(memory.remote_read(&claim(handle, offset, length)), None);
        }
        assert!(memory.remote_write(&claim(write, 1, 1), &[9]));
        assert!(!memory.remote_write(&claim(write, 1, 2), &[9, 9]));
        assert!(!memory.remote_write(&claim(read, 100, 1), &[9]));
        assert!(memory.invalidate(read) && memory.invalidate(write));
        assert!(!memory.invalidate(read), "once");
        assert_eq!(memory.remote_read(&claim(read, 101, 3)), None);
        assert_eq!(memory.bytes(block)[7], 9);
        memory.release(block);
        assert_eq!(memory.in_use(), (0, 0));
    }

    #[test]
    #[should_panic(expected = "a block is read that the peer can still reach")]
    fn open_memory_is_not_read() {
        let mut memory = Memory::default();
        let block = memory.lease(vec![0; 4]);
        let handle = memory.reserve_handle();
        memory.expose(handle, Access::RemoteRead, 0, Part { block, range: 0..4 });
        memory.bytes(block);
    }

    #[test]
    #[should_panic(expected = "a block is released that a work request still uses")]
    fn posted_memory_is_not_released() {
        let mut memory = Memory::default();
        let block = memory.lease(vec![0; 4]);
        memory.post(block);
        memory.release(block);
    }

    #[test]
    fn handles_in_use_differ_and_are_never_zero() {
        let mut memory = Memory::default();
        let block = memory.lease(vec![0; 4]);
        let mut seen = Vec::new();
        for _ in 0..100 {
            let handle = memory.reserve_handle();
            assert!(handle.0 != 0 && !seen.contains(&handle));
            memory.expose(handle, Access::RemoteRead, 0, Part { block, range: 0..4 });
            memory.invalidate(handle);
            seen.push(handle);
        }
    }
}
