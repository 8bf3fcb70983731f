//! Message Continuation (sections 6.3.6, 6.3.9, 6.6.2): one Payload stream in several messages.
//!
//! A continued message consists of any number of `MIDDLE` messages and an `INLINE` message, all with the XID of the RPC
//! message they convey (E7). [`Incoming`] checks received parts; [`Split`] divides outgoing messages. Neither holds any
//! payload: the caller owns the memory, and they return offsets and lengths.

mod incoming;
mod outgoing;

pub use incoming::{Incoming, Kind, Part, Step};
pub use outgoing::{Piece, Split};
