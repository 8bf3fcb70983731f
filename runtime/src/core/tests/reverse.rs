//! Calls of a server to its clients: the reverse direction of both versions.

use super::*;
use crate::provider::iwarp::{self, Iwarp};
use crate::provider::shm::{self, Expose, Shm};
use crate::service::Peer;
use crate::sys::clock;

/// A service at either end: it keeps what it is sent, and makes Calls itself.
#[derive(Debug, Default)]
struct Friend {
    keeper: Keeper,
    /// The binding of its Calls on accepted connections.
    callbacks: Option<Binding>,
    /// Connections that have become ready.
    peers: Vec<ConnectionId>,
    /// Whether it calls as soon as it has a peer.
    is_eager: bool,
    /// Whether it calls in the next turn in which it has a peer.
    calls_in_turn: bool,
    /// Whether it answers only when it is told to.
    is_slow: bool,
    waiting: VecDeque<CallToken>,
    /// Whether it makes a Call of its own before it answers.
    asks_back: bool,
    /// How many more Calls it makes, each when another one ends.
    more: u64,
    served: u64,
    ended: Vec<(u64, Result<u32, CallError>, Option<Local>)>,
    results: Vec<Vec<u8>>,
    /// Why its connections ended.
    closed: Vec<CallError>,
}

impl Service for Friend {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn callbacks(&self) -> Option<Binding> {
        self.callbacks.clone()
    }

    fn opened(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        self.peers.push(peer.connection);
        if self.is_eager {
            cx.call(peer.connection, request(TELL), EAGER, |w| w.opaque(&[9])).unwrap();
        }
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let peer = self.peers.first().filter(|_| self.calls_in_turn);
        let Some(peer) = peer else { return false };
        cx.call(*peer, request(TELL), EAGER, |w| w.opaque(&[9])).unwrap();
        self.calls_in_turn = false;
        true
    }

    fn closed(&mut self, _: &mut Cx<'_>, _: &Peer, why: &CallError) {
        self.closed.push(why.clone());
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        self.served += 1;
        if self.asks_back {
            self.waiting.push_back(call.token);
            cx.call(call.connection, request(TELL), BACK, |w| w.opaque(&[7])).unwrap();
            return Outcome::Later;
        }
        if self.is_slow {
            self.waiting.push_back(call.token);
            return Outcome::Later;
        }
        self.keeper.call(cx, call, reply)
    }

    fn resume(&mut self, _: &mut Cx<'_>, _: CallToken, reply: &mut Reply) -> Outcome {
        reply.results(|w| w.u32(0));
        Outcome::Done
    }

    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let rest = finished.results.as_ref().map(|results| results.rest().to_vec());
        self.results.push(rest.unwrap_or_default());
        let reduced = finished.results.map(|mut results| match results.eligible_opaque(0) {
            Ok(Item::Reduced { length }) => u32::try_from(length).unwrap(),
            _ => 0,
        });
        self.ended.push((token, reduced, finished.rooms.into_first()));
        if token == BACK
            && let Some(asked) = self.waiting.pop_front()
        {
            cx.resume(asked);
        }
        if let Some(more) = self.more.checked_sub(1) {
            self.more = more;
            cx.call(self.peers[0], request(TELL), token, |w| w.opaque(&[1, 2])).unwrap();
        }
    }
}

/// The token of a Call that is made as soon as there is a connection.
const EAGER: u64 = 1000;
/// The token of a Call that is made before another one is answered.
const BACK: u64 = 2000;

/// Two cores that call each other on one connection.
struct Ends<P: Provider> {
    fabric: Option<Fabric>,
    now: Instant,
    server: Core<P, Friend>,
    client: Core<P, Friend>,
    at: SocketAddr,
    connection: ConnectionId,
}

/// How two ends are made.
struct How {
    limits: [Limits; 2],
    server: Friend,
    client: Friend,
    options: ConnectOptions,
}

impl How {
    /// Both ends serve and call, in one version.
    fn both(versions: Versions) -> Self {
        let server = Friend { callbacks: Some(binding()), ..Friend::default() };
        let limits = Limits { versions, ..LIMITS };
        Self { limits: [limits; 2], server, client: Friend::default(), options: serving() }
    }

    /// Both ends go by the real clock.
    fn patient(mut self) -> Self {
        for limits in &mut self.limits {
            limits.call_timeout = PATIENT.call_timeout;
        }
        self
    }

    fn simulated(self) -> Ends<Sim> {
        let fabric = Fabric::new(FabricConfig::default());
        let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let provider = |n| fabric.provider(node(n)).unwrap();
        let ends = [(provider(1), heap()), (provider(2), heap())];
        self.on(ends, SocketAddr::new(node(1), 20050), Some(fabric))
    }

    fn iwarp(self) -> Ends<Iwarp> {
        let provider = || Iwarp::new(&iwarp::Config::default()).unwrap();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        self.patient().on([(provider(), heap()), (provider(), heap())], at, None)
    }

    /// Ends of which the server passes its region to clients, or does not.
    fn shm(self, expose: Expose) -> Ends<Shm> {
        let end = |expose| {
            let memory = PoolConfig { bytes: 8 << 20, pages: PagePreference::Shared, node: None };
            let pool = Pool::new(&memory).unwrap();
            let config = shm::Config { expose, ..shm::Config::default() };
            (Shm::new(&config, &pool).unwrap(), pool)
        };
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        self.patient().on([end(expose), end(Expose::Connecting)], at, None)
    }

    fn on<P: Provider>(
        self,
        [server, client]: [(P, Pool); 2],
        at: SocketAddr,
        fabric: Option<Fabric>,
    ) -> Ends<P> {
        let Self { limits, server: serves, client: calls, options } = self;
        // The XIDs of both ends come from one seed: the same are in use in both directions.
        let mut server = Core::new(server.0, serves, server.1, limits[0], 5).unwrap();
        let mut client = Core::new(client.0, calls, client.1, limits[1], 5).unwrap();
        let now = if fabric.is_some() { Instant::ZERO } else { clock::now() };
        let at = server.listen(at).unwrap();
        let connection = client.connect(now, at, options).unwrap();
        Ends { fabric, now, server, client, at, connection }
    }
}

fn heap() -> Pool {
    Pool::new(&PoolConfig { bytes: 8 << 20, pages: PagePreference::Heap, node: None }).unwrap()
}

fn serving() -> ConnectOptions {
    ConnectOptions::new(binding()).serving(vec![Program::new(binding())])
}

impl<P: Provider> Ends<P> {
    fn step(&mut self) {
        self.step_within(None);
    }

    /// Turns both ends, at last at `limit`.
    fn step_within(&mut self, limit: Option<Instant>) {
        let worked = self.server.turn(self.now) | self.client.turn(self.now);
        match &self.fabric {
            None => self.now = clock::now(),
            Some(_) if worked => {}
            Some(fabric) => {
                let deadlines = [self.server.poll_deadline(), self.client.poll_deadline()];
                let next =
                    deadlines.into_iter().chain([fabric.next_event(), limit]).flatten().min();
                let next = next.expect("something is to happen");
                self.now = next.max(self.now.saturating_add(Duration::from_nanos(1)));
            }
        }
    }

    /// Has an amount of time pass.
    fn pass(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        while self.now < end {
            self.step_within(Some(end));
        }
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..10_000_000 {
            if done(self) {
                return;
            }
            self.step();
        }
        panic!("no progress");
    }

    /// Has both ends take in what is on its way, and says that nothing is left anywhere.
    fn all_home(&mut self) {
        self.pass(Duration::from_millis(100));
        all_home(&mut self.server, self.now);
        all_home(&mut self.client, self.now);
    }

    /// Waits until the server knows its client. Returns the connection at the server.
    fn accepted(&mut self) -> ConnectionId {
        self.until(|ends| !ends.server.service.peers.is_empty());
        self.server.service.peers[0]
    }

    /// Makes a Call of the client with this argument, and waits until it ends.
    fn call(&mut self, request: Request, told: &[u8]) -> Result<u32, CallError> {
        let before = self.client.service.ended.len();
        let (mut cx, _) = self.client.cx(self.now);
        cx.call(self.connection, request, 0, |w| w.opaque(told)).map_err(|(why, _)| why)?;
        self.until(|ends| ends.client.service.ended.len() > before);
        self.client.service.ended[before].1.clone()
    }

    /// Makes a Call of the server, and waits until it ends.
    fn call_back(&mut self, request: Request, told: &[u8]) -> Result<u32, CallError> {
        let before = self.server.service.ended.len();
        self.begin_back(request, told);
        self.until(|ends| ends.server.service.ended.len() > before);
        self.server.service.ended[before].1.clone()
    }

    /// Makes a Call of the server.
    fn begin_back(&mut self, request: Request, told: &[u8]) {
        let connection = self.accepted();
        let (mut cx, _) = self.server.cx(self.now);
        let length = told.len();
        let called =
            cx.call(connection, request, 0, |w| if length == 0 { Ok(()) } else { w.opaque(told) });
        called.map_err(|(why, _)| why).unwrap();
    }

    /// Returns a lease of the server's memory.
    fn lease(&mut self, length: usize, fill: u8) -> Local {
        let mut lease = self.server.cx(self.now).0.pool().lease(length).unwrap();
        lease.bytes_mut().fill(fill);
        lease
    }

    /// Makes a Call of the client that moves an item by a Read chunk.
    fn store(&mut self, item: &[u8]) {
        let before = self.client.service.ended.len();
        let (mut cx, _) = self.client.cx(self.now);
        let mut lease = cx.pool().lease(item.len()).unwrap();
        lease.bytes_mut().copy_from_slice(item);
        cx.call(self.connection, request(STORE).argument(lease), 0, |_| Ok(())).unwrap();
        self.until(|ends| ends.client.service.ended.len() > before);
        assert!(self.client.service.ended[before].1.is_ok());
        assert!(self.server.service.keeper.item.take().unwrap().bytes() == item);
    }

    /// Both ends call each other, and each gets what the other answers.
    fn calls_go_both_ways(&mut self) {
        assert_eq!(self.call(request(TELL), &[1, 2, 3]), Ok(0));
        assert_eq!(self.client.service.results, [[0, 0, 0, 6]]);
        assert_eq!(self.call_back(request(TELL), &[4; 900]), Ok(0));
        assert_eq!(self.server.service.results, [3600_u32.to_be_bytes()]);
        assert_eq!((self.server.service.served, self.client.service.served), (1, 1));
        assert_eq!(self.call(request(TELL), &[5]), Ok(0));
        assert_eq!(self.call_back(request(TELL), &[]), Err(GARBAGE));
        self.store(&[0x5a; 5000]);
        let [server, client] =
            [&mut self.server, &mut self.client].map(|core| *core.cx(self.now).0.counters());
        assert_eq!((server.callbacks_made, server.callbacks_served), (2, 0));
        assert_eq!((client.callbacks_made, client.callbacks_served), (0, 2));
        assert_eq!((server.calls_served, client.calls_served), (3, 2));
        self.all_home();
    }

    /// A client makes as many Calls as `before` says. Then its server calls it `depth` times at once, again and again, and is
    /// asked back before each answer.
    fn is_asked_back(&mut self, before: usize, depth: usize) {
        self.accepted();
        for left in (0..before).rev() {
            // The first callback leaves in the turn of the last Reply.
            self.server.service.calls_in_turn = left == 0;
            assert_eq!(self.call(request(TELL), &[1]), Ok(0));
        }
        for round in 1..=10 {
            let begun = usize::from(round == 1 && before > 0);
            (begun..depth).for_each(|_| self.begin_back(request(TELL), &[1]));
            self.until(|ends| ends.server.service.ended.len() == round * depth);
            let last = &self.server.service.ended[(round - 1) * depth..];
            let are_answered = last.iter().all(|(_, ended, _)| *ended == Ok(0));
            assert!(are_answered, "{before} before, {depth} deep, round {round}: {last:?}");
            assert_eq!(self.server.service.served, (before + round * depth) as u64);
        }
        self.all_home();
    }

    /// A server moves items to its client and back, and Calls and Replies of all lengths.
    fn items_go_both_ways(&mut self) {
        for length in [1, 100, 5000, 1 << 20] {
            let argument = self.lease(length, 0x5a);
            let stored = request(STORE).argument(argument);
            assert_eq!(self.call_back(stored, &[]).map(drop), Ok(()), "{length}");
            let kept = self.client.service.keeper.item.as_ref().unwrap();
            assert!(kept.bytes() == vec![0x5a; length], "{length}");
            let room = self.lease(ITEM_MAX / 4, 0);
            let fetched = request(FETCH).room(room);
            assert_eq!(self.call_back(fetched, &[]), Ok(u32::try_from(length).unwrap()));
            let (_, _, result) = self.server.service.ended.last().unwrap();
            assert!(result.as_ref().unwrap().bytes() == vec![0x5a; length], "{length}");
        }
        // A Reply that needs a Reply chunk, and a Call that does not fit one message.
        let count = LIST_MAX.to_be_bytes();
        let before = self.server.service.ended.len();
        let connection = self.accepted();
        let (mut cx, _) = self.server.cx(self.now);
        let list = cx.call(connection, request(LIST), 0, |w| w.u32(u32::from_be_bytes(count)));
        assert!(list.is_ok());
        self.until(|ends| ends.server.service.ended.len() > before);
        assert_eq!(self.server.service.results[before].len(), 4 + LIST_MAX as usize);
        let sum = u32::try_from(4800 * 3).unwrap();
        let before = self.server.service.ended.len();
        assert_eq!(self.call_back(request(TELL), &[3; 4800]), Ok(0));
        assert_eq!(self.server.service.results[before], sum.to_be_bytes());
        self.all_home();
    }
}

const GARBAGE: CallError = CallError::Rejected(AcceptStat::GarbageArgs);

const EITHER: [Versions; 2] = [Versions::OnlyTwo, Versions::OnlyOne];

#[test]
fn calls_go_both_ways_in_both_versions() {
    // [V2-4.6.1-2] [V2-4.6.2-2] [R8167-5.1-1] [R8167-5.2-1]
    for versions in EITHER {
        How::both(versions).simulated().calls_go_both_ways();
        How::both(versions).iwarp().calls_go_both_ways();
        How::both(versions).shm(Expose::Connecting).calls_go_both_ways();
    }
}

#[test]
fn a_client_that_is_called_back_may_ask_before_it_answers() {
    // With so few Receives every connection has the minimum alone.
    let few = |limits: Limits| Limits {
        connections_max: 8,
        receives_max: 2 * 8 * RECEIVES_IDLE,
        ..limits
    };
    for versions in EITHER {
        let how = || {
            let mut how = How::both(versions);
            how.limits = how.limits.map(few);
            how.client.asks_back = true;
            how
        };
        // In version 1 a server calls nobody whom it has not answered.
        let least = usize::from(versions == Versions::OnlyOne);
        for before in least..6 {
            for depth in [1, 2, 5] {
                how().simulated().is_asked_back(before, depth);
            }
        }
        for before in least..4 {
            how().iwarp().is_asked_back(before, 1);
            // A client with room for many messages sends no grant when it is called back.
            let mut roomy = how();
            roomy.limits[1].connections_max = 1;
            roomy.shm(Expose::Connecting).is_asked_back(before, 1);
        }
    }
}

#[test]
fn a_client_serves_in_the_version_that_the_two_ends_settle_on() {
    for [server, client] in [
        [Versions::OnlyOne, Versions::Both],
        [Versions::Both, Versions::OnlyOne],
        [Versions::Both, Versions::Both],
    ] {
        let mut how = How::both(server);
        how.limits[1].versions = client;
        how.simulated().calls_go_both_ways();
    }
}

#[test]
fn a_server_moves_items_in_version_2() {
    How::both(Versions::OnlyTwo).simulated().items_go_both_ways();
    How::both(Versions::OnlyTwo).iwarp().items_go_both_ways();
    How::both(Versions::OnlyTwo).shm(Expose::Always).items_go_both_ways();
}

#[test]
fn a_server_that_exposes_no_memory_to_its_client_is_told() {
    let mut ends = How::both(Versions::OnlyTwo).shm(Expose::Connecting);
    let argument = ends.lease(5000, 1);
    let request_of = request(STORE).argument(argument);
    assert_eq!(ends.call_back(request_of, &[]), Err(CallError::NotExposed));
    assert_eq!(ends.call_back(request(TELL), &[1]), Ok(0));
    ends.all_home();
}

#[test]
fn a_client_of_version_1_is_sent_no_chunks() {
    // [R8167-5.3-2]
    let mut ends = How::both(Versions::OnlyOne).simulated();
    assert_eq!(ends.call(request(TELL), &[1]), Ok(0));
    for procedure in [STORE, FETCH] {
        let (made, lease) = (request(procedure), ends.lease(6000, 1));
        let made = if procedure == STORE { made.argument(lease) } else { made.room(lease) };
        assert_eq!(ends.call_back(made, &[]), Err(CallError::NotAnnounced));
        assert_eq!(ends.server.cx(ends.now).0.gauges().exposed, 0);
    }
    // The Reply may be too long for a message.
    assert_eq!(ends.call_back(request(LIST), &[]), Err(CallError::NotAnnounced));
    // An item that fits its Call goes along.
    let short = request(STORE).argument(ends.lease(3, 7));
    assert_eq!(ends.call_back(short, &[]), Ok(0));
    assert_eq!(ends.client.service.keeper.item.as_ref().unwrap().bytes(), [7; 3]);
    let room = request(FETCH).room(ends.lease(3000, 0));
    assert_eq!(ends.call_back(room, &[]), Ok(0));
    assert_eq!(ends.server.service.results.last().unwrap().len(), 8, "it came unreduced");
    assert_eq!(ends.client.service.served, 2);
    ends.all_home();
}

#[test]
fn a_client_that_serves_nothing_is_not_called() {
    // [V2-4.6.3-1]
    let mut how = How::both(Versions::OnlyTwo);
    how.options = binding().into();
    how.server.is_eager = true;
    let mut ends = how.simulated();
    ends.until(|ends| !ends.server.service.ended.is_empty());
    assert_eq!(ends.server.service.ended[0].1, Err(CallError::NotAnnounced));
    for length in [1, 4800] {
        let back = ends.call_back(request(TELL), &vec![1; length]);
        assert_eq!(back, Err(CallError::NotAnnounced));
    }
    let argument = ends.lease(5000, 1);
    let stored = request(STORE).argument(argument);
    assert_eq!(ends.call_back(stored, &[]), Err(CallError::NotAnnounced));
    assert_eq!(ends.call(request(TELL), &[1]), Ok(0));
    ends.all_home();
}

#[test]
fn a_client_of_version_1_that_serves_nothing_says_so() {
    // [R8167-5.3-2]
    let mut how = How::both(Versions::OnlyOne);
    how.options = binding().into();
    let mut ends = how.simulated();
    assert_eq!(ends.call(request(TELL), &[1]), Ok(0));
    let refused = ends.call_back(request(TELL), &[1]);
    assert!(matches!(refused, Err(CallError::Refused(TransportError::One(_)))), "{refused:?}");
    assert_eq!((ends.call(request(TELL), &[1]), ends.client.service.served), (Ok(0), 0));
    ends.all_home();
}

#[test]
fn a_call_of_a_server_waits_until_its_client_can_take_it() {
    // [R8167-6-1] On version 1 a client can once a Call of its own was answered.
    let all = EITHER.into_iter().flat_map(|versions| [(versions, true), (versions, false)]);
    for (versions, is_eager) in all {
        let mut how = How::both(versions);
        // In its turn, a Call would leave at once.
        (how.server.is_eager, how.server.calls_in_turn) = (is_eager, !is_eager);
        let mut ends = how.simulated();
        if versions == Versions::OnlyOne {
            ends.accepted();
            ends.pass(Duration::from_secs(1));
            assert_eq!((ends.client.service.served, ends.server.service.ended.len()), (0, 0));
            assert_eq!(ends.call(request(TELL), &[1]), Ok(0));
        }
        ends.until(|ends| !ends.server.service.ended.is_empty());
        assert_eq!(
            (&ends.server.service.ended[0].1, ends.client.service.served),
            (&Ok(0), 1),
            "{versions:?}"
        );
        ends.all_home();
    }
}

/// Has both ends make `count` Calls each, of which they have `each` in flight whenever credit allows.
fn busy<P: Provider>(mut ends: Ends<P>, each: u64, count: u64) {
    assert_eq!(ends.call(request(TELL), &[1]), Ok(0));
    ends.accepted();
    ends.server.service.more = count;
    ends.client.service.more = count;
    let back = ends.server.service.peers[0];
    for token in 0..each {
        let (mut cx, _) = ends.server.cx(ends.now);
        cx.call(back, request(TELL), token, |w| w.opaque(&[1])).unwrap();
        let (mut cx, _) = ends.client.cx(ends.now);
        cx.call(ends.connection, request(TELL), token, |w| w.opaque(&[1])).unwrap();
    }
    let ended = |core: &Core<P, Friend>| core.service.ended.len() as u64;
    ends.until(|ends| ended(&ends.server).max(ended(&ends.client)) >= count);
    // Neither end has kept the other from its share.
    let (server, client) = (ended(&ends.server), ended(&ends.client));
    assert!(
        server.min(client) * 8 >= count,
        "{server} Calls of the server, {client} of the client"
    );
    ends.until(|ends| ended(&ends.server) >= count + each && ended(&ends.client) >= count + each);
    for core in [&ends.server, &ends.client] {
        let failed = core.service.ended.iter().find(|(_, result, _)| *result != Ok(0));
        assert!(failed.is_none(), "{failed:?}");
    }
    ends.all_home();
}

#[test]
fn thousands_of_calls_go_both_ways_at_once() {
    for versions in EITHER {
        for credits_max in [1, 2, 8, LIMITS.credits_max] {
            let how = || {
                let mut how = How::both(versions);
                how.limits = how.limits.map(|limits| Limits { credits_max, ..limits });
                how
            };
            busy(how().simulated(), 8, 2000);
            busy(how().iwarp(), 8, 1000);
            busy(how().shm(Expose::Connecting), 8, 1000);
        }
    }
}

#[test]
fn an_end_with_few_credits_gets_its_calls_through() {
    for versions in EITHER {
        for poor in [0, 1] {
            let mut how = How::both(versions);
            how.limits[poor].credits_max = 1;
            busy(how.simulated(), 16, 2000);
        }
    }
}

#[test]
fn a_call_that_no_client_answers_is_given_up_and_its_memory_comes_back() {
    let mut how = How::both(Versions::OnlyTwo);
    how.client.is_slow = true;
    let mut ends = how.simulated();
    ends.accepted();
    let started = ends.now;
    let room = ends.lease(5000, 0);
    let fetched = request(FETCH).room(room);
    assert_eq!(ends.call_back(fetched, &[]), Err(CallError::TimedOut));
    assert_eq!(ends.now.saturating_since(started), LIMITS.call_timeout);
    assert_eq!(ends.server.cx(ends.now).0.gauges().exposed, 1, "the client may still write");
    // The late Reply frees the lease, and the connection goes on.
    let token = ends.client.service.waiting.pop_front().unwrap();
    ends.client.cx(ends.now).0.resume(token);
    ends.client.service.is_slow = false;
    assert_eq!(ends.call_back(request(TELL), &[1]), Ok(0));
    ends.all_home();
}

#[test]
fn calls_in_both_directions_fail_when_the_connection_is_lost() {
    for versions in EITHER {
        let mut how = How::both(versions);
        how.client.is_slow = true;
        let mut ends = how.simulated();
        assert_eq!(ends.call(request(TELL), &[1]), Ok(0));
        ends.server.service.is_slow = true;
        for _ in 0..3 {
            ends.begin_back(request(TELL), &[1]);
            let (mut cx, _) = ends.client.cx(ends.now);
            cx.call(ends.connection, request(TELL), 1, |w| w.opaque(&[1])).unwrap();
        }
        ends.until(|ends| {
            let waits = |core: &Core<Sim, Friend>| !core.service.waiting.is_empty();
            waits(&ends.server) && waits(&ends.client)
        });
        let qp = ends.client.inner.common.connections.get(ends.connection.0).unwrap().qp();
        let fabric = ends.fabric.clone().unwrap();
        fabric.sever(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), qp);
        ends.until(|ends| {
            ends.server.service.ended.len() == 3 && ends.client.service.ended.len() == 4
        });
        for (_, result, _) in
            ends.server.service.ended.iter().chain(&ends.client.service.ended[1..])
        {
            assert!(matches!(result, Err(CallError::Disconnected(_))), "{result:?}");
        }
        ends.until(|ends| {
            !ends.server.service.closed.is_empty() && !ends.client.service.closed.is_empty()
        });
        ends.server.turn(ends.now);
        ends.client.turn(ends.now);
        all_home(&mut ends.server, ends.now);
        all_home(&mut ends.client, ends.now);
    }
}

#[test]
fn a_shutdown_waits_for_calls_in_both_directions() {
    for versions in EITHER {
        for closes in [0, 1] {
            let mut how = How::both(versions);
            how.client.is_slow = true;
            let mut ends = how.simulated();
            assert_eq!(ends.call(request(TELL), &[1]), Ok(0));
            ends.begin_back(request(TELL), &[1]);
            ends.until(|ends| !ends.client.service.waiting.is_empty());
            match closes {
                0 => ends.server.begin_shutdown(ends.now),
                _ => ends.client.begin_shutdown(ends.now),
            }
            ends.pass(LIMITS.call_timeout / 2);
            assert!(ends.server.service.closed.is_empty() && ends.server.service.ended.is_empty());
            let token = ends.client.service.waiting.pop_front().unwrap();
            ends.client.cx(ends.now).0.resume(token);
            ends.until(|ends| !ends.server.service.closed.is_empty());
            assert_eq!(ends.server.service.ended[0].1, Ok(0));
        }
    }
}

#[test]
fn a_connection_with_a_call_of_the_server_is_not_idle() {
    let mut how = How::both(Versions::OnlyTwo);
    how.limits[0].idle_timeout = Some(Duration::from_millis(200));
    how.client.is_slow = true;
    let mut ends = how.simulated();
    ends.begin_back(request(TELL), &[1]);
    ends.pass(Duration::from_secs(1));
    assert!(ends.server.service.closed.is_empty());
    let later = ends.now;
    let token = ends.client.service.waiting.pop_front().unwrap();
    ends.client.cx(ends.now).0.resume(token);
    ends.until(|ends| !ends.server.service.closed.is_empty());
    assert_eq!(ends.server.service.ended[0].1, Ok(0));
    let later = later.saturating_add(Duration::from_millis(200));
    assert!(ends.now >= later, "it was idle for as long as it may be");
}

#[test]
fn what_cannot_be_served_on_a_connection_is_refused() {
    let mut ends = How::both(Versions::Both).simulated();
    let twice = ConnectOptions::new(binding()).serving(vec![Program::new(binding()); 2]);
    let refused = ends.client.connect(ends.now, ends.at, twice).unwrap_err();
    assert_eq!(refused, CallError::Twice { program: 0x2000_0001, version: 1 });
    let mut wide = binding();
    wide.procedures[1] =
        Procedure::new("STORE").argument(Eligible { count_max: 9, ..Eligible::opaque(9) });
    let serving = ConnectOptions::new(binding()).serving(vec![Program::new(wide.clone())]);
    let refused = ends.client.connect(ends.now, ends.at, serving).unwrap_err();
    assert!(matches!(refused, CallError::Unsupported(_)), "{refused:?}");
    // So are callbacks of a service.
    let service = Friend { callbacks: Some(wide), ..Friend::default() };
    let provider = ends.fabric.as_ref().unwrap().provider(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3)));
    let refused = Core::new(provider.unwrap(), service, heap(), LIMITS, 1).unwrap_err();
    assert!(matches!(refused, crate::core::StartError::Unsupported(_)), "{refused:?}");
}
