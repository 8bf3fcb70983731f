//! The reverse direction (RFC 8167).

use super::*;
use crate::v1::credit::Credits;
use crate::v1::header::tests::vector;

impl Pair {
    /// Two ends of which the server may call.
    fn reversible() -> Self {
        let mut pair = Self::plain();
        pair.exchange(1);
        pair.ends[SERVER].engine.announce();
        pair
    }
}

#[test]
fn a_server_calls_only_a_client_that_is_ready_and_was_answered() {
    let mut pair = Pair::plain();
    // [R8167-6-1] P14
    assert_eq!(pair.send(SERVER, Class::Call, 5), None, "nobody said that the client is ready");
    pair.ends[SERVER].engine.announce();
    assert_eq!(pair.send(SERVER, Class::Call, 5), None, "the client was not answered");
    pair.exchange(1);
    assert_eq!(pair.send(SERVER, Class::Call, 5), Some(2), "what the server asks for");
    let mut silent = Pair::plain();
    silent.exchange(1);
    assert_eq!(silent.send(SERVER, Class::Call, 5), None);
}

#[test]
fn both_directions_work_at_once_with_the_same_xid() {
    let mut pair = Pair::reversible();
    for at in [CLIENT, SERVER] {
        assert!(pair.send(at, Class::Call, 9).is_some());
    }
    pair.settle();
    for at in [CLIENT, SERVER] {
        assert_eq!(pair.events(at), [Event::Call], "[R8167-2.4.1-1]");
    }
    for at in [CLIENT, SERVER] {
        assert!(pair.send(at, Class::Reply, 9).is_some());
    }
    pair.settle();
    for at in [CLIENT, SERVER] {
        assert_eq!(pair.events(at), [Event::Reply]);
        assert_eq!(pair.ends[at].engine.owed(), 0);
        assert_eq!(pair.ends[at].engine.credits.unanswered(), 0);
    }
}

#[test]
fn the_directions_have_credits_of_their_own() {
    let mut pair = Pair::reversible();
    let forward = (10..).map_while(|xid| pair.send(CLIENT, Class::Call, xid)).count();
    assert_eq!(forward, 6);
    // [R8167-4.1-1] the reverse direction has credits of its own, as many as the client grants.
    assert!(pair.send(SERVER, Class::Call, 50).is_some());
    assert_eq!(pair.send(SERVER, Class::Call, 51), None, "one until the first Reply");
    pair.settle();
    assert_eq!(pair.send(CLIENT, Class::Reply, 50), Some(2));
    pair.settle();
    let reverse = (60..).map_while(|xid| pair.send(SERVER, Class::Call, xid)).count();
    assert_eq!(reverse, 2);
    assert_eq!(pair.send(CLIENT, Class::Call, 99), None, "and nothing of it is ours");
}

#[test]
fn a_client_keeps_a_receive_for_its_own_calls() {
    let client = Config { credits_max: 64, ..config(Role::Client) };
    let mut pair = Pair::new(client, config(Role::Server), 2);
    pair.exchange(1);
    pair.receive(CLIENT, &plain(Class::Call, 5, 64));
    // Of four Receives, three are granted.
    assert_eq!(pair.send(CLIENT, Class::Reply, 5), Some(3));
    assert!(pair.send(CLIENT, Class::Call, 2).is_some());
    assert_eq!(pair.send(CLIENT, Class::Call, 3), None, "the others are promised");
}

#[test]
fn what_linux_sends_in_the_reverse_direction_is_understood() {
    let mut pair = Pair::reversible();
    for name in ["recall_any", "recall"] {
        assert!(pair.send(SERVER, Class::Call, 5).is_some());
        pair.settle();
        assert_eq!(pair.events(CLIENT), [Event::Call]);
        pair.ends[CLIENT].engine.refuse(5, ErrorBody::Chunk);
        pair.drain(CLIENT);
        pair.settle();
        let refused = Event::Refused { xid: 5, error: ErrorBody::Chunk };
        assert_eq!(pair.events(SERVER), [refused]);

        pair.receive(CLIENT, &vector(&std::format!("reverse/{name}_call")));
        assert_eq!(pair.events(CLIENT), [Event::Call], "{name}");
        assert_eq!(pair.send(CLIENT, Class::Reply, 6), Some(2), "whatever it asked for");
        pair.ends[SERVER].inbox.clear();
        assert!(pair.send(SERVER, Class::Call, 7).is_some());
        pair.ends[CLIENT].inbox.clear();
        pair.receive(SERVER, &vector(&std::format!("reverse/{name}_reply")));
        assert_eq!(pair.events(SERVER), [Event::Reply], "{name}");
        pair.ends[CLIENT].posted.clear();
    }
}

#[test]
fn a_client_without_chunks_refuses_a_call_with_chunks() {
    let segment = (1, 1, 1);
    let calls = [
        with_lists(5, |xdr| xdr.read_list(&[(4, segment)]).words(&[0, 0]), 0),
        with_lists(5, |xdr| xdr.words(&[0]).write_list(&[&[segment]]).words(&[0]), 0),
        with_lists(5, |xdr| xdr.words(&[0, 0, 1]).write_chunk(&[segment]), 0),
        Xdr::common(5, 1, 4, 1).read_list(&[(0, segment)]).words(&[0, 0]).0,
    ];
    for (n, call) in calls.iter().enumerate() {
        // [R8167-5.3-2]
        let mut pair = Pair::reversible();
        pair.receive(CLIENT, call);
        assert_eq!((pair.errors(CLIENT), pair.events(CLIENT)), (vec![(5, 1, 2)], vec![]), "{n}");
        // [R8167-5.3-1]
        let client = Config { reverse: Reverse::Chunks, ..config(Role::Client) };
        let mut pair = Pair::new(client, config(Role::Server), 16);
        pair.receive(CLIENT, call);
        assert_eq!((pair.errors(CLIENT), pair.events(CLIENT)), (vec![], vec![Event::Call]), "{n}");
    }
}

#[test]
fn a_client_that_serves_nothing_says_so() {
    let client = Config { reverse: Reverse::None, ..config(Role::Client) };
    let mut pair = Pair::new(client, config(Role::Server), 4);
    assert_eq!(pair.ends[CLIENT].engine.reserved(), 5, "no Receive for Calls");
    pair.receive(CLIENT, &plain(Class::Call, 5, 4));
    assert_eq!((pair.errors(CLIENT), pair.events(CLIENT)), (vec![(5, 1, 2)], vec![]));
    // A header of an unknown type has no direction, so a client does not answer it.
    pair.receive(CLIENT, &Xdr::common(7, 1, 4, 9).0);
    assert_eq!(pair.errors(CLIENT).len(), 1);
    pair.exchange(1);
}

#[test]
fn an_rdma_nomsg_goes_the_way_its_lists_say() {
    let reply = vector("rdma_nomsg/getacl_reply");
    let mut pair = Pair::plain();
    assert!(pair.send(CLIENT, Class::Call, 0xf567_9f7d).is_some());
    pair.receive(CLIENT, &reply);
    assert_eq!(pair.events(CLIENT), [Event::Reply]);
    assert_eq!(pair.ends[CLIENT].engine.credits.unanswered(), 0);
    pair.receive(SERVER, &vector("rdma_nomsg/setacl_call"));
    assert_eq!(pair.events(SERVER), [Event::Call]);
}

#[test]
fn a_dropped_direction_leaves_credits_alone() {
    let mut pair = Pair::plain();
    assert!(pair.send(CLIENT, Class::Call, 7).is_some());
    pair.ends[SERVER].inbox.clear();
    // [R8167-4.1-2]
    pair.receive(CLIENT, &Xdr::common(7, 1, 8, 0).words(&[0, 0, 0, 7, 2]).0);
    assert_eq!(pair.ends[CLIENT].engine.credits.unanswered(), 1);
    assert_eq!(pair.send(CLIENT, Class::Call, 8), None);
    assert_eq!(pair.events(CLIENT), []);
}

#[test]
fn an_end_whose_receives_are_all_promised_needs_one_for_its_call() {
    let mut credits = Credits::new(8, 8, PeerCalls::Served);
    assert!(!credits.lacks_receive(), "it makes no Calls");
    credits.expect_calls();
    assert!(credits.lacks_receive() && !credits.may_call(), "the peer may call once");
    credits.reserve(1);
    assert!(!credits.lacks_receive() && credits.may_call());
    credits.on_call_sent();
    assert!(!credits.lacks_receive(), "the Reply changes it");
    assert!(credits.on_received().is_ok());
    credits.on_answer(8);
    assert!(credits.lacks_receive() && !credits.may_call(), "the Reply used the Receive");
}
