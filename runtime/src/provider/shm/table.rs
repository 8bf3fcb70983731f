//! The registrations of one connection: our records of them, and the table that the peer sees.
//!
//! ```text
//!   0  key     u64  access << 32 | handle; 0 is no registration      written by the owner
//!   8  base    u64  the peer's offset of the first octet             by the owner
//!  16  start   u64  where it is in the owner's region                by the owner
//!  24  length  u64  octets                                           by the owner
//!  32  in use  u32  1 while the peer copies                          by the peer
//! ```
//!
//! # Memory ownership
//!
//! A peer that copies sets `in use` and then reads the key; an owner that retires a registration clears the key and
//! then reads `in use`, both in one total order. So either the copy is refused, or the owner sees it and waits. The
//! owner keeps the view of the memory until then. `tests/models/src/provider/registrations.rs` shows this in all orders
//! of the accesses with at most three preemptions.

use std::sync::atomic::Ordering;

use haulage_mr_pool::{Handles, Sink, Source};
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::{Access, ClaimedSegment, Exposure, Handle};

use super::segment::Segment;

/// The registrations of one end on one connection.
#[derive(Debug, Default)]
pub(super) struct Registrations {
    slots: Vec<RegistrationSlot>,
    /// Free slots, last used first: their lines are likely to be in the cache.
    free: Vec<u16>,
}

#[derive(Debug)]
struct RegistrationSlot {
    /// The handle in use, or the last one.
    handle: Handle,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Nothing,
    Reserved,
    /// The peer may access the memory, or is doing so although the key is gone.
    Exposed {
        _view: Exposure<Source, Sink>,
    },
}

/// The place of a registration, and the meaning of its offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// The offset that the peer uses for the first octet.
    pub(super) base: u64,
    /// The offset of the first octet in our region.
    pub(super) start: u64,
    /// The length in octets.
    pub(super) length: u64,
}

/// The outcome of an attempt to retire a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retired {
    /// The view was dropped.
    Now,
    /// The peer is copying: try again.
    NotYet,
    /// There is no such registration.
    Unknown,
}

impl Registrations {
    /// Reserves a handle for a registration; `None` if `entries` are in use.
    pub(super) fn reserve(&mut self, handles: &mut Handles, entries: u32) -> Option<Handle> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < entries as usize => {
                let index = u16::try_from(self.slots.len()).ok()?;
                self.slots.push(RegistrationSlot { handle: Handle(0), held: Held::Nothing });
                index
            }
            None => return None,
        };
        let slot = self.slots.get_mut(usize::from(index))?;
        slot.handle = handles.fresh(u32::from(index), slot.handle);
        slot.held = Held::Reserved;
        Some(slot.handle)
    }

    /// Opens memory under a reserved handle; false if the handle is not reserved.
    pub(super) fn expose(
        &mut self,
        segment: &Segment,
        index: usize,
        handle: Handle,
        extent: Extent,
        memory: Exposure<Source, Sink>,
    ) -> bool {
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.handle == handle) else {
            return false;
        };
        let (Held::Reserved, Some(entry)) = (&slot.held, segment.entry(index)) else {
            return false;
        };
        let words = segment.memory();
        let key = key(handle, memory.access());
        slot.held = Held::Exposed { _view: memory };
        words.u64_at(entry + BASE).store(extent.base, Ordering::Relaxed);
        words.u64_at(entry + START).store(extent.start, Ordering::Relaxed);
        words.u64_at(entry + LENGTH).store(extent.length, Ordering::Relaxed);
        words.u64_at(entry + KEY).store(key, Ordering::Release);
        true
    }

    /// Ends a registration and drops its view, unless the peer is copying.
    pub(super) fn retire(&mut self, segment: &Segment, index: usize, handle: Handle) -> Retired {
        let Some(slot) = self.slots.get_mut(index).filter(|slot| slot.handle == handle) else {
            return Retired::Unknown;
        };
        if matches!(slot.held, Held::Nothing | Held::Reserved) {
            return Retired::Unknown;
        }
        if close(segment, index) {
            return Retired::NotYet;
        }
        slot.held = Held::Nothing;
        self.free.extend(u16::try_from(index).ok());
        Retired::Now
    }

    /// Ends all registrations and drops their views, except those that the peer is copying from or to. Returns the
    /// number of slots freed, and whether those were all.
    pub(super) fn retire_all(&mut self, segment: &Segment) -> (usize, bool) {
        let (mut freed, mut all) = (0, true);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let copying = match slot.held {
                Held::Nothing => continue,
                Held::Reserved => false,
                Held::Exposed { .. } => close(segment, index),
            };
            if copying {
                all = false;
            } else {
                slot.held = Held::Nothing;
                self.free.extend(u16::try_from(index).ok());
                freed += 1;
            }
        }
        (freed, all)
    }

    /// Drops every view: the peer is gone. Returns the number of slots freed.
    pub(super) fn abandon(&mut self) -> usize {
        let freed = self.slots.len() - self.free.len();
        (self.slots, self.free) = (Vec::new(), Vec::new());
        freed
    }

    /// Keeps the remaining views for ever: the peer may be copying, and there will be no later check.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.slots));
    }
}

/// Clears the key of a slot, which the peer then cannot use; returns whether the peer is copying.
fn close(segment: &Segment, index: usize) -> bool {
    let Some(entry) = segment.entry(index) else { return false };
    // [V2-11.1-1] from here on the peer's RNIC refuses the handle.
    segment.memory().u64_at(entry + KEY).swap(0, Ordering::SeqCst);
    segment.memory().u32_at(entry + IN_USE).load(Ordering::SeqCst) != 0
}

/// A registration of the peer that we may copy from or to; the peer waits for us.
#[derive(Debug)]
pub(super) struct CopyGrant<'a> {
    segment: &'a Segment,
    entry: usize,
    extent: Extent,
}

impl<'a> CopyGrant<'a> {
    /// Enters the peer's registration `handle`, which `slot` names.
    pub(super) fn enter(
        segment: &'a Segment,
        slot: usize,
        handle: Handle,
        access: Access,
    ) -> Result<Self, Fault> {
        let entry = segment.entry(slot).ok_or_else(|| unknown(access))?;
        let words = segment.memory();
        words.u32_at(entry + IN_USE).swap(1, Ordering::SeqCst);
        let found = words.u64_at(entry + KEY).load(Ordering::SeqCst);
        // From here on these are values: changes that the peer makes to its table have no effect.
        let extent = Extent {
            base: words.u64_at(entry + BASE).load(Ordering::Relaxed),
            start: words.u64_at(entry + START).load(Ordering::Relaxed),
            length: words.u64_at(entry + LENGTH).load(Ordering::Relaxed),
        };
        let grant = Self { segment, entry, extent };
        // [V2-11.1-2] the whole handle, and the access it was made for.
        if found == key(handle, access) {
            Ok(grant)
        } else if found == key(handle, other(access)) {
            Err(match access {
                Access::RemoteRead => Fault::ReadAccess,
                Access::RemoteWrite => Fault::WriteAccess,
            })
        } else {
            Err(unknown(access))
        }
    }

    /// Returns the offset in the peer's region of the range that `claim` names, if the registration holds all of it.
    pub(super) fn locate(&self, claim: &ClaimedSegment, access: Access) -> Result<u64, Fault> {
        let Extent { base, start, length } = self.extent;
        let within = || {
            let skip = claim.offset().checked_sub(base)?;
            let end = skip.checked_add(u64::from(claim.length()))?;
            //~ V2-11.1-1: `end <=` -> `skip <=`
            (end <= length).then_some(())?;
            start.checked_add(skip)
        };
        within().ok_or(match access {
            Access::RemoteRead => Fault::ReadBounds,
            Access::RemoteWrite => Fault::TaggedBounds,
        })
    }
}

impl Drop for CopyGrant<'_> {
    fn drop(&mut self) {
        self.segment.memory().u32_at(self.entry + IN_USE).store(0, Ordering::Release);
    }
}

const fn unknown(access: Access) -> Fault {
    match access {
        Access::RemoteRead => Fault::ReadStag,
        Access::RemoteWrite => Fault::TaggedStag,
    }
}

const fn other(access: Access) -> Access {
    match access {
        Access::RemoteRead => Access::RemoteWrite,
        Access::RemoteWrite => Access::RemoteRead,
    }
}

fn key(handle: Handle, access: Access) -> u64 {
    let access = match access {
        Access::RemoteRead => 1,
        Access::RemoteWrite => 2,
    };
    access << 32 | u64::from(handle.0)
}

const KEY: usize = 0;
const BASE: usize = 8;
const START: usize = 16;
const LENGTH: usize = 24;
const IN_USE: usize = 32;

#[cfg(test)]
mod tests;
