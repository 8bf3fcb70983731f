//! Transmission groups as they arrive (section 4.2): which transmission may come next.
//!
//! # Normal operation
//! A group begins with `ROPT_XMTREQ` or `ROPT_XMTRESP`, which says how many transmissions it has, and
//! goes on with as many `ROPT_XMTCONT`, numbered from 1 and with nothing in between. What is remembered
//! of each is where its Payload stream stands; the octets stay in the Receives they arrived in.
//!
//! # Recovery
//! What breaks a group ends it, and the message that broke it is dropped as well. One report names
//! both; whatever continuations still arrive are dropped in silence (E18).
//!
//! # Limits
//! A group has no more transmissions than its receiver announced, and it remembers no more than have
//! arrived.

use alloc::vec::Vec;
use core::ops::Range;

use super::report::{Expected, MessageType, OutOfRange, Report, ReportInfo, TransmissionId};
use super::{Continue, REPTERR, XMTCONT};
use crate::v2::header::Prefix;
use crate::xdr::UNIT;

/// What is being received.
#[derive(Debug, Default)]
pub struct Group {
    state: State,
    xid: u32,
    reply: bool,
    /// Transmissions the group has.
    count: u32,
    parts: Vec<Part>,
}

/// How far a group has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// There is none: a first transmission may come.
    #[default]
    Idle,
    /// It goes on.
    Open,
    /// It was broken; what is left of it is still on its way.
    Broken,
}

/// What arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first transmission of a group that has no other.
    Only,
    /// The first transmission of any other group.
    First,
    /// The continuation that is due, and not the last.
    Next,
    /// The continuation that is due, and the last.
    Last,
    /// Another continuation.
    Stray,
    /// A message of the base protocol that is neither a grant nor an error.
    Base,
    /// A grant or an error: neutral, as what it is about is something else (E12, E13).
    Neutral,
}

/// A message of the base protocol, which is no transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Other {
    /// It is neither a grant nor an error.
    Base,
    /// It is a grant or an error.
    Neutral,
}

/// What is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is taken.
    Take,
    /// It is taken and completes its RPC message.
    Complete,
    /// It has nothing to do with groups.
    Pass,
    /// It is reported and dropped.
    Report,
    /// It is dropped.
    Drop,
}

impl State {
    /// The whole transition table.
    pub const fn on(self, event: Event) -> (Self, Verdict) {
        match (self, event) {
            (Self::Idle | Self::Broken, Event::Only) => (Self::Idle, Verdict::Complete),
            (Self::Idle | Self::Broken, Event::First) => (Self::Open, Verdict::Take),
            (Self::Open, Event::Next) => (Self::Open, Verdict::Take),
            (Self::Open, Event::Last) => (Self::Idle, Verdict::Complete),
            (state, Event::Neutral) => (state, Verdict::Pass),
            (Self::Idle | Self::Broken, Event::Base) => (Self::Idle, Verdict::Pass),
            // [RTR-4.2-1] nothing comes in between, and every transmission in its turn.
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

/// Where the Payload stream stands in one transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset of its first octet in the message.
    pub start: usize,
    /// Offset behind its last.
    pub end: usize,
    /// Octets of the whole message.
    pub length: usize,
}

impl Part {
    /// Returns the octets of the Payload stream.
    pub const fn payload(&self) -> Range<usize> {
        self.start..self.end
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is one of several; the others are to come.
    More,
    /// With it an RPC message is complete.
    Complete,
    /// It is what the caller makes of it.
    Pass,
    /// It is dropped without a word.
    Dropped,
    /// It is dropped, and with it the group it broke. The peer is to be told.
    Bad(Report),
}

/// The fields that every first transmission has.
#[derive(Clone, Copy, Debug)]
pub struct First {
    /// Of the RPC message.
    pub xid: u32,
    /// Which way it goes.
    pub dir: MessageType,
    /// Its header type.
    pub htype: u32,
    /// Transmissions of its group.
    pub count: u32,
    /// The most that may be.
    pub count_max: u32,
    /// Octets of the Payload stream in it.
    pub pslen: u32,
}

impl Group {
    /// Takes the first transmission of a group; the header is followed by `rest` octets of the
    /// message's `length`.
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

    /// Takes a continuation.
    pub fn next(&mut self, xid: u32, part_of: &Continue<'_>, length: usize) -> Received {
        let due = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let open = self.state == State::Open;
        // [RTR-9.4-1] a continuation has the XID of the first transmission.
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
                // Nothing before it led to this.
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

    /// Tells of a message that is not a transmission: whether it breaks the group.
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

    /// Ends the group because of what a transmission of it holds: `bad` is the last that arrived.
    pub fn refuse(&mut self, info: ReportInfo) -> Report {
        let seq = u32::try_from(self.parts.len().saturating_sub(1)).unwrap_or(u32::MAX);
        let bad = TransmissionId { xid: self.xid, dir: self.dir(), seq };
        // What an item says stands in the first transmission.
        let lead = (seq > 0).then_some(TransmissionId { seq: 0, ..bad });
        self.drop_rest();
        Report { bad, lead, info }
    }

    /// Ends the group without a word; continuations of it that still arrive are dropped.
    pub fn drop_rest(&mut self) {
        self.state = State::Broken;
        self.parts.clear();
    }

    /// Returns the XID of the RPC message received last.
    pub const fn xid(&self) -> u32 {
        self.xid
    }

    /// Returns which way the RPC message received last goes.
    pub const fn dir(&self) -> MessageType {
        if self.reply { MessageType::Reply } else { MessageType::Call }
    }

    /// Returns what has arrived of it.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns whether a group has begun and not ended.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
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
            // Every report has been made where its fields are known.
            Verdict::Report | Verdict::Drop => Self::Dropped,
        }
    }
}

/// Finds the Payload stream of a transmission, which has `rest` octets behind its header: at least
/// `min` octets of it, at most all, in whole XDR units.
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
