//! Procedures that never have a Reply (section 4.7): both ends have only grants to tell them of credits.

use haulage::core::{Cx, Service};
use haulage::service::{Binding, Call, CallError, Outcome, Procedure, Program, Reply, Request};
use haulage_proto::rpc::AcceptStat;
use haulage_tests::ends::{PROGRAM, server_of};

use super::ddp::Access;
use super::header::{Chunks, Kind, octets, opaque};
use super::mpa::Crc;
use super::rpc::{Peer, call, reply};
use super::{NOTE, Pair, pattern};

/// A procedure that returns the number of the Calls of [`NOTED`], and the octets that they brought.
const COUNT: u32 = 1;
/// A procedure without a Reply that takes octets.
const NOTED: u32 = 2;

/// A service that counts the Calls without a Reply.
#[derive(Default)]
struct Counter {
    calls: u32,
    octets: u32,
}

impl Service for Counter {
    fn programs(&self) -> Vec<Program> {
        let procedures = vec![
            Procedure::new("NULL"),
            Procedure::new("COUNT").results_max(8),
            Procedure::new("NOTED").call_only(),
        ];
        vec![Program::new(Binding { program: PROGRAM, version: 1, procedures })]
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        match (call.procedure, call.arguments.opaque(1 << 20)) {
            (NOTED, Ok(octets)) => {
                self.calls += 1;
                self.octets += u32::try_from(octets.len()).unwrap();
                Outcome::NoReply
            }
            (NOTED, Err(_)) => Outcome::Failed(AcceptStat::GarbageArgs),
            _ => {
                reply.results(|w| w.u32(self.calls).and_then(|()| w.u32(self.octets)));
                Outcome::Done
            }
        }
    }
}

// [V2-4.7-1]
#[test]
fn a_server_grants_credits_for_calls_without_a_reply() {
    let server = server_of(|_| Counter::default());
    let (mut calls, mut length) = (0, 0);
    for window in 1..=4 {
        let mut peer = Peer::connect(server.started, Crc::NotAsked, window);
        for xid in 2..502 {
            let noted = pattern(xid as usize % 50);
            let arguments = opaque(&noted);
            // Some come in parts, and some cannot be read; neither is answered.
            let parts: &[usize] = if xid % 7 == 0 { &[30, 9] } else { &[] };
            let is_bad = xid % 11 == 0;
            let arguments = if is_bad { &[0xff; 4][..] } else { &arguments };
            let noting = call(xid, PROGRAM, NOTED, arguments);
            peer.send(Kind::Call, &noting, parts, &Chunks::default());
            calls += u32::from(!is_bad);
            length += if is_bad { 0 } else { u32::try_from(noted.len()).unwrap() };
        }
        peer.send(Kind::Call, &call(502, PROGRAM, COUNT, &[]), &[], &Chunks::default());
        let answer = peer.receive();
        assert_eq!((answer.kind, answer.xid), (Kind::Reply, 502), "window {window}");
        assert_eq!(answer.results(), octets(&[calls, length]), "window {window}");
    }
    server.stop().unwrap();
}

// [V2-4.7-1]
#[test]
fn a_client_lives_by_grants_when_nothing_is_replied() {
    for (crc, window) in [(Crc::NotAsked, 1), (Crc::Asked, 2), (Crc::NotAsked, 3), (Crc::Asked, 4)]
    {
        let mut pair = Pair::open(crc, window);
        let mut xids = Vec::new();
        for round in 0..25_u32 {
            for number in 0..20 {
                let request = Request::new(NOTE);
                pair.client.started.begin(request, |w| w.u32(20 * round + number)).unwrap();
            }
            for number in 0..20 {
                let called = pair.peer.receive();
                assert_eq!((called.messages, &called.chunks), (1, &Chunks::default()));
                let number = octets(&[20 * round + number]);
                assert_eq!(called.called(PROGRAM), (NOTE, &number[..]), "window {window}");
                xids.push(called.xid);
            }
            assert!((0..20).all(|_| pair.results().is_empty()));
        }
        xids.sort_unstable();
        xids.dedup();
        assert_eq!(xids.len(), 500, "each has an XID of its own");
        pair.begin();
        let xid = pair.called();
        pair.peer.send(Kind::Reply, &reply(xid, &[]), &[], &Chunks::default());
        assert!(pair.results().is_empty());
        pair.client.stop().unwrap();
    }
}

// [V2-4.7-1] [V2-6.3.6-1]
#[test]
fn a_client_continues_calls_without_a_reply_and_uses_no_chunk() {
    let mut pair = Pair::open(Crc::NotAsked, 12);
    let begin = |pair: &mut Pair, length| {
        let request = Request::new(NOTE);
        let noted = pattern(length);
        pair.client.started.begin(request, |w| w.opaque(&noted)).unwrap();
    };
    let lengths = [4500, 3, 4020, 4021, 4900, 4024, 4025];
    lengths.into_iter().for_each(|length| begin(&mut pair, length));
    for length in lengths {
        let called = pair.peer.receive();
        let expected = opaque(&pattern(length));
        assert!(called.called(PROGRAM) == (NOTE, &expected[..]), "{length}");
        assert_eq!(called.chunks, Chunks::default());
        let whole = 32 + 40 + expected.len();
        assert_eq!(called.messages, if whole <= 4096 { 1 } else { 2 }, "{length}");
    }
    assert!(lengths.iter().all(|_| pair.results().is_empty()));
    pair.client.stop().unwrap();
    // A peer that allows two messages at once is sent no Call of two.
    let mut narrow = Pair::open(Crc::NotAsked, 2);
    begin(&mut narrow, 4500);
    let (_, ended) = narrow.client.started.ended().unwrap();
    assert_eq!(ended.map(drop).unwrap_err().error, CallError::TooLong);
    begin(&mut narrow, 400);
    assert_eq!(narrow.peer.receive().messages, 1);
    assert!(narrow.results().is_empty());
    narrow.client.stop().unwrap();
}

// [V2-4.7-1] [V2-7.3.2-3]
#[test]
fn a_call_without_a_reply_that_offers_a_write_chunk_is_refused_and_not_served() {
    let server = server_of(|_| Counter::default());
    let mut peer = Peer::connect(server.started, Crc::NotAsked, 8);
    let room = peer.link.expose(&[7; 64], Access::Write);
    let chunks = Chunks { writes: vec![vec![room]], ..Chunks::default() };
    peer.send(Kind::Call, &call(2, PROGRAM, NOTED, &opaque(&[1; 3])), &[], &chunks);
    let no_write_chunks = octets(&[7, 0]);
    assert_eq!(peer.error(), (2, no_write_chunks));
    assert_eq!(peer.link.retire(room.handle), [7; 64]);
    peer.send(Kind::Call, &call(3, PROGRAM, NOTED, &opaque(&[1; 5])), &[], &Chunks::default());
    peer.send(Kind::Call, &call(4, PROGRAM, COUNT, &[]), &[], &Chunks::default());
    let answer = peer.receive();
    assert_eq!((answer.kind, answer.xid), (Kind::Reply, 4));
    assert_eq!(answer.results(), octets(&[1, 5]), "one was served");
    server.stop().unwrap();
}
