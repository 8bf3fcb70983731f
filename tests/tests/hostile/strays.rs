//! Servers that send answers to Calls nobody made, in front of the Reply to the Call that waits.

use haulage::limits::Versions;

use super::caller::{Pair, good_reply, rpc_reply};
use super::two::{ERROR, REPLY_INLINE, message};
use super::{NULL, octets};

/// An `RDMA_ERROR` of version 1 with these words behind its prefix.
fn error_one(xid: u32, body: &[u32]) -> Vec<u8> {
    octets(&[&[xid, 1, 8, 4], body].concat())
}

/// A Reply of version 1 with these lists.
fn reply_one(xid: u32, lists: &[u32]) -> Vec<u8> {
    [octets(&[xid, 1, 8, 0]), octets(lists), rpc_reply(xid)].concat()
}

/// Checks that each of the messages that `stray` makes with the XID of no Call leaves the Call that waits to its Reply.
fn nothing_is_lost(mut pair: Pair, stray: fn(u32) -> Vec<Vec<u8>>, reply: fn(u32) -> Vec<u8>) {
    for index in 0..stray(0).len() {
        // Calls after the first one show that the strays have left the credits alone.
        for _ in 0..3 {
            pair.begin(NULL, 0);
            let xid = pair.message()[0];
            pair.send(&stray(xid ^ 1)[index]);
            pair.send(&reply(xid));
            assert_eq!(pair.outcome(), Ok(()), "{index}");
        }
    }
    pair.thread.stop().unwrap();
}

#[test]
fn an_answer_to_no_call_costs_no_call_its_reply_in_version_1() {
    let strays = |xid| {
        vec![
            error_one(xid, &[2]),
            error_one(xid, &[1, 1, 1]),
            error_one(xid, &[1, 2, 3]),
            reply_one(xid, &[0; 3]),
            // A Read list and a Reply without a body are errors of the Call that they answer.
            reply_one(xid, &[1, 4, 9, 8, 0, 0, 0, 0, 0]),
            octets(&[xid, 1, 8, 0, 0, 0, 0]),
        ]
    };
    nothing_is_lost(Pair::speaking(Versions::OnlyOne), strays, |xid| reply_one(xid, &[0; 3]));
}

#[test]
fn an_answer_to_no_call_costs_no_call_its_reply_in_version_2() {
    let strays = |xid| {
        vec![
            message(xid, ERROR, &[2], &[]),
            message(xid, ERROR, &[4], &[]),
            message(xid, REPLY_INLINE, &[0], &rpc_reply(xid)),
            message(xid, REPLY_INLINE, &[], &[]),
        ]
    };
    nothing_is_lost(Pair::open(), strays, good_reply);
}
