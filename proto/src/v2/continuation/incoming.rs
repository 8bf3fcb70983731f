//! The receiving side: which message is the next part of what was begun.
//!
//! # Normal operation
//! A peer sends one RPC message at a time, so there is at most one sequence, of a Call or of a Reply.
//! Its first `MIDDLE` says how long the whole Payload stream is: what it carries and what remains.
//! Each further part has to start where the last one ended. Parts may have any size, zero included.
//!
//! # Recovery
//! A part that does not fit ends its sequence; it is reported once, and what still comes of the
//! sequence is dropped without a word. A message of another XID is refused for itself and leaves the
//! sequence as it was: its sender can go on, and both RPCs end. Errors and grants belong to no
//! sequence and disturb none (E12, E13).
//!
//! # Limits
//! The length of the Payload stream is bounded before its first octet is taken. Of refused sequences
//! only the last is remembered: a peer that begins more of them at once hears of each again.

use crate::v2::VERSION;
use crate::v2::error::ErrorBody;
use crate::v2::header::extended::{REPTERR, XMTREQ, XMTRESP};
use crate::v2::header::{
    CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, ERROR, GRANT, Message, Prefix, REPLY_EXTERNAL,
    REPLY_INLINE, REPLY_MIDDLE,
};

/// What an RPC message is, which its header type says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Call, in the direction in which its sender is the Requester.
    Call,
    /// A Reply.
    Reply,
}

impl Kind {
    /// Returns what a message conveys, if it conveys an RPC message.
    pub const fn of(prefix: &Prefix) -> Option<Self> {
        match prefix.htype {
            CALL_EXTERNAL | CALL_MIDDLE | CALL_INLINE | XMTREQ => Some(Self::Call),
            REPLY_EXTERNAL | REPLY_MIDDLE | REPLY_INLINE | XMTRESP => Some(Self::Reply),
            _ => None,
        }
    }
}

/// Where the Payload octets of the message just received belong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What they are part of.
    pub kind: Kind,
    /// Of the RPC message.
    pub xid: u32,
    /// Where they start in its Payload stream.
    pub offset: u32,
    /// How many they are.
    pub length: u32,
    /// Octets of the whole Payload stream.
    pub total: u32,
}

/// What to do with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is no part of a sequence.
    Whole,
    /// It goes on with the sequence, or begins it; more parts follow.
    Part(Part),
    /// It is the last part.
    Last(Part),
    /// It belongs to a sequence that was refused: nothing is said.
    Dropped,
    /// Its sequence ends here with this error, or does not begin.
    Broken(ErrorBody),
    /// It has no place in the sequence under way, which goes on without it.
    Intruder,
}

/// The sequence of one peer's messages.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Octets of the largest Payload stream of a Call.
    call_max: u32,
    /// The same of a Reply.
    reply_max: u32,
    current: Option<Sequence>,
    /// The sequence that was refused last, while parts of it may still come.
    refused: Option<Name>,
}

impl Incoming {
    /// Makes the machine for Calls and Replies of at most so many octets; zero if none are taken.
    pub const fn new(call_max: u32, reply_max: u32) -> Self {
        Self { call_max, reply_max, current: None, refused: None }
    }

    /// Judges a message whose transport header was parsed.
    pub fn on_message(&mut self, message: &Message<'_>) -> Step {
        self.on_arrival(&Arrival::of(message))
    }

    /// Judges a message whose transport header could not be parsed. `Whole` leaves it to others.
    pub fn on_malformed(&mut self, prefix: &Prefix) -> Step {
        self.on_arrival(&Arrival::malformed(prefix))
    }

    /// Refuses the sequence of `kind` and `xid`, if it is under way: nobody waits for it any more.
    pub fn refuse(&mut self, kind: Kind, xid: u32) {
        if self.current.is_some_and(|sequence| sequence.name == Name { kind, xid }) {
            self.current = None;
            self.refused = Some(Name { kind, xid });
        }
    }

    /// Returns the kind and XID of the sequence under way.
    pub fn current(&self) -> Option<(Kind, u32)> {
        self.current.map(|sequence| (sequence.name.kind, sequence.name.xid))
    }

    /// Returns whether no sequence is under way, and nothing of a refused one may still come.
    #[inline]
    pub const fn is_idle(&self) -> bool {
        self.current.is_none() && self.refused.is_none()
    }

    /// The whole table: where a message stands to the sequences, and what it is.
    fn on_arrival(&mut self, arrival: &Arrival<'_>) -> Step {
        match (self.relation(arrival), arrival.form) {
            (_, Form::Neutral) | (Relation::None, Form::Single | Form::Other) => Step::Whole,
            (Relation::None, Form::Middle) => self.begin(arrival),
            (Relation::Current(sequence), Form::Middle | Form::Single) => {
                self.go_on(sequence, arrival)
            }
            // [V2-6.3.6-2] [V2-6.3.9-2] nothing else follows a MIDDLE.
            (Relation::Current(_) | Relation::Other, Form::Other) => Step::Intruder,
            (Relation::Other, Form::Middle) => {
                self.refused = arrival.name;
                Step::Intruder
            }
            (Relation::Other, Form::Single) => Step::Intruder,
            // [V2-7.1.4-2] no part of what was refused is taken or answered.
            (Relation::Refused, Form::Middle) => Step::Dropped,
            (Relation::Refused, Form::Single) => {
                self.refused = None;
                Step::Dropped
            }
            (Relation::Refused, Form::Other) => Step::Whole,
        }
    }

    fn relation(&self, arrival: &Arrival<'_>) -> Relation {
        if arrival.name.is_some() && arrival.name == self.refused && arrival.is_tail() {
            return Relation::Refused;
        }
        match self.current {
            Some(sequence) if arrival.name == Some(sequence.name) => Relation::Current(sequence),
            Some(_) => Relation::Other,
            None => Relation::None,
        }
    }

    /// Takes the first part, or remembers what is not begun.
    fn begin(&mut self, arrival: &Arrival<'_>) -> Step {
        let Some(name) = arrival.name else { return Step::Whole };
        match self.first(name, arrival.body) {
            Ok(part) => {
                self.current = Some(Sequence { name, received: part.length, total: part.total });
                Step::Part(part)
            }
            Err(error) => {
                self.refused = Some(name);
                Step::Broken(error)
            }
        }
    }

    fn first(&self, name: Name, body: Option<Body<'_>>) -> Result<Part, ErrorBody> {
        let total_max = match name.kind {
            Kind::Call => self.call_max,
            Kind::Reply => self.reply_max,
        };
        if total_max == 0 {
            // [V2-7.1.3-1] continued messages are not taken.
            return Err(ErrorBody::InvalHtype);
        }
        let Body { payload, length, remaining } = body.ok_or(ErrorBody::BadXdr)?;
        let total = length.checked_add(remaining).filter(|&total| total <= total_max);
        let total = total.ok_or(ErrorBody::InvalCont)?;
        if !names(name.xid, 0, payload) {
            // [V2-7.2.1-1] it is of another RPC message than its header says; no sequence begins.
            return Err(ErrorBody::BadXdr);
        }
        Ok(Part { kind: name.kind, xid: name.xid, offset: 0, length, total })
    }

    /// Takes the next part of `sequence`.
    fn go_on(&mut self, sequence: Sequence, arrival: &Arrival<'_>) -> Step {
        let Sequence { name, received, total } = sequence;
        let is_last = arrival.form == Form::Single;
        self.current = None;
        let Some(end) = sequence.end_of(arrival) else {
            // [V2-7.1.4-1] and nothing of it is kept. What still comes of it is dropped.
            self.refused = arrival.name.filter(|_| !is_last);
            return Step::Broken(ErrorBody::InvalCont);
        };
        let length = end.saturating_sub(received);
        let part = Part { kind: name.kind, xid: name.xid, offset: received, length, total };
        if is_last {
            return Step::Last(part);
        }
        self.current = Some(Sequence { received: end, ..sequence });
        Step::Part(part)
    }
}

/// What a sequence is told by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    kind: Kind,
    xid: u32,
}

/// A continued message of which the last part has not come.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    name: Name,
    /// Octets received.
    received: u32,
    total: u32,
}

impl Sequence {
    /// Returns how much there is with the arrived part, if it is the next one.
    fn end_of(&self, arrival: &Arrival<'_>) -> Option<u32> {
        let body = arrival.body?;
        let end = self.received.checked_add(body.length)?;
        // E7: exactly so much remains as is still to come; nothing behind the last part.
        let fits = end.checked_add(body.remaining) == Some(self.total)
            && names(self.name.xid, self.received, body.payload);
        // The XID itself may come in several parts, but it has to come.
        let is_short = arrival.form == Form::Single && end < XID_LEN;
        (fits && !is_short).then_some(end)
    }
}

/// A message, as far as sequences care.
#[derive(Clone, Copy, Debug)]
struct Arrival<'a> {
    /// Nothing for a message that conveys no RPC message.
    name: Option<Name>,
    form: Form,
    /// Nothing for a malformed message.
    body: Option<Body<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Body<'a> {
    payload: &'a [u8],
    length: u32,
    remaining: u32,
}

/// What a message can be to a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A part that is not the last one.
    Middle,
    /// A message of its own, or the last part.
    Single,
    /// Anything else that may not interrupt a sequence.
    Other,
    /// What may come at any time.
    Neutral,
}

/// Where a message stands to what was begun.
#[derive(Clone, Copy, Debug)]
enum Relation {
    /// No sequence is under way.
    None,
    /// It is of the sequence under way.
    Current(Sequence),
    /// It is not of the sequence under way.
    Other,
    /// It is of the sequence that was refused.
    Refused,
}

impl<'a> Arrival<'a> {
    fn of(message: &Message<'a>) -> Self {
        let body = |payload: &'a [u8], remaining| {
            let length = u32::try_from(payload.len()).ok()?;
            Some(Body { payload, length, remaining })
        };
        let body = match message {
            Message::CallMiddle(part) | Message::ReplyMiddle(part) => {
                body(part.payload, part.remaining)
            }
            Message::CallInline(call) => body(call.payload, 0),
            Message::ReplyInline(reply) => body(reply.payload, 0),
            _ => None,
        };
        Self { body, ..Self::malformed(message.prefix()) }
    }

    fn malformed(prefix: &Prefix) -> Self {
        let form = match prefix.htype {
            // A header type means nothing in another version.
            _ if prefix.vers != VERSION => Form::Neutral,
            CALL_MIDDLE | REPLY_MIDDLE => Form::Middle,
            CALL_INLINE | REPLY_INLINE => Form::Single,
            ERROR | GRANT | REPTERR => Form::Neutral,
            _ => Form::Other,
        };
        let name = Kind::of(prefix).map(|kind| Name { kind, xid: prefix.xid });
        Self { name, form, body: None }
    }

    /// Returns whether it can be a later part of a sequence: a whole message starts with its XID.
    fn is_tail(&self) -> bool {
        let starts = |body: Body<'_>| body.length >= XID_LEN && self.starts_with_xid(body);
        match self.form {
            Form::Middle => true,
            Form::Single => !self.body.is_some_and(starts),
            Form::Other | Form::Neutral => false,
        }
    }

    fn starts_with_xid(&self, body: Body<'_>) -> bool {
        self.name.is_some_and(|name| names(name.xid, 0, body.payload))
    }
}

/// Checks the octets of a Payload stream from `offset` on, as far as they are its XID.
fn names(xid: u32, offset: u32, payload: &[u8]) -> bool {
    // [V2-4.6.1-1] [V2-4.6.2-1] the RPC message has the XID of its header.
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    xid.to_be_bytes().iter().skip(skipped).zip(payload).all(|(expected, found)| expected == found)
}

/// Octets of the XID that a Payload stream starts with.
const XID_LEN: u32 = 4;

#[cfg(test)]
mod tests;
