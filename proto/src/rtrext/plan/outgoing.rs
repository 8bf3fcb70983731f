//! An RPC message to be arranged in transmissions, and what can stand in the way.

use alloc::vec::Vec;

use crate::rtrext::direction::Direction;
use crate::rtrext::item::Item;
use crate::verbs::Segment;

/// An RPC message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Which header it starts with, and what only that has.
    pub kind: Kind<'a>,
    /// Octets of its Payload stream, from which the items are missing.
    pub payload_length: usize,
    /// Its items, in the order of the stream.
    pub items: &'a [Item<Source>],
}

/// The octets of an RPC message.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// Those of its Payload stream, from which the items are missing.
    pub payload: &'a [u8],
    /// Those of each item, in the order of the stream.
    pub items: &'a [&'a [u8]],
}

/// What only one of the two first headers has.
#[derive(Clone, Copy, Debug)]
pub enum Kind<'a> {
    /// `ROPT_XMTREQ`.
    Request {
        /// What the Responder is to do with the Reply's items.
        rsd: &'a [Directive<'a>],
        /// How many transmissions the Reply may have beyond its first; at most [`Terms::response_receive_max`]
        /// less one are asked for.
        ///
        /// [`Terms::response_receive_max`]: crate::rtrext::properties::Terms::response_receive_max
        rsbuf: u32,
    },
    /// `ROPT_XMTRESP`.
    Response {
        /// The most transmissions the request leaves room for.
        count_max: u32,
    },
}

/// Directions for the items that one part of a request brings about: an `xmdp_rsdset` to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Directive<'a> {
    /// Where that part begins in the request's virtual stream.
    pub begin: u32,
    /// Where the next part begins.
    pub end: u32,
    /// What to do with its items, in their order.
    pub items: &'a [Direction<&'a [Segment]>],
}

/// How an item of an outgoing message travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// In these segments of the Requester's memory, which are as long as it.
    Exrw(Vec<Segment>),
    /// In the message's own transmissions.
    Send,
    /// In the Payload stream, as it is too short for the direction it answers.
    TooShort,
    /// Not at all: there is none for the direction this answers.
    NoItem,
}

/// Why an RPC message cannot be sent by this extension. The base protocol may have a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfit {
    /// The peer has not offered the header type this needs.
    NotAgreed,
    /// It needs more transmissions than there may be.
    TooManyTransmissions,
    /// The peer's buffers have no targetable segment behind a header.
    NoTarget,
    /// The header alone fills a message.
    HeaderTooLong,
    /// The Payload stream is empty, or no whole number of XDR units, or too long to be counted.
    NotAPayload,
}
