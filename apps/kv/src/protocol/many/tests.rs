use haulage_proto::chunk::Returned;
use haulage_proto::negotiate::Version;

use super::*;
use crate::protocol::encode_too_long;

/// Four answers of MGET: a value in its chunk, no such key, a value that is too long, and one in the stream.
const FOUND: &[u8] =
    b"\0\0\0\x04\0\0\0\0\0\0\0\x09\0\0\0\x01\0\0\0\x05\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0\x01v\0\0\0";

/// The Write chunks of the Reply with [`FOUND`].
const RETURNED: [Returned; 4] = [
    Returned { offered: 10, written: 9 },
    Returned { offered: 10, written: 0 },
    Returned { offered: 10, written: 0 },
    Returned { offered: 0, written: 0 },
];

#[test]
fn keys_and_pairs_have_these_bytes() {
    let keys = [b"a".as_slice(), b"bcdef"].map(|key| Key::new(key).unwrap());
    let written = encoded(|w| encode_keys(&keys, w));
    assert_eq!(written, b"\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\x05bcdef\0\0\0");
    let pairs = keys.into_iter().zip([Value::Reduced { length: 7 }, Value::Unreduced(b"")]);
    let written = encoded(|w| encode_pairs(pairs.clone(), w));
    assert_eq!(written, b"\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\x07\0\0\0\x05bcdef\0\0\0\0\0\0\0");
    assert_eq!(length_offsets(pairs).collect::<Vec<_>>(), [12, 28]);
    let pairs = keys.into_iter().zip([Value::Unreduced(b"value"), Value::Reduced { length: 7 }]);
    let written = encoded(|w| encode_pairs(pairs.clone(), w));
    let first = b"\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\x05value\0\0\0";
    assert_eq!(written, [&first[..], b"\0\0\0\x05bcdef\0\0\0\0\0\0\x07"].concat());
    assert_eq!(length_offsets(pairs).collect::<Vec<_>>(), [12, 36]);
    assert_eq!(encoded(|w| encode_too_long(9, w)), b"\0\0\0\x05\0\0\0\0\0\0\0\x09");
}

#[test]
fn each_key_has_an_answer_of_its_own() {
    let reader = PayloadReader::reply_of_many(FOUND, 0, &RETURNED);
    let found = decode_found(reader, 4).unwrap();
    assert_eq!(
        found,
        [
            Found::Value(Item::Reduced { length: 9 }),
            Found::Refused(Refusal::NotFound),
            Found::TooLong { length: 0x1_0000_0002 },
            Found::Value(Item::Unreduced(b"v")),
        ]
    );
    let stored = b"\0\0\0\x03\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x10\0\0\0\x03";
    let stored = decode_stored(PayloadReader::reply(stored, 0, None), 3).unwrap();
    assert_eq!(stored, [Ok(()), Err(Refusal::TooLarge { max: 16 }), Err(Refusal::NoSpace)]);
}

#[test]
fn other_answers_than_were_asked_for_are_refused() {
    for asked in [0, 3, 5] {
        let reader = PayloadReader::reply_of_many(FOUND, 0, &RETURNED);
        let count = BadReply::Count { asked, answered: 4 };
        assert_eq!(decode_found(reader, asked), Err(count));
    }
    for end in 0..FOUND.len() {
        for reader in [
            PayloadReader::reply_of_many(&FOUND[..end], 0, &RETURNED),
            PayloadReader::reply_of_many(&FOUND[..end], 0, &[]).of_version(Version::One),
        ] {
            assert!(decode_found(reader, 4).is_err(), "cut at {end}");
        }
    }
    // Octets in the chunk of a key without a value; another length than is in the chunk; octets behind the last answer.
    let written = |chunk, written| {
        let mut returned = RETURNED;
        returned[chunk] = Returned { offered: 10, written };
        decode_found(PayloadReader::reply_of_many(FOUND, 0, &returned), 4).map(|found| found.len())
    };
    for (chunk, octets) in [(1, 1), (2, 4), (0, 8), (0, 0)] {
        assert!(matches!(written(chunk, octets), Err(BadReply::Garbage(_))), "{chunk}: {octets}");
    }
    let long = [FOUND, &[0; 4]].concat();
    let reader = PayloadReader::reply_of_many(&long, 0, &RETURNED);
    assert!(matches!(decode_found(reader, 4), Err(BadReply::Garbage(_))));
    // A status that only MGET has, and one that nothing has.
    let stored = |status| {
        let octets = [0, 0, 0, 1, 0, 0, 0, status];
        decode_stored(PayloadReader::reply(&octets, 0, None), 1)
    };
    assert_eq!(stored(5), Err(BadReply::Status(5)));
    let found = b"\0\0\0\x01\0\0\0\x08";
    let found = decode_found(PayloadReader::reply(found, 0, None), 1);
    assert_eq!(found, Err(BadReply::Status(8)));
}

fn encoded(write: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>) -> Vec<u8> {
    let mut memory = [0; 1024];
    let mut w = Writer::new(&mut memory);
    write(&mut w).expect("the memory suffices");
    w.written().to_vec()
}
