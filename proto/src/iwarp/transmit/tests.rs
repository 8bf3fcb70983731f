#![expect(clippy::cast_possible_truncation, reason = "the values are small")]

use std::vec::Vec;

use super::*;
use crate::iwarp::terminate::Fault;
use crate::iwarp::testing::{CRC32C, vector};

fn octets(fpdu: &Fpdu, payload: &[u8]) -> Vec<u8> {
    [fpdu.prefix(), &payload[..fpdu.payload_len()], fpdu.trailer()].concat()
}

fn siw() -> Transmitter {
    Transmitter::new(None, Mulpdu::from_mss(1448))
}

#[test]
fn every_message_is_written_as_linux_siw_writes_it() {
    let send = vector(include_str!("../../../vectors/iwarp/send.hex"));
    assert_eq!(octets(&siw().send(None, 0, &send[20..36]), &send[20..36]), send);

    let write = vector(include_str!("../../../vectors/iwarp/write.hex"));
    let fpdu = siw().write(Handle(0x0aee_0300), 0x564f_4c68_f550, &write[16..80]);
    assert_eq!(octets(&fpdu, &write[16..80]), write);

    let response = vector(include_str!("../../../vectors/iwarp/read_response.hex"));
    let fpdu = siw().read_response(Handle(0x8f7c_fe00), 0x55f2_58f8_0550, &response[16..80]);
    assert_eq!(octets(&fpdu, &response[16..80]), response);

    let request = vector(include_str!("../../../vectors/iwarp/read_request.hex"));
    let fpdu = siw().read_request(&ReadRequest {
        sink: Handle(0x8f7c_fe00),
        sink_offset: 0x55f2_58f8_0550,
        length: 64,
        source: Handle(0x9380_ae00),
        source_offset: 0x564f_4c68_f370,
    });
    assert_eq!(octets(&fpdu, &[]), request);
}

#[test]
fn a_send_sealed_in_place_is_the_one_sealed_around_its_payload() {
    for crc in [None, Some(CRC32C as crate::iwarp::Crc32c)] {
        let [mut around, mut whole] =
            [(); 2].map(|()| Transmitter::new(crc, Mulpdu::from_mss(1448)));
        for length in 0..9 {
            let payload = &[7; 9][..length];
            let invalidate = (length > 4).then_some(Handle(0x00c0_ffee));
            let mut octets_whole = whole.begin_whole(invalidate, length).to_vec();
            octets_whole.extend(payload);
            let trailer = whole.end_whole(&octets_whole);
            octets_whole.extend(trailer.octets());
            assert_eq!(octets_whole, octets(&around.send(invalidate, 0, payload), payload));
        }
    }
}

#[test]
fn a_terminate_quotes_the_segment_at_fault() {
    let wanted = vector(include_str!("../../../vectors/iwarp/terminate.hex"));
    let ddp = [0xc1, 0x40, 0xde, 0xad, 0xbe, 0xef, 0, 0, 0, 0, 0, 0, 0x10, 0];
    let quote = Quote { length: 78, ddp: &ddp, rdmap: &[] };
    let fpdu = siw().terminate(Fault::TaggedStag.code(), Some(&quote));
    assert_eq!(octets(&fpdu, &[]), wanted);
    let longest = Quote { length: 46, ddp: &[1; 18], rdmap: &[2; 28] };
    let fpdu = siw().terminate(Fault::ReadStag.code(), Some(&longest));
    assert_eq!(fpdu.prefix().len(), PREFIX_MAX);
    assert_eq!(fpdu.prefix()[20..24], [0x01, 0x00, 0xe0, 0x00]);
}

#[test]
fn the_crc_covers_length_headers_payload_and_padding() {
    let wanted = vector(include_str!("../../../vectors/iwarp/send_inv_crc.hex"));
    let mut transmitter = Transmitter::new(Some(CRC32C), Mulpdu::from_mss(1448));
    transmitter.send_msn = 7;
    let fpdu = transmitter.send(Some(Handle(0x00c0_ffee)), 0, b"hello");
    assert_eq!(octets(&fpdu, b"hello"), wanted);
}

#[test]
fn a_message_is_cut_into_the_fewest_segments_that_fit() {
    let mut transmitter = siw();
    let most = transmitter.mulpdu.untagged_payload();
    let message = std::vec![7; most * 2 + 1];
    let (mut done, mut lens) = (0, Vec::new());
    while done < message.len() {
        let fpdu = transmitter.send(None, done as u32, &message[done..]);
        let octets = octets(&fpdu, &message[done..]);
        assert!(octets.len() <= 1448 && octets.len().is_multiple_of(4));
        assert_eq!(octets[2] & 0x40 != 0, done + fpdu.payload_len() == message.len(), "L flag");
        assert_eq!(octets[12..16], 1_u32.to_be_bytes(), "one message number");
        assert_eq!(octets[16..20], (done as u32).to_be_bytes(), "message offset");
        done += fpdu.payload_len();
        lens.push(fpdu.payload_len());
    }
    assert_eq!(lens, [most, most, 1]);
    assert_eq!(transmitter.send(None, 0, &[]).prefix()[12..16], 2_u32.to_be_bytes());
}

#[test]
fn message_numbers_wrap() {
    let mut transmitter = siw();
    transmitter.send_msn = u32::MAX;
    transmitter.send(None, 0, &[]);
    assert_eq!(transmitter.send_msn, 0);
}
