//! Items longer than one segment: each border between few and many segments, and what exceeds them.

use haulage_mr_pool::Density;

use super::*;

/// Octets of the longest segment that the server takes: items need no unit to begin or end where a segment does.
const SEGMENT: usize = 4099;
/// Octets of the longest item that peers of such a server can send and fetch.
const LONGEST: usize = SEGMENTS_MAX * SEGMENT;

/// A server that takes short segments.
fn world() -> World {
    world_of(SEGMENT)
}

/// A server that tells its peers this limit of a segment's octets.
fn world_of(segment: usize) -> World {
    let segment_size_max = u32::try_from(segment).unwrap();
    let server = Limits { segment_size_max, ..ONCE[0] };
    World::with(Keeper::default(), [server, ONCE[1]], FabricConfig::default())
}

fn pattern(length: usize) -> impl Iterator<Item = u8> {
    (0..length).map(|at| u8::try_from((at / SEGMENT * 31 + at) % 251).unwrap())
}

impl World {
    /// Leases an item of the pattern.
    fn patterned(&mut self, length: usize) -> Local {
        let mut lease = self.lease(length, 0);
        lease.bytes_mut().iter_mut().zip(pattern(length)).for_each(|(to, octet)| *to = octet);
        lease
    }

    /// Returns the octets that moved by Reads and Writes to the server, and from it.
    fn moved(&self) -> [u64; 2] {
        let server = self.server.provider_counters();
        [server.tagged_received, server.tagged_sent]
    }
}

#[test]
fn an_item_of_any_number_of_segments_goes_there_and_comes_back() {
    for length in [SEGMENT, SEGMENT + 1, 2 * SEGMENT, 5 * SEGMENT - 1, LONGEST - 1, LONGEST] {
        let mut world = world();
        let argument = world.patterned(length);
        world.call(1, request(STORE).argument(argument));
        world.until(|w| w.ended().len() == 1);
        // The room is longer than the item where that is possible: its last segments stay empty.
        let result = world.lease((length + 2 * SEGMENT).min(LONGEST), 0);
        world.call(2, request(FETCH).room(result));
        let are_offered = |w: &World| w.client.inner.requester.calls.only().2.writes().len() == 1;
        world.until(are_offered);
        let (_, _, leases) = world.client.inner.requester.calls.only();
        let writes = leases.writes();
        let [write] = writes.as_slice() else { panic!("one Write chunk") };
        let octets = write.iter().map(|segment| segment.length as usize);
        assert!(octets.clone().all(|octets| octets <= SEGMENT), "{length}");
        assert_eq!(octets.sum::<usize>(), (length + 2 * SEGMENT).min(LONGEST), "{length}");
        world.until(|w| w.ended().len() == 2);
        let (_, reduced, lease) = world.ended_of(2);
        assert_eq!(*reduced, Ok(u32::try_from(length).unwrap()));
        assert!(lease.as_ref().unwrap().bytes().iter().copied().eq(pattern(length)), "{length}");
        assert_eq!(world.moved(), [length as u64; 2], "each octet moves once, by itself");
        world.server.service.item = None;
        world.settle();
        world.all_home();
    }
}

#[test]
fn an_item_of_more_segments_than_a_chunk_has_fails_its_call_and_nothing_moves() {
    let mut world = world();
    let argument = world.lease(LONGEST + 1, 1);
    world.call(1, request(STORE).argument(argument));
    let result = world.lease(LONGEST + 1, 1);
    world.call(2, request(FETCH).room(result));
    world.until(|w| w.ended().len() == 2);
    assert_eq!(world.ended_of(1).1, Err(CallError::Segments));
    assert_eq!(world.ended_of(2).1, Err(CallError::ReplyTooLong));
    assert_eq!((world.moved(), world.server.inner.common.counters.calls_served), ([0; 2], 0));
    world.all_home();
}

#[test]
fn an_argument_that_is_refused_is_not_read_in_any_segment() {
    const QUARTER: usize = ITEM_MAX / 4;
    let mut wide = binding();
    wide.procedures[STORE as usize].arguments = vec![Eligible::opaque(2 * ITEM_MAX)];
    for (length, why) in [(ITEM_MAX + 1, Refusal::TooLarge), (3 * QUARTER, Refusal::NoMemory)] {
        let mut world = world_of(QUARTER);
        let at = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 20050);
        world.connection = world.client.connect(world.now, at, wide.clone()).unwrap();
        // Of the memory, less is left than either item has.
        let (cx, _) = world.server.cx(world.now);
        let rest = cx.pool().leases(cx.pool().free_bytes() - 2 * QUARTER, Density::Any).unwrap();
        let argument = world.lease(length, 1);
        world.call(1, request(STORE).argument(argument));
        world.until(|w| w.ended().len() == 1);
        assert_eq!(world.ended_of(1).1, Ok(0), "the service answers");
        assert_eq!(world.server.service().refused, Some((length as u64, why)));
        assert_eq!(world.moved(), [0; 2]);
        drop(rest);
        world.settle();
        world.all_home();
    }
}

#[test]
fn a_connection_lost_in_any_segment_leaves_every_lease_home() {
    for moment in (0..160).step_by(4) {
        let mut world = world();
        for token in 0..3 {
            let (argument, result) = (world.lease(LONGEST, 1), world.lease(LONGEST, 2));
            world.call(token, request(STORE).argument(argument));
            world.call(100 + token, request(FETCH).room(result));
        }
        world.turns(moment);
        world.lose_the_connection();
        world.until(|w| w.ended().len() == 6 && w.is_disconnected());
        world.server.service.item = None;
        world.all_home();
    }
}
