use std::vec;
use std::vec::Vec;

use super::*;
use crate::rtrext::direction::Directed;
use crate::rtrext::header::{Header, decode};
use crate::rtrext::properties::Offer;
use crate::rtrext::structure::{BufferSegment, FLAG_TARGETABLE};
use crate::testing::vectors;
use crate::v2::properties::Properties;
use crate::verbs::Handle;

/// Returns the terms agreed with a peer of these receive buffers: plain segments have positive lengths, targetable ones
/// negative.
fn terms(peer: &[i32], support: u32) -> Terms {
    let segments: Vec<_> = peer
        .iter()
        .map(|&length| BufferSegment {
            length: length.unsigned_abs(),
            align: 4,
            flags: if length < 0 { FLAG_TARGETABLE } else { 0 },
        })
        .collect();
    let offer = Offer {
        support,
        structure: Structure::new(&segments),
        request_receive_max: 8,
        response_send_max: 8,
    };
    let base = Properties {
        send_size_max: 1 << 20,
        receive_buffer_size: 1 << 20,
        ..Properties::default()
    };
    Terms::new((&offer, &base), (&offer, None), 8)
}

fn item(disp: u32, length: u32, place: Source) -> Item<Source> {
    Item { disp, length, place }
}

fn request<'a>(payload_length: usize, items: &'a [Item<Source>]) -> Outgoing<'a> {
    Outgoing { kind: Kind::Request { rsd: &[], rsbuf: 0 }, payload_length, items }
}

/// Writes all transmissions into memory that was full of something else.
fn encoded(
    plan: &Plan,
    ids: (u32, u32),
    message: &Outgoing<'_>,
    payload: &[u8],
    items: &[&[u8]],
) -> Vec<Vec<u8>> {
    let content = Content { payload, items };
    let write = |transmission: usize| {
        let mut memory = vec![0xee; plan.length(transmission)];
        let mut w = Writer::new(&mut memory);
        plan.encode(&mut w, transmission, ids, message, content).unwrap();
        assert_eq!(w.room(), 0, "as long as was said");
        for room in 0..memory.len() {
            let mut short = vec![0; room];
            let mut w = Writer::new(&mut short);
            assert!(plan.encode(&mut w, transmission, ids, message, content).is_err());
        }
        memory
    };
    (0..plan.transmissions()).map(write).collect()
}

fn vector(file: &str, name: &str) -> Vec<u8> {
    let text = match file {
        "xmtreq" => include_str!("../../../vectors/rtrext/xmtreq.hex"),
        _ => include_str!("../../../vectors/rtrext/xmtcont.hex"),
    };
    vectors(text).into_iter().find(|(section, _)| section == name).unwrap().1
}

#[test]
fn a_message_without_bulk_data_is_a_header_and_its_payload() {
    let expected = vector("xmtreq", "plain");
    let message = request(40, &[]);
    let plan = Plan::new(&terms(&[1024], 1), &message).unwrap();
    let sent = encoded(&plan, (0x1bad_cafe, 33), &message, &expected[36..], &[]);
    assert_eq!(sent, [expected]);
}

#[test]
fn bulk_data_lands_behind_zeroed_padding_at_the_start_of_a_target() {
    let expected = vector("xmtreq", "send");
    let items = [item(44, 6, Source::Send)];
    let message = request(48, &items);
    let plan = Plan::new(&terms(&[116, -4, -4], 1), &message).unwrap();
    let sent = encoded(&plan, (0x1bad_cb00, 35), &message, &expected[64..112], &[b"hello!"]);
    assert_eq!(sent, [expected]);
}

#[test]
fn a_payload_that_is_too_long_goes_on_in_continuations() {
    let [first, second] = [vector("xmtreq", "read"), vector("xmtcont", "payload")];
    let segment = |handle, length, offset| Segment { handle: Handle(handle), length, offset };
    let segments = vec![
        segment(0x00a1_b2c3, 65536, 0x12_3456_0000),
        segment(0x00a1_b2c4, 4465, 0x12_3457_0000),
    ];
    let items = [item(44, 70001, Source::Exrw(segments))];
    let message = request(48, &items);
    let max = i32::try_from(first.len()).unwrap();
    let plan = Plan::new(&terms(&[max], 5), &message).unwrap();
    let payload = [&first[84..], &second[28..]].concat();
    let sent = encoded(&plan, (0x1bad_caff, 34), &message, &payload, &[&[]]);
    assert_eq!(sent, [first, second]);
}

#[test]
fn to_a_peer_without_targets_no_item_is_sent_but_it_hears_where_to_fetch_one() {
    let segment = |handle, length, offset| Segment { handle: Handle(handle), length, offset };
    let segments = [segment(7, 4096, 0x1_0000), segment(9, 904, 0x8000)];
    let sent = [item(8, 5000, Source::Send)];
    let read = [item(8, 5000, Source::Exrw(segments.to_vec()))];
    // One peer does not describe its buffers, and two have buffers without a targetable segment.
    for peer in [&[][..], &[128], &[128, 8192]] {
        let agreed = terms(peer, 1);
        assert_eq!(Plan::new(&agreed, &request(8, &sent)), Err(Unfit::NoTarget), "{peer:?}");
        let message = request(8, &read);
        let plan = Plan::new(&agreed, &message).unwrap();
        let sent = encoded(&plan, (7, 9), &message, &[0, 0, 0, 7, 0, 0, 0, 0], &[&[]]);
        let Ok((_, Header::Request(heard))) = decode(&sent[0]) else { panic!("{sent:?}") };
        let items: Vec<_> = heard.dp.iter().collect();
        let [Item { disp: 8, length: 5000, place: Location::Exrw(chunk) }] = &items[..] else {
            panic!("{items:?}")
        };
        assert_eq!(chunk.segments().collect::<Vec<_>>(), segments, "{peer:?}");
    }
}

#[test]
fn directions_are_written_as_they_are_read() {
    let expected = vector("xmtreq", "directed");
    let offered = [Segment { handle: Handle(0x00d4_e5f6), length: 4096, offset: 0x7fff_0000 }];
    let choice = [Segment { handle: Handle(0x00d4_e5f7), length: 3, offset: u64::MAX - 3 }];
    let first = [Direction { minlen: 1024, place: Directed::Exrw(&offered[..]) }];
    let second = [
        Direction { minlen: 0, place: Directed::Tbsn },
        Direction { minlen: 16, place: Directed::Choice(&choice[..]) },
        Direction { minlen: 32, place: Directed::BySize { dsdov: 8192, segments: &[][..] } },
    ];
    let rsd = [
        Directive { begin: 40, end: 48, items: &first },
        Directive { begin: 48, end: 56, items: &second },
    ];
    let kind = Kind::Request { rsd: &rsd, rsbuf: 3 };
    let message = Outgoing { kind, payload_length: 56, items: &[] };
    let plan = Plan::new(&terms(&[1024], 7), &message).unwrap();
    let payload = &expected[expected.len() - 56..];
    let sent = encoded(&plan, (0x1bad_cb01, 0xffff_fff0), &message, payload, &[]);
    assert_eq!(sent, [expected]);
    // A request asks for no more than we can take: eight transmissions, seven beyond the first.
    let kind = Kind::Request { rsd: &rsd, rsbuf: 100 };
    let message = Outgoing { kind, ..message };
    assert_eq!(Plan::new(&terms(&[1024], 7), &message).unwrap().rsbuf, 7);
    assert_eq!(Plan::new(&terms(&[1024], 3), &message).unwrap().rsbuf, 0);
}

#[test]
fn bulk_data_starts_behind_the_last_of_the_payload_stream() {
    // Two targets in each buffer of 256 octets, at 128 and at 192.
    let agreed = terms(&[128, -64, -64], 5);
    // The header has 16 + 24 + 16 octets, and 4 for each number.
    let layout = |payload, length| {
        let items = [item(8, length, Source::Send)];
        let plan = Plan::new(&agreed, &request(payload, &items)).unwrap();
        let numbers: Vec<_> = plan.slots.iter().map(|slot| slot.number).collect();
        let sent: Vec<_> =
            plan.transmissions.iter().map(|sent| (sent.payload.len(), sent.length)).collect();
        (sent, numbers)
    };
    assert_eq!(layout(68, 64), (vec![(68, 192)], vec![0]), "up to the first");
    assert_eq!(layout(72, 64), (vec![(72, 256)], vec![1]), "up to the second");
    assert_eq!(layout(128, 60), (vec![(128, 252)], vec![1]));
    assert_eq!(layout(64, 65), (vec![(64, 193)], vec![0, 1]), "in both");
    assert_eq!(layout(60, 130), (vec![(60, 256), (0, 130)], vec![0, 1, 2]), "and in the next");
    assert_eq!(layout(136, 64), (vec![(136, 196), (0, 192)], vec![2]), "no room in the first");
    assert_eq!(layout(200, 64), (vec![(196, 256), (4, 192)], vec![2]), "nor for the payload");
    // Two items: each at the start of a segment.
    let items = [item(8, 5, Source::Send), item(16, 3, Source::Send)];
    let plan = Plan::new(&agreed, &request(16, &items)).unwrap();
    let pieces: Vec<_> = plan.pieces(0).collect();
    let expected = [
        Piece::Payload(0..16),
        Piece::Zeros(128 - 16 - 84),
        Piece::Item(0, 0..5),
        Piece::Zeros(59),
        Piece::Item(1, 0..3),
    ];
    assert_eq!(pieces, expected);
    assert_eq!(plan.pieces(1).count(), 0);
}

#[test]
fn a_target_that_no_message_fills_takes_only_what_ends_in_it() {
    // The peer's buffers have 200 octets, of which no message uses more than 160.
    let mut agreed = terms(&[96, -40, -64], 5);
    agreed.message_max = 160;
    let numbers = |length| {
        let items = [item(8, length, Source::Send)];
        let plan = Plan::new(&agreed, &request(8, &items)).unwrap();
        plan.slots.iter().map(|slot| (slot.number, slot.range.len())).collect::<Vec<_>>()
    };
    assert_eq!(numbers(64), [(0, 40), (1, 24)]);
    assert_eq!(numbers(65), [(0, 40), (2, 25)], "the second would go on");
}

#[test]
fn what_does_not_fit_is_refused() {
    let one = [item(8, 1, Source::Send)];
    let plan = |terms: &Terms, payload, items: &[Item<Source>]| {
        Plan::new(terms, &request(payload, items)).map(|plan| plan.transmissions())
    };
    let all = terms(&[128, -64], 7);
    for support in [0, 2, 4, 6] {
        let agreed = terms(&[128, -64], support);
        assert_eq!(plan(&agreed, 8, &[]), Err(Unfit::NotAgreed), "{support}");
    }
    let kind = Kind::Response { count_max: 8 };
    let response = Outgoing { kind, payload_length: 8, items: &[] };
    assert_eq!(Plan::new(&terms(&[128], 5), &response), Err(Unfit::NotAgreed));
    assert_eq!(plan(&all, 0, &[]), Err(Unfit::NotAPayload));
    assert_eq!(plan(&all, 6, &[]), Err(Unfit::NotAPayload));
    assert_eq!(plan(&terms(&[128], 7), 8, &one), Err(Unfit::NoTarget));
    assert_eq!(plan(&terms(&[24, -64], 7), 8, &one), Err(Unfit::NoTarget), "inside any header");
    assert_eq!(plan(&terms(&[28, -64, 4, -64], 7), 8, &one), Ok(1), "in the second");
    assert_eq!(plan(&terms(&[36], 7), 8, &[]), Err(Unfit::HeaderTooLong));
    assert_eq!(plan(&terms(&[28], 7), 8, &[]), Err(Unfit::HeaderTooLong));
    assert_eq!(plan(&terms(&[128], 3), 96, &[]), Err(Unfit::TooManyTransmissions), "one is all");
    assert_eq!(plan(&terms(&[128], 3), 92, &[]), Ok(1));
    // Eight are agreed on: 92 octets in the first, 100 in each other.
    assert_eq!(plan(&terms(&[128], 7), 792, &[]), Ok(8));
    assert_eq!(plan(&terms(&[128], 7), 796, &[]), Err(Unfit::TooManyTransmissions));
    let many = [item(8, 8 * 64, Source::Send)];
    assert_eq!(plan(&all, 8, &many), Ok(8));
    let many = [item(8, 8 * 64 + 1, Source::Send)];
    assert_eq!(plan(&all, 8, &many), Err(Unfit::TooManyTransmissions));
    let many = [item(8, u32::MAX, Source::Send)];
    assert_eq!(plan(&terms(&[128, -1], 7), 8, &many), Err(Unfit::TooManyTransmissions));
    // A response has as many transmissions as its request leaves room for.
    let kind = Kind::Response { count_max: 2 };
    let fits = |payload_length| {
        Plan::new(&all, &Outgoing { kind, payload_length, items: &[] }).map(|p| p.transmissions())
    };
    assert_eq!((fits(328), fits(332)), (Ok(2), Err(Unfit::TooManyTransmissions)));
    // A response has no more transmissions than were announced.
    let kind = Kind::Response { count_max: 100 };
    let fits = |payload_length| {
        Plan::new(&all, &Outgoing { kind, payload_length, items: &[] }).map(|p| p.transmissions())
    };
    assert_eq!((fits(1312), fits(1316)), (Ok(8), Err(Unfit::TooManyTransmissions)));
}
