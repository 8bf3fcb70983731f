use super::*;

const ROOM: InlineRoom = InlineRoom { arguments: 5000, results: 5000 };

fn key(name: &str) -> Key<'_> {
    Key::new(name.as_bytes()).unwrap()
}

#[test]
fn a_value_is_expected_to_have_the_length_that_it_had_last() {
    let (long, short) = (INLINE_MAX + 1, INLINE_MAX);
    let mut lengths = Lengths::default();
    assert_eq!((lengths.expected(key("a")), lengths.expects_chunk(key("a"), ROOM)), (0, None));
    for (length, chunk) in
        [(long, Some(long)), (short, None), (0, None), (ITEM_MAX, Some(ITEM_MAX))]
    {
        lengths.remember(key("a"), length);
        assert_eq!(lengths.expected(key("a")), length);
        assert_eq!(lengths.expects_chunk(key("a"), ROOM), chunk, "{length}");
    }
    assert_eq!(lengths.expected(key("b")), long, "as long as no message takes");
    lengths.remember(key("a"), usize::MAX);
    assert_eq!(lengths.expected(key("a")), ITEM_MAX, "no value is longer");
    lengths.remember_long(key("b"), 1);
    assert_eq!(lengths.expects_chunk(key("b"), ROOM), Some(long));
}

#[test]
fn short_values_take_no_memory_until_there_is_a_long_one() {
    let mut lengths = Lengths::default();
    for length in [0, 1, INLINE_MAX] {
        lengths.remember(key("a"), length);
    }
    assert_eq!(lengths.last.capacity(), 0);
    lengths.remember(key("a"), INLINE_MAX + 1);
    assert_eq!(lengths.last.len(), LENGTHS);
    // From then on short values are remembered, too: their key may have had a long one.
    lengths.remember(key("a"), 5);
    assert_eq!(lengths.expected(key("a")), 5);
}

#[test]
fn keys_spread_over_all_entries() {
    let mut lengths = Lengths::new(0);
    for n in 0..4 * LENGTHS {
        lengths.remember(key(&format!("bench-{n:08}")), 2);
    }
    let used = lengths.last.iter().filter(|length| **length == 2).count();
    // Four keys an entry leave one entry in 55 unused.
    assert!((LENGTHS * 95 / 100..LENGTHS).contains(&used), "{used}");
}

#[test]
fn no_more_goes_inline_than_a_message_has_room_for() {
    let mut lengths = Lengths::default();
    // A status and a length word come before the value, and padding behind it.
    for (results, most) in
        [(8, 0), (11, 0), (12, 4), (1008, 1000), (1011, 1000), (9000, INLINE_MAX)]
    {
        let room = InlineRoom { results, ..ROOM };
        for (length, chunk) in [(most, None), (most + 1, Some(most + 1))] {
            lengths.remember_long(key("a"), 0);
            lengths.remember(key("a"), length);
            assert_eq!(lengths.expects_chunk(key("a"), room), chunk, "{length} in {results}");
        }
    }
    // The key and two length words come before the value.
    for (arguments, most) in [(12, 0), (15, 0), (16, 4), (112, 100), (9000, INLINE_MAX)] {
        let room = InlineRoom { arguments, ..ROOM };
        assert!(lengths.stores_inline(key("abcd"), most, room), "{most} in {arguments}");
        assert!(!lengths.stores_inline(key("abcd"), most + 1, room), "{most} in {arguments}");
    }
    assert!(!lengths.stores_inline(key("abcde"), 4, InlineRoom { arguments: 16, ..ROOM }));
    assert!(lengths.stores_inline(key("k"), 90, InlineRoom::MIN));
}
