//! Both protocol versions, and the payload formats that they have in common.

use haulage_mr_pool::PostedSink;
use haulage_proto::negotiate::Version;
use haulage_proto::rpc::{Credential, ReplyHeader};
use haulage_proto::verbs::{Status, WrId};

use super::*;
use crate::identity::{Identity, User};
use crate::provider::by_number::ByNumber as _;
use crate::provider::{ConnectionParams, Event, Promises, Receive};

/// The versions that client and server speak, and the version that they settle on.
const PAIRS: [([Versions; 2], Version); 4] = [
    ([Versions::Both, Versions::Both], Version::Two),
    ([Versions::Both, Versions::OnlyOne], Version::One),
    ([Versions::OnlyOne, Versions::Both], Version::One),
    ([Versions::OnlyOne, Versions::OnlyOne], Version::One),
];

fn world(versions: [Versions; 2]) -> World {
    world_of(versions, FabricConfig::default())
}

fn world_of([client, server]: [Versions; 2], fabric: FabricConfig) -> World {
    let speaks = |versions| Limits { versions, ..LIMITS };
    World::with(Keeper::default(), [speaks(server), speaks(client)], fabric)
}

impl World {
    fn versions(&self) -> Vec<Version> {
        let cores = [&self.server.inner.common.connections, &self.client.inner.common.connections];
        cores
            .into_iter()
            .flat_map(|all| all.iter().map(|one| one.session.terms().version))
            .collect()
    }

    fn call_with(&mut self, token: u64, procedure: u32, arguments: &[u8]) {
        let (mut cx, _) = self.client.cx(self.now);
        cx.call(self.connection, request(procedure), token, |w| w.put(arguments)).unwrap();
    }
}

fn opaque(octets: &[u8]) -> Vec<u8> {
    let mut stream = u32::try_from(octets.len()).unwrap().to_be_bytes().to_vec();
    stream.extend(octets);
    stream.resize(stream.len().next_multiple_of(4), 0);
    stream
}

#[test]
fn an_item_goes_there_and_comes_back_in_either_version() {
    for (pair, version) in PAIRS {
        for length in [1, 99, 4096, 5001, (1 << 20) + 3] {
            let mut world = world(pair);
            let argument = world.lease(length, 0x5a);
            world.call(1, request(STORE).argument(argument));
            world.until(|w| w.ended().len() == 1);
            assert_eq!(world.versions(), [version; 2], "{pair:?}");
            // A server without version 2 says so, rather than be taken for one that does not answer.
            assert!(
                world.now.saturating_since(Instant::ZERO) < LIMITS.setup_timeout / 3,
                "{pair:?}"
            );
            // An argument that would fit the message goes by a chunk all the same, if that is shorter.
            let reduced = world.server.inner.common.counters.read_chunks;
            assert_eq!(reduced, u64::from(length > 1), "{pair:?}, {length}");
            let result = world.lease(ITEM_MAX, 0);
            world.call(2, request(FETCH).room(result));
            world.until(|w| w.ended().len() == 2);
            let (_, reduced, lease) = &world.ended()[1];
            assert_eq!(reduced, &Ok(u32::try_from(length).unwrap()), "{pair:?}, {length}");
            assert_eq!(lease.as_ref().unwrap().bytes(), vec![0x5a; length]);
            let invalidated = world.client.provider_counters().invalidated_remote;
            assert!(invalidated > 0, "{pair:?}, {length}: what one Call names is invalidated");
        }
    }
}

/// The provider does not report Remote Invalidation, as soft-iWARP does not. A peer that invalidates a handle all the
/// same loses its connection.
#[test]
fn nobody_is_asked_to_invalidate_what_is_not_reported() {
    let promises = Promises { remote_invalidation: false, ..Promises::ALL };
    for (pair, version) in PAIRS {
        let mut world = world_of(pair, FabricConfig { promises, ..FabricConfig::default() });
        let argument = world.lease(9000, 0x5a);
        world.call(1, request(STORE).argument(argument));
        world.until(|w| w.ended().len() == 1);
        let result = world.lease(ITEM_MAX, 0);
        world.call(2, request(FETCH).room(result));
        world.call_with(3, LIST, &LIST_MAX.to_be_bytes());
        world.until(|w| w.ended().len() == 3);
        assert_eq!(world.versions(), [version; 2], "{pair:?}");
        assert!(world.ended().iter().all(|(_, outcome, _)| outcome.is_ok()), "{pair:?}");
        let moved = world.client.provider_counters();
        assert_eq!((moved.invalidated_remote, moved.invalidated_local), (0, 3), "{pair:?}");
        world.settle();
        world.all_home();
    }
}

#[test]
fn a_result_in_pieces_arrives_in_one() {
    for (pair, version) in PAIRS {
        let mut world = world(pair);
        let mut argument = world.lease(15_000, 0);
        argument.bytes_mut().iter_mut().zip((0..=250).cycle()).for_each(|(to, octet)| *to = octet);
        let octets = argument.bytes().to_vec();
        world.call(1, request(STORE).argument(argument));
        world.until(|w| w.ended().len() == 1);
        let expected: Vec<_> =
            octets.chunks(3000).flat_map(|third| &third[..2000]).copied().collect();
        let result = world.lease(ITEM_MAX, 0);
        world.call(2, request(GATHER).room(result));
        world.until(|w| w.ended().len() == 2);
        assert!(world.ended()[1].2.as_ref().unwrap().bytes() == expected, "{version}: by Writes");
        // The Call offers neither a Write chunk for the item nor a Reply chunk.
        world.call(3, request(GATHER));
        world.until(|w| w.ended().len() == 3);
        // On version 2 it comes in several messages.
        match version {
            Version::One => assert!(world.ended()[2].1.is_err(), "nobody offered room"),
            Version::Two => assert!(world.client.service().results[2] == opaque(&expected)),
        }
        world.settle();
        world.all_home();
    }
}

#[test]
fn a_long_reply_comes_in_the_reply_chunk() {
    for (pair, version) in PAIRS {
        let mut world = world(pair);
        let lengths = [0, 1, 100, 3999, 4096, LIST_MAX];
        for (token, length) in (0..).zip(lengths) {
            world.call_with(token, LIST, &length.to_be_bytes());
        }
        world.until(|w| w.ended().len() == lengths.len());
        for ((results, length), (_, outcome, _)) in
            world.client.service().results.iter().zip(lengths).zip(world.ended())
        {
            assert!(outcome.is_ok(), "{version}, {length}: {outcome:?}");
            assert_eq!(*results, opaque(&vec![0x11; length as usize]), "{version}, {length}");
        }
        world.settle();
        world.all_home();
    }
}

/// The octets that a lease held before are not taken for a result.
#[test]
fn a_reply_that_claims_more_than_was_placed_is_a_bad_one() {
    for (pair, version) in PAIRS {
        for (placed_max, remote_invalidation) in [(0, true), (2999, true), (0, false)] {
            let promises = Promises { remote_invalidation, ..Promises::ALL };
            let fabric = FabricConfig { placed_max, promises, ..FabricConfig::default() };
            let mut world = world_of(pair, fabric);
            let argument = world.lease(3000, 0x5a);
            world.call(1, request(STORE).argument(argument));
            world.until(|w| w.ended().len() == 1);
            // One result comes by a Write chunk, the other by the Reply chunk.
            let result = world.lease(3000, 0x77);
            world.call(2, request(FETCH).room(result));
            world.call_with(3, LIST, &LIST_MAX.to_be_bytes());
            world.until(|w| w.ended().len() == 3);
            let bad = CallError::BadReply("it claims more octets than were written");
            assert_eq!(world.ended()[1].1, Err(bad.clone()), "{version}");
            assert_eq!(world.ended()[2].1, Err(bad), "{version}");
            // Only the two Calls failed: the connection still serves others.
            world.call(4, request(0));
            world.until(|w| w.ended().len() == 4);
            assert!(world.ended()[3].1.is_ok(), "{version}");
        }
    }
}

#[test]
fn a_call_longer_than_a_message_goes_in_a_call_chunk() {
    for (pair, version) in PAIRS {
        let mut world = world(pair);
        let lengths = [(3000_u32, 0), (5000, 0), (5060, 1), (5065, 2), (5076, 3)];
        for (index, (length, chunks)) in lengths.into_iter().enumerate() {
            world.call_with(7, TELL, &opaque(&vec![1; length as usize]));
            world.until(|w| w.ended().len() == index + 1);
            let (_, outcome, _) = &world.ended()[index];
            assert!(outcome.is_ok(), "{version}, {length}: {outcome:?}");
            let sum = &world.client.service().results[index];
            assert_eq!(*sum, length.to_be_bytes(), "{version}");
            let moved = world.client.provider_counters();
            let retired = moved.invalidated_remote + moved.invalidated_local;
            assert_eq!(retired, chunks, "{version}, {length}: nothing else is opened");
        }
        world.settle();
        world.all_home();
    }
}

#[test]
fn a_long_reply_nobody_has_room_for_is_refused_and_leaves_the_connection() {
    for (pair, version) in PAIRS {
        let mut world = world(pair);
        world.call_with(1, LIST, &(LIST_MAX + 4096).to_be_bytes());
        world.call_with(2, 0, &[]);
        world.until(|w| w.ended().len() == 2);
        let refused = Err(CallError::Rejected(AcceptStat::SystemErr));
        assert_eq!(world.ended_of(1).1, refused, "{version}");
        assert!(world.ended_of(2).1.is_ok());
        world.settle();
        world.all_home();
    }
}

#[test]
fn a_reply_chunk_of_the_length_that_was_told_is_enough() {
    // [V2-7.3.5-2] A procedure that reduces nothing asks for its whole Reply in one piece.
    let longest = |number, length| {
        let whole = Procedure::new("WHOLE");
        let header = u32::try_from(whole.clone().results_max(0).reply_max(&[])).unwrap();
        let mut told = binding();
        told.procedures[number as usize] = whole.results_max(length - header);
        told
    };
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
    let items = [16_001, 19_999, 20_000, 1 << 20].map(|length| (FETCH, length, length));
    // The item of GATHER has several pieces, of which only some fit the message.
    for (number, stored, length) in items.into_iter().chain([(GATHER, 45_000, 30_000)]) {
        let mut world = World::new();
        let argument = world.lease(stored, 3);
        world.call(1, request(STORE).argument(argument));
        world.until(|w| w.ended().len() == 1);
        world.connection = world.client.connect(world.now, at, longest(number, 1000)).unwrap();
        world.call(2, request(number));
        world.until(|w| w.ended().len() == 2);
        let Err(CallError::Refused(TransportError::Two(ErrorBody::ReplyResource {
            length_needed,
        }))) = world.ended()[1].1
        else {
            panic!("{:?}", world.ended()[1])
        };
        let stream = ReplyHeader::SUCCESS_LEN + 4 + length.next_multiple_of(4);
        assert_eq!(length_needed as usize, stream, "the header, the length and the padded item");
        world.connection =
            world.client.connect(world.now, at, longest(number, length_needed)).unwrap();
        world.call(3, request(number));
        world.until(|w| w.ended().len() == 3);
        assert!(world.ended()[2].1.is_ok(), "{length}: {:?}", world.ended()[2].1);
        let results = &world.client.service().results[2];
        let item = opaque(&vec![3; length]);
        assert!(*results == item, "{length}: {} octets", results.len());
    }
}

#[test]
fn a_server_that_says_nothing_is_sent_one_message() {
    // [V2-4.3-1]
    let fabric = Fabric::new(FabricConfig::default());
    let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
    let pool = || {
        Pool::new(&PoolConfig { bytes: 8 << 20, pages: PagePreference::Heap, node: None }).unwrap()
    };
    let (mut silent, memory) = (fabric.provider(node(1)).unwrap(), pool());
    let (_, at) = silent.listen(SocketAddr::new(node(1), 20050)).unwrap();
    let mut sinks: Vec<_> = (0..4).map(|_| memory.lease(4096).unwrap().into_sink()).collect();
    let receives = sinks.iter_mut().zip(0..);
    let receive =
        |sink: &mut PostedSink, id| Receive::single(WrId(id), sink.sink(0..4096).unwrap());
    let mut receives: Vec<_> = receives.map(|(sink, id)| receive(sink, id)).collect();
    silent.post_receives(&mut receives).unwrap();
    let provider = fabric.provider(node(2)).unwrap();
    let limits = Limits { versions: Versions::OnlyTwo, ..LIMITS };
    let mut client = Core::new(provider, Caller::default(), pool(), limits, 2).unwrap();
    let mut now = Instant::ZERO;
    let connection = client.connect(now, at, binding()).unwrap();
    let long = Request { timeout: Some(Duration::from_secs(60)), ..request(0) };
    client.cx(now).0.call(connection, long, 1, |_| Ok(())).unwrap();
    let (mut messages, mut events) = (0, Vec::new());
    while client.service().ended.is_empty() {
        let worked = client.turn(now);
        silent.adopt_own(now);
        silent.poll(now, 8, &mut events);
        if !worked && events.is_empty() {
            let next = fabric.next_event().into_iter().chain(client.poll_deadline());
            now = next.min().unwrap().max(now.saturating_add(Duration::from_nanos(1)));
        }
        for event in events.drain(..) {
            match event {
                Event::Request { qp, .. } => {
                    let params = ConnectionParams { private_data: b"", ord: 1, ird: 1 };
                    silent.accept(now, qp, &params);
                }
                Event::Completion(done) => messages += u32::from(done.status == Status::Success),
                _ => {}
            }
        }
    }
    let (_, outcome, _) = &client.service().ended[0];
    assert!(matches!(outcome, Err(CallError::Unready(_))), "{outcome:?}");
    assert_eq!(messages, 1, "its properties");
}

#[test]
fn a_refusal_of_version_1_has_one_word() {
    let mut world = world([Versions::OnlyOne; 2]);
    let mut other = binding();
    other.procedures[FETCH as usize].arguments = vec![Eligible::opaque(ITEM_MAX)];
    let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
    world.connection = world.client.connect(world.now, at, other).unwrap();
    let argument = world.lease(100, 1);
    world.call(1, request(FETCH).argument(argument));
    world.until(|w| w.ended().len() == 1);
    let refused = TransportError::One(haulage_proto::v1::error::ErrorBody::Chunk);
    assert_eq!(world.ended()[0].1, Err(CallError::Refused(refused)));
    world.call(2, request(0));
    world.until(|w| w.ended().len() == 2);
    assert!(world.ended()[1].1.is_ok(), "the connection stays");
}

#[test]
fn many_calls_are_in_flight_in_version_1() {
    let mut world = world([Versions::OnlyOne; 2]);
    for token in 0..24 {
        let argument = world.lease(5000, 7);
        world.call(token, request(STORE).argument(argument));
    }
    world.until(|w| w.ended().len() == 24);
    assert!(world.ended().iter().all(|(_, outcome, _)| outcome.is_ok()));
    world.settle();
    world.all_home();
}

/// A service that notes the credential and the arguments of each Call.
#[derive(Default)]
struct Scribe {
    calls: Vec<(u32, Vec<u8>)>,
}

impl Service for Scribe {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, _: &mut Reply) -> Outcome {
        let uid = match call.credential {
            Credential::Sys(caller) => caller.uid,
            _ => 0,
        };
        self.calls.push((uid, call.arguments.opaque(TELL_MAX).unwrap().to_vec()));
        Outcome::Done
    }
}

#[test]
fn calls_that_wait_together_arrive_as_they_were_made() {
    for (versions, version) in PAIRS {
        for uid in [0, 500] {
            let limits = versions.map(|versions| Limits { versions, ..LIMITS });
            let [client, server] = limits;
            let fabric = FabricConfig::default();
            let mut world = World::with(Scribe::default(), [server, client], fabric);
            if uid != 0 {
                let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
                let user = Identity::User(User::new("here", uid, 100, &[]));
                world.connection = world
                    .client
                    .connect(world.now, at, ConnectOptions::new(binding()).identity(user))
                    .unwrap();
            }
            let told: Vec<_> = (0..10).map(|length| vec![7; length * length]).collect();
            for argument in &told {
                let (mut cx, _) = world.client.cx(world.now);
                cx.call(world.connection, request(TELL), 1, |w| w.opaque(argument)).unwrap();
            }
            world.until(|world| world.ended().len() == told.len());
            let expected: Vec<_> = told.into_iter().map(|argument| (uid, argument)).collect();
            assert_eq!(world.server.service.calls, expected, "{version}, {uid}");
        }
    }
}

#[test]
fn ends_without_a_common_version_part() {
    for pair in [[Versions::OnlyTwo, Versions::OnlyOne], [Versions::OnlyOne, Versions::OnlyTwo]] {
        let mut world = world(pair);
        world.call(1, request(0));
        world.until(|w| w.ended().len() == 1);
        assert!(world.ended()[0].1.is_err(), "{pair:?}");
        world.until(World::is_disconnected);
    }
}
