//! Packets on their way, and the times they arrive.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::sync::Arc;

use haulage_proto::time::Instant;
use haulage_proto::verbs::{ClaimedSegment, Handle, QpNum};

use crate::provider::{Arrival, ConnectError};

/// One end of a connection: a queue pair of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) node: usize,
    pub(super) qp: QpNum,
}

/// The number of a peer that was taken from its listener. Dropping it refuses the peer, as soon as a node is polled.
#[derive(Debug)]
pub struct Incoming {
    pub(super) number: Arc<u64>,
    pub(super) peer: SocketAddr,
}

impl Arrival for Incoming {
    fn peer(&self) -> SocketAddr {
        self.peer
    }
}

/// An event that happens when it is due.
#[derive(Debug)]
pub(super) enum Packet {
    /// A peer requests a connection.
    Connect { from: End, peer: SocketAddr, to: SocketAddr, proposal: Proposal },
    /// The connection that `to` requested is refused.
    Refuse { to: End, reason: ConnectError },
    /// The next message of a connection.
    Message { to: End, message: Message },
    /// The peer is done with the request `seq`.
    Ack { to: End, seq: u64 },
    /// The peer is gone. Messages it sent before are lost.
    Gone { to: End, how: Gone },
    /// A deadline of `of`, unless that has changed meanwhile.
    Deadline { of: End },
}

/// The terms that one end brings to a connection.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) private_data: Box<[u8]>,
    pub(super) ord: u32,
    pub(super) ird: u32,
}

/// One message of a connection; messages stay in order, and wait behind a Send that found no Receive.
#[derive(Debug)]
pub(super) enum Message {
    /// The passive end accepted.
    Accepted(Proposal),
    /// The active end has received `Accepted`.
    Ready,
    Send {
        body: Body,
        invalidate: Option<Handle>,
    },
    Write {
        body: Body,
        target: ClaimedSegment,
    },
    ReadRequest {
        seq: u64,
        source: ClaimedSegment,
    },
    ReadResponse {
        seq: u64,
        bytes: Vec<u8>,
    },
    /// The sender has closed; nothing follows.
    Close,
}

/// The octets of a Send or a Write.
#[derive(Debug)]
pub(super) enum Body {
    /// The octets are still in the sender's memory, under the request `seq`.
    Posted { seq: u64 },
    /// The octets were copied for the request `seq`, which has completed if it could.
    Copied { seq: u64, bytes: Vec<u8> },
}

impl Body {
    pub(super) const fn seq(&self) -> u64 {
        match self {
            Self::Posted { seq } | Self::Copied { seq, .. } => *seq,
        }
    }
}

/// The fault of a request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The request names memory that it may not access.
    Access,
    /// The request should not have been sent.
    Request,
}

/// The way a peer left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// The peer closed the connection in order.
    Closed,
    /// The peer went without notice.
    Lost,
    /// The peer refused our request `seq`.
    Refused { seq: u64, fault: Fault, layer: u8, etype: u8, code: u8 },
}

/// Packets by the time they are due; those due together keep the order they were sent in.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    packets: BinaryHeap<Reverse<Scheduled>>,
    sent: u64,
}

impl Schedule {
    pub(super) fn push(&mut self, due: Instant, packet: Packet) {
        self.sent += 1;
        self.packets.push(Reverse(Scheduled { due, order: self.sent, packet }));
    }

    /// Takes the next packet due by `now`.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(Instant, Packet)> {
        self.peek().filter(|(due, _)| *due <= now)?;
        self.packets.pop().map(|Reverse(next)| (next.due, next.packet))
    }

    pub(super) fn peek(&self) -> Option<(Instant, &Packet)> {
        self.packets.peek().map(|Reverse(next)| (next.due, &next.packet))
    }
}

#[derive(Debug)]
struct Scheduled {
    due: Instant,
    order: u64,
    packet: Packet,
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.due, self.order).cmp(&(other.due, other.order))
    }
}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}
