//! Round-trip extensions of version 2 (draft-dnoveck-nfsv4-rpcrdma-rtrext-03).
//!
//! [RTR-0-1] Both are OPTIONAL, and offered as transport properties: an RPC message that travels in
//! several transmissions, and bulk data that travels in those same transmissions and lands in the
//! part of the peer's receive buffer that is meant for it. Where the base protocol needs an RDMA
//! Read or Write, and the round trip that goes with it, these need only Sends.
//!
//! The draft's code points collide with version 2's, so ours are private (reading E10): header types
//! and property codes are [`CODE_BASE`] plus the value in the draft.
//!
//! - [`header`]: the four header types; [`item`], [`direction`] and [`report`]: what they hold.
//! - [`properties`]: what each end offers and what both agree on; [`structure`]: how a receive buffer
//!   is made up.
//! - [`plan`]: arranging a message in transmissions; [`respond`]: following a request's directions,
//!   as [`table`] allows.
//! - [`group`]: transmissions as they arrive; [`placement`]: where in them the items are.
//! - [`extension`]: all of it, for one connection.

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
pub mod structure;
pub mod table;

pub use array::Array;
pub use direction::{Directed, Direction, DirectionSet, Directions};
pub use extension::Extension;
pub use header::{Continue, Header, Request, Response};
pub use item::{Item, Items, Location, Numbers};
pub use report::{Report, ReportInfo, TransmissionId};

pub use crate::v2::header::extended::{CODE_BASE, REPTERR, XMTCONT, XMTREQ, XMTRESP, header_name};

use crate::chunk::ListFault;
use crate::xdr::Truncated;

/// How octets fail to be what the draft's XDR describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The rule they break.
    pub rule: &'static str,
    /// Offset from where the reader started.
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
