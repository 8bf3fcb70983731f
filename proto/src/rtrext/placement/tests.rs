use std::vec;
use std::vec::Vec;

use super::*;
use crate::rtrext::structure::{BufferSegment, FLAG_TARGETABLE};
use crate::testing::Xdr;
use crate::xdr::Reader;

/// Buffers of 100 octets: 64 plain, targets of 16 (64..80) and 8 (92..100), and 12 plain in between.
fn structure() -> Structure {
    let segment = |length, flags| BufferSegment { length, align: 1, flags };
    let (plain, target) = (0, FLAG_TARGETABLE);
    let segments =
        [segment(64, plain), segment(16, target), segment(12, plain), segment(8, target)];
    Structure::new(&segments).unwrap()
}

/// Two whole transmissions: a Payload stream of 16 octets in the first, of 8 in the second.
fn parts() -> [Part; 2] {
    [Part { start: 40, end: 56, length: 100 }, Part { start: 28, end: 36, length: 100 }]
}

/// An item of `place`: a displacement, a length and the words of an `xmdp_loc`.
type Said<'a> = (u32, u32, &'a [u32]);

fn array(items: &[Said<'_>]) -> Vec<u8> {
    let count = u32::try_from(items.len()).unwrap();
    let items = items.iter().fold(Xdr::default().words(&[count]), |xdr, (disp, length, place)| {
        xdr.words(&[*disp, *length]).words(place)
    });
    items.0
}

fn judge(dir: MessageType, parts: &[Part], items: &[Said<'_>]) -> Result<Vec<Vec<Piece>>, Fault> {
    let (octets, structure) = (array(items), structure());
    let items = Items::decode(&mut Reader::new(&octets)).unwrap();
    let placement = Placement::new(items, dir, parts, &structure)?;
    Ok(placement.items().map(|item| placement.pieces(&item).collect()).collect())
}

fn call(items: &[Said<'_>]) -> Result<Vec<Vec<Piece>>, Fault> {
    judge(MessageType::Call, &parts(), items)
}

fn bad_offset(value: u32, min: u32, max: u32) -> Result<Vec<Vec<Piece>>, Fault> {
    Err(Fault::Report(ReportInfo::BadOffset(OutOfRange { value, min, max })))
}

fn bad_number(value: u32, min: u32, max: u32) -> Result<Vec<Vec<Piece>>, Fault> {
    Err(Fault::Report(ReportInfo::BadNumber(OutOfRange { value, min, max })))
}

fn piece(transmission: usize, segment: usize, range: Range<usize>, at: usize) -> Piece {
    let message = at..at + range.len();
    Piece { transmission, segment, range, message }
}

#[test]
fn an_item_goes_on_from_segment_to_segment_until_it_ends() {
    let pieces = call(&[(8, 30, &[2, 4, 3, 0, 1, 2]), (40, 5, &[2, 0, 1, 3])]).unwrap();
    let first = [piece(0, 1, 4..16, 68), piece(0, 3, 0..8, 92), piece(1, 1, 0..10, 64)];
    assert_eq!(pieces, [first.to_vec(), vec![piece(1, 3, 0..5, 92)]]);
    // An empty item needs no segment, and numbers beyond the end of an item are not looked at.
    let pieces = call(&[(8, 0, &[2, 0, 0]), (12, 3, &[2, 0, 2, 0, 77])]).unwrap();
    assert_eq!(pieces, [vec![], vec![piece(0, 1, 0..3, 64)]]);
    // Two items may share a segment.
    let pieces = call(&[(8, 3, &[2, 0, 1, 0]), (12, 3, &[2, 4, 1, 0])]).unwrap();
    assert_eq!(pieces, [[piece(0, 1, 0..3, 64)], [piece(0, 1, 4..7, 68)]]);
}

#[test]
fn a_number_names_a_segment_with_room_behind_the_last_item() {
    let listed = |numbers: &[u32]| {
        let count = u32::try_from(numbers.len()).unwrap();
        let place = [&[2, 0, count][..], numbers].concat();
        call(&[(8, 17, &place)])
    };
    assert!(listed(&[0, 1]).is_ok() && listed(&[2, 3]).is_ok() && listed(&[0, 3]).is_ok());
    assert_eq!(listed(&[4]), bad_number(4, 0, 3), "two transmissions have four");
    assert_eq!(listed(&[u32::MAX]), bad_number(u32::MAX, 0, 3));
    assert_eq!(listed(&[2, 4]), bad_number(4, 3, 3));
    assert_eq!(listed(&[2, 1]), bad_number(1, 3, 3), "backwards");
    assert_eq!(listed(&[2, 2]), bad_number(2, 3, 3), "twice");
    assert_eq!(listed(&[0]), bad_number(u32::MAX, 1, 3), "the list ends before the item");
    assert_eq!(listed(&[]), bad_number(u32::MAX, 0, 3));
    // The last octet of a segment that an item before it filled.
    let twice = call(&[(8, 16, &[2, 0, 1, 0]), (24, 4, &[2, 0, 1, 0])]);
    assert_eq!(twice, bad_number(0, 1, 3));
}

#[test]
fn a_segment_counts_only_as_far_as_it_arrived() {
    let parts = |length| [Part { start: 40, end: 56, length }];
    let placed = |length, item: Said<'_>| judge(MessageType::Call, &parts(length), &[item]);
    assert!(placed(72, (8, 8, &[2, 0, 1, 0])).is_ok());
    assert_eq!(placed(72, (8, 9, &[2, 0, 1, 0])), bad_offset(0, 0, 0));
    assert_eq!(placed(72, (8, 4, &[2, 8, 1, 0])), bad_offset(8, 0, 4));
    assert_eq!(placed(64, (8, 1, &[2, 0, 1, 0])), bad_number(0, 1, 0), "nothing did");
    assert_eq!(placed(92, (8, 17, &[2, 0, 2, 0, 1])), bad_number(1, 1, 0));
    assert_eq!(placed(93, (8, 18, &[2, 0, 2, 0, 1])), bad_number(1, 1, 1), "too little did");
    // The Payload stream reaches into the targetable segment; only the octets behind it can be targeted.
    let long = [Part { start: 40, end: 68, length: 100 }];
    let placed = |item: Said<'_>| judge(MessageType::Call, &long, &[item]);
    assert!(placed((8, 12, &[2, 4, 1, 0])).is_ok());
    assert_eq!(placed((8, 12, &[2, 0, 1, 0])), bad_offset(0, 4, 12));
    let whole = [Part { start: 40, end: 80, length: 100 }];
    let placed = |item: Said<'_>| judge(MessageType::Call, &whole, &[item]);
    assert_eq!(placed((8, 8, &[2, 0, 1, 0])), bad_number(0, 1, 1));
}

#[test]
fn an_offset_is_aligned_and_within_its_segment() {
    assert_eq!(call(&[(8, 4, &[2, 16, 1, 0])]), bad_offset(16, 0, 12));
    assert_eq!(call(&[(8, 4, &[2, u32::MAX, 1, 0])]), bad_offset(u32::MAX, 0, 12));
    assert_eq!(call(&[(8, 4, &[2, 6, 1, 0])]), bad_offset(6, 0, 12), "in range but not aligned");
    let shared = [(8, 6, &[2, 0, 1, 0][..]), (16, 4, &[2, 4, 1, 0])];
    assert_eq!(call(&shared), bad_offset(4, 8, 12), "inside the item before it");
}

#[test]
fn a_buffer_without_targets_has_no_valid_number() {
    let octets = array(&[(8, 4, &[2, 0, 1, 0])]);
    let items = Items::decode(&mut Reader::new(&octets)).unwrap();
    let (structure, parts) = (Structure::single(100), parts());
    let judged = Placement::new(items, MessageType::Call, &parts, &structure);
    let field = OutOfRange { value: 0, min: 1, max: 0 };
    assert_eq!(judged.map(|_| ()), Err(Fault::Report(ReportInfo::BadNumber(field))));
}

#[test]
fn items_stand_in_order_in_the_stream_they_were_taken_from() {
    // The Payload stream is 24 octets long, its first word the XID.
    let at = |disp| call(&[(disp, 4, &[2, 0, 1, 0])]);
    assert!(at(4).is_ok() && at(24).is_ok());
    assert_eq!(at(0), bad_offset(0, 4, 24), "before the XID");
    assert_eq!(at(28), bad_offset(28, 4, 24), "beyond the stream");
    assert_eq!(at(10), bad_offset(10, 4, 24), "not aligned");
    // An item of 5 octets takes 8 of the virtual stream, which becomes so much longer.
    let two = |disp| call(&[(8, 5, &[2, 0, 1, 0]), (disp, 4, &[2, 0, 1, 1])]);
    assert!(two(16).is_ok() && two(32).is_ok());
    assert_eq!(two(12), bad_offset(12, 16, 32));
    assert_eq!(two(36), bad_offset(36, 16, 32));
    // An item that stays in the Payload stream takes its octets there.
    let short = |disp, length| judge(MessageType::Reply, &parts(), &[(disp, length, &[5])]);
    assert!(short(20, 3).is_ok() && short(4, 20).is_ok());
    assert_eq!(short(24, 3), bad_offset(24, 4, 20));
    // The displacement of an absent item is not judged.
    assert!(judge(MessageType::Reply, &parts(), &[(99, 1, &[6])]).is_ok());
}

#[test]
fn what_no_error_of_the_draft_describes_breaks_a_rule() {
    // Table 1: valid XDR, but not in a request.
    for place in [5, 6] {
        let fault = Err(Fault::Rule("a result in a request"));
        assert_eq!(call(&[(8, 0, &[place])]), fault);
        assert!(judge(MessageType::Reply, &parts(), &[(8, 0, &[place])]).is_ok());
    }
    let segments = |length| call(&[(8, 9, &[1, 2, 7, 4, 0, 1, 7, length, 0, 2])]);
    assert_eq!(segments(5), Ok(vec![vec![]]));
    for length in [4, 6] {
        assert_eq!(
            segments(length),
            Err(Fault::Rule("segments that are not as long as their item"))
        );
    }
    let huge = [1, 1, 7, u32::MAX, 0, 0];
    let fault = Err(Fault::Rule("a virtual stream beyond 2^32 octets"));
    assert_eq!(call(&[(8, u32::MAX, &huge)]), fault);
}

#[test]
fn the_virtual_stream_is_payload_and_items_in_order() {
    let (structure, parts) = (structure(), parts());
    let octets =
        array(&[(8, 5, &[2, 0, 1, 0]), (16, 4, &[5]), (0, 0, &[6]), (28, 2, &[1, 1, 7, 2, 0, 0])]);
    let items = Items::decode(&mut Reader::new(&octets)).unwrap();
    let placement = Placement::new(items, MessageType::Reply, &parts, &structure).unwrap();
    let spans: Vec<_> = placement.stream().collect();
    let expected = [
        Span::Payload(0, 40..48),
        Span::Item(0, 5),
        Span::Pad(3),
        Span::Payload(0, 48..56),
        Span::Payload(1, 28..32),
        Span::Item(3, 2),
        Span::Pad(2),
        Span::Payload(1, 32..36),
    ];
    assert_eq!(spans, expected);
}
