//! The receiver of continued messages: it decides which message is the next part.
//!
//! # Normal operation
//! A peer sends one RPC message at a time, so there is at most one sequence, of a Call or of a Reply. Its first
//! `MIDDLE` determines the length of the whole Payload stream: the octets it carries and those that remain. Each
//! further part has to start where the last one ended. Parts may have any size, zero included.
//!
//! # Recovery
//! A part that does not fit ends its sequence; it is reported once, and later parts of the sequence are dropped
//! silently. So are the parts of a sequence that was refused because it is too long, or because it is not needed; but one
//! that is not the next and begins with the XID begins the message anew. A message of another XID is refused by itself and leaves the sequence as it was: its sender can continue
//! it, and both RPCs end. Errors and grants belong to no sequence and interrupt none (E12, E13).
//!
//! # Limits
//! The length of the Payload stream is checked before its first octet is accepted. Only the last refused sequence is
//! remembered: a peer that interleaves several of them gets an error for each part.

use crate::v2::VERSION;
use crate::v2::error::ErrorBody;
use crate::v2::header::extended::{REPTERR, XMTREQ, XMTRESP};
use crate::v2::header::{
    CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, ERROR, GRANT, Message, Prefix, REPLY_EXTERNAL,
    REPLY_INLINE, REPLY_MIDDLE,
};

/// The kind of an RPC message, which its header type gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Call, whose sender is the Requester.
    Call,
    /// A Reply.
    Reply,
}

impl Kind {
    /// Returns the kind of the RPC message that a message conveys, if it conveys one.
    pub const fn of(prefix: &Prefix) -> Option<Self> {
        match prefix.htype {
            CALL_EXTERNAL | CALL_MIDDLE | CALL_INLINE | XMTREQ => Some(Self::Call),
            REPLY_EXTERNAL | REPLY_MIDDLE | REPLY_INLINE | XMTRESP => Some(Self::Reply),
            _ => None,
        }
    }
}

/// One part of a continued message: the place of its octets in the Payload stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The kind of the RPC message.
    pub kind: Kind,
    /// The XID of the RPC message.
    pub xid: u32,
    /// The offset of the part in the Payload stream.
    pub offset: u32,
    /// The length of the part in octets.
    pub length: u32,
    /// The length of the whole Payload stream in octets.
    pub total: u32,
    /// Whether the part begins its sequence. Its offset does not say so: parts without octets may come first.
    pub is_first: bool,
}

/// The verdict on a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The message is not part of a sequence.
    Whole,
    /// The message begins or continues the sequence; more parts follow.
    Part(Part),
    /// The message is the last part of the sequence.
    Last(Part),
    /// The message belongs to a refused sequence and is dropped silently.
    Dropped,
    /// The sequence of the message ends with this error, or does not begin.
    Broken(ErrorBody),
    /// The message has no place in the current sequence, which is not affected.
    Intruder,
}

/// The state of one peer's continued messages.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// The length of the longest Payload stream of a Call, in octets.
    call_max: u32,
    /// The length of the longest Payload stream of a Reply, in octets.
    reply_max: u32,
    current: Option<Sequence>,
    /// The sequence that was refused last, while parts of it may still arrive.
    refused: Option<Refused>,
}

impl Incoming {
    /// Makes the state machine for continued Calls of at most `call_max` octets and continued
    /// Replies of at most `reply_max` octets; zero accepts none.
    pub const fn new(call_max: u32, reply_max: u32) -> Self {
        Self { call_max, reply_max, current: None, refused: None }
    }

    /// Handles a message whose transport header was decoded.
    pub fn on_message(&mut self, message: &Message<'_>) -> Step {
        self.on_arrival(&Arrival::of(message))
    }

    /// Handles a message whose transport header could not be decoded. `Whole` means that it is not
    /// part of a sequence.
    pub fn on_malformed(&mut self, prefix: &Prefix) -> Step {
        self.on_arrival(&Arrival::malformed(prefix))
    }

    /// Refuses the sequence of `kind` and `xid`, if it is the current one, because its receiver no
    /// longer needs it.
    pub fn refuse(&mut self, kind: Kind, xid: u32) {
        let name = Name { kind, xid };
        if let Some(sequence) = self.current.take_if(|sequence| sequence.name == name) {
            let left = sequence.total.saturating_sub(sequence.received);
            self.refused = Some(Refused { name, left: Some(left) });
        }
    }

    /// Returns the kind and XID of the current sequence.
    pub fn current(&self) -> Option<(Kind, u32)> {
        self.current.map(|sequence| (sequence.name.kind, sequence.name.xid))
    }

    /// Returns whether there is no current sequence, and no part of a refused one may still arrive.
    #[inline]
    pub const fn is_idle(&self) -> bool {
        self.current.is_none() && self.refused.is_none()
    }

    /// Applies the transition table: the relation of a message to the sequences, and its form.
    fn on_arrival(&mut self, arrival: &Arrival<'_>) -> Step {
        match (self.relation(arrival), arrival.form) {
            (_, Form::Neutral) | (Relation::None, Form::Single | Form::Other) => Step::Whole,
            (Relation::None, Form::Middle) => self.begin(arrival),
            (Relation::Current(sequence), Form::Middle | Form::Single) => {
                self.go_on(sequence, arrival)
            }
            // [V2-6.3.6-2] [V2-6.3.9-2] no message of another sequence follows a MIDDLE.
            //~ V2-6.3.9-2: `Step::Intruder` -> `Step::Whole`
            (Relation::Other, Form::Other) => Step::Intruder,
            // The RPC message comes in another form now: its parts do not go on.
            (Relation::Current(sequence), Form::Other) => {
                self.refuse(sequence.name.kind, sequence.name.xid);
                Step::Broken(ErrorBody::InvalCont)
            }
            (Relation::Other, Form::Middle) => {
                self.refused = arrival.name.map(Refused::wholly);
                Step::Intruder
            }
            (Relation::Other, Form::Single) => Step::Intruder,
            // [V2-7.1.4-2] further parts of a refused sequence are neither taken nor answered.
            (Relation::Refused, Form::Middle) => {
                if let (Some(refused), Some(body)) = (&mut self.refused, arrival.body) {
                    refused.left = refused.left.map(|_| body.remaining);
                }
                //~ V2-7.1.4-2: `Step::Dropped` -> `self.begin(arrival)`
                Step::Dropped
            }
            (Relation::Refused, Form::Single) => {
                self.refused = None;
                //~ V2-7.1.4-2: `Dropped` -> `Whole`
                Step::Dropped
            }
            (Relation::Refused, Form::Other) => Step::Whole,
        }
    }

    fn relation(&self, arrival: &Arrival<'_>) -> Relation {
        if self.refused.is_some_and(|refused| refused.goes_on_with(arrival)) {
            return Relation::Refused;
        }
        match self.current {
            Some(sequence) if arrival.name == Some(sequence.name) => Relation::Current(sequence),
            //~ V2-6.3.6-2: `Some(_) => Relation::Other,` ->
            //~   `Some(it) if it.name.kind == Kind::Reply => Relation::Other, Some(_) => Relation::None,`
            //~ V2-6.3.9-2: `Some(_) => Relation::Other,` ->
            //~   `Some(it) if it.name.kind == Kind::Call => Relation::Other, Some(_) => Relation::None,`
            Some(_) => Relation::Other,
            None => Relation::None,
        }
    }

    /// Begins a sequence with its first part, or remembers one that is refused.
    fn begin(&mut self, arrival: &Arrival<'_>) -> Step {
        let Some(name) = arrival.name else { return Step::Whole };
        match self.first(name, arrival.body) {
            Ok(part) => {
                self.current = Some(Sequence { name, received: part.length, total: part.total });
                self.refused.take_if(|refused| refused.name == name);
                Step::Part(part)
            }
            Err(error) => {
                let is_long = error == ErrorBody::System;
                let left = arrival.body.filter(|_| is_long).map(|body| body.remaining);
                //~ V2-7.4.1-2: `Some(Refused { name, left })` -> `None`
                self.refused = Some(Refused { name, left });
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
        let total = length.checked_add(remaining).ok_or(ErrorBody::InvalCont)?;
        if total > total_max {
            // E25: there is nothing wrong with it.
            return Err(ErrorBody::System);
        }
        if !names(name.xid, 0, payload) {
            // [V2-7.2.1-1] the payload is of another RPC message than the header says, so no sequence begins.
            return Err(ErrorBody::BadXdr);
        }
        let Name { kind, xid } = name;
        Ok(Part { kind, xid, offset: 0, length, total, is_first: true })
    }

    /// Continues `sequence` with its next part.
    fn go_on(&mut self, sequence: Sequence, arrival: &Arrival<'_>) -> Step {
        let Sequence { name, received, total } = sequence;
        let is_last = arrival.form == Form::Single;
        self.current = None;
        let Some(end) = sequence.end_of(arrival) else {
            // [V2-7.1.4-1] nothing of the broken sequence is kept, and its further parts are dropped.
            self.refused = arrival.name.filter(|_| !is_last).map(Refused::wholly);
            //~ V2-7.1.4-1: `InvalCont` -> `BadXdr`
            return Step::Broken(ErrorBody::InvalCont);
        };
        let length = end.saturating_sub(received);
        let Name { kind, xid } = name;
        let part = Part { kind, xid, offset: received, length, total, is_first: false };
        if is_last {
            return Step::Last(part);
        }
        self.current = Some(Sequence { received: end, ..sequence });
        Step::Part(part)
    }
}

/// The identity of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Name {
    kind: Kind,
    xid: u32,
}

/// A sequence that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Refused {
    name: Name,
    /// The octets that its next part begins with as still to come; `None` if its parts did not fit together.
    left: Option<u32>,
}

impl Refused {
    /// A sequence whose parts did not fit together: whatever comes of it is dropped.
    const fn wholly(name: Name) -> Self {
        Self { name, left: None }
    }

    /// Returns whether a message belongs to the sequence.
    fn goes_on_with(&self, arrival: &Arrival<'_>) -> bool {
        arrival.name == Some(self.name) && arrival.is_tail() && !self.begins_anew(arrival)
    }

    /// Returns whether a part is not the next one, and begins with the XID: E25, the peer sends the message again.
    fn begins_anew(&self, arrival: &Arrival<'_>) -> bool {
        let Some((left, body)) = self.left.zip(arrival.body) else { return false };
        let is_next = body.length.checked_add(body.remaining) == Some(left);
        arrival.form == Form::Middle && !is_next && arrival.starts(body)
    }
}

/// A continued message whose last part has not arrived.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    name: Name,
    /// The number of octets received.
    received: u32,
    total: u32,
}

impl Sequence {
    /// Returns the number of octets received with the arrived part, if it is the next one.
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

/// The properties of a message that matter to sequences.
#[derive(Clone, Copy, Debug)]
struct Arrival<'a> {
    /// The identity of the RPC message; `None` for a message that conveys none.
    name: Option<Name>,
    form: Form,
    /// The body of the message; `None` for a malformed message.
    body: Option<Body<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Body<'a> {
    payload: &'a [u8],
    length: u32,
    remaining: u32,
}

/// The form of a message with respect to sequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A part that is not the last one.
    Middle,
    /// A complete message, or the last part.
    Single,
    /// Any other message that must not interrupt a sequence.
    Other,
    /// A message that may arrive at any time.
    Neutral,
}

/// The relation of a message to the sequences.
#[derive(Clone, Copy, Debug)]
enum Relation {
    /// There is no current sequence.
    None,
    /// The message belongs to the current sequence.
    Current(Sequence),
    /// The message does not belong to the current sequence.
    Other,
    /// The message belongs to the refused sequence.
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

    /// Returns whether the message can be a later part of a sequence: a complete message starts
    /// with its XID.
    fn is_tail(&self) -> bool {
        match self.form {
            Form::Middle => true,
            Form::Single => !self.body.is_some_and(|body| self.starts(body)),
            Form::Other | Form::Neutral => false,
        }
    }

    /// Returns whether the octets of a body begin with the whole XID.
    fn starts(&self, body: Body<'_>) -> bool {
        body.length >= XID_LEN && self.name.is_some_and(|name| names(name.xid, 0, body.payload))
    }
}

/// Checks the octets of a Payload stream from `offset` on against its XID.
fn names(xid: u32, offset: u32, payload: &[u8]) -> bool {
    // [V2-4.6.1-1] [V2-4.6.2-1] the RPC message has the XID of its header.
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    xid.to_be_bytes().iter().skip(skipped).zip(payload).all(|(expected, found)| expected == found)
}

/// The length of the XID that a Payload stream starts with, in octets.
const XID_LEN: u32 = 4;

#[cfg(test)]
mod tests;
