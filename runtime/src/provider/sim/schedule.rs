//! What is on its way, and when it arrives.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::net::SocketAddr;

use haulage_proto::time::Instant;
use haulage_proto::verbs::{ClaimedSegment, Handle, QpNum};

use crate::provider::ConnectError;

/// One end of a connection: a queue pair of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) node: usize,
    pub(super) qp: QpNum,
}

/// Something that happens when it is due.
#[derive(Debug)]
pub(super) enum Packet {
    /// A peer asks for a connection.
    Connect { from: End, peer: SocketAddr, to: SocketAddr, proposal: Proposal },
    /// The connection `to` asked for will not be.
    Refuse { to: End, reason: ConnectError },
    /// The next message of a connection.
    Message { to: End, message: Message },
    /// The peer is done with the request `seq`.
    Ack { to: End, seq: u64 },
    /// The peer is gone. Nothing it sent before counts any more.
    Gone { to: End, how: Gone },
    /// A deadline of `of`, if it still has this one.
    Deadline { of: End },
}

/// What one end brings to a connection.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) private_data: Box<[u8]>,
    pub(super) ord: u32,
    pub(super) ird: u32,
}

/// One message of a connection; these stay in order, and wait behind a Send that found no Receive.
#[derive(Debug)]
pub(super) enum Message {
    /// The passive end said yes.
    Accepted(Proposal),
    /// The active end heard it.
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
    /// Nothing more will follow.
    Close,
}

/// Where the octets of a Send or a Write are.
#[derive(Debug)]
pub(super) enum Body {
    /// Still in the sender's memory, under the request `seq`.
    Posted { seq: u64 },
    /// Taken along; of the request `seq`, which has completed if it could.
    Copied { seq: u64, bytes: Vec<u8> },
}

impl Body {
    pub(super) const fn seq(&self) -> u64 {
        match self {
            Self::Posted { seq } | Self::Copied { seq, .. } => *seq,
        }
    }
}

/// What a request that was refused did wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It names memory that may not be accessed so.
    Access,
    /// It should not have been sent.
    Request,
}

/// How a peer left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    /// In order.
    Closed,
    /// Without a word.
    Lost,
    /// Over something we sent: the request `seq`.
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
