//! The memory exposed for a Call.

use haulage_proto::exchange::CallPlan;
use haulage_proto::verbs::{Access, Handle, Segment};

use crate::world::choices::Choices;
use crate::world::fabric::QueuePair;
use crate::world::memory::{BlockId, Part};
use crate::world::peer::Tag;

/// The chunks of a Call, and their handles.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    pub(super) call: Option<Chunk>,
    pub(super) reads: Vec<(u32, Chunk)>,
    pub(super) writes: Vec<Chunk>,
    pub(super) reply: Option<Chunk>,
    /// Handles that are not invalidated yet.
    pub(super) open: Vec<Handle>,
}

#[derive(Debug)]
pub(super) struct Chunk {
    /// The memory of the chunk; `None` if it is empty.
    pub(super) block: Option<BlockId>,
    pub(super) segments: Vec<Segment>,
}

impl Chunks {
    /// Exposes `bytes` to the peer, under one handle or under one for each segment.
    pub(super) fn open(
        &mut self,
        plan: &CallPlan,
        queue: &mut QueuePair<Tag>,
        choices: &mut Choices,
        bytes: Vec<u8>,
        access: Access,
    ) -> Chunk {
        let length = u32::try_from(bytes.len()).expect("it was planned");
        if length == 0 {
            return Chunk { block: None, segments: Vec::new() };
        }
        let block = queue.memory.lease(bytes);
        let base = choices.number() >> 1;
        let handle = queue.memory.reserve_handle();
        let mut segments: Vec<_> = plan.split(handle, base, length).collect();
        let each = segments.len() > 1 && choices.one_in(3);
        if each {
            for segment in segments.iter_mut().skip(1) {
                segment.handle = queue.memory.reserve_handle();
            }
        }
        let mut at = 0;
        let count = if each { segments.len() } else { 1 };
        for segment in &segments[..count] {
            let end = if each { at + segment.length as usize } else { length as usize };
            let part = Part { block, range: at..end };
            queue.memory.expose(segment.handle, access, segment.offset, part);
            self.open.push(segment.handle);
            at = end;
        }
        Chunk { block: Some(block), segments }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Chunk> {
        let reads = self.reads.iter().map(|(_, chunk)| chunk);
        reads.chain(&self.writes).chain(&self.call).chain(&self.reply)
    }

    /// Notes that the peer invalidated a handle of the Call.
    pub(super) fn on_invalidated(&mut self, handle: Handle) {
        let at = self.open.iter().position(|open| *open == handle);
        self.open.swap_remove(at.expect("only a handle of the Call is invalidated"));
    }

    pub(super) fn release(self, queue: &mut QueuePair<Tag>) {
        let chunks = self.reads.into_iter().map(|(_, chunk)| chunk).chain(self.writes);
        for chunk in chunks.chain(self.call).chain(self.reply) {
            if let Some(block) = chunk.block {
                queue.memory.release(block);
            }
        }
    }
}
