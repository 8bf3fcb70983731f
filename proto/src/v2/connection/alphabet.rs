//! What goes into a connection and what comes out of it.

use core::fmt;

use crate::engine;
use crate::rtrext::Report;
use crate::v2::continuation::Part;
use crate::v2::credit::CreditFault;
use crate::v2::error::ErrorBody;
use crate::v2::header::{HeaderFault, Message};
use crate::v2::host_auth::Refused;
use crate::v2::properties::Properties;
use crate::v2::setup;

/// Everything that can happen to a connection. A message is
/// [decoded](crate::v2::header::decode_transport) without a look at its Payload stream.
pub type Input<'a> = engine::Input<'a, Result<Message<'a>, HeaderFault>>;

/// Everything a connection can ask for.
pub type Output = engine::Output<Control, Event, CloseReason>;

/// A message without RPC payload, for [`encode`](super::Connection::encode).
///
/// It is never sent with invalidation (section 6.5).
pub type Control = engine::Control<ControlBody>;

/// What a control message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlBody {
    /// `RDMA2_GRANT`.
    Grant,
    /// `RDMA2_ERROR`.
    Error(ErrorBody),
    /// `ROPT_REPTERR`.
    Report(Report),
    /// `RDMA2_CONNPROP_MIDDLE` or `RDMA2_CONNPROP_FINAL` with what is due of our properties.
    Properties {
        /// Whether it is the FINAL.
        last: bool,
    },
}

/// Something the application wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Calls may be made; these are the peer's properties.
    Ready(Properties),
    /// The payload of the message just received is this part of a continued message. Behind the last
    /// part comes the event of the whole.
    Part(Part),
    /// The message just received is, or completes, an acceptable Call; a Reply or an error is owed.
    Call,
    /// The message just received is, or completes, a Reply.
    Reply,
    /// The message just received is one transmission of several. Its Receive is kept until the event of
    /// the whole, or until that is abandoned.
    Transmission,
    /// Of the continued Call with this XID, or of the message in several transmissions, nothing more
    /// will come.
    Abandoned {
        /// Of the message.
        xid: u32,
    },
    /// The peer refuses transmissions of ours ([`crate::rtrext`]). What they were of can be sent again
    /// by the base protocol: a Call as it is, a Reply after
    /// [`answer_again`](super::Connection::answer_again).
    Reported(Report),
    /// The peer does not support the header type of the Call with this XID, if it is ours. Tell which
    /// format that Call had: [`not_supported`](super::Connection::not_supported). [`Self::Refused`] comes
    /// next.
    NotSupported {
        /// Of the Call.
        xid: u32,
    },
    /// The Call with this XID, if it is ours, gets no Reply.
    Refused {
        /// Of the Call.
        xid: u32,
        /// What the peer said, or what is wrong with its Reply.
        error: ErrorBody,
    },
}

/// Why a connection closes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer did not come to the end of setup in time.
    SetupTimedOut,
    /// The peer does not speak version 2; it named the versions it speaks. Nothing else has come of
    /// the connection: who speaks one of them may go on with it in that version.
    Unsupported {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The peer has settled on another version than the one we speak.
    VersionRefused,
    /// The peer's credit word is beyond anything it can mean.
    ImplausibleCredit,
    /// The peer sends more messages than it has credits for.
    CreditOverrun,
    /// The peer provokes errors and grants no credit to report them.
    TooManyErrors,
    /// The peer refused our properties.
    SetupRefused,
    /// The peer's properties do not end.
    SetupTooLong,
    /// The peer does not authenticate itself, and has to.
    Unauthenticated,
    /// Host authentication failed.
    HostAuth(Refused),
    /// The peer refused a message that may be our Call or our Reply (E13).
    Ambiguous,
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SetupTimedOut => "the peer did not send its properties in time",
            Self::Unsupported { low, high } => {
                return write!(
                    f,
                    "the peer speaks RPC-over-RDMA version {low} to {high}, we speak 2"
                );
            }
            Self::VersionRefused => "the peer refused the version that the connection has",
            Self::ImplausibleCredit => "the peer sent an implausible credit limit",
            Self::CreditOverrun => "the peer sent more messages than it has credits for",
            Self::TooManyErrors => "the peer provokes errors without granting credit",
            Self::SetupRefused => "the peer refused our properties",
            Self::SetupTooLong => "the peer's properties are too long",
            Self::Unauthenticated => "the peer does not authenticate itself, and has to",
            Self::HostAuth(refused) => return refused.fmt(f),
            Self::Ambiguous => "the peer refused a message that may be our call or our reply",
        })
    }
}

impl From<CreditFault> for CloseReason {
    fn from(fault: CreditFault) -> Self {
        match fault {
            CreditFault::Implausible => Self::ImplausibleCredit,
            CreditFault::Overrun => Self::CreditOverrun,
        }
    }
}

impl From<setup::Fault> for CloseReason {
    fn from(fault: setup::Fault) -> Self {
        match fault {
            setup::Fault::Unauthenticated => Self::Unauthenticated,
            setup::Fault::Refused(refused) => Self::HostAuth(refused),
            setup::Fault::TooLong => Self::SetupTooLong,
        }
    }
}
