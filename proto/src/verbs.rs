//! RDMA verbs: the work requests that a protocol posts to an RNIC, and their completions.
//!
//! Work requests are generic over the memory they name: `S` is memory that the RNIC may read (the
//! source of a Send or a Write), `D` is memory that it may fill (the sink of a Receive or a Read).
//! This crate owns no memory; its caller supplies both types.

mod template;

use alloc::boxed::Box;
use core::fmt;

pub use template::{HeaderPatch, HeaderTemplate, NamedTemplate, PatchOffsets, TemplateId};

use crate::xdr::{Reader, Truncated, Writer};

/// The handle of one registration: an STag on iWARP, an R_key on InfiniBand.
///
/// Handles are secret (RFC 5042): a peer that knows one can use it, so that `Debug` hides it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(..)")
    }
}

/// A segment: one contiguous range of registered memory, as it is sent (HLOO).
///
/// Wire: handle u32, length u32, offset u64; all big-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The handle of the registration.
    pub handle: Handle,
    /// The length in octets; zero is a legal "empty segment".
    pub length: u32,
    /// The offset of the first octet, which only the end that registered the memory can interpret.
    pub offset: u64,
}

impl Segment {
    /// The encoded length in octets.
    pub const WIRE_LEN: usize = 16;

    /// Parses one segment and advances `r`.
    #[inline]
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self { handle: Handle(r.u32()?), length: r.u32()?, offset: r.u64()? })
    }

    /// Appends the segment to `w`.
    #[inline]
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let (handle, length) = (self.handle.0.to_be_bytes(), self.length.to_be_bytes());
        let [a, b, c, d, e, f, g, h] = self.offset.to_be_bytes();
        w.put([handle, length, [a, b, c, d], [e, f, g, h]].as_flattened())
    }
}

/// A segment that the peer *claims* we may access.
///
/// Holding one proves only that `offset + length` does not wrap. It does not prove that the handle
/// is valid or that the region is that long; only the peer's RNIC can say so, and it says so by
/// failing the work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimedSegment {
    handle: Handle,
    start: u64,
    end: u64,
}

/// Why a claimed segment, or a part of one, was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// `offset + length` exceeds 2^64.
    OffsetWraps,
    /// The requested part does not lie within the claim.
    OutOfBounds,
}

impl TryFrom<Segment> for ClaimedSegment {
    type Error = Fault;

    #[inline]
    fn try_from(s: Segment) -> Result<Self, Fault> {
        let end = s.offset.checked_add(u64::from(s.length)).ok_or(Fault::OffsetWraps)?;
        Ok(Self { handle: s.handle, start: s.offset, end })
    }
}

impl ClaimedSegment {
    /// Narrows the claim to `length` octets starting `skip` octets in.
    pub fn window(&self, skip: u64, length: u32) -> Result<Self, Fault> {
        let start = self.start.checked_add(skip).ok_or(Fault::OffsetWraps)?;
        let end = start.checked_add(u64::from(length)).ok_or(Fault::OffsetWraps)?;
        if end <= self.end {
            Ok(Self { handle: self.handle, start, end })
        } else {
            Err(Fault::OutOfBounds)
        }
    }

    /// Returns the registration the peer named.
    pub const fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the offset of the first octet, as the peer counts it.
    pub const fn offset(&self) -> u64 {
        self.start
    }

    /// Returns the length in octets, at most 2^32 - 1.
    pub fn length(&self) -> u32 {
        u32::try_from(self.end.saturating_sub(self.start)).unwrap_or(u32::MAX)
    }
}

/// The access of a peer to an exposed range: reading or writing, never both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The peer may RDMA Read the range.
    RemoteRead,
    /// The peer may RDMA Write the range.
    RemoteWrite,
}

/// Memory that the RNIC opens to a peer, and the access it grants.
#[derive(Debug)]
pub enum Exposure<S, D> {
    /// The peer may RDMA Read this memory.
    RemoteRead(S),
    /// The peer may RDMA Write this memory.
    RemoteWrite(D),
}

impl<S, D> Exposure<S, D> {
    /// Returns the access this exposure grants.
    pub const fn access(&self) -> Access {
        match self {
            Self::RemoteRead(_) => Access::RemoteRead,
            Self::RemoteWrite(_) => Access::RemoteWrite,
        }
    }
}

/// The number of a queue pair of one provider: a dense slot and a generation.
///
/// A provider reuses a slot, with another generation, only once nothing of the old queue pair is
/// left. The last events of the old one may not have been read then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNum(u32);

impl QpNum {
    /// Makes the number of the `generation`-th use of `slot`.
    pub const fn new(slot: u16, generation: u16) -> Self {
        Self((generation as u32) << 16 | slot as u32)
    }

    /// Returns the slot, which indexes the tables of the provider and its user.
    pub const fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// Returns the generation, which tells the uses of one slot apart.
    pub const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// The identifier that the consumer gives a work request; its completion returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

/// Flags of a work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Report success with a completion. Failure is always reported.
    pub signaled: bool,
    /// Start only after every earlier RDMA Read of this queue pair has completed.
    pub fence: bool,
    /// Copy the source when the request is posted, so that it may be reused at once.
    pub copied: bool,
}

/// One entry of a send queue.
#[derive(Debug)]
pub struct WorkRequest<S, D> {
    /// The consumer's identifier of the request.
    pub id: WrId,
    /// The flags of the request.
    pub flags: Flags,
    /// The operation to perform.
    pub operation: Operation<S, D>,
}

/// The operation of a send queue entry.
#[derive(Debug)]
pub enum Operation<S, D> {
    /// Fills the peer's next Receive and, if `invalidate` is set, invalidates one of the peer's
    /// handles.
    Send {
        /// The whole message.
        source: S,
        /// The peer's handle to invalidate by Send with Invalidate.
        invalidate: Option<Handle>,
    },
    /// Writes to the peer's memory, without a completion at the peer.
    Write {
        /// The octets to write, exactly as many as `target` has.
        source: S,
        /// The peer's memory to write to.
        target: ClaimedSegment,
    },
    /// Reads from the peer's memory.
    Read {
        /// The memory to fill, exactly as long as `source`.
        sink: D,
        /// The peer's memory to read.
        source: ClaimedSegment,
    },
    /// Invalidates a handle under which memory is exposed to the peer of this queue pair.
    LocalInv {
        /// The handle to invalidate.
        handle: Handle,
    },
}

impl<S, D> Operation<S, D> {
    /// Returns the opcode that the completion of the operation has.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Send { .. } => Opcode::Send,
            Self::Write { .. } => Opcode::Write,
            Self::Read { .. } => Opcode::Read,
            Self::LocalInv { .. } => Opcode::LocalInv,
        }
    }
}

/// The most buffers in the scatter list of one Receive.
pub const SCATTER_MAX: usize = 4;

/// One entry of a (shared) receive queue.
#[derive(Debug)]
pub struct Receive<D> {
    /// The consumer's identifier of the request.
    pub id: WrId,
    /// The buffer that is filled first; most Receives have no other.
    pub first: D,
    /// The buffers that are filled after it, in order: fewer than [`SCATTER_MAX`].
    pub rest: Box<[D]>,
}

impl<D> Receive<D> {
    /// Makes a Receive into one contiguous buffer.
    #[inline]
    pub fn single(id: WrId, sink: D) -> Self {
        Self { id, first: sink, rest: Box::default() }
    }

    /// Returns the buffers of the scatter list in order.
    pub fn sinks(&self) -> impl Iterator<Item = &D> {
        core::iter::once(&self.first).chain(&self.rest)
    }

    /// Returns the buffers of the scatter list in order, mutably.
    pub fn sinks_mut(&mut self) -> impl Iterator<Item = &mut D> {
        core::iter::once(&mut self.first).chain(&mut self.rest)
    }
}

/// The kind of work request that completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A Send, with or without Invalidate.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// A local invalidation.
    LocalInv,
    /// A Receive.
    Receive,
}

/// The status of a completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The request was carried out.
    Success,
    /// The connection was lost before the request completed; the peer may have seen some of it or nothing. A Send that was
    /// longer than its Receive can end so, too.
    Flushed,
    /// The request itself was wrong: an unknown handle, lengths that differ, or a range out of
    /// bounds.
    LocalFault,
    /// The peer refused access to its memory.
    RemoteAccess,
}

/// The completion of one work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The consumer's identifier of the request.
    pub id: WrId,
    /// The queue pair of the request; for a Receive, the queue pair whose message filled it.
    pub qp: QpNum,
    /// The kind of work request.
    pub opcode: Opcode,
    /// The status. Unless it is `Success`, `length` and `invalidated` are meaningless.
    pub status: Status,
    /// The number of octets received by a Receive, else 0.
    pub length: u32,
    /// Our handle that is no longer valid: a Receive reports the handle in the peer's Send with Invalidate, a LocalInv
    /// its own.
    pub invalidated: Option<Handle>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn a_claim_whose_end_wraps_is_refused() {
        let s = Segment { handle: Handle(1), length: 2, offset: u64::MAX - 1 };
        assert_eq!(ClaimedSegment::try_from(s), Err(Fault::OffsetWraps));
        let s = Segment { length: 1, ..s };
        assert_eq!(ClaimedSegment::try_from(s).map(|c| c.length()), Ok(1));
    }

    #[test]
    fn a_window_stays_inside_its_claim() {
        let s = Segment { handle: Handle(1), length: 10, offset: 100 };
        let claim = ClaimedSegment::try_from(s).unwrap();
        assert_eq!(claim.window(4, 6).map(|w| (w.offset(), w.length())), Ok((104, 6)));
        assert_eq!(claim.window(4, 7), Err(Fault::OutOfBounds));
        assert_eq!(claim.window(u64::MAX, 1), Err(Fault::OffsetWraps));
    }

    #[test]
    fn a_handle_never_reaches_a_log() {
        let s = Segment { handle: Handle(0xdead_beef), length: 1, offset: 0 };
        assert!(!format!("{s:?}").contains(&format!("{}", 0xdead_beef_u32)));
        assert!(format!("{s:?}").contains("Handle(..)"));
    }
}
