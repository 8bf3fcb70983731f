//! Several data items in one Call, anywhere among its arguments and results, over each provider and in both versions.

use std::rc::Rc;

use super::PATIENT as LIMITS;
use super::*;
use crate::provider::iwarp::{self, Iwarp};
use crate::provider::shm::{self, Shm};
use crate::provider::toy::{Messages, Toy};
use crate::service::{Items, Kind, Place};
use crate::sys::clock;

/// Takes and answers with as many opaques as its number says.
const MIX: u32 = 1;
/// Takes and answers with one item of each other type.
const SHAPES: u32 = 2;

/// Items in one direction of a Call.
const ITEMS: usize = 4;

fn binding() -> Binding {
    let one = |kind| Eligible { kind, length_max: ITEM_MAX, count_max: 1 };
    let opaques = Eligible { count_max: 4, ..one(Kind::Opaque) };
    let kinds = [Kind::Array, Kind::Optional, Kind::Arm, Kind::Fixed].map(one);
    let shapes = Procedure::new("SHAPES").results_max(12).idempotent();
    let with = |shapes: Procedure, kind| shapes.argument(kind).result(kind);
    Binding {
        program: 0x2000_0001,
        version: 1,
        procedures: vec![
            Procedure::new("NULL"),
            Procedure::new("MIX").argument(opaques).result(opaques).results_max(20).idempotent(),
            kinds.into_iter().fold(shapes, with),
        ],
    }
}

/// What one Call has, by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    procedure: u32,
    /// The octets of each argument, and whether it has a lease.
    arguments: Vec<(usize, bool)>,
    /// The octets of each result, and of the room for it.
    results: Vec<(usize, usize)>,
}

impl Plan {
    fn of(number: u32) -> Self {
        let mut rng = Rng::new(number.into());
        let mut below = |most: u64| usize::try_from(rng.below(0..most)).unwrap();
        let procedure = if below(4) == 0 { SHAPES } else { MIX };
        let lengths: [usize; 7] = [0, 4, 40, 700, 1500, 9000, 20_000];
        // Opaques may have padding.
        let mut length = |of: u32| {
            let whole = lengths[below(7)];
            if of == MIX { whole.saturating_sub(below(4)) } else { whole }
        };
        let mut each = |of: u32| match of {
            MIX => (0..number as usize % (ITEMS + 1)).map(|_| length(of)).collect::<Vec<_>>(),
            _ => (0..ITEMS).map(|_| length(of)).collect(),
        };
        let (arguments, results) = (each(procedure), each(procedure));
        let mut rng = Rng::new(u64::from(number) << 32);
        let mut below = |most: u64| usize::try_from(rng.below(0..most)).unwrap();
        let mut leased = |octets: usize| (octets, octets > 700 || below(3) > 0);
        let arguments = arguments.into_iter().map(&mut leased).collect();
        let mut room = |octets: usize| match leased(octets) {
            (_, true) => (octets, octets + 8),
            // The result is longer, if it has any octets at all.
            (_, false) => (octets, 8),
        };
        let results = results.into_iter().map(&mut room).collect();
        Self { procedure, arguments, results }
    }
}

/// Returns the octets of the item at `index` of a direction of a Call.
fn octets(number: u32, direction: u8, index: usize, length: usize) -> Vec<u8> {
    let seed = number as usize * 31 + usize::from(direction) * 7 + index;
    (0..length).map(|at| u8::try_from((seed + at) % 251).unwrap()).collect()
}

fn lease(cx: &Cx<'_>, octets: &[u8]) -> Local {
    let mut lease = cx.pool().lease(octets.len()).unwrap();
    lease.bytes_mut().copy_from_slice(octets);
    lease
}

/// A service that checks each argument, and answers as the number of the Call says: some Calls later.
#[derive(Default)]
struct Mixer {
    served: u32,
    waiting: VecDeque<(CallToken, u32)>,
}

impl Mixer {
    fn take(number: u32, arguments: &mut crate::service::Arguments<'_>) {
        let Plan { procedure, arguments: planned, .. } = Plan::of(number);
        let count = arguments.u32().unwrap() as usize;
        assert_eq!(count, planned.len());
        for (index, (length, _)) in planned.into_iter().enumerate() {
            let taken = match (procedure, index) {
                (MIX, _) => arguments.item(length).unwrap(),
                (_, 3) => data(arguments, length),
                _ => {
                    let word = arguments.u32().unwrap() as usize;
                    assert_eq!(word, word_of(index, length));
                    data(arguments, length)
                }
            };
            let expected = octets(number, 0, index, length);
            match taken {
                Argument::Unreduced(bytes) => assert!(bytes == expected, "{number}: {index}"),
                Argument::Placed(leases) => {
                    assert!(leases.parts().flatten().eq(&expected), "{number}: {index}");
                }
                Argument::Refused { .. } => panic!("{number}: {index}: refused"),
            }
        }
        assert!(arguments.is_empty(), "{number}: something is left");
    }

    fn answer(cx: &Cx<'_>, number: u32, reply: &mut Reply) {
        let Plan { procedure, results, .. } = Plan::of(number);
        let count = u32::try_from(results.len()).unwrap();
        if procedure == MIX {
            reply.results(|w| w.u32(count));
        }
        for (index, (length, _)) in results.into_iter().enumerate() {
            let item = lease(cx, &octets(number, 1, index, length));
            let data = if index % 2 == 0 { Data::Local(item) } else { Data::Shared(item.share()) };
            if procedure == MIX {
                reply.item(data);
                continue;
            }
            if index < 3 {
                reply.results(|w| w.u32(u32::try_from(word_of(index, length)).unwrap()));
            }
            // Of an array and of optional data there may be nothing.
            if length == 0 { reply.absent() } else { reply.item_data(data) }
        }
    }
}

/// Takes an item that is not an opaque of any length. One without octets is not there at all: the item behind it may begin
/// where it would.
fn data<'a>(arguments: &mut crate::service::Arguments<'a>, length: usize) -> Argument<'a> {
    if length == 0 {
        return Argument::Unreduced(&[]);
    }
    let reduced = arguments.item_data().unwrap();
    reduced.unwrap_or_else(|| Argument::Unreduced(arguments.fixed(length).unwrap()))
}

/// Returns the word of SHAPES that stays in the stream: the count of an array of words, whether there is optional data, the
/// discriminator of a union.
const fn word_of(index: usize, length: usize) -> usize {
    match index {
        0 => length / 4,
        1 => (length > 0) as usize,
        _ => 7,
    }
}

impl Service for Mixer {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        let number = call.arguments.u32().unwrap();
        assert_eq!(call.procedure, Plan::of(number).procedure);
        Self::take(number, &mut call.arguments);
        self.served += 1;
        if number.is_multiple_of(5) {
            self.waiting.push_back((call.token, number));
            return Outcome::Later;
        }
        Self::answer(cx, number, reply);
        Outcome::Done
    }

    fn resume(&mut self, cx: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let (first, number) = self.waiting.pop_front().unwrap();
        assert_eq!(first, token);
        Self::answer(cx, number, reply);
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        if let Some((token, _)) = self.waiting.front() {
            cx.resume(*token);
        }
        false
    }
}

/// A service that makes the Calls of all numbers, several at once, and checks each result.
struct Mixing {
    connection: Option<ConnectionId>,
    made: u32,
    ended: u32,
    /// Whether the connection may be lost.
    may_fail: bool,
}

const CALLS: u32 = 150;
const AT_ONCE: u32 = 6;

impl Mixing {
    const fn new(may_fail: bool) -> Self {
        Self { connection: None, made: 0, ended: 0, may_fail }
    }

    fn call(&mut self, cx: &mut Cx<'_>) {
        let Some(connection) = self.connection else { return };
        while self.made < CALLS && self.made - self.ended < AT_ONCE {
            let number = self.made;
            let Plan { procedure, arguments, results } = Plan::of(number);
            let (mut asked, mut at, mut inline) = (request(procedure), 8, Vec::new());
            let count = arguments.len();
            for (index, (length, is_leased)) in arguments.into_iter().enumerate() {
                let item = octets(number, 0, index, length);
                let (kind, word) = match (procedure, index) {
                    (MIX, _) => (Kind::Opaque, Some(length)),
                    (_, 0) => (Kind::Array, Some(word_of(index, length))),
                    (_, 1) => (Kind::Optional, Some(word_of(index, length))),
                    (_, 2) => (Kind::Arm, Some(word_of(index, length))),
                    _ => (Kind::Fixed, None),
                };
                let is_last =
                    index + 1 == count && kind == Kind::Opaque && number.is_multiple_of(2);
                if is_leased && is_last {
                    asked = asked.argument(lease(cx, &item));
                    continue;
                }
                if is_leased {
                    asked = asked.argument_at(Place::At(kind, at), lease(cx, &item));
                }
                let rest = if is_leased { Vec::new() } else { item };
                at += word.map_or(0, |_| 4) + rest.len().next_multiple_of(4);
                inline.push((word, rest));
            }
            for (_, room) in results {
                asked = asked.room(cx.pool().lease(room).unwrap());
            }
            let wire = |word| u32::try_from(word).unwrap();
            let made = cx.call(connection, asked, number.into(), |w| {
                w.u32(number)?;
                w.u32(wire(count))?;
                inline.iter().try_for_each(|(word, rest)| {
                    word.map_or(Ok(()), |word| w.u32(wire(word)))?;
                    w.put(rest)?;
                    w.pad(rest.len())
                })
            });
            match made {
                Ok(()) => self.made += 1,
                Err((CallError::Busy, _)) => return,
                Err((_, asked)) if self.may_fail => {
                    assert_eq!(asked.arguments.len() + asked.rooms.len() > 0, asked.opens());
                    self.made += 1;
                    self.ended += 1;
                }
                Err((other, _)) => panic!("{number}: {other}"),
            }
        }
    }
}

impl Service for Mixing {
    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let number = u32::try_from(token).unwrap();
        self.ended += 1;
        let Finished { results, arguments, rooms } = finished;
        let plan = Plan::of(number);
        let mut results = match results {
            Ok(results) => results,
            Err(_) if self.may_fail => return,
            Err(other) => panic!("{number}: {other}: {plan:?}"),
        };
        let leased = plan.arguments.iter().enumerate().filter(|(_, (_, is_leased))| *is_leased);
        let sent = leased.map(|(index, (length, _))| octets(number, 0, index, *length));
        assert!(arguments.iter().map(|lease| lease.bytes().to_vec()).eq(sent), "{number}");
        assert_eq!(rooms.len(), plan.results.len(), "every room comes home: {number}");
        if plan.procedure == MIX {
            assert_eq!(results.u32(), Ok(u32::try_from(plan.results.len()).unwrap()));
        }
        for ((index, (length, _)), room) in plan.results.into_iter().enumerate().zip(&rooms) {
            let expected = octets(number, 1, index, length);
            let taken = if plan.procedure == MIX {
                results.eligible_opaque(length).unwrap()
            } else {
                if index < 3 {
                    let word = results.u32().unwrap() as usize;
                    assert_eq!(word, word_of(index, length));
                }
                match results.eligible().unwrap() {
                    Some(length) => Item::Reduced { length },
                    None => Item::Unreduced(results.fixed(length).unwrap()),
                }
            };
            match taken {
                Item::Unreduced(bytes) => assert!(bytes == expected, "{number}: {index}"),
                Item::Reduced { length: told } => {
                    assert_eq!(told, length as u64);
                    assert!(room.bytes() == expected, "{number}: {index}");
                }
            }
        }
        assert!(results.is_empty(), "{number}: something is left");
        self.call(cx);
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.call(cx);
        false
    }
}

/// Makes the Calls over a provider that `make` makes. Returns how many went again.
fn mixes<P: Provider>(limits: Limits, make: impl Fn() -> (P, Pool)) -> u64 {
    let (provider, pool) = make();
    let mut server = Core::new(provider, Mixer::default(), pool, limits, 7).unwrap();
    let (provider, pool) = make();
    let mut client = Core::new(provider, Mixing::new(false), pool, limits, 8).unwrap();
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    client.service.connection = Some(client.connect(clock::now(), at, binding()).unwrap());
    let mut turns = 0;
    while client.service.ended < CALLS {
        let now = clock::now();
        client.turn(now);
        server.turn(now);
        turns += 1;
        assert!(turns < 10_000_000, "{} of {CALLS} ended", client.service.ended);
    }
    let repeated = client.inner.common.counters.calls_repeated;
    assert_eq!(server.service.served, CALLS);
    for _ in 0..100 {
        client.turn(clock::now());
        server.turn(clock::now());
    }
    all_home(&mut client, clock::now());
    all_home(&mut server, clock::now());
    if limits.versions != Versions::OnlyOne {
        // Otherwise nothing has been several.
        let counters = &server.inner.common.counters;
        assert!(counters.read_chunks > 2 * u64::from(CALLS) / 3, "{counters:?}");
        assert!(counters.write_chunks > 2 * u64::from(CALLS) / 3, "{counters:?}");
    }
    repeated
}

/// Returns limits under which nothing is in the way, there are few buffers, longer items take several segments, or version 1
/// is spoken.
fn circumstances() -> [Limits; 4] {
    let few = Limits { send_buffers_max: 3, ..LIMITS };
    let short = Limits { segment_size_max: 7001, ..LIMITS };
    [LIMITS, few, short, Limits { versions: Versions::OnlyOne, ..LIMITS }]
}

fn pool(pages: PagePreference) -> Pool {
    Pool::new(&PoolConfig { bytes: 16 << 20, pages, node: None }).unwrap()
}

#[test]
fn several_items_go_there_and_come_back_over_shared_memory() {
    for limits in circumstances() {
        mixes(limits, || {
            let pool = pool(PagePreference::Shared);
            (Shm::new(&shm::Config::default(), &pool).unwrap(), pool)
        });
    }
}

#[test]
fn several_items_go_there_and_come_back_over_iwarp() {
    for limits in circumstances() {
        mixes(limits, || {
            (Iwarp::new(&iwarp::Config::default()).unwrap(), pool(PagePreference::Heap))
        });
    }
}

#[test]
fn several_items_go_there_and_come_back_over_a_provider_without_optional_abilities() {
    for messages in [Messages::Copied, Messages::Taken] {
        for limits in circumstances() {
            let net = Rc::default();
            mixes(limits, || (Toy::join(&net, messages).unwrap(), pool(PagePreference::Heap)));
        }
    }
}

/// Turns two cores of the simulated fabric until `done`, or nothing is on its way; at most `turns` times.
fn turn(
    fabric: &Fabric,
    (server, client): (&mut Core<Sim, Mixer>, &mut Core<Sim, Mixing>),
    now: &mut Instant,
    turns: usize,
) {
    for _ in 0..turns {
        if !(server.turn(*now) | client.turn(*now)) {
            let next = [fabric.next_event(), server.poll_deadline(), client.poll_deadline()];
            let Some(next) = next.into_iter().flatten().min() else { return };
            *now = next.max(now.saturating_add(Duration::from_nanos(1)));
        }
    }
}

#[test]
fn a_connection_lost_at_any_moment_leaves_every_lease_of_several_home() {
    for moment in 0..100 {
        let fabric = Fabric::new(FabricConfig { seed: moment, ..FabricConfig::default() });
        let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let memory = || pool(PagePreference::Heap);
        let provider = fabric.provider(node(1)).unwrap();
        let mut server = Core::new(provider, Mixer::default(), memory(), super::LIMITS, 1).unwrap();
        let provider = fabric.provider(node(2)).unwrap();
        let [_, limits] = ONCE;
        let mut client = Core::new(provider, Mixing::new(true), memory(), limits, 2).unwrap();
        let at = server.listen(SocketAddr::new(node(1), 20050)).unwrap();
        let connection = client.connect(Instant::ZERO, at, binding()).unwrap();
        client.service.connection = Some(connection);
        let mut now = Instant::ZERO;
        turn(&fabric, (&mut server, &mut client), &mut now, usize::try_from(moment).unwrap());
        if let Some(found) = client.inner.common.connections.get(connection.0) {
            fabric.sever(node(2), found.qp());
        }
        turn(&fabric, (&mut server, &mut client), &mut now, 2000);
        assert_eq!(client.inner.common.connections.len(), 0);
        assert_eq!(client.service.ended, CALLS, "every caller was told");
        all_home(&mut client, now);
        all_home(&mut server, now);
    }
}

#[test]
fn arguments_that_are_not_where_the_request_says_are_refused_in_words_and_come_back() {
    let mut world = World::new();
    let at = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 1).into(), 20050);
    world.connection = world.client.connect(world.now, at, binding()).unwrap();
    let opaque = |at| Place::At(Kind::Opaque, at);
    for places in [
        // Another length word; no whole word; beyond the end, by far; out of order; before the last.
        [opaque(0), opaque(12)],
        [opaque(8), opaque(usize::MAX - 3)],
        [opaque(8), opaque(14)],
        [opaque(8), opaque(16)],
        [opaque(12), opaque(8)],
        [Place::Last, opaque(8)],
    ] {
        let [one, other] = [100; 2].map(|length| world.lease(length, 1));
        let asked = request(MIX).argument_at(places[0], one).argument_at(places[1], other);
        let (mut cx, _) = world.client.cx(world.now);
        let made = cx.call(world.connection, asked, 1, |w| {
            [7, 2, 100, 100].into_iter().try_for_each(|word| w.u32(word))
        });
        let Err((error, asked)) = made else { panic!("{places:?} was taken") };
        assert_eq!(error, CallError::Misplaced, "{places:?}");
        assert!(matches!(asked.arguments, Items::Several(all) if all.len() == 2));
    }
    world.settle();
    assert_eq!(world.client.inner.requester.calls.each().count(), 0);
}
