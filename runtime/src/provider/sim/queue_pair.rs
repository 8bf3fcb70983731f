//! One end of a connection: its send queue, and messages that wait.

use std::collections::VecDeque;

use haulage_mr_pool::{Sink, Source};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{ClaimedSegment, Flags, Handle, Opcode, Operation, Status, WrId};

use super::schedule::{End, Message};
use crate::provider::base::Payload;
use crate::provider::{Receive, WorkRequest};

/// A queue pair. Entries are numbered from 0 as they are posted; the number is their `seq`.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) state: QueuePairState,
    pub(super) peer: Option<End>,
    /// Reads we may have outstanding: the proposal, then the grant.
    pub(super) ord: u32,
    /// Reads the peer may have outstanding: the offer, then the grant.
    pub(super) ird: u32,
    /// Reads of the peer that we have not finished.
    pub(super) reads_served: u32,
    /// Completions reported but not yet polled; they still hold their place in the send queue.
    pub(super) unpolled: usize,
    /// Receives for Sends, if the queue pair has a receive queue of its own.
    pub(super) receives: VecDeque<Receive>,
    /// Messages that arrived behind a Send that found no Receive.
    pub(super) inbound: VecDeque<Message>,
    /// When the last message we sent arrives; the next cannot overtake it.
    pub(super) last_due: Instant,
    /// When the handshake or the close must be over.
    pub(super) deadline: Option<Instant>,
    /// A message of ours was swallowed, so nothing after it can arrive.
    pub(super) cut: bool,
    entries: VecDeque<Entry>,
    /// The oldest entry's number.
    first: u64,
    /// The number of the next entry to start.
    next: u64,
    reads_outstanding: u32,
    /// Set by `close`: entries from here on never start.
    close_at: Option<u64>,
}

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueuePairState {
    /// We sent the request.
    Connecting,
    /// The peer's request arrived; the consumer has not answered.
    Requested,
    /// The peer left before we answered its request.
    Abandoned,
    /// We accepted; nothing has come from the peer since.
    Accepted,
    /// Messages move.
    Established,
    /// Requests posted before the close still move.
    Closing,
    /// All posted requests moved, and the peer was notified.
    Closed,
    /// The connection ended. Only flushed completions and `Quiesced` are left to report.
    Ended,
}

/// One posted request.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: WrId,
    pub(super) opcode: Opcode,
    pub(super) flags: Flags,
    pub(super) work: Work,
    /// `None` until it ends.
    pub(super) status: Option<Status>,
    /// The handle a LocalInv retired.
    pub(super) invalidated: Option<Handle>,
    /// Whether it takes a place in the send queue. If not, no completion reports it.
    pub(super) counts: bool,
}

impl Entry {
    fn end(&mut self, status: Status) {
        self.status = Some(status);
        self.work = Work::Nothing;
    }
}

/// The remaining work of an entry, and the views it holds.
#[derive(Debug)]
pub(super) enum Work {
    Send {
        payload: Payload,
        invalidate: Option<Handle>,
    },
    Write {
        payload: Payload,
        target: ClaimedSegment,
    },
    Read {
        sink: Sink,
        source: ClaimedSegment,
    },
    LocalInv {
        handle: Handle,
    },
    /// No work is left; every view was dropped.
    Nothing,
}

impl QueuePair {
    pub(super) const fn new(state: QueuePairState, peer: Option<End>, ord: u32, ird: u32) -> Self {
        Self {
            state,
            peer,
            ord,
            ird,
            reads_served: 0,
            unpolled: 0,
            receives: VecDeque::new(),
            inbound: VecDeque::new(),
            last_due: Instant::ZERO,
            deadline: None,
            cut: false,
            entries: VecDeque::new(),
            first: 0,
            next: 0,
            reads_outstanding: 0,
            close_at: None,
        }
    }

    /// Appends a request; a source to be copied is copied into the buffer that `spare` returns.
    pub(super) fn post(&mut self, request: WorkRequest, spare: impl FnOnce() -> Vec<u8>) {
        let WorkRequest { id, flags, operation } = request;
        let opcode = operation.opcode();
        let payload = |source: Source| {
            if !flags.copied {
                return Payload::View(source);
            }
            let mut bytes = spare();
            bytes.extend_from_slice(source.bytes());
            Payload::Copied(bytes)
        };
        let work = match operation {
            Operation::Send { source, invalidate } => {
                Work::Send { payload: payload(source), invalidate }
            }
            Operation::Write { source, target } => Work::Write { payload: payload(source), target },
            Operation::Read { sink, source } => Work::Read { sink, source },
            Operation::LocalInv { handle } => Work::LocalInv { handle },
        };
        self.append(Entry {
            id,
            opcode,
            flags,
            work,
            status: None,
            invalidated: None,
            counts: true,
        });
    }

    /// Appends an unsignaled request of octets that it owns.
    #[inline]
    pub(super) fn post_copied(&mut self, work: Work) {
        let opcode = if matches!(work, Work::Send { .. }) { Opcode::Send } else { Opcode::Write };
        let (id, flags) = (WrId(0), Flags::default());
        self.append(Entry {
            id,
            opcode,
            flags,
            work,
            status: None,
            invalidated: None,
            counts: false,
        });
    }

    fn append(&mut self, mut entry: Entry) {
        if self.state == QueuePairState::Ended {
            entry.end(Status::Flushed);
        }
        self.entries.push_back(entry);
    }

    /// Takes the number of the next entry that may start now.
    pub(super) fn start(&mut self) -> Option<u64> {
        let open = matches!(self.state, QueuePairState::Established | QueuePairState::Closing);
        let seq = self.next;
        if !open || self.close_at.is_some_and(|end| seq >= end) {
            return None;
        }
        // With none granted a Read would wait for ever; it starts instead, and fails.
        let (ord, outstanding) = (self.ord.max(1), self.reads_outstanding);
        let entry = self.entry(seq)?;
        let is_read = matches!(entry.work, Work::Read { .. });
        if (entry.flags.fence && outstanding > 0) || (is_read && outstanding >= ord) {
            return None;
        }
        self.next += 1;
        self.reads_outstanding += u32::from(is_read);
        Some(seq)
    }

    /// Returns whether the next entry to start retires a handle of ours.
    pub(super) fn begins_with_invalidation(&mut self) -> bool {
        let next = self.next;
        self.entry(next).is_some_and(|entry| matches!(entry.work, Work::LocalInv { .. }))
    }

    /// Ends an entry with success or a fault of its own; a fault stops all entries behind it.
    pub(super) fn complete(&mut self, seq: u64, status: Status) {
        let Some(entry) = self.entry(seq).filter(|entry| entry.status.is_none()) else { return };
        let was_read = entry.opcode == Opcode::Read;
        entry.end(status);
        self.reads_outstanding -= u32::from(was_read);
        if status != Status::Success {
            self.close_at = Some(seq);
        }
    }

    /// Takes the oldest entry if it succeeded, so that completions come in the order posted.
    pub(super) fn pop_succeeded(&mut self) -> Option<Entry> {
        let succeeded = self.entries.front()?.status == Some(Status::Success);
        succeeded.then(|| self.pop())?
    }

    /// Takes the oldest entry, once the queue pair has ended.
    pub(super) fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.first += 1;
        self.next = self.next.max(self.first);
        Some(entry)
    }

    /// Returns the fault that the oldest entry ended with.
    pub(super) fn fault(&self) -> Option<(u64, Status)> {
        let status = self.entries.front()?.status?;
        (status != Status::Success).then_some((self.first, status))
    }

    /// Ends every entry before `seq` that the peer, having reached `seq`, must have carried out. Returns whether those
    /// were all.
    pub(super) fn complete_before(&mut self, seq: u64) -> bool {
        for earlier in self.first..seq {
            let pending = self.entry(earlier).filter(|entry| entry.status.is_none());
            if pending.is_some_and(|entry| matches!(entry.work, Work::Read { .. })) {
                return false;
            }
            self.complete(earlier, Status::Success);
        }
        true
    }

    /// Drops every view that the queue holds. Entries not yet reported are flushed, except `failed`, which keeps its
    /// status.
    pub(super) fn end(&mut self, failed: Option<(u64, Status)>) {
        for (seq, entry) in (self.first..).zip(&mut self.entries) {
            let own = failed.filter(|(number, _)| *number == seq).map(|(_, status)| status);
            entry.end(own.unwrap_or(Status::Flushed));
        }
        self.state = QueuePairState::Ended;
        self.deadline = None;
    }

    /// Closes the queue: entries posted from now on never start.
    pub(super) fn close(&mut self) {
        let end = self.first + self.entries.len() as u64;
        self.close_at = Some(self.close_at.map_or(end, |fault| fault.min(end)));
        self.state = QueuePairState::Closing;
    }

    /// Returns whether everything posted before the close has ended.
    pub(super) fn is_drained(&self) -> bool {
        self.state == QueuePairState::Closing && self.close_at.is_some_and(|end| self.first >= end)
    }

    /// Returns whether everything posted has ended.
    pub(super) fn has_ended_all(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns an entry by its number.
    pub(super) fn entry(&mut self, seq: u64) -> Option<&mut Entry> {
        let index = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(index)
    }

    /// Returns how many places of the send queue are taken.
    pub(super) fn occupied(&self) -> usize {
        self.entries.iter().filter(|entry| entry.counts).count() + self.unpolled
    }

    /// Returns whether messages of the peer may still arrive.
    pub(super) fn is_live(&self) -> bool {
        self.state != QueuePairState::Ended
    }
}
