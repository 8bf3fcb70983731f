//! How far the peer of a connection has come with what waits for it.
//!
//! # Normal operation
//!
//! Three things wait for a peer: RDMA Reads of ours for their responses, output for room in the peer, and a
//! message that has begun for its end. A request of a Read that is still on its way behind other output counts
//! as progress until it has arrived, or slow paths would look like silent peers. Calls that wait inside us, and
//! connections on which nothing waits, are never too slow.
//!
//! While a Send waits for a Receive of ours, nothing behind it is read. The clocks of Reads and of messages
//! then stand still: they keep the checks that they have counted, so a peer gains no time by sending more
//! than there are Receives for.

use haulage_proto::iwarp::receive::Receiver;
use haulage_proto::verbs::Handle;

use super::lane::OutstandingRead;
use crate::provider::progress;

/// The clocks of a connection. Output is measured by the octets that the peer's system has acknowledged.
pub(super) type Progress = progress::Progress<ReadMark, u64, MessageMark>;
/// How far its peer is now.
pub(super) type Marks = progress::Marks<ReadMark, u64, MessageMark>;

/// How far the peer is with the oldest Read.
#[derive(Debug, PartialEq)]
pub(super) struct ReadMark {
    sink: Handle,
    remaining: usize,
    /// Octets of ours that the peer's system has acknowledged, up to the Read's request.
    request: u64,
}

/// How far the peer is with what has begun.
#[derive(Debug, PartialEq)]
pub(super) enum MessageMark {
    /// A Send, by its number: all of it has one deadline, whatever comes of it meanwhile.
    Send(u32),
    /// Another FPDU, by its number: placed payload is progress.
    Fpdu { number: u32, remaining: usize },
}

impl ReadMark {
    pub(super) fn new(receiver: &Receiver, read: &OutstandingRead, acknowledged: u64) -> Self {
        let remaining = receiver.read_remaining().unwrap_or(0);
        let request = acknowledged.min(read.requested_at);
        Self { sink: read.handle, remaining, request }
    }
}

impl MessageMark {
    /// Returns how far the peer is with the FPDU of this `number`, if that or its message has begun.
    pub(super) fn new(receiver: &Receiver, number: u32) -> Option<Self> {
        if let Some(number) = receiver.send_begun() {
            return Some(Self::Send(number));
        }
        let remaining = receiver.payload_remaining();
        (!receiver.is_between()).then_some(Self::Fpdu { number, remaining })
    }
}
