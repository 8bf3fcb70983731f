//! The sending side of a connection that has work: its send queue, the Reads it answers, and the
//! FPDUs on their way to the socket.
//!
//! An idle connection has no transmit queue; it borrows one from its provider with its first work request and returns
//! it, empty, when nothing is left.
//!
//! # Normal operation
//!
//! Work requests enter at the back. `started` counts those that the transmit engine is done with; each is `Done` once
//! its octets are with the system (Sends, Writes), its response has arrived (Reads), or at once (registrations).
//! Completions leave at the front, in order.
//!
//! # Memory ownership
//!
//! A work request's views live in its entry, and are dropped when it is done. Pieces of the batch name
//! entries and registrations, never memory, and are resolved for each system call.

use std::collections::VecDeque;
use std::io::IoSlice;

use haulage_mr_pool::{Sink, Stags};
use haulage_proto::iwarp::rdmap::ReadRequest;
use haulage_proto::iwarp::transmit::{Fpdu, Transmitter};
use haulage_proto::verbs::{ClaimedSegment, Flags, Handle, Opcode, QpNum, Status, WrId};

use crate::provider::base::{Payload, Reports};
use crate::provider::{Operation, WorkRequest};

/// Send queue, inbound Reads and outbound FPDUs.
#[derive(Debug, Default)]
pub(super) struct TransmitQueue {
    pub(super) entries: VecDeque<Entry>,
    /// The sequence number of the first entry.
    first: u64,
    /// Entries handed to the transmit engine in full.
    pub(super) started: usize,
    /// Octets of the next entry that are in FPDUs already.
    pub(super) sealed: usize,
    /// Our Reads that wait for their response, oldest first.
    pub(super) reads: VecDeque<OutstandingRead>,
    /// The peer's Reads, oldest first.
    pub(super) responses: VecDeque<Response>,
    /// The number of the peer's Reads whose responses are in FPDUs in full.
    pub(super) answered: usize,
    /// Octets of the next response that are in FPDUs already.
    pub(super) answered_octets: usize,
    /// The next message is a response, if there is one: the two kinds take turns.
    pub(super) response_next: bool,
    pub(super) batch: Batch,
}

/// A work request in the send queue.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: WrId,
    pub(super) flags: Flags,
    pub(super) opcode: Opcode,
    pub(super) work: Work,
}

/// The remaining work of a request, and the views it holds.
#[derive(Debug)]
pub(super) enum Work {
    Send {
        source: Payload,
        invalidate: Option<Handle>,
    },
    Write {
        source: Payload,
        target: ClaimedSegment,
    },
    Read {
        sink: Sink,
        source: ClaimedSegment,
    },
    LocalInv {
        handle: Handle,
    },
    /// A Read whose request is in an FPDU.
    Awaiting,
    Done(Status),
    /// A LocalInv that has retired its handle.
    Invalidated(Handle),
}

impl Work {
    /// Returns the octets of the message, if it has a source.
    pub(super) fn length(&self) -> usize {
        match self {
            Self::Send { source, .. } | Self::Write { source, .. } => source.bytes().len(),
            _ => 0,
        }
    }
}

/// A Read of ours that waits for its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct OutstandingRead {
    pub(super) handle: Handle,
    pub(super) offset: u64,
    pub(super) length: u32,
    /// Octets sent on the connection once the request was with the system.
    pub(super) requested_at: u64,
}

/// A Read of the peer's, to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response(pub(super) ReadRequest);

#[cfg(test)]
impl Entry {
    /// Returns whether the entry still reads memory of the application.
    pub(super) const fn is_leased(&self) -> bool {
        matches!(
            self.work,
            Work::Send { source: Payload::View(_), .. }
                | Work::Write { source: Payload::View(_), .. }
        )
    }
}

impl TransmitQueue {
    /// Appends a work request.
    pub(super) fn push(&mut self, request: WorkRequest) {
        let opcode = request.operation.opcode();
        let work = match request.operation {
            Operation::Send { source, .. } if u32::try_from(source.len()).is_err() => {
                Work::Done(Status::LocalFault)
            }
            Operation::Send { source, invalidate } => {
                Work::Send { source: Payload::View(source), invalidate }
            }
            Operation::Write { source, target } if fits(source.len(), &target) => {
                Work::Write { source: Payload::View(source), target }
            }
            Operation::Read { sink, source } if fits(sink.len(), &source) => {
                Work::Read { sink, source }
            }
            Operation::Write { .. } | Operation::Read { .. } => Work::Done(Status::LocalFault),
            Operation::LocalInv { handle } => Work::LocalInv { handle },
        };
        self.entries.push_back(Entry { id: request.id, flags: request.flags, opcode, work });
    }

    /// Returns whether no work of any kind is left.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.responses.is_empty() && self.batch.is_empty()
    }

    /// Returns whether everything posted is sealed, and no message is sealed in part.
    pub(super) fn is_between_messages(&self) -> bool {
        self.started == self.entries.len() && self.answered_octets == 0
    }

    /// Returns the sequence number of the entry that the transmit engine is at.
    pub(super) const fn current(&self) -> u64 {
        self.first.wrapping_add(self.started as u64)
    }

    /// Copies the sources that copied Sends and Writes among the last `count` entries still lease, so that their memory
    /// is free.
    pub(super) fn copy_sources(&mut self, count: usize) {
        for entry in self.entries.iter_mut().rev().take(count).filter(|e| e.flags.copied) {
            if let Work::Send { source, .. } | Work::Write { source, .. } = &mut entry.work
                && let Payload::View(leased) = source
            {
                *source = Payload::Copied(leased.bytes().to_vec());
            }
        }
    }

    /// Moves the transmit engine to the next entry.
    pub(super) fn start_next(&mut self) {
        self.started += 1;
        self.sealed = 0;
        self.response_next = true;
    }

    /// Notes that the whole batch is with the system.
    pub(super) fn on_batch_sent(&mut self) {
        self.batch.clear();
        for entry in self.entries.iter_mut().take(self.started) {
            if matches!(entry.work, Work::Send { .. } | Work::Write { .. }) {
                entry.work = Work::Done(Status::Success);
            }
        }
        self.responses.drain(..self.answered);
        self.answered = 0;
    }

    /// Notes that the response of the oldest outstanding Read is in place. Returns how far the peer has come with it:
    /// its octets, and one for the Read.
    pub(super) fn on_read_done(&mut self) -> u64 {
        let done = self.reads.pop_front().map_or(0, |read| u64::from(read.length) + 1);
        let read = self.entries.iter_mut().find(|entry| matches!(entry.work, Work::Awaiting));
        if let Some(read) = read {
            read.work = Work::Done(Status::Success);
        }
        done
    }

    /// Reports completed requests at the front of the queue. Returns whether it met a failure, which stays for
    /// [`Self::flush`] to report.
    pub(super) fn complete(&mut self, qp: QpNum, reports: &mut Reports) -> bool {
        while let Some(front) = self.entries.front() {
            match front.work {
                Work::Done(Status::Success) | Work::Invalidated(_) => {}
                Work::Done(_) => return true,
                _ => return false,
            }
            let Some(entry) = self.entries.pop_front() else { return false };
            self.first = self.first.wrapping_add(1);
            self.started = self.started.saturating_sub(1);
            match entry.work {
                _ if !entry.flags.signaled => {}
                Work::Invalidated(handle) => reports.invalidated(qp, entry.id, handle),
                _ => reports.ended(qp, entry.id, entry.opcode, Status::Success),
            }
        }
        false
    }

    /// Drops every view and reports every entry as flushed; the oldest Read, if it waits, gets the status `read`.
    pub(super) fn flush(&mut self, qp: QpNum, reports: &mut Reports, read: Status) {
        self.batch.clear();
        self.responses.clear();
        self.reads.clear();
        let mut read = Some(read);
        for entry in self.entries.drain(..) {
            let waiting = matches!(entry.work, Work::Awaiting);
            // A failure found before the connection was lost keeps its status.
            let status = match entry.work {
                Work::Done(status) if status != Status::Success => status,
                _ if waiting => read.take().unwrap_or(Status::Flushed),
                _ => Status::Flushed,
            };
            drop(entry.work);
            reports.ended(qp, entry.id, entry.opcode, status);
        }
        *self = Self { entries: std::mem::take(&mut self.entries), ..Self::default() };
    }

    /// Returns how many of the peer's Reads count against its grant.
    ///
    /// Reads whose answer is in the batch do not count: the peer may have it while the rest of the batch waits.
    pub(super) fn unanswered(&self) -> usize {
        self.responses.len() - self.answered
    }

    /// Returns whether a Read of the peer's still needs this registration.
    ///
    /// Octets that the system took of a batch count as read even while the rest of the batch waits: the peer may have
    /// all of them, and have ended its Read.
    pub(super) fn is_read(&self, handle: Handle) -> bool {
        let mut waiting = self.responses.iter().skip(self.answered);
        let mut sent = self.batch.sent;
        let unsent = self.batch.pieces.iter().filter(|piece| {
            let gone = sent >= piece.length;
            sent = sent.saturating_sub(piece.length);
            !gone
        });
        let mut unsent = unsent.map(|piece| piece.what);
        waiting.any(|response| response.0.source == handle)
            || unsent.any(
                |what| matches!(what, PieceOrigin::Registration { handle: read, .. } if read == handle),
            )
    }

    /// Resolves unsent pieces of the batch into `slices`; returns how many there are.
    ///
    /// A registration that is gone resolves to nothing. A queued response prevents that.
    pub(super) fn gather<'a>(
        &'a self,
        stags: &'a Stags,
        qp: QpNum,
        slices: &mut [IoSlice<'a>],
    ) -> usize {
        let mut skip = self.batch.sent;
        let mut count = 0;
        for piece in &self.batch.pieces {
            if skip >= piece.length {
                skip -= piece.length;
                continue;
            }
            let Some(slot) = slices.get_mut(count) else { break };
            let whole = match piece.what {
                PieceOrigin::Prefix { start } => self.batch.own.get(start..start + piece.length),
                PieceOrigin::Entry { sequence, start } => {
                    let at = usize::try_from(sequence.wrapping_sub(self.first)).ok();
                    match at.and_then(|at| self.entries.get(at)).map(|entry| &entry.work) {
                        Some(Work::Send { source, .. } | Work::Write { source, .. }) => {
                            source.bytes().get(start..start + piece.length)
                        }
                        _ => None,
                    }
                }
                PieceOrigin::Registration { handle, offset } => {
                    stags.source(handle, qp, offset, piece.length).ok()
                }
            };
            *slot = IoSlice::new(whole.and_then(|whole| whole.get(skip..)).unwrap_or_default());
            skip = 0;
            count += 1;
        }
        count
    }
}

fn fits(length: usize, segment: &ClaimedSegment) -> bool {
    u32::try_from(length) == Ok(segment.length())
}

/// FPDUs on their way to the socket.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Headers, trailers and short payloads.
    own: Vec<u8>,
    pieces: Vec<Piece>,
    /// Octets of all pieces.
    length: usize,
    /// Octets the system has taken.
    sent: usize,
}

/// Consecutive octets of a batch that lie together in memory.
#[derive(Clone, Copy, Debug)]
struct Piece {
    what: PieceOrigin,
    length: usize,
}

#[derive(Clone, Copy, Debug)]
enum PieceOrigin {
    /// The octets are in the batch's own memory.
    Prefix { start: usize },
    /// The octets are in the source of a work request.
    Entry { sequence: u64, start: usize },
    /// The octets are in memory that the peer reads.
    Registration { handle: Handle, offset: u64 },
}

impl Batch {
    /// Appends an FPDU that has no separate payload.
    pub(super) fn push(&mut self, fpdu: &Fpdu) {
        self.append(fpdu.prefix());
        self.append(fpdu.trailer());
    }

    /// Appends an FPDU and a copy of its payload.
    pub(super) fn push_copied(&mut self, fpdu: &Fpdu, payload: &[u8]) {
        self.append(fpdu.prefix());
        self.append(payload);
        self.append(fpdu.trailer());
    }

    /// Appends a whole Send in one FPDU: `append` appends its `length` octets.
    #[inline]
    pub(super) fn push_whole(
        &mut self,
        transmitter: &mut Transmitter,
        invalidate: Option<Handle>,
        length: usize,
        append: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = self.own.len();
        self.own.extend_from_slice(&transmitter.begin_whole(invalidate, length));
        let payload_at = self.own.len();
        append(&mut self.own);
        debug_assert_eq!(self.own.len() - payload_at, length, "as many octets as the header says");
        let trailer = transmitter.end_whole(self.own.get(start..).unwrap_or_default());
        self.own.extend_from_slice(trailer.octets());
        self.on_appended(start);
    }

    /// Appends an FPDU around the beginning of `rest`. `from` is its origin: the sequence number of a work request, and
    /// the offset in its source. Returns whether the FPDU holds all of `rest`.
    pub(super) fn push_rest(&mut self, fpdu: &Fpdu, rest: &[u8], from: (u64, usize)) -> bool {
        let is_last = fpdu.payload_len() == rest.len();
        if is_last && rest.len() <= COPY_MAX {
            self.push_copied(fpdu, rest);
        } else {
            let (sequence, start) = from;
            self.push_around(fpdu, PieceOrigin::Entry { sequence, start });
        }
        is_last
    }

    /// Appends an FPDU around memory that the peer reads.
    pub(super) fn push_registration(&mut self, fpdu: &Fpdu, handle: Handle, offset: u64) {
        self.push_around(fpdu, PieceOrigin::Registration { handle, offset });
    }

    fn push_around(&mut self, fpdu: &Fpdu, what: PieceOrigin) {
        self.append(fpdu.prefix());
        let length = fpdu.payload_len();
        if length > 0 {
            self.pieces.push(Piece { what, length });
            self.length += length;
        }
        self.append(fpdu.trailer());
    }

    /// Notes that the system took `count` more octets; returns whether it has taken all.
    pub(super) fn on_sent(&mut self, count: usize) -> bool {
        self.sent += count;
        self.sent >= self.length
    }

    /// Returns the octets that the system has not taken yet.
    pub(super) const fn unsent(&self) -> usize {
        self.length.saturating_sub(self.sent)
    }

    /// Returns whether the batch is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns whether the batch is long enough to be sent before more is sealed: `octets` long, or of as many pieces
    /// as it can have.
    pub(super) fn is_full(&self, octets: usize) -> bool {
        self.length >= octets || self.own.len() >= OWN_MAX || self.pieces.len() + 2 > PIECES_MAX
    }

    pub(super) const fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn clear(&mut self) {
        self.own.clear();
        self.pieces.clear();
        (self.length, self.sent) = (0, 0);
    }

    fn append(&mut self, octets: &[u8]) {
        let start = self.own.len();
        self.own.extend_from_slice(octets);
        self.on_appended(start);
    }

    /// Notes the octets of the batch's own memory from `start` on as a piece.
    #[inline]
    fn on_appended(&mut self, start: usize) {
        let count = self.own.len() - start;
        self.length += count;
        match self.pieces.last_mut() {
            Some(Piece { what: PieceOrigin::Prefix { .. }, length }) => *length += count,
            _ => self.pieces.push(Piece { what: PieceOrigin::Prefix { start }, length: count }),
        }
    }
}

/// The most pieces of a batch, and so of one system call. A short FPDU is one piece with its neighbours, a long one
/// adds two.
pub(super) const PIECES_MAX: usize = 256;

/// Octets after which a batch is sent at the latest. The number of system calls decides: 1 MiB Writes on loopback reach
/// 0.76 of a raw stream with 256 KiB a batch, 0.9 with 512 KiB, 1.07 with 2 MiB; with CRCs 0.70, 0.83 and 0.90,
/// although the cache no longer holds the octets that the CRC has read.
pub(super) const OCTETS_MAX: usize = 2 << 20;

/// Octets in a batch's own memory after which it is sent, so that a transmit queue stays small.
const OWN_MAX: usize = 32 << 10;

/// Octets of a message up to which copying it next to its header is cheaper than referring to it.
pub(super) const COPY_MAX: usize = 512;

/// Octets of the longest Send that is copied although its source could be referred to, which takes a place in the send
/// queue and a completion.
pub(super) const COPIED_MAX: usize = COPY_MAX;
