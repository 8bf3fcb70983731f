//! Servers that call their clients, and clients of a server that calls back: the reverse direction of both versions.

use std::collections::{BTreeSet, VecDeque};

use haulage::core::{Cx, NoService, Service};
use haulage::limits::{LIMITS_DEFAULT, Limits, Versions};
use haulage::service::{
    Binding, Call, CallError, CallToken, ConnectionId, Finished, Outcome, Procedure, Program,
    Reply, Request,
};
use haulage_proto::rpc::AcceptStat;
use haulage_proto::verbs::Access;
use haulage_tests::link::Failure;

use super::caller::{Pair, good_reply, rpc_reply};
use super::two::{
    CALL_INLINE, CALL_MIDDLE, CONNPROP_FINAL, ERROR, Peer, REPLY_INLINE, message, words,
};
use super::{
    GET, Keeper, LIST, MSG, NO_LISTS, NOMSG, NULL, PROGRAM, PUT, TALLY, call, nowhere, octets,
    segment, server_of,
};

/// The code of the Reverse-Direction Support property.
const REVERSE: u32 = 5;

/// A client that serves what a [`Keeper`] does, and the test's end, which acts as its server.
fn serving(versions: Versions) -> Pair {
    let programs = Keeper::default().programs();
    Pair::serving(Limits { versions, ..LIMITS_DEFAULT }, Keeper::default, programs)
}

/// Returns the value of a property, if a message has it.
fn property(message: &[u32], code: u32) -> Option<u32> {
    let mut properties = message[5..].chunks_exact(3);
    let found = properties.find(|property| property[..2] == [code, 4]);
    found.map(|property| property[2])
}

/// Answers the client's first message, and has it make a Call. Returns the XID of the Call.
fn begun(pair: &mut Pair) -> u32 {
    pair.begin(NULL, 0);
    let first = pair.message();
    assert_eq!((first[1], first[3], property(&first, REVERSE)), (2, CONNPROP_FINAL, Some(3)));
    pair.send(&message(first[0], CONNPROP_FINAL, &[0], &[]));
    let called = pair.message();
    assert_eq!((called[1], called[3], called[9]), (2, CALL_INLINE, 0));
    called[0]
}

/// Ends the client's Call.
fn ended(mut pair: Pair, reply: &[u8]) {
    pair.send(reply);
    assert_eq!(pair.outcome(), Ok(()));
    pair.thread.stop().unwrap();
}

#[test]
fn a_client_says_whether_it_serves() {
    let mut pair = Pair::speaking(Versions::OnlyTwo);
    let first = pair.message();
    assert_eq!(property(&first, REVERSE), Some(0));
    pair.thread.stop().unwrap();
    let mut pair = serving(Versions::OnlyTwo);
    begun(&mut pair);
    pair.thread.stop().unwrap();
}

#[test]
fn a_client_of_version_2_serves_calls_of_every_form_under_any_xid() {
    let mut pair = serving(Versions::Both);
    let xid = begun(&mut pair);
    // [V2-3.1.5.4-1] The server's Calls have the XID of the client's own Call, which goes on.
    for times in 0..3 {
        pair.send(&message(xid, CALL_INLINE, &[0; 4], &call(xid, NULL, &[])));
        let reply = pair.message();
        // [V2-4.6.1-2] [V2-4.6.2-1] [V2-4.6.2-2] The RPC Reply has the XID of its header.
        assert_eq!((reply[0], reply[1], reply[3]), (xid, 2, REPLY_INLINE), "{times}");
        assert_eq!(reply[4..], [0, xid, 1, 0, 0, 0, 0], "{times}");
    }
    // An argument in a Read chunk comes back in a Write chunk.
    let item: Vec<u8> = (0..=250).cycle().take(9000).collect();
    let source = pair.link.expose(&item, item.len(), Access::RemoteRead).unwrap();
    let read = [&[source.handle.0, 1, 44][..], &segment(source), &[0, 0, 0]].concat();
    pair.send(&message(7, CALL_INLINE, &read, &call(7, PUT, &[source.length])));
    let reply = pair.message();
    assert_eq!((reply[0], reply[3], reply[4]), (7, REPLY_INLINE, 0));
    assert!(!pair.link.exposes(source.handle), "the Reply invalidated it");
    let room = pair.link.expose(&[], item.len(), Access::RemoteWrite).unwrap();
    let write = [&[0, 0, 1, 1][..], &segment(room), &[0, 0]].concat();
    pair.send(&message(8, CALL_INLINE, &write, &call(8, GET, &[])));
    let reply = pair.message();
    assert_eq!((reply[0], reply[3]), (8, REPLY_INLINE));
    assert!(pair.link.retire(room.handle).unwrap().bytes() == item, "the item came back");
    // A Call in two messages.
    let long = [&call(9, TALLY, &[4])[..], &[1, 2, 3, 4]].concat();
    let (front, back) = long.split_at(20);
    let rest = u32::try_from(back.len()).unwrap();
    pair.send(&message(9, CALL_MIDDLE, &[rest], front));
    pair.send(&message(9, CALL_INLINE, &[0; 4], back));
    let reply = pair.message();
    assert_eq!((reply[0], reply[3], &reply[11..]), (9, REPLY_INLINE, &[4, 10][..]));
    // [V2-4.6.1-1] A Call of another XID than that of its header is malformed.
    pair.send(&message(11, CALL_INLINE, &[0; 4], &call(12, NULL, &[])));
    let error = pair.message();
    assert_eq!((error[0], error[3], &error[4..]), (11, ERROR, &[2][..]));
    // A Call of a program that the client does not serve.
    let header = [10, 0, 2, PROGRAM + 1, 1, 0, 0, 0, 0, 0];
    pair.send(&message(10, CALL_INLINE, &[0; 4], &octets(&header)));
    assert_eq!(pair.message()[5..], [10, 1, 0, 0, 0, 1]);
    ended(pair, &good_reply(xid));
}

/// Returns a message of version 1.
fn one(xid: u32, proc: u32, lists: &[u32], body: &[u8]) -> Vec<u8> {
    super::message(xid, proc, lists, body)
}

#[test]
fn a_client_of_version_1_serves_calls_without_chunks_under_any_xid() {
    let mut pair = serving(Versions::OnlyOne);
    pair.begin(NULL, 0);
    let called = pair.message();
    let xid = called[0];
    assert_eq!((called[1], called[3], called[8]), (1, MSG, 0));
    for times in 0..3 {
        // [R8167-2.4.1-1] The server's Calls have the XID of the client's own Call.
        pair.send(&one(xid, MSG, &NO_LISTS, &call(xid, NULL, &[])));
        let reply = pair.message();
        // [R8167-5.2-1] [R8167-5.2-2]
        assert_eq!((reply[0], reply[1], reply[3]), (xid, 1, MSG), "{times}");
        assert!(reply[2] > 0, "each Reply grants a credit");
        assert_eq!(reply[4..], [0, 0, 0, xid, 1, 0, 0, 0, 0], "{times}");
    }
    // [R8167-5.3-2] A Call with chunks is refused, in whatever list they are.
    let null = call(7, NULL, &[]);
    let read = [&[1, 44][..], &nowhere(8), &[0, 0, 0]].concat();
    let write = [&[0, 1, 1][..], &nowhere(8), &[0, 0]].concat();
    let reply = [&[0, 0, 1, 1][..], &nowhere(8)].concat();
    let whole = [&[1, 0][..], &nowhere(40), &[0, 0, 0]].concat();
    for (what, bytes) in [
        ("a Read chunk", one(7, MSG, &read, &null)),
        ("a Write chunk", one(7, MSG, &write, &null)),
        ("a Reply chunk", one(7, MSG, &reply, &null)),
        ("a Call chunk", one(7, NOMSG, &whole, &[])),
    ] {
        pair.send(&bytes);
        let error = pair.message();
        assert_eq!((error[0], error[1], &error[3..]), (7, 1, &[4, 2][..]), "{what}");
    }
    // [R8167-5.1-2] A Call of another XID than that of its header is refused, too.
    pair.send(&one(7, MSG, &NO_LISTS, &call(8, NULL, &[])));
    assert_eq!(pair.message()[3..], [4, 2]);
    ended(pair, &one(xid, MSG, &NO_LISTS, &rpc_reply(xid)));
}

#[test]
fn a_client_of_version_1_that_serves_nothing_refuses_every_call() {
    let mut pair = Pair::of(Versions::OnlyOne, NoService);
    pair.begin(NULL, 0);
    let xid = pair.message()[0];
    for times in 0..3 {
        pair.send(&one(xid, MSG, &NO_LISTS, &call(xid, NULL, &[])));
        let error = pair.message();
        assert_eq!((error[0], error[1], &error[3..]), (xid, 1, &[4, 2][..]), "{times}");
    }
    ended(pair, &one(xid, MSG, &NO_LISTS, &rpc_reply(xid)));
}

#[test]
fn credits_of_a_message_without_direction_mean_nothing() {
    // [R8167-4.1-2] With the one credit that it has, the client makes one Call at a time.
    let mut pair = serving(Versions::OnlyOne);
    for _ in 0..4 {
        pair.begin(NULL, 0);
    }
    let first = pair.message()[0];
    let nothing = [octets(&[first, 1, 32, MSG, 0, 0, 0]), octets(&[first, 9])].concat();
    pair.send(&nothing);
    // A Call has a credit word of its own, which says nothing about the client's.
    pair.send(&one(5, MSG, &NO_LISTS, &call(5, NULL, &[])));
    let reply = pair.message();
    assert_eq!((reply[0], reply[8]), (5, 1), "the Reply, and no second Call");
    let granting_one = |xid| [octets(&[xid, 1, 1, MSG, 0, 0, 0]), rpc_reply(xid)].concat();
    pair.send(&granting_one(first));
    assert_eq!(pair.outcome(), Ok(()));
    // A malformed message ends the Call whose XID it has, and its credit word means nothing either.
    let second = pair.message()[0];
    pair.send(&octets(&[second, 1, 32, MSG, 2]));
    assert!(matches!(pair.outcome(), Err(CallError::BadReply(_))));
    let third = pair.message()[0];
    pair.send(&one(6, MSG, &NO_LISTS, &call(6, NULL, &[])));
    let reply = pair.message();
    assert_eq!((reply[0], reply[8]), (6, 1), "the Reply, and no fourth Call");
    pair.send(&granting_one(third));
    assert_eq!(pair.outcome(), Ok(()));
    let fourth = pair.message()[0];
    ended(pair, &one(fourth, MSG, &NO_LISTS, &rpc_reply(fourth)));
}

#[test]
fn a_server_that_ignores_the_credits_of_its_client_gains_nothing() {
    const CALLS: u32 = 600;
    for versions in [Versions::OnlyTwo, Versions::OnlyOne] {
        let mut pair = serving(versions);
        let calls = |xid| match versions {
            Versions::OnlyOne => one(xid, MSG, &NO_LISTS, &call(xid, NULL, &[])),
            _ => message(xid, CALL_INLINE, &[0; 4], &call(xid, NULL, &[])),
        };
        if versions == Versions::OnlyOne {
            pair.begin(NULL, 0);
            pair.message();
        } else {
            begun(&mut pair);
        }
        let all_sent = (0..CALLS).all(|xid| pair.link.send(&calls(xid)).is_ok());
        let mut waiting: BTreeSet<u32> = (0..CALLS).collect();
        while all_sent && !waiting.is_empty() {
            match pair.link.message(None) {
                Ok(Some(reply)) => assert!(waiting.remove(&words(&reply)[0]), "one Reply to each"),
                Err(Failure::Ended(_)) => break,
                other => panic!("{versions:?}: {other:?}"),
            }
        }
        // What the Calls took is given back, whether they were answered or cut off.
        pair.thread.stop().unwrap();
    }
}

/// What a server's Call to its client is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Nothing,
    /// An argument that takes a Read chunk, or several messages.
    Item,
    /// Results that may take a Reply chunk.
    Much,
    /// Arguments that take a Call chunk, or several messages.
    Long,
}

const ASKS: [Asks; 4] = [Asks::Nothing, Asks::Item, Asks::Much, Asks::Long];

/// A service that calls each caller back, and answers it when it knows how that ended.
#[derive(Debug, Default)]
struct Asker {
    asked: VecDeque<CallToken>,
    /// How Calls to clients ended, by codes of this test: the results of the Calls that they were made for.
    told: VecDeque<u32>,
    making: VecDeque<(ConnectionId, u32)>,
}

const OK: u32 = 0;
const NOT_ANNOUNCED: u32 = 1;
const OTHER: u32 = 2;

impl Service for Asker {
    fn programs(&self) -> Vec<Program> {
        let procedures = vec![Procedure::new("NULL"), Procedure::new("ASK").results_max(4)];
        vec![Program::new(Binding { program: PROGRAM, version: 1, procedures })]
    }

    fn callbacks(&self) -> Option<Binding> {
        Keeper::default().programs().first().map(|program| program.binding().clone())
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, _: &mut Reply) -> Outcome {
        if call.procedure == 0 {
            return Outcome::Done;
        }
        let Ok(what) = call.arguments.u32() else {
            return Outcome::Failed(AcceptStat::GarbageArgs);
        };
        self.asked.push_back(call.token);
        self.making.push_back((call.connection, what));
        Outcome::Later
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some((connection, what)) = self.making.pop_front() else { return false };
        let what = ASKS[what as usize];
        let procedure = match what {
            Asks::Nothing => NULL,
            Asks::Item => PUT,
            Asks::Much => LIST,
            Asks::Long => TALLY,
        };
        let argument = (what == Asks::Item).then(|| cx.pool().lease(9000).unwrap());
        let request = Request::new(procedure).argument(argument);
        let called = cx.call(connection, request, 0, |w| match what {
            Asks::Nothing | Asks::Item => Ok(()),
            Asks::Much => w.u32(10),
            Asks::Long => w.opaque(&[1; 4600]),
        });
        called.map_err(|(why, _)| why).unwrap();
        true
    }

    fn replied(&mut self, cx: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        self.told.push_back(match finished.results {
            Ok(_) => OK,
            Err(CallError::NotAnnounced) => NOT_ANNOUNCED,
            Err(_) => OTHER,
        });
        cx.resume(self.asked[0]);
    }

    fn resume(&mut self, _: &mut Cx<'_>, _: CallToken, reply: &mut Reply) -> Outcome {
        self.asked.pop_front();
        let code = self.told.pop_front().unwrap();
        reply.results(|w| w.u32(code));
        Outcome::Done
    }
}

#[test]
fn a_server_calls_a_client_as_it_announced_and_not_otherwise() {
    // [V2-4.6.3-1]
    let server = server_of(|_| Asker::default());
    for level in 0..4 {
        let mut peer = match level {
            0 => Peer::open(server.started),
            _ => Peer::saying(server.started, &[1, REVERSE, 4, level]),
        };
        for (xid, asks) in (100..).zip(ASKS) {
            let least = match asks {
                Asks::Nothing => 1,
                Asks::Item | Asks::Long => 2,
                Asks::Much => 3,
            };
            peer.0.send(&message(xid, CALL_INLINE, &[0; 4], &call(xid, 1, &[xid - 100]))).unwrap();
            let told = if level < least {
                NOT_ANNOUNCED
            } else {
                answered(&mut peer, asks, level);
                OK
            };
            let reply = peer.next();
            assert_eq!((reply[0], reply[3]), (xid, REPLY_INLINE), "{asks:?} at {level}");
            assert_eq!(reply[11..], [told], "{asks:?} at {level}");
        }
    }
    server.stop().unwrap();
}

/// Answers a Call of the server, and says how it has to look like.
fn answered(peer: &mut Peer, asks: Asks, level: u32) {
    let mut called = peer.next();
    let xid = called[0];
    let is_continued = called[3] == CALL_MIDDLE;
    while called[3] == CALL_MIDDLE {
        called = peer.next();
    }
    assert_eq!((called[0], called[1]), (xid, 2));
    if level < 3 {
        assert_eq!((called[3], &called[4..8]), (CALL_INLINE, &[0; 4][..]), "it has no chunks");
        assert_eq!(is_continued, asks != Asks::Nothing);
    }
    match asks {
        Asks::Nothing => {
            // [V2-4.6.1-1] [V2-4.6.1-2]
            assert_eq!((called[3], &called[4..10]), (CALL_INLINE, &[0, 0, 0, 0, xid, 0][..]));
        }
        Asks::Item if level == 3 => assert_eq!(called[5..7], [1, 44], "a Read chunk"),
        Asks::Item | Asks::Much | Asks::Long => {}
    }
    let results = match asks {
        Asks::Much => octets(&[0]),
        Asks::Long => octets(&[4600, 4600]),
        Asks::Nothing | Asks::Item => Vec::new(),
    };
    let body = [rpc_reply(xid), results].concat();
    peer.0.send(&message(xid, REPLY_INLINE, &[0], &body)).unwrap();
}

#[test]
fn a_reply_of_a_client_has_the_xid_of_its_header() {
    // [V2-4.6.2-1]
    let server = server_of(|_| Asker::default());
    let mut peer = Peer::saying(server.started, &[1, REVERSE, 4, 3]);
    for (xid, other, told) in [(100, 1, OTHER), (101, 0, OK)] {
        peer.0.send(&message(xid, CALL_INLINE, &[0; 4], &call(xid, 1, &[0]))).unwrap();
        let called = peer.next()[0];
        peer.0.send(&message(called, REPLY_INLINE, &[0], &rpc_reply(called ^ other))).unwrap();
        let reply = peer.next();
        assert_eq!((reply[0], &reply[11..]), (xid, &[told][..]));
    }
    server.stop().unwrap();
}

#[test]
fn a_server_drops_what_answers_no_call_of_its_own() {
    let server = server_of(|_| Asker::default());
    let mut peer = Peer::saying(server.started, &[1, REVERSE, 4, 3]);
    peer.0.send(&message(9, REPLY_INLINE, &[0], &rpc_reply(9))).unwrap();
    peer.0.send(&message(9, ERROR, &[2], &[])).unwrap();
    peer.0.send(&message(9, CALL_INLINE, &[0; 4], &call(9, NULL, &[]))).unwrap();
    assert_eq!(peer.next()[..2], [9, 2]);
    server.stop().unwrap();
}

#[test]
fn a_server_of_version_1_calls_a_client_that_it_has_answered() {
    // [R8167-6-1]
    let server = server_of(|_| Asker::default());
    let mut peer = super::Peer::connect(server.started);
    peer.0.send(&one(50, MSG, &NO_LISTS, &call(50, 1, &[0]))).unwrap();
    let called = words(&peer.0.message(None).unwrap().unwrap());
    let xid = called[0];
    // [R8167-5.1-1] [R8167-5.1-2] The RPC Call has the XID of its header.
    assert_eq!((called[1], called[3], &called[4..9]), (1, MSG, &[0, 0, 0, xid, 0][..]));
    peer.0.send(&one(xid, MSG, &NO_LISTS, &rpc_reply(xid))).unwrap();
    let reply = words(&peer.0.message(None).unwrap().unwrap());
    assert_eq!((reply[0], *reply.last().unwrap()), (50, OK));
    // No chunk is offered on version 1.
    for what in [1, 2] {
        peer.0.send(&one(51, MSG, &NO_LISTS, &call(51, 1, &[what]))).unwrap();
        let reply = words(&peer.0.message(None).unwrap().unwrap());
        assert_eq!((reply[0], *reply.last().unwrap()), (51, NOT_ANNOUNCED));
    }
    server.stop().unwrap();
}
