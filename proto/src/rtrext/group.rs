//! Received transmission groups (section 4.2): the check that a transmission is the next one.
//!
//! # Normal operation
//! A group begins with `ROPT_XMTREQ` or `ROPT_XMTRESP`, which gives the number of transmissions, and continues with
//! `ROPT_XMTCONT` messages, numbered from 1, without other messages between them. For each transmission only the place
//! of its Payload stream is stored; the octets stay in their Receives.
//!
//! # Recovery
//! A message that breaks a group ends it, and is dropped as well. One report names both; later
//! continuations of the group are dropped silently (E18).
//!
//! # Limits
//! A group has no more transmissions than its receiver announced, and uses memory only for those that have arrived.

use alloc::vec::Vec;
use core::ops::Range;

use super::report::{Expected, MessageType, OutOfRange, Report, ReportInfo, TransmissionId};
use super::{Continue, REPTERR, XMTCONT};
use crate::v2::header::Prefix;
use crate::xdr::UNIT;

/// The group that is being received.
#[derive(Debug, Default)]
pub struct Group {
    state: GroupState,
    xid: u32,
    reply: bool,
    /// The number of transmissions of the group.
    count: u32,
    parts: Vec<Part>,
}

/// The state of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupState {
    /// There is no group: a first transmission may arrive.
    #[default]
    Idle,
    /// The group is not complete.
    Open,
    /// The group was broken; its remaining transmissions may still arrive.
    Broken,
}

/// A received message, classified by its relation to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The only transmission of a group.
    Only,
    /// The first of several transmissions of a group.
    First,
    /// The continuation expected next, which is not the last.
    Next,
    /// The continuation expected next, which is the last.
    Last,
    /// An unexpected continuation.
    Stray,
    /// A message of the base protocol that is neither a grant nor an error.
    Base,
    /// A grant or an error, which never interrupts a group (E12, E13).
    Neutral,
}

/// The kinds of base protocol messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// A message that is neither a grant nor an error.
    Base,
    /// A grant or an error.
    Neutral,
}

/// The verdict on a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Accept the transmission.
    Take,
    /// Accept the transmission, which completes its RPC message.
    Complete,
    /// Pass the message on, because it is not part of a group.
    Pass,
    /// Report the message and drop it.
    Report,
    /// Drop the message.
    Drop,
}

impl GroupState {
    /// Applies the transition table: returns the next state and the verdict.
    pub const fn on(self, event: Event) -> (Self, Verdict) {
        match (self, event) {
            (Self::Idle | Self::Broken, Event::Only) => (Self::Idle, Verdict::Complete),
            (Self::Idle | Self::Broken, Event::First) => (Self::Open, Verdict::Take),
            (Self::Open, Event::Next) => (Self::Open, Verdict::Take),
            (Self::Open, Event::Last) => (Self::Idle, Verdict::Complete),
            (state, Event::Neutral) => (state, Verdict::Pass),
            //~ RTR-4.2-1: `(Self::Idle | Self::Broken, Event::Base) => (Self::Idle, Verdict::Pass)` ->
            //~   `(state, Event::Base) => (state, Verdict::Pass)`
            (Self::Idle | Self::Broken, Event::Base) => (Self::Idle, Verdict::Pass),
            // [RTR-4.2-1] the transmissions of a group come in order, with no other message in between.
            (Self::Open, Event::Only | Event::First | Event::Base | Event::Stray)
            | (Self::Idle, Event::Next | Event::Last | Event::Stray) => {
                (Self::Broken, Verdict::Report)
            }
            (Self::Broken, Event::Next | Event::Last | Event::Stray) => {
                (Self::Broken, Verdict::Drop)
            }
        }
    }
}

/// The place of the Payload stream in one transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The offset of its first octet in the transmission.
    pub start: usize,
    /// The offset after its last octet.
    pub end: usize,
    /// The length of the whole transmission in octets.
    pub length: usize,
}

impl Part {
    /// Finds the Payload stream of a first transmission of `length` octets, `rest` of which are behind its header.
    pub(super) fn of(pslen: u32, length: usize, rest: usize) -> Option<Self> {
        part(pslen, UNIT, length, rest).ok()
    }

    /// Returns the range of the Payload stream in the transmission.
    pub const fn payload(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// One of several transmissions, behind which others are still to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmission {
    /// The direction of the RPC message.
    pub dir: MessageType,
    /// The XID of the RPC message.
    pub xid: u32,
    /// The number of transmissions of the RPC message.
    pub count: u32,
    /// The number of this one, from 0.
    pub seq: u32,
    /// The place of the Payload stream in it.
    pub part: Part,
}

/// The result of receiving a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The message is one of several transmissions, and others are still to arrive.
    More,
    /// The message completes an RPC message.
    Complete,
    /// The message is not part of a group; the caller handles it.
    Pass,
    /// The message is dropped silently.
    Dropped,
    /// The message and the group that it broke are dropped. The report goes to the peer.
    Bad(Report),
}

/// The fields that every first transmission has.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// The XID of the RPC message.
    pub xid: u32,
    /// The direction of the RPC message.
    pub dir: MessageType,
    /// The header type of the transmission.
    pub htype: u32,
    /// The number of transmissions in the group.
    pub count: u32,
    /// The most transmissions that the group may have.
    pub count_max: u32,
    /// The number of Payload stream octets in the transmission.
    pub pslen: u32,
}

impl Group {
    /// Receives the first transmission of a group, which is `length` octets long and has `rest`
    /// octets after its header.
    pub fn first(&mut self, first: First, length: usize, rest: usize) -> Received {
        let event = if first.count == 1 { Event::Only } else { Event::First };
        let (state, verdict) = self.state.on(event);
        self.state = state;
        let bad = TransmissionId { xid: first.xid, dir: first.dir, seq: 0 };
        if verdict == Verdict::Report {
            let field = Expected { expect: XMTCONT, current: first.htype };
            return self.broken(bad, ReportInfo::BadOptionalType(field));
        }
        self.parts.clear();
        (self.xid, self.reply) = (first.xid, first.dir == MessageType::Reply);
        self.count = first.count;
        let allowed = 1..=first.count_max;
        if !allowed.contains(&first.count) {
            // E15: the count is the number behind the last.
            let expect = if first.count == 0 { 1 } else { first.count_max };
            let field = Expected { expect, current: first.count };
            return self.broken(bad, ReportInfo::BadSequence(field));
        }
        // An RPC message begins with its XID, which is in the first transmission.
        match part(first.pslen, UNIT, length, rest) {
            Ok(part) => self.parts.push(part),
            Err(field) => return self.broken(bad, ReportInfo::BadPayloadLength(field)),
        }
        Received::of(verdict)
    }

    /// Receives a continuation.
    pub fn next(&mut self, xid: u32, part_of: &Continue<'_>, length: usize) -> Received {
        let due = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let open = self.state == GroupState::Open;
        // [RTR-9.4-1] a continuation has the XID of the first transmission.
        //~ RTR-9.4-1: `xid == self.xid` -> `true`
        let event = match (xid == self.xid, part_of.xnum == due) {
            (true, true) if open && due.saturating_add(1) == self.count => Event::Last,
            (true, true) if open => Event::Next,
            _ => Event::Stray,
        };
        let (state, verdict) = self.state.on(event);
        self.state = state;
        // A continuation does not say which way it goes; it is taken to be of the group it breaks.
        let dir = if open && self.reply { MessageType::Reply } else { MessageType::Call };
        let bad = TransmissionId { xid, dir, seq: part_of.xnum };
        if verdict == Verdict::Report {
            let info = if !open {
                // No group is open that this transmission could continue.
                self.parts.clear();
                ReportInfo::BadContinuation
            } else if xid == self.xid {
                ReportInfo::BadSequence(Expected { expect: due, current: part_of.xnum })
            } else {
                ReportInfo::BadXid(Expected { expect: self.xid, current: xid })
            };
            return self.broken(bad, info);
        }
        if matches!(verdict, Verdict::Take | Verdict::Complete) {
            match part(part_of.pslen, 0, length, part_of.rest.len()) {
                Ok(part) => self.parts.push(part),
                Err(field) => return self.broken(bad, ReportInfo::BadPayloadLength(field)),
            }
        }
        Received::of(verdict)
    }

    /// Handles the arrival of a message that is not a transmission, and that may break the group.
    pub fn other(&mut self, prefix: &Prefix, dir: MessageType, other: Other) -> Received {
        let event = match other {
            Other::Base if prefix.htype != REPTERR => Event::Base,
            Other::Base | Other::Neutral => Event::Neutral,
        };
        let (state, verdict) = self.state.on(event);
        self.state = state;
        if verdict == Verdict::Report {
            // E15: both errors about types name header types.
            let field = Expected { expect: XMTCONT, current: prefix.htype };
            let bad = TransmissionId { xid: prefix.xid, dir, seq: 0 };
            return self.broken(bad, ReportInfo::BadHeaderType(field));
        }
        Received::of(verdict)
    }

    /// Ends the group because of the contents of its last transmission, which the report names as
    /// `bad`.
    pub fn refuse(&mut self, info: ReportInfo) -> Report {
        let seq = u32::try_from(self.parts.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let bad = TransmissionId { xid: self.xid, dir: self.dir(), seq };
        // Items are described in the first transmission, so a report about a later one names the first, too.
        let lead = (seq > 0).then_some(TransmissionId { seq: 0, ..bad });
        self.drop_rest();
        Report { bad, lead, info }
    }

    /// Ends the group silently; its later continuations are dropped.
    pub fn drop_rest(&mut self) {
        self.state = GroupState::Broken;
        self.parts.clear();
    }

    /// Returns the XID of the RPC message received last.
    pub const fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns the direction of the RPC message received last.
    pub const fn dir(&self) -> MessageType {
        if self.reply { MessageType::Reply } else { MessageType::Call }
    }

    /// Returns the transmissions of the RPC message received last, as far as they have arrived.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the transmission received last; `None` if there is none.
    pub(super) fn last(&self) -> Option<Transmission> {
        let part = *self.parts.last()?;
        let seq = u32::try_from(self.parts.len()).unwrap_or(u32::MAX).saturating_sub(1);
        Some(Transmission { dir: self.dir(), xid: self.xid, count: self.count, seq, part })
    }

    /// Returns whether a group has begun and is not complete.
    pub fn is_open(&self) -> bool {
        self.state == GroupState::Open
    }

    /// Returns whether a first transmission is expected next.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.state == GroupState::Idle
    }

    fn broken(&mut self, bad: TransmissionId, info: ReportInfo) -> Received {
        let dir = self.dir();
        let last = self.parts.len().checked_sub(1).and_then(|last| u32::try_from(last).ok());
        let lead = last.map(|seq| TransmissionId { xid: self.xid, dir, seq });
        self.drop_rest();
        Received::Bad(Report { bad, lead, info })
    }
}

impl Received {
    const fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Take => Self::More,
            Verdict::Complete => Self::Complete,
            Verdict::Pass => Self::Pass,
            // Reports were made earlier, where their fields are known.
            Verdict::Report | Verdict::Drop => Self::Dropped,
        }
    }
}

/// Finds the Payload stream of a transmission that has `rest` octets after its header: at least
/// `min` and at most all of these octets, in whole XDR units.
fn part(pslen: u32, min: usize, length: usize, rest: usize) -> Result<Part, OutOfRange> {
    let start = length.saturating_sub(rest);
    let payload = usize::try_from(pslen).unwrap_or(usize::MAX);
    if payload < min || payload > rest || !payload.is_multiple_of(UNIT) {
        let word = |octets: usize| u32::try_from(octets).unwrap_or(u32::MAX) & !3;
        return Err(OutOfRange { value: pslen, min: word(min), max: word(rest) });
    }
    Ok(Part { start, end: start.saturating_add(payload), length })
}

#[cfg(test)]
mod tests;
