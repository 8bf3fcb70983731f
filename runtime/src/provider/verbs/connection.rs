//! One connection: its phase, and the library's objects for it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::super::{Arrival, ConnectError, DisconnectReason};
use super::names::ListenerId;
use super::outbound::Outbound;
use super::proposal::Proposal;
use crate::sys::ibverbs::{ArrivingId, CmId, Domain, PeerParameters, Polled, QueuePair, Region};

/// A peer that has reached a listener, and its request, which the connection manager has read.
#[derive(Debug)]
pub struct Incoming {
    pub(super) listener: ListenerId,
    pub(super) id: ArrivingId,
    pub(super) peer: SocketAddr,
    pub(super) asked: PeerParameters,
}

impl Arrival for Incoming {
    fn peer(&self) -> SocketAddr {
        self.peer
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    phase: Phase,
    /// When the wait of this phase ends.
    deadline: Instant,
    pub(super) objects: Objects,
    /// Our memory in the connection's protection domain, if that is not the first one.
    pub(super) regions: Vec<Region>,
    pub(super) proposal: Proposal,
    pub(super) inbound: Inbound,
    pub(super) outbound: Outbound,
}

/// What arrives from the peer, beside what the core is told at once.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// Receives that completed before the connection was established here.
    early: Vec<Polled>,
    /// A Receive came back unused from its own queue: the queue pair has failed.
    is_flushed: bool,
    /// We asked for the connection on an iWARP device, and no message of the peer has arrived.
    is_unheard: bool,
}

impl Inbound {
    /// Keeps a Receive that completed before the connection was established here.
    pub(super) fn keep(&mut self, polled: Polled) {
        self.early.push(polled);
    }

    /// Takes the Receives that were kept.
    pub(super) fn take_kept(&mut self) -> Vec<Polled> {
        std::mem::take(&mut self.early)
    }

    /// Notes that the peer of an iWARP device may have to be sent a keepalive, as it may not have noticed us.
    pub(super) const fn expect_first(&mut self) {
        self.is_unheard = true;
    }

    /// Notes that a message of the peer has arrived, or that it needs no keepalive any more.
    pub(super) const fn hear(&mut self) {
        self.is_unheard = false;
    }

    /// Notes that a Receive came back unused from its own queue.
    pub(super) const fn flush(&mut self) {
        self.is_flushed = true;
    }

    /// Notes that the queue pair is to be made anew.
    pub(super) const fn begin_again(&mut self) {
        self.is_flushed = false;
    }

    /// Returns whether no message of a peer has arrived that may need a keepalive.
    pub(super) const fn is_unheard(&self) -> bool {
        self.is_unheard
    }
}

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Resolving the address and the route of the peer.
    Resolving,
    /// The peer has been sent the request.
    Connecting,
    /// A peer's request has arrived, and the core has not answered.
    Requested,
    /// The core accepted; nothing has come from the peer since.
    Accepting,
    /// Messages go both ways.
    Established,
    /// The connection closes once everything posted has ended.
    Closing,
    /// The queue pair is in the error state and gives back its work.
    Flushing,
    /// Only the report to the core is left.
    Gone,
}

/// The objects that the libraries hold for a connection.
#[derive(Debug)]
pub(super) enum Objects {
    /// An id without queues.
    Id(CmId),
    /// An id with queues.
    Pair(QueuePair),
    /// No object: not yet, or no more.
    Nothing,
}

impl Phase {
    /// Returns whether the connection is being set up.
    pub(super) const fn is_setup(self) -> bool {
        matches!(self, Self::Resolving | Self::Connecting | Self::Accepting)
    }

    /// Returns whether the connection waits for something, with a deadline.
    pub(super) const fn is_pending(self) -> bool {
        self.is_setup() || matches!(self, Self::Closing | Self::Flushing)
    }

    /// Returns whether the core may post.
    pub(super) const fn is_open(self) -> bool {
        matches!(self, Self::Established)
    }
}

impl Connection {
    /// Makes a connection for which the libraries have no object yet.
    pub(super) fn new(phase: Phase, deadline: Instant, proposal: Proposal) -> Self {
        Self {
            phase,
            deadline,
            objects: Objects::Nothing,
            regions: Vec::new(),
            proposal,
            inbound: Inbound::default(),
            outbound: Outbound::default(),
        }
    }

    /// Begins another phase. The deadline stays.
    pub(super) const fn enter(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Has the wait of this phase end at `deadline`.
    pub(super) const fn wait_until(&mut self, deadline: Instant) {
        self.deadline = deadline;
    }

    pub(super) const fn phase(&self) -> Phase {
        self.phase
    }

    /// Returns when the wait of this phase ends.
    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether the peer is to be asked once more, from another port of ours, though setup failed for `reason`.
    ///
    /// Soft-iWARP has a TCP socket for each connection and binds it to the port that the connection manager chose. The
    /// connection manager does not know the TCP sockets of other programs, one of which may have the port, nor the
    /// connections that ended a minute ago or less: one of these to the same peer still has its port.
    pub(super) fn may_ask_again(&self, reason: &ConnectError) -> bool {
        use io::ErrorKind::{AddrInUse, AddrNotAvailable};
        let is_taken = matches!(reason, ConnectError::System(AddrInUse | AddrNotAvailable));
        self.phase == Phase::Connecting && is_taken && self.proposal.may_be_repeated()
    }

    pub(super) fn pair(&mut self) -> Option<&mut QueuePair> {
        match &mut self.objects {
            Objects::Pair(pair) => Some(pair),
            Objects::Id(_) | Objects::Nothing => None,
        }
    }

    /// Returns the protection domain of the connection's queue pair, if it has one.
    pub(super) fn domain(&self) -> Option<&Arc<Domain>> {
        match &self.objects {
            Objects::Pair(pair) => Some(pair.domain()),
            Objects::Id(_) | Objects::Nothing => None,
        }
    }

    /// Returns whether everything that the doorbell was rung for has ended.
    pub(super) fn is_idle(&self) -> bool {
        let Objects::Pair(pair) = &self.objects else { return true };
        pair.is_idle() && !self.outbound.has_due()
    }

    /// Returns whether a request waits or is posted whose end will be reported.
    pub(super) fn owes_report(&self) -> bool {
        let Objects::Pair(pair) = &self.objects else { return false };
        self.outbound.owes_report() || pair.owes_report()
    }

    /// Returns whether messages may still arrive.
    pub(super) fn goes_on(&self) -> bool {
        !self.inbound.is_flushed && !matches!(self.phase, Phase::Flushing | Phase::Gone)
    }

    pub(super) fn id(&mut self) -> Option<&mut CmId> {
        match &mut self.objects {
            Objects::Pair(pair) => Some(pair.id()),
            Objects::Id(id) => Some(id),
            Objects::Nothing => None,
        }
    }
}

/// The queue pairs' numbers as the device gives them, each with our number.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    /// Ascending.
    known: Vec<(u32, QpNum)>,
}

impl Numbers {
    pub(super) fn add(&mut self, number: u32, qp: QpNum) {
        let at = self.known.partition_point(|(known, _)| *known < number);
        self.known.insert(at, (number, qp));
    }

    pub(super) fn remove(&mut self, number: u32) {
        if let Ok(at) = self.known.binary_search_by_key(&number, |(known, _)| *known) {
            self.known.remove(at);
        }
    }

    pub(super) fn get(&self, number: u32) -> Option<QpNum> {
        let at = self.known.binary_search_by_key(&number, |(known, _)| *known).ok()?;
        self.known.get(at).map(|(_, qp)| *qp)
    }
}

/// The reason for a queue pair that failed without any other: the device found the peer at fault.
pub(super) const MISBEHAVED: DisconnectReason =
    DisconnectReason::PeerMisbehaved("an operation that our RNIC does not allow");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_asked_twenty_times_if_our_port_is_taken() {
        let mut connection = Connection::new(Phase::Connecting, Instant::ZERO, Proposal::default());
        let taken = ConnectError::System(io::ErrorKind::AddrInUse);
        let recently_used = ConnectError::System(io::ErrorKind::AddrNotAvailable);
        for reason in [&taken, &recently_used] {
            connection.proposal = Proposal::default();
            let mut tries = 1;
            connection.proposal.ask();
            while connection.may_ask_again(reason) {
                connection.proposal.ask();
                tries += 1;
            }
            assert_eq!(tries, 20, "{reason:?}");
        }
        connection.proposal = Proposal::default();
        let other = ConnectError::System(io::ErrorKind::NetworkUnreachable);
        for reason in [ConnectError::TimedOut, ConnectError::Refused, other] {
            assert!(!connection.may_ask_again(&reason), "{reason:?}");
        }
        connection.phase = Phase::Resolving;
        assert!(!connection.may_ask_again(&taken), "it was not the socket's bind that failed");
    }

    #[test]
    fn a_device_number_leads_to_its_queue_pair() {
        let mut numbers = Numbers::default();
        let qps = [7, 3, 900, 11].map(|number| (u32::from(number), QpNum::new(number, 1)));
        qps.iter().for_each(|(number, qp)| numbers.add(*number, *qp));
        numbers.remove(3);
        numbers.remove(12);
        assert_eq!(
            [3, 7, 11, 900].map(|number| numbers.get(number)),
            [None, Some(qps[0].1), Some(qps[3].1), Some(qps[2].1)]
        );
    }
}
