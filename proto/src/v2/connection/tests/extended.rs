//! The round-trip extensions between two connections.

use super::*;
use crate::rtrext::direction::{Directed, Direction};
use crate::rtrext::item::Item;
use crate::rtrext::placement::Span;
use crate::rtrext::plan::{Content, Directive, Kind as PlanKind, Outgoing, Plan, Source, Unfit};
use crate::rtrext::properties::{Offer, RTRSUPP};
use crate::rtrext::report::MessageType;
use crate::rtrext::respond::{Prefer, ResultItem, check_response};
use crate::rtrext::structure::{BufferSegment, FLAG_TARGETABLE, Structure};
use crate::rtrext::{REPTERR, ReportInfo, XMTCONT, XMTREQ, XMTRESP};
use crate::v2::header::{CALL_INLINE, GRANT};

const XID: u32 = 0x1bad_cafe;

/// Receive buffers of 512 plain octets and a targetable segment of 2048.
fn structure() -> Structure {
    let plain = BufferSegment { length: 512, align: 1, flags: 0 };
    let target = BufferSegment { length: 2048, align: 2048, flags: FLAG_TARGETABLE };
    Structure::new(&[plain, target]).unwrap()
}

fn offer() -> Offer {
    let structure = Some(structure());
    Offer { support: 7, structure, request_receive_max: 6, response_send_max: 6 }
}

/// Two ends that are open, of which those in `extended` offer the extensions.
fn open(window: u32, extended: &[usize]) -> Pair {
    let mut pair = Pair::new(window);
    for &at in extended {
        pair.ends[at].engine.extend(offer(), 6);
    }
    pair.handle(CLIENT, Input::Established);
    pair.handle(SERVER, Input::Established);
    pair.settle();
    for end in &mut pair.ends {
        assert_eq!((end.engine.phase, end.closed), (Phase::Open, None));
        end.events.clear();
        end.posted.clear();
    }
    pair
}

/// A virtual stream that begins with the XID.
fn stream(length: usize) -> Vec<u8> {
    let mut rng = Rng::new(7);
    let mut stream: Vec<u8> = (0..length).map(|_| rng.octet()).collect();
    stream[..4].copy_from_slice(&XID.to_be_bytes());
    stream
}

/// Posts all transmissions of a message, once credits for all are in hand (E12).
fn post(
    pair: &mut Pair,
    from: usize,
    plan: &Plan,
    message: &Outgoing<'_>,
    (payload, items): (&[u8], &[&[u8]]),
) -> Result<(), Unsent> {
    let kind = match message.kind {
        PlanKind::Request { .. } => Kind::Call,
        PlanKind::Response { .. } => Kind::Reply,
    };
    let messages = u32::try_from(plan.transmissions()).unwrap();
    let format = Format::Continued { messages };
    let sending = Sending { kind, format, has_chunks: false, is_call_only: false };
    let credit = pair.ends[from].engine.try_post(&sending)?;
    for transmission in 0..plan.transmissions() {
        let mut memory = vec![0xee; plan.length(transmission)];
        let mut w = Writer::new(&mut memory);
        let content = Content { payload, items };
        plan.encode(&mut w, transmission, (XID, credit), message, content).unwrap();
        pair.post(from, memory);
    }
    Ok(())
}

/// Delivers all that is on its way to one end. Returns the Receives' memory: what each of their
/// segments holds, full of something else where the message did not reach.
fn receive_all(pair: &mut Pair, at: usize) -> Vec<Vec<Vec<u8>>> {
    let mut receives = Vec::new();
    while let Some(message) = pair.ends[at].inbox.pop_front() {
        let mut left = &message[..];
        let scatter = |segment: &BufferSegment| {
            let mut memory = vec![0xcc; segment.length as usize];
            let (taken, rest) = left.split_at(left.len().min(memory.len()));
            memory[..taken.len()].copy_from_slice(taken);
            left = rest;
            memory
        };
        receives.push(structure().segments().iter().map(scatter).collect());
        assert!(message.len() <= 2560, "a Receive has room for it");
        pair.receive(at, &message);
    }
    receives
}

/// Puts a complete message together from the memory it landed in.
fn restored(engine: &Connection, receives: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let whole = engine.extension().unwrap().whole().expect("a complete message");
    let items: Vec<_> = whole.placement.items().collect();
    let mut stream = Vec::new();
    for span in whole.placement.stream() {
        match span {
            Span::Payload(transmission, range) => {
                for (segment, range) in structure().scatter(range) {
                    stream.extend(&receives[transmission][segment][range]);
                }
            }
            Span::Item(index, _) => {
                for piece in whole.placement.pieces(&items[index]) {
                    assert_eq!(piece.segment, 1, "in the targetable segment");
                    stream.extend(&receives[piece.transmission][piece.segment][piece.range]);
                }
            }
            Span::Pad(count) => stream.extend(vec![0; count]),
        }
    }
    stream
}

fn htypes(messages: &[Vec<u8>]) -> Vec<u32> {
    messages.iter().map(|message| prefix(message).htype).collect()
}

/// A request of 600 octets and an item of 5000, arranged as one end has agreed.
fn request(pair: &Pair, from: usize) -> (Vec<Item<Source>>, Plan) {
    let items = vec![Item { disp: 200, length: 5000, place: Source::Send }];
    let kind = PlanKind::Request { rsd: &[], rsbuf: 0 };
    let message = Outgoing { kind, payload_length: 600, items: &items };
    let terms = pair.ends[from].engine.extension().unwrap().terms().unwrap();
    let plan = Plan::new(terms, &message).unwrap();
    (items, plan)
}

/// Posts that request.
fn post_request(pair: &mut Pair, from: usize) {
    let stream = stream(5600);
    let (items, plan) = request(pair, from);
    let kind = PlanKind::Request { rsd: &[], rsbuf: 0 };
    let message = Outgoing { kind, payload_length: 600, items: &items };
    let payload = [&stream[..200], &stream[5200..]].concat();
    post(pair, from, &plan, &message, (&payload, &[&stream[200..5200]])).unwrap();
}

#[test]
fn a_request_and_its_reply_land_in_the_segments_that_connprop_announced() {
    let mut pair = open(16, &[CLIENT, SERVER]);
    let stream = stream(5600);
    let by_send = [Direction { minlen: 64, place: Directed::Tbsn }];
    let rsd = [Directive { begin: 40, end: 600, items: &by_send }];
    let items = [Item { disp: 200, length: 5000, place: Source::Send }];
    let kind = PlanKind::Request { rsd: &rsd, rsbuf: 5 };
    let message = Outgoing { kind, payload_length: 600, items: &items };
    let terms = *pair.ends[CLIENT].engine.extension().unwrap().terms().unwrap();
    let plan = Plan::new(&terms, &message).unwrap();
    let payload = [&stream[..200], &stream[5200..]].concat();
    post(&mut pair, CLIENT, &plan, &message, (&payload, &[&stream[200..5200]])).unwrap();
    let receives = receive_all(&mut pair, SERVER);
    assert_eq!(htypes(&pair.ends[CLIENT].posted), [XMTREQ, XMTCONT, XMTCONT, XMTCONT]);
    let [
        Event::Transmission(first),
        Event::Transmission(_),
        Event::Transmission(third),
        Event::Call,
    ] = pair.ends[SERVER].events[..]
    else {
        panic!("{:?}", pair.ends[SERVER].events)
    };
    assert_eq!((first.xid, first.dir, first.count), (XID, MessageType::Call, 4));
    assert_eq!((first.seq, third.seq, third.part.payload().len()), (0, 2, 0));
    let engine = &pair.ends[SERVER].engine;
    assert_eq!((restored(engine, &receives), engine.owed()), (stream, 1));

    let mut reply = self::stream(3024);
    reply[3023] = 0; // padding, which does not travel
    let extension = engine.extension().unwrap();
    let results = [ResultItem { cause: 40, disp: 24, length: 2999 }];
    let call = extension.whole().unwrap();
    let answered = extension.respond(&call.asked(), Prefer::Send, (3024, &results));
    let (answers, plan) = answered.unwrap().unwrap();
    let count_max = call.rsbuf + 1;
    pair.ends[SERVER].engine.release();
    let kind = PlanKind::Response { count_max };
    let message = Outgoing { kind, payload_length: 24, items: &answers.items };
    post(&mut pair, SERVER, &plan, &message, (&reply[..24], &[&reply[24..3023]])).unwrap();
    let receives = receive_all(&mut pair, CLIENT);
    assert!(matches!(pair.ends[CLIENT].events[..], [Event::Transmission(_), Event::Reply]));
    assert_eq!(restored(&pair.ends[CLIENT].engine, &receives), reply);
    let whole = pair.ends[CLIENT].engine.extension().unwrap().whole().unwrap();
    assert_eq!((whole.xid, whole.dir), (XID, MessageType::Reply));
    assert_eq!(check_response(&rsd, &whole.dp), Ok(()));
    assert_eq!(pair.ends[SERVER].engine.owed(), 0);
    pair.settle();
    for end in &pair.ends {
        assert_eq!((end.closed, htypes(&end.posted).contains(&REPTERR)), (None, false));
    }
}

#[test]
fn what_is_given_up_is_told_and_its_rest_is_dropped() {
    let mut pair = open(16, &[CLIENT, SERVER]);
    post_request(&mut pair, CLIENT);
    let sent = core::mem::take(&mut pair.ends[SERVER].inbox);
    pair.receive(SERVER, &sent[0]);
    let engine = &mut pair.ends[SERVER].engine;
    assert!(engine.is_continued());
    assert_eq!(engine.break_off(ErrorBody::System), Some((Kind::Call, XID, ErrorBody::InvalHtype)));
    assert!(!engine.is_continued());
    assert_eq!(engine.break_off(ErrorBody::System), None);
    for message in sent.iter().skip(1) {
        pair.receive(SERVER, message);
    }
    pair.settle();
    assert_eq!(pair.ends[SERVER].events.len(), 1, "none of the rest is taken");
    let refused = Event::Refused { xid: XID, error: ErrorBody::InvalHtype };
    assert_eq!(pair.ends[CLIENT].events, [Event::NotSupported { xid: XID }, refused]);
}

#[test]
fn a_group_starts_only_with_credits_for_all_of_it() {
    let mut pair = open(8, &[CLIENT, SERVER]);
    let (_, plan) = request(&pair, CLIENT);
    assert_eq!(plan.transmissions(), 4);
    // Of eight credits, four go to Calls that are not read yet, and the last is not for Calls (P2).
    assert!((1..=4).all(|xid| pair.call(CLIENT, xid)));
    let messages = u32::try_from(plan.transmissions()).unwrap();
    let format = Format::Continued { messages };
    let sending = Sending { kind: Kind::Call, format, has_chunks: false, is_call_only: false };
    let before = pair.ends[CLIENT].posted.len();
    assert!(pair.ends[CLIENT].engine.try_post(&sending).is_err());
    assert_eq!(pair.ends[CLIENT].posted.len(), before, "not even the first");
}

#[test]
fn nothing_of_it_is_sent_to_a_peer_that_has_not_offered_it() {
    for extended in [&[CLIENT][..], &[SERVER]] {
        let mut pair = open(16, extended);
        let with = &pair.ends[extended[0]].engine;
        let kind = PlanKind::Request { rsd: &[], rsbuf: 0 };
        let message = Outgoing { kind, payload_length: 40, items: &[] };
        let terms = with.extension().unwrap().terms().unwrap();
        assert_eq!(Plan::new(terms, &message), Err(Unfit::NotAgreed));
        let without = &pair.ends[1 - extended[0]].engine;
        assert!(without.extension().is_none());
        // [V2-7.1.3-1] Either end takes a message of the extension for an unknown header type.
        for at in [CLIENT, SERVER] {
            for htype in [XMTREQ, XMTRESP, XMTCONT] {
                pair.ends[at].posted.clear();
                let credit = pair.credit(at);
                pair.receive(at, &Xdr::common(9, 2, credit, htype).words(&[0, 0, 1, 0, 4, 9]).0);
                assert_eq!(pair.errors(at), [(9, 2, 4)], "{htype:x}");
            }
            pair.ends[at].posted.clear();
            let credit = pair.credit(at);
            pair.receive(at, &Xdr::common(9, 2, credit, REPTERR).words(&[9, 0, 0, 0, 3]).0);
            assert!(pair.ends[at].posted.is_empty(), "an error is not answered");
        }
        assert!(pair.ends.iter().all(|end| end.events.is_empty() && end.closed.is_none()));
        // The base protocol still works.
        pair.ends.iter_mut().for_each(|end| end.inbox.clear());
        assert!(pair.call(CLIENT, 11));
        pair.deliver(SERVER);
        assert_eq!(pair.ends[SERVER].events, [Event::Call]);
    }
}

#[test]
fn nothing_of_a_message_with_a_bad_property_of_the_extensions_is_applied() {
    let mut pair = Pair::new(16);
    pair.ends[SERVER].engine.extend(offer(), 6);
    pair.handle(SERVER, Input::Established);
    let two_words = (RTRSUPP, &[0; 8][..]);
    pair.receive(SERVER, &Xdr::common(7, 2, 16, 7).propset(&[(4, &[0, 0, 0, 9]), two_words]).0);
    assert_eq!(pair.errors(SERVER), [(7, 2, 3)], "BAD_PROPVAL");
    // The bad message was not the last of the setup, and none of its properties counts.
    pair.receive(SERVER, &Xdr::common(8, 2, 16, 7).propset(&[]).0);
    assert_eq!(pair.ends[SERVER].events, [Event::Ready(Properties::default())]);
}

#[test]
fn what_comes_between_transmissions_is_reported_and_neither_is_taken() {
    let mut pair = open(16, &[CLIENT, SERVER]);
    post_request(&mut pair, CLIENT);
    let intruder = call(9, pair.credit(SERVER), &[], &[]);
    pair.ends[CLIENT].inbox.clear();
    let sent = core::mem::take(&mut pair.ends[SERVER].inbox);
    pair.receive(SERVER, &sent[0]);
    // A grant may come at any time (E12).
    pair.receive(SERVER, &Xdr::common(0, 2, pair.credit(SERVER), GRANT).0);
    pair.receive(SERVER, &intruder);
    let events = &pair.ends[SERVER].events[..];
    assert!(
        matches!(events, [Event::Transmission(_), Event::Abandoned { xid: XID }]),
        "the Receives can go back"
    );
    for message in sent.iter().skip(1) {
        pair.receive(SERVER, message);
    }
    assert_eq!(pair.ends[SERVER].events.len(), 2, "nor the rest");
    assert_eq!(htypes(&pair.ends[SERVER].posted), [REPTERR]);
    assert_eq!(pair.ends[SERVER].engine.owed(), 0);

    pair.settle();
    let [Event::Reported(report)] = pair.ends[CLIENT].events[..] else {
        panic!("{:?}", pair.ends[CLIENT].events)
    };
    let messages: Vec<_> = report.messages().collect();
    assert_eq!(messages, [(MessageType::Call, 9), (MessageType::Call, XID)]);
    let ReportInfo::BadHeaderType(field) = report.info else { panic!("{report:?}") };
    assert_eq!((field.expect, field.current), (XMTCONT, CALL_INLINE));
    // The Call and the request can both be sent again in the same way.
    pair.ends[SERVER].events.clear();
    assert!(pair.call(CLIENT, 9));
    post_request(&mut pair, CLIENT);
    let receives = receive_all(&mut pair, SERVER);
    assert_eq!(pair.ends[SERVER].events.last(), Some(&Event::Call));
    assert_eq!(restored(&pair.ends[SERVER].engine, &receives[1..]), stream(5600));
    assert_eq!(pair.ends[SERVER].engine.owed(), 2);
}

#[test]
fn a_malformed_message_between_transmissions_breaks_the_group_too() {
    let mut pair = open(16, &[CLIENT, SERVER]);
    post_request(&mut pair, CLIENT);
    let first = pair.ends[SERVER].inbox.pop_front().unwrap();
    pair.receive(SERVER, &first);
    pair.receive(SERVER, &Xdr::common(9, 2, pair.credit(SERVER), CALL_INLINE).0);
    assert_eq!(htypes(&pair.ends[SERVER].posted), [REPTERR], "one report, no error besides");
}

#[test]
fn a_transmission_between_the_parts_of_a_continued_message_is_out_of_place() {
    let mut pair = Pair::new(16);
    for end in &mut pair.ends {
        end.engine = Connection::new(Config {
            continued_call_max: 4096,
            continued_reply_max: 4096,
            ..config(end.engine.config.role)
        });
        end.engine.reserve(17 - Credits::RESERVED_AT_START);
        end.engine.extend(offer(), 6);
    }
    pair.handle(CLIENT, Input::Established);
    pair.handle(SERVER, Input::Established);
    pair.settle();
    let credit = pair.credit(SERVER);
    // RDMA2_CALL_MIDDLE: four octets, four more to come.
    pair.receive(SERVER, &Xdr::common(9, 2, credit, 9).words(&[4, 9]).0);
    pair.receive(SERVER, &Xdr::common(10, 2, credit, XMTREQ).words(&[0, 0, 1, 0, 4, 10]).0);
    assert_eq!(pair.errors(SERVER), [(10, 2, 5)], "RDMA2_ERR_INVAL_CONT");
    // A report is an error, and belongs to no sequence.
    pair.receive(SERVER, &Xdr::common(11, 2, credit, REPTERR).words(&[11, 0, 0, 0, 3]).0);
    assert!(matches!(pair.ends[SERVER].events.last(), Some(Event::Reported(_))));
    pair.receive(SERVER, &Xdr::common(9, 2, credit, CALL_INLINE).words(&[0, 0, 0, 0, 1]).0);
    assert_eq!(pair.ends[SERVER].events.last(), Some(&Event::Call));
}

#[test]
fn a_reply_that_was_reported_can_be_sent_again_by_the_base_protocol() {
    let mut pair = open(16, &[CLIENT, SERVER]);
    post_request(&mut pair, CLIENT);
    receive_all(&mut pair, SERVER);
    // A Reply of two transmissions, of which the second has the wrong number.
    let credit = pair.ends[SERVER].engine.try_send(Class::Reply).unwrap();
    pair.post(SERVER, Xdr::common(XID, 2, credit, XMTRESP).words(&[0, 2, 4, XID]).0);
    pair.post(SERVER, Xdr::common(XID, 2, credit, XMTCONT).words(&[2, 0, 4, 7]).0);
    assert_eq!(pair.ends[SERVER].engine.owed(), 0);
    pair.settle();
    let events = &pair.ends[CLIENT].events[..];
    assert!(
        matches!(events, [Event::Transmission(_), Event::Abandoned { xid: XID }]),
        "the Call waits: its Reply may come yet"
    );
    let Some(Event::Reported(report)) = pair.ends[SERVER].events.last() else {
        panic!("no report")
    };
    assert_eq!(report.messages().collect::<Vec<_>>(), [(MessageType::Reply, XID)]);
    pair.ends[SERVER].engine.answer_again();
    assert_eq!(pair.ends[SERVER].engine.owed(), 1);
    assert!(pair.reply(SERVER, XID));
    pair.settle();
    assert_eq!(pair.ends[CLIENT].events.last(), Some(&Event::Reply));
    assert_eq!(pair.ends[SERVER].engine.owed(), 0);
}

#[test]
fn a_malformed_response_fails_its_call_and_nobody_is_told() {
    let mut pair = open(16, &[CLIENT, SERVER]);
    pair.receive(CLIENT, &Xdr::common(9, 2, pair.credit(CLIENT), XMTRESP).words(&[0, 1]).0);
    let refused = Event::Refused { xid: 9, error: ErrorBody::BadXdr };
    assert_eq!(pair.ends[CLIENT].events, [refused]);
    assert!(pair.ends[CLIENT].posted.is_empty());
    // A malformed request is answered.
    pair.receive(SERVER, &Xdr::common(9, 2, pair.credit(SERVER), XMTREQ).words(&[0, 1]).0);
    assert_eq!((pair.errors(SERVER), pair.ends[SERVER].events.len()), (vec![(9, 2, 2)], 0));
}

#[test]
fn a_client_takes_requests_as_far_as_it_announced_the_reverse_direction() {
    for (reverse, served) in [(REVERSE_GENL, true), (0, false), (1, false), (2, false)] {
        let mut pair = Pair::new(16);
        let mut config = config(Role::Client);
        config.properties.reverse = reverse;
        pair.ends[CLIENT].engine = Connection::new(config);
        pair.ends[CLIENT].engine.reserve(17 - Credits::RESERVED_AT_START);
        pair.ends.iter_mut().for_each(|end| end.engine.extend(offer(), 6));
        pair.handle(CLIENT, Input::Established);
        pair.handle(SERVER, Input::Established);
        pair.settle();
        pair.ends[CLIENT].events.clear();
        let credit = pair.credit(CLIENT);
        let request = Xdr::common(9, 2, credit, XMTREQ).words(&[0, 0, 1, 0, 4, 9]).0;
        pair.receive(CLIENT, &request);
        if served {
            assert_eq!(pair.ends[CLIENT].events, [Event::Call]);
        } else {
            assert_eq!(pair.errors(CLIENT), [(9, 2, 4)], "RDMA2_ERR_INVAL_HTYPE");
            assert_eq!(pair.ends[CLIENT].events, [Event::Abandoned { xid: 9 }]);
            assert!(pair.ends[CLIENT].engine.extension().unwrap().whole().is_none());
        }
        assert_eq!(pair.ends[CLIENT].engine.owed(), u32::from(served));
    }
}

#[test]
fn what_a_server_announces_of_the_reverse_direction_is_not_about_requests_to_it() {
    let mut pair = Pair::new(16);
    let mut config = config(Role::Server);
    config.properties.reverse = 0;
    pair.ends[SERVER].engine = Connection::new(config);
    pair.ends[SERVER].engine.reserve(17 - Credits::RESERVED_AT_START);
    pair.ends.iter_mut().for_each(|end| end.engine.extend(offer(), 6));
    pair.handle(CLIENT, Input::Established);
    pair.handle(SERVER, Input::Established);
    pair.settle();
    post_request(&mut pair, CLIENT);
    pair.settle();
    assert_eq!(pair.ends[SERVER].events.last(), Some(&Event::Call));
}

#[test]
fn a_property_of_the_wrong_type_is_refused_where_it_is_known() {
    for (extended, errors) in [(true, vec![(FIRST_XID, 2, 3)]), (false, vec![])] {
        let mut pair = Pair::new(16);
        if extended {
            pair.ends[SERVER].engine.extend(offer(), 6);
        }
        pair.handle(SERVER, Input::Established);
        let properties: [(u32, &[u8]); 2] = [(4, &[0, 0, 0, 1]), (0x5254_0003, &[7])];
        pair.receive(SERVER, &Xdr::common(FIRST_XID, 2, 8, 7).propset(&properties).0);
        // [V2-5.1-1] no property of the refused message counts.
        assert_eq!(pair.errors(SERVER), errors);
        assert_eq!(pair.ends[SERVER].events.len(), usize::from(!extended));
    }
}
