use super::*;

#[test]
fn changes_have_these_bytes() {
    let heading = Heading { merged: 7, is_over: false };
    let changes =
        [(&b"ab"[..], State::Set { length: 1 << 32 }), (b"c", State::Deleted), (b"d", SET)];
    let bytes = b"\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x02\
                  \0\0\0\x02ab\0\0\0\0\0\x01\0\0\0\x01\0\0\0\0\
                  \0\0\0\x01c\0\0\0\0\0\0\0";
    let mut room = [0; 100];
    let mut w = Writer::new(&mut room);
    heading.encode(2, changes.into_iter(), &mut w).unwrap();
    let end = w.position();
    assert_eq!(room[..end], *bytes);
    let mut told = Vec::new();
    assert_eq!(decode(bytes, |change| told.push((change.key.bytes(), change.state))), Ok(heading));
    assert_eq!(told, changes[..2]);
}

#[test]
fn what_is_no_change_is_garbage() {
    for (bytes, at) in [
        // An octet is missing, or there is one word too many.
        (&b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"[..], 12),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16),
        // Neither true nor false.
        (b"\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0", 8),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01k\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\0", 24),
        // More changes than follow; keys that are none.
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\xff\xff\xff\xff\0\0\0\x01k\0\0\0\0\0\0\0", 28),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0", 16),
        (b"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\xff\0\0\0\0\0\0\0", 16),
    ] {
        assert_eq!(decode(bytes, |_| {}), Err(Truncated { at }), "{bytes:?}");
    }
}

fn decode<'a>(bytes: &'a [u8], take: impl FnMut(Change<'a>)) -> Result<Heading, Truncated> {
    Heading::decode(PayloadReader::call(bytes, 0, None), take)
}

const SET: State = State::Set { length: 3 };
