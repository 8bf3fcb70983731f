use std::vec::Vec;

use super::super::frame::{FIXED_LEN, FLAG_CRC, FLAG_MARKERS, FLAG_REJECTED, KEY_LEN};
use super::*;
use crate::iwarp::terminate::Code;
use crate::iwarp::testing::vector;

const OFFER: Offer = Offer { crc: false, ord: 1, ird: 1, rtr: false };

fn request() -> Vec<u8> {
    vector(include_str!("../../../../vectors/iwarp/request.hex"))
}

fn reply() -> Vec<u8> {
    vector(include_str!("../../../../vectors/iwarp/reply.hex"))
}

fn active(offer: Offer, mut reply: &[u8]) -> Result<Option<MpaReply>, Fault> {
    Active::new(offer, b"").unwrap().0.handle(&mut reply)
}

fn passive(mut request: &[u8]) -> Result<Option<Asked>, Fault> {
    Passive::new().handle(&mut request)
}

fn terms(answer: Result<Option<MpaReply>, Fault>) -> Agreement {
    match answer {
        Ok(Some(MpaReply::Accepted { agreement, .. })) => agreement,
        other => panic!("{other:?}"),
    }
}

#[test]
fn both_ends_write_what_linux_siw_writes() {
    let (_, frame) = Active::new(OFFER, b"").unwrap();
    assert_eq!(&*frame, request());
    let asked = passive(&request()).unwrap().unwrap();
    let (frame, agreement) = asked.accept(&OFFER, b"").unwrap();
    assert_eq!(&*frame, reply());
    assert_eq!(agreement, Agreement { crc: false, ord: 1, ird: 1, rtr: None });
    assert_eq!(terms(active(OFFER, &reply())), agreement);
}

#[test]
fn a_frame_may_come_in_any_pieces_and_what_follows_it_is_left() {
    let (mut end, request) = Active::new(OFFER, b"to you").unwrap();
    for cut in 0..request.len() {
        let mut passive = Passive::new();
        assert!(passive.handle(&mut &request[..cut]).unwrap().is_none(), "cut at {cut}");
        let asked = passive.handle(&mut &request[cut..]).unwrap().unwrap();
        assert_eq!(asked.private_data(), b"to you");
    }
    let asked = passive(&request).unwrap().unwrap();
    let mut stream = asked.accept(&OFFER, b"to me").unwrap().0.into_vec();
    let frame_len = stream.len();
    stream.extend(b"FPDU");
    for byte in &stream[..frame_len - 1] {
        assert_eq!(end.handle(&mut &[*byte][..]).unwrap(), None);
    }
    let mut rest = &stream[frame_len - 1..];
    let answer = end.handle(&mut rest).unwrap().unwrap();
    assert!(
        matches!(answer, MpaReply::Accepted { private_data, .. } if &*private_data == b"to me")
    );
    assert_eq!(rest, b"FPDU");
}

#[test]
fn garbage_is_refused_at_its_first_wrong_octet() {
    for at in 0..KEY_LEN {
        let mut bytes = request();
        bytes[at] ^= 1;
        assert_eq!(passive(&bytes[..=at]).unwrap_err(), Fault::NotMpa);
    }
    assert_eq!(passive(&reply()).unwrap_err(), Fault::NotMpa);
    assert_eq!(active(OFFER, &request()).unwrap_err(), Fault::NotMpa);
}

#[test]
fn lengths_and_revisions_out_of_range_are_refused() {
    let with = |at: usize, value: u8| {
        let mut bytes = request();
        bytes[at] = value;
        passive(&bytes).map(|asked| asked.is_some())
    };
    assert_eq!(with(17, 0), Err(Fault::Revision));
    assert_eq!(with(17, 3), Err(Fault::Revision));
    assert_eq!(with(19, 3), Err(Fault::PrivateData), "Enhanced data cut short");
    let mut bytes = request();
    bytes[18..20].copy_from_slice(&513_u16.to_be_bytes());
    assert_eq!(passive(&bytes[..20]).unwrap_err(), Fault::PrivateData);
    assert_eq!(Active::new(OFFER, &[0; 509]).unwrap_err(), Fault::OurPrivateData);
    let (_, longest) = Active::new(OFFER, &[7; PRIVATE_DATA_MAX]).unwrap();
    assert_eq!(passive(&longest).unwrap().unwrap().private_data(), [7; PRIVATE_DATA_MAX]);
}

#[test]
fn octets_before_the_reply_are_refused() {
    let mut bytes = request();
    bytes.push(0);
    assert_eq!(passive(&bytes).unwrap_err(), Fault::Early);
}

#[test]
fn markers_are_refused_with_a_rejection() {
    for revision in [1, 2] {
        let mut bytes = request();
        bytes[16] |= FLAG_MARKERS;
        bytes[17] = revision;
        let mut end = Passive::new();
        assert_eq!(end.handle(&mut &bytes[..]).unwrap_err(), Fault::Markers);
        let refusal = end.refusal(Fault::Markers).unwrap();
        assert_eq!(refusal[16..], [FLAG_REJECTED, revision, 0, 0], "in kind");
        let answer = active(OFFER, &refusal).unwrap();
        assert!(matches!(answer, Some(MpaReply::Rejected { .. })));
        assert!(end.refusal(Fault::Early).is_none(), "what is no Request is not answered");
    }
    let mut bytes = reply();
    bytes[16] |= FLAG_MARKERS;
    assert_eq!(active(OFFER, &bytes), Err(Fault::Markers));
}

#[test]
fn crcs_are_in_force_if_either_end_asks() {
    for (ours, theirs) in [(false, false), (false, true), (true, false), (true, true)] {
        let (mut end, request) = Active::new(Offer { crc: ours, ..OFFER }, b"").unwrap();
        let asked = passive(&request).unwrap().unwrap();
        assert_eq!(asked.asks_crc(), ours);
        let (reply, agreement) = asked.accept(&Offer { crc: theirs, ..OFFER }, b"").unwrap();
        assert_eq!(agreement.crc, ours || theirs);
        assert_eq!(terms(end.handle(&mut &reply[..])), agreement);
    }
}

#[test]
fn each_end_may_have_no_more_reads_outstanding_than_the_other_serves() {
    let client = Offer { ord: 3, ird: 128, ..OFFER };
    let server = Offer { ord: 64, ird: 16, ..OFFER };
    let (mut end, request) = Active::new(client, b"").unwrap();
    let (reply, passive_terms) = passive(&request).unwrap().unwrap().accept(&server, b"").unwrap();
    assert_eq!((passive_terms.ord, passive_terms.ird), (64, 3));
    let active_terms = terms(end.handle(&mut &reply[..]));
    assert_eq!((active_terms.ord, active_terms.ird), (3, 64));

    let (mut end, _) = Active::new(Offer { ird: 63, ..client }, b"").unwrap();
    let fault = end.handle(&mut &reply[..]).unwrap_err();
    assert_eq!(fault, Fault::InsufficientIrd);
    assert_eq!(fault.code(), Some(Code { layer: 2, etype: 0, code: 6 }));
}

#[test]
fn depths_that_are_not_negotiated_stay_local() {
    let mut bytes = reply();
    bytes[20..].copy_from_slice(&[0x3f, 0xff, 0x3f, 0xff]);
    let offer = Offer { ord: 9, ird: 5, ..OFFER };
    let agreement = terms(active(offer, &bytes));
    assert_eq!((agreement.ord, agreement.ird), (9, 5));
    let mut bytes = request();
    bytes[20..].copy_from_slice(&[0x3f, 0xff, 0x00, 0x03]);
    let (reply, agreement) = passive(&bytes).unwrap().unwrap().accept(&offer, b"").unwrap();
    assert_eq!((agreement.ord, agreement.ird), (9, 3));
    assert_eq!(reply[20..], [0x00, 0x03, 0x3f, 0xff], "answered in kind, each by itself");
    let huge = Offer { ord: u32::MAX, ird: u32::MAX, ..OFFER };
    let (_, request) = Active::new(huge, b"").unwrap();
    assert_eq!(request[20..], [0x3f, 0xfe, 0x3f, 0xfe], "never the value that means: not here");
}

#[test]
fn older_requests_are_answered_in_kind() {
    let plain = |revision: u8| {
        let mut bytes = request()[..20].to_vec();
        bytes[16..].copy_from_slice(&[FLAG_CRC, revision, 0, 2]);
        bytes.extend(b"pd");
        bytes
    };
    for revision in [1, 2] {
        let asked = passive(&plain(revision)).unwrap().unwrap();
        assert_eq!(asked.private_data(), b"pd");
        let offer = Offer { ord: 9, ird: 5, ..OFFER };
        let (reply, agreement) = asked.accept(&offer, b"").unwrap();
        assert_eq!(reply[16..], [FLAG_CRC, revision, 0, 0]);
        assert_eq!((agreement.ord, agreement.ird), (9, 5));
        assert_eq!(terms(active(offer, &reply)), agreement, "and a plain Reply is understood");
    }
}

#[test]
fn a_request_of_revision_1_negotiates_nothing_but_crcs() {
    let offer = Offer { ord: 9, ird: 5, rtr: true, crc: true };
    let (mut end, request) = Active::with_revision_one(offer, b"pd").unwrap();
    assert_eq!(request[16..], [FLAG_CRC, 1, 0, 2, b'p', b'd']);
    let asked = passive(&request).unwrap().unwrap();
    assert_eq!(asked.private_data(), b"pd");
    let (answer, agreement) = asked.accept(&OFFER, b"").unwrap();
    assert_eq!(agreement, Agreement { crc: true, ord: 1, ird: 1, rtr: None });
    let agreed = terms(end.handle(&mut &answer[..]));
    assert_eq!(agreed, Agreement { crc: true, ord: 9, ird: 5, rtr: None });
    // A Reply of a revision that was not asked for.
    let (mut end, _) = Active::with_revision_one(offer, b"").unwrap();
    assert_eq!(end.handle(&mut &reply()[..]), Err(Fault::Revision));
    assert!(Active::with_revision_one(offer, &[0; 509]).is_err());
}

#[test]
fn the_ready_to_receive_indication_is_agreed() {
    let peer = Offer { rtr: true, ..OFFER };
    let (mut end, request) = Active::new(peer, b"").unwrap();
    let (reply, agreement) = passive(&request).unwrap().unwrap().accept(&OFFER, b"").unwrap();
    assert_eq!(agreement.rtr, Some(Rtr::Write));
    assert_eq!(terms(end.handle(&mut &reply[..])).rtr, Some(Rtr::Write));

    let with = |flags: [u8; 2]| {
        let mut bytes = request.to_vec();
        (bytes[20], bytes[22]) = (flags[0], flags[1]);
        passive(&bytes).map(|asked| asked.unwrap().accept(&OFFER, b"").unwrap())
    };
    let (reply, agreement) = with([0x80, 0x40]).unwrap();
    assert_eq!((agreement.rtr, reply[20], reply[22]), (Some(Rtr::Read), 0x80, 0x40));
    let (reply, agreement) = with([0xc0, 0x00]).unwrap();
    assert_eq!((agreement.rtr, reply[20], reply[22]), (Some(Rtr::Send), 0xc0, 0x00));
    assert_eq!(with([0x80, 0x00]).unwrap_err(), Fault::NoRtr);

    let (mut end, _) = Active::new(peer, b"").unwrap();
    let (reply, _) = with([0x80, 0x40]).unwrap();
    assert_eq!(end.handle(&mut &reply[..]), Err(Fault::NoRtr), "a kind we did not offer");
    let (mut end, _) = Active::new(peer, b"").unwrap();
    let mut client_server = reply.to_vec();
    (client_server[20], client_server[22]) = (0, 0);
    assert_eq!(terms(end.handle(&mut &client_server[..])).rtr, None);
}

#[test]
fn a_rejection_carries_private_data() {
    let asked = passive(&request()).unwrap().unwrap();
    let reply = asked.reject(b"no room");
    let answer = active(OFFER, &reply).unwrap().unwrap();
    assert_eq!(answer, MpaReply::Rejected { private_data: Box::from(&b"no room"[..]) });
    assert_eq!(asked.reject(&[0; 4096]).len(), FIXED_LEN + FRAME_DATA_MAX);
}
