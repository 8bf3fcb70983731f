//! A pool that many connections want: each has a share, and those that wait have turns.

use haulage_proto::v2::error::ErrorBody;

use super::*;
use crate::key::ConnectionKey;
use crate::provider::shm::{self, Shm};
use crate::service::ResultSource;
use crate::sys::clock;

const MIB: usize = 1 << 20;
const MS: Duration = Duration::from_millis(1);
/// How long a peer has to take what was sent before its connection was closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Octets of the server's pool beside the transport's buffers.
const ROOM: usize = 9 * MIB;

/// A service that takes items and returns others that it leases, as a file server does.
#[derive(Debug, Default)]
struct Files {
    /// Items that are kept.
    kept: Vec<Leases>,
    /// Whether items are kept.
    keeps: bool,
    stored: u32,
    refused: Vec<Refusal>,
    fetched: u32,
    /// The connections of the Calls, in order.
    callers: Vec<ConnectionId>,
    making: Making,
}

/// The leases that a service gives up to make room, one each time that it is asked.
#[derive(Debug, Default)]
struct Making {
    is_possible: bool,
    leases: Vec<Local>,
    /// How often it was asked, and the most octets that were wanted.
    asked: (u32, usize),
}

impl Service for Files {
    fn programs(&self) -> Vec<Program> {
        let program = Program::new(binding()).result_source(FETCH, ResultSource::Leased);
        vec![program.costly([LIST, TELL])]
    }

    fn makes_room(&self) -> bool {
        self.making.is_possible
    }

    fn make_room(&mut self, _: &mut Cx<'_>, octets: usize) -> bool {
        let Making { leases, asked: (count, most), .. } = &mut self.making;
        (*count, *most) = (*count + 1, octets.max(*most));
        leases.pop().is_some()
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        self.callers.push(call.connection);
        match call.procedure {
            STORE | EXCHANGE => match call.arguments.item(24) {
                Ok(Argument::Placed(lease)) => {
                    self.stored += 1;
                    self.kept.extend(Some(lease).filter(|_| self.keeps));
                }
                Ok(Argument::Refused { why, .. }) => self.refused.push(why),
                other => panic!("{other:?}"),
            },
            FETCH => match cx.pool().lease(MIB) {
                Some(lease) => {
                    self.fetched += 1;
                    reply.item(Data::Local(lease));
                }
                None => return Outcome::Failed(AcceptStat::SystemErr),
            },
            // This Reply is longer than one that leaves at once.
            TELL => reply.results(|w| w.opaque(&[7; 2000])),
            _ => {}
        }
        Outcome::Done
    }
}

/// One server, and two clients on nodes of their own.
struct Bed {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, Files>,
    at: SocketAddr,
    clients: [(Core<Sim, Caller>, ConnectionId); 2],
}

/// The client that misbehaves.
const GREEDY: usize = 0;
/// The client that does not.
const HONEST: usize = 1;

fn node(number: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(number).unwrap()))
}

impl Bed {
    fn new() -> Self {
        Self::of(Files::default())
    }

    fn of(files: Files) -> Self {
        Self::with(files, Limits { connections_max: 4, credits_max: 31, ..LIMITS })
    }

    fn with(files: Files, limits: Limits) -> Self {
        let config = FabricConfig { close_timeout: CLOSE_TIMEOUT, ..FabricConfig::default() };
        let fabric = Fabric::new(config);
        let pool = |bytes| {
            Pool::new(&PoolConfig { bytes, pages: PagePreference::Heap, node: None }).unwrap()
        };
        let (nic, room) = (fabric.provider(node(9)).unwrap(), ROOM + limits.transport_bytes());
        let mut server = Core::new(nic, files, pool(room), limits, 1).unwrap();
        let at = server.listen(SocketAddr::new(node(9), 20050)).unwrap();
        let clients = [GREEDY, HONEST].map(|number| {
            let nic = fabric.provider(node(number)).unwrap();
            let limits = Limits { send_buffers_max: LIMITS.send_buffers_max, ..limits };
            let mut client = Core::new(nic, Caller::default(), pool(64 * MIB), limits, 2).unwrap();
            let connection = client.connect(Instant::ZERO, at, binding()).unwrap();
            (client, connection)
        });
        let mut bed = Self { fabric, now: Instant::ZERO, server, at, clients };
        for client in [GREEDY, HONEST] {
            bed.call(client, request(0));
        }
        bed.until(|bed| bed.ended(GREEDY) + bed.ended(HONEST) == 2);
        bed
    }

    fn call(&mut self, client: usize, request: Request) {
        let connection = self.clients[client].1;
        self.call_on(client, connection, request);
    }

    fn call_on(&mut self, client: usize, connection: ConnectionId, request: Request) {
        let (mut cx, _) = self.clients[client].0.cx(self.now);
        cx.call(connection, request, 0, |_| Ok(())).unwrap();
    }

    /// Makes another connection from the node of a client.
    fn connect(&mut self, client: usize) -> ConnectionId {
        let ended = self.ended(client);
        let core = &mut self.clients[client].0;
        let connection = core.connect(self.now, self.at, binding()).unwrap();
        self.call_on(client, connection, request(0));
        self.until(|bed| bed.ended(client) == ended + 1);
        connection
    }

    fn store(&mut self, client: usize, length: usize) {
        let argument = Some(self.clients[client].0.cx(self.now).0.pool().lease(length).unwrap());
        self.call(client, request(STORE).argument(argument));
    }

    fn exchange(&mut self, client: usize, length: usize) {
        let argument = Some(self.clients[client].0.cx(self.now).0.pool().lease(length).unwrap());
        self.call(client, request(EXCHANGE).argument(argument));
    }

    fn fetch(&mut self, client: usize) {
        let result = Some(self.clients[client].0.cx(self.now).0.pool().lease(MIB).unwrap());
        self.call(client, request(FETCH).room(result));
    }

    fn ended(&self, client: usize) -> usize {
        self.clients[client].0.service().ended.len()
    }

    fn turn(&mut self) -> bool {
        let worked = self.server.turn(self.now);
        self.clients.iter_mut().fold(worked, |worked, (client, _)| client.turn(self.now) | worked)
    }

    fn until(&mut self, mut done: impl FnMut(&Self) -> bool) {
        for _ in 0..1_000_000 {
            if done(self) {
                return;
            }
            if !self.turn() {
                let deadlines = self.clients.each_ref().map(|(client, _)| client.poll_deadline());
                let next = [self.fabric.next_event(), self.server.poll_deadline()];
                let next = next.into_iter().chain(deadlines).flatten().min().unwrap();
                self.now = next.max(self.now.saturating_add(Duration::from_nanos(1)));
            }
        }
        panic!("no progress");
    }

    /// Lets everything under way arrive and be handled.
    fn settle(&mut self) {
        for _ in 0..1_000_000 {
            if !self.turn() {
                let Some(next) = self.fabric.next_event() else { return };
                self.now = next.max(self.now);
            }
        }
        panic!("it never settles");
    }

    /// Has the server receive what `client` has sent, and nothing that the client sends afterwards.
    fn silence(&mut self, client: usize) {
        self.clients[client].0.turn(self.now);
        self.fabric.black_hole(node(client));
    }

    /// Returns the octets that Calls of a connection hold, and how many Calls wait.
    fn counts(&self, client: usize) -> (usize, usize) {
        let key = self.key(client);
        self.server.inner.common.connections.get(key).map_or((0, 0), |found| found.share.counts())
    }

    fn key(&self, client: usize) -> ConnectionKey {
        let Inner { common, .. } = &self.server.inner;
        let is_its = |key: &_| common.connections.get(*key).unwrap().peer().ip() == node(client);
        self.server.inner.keys().find(is_its).unwrap()
    }

    fn free(&self) -> usize {
        self.server.inner.common.pool.free_bytes()
    }
}

#[test]
fn a_peer_that_answers_no_reads_leaves_as_much_as_it_holds() {
    let mut bed = Bed::new();
    for _ in 0..20 {
        bed.store(GREEDY, MIB);
    }
    bed.silence(GREEDY);
    bed.settle();
    let (held, waiting) = bed.counts(GREEDY);
    assert!(held >= 2 * MIB && held <= bed.free(), "{held} held, {} free", bed.free());
    assert!(held / MIB + waiting >= 8, "each Call that came has its memory, or waits");
    // Another client is served at once, and again and again.
    for round in 0..40 {
        bed.store(HONEST, MIB);
        bed.settle();
        assert_eq!(bed.ended(HONEST), 2 + round);
    }
    assert_eq!(bed.server.service().stored, 40);
    // When the connection ends, everything comes home.
    bed.fabric.sever_all(node(GREEDY));
    bed.settle();
    all_home(&mut bed.server, bed.now);
}

#[test]
fn connections_of_one_origin_leave_as_much_as_they_hold_together() {
    let mut bed = Bed::new();
    let connections = [bed.clients[GREEDY].1, bed.connect(GREEDY), bed.connect(GREEDY)];
    for connection in connections {
        for _ in 0..2 {
            let argument = bed.clients[GREEDY].0.cx(bed.now).0.pool().lease(MIB);
            bed.call_on(GREEDY, connection, request(STORE).argument(argument));
        }
    }
    bed.silence(GREEDY);
    bed.settle();
    let held = bed.server.inner.common.memory.held();
    assert!(held >= 2 * MIB && held <= bed.free(), "{held} held, {} free", bed.free());
    for round in 0..40 {
        bed.store(HONEST, MIB);
        bed.settle();
        assert_eq!(bed.ended(HONEST), 2 + round);
    }
    bed.fabric.sever_all(node(GREEDY));
    bed.settle();
    all_home(&mut bed.server, bed.now);
}

#[test]
fn a_peer_that_is_slow_gives_way_to_one_that_waits() {
    // An item that takes more memory than it leaves free has half a second; any other has a microsecond more for each
    // octet.
    let rate = MS * 500 + Duration::from_micros(4 << 20);
    for (values, least) in [(2 * MIB, MS * 500), (0, rate)] {
        let mut bed = Bed::new();
        let mut kept = vec![bed.server.cx(bed.now).0.pool().lease(values).unwrap()];
        bed.store(GREEDY, 4 * MIB);
        bed.silence(GREEDY);
        bed.settle();
        // Values of the service take all but 3 MiB, which is too little for the honest client's 4 MiB.
        let rest = bed.free() - 3 * MIB;
        kept.extend((rest > 0).then(|| bed.server.cx(bed.now).0.pool().lease(rest).unwrap()));
        let before = bed.now;
        let argument = bed.clients[HONEST].0.cx(bed.now).0.pool().lease(4 * MIB);
        let timeout = Some(LIMITS.memory_timeout);
        bed.call(HONEST, Request { timeout, ..request(STORE).argument(argument) });
        bed.until(|bed| bed.ended(HONEST) == 2);
        assert_eq!(bed.server.service().stored, 1);
        let waited = bed.now.saturating_since(before);
        let most = least + CLOSE_TIMEOUT + MS * 10;
        assert!(waited + MS * 10 >= least && waited < most, "{waited:?}");
        assert_eq!(bed.server.inner.common.counters.connections_slow, 1);
        bed.fabric.sever_all(node(GREEDY));
        bed.settle();
        drop(kept);
        all_home(&mut bed.server, bed.now);
    }
}

#[test]
fn a_peer_that_is_slow_is_in_the_way_of_none_that_holds_more() {
    let mut bed = Bed::new();
    for (client, calls) in [(GREEDY, 2), (HONEST, 6)] {
        for _ in 0..calls {
            bed.store(client, MIB);
        }
        bed.silence(client);
        bed.settle();
    }
    let (held, waiting) = bed.counts(HONEST);
    assert!(held > bed.counts(GREEDY).0 && waiting > 0);
    let until = bed.now.saturating_add(Duration::from_secs(5));
    while bed.now < until {
        bed.turn();
        bed.now = bed.now.saturating_add(MS * 100);
    }
    assert_eq!(bed.server.inner.common.counters.connections_slow, 0);
}

#[test]
fn a_peer_that_takes_no_results_leaves_as_much_as_it_holds() {
    let mut bed = Bed::new();
    for _ in 0..20 {
        bed.fetch(GREEDY);
    }
    bed.clients[GREEDY].0.turn(bed.now);
    // The acknowledgements of the client are swallowed: no Write of the server ever completes.
    bed.fabric.black_hole(node(GREEDY));
    bed.settle();
    let (held, waiting) = bed.counts(GREEDY);
    assert!(held >= 2 * MIB && held <= bed.free(), "{held} held, {} free", bed.free());
    assert!(held / MIB + waiting >= 8, "each Call that came has its memory, or waits");
    for round in 0..40 {
        bed.fetch(HONEST);
        bed.settle();
        assert_eq!(bed.ended(HONEST), 2 + round);
    }
    bed.fabric.sever_all(node(GREEDY));
    bed.settle();
    all_home(&mut bed.server, bed.now);
}

#[test]
fn peers_that_take_no_replies_leave_as_many_send_buffers_as_they_hold() {
    let limits = Limits { connections_max: 4, credits_max: 31, send_buffers_max: 16, ..LIMITS };
    let mut bed = Bed::with(Files::default(), limits);
    let connections = [bed.clients[GREEDY].1, bed.connect(GREEDY), bed.connect(GREEDY)];
    for _ in 0..10 {
        for connection in connections {
            bed.call_on(GREEDY, connection, request(TELL));
        }
    }
    bed.silence(GREEDY);
    bed.settle();
    // Each connection of the greedy client holds at most an eighth of the send buffers.
    let free = bed.server.inner.common.buffers.len();
    assert!((10..=13).contains(&free), "{free} of 16 are free");
    for round in 0..40 {
        bed.call(HONEST, request(TELL));
        bed.settle();
        assert_eq!(bed.ended(HONEST), 2 + round);
    }
    bed.fabric.sever_all(node(GREEDY));
    bed.settle();
    all_home(&mut bed.server, bed.now);
}

#[test]
fn peers_that_take_no_errors_leave_as_many_send_buffers_as_they_hold() {
    let limits = Limits { connections_max: 4, credits_max: 31, send_buffers_max: 16, ..LIMITS };
    let mut bed = Bed::with(Files::default(), limits);
    bed.connect(GREEDY);
    bed.connect(GREEDY);
    bed.silence(GREEDY);
    let Inner { common, .. } = &bed.server.inner;
    let is_greedy = |key: &_| common.connections.get(*key).unwrap().peer().ip() == node(GREEDY);
    let greedy: Vec<_> = bed.server.inner.keys().filter(is_greedy).collect();
    // What each connection sends is answered with errors that do not arrive.
    for xid in 0..10 {
        for key in &greedy {
            bed.server.inner.common.refuse(*key, xid, ErrorBody::BadXdr);
        }
    }
    bed.settle();
    let free = bed.server.inner.common.buffers.len();
    assert_eq!((greedy.len(), free), (3, 8), "of 16 send buffers");
    for round in 0..40 {
        bed.call(HONEST, request(TELL));
        bed.settle();
        assert_eq!(bed.ended(HONEST), 2 + round);
    }
    assert_eq!(bed.server.inner.common.connections.len(), 4, "errors wait, and nobody is closed");
    bed.fabric.sever_all(node(GREEDY));
    bed.settle();
    all_home(&mut bed.server, bed.now);
}

#[test]
fn errors_that_wait_for_others_leave_when_these_have_arrived() {
    let limits = Limits { connections_max: 4, credits_max: 31, send_buffers_max: 4, ..LIMITS };
    let mut bed = Bed::with(Files::default(), limits);
    let key = bed.key(GREEDY);
    let before = bed.clients[GREEDY].0.provider.counters().receives;
    for xid in 0..20 {
        bed.server.inner.common.refuse(key, xid, ErrorBody::BadXdr);
    }
    bed.settle();
    let received = bed.clients[GREEDY].0.provider.counters().receives - before;
    assert!((20..25).contains(&received), "{received}: twenty errors, and a few grants");
    all_home(&mut bed.server, bed.now);
}

#[test]
fn calls_that_find_no_memory_wait_until_some_comes_home() {
    let mut bed = Bed::new();
    for _ in 0..15 {
        bed.store(HONEST, 3 * MIB);
        bed.store(GREEDY, MIB);
        bed.fetch(GREEDY);
    }
    bed.until(|bed| bed.ended(HONEST) + bed.ended(GREEDY) == 2 + 45);
    let service = bed.server.service();
    assert_eq!((service.stored, service.fetched, service.refused.len()), (30, 15, 0));
    bed.settle();
    all_home(&mut bed.server, bed.now);
}

#[test]
fn calls_with_arguments_and_room_for_long_replies_do_not_wait_for_each_other() {
    // One Call that has more than half of the pool for itself, and several that want all of it together.
    for lengths in [&[4 * MIB][..], &[3 * MIB; 6], &[4 * MIB, 3 * MIB, 4 * MIB]] {
        let mut bed = Bed::new();
        lengths.iter().for_each(|length| bed.exchange(HONEST, *length));
        bed.settle();
        assert_eq!(bed.ended(HONEST), 1 + lengths.len(), "no deadline was needed");
        assert_eq!(bed.server.service().stored as usize, lengths.len());
        all_home(&mut bed.server, bed.now);
    }
}

#[test]
fn memory_that_never_comes_is_refused_and_the_service_is_told() {
    let mut bed = Bed::new();
    // The Call needs more memory than the pool has left, and no Call holds any that it could return.
    let kept = {
        let (cx, _) = bed.server.cx(bed.now);
        cx.pool().lease(ROOM - 2 * MIB).unwrap()
    };
    bed.store(HONEST, 3 * MIB);
    bed.settle();
    assert_eq!(
        (bed.ended(HONEST), &bed.server.service().refused[..]),
        (2, &[Refusal::NoMemory][..])
    );
    drop(kept);
    // Values that the service keeps belong to no Call any more, and no Call waits for them.
    bed.server.cx(bed.now).1.keeps = true;
    for _ in 0..10 {
        bed.store(HONEST, MIB);
    }
    bed.settle();
    assert_eq!(bed.ended(HONEST), 12);
    let service = bed.server.service();
    assert!(service.stored >= 6 && service.stored as usize + service.refused.len() == 11);
    assert_eq!(bed.server.inner.common.memory.held(), 0);
}

#[test]
fn a_service_makes_room_once_a_turn_until_there_is_room_or_none_to_be_made() {
    let making = Making { is_possible: true, ..Making::default() };
    let mut bed = Bed::of(Files { making, ..Files::default() });
    let lease_all = |bed: &mut Bed| {
        let (cx, files) = bed.server.cx(bed.now);
        files.making.leases.clear();
        files.making.leases.extend(std::iter::from_fn(|| cx.pool().lease(MIB / 4)));
    };
    lease_all(&mut bed);
    bed.store(HONEST, MIB);
    let mut asked = 0;
    bed.until(|bed| {
        let before = std::mem::replace(&mut asked, bed.server.service().making.asked.0);
        assert!(asked <= before + 1, "more than once a turn");
        bed.ended(HONEST) == 2
    });
    let Files { stored, refused, making, .. } = bed.server.service();
    assert_eq!((*stored, refused.len(), making.asked), (1, 0, (4, MIB)));
    // A Call is refused when the service can make no more room; a shorter Call is still served.
    lease_all(&mut bed);
    let _rest = bed.server.cx(bed.now).1.making.leases.split_off(2);
    bed.store(HONEST, MIB);
    bed.store(HONEST, MIB / 4);
    bed.settle();
    let Files { stored, refused, making, .. } = bed.server.service();
    assert_eq!((*stored, &refused[..]), (2, &[Refusal::NoMemory][..]));
    assert_eq!((making.asked.0, making.leases.len()), (7, 0));
    assert_eq!(bed.server.inner.common.memory.held(), 0);
}

#[test]
fn who_waits_for_memory_too_long_is_refused() {
    let mut bed = Bed::new();
    for _ in 0..6 {
        bed.store(GREEDY, 2 * MIB);
    }
    bed.silence(GREEDY);
    bed.settle();
    // The Calls beyond the client's share wait together for as long as they may.
    assert_eq!(bed.counts(GREEDY), (4 * MIB, 4));
    let before = bed.now;
    bed.until(|bed| !bed.server.service().refused.is_empty());
    assert_eq!(bed.server.service().refused, [Refusal::Busy; 4]);
    let waited = bed.now.saturating_since(before);
    assert!(waited + MS >= LIMITS.memory_timeout && waited < LIMITS.memory_timeout + MS);
}

#[test]
fn no_more_calls_hold_memory_to_be_read_than_may_read_at_once() {
    let mut bed = Bed::new();
    let key = bed.key(GREEDY);
    bed.server.inner.common.connections.get_mut(key).unwrap().share.allow_reads(2);
    for _ in 0..20 {
        bed.store(GREEDY, 1 << 10);
    }
    let mut most = 0;
    while bed.ended(GREEDY) < 21 {
        bed.turn();
        let (_, waiting) = bed.counts(GREEDY);
        most = most.max(waiting);
        let reading = bed
            .server
            .inner
            .common
            .posted
            .iter()
            .filter(|work| matches!(work.held, Held::Read { .. }));
        assert!(reading.count() <= 2);
        bed.now = bed.fabric.next_event().unwrap_or(bed.now).max(bed.now);
    }
    assert!(most >= 10, "others waited meanwhile");
}

/// Has the server receive, in one turn, `calls` of procedure `asked` of the greedy client and then one Call of the honest
/// one. Returns who was served in that turn, and who before the honest one in all.
fn served(asked: impl Fn(&mut Bed), calls: usize, honest: impl Fn(&mut Bed)) -> [usize; 2] {
    let mut bed = Bed::new();
    for _ in 0..calls {
        asked(&mut bed);
    }
    bed.clients[GREEDY].0.turn(bed.now);
    honest(&mut bed);
    bed.clients[HONEST].0.turn(bed.now);
    bed.server.cx(bed.now).1.callers.clear();
    bed.now = bed.now.saturating_add(MS);
    bed.server.turn(bed.now);
    let in_turn = bed.server.service().callers.len();
    bed.settle();
    let honest = bed.key(HONEST);
    let callers = &bed.server.service().callers;
    assert_eq!(callers.len(), calls + 1);
    [in_turn, callers.iter().position(|caller| caller.0 == honest).unwrap()]
}

#[test]
fn connections_whose_calls_can_go_on_have_turns() {
    let [_, before] = served(|bed| bed.fetch(GREEDY), 4, |bed| bed.fetch(HONEST));
    assert!(before <= 1, "{before} before the honest one");
}

#[test]
fn costly_calls_keep_others_waiting_for_one_of_them() {
    // The Reply to LIST has a chunk, and that to TELL has none.
    for costly in [LIST, TELL] {
        let asked = |bed: &mut Bed| bed.call(GREEDY, request(costly));
        let [in_turn, before] = served(asked, 15, |bed| bed.call(HONEST, request(0)));
        assert_eq!((in_turn, before), (2, 0), "the honest one and one that is costly");
        let [in_turn, before] = served(asked, 15, |bed| bed.call(HONEST, request(costly)));
        assert_eq!(in_turn, 1);
        assert!(before <= 1, "{before} before the honest one");
    }
}

/// A service that keeps each item until it is told to answer all.
#[derive(Debug, Default)]
struct Holder {
    held: Vec<(CallToken, Leases)>,
    answers: bool,
}

impl Service for Holder {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, _: &mut Reply) -> Outcome {
        match call.arguments.item(24) {
            Ok(Argument::Placed(lease)) => self.held.push((call.token, lease)),
            other => panic!("{other:?}"),
        }
        Outcome::Later
    }

    fn resume(&mut self, _: &mut Cx<'_>, _: CallToken, _: &mut Reply) -> Outcome {
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.answers {
            return false;
        }
        self.held.drain(..).map(|(token, _)| cx.resume(token)).count() > 0
    }
}

#[test]
fn arguments_that_are_read_as_their_calls_come_are_charged_until_these_are_answered() {
    const LENGTH: usize = 256 << 10;
    fn core<S: Service>(service: S, bytes: usize) -> Core<Shm, S> {
        let memory = PoolConfig { bytes, pages: PagePreference::Shared, node: None };
        let pool = Pool::new(&memory).unwrap();
        let shm = Shm::new(&shm::Config::default(), &pool).unwrap();
        Core::new(shm, service, pool, LIMITS, 7).unwrap()
    }
    let mut server = core(Holder::default(), 4 * MIB);
    let mut client = core(Caller::default(), 16 * MIB);
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let connection = client.connect(clock::now(), at, binding()).unwrap();
    for token in 0..20 {
        let (mut cx, _) = client.cx(clock::now());
        let argument = Some(cx.pool().lease(LENGTH).unwrap());
        cx.call(connection, request(STORE).argument(argument), token, |_| Ok(())).unwrap();
    }
    let mut turn = |server: &mut Core<Shm, Holder>| {
        client.turn(clock::now());
        server.turn(clock::now());
        client.service().ended.len()
    };
    for _ in 0..10_000 {
        turn(&mut server);
        let (held, free) = (server.service().held.len(), server.inner.common.pool.free_bytes());
        assert!(held == 0 || server.inner.common.memory.held() >= held * LENGTH);
        assert!(held <= 1 || held * LENGTH <= free, "{held}, {free}");
    }
    assert!(server.service().held.len() >= 2, "as many as the share allows");
    server.cx(clock::now()).1.answers = true;
    let mut turns = 0;
    while turn(&mut server) < 20 {
        turns += 1;
        assert!(turns < 1_000_000);
    }
    assert_eq!(server.inner.common.memory.held(), 0);
}
