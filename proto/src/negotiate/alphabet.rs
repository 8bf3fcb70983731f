//! What goes into a connection of either version and what comes out of it.

use core::fmt;

use crate::chunk::Version;
use crate::engine;
use crate::v1;
use crate::v2;

pub use crate::engine::Class;

/// What a client knows of one server from the connections it had with it.
///
/// A server can change. Whoever keeps this forgets it after a while.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remembered {
    /// Nothing, or that it speaks version 2.
    #[default]
    Nothing,
    /// It does not speak version 2.
    OnlyVersionOne,
}

/// Everything that can happen to a connection. A message is [decoded](super::Connection::decode) by the rules
/// of the version that the connection speaks.
pub type Input<'a> = engine::Input<'a, Received<'a>>;

/// Everything a connection can ask for.
pub type Output = engine::Output<Control, Event, CloseReason>;

/// A received message.
#[derive(Debug)]
pub enum Received<'a> {
    /// By the rules of version 1.
    One(Result<v1::header::Message<'a>, v1::header::HeaderFault>),
    /// By the rules of version 2.
    Two(Result<v2::header::Message<'a>, v2::header::HeaderFault>),
}

/// A message without RPC payload, for [`encode`](super::Connection::encode).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Of version 1.
    One(v1::connection::Control),
    /// Of version 2.
    Two(v2::connection::Control),
}

/// Something the application wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Calls may be made, in this version.
    Ready(Version),
    /// The message just received is, or completes, an acceptable Call; a Reply or an error is owed.
    Call,
    /// The message just received is, or completes, a Reply.
    Reply,
    /// The Call with this XID, if it is ours, gets no Reply.
    Refused {
        /// Of the Call.
        xid: u32,
        /// What the peer said, or what is wrong with its Reply.
        error: Refusal,
    },
    /// What only version 1 has.
    One(v1::connection::Event),
    /// What only version 2 has.
    Two(v2::connection::Event),
}

/// Why a Call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// In version 1's words.
    One(v1::error::ErrorBody),
    /// In version 2's words.
    Two(v2::error::ErrorBody),
}

/// Why a connection closes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// In version 1.
    One(v1::connection::CloseReason),
    /// In version 2, or before any version was settled.
    Two(v2::connection::CloseReason),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(error) => error.fmt(f),
            Self::Two(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(reason) => reason.fmt(f),
            Self::Two(reason) => reason.fmt(f),
        }
    }
}

impl From<v1::connection::Output> for Output {
    fn from(output: v1::connection::Output) -> Self {
        match output {
            v1::connection::Output::Post(control) => Self::Post(Control::One(control)),
            v1::connection::Output::Event(event) => Self::Event(event.into()),
            v1::connection::Output::Close(reason) => Self::Close(CloseReason::One(reason)),
        }
    }
}

impl From<v1::connection::Event> for Event {
    fn from(event: v1::connection::Event) -> Self {
        use v1::connection::Event as One;
        match event {
            One::Ready => Self::Ready(Version::One),
            One::Call => Self::Call,
            One::Reply => Self::Reply,
            One::Refused { xid, error } => Self::Refused { xid, error: Refusal::One(error) },
            One::Malformed { .. } | One::Released { .. } => Self::One(event),
        }
    }
}

impl From<v2::connection::Event> for Event {
    fn from(event: v2::connection::Event) -> Self {
        use v2::connection::Event as Two;
        match event {
            Two::Ready(_) => Self::Ready(Version::Two),
            Two::Call => Self::Call,
            Two::Reply => Self::Reply,
            Two::Refused { xid, error } => Self::Refused { xid, error: Refusal::Two(error) },
            Two::Part(_)
            | Two::Transmission
            | Two::Abandoned { .. }
            | Two::NotSupported { .. }
            | Two::Reported(_) => Self::Two(event),
        }
    }
}

pub(super) const fn class(class: Class) -> v2::credit::Class {
    match class {
        Class::Call => v2::credit::Class::Call,
        Class::Reply => v2::credit::Class::Reply,
    }
}

/// Decodes a version 1 message.
pub(super) fn decode_one(message: &[u8]) -> Received<'_> {
    Received::One(v1::header::decode(message))
}

/// Decodes what a server says in version 1 to a client that spoke version 2. RFC 5666 lets it refuse in
/// any version its client knows, so that is understood; nothing else is.
pub(super) fn decode_refusal(message: &[u8]) -> Received<'_> {
    use v1::error::ErrorBody::Vers;
    use v1::header::{Message, Prefix};
    let decoded = v1::header::decode_transport(message);
    let Ok(Message::Error { prefix, error: Vers { low, high } }) = decoded else {
        return Received::Two(v2::header::decode_transport(message));
    };
    let Prefix { xid, vers, credit, proc } = prefix;
    let prefix = v2::header::Prefix { xid, vers, credit, htype: proc };
    let error = v2::error::ErrorBody::Vers { low, high };
    Received::Two(Ok(v2::header::Message::Error { prefix, error }))
}

/// Returns whether a message shows that the peer speaks version 2.
pub(super) const fn is_version_two(
    message: &Result<v2::header::Message<'_>, v2::header::HeaderFault>,
) -> bool {
    use v2::error::ErrorBody::Vers;
    use v2::header::Message;
    match message {
        Ok(Message::Error { error: Vers { .. }, .. }) => false,
        Ok(_) => true,
        Err(fault) => matches!(&fault.prefix, Some(prefix) if prefix.vers == v2::VERSION),
    }
}
