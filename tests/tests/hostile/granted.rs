//! Peers of version 1 that break no rule, or take what they need not be given, and look at every credit word.

use haulage::limits::{RECEIVES_IDLE, Versions};
use haulage_tests::link::{Failure, Link};

use super::caller::{Pair, rpc_reply};
use super::two::words;
use super::{
    HOLD, MSG, NO_LISTS, NULL, PRIVATE_DATA, Peer, call, message, nowhere, octets, server,
};

/// Returns a Reply of version 1 with this grant.
fn reply(xid: u32, grant: u32) -> Vec<u8> {
    [octets(&[xid, 1, grant, MSG, 0, 0, 0]), rpc_reply(xid)].concat()
}

#[test]
fn a_client_asks_for_credits_and_makes_no_more_calls_than_it_was_granted() {
    for grant in 1..5 {
        let mut pair = Pair::speaking(Versions::OnlyOne);
        pair.begin(NULL, 0);
        let first = pair.message();
        // [R5666-3.3-1] The client asks for credits for several Calls at once.
        assert!(first[2] > 8, "{} credits", first[2]);
        pair.send(&reply(first[0], grant));
        assert_eq!(pair.outcome(), Ok(()));
        (0..=grant).for_each(|_| pair.begin(NULL, 0));
        let called: Vec<_> = (0..grant).map(|_| pair.message()[0]).collect();
        // The client has looked at all Calls before it lends memory.
        drop(pair.thread.started.lease(8).unwrap());
        // A refusal of the version closes the connection: [R5666-3.3-4] no Call is in front of its end.
        pair.send(&octets(&[called[0], 1, grant, 4, 1, 2, 2]));
        assert!(matches!(pair.link.message(None), Err(Failure::Ended(_))), "granted {grant}");
        pair.thread.stop().unwrap();
    }
}

#[test]
fn a_server_grants_more_to_a_client_that_uses_it() {
    let server = server();
    let mut peer = Peer::connect(server.started);
    let grant = |peer: &mut Peer, xid| {
        peer.0.send(&message(xid, MSG, &NO_LISTS, &call(xid, NULL, &[]))).unwrap();
        words(&peer.0.message(None).unwrap().unwrap())[2]
    };
    let first = grant(&mut peer, 2);
    // [R5666-3.3-2] [R5666-3.3-6]
    assert!(first >= 1);
    let most = (3..100).map(|xid| grant(&mut peer, xid)).max();
    // [R5666-3.3-3]
    assert!(most > Some(first), "{first}, then {most:?}");
    peer.0.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn calls_beyond_the_grant_are_served_while_receives_last() {
    let server = server();
    let mut theirs = PRIVATE_DATA;
    theirs[5] = 0;
    let (mut link, _) = Link::connect(server.started, &Default::default(), &theirs, 16).unwrap();
    // [R5666-3.3-5] One credit is granted before the first Reply. The useless chunk is no reason to refuse the Calls
    // beyond it.
    let unused = [&[0, 1, 1][..], &nowhere(64), &[0, 0]].concat();
    for xid in 1..RECEIVES_IDLE {
        link.send(&message(xid, MSG, &unused, &call(xid, HOLD, &[]))).unwrap();
    }
    link.send(&message(9, MSG, &unused, &call(9, NULL, &[]))).unwrap();
    let answer = words(&link.message(None).unwrap().unwrap());
    assert_eq!((answer[0], answer[3]), (9, MSG));
    link.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn bits_of_the_private_data_that_mean_nothing_are_zero_and_change_nothing() {
    let server = server();
    for flags in [0, 1, 0xfe, 0xff] {
        let mut theirs = PRIVATE_DATA;
        theirs[5] = flags;
        let (mut link, ours) =
            Link::connect(server.started, &Default::default(), &theirs, 16).unwrap();
        // [R8797-4-2]
        assert_eq!((&ours[..5], ours[5] & !1), (&PRIVATE_DATA[..5], 0), "{flags:x}");
        link.send(&message(7, MSG, &NO_LISTS, &call(7, NULL, &[]))).unwrap();
        let answer = words(&link.message(None).unwrap().unwrap());
        assert_eq!((answer[0], answer[3]), (7, MSG), "{flags:x}");
        link.close().unwrap();
    }
    server.stop().unwrap();
}
