//! The bound of keys, and the counts of what was answered.

use super::*;

#[test]
fn a_full_index_has_a_refusal_of_its_own_and_takes_a_key_for_one_that_goes() {
    let mut world = World::with(1, 16 << 20, 2);
    let put = |world: &mut World, key: &str| {
        let value = world.value(100, 1);
        world.put(0, key, value);
        world.done(0)
    };
    let del = |world: &mut World, key: &'static [u8]| {
        world.ask(0, request(Procedure::Del), |w| w.opaque(key));
        world.done(0)
    };
    assert_eq!(["a", "b", "a"].map(|key| put(&mut world, key)), [DONE; 3]);
    let full = refused(Refusal::KeysFull { max: 2 });
    assert_eq!((put(&mut world, "c"), put(&mut world, "d")), (full.clone(), full));
    let stat = world.stat();
    assert_eq!((stat.keys, stat.keys_max, stat.refused), (2, 2, 2));
    assert!(stat.usable_bytes > 8 << 20, "memory is not what lacks: {stat:?}");
    assert_eq!(del(&mut world, b"b"), DONE);
    assert_eq!(put(&mut world, "c"), DONE);
}

#[test]
fn what_was_found_missed_and_refused_is_counted() {
    let mut world = World::with(1, 16 << 20, 2);
    let value = |n| pattern(100, n);
    let pairs: [(&[u8], _); 4] =
        [(b"a", value(0)), (b"\xff", value(1)), (b"b", value(2)), (b"c", value(3))];
    world.put_many(0, &pairs).unwrap();
    for key in ["a", "b", "x"] {
        let room = world.value(100, 0);
        world.get(0, key, room);
        world.reply(0);
    }
    world.get_many(0, &[b"a", b"x", b"\xff", b"y"], &[100; 4]);
    for deleted in [DONE, refused(Refusal::NotFound)] {
        world.ask(0, request(Procedure::Del), |w| w.opaque(b"b"));
        assert_eq!(world.done(0), deleted);
    }
    let expected = Answered {
        hits: 3,
        misses: 3,
        stored: 2,
        deleted: 1,
        keys_full: 1,
        bad_key: 2,
        ..Answered::default()
    };
    assert_eq!(world.server.service().answered(), expected);
    let stat = world.stat();
    assert_eq!((stat.hits, stat.misses, stat.refused, stat.watches), (3, 3, 3, 0));
}
