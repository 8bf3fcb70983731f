//! The inputs and outputs of a connection of either version.

use core::fmt;

use crate::chunk::Version;
use crate::engine;
use crate::v1;
use crate::v2;
use crate::v2::continuation::Kind;

pub use crate::engine::Class;

/// The knowledge of a client about one server from earlier connections.
///
/// A server can be upgraded, so a client should forget this after some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remembered {
    /// Nothing is known, or the server supports version 2.
    #[default]
    Nothing,
    /// The server does not support version 2.
    OnlyVersionOne,
}

/// An input to a connection. The caller [decodes](super::Connection::decode) received messages by the rules of the
/// connection's version.
pub type Input<'a> = engine::Input<'a, Received<'a>>;

/// An action that a connection asks its caller for.
pub type Output = engine::Output<Control, Event, CloseReason>;

/// A received and decoded message.
#[derive(Debug)]
pub enum Received<'a> {
    /// A message decoded by the rules of version 1.
    One(Result<v1::header::Message<'a>, v1::header::HeaderFault>),
    /// A message decoded by the rules of version 2.
    Two(Result<v2::header::Message<'a>, v2::header::HeaderFault>),
}

/// A control message, which [`encode`](super::Connection::encode) encodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// A control message of version 1.
    One(v1::connection::Control),
    /// A control message of version 2.
    Two(v2::connection::Control),
}

/// An event to report to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is ready for Calls, in this version.
    Ready(Version),
    /// The message just received is, or completes, an acceptable Call, which a Reply or an error
    /// must answer.
    Call,
    /// The message just received is, or completes, a Reply. If it answers a Call of ours, the application calls
    /// [`super::Connection::ended`].
    Reply,
    /// The Call with this XID, if it is ours, gets no Reply. The application then calls [`super::Connection::ended`].
    Refused {
        /// The XID of the Call.
        xid: u32,
        /// The peer's error, or the fault in its Reply.
        error: Refusal,
    },
    /// An event that only version 1 has.
    One(v1::connection::Event),
    /// An event that only version 2 has.
    Two(v2::connection::Event),
}

/// Why a Call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// An error of version 1.
    One(v1::error::ErrorBody),
    /// An error of version 2.
    Two(v2::error::ErrorBody),
}

/// Why a connection closes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The reason of a version 1 connection.
    One(v1::connection::CloseReason),
    /// The reason of a version 2 connection, or of one whose version was not settled.
    Two(v2::connection::CloseReason),
    /// The peer supports neither version; it listed the versions it supports.
    Neither {
        /// The lowest version that the peer supports.
        low: u32,
        /// The highest version that the peer supports.
        high: u32,
    },
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
            Self::Neither { low, high } => {
                write!(f, "the peer speaks RPC-over-RDMA version {low} to {high}, we speak 1 and 2")
            }
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
            One::Malformed { .. } | One::Unsupported { .. } | One::Released { .. } => {
                Self::One(event)
            }
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
            | Two::Transmission(_)
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

pub(super) const fn of_kind(kind: Kind) -> Class {
    match kind {
        Kind::Call => Class::Call,
        Kind::Reply => Class::Reply,
    }
}

/// Decodes a version 1 message.
pub(super) fn decode_one(message: &[u8]) -> Received<'_> {
    Received::One(v1::header::decode(message))
}

/// Decodes the version 1 answer of a server to a client that sent version 2. RFC 5666 lets a server refuse in any
/// version that its client knows, so a refusal is understood; nothing else is.
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
