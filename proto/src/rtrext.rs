//! Round-trip extensions of version 2 (draft-dnoveck-nfsv4-rpcrdma-rtrext-03).
//!
//! There are two extensions: an RPC message may be sent in several transmissions, and bulk data may
//! be sent in these transmissions and placed in the part of the peer's receive buffer that is
//! reserved for it. [RTR-0-1] Both are OPTIONAL, and offered as transport properties. Where the
//! base protocol needs an RDMA Read or Write and its round trip, the extensions need only Sends.
//!
//! The draft's code points collide with those of version 2, so this module uses private ones (reading E10): header
//! types and property codes are [`CODE_BASE`] plus the value in the draft.
//!
//! - [`header`]: the four header types; [`item`], [`direction`] and [`report`]: their contents.
//! - [`properties`]: the offer of each end and the terms of both; [`structure`]: the segments of a receive buffer.
//! - [`plan`]: divides a message into transmissions; [`respond`]: follows the directions of a
//!   request, as [`table`] allows.
//! - [`group`]: checks transmissions as they arrive; [`placement`]: locates the items in them.
//! - [`extension`]: the state of the extensions on one connection.

pub mod array;
pub mod direction;
pub mod extension;
pub mod group;
pub mod header;
pub mod item;
pub mod placement;
pub mod plan;
pub mod properties;
pub mod report;
pub mod respond;
mod single_item;
pub mod structure;
pub mod table;

pub use array::Array;
pub use direction::{Directed, Direction, DirectionSet, Directions, KeptDirections};
pub use extension::Extension;
pub use header::{Continue, Header, Request, Response};
pub use item::{Item, Items, Location, Numbers};
pub use report::{Report, ReportInfo, TransmissionId};
#[doc(hidden)]
pub use single_item::SingleItem;

pub use crate::v2::header::extended::{CODE_BASE, REPTERR, XMTCONT, XMTREQ, XMTRESP, header_name};

use crate::chunk::ListFault;
use crate::xdr::Truncated;

/// The fault of octets that do not match the draft's XDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The rule that the octets break.
    pub rule: &'static str,
    /// The offset from the start of the reader.
    pub at: usize,
}

impl From<Truncated> for Malformed {
    fn from(fault: Truncated) -> Self {
        Self { rule: "truncated", at: fault.at }
    }
}

impl From<ListFault> for Malformed {
    fn from(fault: ListFault) -> Self {
        match fault {
            ListFault::Truncated(fault) => fault.into(),
            ListFault::LengthWraps { at } => Self { rule: "segment beyond the address space", at },
            // An array of segments has no discriminator and no position.
            ListFault::BadDiscriminator { at }
            | ListFault::PositionOrder { at }
            | ListFault::BadPosition { at } => Self { rule: "segment array", at },
        }
    }
}
