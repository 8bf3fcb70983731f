//! The inputs and outputs of a version 2 connection.

use core::fmt;

use crate::engine;
use crate::rtrext::Report;
use crate::rtrext::group::Transmission;
use crate::v2::continuation::Part;
use crate::v2::credit::CreditFault;
use crate::v2::error::ErrorBody;
use crate::v2::header::{HeaderFault, Message};
use crate::v2::host_auth::Refused;
use crate::v2::properties::Properties;
use crate::v2::setup;

/// An input to a connection. The caller decodes received messages by
/// [`decode_transport`](crate::v2::header::decode_transport), which does not examine the Payload
/// stream.
pub type Input<'a> = engine::Input<'a, Result<Message<'a>, HeaderFault>>;

/// An action that a connection asks its caller for.
pub type Output = engine::Output<Control, Event, CloseReason>;

/// A control message, which [`encode`](super::Connection::encode) encodes.
///
/// Control messages are never sent with invalidation (section 6.5).
pub type Control = engine::Control<ControlBody>;

/// The content of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ControlBody {
    /// `RDMA2_GRANT`.
    Grant,
    /// `RDMA2_ERROR`.
    Error(ErrorBody),
    /// `ROPT_REPTERR`.
    Report(Report),
    /// `RDMA2_CONNPROP_MIDDLE` or `RDMA2_CONNPROP_FINAL` with the next of this end's properties.
    Properties {
        /// Whether the message is `RDMA2_CONNPROP_FINAL`.
        last: bool,
    },
}

/// An event to report to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The connection is ready for Calls; these are the peer's properties.
    Ready(Properties),
    /// The payload of the message just received is this part of a continued message. After the last part the connection
    /// reports [`Self::Call`] or [`Self::Reply`].
    Part(Part),
    /// The message just received is, or completes, an acceptable Call, which a Reply or an error
    /// must answer.
    Call,
    /// The message just received is, or completes, a Reply.
    Reply,
    /// The message just received is one of several transmissions. Its octets must be kept until the RPC message is
    /// reported or abandoned.
    Transmission(Transmission),
    /// The continued Call with this XID, or the message in several transmissions, will not be completed.
    Abandoned {
        /// The XID of the message.
        xid: u32,
    },
    /// The peer refused transmissions of this end ([`crate::rtrext`]). The RPC message can be sent again by the base
    /// protocol: a Call as it is, a Reply after [`answer_again`](super::Connection::answer_again).
    Reported(Report),
    /// The peer does not support the header type of this end's Call with this XID. The application passes the format of
    /// that Call to [`not_supported`](super::Connection::not_supported). [`Self::Refused`] is reported next.
    NotSupported {
        /// The XID of the Call.
        xid: u32,
    },
    /// This end's Call with this XID, if there is one, gets no Reply.
    Refused {
        /// The XID of the Call.
        xid: u32,
        /// The peer's error, or the fault in its Reply.
        error: ErrorBody,
    },
}

/// Why a connection closes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CloseReason {
    /// The peer did not complete setup in time.
    SetupTimedOut,
    /// The peer does not support version 2; it listed the versions it supports. Nothing else
    /// happened on the connection, so that it can continue in one of them.
    Unsupported {
        /// The lowest version that the peer supports.
        low: u32,
        /// The highest version that the peer supports.
        high: u32,
    },
    /// The peer has settled on a version other than 2.
    VersionRefused,
    /// The peer's credit word is out of the plausible range.
    ImplausibleCredit,
    /// The peer sent more messages than it has credits for.
    CreditOverrun,
    /// The peer provoked errors and granted no credit to report them.
    TooManyErrors,
    /// The peer refused this end's properties.
    SetupRefused,
    /// The peer's properties take too many messages.
    SetupTooLong,
    /// The peer does not authenticate itself although the policy requires it.
    Unauthenticated,
    /// Host authentication failed.
    HostAuth(Refused),
    /// The peer refused a message that may be a Call or a Reply of this end (E13).
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
