//! What goes into a connection and what comes out of it.

use core::fmt;

use crate::engine;
pub use crate::engine::Class;
use crate::v1::error::ErrorBody;
use crate::v1::header::{HeaderFault, Message, encode_done, encode_error};
use crate::xdr::{Truncated, Writer};

/// Everything that can happen to a connection. [`Idle`](engine::Input::Idle) means nothing to it.
pub type Input<'a> = engine::Input<'a, Result<Message<'a>, HeaderFault>>;

/// Everything a connection can ask for.
pub type Output = engine::Output<Control, Event, CloseReason>;

/// A message without RPC payload, ready to be encoded.
pub type Control = engine::Control<ControlBody>;

impl Control {
    /// Appends the message to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let Self { xid, vers, credit, body } = *self;
        match body {
            // [R5666-4.2-3] the version its receiver spoke.
            ControlBody::Error(error) => encode_error(w, xid, vers, credit, &error),
            ControlBody::Done => encode_done(w, xid, credit),
        }
    }
}

/// What a control message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlBody {
    /// `RDMA_ERROR`.
    Error(ErrorBody),
    /// `RDMA_DONE`.
    Done,
}

/// Something the application wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Calls may be made.
    Ready,
    /// The message just received is an acceptable Call; a Reply or an error is owed.
    Call,
    /// The message just received is a Reply. If it has a Read list, [`super::Connection::done`] is owed.
    Reply,
    /// The Call with this XID, if it is ours, gets no Reply.
    Refused {
        /// Of the Call.
        xid: u32,
        /// What the peer said, or `Chunk` where we cannot act on its Reply.
        error: ErrorBody,
    },
    /// A malformed message, which may be a Call or the Reply to one of ours. If `xid` is that of an
    /// unanswered Call of ours, it has failed: say [`super::Connection::ended`]. Else say
    /// [`super::Connection::refuse`].
    Malformed {
        /// Of the message.
        xid: u32,
    },
    /// The results of the Reply with this XID need not be exposed any longer.
    Released {
        /// Of the Reply.
        xid: u32,
        /// Whether the client said so; else its time was up.
        done: bool,
    },
}

/// Why a connection closes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer does not speak version 1; it named the versions it speaks.
    Unsupported {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The peer sends more messages than it has credits for.
    CreditOverrun,
    /// The peer provokes errors faster than Receives are reserved for it.
    TooManyErrors,
    /// The client did not say `RDMA_DONE` in time.
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
