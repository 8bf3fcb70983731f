//! What the runtime needs from an RDMA provider, and nothing more.
//!
//! The trait is sealed: memory safety rests on providers reporting a completion only when their RNIC
//! is done with the memory, so only this crate implements it.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Deref;
use std::time::Duration;

use haulage_mr_pool::{Exposed, Local, Sink, Source};
use haulage_proto::iwarp::terminate::Code;
use haulage_proto::negotiate::{Heading, Label};
use haulage_proto::time::Instant;
use haulage_proto::verbs as alphabet;
use haulage_proto::verbs::{
    Access, ClaimedSegment, Completion, Handle, Opcode, QpNum, Segment, Status, WrId,
};

use crate::sys::{interfaces, process};

mod base;
#[cfg(test)]
pub(crate) mod by_number;
pub mod corrupting;
pub mod delaying;
pub mod iwarp;
pub mod lending;
pub mod shm;
pub mod sim;
mod supply;
pub mod toy;
pub mod tracing;
#[cfg(feature = "verbs")]
pub mod verbs;

/// A send queue entry over leased memory.
pub type WorkRequest = alphabet::WorkRequest<Source, Sink>;
/// What a send queue entry over leased memory does.
pub type Operation = alphabet::Operation<Source, Sink>;
/// A receive queue entry over leased memory.
pub type Receive = alphabet::Receive<Sink>;

/// An RDMA provider: an RNIC, or software that behaves like one.
///
/// Contract; `tests/tests/conformance.rs` holds one test per line, run on every provider:
///
/// Connections
/// 1. `connect` and `listen` never block; the outcome arrives from `poll` as an event.
/// 2. A listener reports each peer once as `Request`, with the private data it sent, to which some
///    networks add zeros; nothing moves on that queue pair before `answer`.
/// 3. [`ConnectionAnswer::Accept`] carries private data back; both ends then report `Established`, the active one with
///    that private data, both with the granted ORD and IRD.
/// 4. [`ConnectionAnswer::Reject`], a refused connection and a handshake that misses its deadline end in `Failed` at the
///    active end. A peer that fails its handshake is never reported to the passive end.
/// 5. A Send that arrives before the receiver's `Established` is kept and delivered after it.
/// 6. After a connection is lost or `disconnect`ed, each end reports `Disconnected` once, then the
///    flushed completions, then `Quiesced` once, and nothing after it. A request that fails otherwise ends its
///    connection, too, and its completion is the first of these.
///
/// Send queue
/// 7. [`Port::post`] takes a prefix of the batch, in order, and leaves the rest; it never blocks. A signaled request
///    keeps its place in the send queue until its completion is polled.
/// 8. Requests of one queue pair complete in the order they were posted.
/// 9. Each signaled request yields exactly one completion; an unsignaled one only if it fails.
/// 10. Once one completion is flushed, every later one of that queue pair is, except Receives, which
///     return to the shared queue and are not reported.
/// 11. A completed Write's bytes are at rest before a later Send of the same queue pair is received.
///     By then its octets are counted with the lease they were placed in, unless `Promises` excepts that.
/// 12. Reads beyond the granted ORD wait in the send queue; the peer never sees more. Where the ORD is zero, a Read
///     fails.
/// 13. A fenced request does not start before earlier Reads of its queue pair completed.
/// 14. An inline Send's source may be reused as soon as `post`, or [`Port::send`], returns.
///
/// Receive queue
/// 15. Receives are used in the order they were posted, by whichever queue pair a message is for, or by those
///     they are reserved for (line 25).
/// 16. A Send that finds no Receive waits; neither end loses the connection over it.
/// 17. A Send larger than the Receive it meets ends the connection, and only that one.
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
/// 24. A message that `receive_inline` takes is taken in its turn: behind all that was polled of its queue
///     pair, and before what is polled next. One that is not taken arrives as if nobody had asked.
///
/// Receive queues of each queue pair
/// 25. What is reserved for a queue pair (`reserve_receives`) it has as soon as it is posted, before and after
///     it was connected, Receives and reservations each in order. What it leaves is for the others. Where
///     receives are shared, it may have more.
///
/// While messages are taken without Receives
/// 26. What a [`Port`] does at once is what a work request would do: it has happened before the message
///     that is sent behind it arrives, and a handle that it retired is out of the peer's reach.
/// 27. What it sends with a [`Heading`] is a message like any other: that, and what was behind it.
pub trait Provider: sealed::Sealed {
    /// Names a listener of this provider.
    type Listener: Copy + Eq + fmt::Debug;
    /// Sends on one queue pair.
    type Port<'a>: Port
    where
        Self: 'a;

    /// Describes limits and optional abilities, fixed for the provider's life.
    fn caps(&self) -> &Caps;

    /// Listens at `at`; port 0 lets the system choose. Returns the address really bound.
    fn listen(&mut self, at: SocketAddr) -> io::Result<(Self::Listener, SocketAddr)>;

    /// Stops listening. Requests already reported stay answerable.
    fn unlisten(&mut self, listener: Self::Listener);

    /// Starts connecting to `to`.
    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        params: &ConnectionParams<'_>,
    ) -> Result<QpNum, ConnectError>;

    /// Answers a `Request`. Its peer may have left since: what is accepted then ends as a connection that is lost,
    /// with `Established` before or without.
    fn answer(&mut self, now: Instant, qp: QpNum, answer: &ConnectionAnswer<'_>);

    /// Asks the system for the user at the other end of a queue pair that a listener reported. One question a
    /// connection: it takes system calls.
    fn peer_user(&mut self, qp: QpNum) -> PeerUser;

    /// Closes a connection in order: what was posted before leaves first, within a deadline. One that its peer has
    /// not accepted ends in `Failed`, and one that has not been answered is rejected.
    fn disconnect(&mut self, now: Instant, qp: QpNum);

    /// Returns what sends on a queue pair; `None` if there is no such queue pair any more. It may be `None` whenever
    /// nothing can be sent: before the connection is accepted, and after `disconnect`.
    fn port(&mut self, qp: QpNum) -> Option<Self::Port<'_>>;

    /// Takes messages without Receives: of each queue pair in its turn the next ones, as long as each is a
    /// Send of at most `length_max` octets, where the provider may put it, and `inlet` takes it. `room`, of at
    /// least as many octets, is to put them in. Returns how many were taken, at most `budget`. The first that
    /// is not taken stays, and [`Self::poll`] reports it in a Receive. Each queue pair is asked once between
    /// two polls.
    ///
    /// A queue pair that a message was taken from may have more, which the next poll leaves here: who
    /// calls this does so before every poll. One that has a receive queue of its own has no such messages.
    fn receive_inline(
        &mut self,
        room: &mut [u8],
        length_max: usize,
        budget: usize,
        inlet: &mut impl Inlet,
    ) -> usize {
        let _ = (room, length_max, budget, inlet);
        0
    }

    /// Posts Receives for all queue pairs, removing what it took.
    fn post_receives(&mut self, batch: &mut Vec<Receive>) -> Result<(), QueueFull>;

    /// Reserves `count` Receives more for a queue pair, each for one message, at most
    /// [`Caps::receives_each`] that have not been used. Whoever tells its peer that it may send so many more
    /// has done this before, with as many posted; for the first messages before `answer`, or after
    /// `connect` and before the next `poll`. Those of a queue pair that is gone are reserved for nobody.
    ///
    /// It is nothing to a provider whose queue pairs share their Receives.
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

    /// Returns what moved so far. A provider that counts nothing returns zeros.
    fn counters(&self) -> Counters;
}

/// Acts on messages that are taken without Receives.
pub trait Inlet {
    /// Takes the first of a run of messages of a queue pair, on which `port` sends. Returns how many it took; of the
    /// others nothing has happened. A message that invalidates a handle is taken only once [`Port::retire`] has
    /// retired that.
    fn messages(&mut self, qp: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize;
}

/// Messages of one queue pair, in order of arrival: at least one, at most [`RUN_MAX`].
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// The octets of each message; behind its heading, if the messages have one.
    pub octets: &'a [&'a [u8]],
    /// What the messages have in common.
    pub kind: RunKind<'a>,
}

/// What the messages of a [`Run`] have in common.
#[derive(Clone, Copy, Debug)]
pub enum RunKind<'a> {
    /// Nothing: each is all of its octets.
    Whole,
    /// Each was sent with this heading, and the label at its place.
    Headed(&'a Heading, &'a [Label]),
    /// Each invalidates the handle at its place.
    Invalidating(&'a [Handle]),
}

/// Messages of a [`Run`] at most.
pub const RUN_MAX: usize = 16;

/// Sends on one queue pair, in the order in which it is told to. What waits for a doorbell leaves with the next
/// [`Port::post`], which may be of nothing.
///
/// What is sent, written or read by octets is done with them as soon as the method returns. It takes no place in the
/// send queue, and no completion tells of it: if it fails, the end of the connection does.
pub trait Port {
    /// Sends a message of at most [`Caps::inline_max`] octets. It may invalidate a handle of the peer's.
    ///
    /// # Errors
    /// [`Refused`]: nothing happened. The message can be posted, behind what waits.
    fn send(&mut self, message: &[u8], invalidate: Option<Handle>) -> Result<(), Refused>;

    /// Sends a message that begins with `heading`, for which it has room: what is there may change. Others with the
    /// same heading are likely to follow.
    ///
    /// # Errors
    /// [`Refused`]: nothing happened otherwise, as of [`Self::send`].
    fn send_headed(
        &mut self,
        heading: &Heading,
        label: Label,
        message: &mut [u8],
    ) -> Result<(), Refused> {
        heading.put(message, label).ok_or(Refused::TooLong)?;
        self.send(message, None)
    }

    /// Writes octets to memory of the peer, part behind part, as many as `target` has: RDMA Writes.
    ///
    /// # Errors
    /// [`Refused`]: nothing happened. The Writes can be staged, or posted.
    fn write(&mut self, parts: &[&[u8]], target: &ClaimedSegment) -> Result<(), Refused> {
        let _ = (parts, target);
        Err(Refused::TooLong)
    }

    /// Reads octets of the peer's memory, all that `octets` holds, before this returns: an RDMA Read, where that
    /// takes no waiting.
    ///
    /// # Errors
    /// [`Refused`]: nothing happened. [`Refused::NotNow`] leaves the message that asks for it to the next turn;
    /// otherwise the Read can be posted, into memory of its own.
    fn read(&mut self, source: &ClaimedSegment, octets: &mut [u8]) -> Result<(), Refused> {
        let _ = (source, octets);
        Err(Refused::TooLong)
    }

    /// Opens a lease to the peer to be read, or written, under a fresh handle: an unsignaled FastReg, ahead of all
    /// that is sent from now on. Returns where the lease is in the peer's terms.
    ///
    /// # Errors
    /// The lease comes back, and nothing happened. [`Refused::Full`]: all registrations are in use.
    /// [`Refused::NotOpen`]: the peer cannot reach it. [`Refused::Gone`]: there is no connection.
    fn open(&mut self, lease: Local, access: Access) -> OpenResult;

    /// Retires a handle that the message to be taken invalidates; `None` if that cannot be now, or the handle
    /// is of nothing that is open.
    fn retire(&mut self, handle: Handle) -> Option<Done> {
        let _ = handle;
        None
    }

    /// Takes a Write to go ahead of what is sent after it, no later than with the next doorbell.
    ///
    /// # Errors
    /// The request comes back, and nothing happened: it can be posted.
    fn stage(&mut self, request: WorkRequest) -> Result<(), WorkRequest> {
        Err(request)
    }

    /// Posts a prefix of `batch` with one doorbell, removing what it took. A FastReg is not posted: [`Self::open`]
    /// reserves the handle that it would need.
    ///
    /// The connection may have ended already. Before a `poll` finds that out, what is posted is taken, and flushed; from
    /// then on it is flushed or left.
    ///
    /// # Errors
    /// [`QueueFull`]: some are left; post them again after completions.
    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull>;
}

impl<P: Port> Port for &mut P {
    fn send(&mut self, message: &[u8], invalidate: Option<Handle>) -> Result<(), Refused> {
        (**self).send(message, invalidate)
    }

    fn send_headed(
        &mut self,
        heading: &Heading,
        label: Label,
        message: &mut [u8],
    ) -> Result<(), Refused> {
        (**self).send_headed(heading, label, message)
    }

    fn write(&mut self, parts: &[&[u8]], target: &ClaimedSegment) -> Result<(), Refused> {
        (**self).write(parts, target)
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

    fn stage(&mut self, request: WorkRequest) -> Result<(), WorkRequest> {
        (**self).stage(request)
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        (**self).post(batch)
    }
}

/// A lease that is open to the peer, and where it is in the peer's terms; or the lease, and why it is not open.
pub type OpenResult = Result<(Exposed, Segment), (Local, Refused)>;

/// Why a [`Port`] did not do at once what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for it now, or something waits that goes first.
    Full,
    /// It is longer than what goes so.
    TooLong,
    /// The peer's memory is not open to it.
    NotOpen,
    /// Enough was done for one turn.
    NotNow,
    /// The connection is not open.
    Gone,
}

/// Answers a peer that wants a connection.
#[derive(Clone, Copy, Debug)]
pub enum ConnectionAnswer<'a> {
    /// The connection is to be.
    Accept(ConnectionParams<'a>),
    /// It is not; the peer is told this.
    Reject(&'a [u8]),
}

/// Gives up a lease for the peer to read, or to write, under a handle. Returns the view that its registration
/// takes, too.
pub(crate) fn expose(
    lease: Local,
    handle: Handle,
    access: Access,
) -> (Exposed, alphabet::Exposure<Source, Sink>) {
    match access {
        Access::RemoteRead => {
            let (exposed, source) = lease.expose_read(handle);
            (exposed, alphabet::Exposure::RemoteRead(source))
        }
        Access::RemoteWrite => {
            let (exposed, sink) = lease.expose_write(handle);
            (exposed, alphabet::Exposure::RemoteWrite(sink))
        }
    }
}

/// Entries waiting to be posted on one send queue, oldest first.
pub type WorkQueue = std::collections::VecDeque<WorkRequest>;

/// Limits and abilities of a provider.
#[derive(Clone, Debug)]
pub struct Caps {
    /// The provider's name, as the command line spells it.
    pub name: &'static str,
    /// Queue pairs that can exist at once; their slots are below.
    pub queue_pairs_max: usize,
    /// Work requests one send queue holds: no fewer than the longest run of which only the last is
    /// signaled, a Reply behind the Writes of its result.
    pub send_queue_max: usize,
    /// Octets of the longest [`Port::send`]; zero if there is none.
    pub inline_max: usize,
    /// Octets of the longest [`Port::read`]; zero if there is none.
    pub read_max: u32,
    /// Events that one turn of a core takes: enough for doorbells to cost little, and so few that the
    /// peer has the answers to some while the others are served.
    pub turn_events: usize,
    /// Receives there can be in all: the shared queue holds as many.
    pub receive_queue_max: usize,
    /// Receives one queue pair may have reserved, if each has a queue of its own (line 25); `None` if they
    /// share one.
    pub receives_each: Option<usize>,
    /// Registrations that can be in flight at once.
    pub registrations_max: usize,
    /// RDMA Reads a connection may have outstanding as Requester (ORD), before negotiation.
    pub ord_max: u32,
    /// RDMA Reads a connection may serve at once (IRD), before negotiation.
    pub ird_max: u32,
    /// How memory is opened to a peer.
    pub strategy: haulage_mr_pool::Strategy,
    /// What a library calls the way in which work requests are handed to the device, if there is more than
    /// one.
    pub posting: Option<&'static str>,
    /// What of the contract the device keeps.
    pub promises: Promises,
}

/// Which parts of the contract a provider keeps that not every device does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promises {
    /// A peer is held to the range it was granted (line 20). Where it is not, it reaches the memory around
    /// it: the device is for tests, and for peers that are trusted.
    pub exact_bounds: bool,
    /// A peer is held to the access it was granted (line 20).
    pub exact_access: bool,
    /// A peer's Send with Invalidate is reported (line 21). Where it is not, handles are retired by
    /// LocalInv, whatever the peer did.
    pub remote_invalidation: bool,
    /// A handle is good for what was told of it, from FastReg to invalidation, and what a peer may write and
    /// does not stays as it was (lines 19 to 21). Where not, handles are of memory set apart for their
    /// connection: a peer that uses one early, late or beyond what it was told reaches no lease, but may
    /// spoil what its own connection receives, and what it does not write is zero or what it wrote before.
    pub handles_end: bool,
    /// The octets that a peer's Writes place under a handle are counted (`Sink::count_placed`), so that a Reply
    /// that claims more than was ever sent is found out. Octets that are placed twice count twice: a peer whose
    /// Writes overlap can still claim octets that it did not place. Where nothing is counted, because the peer
    /// or a device places the octets, a Reply is believed: a peer that lies has its Requester take what the
    /// lease held before for a result.
    pub counts_placed: bool,
    /// A Send that finds no Receive waits for one (line 16), rather than ending the connection.
    pub sends_wait: bool,
    /// What the passive end grants of Reads reaches the active one (line 3).
    pub grants_reads: bool,
    /// Each end learns that a connection ended because the RDMA protocol was broken, and by whom.
    pub explains_ends: bool,
}

impl Promises {
    /// The whole contract.
    pub const ALL: Self = Self {
        exact_bounds: true,
        exact_access: true,
        remote_invalidation: true,
        handles_end: true,
        counts_placed: true,
        sends_wait: true,
        grants_reads: true,
        explains_ends: true,
    };
}

/// The user at the other end of a connection, as far as this machine's system can vouch for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerUser {
    /// The peer is on another machine, about whose users this one knows nothing.
    Remote,
    /// The peer is on this machine, and its socket belongs to this user.
    Local(u32),
    /// The peer is on this machine, or may be, and the system does not name the user.
    Unknown,
}

impl PeerUser {
    /// Tells by its address alone where a peer is.
    pub(crate) fn by_address(peer: IpAddr) -> Self {
        let peer = peer.to_canonical();
        let is_ours = || match interfaces::addresses() {
            Ok(addresses) => addresses.iter().any(|address| address.to_canonical() == peer),
            Err(_) => true,
        };
        if peer.is_loopback() || is_ours() { Self::Unknown } else { Self::Remote }
    }
}

/// What one end proposes for a connection, or grants.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionParams<'a> {
    /// Carried to the peer during connection setup.
    pub private_data: &'a [u8],
    /// RDMA Reads we want to have outstanding.
    pub ord: u32,
    /// RDMA Reads we can serve at once.
    pub ird: u32,
}

/// Something a provider reports.
#[derive(Debug)]
pub enum Event<L> {
    /// A work request ended.
    Completion(Done),
    /// A listener met a peer; answer with [`Provider::answer`].
    Request {
        /// Where it arrived.
        listener: L,
        /// The queue pair it would get.
        qp: QpNum,
        /// Who asks.
        peer: SocketAddr,
        /// The process at the other end, if that is one of this machine and the provider knows which.
        process: Option<u32>,
        /// What the peer sent along.
        private_data: Box<[u8]>,
    },
    /// The connection carries messages now.
    Established {
        /// The queue pair.
        qp: QpNum,
        /// What the passive end sent along; empty at the passive end itself.
        private_data: Box<[u8]>,
        /// RDMA Reads we may have outstanding.
        ord: u32,
        /// RDMA Reads the peer may have outstanding.
        ird: u32,
    },
    /// The connection never came to be. No other event of `qp` follows.
    Failed {
        /// The queue pair `connect` returned.
        qp: QpNum,
        /// Why.
        reason: ConnectError,
    },
    /// The connection is gone; flushed completions and `Quiesced` follow.
    Disconnected {
        /// The queue pair.
        qp: QpNum,
        /// Why.
        reason: DisconnectReason,
    },
    /// Nothing of the connection is left in the provider.
    Quiesced(Quiesced),
}

/// A completion that a provider really reported.
///
/// Leases come back against one of these, so nothing outside this crate can make or copy one: safe
/// code cannot claim that the RNIC is done with memory it still holds.
#[derive(Debug)]
pub struct Done(Completion);

impl Done {
    /// States that every view of the memory named by this work request has been dropped.
    pub(crate) const fn new(completion: Completion) -> Self {
        Self(completion)
    }

    /// States the same of the registration that a message invalidated, which was taken without a Receive.
    pub(crate) const fn invalidating(qp: QpNum, handle: Handle) -> Self {
        let (id, length, invalidated) = (WrId(0), 0, Some(handle));
        let (opcode, status) = (Opcode::Receive, Status::Success);
        Self(Completion { id, qp, opcode, status, length, invalidated })
    }
}

impl Deref for Done {
    type Target = Completion;

    fn deref(&self) -> &Completion {
        &self.0
    }
}

/// Evidence that a provider holds nothing of a connection any more: no request, no registration.
#[derive(Debug)]
pub struct Quiesced(QpNum);

impl Quiesced {
    /// States that every view that belonged to `qp` has been dropped.
    pub(crate) const fn new(qp: QpNum) -> Self {
        Self(qp)
    }

    /// Returns the queue pair.
    pub const fn qp(&self) -> QpNum {
        self.0
    }
}

/// Why a connection could not be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// Nobody listens there.
    Refused,
    /// The peer did not finish the handshake in time.
    TimedOut,
    /// The peer answered no.
    Rejected,
    /// The peer's handshake was not one: what was wrong with it.
    BadHandshake(&'static str),
    /// The system said no.
    System(io::ErrorKind),
    /// All queue pairs are in use.
    NoQueuePair,
    /// The system does not let as many octets of memory be registered for it.
    Memory(u64),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("connection refused"),
            Self::TimedOut => f.write_str("connection setup timed out"),
            Self::Rejected => f.write_str("the peer rejected the connection"),
            Self::BadHandshake(what) => write!(f, "bad handshake: {what}"),
            Self::System(kind) => write!(f, "{kind}"),
            Self::NoQueuePair => f.write_str("no queue pair is free"),
            Self::Memory(octets) => {
                write!(f, "cannot register {octets} bytes of memory for one connection more")?;
                match process::memlock_limit() {
                    Ok(Some(limit)) => write!(
                        f,
                        "; memlock allows {limit} in all: `prlimit --pid $$ \
                         --memlock=unlimited:unlimited` as root lifts that"
                    ),
                    _ => Ok(()),
                }
            }
        }
    }
}

impl std::error::Error for ConnectError {}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// We asked for it.
    Local,
    /// The peer closed in order.
    Peer,
    /// The peer vanished, or the network between.
    Lost,
    /// The peer broke the RDMA protocol; we told it which rule.
    PeerMisbehaved(&'static str),
    /// The peer says we broke the RDMA protocol: layer, error type and code of its Terminate.
    Terminated {
        /// RDMAP, DDP or MPA.
        layer: u8,
        /// Error type within the layer.
        etype: u8,
        /// Error code within the type.
        code: u8,
    },
    /// The peer made no progress for this long with work that waits for it.
    NoProgress(Stall, Duration),
    /// The peer sent more FPDUs that deliver nothing than anybody has reason to (RFC 5042 section 6.4).
    Flooded,
}

/// Work that waits for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// An RDMA Read of ours is to be answered.
    Read,
    /// Output of ours is to be taken.
    Output,
    /// A message, or an FPDU, that has begun is to be completed.
    Message,
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("closed by us"),
            Self::Peer => f.write_str("closed by the peer"),
            Self::Lost => f.write_str("connection lost"),
            Self::PeerMisbehaved(rule) => write!(f, "the peer broke the protocol: {rule}"),
            Self::NoProgress(stall, limit) => {
                let what = match stall {
                    Stall::Read => "the peer does not answer an RDMA Read",
                    Stall::Output => "the peer does not take what it is sent",
                    Stall::Message => "the peer does not complete a message",
                };
                write!(f, "no progress for {} s: {what}", limit.as_secs_f64())
            }
            Self::Flooded => f.write_str("the peer floods us with messages that deliver nothing"),
            Self::Terminated { layer, etype, code } => {
                let told = Code { layer: *layer, etype: *etype, code: *code };
                write!(f, "terminated by the peer ({told})")?;
                // Which of the two it is cannot be told from the message.
                match told.swapped().filter(|meant| meant.rule().is_some()) {
                    Some(meant) => write!(f, ", by which Linux siw means {meant}"),
                    None => Ok(()),
                }
            }
        }
    }
}

/// The queue has no room; post again after completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull;

/// What a provider moved since it was made. Plain integers of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Octets of Writes, Read Responses and Sends that the CPU copied to their place after they had
    /// left the network.
    pub bytes_copied: u64,
    /// Octets that arrived in their place with no copy of ours.
    pub bytes_direct: u64,
    /// Octets of tagged data (Writes and Read Responses) received.
    pub tagged_received: u64,
    /// Octets of tagged data sent.
    pub tagged_sent: u64,
    /// Octets of tagged data that the CPU copied at this end, ours or the system's copies, each
    /// counted: divided by the payload, the copies per byte.
    pub tagged_copied: u64,
    /// Octets copied by the system between our memory and the network, both ways.
    pub bytes_system: u64,
    /// System calls made.
    pub syscalls: u64,
    /// Messages (Sends) sent.
    pub sends: u64,
    /// Messages (Sends) received.
    pub receives: u64,
    /// Times messages left: together in one batch, such as one write to a socket.
    pub send_batches: u64,
    /// Polls that found messages.
    pub receive_batches: u64,
    /// Handles retired by a peer's Send with Invalidate.
    pub invalidated_remote: u64,
    /// Handles retired by LocalInv.
    pub invalidated_local: u64,
}

impl Counters {
    /// Counts tagged data that leaves by the system's copy.
    pub(crate) const fn count_tagged(&mut self, octets: usize) {
        self.tagged_sent += octets as u64;
        self.tagged_copied += octets as u64;
    }
}

pub use crate::sys::wake::Waker;

pub(crate) mod sealed {
    /// Implemented by the providers of this crate alone.
    #[expect(
        unnameable_types,
        reason = "a trait nobody else can name is one nobody else implements"
    )]
    pub trait Sealed {}
}
