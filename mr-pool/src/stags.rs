//! The registrations of an RNIC that is our own software.
//!
//! The iWARP, shared memory and simulated providers ask here whether a peer may touch what it names.
//! A peer's every number is checked before any octet moves: the whole handle, the queue pair it was
//! made for, the access it grants, and the bounds.
//!
//! # Normal operation
//!
//! `reserve` names a registration to come, so the handle can be told to the peer in the Send posted
//! behind the FastReg; `register` gives it memory; `invalidate` takes the memory back. A slot is used
//! again only after all other free ones, so a late message of a peer meets nothing for a while.
//!
//! # Limits
//!
//! The capacity is fixed; nothing is allocated after [`Stags::new`]. Every operation takes bounded
//! time, but [`Stags::destroy`], which takes time in proportion to what the queue pair had.

use haulage_proto::verbs::{Exposure, Handle, QpNum};

pub use self::fault::StagFault;
use self::slots::{Held, Slots};
use crate::handles::{Handles, NoEntropy};
use crate::view::{Sink, Source};

mod fault;
mod slots;
#[cfg(test)]
mod tests;

/// The registration table of one software RNIC.
#[derive(Debug)]
pub struct Stags {
    slots: Slots,
    handles: Handles,
}

impl Stags {
    /// Starts empty with room for `capacity` registrations.
    ///
    /// # Errors
    ///
    /// If the system has no randomness to give.
    ///
    /// # Panics
    ///
    /// If `capacity` is not 1 to 65536.
    pub fn new(capacity: usize) -> Result<Self, NoEntropy> {
        Ok(Self { handles: Handles::new(capacity)?, slots: Slots::new(capacity) })
    }

    /// Starts empty with handles that follow from a seed: for simulations, which must repeat.
    ///
    /// # Panics
    ///
    /// If `capacity` is not 1 to 65536.
    pub fn seeded(capacity: usize, seed: u64) -> Self {
        Self { handles: Handles::seeded(capacity, seed), slots: Slots::new(capacity) }
    }

    /// Reserves a handle for a registration of `qp`, or returns `None` if the table is full.
    pub fn reserve(&mut self, qp: QpNum) -> Option<Handle> {
        let handles = &mut self.handles;
        self.slots.take(qp, |slot, last| handles.fresh(slot, last), Held::Nothing)
    }

    /// Gives back a handle that was reserved and never registered.
    ///
    /// # Errors
    ///
    /// If it is not reserved, by this queue pair.
    pub fn release(&mut self, handle: Handle, qp: QpNum) -> Result<(), StagFault> {
        match self.held(handle, qp)? {
            Held::Nothing => self.free(handle),
            _ => return Err(StagFault::AccessViolation),
        }
        Ok(())
    }

    /// Registers memory under a reserved handle; its first octet is `offset` to the peer.
    ///
    /// # Errors
    ///
    /// If the handle is not reserved, by this queue pair, or already in use, or if the offset of the
    /// memory's end exceeds 2^64. The view is dropped then.
    pub fn register(
        &mut self,
        handle: Handle,
        qp: QpNum,
        offset: u64,
        memory: Exposure<Source, Sink>,
    ) -> Result<(), StagFault> {
        let held = self.held(handle, qp)?;
        let (length, memory) = match memory {
            Exposure::RemoteRead(source) => (source.len(), Held::Source { offset, source }),
            Exposure::RemoteWrite(sink) => (sink.len(), Held::Sink { offset, sink }),
        };
        offset.checked_add(length as u64).ok_or(StagFault::OffsetWraps)?;
        match held {
            Held::Nothing => *held = memory,
            _ => return Err(StagFault::AccessViolation),
        }
        Ok(())
    }

    /// Registers the sink of one RDMA Read of ours, at a random offset: only its response fills it.
    ///
    /// Returns `None` if the table is full; the view is dropped then.
    pub fn read_sink(&mut self, qp: QpNum, sink: Sink) -> Option<(Handle, u64)> {
        let handles = &mut self.handles;
        let offset = handles.offset();
        let fresh = |slot, last| handles.fresh(slot, last);
        let handle = self.slots.take(qp, fresh, Held::ReadSink { offset, sink })?;
        Some((handle, offset))
    }

    /// Takes back the sink of an RDMA Read that ended.
    pub fn take_read_sink(&mut self, handle: Handle) -> Option<Sink> {
        let slot = self.handles.slot(handle);
        match self.slots.get(slot, handle)?.1 {
            Held::ReadSink { .. } => match self.slots.free(slot) {
                Held::ReadSink { sink, .. } => Some(sink),
                _ => None,
            },
            _ => None,
        }
    }

    /// Puts the octets of a peer's RDMA Write where they belong.
    ///
    /// # Errors
    ///
    /// If the peer may not write them there; nothing is written then.
    pub fn place(
        &mut self,
        handle: Handle,
        qp: QpNum,
        to: u64,
        bytes: &[u8],
    ) -> Result<(), StagFault> {
        // [V2-11.1-1] [R5666-11-3] nothing but what was exposed for writing, for as long as it is.
        let (sink, at) = self.sink(handle, qp, to, bytes.len())?;
        sink.place(at, bytes).map_err(|_| StagFault::BaseOrBounds)?;
        sink.count_placed(bytes.len());
        Ok(())
    }

    /// Puts the octets of a peer's RDMA Read Response where they belong.
    ///
    /// # Errors
    ///
    /// If the handle is not that of a Read of ours, or the octets go beyond its sink; nothing is
    /// written then.
    pub fn place_response(
        &mut self,
        handle: Handle,
        qp: QpNum,
        to: u64,
        bytes: &[u8],
    ) -> Result<(), StagFault> {
        let (sink, at) = self.response_sink(handle, qp, to, bytes.len())?;
        sink.place(at, bytes).map_err(|_| StagFault::BaseOrBounds)
    }

    /// Finds where `length` octets of a peer's RDMA Write go: a sink, and the offset in it. Whoever has them
    /// written there counts them ([`Sink::count_placed`]).
    ///
    /// # Errors
    ///
    /// If the peer may not write them there.
    pub fn sink(
        &mut self,
        handle: Handle,
        qp: QpNum,
        to: u64,
        length: usize,
    ) -> Result<(&mut Sink, usize), StagFault> {
        match self.held(handle, qp)? {
            Held::Sink { offset, sink } => {
                bounded(*offset, sink.len(), to, length).map(|at| (sink, at))
            }
            other => Err(other.not_this()),
        }
    }

    /// Finds where `length` octets of a peer's RDMA Read Response go: a sink, and the offset in it.
    ///
    /// # Errors
    ///
    /// If the handle is not that of a Read of ours, or the octets go beyond its sink.
    pub fn response_sink(
        &mut self,
        handle: Handle,
        qp: QpNum,
        to: u64,
        length: usize,
    ) -> Result<(&mut Sink, usize), StagFault> {
        match self.held(handle, qp)? {
            Held::ReadSink { offset, sink } => {
                bounded(*offset, sink.len(), to, length).map(|at| (sink, at))
            }
            other => Err(other.not_this()),
        }
    }

    /// Returns the octets a peer's RDMA Read asks for.
    ///
    /// # Errors
    ///
    /// If the peer may not read them.
    pub fn source(
        &self,
        handle: Handle,
        qp: QpNum,
        to: u64,
        length: usize,
    ) -> Result<&[u8], StagFault> {
        // [V2-11.1-2] [R5666-11-4] RFC 5042: a handle is compared whole and is one queue pair's.
        let (owner, held) =
            self.slots.get(self.handles.slot(handle), handle).ok_or(StagFault::InvalidStag)?;
        if owner != qp {
            return Err(StagFault::NotYours);
        }
        match held {
            Held::Source { offset, source } => {
                let at = bounded(*offset, source.len(), to, length)?;
                source.bytes().get(at..at + length).ok_or(StagFault::BaseOrBounds)
            }
            other => Err(other.not_this()),
        }
    }

    /// Ends a registration: for LocalInv, and for a peer's Send with Invalidate. Drops the view.
    ///
    /// # Errors
    ///
    /// If there is no such registration of this queue pair. The sink of an RDMA Read is not one a peer
    /// can invalidate.
    pub fn invalidate(&mut self, handle: Handle, qp: QpNum) -> Result<(), StagFault> {
        match self.held(handle, qp)? {
            Held::Source { .. } | Held::Sink { .. } => self.free(handle),
            other => return Err(other.not_this()),
        }
        Ok(())
    }

    /// Ends everything a queue pair has: registrations, reservations and sinks of Reads. Drops the
    /// views and returns how many there were.
    pub fn destroy(&mut self, qp: QpNum) -> usize {
        self.slots.free_all(qp)
    }

    /// Returns a random offset below 2^47, a multiple of 4096, to register memory at.
    pub fn random_offset(&mut self) -> u64 {
        self.handles.offset()
    }

    /// Returns how many handles are reserved, registered or in use by Reads.
    pub const fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// Finds what a handle stands for, of one queue pair. A handle that is only reserved counts.
    fn held(&mut self, handle: Handle, qp: QpNum) -> Result<&mut Held, StagFault> {
        let slot = self.handles.slot(handle);
        let (owner, held) = self.slots.get_mut(slot, handle).ok_or(StagFault::InvalidStag)?;
        if owner == qp { Ok(held) } else { Err(StagFault::NotYours) }
    }

    fn free(&mut self, handle: Handle) {
        self.slots.free(self.handles.slot(handle));
    }
}

/// Returns where `to` is in memory of `size` octets that begins at `base`, if `length` octets from
/// there are all in it.
fn bounded(base: u64, size: usize, to: u64, length: usize) -> Result<usize, StagFault> {
    to.checked_add(length as u64).ok_or(StagFault::OffsetWraps)?;
    let at = to.checked_sub(base).and_then(|at| usize::try_from(at).ok());
    let at = at.ok_or(StagFault::BaseOrBounds)?;
    let end = at.checked_add(length).ok_or(StagFault::BaseOrBounds)?;
    if end <= size { Ok(at) } else { Err(StagFault::BaseOrBounds) }
}
