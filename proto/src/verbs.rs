//! The RDMA verbs alphabet: what a protocol asks of an RNIC and what the RNIC answers.
//!
//! Work requests are generic over the memory they name: `S` is something the RNIC may read (the
//! source of a Send or a Write), `D` something it may fill (the sink of a Receive or a Read). This
//! crate owns no memory; the pool above it supplies both types.

mod template;

use alloc::boxed::Box;
use core::fmt;

pub use template::{HeaderTemplate, Label, LabelOffsets, NamedTemplate, TemplateId};

use crate::xdr::{Reader, Truncated, Writer};

/// Names one registration: an STag on iWARP, an R_key on InfiniBand.
///
/// Handles are secrets of a kind (RFC 5042): whoever knows one may use it, so `Debug` hides it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Handle(pub u32);

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handle(..)")
    }
}

/// Coordinates of one contiguous registered region, as they travel: HLOO.
///
/// Wire: handle u32, length u32, offset u64; all big-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segment {
    /// The registration.
    pub handle: Handle,
    /// Length in octets; zero is a legal "empty segment".
    pub length: u32,
    /// Offset, meaningful only to the peer that registered it.
    pub offset: u64,
}

impl Segment {
    /// Octets on the wire.
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

/// A segment the peer *claims* we may touch.
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

/// Why a claim, or a part of one, was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// `offset + length` exceeds 2^64.
    OffsetWraps,
    /// The part asked for does not lie within the claim.
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

    /// Returns the first offset, in the peer's terms.
    pub const fn offset(&self) -> u64 {
        self.start
    }

    /// Returns the length in octets, at most 2^32 - 1.
    pub fn length(&self) -> u32 {
        u32::try_from(self.end.saturating_sub(self.start)).unwrap_or(u32::MAX)
    }
}

/// What a peer may do with an exposed range; never both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The peer may RDMA Read the range.
    RemoteRead,
    /// The peer may RDMA Write the range.
    RemoteWrite,
}

/// Memory handed to the RNIC by a FastReg, which fixes the access it grants.
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

/// Names a queue pair of one provider: a dense slot, and the generation of its use.
///
/// A slot is used again, with another generation, only once nothing of the old queue pair is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QpNum(u32);

impl QpNum {
    /// Names the `generation`-th use of `slot`.
    pub const fn new(slot: u16, generation: u16) -> Self {
        Self((generation as u32) << 16 | slot as u32)
    }

    /// Returns the slot, an index into whatever tables the provider and the runtime keep.
    pub const fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    /// Returns which use of the slot this is.
    pub const fn generation(self) -> u16 {
        (self.0 >> 16) as u16
    }
}

/// The consumer's name for a work request, returned in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

/// How a work request is to be carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// Report success with a completion. Failure is always reported.
    pub signaled: bool,
    /// Do not start before every earlier RDMA Read of this queue pair has completed.
    pub fence: bool,
    /// Copy the source at post time; it may be reused at once.
    pub inline: bool,
}

/// One entry of a send queue.
#[derive(Debug)]
pub struct WorkRequest<S, D> {
    /// The consumer's name for it.
    pub id: WrId,
    /// How to carry it out.
    pub flags: Flags,
    /// What to do.
    pub operation: Operation<S, D>,
}

/// What a send queue entry does.
#[derive(Debug)]
pub enum Operation<S, D> {
    /// Fills the peer's next Receive, and invalidates one of the peer's handles if asked.
    Send {
        /// The whole message.
        source: S,
        /// The peer's handle to invalidate: Send with Invalidate.
        invalidate: Option<Handle>,
    },
    /// Fills part of the peer's memory. The peer is not told.
    Write {
        /// Our bytes, exactly as many as `target` is long.
        source: S,
        /// Where they go.
        target: ClaimedSegment,
    },
    /// Fetches part of the peer's memory.
    Read {
        /// Our memory, exactly as long as `source`.
        sink: D,
        /// Where the bytes are.
        source: ClaimedSegment,
    },
    /// Opens memory to the peer of this queue pair under `handle`, reserved with the provider.
    FastReg {
        /// The name under which the peer will address it.
        handle: Handle,
        /// The peer's offset of the first octet.
        offset: u64,
        /// The memory, and the access granted.
        memory: Exposure<S, D>,
    },
    /// Takes back what `FastReg` opened.
    LocalInv {
        /// The handle to retire.
        handle: Handle,
    },
}

impl<S, D> Operation<S, D> {
    /// Returns the kind, as completions name it.
    pub const fn opcode(&self) -> Opcode {
        match self {
            Self::Send { .. } => Opcode::Send,
            Self::Write { .. } => Opcode::Write,
            Self::Read { .. } => Opcode::Read,
            Self::FastReg { .. } => Opcode::FastReg,
            Self::LocalInv { .. } => Opcode::LocalInv,
        }
    }
}

/// Memory segments that a Receive may fill.
pub const SCATTER_MAX: usize = 4;

/// One entry of a (shared) receive queue.
#[derive(Debug)]
pub struct Receive<D> {
    /// The consumer's name for it.
    pub id: WrId,
    /// What is filled first, and mostly alone.
    pub first: D,
    /// What is filled behind it, in order: less than [`SCATTER_MAX`].
    pub rest: Box<[D]>,
}

impl<D> Receive<D> {
    /// Makes a Receive into one contiguous buffer.
    #[inline]
    pub fn single(id: WrId, sink: D) -> Self {
        Self { id, first: sink, rest: Box::default() }
    }

    /// Returns its scatter list.
    pub fn sinks(&self) -> impl Iterator<Item = &D> {
        core::iter::once(&self.first).chain(&self.rest)
    }

    /// Returns its scatter list, to fill it.
    pub fn sinks_mut(&mut self) -> impl Iterator<Item = &mut D> {
        core::iter::once(&mut self.first).chain(&mut self.rest)
    }
}

/// What completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// A Send, with or without Invalidate.
    Send,
    /// An RDMA Write.
    Write,
    /// An RDMA Read.
    Read,
    /// A fast registration.
    FastReg,
    /// A local invalidation.
    LocalInv,
    /// A Receive.
    Receive,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Success,
    /// The connection was lost before it was done; whether the peer saw any of it is unknown.
    Flushed,
    /// The request itself was wrong: unknown handle, lengths that differ, a range out of bounds.
    LocalFault,
    /// The peer refused access to the memory the request named.
    RemoteAccess,
}

/// The end of one work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The consumer's name for the request.
    pub id: WrId,
    /// The queue pair it ran on; of a Receive, the one whose message filled it.
    pub qp: QpNum,
    /// What it was.
    pub opcode: Opcode,
    /// How it ended. The other fields mean nothing unless this is `Success`.
    pub status: Status,
    /// Octets received by a Receive, else 0.
    pub length: u32,
    /// Our handle that is no longer valid: named by the peer's Send with Invalidate in a Receive, or
    /// by our own LocalInv.
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
