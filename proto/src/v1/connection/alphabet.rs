//! The inputs and outputs of a version 1 connection.

use core::fmt;

use crate::engine;
pub use crate::engine::Class;
use crate::v1::error::ErrorBody;
use crate::v1::header::{HeaderFault, Message, encode_done, encode_error};
use crate::xdr::{Truncated, Writer};

/// An input to a connection. It ignores [`Idle`](engine::Input::Idle).
pub type Input<'a> = engine::Input<'a, Result<Message<'a>, HeaderFault>>;

/// An action that a connection asks its caller for.
pub type Output = engine::Output<Control, Event, CloseReason>;

/// A control message, ready to be encoded.
pub type Control = engine::Control<ControlBody>;

impl Control {
    /// Appends the message to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let Self { xid, vers, credit, body } = *self;
        match body {
            // [R5666-4.2-3] an error has the version of the message that it answers.
            ControlBody::Error(error) => encode_error(w, xid, vers, credit, &error),
            ControlBody::Done => encode_done(w, xid, credit),
        }
    }
}

/// The content of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlBody {
    /// `RDMA_ERROR`.
    Error(ErrorBody),
    /// `RDMA_DONE`.
    Done,
}

/// An event to report to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The connection is ready for Calls.
    Ready,
    /// The message just received is an acceptable Call, which a Reply or an error must answer.
    Call,
    /// The message just received is a Reply. If it has the XID of an unanswered Call, the application calls
    /// [`super::Connection::ended`] and, if it has a Read list, [`super::Connection::done`].
    Reply,
    /// The Call with this XID, if it is an unanswered Call of ours, gets no Reply. The application then calls
    /// [`super::Connection::ended`].
    Refused {
        /// The XID of the Call.
        xid: u32,
        /// The peer's error, or `Chunk` if its Reply cannot be used.
        error: ErrorBody,
    },
    /// The message just received is malformed; it may be a Call or the Reply to a Call of this end.
    /// If `xid` is that of an unanswered Call, that Call has failed, and the application calls
    /// [`super::Connection::ended`]; otherwise it calls [`super::Connection::refuse`].
    Malformed {
        /// The XID of the message.
        xid: u32,
    },
    /// The peer answers the Call with this XID by saying that it does not support version 1. If it is an unanswered
    /// Call of ours, the application calls [`super::Connection::ended`], which closes the connection.
    Unsupported {
        /// The XID of the Call.
        xid: u32,
    },
    /// The results of the Reply with this XID no longer need to be exposed.
    Released {
        /// The XID of the Reply.
        xid: u32,
        /// Whether the client sent `RDMA_DONE`; false after a timeout.
        done: bool,
    },
}

/// Why a connection closes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer does not support version 1; it listed the versions it supports.
    Unsupported {
        /// The lowest version that the peer supports.
        low: u32,
        /// The highest version that the peer supports.
        high: u32,
    },
    /// The peer sent more messages than it has credits for.
    CreditOverrun,
    /// The peer provoked errors faster than Receives were reserved for it.
    TooManyErrors,
    /// The client did not send `RDMA_DONE` in time.
    DoneTimedOut,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported { low, high } => {
                write!(f, "the peer speaks RPC-over-RDMA version {low} to {high}, we speak 1")
            }
            Self::CreditOverrun => {
                f.write_str("the peer sent more messages than it has credits for")
            }
            Self::TooManyErrors => f.write_str("the peer provokes more errors than can wait"),
            Self::DoneTimedOut => f.write_str("the peer never said that it is done with a reply"),
        }
    }
}
