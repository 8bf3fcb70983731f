//! A stream of FPDUs, cut into pieces anywhere.

use haulage::sys::crc::crc32c;
use haulage_proto::iwarp::Crc32c;
use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::rdmap::ReadRequest;
use haulage_proto::iwarp::receive::{Delivery, Event, Header, Receiver};
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::iwarp::transmit::{Fpdu, Transmitter};
use haulage_proto::verbs::Handle;

use super::super::bound::bounded;
use super::super::octets::{octet, some_octets, spoil, word};
use crate::world::choices::Choices;

/// Checks that a stream received whole and in pieces gives the same events.
pub(in super::super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let crc: Option<Crc32c> = choices.one_in(2).then_some(crc32c);
    let stream = stream(crc, &mut choices);
    let whole = transcript(crc, &stream, || usize::MAX);
    let pieces = transcript(crc, &stream, || choices.of(1..=33));
    assert_eq!(pieces, whole, "cut as it may be");
}

/// An event of the stream, with the payload gathered for each FPDU.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Header(Header),
    Payload(Vec<u8>),
    End(Delivery),
    Fault(Fault),
}

fn transcript(crc: Option<Crc32c>, stream: &[u8], mut piece: impl FnMut() -> usize) -> Vec<Line> {
    let mut receiver = Receiver::new(crc);
    receiver.expect_read(SINK, 0, READ_LENGTH);
    let mut lines = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (mut bytes, behind) = rest.split_at(piece().min(rest.len()));
        rest = behind;
        let events_max = 2 * bytes.len() + 4;
        for count in 0.. {
            assert!(count < events_max, "the events of a piece are bounded by its octets");
            let left = bytes.len();
            match bounded(0, || receiver.next(&mut bytes)) {
                Ok(None) => break,
                Ok(Some(event)) => {
                    assert!(bytes.len() <= left);
                    note(&mut receiver, &mut lines, event);
                }
                Err(fault) => {
                    assert_eq!(receiver.next(&mut bytes), Err(fault), "a stream ends once");
                    assert!(receiver.payload_remaining() == 0 && !receiver.is_between());
                    quote(&receiver);
                    lines.push(Line::Fault(fault));
                    return lines;
                }
            }
        }
        assert!(bytes.is_empty(), "a piece is eaten");
    }
    lines
}

fn note(receiver: &mut Receiver, lines: &mut Vec<Line>, event: Event<'_>) {
    match event {
        Event::Header(header) => {
            let (Header::Write { length, .. }
            | Header::ReadResponse { length, .. }
            | Header::Send { length, .. }) = header;
            assert_eq!(usize::try_from(length), Ok(receiver.payload_length()));
            assert_eq!(receiver.payload_remaining(), receiver.payload_length());
            lines.push(Line::Header(header));
            if matches!(header, Header::Write { handle: REFUSED, .. }) {
                // Without CRCs the stream ends at once, and `next` returns the fault again.
                let refused = receiver.refuse(Fault::TaggedStag);
                assert!(matches!(refused, Ok(()) | Err(Fault::TaggedStag)));
            }
        }
        Event::Payload(octets) => match lines.last_mut() {
            Some(Line::Payload(gathered)) => gathered.extend_from_slice(octets),
            _ => lines.push(Line::Payload(octets.to_vec())),
        },
        Event::End(delivery) => {
            assert!(receiver.is_between(), "and the next FPDU may begin");
            if matches!(delivery, Delivery::ReadResponse { .. }) {
                receiver.expect_read(SINK, 0, READ_LENGTH);
            }
            lines.push(Line::End(delivery));
        }
    }
}

/// Checks that a Terminate message about any fault can be made.
fn quote(receiver: &Receiver) {
    let transmitter = Transmitter::new(None, Mulpdu::default());
    for fault in Fault::ALL {
        let fpdu = transmitter.terminate(fault.code(), receiver.quote().as_ref());
        assert!(fpdu.prefix().len() <= 2 + 18 + 4 + 2 + 18 + ReadRequest::WIRE_LEN);
    }
}

/// Draws a stream of FPDUs, of which some are spoiled, or of any octets.
pub(super) fn stream(crc: Option<Crc32c>, choices: &mut Choices) -> Vec<u8> {
    if choices.one_in(8) {
        return some_octets(choices, 255);
    }
    let mut transmitter = Transmitter::new(crc, Mulpdu::from_mss(0));
    let mut stream = Vec::new();
    for _ in 0..choices.of(1..=8) {
        let payload = some_octets(choices, 160);
        let mut octets = Vec::new();
        let place = (Handle(choices.pick(&[1, 2, 3])), choices.number());
        match choices.below(8) {
            0 | 1 => {
                let invalidate = choices.one_in(2).then_some(place.0);
                cut(&mut octets, &payload, |done, rest| {
                    transmitter.send(invalidate, u32::try_from(done).unwrap_or(u32::MAX), rest)
                });
            }
            2 | 3 => cut(&mut octets, &payload, |done, rest| {
                transmitter.write(place.0, place.1.wrapping_add(done as u64), rest)
            }),
            4 | 5 => {
                let payload = vec![octet(choices); usize::try_from(READ_LENGTH).unwrap_or(0)];
                cut(&mut octets, &payload, |done, rest| {
                    transmitter.read_response(SINK, done as u64, rest)
                });
            }
            6 => {
                let (sink, sink_offset, source_offset) = (place.0, place.1, choices.number());
                let length = word(choices);
                let request =
                    ReadRequest { sink, sink_offset, length, source: place.0, source_offset };
                append(&mut octets, &transmitter.read_request(&request), &[]);
            }
            _ => {
                let fault = choices.pick(&Fault::ALL);
                append(&mut octets, &transmitter.terminate(fault.code(), None), &[]);
            }
        }
        if choices.one_in(8) {
            spoil(choices, &mut octets);
        }
        stream.extend(octets);
    }
    stream
}

/// Appends all FPDUs of a message.
fn cut(stream: &mut Vec<u8>, payload: &[u8], mut next: impl FnMut(usize, &[u8]) -> Fpdu) {
    let mut done = 0;
    loop {
        let rest = &payload[done..];
        let fpdu = next(done, rest);
        append(stream, &fpdu, rest);
        done += fpdu.payload_len();
        if done == payload.len() {
            return;
        }
    }
}

fn append(stream: &mut Vec<u8>, fpdu: &Fpdu, payload: &[u8]) {
    stream.extend_from_slice(fpdu.prefix());
    stream.extend_from_slice(&payload[..fpdu.payload_len()]);
    stream.extend_from_slice(fpdu.trailer());
}

const SINK: Handle = Handle(0x00a1_b2c3);
/// A registration that the test refuses to use.
const REFUSED: Handle = Handle(3);
const READ_LENGTH: u32 = 200;
