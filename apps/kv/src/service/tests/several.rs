//! Several keys in one Call.

use haulage::proto::chunk::{Item, PayloadReader};
use haulage::service::{Kind, Place};

use super::*;
use crate::protocol::many::{self, Found};

/// What came back for one key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum One {
    Placed(Vec<u8>),
    Unreduced(Vec<u8>),
    TooLong(u64),
    Refused(Refusal),
}

impl World {
    /// Fetches keys with room for each, and waits for the answers.
    pub(super) fn get_many(&mut self, n: usize, keys: &[&[u8]], rooms: &[usize]) -> Vec<One> {
        let request = rooms
            .iter()
            .fold(request(Procedure::MGet), |request, room| request.room(self.value(*room, 99)));
        self.ask(n, request, |w| {
            w.u32(u32::try_from(keys.len()).unwrap())?;
            keys.iter().try_for_each(|key| w.opaque(key))
        });
        let Ended { results, returned, place, further, .. } = self.reply(n);
        let results = results.as_ref().expect("a Reply");
        let mut rooms = place.iter().chain(&*further);
        let found =
            many::decode_found(PayloadReader::reply_of_many(results, 0, returned), keys.len());
        let one = |found: Found<'_>| match (found, rooms.next()) {
            (Found::Value(Item::Reduced { length }), Some(room)) => {
                assert_eq!(room.len() as u64, length);
                One::Placed(room.bytes().to_vec())
            }
            (Found::Value(Item::Unreduced(octets)), _) => One::Unreduced(octets.to_vec()),
            (Found::TooLong { length }, _) => One::TooLong(length),
            (Found::Refused(refusal), _) => One::Refused(refusal),
            (found, room) => panic!("{found:?} in {room:?}"),
        };
        found.expect("a Reply that makes sense").into_iter().map(one).collect()
    }

    /// Stores pairs, all in leases but the empty ones, and waits for the answers.
    pub(super) fn put_many(
        &mut self,
        n: usize,
        pairs: &[(&[u8], Vec<u8>)],
    ) -> Result<Vec<Result<(), Refusal>>, CallError> {
        let mut request = request(Procedure::MPut);
        let mut at = 4;
        for (key, value) in pairs {
            at += 4 + key.len().next_multiple_of(4);
            if !value.is_empty() {
                let mut lease = self.value(value.len(), 0);
                lease.bytes_mut().copy_from_slice(value);
                request = request.argument_at(Place::At(Kind::Opaque, at), lease);
            }
            at += 4;
        }
        self.ask(n, request, |w| {
            w.u32(u32::try_from(pairs.len()).unwrap())?;
            pairs.iter().try_for_each(|(key, value)| {
                w.opaque(key)?;
                w.u32(u32::try_from(value.len()).unwrap())
            })
        });
        let results = self.reply(n).results.as_ref().map_err(Clone::clone)?;
        let results = PayloadReader::reply(results, 0, None);
        Ok(many::decode_stored(results, pairs.len()).expect("a Reply that makes sense"))
    }
}

#[test]
fn several_values_are_stored_and_fetched_by_one_call_each() {
    let mut world = World::new(1, 64 << 20);
    let longest = [b'k'; KEY_MAX];
    let keys: [&[u8]; 4] = [b"a", &longest, b"ccc", b"dd"];
    let sizes = [70_000, 0, VALUE_MAX, 100];
    let pairs: Vec<_> =
        keys.into_iter().zip(sizes).map(|(key, size)| (key, pattern(size, size))).collect();
    assert_eq!(world.put_many(0, &pairs), Ok(vec![Ok(()); 4]));
    let stat = world.stat();
    assert_eq!((stat.keys, stat.value_bytes), (4, sizes.iter().sum::<usize>() as u64));
    let placed = |n: usize| One::Placed(pairs[n].1.clone());
    // An empty value has no octets to place.
    let empty = || One::Unreduced(Vec::new());
    let rooms = sizes.map(|size| size.max(1));
    let found = world.get_many(1, &keys, &rooms);
    assert!(found == [placed(0), empty(), placed(2), placed(3)]);
    // The same key several times, and keys that are none or have no value, whose chunks stay unused.
    let asked: [&[u8]; 4] = [b"nobody", b"a", b"a", b"\xff"];
    let found = world.get_many(2, &asked, &[70_000; 4]);
    let refused = [One::Refused(Refusal::NotFound), One::Refused(Refusal::BadKey)];
    let [missing, bad] = refused;
    assert!(found == [missing, placed(0), placed(0), bad]);
    assert!(world.get_many(3, &keys[2..3], &[VALUE_MAX]) == [placed(2)]);
    assert_eq!(world.get_many(4, &[], &[]), []);
    world.settle();
    let stat = world.stat();
    assert_eq!((stat.leases_posted, stat.leases_exposed, stat.orphans), (0, 0, 0));
}

#[test]
fn a_value_without_room_is_told_with_its_length_and_the_others_come() {
    let mut world = World::new(1, 64 << 20);
    let keys: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let sizes = [50_000, 60_000, 700, 40_000];
    let pairs: Vec<_> =
        keys.into_iter().zip(sizes).map(|(key, size)| (key, pattern(size, size))).collect();
    assert_eq!(world.put_many(0, &pairs), Ok(vec![Ok(()); 4]));
    let placed = |n: usize| One::Placed(pairs[n].1.clone());
    let inline = |n: usize| One::Unreduced(pairs[n].1.clone());
    let found = world.get_many(1, &keys, &[50_000, 59_999, 10_000, 40_000]);
    assert!(found == [placed(0), One::TooLong(60_000), placed(2), placed(3)]);
    // What is longer than its chunk and has room in the message is there.
    let found = world.get_many(2, &keys, &[49_999, 60_000, 10, 10]);
    assert!(found == [One::TooLong(50_000), placed(1), inline(2), One::TooLong(40_000)]);
    // Keys behind the last chunk have the message alone.
    let found = world.get_many(3, &keys, &[50_000]);
    assert!(found[0] == placed(0) && found[1] == One::TooLong(60_000), "{found:?}");
}

#[test]
fn values_fill_the_message_but_for_the_room_of_the_answers_behind_them() {
    let mut world = World::new(1, 64 << 20);
    let keys: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let mut counts = [0; 5];
    for size in (1000..2000).step_by(4) {
        let value = |n: usize| pattern(size, n);
        let pairs: Vec<_> = keys.iter().enumerate().map(|(n, key)| (*key, value(n))).collect();
        assert_eq!(world.put_many(0, &pairs), Ok(vec![Ok(()); 4]));
        let found = world.get_many(1, &keys, &[]);
        let come = found.iter().take_while(|one| matches!(one, One::Unreduced(_))).count();
        for (n, one) in found.into_iter().enumerate() {
            let too_long = || One::TooLong(size as u64);
            let expected = if n < come { One::Unreduced(value(n)) } else { too_long() };
            assert!(one == expected, "{size}: {n}");
        }
        counts[come] += 1;
    }
    assert!(counts[2] > 10 && counts[3] > 10 && counts[4] > 10, "{counts:?}");
}

#[test]
fn each_pair_is_stored_or_refused_on_its_own() {
    let mut world = World::new(1, 64 << 20);
    let large = pattern(VALUE_MAX + 1, 0);
    let pairs: [(&[u8], _); 4] = [
        (b"a", pattern(9000, 1)),
        (b"\xff", pattern(9, 2)),
        (b"c", large),
        (b"a", pattern(8000, 4)),
    ];
    let too_large = Err(Refusal::TooLarge { max: VALUE_MAX as u64 });
    let expected = vec![Ok(()), Err(Refusal::BadKey), too_large, Ok(())];
    assert_eq!(world.put_many(0, &pairs), Ok(expected));
    // The last of two values for one key is the one that stays.
    assert!(world.get_many(1, &[b"a"], &[9000]) == [One::Placed(pattern(8000, 4))]);
    let stat = world.stat();
    assert_eq!((stat.keys, stat.value_bytes), (1, 8000));
}

#[test]
fn full_memory_refuses_some_values_of_a_call_and_stores_the_others() {
    let mut world = World::with(1, 12 << 20, 3);
    let value = |n| pattern(5000, n);
    let keys: [&[u8]; 4] = [b"a", b"b", b"c", b"d"];
    let pairs: Vec<_> = keys.iter().zip(0..).map(|(key, n)| (*key, value(n))).collect();
    let expected = vec![Ok(()), Ok(()), Ok(()), Err(Refusal::KeysFull { max: 3 })];
    assert_eq!(world.put_many(0, &pairs), Ok(expected), "the index is full");
    // No memory is there for all values of a Call together.
    let pairs: Vec<_> = keys.iter().map(|key| (*key, pattern(4 << 20, 9))).collect();
    assert_eq!(world.put_many(1, &pairs), Ok(vec![Err(Refusal::NoSpace); 4]));
    let missing = One::Refused(Refusal::NotFound);
    let held = |n| One::Placed(value(n));
    assert!(world.get_many(2, &keys, &[5000; 4]) == [held(0), held(1), held(2), missing]);
}

#[test]
fn calls_that_are_malformed_anywhere_store_nothing() {
    let mut world = World::new(1, 64 << 20);
    let garbage = Err(CallError::Rejected(AcceptStat::GarbageArgs));
    let before = world.stat().leases_local;
    for (n, words) in [&[5_u32, 0][..], &[u32::MAX], &[2, 0], &[0, 0], &[]].into_iter().enumerate()
    {
        for procedure in [Procedure::MGet, Procedure::MPut] {
            world.ask(n, request(procedure), |w| words.iter().try_for_each(|word| w.u32(*word)));
            assert_eq!(world.reply(n).results, garbage, "{procedure:?} {words:?}");
        }
    }
    let pairs: [(&[u8], _); 2] = [(b"a", b"value".to_vec()), (&[b'k'; KEY_MAX + 1], Vec::new())];
    assert_eq!(world.put_many(9, &pairs), Err(CallError::Rejected(AcceptStat::GarbageArgs)));
    world.settle();
    let stat = world.stat();
    assert_eq!((stat.keys, stat.value_bytes, stat.leases_local), (0, 0, before));
}

#[test]
fn values_in_several_leases_come_with_others() {
    let mut world = thinned(|n| n % 64 == 63);
    let (large, small) = (pattern(1 << 20, 1), pattern(9000, 2));
    assert!(world.server.cx(world.now).0.gauges().largest_run < large.len());
    let pairs: [(&[u8], _); 3] =
        [(b"a", small.clone()), (b"b", large.clone()), (b"c", large.clone())];
    assert_eq!(world.put_many(0, &pairs), Ok(vec![Ok(()); 3]));
    let keys: [&[u8]; 3] = [b"b", b"a", b"c"];
    let found = world.get_many(1, &keys, &[1 << 20, 9000, 1 << 20]);
    let placed = |value: &Vec<u8>| One::Placed(value.clone());
    assert!(found == [placed(&large), placed(&small), placed(&large)]);
    let found = world.get_many(2, &keys, &[1000, 9000, 1 << 20]);
    assert!(found == [One::TooLong(1 << 20), placed(&small), placed(&large)]);
}
