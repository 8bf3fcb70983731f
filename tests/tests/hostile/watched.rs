//! Peers that break no rule, count every message against the credits that they gave, and look which handle is invalidated.

use haulage::core::{Cx, Service};
use haulage::limits::Versions;
use haulage::service::{self, ConnectionId, Finished, Request};
use haulage_proto::verbs::Access;
use haulage_tests::link::{Failure, Link};

use super::caller::{Pair, rpc_reply};
use super::two::{CALL_INLINE, CONNPROP_FINAL, ERROR, GRANT, Peer, REPLY_INLINE, words};
use super::{
    GET, HOLD, Keeper, LATE_GET, LATE_SWAP, NULL, SWAP, call, octets, segment, server,
    terse_server_of,
};

/// Returns a message of version 2 with this credit word.
fn message(credit: u32, [xid, htype]: [u32; 2], header: &[u32], payload: &[u8]) -> Vec<u8> {
    [&octets(&[xid, 2, credit, htype]), &octets(header), payload].concat()
}

/// The messages of the other end, counted against the limit that it was told.
struct Account {
    limit: u32,
    messages: u32,
}

impl Account {
    const fn new(limit: u32) -> Self {
        Self { limit, messages: 0 }
    }

    /// Counts a message. Returns its words.
    fn count(&mut self, message: &[u8]) -> Vec<u32> {
        let message = words(message);
        self.messages += 1;
        // [V2-4.2.1-5] [V2-4.2.1.1-1] One grant, and nothing else, may be beyond the limit.
        let most = self.limit + u32::from(message[3] == GRANT);
        assert!(self.messages <= most, "{} of {}: {message:x?}", self.messages, self.limit);
        message
    }

    /// Counts the next message. Returns its words.
    fn next(&mut self, link: &mut Link) -> Vec<u32> {
        let message = link.message(None).unwrap().unwrap();
        self.count(&message)
    }

    /// Refuses the version, which makes the other end close the connection, and counts what it sent before.
    fn finish(&mut self, link: &mut Link) {
        link.send(&message(self.limit, [1, ERROR], &[1, 1, 1], &[])).unwrap();
        loop {
            match link.message(None) {
                Ok(message) => self.count(&message.unwrap()),
                Err(Failure::Ended(_)) => return,
                Err(other) => panic!("{other}"),
            };
        }
    }
}

#[test]
fn a_server_sends_nothing_but_a_grant_beyond_the_credits_of_its_client() {
    let server = server();
    let mut bystander = super::Peer::connect(server.started);
    // Replies, and errors about an unknown header type.
    for htype in [CALL_INLINE, 99] {
        for limit in 1..5 {
            let Peer(mut link) = Peer::connect(server.started);
            let mut account = Account::new(limit);
            link.send(&message(limit, [1, CONNPROP_FINAL], &[0], &[])).unwrap();
            for xid in 2..8 {
                let null = message(limit, [xid, htype], &[0; 4], &call(xid, NULL, &[]));
                link.send(&null).unwrap();
            }
            // The properties, and as many answers as there are credits.
            while account.messages < limit {
                account.next(&mut link);
            }
            // The server has looked at all connections before it serves another one twice.
            for xid in 2..4 {
                bystander.null(xid);
            }
            account.finish(&mut link);
        }
    }
    bystander.0.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn a_client_sends_nothing_but_a_grant_beyond_the_credits_of_its_server() {
    for limit in 1..6 {
        let mut account = Account::new(limit);
        let properties = |xid| {
            account.messages += 1;
            message(limit, [xid, CONNPROP_FINAL], &[0], &[])
        };
        let mut pair = Pair::answering(Versions::Both, properties);
        for _ in 0..limit {
            pair.begin(NULL, 0);
        }
        // P2: a client that takes no Calls leaves no credit.
        while account.messages < limit {
            account.next(&mut pair.link);
        }
        // The client has looked at all Calls before it lends memory.
        drop(pair.thread.started.lease(8).unwrap());
        account.finish(&mut pair.link);
        pair.thread.stop().unwrap();
    }
}

#[test]
fn counts_begin_with_no_message_and_a_limit_of_one() {
    // [V2-4.2.1-1] A client that has sent nothing may send one message.
    let mut pair = Pair::speaking(Versions::Both);
    assert_eq!(pair.message()[3], CONNPROP_FINAL);
    drop(pair);
    // [V2-4.2.1-3] A message of another version is answered, but its credit word means nothing: the server has one
    // credit.
    let server = server();
    let Peer(mut link) = Peer::connect(server.started);
    let mut account = Account::new(1);
    let other = |xid| octets(&[xid, 3, 1000, CALL_INLINE, 0, 0, 0, 0]);
    link.send(&other(2)).unwrap();
    let told = account.next(&mut link);
    assert_eq!((told[0], told[1], told[3]), (2, 3, ERROR));
    // [V2-4.2.1-2] One message was received. Of a connection's twelve Receives, one is for a grant.
    assert_eq!(told[2], 1 + 11);
    link.send(&other(3)).unwrap();
    account.finish(&mut link);
    server.stop().unwrap();
}

#[test]
fn a_server_that_can_neither_answer_nor_keep_an_answer_closes_the_connection() {
    let server = server();
    let Peer(mut link) = Peer::connect(server.started);
    link.send(&message(1, [1, CONNPROP_FINAL], &[0], &[])).unwrap();
    let (mut sent, mut received) = (1, 1);
    let mut limit = words(&link.message(None).unwrap().unwrap())[2];
    // The server has as many credits as grants take, and so sends nothing else.
    let ended = loop {
        while sent < limit {
            sent += 1;
            assert!(sent < 80, "the answers are dropped");
            if link.send(&message(received, [sent, 99], &[0; 4], &[])).is_err() {
                break;
            }
        }
        match link.message(None) {
            Ok(told) => {
                let told = words(&told.unwrap());
                assert_eq!(told[3], GRANT);
                (limit, received) = (told[2], received + 1);
            }
            Err(ended) => break ended,
        }
    };
    // [V2-7.4-2]
    assert!(matches!(ended, Failure::Ended(_)) && sent > 32, "{ended} after {sent}");
    server.stop().unwrap();
}

#[test]
fn a_client_that_has_spent_its_credits_on_calls_can_always_tell_of_its_own() {
    let server = server();
    let Peer(mut link) = Peer::connect(server.started);
    link.send(&message(9, [1, CONNPROP_FINAL], &[0], &[])).unwrap();
    let (mut sent, mut limit) = (1, words(&link.message(None).unwrap().unwrap())[2]);
    let mut raised_by_one = 0;
    // The server holds Receives for Calls that it does not answer, until it has none left for more of them.
    while raised_by_one < 8 {
        while sent < limit {
            sent += 1;
            link.send(&message(9, [sent, CALL_INLINE], &[0; 4], &call(sent, HOLD, &[]))).unwrap();
        }
        // [V2-4.2.1.1-2] One grant may go beyond the limit, and its credit is granted again.
        if sent == limit {
            sent += 1;
            link.send(&message(9 + sent, [0, GRANT], &[], &[])).unwrap();
        }
        let told = words(&link.message(None).unwrap().unwrap());
        assert_eq!(told[3], GRANT);
        raised_by_one += u32::from(told[2] == limit + 1);
        limit = told[2];
    }
    // The server grants again only the credits that grants used: it has not gone on to take Calls one by one.
    assert!(sent < 300, "{sent} messages");
    link.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn a_server_that_gives_one_credit_at_a_time_is_called() {
    // Section 4.2.1: the credit word counts the messages that this end has sent, and one more.
    let mut sent = 0;
    let mut credit = || {
        sent += 1;
        sent + 1
    };
    let mut account = Account::new(credit());
    let properties = |xid| {
        account.messages += 1;
        message(account.limit, [xid, CONNPROP_FINAL], &[0], &[])
    };
    let mut pair = Pair::answering(Versions::Both, properties);
    for _ in 0..3 {
        (0..4).for_each(|_| pair.begin(NULL, 0));
        for _ in 0..4 {
            let called = account.next(&mut pair.link);
            assert_eq!(called[3], CALL_INLINE);
            account.limit = credit();
            let reply =
                message(account.limit, [called[0], REPLY_INLINE], &[0], &rpc_reply(called[0]));
            pair.send(&reply);
            assert_eq!(pair.outcome(), Ok(()));
        }
    }
    pair.thread.stop().unwrap();
}

#[test]
fn a_client_refuses_nothing_beyond_the_credits_of_its_server() {
    for limit in 3..6 {
        let mut account = Account::new(limit);
        let properties = |xid| {
            account.messages += 1;
            message(limit, [xid, CONNPROP_FINAL], &[0], &[])
        };
        let mut pair = Pair::answering(Versions::Both, properties);
        for xid in 0..2 * limit {
            let unknown = message(limit, [xid, 99], &[0; 4], &call(xid, NULL, &[]));
            pair.send(&unknown);
        }
        // The client sends as many errors as it has credits.
        while account.messages < limit {
            assert_eq!(account.next(&mut pair.link)[3], ERROR);
        }
        account.finish(&mut pair.link);
        pair.thread.stop().unwrap();
    }
}

/// A service that makes `first` Calls when its connection is ready, and `more` whenever one of them ends.
struct Eager {
    first: u32,
    more: u32,
    connection: Option<ConnectionId>,
}

impl Eager {
    fn call_often(&self, cx: &mut Cx<'_>, times: u32) {
        let Some(connection) = self.connection else { return };
        for _ in 0..times {
            let request = Request::new(NULL);
            // A core that is busy, or whose connection is lost, makes none.
            let _ = cx.call(connection, request, 0, |_| Ok(()));
        }
    }
}

impl Service for Eager {
    fn opened(&mut self, cx: &mut Cx<'_>, peer: &service::Peer) {
        self.connection = Some(peer.connection);
        self.call_often(cx, self.first);
    }

    fn replied(&mut self, cx: &mut Cx<'_>, _: u64, _: Finished<'_>) {
        self.call_often(cx, self.more);
    }
}

#[test]
fn a_service_that_calls_whenever_a_call_ends_keeps_to_the_credits_of_its_server() {
    for limit in 3..6 {
        // Calls always wait for credit, or none does until Calls end whose Replies bring no credit.
        for (first, more) in [(8, 2), (limit - 1, 1)] {
            let mut account = Account::new(limit);
            let properties = |xid| {
                account.messages += 1;
                message(limit, [xid, CONNPROP_FINAL], &[0], &[])
            };
            let service = Eager { first, more, connection: None };
            let mut pair = Pair::of(Versions::Both, service).answered(properties);
            for _ in 0..50 {
                let mut xids = Vec::new();
                while account.messages < account.limit {
                    let next = account.next(&mut pair.link);
                    xids.extend((next[3] == CALL_INLINE).then_some(next[0]));
                }
                for xid in &xids {
                    let header = [*xid, REPLY_INLINE];
                    pair.send(&message(account.limit, header, &[0], &rpc_reply(*xid)));
                }
                account.limit += u32::try_from(xids.len()).unwrap();
                pair.send(&message(account.limit, [0, GRANT], &[], &[]));
            }
            account.finish(&mut pair.link);
            pair.thread.stop().unwrap();
        }
    }
}

#[test]
fn a_reply_invalidates_the_handle_that_its_call_names_and_no_other() {
    let server = server();
    let item = [0x5a; 8000];
    // The service answers at once or later. The Reply leaves as soon as it is there, or waits for a credit.
    let mut cases = Vec::new();
    for credits in [2, 0] {
        let swaps = [SWAP, LATE_SWAP].map(|procedure| (procedure, vec![0, 1, 2, 3]));
        // GET Calls have a Write chunk alone.
        let gets = [GET, LATE_GET].map(|procedure| (procedure, vec![1, 3]));
        for (procedure, solicited) in swaps.into_iter().chain(gets) {
            cases.extend(solicited.into_iter().map(|at| (procedure, credits, at)));
        }
    }
    for (procedure, credits, solicited) in cases {
        let mut peer = Peer::open(server.started);
        peer.put(3, &item);
        // The server has sent its properties and a Reply.
        let told = 2 + credits;
        let [from, to, reply] = [Access::RemoteRead, Access::RemoteWrite, Access::RemoteWrite]
            .map(|access| peer.0.expose(&item, item.len(), access).unwrap());
        let handles = [from, to, reply].map(|exposed| exposed.handle);
        let handle = handles.get(solicited).map_or(0, |handle| handle.0);
        let (read, reply_chunk, arguments) = match procedure {
            SWAP | LATE_SWAP => {
                let read = [&[1, 44][..], &segment(from), &[0]].concat();
                (read, [&[1, 1][..], &segment(reply)].concat(), vec![from.length])
            }
            _ => (vec![0], vec![0], Vec::new()),
        };
        let lists = [&[handle][..], &read, &[1, 1], &segment(to), &[0], &reply_chunk];
        let arguments = call(7, procedure, &arguments);
        let called = message(told, [7, CALL_INLINE], &lists.concat(), &arguments);
        peer.0.send(&called).unwrap();
        if credits == 0 {
            peer.0.send(&message(told + 2, [0, GRANT], &[], &[])).unwrap();
        }
        let answer = peer.next();
        assert_eq!((answer[0], answer[3]), (7, REPLY_INLINE), "{procedure}: {answer:?}");
        // [V2-6.5-1]
        for (index, handle) in handles.into_iter().enumerate() {
            let is_exposed = peer.0.exposes(handle);
            assert_eq!(is_exposed, index != solicited, "{procedure} {credits} {solicited} {index}");
        }
        assert_eq!(peer.0.retire(to.handle).unwrap().bytes(), item);
        peer.0.close().unwrap();
    }
    server.stop().unwrap();
}

#[test]
fn an_error_invalidates_nothing_though_its_call_asks_for_it() {
    let server = terse_server_of(|_| Keeper::default());
    let mut peer = Peer::open(server.started);
    peer.put(3, &[0x5a; 8000]);
    // The item is longer than its chunk and than a message.
    let to = peer.0.expose(&[], 100, Access::RemoteWrite).unwrap();
    let lists = [&[to.handle.0, 0, 1, 1][..], &segment(to), &[0, 0]].concat();
    peer.0.send(&message(1000, [7, CALL_INLINE], &lists, &call(7, GET, &[]))).unwrap();
    let answer = peer.next();
    assert_eq!((answer[0], answer[3]), (7, ERROR), "{answer:?}");
    assert!(peer.0.exposes(to.handle), "E28");
    peer.0.close().unwrap();
    server.stop().unwrap();
}
