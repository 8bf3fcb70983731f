//! Servers of version 1 as RFC 5666 describes it: they expose Replies for their clients to read, and pad others. Some of
//! them break the rules of that.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use haulage::core::{ConnectOptions, Cx, NoService, Service};
use haulage::cores::CoreThread;
use haulage::limits::{LIMITS_DEFAULT, Limits, Profile, Versions};
use haulage::provider::DisconnectReason;
use haulage::provider::iwarp::Config;
use haulage::remote::RemoteClient;
use haulage::service::{
    Binding, CallError, ConnectionId, Eligible, Finished, Peer, Procedure, Request,
};
use haulage_proto::chunk::Item;
use haulage_proto::v1::header::Padding;
use haulage_proto::v1::padding::put_padded;
use haulage_proto::verbs::{Access, Segment};
use haulage_proto::xdr::Writer;
use haulage_tests::ends::client_within;
use haulage_tests::link::{Failure, Link, PATIENCE};

use super::caller::rpc_reply;
use super::two::words;
use super::{ITEM_MAX, MSG, NO_LISTS, NOMSG, NULL, PROGRAM, message, nowhere, octets, segment};

const MSGP: u32 = 2;
const DONE: u32 = 3;

/// A procedure that returns an item.
const GIVE: u32 = 1;
/// A procedure that returns two items.
const PAIR: u32 = 2;

/// The position of an item that is the first result.
const FIRST: u32 = 28;

const LIMITS: Limits =
    Limits { profile: Profile::Rfc5666, versions: Versions::OnlyOne, ..LIMITS_DEFAULT };

/// A client on a thread of its own, and the test's end of its connection, which acts as the server.
struct Pair {
    thread: CoreThread<RemoteClient>,
    link: Link,
}

impl Pair {
    fn open() -> Self {
        Self::within(LIMITS)
    }

    fn within(limits: Limits) -> Self {
        Self::of(limits, 16, || NoService)
    }

    /// Connects both ends, of which the client has the service that `make` makes, and the server serves `reads` Reads at
    /// once.
    fn of<S: Service>(
        limits: Limits,
        reads: u32,
        make: impl FnOnce() -> S + Send + 'static,
    ) -> Self {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (mut link, at) = Link::listen_at(local, &Config::default()).unwrap();
        let item = Eligible::opaque(ITEM_MAX);
        let give = Procedure::new("GIVE").result(item);
        let pair = Procedure::new("PAIR").result(item).result(item);
        let procedures = vec![Procedure::new("NULL"), give, pair];
        let binding = Binding { program: PROGRAM, version: 1, procedures };
        let thread = client_within(limits, make, ConnectOptions::new(binding), at);
        link.accept_serving(reads, PATIENCE).unwrap();
        Self { thread, link }
    }

    fn begin(&mut self, procedure: u32) {
        self.begin_within(procedure, PATIENCE);
    }

    fn begin_within(&mut self, procedure: u32, timeout: Duration) {
        let request = Request::new(procedure).within(timeout);
        self.thread.started.begin(request, |_| Ok(())).unwrap();
    }

    /// Takes the next message, which is a Call. Returns its XID.
    fn called(&mut self) -> u32 {
        let call = words(&self.link.message(None).unwrap().unwrap());
        assert_eq!((call[1], call[3], call[8]), (1, MSG, 0), "{call:x?}");
        call[0]
    }

    /// Takes the next message, which says that a Reply was read.
    fn is_told(&mut self, xid: u32) {
        let done = words(&self.link.message(None).unwrap().unwrap());
        assert_eq!((done[0], done[1], done[3], done.len()), (xid, 1, DONE, 4), "{done:x?}");
        assert!(done[2] > 0, "it asks for credits like any message");
    }

    /// Has the client make a Call. Returns its XID.
    fn ask(&mut self, procedure: u32) -> u32 {
        self.begin(procedure);
        self.called()
    }

    /// Has the client make a Call that is answered in the ordinary way, with a grant of this many credits.
    fn null(&mut self, credits: u32) {
        let xid = self.ask(NULL);
        self.link.send(&plain(xid, credits)).unwrap();
        assert_eq!(self.outcome(), Ok(vec![]));
    }

    /// Exposes octets to the client.
    fn expose(&mut self, octets: &[u8]) -> Segment {
        self.link.expose(octets, octets.len(), Access::RemoteRead).unwrap()
    }

    /// Exposes a Reply that has this item, and sends it.
    fn give(&mut self, xid: u32, item: &[u8]) {
        let stream = self.expose(&stream(xid, &[item]));
        self.link.send(&to_read(xid, &[(0, segment(stream))])).unwrap();
    }

    /// Returns the items of the next Call that ends.
    fn outcome(&mut self) -> Result<Vec<Vec<u8>>, CallError> {
        let reply = self.thread.started.ended().unwrap().1.map_err(CallError::from)?;
        let mut results = reply.results();
        let mut items = Vec::new();
        while !results.is_empty() {
            match results.eligible_opaque(ITEM_MAX) {
                Ok(Item::Unreduced(item)) => items.push(item.to_vec()),
                other => panic!("{other:?}"),
            }
        }
        Ok(items)
    }

    /// Checks that the connection ends without another message.
    fn ends_unheard(mut self, what: &str) {
        match self.link.message(None) {
            Err(Failure::Ended(_)) => {}
            other => panic!("{what}: {other:?}"),
        }
        self.thread.stop().unwrap();
    }
}

/// Returns the Payload stream of a Reply with these items.
fn stream(xid: u32, items: &[&[u8]]) -> Vec<u8> {
    let mut room = vec![0; 2 * ITEM_MAX];
    let mut w = Writer::new(&mut room);
    w.put(rpc_reply(xid)).unwrap();
    items.iter().for_each(|item| w.opaque(item).unwrap());
    w.written().to_vec()
}

/// Returns a Reply of which everything is in these Read segments.
fn to_read(xid: u32, reads: &[(u32, [u32; 4])]) -> Vec<u8> {
    message(xid, NOMSG, &listed(reads), &[])
}

/// Returns a Read list, and no other.
fn listed(reads: &[(u32, [u32; 4])]) -> Vec<u32> {
    let entries = reads.iter().map(|(at, segment)| [&[1, *at][..], segment].concat());
    entries.chain([vec![0; 3]]).flatten().collect()
}

/// Returns a Reply without results that grants this many credits.
fn plain(xid: u32, credits: u32) -> Vec<u8> {
    [octets(&[xid, 1, credits, MSG]), octets(&NO_LISTS), rpc_reply(xid)].concat()
}

/// Returns octets that tell a place from any other.
fn item(length: usize) -> Vec<u8> {
    (0_u32..).flat_map(|at| (at * 7).to_be_bytes()).take(length).collect()
}

/// Returns the parts of a segment that end at these places.
fn parts(whole: Segment, ends: &[u32]) -> Vec<[u32; 4]> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let ends = ends.iter().copied().chain([whole.length]);
    let part = |(start, end): (u32, u32)| Segment {
        offset: whole.offset + u64::from(start),
        length: end - start,
        ..whole
    };
    starts.zip(ends).map(part).map(segment).collect()
}

#[test]
fn a_reply_that_is_exposed_is_read_and_its_server_is_told() {
    let mut pair = Pair::open();
    for length in [1, 2000, 2001, 9000, ITEM_MAX] {
        // [R5666-3.4-4] [R5666-5.2-2] [R5666-3.5-1] no other message comes in front of the DONE.
        let item = item(length);
        let xid = pair.ask(GIVE);
        pair.give(xid, &item);
        pair.is_told(xid);
        assert_eq!(pair.outcome(), Ok(vec![item]), "{length}");
    }
    // In several segments, some of them empty.
    let long = item(9001);
    for ends in [&[4][..], &[28, 32], &[5, 5, 5, 4000, 9000], &[0, 1, 2, 3], &[9032]] {
        let xid = pair.ask(GIVE);
        let whole = pair.expose(&stream(xid, &[&long]));
        let reads: Vec<_> = parts(whole, ends).into_iter().map(|part| (0, part)).collect();
        pair.link.send(&to_read(xid, &reads)).unwrap();
        pair.is_told(xid);
        assert_eq!(pair.outcome(), Ok(vec![long.clone()]), "{ends:?}");
    }
    // What fits a message comes in one.
    pair.null(8);
    pair.link.hang_up().unwrap();
    pair.thread.stop().unwrap();
}

#[test]
fn results_that_were_reduced_are_read_to_their_places() {
    let mut pair = Pair::open();
    for (first, second) in [(8, 8), (8, 9), (9, 8), (1001, 4003), (4096, 1)] {
        let items = [item(first), item(second)];
        let lengths = [first, second].map(|length| u32::try_from(length).unwrap());
        let at = FIRST + lengths[0].next_multiple_of(4) + 4;
        // A chunk may have the padding of its item, too.
        for with_padding in [false, true] {
            let chunk = |item: &Vec<u8>| {
                let length = if with_padding { item.len().next_multiple_of(4) } else { item.len() };
                [item.clone(), vec![0; length - item.len()]].concat()
            };
            let xid = pair.ask(PAIR);
            let chunks = items.each_ref().map(|item| segment(pair.expose(&chunk(item))));
            let kept = [rpc_reply(xid), octets(&lengths)].concat();
            // Version 1 lets the chunks come in any order.
            let lists = listed(&[(at, chunks[1]), (FIRST, chunks[0])]);
            pair.link.send(&message(xid, MSG, &lists, &kept)).unwrap();
            pair.is_told(xid);
            assert_eq!(pair.outcome(), Ok(items.to_vec()), "{first}, {second}");
            // The rest of the stream may be read as well.
            let xid = pair.ask(PAIR);
            let kept = [rpc_reply(xid), octets(&lengths)].concat();
            let body = segment(pair.expose(&kept));
            let reads = [(0, body), (FIRST, chunks[0]), (at, chunks[1])];
            pair.link.send(&to_read(xid, &reads)).unwrap();
            pair.is_told(xid);
            assert_eq!(pair.outcome(), Ok(items.to_vec()), "{first}, {second}, all of it");
        }
    }
    pair.thread.stop().unwrap();
}

#[test]
fn a_length_that_is_not_that_of_its_chunk_is_an_error_of_the_reply() {
    let mut pair = Pair::open();
    for (counts, first, second) in [
        ([8, 8], 12, 8),
        ([8, 8], 8, 12),
        ([9, 8], 10, 8),
        ([8, 8], 4, 8),
        ([0, 8], 8, 8),
        ([u32::MAX, 8], 8, 8),
    ] {
        let xid = pair.ask(PAIR);
        let chunks = [first, second].map(|length| segment(pair.expose(&item(length))));
        let at = FIRST + u32::try_from(first.next_multiple_of(4)).unwrap() + 4;
        let kept = [rpc_reply(xid), octets(&counts)].concat();
        let lists = listed(&[(FIRST, chunks[0]), (at, chunks[1])]);
        pair.link.send(&message(xid, MSG, &lists, &kept)).unwrap();
        // It was read, so its server is told.
        pair.is_told(xid);
        // [R5666-3.4-6]
        let expected = CallError::BadReply("a length in it is not that of its chunk");
        assert_eq!(pair.outcome(), Err(expected), "{counts:?}, {first}, {second}");
    }
    let xid = pair.ask(GIVE);
    pair.give(xid, &item(8));
    pair.is_told(xid);
    assert_eq!(pair.outcome(), Ok(vec![item(8)]));
    // The Reply of another Call.
    let xid = pair.ask(GIVE);
    let other = segment(pair.expose(&stream(xid ^ 1, &[&item(8)])));
    pair.link.send(&to_read(xid, &[(0, other)])).unwrap();
    pair.is_told(xid);
    let expected = CallError::BadReply("it has another XID than its transport header");
    assert_eq!(pair.outcome(), Err(expected));
    pair.null(8);
    pair.thread.stop().unwrap();
}

/// A Reply that cannot be read: its name, the procedure called, the Reply with this XID, and words of the error.
type Unread = (&'static str, u32, fn(&mut Pair, u32) -> Vec<u8>, &'static str);

/// Returns the front of a Reply with these lengths of items.
fn front(xid: u32, lengths: &[u32]) -> Vec<u8> {
    [rpc_reply(xid), octets(lengths)].concat()
}

fn unread() -> Vec<Unread> {
    vec![
        (
            "longer than the binding allows",
            GIVE,
            |_, xid| to_read(xid, &[(0, nowhere(128 << 10))]),
            "longer than allowed",
        ),
        ("of 4 GiB", GIVE, |_, xid| to_read(xid, &[(0, nowhere(u32::MAX))]), "longer than allowed"),
        ("no procedure with results", NULL, |_, xid| to_read(xid, &[(0, nowhere(9000))]), "longer"),
        ("of no octets", GIVE, |_, xid| to_read(xid, &[(0, nowhere(0))]), "no octets"),
        (
            "a result of no octets",
            GIVE,
            |_, xid| message(xid, MSG, &listed(&[(FIRST, nowhere(0))]), &front(xid, &[0])),
            "no octets",
        ),
        (
            "inline as well",
            GIVE,
            |_, xid| message(xid, MSG, &listed(&[(0, nowhere(40))]), &rpc_reply(xid)),
            "is inline and",
        ),
        (
            "of 17 segments",
            GIVE,
            |_, xid| to_read(xid, &[(0, nowhere(8)); 17]),
            "too many segments",
        ),
        (
            "two results of one",
            GIVE,
            |_, xid| {
                let reads = [(FIRST, nowhere(8)), (FIRST + 12, nowhere(8))];
                message(xid, MSG, &listed(&reads), &front(xid, &[8, 8]))
            },
            "not one that may be",
        ),
        (
            "a result within another",
            PAIR,
            |_, xid| {
                let reads = [(FIRST, nowhere(80)), (FIRST + 8, nowhere(8))];
                message(xid, MSG, &listed(&reads), &front(xid, &[80, 8]))
            },
            "within the one before",
        ),
        (
            "a result behind the end",
            GIVE,
            |_, xid| message(xid, MSG, &listed(&[(FIRST + 4, nowhere(8))]), &front(xid, &[8])),
            "beyond the reduced",
        ),
        (
            "a result and no stream",
            GIVE,
            |_, xid| to_read(xid, &[(FIRST, nowhere(8))]),
            "beyond the reduced",
        ),
        (
            "a Write chunk that was not offered",
            GIVE,
            |_, xid| {
                let lists = [&[1, 0][..], &nowhere(40), &[0, 1, 1], &nowhere(8), &[0, 0]];
                message(xid, NOMSG, &lists.concat(), &[])
            },
            "number of Write chunks",
        ),
        (
            "a Reply chunk that was not offered",
            GIVE,
            |_, xid| {
                let lists = [&[1, 0][..], &nowhere(40), &[0, 0, 1, 1], &nowhere(8)];
                message(xid, NOMSG, &lists.concat(), &[])
            },
            "not offered",
        ),
    ]
}

#[test]
fn a_reply_that_cannot_be_read_ends_in_words_and_so_does_its_connection() {
    for (what, procedure, reply, why) in unread() {
        let mut pair = Pair::open();
        let xid = pair.ask(procedure);
        let reply = reply(&mut pair, xid);
        pair.link.send(&reply).unwrap();
        let outcome = pair.outcome().unwrap_err();
        assert!(outcome.to_string().contains(why), "{what}: {outcome}");
        pair.ends_unheard(what);
    }
    let mut pair = Pair::of(LIMITS, 0, || NoService);
    let xid = pair.ask(GIVE);
    pair.give(xid, &item(2000));
    let expected = CallError::BadReply("it is to be read, and the server serves no reads");
    assert_eq!(pair.outcome(), Err(expected));
    pair.ends_unheard("no reads");
}

#[test]
fn a_reply_in_memory_that_is_not_exposed_ends_with_its_connection() {
    for reads in [&[nowhere(40)][..], &[nowhere(8); 16]] {
        let mut pair = Pair::open();
        let xid = pair.ask(GIVE);
        let reads: Vec<_> = reads.iter().map(|read| (0, *read)).collect();
        pair.link.send(&to_read(xid, &reads)).unwrap();
        // The server's own RNIC ends the connection, and no DONE comes in front of that.
        assert!(matches!(pair.link.message(None), Err(Failure::Ended(_))));
        let outcome = pair.outcome().unwrap_err();
        assert!(matches!(outcome, CallError::Disconnected(_)), "{outcome}");
        drop(pair.link);
        pair.thread.stop().unwrap();
    }
}

#[test]
fn segments_that_overlap_are_read_as_they_are() {
    let mut pair = Pair::open();
    let xid = pair.ask(GIVE);
    let whole = pair.expose(&stream(xid, &[&[7; 4000]]));
    let part =
        |offset: u64, length| segment(Segment { offset: whole.offset + offset, length, ..whole });
    let reads = [(0, part(0, 2028)), (0, part(28, 1000)), (0, part(1028, 1000))];
    pair.link.send(&to_read(xid, &reads)).unwrap();
    pair.is_told(xid);
    assert_eq!(pair.outcome(), Ok(vec![vec![7; 4000]]));
    pair.thread.stop().unwrap();
}

#[test]
fn a_reply_that_is_sent_again_is_read_once() {
    let mut pair = Pair::open();
    pair.null(8);
    for _ in 0..3 {
        let xid = pair.ask(GIVE);
        let whole = segment(pair.expose(&stream(xid, &[&item(3000)])));
        let other = segment(pair.expose(&stream(xid, &[&[9; 3000]])));
        for read in [whole, whole, other, nowhere(40)] {
            pair.link.send(&to_read(xid, &[(0, read)])).unwrap();
        }
        pair.is_told(xid);
        assert_eq!(pair.outcome(), Ok(vec![item(3000)]));
        // Once it is over, too.
        pair.link.send(&to_read(xid, &[(0, other)])).unwrap();
        pair.null(8);
    }
    pair.thread.stop().unwrap();
}

#[test]
fn what_is_not_released_keeps_its_credit() {
    let mut pair = Pair::open();
    pair.null(2);
    let calls = [GIVE, NULL, NULL];
    calls.iter().for_each(|procedure| pair.begin(*procedure));
    let [first, second] = [pair.called(), pair.called()];
    // The Read is answered only after this Reply was.
    let whole = segment(pair.expose(&stream(first, &[&item(2000)])));
    let mut reply = to_read(first, &[(0, whole)]);
    reply[8..12].copy_from_slice(&2_u32.to_be_bytes());
    pair.link.send(&reply).unwrap();
    // [R5666-3.8-5] of two credits, one is the second Call's, and the DONE has the other.
    pair.is_told(first);
    let third = pair.called();
    for xid in [second, third] {
        pair.link.send(&plain(xid, 2)).unwrap();
    }
    let mut ended: Vec<_> = (0..3).map(|_| pair.outcome().unwrap()).collect();
    ended.sort();
    assert_eq!(ended, [vec![], vec![], vec![item(2000)]]);
    pair.thread.stop().unwrap();
}

/// A service that makes a Call for each that is answered while the Reply to another is being read.
#[derive(Default)]
struct Asks(Option<ConnectionId>);

impl Service for Asks {
    fn opened(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        self.0 = Some(peer.connection);
        self.ask(cx, NULL);
    }

    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        assert!(finished.results.is_ok());
        let connection = self.0.unwrap();
        let ask = |cx: &mut Cx<'_>, procedure: u32, token| {
            let request = Request::new(procedure).within(PATIENCE);
            cx.call(connection, request, token, |_| Ok(())).unwrap();
        };
        match token {
            0 => {
                ask(cx, GIVE, 1);
                ask(cx, NULL, 2);
                ask(cx, NULL, 2);
            }
            2 => ask(cx, NULL, 3),
            _ => {}
        }
    }
}

impl Asks {
    fn ask(&self, cx: &mut Cx<'_>, procedure: u32) {
        let request = Request::new(procedure).within(PATIENCE);
        cx.call(self.0.unwrap(), request, 0, |_| Ok(())).unwrap();
    }
}

#[test]
fn what_is_not_released_keeps_its_credit_from_calls_of_a_service() {
    let mut pair = Pair::of(LIMITS, 16, Asks::default);
    let xid = pair.called();
    pair.link.send(&plain(xid, 3)).unwrap();
    let [give, first, second] = [pair.called(), pair.called(), pair.called()];
    let whole = segment(pair.expose(&stream(give, &[&item(2000)])));
    let mut reply = to_read(give, &[(0, whole)]);
    reply[8..12].copy_from_slice(&2_u32.to_be_bytes());
    // All are there before the Read is answered.
    for message in [reply, plain(first, 2), plain(second, 2)] {
        pair.link.send(&message).unwrap();
    }
    // [R5666-3.8-5]
    let third = pair.called();
    pair.is_told(give);
    let fourth = pair.called();
    for xid in [third, fourth] {
        pair.link.send(&plain(xid, 2)).unwrap();
    }
    pair.link.hang_up().unwrap();
    pair.thread.stop().unwrap();
}

#[test]
fn a_call_that_is_given_up_while_its_reply_is_read_leaves_nothing_behind() {
    let mut pair = Pair::open();
    for _ in 0..3 {
        pair.begin_within(GIVE, Duration::from_millis(100));
        let xid = pair.called();
        pair.give(xid, &item(60_000));
        // The Read is not answered before the test looks for messages.
        assert_eq!(pair.outcome(), Err(CallError::TimedOut));
        pair.is_told(xid);
        pair.null(8);
    }
    // One that comes when nobody waits for it is read for its server.
    pair.begin_within(GIVE, Duration::from_millis(50));
    let xid = pair.called();
    assert_eq!(pair.outcome(), Err(CallError::TimedOut));
    pair.give(xid, &item(2000));
    pair.is_told(xid);
    pair.null(8);
    pair.thread.stop().unwrap();
}

#[test]
fn a_reply_that_comes_after_all_grace_is_read_for_its_server() {
    let grace_timeout = Duration::from_millis(50);
    let mut pair = Pair::within(Limits { grace_timeout, ..LIMITS });
    pair.begin_within(GIVE, Duration::from_millis(50));
    let late = pair.called();
    assert_eq!(pair.outcome(), Err(CallError::TimedOut));
    // By the time that this Call is given up, the grace of the first is over.
    pair.begin_within(NULL, Duration::from_millis(400));
    assert_eq!(pair.outcome(), Err(CallError::TimedOut));
    pair.give(late, &item(2000));
    pair.is_told(late);
    pair.link.hang_up().unwrap();
    pair.thread.stop().unwrap();
}

#[test]
fn a_server_that_never_answers_a_read_loses_its_connection() {
    let grace_timeout = Duration::from_millis(50);
    let mut pair = Pair::within(Limits { grace_timeout, ..LIMITS });
    pair.begin_within(GIVE, Duration::from_millis(50));
    let xid = pair.called();
    pair.give(xid, &item(2000));
    assert_eq!(pair.outcome(), Err(CallError::TimedOut));
    // A Call that waits learns of the end.
    pair.begin(NULL);
    let error = pair.outcome().unwrap_err();
    assert!(error.to_string().contains("a reply was not read in time"), "{error}");
    pair.thread.stop().unwrap();
}

#[test]
fn a_server_that_leaves_while_its_reply_is_read_takes_nothing_along() {
    let mut pair = Pair::open();
    let xid = pair.ask(GIVE);
    pair.give(xid, &item(60_000));
    let ended = pair.link.hang_up();
    assert!(ended.is_ok() || matches!(ended, Err(Failure::Ended(DisconnectReason::Peer))));
    // The client may have been faster.
    match pair.outcome() {
        Ok(results) => assert_eq!(results.len(), 1, "the item"),
        Err(error) => assert!(matches!(error, CallError::Disconnected(_)), "{error}"),
    }
    pair.thread.stop().unwrap();
}

/// Returns a padded Reply with these items.
fn padded(xid: u32, padding: Padding, items: &[&[u8]]) -> Vec<u8> {
    let mut room = vec![0; 8192];
    let mut w = Writer::new(&mut room);
    let header = [xid, 1, 8, MSGP, padding.align, padding.thresh, 0, 0, 0];
    w.put(octets(&header)).unwrap();
    w.put(rpc_reply(xid)).unwrap();
    items.iter().for_each(|item| put_padded(&mut w, padding, item).unwrap());
    w.written().to_vec()
}

#[test]
fn padded_replies_are_read_wherever_their_results_lie() {
    let mut pair = Pair::open();
    for (align, thresh, first, second) in [
        (4, 401, 200, 200),
        (64, 401, 401, 200),
        (64, 402, 401, 402),
        (256, 401, 401, 403),
        (512, 401, 0, 450),
        (1 << 30, 500, 499, 300),
    ] {
        // [R5666-3.9-1] [R5666-3.9-2]
        let items = [item(first), item(second)];
        let xid = pair.ask(PAIR);
        let padding = Padding { align, thresh };
        let reply = padded(xid, padding, &[&items[0], &items[1]]);
        pair.link.send(&reply).unwrap();
        assert_eq!(pair.outcome(), Ok(items.to_vec()), "{align}, {thresh}");
    }
    pair.thread.stop().unwrap();
}

#[test]
fn padding_of_a_reply_that_makes_no_sense_is_refused() {
    let mut pair = Pair::open();
    let read = listed(&[(0, nowhere(40))]);
    for (what, padding, lists) in [
        ("no alignment", [0, 512], &NO_LISTS[..]),
        ("an alignment within a word", [6, 512], &NO_LISTS),
        ("padded verifiers", [64, 400], &NO_LISTS),
        ("padding and a Read chunk", [64, 512], &read),
    ] {
        let xid = pair.ask(GIVE);
        let lists = [&padding[..], lists].concat();
        pair.link.send(&message(xid, MSGP, &lists, &rpc_reply(xid))).unwrap();
        let outcome = pair.outcome().unwrap_err();
        assert!(matches!(outcome, CallError::Refused(_)), "{what}: {outcome}");
    }
    pair.null(8);
    pair.thread.stop().unwrap();
}

#[test]
fn a_crowd_of_servers_that_break_the_rules_troubles_no_other() {
    let mut honest = Pair::open();
    for _ in 0..256 / unread().len() {
        for (what, procedure, reply, _) in unread() {
            let mut pair = Pair::open();
            let xid = pair.ask(procedure);
            let reply = reply(&mut pair, xid);
            pair.link.send(&reply).unwrap();
            assert!(pair.outcome().is_err(), "{what}");
            drop(pair.link);
            pair.thread.stop().unwrap();
            let xid = honest.ask(GIVE);
            honest.give(xid, &item(2000));
            honest.is_told(xid);
            assert_eq!(honest.outcome(), Ok(vec![item(2000)]), "beside {what}");
        }
    }
    honest.thread.stop().unwrap();
}

#[test]
fn without_the_profile_nothing_is_read() {
    // [R5666-3.8-2]
    let mut pair = Pair::within(Limits { profile: Profile::Rfc8166, ..LIMITS });
    for _ in 0..2 {
        let xid = pair.ask(GIVE);
        pair.give(xid, &item(2000));
        assert!(matches!(pair.outcome(), Err(CallError::Refused(_))));
        let xid = pair.ask(GIVE);
        pair.link.send(&padded(xid, Padding { align: 64, thresh: 512 }, &[&item(8)])).unwrap();
        assert!(matches!(pair.outcome(), Err(CallError::Refused(_))));
    }
    pair.null(8);
    pair.thread.stop().unwrap();
}
