//! The Requester's XIDs, which are indices of a slot table.
//!
//! An XID is `generation << SLOT_BITS | slot`, so that a Reply finds its Call by index. The table belongs to the
//! client, not to a connection: a retransmitted Call keeps its XID. The first generation of each slot is random, so
//! that a server's duplicate request cache can tell two runs of one client apart.

use alloc::boxed::Box;

/// The number of bits of an XID that hold the slot.
const SLOT_BITS: u32 = 12;

/// The most slots of one table.
pub const SLOTS_MAX: usize = 1 << SLOT_BITS;

/// The XIDs of one client's Calls.
#[derive(Debug)]
pub struct Xids {
    slots: Box<[XidSlot]>,
    /// The first free slot, or the table's length.
    free: u32,
    in_use: u32,
}

#[derive(Clone, Copy, Debug)]
struct XidSlot {
    generation: u32,
    /// The next free slot while this one is free, else [`IN_USE`].
    next: u32,
}

/// Marks a slot whose Call has not ended.
const IN_USE: u32 = u32::MAX;

impl Xids {
    /// Makes a table of `slots` slots, at most [`SLOTS_MAX`]; `seed` starts the generations.
    pub fn new(slots: usize, seed: u64) -> Self {
        let count = slots.min(SLOTS_MAX);
        let slots = (1_u32..)
            .take(count)
            .scan(seed, |state, next| {
                // splitmix64: spreads the seed, no secrecy intended.
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                let generation = (mixed >> 44) as u32;
                Some(XidSlot { generation, next })
            })
            .collect();
        Self { slots, free: 0, in_use: 0 }
    }

    /// Takes a free slot and returns it with its XID, or `None` when every slot is in use.
    #[inline]
    pub fn open(&mut self) -> Option<(usize, u32)> {
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        self.free = core::mem::replace(&mut slot.next, IN_USE);
        self.in_use = self.in_use.saturating_add(1);
        Some((index as usize, slot.generation << SLOT_BITS | index))
    }

    /// Returns the slot of a Call that has not ended.
    #[inline]
    pub fn find(&self, xid: u32) -> Option<usize> {
        let index = xid & SLOT_MASK;
        let slot = self.slots.get(index as usize)?;
        let same = slot.generation << SLOT_BITS == xid & !SLOT_MASK;
        (slot.next == IN_USE && same).then_some(index as usize)
    }

    /// Ends a Call; its XID is not used again for a whole round of generations.
    #[inline]
    pub fn close(&mut self, index: usize) {
        let Some(slot) = self.slots.get_mut(index) else { return };
        debug_assert!(slot.next == IN_USE, "only a Call that was opened can end");
        slot.generation = slot.generation.wrapping_add(1);
        slot.next = self.free;
        self.free = u32::try_from(index).unwrap_or(IN_USE);
        self.in_use = self.in_use.saturating_sub(1);
    }

    /// Gives a Call that has not ended another XID, and returns it. Nothing is found by the one before.
    pub fn renew(&mut self, index: usize) -> u32 {
        let Some(slot) = self.slots.get_mut(index) else { return 0 };
        debug_assert!(slot.next == IN_USE, "only a Call that was opened goes again");
        slot.generation = slot.generation.wrapping_add(1);
        slot.generation << SLOT_BITS | u32::try_from(index).unwrap_or(0)
    }

    /// Returns the number of Calls that have not ended.
    pub const fn in_use(&self) -> u32 {
        self.in_use
    }
}

/// The mask of the bits of an XID that hold the slot.
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_xid_finds_its_slot_until_the_call_ends() {
        let mut xids = Xids::new(2, 7);
        let (slot, xid) = xids.open().unwrap();
        assert_eq!(xids.find(xid), Some(slot));
        assert_eq!(xids.find(xid ^ (1 << SLOT_BITS)), None);
        xids.close(slot);
        assert_eq!(xids.find(xid), None);
        let (again, other) = xids.open().unwrap();
        assert_eq!((again, other == xid), (slot, false));
        let renewed = xids.renew(again);
        assert_eq!((xids.find(other), xids.find(renewed)), (None, Some(slot)));
    }

    #[test]
    fn a_full_table_refuses_and_recovers() {
        let mut xids = Xids::new(3, 1);
        let opened: [_; 3] = core::array::from_fn(|_| xids.open().unwrap());
        assert!(xids.open().is_none());
        xids.close(opened[1].0);
        assert_eq!(xids.open().unwrap().0, opened[1].0);
        assert_eq!(xids.in_use(), 3);
    }

    #[test]
    fn generations_start_apart_for_other_seeds() {
        let first = |seed| Xids::new(1, seed).open().unwrap().1;
        assert_ne!(first(1), first(2));
    }
}
