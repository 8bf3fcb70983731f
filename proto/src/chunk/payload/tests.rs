use super::*;
use crate::testing::Xdr;
use crate::v1::padding::put_padded;
use crate::xdr::Writer;

const HEADER: usize = 40;

fn call(arguments: &Xdr, chunk: Option<(u32, u64)>) -> (std::vec::Vec<u8>, Option<(u32, u64)>) {
    ([&[0xee; HEADER], &arguments.0[..]].concat(), chunk)
}

#[test]
fn an_item_that_was_not_reduced_is_inline_with_its_padding() {
    let (payload, chunk) = call(&Xdr::default().opaque(b"hello").words(&[7]), None);
    let mut r = PayloadReader::call(&payload, HEADER, chunk);
    assert_eq!(r.eligible_opaque(5), Ok(Item::Unreduced(b"hello")));
    assert_eq!((r.u32(), r.is_empty()), (Ok(7), true));
    let mut r = PayloadReader::call(&payload, HEADER, chunk);
    assert_eq!(r.eligible_opaque(4), Err(Truncated { at: HEADER }));
}

#[test]
fn an_item_reduced_from_the_middle_leaves_its_length_and_nothing_else() {
    // The stream has a word, the length of the item, and directly behind the length the next argument.
    let arguments = Xdr::default().words(&[1, 5]).opaque(b"next");
    let (payload, chunk) = call(&arguments, Some((48, 5)));
    let mut r = PayloadReader::call(&payload, HEADER, chunk);
    assert_eq!(r.u32(), Ok(1));
    assert_eq!(r.eligible_opaque(0), Ok(Item::Reduced { length: 5 }));
    assert_eq!(r.position(), 48);
    assert_eq!((r.opaque(4), r.is_empty()), (Ok(&b"next"[..]), true));
}

#[test]
fn an_item_reduced_from_the_end_leaves_its_length() {
    for length in [0, 1, 70001, u32::MAX] {
        let arguments = Xdr::default().words(&[length]);
        let (payload, chunk) = call(&arguments, Some((44, u64::from(length))));
        let mut r = PayloadReader::call(&payload, HEADER, chunk);
        assert!(!r.is_empty());
        let item = r.eligible_opaque(0);
        assert_eq!(item, Ok(Item::Reduced { length: u64::from(length) }));
        assert!(r.is_empty() && r.rest().is_empty());
    }
}

#[test]
fn the_length_left_in_the_stream_is_the_chunks() {
    for chunk in [4, 6, 8, u64::from(u32::MAX) + 6] {
        let (payload, chunk) = call(&Xdr::default().words(&[5]), Some((44, chunk)));
        let mut r = PayloadReader::call(&payload, HEADER, chunk);
        assert_eq!(r.eligible_opaque(64), Err(Truncated { at: HEADER }), "{chunk:?}");
    }
}

#[test]
fn a_chunk_at_another_position_is_not_this_item() {
    for position in [4, 40, 48, 0xffff_fffc] {
        let arguments = Xdr::default().opaque(b"hello");
        let (payload, chunk) = call(&arguments, Some((position, 5)));
        let mut r = PayloadReader::call(&payload, HEADER, chunk);
        assert_eq!(r.eligible_opaque(5), Ok(Item::Unreduced(b"hello")), "{position}");
        assert!(!r.is_empty(), "a chunk without its item is left over");
    }
}

#[test]
fn a_chunk_stands_for_one_item_and_only_for_an_eligible_one() {
    let arguments = Xdr::default().words(&[5]).opaque(b"hello");
    let (payload, chunk) = call(&arguments, Some((44, 5)));
    let mut r = PayloadReader::call(&payload, HEADER, chunk);
    assert_eq!(r.eligible_opaque(5), Ok(Item::Reduced { length: 5 }));
    assert_eq!(r.eligible_opaque(5), Ok(Item::Unreduced(b"hello")));
    let mut r = PayloadReader::call(&payload, HEADER, chunk);
    // A reader that takes the item for one that is not eligible finds its length without its octets.
    assert_ne!(r.opaque(5), Ok(&b"hello"[..]));
}

#[test]
fn a_reply_says_how_much_of_its_eligible_item_was_written() {
    let results = Xdr::default().words(&[0, 4097, 9]).0;
    let mut r = PayloadReader::reply(&results, 0, Some(4097));
    assert_eq!((r.u32(), r.reduced()), (Ok(0), Some(4097)));
    assert_eq!(r.eligible_opaque(0), Ok(Item::Reduced { length: 4097 }));
    assert_eq!((r.reduced(), r.u32(), r.is_empty()), (None, Ok(9), true));

    let mut r = PayloadReader::reply(&results, 0, Some(4096));
    assert_eq!(r.u32(), Ok(0));
    assert_eq!(r.eligible_opaque(0), Err(Truncated { at: 4 }), "not what was written");

    let inline = Xdr::default().opaque(b"hello").0;
    let mut r = PayloadReader::reply(&inline, 0, None);
    assert_eq!((r.eligible_opaque(5), r.reduced()), (Ok(Item::Unreduced(b"hello")), None));
    assert!(r.is_empty());
}

#[test]
fn an_item_cut_short_is_truncated() {
    let arguments = Xdr::default().opaque(b"hello");
    let (payload, _) = call(&arguments, None);
    for end in HEADER..payload.len() {
        let mut r = PayloadReader::call(&payload[..end], HEADER, None);
        assert!(r.eligible_opaque(5).is_err(), "{end}");
        let mut r = PayloadReader::call(&payload[..end], HEADER, Some((44, 5)));
        assert_eq!(r.eligible_opaque(5).is_ok(), end >= 44, "{end}");
    }
    let mut r = PayloadReader::call(&payload, HEADER, None);
    assert_eq!(r.u64().map(|w| w >> 32), Ok(5));
}

#[test]
fn each_of_several_arguments_is_found_at_its_position() {
    // An opaque, a word, an array of words, optional data, the arm of a union, a fixed opaque.
    let arguments = Xdr::default().words(&[5, 7, 2, 1, 0x33, 9]);
    let (payload, _) = call(&arguments, None);
    let chunk = |position, length| Reduced { position, length };
    // In the unreduced stream: 40 header, 4 + 8, 4, 4 + 8, 4 + 12, 4 + 4, 4.
    let chunks = [chunk(44, 5), chunk(60, 8), chunk(72, 12), chunk(88, 4), chunk(92, 3)];
    let mut r = PayloadReader::call_of_many(&payload, HEADER, &chunks);
    assert_eq!(r.eligible_opaque(0), Ok(Item::Reduced { length: 5 }));
    assert_eq!((r.eligible(), r.u32()), (Ok(None), Ok(7)), "a word that was not reduced");
    assert_eq!((r.u32(), r.eligible()), (Ok(2), Ok(Some(8))), "array");
    assert_eq!((r.u32(), r.eligible()), (Ok(1), Ok(Some(12))), "optional data");
    assert_eq!((r.u32(), r.eligible()), (Ok(0x33), Ok(Some(4))), "arm");
    assert!(!r.is_empty());
    assert_eq!((r.eligible(), r.u32()), (Ok(Some(3)), Ok(9)), "fixed opaque");
    assert!(r.is_empty());
}

#[test]
fn some_of_several_arguments_can_be_inline() {
    let arguments = Xdr::default().opaque(b"inline").words(&[6]);
    let (payload, _) = call(&arguments, None);
    let chunks = [Reduced { position: 56, length: 6 }];
    let mut r = PayloadReader::call_of_many(&payload, HEADER, &chunks);
    assert_eq!(r.eligible_opaque(6), Ok(Item::Unreduced(b"inline")));
    assert_eq!(r.eligible_opaque(6), Ok(Item::Reduced { length: 6 }));
    assert!(r.is_empty());
    // The chunk is one unit behind the second item, so it is not that item's.
    let chunks = [Reduced { position: 60, length: 6 }];
    let mut r = PayloadReader::call_of_many(&payload, HEADER, &chunks);
    assert_eq!(r.eligible_opaque(6), Ok(Item::Unreduced(b"inline")));
    assert!(r.eligible_opaque(6).is_err());
}

#[test]
fn version_1_chunks_may_contain_the_padding_of_their_item() {
    let (payload, _) = call(&Xdr::default().words(&[5]), None);
    for (version, length, taken) in [
        (Version::One, 5, true),
        (Version::One, 8, true),
        (Version::One, 4, false),
        (Version::One, 6, false),
        (Version::Two, 5, true),
        (Version::Two, 8, false),
    ] {
        let chunk = Some((44, length));
        let mut r = PayloadReader::call(&payload, HEADER, chunk).of_version(version);
        let expected =
            if taken { Ok(Item::Reduced { length: 5 }) } else { Err(Truncated { at: 40 }) };
        assert_eq!(r.eligible_opaque(9), expected, "{version:?} {length}");
    }
}

const fn chunk(offered: u32, written: u32) -> Returned {
    Returned { offered, written }
}

#[test]
fn results_take_their_write_chunks_in_order() {
    let results = Xdr::default().words(&[3, 2, 4]).opaque(b"tail").0;
    let chunks = [chunk(10, 3), chunk(8, 8), chunk(4, 4), chunk(4, 0)];
    let mut r = PayloadReader::reply_of_many(&results, 0, &chunks);
    assert_eq!(r.eligible_opaque(0), Ok(Item::Reduced { length: 3 }));
    assert_eq!((r.u32(), r.eligible()), (Ok(2), Ok(Some(8))));
    assert_eq!(r.reduced(), Some(4));
    assert_eq!(r.eligible_opaque(0), Ok(Item::Reduced { length: 4 }));
    assert_eq!((r.opaque(4), r.is_empty()), (Ok(&b"tail"[..]), true), "an unused chunk is no item");
}

#[test]
fn a_write_chunk_that_no_eligible_result_takes_is_left_over() {
    let results = Xdr::default().words(&[3]).0;
    let chunks = [chunk(10, 3), chunk(10, 1)];
    let mut r = PayloadReader::reply_of_many(&results, 0, &chunks);
    assert_eq!(r.eligible_opaque(0), Ok(Item::Reduced { length: 3 }));
    assert!(!r.is_empty(), "something was reduced that is not DDP-eligible");
}

#[test]
fn an_absent_result_leaves_its_chunk_unused() {
    let results = Xdr::default().words(&[2]).0;
    let chunks = [chunk(10, 0), chunk(10, 2)];
    let mut r = PayloadReader::reply_of_many(&results, 0, &chunks);
    assert_eq!(r.absent(), Ok(()));
    assert_eq!((r.eligible_opaque(0), r.is_empty()), (Ok(Item::Reduced { length: 2 }), true));
    let mut r = PayloadReader::reply_of_many(&results, 0, &chunks[1..]);
    assert_eq!(r.absent(), Err(Truncated { at: 0 }));
}

#[test]
fn a_result_is_inline_only_where_its_chunk_could_not_take_it() {
    let results = Xdr::default().opaque(b"hello").0;
    for (offered, version, allowed) in [
        // An empty chunk asks for the result inline.
        (0, Version::Two, true),
        (4, Version::Two, true),
        // Version 2, A.1.
        (5, Version::Two, false),
        (5, Version::One, true),
    ] {
        let chunks = [chunk(offered, 0)];
        let mut r = PayloadReader::reply_of_many(&results, 0, &chunks).of_version(version);
        assert_eq!(r.eligible_opaque(5).is_ok(), allowed, "{offered} {version:?}");
        assert_eq!(r.is_empty(), allowed);
    }
    // Nothing is as long inline as it is reduced.
    let nothing = Xdr::default().opaque(b"").0;
    let chunks = [chunk(9, 0)];
    let mut r = PayloadReader::reply_of_many(&nothing, 0, &chunks);
    assert_eq!(r.eligible_opaque(5), Ok(Item::Unreduced(b"")));
}

#[test]
fn a_refused_item_is_not_taken() {
    let results = Xdr::default().opaque(b"hello").0;
    let chunks = [chunk(9, 4)];
    let mut r = PayloadReader::reply_of_many(&results, 0, &chunks);
    assert_eq!(r.eligible_opaque(5), Err(Truncated { at: 0 }));
    assert_eq!((r.reduced(), r.position()), (Some(4), 0));
}

#[test]
fn the_padding_in_front_of_long_opaques_is_passed_over() {
    let padding = Padding { align: 1024, thresh: 401 };
    let (short, long, item) = ([1; 400], [2; 401], [3; 500]);
    let mut room = [0; 4096];
    let mut w = Writer::new(&mut room);
    w.put([0; 36]).unwrap();
    w.u32(9).unwrap();
    put_padded(&mut w, padding, &short).unwrap();
    put_padded(&mut w, padding, &long).unwrap();
    put_padded(&mut w, padding, &item).unwrap();
    w.u64(7).unwrap();
    let payload = &w.written()[36..];
    let mut r = PayloadReader::call(payload, 4, None).of_version(Version::One).padded(padding, 36);
    let fresh = r.clone();
    assert_eq!(r.opaque(400), Ok(&short[..]));
    assert!(r.clone().opaque(400).is_err(), "longer than it may be");
    assert_eq!(r.opaque(401), Ok(&long[..]));
    assert_eq!(r.eligible_opaque(499), Err(Truncated { at: r.position() }));
    // A second reader that takes over the rest needs the padding and the position of the first.
    let plain = PayloadReader::reply_of_many(r.rest(), 0, &[]);
    let (same, at) = r.padding().unwrap();
    assert_eq!((same, plain.padding()), (padding, None));
    assert_eq!(plain.padded(same, at).opaque(500), Ok(&item[..]));
    assert_eq!(r.eligible_opaque(500), Ok(Item::Unreduced(&item)));
    assert_eq!((r.eligible(), r.u64(), r.is_empty()), (Ok(None), Ok(7), true));
    // What is not padded is read as it is.
    let mut plain = PayloadReader::call(payload, 4, None).of_version(Version::One);
    assert_eq!(plain.opaque(400), Ok(&short[..]));
    assert_ne!(plain.opaque(401), Ok(&long[..]));
    // An alignment beyond the message is an opaque that is cut short.
    let mut beyond = fresh.padded(Padding { align: 1 << 31, ..padding }, 36);
    assert_eq!(beyond.opaque(400), Ok(&short[..]));
    assert!(beyond.clone().opaque(401).is_err() && beyond.eligible_opaque(401).is_err());
}
