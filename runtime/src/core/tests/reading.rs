//! Replies that a server exposes and its client reads (version 1, RFC 5666).

use haulage_proto::negotiate::Version;

use super::*;
use crate::limits::Profile;

/// The longest item in a Reply that may be read.
const READ_MAX: usize = LIMITS.message_max as usize;

const FOLLOWS_5666: Limits =
    Limits { profile: Profile::Rfc5666, versions: Versions::OnlyOne, ..LIMITS };

/// Makes a server that keeps an item, and its client, neither of which offers the other room for it.
fn world(length: usize, limits: [Limits; 2], fabric: FabricConfig) -> World {
    let mut world = World::with(Keeper::default(), limits, fabric);
    let mut argument = world.lease(length, 0);
    argument.bytes_mut().iter_mut().zip((0..=250).cycle()).for_each(|(to, octet)| *to = octet);
    world.call(1, request(STORE).argument(argument));
    world.until(|w| w.ended().len() == 1);
    world
}

impl World {
    fn counts(&self) -> [u64; 2] {
        let held = self.server.inner.common.counters.replies_held;
        [held, self.client.inner.common.counters.replies_read]
    }
}

fn results(length: usize) -> Vec<u8> {
    let mut stream = u32::try_from(length).unwrap().to_be_bytes().to_vec();
    stream.extend((0..=250_u8).cycle().take(length));
    stream.resize(stream.len().next_multiple_of(4), 0);
    stream
}

#[test]
fn a_result_without_room_is_read() {
    for eager_percent in [0, 100] {
        for length in [1, 6000, 6001, READ_MAX - 1, READ_MAX] {
            let fabric = FabricConfig { eager_percent, ..FabricConfig::default() };
            let mut world = world(length, [FOLLOWS_5666; 2], fabric);
            // More than a server keeps at once, and than there are credits at first.
            for token in 2..14 {
                world.call(token, request(FETCH));
            }
            world.until(|w| w.ended().len() == 13);
            let expected = results(length);
            assert!(world.client.service().results[1..].iter().all(|one| *one == expected));
            let read = if length > 1 { 12 } else { 0 };
            assert_eq!(world.counts(), [read; 2], "{length}");
            world.settle();
            world.all_home();
        }
    }
}

#[test]
fn a_result_that_is_longer_than_a_reply_that_is_read_is_refused() {
    let mut world = world(READ_MAX + 8192, [FOLLOWS_5666; 2], FabricConfig::default());
    world.call(2, request(FETCH));
    world.until(|w| w.ended().len() == 2);
    assert!(matches!(world.ended()[1].1, Err(CallError::Refused(_))), "{:?}", world.ended()[1].1);
    world.call(3, request(0));
    world.until(|w| w.ended().len() == 3);
    assert!(world.ended()[2].1.is_ok());
    // So it is by the other text.
    let plain = Limits { profile: Profile::Rfc8166, ..FOLLOWS_5666 };
    for limits in [[plain, FOLLOWS_5666], [plain; 2]] {
        let mut world = self::world(9000, limits, FabricConfig::default());
        world.call(2, request(FETCH));
        world.until(|w| w.ended().len() == 2);
        assert!(matches!(world.ended()[1].1, Err(CallError::Refused(_))));
        assert_eq!(world.counts(), [0; 2]);
    }
}

#[test]
fn a_client_that_may_speak_either_version_reads_in_the_first_alone() {
    let both = Limits { versions: Versions::Both, ..FOLLOWS_5666 };
    for (server, spoken) in [(both, Version::Two), (FOLLOWS_5666, Version::One)] {
        let mut world = world(9000, [server, both], FabricConfig::default());
        world.call(2, request(FETCH));
        world.until(|w| w.ended().len() == 2);
        assert!(world.client.service().results[1] == results(9000));
        assert_eq!(world.counts(), [u64::from(spoken == Version::One); 2]);
        world.settle();
        world.all_home();
    }
}

#[test]
fn a_client_without_memory_for_a_reply_says_so_and_ends_the_connection() {
    let mut world = world(9000, [FOLLOWS_5666; 2], FabricConfig::default());
    world.call(2, request(FETCH));
    let rest = world.lease_the_rest();
    world.until(|w| w.ended().len() == 2);
    assert_eq!(world.ended()[1].1, Err(CallError::NoMemory));
    drop(rest);
    world.until(World::is_disconnected);
    assert_eq!(world.counts(), [1, 0]);
    world.settle();
    world.all_home();
}

#[test]
fn a_connection_that_is_lost_while_replies_are_read_keeps_no_memory() {
    for turns in 0..60 {
        let fabric = FabricConfig { seed: turns, eager_percent: 25, ..FabricConfig::default() };
        let mut world = world(100_000, [FOLLOWS_5666; 2], fabric);
        for token in 2..8 {
            world.call(token, request(FETCH));
        }
        world.turns(usize::try_from(turns).unwrap());
        world.lose_the_connection();
        world.until(|w| w.ended().len() == 7 && w.is_disconnected());
        for ((_, outcome, _), read) in world.ended().iter().zip(&world.client.service().results) {
            let expected = if outcome.is_ok() { results(100_000) } else { Vec::new() };
            assert!(read.is_empty() || *read == expected, "{turns}: {outcome:?}");
        }
        world.settle();
        world.all_home();
    }
}
