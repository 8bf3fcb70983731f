//! What goes into a connection and what comes out of it.

use core::fmt;

use crate::v1::error::ErrorBody;
use crate::v1::header::{HeaderFault, Message, encode_done, encode_error};
use crate::xdr::{Truncated, Writer};

/// Everything that can happen to a connection.
#[derive(Debug)]
pub enum Input<'a> {
    /// The queue pair carries messages now.
    Established,
    /// A Receive completed; this is what it held.
    Received(&'a Result<Message<'a>, HeaderFault>),
    /// The deadline last returned by [`super::Connection::poll_deadline`] has passed.
    Deadline,
}

/// Everything a connection can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Encode and post this control message, in this order, before any message asked for later.
    Post(Control),
    /// Tell the application.
    Event(Event),
    /// Close the connection and destroy every registration of it.
    Close(CloseReason),
}

/// A message without RPC payload, ready to be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Names the message it is about.
    pub xid: u32,
    /// The version word: ours, except where the peer's must be echoed.
    pub vers: u32,
    /// The credit word.
    pub credit: u32,
    /// What it says.
    pub body: ControlBody,
}

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

/// What an RPC message is, as far as credits care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A Call.
    Call,
    /// A Reply.
    Reply,
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
