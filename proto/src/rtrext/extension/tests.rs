use std::vec;
use std::vec::Vec;

use super::*;
use crate::rtrext::direction::{Directed, Direction};
use crate::rtrext::item::Item;
use crate::rtrext::placement::Span;
use crate::rtrext::plan::{Directive, Source, Unfit};
use crate::rtrext::report::{Expected, OutOfRange, ReportInfo, TransmissionId};
use crate::rtrext::structure::{BufferSegment, FLAG_TARGETABLE, Structure};
use crate::testing::{Rng, Xdr};
use crate::v2::header::CALL_INLINE;
use crate::verbs::{Handle, Segment};

mod pair;
mod random;
mod single;

use pair::{End, Sent, offer, pair, structure};

const XID: u32 = 0x1bad_cafe;

/// A request of 600 octets with an item of 5000, which directs the Reply's item to be sent.
fn large_request(end: &End) -> (Sent, Vec<u8>, Vec<u8>) {
    let stream = pair::stream(XID, 600 + 5000);
    let items = [Item { disp: 200, length: 5000, place: Source::Send }];
    let by_send = [Direction { minlen: 64, place: Directed::Tbsn }];
    let rsd = [Directive { begin: 40, end: 600, items: &by_send }];
    let kind = Kind::Request { rsd: &rsd, rsbuf: 7 };
    let sent = end.send(XID, kind, &items, &stream).unwrap();
    let item = stream[200..5200].to_vec();
    (sent, stream, item)
}

#[test]
fn a_request_and_its_response_travel_in_several_sends_and_bulk_data_lands_in_its_segments() {
    let (mut client, mut server) = pair(&[512, -2048]);
    let (request, stream, item) = large_request(&client);
    assert!(request.len() > 2, "several transmissions");
    assert!(request.iter().all(|message| message.len() <= 2560));
    assert_eq!(server.take_all(&request), Event::Complete);

    // The item fills the targetable segments of the Receives, from their starts.
    let whole = server.ext.whole().unwrap();
    let first = whole.placement.items().next().unwrap();
    let mut left = &item[..];
    for piece in whole.placement.pieces(&first) {
        assert_eq!((piece.segment, piece.range.start), (1, 0));
        let (taken, rest) = left.split_at(piece.range.len());
        assert_eq!(server.receives[piece.transmission].scattered[1][piece.range], *taken);
        left = rest;
    }
    assert!(left.is_empty());
    assert_eq!(server.restored(), stream, "byte for byte");

    // The Reply goes the other way as the request directed.
    let reply = pair::stream(XID, 3024);
    let results = [ResultItem { cause: 40, disp: 24, length: 2999 }];
    let asked = server.ext.whole().unwrap().asked();
    let answered = server.ext.respond(&asked, Prefer::Send, (3024, &results));
    let (answers, plan) = answered.unwrap().unwrap();
    assert_eq!(answers.items[0].place, Source::Send);
    let response =
        server.encode(XID, Kind::Response { count_max: 8 }, &answers.items, &reply, &plan);
    assert!(response.len() > 1);
    assert_eq!(client.take_all(&response), Event::Complete);
    let mut expected = reply.clone();
    expected[3023] = 0; // the item's padding does not travel
    assert_eq!(client.restored(), expected);
    let whole = client.ext.whole().unwrap();
    assert_eq!((whole.xid, whole.dir, whole.rsbuf), (XID, MessageType::Reply, 0));
}

#[test]
fn what_the_peer_has_not_offered_is_neither_sent_nor_taken() {
    for (ours, theirs) in [(7, 0), (0, 7), (7, 6), (6, 7)] {
        let (mut client, mut server) = pair(&[512, -2048]);
        let (request, _, _) = large_request(&client);
        for (end, mine, other) in [(&mut client, ours, theirs), (&mut server, theirs, ours)] {
            *end = End::new(&[512, -2048], mine);
            end.agree(&Offer { support: other, ..offer(&structure(&[512, -2048]), 7) });
        }
        let stream = pair::stream(XID, 40);
        let kind = Kind::Request { rsd: &[], rsbuf: 0 };
        assert_eq!(client.send(XID, kind, &[], &stream), Err(Unfit::NotAgreed));
        // [V2-7.1.3-1]
        let answer = Some(RefusalAnswer::Error(ErrorBody::InvalHtype));
        let rule = "unsupported header type";
        let refusal = Refusal { rule, xid: XID, answer, failed_call: None };
        assert_eq!(server.take(&request[0]), Event::Refused(refusal));
        assert!(server.ext.whole().is_none());
    }
    // Messages before any agreement are refused too, and an error is not answered.
    let mut end = End::new(&[512], 7);
    let info = ReportInfo::BadContinuation;
    let bad = TransmissionId { xid: XID, dir: MessageType::Call, seq: 0 };
    let mut memory = vec![0; 64];
    let mut w = Writer::new(&mut memory);
    encode_report(&mut w, 9, &Report { bad, lead: None, info }).unwrap();
    let Event::Refused(refusal) = end.take(w.written()) else { panic!("refused") };
    assert_eq!((refusal.answer, refusal.xid), (None, XID));
}

#[test]
fn without_continuations_a_request_is_one_transmission() {
    let (mut client, mut server) = pair(&[512, -2048]);
    for end in [&mut client, &mut server] {
        *end = End::new(&[512, -2048], 3);
        end.agree(&Offer { support: 3, ..offer(&structure(&[512, -2048]), 3) });
    }
    let kind = Kind::Request { rsd: &[], rsbuf: 7 };
    let stream = pair::stream(XID, 3000);
    let unfit = Err(Unfit::TooManyTransmissions);
    assert_eq!(client.send(XID, kind, &[], &stream), unfit);
    let sent = client.send(XID, kind, &[], &stream[..2000]).unwrap();
    assert_eq!(server.take_all(&sent), Event::Complete);
    assert_eq!(server.ext.whole().unwrap().rsbuf, 0, "nor is room made for a longer response");
    let many = Xdr::common(XID, 2, 0, XMTREQ).words(&[0, 0, 2, 0, 4, XID]).0;
    assert!(matches!(server.take(&many), Event::Refused(_)));
}

#[test]
fn a_group_is_no_longer_than_was_announced_or_asked_for() {
    for (htype, most, words) in [(XMTREQ, 8, &[0, 0][..]), (XMTRESP, 8, &[0])] {
        let first = |count: u32| {
            let after: &[u32] = if htype == XMTREQ { &[0, 4, XID] } else { &[4, XID] };
            let words = [words, &[count], after].concat();
            let (_, mut end) = pair(&[512]);
            end.take(&Xdr::common(XID, 2, 0, htype).words(&words).0)
        };
        assert!(matches!(first(most), Event::More(_)));
        let Event::Refused(refusal) = first(most + 1) else { panic!("not refused") };
        let Some(RefusalAnswer::Report(report)) = refusal.answer else { panic!("not reported") };
        let field = Expected { expect: most, current: most + 1 };
        assert_eq!(report.info, ReportInfo::BadSequence(field));
    }
}

/// Refuses `bad` at the server, which has received `before`, and lets the client hear of it.
fn report_of(before: &[Vec<u8>], bad: &[u8]) -> Report {
    let (mut client, mut server) = pair(&[512, -2048]);
    for message in before {
        assert!(matches!(server.take(message), Event::More(_)));
    }
    let Event::Refused(Refusal { answer, failed_call, rule, .. }) = server.take(bad) else {
        panic!("not refused")
    };
    let Some(RefusalAnswer::Report(report)) = answer else { panic!("not reported: {answer:?}") };
    assert_eq!((failed_call, rule), (None, report.info.name()));
    assert!(server.ext.whole().is_none());
    let mut memory = [0; 64];
    let mut w = Writer::new(&mut memory);
    encode_report(&mut w, 9, &report).unwrap();
    assert_eq!(client.take(w.written()), Event::Reported(report));
    report
}

/// Returns a message with the word at an offset changed.
fn with(message: &[u8], at: usize, word: u32) -> Vec<u8> {
    let mut message = message.to_vec();
    message[at..at + 4].copy_from_slice(&word.to_be_bytes());
    message
}

#[test]
fn each_error_is_reported_to_whoever_sent_the_transmission() {
    let (client, _) = pair(&[512, -2048]);
    let (sent, _, _) = large_request(&client);
    let call = |xid, seq| TransmissionId { xid, dir: MessageType::Call, seq };
    let lead = Some(call(XID, 0));
    // optxc_xnum and optxc_pslen of a continuation, and its XID.
    let (xnum, pslen, xid) = (16, 24, 0);
    let check = |before: usize, bad: &[u8], id, lead, info| {
        assert_eq!(report_of(&sent[..before], bad), Report { bad: id, lead, info });
    };
    check(0, &sent[1], call(XID, 1), None, ReportInfo::BadContinuation);
    let field = Expected { expect: 1, current: 2 };
    check(1, &sent[2], call(XID, 2), lead, ReportInfo::BadSequence(field));
    let field = Expected { expect: 1, current: 0 };
    check(1, &with(&sent[1], xnum, 0), call(XID, 0), lead, ReportInfo::BadSequence(field));
    let field = Expected { expect: XID, current: 7 };
    check(1, &with(&sent[1], xid, 7), call(7, 1), lead, ReportInfo::BadXid(field));
    let field = Expected { expect: XMTCONT, current: XMTREQ };
    check(1, &sent[0], call(XID, 0), lead, ReportInfo::BadOptionalType(field));
    let room = u32::try_from(sent[1].len() - 28).unwrap() & !3;
    let field = OutOfRange { value: 77_777, min: 0, max: room };
    let bad = with(&sent[1], pslen, 77_777);
    check(1, &bad, call(XID, 1), lead, ReportInfo::BadPayloadLength(field));

    // The first transmission describes the item; this is judged when the last has arrived.
    let words = |at: usize| u32::from_be_bytes(sent[0][at..at + 4].try_into().unwrap());
    let (offset, first_number) = (32, 40);
    assert_eq!((words(20), words(28), words(offset), words(36)), (200, 2, 0, 3));
    let last = u32::try_from(sent.len() - 1).unwrap();
    let whole = |at, word, info| {
        let mut changed = sent.clone();
        changed[0] = with(&sent[0], at, word);
        let (bad, before) = changed.split_last().unwrap();
        let report = Report { bad: call(XID, last), lead, info };
        assert_eq!(report_of(before, bad), report);
    };
    // The first target of the first Receive is behind the Payload stream.
    let field = OutOfRange { value: 99, min: words(first_number), max: last };
    whole(first_number, 99, ReportInfo::BadNumber(field));
    let field = OutOfRange { value: 2048, min: 0, max: 2044 };
    whole(offset, 2048, ReportInfo::BadOffset(field));
    let field = OutOfRange { value: 2, min: 0, max: 2044 };
    whole(offset, 2, ReportInfo::BadOffset(field));
}

#[test]
fn a_base_message_in_a_group_is_reported_and_a_grant_or_an_error_is_not() {
    let (client, mut server) = pair(&[512, -2048]);
    let (sent, stream, _) = large_request(&client);
    let prefix = |xid, htype| Prefix { xid, vers: 2, credit: 0, htype };
    assert_eq!(server.ext.base_message(&prefix(9, CALL_INLINE)), None, "nothing was begun");
    server.take(&sent[0]);
    for htype in [GRANT, ERROR] {
        assert_eq!(server.ext.base_message(&prefix(9, htype)), None);
    }
    let field = Expected { expect: XMTCONT, current: REPLY_INLINE };
    let report = server.ext.base_message(&prefix(9, REPLY_INLINE)).unwrap();
    let bad = TransmissionId { xid: 9, dir: MessageType::Reply, seq: 0 };
    assert_eq!((report.bad, report.info), (bad, ReportInfo::BadHeaderType(field)));
    assert_eq!(report.lead.map(|lead| (lead.xid, lead.seq)), Some((XID, 0)));
    for message in &sent[1..] {
        assert_eq!(server.take(message), Event::Dropped, "one report is enough");
    }
    // A refused group leaves no state: the same message can be sent again.
    server.receives.clear();
    assert_eq!(server.take_all(&sent), Event::Complete);
    assert_eq!(server.restored(), stream);
}

#[test]
fn a_malformed_request_is_answered_and_a_malformed_reply_fails_its_call() {
    let refusal = |messages: &[Vec<u8>]| {
        let (_, mut server) = pair(&[512, -2048]);
        let (last, before) = messages.split_last().unwrap();
        for message in before {
            assert!(matches!(server.take(message), Event::More(_)));
        }
        match server.take(last) {
            Event::Refused(refusal) => (refusal.answer, refusal.failed_call),
            other => panic!("{other:?}"),
        }
    };
    let request = |words: &[u32]| Xdr::common(XID, 2, 0, XMTREQ).words(words).0;
    let response = |words: &[u32]| Xdr::common(XID, 2, 0, XMTRESP).words(words).0;
    let short = Xdr::common(XID, 2, 0, XMTCONT).words(&[1, 0]).0;
    let bad = (Some(RefusalAnswer::Error(ErrorBody::BadXdr)), None);
    let fails = (None, Some(XID));
    assert_eq!(refusal(&[request(&[0, 0, 1])]), bad);
    assert_eq!(refusal(&[response(&[0, 1])]), fails);
    assert_eq!(refusal(std::slice::from_ref(&short)), bad);
    assert_eq!(refusal(&[request(&[0, 0, 2, 0, 4, XID]), short.clone()]), bad);
    assert_eq!(refusal(&[response(&[0, 2, 4, XID]), short]), fails);
    // The Payload stream is of another RPC message.
    assert_eq!(refusal(&[request(&[0, 0, 1, 0, 4, 7])]), bad);
    assert_eq!(refusal(&[response(&[0, 1, 4, 7])]), fails);
    // A result in a request, and segments that are too short in either.
    assert_eq!(refusal(&[request(&[1, 4, 0, 5, 0, 1, 0, 4, XID])]), bad);
    assert_eq!(refusal(&[request(&[1, 4, 9, 1, 0, 0, 1, 0, 4, XID])]), bad);
    assert_eq!(refusal(&[response(&[1, 4, 9, 1, 0, 1, 4, XID])]), fails);
    // Directions that go backwards have an error of their own.
    let (answer, _) = refusal(&[request(&[0, 1, 8, 4, 0, 1, 0, 4, XID])]);
    let Some(RefusalAnswer::Report(report)) = answer else { panic!("{answer:?}") };
    let field = OutOfRange { value: 4, min: 8, max: u32::MAX };
    assert_eq!(report.info, ReportInfo::BadOffset(field));
    // An error is never answered.
    let report = Xdr::common(XID, 2, 0, REPTERR).words(&[XID, 0]).0;
    assert_eq!(refusal(&[report]), (None, None));
}

#[test]
fn a_malformed_message_ends_the_group_it_comes_into() {
    let (client, mut server) = pair(&[512, -2048]);
    let (sent, _, _) = large_request(&client);
    server.take(&sent[0]);
    let short = Xdr::common(9, 2, 0, XMTRESP).0;
    let Event::Refused(refusal) = server.take(&short) else { panic!("refused") };
    assert!(matches!(refusal.answer, Some(RefusalAnswer::Report(_))), "it breaks the group first");
    assert_eq!(server.take(&sent[1]), Event::Dropped);
    server.take(&sent[0]);
    let report = Xdr::common(9, 2, 0, REPTERR).0;
    assert!(matches!(server.take(&report), Event::Refused(_)));
    assert!(matches!(server.take(&sent[1]), Event::More(_)), "an error disturbs no group");
}

#[test]
fn a_request_asks_for_no_more_chunks_than_are_taken() {
    let judge = |chunks: ChunkLimits, support, dp: &[u32], rsd: &[u32]| {
        let mut server = End::with_limits(&[512], support, chunks);
        server.agree(&offer(&structure(&[512]), support));
        let words = [dp, rsd, &[1, 0, 4, XID]].concat();
        match server.take(&Xdr::common(XID, 2, 0, XMTREQ).words(&words).0) {
            Event::Complete => None,
            Event::Refused(Refusal { answer: Some(RefusalAnswer::Error(error)), .. }) => {
                Some(error)
            }
            other => panic!("{other:?}"),
        }
    };
    let limits = |read_chunks_max, write_chunks_max, segments_max| ChunkLimits {
        read_chunks_max,
        write_chunks_max,
        segments_max,
    };
    let none: &[u32] = &[0];
    let read: &[u32] = &[1, 4, 4, 1, 2, 7, 4, 0, 0, 7, 0, 0, 0];
    let choice: &[u32] = &[1, 0, 8, 1, 0, 3, 1, 7, 4, 0, 0];
    let sent: &[u32] = &[1, 0, 8, 1, 0, 2];
    assert_eq!(judge(limits(1, 1, 2), 7, read, choice), None);
    assert_eq!(judge(limits(0, 0, 0), 7, none, sent), None, "what is sent needs no memory");
    // [V2-7.3.1-1] [V2-7.3.1-2] [V2-7.3.2-1] [V2-7.3.2-3] [V2-7.3.3-1]
    let read_chunks = Some(ErrorBody::ReadChunks { max: 0 });
    assert_eq!(judge(limits(0, 1, 2), 7, read, none), read_chunks);
    let write_chunks = Some(ErrorBody::WriteChunks { max: 0 });
    assert_eq!(judge(limits(1, 0, 2), 7, none, choice), write_chunks);
    let resource = Some(ErrorBody::ReplyResource { length_needed: 0 });
    assert_eq!(judge(limits(1, 0, 2), 3, none, choice), resource);
    let segments = Some(ErrorBody::Segments { max: 1 });
    assert_eq!(judge(limits(1, 1, 1), 7, read, none), segments);
    assert_eq!(judge(limits(1, 1, 0), 7, none, choice), Some(ErrorBody::Segments { max: 0 }));
    // [V2-7.4.1-1] larger than the 1 MiB that we said we handle.
    let large: &[u32] = &[1, 0, 8, 1, 0, 3, 1, 7, (1 << 20) + 1, 0, 0];
    assert_eq!(judge(limits(1, 1, 2), 7, none, large), Some(ErrorBody::System));
}

#[test]
fn a_response_goes_the_way_that_has_room() {
    let memory = [Segment { handle: Handle(7), length: 8000, offset: 0 }];
    let respond = |place, rsbuf, support, length| {
        let (mut client, mut server) = pair(&[512, -2048]);
        for end in [&mut client, &mut server] {
            *end = End::new(&[512, -2048], support);
            end.agree(&offer(&structure(&[512, -2048]), support));
        }
        let items = [Direction { minlen: 0, place }];
        let rsd = [Directive { begin: 0, end: 40, items: &items }];
        let kind = Kind::Request { rsd: &rsd, rsbuf };
        let request = client.send(XID, kind, &[], &pair::stream(XID, 40)).unwrap();
        assert_eq!(server.take_all(&request), Event::Complete);
        let results = [ResultItem { cause: 4, disp: 28, length }];
        let asked = server.ext.whole().unwrap().asked();
        let length = 28 + length.next_multiple_of(4);
        let response = server.ext.respond(&asked, Prefer::Send, (length, &results));
        response.map(|response| {
            response.map(|(answers, plan)| (answers.items[0].place.clone(), plan.transmissions()))
        })
    };
    let written = vec![Segment { length: 4500, ..memory[0] }];
    let choice = Directed::Choice(&memory[..]);
    assert_eq!(respond(choice, 2, 7, 4500), Ok(Some((Source::Send, 3))));
    assert_eq!(respond(choice, 1, 7, 4500), Ok(Some((Source::Exrw(written), 1))));
    // [V2-7.3.5-1] [V2-7.3.5-2]
    let none = Err(ErrorBody::ReplyResource { length_needed: 4528 });
    assert_eq!(respond(Directed::Tbsn, 1, 7, 4500), none);
    assert_eq!(respond(choice, 7, 5, 4500), Ok(None), "by the base protocol");
}

#[test]
fn properties_of_a_bad_message_are_not_applied() {
    let mut end = End::new(&[512], 7);
    let set = |properties: &[(u32, &[u8])]| Xdr::default().propset(properties).0;
    let hear = |end: &mut End, set: &[u8]| {
        let set = PropertySet::decode(&mut Reader::new(set)).unwrap();
        end.ext.heard(&set).map(|heard| end.ext.heed(heard)).is_ok()
    };
    // In two messages, as CONNPROP_MIDDLE and FINAL would be.
    assert!(hear(&mut end, &set(&[(0x5254_0003, &[0, 0, 0, 7]), (2, &[0, 0, 1, 0])])));
    assert!(!hear(&mut end, &set(&[(0x5254_0003, &[0, 0, 0, 1]), (0x5254_0005, &[1])])));
    assert!(hear(&mut end, &set(&[(0x5254_0006, &[0, 0, 0, 3])])));
    let base = Properties::default();
    end.ext.agree(&base, &base);
    let terms = end.ext.terms().unwrap();
    assert!(terms.allows(XMTCONT), "still seven");
    assert_eq!((terms.response_receive_max, terms.request_send_max), (3, 1));
    assert_eq!(terms.theirs, Structure::single(base.receive_buffer_size));
    // The size of receive buffers follows from their structure where nothing else was said.
    let size = |said: &[(u32, &[u8])]| {
        let mut end = End::new(&[512], 7);
        let value = Xdr::default().words(&[6144, 1, 3, 2048, 4, 1]).0;
        assert!(hear(&mut end, &set(&[&[(0x5254_0004, &value[..])], said].concat())));
        let theirs = Properties { receive_buffer_size: 4096, ..base };
        end.ext.agree(&Properties { send_size_max: 8192, ..base }, &theirs);
        end.ext.terms().unwrap().message_max
    };
    assert_eq!(size(&[]), 6144);
    assert_eq!(size(&[(2, &[])]), 6144);
    assert_eq!(size(&[(2, &[0, 0, 16, 0])]), 4096);
}

#[test]
fn what_has_been_read_is_forgotten() {
    let (client, mut server) = pair(&[512, -2048]);
    let (sent, _, _) = large_request(&client);
    server.take(&sent[0]);
    server.ext.release();
    assert!(matches!(server.take(&sent[1]), Event::More(_)), "nothing complete, nothing forgotten");
    assert_eq!(server.take_all(&sent[2..]), Event::Complete);
    assert!(server.ext.whole().is_some() && server.ext.header.capacity() > 0);
    server.ext.release();
    assert!(server.ext.whole().is_none());
    assert_eq!((server.ext.header.capacity(), server.ext.group.parts().len()), (0, 0));
}

#[test]
fn what_is_complete_stays_until_the_next_message() {
    let (client, mut server) = pair(&[512, -2048]);
    let (sent, _, _) = large_request(&client);
    assert_eq!(server.take_all(&sent), Event::Complete);
    assert!(server.ext.whole().is_some());
    server.take(&sent[1]);
    assert!(server.ext.whole().is_none());
}
