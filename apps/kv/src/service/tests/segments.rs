//! Values of several segments.

use super::*;

/// A server whose clients divide values in segments of at most `segment` octets.
fn world(segment: usize) -> World {
    let segment_size_max = u32::try_from(segment).expect("short");
    World::within(1, 10 << 20, 1000, Limits { segment_size_max, ..LIMITS })
}

impl World {
    /// Returns the octets that the server read by RDMA Reads, and those that it moved to make room.
    fn read_and_moved(&mut self) -> [u64; 2] {
        let (cx, service) = self.server.cx(self.now);
        [cx.moved().tagged_received, service.moved_bytes()]
    }
}

#[test]
fn values_of_up_to_as_many_segments_as_a_chunk_has_survive() {
    const SEGMENT: usize = VALUE_MAX / SEGMENTS_MAX;
    let mut world = world(SEGMENT);
    for (n, size) in [SEGMENT, SEGMENT + 1, VALUE_MAX - 1, VALUE_MAX].into_iter().enumerate() {
        let value = world.value(size, n);
        world.put(n, "k", value);
        assert_eq!(world.done(n), DONE, "{size}");
        let room = world.value(size, 99);
        world.get(n, "k", room);
        assert!(world.got(n).bytes() == pattern(size, n), "{size}");
    }
    assert_eq!(world.unreduced(), 0);
}

#[test]
fn a_value_of_several_segments_that_is_refused_is_not_read() {
    let mut world = world(VALUE_MAX / 4);
    let value = world.value(VALUE_MAX + 1, 0);
    world.put(0, "large", value);
    assert_eq!(world.done(0), refused(Refusal::TooLarge { max: VALUE_MAX as u64 }));
    assert_eq!(world.read_and_moved(), [0; 2]);
    // Two fill the memory: a third finds no room, whatever is moved.
    for (n, key) in (0..).zip(["a", "b"]) {
        let value = world.value(VALUE_MAX, n);
        world.put(n, key, value);
        assert_eq!(world.done(n), DONE);
    }
    let before = world.read_and_moved();
    assert_eq!(before, [2 * VALUE_MAX as u64, 0]);
    let value = world.value(VALUE_MAX, 2);
    world.put(2, "c", value);
    assert_eq!(world.done(2), refused(Refusal::NoSpace));
    assert_eq!(world.read_and_moved(), before);
    for (n, key) in (0..).zip(["a", "b"]) {
        let room = world.value(VALUE_MAX, 99);
        world.get(n, key, room);
        assert!(world.got(n).bytes() == pattern(VALUE_MAX, n));
    }
}
