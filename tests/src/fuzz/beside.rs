//! A provider under attack, and an honest connection that must come to no harm.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use haulage::provider::{ConnectionParams, Event, Outgoing, Provider, Quiesced};
use haulage_mr_pool::{Exposed, Local, Pool, PostedSink, PostedSource};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, Opcode, QpNum, Segment, Status};

use super::bound::within;
use crate::bed::{End, SIGNALED, fence, filled, spent};
use crate::by_number::ByNumber as _;

/// The provider, an honest peer of its own kind, and their connection. Time advances by a fixed step with each poll.
pub(super) struct Scene<P: Provider> {
    pub(super) victim: End<P>,
    honest: End<P>,
    pub(super) now: Instant,
    /// The address at which the victim listens.
    pub(super) at: SocketAddr,
    /// The queue pair at the victim, and at the honest peer.
    link: [QpNum; 2],
    /// A lease of the honest peer that the victim may write.
    exposed: Option<(Exposed, Segment)>,
    /// Leases posted at the victim, which it may still hold.
    lent: Vec<Lent>,
}

/// A lease that a provider may hold views of.
pub(super) enum Lent {
    /// Posted to be filled.
    Sink(PostedSink),
    /// Posted to be sent.
    Source(PostedSource<Local>),
    /// Given to a port.
    Message(Box<Outgoing>),
}

impl<P: Provider> Scene<P> {
    /// Connects an honest peer to the victim. Each provider comes with its pool.
    pub(super) fn new(victim: (P, Pool), honest: (P, Pool)) -> Self {
        let (mut victim, mut honest) = (End::new(victim.0, victim.1), End::new(honest.0, honest.1));
        let (_, at) = victim.provider.listen(LOCAL).expect("a free port");
        let now = Instant::ZERO;
        let active = honest.provider.connect(now, at, &PARAMS).expect("a queue pair");
        let mut scene =
            Self { victim, honest, now, at, link: [active; 2], exposed: None, lent: Vec::new() };
        scene.link[0] = scene.until("a request", Self::requested);
        scene.victim.provider.accept(now, scene.link[0], &PARAMS);
        let qp = scene.link[0];
        scene.until("the connection", |scene| scene.victim.established(qp).map(drop));
        scene.until("the connection", |scene| scene.honest.established(active).map(drop));
        scene.exposed = Some(scene.honest.expose(active, &[7; 16], Access::RemoteWrite));
        scene
    }

    /// Takes the queue pair of the next request.
    pub(super) fn requested(&mut self) -> Option<QpNum> {
        match self.victim.take(|event| matches!(event, Event::Request { .. }))? {
            Event::Request { qp, .. } => Some(qp),
            _ => None,
        }
    }

    /// Takes the `Quiesced` of a connection at the victim.
    pub(super) fn quiesced(&mut self, qp: QpNum) -> Option<Quiesced> {
        match self.victim.take(|event| matches!(event, Event::Quiesced(q) if q.qp() == qp))? {
            Event::Quiesced(quiesced) => Some(quiesced),
            _ => None,
        }
    }

    /// Advances time and polls both. The victim's poll must allocate little.
    pub(super) fn poll(&mut self) {
        self.now = self.now.saturating_add(TICK);
        let (victim, now) = (&mut self.victim, self.now);
        within(POLL_OCTETS_MAX, || victim.poll(now, 64));
        self.honest.poll(self.now, 64);
    }

    /// Polls until `found` finds something.
    pub(super) fn until<T>(
        &mut self,
        what: &str,
        mut found: impl FnMut(&mut Self) -> Option<T>,
    ) -> T {
        for _ in 0..POLLS_MAX {
            if let Some(found) = found(self) {
                return found;
            }
            self.poll();
        }
        panic!("waited in vain for {what}: {:?} {:?}", self.victim.log, self.honest.log);
    }

    /// Keeps a posted lease until the end.
    pub(super) fn lend(&mut self, lent: Lent) {
        self.lent.push(lent);
    }

    /// Drops both providers, checks that all leases are home, and returns the pools.
    pub(super) fn end(self) -> [Pool; 2] {
        let Self { victim, honest, lent, .. } = self;
        let ends = [victim, honest].map(|End { provider, pool, .. }| {
            drop(provider);
            pool
        });
        for lent in lent {
            let is_home = match lent {
                Lent::Sink(posted) => posted.complete().is_ok(),
                Lent::Source(posted) => posted.complete().is_ok(),
                Lent::Message(message) => message.into_own().is_some(),
            };
            assert!(is_home, "a provider that is gone has no views");
        }
        for pool in &ends {
            assert_eq!((pool.gauges().leased_bytes, pool.gauges().orphans), (0, 0));
        }
        ends
    }

    /// Checks that the honest peer came to no harm: a message from it arrives, and the victim can write its memory.
    pub(super) fn assert_unharmed(&mut self) {
        let [here, there] = self.link;
        let (received, sink) = self.victim.receive(here, 64);
        let (sent, source) = self.honest.send(there, b"alive", None, SIGNALED);
        let is_ours = |event: &Event<P::Listener>| matches!(event, Event::Completion(done) if done.qp == here && done.opcode == Opcode::Receive);
        let done = self.until("a message", |scene| match scene.victim.take(is_ours)? {
            Event::Completion(done) => Some(done),
            _ => None,
        });
        assert_eq!((done.status, done.length), (Status::Success, 5));
        // Another Receive may have been first in the queue.
        if done.id == received {
            assert_eq!(&filled(sink, &done).bytes()[..5], b"alive");
        } else {
            self.lend(Lent::Sink(sink));
        }
        let done = self.until("its completion", |scene| scene.honest.done(sent));
        drop(spent(source, &done));

        // A Write completes where it was posted. The message behind it tells that it is in its place.
        let (exposed, segment) = self.exposed.take().expect("it is asked once");
        let (received, sink) = self.honest.receive(there, 64);
        let (wrote, written) = self.victim.write(here, &[9; 16], segment);
        let (sent, source) = self.victim.send(here, b"placed", None, SIGNALED);
        let done = self.until("a Write", |scene| scene.victim.done(wrote));
        assert_eq!(done.status, Status::Success);
        drop(spent(written, &done));
        let done = self.until("the message behind it", |scene| scene.honest.done(received));
        assert_eq!(filled(sink, &done).bytes()[..6], *b"placed");
        let done = self.until("its completion", |scene| scene.victim.done(sent));
        drop(spent(source, &done));
        let retired = self.honest.invalidate(there, &exposed);
        let done = self.until("an invalidation", |scene| scene.honest.done(retired));
        assert_eq!(fence(exposed, &done).bytes(), [9; 16]);
    }
}

/// The parameters of both ends of a connection.
pub(super) const PARAMS: ConnectionParams<'static> =
    ConnectionParams { private_data: b"", ord: 2, ird: 2 };
pub(super) const LOCAL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Time that passes with each poll: enough for sockets to be polled.
const TICK: Duration = Duration::from_millis(1);
/// Number of polls in which all deadlines pass.
const POLLS_MAX: u32 = 10_000;
/// Maximum number of octets allocated in one poll, with the memory for its events.
const POLL_OCTETS_MAX: u64 = 64 << 10;
