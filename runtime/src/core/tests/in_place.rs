//! Calls that are handled as they arrive, over shared memory: a provider that delivers messages without Receives.

use std::collections::VecDeque;

use haulage_mr_pool::Shared;
use haulage_proto::xdr::Reader;

use super::PATIENT as LIMITS;
use super::*;
use crate::identity::{Identity, User};
use crate::provider::shm::{Config, Shm};
use crate::service::Foreseen;
use crate::sys::clock;

/// A service that sends back each argument: at once, or, every `later`th time, in the turn after the next.
struct Echo {
    later: u64,
    calls: u64,
    waiting: VecDeque<(CallToken, Vec<u8>)>,
    /// Arguments of Calls that are to be served next, and the number of Calls that were served as foreseen.
    foreseen: VecDeque<Vec<u8>>,
    as_foreseen: u64,
}

impl Echo {
    const fn new(later: u64) -> Self {
        Self {
            later,
            calls: 0,
            waiting: VecDeque::new(),
            foreseen: VecDeque::new(),
            as_foreseen: 0,
        }
    }
}

impl Service for Echo {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn foresee<'a>(&mut self, calls: impl Iterator<Item = Foreseen<'a>>) {
        let arguments = calls.map(|call| {
            assert_eq!((call.program, call.procedure), (0, TELL));
            call.arguments.to_vec()
        });
        self.foreseen = arguments.collect();
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        let Ok(told) = call.arguments.opaque(TELL_MAX) else {
            return Outcome::Failed(AcceptStat::GarbageArgs);
        };
        self.calls += 1;
        // A run that ends early leaves Calls behind that were foreseen.
        if let Some(arguments) = self.foreseen.pop_front() {
            self.as_foreseen += u64::from(Reader::new(&arguments).opaque(TELL_MAX) == Ok(told));
        }
        if self.calls.is_multiple_of(self.later) {
            self.waiting.push_back((call.token, told.to_vec()));
            return Outcome::Later;
        }
        reply.results(|w| w.opaque(told));
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        if let Some((token, _)) = self.waiting.front() {
            cx.resume(*token);
        }
        false
    }

    fn resume(&mut self, _: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let (first, told) = self.waiting.pop_front().unwrap();
        assert_eq!(first, token);
        reply.results(|w| w.opaque(&told));
        Outcome::Done
    }
}

fn core<S: Service>(service: S, limits: Limits, ring_bytes: u32) -> Core<Shm, S> {
    let memory = PoolConfig { bytes: 4 << 20, pages: PagePreference::Shared, node: None };
    let pool = Pool::new(&memory).unwrap();
    let shm = Shm::new(&Config { ring_bytes, ..Config::default() }, &pool).unwrap();
    Core::new(shm, service, pool, limits, 7).unwrap()
}

/// Makes 600 Calls of all lengths, up to 20 at a time. Returns how many the service saw, and how many of them as foreseen.
fn echoes(
    versions: Versions,
    later: u64,
    limits: Limits,
    ring_bytes: u32,
    longest: usize,
) -> (u64, u64) {
    let mut server = core(Echo::new(later), limits, ring_bytes);
    let mut client = core(Caller::default(), Limits { versions, ..LIMITS }, ring_bytes);
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let identity = match versions {
        // A Linux client calls like this.
        Versions::OnlyOne => Identity::User(User::new("machine", 1000, 100, &[1, 2, 3])),
        _ => Identity::Anonymous,
    };
    let connection = client
        .connect(clock::now(), at, ConnectOptions::new(binding()).identity(identity))
        .unwrap();
    let told = |token: u64| {
        let (octet, length) = ((token % 251) as u8, usize::try_from(token * 7).unwrap() % longest);
        vec![octet; length]
    };
    let (mut made, mut turns) = (0, 0);
    while client.service.ended.len() < 600 {
        let now = clock::now();
        while made < 600 && made < client.service.ended.len() as u64 + 20 {
            let (mut cx, _) = client.cx(now);
            cx.call(connection, request(TELL), made, |w| w.opaque(&told(made))).unwrap();
            made += 1;
        }
        // The ends take turns at changing rates, so each is ahead at times.
        for _ in 0..1 + turns % 3 {
            client.turn(now);
        }
        for _ in 0..1 + turns % 2 {
            server.turn(now);
        }
        turns += 1;
        assert!(turns < 1_000_000, "{} of {made} ended", client.service.ended.len());
    }
    let results = client.service.ended.iter().zip(&client.service.results);
    for ((token, ended, _), result) in results {
        assert_eq!(ended.as_ref().err(), None);
        let length = u32::try_from(told(*token).len()).unwrap();
        let mut stream = length.to_be_bytes().to_vec();
        stream.extend(told(*token));
        stream.resize(stream.len().next_multiple_of(4), 0);
        assert!(*result == stream, "the result of {token}");
    }
    // Both ends take in the last reports.
    for _ in 0..100 {
        client.turn(clock::now());
        server.turn(clock::now());
    }
    assert_eq!(server.inner.common.counters.calls_served, 600);
    all_home(&mut client, clock::now());
    all_home(&mut server, clock::now());
    (server.service.calls, server.service.as_foreseen)
}

#[test]
fn calls_are_answered_whatever_is_in_the_way() {
    // In turn: nothing is in the way; some Calls are answered later; hardly a buffer for answers; few credits; a ring
    // that is soon full; all of it.
    let few = Limits { send_buffers_max: 2, ..LIMITS };
    let poor = Limits { credits_max: 6, receives_max: 40, ..LIMITS };
    let all = Limits { send_buffers_max: 2, ..poor };
    for (later, limits, ring_bytes, longest) in [
        (u64::MAX, LIMITS, 64 << 10, 4000),
        (3, LIMITS, 64 << 10, 4000),
        (u64::MAX, few, 64 << 10, 4000),
        (u64::MAX, poor, 64 << 10, 4000),
        (u64::MAX, LIMITS, 4 << 10, 900),
        (2, all, 4 << 10, 900),
        (1, all, 4 << 10, 4000),
    ] {
        for versions in [Versions::Both, Versions::OnlyOne] {
            let (served, as_foreseen) = echoes(versions, later, limits, ring_bytes, longest);
            // The header of a Call with a credential is read when it is served. A Call that is answered later ends a run.
            let is_plain = versions == Versions::Both && later == u64::MAX;
            assert!(as_foreseen > 0 || !is_plain, "{as_foreseen}, {later}, {ring_bytes}");
            assert_eq!(served, 600, "{versions:?}, {later}, {limits:?}, {ring_bytes}, {longest}");
        }
    }
}

/// A service that answers with the number of the procedure and its argument.
struct Wide;

/// Returns a binding with more procedures than there are numbers for templates.
fn wide() -> Binding {
    let procedures = (0..20).map(|_| Procedure::new("TELL").results_max(8).idempotent());
    Binding { program: 0x2000_0003, version: 1, procedures: procedures.collect() }
}

impl Service for Wide {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(wide())]
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        let Ok(told) = call.arguments.u32() else {
            return Outcome::Failed(AcceptStat::GarbageArgs);
        };
        reply.results(|w| w.u32(call.procedure).and_then(|()| w.u32(told)));
        Outcome::Done
    }
}

/// A service that calls every procedure in turn: as many Calls as can begin, and then one for each that ends.
struct Wider {
    connection: Option<ConnectionId>,
    made: u32,
    ended: u32,
}

impl Wider {
    /// Returns the procedure of a Call: three Calls of a procedure follow each other.
    const fn procedure(made: u32) -> u32 {
        made / 3 % 20
    }

    fn call_next(&mut self, cx: &mut Cx<'_>) {
        let (connection, made) = (self.connection.unwrap(), self.made);
        let request = request(Self::procedure(made));
        cx.call(connection, request, u64::from(made), |w| w.u32(!made)).unwrap();
        self.made += 1;
    }
}

impl Service for Wider {
    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let made = u32::try_from(token).unwrap();
        let mut results = finished.results.unwrap();
        assert_eq!((results.u32(), results.u32()), (Ok(Self::procedure(made)), Ok(!made)));
        self.ended += 1;
        if self.made < 400 {
            self.call_next(cx);
        }
    }
}

#[test]
fn calls_of_every_procedure_are_answered_whether_it_has_a_template_or_not() {
    let wider = Wider { connection: None, made: 0, ended: 0 };
    let (mut server, mut client) = (core(Wide, LIMITS, 64 << 10), core(wider, LIMITS, 64 << 10));
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    client.service.connection = Some(client.connect(clock::now(), at, wide()).unwrap());
    for _ in 0..7 {
        let (mut cx, wider) = client.cx(clock::now());
        wider.call_next(&mut cx);
    }
    for _ in 0..100_000 {
        if client.service.ended == 400 {
            break;
        }
        client.turn(clock::now());
        server.turn(clock::now());
    }
    assert_eq!(client.service.ended, 400);
    all_home(&mut client, clock::now());
    all_home(&mut server, clock::now());
}

/// A service that returns an item: at once, or, every third time, in a later turn.
#[derive(Default)]
struct Shelf {
    item: Option<Shared>,
    calls: u64,
    waiting: VecDeque<CallToken>,
}

impl Service for Shelf {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        let item = self.item.get_or_insert_with(|| cx.pool().lease(500).unwrap().share());
        self.calls += 1;
        if self.calls.is_multiple_of(3) {
            self.waiting.push_back(call.token);
            return Outcome::Later;
        }
        reply.item(Data::Shared(item.clone()));
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        if let Some(token) = self.waiting.front() {
            assert!(cx.awaits(*token), "the Call that it names has been answered");
            cx.resume(*token);
        }
        false
    }

    fn resume(&mut self, _: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        assert_eq!(self.waiting.pop_front(), Some(token));
        reply.item(self.item.clone().map_or(Data::Empty, Data::Shared));
        Outcome::Done
    }
}

#[test]
fn a_call_behind_a_reply_that_waits_is_answered_later_under_its_own_name() {
    let mut server = core(Shelf::default(), LIMITS, 4 << 10);
    let mut client = core(Caller::default(), LIMITS, 64 << 10);
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let connection = client.connect(clock::now(), at, binding()).unwrap();
    for round in 1..20 {
        let (mut cx, _) = client.cx(clock::now());
        for token in 0..30 {
            let result = cx.pool().lease(500);
            cx.call(connection, request(FETCH).room(result), token, |_| Ok(())).unwrap();
        }
        let mut turns = 0;
        while client.service.ended.len() < 30 * round {
            client.turn(clock::now());
            // The ring does not take all Replies, and the client takes none meanwhile.
            for _ in 0..30 {
                server.turn(clock::now());
            }
            turns += 1;
            assert!(turns < 10_000, "{} ended in round {round}", client.service.ended.len());
        }
        assert!(client.service.ended.iter().all(|(_, ended, _)| *ended == Ok(500)), "{round}");
        client.service.ended.iter_mut().for_each(|(.., lease)| drop(lease.take()));
    }
}

/// A service that answers with an item for which no room was offered, and that takes too many messages.
struct Boast;

impl Service for Boast {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, _: Call<'_>, reply: &mut Reply) -> Outcome {
        reply.item(Data::Local(cx.pool().lease(12 * INLINE_SIZE).unwrap()));
        Outcome::Done
    }
}

#[test]
fn a_call_that_is_refused_as_it_comes_is_owed_nothing_any_more() {
    for versions in [Versions::Both, Versions::OnlyOne] {
        let mut server = core(Boast, LIMITS, 64 << 10);
        let mut client = core(Caller::default(), Limits { versions, ..LIMITS }, 64 << 10);
        let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let connection = client.connect(clock::now(), at, binding()).unwrap();
        let mut turns = 0;
        while client.service.ended.len() < 100 {
            let now = clock::now();
            if client.inner.requester.calls.each().next().is_none() {
                let (mut cx, _) = client.cx(now);
                for token in 0..5 {
                    cx.call(connection, request(TELL), token, |w| w.opaque(b"?")).unwrap();
                }
            }
            client.turn(now);
            server.turn(now);
            turns += 1;
            assert!(turns < 100_000, "{versions:?}: {} ended", client.service.ended.len());
        }
        let refused = |ended: &Result<u32, CallError>| matches!(ended, Err(CallError::Refused(_)));
        let ended = &client.service.ended;
        assert!(ended.iter().all(|(_, ended, _)| refused(ended)), "{versions:?}: {:?}", ended[0]);
        let owed: u32 = server.inner.common.connections.iter().map(|one| one.engine.owed()).sum();
        assert_eq!(owed, 0, "{versions:?}");
    }
}

/// A service that answers every Call at length.
struct Shout(u64);

impl Service for Shout {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, reply: &mut Reply) -> Outcome {
        self.0 += 1;
        reply.results(|w| w.opaque(&[7; 900]));
        Outcome::Done
    }
}

#[test]
fn calls_that_find_no_buffer_for_their_replies_wait_for_one() {
    let few = Limits { send_buffers_max: 2, ..LIMITS };
    let mut server = core(Shout(0), few, 4 << 10);
    let mut client = core(Caller::default(), LIMITS, 4 << 10);
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let connection = client.connect(clock::now(), at, binding()).unwrap();
    let mut ended = 0;
    for round in 0..20 {
        let (mut cx, _) = client.cx(clock::now());
        for token in 0..20 {
            cx.call(connection, request(TELL), token, |w| w.opaque(b"?")).unwrap();
        }
        // The ring takes four Replies, and the client takes none meanwhile.
        while client.service.ended.len() < ended + 20 {
            client.turn(clock::now());
            for _ in 0..30 {
                server.turn(clock::now());
            }
        }
        ended += 20;
        assert!(client.service.ended.iter().all(|(_, ended, _)| ended.is_ok()), "{round}");
    }
    assert_eq!(server.service.0, 400);
    for _ in 0..100 {
        client.turn(clock::now());
        server.turn(clock::now());
    }
    all_home(&mut client, clock::now());
    all_home(&mut server, clock::now());
}

/// A service that makes Calls of all lengths on one connection or the other: the next ones when the last has ended, or
/// in its next turn.
struct Relay {
    in_turns: bool,
    connections: Vec<ConnectionId>,
    /// Calls that could not be made yet.
    owed: u64,
    /// The number of Calls made on each connection.
    made: [u64; 2],
    ended: u64,
    longest: usize,
}

impl Relay {
    fn told(&self, token: u64) -> Vec<u8> {
        vec![(token % 251) as u8; usize::try_from(token * 7).unwrap() % self.longest]
    }

    /// Makes the Calls that are owed, as far as there is room.
    fn call(&mut self, cx: &mut Cx<'_>) {
        while self.owed > 0 {
            let token: u64 = self.made.iter().sum();
            let to = usize::from(token % 5 < 2);
            let told = self.told(token);
            let called = cx.call(self.connections[to], request(TELL), token, |w| w.opaque(&told));
            match called.map_err(|(why, _)| why) {
                Ok(()) => self.made[to] += 1,
                Err(CallError::Busy) => return,
                Err(other) => panic!("{other}"),
            }
            self.owed -= 1;
        }
    }
}

impl Service for Relay {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let mut results = finished.results.unwrap();
        assert!(results.opaque(TELL_MAX).unwrap() == self.told(token), "the result of {token}");
        self.ended += 1;
        let so_far = self.made.iter().sum::<u64>() + self.owed;
        self.owed += (RELAYED - so_far).min(1 + token % 2);
        if !self.in_turns {
            self.call(cx);
        }
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.call(cx);
        false
    }
}

/// The number of Calls that the relay makes.
const RELAYED: u64 = 600;

#[test]
fn calls_made_as_others_end_go_where_they_are_to() {
    let few = Limits { send_buffers_max: 2, ..LIMITS };
    let poor = Limits { credits_max: 6, receives_max: 40, ..LIMITS };
    for (later, limits, ring_bytes, longest) in [
        (u64::MAX, LIMITS, 64 << 10, 60),
        (3, LIMITS, 64 << 10, 4000),
        (u64::MAX, few, 64 << 10, 900),
        (5, poor, 4 << 10, 900),
    ] {
        for in_turns in [false, true] {
            let echo = || Echo::new(later);
            let mut servers = [(); 2].map(|()| core(echo(), LIMITS, ring_bytes));
            let (connections, owed) = (Vec::new(), 1);
            let relay = Relay { in_turns, connections, owed: 0, made: [0; 2], ended: 0, longest };
            let mut client = core(relay, limits, ring_bytes);
            for server in &mut servers {
                let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
                let connection = client.connect(clock::now(), at, binding()).unwrap();
                client.service.connections.push(connection);
            }
            client.service.owed = owed;
            let mut turns = 0;
            while client.service.ended < RELAYED {
                let now = clock::now();
                client.turn(now);
                servers.iter_mut().for_each(|server| _ = server.turn(now));
                turns += 1;
                assert!(turns < 1_000_000, "{} of {RELAYED} ended", client.service.ended);
            }
            let served = servers.each_ref().map(|server| server.service.calls);
            assert_eq!(served, client.service.made, "{later}, {limits:?}, {ring_bytes}, {longest}");
            for _ in 0..100 {
                client.turn(clock::now());
                servers.iter_mut().for_each(|server| _ = server.turn(clock::now()));
            }
            all_home(&mut client, clock::now());
            servers.iter_mut().for_each(|server| all_home(server, clock::now()));
        }
    }
}

#[test]
fn calls_made_in_a_turn_need_no_buffer_each() {
    let few = Limits { send_buffers_max: 2, ..LIMITS };
    // With few connections, many Calls may be in flight from the first.
    let wide = Limits { connections_max: 2, ..LIMITS };
    let mut server = core(Numbers::default(), wide, 64 << 10);
    let mut client = core(Burst::default(), few, 64 << 10);
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let connection = client.connect(clock::now(), at, binding()).unwrap();
    let mut turns = 0;
    while client.service.ended < 200 {
        if client.service.ended == client.service.made
            && !client.cx(clock::now()).0.is_connecting(connection)
        {
            client.service.to = Some(connection);
        }
        client.turn(clock::now());
        server.turn(clock::now());
        turns += 1;
        assert!(turns < 1_000_000, "{} of {} ended", client.service.ended, client.service.made);
    }
    let in_order: Vec<_> = (0..200).collect();
    assert_eq!(server.service.seen, in_order);
}

/// A service that makes twenty Calls in a turn when it is given a connection.
#[derive(Default)]
struct Burst {
    to: Option<ConnectionId>,
    made: u64,
    ended: u64,
}

impl Service for Burst {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn replied(&mut self, _: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        assert_eq!(finished.results.map(drop).err(), None);
        self.ended += 1;
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(connection) = self.to.take() else { return false };
        for _ in 0..20 {
            let told = self.made.to_be_bytes();
            cx.call(connection, request(TELL), self.made, |w| w.opaque(&told)).unwrap();
            self.made += 1;
        }
        true
    }
}

/// A service that numbers its Calls, of which more are in flight than there are credits, and notes the numbers of the
/// Calls that it serves.
#[derive(Default)]
struct Numbers {
    connection: Option<ConnectionId>,
    made: u64,
    seen: Vec<u64>,
}

impl Numbers {
    fn call(&mut self, cx: &mut Cx<'_>) {
        let Some(connection) = self.connection else { return };
        let told = self.made.to_be_bytes();
        cx.call(connection, request(TELL), self.made, |w| w.opaque(&told)).unwrap();
        self.made += 1;
    }
}

impl Service for Numbers {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        let told = call.arguments.opaque(8).unwrap();
        self.seen.push(u64::from_be_bytes(told.try_into().unwrap()));
        reply.results(|w| w.opaque(told));
        Outcome::Done
    }

    fn replied(&mut self, cx: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        assert_eq!(finished.results.map(drop).err(), None);
        self.call(cx);
    }
}

#[test]
fn calls_that_wait_for_credit_go_before_those_that_need_not() {
    let limits = Limits { credits_max: 24, ..LIMITS };
    let mut server = core(Numbers::default(), limits, 64 << 10);
    let mut client = core(Numbers::default(), LIMITS, 64 << 10);
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let connection = client.connect(clock::now(), at, binding()).unwrap();
    client.service.connection = Some(connection);
    for _ in 0..30 {
        let (mut cx, numbers) = client.cx(clock::now());
        numbers.call(&mut cx);
    }
    let mut turns = 0;
    while server.service.seen.len() < 2000 {
        // The ends take turns at changing rates, so each is ahead at times.
        for _ in 0..1 + turns % 3 {
            client.turn(clock::now());
        }
        for _ in 0..1 + turns % 2 {
            server.turn(clock::now());
        }
        turns += 1;
        assert!(turns < 100_000, "{} of {}", server.service.seen.len(), client.service.made);
    }
    let in_order: Vec<_> = (0..server.service.seen.len() as u64).collect();
    assert_eq!(server.service.seen, in_order);
}
