//! The registrations of a software RNIC.
//!
//! The iWARP, shared memory and simulated providers use this table to check that a peer may access the memory it names.
//! Every number of the peer is checked before any octet is moved: the whole handle, the queue pair of the registration,
//! the access it grants, and the bounds.
//!
//! # Normal operation
//!
//! `reserve` allocates the handle of a later registration, so that the Send posted after the FastReg can announce it to
//! the peer; `register` sets the memory; `invalidate` removes it. A slot is reused only after all other free ones, so
//! that a late message of a peer finds no registration for some time.
//!
//! # Limits
//!
//! The capacity is fixed; nothing is allocated after [`Stags::new`]. Every operation takes bounded
//! time, except [`Stags::destroy`], whose time is proportional to the registrations of the queue
//! pair.

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
    /// Creates an empty table with room for `capacity` registrations.
    ///
    /// # Errors
    ///
    /// [`NoEntropy`] if the system provides no randomness.
    ///
    /// # Panics
    ///
    /// If `capacity` is not 1 to 65536.
    pub fn new(capacity: usize) -> Result<Self, NoEntropy> {
        Ok(Self { handles: Handles::new(capacity)?, slots: Slots::new(capacity) })
    }

    /// Creates an empty table whose handles follow from a seed, for simulations, which must be
    /// repeatable.
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

    /// Releases a handle that was reserved and never registered.
    ///
    /// # Errors
    ///
    /// If the handle is not reserved by this queue pair.
    pub fn release(&mut self, handle: Handle, qp: QpNum) -> Result<(), StagFault> {
        match self.held(handle, qp)? {
            Held::Nothing => self.free(handle),
            _ => return Err(StagFault::AccessViolation),
        }
        Ok(())
    }

    /// Registers memory under a reserved handle; the peer addresses its first octet by `offset`.
    ///
    /// # Errors
    ///
    /// If the handle is not reserved by this queue pair, if it is already in use, or if the offset of the memory's end
    /// exceeds 2^64. The view is dropped then.
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

    /// Registers the sink of one local RDMA Read, at a random offset. Only the response to that
    /// Read fills it.
    ///
    /// Returns `None` if the table is full; the view is dropped then.
    pub fn read_sink(&mut self, qp: QpNum, sink: Sink) -> Option<(Handle, u64)> {
        let handles = &mut self.handles;
        let offset = handles.offset();
        let fresh = |slot, last| handles.fresh(slot, last);
        let handle = self.slots.take(qp, fresh, Held::ReadSink { offset, sink })?;
        Some((handle, offset))
    }

    /// Removes the sink of an RDMA Read that ended, and returns it.
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

    /// Writes the octets of a peer's RDMA Write to the memory they address.
    ///
    /// # Errors
    ///
    /// If the peer may not write to that memory; nothing is written then.
    pub fn place(
        &mut self,
        handle: Handle,
        qp: QpNum,
        to: u64,
        bytes: &[u8],
    ) -> Result<(), StagFault> {
        // [V2-11.1-1] [R5666-11-3] a Write reaches only a lease exposed for writing, and only while it is exposed.
        let (sink, at) = self.sink(handle, qp, to, bytes.len())?;
        sink.place(at, bytes).map_err(|_| StagFault::BaseOrBounds)?;
        sink.count_placed(bytes.len());
        Ok(())
    }

    /// Writes the octets of a peer's RDMA Read Response to the sink they address.
    ///
    /// # Errors
    ///
    /// If the handle is not that of a local Read, or the octets extend beyond its sink; nothing is
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

    /// Returns the sink, and the offset in it, for `length` octets of a peer's RDMA Write. The caller counts the octets
    /// it places there ([`Sink::count_placed`]).
    ///
    /// # Errors
    ///
    /// If the peer may not write to that memory.
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

    /// Returns the sink, and the offset in it, for `length` octets of a peer's RDMA Read Response.
    ///
    /// # Errors
    ///
    /// If the handle is not that of a local Read, or the octets extend beyond its sink.
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

    /// Returns the octets that a peer's RDMA Read requests.
    ///
    /// # Errors
    ///
    /// If the peer may not read that memory.
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

    /// Invalidates a registration, for a LocalInv or for a peer's Send with Invalidate, and drops
    /// the view.
    ///
    /// # Errors
    ///
    /// If this queue pair has no such registration. A peer cannot invalidate the sink of an RDMA Read.
    pub fn invalidate(&mut self, handle: Handle, qp: QpNum) -> Result<(), StagFault> {
        match self.held(handle, qp)? {
            //~ R5666-11-3: `` -> `Held::Sink { .. } => {}`
            Held::Source { .. } | Held::Sink { .. } => self.free(handle),
            other => return Err(other.not_this()),
        }
        Ok(())
    }

    /// Ends all registrations, reservations and sinks of Reads of a queue pair. Drops the views and
    /// returns the number of entries ended.
    pub fn destroy(&mut self, qp: QpNum) -> usize {
        self.slots.free_all(qp)
    }

    /// Returns a random offset below 2^47, a multiple of 4096, for a registration.
    pub fn random_offset(&mut self) -> u64 {
        self.handles.offset()
    }

    /// Returns the number of handles that are reserved, registered or in use by Reads.
    pub const fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// Returns the entry of a handle of one queue pair, also if the handle is only reserved.
    fn held(&mut self, handle: Handle, qp: QpNum) -> Result<&mut Held, StagFault> {
        let slot = self.handles.slot(handle);
        let (owner, held) = self.slots.get_mut(slot, handle).ok_or(StagFault::InvalidStag)?;
        if owner == qp { Ok(held) } else { Err(StagFault::NotYours) }
    }

    fn free(&mut self, handle: Handle) {
        self.slots.free(self.handles.slot(handle));
    }
}

/// Returns the index of offset `to` in memory of `size` octets that begins at offset `base`, if the
/// memory contains `length` octets from there.
fn bounded(base: u64, size: usize, to: u64, length: usize) -> Result<usize, StagFault> {
    to.checked_add(length as u64).ok_or(StagFault::OffsetWraps)?;
    let at = to.checked_sub(base).and_then(|at| usize::try_from(at).ok());
    let at = at.ok_or(StagFault::BaseOrBounds)?;
    let end = at.checked_add(length).ok_or(StagFault::BaseOrBounds)?;
    if end <= size { Ok(at) } else { Err(StagFault::BaseOrBounds) }
}
