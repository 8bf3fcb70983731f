use super::*;

#[test]
fn results_have_these_bytes() {
    use Procedure::{Del, Get, Keys, Null, Put, Watch};
    for (procedure, answer, carriage, bytes) in [
        (Null, Answer::Done, Carriage::Unreduced, &b""[..]),
        (Put, Answer::Done, Carriage::Unreduced, b"\0\0\0\0"),
        (
            Get,
            Answer::Value(Value::Unreduced(b"v")),
            Carriage::Unreduced,
            b"\0\0\0\0\0\0\0\x01v\0\0\0",
        ),
        (Get, Answer::Value(Value::Unreduced(b"")), Carriage::Unreduced, b"\0\0\0\0\0\0\0\0"),
        (Get, Answer::Value(Value::Reduced { length: 9 }), Carriage::Chunk, b"\0\0\0\0\0\0\0\x09"),
        (Get, Answer::Refused(Refusal::NotFound), Carriage::Chunk, b"\0\0\0\x01"),
        (
            Get,
            Answer::TooLong { length: 0x1_0000_0002 },
            Carriage::Unreduced,
            b"\0\0\0\x05\0\0\0\x01\0\0\0\x02",
        ),
        (
            Put,
            Answer::Refused(Refusal::TooLarge { max: 16 }),
            Carriage::Unreduced,
            b"\0\0\0\x02\0\0\0\0\0\0\0\x10",
        ),
        (Put, Answer::Refused(Refusal::NoSpace), Carriage::Unreduced, b"\0\0\0\x03"),
        (Del, Answer::Refused(Refusal::BadKey), Carriage::Unreduced, b"\0\0\0\x04"),
        (Watch, Answer::Done, Carriage::Unreduced, b"\0\0\0\0"),
        (
            Watch,
            Answer::Refused(Refusal::Crowded { max: 256 }),
            Carriage::Unreduced,
            b"\0\0\0\x06\0\0\0\0\0\0\x01\0",
        ),
        (
            Put,
            Answer::Refused(Refusal::KeysFull { max: 3 }),
            Carriage::Unreduced,
            b"\0\0\0\x07\0\0\0\0\0\0\0\x03",
        ),
        (
            Keys,
            Answer::Keys(KeyList { list: TWO_KEYS, next: None }),
            Carriage::Unreduced,
            b"\0\0\0\0\0\0\0\x01\0\0\0\x01a\0\0\0\0\0\0\x01\0\0\0\x02bc\0\0\0\0\0\0\0\0\0\0",
        ),
    ] {
        assert_eq!(encoded(|w| answer.encode(procedure, w)), bytes, "{answer:?}");
        assert_eq!(Answer::decode(procedure, bytes, carriage), Ok(answer));
    }
}

#[test]
fn the_figures_travel_whole() {
    let stat = Stat { shards: 1, keys: 2, orphans: 3, pages_4k: u64::MAX, ..Stat::default() };
    let bytes = encoded(|w| Answer::Stat(stat.clone()).encode(Procedure::Stat, w));
    assert_eq!(bytes.len(), 4 + 41 * 8);
    assert_eq!(
        Answer::decode(Procedure::Stat, &bytes, Carriage::Unreduced),
        Ok(Answer::Stat(stat))
    );
}

#[test]
fn the_figures_of_another_release_are_understood() {
    let stat = Stat { keys: 2, usable_bytes: 3, moved_bytes: 4, ..Stat::default() };
    let mut bytes = encoded(|w| Answer::Stat(stat.clone()).encode(Procedure::Stat, w));
    bytes.extend(5_u64.to_be_bytes());
    let later = Answer::decode(Procedure::Stat, &bytes, Carriage::Unreduced);
    assert_eq!(later, Ok(Answer::Stat(stat)));
    let before = Stat { keys: 2, ..Stat::default() };
    let earlier = Answer::decode(Procedure::Stat, &bytes[..4 + EARLIER], Carriage::Unreduced);
    assert_eq!(earlier, Ok(Answer::Stat(before)));
}

/// Octets of the figures of the release before those of memory that is of use.
const EARLIER: usize = 22 * 8;

#[test]
fn a_list_of_keys_is_read_as_it_was_written_or_not_at_all() {
    let list = KeyList { list: TWO_KEYS, next: None };
    assert_eq!(list.keys().map(Key::bytes).collect::<Vec<_>>(), [&b"a"[..], b"bc"]);
    for bad in [
        &b"\0\0\0\0\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\0\0\0\0\0"[..], // neither true nor false
        b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0",               // a key of no octets
        b"\0\0\0\0\0\0\0\x01\0\0\0\x01\xff\0\0\0\0\0\0\0\0\0\0\0",   // not UTF-8
    ] {
        assert!(matches!(
            Answer::decode(Procedure::Keys, bad, Carriage::Unreduced),
            Err(BadReply::Garbage(_))
        ));
    }
}

/// `a` and `bc`, each behind a true word.
const TWO_KEYS: &[u8] = b"\0\0\0\x01\0\0\0\x01a\0\0\0\0\0\0\x01\0\0\0\x02bc\0\0";

#[test]
fn every_truncation_and_every_excess_is_refused() {
    let stat = Answer::Stat(Stat::default());
    for (procedure, answer) in [
        (Procedure::Get, Answer::Value(Value::Unreduced(b"value"))),
        (Procedure::Get, Answer::TooLong { length: 7 }),
        (Procedure::Stat, stat),
        (Procedure::Put, Answer::Refused(Refusal::TooLarge { max: 1 })),
        (Procedure::Del, Answer::Done),
        (Procedure::Keys, Answer::Keys(KeyList { list: TWO_KEYS, next: Some(9) })),
    ] {
        let mut bytes = encoded(|w| answer.encode(procedure, w));
        // All figures of an earlier release are no truncation.
        let is_whole = |end: usize| procedure == Procedure::Stat && end >= 4 + EARLIER;
        for end in (0..bytes.len()).filter(|end| !(is_whole(*end) && end % 8 == 4)) {
            let cut = Answer::decode(procedure, &bytes[..end], Carriage::Unreduced);
            assert!(matches!(cut, Err(BadReply::Garbage(_))), "{answer:?} cut at {end}");
        }
        bytes.push(0);
        let long = Answer::decode(procedure, &bytes, Carriage::Unreduced);
        assert!(matches!(long, Err(BadReply::Garbage(_))), "{answer:?}");
    }
}

#[test]
fn a_key_is_1_to_512_octets_of_utf_8() {
    for bad in [&b""[..], b"\xff\xfe", &[b'k'; KEY_MAX + 1]] {
        assert_eq!(Key::new(bad), Err(Refusal::BadKey));
    }
    for good in ["k".as_bytes(), "k\u{e9}y".as_bytes(), &[b'k'; KEY_MAX]] {
        assert_eq!(Key::new(good).map(Key::bytes), Ok(good));
    }
}

#[test]
fn numbers_we_do_not_know_are_said_to_be_unknown() {
    for number in 0..10 {
        assert_eq!(Procedure::from_number(number).map(|p| p as u32), Some(number));
    }
    assert_eq!(Procedure::from_number(10), None);
    for (procedure, status) in [(Procedure::Get, 8), (Procedure::Put, 5), (Procedure::Del, 5)] {
        let results = [0, 0, 0, status];
        let unknown = Answer::decode(procedure, &results, Carriage::Unreduced);
        assert_eq!(unknown, Err(BadReply::Status(status.into())));
    }
}

fn encoded(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut memory = [0; 1024];
    let mut w = Writer::new(&mut memory);
    write(&mut w).expect("the memory suffices");
    w.written().to_vec()
}
