#![expect(clippy::cast_possible_truncation, reason = "the values are small")]

use std::vec::Vec;

use super::*;
use crate::iwarp::mpa::Mulpdu;
use crate::iwarp::terminate::Code;
use crate::iwarp::testing::{CRC32C, Rng, vector};
use crate::iwarp::transmit::{Fpdu, Transmitter};

/// An event, with payload gathered per FPDU so that transcripts of different splits compare equal.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Header(Header),
    Payload(Vec<u8>),
    End(Delivery),
    Fault(Fault),
}

const SINK: Handle = Handle(0x8f7c_fe00);

/// Writes down what an FPDU says that took the short way.
fn note(lines: &mut Vec<Line>, whole: &Whole<'_>) {
    let length = whole.payload().len() as u32;
    let (header, delivery) = match whole.carried().unwrap() {
        Carried::Write { handle, offset, last } => {
            let delivery = if last { Delivery::Write } else { Delivery::Segment };
            (Header::Write { handle, offset, length }, delivery)
        }
        Carried::Send { invalidate } => {
            let delivery = Delivery::Send { length, invalidate, solicited: false };
            (Header::Send { offset: 0, length }, delivery)
        }
    };
    lines.push(Line::Header(header));
    if length > 0 {
        lines.push(Line::Payload(whole.payload().to_vec()));
    }
    lines.push(Line::End(delivery));
}

/// Feeds `stream` in pieces of the lengths `cut` draws, and writes down what happens. Whatever lies whole
/// in a piece takes the short way.
fn transcript(receiver: &mut Receiver, stream: &[u8], mut cut: impl FnMut() -> usize) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut rest = stream;
    loop {
        let (piece, behind) = rest.split_at(cut().min(rest.len()));
        let mut bytes = piece;
        loop {
            while let Some(whole) = receiver.whole(bytes, 0) {
                note(&mut lines, &whole);
                bytes = &bytes[whole.wire_len()..];
                let is_send = |whole: &Whole<'_>| {
                    matches!(whole.carried(), Some(Carried::Send { invalidate: None }))
                };
                // Sends that follow each other are passed together.
                let (mut last, mut sends) = (whole, 1);
                while is_send(&last)
                    && let Some(next) = receiver.whole(bytes, sends).filter(is_send)
                {
                    note(&mut lines, &next);
                    bytes = &bytes[next.wire_len()..];
                    (last, sends) = (next, sends + 1);
                }
                receiver.pass(&last);
                assert!(receiver.is_between());
            }
            match receiver.next(&mut bytes) {
                Ok(None) => break,
                Ok(Some(Event::Header(header))) => lines.push(Line::Header(header)),
                Ok(Some(Event::Payload(more))) => match lines.last_mut() {
                    Some(Line::Payload(payload)) => payload.extend(more),
                    _ => lines.push(Line::Payload(more.to_vec())),
                },
                Ok(Some(Event::End(delivery))) => {
                    lines.push(Line::End(delivery));
                    if delivery == (Delivery::ReadResponse { handle: SINK }) {
                        receiver.expect_read(SINK, 0, 3000);
                    }
                }
                Err(fault) => {
                    lines.push(Line::Fault(fault));
                    return lines;
                }
            }
        }
        assert!(bytes.is_empty(), "everything is eaten");
        if behind.is_empty() {
            return lines;
        }
        rest = behind;
    }
}

fn whole(crc: Option<Crc32c>, stream: &[u8]) -> Vec<Line> {
    let mut receiver = Receiver::new(crc);
    receiver.expect_read(SINK, 0x55f2_58f8_0550, 64);
    transcript(&mut receiver, stream, || usize::MAX)
}

fn append(stream: &mut Vec<u8>, fpdu: &Fpdu, payload: &[u8]) {
    stream.extend(fpdu.prefix());
    stream.extend(&payload[..fpdu.payload_len()]);
    stream.extend(fpdu.trailer());
}

/// Returns a stream with each kind of message, some in several segments; the response to the Read of `whole` comes
/// first.
fn stream(crc: Option<Crc32c>) -> Vec<u8> {
    let mut t = Transmitter::new(crc, Mulpdu::from_mss(1448));
    let message: Vec<u8> = (0..3000_u32).map(|i| i as u8).collect();
    let mut s = Vec::new();
    append(&mut s, &t.read_response(SINK, 0x55f2_58f8_0550, &message[..64]), &message);
    append(&mut s, &t.write(Handle(9), 0, &[]), &[]);
    append(&mut s, &t.send(None, 0, &[]), &[]);
    for length in [1, 2, 3, 4, 5, 1424, 1425, 3000] {
        let mut done = 0;
        while done < length {
            let rest = &message[done..length];
            let fpdu = t.send(Some(Handle(7)), done as u32, rest);
            append(&mut s, &fpdu, rest);
            done += fpdu.payload_len();
        }
        let mut done = 0;
        while done < length {
            let rest = &message[done..length];
            let fpdu = t.write(Handle(9), 1 << 40 | done as u64, rest);
            append(&mut s, &fpdu, rest);
            done += fpdu.payload_len();
        }
        let request = ReadRequest {
            sink: SINK,
            sink_offset: 1,
            length: 2,
            source: Handle(3),
            source_offset: 4,
        };
        append(&mut s, &t.read_request(&request), &[]);
    }
    let mut done = 0;
    while done < 3000 {
        let fpdu = t.read_response(SINK, done as u64, &message[done..]);
        append(&mut s, &fpdu, &message[done..]);
        done += fpdu.payload_len();
    }
    append(&mut s, &t.terminate(Fault::Local.code(), None), &[]);
    s
}

#[test]
fn what_linux_siw_writes_is_read() {
    let send = vector(include_str!("../../../vectors/iwarp/send.hex"));
    let delivery = Delivery::Send { length: 16, invalidate: None, solicited: false };
    assert_eq!(
        whole(None, &send),
        [
            Line::Header(Header::Send { offset: 0, length: 16 }),
            Line::Payload(send[20..36].to_vec()),
            Line::End(delivery)
        ]
    );
    let request = vector(include_str!("../../../vectors/iwarp/read_request.hex"));
    let delivery = Delivery::ReadRequest(ReadRequest {
        sink: Handle(0x8f7c_fe00),
        sink_offset: 0x55f2_58f8_0550,
        length: 64,
        source: Handle(0x9380_ae00),
        source_offset: 0x564f_4c68_f370,
    });
    assert_eq!(whole(None, &request), [Line::End(delivery)]);
    let response = vector(include_str!("../../../vectors/iwarp/read_response.hex"));
    assert_eq!(
        whole(None, &response),
        [
            Line::Header(Header::ReadResponse {
                handle: SINK,
                offset: 0x55f2_58f8_0550,
                length: 64
            }),
            Line::Payload(response[16..80].to_vec()),
            Line::End(Delivery::ReadResponse { handle: SINK })
        ]
    );
    let write = vector(include_str!("../../../vectors/iwarp/write.hex"));
    assert_eq!(
        whole(None, &write),
        [
            Line::Header(Header::Write {
                handle: Handle(0x0aee_0300),
                offset: 0x564f_4c68_f550,
                length: 64
            }),
            Line::Payload(write[16..80].to_vec()),
            Line::End(Delivery::Write)
        ]
    );
    let terminate = vector(include_str!("../../../vectors/iwarp/terminate.hex"));
    let code = Code { layer: 1, etype: 1, code: 0 };
    let delivery = Delivery::Terminate(Terminate { code });
    assert_eq!(whole(None, &terminate), [Line::End(delivery)]);
}

#[test]
fn every_truncation_of_a_vector_waits_for_more() {
    for text in [
        include_str!("../../../vectors/iwarp/send.hex"),
        include_str!("../../../vectors/iwarp/read_request.hex"),
        include_str!("../../../vectors/iwarp/read_response.hex"),
        include_str!("../../../vectors/iwarp/write.hex"),
        include_str!("../../../vectors/iwarp/terminate.hex"),
    ] {
        let bytes = vector(text);
        for cut in 0..bytes.len() {
            let lines = whole(None, &bytes[..cut]);
            assert!(!lines.iter().any(|l| matches!(l, Line::End(_) | Line::Fault(_))), "cut {cut}");
        }
        let mut receiver = Receiver::new(None);
        assert!(receiver.is_between());
        receiver.next(&mut &bytes[..1]).unwrap();
        assert!(!receiver.is_between(), "a stream may not end inside an FPDU");
    }
}

#[test]
fn any_split_of_a_stream_yields_the_same_events() {
    for crc in [None, Some(CRC32C)] {
        let stream = stream(crc);
        let expected = whole(crc, &stream);
        assert!(matches!(expected.last(), Some(Line::End(Delivery::Terminate(_)))));
        for seed in 1..200 {
            let mut rng = Rng::new(seed);
            let most = [1, 3, 21, 100, 2000][rng.below(5)];
            let mut receiver = Receiver::new(crc);
            receiver.expect_read(SINK, 0x55f2_58f8_0550, 64);
            let lines = transcript(&mut receiver, &stream, || 1 + rng.below(most));
            assert!(lines == expected, "seed {seed}");
        }
    }
}

#[test]
fn what_lies_whole_may_take_the_short_way_and_nothing_else() {
    for crc in [None, Some(CRC32C)] {
        let mut t = Transmitter::new(crc, Mulpdu::from_mss(1448));
        let long = [5; 1425];
        let mut send = Vec::new();
        append(&mut send, &t.send(None, 0, b"whole"), b"whole");
        let receiver = Receiver::new(crc);
        assert_eq!(receiver.whole(&send, 0).unwrap().payload(), b"whole");
        for cut in 0..send.len() {
            assert_eq!(receiver.whole(&send[..cut], 0), None, "cut {cut}");
        }
        // An FPDU is not whole if it is the next but one and the one before was not looked at, if it is cut, or if it
        // is not for the application.
        for (fpdu, behind) in [(t.send(None, 0, b"after"), 1), (t.send(None, 0, &long), 2)] {
            let mut octets = Vec::new();
            append(&mut octets, &fpdu, if fpdu.payload_len() == 5 { b"after" } else { &long });
            assert_eq!(receiver.whole(&octets, 0), None);
            assert_eq!(receiver.whole(&octets, 2), None);
            assert_eq!(receiver.whole(&octets, behind).is_some(), behind == 1);
        }
        let mut octets = Vec::new();
        append(&mut octets, &t.terminate(Fault::Local.code(), None), &[]);
        assert_eq!(receiver.whole(&octets, 0), None);
        // No FPDU is whole in the middle of another.
        let mut receiver = Receiver::new(crc);
        receiver.next(&mut &send[..1]).unwrap();
        assert_eq!(receiver.whole(&send, 0), None);
    }
}

#[test]
fn payload_received_into_place_is_the_same_as_payload_fed() {
    let stream = stream(Some(CRC32C));
    let expected = whole(Some(CRC32C), &stream);
    let mut receiver = Receiver::new(Some(CRC32C));
    receiver.expect_read(SINK, 0x55f2_58f8_0550, 64);
    let (mut rest, mut ends) = (&stream[..], Vec::new());
    let mut rng = Rng::new(1);
    while !rest.is_empty() {
        let direct = receiver.payload_remaining().min(1 + rng.below(900));
        if direct > 0 {
            receiver.placed(direct, |state| CRC32C(state, &rest[..direct]));
            rest = &rest[direct..];
            continue;
        }
        match receiver.next(&mut rest).unwrap() {
            Some(Event::End(delivery)) => {
                if delivery == (Delivery::ReadResponse { handle: SINK }) {
                    receiver.expect_read(SINK, 0, 3000);
                }
                ends.push(delivery);
            }
            Some(Event::Payload(_)) => panic!("all payload was taken"),
            _ => {}
        }
    }
    let expected: Vec<_> = expected
        .into_iter()
        .filter_map(|line| if let Line::End(delivery) = line { Some(delivery) } else { None })
        .collect();
    assert_eq!(ends, expected);
}

#[test]
fn a_flipped_bit_anywhere_is_a_crc_fault_and_delivers_nothing() {
    let mut t = Transmitter::new(Some(CRC32C), Mulpdu::from_mss(1448));
    let mut clean = Vec::new();
    append(&mut clean, &t.send(Some(Handle(7)), 0, b"hello"), b"hello");
    // Enough octets follow to satisfy a length that grew.
    let behind = [0; 0x1_0000];
    for bit in 0..clean.len() * 8 {
        let mut bytes = clean.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes.extend(behind);
        let lines = whole(Some(CRC32C), &bytes);
        assert_eq!(lines.last(), Some(&Line::Fault(Fault::Crc)), "bit {bit}");
        assert!(!lines.iter().any(|l| matches!(l, Line::End(_))), "bit {bit}");
    }
    assert!(matches!(whole(Some(CRC32C), &clean).last(), Some(Line::End(Delivery::Send { .. }))));
}

#[test]
fn without_crcs_the_field_is_ignored() {
    let mut send = vector(include_str!("../../../vectors/iwarp/send.hex"));
    send[36..].fill(0xff);
    assert!(matches!(whole(None, &send).last(), Some(Line::End(_))));
}

/// Returns the fault that a header alone provokes: `hex` is an FPDU without its CRC field.
fn provoke(hex: &str) -> Fault {
    let mut bytes = vector(hex);
    bytes.extend([0; 96]);
    match whole(None, &bytes).last() {
        Some(Line::Fault(fault)) => *fault,
        other => panic!("{hex}: {other:?}"),
    }
}

#[test]
fn every_broken_header_has_its_fault() {
    // ULPDU lengths that cannot hold their header.
    assert_eq!(provoke("0000"), Fault::UlpduLength);
    assert_eq!(provoke("0001 41"), Fault::UlpduLength);
    assert_eq!(provoke("0011 4143 00000000 00000000 00000001 000000"), Fault::UlpduLength);
    assert_eq!(provoke("000d c140 00000000 0000000000000000"), Fault::UlpduLength);
    // Versions.
    assert_eq!(provoke("0012 4043 00000000 00000000 00000001 00000000"), Fault::DdpVersionUntagged);
    assert_eq!(provoke("000e c240 00000000 0000000000000000"), Fault::DdpVersionTagged);
    assert_eq!(provoke("0012 4103 00000000 00000000 00000001 00000000"), Fault::RdmapVersion);
    // Operations, and where they may appear.
    for ulp in ["41", "43", "44", "47", "48", "4f"] {
        let tagged = std::format!("000e c1{ulp} 00000000 0000000000000000");
        assert_eq!(provoke(&tagged), Fault::UnexpectedOpcode, "{ulp}");
    }
    for (queue, ulp) in
        [(0, "40"), (0, "41"), (0, "42"), (0, "47"), (1, "43"), (2, "41"), (0, "49")]
    {
        let untagged = std::format!("0012 41{ulp} 00000000 0000000{queue} 00000001 00000000");
        assert_eq!(provoke(&untagged), Fault::UnexpectedOpcode, "{queue} {ulp}");
    }
    assert_eq!(provoke("0012 4143 00000000 00000003 00000001 00000000"), Fault::QueueNumber);
    // Message numbers and offsets.
    for msn in ["00000000", "00000002"] {
        for (queue, ulp) in [(0, "43"), (1, "41"), (2, "47")] {
            let fpdu = std::format!("0012 41{ulp} 00000000 0000000{queue} {msn} 00000000");
            assert_eq!(provoke(&fpdu), Fault::MessageNumber);
        }
    }
    for (queue, ulp) in [(0, "43"), (1, "41"), (2, "47")] {
        let fpdu = std::format!("0012 41{ulp} 00000000 0000000{queue} 00000001 00000004");
        assert_eq!(provoke(&fpdu), Fault::MessageOffset);
    }
    // A Read Request and a Terminate are one segment of the right length.
    assert_eq!(provoke("0012 4141 00000000 00000001 00000001 00000000"), Fault::UlpduLength);
    assert_eq!(provoke("002e 0141 00000000 00000001 00000001 00000000"), Fault::UlpduLength);
    assert_eq!(provoke("002f 4141 00000000 00000001 00000001 00000000"), Fault::UlpduLength);
    assert_eq!(provoke("0015 4147 00000000 00000002 00000001 00000000"), Fault::UlpduLength);
    // Tagged offsets.
    assert_eq!(provoke("000f c140 00000000 ffffffffffffffff"), Fault::TaggedWrap);
}

#[test]
fn reserved_bits_are_not_judged() {
    let mut send = vector(include_str!("../../../vectors/iwarp/send.hex"));
    send[2] |= 0x3c;
    send[3] |= 0x30;
    send[4..8].fill(0xff);
    assert!(matches!(whole(None, &send).last(), Some(Line::End(Delivery::Send { .. }))));
}

#[test]
fn a_read_response_must_be_that_of_the_oldest_read() {
    let t = Transmitter::new(None, Mulpdu::from_mss(1448));
    let answer = |handle, offset, length: usize, last: bool| {
        let payload = std::vec![1; length];
        let mut bytes = Vec::new();
        append(&mut bytes, &t.read_response(handle, offset, &payload), &payload);
        if !last {
            bytes[2] &= !0x40;
        }
        whole(None, &bytes).pop().unwrap()
    };
    let base = 0x55f2_58f8_0550;
    assert_eq!(answer(SINK, base, 64, true), Line::End(Delivery::ReadResponse { handle: SINK }));
    assert_eq!(answer(SINK, base, 63, false), Line::End(Delivery::Segment));
    assert_eq!(answer(Handle(1), base, 64, true), Line::Fault(Fault::TaggedStag));
    assert_eq!(answer(SINK, base + 1, 64, true), Line::Fault(Fault::TaggedBounds));
    assert_eq!(answer(SINK, base, 63, true), Line::Fault(Fault::TaggedBounds), "short");
    assert_eq!(answer(SINK, base, 65, true), Line::Fault(Fault::TaggedBounds), "long");
    assert_eq!(answer(SINK, base, 64, false), Line::Fault(Fault::TaggedBounds), "no last segment");
    let response = vector(include_str!("../../../vectors/iwarp/read_response.hex"));
    let mut unsolicited = Receiver::new(None);
    assert_eq!(transcript(&mut unsolicited, &response, || 7), [Line::Fault(Fault::TaggedStag)]);
}

#[test]
fn segments_of_one_send_are_of_one_kind() {
    let mut t = Transmitter::new(None, Mulpdu::from_mss(256));
    let message = [7; 300];
    let mut bytes = Vec::new();
    append(&mut bytes, &t.send(None, 0, &message), &message);
    let done = 256 - 6 - 18;
    append(&mut bytes, &t.send(Some(Handle(1)), done, &message[done as usize..]), &message);
    assert_eq!(whole(None, &bytes).pop(), Some(Line::Fault(Fault::UnexpectedOpcode)));
}

#[test]
fn a_refused_fpdu_places_nothing_more_and_ends_the_stream() {
    for crc in [None, Some(CRC32C)] {
        let t = Transmitter::new(crc, Mulpdu::from_mss(1448));
        for damaged in [false, true] {
            let mut bytes = Vec::new();
            append(&mut bytes, &t.write(Handle(9), 0, b"hello"), b"hello");
            if damaged {
                *bytes.last_mut().unwrap() ^= 1;
            }
            let mut receiver = Receiver::new(crc);
            let mut rest = &bytes[..];
            assert!(matches!(receiver.next(&mut rest), Ok(Some(Event::Header(_)))));
            let refused = receiver.refuse(Fault::TaggedStag);
            assert_eq!(receiver.payload_remaining(), 0);
            let expected = if crc.is_some() && damaged { Fault::Crc } else { Fault::TaggedStag };
            assert_eq!(refused.and(receiver.next(&mut rest).map(|_| ())), Err(expected));
            assert_eq!(receiver.next(&mut rest), Err(expected), "for good");
            let quote = receiver.quote().unwrap();
            assert_eq!((quote.length, quote.ddp, quote.rdmap), (19, &bytes[2..16], &[][..]));
        }
    }
}

#[test]
fn a_read_request_is_quoted_with_its_body() {
    let request = vector(include_str!("../../../vectors/iwarp/read_request.hex"));
    let mut receiver = Receiver::new(None);
    transcript(&mut receiver, &request, || 5);
    let quote = receiver.quote().unwrap();
    assert_eq!((quote.length, quote.ddp, quote.rdmap), (46, &request[2..20], &request[20..48]));
}

#[test]
fn garbage_never_panics_and_always_ends_or_waits() {
    for seed in 1..2000 {
        let mut rng = Rng::new(seed);
        let crc = if rng.below(2) == 0 { None } else { Some(CRC32C) };
        let mut bytes = if rng.below(2) == 0 { stream(crc) } else { std::vec![0; 3000] };
        for _ in 0..1 + rng.below(40) {
            let at = rng.below(bytes.len().min(400));
            bytes[at] = rng.below(256) as u8;
        }
        let mut receiver = Receiver::new(crc);
        receiver.expect_read(SINK, 0x55f2_58f8_0550, 64);
        let lines = transcript(&mut receiver, &bytes, || 1 + rng.below(500));
        assert!(lines.len() <= bytes.len());
    }
}

#[test]
fn every_fault_has_its_code_and_its_words() {
    use std::collections::BTreeSet;
    let rules: BTreeSet<_> = Fault::ALL.iter().map(|f| (f.code().layer, f.rule())).collect();
    assert!(rules.len() >= Fault::ALL.len() - 1, "only the two DDP versions share words");
    // Layer, error type and code, in the order of `ALL`: from the figures of the RFCs.
    let codes = [
        0x2002, 0x2003, 0x1104, 0x1206, 0x1201, 0x1203, 0x1202, 0x1204, 0x1205, 0x1100, 0x1101,
        0x1102, 0x1103, 0x0102, 0x0205, 0x0206, 0x0100, 0x0101, 0x0102, 0x0103, 0x0104, 0x0109,
        0x2006, 0x0207,
    ];
    for (fault, word) in Fault::ALL.into_iter().zip(codes) {
        let Code { layer, etype, code } = fault.code();
        let written = u16::from(layer) << 12 | u16::from(etype) << 8 | u16::from(code);
        assert_eq!(written, word, "{fault}");
    }
}

#[test]
fn a_terminate_is_understood_in_both_orders_of_its_nibbles() {
    // siw answers a Write to an STag that names nothing, and a Send that finds no buffer, in the other order.
    for (first, code, fault) in
        [(0x11, 0x00, Fault::TaggedStag), (0x21, 0x02, Fault::NoBuffer), (0x02, 0x02, Fault::Crc)]
    {
        let told = Terminate::decode(&mut Reader::new(&[first, code, 0, 0])).unwrap().code;
        let meant = told.swapped().unwrap_or(told);
        assert_eq!((meant, meant.rule()), (fault.code(), Some(fault.rule())));
    }
    // RFC 5040 has this order.
    let told = Terminate::decode(&mut Reader::new(&[0x12, 0x05, 0xff, 0xff])).unwrap().code;
    assert_eq!(told, Fault::MessageTooLong.code());
    assert_eq!(std::format!("{told}"), "layer 1, type 2, code 5: message longer than its Receive");
    let unknown = Code { layer: 7, etype: 7, code: 7 };
    assert_eq!((unknown.rule(), unknown.swapped()), (None, None));
    assert_eq!(std::format!("{unknown}"), "layer 7, type 7, code 7");
}

#[test]
fn the_machine_is_small() {
    assert!(core::mem::size_of::<Receiver>() <= 256);
}

#[test]
fn a_send_has_begun_from_its_first_header_to_its_last_octet() {
    let mut receiver = Receiver::new(None);
    let transmitter = &mut Transmitter::new(None, Mulpdu::default());
    let message = [7; 4000];
    let mut at = 0;
    for _ in 0..2 {
        while at < message.len() {
            let rest = &message[at..];
            let fpdu = transmitter.send(None, at as u32, rest);
            let payload = &rest[..fpdu.payload_len()];
            at += payload.len();
            let octets = [fpdu.prefix(), payload, fpdu.trailer()].concat();
            let header = fpdu.prefix().len();
            for (place, octet) in octets.iter().enumerate() {
                let begun = receiver.has_send_begun();
                assert_eq!(begun, at > payload.len() || place >= header, "{place}");
                let mut octet = &[*octet][..];
                while receiver.next(&mut octet).unwrap().is_some() {}
            }
            assert_eq!(receiver.has_send_begun(), at < message.len());
        }
        at = 0;
    }
}

#[test]
fn what_remains_of_a_read_shrinks_with_each_octet_of_its_response() {
    let mut receiver = Receiver::new(None);
    let transmitter = &mut Transmitter::new(None, Mulpdu::default());
    assert_eq!(receiver.read_remaining(), None);
    receiver.expect_read(SINK, 0, 4000);
    let (response, mut at) = ([7; 4000], 0);
    while at < response.len() {
        let fpdu = transmitter.read_response(SINK, at as u64, &response[at..]);
        let (mut prefix, mut trailer) = (fpdu.prefix(), fpdu.trailer());
        while receiver.next(&mut prefix).unwrap().is_some() {}
        for _ in 0..fpdu.payload_len() {
            assert_eq!(receiver.read_remaining(), Some(4000 - at));
            let mut octet = &[7][..];
            while receiver.next(&mut octet).unwrap().is_some() {}
            at += 1;
        }
        assert_eq!(receiver.read_remaining(), Some(4000 - at));
        while receiver.next(&mut trailer).unwrap().is_some() {}
    }
    assert_eq!(receiver.read_remaining(), None);
}
