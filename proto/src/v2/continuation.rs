//! Message Continuation (sections 6.3.6, 6.3.9, 6.6.2): one Payload stream in several messages.
//!
//! A continued message is any number of `MIDDLE` messages and an `INLINE` message, all with the XID of
//! the RPC message they convey (E7). [`Incoming`] judges what arrives; [`Split`] divides what leaves.
//! Neither holds an octet of payload: the caller owns the memory, these say where in it.

mod incoming;
mod outgoing;

pub use incoming::{Incoming, Kind, Part, Step};
pub use outgoing::{Piece, Split};
