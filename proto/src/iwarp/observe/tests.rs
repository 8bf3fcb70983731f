use std::format;
use std::string::String;
use std::vec::Vec;

use super::*;
use crate::iwarp::mpa::Mulpdu;
use crate::iwarp::mpa::handshake::{Active, Offer, Passive};
use crate::iwarp::rdmap::ReadRequest;
use crate::iwarp::testing::{CRC32C, Rng};
use crate::iwarp::transmit::{Fpdu as Made, Transmitter};
use crate::verbs::Handle;

const OFFER: Offer = Offer { crc: true, ord: 4, ird: 4, rtr: false };

/// The frames of a handshake, of which the Request asks for CRCs or not.
fn frames(crc: bool) -> (Vec<u8>, Vec<u8>) {
    let offer = Offer { crc, ..OFFER };
    let (_, request) = Active::new(offer, b"active").unwrap();
    let asked = Passive::new().handle(&mut &request[..]).unwrap().unwrap();
    let (reply, _) = asked.accept(&offer, b"passive").unwrap();
    (request.into_vec(), reply.into_vec())
}

/// Appends FPDUs until `payload` is sent.
fn send_all(stream: &mut Vec<u8>, payload: &[u8], mut make: impl FnMut(usize, &[u8]) -> Made) {
    let mut done = 0;
    loop {
        let fpdu = make(done, &payload[done..]);
        stream.extend(fpdu.prefix());
        stream.extend(&payload[done..done + fpdu.payload_len()]);
        stream.extend(fpdu.trailer());
        done += fpdu.payload_len();
        if done == payload.len() {
            return;
        }
    }
}

/// What the active end sends after its Request: a short Send, a Write, a long Send, a Read Request.
fn stream(crc: Option<Crc32c>) -> Vec<u8> {
    // FPDUs of 110 octets of payload.
    let mut transmitter = Transmitter::new(crc, Mulpdu::from_mss(0));
    let mut stream = Vec::new();
    send_all(&mut stream, b"short", |_, rest| transmitter.send(None, 0, rest));
    let data = [7; 150];
    send_all(&mut stream, &data, |done, rest| transmitter.write(Handle(9), done as u64, rest));
    let long: Vec<u8> = (0..=249).collect();
    send_all(&mut stream, &long, |done, rest| {
        transmitter.send(Some(Handle(3)), u32::try_from(done).unwrap(), rest)
    });
    let request = ReadRequest {
        sink: Handle(1),
        sink_offset: 0,
        length: 8,
        source: Handle(2),
        source_offset: 0,
    };
    let fpdu = transmitter.read_request(&request);
    stream.extend(fpdu.prefix());
    stream.extend(fpdu.trailer());
    stream
}

/// Writes down what an observer sees of octets that come in pieces.
fn seen(
    observer: &mut Observer,
    octets: &[u8],
    mut piece: impl FnMut() -> usize,
) -> (Vec<String>, Option<Unreadable>) {
    let mut lines = Vec::new();
    let mut rest = octets;
    while !rest.is_empty() {
        let (mut bytes, behind) = rest.split_at(piece().min(rest.len()));
        rest = behind;
        loop {
            match observer.next(End::Active, &mut bytes) {
                Ok(Some(seen)) => lines.push(match seen {
                    Seen::Frame(frame) => format!("{:?} {:?}", frame.kind, frame.private_data),
                    Seen::Fpdu(fpdu, message) => {
                        let crc = fpdu.crc;
                        match message {
                            Message::Whole(octets) => format!("whole {crc:?} {octets:?}"),
                            message => format!("{message:?} {crc:?} {}", fpdu.payload.len()),
                        }
                    }
                }),
                Ok(None) => break,
                Err(why) => {
                    assert_eq!(observer.next(End::Active, &mut bytes).unwrap_err(), why);
                    return (lines, Some(why));
                }
            }
        }
        assert!(bytes.is_empty(), "a piece is taken");
    }
    (lines, None)
}

/// Creates an observer that has seen the handshake.
fn opened(crc: bool) -> Observer {
    let (request, reply) = frames(crc);
    let mut observer = Observer::new(CRC32C, 1000);
    assert!(matches!(observer.next(End::Active, &mut &request[..]), Ok(Some(Seen::Frame(_)))));
    assert!(matches!(observer.next(End::Passive, &mut &reply[..]), Ok(Some(Seen::Frame(_)))));
    observer
}

#[test]
fn whatever_the_pieces_each_frame_and_fpdu_is_seen_once_and_sends_are_put_together() {
    let mut all = frames(true).0;
    all.extend(stream(Some(CRC32C)));
    let whole = seen(&mut Observer::new(CRC32C, 1000), &all, || usize::MAX);
    let long: Vec<u8> = (0..=249).collect();
    let expected = [
        format!("Request {:?}", b"active"),
        format!("whole Right {:?}", b"short"),
        "None Right 114".into(),
        "None Right 36".into(),
        "Part(110) Right 110".into(),
        "Part(220) Right 110".into(),
        format!("whole Right {long:?}"),
        "None Right 28".into(),
    ];
    assert_eq!(whole, (expected.into(), None));
    let mut rng = Rng::new(3);
    for _ in 0..50 {
        let mut observer = Observer::new(CRC32C, 1000);
        assert_eq!(seen(&mut observer, &all, || 1 + rng.below(40)), whole);
    }
}

#[test]
fn a_wrong_crc_delivers_no_send_where_crcs_are_used() {
    let mut octets = stream(Some(CRC32C));
    octets[25] ^= 1;
    let (lines, end) = seen(&mut opened(true), &octets, || usize::MAX);
    assert_eq!((lines[0].as_str(), end), ("Broken(Crc) Wrong 5", None));
    assert!(lines[5].starts_with("whole Right"), "{lines:?}");
    let (lines, _) = seen(&mut opened(false), &octets, || usize::MAX);
    assert!(lines[0].starts_with("whole Wrong"), "{lines:?}");
    let (lines, _) = seen(&mut opened(false), &stream(None), || usize::MAX);
    assert!(lines[0].starts_with("whole Zero"), "{lines:?}");
}

#[test]
fn octets_missing_within_an_fpdu_cost_its_message_and_no_other() {
    let octets = stream(Some(CRC32C));
    // The FPDU of the short Send has 32 octets. From 40 octets of the next on, 70 are missing.
    let (before, behind) = (&octets[..72], &octets[142..]);
    let mut observer = opened(true);
    assert_eq!(seen(&mut observer, before, || usize::MAX).0.len(), 1);
    assert_eq!(observer.missing(End::Active, 70), Ok(()));
    let (lines, end) = seen(&mut observer, behind, || 5);
    assert_eq!((lines[0].as_str(), lines.len(), end), ("None Right 36", 5, None));
    // All that is left of the FPDU may be missing.
    let mut observer = opened(true);
    seen(&mut observer, &octets[..72], || usize::MAX);
    // Length, header, payload, padding, CRC.
    let end_of_fpdu = 32 + 2 + 14 + 114 + 2 + 4;
    assert_eq!(observer.missing(End::Active, (end_of_fpdu - 72) as u64), Ok(()));
    assert_eq!(seen(&mut observer, &octets[end_of_fpdu..], || 5).0, lines);
}

#[test]
fn a_part_of_a_send_that_is_missing_breaks_the_send() {
    let mut transmitter = Transmitter::new(Some(CRC32C), Mulpdu::from_mss(0));
    let mut octets = Vec::new();
    let mut starts = Vec::new();
    send_all(&mut octets, &[1; 330], |done, rest| {
        starts.push(done);
        transmitter.send(None, u32::try_from(done).unwrap(), rest)
    });
    send_all(&mut octets, &[2; 5], |_, rest| transmitter.send(None, 0, rest));
    assert_eq!(starts, [0, 110, 220]);
    let mut observer = opened(true);
    // Each FPDU has 136 octets. Of the second all but its length is missing.
    assert_eq!(seen(&mut observer, &octets[..138], || usize::MAX).0, ["Part(110) Right 110"]);
    assert_eq!(observer.missing(End::Active, 134), Ok(()));
    let (lines, end) = seen(&mut observer, &octets[272..], || usize::MAX);
    let whole = format!("whole Right {:?}", [2; 5]);
    assert_eq!((lines, end), (["Incomplete Right 110".into(), whole].into(), None));
}

#[test]
fn octets_missing_beyond_an_fpdu_end_what_can_be_read_of_that_end() {
    let octets = stream(Some(CRC32C));
    for (seen_first, count) in [(32, 1), (33, 1), (72, 1000), (0, u64::MAX)] {
        let mut observer = opened(true);
        seen(&mut observer, &octets[..seen_first], || usize::MAX);
        assert_eq!(observer.missing(End::Active, count), Err(Unreadable::Missing), "{seen_first}");
        let after = observer.next(End::Active, &mut &octets[..]);
        assert_eq!(after.unwrap_err(), Unreadable::Missing);
        assert_eq!(observer.missing(End::Active, 1), Err(Unreadable::Missing));
        let other = observer.next(End::Passive, &mut &octets[..]);
        assert!(matches!(other, Ok(Some(Seen::Fpdu(_, Message::Whole(b"short"))))), "{other:?}");
    }
}

#[test]
fn what_is_no_mpa_or_has_markers_cannot_be_read() {
    let mut observer = Observer::new(CRC32C, 1000);
    let why = Unreadable::Frame(FrameFault::NotMpa);
    assert_eq!(observer.next(End::Active, &mut &b"GET / HTTP/1.1"[..]).unwrap_err(), why);
    let (request, mut reply) = frames(false);
    let mut observer = Observer::new(CRC32C, 1000);
    observer.next(End::Active, &mut &request[..]).unwrap();
    // The passive end asks for markers, so the active end sends them.
    reply[16] |= 0x80;
    assert!(matches!(observer.next(End::Passive, &mut &reply[..]), Ok(Some(Seen::Frame(_)))));
    let why = Unreadable::Frame(FrameFault::Markers);
    assert_eq!(observer.next(End::Active, &mut &[0; 40][..]).unwrap_err(), why);
    assert!(observer.next(End::Passive, &mut &[0; 40][..]).is_ok());
}

#[test]
fn a_send_longer_than_allowed_is_broken_and_the_memory_is_given_back() {
    let octets = stream(Some(CRC32C));
    let mut observer = Observer::new(CRC32C, 200);
    let request = frames(true).0;
    observer.next(End::Active, &mut &request[..]).unwrap();
    let (lines, _) = seen(&mut observer, &octets, || usize::MAX);
    assert_eq!(lines[4], "Broken(MessageTooLong) Right 110");
    assert_eq!(lines[5], "Incomplete Right 30");
    assert!(observer.memory() < 4000, "{}", observer.memory());
}

#[test]
fn headers_that_break_a_rule_end_nothing() {
    let mut octets = stream(None);
    // The RDMAP version of the first FPDU.
    octets[3] = 0x03;
    let mut observer = opened(false);
    let mut bytes = &octets[..];
    let Ok(Some(Seen::Fpdu(fpdu, Message::None))) = observer.next(End::Active, &mut bytes) else {
        panic!("an FPDU")
    };
    assert_eq!((fpdu.segment, fpdu.ulpdu_length), (Err(Fault::RdmapVersion), 23));
    assert!(matches!(observer.next(End::Active, &mut bytes), Ok(Some(Seen::Fpdu(..)))));
}

#[test]
fn sends_out_of_turn_are_broken_and_the_next_is_whole() {
    let mut transmitter = Transmitter::new(Some(CRC32C), Mulpdu::from_mss(0));
    let mut octets = Vec::new();
    // It begins in its middle; another Send begins before the one before it is complete, and goes on elsewhere.
    send_all(&mut octets, &[1; 5], |_, rest| transmitter.send(None, 7, rest));
    for (offset, length) in [(0, 300), (0, 300), (112, 5)] {
        let fpdu = transmitter.send(None, offset, &[2; 300][..length]);
        octets.extend(fpdu.prefix());
        octets.extend(&[2; 300][..fpdu.payload_len()]);
        octets.extend(fpdu.trailer());
    }
    send_all(&mut octets, &[3; 5], |_, rest| transmitter.send(None, 0, rest));
    let (lines, end) = seen(&mut opened(true), &octets, || usize::MAX);
    let expected = [
        "Broken(MessageNumber) Right 5".into(),
        "Part(110) Right 110".into(),
        "Part(110) Right 110".into(),
        "Broken(MessageOffset) Right 5".into(),
        format!("whole Right {:?}", [3; 5]),
    ];
    assert_eq!((lines, end), (expected.into(), None));
}
