//! What comes out of the extension.

use crate::rtrext::direction::Directions;
use crate::rtrext::item::Items;
use crate::rtrext::placement::Placement;
use crate::rtrext::report::{MessageType, Report};
use crate::v2::error::ErrorBody;

/// What became of a message of the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// It is one of several transmissions; the others are to come.
    More,
    /// With it an RPC message is complete: see [`whole`](super::Extension::whole).
    Complete,
    /// It belongs to what has been refused before.
    Dropped,
    /// The peer says that one of our own transmissions was wrong. That message can be sent again by
    /// the base protocol, or given up.
    Reported(Report),
    /// It is refused, and the group it belongs to.
    Refused(Refusal),
}

/// Why a message was refused and what comes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The rule it breaks.
    pub rule: &'static str,
    /// Of the message.
    pub xid: u32,
    /// What to answer; `None` where the peer is not told.
    pub answer: Option<Answer>,
    /// Our Call whose Reply this was to be, where no other Reply can be hoped for (E13).
    pub failed_call: Option<u32>,
}

/// What the peer is told of a message that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `RDMA2_ERROR`.
    Error(ErrorBody),
    /// `ROPT_REPTERR`.
    Report(Report),
}

/// One RPC message, complete.
#[derive(Clone, Copy, Debug)]
pub struct Whole<'a> {
    /// Its XID.
    pub xid: u32,
    /// Which way it goes.
    pub dir: MessageType,
    /// What to do with the items of the Reply to it.
    pub rsd: Directions<'a>,
    /// How many transmissions that Reply may have beyond its first.
    pub rsbuf: u32,
    /// Where its own items are.
    pub dp: Items<'a>,
    /// The same, with every bound checked.
    pub placement: Placement<'a>,
}
