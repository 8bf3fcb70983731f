//! The interface between the runtime and an RDMA provider.
//!
//! The trait is sealed: memory safety rests on providers reporting a completion only when their RNIC
//! is done with the memory, so only this crate implements it.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, ClaimedSegment, Handle, QpNum, WrId};

mod base;
#[cfg(test)]
pub(crate) mod by_number;
mod caps;
pub mod corrupting;
pub mod delaying;
mod events;
pub mod iwarp;
pub mod lending;
mod newcomers;
mod pass_on;
mod requests;
pub mod shm;
pub mod sim;
mod supply;
pub mod toy;
pub mod tracing;
#[cfg(feature = "verbs")]
pub mod verbs;

pub(crate) use base::Clock;
pub(crate) use caps::PLACING_MAX;
pub use caps::{Caps, Counters, Promises};
pub use events::{Arrival, ConnectError, DisconnectReason, Event, Stall};
pub use newcomers::{AcceptFailures, Accepts, Newcomers};
pub(crate) use newcomers::{HINT, Seldom};
pub(crate) use requests::expose;
pub use requests::{
    ConnectionAnswer, ConnectionParams, OpenResult, QueueFull, RUN_MAX, Refused, Run, RunKind,
};

pub use crate::cores::deal::Place;
pub use crate::outgoing::{Head, Outgoing, Sent};
pub use crate::sys::wake::Waker;
pub use crate::work::{Done, Operation, PeerUser, Quiesced, Receive, WorkQueue, WorkRequest};

/// An RDMA provider: an RNIC, or software that behaves like one.
///
/// Contract; `tests/tests/conformance.rs` holds one test per line, run on every provider:
///
/// Connections
/// 1. `connect`, `listen`, `next_incoming` and `adopt` never block; the outcome arrives from `poll` as an event.
/// 2. A listener yields each peer once, as an `Incoming`. Once adopted, it is reported once as `Request`, with the private
///    data that the peer sent, to which some networks add zeros; nothing moves on that queue pair before `answer`.
/// 3. [`ConnectionAnswer::Accept`] makes a connection of what `adopt` began, and carries private data back; both ends
///    then report `Established`, the active one with that private data, both with the granted ORD and IRD.
/// 4. [`ConnectionAnswer::Reject`], a refused connection, an `Incoming` that is dropped and a handshake that misses its
///    deadline end in `Failed` at the active end. A peer that fails its handshake is never reported to the passive end;
///    one that gives up before `adopt` is not reported, or lost once it is answered.
/// 5. A Send that arrives before the receiver's `Established` is kept and delivered after it.
/// 6. After a connection is lost or `disconnect`ed, each end reports `Disconnected` once, then the
///    flushed completions, then `Quiesced` once, and nothing after it. A request that fails otherwise ends its
///    connection, too, and its completion is the first of these. With [`DisconnectReason::PeerHasAll`] none is flushed.
///
/// Send queue
/// 7. [`Port::post`] takes a prefix of the batch, in order, and leaves the rest; it never blocks. A signaled request
///    keeps its place in the send queue until its completion is polled.
/// 8. Requests of one queue pair complete in the order they were posted.
/// 9. Each signaled request yields exactly one completion; an unsignaled one only if it fails. A message that
///     [`Port::send`] took counts as one signaled request, its Writes as unsignaled ones ahead of it.
/// 10. Once one completion is flushed, every later one of that queue pair is, except Receives, which
///     return to the shared queue and are not reported.
/// 11. A completed Write's bytes are at rest before a later Send of the same queue pair is received.
///     By then its octets are counted with the lease they were placed in, unless `Promises` excepts that.
/// 12. Reads beyond the granted ORD wait in the send queue; the peer never sees more. Where the ORD is zero, none is
///     posted.
/// 13. A fenced request does not start before earlier Reads of its queue pair completed.
/// 14. A copied Send's source may be reused as soon as `post` returns, and so may all of a message that [`Port::send`]
///     copied. Of a message that it took, what was not lent may be reused.
///
/// Receive queue
/// 15. Receives are used in the order they were posted, by whichever queue pair a message is for, or by those
///     they are reserved for (line 25).
/// 16. A Send that finds no Receive waits; neither end loses the connection over it.
/// 17. A Send larger than the Receive it meets ends the connection, and only that one. The Receive stays posted for
///     another message, and no completion names it. The Send completes with `Success` where its own end was done
///     with it before the peer refused it, otherwise with `Flushed`: the reasons of the two `Disconnected` tell.
/// 18. A Receive fills its scatter list in order.
///
/// Registration
/// 19. A handle is valid for one queue pair, one range and one access, from [`Port::open`] to invalidation.
/// 20. A peer that names anything else loses its connection; no memory changes.
/// 21. A Send with Invalidate retires the handle before the Receive completes, and the completion
///     names it. LocalInv retires it before its own completion.
/// 22. A completion is reported only after the provider dropped every view of the memory it names,
///     an invalidation only after it dropped the registration's view, `Quiesced` only after it
///     dropped every view of that queue pair.
///
/// Sleeping
/// 23. `sleep` returns when an event may be waiting, when its limit passes, or when a waker of
///     this provider was signaled since the last `sleep`; never later.
///
/// Messages without Receives
/// 24. A message that `receive_in_place` takes keeps its place: behind everything that was polled of its queue pair,
///     and before anything that is polled next. A message that the sink does not take arrives in a Receive, as if
///     `receive_in_place` had not been called.
///
/// Receive queues of each queue pair
/// 25. Receives reserved for a queue pair (`reserve_receives`) are its own as soon as they are posted, from `connect` or
///     from the `Request` that follows `adopt`, Receives and reservations each in order. Receives that it leaves are for
///     the others. Where receives are shared, it may have more.
///
/// Messages of ours
/// 26. An operation that a [`Port`] does at once has the effect of the work request: it has happened before a message
///     sent behind it arrives, and a handle that it retired is out of the peer's reach. So have the Writes that go
///     ahead of a message: all of them, before that message arrives.
/// 27. A message that begins with a template is a message like any other: the octets of the template with the patch in
///     their places, and the octets behind them. A run names a template by the number that its sender gave it.
/// 28. Once the peer has taken everything sent, and all completions were polled, the port of a queue pair takes any
///     message, whatever goes ahead of it. A port that came with messages may find no room for any: the message can be
///     sent by the other port, or posted, once those messages are taken. If `post` leaves requests, a completion of this
///     queue pair will tell that there is room again, even if every message before them was copied.
/// 29. If the peer refuses a Write that goes ahead of a message, the connection ends (line 20) and the message does not
///     arrive. If it was taken, it completes once all the same (line 9).
///
/// Peers that are dealt
/// 30. A peer is adopted on whichever thread, by whichever provider of this kind and however late: until then nothing is
///     reported of it. While no slot is free it comes back with its place, each time it is tried, and is adopted once there
///     is one. The place comes with `Request`, or is dropped with the handshake.
pub trait Provider: sealed::Sealed {
    /// Names a listener of this provider.
    type Listener: Copy + Eq + fmt::Debug;
    /// A peer that reached a listener: nothing was read of it, and nothing waits for its octets. It may be adopted on
    /// another thread. Dropping it closes its connection.
    type Incoming: Arrival;
    /// Sends on one queue pair.
    type Port<'a>: Port
    where
        Self: 'a;

    /// Describes limits and optional abilities, fixed for the provider's life.
    fn caps(&self) -> &Caps;

    /// Listens at `at`; port 0 lets the system choose. Returns the address that was bound.
    fn listen(&mut self, at: SocketAddr) -> io::Result<(Self::Listener, SocketAddr)>;

    /// Stops listening. Peers that were not taken from the listener are refused; those that were can still be adopted, and
    /// requests already reported answered.
    fn unlisten(&mut self, listener: Self::Listener);

    /// Takes the next peer that waits at a listener, while a slot is free for it here, or `has_room_beside` says that another
    /// provider of this kind would adopt it. Without either the peer waits in the system's queue, where there is one, and
    /// the oldest handshake gives way to it.
    fn next_incoming(
        &mut self,
        now: Instant,
        has_room_beside: impl FnOnce() -> bool,
    ) -> Option<Self::Incoming>;

    /// Has peers looked for again that were left waiting for want of a slot, as there is room beside.
    fn look_again(&mut self) {}

    /// Adopts a peer that a provider of this kind took from its listener: its handshake begins at `now`, and ends in
    /// `Request`, as if it had reached a listener here. `place` is dropped with the handshake, or comes with `Request`.
    ///
    /// # Errors
    /// No slot is free, and the peer comes back. The oldest handshake gives way, whose slot is free in the next turn.
    fn adopt(
        &mut self,
        now: Instant,
        incoming: Self::Incoming,
        place: Place,
    ) -> Result<(), (Self::Incoming, Place)>;

    /// Adopts peers that wait at the listeners of this provider, which is in no group, as many as one turn may. Returns how
    /// many there were.
    fn adopt_own(&mut self, now: Instant) -> usize {
        for count in 0..ADOPTED_MAX {
            let Some(incoming) = self.next_incoming(now, || false) else { return count };
            // A peer for which there is no slot is dropped, and so refused.
            drop(self.adopt(now, incoming, Place::default()));
        }
        ADOPTED_MAX
    }

    /// Starts connecting to `to`.
    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<QpNum, ConnectError>;

    /// Answers a `Request`. Its peer may have left since: an accepted connection then ends as a lost one, with or
    /// without `Established` before.
    fn answer(&mut self, now: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>);

    /// Asks the system for the user at the other end of a queue pair that a listener reported. It takes system calls:
    /// ask once a connection.
    fn peer_user(&mut self, qp: QpNum) -> PeerUser;

    /// Closes a connection in order: requests posted before leave first, within a deadline. A connection that its peer
    /// has not accepted ends in `Failed`, and a request that has not been answered is rejected.
    fn disconnect(&mut self, now: Instant, qp: QpNum);

    /// Returns the port of a queue pair; `None` if there is no such queue pair any more. It may be `None` whenever
    /// nothing can be sent: before the connection is accepted, and after `disconnect`.
    fn port(&mut self, qp: QpNum) -> Option<Self::Port<'_>>;

    /// Delivers messages to `sink` without using Receives. Of each queue pair in its turn it delivers the next
    /// messages, as long as each is a Send of at most `length_max` octets, the provider can deliver it so, and `sink`
    /// takes it. `room`, of at least `length_max` octets, is scratch memory for their octets. Returns how many messages
    /// were taken, at most `budget`. The first message that is not taken stays, and [`Self::poll`] reports it in a
    /// Receive. Each queue pair is asked once between two polls.
    ///
    /// A queue pair that a message was taken from may have more, which the next poll leaves for this method: a caller
    /// calls it before every poll. A queue pair with a receive queue of its own has no such messages.
    fn receive_in_place(
        &mut self,
        room: &mut [u8],
        length_max: usize,
        budget: usize,
        sink: &mut impl MessageSink,
    ) -> usize {
        let _ = (room, length_max, budget, sink);
        0
    }

    /// Posts Receives for all queue pairs, removing from `batch` those it took.
    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull>;

    /// Reserves `count` more Receives for a queue pair, each for one message, at most [`Caps::receives_each`] that have
    /// not been used. The caller does this, with as many Receives posted, before it grants its peer `count` messages;
    /// for the first messages before `answer`, or after `connect` and before the next `poll`. The reservations of a
    /// queue pair end with it.
    ///
    /// A provider whose queue pairs share their Receives ignores it.
    fn reserve_receives(&mut self, qp: QpNum, count: u32) {
        let _ = (qp, count);
    }

    /// Does the RNIC's work, whatever the budget, and moves at most `budget` events into `events`.
    fn poll(&mut self, now: Instant, budget: usize, events: &mut Vec<Event<Self::Listener>>);

    /// Returns when `poll` must be called even if nothing arrives: handshake and close deadlines.
    fn poll_deadline(&self) -> Option<Instant>;

    /// Sleeps until something may have happened, at most `limit` (`None`: without limit).
    fn sleep(&mut self, limit: Option<Duration>);

    /// Returns a waker that ends this provider's `sleep` from any thread.
    fn waker(&self) -> Waker;

    /// Returns the provider's counters. A provider that counts nothing returns zeros.
    fn counters(&self) -> Counters;
}

/// Peers that one turn adopts, before messages have their turn.
pub(crate) const ADOPTED_MAX: usize = 64;

/// Acts on messages that are taken without Receives.
pub trait MessageSink {
    /// Takes messages from the front of a run of one queue pair, on which `port` sends. Returns how many it took; the
    /// others are untouched. A message that invalidates a handle is taken only once [`Port::retire`] has retired that
    /// handle.
    fn messages(&mut self, qp: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize;
}

/// Sends on one queue pair, in the order of the calls. Entries that wait for a doorbell leave with the next
/// [`Port::post`], whose batch may be empty.
///
/// Octets that are copied or read are the caller's again as soon as the method returns. Such an operation takes no place
/// in the send queue, and no completion reports it: if it fails, the connection ends.
pub trait Port {
    /// Sends the message that `head` describes, behind the Writes that go ahead of it, or takes it to be sent. If it takes
    /// the message, it lends itself the parts that it does not copy (`Outgoing::lend`), and `id` names the completion. What waits for a
    /// doorbell leaves with the next [`Self::post`].
    ///
    /// More messages with the same template are likely to follow. On one queue pair the number of a template always
    /// stands for the same octets.
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent;

    /// Reads the peer's memory into all of `octets` before it returns: an RDMA Read, where that takes no waiting.
    ///
    /// # Errors
    /// [`Refused`]: nothing happened. [`Refused::NotNow`]: leave the message that asks for the Read to the next turn.
    /// After any other refusal the Read can be posted, into memory of its own.
    fn read(&mut self, source: &ClaimedSegment, octets: &mut [u8]) -> Result<(), Refused> {
        let _ = (source, octets);
        Err(Refused::TooLong)
    }

    /// Opens a lease for the peer to read, or to write, under a fresh handle, ahead of everything sent from now on.
    /// Returns the segment that names the lease to the peer.
    ///
    /// # Errors
    /// The lease comes back, and nothing happened. [`Refused::Full`]: all registrations are in use.
    /// [`Refused::NotOpen`]: the peer cannot reach it. [`Refused::Gone`]: there is no connection.
    fn open(&mut self, lease: Local, access: Access) -> OpenResult;

    /// Retires a handle that the message to be taken invalidates; `None` if it cannot be retired now, or names no open
    /// lease.
    fn retire(&mut self, handle: Handle) -> Option<Done> {
        let _ = handle;
        None
    }

    /// Posts a prefix of `batch` with one doorbell, removing what it took.
    ///
    /// The connection may have ended already. Before a `poll` finds that out, requests are taken, and flushed; from
    /// then on they are flushed or left.
    ///
    /// # Errors
    /// [`QueueFull`]: some requests are left; post them again after completions.
    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull>;
}

impl<P: Port> Port for &mut P {
    #[inline]
    fn send(&mut self, head: &Head<'_>, message: &mut Outgoing, id: WrId) -> Sent {
        (**self).send(head, message, id)
    }

    fn read(&mut self, source: &ClaimedSegment, octets: &mut [u8]) -> Result<(), Refused> {
        (**self).read(source, octets)
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        (**self).open(lease, access)
    }

    fn retire(&mut self, handle: Handle) -> Option<Done> {
        (**self).retire(handle)
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        (**self).post(batch)
    }
}

pub(crate) mod sealed {
    /// Implemented by the providers of this crate alone.
    #[expect(
        unnameable_types,
        reason = "a trait nobody else can name is one nobody else implements"
    )]
    pub trait Sealed {}
}
