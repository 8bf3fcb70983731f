//! Two ends of one kind of provider, stepped by hand.

use std::net::SocketAddr;
use std::time::Duration;

use haulage::provider::{
    ConnectionParams, Done, Event, Head, Operation, Outgoing, Place, Provider, Quiesced, Receive,
    Sent, WorkQueue, WorkRequest,
};
use haulage::sys::complete;
use haulage_mr_pool::{Exposed, Local, Pool, PostedSink, PostedSource};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, ClaimedSegment, Flags, Handle, QpNum, Segment, Status, WrId};

use crate::by_number::ByNumber as _;
use crate::network::{Expect, Network};
use crate::pattern;

/// The end that connects, as an index of [`Bed::ends`].
pub const ACTIVE: usize = 0;
/// The end that listens.
pub const PASSIVE: usize = 1;

/// Two providers of one network, and the events they reported.
#[derive(Debug)]
pub struct Bed<N: Network> {
    /// The network of both providers.
    pub network: N,
    /// The active end, then the passive one.
    pub ends: [End<N::Provider>; 2],
    /// Another provider of the passive end's host, if that is where peers arrive: the passive end adopts them.
    dealer: Option<End<N::Provider>>,
    listening: SocketAddr,
}

/// One provider, its memory, and the events it reported that no test has taken yet.
#[derive(Debug)]
pub struct End<P: Provider> {
    /// The provider.
    pub provider: P,
    /// The pool of its leases.
    pub pool: Pool,
    /// Events in the order of their reports.
    pub log: Vec<Event<P::Listener>>,
    /// Peers that wait are adopted before each poll.
    pub adopts: bool,
    ids: u64,
}

/// A connection: its queue pair at each end.
pub type Link = [QpNum; 2];

/// The parameters of both ends, unless a test uses others.
pub const PARAMS: ConnectionParams<'static> =
    ConnectionParams { private_data: b"hello", ord: 8, ird: 8 };

/// Flags of a request that reports its success.
pub const SIGNALED: Flags = Flags { signaled: true, fence: false, copied: false };
/// Flags of a request that does not report its success.
pub const UNSIGNALED: Flags = Flags { signaled: false, fence: false, copied: false };

impl<N: Network> Bed<N> {
    /// Builds both ends; the passive one listens, or another provider of its host does.
    pub fn new(mut network: N) -> Self {
        let (active, active_pool, _) = network.join();
        let (passive, passive_pool, at) = network.join();
        let mut ends = [End::new(active, active_pool), End::new(passive, passive_pool)];
        let mut dealer = None;
        let mut host = (&mut ends[PASSIVE], at);
        if network.has_dealer() {
            let (provider, pool, at) = network.join();
            host = (dealer.insert(End { adopts: false, ..End::new(provider, pool) }), at);
        }
        let (_, listening) = host.0.provider.listen(host.1).expect("a free port");
        Self { network, ends, dealer, listening }
    }

    /// Returns the address at which the passive end listens.
    pub const fn listening(&self) -> SocketAddr {
        self.listening
    }

    /// Drops the passive end without closing its connections, and puts another in its place.
    pub fn replace_passive(&mut self) {
        let (mut passive, pool, at) = self.network.join();
        if self.dealer.is_none() {
            (_, self.listening) = passive.listen(at).expect("a free port");
        }
        self.ends[PASSIVE] = End::new(passive, pool);
    }

    /// Puts another active end in its place. Returns the one there was.
    pub fn replace_active(&mut self) -> End<N::Provider> {
        let (active, pool, _) = self.network.join();
        std::mem::replace(&mut self.ends[ACTIVE], End::new(active, pool))
    }

    /// Takes a peer that has reached the listener, whether or not the passive end has a slot for it.
    pub fn next_incoming(&mut self) -> Option<<N::Provider as Provider>::Incoming> {
        let now = self.network.now();
        let host = self.dealer.as_mut().unwrap_or(&mut self.ends[PASSIVE]);
        host.provider.next_incoming(now, || true)
    }

    /// Polls each end for at most as many events as `budgets` allows, and lets time pass.
    pub fn turn(&mut self, budgets: [usize; 2]) -> Expect {
        let moved = self.poll(budgets);
        let next = self.next(budgets);
        self.network.wait(moved, next)
    }

    fn poll(&mut self, budgets: [usize; 2]) -> bool {
        let now = self.network.now();
        self.deal(now);
        let [active, passive] = &mut self.ends;
        active.poll(now, budgets[ACTIVE]) | passive.poll(now, budgets[PASSIVE])
    }

    /// Has the passive end adopt the peers that have reached its host's listener.
    fn deal(&mut self, now: Instant) {
        let Self { ends: [_, passive], dealer: Some(dealer), .. } = self else { return };
        while passive.adopts
            && let Some(incoming) = dealer.provider.next_incoming(now, || true)
        {
            drop(passive.provider.adopt(now, incoming, Place::default()));
        }
        dealer.poll(now, BUDGET);
        assert!(dealer.log.is_empty(), "{:?} where it was not adopted", dealer.log);
    }

    /// Returns when an end must be polled even if nothing arrives. An end with no budget does not
    /// count: the events it holds back are always due.
    fn next(&self, budgets: [usize; 2]) -> Option<Instant> {
        let ends = self.ends.iter().zip(budgets).filter(|(_, budget)| *budget > 0);
        let dealer = self.dealer.iter().filter(|_| self.ends[PASSIVE].adopts);
        let polled = ends.map(|(end, _)| end).chain(dealer);
        polled.filter_map(|end| end.provider.poll_deadline()).min()
    }

    /// Turns until `found` finds something.
    ///
    /// # Panics
    /// If nothing happens any more, or after far too many turns. `what` names the awaited event in
    /// the message.
    pub fn until<T>(&mut self, what: &str, found: impl FnMut(&mut Self) -> Option<T>) -> T {
        self.until_with([BUDGET; 2], what, found)
    }

    /// Turns until `found` finds something, polling each end for at most as many events as
    /// `budgets` allows.
    ///
    /// # Panics
    /// If nothing happens any more, or after far too many turns.
    pub fn until_with<T>(
        &mut self,
        budgets: [usize; 2],
        what: &str,
        mut found: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        for _ in 0..TURNS_MAX {
            if let Some(found) = found(self) {
                return found;
            }
            if self.turn(budgets) == Expect::Stuck {
                break;
            }
        }
        let logs = self.ends.each_ref().map(|end| &end.log);
        panic!("waited in vain for {what}; unclaimed events: {logs:#?}");
    }

    /// Turns until nothing happens any more, without letting distant deadlines pass.
    pub fn linger(&mut self, budgets: [usize; 2]) {
        let end = self.network.now().saturating_add(SOON);
        for _ in 0..TURNS_MAX {
            let moved = self.poll(budgets);
            let next = self.next(budgets).filter(|next| *next <= end);
            if self.network.wait(moved, next) != Expect::More {
                return;
            }
        }
        panic!("no end of events");
    }

    /// Turns until nothing happens any more, however long it takes.
    pub fn settle(&mut self) {
        for _ in 0..TURNS_MAX {
            if self.turn([BUDGET; 2]) != Expect::More {
                return;
            }
        }
        panic!("no end of events");
    }

    /// Connects with [`PARAMS`].
    pub fn connect(&mut self) -> Link {
        self.connect_with(&PARAMS, &PARAMS).0
    }

    /// Connects. Returns the connection and the granted (ORD, IRD) of each end.
    pub fn connect_with(
        &mut self,
        active: &ConnectionParams<'_>,
        passive: &ConnectionParams<'_>,
    ) -> (Link, [(u32, u32); 2]) {
        let link = self.request(active);
        self.ends[PASSIVE].provider.accept(self.network.now(), link[PASSIVE], passive);
        let granted = [ACTIVE, PASSIVE].map(|end| {
            let established = self.until("Established", |bed| bed.ends[end].established(link[end]));
            (established.1, established.2)
        });
        (link, granted)
    }

    /// Starts to connect. Returns the connection once the passive end has reported the request.
    pub fn request(&mut self, params: &ConnectionParams<'_>) -> Link {
        let (now, to) = (self.network.now(), self.listening);
        let active = self.ends[ACTIVE].provider.connect(now, to, params).expect("a queue pair");
        [active, self.requested()]
    }

    /// Starts to connect. Returns the active end's queue pair, and the peer that has reached the listener.
    pub fn arrive(&mut self) -> (QpNum, <N::Provider as Provider>::Incoming) {
        self.ends[PASSIVE].adopts = false;
        let (now, to) = (self.network.now(), self.listening);
        let qp = self.ends[ACTIVE].provider.connect(now, to, &PARAMS).expect("a queue pair");
        let incoming = self.until("a peer", Self::next_incoming);
        // That it came is progress, as an event is.
        self.network.wait(true, None);
        self.ends[PASSIVE].adopts = true;
        (qp, incoming)
    }

    /// Waits for a `Request` at the passive end. Returns its queue pair.
    pub fn requested(&mut self) -> QpNum {
        self.until("Request", |bed| {
            match bed.ends[PASSIVE].take(|event| matches!(event, Event::Request { .. }))? {
                Event::Request { qp, .. } => Some(qp),
                _ => None,
            }
        })
    }

    /// Waits for the completion of `id` at `end`.
    pub fn done(&mut self, end: usize, id: WrId) -> Done {
        self.until(&format!("completion {} at end {end}", id.0), |bed| bed.ends[end].done(id))
    }

    /// Waits for the completion of `id` at `end`, which must be a success.
    pub fn succeeded(&mut self, end: usize, id: WrId) -> Done {
        let done = self.done(end, id);
        assert_eq!(done.status, Status::Success, "{done:?}");
        done
    }

    /// Waits for `Quiesced` of `qp` at `end`. Earlier events stay in the log.
    pub fn quiesced(&mut self, end: usize, qp: QpNum) -> Quiesced {
        self.until("Quiesced", |bed| {
            let is_it = |event: &Event<_>| matches!(event, Event::Quiesced(q) if q.qp() == qp);
            match bed.ends[end].take(is_it)? {
                Event::Quiesced(quiesced) => Some(quiesced),
                _ => None,
            }
        })
    }

    /// Waits for the completion of a message that `end` sent, if it was taken.
    pub fn left(&mut self, end: usize, said: Said) {
        match said.sent {
            Sent::Copied => {}
            Sent::Taken => drop(said.message.complete(&self.succeeded(end, said.id))),
            sent => panic!("the message was not sent: {sent:?}"),
        }
    }

    /// Sends `bytes` from `end` over `link` and waits until the other end has them.
    pub fn carry(&mut self, link: Link, end: usize, bytes: &[u8]) {
        let (receive, sink) = self.ends[1 - end].receive(link[1 - end], bytes.len());
        let (send, source) = self.ends[end].send(link[end], bytes, None, SIGNALED);
        let done = self.succeeded(1 - end, receive);
        assert_eq!((done.qp, done.length as usize), (link[1 - end], bytes.len()));
        assert!(filled(sink, &done).bytes() == bytes, "a Send was garbled");
        spent(source, &self.succeeded(end, send));
    }
}

impl<P: Provider> End<P> {
    /// Builds an end with an empty log.
    pub const fn new(provider: P, pool: Pool) -> Self {
        Self { provider, pool, log: Vec::new(), adopts: true, ids: 0 }
    }

    /// Polls for at most `budget` events. Returns whether there were any.
    pub fn poll(&mut self, now: Instant, budget: usize) -> bool {
        let before = self.log.len();
        if self.adopts {
            self.provider.adopt_own(now);
        }
        self.provider.poll(now, budget, &mut self.log);
        assert!(self.log.len() - before <= budget, "more events than asked for");
        self.log.len() > before
    }

    /// Takes the first event that satisfies `is_it`.
    pub fn take(
        &mut self,
        is_it: impl FnMut(&Event<P::Listener>) -> bool,
    ) -> Option<Event<P::Listener>> {
        let at = self.log.iter().position(is_it)?;
        Some(self.log.remove(at))
    }

    /// Takes the completion of `id`, if it was reported.
    pub fn done(&mut self, id: WrId) -> Option<Done> {
        match self.take(|event| matches!(event, Event::Completion(done) if done.id == id))? {
            Event::Completion(done) => Some(done),
            _ => None,
        }
    }

    /// Takes the `Established` of `qp`, if it was reported. Returns its private data, ORD and IRD.
    pub fn established(&mut self, qp: QpNum) -> Option<(Box<[u8]>, u32, u32)> {
        let is_it =
            |event: &Event<_>| matches!(event, Event::Established { qp: q, .. } if *q == qp);
        match self.take(is_it)? {
            Event::Established { private_data, ord, ird, .. } => Some((private_data, ord, ird)),
            _ => None,
        }
    }

    /// Returns an id for a work request that this end has not used yet.
    pub fn id(&mut self) -> WrId {
        self.ids += 1;
        WrId(self.ids)
    }

    /// Leases memory that holds `bytes`.
    pub fn holding(&self, bytes: &[u8]) -> Local {
        let mut lease = self.pool.lease(bytes.len()).expect("memory for a test");
        lease.bytes_mut().copy_from_slice(bytes);
        lease
    }

    /// Posts one request, for which there must be room.
    pub fn post(&mut self, qp: QpNum, flags: Flags, operation: Operation) -> WrId {
        let id = self.id();
        let mut batch = [WorkRequest { id, flags, operation }].into();
        self.provider.post(qp, &mut batch).expect("room in the send queue");
        id
    }

    /// Posts a Send of `bytes`.
    pub fn send(
        &mut self,
        qp: QpNum,
        bytes: &[u8],
        invalidate: Option<Handle>,
        flags: Flags,
    ) -> (WrId, PostedSource<Local>) {
        let posted = self.holding(bytes).into_source();
        let source = posted.source(0..bytes.len()).expect("the whole lease");
        (self.post(qp, flags, Operation::Send { source, invalidate }), posted)
    }

    /// Makes the memory of a message of `bytes`.
    pub fn message(&self, bytes: &[u8]) -> Outgoing {
        Outgoing::within(self.holding(bytes))
    }

    /// Sends a message of `length` octets by the port of a queue pair.
    pub fn say(
        &mut self,
        qp: QpNum,
        (length, invalidate): (usize, Option<Handle>),
        mut message: Outgoing,
    ) -> Said {
        let (id, head) = (self.id(), Head::written(0..length, invalidate));
        let sent = self.provider.say(qp, &head, &mut message, id);
        Said { id, message, sent }
    }

    /// Posts a Write of `bytes`.
    pub fn write(
        &mut self,
        qp: QpNum,
        bytes: &[u8],
        target: Segment,
    ) -> (WrId, PostedSource<Local>) {
        let posted = self.holding(bytes).into_source();
        let source = posted.source(0..bytes.len()).expect("the whole lease");
        (self.post(qp, SIGNALED, Operation::Write { source, target: claim(target) }), posted)
    }

    /// Posts a Read of the whole of `source` for each of `flags`, with one doorbell. There must be
    /// room.
    pub fn reads(&mut self, qp: QpNum, source: Segment, flags: &[Flags]) -> Vec<WrId> {
        let length = source.length as usize;
        let mut batch = WorkQueue::new();
        for flags in flags {
            let mut posted = self.pool.lease(length).expect("memory for a test").into_sink();
            let sink = posted.sink(0..length).expect("the whole lease");
            let operation = Operation::Read { sink, source: claim(source) };
            batch.push_back(WorkRequest { id: self.id(), flags: *flags, operation });
        }
        let ids = batch.iter().map(|request| request.id).collect();
        self.provider.post(qp, &mut batch).expect("room in the send queue");
        ids
    }

    /// Posts a Read of the whole of `source`.
    pub fn read(&mut self, qp: QpNum, source: Segment, flags: Flags) -> (WrId, PostedSink) {
        let length = source.length as usize;
        let mut posted = self.holding(&pattern::of(length, 0)).into_sink();
        let sink = posted.sink(0..length).expect("the whole lease");
        (self.post(qp, flags, Operation::Read { sink, source: claim(source) }), posted)
    }

    /// Posts a Receive of `length` octets, reserved for a message on `qp`.
    pub fn receive(&mut self, qp: QpNum, length: usize) -> (WrId, PostedSink) {
        self.provider.reserve_receives(qp, 1);
        let mut posted = self.pool.lease(length).expect("memory for a test").into_sink();
        let sink = posted.sink(0..length).expect("the whole lease");
        let id = self.id();
        let mut batch = vec![Receive::single(id, sink)];
        self.provider.post_receives(&mut batch).expect("room in the receive queue");
        (id, posted)
    }

    /// Exposes memory that holds `bytes` to the peer of `qp`.
    pub fn expose(&mut self, qp: QpNum, bytes: &[u8], access: Access) -> (Exposed, Segment) {
        let lease = self.holding(bytes);
        self.provider.open(qp, lease, access).expect("a handle for a test")
    }

    /// Posts the LocalInv of an exposed lease.
    pub fn invalidate(&mut self, qp: QpNum, exposed: &Exposed) -> WrId {
        self.post(qp, SIGNALED, Operation::LocalInv { handle: exposed.handle() })
    }
}

/// A message that was given to a port.
#[derive(Debug)]
pub struct Said {
    /// The name of its completion, if there is one.
    pub id: WrId,
    /// The rest of the message, which this end still holds.
    pub message: Outgoing,
    /// The provider's answer to the message.
    pub sent: Sent,
}

/// Returns the claim to a segment.
pub fn claim(segment: Segment) -> ClaimedSegment {
    ClaimedSegment::try_from(segment).expect("a segment that does not wrap")
}

/// Takes back a posted source, of which the provider must hold no view.
pub fn spent(posted: PostedSource<Local>, done: &Done) -> Local {
    complete::source(posted, done).expect("no view is left")
}

/// Takes back a posted sink, of which the provider must hold no view.
pub fn filled(posted: PostedSink, done: &Done) -> Local {
    complete::sink(posted, done).expect("no view is left")
}

/// Takes an exposed lease back after `done` retired its handle.
pub fn fence(exposed: Exposed, done: &Done) -> Local {
    let proof = complete::invalidated(done).expect("a completion that retires a handle");
    exposed.fence(proof).map_err(|_| ()).expect("the handle of this lease, and no view left")
}

/// Takes an exposed lease back after its connection is gone.
pub fn outlive(exposed: Exposed, quiesced: &Quiesced) -> Local {
    let proof = complete::destroyed(&exposed, quiesced);
    exposed.fence(proof).map_err(|_| ()).expect("the handle of this lease, and no view left")
}

/// Events without a deadline come within this time.
const SOON: Duration = Duration::from_secs(1);
const BUDGET: usize = 64;
/// Maximum number of turns; in real time the network reports earlier that a test has hung.
const TURNS_MAX: u32 = 10_000_000;
