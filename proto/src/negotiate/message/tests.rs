use std::vec;
use std::vec::Vec;

use super::*;
use crate::exchange::{Body, Offered, check_reply};
use crate::rpc::{AcceptStat, CallHeader, ReplyHeader};

const BOTH: [Version; 2] = [Version::One, Version::Two];
const AGREED: Agreement =
    Agreement { client_to_server: 4096, server_to_client: 4096, invalidation: true };

fn segments(handle: u32, lengths: &[u32]) -> Vec<Segment> {
    let segment =
        |(length, at): (&u32, u64)| Segment { handle: Handle(handle), length: *length, offset: at };
    lengths.iter().zip(1 << 40..).map(segment).collect()
}

/// Encodes a header, with its Payload stream behind it.
fn message(
    wire_len: usize,
    payload: &[u8],
    encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
) -> Vec<u8> {
    let mut bytes = vec![0; wire_len];
    let mut w = Writer::new(&mut bytes);
    encode(&mut w).expect("as long as was said");
    assert_eq!(w.position(), wire_len, "exactly as long as was said");
    bytes.extend(payload);
    bytes
}

fn received(version: Version, bytes: &[u8]) -> Received<'_> {
    match version {
        Version::One => Received::One(v1::header::decode_transport(bytes)),
        Version::Two => Received::Two(v2::header::decode_transport(bytes)),
    }
}

#[test]
fn an_unchunked_header_is_the_one_without_chunks() {
    let (xid, credit) = (0x0102_0304, 77);
    for version in BOTH {
        let (call, reply) = (CallChunks::default(), ReplyChunks::default());
        let call = message(call.wire_len(version), &[], |w| call.encode(version, w, xid, credit));
        let reply =
            message(reply.wire_len(version), &[], |w| reply.encode(version, w, xid, credit));
        for (kind, header) in [(Kind::Call, call), (Kind::Reply, reply)] {
            let mut room = [0x55; 40];
            put_unchunked_header(version, kind, &mut room, xid, credit).unwrap();
            let length = unchunked_header_len(version, kind);
            assert_eq!(room[..length], header);
            assert!(
                room[length..].iter().all(|octet| *octet == 0x55),
                "nothing behind it is touched"
            );
            let mut short = [0x55; 40];
            assert_eq!(
                put_unchunked_header(version, kind, &mut short[..length - 1], xid, credit),
                None
            );
            assert_eq!(short, [0x55; 40]);
        }
    }
}

#[test]
fn the_headers_of_results_are_the_two_one_behind_the_other() {
    let (xid, credit) = (0x0102_0304, 77);
    let chunks = ReplyChunks::default();
    let mut room = [0; 64];
    let mut w = Writer::new(&mut room);
    chunks.encode(Version::Two, &mut w, xid, credit).unwrap();
    ReplyHeader::accepted(xid, AcceptStat::Success).encode(&mut w).unwrap();
    let mut message = [0x55; 48];
    let (headers, patch) = (PlainHeaders::Results, HeaderPatch { xid, credit });
    headers.put(&mut message, patch).unwrap();
    assert_eq!(headers.len(), w.position());
    assert_eq!(Unchunked::of(&message), Some(patched(headers.kind(), patch)));
    assert_eq!((w.written(), message[44..].to_vec()), (&message[..44], vec![0x55; 4]));
    assert_eq!(headers.put(&mut message[..43], patch), None);
}

#[test]
fn the_headers_of_a_call_are_the_two_one_behind_the_other() {
    let (xid, credit) = (0x0102_0304, 77);
    let chunks = CallChunks::default();
    let mut room = [0; 80];
    let mut w = Writer::new(&mut room);
    chunks.encode(Version::Two, &mut w, xid, credit).unwrap();
    CallHeader::new(xid, 0x2000_0001, 3, 9).encode(&mut w).unwrap();
    let mut message = [0x55; 76];
    let (headers, patch) = (PlainHeaders::Call([0x2000_0001, 3, 9]), HeaderPatch { xid, credit });
    headers.put(&mut message, patch).unwrap();
    assert_eq!(headers.len(), w.position());
    assert_eq!(Unchunked::of(&message), Some(patched(headers.kind(), patch)));
    assert_eq!((w.written(), message[72..].to_vec()), (&message[..72], vec![0x55; 4]));
    assert_eq!(headers.put(&mut message[..71], patch), None);
}

#[test]
fn a_template_is_of_the_headers_that_it_was_made_of_and_of_no_others() {
    let all = [
        PlainHeaders::Results,
        PlainHeaders::Call([0x2000_0001, 3, 9]),
        PlainHeaders::Call([0x2000_0001, 3, 0]),
        PlainHeaders::Call([u32::MAX; 3]),
    ];
    assert_eq!(PlainHeaders::Results.template(), Some(PlainHeaders::RESULTS));
    for headers in all {
        let template = headers.template().unwrap();
        assert_eq!(PlainHeaders::of(&template), Some(headers));
        let patch = HeaderPatch { xid: 0x0102_0304, credit: 77 };
        let (mut written, mut made) = ([0x55; 76], [0x55; 76]);
        headers.put(&mut written, patch).unwrap();
        template.put(&mut made, patch).unwrap();
        assert_eq!(made, written);
        // A template is not plain if its patch is elsewhere or any octet differs.
        let octets = template.octets();
        let offsets = template.offsets();
        let [first, second] = offsets.xid;
        for xid in [[first, first], [second, second], [second, first], [first, 24]] {
            let other = HeaderTemplate::new(octets, PatchOffsets { xid, ..offsets }).unwrap();
            assert_eq!(PlainHeaders::of(&other), None, "{xid:?}");
        }
        for length in (12..octets.len()).step_by(4) {
            let offsets = PatchOffsets { xid: [0, 0], ..offsets };
            let other = HeaderTemplate::new(&octets[..length], offsets).unwrap();
            assert_eq!(PlainHeaders::of(&other), None, "{length}");
        }
        for at in 0..octets.len() {
            let mut octets = octets.to_vec();
            octets[at] ^= 1;
            let other = HeaderTemplate::new(&octets, offsets).unwrap();
            let found = PlainHeaders::of(&other);
            assert!(found != Some(headers) || other == template, "octet {at}");
            assert!(found.is_none_or(|found| found.template() == Some(other)), "octet {at}");
        }
    }
}

#[test]
fn the_headers_with_a_chunk_are_those_of_a_list_of_one() {
    let (xid, credit, handle) = (0x0102_0304, 77, Handle(0x0a0b_0c0d));
    let segment = Segment { handle, length: 4096, offset: 0x1234_5678_9abc_def0 };
    let returned = [v2::header::Returned { offered: &[segment], length: 100 }];
    let written = Segment { length: 100, ..segment };
    let forms = [(&[][..], None), (&returned, Some(&written))];
    for (version, (writes, written)) in BOTH.into_iter().flat_map(|one| forms.map(|it| (one, it))) {
        let mut room = [0; 100];
        let mut w = Writer::new(&mut room);
        let chunks = ReplyChunks { writes, reply: None };
        chunks.encode(version, &mut w, xid, credit).unwrap();
        let header_len = match written {
            Some(_) => single_chunk_header_len(version, Kind::Reply),
            None => unchunked_header_len(version, Kind::Reply),
        };
        assert_eq!(w.position(), header_len);
        ReplyHeader::accepted(xid, AcceptStat::Success).encode(&mut w).unwrap();
        let put = |message: &mut [u8]| {
            put_results_headers(version, message, HeaderPatch { xid, credit }, written)
        };
        let (mut message, length) = ([0x55; 100], w.position());
        put(&mut message).unwrap();
        assert_eq!(w.written(), &message[..length]);
        assert!(message[length..].iter().all(|octet| *octet == 0x55));
        assert_eq!(put(&mut message[..length - 1]), None);
    }

    let no_chunk = CallChunks { inv_handle: handle, ..CallChunks::default() };
    let written = CallChunks { writes: &[&[segment]], ..no_chunk };
    let read = CallChunks { reads: &[(44, &[segment])], ..no_chunk };
    for (position, chunks) in [(None, written), (Some(44), read)] {
        let mut room = [0; 100];
        let mut w = Writer::new(&mut room);
        chunks.encode(Version::Two, &mut w, xid, credit).unwrap();
        CallHeader::new(xid, 0x2000_0001, 3, 9).encode(&mut w).unwrap();
        let put = |message: &mut [u8]| {
            let (patch, asked) = (HeaderPatch { xid, credit }, [0x2000_0001, 3, 9]);
            put_call_headers_with(message, patch, handle, position, &segment, asked)
        };
        let mut message = [0x55; 100];
        put(&mut message).unwrap();
        assert_eq!((w.written(), message[96..].to_vec()), (&message[..96], vec![0x55; 4]));
        assert_eq!(put(&mut message[..95]), None);
    }
}

#[test]
fn a_call_arrives_with_the_chunks_it_was_sent_with() {
    let (body, read) = (segments(1, &[96, 6064]), segments(2, &[40, 2]));
    let (write, reply) = (segments(3, &[8]), segments(4, &[124, 4096, 8]));
    for version in BOTH {
        for (body, payload) in [(None, &[7; 8][..]), (Some(&body), &[])] {
            let chunks = CallChunks {
                inv_handle: Handle(3),
                body: body.map(Vec::as_slice),
                reads: &[(44, &read), (88, &read[..1])],
                writes: &[&write, &write],
                reply: Some(&reply),
            };
            let bytes =
                message(chunks.wire_len(version), payload, |w| chunks.encode(version, w, 5, 9));
            let call = Call::of(&received(version, &bytes), &AGREED).expect("a Call");
            assert_eq!((call.xid, call.payload), (5, payload));
            assert!(call.body().eq(body.into_iter().flatten().copied()));
            let items: Vec<_> = call.items().map(|chunk| chunk.position()).collect();
            assert_eq!((items, call.is_read()), (vec![44, 88], true));
            assert!(call.items().next().expect("two").segments().eq(read.iter().copied()));
            assert_eq!(call.writes.chunk_count(), 2);
            assert!(call.reply.expect("it is offered").segments().eq(reply.iter().copied()));
            // Version 1 cannot name a handle to invalidate, and chooses none of several.
            let solicited = Some(Handle(3)).filter(|_| version == Version::Two);
            assert_eq!(call.invalidate, solicited);
        }
    }
}

#[test]
fn the_only_handle_of_a_version_1_call_may_be_invalidated_if_both_agreed() {
    let write = segments(3, &[8]);
    let chunks = CallChunks { writes: &[&write], ..CallChunks::default() };
    let bytes =
        message(chunks.wire_len(Version::One), &[0; 8], |w| chunks.encode(Version::One, w, 5, 9));
    let received = received(Version::One, &bytes);
    let of = |invalidation| Call::of(&received, &Agreement { invalidation, ..AGREED });
    assert_eq!(of(true).expect("a Call").invalidate, Some(Handle(3)));
    assert_eq!(of(false).expect("a Call").invalidate, None);
    assert!(!of(true).expect("a Call").is_read());
}

#[test]
fn a_reply_returns_the_chunks_that_were_offered() {
    let (write, reply) = (segments(3, &[8, 8]), segments(4, &[16, 16]));
    for version in BOTH {
        for special in [false, true] {
            let chunks = ReplyChunks {
                writes: &[Returned { offered: &write, length: 9 }],
                reply: special.then_some(Returned { offered: &reply, length: 20 }),
            };
            let payload: &[u8] = if special { &[] } else { &[7; 8] };
            let bytes =
                message(chunks.wire_len(version), payload, |w| chunks.encode(version, w, 5, 9));
            let back = Reply::of(&received(version, &bytes)).expect("a Reply");
            assert_eq!((back.xid, back.payload), (5, payload));
            let reply = special.then_some(&reply[..]);
            let offered = Offered { writes: &[&write], reply, ..Offered::default() };
            let arrived = check_reply(version, &offered, &back.lists).expect("as it was offered");
            assert_eq!(arrived.writes[0].written, 9);
            let body = if special { Body::ReplyChunk { length: 20 } } else { Body::Inline };
            assert_eq!(arrived.body, body);
        }
    }
}

#[test]
fn what_carries_no_rpc_is_neither_call_nor_reply() {
    let grant = message(16, &[], |w| v2::header::encode_grant(w, 9));
    let error = v1::error::ErrorBody::Chunk;
    let refused = message(20, &[], |w| v1::header::encode_error(w, 5, 1, 9, &error));
    for received in [received(Version::Two, &grant), received(Version::One, &refused)] {
        assert!(Call::of(&received, &AGREED).is_none());
        assert!(Reply::of(&received).is_none());
    }
    assert!(Call::of(&received(Version::Two, &[]), &AGREED).is_none());
}
