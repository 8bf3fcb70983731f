//! Clients of version 1 as RFC 5666 describes it: they pad Calls, and read Replies that have no other room. Some of them
//! break the rules of that.

use std::net::SocketAddr;
use std::time::Duration;

use haulage::cores::CoreThread;
use haulage::limits::{HELD_MAX, LIMITS_DEFAULT, Limits, Profile, RECEIVES_IDLE};
use haulage::provider::ConnectionParams;
use haulage_proto::v1::header::Padding;
use haulage_proto::v1::padding::put_padded;
use haulage_proto::verbs::{Access, Handle, Segment};
use haulage_proto::xdr::Writer;
use haulage_tests::link::{Failure, Link};

use super::two::words;
use super::{
    AnswerV1, GET, HOLD, Keeper, LIST, MSG, NO_LISTS, NOMSG, NULL, PRIVATE_DATA, PUT, Peer, TALLY,
    call, message, nowhere, octets, segment, server, server_within,
};

const MSGP: u32 = 2;
const DONE: u32 = 3;

/// Octets of a result that has no room in a message.
const LONG: u32 = 9000;

const LIMITS: Limits =
    Limits { profile: Profile::Rfc5666, connections_max: 16, receives_max: 256, ..LIMITS_DEFAULT };

fn serve(limits: Limits) -> CoreThread<SocketAddr> {
    server_within(limits, |_| Keeper::default())
}

/// A Reply that the client is to read.
struct Offered {
    credit: u32,
    stream: Segment,
}

impl Peer {
    /// Connects as a client that reads.
    fn reading(server: SocketAddr) -> Self {
        let params = ConnectionParams { private_data: &PRIVATE_DATA, ord: 4, ird: 16 };
        let mut peer = Self(Link::connect_as(server, &Default::default(), &params).unwrap().0);
        assert_eq!(peer.null(1), AnswerV1::Reply { xid: 1 });
        peer
    }

    fn ask(&mut self, xid: u32, procedure: u32, length: u32) {
        let call = call(xid, procedure, &[length]);
        self.0.send(&message(xid, MSG, &NO_LISTS, &call)).unwrap();
    }

    /// Takes the Reply with this XID, which is to be read.
    fn offered(&mut self, xid: u32) -> Offered {
        let reply = words(&self.0.message(None).unwrap().unwrap());
        // One Read chunk of one segment at position zero, and no Write or Reply chunk.
        let [_, 1, credit, NOMSG, 1, 0, handle, length, high, low, 0, 0, 0] = reply[..] else {
            panic!("nothing to read: {reply:x?}")
        };
        assert_eq!(reply[0], xid);
        let offset = u64::from(high) << 32 | u64::from(low);
        Offered { credit, stream: Segment { handle: Handle(handle), length, offset } }
    }

    /// Asks for a long result. Returns the Reply.
    fn long(&mut self, xid: u32) -> Offered {
        self.ask(xid, LIST, LONG);
        self.offered(xid)
    }

    fn done(&mut self, xid: u32) {
        self.0.send(&octets(&[xid, 1, 32, DONE])).unwrap();
    }

    /// Reads a Reply to a [`Self::long`], and compares it.
    fn reads(&mut self, xid: u32, offered: &Offered) {
        let read = self.0.read(offered.stream).unwrap();
        let expected = [octets(&[xid, 1, 0, 0, 0, 0, LONG]), vec![0x11; LONG as usize]].concat();
        assert!(read == expected, "the whole Reply of {xid}");
    }

    /// Reads a Reply so often that the server has its turns meanwhile. Returns whether no message has come.
    fn hears_nothing(&mut self, xid: u32, offered: &Offered) -> bool {
        (0..10).for_each(|_| self.reads(xid, offered));
        self.0.message(Some(haulage::sys::clock::now())).unwrap().is_none()
    }
}

/// Returns a padded Call whose argument has `length` octets.
fn padded(xid: u32, padding: Padding, length: usize) -> Vec<u8> {
    let mut room = vec![0; 8192];
    let mut w = Writer::new(&mut room);
    let header = [xid, 1, 32, MSGP, padding.align, padding.thresh, 0, 0, 0];
    w.put(octets(&header)).unwrap();
    w.put(call(xid, TALLY, &[])).unwrap();
    put_padded(&mut w, padding, &vec![3; length]).unwrap();
    w.written().to_vec()
}

#[test]
fn padded_calls_are_served_wherever_their_arguments_lie() {
    let server = serve(LIMITS);
    let mut peer = Peer::reading(server.started);
    for (align, thresh, length) in [
        (4, 401, 700),
        (64, 512, 511),
        (64, 512, 512),
        (1024, 401, 401),
        (1024, 401, 403),
        (1024, 512, 2000),
        (2048, 401, 0),
        (1 << 30, 3000, 2000),
    ] {
        // [R5666-3.9-1] [R5666-3.9-2]
        let call = padded(7, Padding { align, thresh }, length);
        peer.0.send(&call).unwrap();
        let reply = words(&peer.0.message(None).unwrap().unwrap());
        let [_, 1, _, MSG, 0, 0, 0, 7, 1, 0, 0, 0, 0, count, sum] = reply[..] else {
            panic!("{align} {thresh} {length}: {reply:x?}")
        };
        assert_eq!((count as usize, sum as usize), (length, 3 * length), "{align} {thresh}");
    }
    peer.0.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn padding_that_makes_no_sense_is_refused() {
    let server = serve(LIMITS);
    let mut peer = Peer::reading(server.started);
    let null = call(7, NULL, &[]);
    let chunk = AnswerV1::Chunk { xid: 7 };
    let read = [&[64, 512, 1, 44][..], &nowhere(8), &[0, 0, 0]].concat();
    let both = [&[64, 512, 1, 0][..], &nowhere(40), &[0, 0, 0]].concat();
    for (what, lists) in [
        ("no alignment", &[0, 512, 0, 0, 0][..]),
        ("an alignment within a word", &[6, 512, 0, 0, 0]),
        ("padded credentials", &[64, 400, 0, 0, 0]),
        ("no threshold", &[64, 0, 0, 0, 0]),
        ("padding and a Read chunk", &read),
        ("a Call in two places", &both),
        ("cut short", &[64, 512, 0]),
    ] {
        peer.0.send(&message(7, MSGP, lists, &null)).unwrap();
        assert_eq!(peer.answer(), chunk, "{what}");
    }
    // The argument would lie behind the end of the message: nothing is wrong with the transport.
    let mut beyond = padded(8, Padding { align: 1024, thresh: 401 }, 700);
    beyond[16..20].copy_from_slice(&(1_u32 << 31).to_be_bytes());
    peer.0.send(&beyond).unwrap();
    let reply = words(&peer.0.message(None).unwrap().unwrap());
    assert_eq!(reply[7..], [8, 1, 0, 0, 0, 4], "garbage arguments");
    assert_eq!(peer.null(9), AnswerV1::Reply { xid: 9 });
    server.stop().unwrap();
}

#[test]
fn a_length_that_is_not_that_of_its_chunk_is_garbage() {
    let server = serve(LIMITS);
    let mut peer = Peer::reading(server.started);
    // The Reply invalidates the handle.
    let put = |peer: &mut Peer, xid, count, length| {
        let chunk = segment(peer.0.expose(&vec![3; length], length, Access::RemoteRead).unwrap());
        let lists = [&[1, 44][..], &chunk, &[0, 0, 0]].concat();
        peer.0.send(&message(xid, MSG, &lists, &call(xid, PUT, &[count]))).unwrap();
    };
    for (count, length) in [(8, 9), (9, 8), (9, 10), (9, 16), (0, 8), (64, 60)] {
        put(&mut peer, 7, count, length);
        // [R5666-3.4-6]
        let reply = words(&peer.0.message(None).unwrap().unwrap());
        assert_eq!(reply[7..], [7, 1, 0, 0, 0, 4], "{count}, {length}");
    }
    put(&mut peer, 8, 9, 12);
    assert_eq!(peer.answer(), AnswerV1::Reply { xid: 8 }, "the padding is there as well");
    peer.0.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn a_reply_without_room_is_read_until_done() {
    let server = serve(LIMITS);
    let mut peer = Peer::reading(server.started);
    for xid in 10..10 + 3 * HELD_MAX {
        // [R5666-3.4-4] [R5666-5.2-2] [R5666-3.8-3]
        let offered = peer.long(xid);
        peer.reads(xid, &offered);
        peer.reads(xid, &offered);
        peer.done(xid);
    }
    // The items of a binding are no exception.
    let item: Vec<u8> = (0..LONG).map(|at| at.to_be_bytes()[3]).collect();
    let exposed = peer.0.expose(&item, item.len(), Access::RemoteRead).unwrap();
    let lists = [&[1, 44][..], &segment(exposed), &[0, 0, 0]].concat();
    peer.0.send(&message(6, MSG, &lists, &call(6, PUT, &[LONG]))).unwrap();
    assert_eq!(peer.answer(), AnswerV1::Reply { xid: 6 });
    peer.0.send(&message(7, MSG, &NO_LISTS, &call(7, GET, &[]))).unwrap();
    let offered = peer.offered(7);
    let read = peer.0.read(offered.stream).unwrap();
    assert!(read == [octets(&[7, 1, 0, 0, 0, 0, LONG]), item].concat());
    // What has room in a message is sent.
    peer.ask(8, LIST, 8);
    assert_eq!(peer.answer(), AnswerV1::Reply { xid: 8 });
    // A Reply chunk that is too small is as good as none.
    let lists = [&[0, 0, 1, 1][..], &nowhere(64)].concat();
    peer.0.send(&message(9, MSG, &lists, &call(9, LIST, &[LONG]))).unwrap();
    let offered = peer.offered(9);
    peer.reads(9, &offered);
    peer.done(9);
    // So much the client said itself: a result with a Write chunk is not to be read.
    let lists = [&[0, 1, 1][..], &nowhere(64), &[0, 0]].concat();
    peer.0.send(&message(10, MSG, &lists, &call(10, GET, &[]))).unwrap();
    assert_eq!(peer.answer(), AnswerV1::Chunk { xid: 10 });
    peer.done(7);
    assert_eq!(peer.null(5), AnswerV1::Reply { xid: 5 });
    peer.0.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn memory_that_was_released_is_out_of_reach() {
    let server = serve(LIMITS);
    let mut peer = Peer::reading(server.started);
    let mut other = Peer::reading(server.started);
    let offered = peer.long(7);
    // The memory of one client is no other's.
    assert!(matches!(other.0.read(offered.stream), Err(Failure::Ended(_))));
    peer.reads(7, &offered);
    peer.done(7);
    assert_eq!(peer.null(8), AnswerV1::Reply { xid: 8 });
    assert!(matches!(peer.0.read(offered.stream), Err(Failure::Ended(_))));
    assert_eq!(Peer::reading(server.started).null(5), AnswerV1::Reply { xid: 5 });
    server.stop().unwrap();
}

#[test]
fn done_for_nothing_releases_nothing() {
    let server = serve(LIMITS);
    let mut peer = Peer::reading(server.started);
    let offered = peer.long(7);
    for xid in 100..120 {
        peer.done(xid);
        assert_eq!(peer.null(xid), AnswerV1::Reply { xid });
    }
    // [R5666-4.1-1] nothing follows the header of a DONE.
    peer.0.send(&octets(&[7, 1, 32, DONE, 0, 0, 0])).unwrap();
    assert_eq!(peer.null(8), AnswerV1::Reply { xid: 8 });
    peer.reads(7, &offered);
    for xid in 100..120 {
        peer.done(7);
        assert_eq!(peer.null(xid), AnswerV1::Reply { xid });
    }
    let again = peer.long(7);
    peer.reads(7, &again);
    // It names the Reply before it comes.
    peer.ask(8, LIST, LONG);
    peer.done(8);
    peer.offered(8);
    assert_eq!(peer.null(9), AnswerV1::Reply { xid: 9 });
    // Two Replies of one XID are released one by one.
    let [first, second] = [peer.long(20), peer.long(20)];
    peer.reads(20, &first);
    peer.done(20);
    peer.reads(20, &second);
    peer.done(20);
    assert_eq!(peer.null(9), AnswerV1::Reply { xid: 9 });
    server.stop().unwrap();
}

#[test]
fn only_so_many_replies_are_held() {
    let server = serve(LIMITS);
    let mut peer = Peer::reading(server.started);
    // A client that uses credits is given some.
    (100..200).for_each(|xid| assert_eq!(peer.null(xid), AnswerV1::Reply { xid }));
    let held: Vec<_> = (0..HELD_MAX).map(|xid| peer.long(xid)).collect();
    peer.ask(HELD_MAX, LIST, LONG);
    // [R5666-11-5]
    assert!(peer.hears_nothing(2, &held[2]));
    peer.reads(3, &held[3]);
    peer.done(3);
    let next = peer.offered(HELD_MAX);
    peer.reads(HELD_MAX, &next);
    peer.reads(0, &held[0]);
    (0..=HELD_MAX).for_each(|xid| peer.done(xid));
    assert_eq!(peer.null(99), AnswerV1::Reply { xid: 99 });
    server.stop().unwrap();
}

#[test]
fn what_awaits_done_is_not_granted_and_never_takes_the_last_credit() {
    // There are as many Receives as one connection has at least.
    let limits = Limits { connections_max: 1, receives_max: RECEIVES_IDLE, ..LIMITS };
    let server = serve(limits);
    let mut peer = Peer::reading(server.started);
    for round in 0..4 {
        let mut held = 0;
        let mut last = None;
        for xid in 10..10 + RECEIVES_IDLE - 1 {
            let offered = peer.long(xid);
            held += 1;
            // [R5666-3.8-4] [R5666-11-6] a Receive is kept for each DONE.
            let Offered { credit, .. } = offered;
            assert!(credit >= 1 && credit + held <= RECEIVES_IDLE, "{round}: {credit}, {held}");
            peer.reads(xid, &offered);
            last = Some((xid, offered));
        }
        let (xid, last) = last.unwrap();
        // [R5666-11-7] the Reply is withheld until a DONE leaves a credit that it can grant.
        peer.ask(20, LIST, LONG);
        assert!(peer.hears_nothing(xid, &last));
        peer.done(10);
        let offered = peer.offered(20);
        assert!(offered.credit + held <= RECEIVES_IDLE, "{round}: {}", offered.credit);
        peer.done(20);
        (11..10 + RECEIVES_IDLE - 1).for_each(|xid| peer.done(xid));
        assert_eq!(peer.null(9), AnswerV1::Reply { xid: 9 });
    }
    // Receives that Calls hold are not granted again, either.
    peer.ask(30, HOLD, 0);
    let offered = peer.long(31);
    assert!(offered.credit < RECEIVES_IDLE, "{}", offered.credit);
    peer.done(31);
    assert_eq!(peer.null(9), AnswerV1::Reply { xid: 9 });
    peer.0.close().unwrap();
    server.stop().unwrap();
}

#[test]
fn a_client_that_never_says_done_loses_its_connection_alone() {
    let limits = Limits { progress_timeout: Duration::from_millis(300), ..LIMITS };
    let server = serve(limits);
    let mut bystander = Peer::reading(server.started);
    for count in [1, 2, HELD_MAX] {
        let mut peer = Peer::reading(server.started);
        for xid in 0..count {
            // With few credits, the Calls of a newcomer may have to wait for a DONE.
            if xid > 1 {
                peer.done(xid - 2);
            }
            peer.long(xid);
        }
        // [R5666-3.8-1] [R5666-11-8]
        assert_eq!(peer.answer(), AnswerV1::Closed, "{count}");
        assert_eq!(bystander.null(count), AnswerV1::Reply { xid: count });
    }
    // Its memory is free again: all of it would not suffice for as many Replies.
    for xid in 0..400 {
        let offered = bystander.long(xid);
        bystander.reads(xid, &offered);
        bystander.done(xid);
    }
    server.stop().unwrap();
}

#[test]
fn a_client_that_leaves_takes_no_memory_along() {
    let server = serve(LIMITS);
    for round in 0..40 {
        let mut peer = Peer::reading(server.started);
        (0..2).for_each(|xid| _ = peer.long(xid));
        if round % 2 == 0 {
            peer.0.close().unwrap();
        }
    }
    let mut peer = Peer::reading(server.started);
    let offered = peer.long(7);
    peer.reads(7, &offered);
    server.stop().unwrap();
}

#[test]
fn without_the_profile_nothing_is_padded_or_held() {
    // [R5666-3.8-2]
    let server = server();
    let mut peer = Peer::reading(server.started);
    peer.0.send(&padded(7, Padding { align: 64, thresh: 512 }, 700)).unwrap();
    assert_eq!(peer.answer(), AnswerV1::Chunk { xid: 7 });
    peer.ask(8, LIST, LONG);
    assert_eq!(peer.answer(), AnswerV1::Chunk { xid: 8 });
    peer.done(8);
    assert_eq!(peer.null(9), AnswerV1::Reply { xid: 9 });
    peer.0.close().unwrap();
    server.stop().unwrap();
}
