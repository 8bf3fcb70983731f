//! Calls with an argument, or with room for a result, that are handled as they arrive, over the providers that deliver
//! messages without Receives.

use std::collections::VecDeque;
use std::rc::Rc;

use haulage_proto::verbs::{Access, Handle, QpNum, WrId};

use super::PATIENT as LIMITS;
use super::*;
use crate::core::requester::{Caller as Waiting, NewCall};
use crate::provider::by_number::ByNumber as _;
use crate::provider::iwarp::{self, Iwarp};
use crate::provider::shm::{self, Shm};
use crate::provider::toy::{Messages, Toy};
use crate::provider::{Head, OpenResult, Outgoing, Port, QueueFull, Sent, WorkQueue};
use crate::service::ResultSource;
use crate::sys::clock;

/// Returns how the Call of a number is answered, and with how many octets.
fn answer(number: u32) -> (PlannedAnswer, usize) {
    const ANSWERS: [PlannedAnswer; 7] = [
        PlannedAnswer::Empty,
        PlannedAnswer::Lease,
        PlannedAnswer::Shared,
        PlannedAnswer::Pieces,
        PlannedAnswer::Failed,
        PlannedAnswer::Later,
        PlannedAnswer::TooLong,
    ];
    // The longest item is not staged, and shorter ones follow it.
    let lengths = [10, 700, 3000, 9000, 20_000, 66_000];
    (ANSWERS[number as usize % ANSWERS.len()], lengths[number as usize % lengths.len()])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlannedAnswer {
    Empty,
    Lease,
    Shared,
    Pieces,
    Failed,
    Later,
    TooLong,
}

/// Returns the octets of the result for a number's Call.
fn octets(number: u32, length: usize) -> Vec<u8> {
    let fill = u8::try_from(number % 251).unwrap();
    let mut octets = vec![fill; length];
    octets[length / 2..].fill(!fill);
    octets
}

/// A service that answers FETCH as the Call's number says, STORE with the number if it came with its octets, and TELL
/// with the argument.
struct Shelf {
    /// Where the results of FETCH are said to come from.
    source: ResultSource,
    fetched: u64,
    stored: u64,
    /// Calls that are answered later: their procedures, and their numbers.
    waiting: VecDeque<(CallToken, u32, u32)>,
}

impl Shelf {
    fn lease(cx: &Cx<'_>, number: u32, length: usize) -> Local {
        let mut lease = cx.pool().lease(length).unwrap();
        lease.bytes_mut().copy_from_slice(&octets(number, length));
        lease
    }
}

impl Service for Shelf {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding()).result_source(FETCH, self.source)]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        let Ok(number) = call.arguments.u32() else {
            return Outcome::Failed(AcceptStat::GarbageArgs);
        };
        if call.procedure == TELL {
            reply.results(|w| w.u32(number));
            return Outcome::Done;
        }
        let (answer, length) = answer(number);
        if call.procedure == STORE {
            self.stored += 1;
            match call.arguments.item(24) {
                Ok(Argument::Unreduced(bytes)) => assert!(bytes == octets(number, length)),
                Ok(Argument::Placed(leases)) => {
                    assert!(leases.parts().flatten().eq(&octets(number, length)));
                }
                other => panic!("{number}: {other:?}"),
            }
            return match answer {
                PlannedAnswer::Failed => Outcome::Failed(AcceptStat::SystemErr),
                PlannedAnswer::Later => {
                    self.waiting.push_back((call.token, STORE, number));
                    Outcome::Later
                }
                _ => {
                    reply.results(|w| w.u32(number));
                    Outcome::Done
                }
            };
        }
        self.fetched += 1;
        match answer {
            PlannedAnswer::Empty => reply.item(Data::Empty),
            PlannedAnswer::Lease | PlannedAnswer::TooLong => {
                reply.item(Data::Local(Self::lease(cx, number, length)));
            }
            PlannedAnswer::Shared => {
                reply.item(Data::Shared(Self::lease(cx, number, length).share()))
            }
            PlannedAnswer::Pieces => {
                // The item is made of one half of each of two blocks.
                let block = Piece::whole(Self::lease(cx, number, length).share());
                let mut pieces = Pieces::default();
                pieces.push(block.part(0, length / 2)).unwrap();
                let rest = Self::lease(cx, number, length).share();
                pieces.push(Piece::whole(rest).part(length / 2, length - length / 2)).unwrap();
                reply.item(pieces.into());
            }
            PlannedAnswer::Failed => {
                // The Call fails after its item was given, so the item is dropped.
                reply.item(Data::Local(Self::lease(cx, number, length)));
                return Outcome::Failed(AcceptStat::SystemErr);
            }
            PlannedAnswer::Later => {
                self.waiting.push_back((call.token, FETCH, number));
                return Outcome::Later;
            }
        }
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        if let Some((token, ..)) = self.waiting.front() {
            cx.resume(*token);
        }
        false
    }

    fn resume(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let (first, procedure, number) = self.waiting.pop_front().unwrap();
        assert_eq!(first, token);
        let (_, length) = answer(number);
        match procedure {
            FETCH => reply.item(Data::Local(Self::lease(cx, number, length))),
            _ => reply.results(|w| w.u32(number)),
        }
        Outcome::Done
    }
}

/// A service that makes Calls, the next one when the last has ended.
struct Fetcher {
    connection: Option<ConnectionId>,
    /// Returns the procedure of the Call of a number.
    procedure: fn(u32) -> u32,
    /// Calls that could not be made yet.
    owed: u32,
    made: u32,
    fetched: u64,
    stored: u64,
    ended: u32,
}

/// Returns a procedure: mostly fetches and stores, and TELL now and then.
fn anything(number: u32) -> u32 {
    // 11 has no common divisor with the number of planned answers, so each procedure meets each answer.
    match number % 11 {
        0 | 4 => TELL,
        1 | 5 | 6 | 9 => STORE,
        _ => FETCH,
    }
}

/// Returns FETCH where the answer comes at once.
fn fetches(number: u32) -> u32 {
    match answer(number).0 {
        PlannedAnswer::Later | PlannedAnswer::TooLong => TELL,
        _ => FETCH,
    }
}

impl Fetcher {
    fn call(&mut self, cx: &mut Cx<'_>) {
        let Some(connection) = self.connection else { return };
        while self.owed > 0 && self.made < CALLS {
            let number = self.made;
            let procedure = (self.procedure)(number);
            let (answer, length) = answer(number);
            let room = match answer {
                PlannedAnswer::TooLong => length / 2,
                _ => length + number as usize % 3 * 100,
            };
            let result = (procedure == FETCH).then(|| cx.pool().lease(room).unwrap());
            let argument = (procedure == STORE).then(|| Shelf::lease(cx, number, length));
            let asked = request(procedure).argument(argument).room(result);
            match cx.call(connection, asked, number.into(), |w| w.u32(number)) {
                Ok(()) => {}
                Err((CallError::Busy, _)) => return,
                Err((other, _)) => panic!("{other}"),
            }
            self.fetched += u64::from(procedure == FETCH);
            self.stored += u64::from(procedure == STORE);
            self.made += 1;
            self.owed -= 1;
        }
    }
}

impl Service for Fetcher {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let number = u32::try_from(token).unwrap();
        let Finished { results, arguments, rooms } = finished;
        let (argument, result) = (arguments.into_first(), rooms.into_first());
        let (answer, length) = answer(number);
        let procedure = (self.procedure)(number);
        if procedure == TELL {
            assert_eq!(results.unwrap().u32(), Ok(number));
        } else if procedure == STORE {
            let lease = argument.expect("the argument comes home");
            assert!(lease.bytes() == octets(number, length), "{number}");
            match results {
                Ok(mut results) => assert_eq!(results.u32(), Ok(number)),
                Err(CallError::Rejected(AcceptStat::SystemErr)) => {
                    assert_eq!(answer, PlannedAnswer::Failed, "{number}");
                }
                Err(other) => panic!("{number}: {other}"),
            }
        } else {
            let lease = result.expect("the room comes home");
            match (answer, results) {
                (PlannedAnswer::Failed, Err(CallError::Rejected(AcceptStat::SystemErr))) => {
                    assert_eq!(lease.len(), 0, "{number}: what failed left nothing");
                }
                (PlannedAnswer::TooLong, Err(CallError::Refused(TransportError::One(error)))) => {
                    assert_eq!(error, haulage_proto::v1::error::ErrorBody::Chunk, "{number}");
                }
                (PlannedAnswer::TooLong, Err(CallError::Refused(TransportError::Two(error)))) => {
                    let length_needed = u32::try_from(length).unwrap();
                    let wanted = ErrorBody::WriteResource { chunk_index: 1, length_needed };
                    assert_eq!(error, wanted, "{number}");
                }
                (_, Ok(mut results)) => {
                    let length = if answer == PlannedAnswer::Empty { 0 } else { length };
                    match results.eligible_opaque(length) {
                        Ok(Item::Reduced { length: told }) => {
                            assert_eq!((told, lease.len()), (length as u64, length));
                            assert!(
                                lease.bytes() == octets(number, length),
                                "{number}, {answer:?}"
                            );
                        }
                        // There is no item, or it does not fit its room and comes in the message.
                        Ok(Item::Unreduced(bytes))
                            if matches!(answer, PlannedAnswer::TooLong | PlannedAnswer::Empty) =>
                        {
                            assert!(bytes == octets(number, length), "{number}");
                            assert_eq!(lease.len(), 0);
                        }
                        other => panic!("{number}, {answer:?}: {other:?}"),
                    }
                }
                (_, Err(other)) => panic!("{number}, {answer:?}: {other}"),
            }
        }
        self.ended += 1;
        self.owed += 1 + number % 2;
        self.call(cx);
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.call(cx);
        false
    }
}

/// The number of Calls that are made.
const CALLS: u32 = 700;

/// Makes the Calls over a provider that `make` makes.
fn moves<P: Provider>(
    (limits, source): (Limits, ResultSource),
    procedure: fn(u32) -> u32,
    make: impl Fn() -> (P, Pool),
) {
    let (provider, pool) = make();
    let shelf = Shelf { source, fetched: 0, stored: 0, waiting: VecDeque::new() };
    let mut server = Core::new(provider, shelf, pool, limits, 7).unwrap();
    let (provider, pool) = make();
    let fetcher =
        Fetcher { connection: None, procedure, owed: 1, made: 0, fetched: 0, stored: 0, ended: 0 };
    let mut client = Core::new(provider, fetcher, pool, limits, 8).unwrap();
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    client.service.connection = Some(client.connect(clock::now(), at, binding()).unwrap());
    let mut turns = 0;
    while client.service.ended < CALLS {
        let now = clock::now();
        // The ends take turns at changing rates, so each is ahead at times.
        for _ in 0..1 + turns % 3 {
            client.turn(now);
        }
        for _ in 0..1 + turns % 2 {
            server.turn(now);
        }
        turns += 1;
        assert!(turns < 10_000_000, "{} of {CALLS} ended", client.service.ended);
    }
    // Those that were refused for want of room went again.
    let repeated = client.inner.common.counters.calls_repeated;
    assert_eq!(server.service.fetched, client.service.fetched + repeated);
    assert_eq!(server.service.stored, client.service.stored);
    assert_eq!(server.inner.common.counters.write_chunks, client.service.fetched + repeated);
    assert_eq!(client.inner.common.counters.calls_made, u64::from(CALLS));
    for _ in 0..100 {
        client.turn(clock::now());
        server.turn(clock::now());
    }
    all_home(&mut client, clock::now());
    all_home(&mut server, clock::now());
}

/// Returns limits, and where results come from: nothing is in the way; hardly a buffer; few credits; more Calls than a
/// short ring takes; and some of these with results that are leased, and in version 1.
fn circumstances() -> [(Limits, ResultSource); 7] {
    use ResultSource::{Leased, Resident};
    let few = Limits { send_buffers_max: 2, ..LIMITS };
    let poor = Limits { credits_max: 6, receives_max: 40, ..LIMITS };
    let many = Limits { calls_out_max: 128, receives_max: 256, ..LIMITS };
    let one = |limits| Limits { versions: Versions::OnlyOne, ..limits };
    [
        (LIMITS, Resident),
        (few, Resident),
        (poor, Resident),
        (many, Resident),
        (many, Leased),
        (one(few), Resident),
        (one(many), Leased),
    ]
}

fn pool(pages: PagePreference) -> Pool {
    Pool::new(&PoolConfig { bytes: 8 << 20, pages, node: None }).unwrap()
}

#[test]
fn items_are_placed_over_shared_memory_whatever_is_in_the_way() {
    for circumstances in circumstances() {
        // A ring that has room, and a ring that is soon full.
        for ring_bytes in [64 << 10, 4 << 10] {
            moves(circumstances, anything, || {
                let pool = pool(PagePreference::Shared);
                let config = shm::Config { ring_bytes, ..shm::Config::default() };
                (Shm::new(&config, &pool).unwrap(), pool)
            });
        }
    }
}

#[test]
fn items_are_placed_over_iwarp_whatever_is_in_the_way() {
    for circumstances in circumstances() {
        for procedure in [anything, fetches] {
            moves(circumstances, procedure, || {
                (Iwarp::new(&iwarp::Config::default()).unwrap(), pool(PagePreference::Heap))
            });
        }
    }
}

/// No message is delivered without a Receive: each Call and each Reply is posted, and taken from a Receive.
#[test]
fn items_are_placed_over_a_provider_without_optional_abilities() {
    for messages in [Messages::Copied, Messages::Taken] {
        for circumstances in circumstances() {
            let net = Rc::default();
            let part = || (Toy::join(&net, messages).unwrap(), pool(PagePreference::Heap));
            moves(circumstances, anything, part);
        }
    }
}

/// A port that opens memory, and has no room for the message that names it.
struct Full<'a> {
    provider: &'a mut Sim,
    qp: QpNum,
}

impl Port for Full<'_> {
    fn send(&mut self, _: &Head<'_>, _: &mut Outgoing, _: WrId) -> Sent {
        Sent::Full
    }

    fn open(&mut self, lease: Local, access: Access) -> OpenResult {
        self.provider.open(self.qp, lease, access)
    }

    fn post(&mut self, batch: &mut WorkQueue) -> Result<(), QueueFull> {
        self.provider.post(self.qp, batch)
    }
}

#[test]
fn a_call_whose_room_is_open_leaves_even_if_not_at_once() {
    let mut world = World::new();
    let argument = world.lease(3000, 0x5a);
    world.call(1, request(STORE).argument(argument));
    world.until(|w| w.ended().len() == 1);
    let result = world.lease(3000, 0);
    let Core { inner: Inner { requester, common, .. }, provider, .. } = &mut world.client;
    let key = world.connection.0;
    let qp = common.connections.get(key).unwrap().qp();
    let mut port = Full { provider, qp };
    let mut grant = requester.open_grant(common, key, 2, &mut port).unwrap();
    let mut asked = request(FETCH).room(result);
    assert!(grant.takes(world.connection.0) && grant.opens(&asked));
    let (now, caller) = (world.now, Waiting::Service(2));
    let new = NewCall { now, procedure: FETCH, timeout: None, caller };
    let grant_mut = &mut grant;
    requester
        .call_opening_at_once(common, grant_mut, &mut port, new, &mut asked, |_| Ok(()))
        .unwrap();
    grant.close(common);
    common.connections.touch(key);
    // The conditions for a Reply that ends the Call.
    let (slot, xid, exposed_leases) = requester.calls.only();
    let handle = exposed_leases.solicited();
    let over = |handle, written| {
        requester.calls.over_with_fence(common, key, xid, handle, written) == Some(slot)
    };
    assert!(over(handle, Some(0)) && !over(Handle(handle.0 ^ 1), Some(0)));
    assert!(!over(handle, Some(1)), "nothing was placed yet");
    assert!(
        exposed_leases.is_over_with(handle, Some(3000))
            && !exposed_leases.is_over_with(handle, Some(3001))
    );
    assert!(!over(handle, None), "it returns no chunk");
    world.until(|w| w.ended().len() == 2);
    let (token, reduced, lease) = &world.ended()[1];
    assert_eq!((token, reduced), (&2, &Ok(3000)));
    assert_eq!(lease.as_ref().unwrap().bytes(), vec![0x5a; 3000]);
    world.settle();
    world.all_home();
}

/// A service that takes no argument, and notes which Calls have one when they arrive, and the leases in use then.
#[derive(Default)]
struct Deaf(Vec<(u32, bool, u64)>);

impl Service for Deaf {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        let leases = cx.gauges().local;
        let is_placed = call.arguments.placed.is_some();
        self.0.push((call.procedure, is_placed, leases));
        if call.procedure == FETCH {
            reply.item(Data::Empty);
        }
        Outcome::Done
    }
}

#[test]
fn an_argument_that_no_service_took_is_not_that_of_the_next_call() {
    let make = || {
        let pool = pool(PagePreference::Shared);
        (Shm::new(&shm::Config::default(), &pool).unwrap(), pool)
    };
    let (provider, memory) = make();
    let mut server = Core::new(provider, Deaf::default(), memory, LIMITS, 7).unwrap();
    let (provider, memory) = make();
    let mut client = Core::new(provider, Caller::default(), memory, LIMITS, 8).unwrap();
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let connection = client.connect(clock::now(), at, binding()).unwrap();
    for round in 1..=20 {
        let (mut cx, _) = client.cx(clock::now());
        for procedure in [STORE, FETCH, STORE, FETCH] {
            let lease = Some(cx.pool().lease(5000).unwrap());
            let asked = match procedure {
                STORE => request(STORE).argument(lease),
                _ => request(FETCH).room(lease),
            };
            cx.call(connection, asked, 0, |_| Ok(())).unwrap();
        }
        let mut turns = 0;
        while client.service.ended.len() < 4 * round {
            client.turn(clock::now());
            server.turn(clock::now());
            turns += 1;
            assert!(turns < 10_000_000);
        }
    }
    let served = &server.service.0;
    let least = served.iter().map(|(.., leases)| *leases).min();
    for (procedure, is_placed, leases) in served {
        assert_eq!(*is_placed, *procedure == STORE);
        // One more lease is in use while the argument of a STORE lives.
        assert!(*procedure == STORE || Some(*leases) == least, "{served:?}");
    }
}

/// A service that makes Calls with room for a result, each as soon as one has ended.
struct Steady {
    connection: Option<ConnectionId>,
    /// Calls to be made at first.
    owed: u32,
    ended: u32,
}

impl Service for Steady {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn replied(&mut self, cx: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        assert!(finished.results.is_ok());
        self.ended += 1;
        self.owed += 1;
        self.turn(cx);
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        while let Some(connection) = self.connection
            && self.owed > 0
        {
            let result = cx.pool().lease(1000);
            let asked = request(FETCH).room(result);
            cx.call(connection, asked, 0, |w| w.u32(0)).unwrap();
            self.owed -= 1;
        }
        false
    }
}

/// Over iwarp each Reply that invalidates a handle is a run of its own, and there are many in a turn.
#[test]
fn a_call_grants_the_credits_of_all_replies_of_the_turn_before_it() {
    const DEPTH: u32 = 24;
    let (credits_max, send_buffers_max) = (DEPTH + DEPTH / 4, 16 * DEPTH);
    let limits = Limits { credits_max, send_buffers_max, receives_max: 128, ..LIMITS };
    let make = || (Iwarp::new(&iwarp::Config::default()).unwrap(), pool(PagePreference::Heap));
    let (provider, memory) = make();
    let mut server = Core::new(provider, Deaf::default(), memory, limits, 7).unwrap();
    let (provider, memory) = make();
    let steady = Steady { connection: None, owed: DEPTH, ended: 0 };
    let mut client = Core::new(provider, steady, memory, limits, 8).unwrap();
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    client.service.connection = Some(client.connect(clock::now(), at, binding()).unwrap());
    let mut turns = 0;
    while client.service.ended < 100 * DEPTH {
        client.turn(clock::now());
        server.turn(clock::now());
        turns += 1;
        assert!(turns < 10_000_000, "{} ended", client.service.ended);
        // A connection is given more credits as it becomes busy.
        let mut connections = server.inner.common.connections.iter();
        if client.service.ended > 10 * DEPTH {
            assert!(connections.all(|connection| connection.outbox.replies() == 0));
        }
    }
}
