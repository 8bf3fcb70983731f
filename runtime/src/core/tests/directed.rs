//! Results that come along with their Replies, as their Calls direct.

use super::*;
use crate::limits::{PLACING_SIZE, TRANSMISSIONS_MAX};

const DIRECTING: Limits =
    Limits { receive_size: PLACING_SIZE, send_size: PLACING_SIZE, responses: true, ..LIMITS };

/// With responses in several messages.
const GROUPED: Limits = Limits { transmissions_max: TRANSMISSIONS_MAX, ..DIRECTING };

fn world(limits: [Limits; 2]) -> World {
    World::with(Keeper::default(), limits, FabricConfig::default())
}

impl World {
    /// Has the server keep an item of `length` octets, no two neighbours alike. Returns the item.
    fn keep(&mut self, length: usize) -> Vec<u8> {
        let octets: Vec<u8> = (0..=250).cycle().take(length).collect();
        let (cx, keeper) = self.server.cx(self.now);
        let mut lease = cx.pool().lease(length).unwrap();
        lease.bytes_mut().copy_from_slice(&octets);
        keeper.item = Some(lease.share());
        octets
    }

    /// Makes a Call for the item that the server keeps, with `room` octets of room for it. Returns its two results.
    fn fetch(&mut self, token: u64, room: usize) -> Result<(u32, Option<Vec<u8>>), CallError> {
        let room = self.lease(room, 0x77);
        let ended = self.ended().len();
        self.call(token, request(FETCH).room(room));
        self.until(|w| w.ended().len() > ended);
        let (_, result, room) = self.ended_of(token);
        result.clone().map(|length| (length, room.as_ref().map(|room| room.bytes().to_vec())))
    }

    /// Returns how many messages the server has sent that are one of several.
    fn parts(&self) -> u64 {
        self.server.inner.common.counters.parts_sent
    }

    /// Returns how many results came along, and how many were sent along; then how many Write chunks there were.
    fn results(&self) -> [u64; 3] {
        let [made, served] = [&self.client.inner.common, &self.server.inner.common];
        let (made, served) = (&made.counters, &served.counters);
        [made.results_along, served.results_sent_along, served.write_chunks]
    }
}

#[test]
fn a_short_result_comes_along_with_its_reply_and_nothing_is_exposed() {
    for length in [0, 1, 3, 4, 99, 100, 255, 4096, 5000, 8192, 15_000] {
        let mut world = world([DIRECTING; 2]);
        world.call(0, request(0));
        world.until(|w| w.ended().len() == 1);
        let octets = world.keep(length);
        let (got, room) = world.fetch(1, 15_000).unwrap();
        assert_eq!((got as usize, room.unwrap().len()), (length, length));
        assert!(world.ended_of(1).2.as_ref().unwrap().bytes() == octets, "{length}");
        assert_eq!(world.results(), [1, 1, 0], "{length}");
        let moved = world.client.provider_counters();
        assert_eq!((moved.invalidated_remote, moved.invalidated_local), (0, 0), "{length}");
        world.settle();
        world.all_home();
    }
}

/// Octets of the longest result of FETCH that one response can bring, behind the longest headers and other results.
const LONGEST: usize = (20 << 10) - 1024;

#[test]
fn a_longer_result_is_written_as_its_call_directs() {
    let mut world = world([DIRECTING; 2]);
    for (token, length) in (1..).zip([LONGEST, LONGEST + 1, 64 << 10, 1 << 20]) {
        let octets = world.keep(length);
        let before = world.results();
        let (got, room) = world.fetch(token, length).unwrap();
        assert!(got as usize == length && room.unwrap() == octets, "{length}");
        let along = u64::from(length <= LONGEST);
        let [made, served, written] = world.results();
        let each = [made - before[0], served - before[1], written - before[2]];
        assert_eq!(each, [along, along, 1 - along], "{length}");
    }
    world.settle();
    world.all_home();
}

/// Each message is as long as its Receive, and has a part of the result.
#[test]
fn a_longer_result_comes_along_in_several_messages() {
    let mut world = world([GROUPED; 2]);
    // The window of the server grows with its Replies.
    for token in 0..20 {
        world.call(100 + token, request(0));
    }
    world.until(|w| w.ended().len() == 20);
    // Longer ones have more numbers of parts in the first header.
    let longest = |messages: usize| messages * (LONGEST - 64);
    for (token, messages) in [(1, 1), (2, 2), (3, 3), (4, 4)] {
        for (token, length) in [(token, longest(messages)), (token + 10, longest(messages) - 9000)]
        {
            let octets = world.keep(length);
            let (before, parts) = (world.results(), world.parts());
            let (got, room) = world.fetch(token, length).unwrap();
            assert!(got as usize == length && room.unwrap() == octets, "{length}");
            let after = world.results();
            assert_eq!([after[0] - before[0], after[1] - before[1], after[2]], [1, 1, 0]);
            let sent = world.parts() - parts;
            assert_eq!(sent, if messages == 1 { 0 } else { messages as u64 }, "{length}");
        }
    }
    let octets = world.keep(longest(5));
    let (got, room) = world.fetch(20, longest(5)).unwrap();
    assert!(got as usize == longest(5) && room.unwrap() == octets);
    assert_eq!(world.results()[2], 1, "it is written");
    world.settle();
    world.all_home();
}

/// A client leaves the server half of the credits, and lets it write what takes more messages.
#[test]
fn an_idle_client_asks_for_as_many_messages_as_there_are_credits() {
    let mut world = world([GROUPED; 2]);
    for (token, length, written) in [(1, 32 << 10, 0), (2, 48 << 10, 1)] {
        let octets = world.keep(length);
        let (got, room) = world.fetch(token, length).unwrap();
        assert!(got as usize == length && room.unwrap() == octets, "{length}");
        assert_eq!(world.results()[2], written, "{length}");
    }
    world.settle();
    world.all_home();
}

/// Beside others, each of which takes several messages, and which wait for the credits of one another.
#[test]
fn many_results_come_along_in_several_messages_each() {
    let mut world = world([GROUPED; 2]);
    let octets = world.keep(30_000);
    for token in 0..24 {
        let room = world.lease(30_000, 0x77);
        world.call(token, request(FETCH).room(room));
    }
    world.until(|w| w.ended().len() == 24);
    for (token, length, room) in world.ended() {
        assert_eq!(*length, Ok(30_000), "{token}");
        assert!(room.as_ref().unwrap().bytes() == octets, "{token}");
    }
    let [made, served, written] = world.results();
    assert_eq!((made, made + written), (served, 24));
    assert!(made > 0);
    assert_eq!(world.parts(), 2 * served);
    world.settle();
    world.all_home();
}

#[test]
fn results_take_the_ways_of_the_base_protocol_where_either_end_has_no_responses() {
    let silent = Limits { responses: false, ..DIRECTING };
    for limits in [
        [silent, DIRECTING],
        [DIRECTING, silent],
        [LIMITS, DIRECTING],
        [DIRECTING, LIMITS],
        [DIRECTING, Limits { versions: Versions::OnlyOne, ..DIRECTING }],
    ] {
        let mut world = world(limits);
        let octets = world.keep(8192);
        let (got, room) = world.fetch(1, 8192).unwrap();
        assert!(got == 8192 && room.unwrap() == octets);
        assert_eq!(world.results(), [0, 0, 1]);
        world.settle();
        world.all_home();
    }
}

/// Without room for data items in messages, a Call directs its result all the same: it is written.
#[test]
fn a_result_is_written_where_no_message_has_room_for_it() {
    let inline = Limits { responses: true, ..LIMITS };
    for limits in [[inline; 2], [DIRECTING, inline]] {
        let mut world = world(limits);
        let octets = world.keep(8192);
        let (got, room) = world.fetch(1, 8192).unwrap();
        assert!(got == 8192 && room.unwrap() == octets);
        assert_eq!(world.results(), [0, 0, 1]);
        assert!(world.client.provider_counters().invalidated_local > 0);
        world.settle();
        world.all_home();
    }
}

#[test]
fn a_result_that_is_longer_than_its_room_takes_another_room() {
    let mut world = world([DIRECTING; 2]);
    // It comes along, and then it is too long for that and the Call goes again.
    for (token, length) in [(1, 9000), (2, 30_000)] {
        let octets = world.keep(length);
        let (got, room) = world.fetch(token, 4096).unwrap();
        assert!(got as usize == length && room.unwrap() == octets, "{length}");
    }
    assert_eq!(world.results(), [1, 1, 1]);
    world.settle();
    world.all_home();
}

#[test]
fn a_result_of_many_pieces_is_put_together_in_the_message() {
    let mut world = world([DIRECTING; 2]);
    let octets = world.keep(24_000);
    let gathered: Vec<u8> = octets.chunks(3000).flat_map(|third| &third[..2000]).copied().collect();
    let room = world.lease(16_000, 0);
    world.call(1, request(GATHER).room(room));
    world.until(|w| w.ended().len() == 1);
    let (_, length, room) = world.ended_of(1);
    assert_eq!(*length, Ok(16_000));
    assert!(room.as_ref().unwrap().bytes() == gathered);
    assert_eq!(world.results(), [1, 1, 0]);
    world.settle();
    world.all_home();
}

#[test]
fn a_verdict_answers_the_direction_and_brings_no_result() {
    let mut wide = binding();
    wide.procedures.push(Procedure::new("NONE").result(Eligible::opaque(ITEM_MAX)));
    for length in [4096, 1 << 20] {
        let mut world = world([DIRECTING; 2]);
        let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
        world.connection = world.client.connect(world.now, at, wide.clone()).unwrap();
        let room = world.lease(length, 0x77);
        let procedure = u32::try_from(wide.procedures.len() - 1).unwrap();
        world.call(1, request(procedure).room(room));
        world.until(|w| w.ended().len() == 1);
        let (_, outcome, room) = world.ended_of(1);
        assert_eq!(*outcome, Err(CallError::Rejected(AcceptStat::ProcUnavail)));
        let room = room.as_ref().unwrap();
        assert!(room.bytes().iter().all(|octet| *octet == 0x77));
        world.settle();
        world.all_home();
    }
}

#[test]
fn many_calls_with_directions_go_at_once_and_all_comes_home() {
    let mut world = world([DIRECTING; 2]);
    let octets = world.keep(9000);
    for token in 0..24 {
        let room = world.lease(if token % 3 == 0 { 100_000 } else { 9000 }, 0x77);
        world.call(token, request(FETCH).room(room));
    }
    world.until(|w| w.ended().len() == 24);
    for (token, length, room) in world.ended() {
        assert_eq!(*length, Ok(9000), "{token}");
        assert!(room.as_ref().unwrap().bytes() == octets, "{token}");
    }
    assert_eq!(world.results(), [16, 16, 8]);
    world.settle();
    world.all_home();
}

/// While the memory of the server is in use, Calls whose Replies need some wait, and are then sent again by chunks.
#[test]
fn a_call_for_whose_reply_there_is_no_memory_goes_again_by_chunks() {
    let limits = Limits { memory_timeout: Duration::from_millis(100), ..DIRECTING };
    let mut world = world([limits; 2]);
    let octets = world.keep(9000);
    let (cx, _) = world.server.cx(world.now);
    let all = |length| std::iter::from_fn(|| cx.pool().lease(length)).collect::<Vec<_>>();
    let rest = (all(1 << 20), all(1 << 12));
    let (got, room) = world.fetch(1, 9000).unwrap();
    assert!(got == 9000 && room.unwrap() == octets);
    assert_eq!(world.results(), [0, 0, 1]);
    drop(rest);
    world.settle();
    world.all_home();
}
