//! An RPC message to divide into transmissions, and the reasons why that fails.

use alloc::vec::Vec;

use crate::rtrext::direction::Direction;
use crate::rtrext::item::Item;
use crate::verbs::Segment;

/// An RPC message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// The kind of the first header, and its own fields.
    pub kind: Kind<'a>,
    /// The length of the Payload stream without the items, in octets.
    pub payload_length: usize,
    /// The items, in stream order.
    pub items: &'a [Item<Source>],
}

/// The octets of an RPC message.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// The Payload stream without the items.
    pub payload: &'a [u8],
    /// The octets of each item, in stream order.
    pub items: &'a [&'a [u8]],
}

/// The kind of the first header of a message, and its own fields.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// `ROPT_XMTREQ`.
    Request {
        /// The directions for the Reply's items.
        rsd: &'a [Directive<'a>],
        /// The number of transmissions that the Reply may have beyond the first; at most
        /// [`Terms::response_receive_max`] less one are requested.
        ///
        /// [`Terms::response_receive_max`]: crate::rtrext::properties::Terms::response_receive_max
        rsbuf: u32,
    },
    /// `ROPT_XMTRESP`.
    Response {
        /// The most transmissions that the request permits.
        count_max: u32,
    },
}

/// Directions for the items that one part of a request causes: an `xmdp_rsdset` to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Directive<'a> {
    /// The offset of that part in the request's virtual stream.
    pub begin: u32,
    /// The offset of the next part.
    pub end: u32,
    /// The directions for the items, in their order.
    pub items: &'a [Direction<&'a [Segment]>],
}

/// The conveyance of an item of an outgoing message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The item is in these segments of the Requester's memory, which are as long as the item.
    Exrw(Vec<Segment>),
    /// The item is in the message's own transmissions.
    Send,
    /// The item stays in the Payload stream, because it is too short for the direction it answers.
    TooShort,
    /// There is no item for the direction.
    NoItem,
}

/// Why an RPC message cannot be sent by this extension. The base protocol may be able to send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// The peer has not offered the header type that the message needs.
    NotAgreed,
    /// The message needs more transmissions than are allowed.
    TooManyTransmissions,
    /// The peer's buffers have no targetable segment after the header.
    NoTarget,
    /// The header alone fills a transmission.
    HeaderTooLong,
    /// The Payload stream is empty, not a multiple of the XDR unit, or too long for its length
    /// field.
    NotAPayload,
}
