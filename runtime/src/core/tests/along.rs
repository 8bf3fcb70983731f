//! Arguments that go along with the messages of their Calls.

use super::*;
use crate::limits::{PLACING_BUFFERS, PLACING_SIZE, TRANSMISSIONS_MAX};

const PLACING: Limits = Limits { receive_size: PLACING_SIZE, send_size: PLACING_SIZE, ..LIMITS };
const GROUPING: Limits = Limits { transmissions_max: TRANSMISSIONS_MAX, ..PLACING };

fn world(limits: [Limits; 2]) -> World {
    World::with(Keeper::default(), limits, FabricConfig::default())
}

impl World {
    /// Stores octets that differ, and checks that the server has them. Returns how long that took.
    fn store(&mut self, token: u64, length: usize) -> Duration {
        let mut argument = self.lease(length, 0);
        argument.bytes_mut().iter_mut().zip((0..=250).cycle()).for_each(|(to, octet)| *to = octet);
        let (octets, began) = (argument.bytes().to_vec(), self.now);
        let ended = self.ended().len();
        self.call(token, request(STORE).argument(argument));
        self.until(|w| w.ended().len() > ended);
        assert_eq!(self.ended_of(token).1, Ok(0), "{length}");
        let item = self.server.service().item.as_ref().unwrap();
        assert!(item.bytes() == octets, "{length}");
        self.now.saturating_since(began)
    }

    /// Returns how many arguments the server read, and how many came along.
    fn arguments(&self) -> (u64, u64) {
        let counters = &self.server.inner.common.counters;
        (counters.read_chunks, counters.arguments_along)
    }
}

/// A message has room for 20 KiB, of which the headers take 256 octets.
const LONGEST: usize = (20 << 10) - 256;

#[test]
fn a_short_argument_goes_along_with_its_message_and_is_not_read() {
    for length in [1, 4, 99, 100, 255, 4096, 5000, 8192, 16 << 10, LONGEST] {
        let mut world = world([PLACING; 2]);
        world.call(0, request(0));
        world.until(|w| w.ended().len() == 1);
        world.store(1, length);
        // What is shorter than the chunk that would name it stays in the Payload stream.
        let along = u64::from(length > 4);
        assert_eq!(world.arguments(), (0, along), "{length}");
        let made = world.client.inner.common.counters.arguments_sent_along;
        assert_eq!(made, along);
        let moved = world.client.provider_counters();
        assert_eq!((moved.invalidated_remote, moved.invalidated_local), (0, 0), "{length}");
        world.settle();
        world.all_home();
    }
}

/// Octets of the longest argument that goes along in four messages. The first of them has the Payload stream, too.
const LONGEST_OF_SEVERAL: usize = 4 * LONGEST - 256;

#[test]
fn a_longer_argument_goes_along_in_several_messages() {
    for length in [LONGEST + 1, 32 << 10, 64 << 10, LONGEST_OF_SEVERAL] {
        let mut world = world([GROUPING; 2]);
        // The window grows.
        for token in 100..124 {
            world.call(token, request(0));
        }
        world.until(|w| w.ended().len() == 24);
        for token in 1..4 {
            world.store(token, length);
        }
        assert_eq!(world.arguments(), (0, 3), "{length}");
        let messages = length.div_ceil(LONGEST) as u64;
        let (made, served) = (&world.client.inner.common, &world.server.inner.common);
        let parts = (made.counters.parts_sent, served.counters.parts_received);
        assert_eq!(parts, (3 * messages, 3 * messages), "{length}");
        world.settle();
        world.all_home();
    }
}

#[test]
fn what_does_not_go_along_is_read() {
    let (long, longer) = ([LONGEST + 1, 64 << 10], [LONGEST_OF_SEVERAL + 1, 1 << 20]);
    for (limits, lengths) in [
        ([PLACING; 2], &long[..]),
        ([GROUPING, PLACING], &long),
        ([PLACING, GROUPING], &long),
        ([GROUPING; 2], &longer),
        ([LIMITS, PLACING], &[5000, 8192]),
        ([PLACING, LIMITS], &[5000, 8192]),
        ([PLACING, Limits { versions: Versions::OnlyOne, ..PLACING }], &[5000, 8192]),
    ] {
        let mut world = world(limits);
        for (token, length) in (0..).zip(lengths) {
            world.store(token, *length);
            assert_eq!(world.arguments(), (token + 1, 0), "{length}");
        }
        world.settle();
        world.all_home();
    }
}

#[test]
fn a_call_takes_one_round_trip_instead_of_two() {
    let [one, two] = [PLACING, LIMITS].map(|limits| {
        let mut world = world([limits; 2]);
        world.call(0, request(0));
        world.until(|w| w.ended().len() == 1);
        world.store(1, 8192)
    });
    assert!(one * 5 < two * 3, "{one:?} and {two:?}");
}

#[test]
fn several_calls_go_at_once_and_their_leases_come_back() {
    let mut world = world([PLACING; 2]);
    for token in 0..24 {
        let argument = world.lease(9000, 7);
        world.call(token, request(STORE).argument(argument));
    }
    world.until(|w| w.ended().len() == 24);
    for (token, result, _) in world.ended() {
        assert!(result.is_ok(), "{token}: {result:?}");
    }
    assert_eq!(world.arguments(), (0, 24));
    world.settle();
    world.all_home();
}

/// Messages hold their octets until they have arrived. Calls that then find no buffer for such a message leave all of the
/// memory of data items to others.
#[test]
fn calls_go_by_chunks_while_all_buffers_for_items_are_in_use() {
    let fabric = FabricConfig { copied_percent: 0, ..FabricConfig::default() };
    let mut world = World::with(Keeper::default(), [PLACING; 2], fabric);
    for token in 0..24 {
        world.call(token, request(0));
    }
    world.until(|w| w.ended().len() == 24);
    for token in 24..48 {
        let argument = world.lease(9000, 7);
        world.call(token, request(STORE).argument(argument));
    }
    world.until(|w| w.ended().len() == 48);
    let (read, along) = world.arguments();
    assert!(read > 0 && along >= u64::from(PLACING_BUFFERS), "{read} and {along}");
    assert_eq!(read + along, 24);
    world.settle();
    world.all_home();
}

#[test]
fn an_argument_that_went_along_comes_home_though_its_call_is_never_answered() {
    let mut world = world([PLACING; 2]);
    world.call(0, request(0));
    world.until(|w| w.ended().len() == 1);
    world.fabric.black_hole(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    let argument = world.lease(8192, 7);
    let local = world.client.cx(world.now).0.gauges().local;
    world.call(1, request(STORE).argument(argument));
    world.until(|w| w.ended().len() == 2);
    assert_eq!(world.ended()[1].1, Err(CallError::TimedOut));
    world.until(|w| w.client.inner.common.pool.gauges().local < local);
}
