//! The most common message of the extension: a request in one transmission with one item in it, and without directions.

use core::ops::Range;

use super::XMTREQ;
use super::group::Part;
use super::header::{Header, Request};
use super::item::Location;
use super::placement::Placement;
use super::properties::Terms;
use super::report::MessageType;
use crate::v2::VERSION;
use crate::v2::continuation::Kind;
use crate::v2::header::{Prefix, SingleChunk, Unchunked};
use crate::verbs::{Handle, Segment};
use crate::xdr::Reader;

/// A request in one transmission, whose only item is in one piece.
///
/// [`Extension::receive`](super::Extension::receive) accepts the same message; recognising only this form is faster.
#[doc(hidden)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SingleItem {
    /// The request as a Call whose item is in a Read chunk. The chunk names no memory.
    pub chunk: SingleChunk,
    /// The range of the message that has the Payload stream.
    pub payload: Range<usize>,
    /// The range of the message that has the item.
    pub item: Range<usize>,
}

impl SingleItem {
    /// Recognises such a request under the terms of its connection. Returns `None` for any other message, valid or not.
    #[inline]
    pub fn of(message: &[u8], terms: &Terms) -> Option<Self> {
        let htype = message.get(12..)?.first_chunk().copied().map(u32::from_be_bytes);
        if htype != Some(XMTREQ) { None } else { Self::of_request(message, terms) }
    }

    fn of_request(message: &[u8], terms: &Terms) -> Option<Self> {
        let mut r = Reader::new(message);
        let prefix = Prefix::decode(&mut r).ok()?;
        if prefix.vers != VERSION || !terms.allows(XMTREQ) {
            return None;
        }
        let Ok(Header::Request(Request { dp, rsd, count: 1, pslen, rest, .. })) =
            Header::decode(&prefix, r.rest())
        else {
            return None;
        };
        // E9: the Payload stream begins with the XID of the message.
        let begins = rest.first_chunk().copied().map(u32::from_be_bytes);
        if begins != Some(prefix.xid) || rsd.iter().next().is_some() {
            return None;
        }
        let parts = [Part::of(pslen, message.len(), rest.len())?];
        let placement = Placement::new(dp, MessageType::Call, &parts, &terms.ours).ok()?;
        let mut items = placement.items();
        let (item, None) = (items.next()?, items.next()) else { return None };
        if !matches!(item.place, Location::Tbsn { .. }) || item.length == 0 {
            return None;
        }
        let mut pieces = placement.pieces(&item).map(|piece| piece.message);
        let first = pieces.next()?;
        let in_one = |whole: Range<usize>, next: Range<usize>| {
            (whole.end == next.start).then_some(whole.start..next.end)
        };
        let range = pieces.try_fold(first, in_one)?;
        let payload = parts.first()?.payload();
        let Prefix { xid, credit, .. } = prefix;
        let payload_at = u32::try_from(payload.start).ok()?;
        let segment = Segment { handle: Handle(0), length: item.length, offset: 0 };
        let chunk = SingleChunk {
            unchunked: Unchunked { kind: Kind::Call, xid, credit, payload_at },
            inv_handle: Handle(0),
            position: Some(item.disp),
            segment,
        };
        Some(Self { chunk, payload, item: range })
    }
}
