//! The slots of a fixed table: a queue of free slots, and a list of used slots for each queue pair.

use haulage_proto::verbs::{Handle, QpNum};

use super::fault::StagFault;
use crate::view::{Sink, Source};

/// The memory that a handle stands for.
#[derive(Debug)]
pub(super) enum Held {
    /// The handle is reserved and has no memory yet.
    Nothing,
    /// Memory that the peer may read, from `offset` on.
    Source { offset: u64, source: Source },
    /// Memory that the peer may write, from `offset` on.
    Sink { offset: u64, sink: Sink },
    /// Memory that the response to a local RDMA Read fills.
    ReadSink { offset: u64, sink: Sink },
}

impl Held {
    /// Returns the fault of an access of the wrong kind.
    pub(super) const fn not_this(&self) -> StagFault {
        match self {
            // A handle that is not registered does not exist for the peer.
            Self::Nothing => StagFault::InvalidStag,
            _ => StagFault::AccessViolation,
        }
    }
}

#[derive(Debug)]
struct StagSlot {
    /// The current handle, or the last one of a free slot.
    handle: Handle,
    /// The queue pair and the memory; `None` while the slot is free.
    used: Option<(QpNum, Held)>,
    /// The neighbours in the list of the slot's queue pair. In a free slot `next` is the next free
    /// one.
    prev: u32,
    next: u32,
}

#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[StagSlot]>,
    /// The first used slot of the queue pairs with each index.
    chains: Box<[u32]>,
    free_first: u32,
    free_last: u32,
    in_use: usize,
}

impl Slots {
    /// Creates a table of `capacity` free slots.
    #[allow(clippy::cast_possible_truncation, reason = "the handles' layout bounds the capacity")]
    pub(super) fn new(capacity: usize) -> Self {
        let slot = |index| StagSlot {
            handle: Handle(0),
            used: None,
            prev: NONE,
            next: if index + 1 < capacity { index as u32 + 1 } else { NONE },
        };
        Self {
            slots: (0..capacity).map(slot).collect(),
            chains: vec![NONE; capacity.next_power_of_two()].into_boxed_slice(),
            free_first: 0,
            free_last: capacity as u32 - 1,
            in_use: 0,
        }
    }

    /// Allocates the slot that has been free longest and returns its new handle.
    pub(super) fn take(
        &mut self,
        qp: QpNum,
        name: impl FnOnce(u32, Handle) -> Handle,
        held: Held,
    ) -> Option<Handle> {
        let index = self.free_first;
        let chain = self.chain(qp);
        let first = self.chains[chain];
        let slot = self.slots.get_mut(index as usize)?;
        let handle = name(index, slot.handle);
        self.free_first = std::mem::replace(&mut slot.next, first);
        (slot.handle, slot.used, slot.prev) = (handle, Some((qp, held)), NONE);
        if let Some(second) = self.slots.get_mut(first as usize) {
            second.prev = index;
        }
        self.chains[chain] = index;
        self.in_use += 1;
        Some(handle)
    }

    /// Returns the queue pair and the memory of a slot, mutably, if it is in use under exactly this
    /// handle.
    pub(super) fn get_mut(&mut self, slot: usize, handle: Handle) -> Option<(QpNum, &mut Held)> {
        let slot = self.slots.get_mut(slot).filter(|slot| slot.handle == handle)?;
        slot.used.as_mut().map(|(qp, held)| (*qp, held))
    }

    /// Returns the queue pair and the memory of a slot, if it is in use under exactly this handle.
    pub(super) fn get(&self, slot: usize, handle: Handle) -> Option<(QpNum, &Held)> {
        let slot = self.slots.get(slot).filter(|slot| slot.handle == handle)?;
        slot.used.as_ref().map(|(qp, held)| (*qp, held))
    }

    /// Frees a used slot and returns its memory.
    #[allow(clippy::cast_possible_truncation, reason = "the handles' layout bounds the capacity")]
    pub(super) fn free(&mut self, index: usize) -> Held {
        let slot = &mut self.slots[index];
        let (qp, held) = slot.used.take().expect("the caller saw it in use");
        let (prev, next) = (slot.prev, std::mem::replace(&mut slot.next, NONE));
        match self.slots.get_mut(prev as usize) {
            Some(before) => before.next = next,
            None => self.chains[self.chain(qp)] = next,
        }
        if let Some(after) = self.slots.get_mut(next as usize) {
            after.prev = prev;
        }
        match self.slots.get_mut(self.free_last as usize).filter(|_| self.free_first != NONE) {
            Some(last) => last.next = index as u32,
            None => self.free_first = index as u32,
        }
        self.free_last = index as u32;
        self.in_use -= 1;
        held
    }

    /// Frees every slot of a queue pair and returns their number.
    pub(super) fn free_all(&mut self, qp: QpNum) -> usize {
        let before = self.in_use;
        let mut index = self.chains[self.chain(qp)];
        while let Some(slot) = self.slots.get(index as usize) {
            let next = slot.next;
            if slot.used.as_ref().is_some_and(|(owner, _)| *owner == qp) {
                self.free(index as usize);
            }
            index = next;
        }
        before - self.in_use
    }

    /// Returns the number of used slots.
    pub(super) const fn in_use(&self) -> usize {
        self.in_use
    }

    fn chain(&self, qp: QpNum) -> usize {
        qp.slot() & (self.chains.len() - 1)
    }
}

const NONE: u32 = u32::MAX;
