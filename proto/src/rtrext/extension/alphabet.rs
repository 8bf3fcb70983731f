//! The events of the extension.

use crate::rtrext::direction::{Directions, KeptDirections};
use crate::rtrext::group::Transmission;
use crate::rtrext::item::Items;
use crate::rtrext::placement::Placement;
use crate::rtrext::report::{MessageType, Report};
use crate::rtrext::respond::Asked;
use crate::v2::error::ErrorBody;

/// The result of receiving a message of the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The message is one of several transmissions, and others are still to arrive.
    More(Transmission),
    /// The message completes an RPC message: see [`whole`](super::Extension::whole).
    Complete,
    /// The message belongs to a group that was refused before.
    Dropped,
    /// The peer reported an error in a transmission of this end. That RPC message can be sent again
    /// by the base protocol, or abandoned.
    Reported(Report),
    /// The message is refused, together with its group.
    Refused(Refusal),
}

/// Why a message was refused, and the consequences.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule that the message breaks.
    pub rule: &'static str,
    /// The XID of the message.
    pub xid: u32,
    /// The answer to send; `None` if the peer is not told.
    pub answer: Option<RefusalAnswer>,
    /// The Call of this end that the message was to answer, if no other Reply can be expected
    /// (E13).
    pub failed_call: Option<u32>,
}

/// The answer to a message that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalAnswer {
    /// `RDMA2_ERROR`.
    Error(ErrorBody),
    /// `ROPT_REPTERR`.
    Report(Report),
}

/// One complete RPC message.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// The XID of the message.
    pub xid: u32,
    /// The direction of the message.
    pub dir: MessageType,
    /// The directions for the items of its Reply.
    pub rsd: Directions<'a>,
    /// The number of transmissions that its Reply may have beyond the first.
    pub rsbuf: u32,
    /// The items of the message.
    pub dp: Items<'a>,
    /// The placement of the items, with every bound checked.
    pub placement: Placement<'a>,
}

impl Whole<'_> {
    /// Returns what a request says about its response.
    pub fn asked(&self) -> Asked {
        Asked { directions: KeptDirections::of(&self.rsd), rsbuf: self.rsbuf }
    }
}
