//! Servers that break the rules of version 2, or ask for something the client does not support.

use std::net::{Ipv4Addr, SocketAddr};

use haulage::core::{ConnectOptions, Cx, NoService, Service};
use haulage::cores::CoreThread;
use haulage::limits::{LIMITS_DEFAULT, Limits, Versions};
use haulage::polling::Polling;
use haulage::provider::iwarp::Config;
use haulage::remote::RemoteClient;
use haulage::service::{
    Binding, CallError, ConnectionId, Eligible, Finished, Peer, Procedure, Program, Request,
    TransportError,
};
use haulage_apps::cli::VersionOptions;
use haulage_apps::cli::values::Provider;
use haulage_apps::kv::client::{ClientConfig, KvClient};
use haulage_kv::protocol::Key;
use haulage_proto::rtrext::XMTCONT;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::verbs::{Handle, Segment};
use haulage_proto::xdr::Writer;
use haulage_tests::ends::client_within;
use haulage_tests::link::{Link, MESSAGE, PATIENCE};

use super::two::{
    CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, CONNPROP_FINAL, CREDIT, ERROR, GRANT, REPLY_EXTERNAL,
    REPLY_INLINE, REPLY_MIDDLE, message, words,
};
use super::{ITEM_MAX, MSG, NOMSG, NULL, PROGRAM, call, nowhere, octets, segment};

/// A procedure whose arguments are longer than a message to the server can be.
const LONG: u32 = 1;

/// A procedure that takes a word and an item, which may be reduced, and returns another item.
pub(super) const MOVE: u32 = 2;

/// A procedure that returns an item, and may be carried out twice.
pub(super) const GIVE: u32 = 3;

/// A client on a thread of its own, and the test's end of its connection, which acts as the server.
pub(super) struct Pair {
    pub(super) thread: CoreThread<RemoteClient>,
    pub(super) link: Link,
}

impl Pair {
    /// Connects both ends, and sends properties of which the client knows none.
    pub(super) fn open() -> Self {
        Self::saying(&[1, 77, 4, 5])
    }

    /// Connects both ends, and answers the client's first message with `properties`.
    fn saying(properties: &[u32]) -> Self {
        Self::answering(Versions::Both, |xid| message(xid, CONNPROP_FINAL, properties, &[]))
    }

    /// Connects both ends, and answers the client's first message, which has the XID that `answer` gets.
    pub(super) fn answering(versions: Versions, answer: impl FnOnce(u32) -> Vec<u8>) -> Self {
        Self::speaking(versions).answered(answer)
    }

    /// Answers the client's first message, which has the XID that `answer` gets.
    pub(super) fn answered(mut self, answer: impl FnOnce(u32) -> Vec<u8>) -> Self {
        let first = self.message();
        assert_eq!((first[1], first[3]), (2, CONNPROP_FINAL));
        self.send(&answer(first[0]));
        self
    }

    /// Connects both ends, and says nothing.
    pub(super) fn speaking(versions: Versions) -> Self {
        Self::of(versions, NoService)
    }

    /// Connects both ends, of which the client has this service, and says nothing.
    pub(super) fn of<S: Service + Send + 'static>(versions: Versions, service: S) -> Self {
        Self::within(Limits { versions, ..LIMITS_DEFAULT }, service)
    }

    /// Connects both ends, of which the client has this service and these limits, and says nothing.
    pub(super) fn within<S: Service + Send + 'static>(limits: Limits, service: S) -> Self {
        Self::serving(limits, move || service, Vec::new())
    }

    /// Connects both ends, of which the client serves `programs`, and says nothing.
    pub(super) fn serving<S: Service>(
        limits: Limits,
        make: impl FnOnce() -> S + Send + 'static,
        programs: Vec<Program>,
    ) -> Self {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (mut link, at) = Link::listen_at(local, &Config::default()).unwrap();
        let item = Eligible::opaque(ITEM_MAX);
        let moves = Procedure::new("MOVE").argument(item).result(item);
        let give = Procedure::new("GIVE").result(item).idempotent();
        let procedures = vec![Procedure::new("NULL"), Procedure::new("LONG"), moves, give];
        let binding = Binding { program: PROGRAM, version: 1, procedures };
        let options = ConnectOptions::new(binding).serving(programs);
        let thread = client_within(limits, make, options, at);
        link.accept(PATIENCE).unwrap();
        Self { thread, link }
    }

    /// Begins a Call. Returns its XID once the server has received it.
    fn call(&mut self, procedure: u32, length: usize) -> u32 {
        self.begin(procedure, length);
        let message = self.message();
        let htype = if procedure == LONG { CALL_EXTERNAL } else { CALL_INLINE };
        assert_eq!((message[1], message[3]), (2, htype));
        if htype == CALL_EXTERNAL {
            // [V2-6.6.3-1] The Call chunk has one segment, at position zero.
            assert_eq!((&message[5..7], message[11]), (&[1, 0][..], 0));
        }
        message[0]
    }

    pub(super) fn begin(&mut self, procedure: u32, length: usize) {
        let request = Request::new(procedure);
        self.thread.started.begin(request, |w| w.put(vec![0; length].as_slice())).unwrap();
    }

    /// Waits for the end of the only Call.
    pub(super) fn outcome(&mut self) -> Result<(), CallError> {
        self.thread.started.ended().unwrap().1.map(drop).map_err(CallError::from)
    }

    /// Returns the next message that is no grant.
    pub(super) fn message(&mut self) -> Vec<u32> {
        loop {
            let message = self.link.message(None).unwrap().unwrap();
            assert!(message.len().is_multiple_of(4), "nothing but words");
            let message = words(&message);
            if message[3] != GRANT {
                return message;
            }
        }
    }

    pub(super) fn send(&mut self, message: &[u8]) {
        self.link.send(message).unwrap();
    }

    fn reply(&mut self, xid: u32) {
        self.send(&good_reply(xid));
    }
}

pub(super) fn rpc_reply(xid: u32) -> Vec<u8> {
    octets(&[xid, 1, 0, 0, 0, 0])
}

pub(super) fn good_reply(xid: u32) -> Vec<u8> {
    message(xid, REPLY_INLINE, &[0], &rpc_reply(xid))
}

/// The XID of messages that answer no Call.
const REVERSE: u32 = 77;

/// The effect of a message of the server on the client and its Call.
#[derive(Debug)]
enum Comes {
    /// The client answers with this error under [`REVERSE`], in this version; the Call goes on.
    Told(u32, &'static [u32]),
    /// The client says nothing; the Call goes on.
    Nothing,
    /// The Call ends with this error, and the connection goes on.
    Refused(ErrorBody),
    /// The Call ends because its Reply makes no sense, and the connection goes on.
    BadReply,
    /// The connection is closed.
    Closed,
}

use Comes::{BadReply, Closed, Nothing, Refused, Told};

/// The name of a case, a message of the server, and its effect.
type Case = (&'static str, Vec<u8>, Comes);

/// Messages that are no answer to the client, while a Call waits for its Reply.
fn requests() -> Vec<Case> {
    let null = call(REVERSE, NULL, &[]);
    let reverse = |header: &[u32]| message(REVERSE, CALL_INLINE, header, &null);
    let read = |at| [&[1, at][..], &nowhere(8), &[0]].concat();
    let write = [&[1, 1][..], &nowhere(8)].concat();
    let htype = |htype| message(REVERSE, htype, &[0; 4], &null);
    let version = |vers| octets(&[REVERSE, vers, CREDIT, 0, 0, 0, 0, REVERSE, 0]);
    vec![
        ("a Call", reverse(&[0; 4]), Told(2, &[4])),
        (
            "a Call with an argument",
            reverse(&[&[0], &read(44)[..], &[0, 0]].concat()),
            Told(2, &[6, 0]),
        ),
        (
            "a Call with a Write chunk",
            reverse(&[&[0, 0], &write[..], &[0, 0]].concat()),
            Told(2, &[10, 0]),
        ),
        (
            "a Call with a Reply chunk",
            reverse(&[&[0, 0, 0], &write[..]].concat()),
            Told(2, &[10, 0]),
        ),
        (
            "a Call in a chunk",
            message(REVERSE, CALL_EXTERNAL, &[&[0], &read(0)[..], &[0, 0, 0]].concat(), &[]),
            Told(2, &[6, 0]),
        ),
        ("a continued Call", message(REVERSE, CALL_MIDDLE, &[16], &null), Told(2, &[4])),
        ("an unknown header type", htype(14), Told(2, &[4])),
        ("ROPT_XMTCONT", htype(XMTCONT), Told(2, &[4])),
        ("properties again", message(REVERSE, CONNPROP_FINAL, &[0], &[]), Told(2, &[5])),
        ("version 1", version(1), Told(1, &[11])),
        ("version 3", version(3), Told(3, &[11])),
        ("an empty Send", Vec::new(), Nothing),
        ("a grant with more behind it", message(0, GRANT, &[0], &[]), Nothing),
        ("an error about no Call", message(REVERSE, ERROR, &[2], &[]), Nothing),
    ]
}

/// Messages that answer the Call that waits for its Reply under `xid`, or seem to.
fn answers(xid: u32) -> Vec<Case> {
    let write = [&[1, 1][..], &nowhere(8)].concat();
    let reply = |header: &[u32]| message(xid, REPLY_INLINE, header, &rpc_reply(xid));
    let error = |code: &[u32]| message(xid, ERROR, code, &[]);
    let far = octets(&[0, 2, (1 << 31) + 2, GRANT]);
    let other = message(xid, REPLY_INLINE, &[0], &rpc_reply(xid ^ 1));
    let as_call = message(xid, REPLY_INLINE, &[0], &call(xid, NULL, &[]));
    vec![
        ("an error of an unknown code", error(&[77]), Nothing),
        ("a Reply to nobody", good_reply(REVERSE), Nothing),
        ("a Reply cut short", message(xid, REPLY_INLINE, &[], &[]), Refused(ErrorBody::BadXdr)),
        ("a Reply of another XID", other, Refused(ErrorBody::BadXdr)),
        ("a Call as a Reply", as_call, BadReply),
        ("a Write chunk nobody offered", reply(&[&write[..], &[0]].concat()), BadReply),
        (
            "a Reply in a chunk nobody offered",
            message(xid, REPLY_EXTERNAL, &[&[0], &write[..]].concat(), &[]),
            BadReply,
        ),
        (
            "a continued Reply of too much",
            message(xid, REPLY_MIDDLE, &[1 << 20], &rpc_reply(xid)),
            Refused(ErrorBody::System),
        ),
        ("BAD_XDR", error(&[2]), Refused(ErrorBody::BadXdr)),
        ("READ_CHUNKS", error(&[6, 3]), Refused(ErrorBody::ReadChunks { max: 3 })),
        ("WRITE_CHUNKS", error(&[7, 3]), Refused(ErrorBody::WriteChunks { max: 3 })),
        ("SEGMENTS", error(&[8, 3]), Refused(ErrorBody::Segments { max: 3 })),
        (
            "WRITE_RESOURCE",
            error(&[9, 1, 70]),
            Refused(ErrorBody::WriteResource { chunk_index: 1, length_needed: 70 }),
        ),
        (
            "REPLY_RESOURCE",
            error(&[10, 70]),
            Refused(ErrorBody::ReplyResource { length_needed: 70 }),
        ),
        ("SYSTEM", error(&[100]), Refused(ErrorBody::System)),
        ("a late refusal of the version", error(&[1, 1, 1]), Closed),
        ("another version being spoken", error(&[11]), Closed),
        ("a credit beyond the largest", far, Closed),
    ]
}

#[test]
fn a_server_that_breaks_the_rules_or_asks_too_much_is_told_and_its_client_goes_on() {
    let count = requests().len() + answers(0).len();
    for at in 0..count {
        let mut pair = Pair::open();
        let xid = pair.call(NULL, 0);
        let (what, bytes, comes) = requests().into_iter().chain(answers(xid)).nth(at).unwrap();
        pair.send(&bytes);
        match comes {
            Told(vers, error) => {
                let told = pair.message();
                assert_eq!(
                    (told[0], told[1], told[3], &told[4..]),
                    (REVERSE, vers, ERROR, error),
                    "{what}"
                );
                pair.reply(xid);
                assert_eq!(pair.outcome(), Ok(()), "{what}");
            }
            Nothing => {
                pair.reply(xid);
                assert_eq!(pair.outcome(), Ok(()), "{what}");
            }
            Refused(error) => {
                let refused = CallError::Refused(TransportError::Two(error));
                assert_eq!(pair.outcome(), Err(refused), "{what}");
            }
            BadReply => {
                let outcome = pair.outcome();
                assert!(matches!(outcome, Err(CallError::BadReply(_))), "{what}: {outcome:?}");
            }
            Closed => {
                let outcome = pair.outcome();
                assert!(matches!(outcome, Err(CallError::Disconnected(_))), "{what}: {outcome:?}");
                continue;
            }
        }
        // The next message is another Call, and the server answers it.
        let xid = pair.call(NULL, 0);
        pair.reply(xid);
        assert_eq!(pair.outcome(), Ok(()), "after {what}");
        pair.thread.stop().unwrap();
    }
}

#[test]
fn a_header_type_that_the_server_does_not_support_is_not_sent_again() {
    // [V2-7.1.3-3]
    let unsupported = CallError::Refused(TransportError::Two(ErrorBody::InvalHtype));
    for (procedure, length) in [(NULL, 0), (LONG, 4500)] {
        let mut pair = Pair::open();
        let xid = pair.call(procedure, length);
        pair.send(&message(xid, ERROR, &[4], &[]));
        assert_eq!(pair.outcome(), Err(unsupported.clone()));
        // Several Calls are made at once, as some of them would leave together.
        for _ in 0..3 {
            pair.begin(procedure, length);
        }
        for _ in 0..3 {
            assert_eq!(pair.outcome(), Err(unsupported.clone()), "none was sent");
        }
        // The next message is a Call of the other header type.
        if procedure == LONG {
            let xid = pair.call(NULL, 0);
            pair.reply(xid);
            assert_eq!(pair.outcome(), Ok(()));
        } else {
            let xid = pair.call(LONG, 4500);
            pair.send(&good_reply(xid));
            assert_eq!(pair.outcome(), Ok(()));
        }
        pair.thread.stop().unwrap();
    }
}

/// A service that makes two Calls when its connection is ready, and another one whenever one of its Calls is answered.
#[derive(Default)]
struct Asking(Option<ConnectionId>);

impl Asking {
    fn ask(&self, cx: &mut Cx<'_>) {
        let Some(connection) = self.0 else { panic!("its connection is ready") };
        let called = cx.call(connection, Request::new(NULL), 0, |_| Ok(()));
        called.map_err(|(why, _)| why).unwrap();
    }
}

impl Service for Asking {
    fn opened(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        self.0 = Some(peer.connection);
        (0..2).for_each(|_| self.ask(cx));
    }

    fn replied(&mut self, cx: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        if finished.results.is_ok() {
            self.ask(cx);
        }
    }
}

// [V2-7.1.3-3]
#[test]
fn a_call_that_a_service_makes_when_another_is_answered_is_of_no_refused_header_type() {
    let mut pair = Pair::of(Versions::Both, Asking::default())
        .answered(|xid| message(xid, CONNPROP_FINAL, &[0], &[]));
    let [first, second] = [(); 2].map(|()| {
        let called = pair.message();
        assert_eq!((called[1], called[3]), (2, CALL_INLINE));
        called[0]
    });
    let long = |pair: &mut Pair| {
        let xid = pair.call(LONG, 4500);
        pair.reply(xid);
        assert_eq!(pair.outcome(), Ok(()));
    };
    // The long Call between them has the client take in the refusal in an earlier turn than the Reply. What a service calls
    // upon a Reply that came alone leaves by the shortest way, which looks at refusals for itself.
    pair.send(&message(first, ERROR, &[4], &[]));
    long(&mut pair);
    // The service calls again when it learns of this Reply, which it does before that to the first long Call comes.
    pair.reply(second);
    (0..2).for_each(|_| long(&mut pair));
    pair.thread.stop().unwrap();
}

#[test]
fn a_server_that_does_not_say_what_it_can_take_is_sent_4096_octets_at_most() {
    // [V2-4.2.2-1] The transport header and the header of the RPC Call are in front of the arguments.
    let room = MESSAGE - 32 - 40;
    let mut pair = Pair::open();
    for (length, htype) in [(room, CALL_INLINE), (room + 4, CALL_EXTERNAL)] {
        pair.begin(LONG, length);
        let message = pair.message();
        assert_eq!(message[3], htype);
        pair.reply(message[0]);
        assert_eq!(pair.outcome(), Ok(()));
    }
    pair.thread.stop().unwrap();
}

#[test]
fn a_reduced_argument_leaves_its_length_and_a_result_gets_the_room_it_may_take() {
    // The server takes segments of 2003 octets at most: [V2-4.4.1-1] [V2-4.4.1-2] they end anywhere.
    let mut pair = Pair::saying(&[1, 3, 4, 2003]);
    let mut lease = |length| pair.thread.started.lease(length).unwrap();
    let (mut argument, result) = (lease(5001), lease(4001));
    let item: Vec<u8> = (0..=250).cycle().take(5001).collect();
    argument.bytes_mut().copy_from_slice(&item);
    let (argument, result) = (Some(argument), Some(result));
    let request = Request::new(MOVE).argument(argument).room(result);
    pair.thread.started.begin(request, |w| w.u32(9)).unwrap();
    let called = pair.message();
    let xid = called[0];
    assert_eq!((called[1], called[3]), (2, CALL_INLINE));
    let first = |at: usize| {
        let offset = u64::from(called[at + 2]) << 32 | u64::from(called[at + 3]);
        Segment { handle: Handle(called[at]), length: 0, offset }
    };
    let (from, to) = (first(7), first(26));
    let part = |of: Segment, at, length| segment(Segment { length, offset: of.offset + at, ..of });
    let [from_1, from_2, from_3] =
        [(0, 2003), (2003, 2003), (4006, 995)].map(|(at, length)| part(from, at, length));
    // [V2-4.5.2-1] [V2-4.5.2.4-1] The result has as much room as it may take, and none for padding.
    let written = [part(to, 0, 2003), part(to, 2003, 1998)].concat();
    // [V2-4.5.1-1] The argument is behind the header, a word, and its length.
    let read =
        [[&[1, 48], &from_1[..]], [&[1, 48], &from_2], [&[1, 48], &from_3]].concat().concat();
    assert_eq!(called[5..36], [&read[..], &[0, 1, 2], &written, &[0, 0]].concat());
    // [V2-4.5.3.1-1] [V2-4.5.3.1-2] The length stays; the octets are in the chunk alone, without padding, and
    // as many as it says [V2-4.5.3.1-3].
    assert_eq!(called[36..], [xid, 0, 2, PROGRAM, 1, MOVE, 0, 0, 0, 0, 9, 5001]);
    assert_eq!(pair.link.read(Segment { length: 5001, ..from }).unwrap(), item);
    pair.link.write(&[7; 4001], Segment { length: 4001, ..to }).unwrap();
    let header = [&[1, 2], &written[..], &[0]].concat();
    let results = [rpc_reply(xid), octets(&[4001])].concat();
    pair.send(&message(xid, REPLY_INLINE, &header, &results));
    let (_, moved) = pair.thread.started.ended().unwrap();
    assert_eq!(moved.unwrap().rooms.first().unwrap().bytes(), [7; 4001]);
    pair.thread.stop().unwrap();
}

#[test]
fn a_server_without_a_version_in_common_is_named_with_all_versions_of_the_client() {
    for (versions, ours) in [(Versions::Both, "1 and 2"), (Versions::OnlyTwo, "2")] {
        let mut pair = Pair::answering(versions, |xid| message(xid, ERROR, &[1, 3, 5], &[]));
        pair.begin(NULL, 0);
        let why = format!("the peer speaks RPC-over-RDMA version 3 to 5, we speak {ours}");
        assert_eq!(pair.outcome(), Err(CallError::Unready(why)));
        pair.thread.stop().unwrap();
    }
}

#[test]
fn arguments_longer_than_the_segments_of_the_server_come_in_several_messages() {
    // Receives as long as ours, and three segments of 1000 octets.
    let mut pair = Pair::saying(&[2, 3, 4, 1000, 4, 4, 3]);
    // The header of the RPC Call is in the chunk as well.
    for (length, htypes) in [(2960, &[CALL_INLINE][..]), (4500, &[CALL_MIDDLE, CALL_INLINE])] {
        pair.begin(LONG, length);
        let mut xid = None;
        for htype in htypes {
            let message = pair.message();
            assert_eq!((message[0], message[3]), (*xid.get_or_insert(message[0]), *htype));
        }
        pair.reply(xid.unwrap());
        assert_eq!(pair.outcome(), Ok(()));
    }
    pair.thread.stop().unwrap();
}

/// What a Call offers: its XID, its type, and the lengths of its Read chunk, its Write chunk and its Reply chunk.
fn offered(call: &[u32]) -> (u32, u32, [Option<u32>; 3]) {
    let mut words = call[5..].iter();
    let mut next = || *words.next().unwrap();
    // A Call chunk in front of the other lists.
    let reads = if call[3] == CALL_EXTERNAL { 2 } else { 1 };
    let mut read = None;
    for _ in 0..reads {
        while next() == 1 {
            read = Some([next(), next(), next(), next(), next()][2]);
        }
    }
    let mut chunk = || {
        let mut segments = (next() == 1).then(&mut next)?;
        let mut length = 0;
        while segments > 0 {
            length += [next(), next(), next(), next()][1];
            segments -= 1;
        }
        Some(length)
    };
    let write = chunk();
    if write.is_some() {
        assert_eq!(chunk(), None, "one Write chunk at most");
    }
    let reply = chunk();
    (call[0], call[3], [read, write, reply])
}

// [V2-4.5.3-1] [V2-7.3.1-4] [V2-7.3.2-2] [V2-7.3.4-4] [V2-7.3.5-3]
#[test]
fn a_refused_call_goes_again_as_the_error_asks() {
    const READ_CHUNKS: u32 = 6;
    const WRITE_CHUNKS: u32 = 7;
    const WRITE_RESOURCE: u32 = 9;
    const REPLY_RESOURCE: u32 = 10;
    /// The error that a try is refused with, and what the next one offers.
    type Step = (&'static [u32], u32, [Option<u32>; 3]);
    let call =
        |procedure, argument: usize, result: usize, steps: &[Step], last: Option<ErrorBody>| {
            let mut pair = Pair::open();
            let mut lease = |length| pair.thread.started.lease(length).ok().filter(|_| length > 0);
            let (argument, result) = (lease(argument), lease(result));
            let request = Request::new(procedure).argument(argument).room(result);
            pair.thread.started.begin(request, |_| Ok(())).unwrap();
            let mut tried = vec![pair.message()[0]];
            for (error, htype, chunks) in steps {
                pair.send(&message(tried[tried.len() - 1], ERROR, error, &[]));
                let (xid, again, offers) = offered(&pair.message());
                assert!(!tried.contains(&xid), "a new XID");
                assert_eq!((again, offers), (*htype, *chunks), "{error:?}");
                tried.push(xid);
            }
            let xid = tried[tried.len() - 1];
            match last {
                None => {
                    let results = [rpc_reply(xid), octets(&[0])].concat();
                    let write = steps.last().is_some_and(|(.., [_, write, _])| write.is_some());
                    let returned = if write { vec![1, 1, 7, 0, 0, 0, 0] } else { vec![0] };
                    pair.send(&message(xid, REPLY_INLINE, &returned, &results));
                    assert_eq!(pair.outcome(), Ok(()), "{steps:?}");
                }
                Some(error) => {
                    let mut words = vec![0; 16];
                    let mut w = Writer::new(&mut words);
                    error.encode(&mut w).unwrap();
                    let length = w.position();
                    pair.send(&[message(xid, ERROR, &[], &[]), words[..length].to_vec()].concat());
                    let refused = CallError::Refused(TransportError::Two(error));
                    assert_eq!(pair.outcome(), Err(refused), "{steps:?}");
                }
            }
            pair.thread.stop().unwrap();
        };
    let needs = |length_needed| ErrorBody::WriteResource { chunk_index: 1, length_needed };
    // Without its chunk, an argument is a part of the Call chunk, or of the message.
    call(MOVE, 5001, 0, &[(&[READ_CHUNKS, 0], CALL_EXTERNAL, [Some(5048), None, None])], None);
    call(MOVE, 2001, 0, &[(&[READ_CHUNKS, 0], CALL_INLINE, [None; 3])], None);
    call(
        GIVE,
        0,
        100,
        &[(&[WRITE_RESOURCE, 1, 5000], CALL_INLINE, [None, Some(5000), None])],
        None,
    );
    // Without a Write chunk for it, a result is a part of the Reply, which may be longer than was thought.
    let without = (&[WRITE_CHUNKS, 0][..], CALL_INLINE, [None, None, Some(9936)]);
    // The chunk for all of the Reply has whole units, whatever the error asks.
    let longer = (&[REPLY_RESOURCE, 10_498][..], CALL_INLINE, [None, None, Some(10_500)]);
    call(GIVE, 0, 9000, &[without, longer], None);
    // Four tries are enough, whatever the error says then.
    let more: [Step; 4] = [
        (&[WRITE_RESOURCE, 1, 5000], CALL_INLINE, [None, Some(5000), None]),
        (&[WRITE_RESOURCE, 1, 6000], CALL_INLINE, [None, Some(6000), None]),
        (&[WRITE_RESOURCE, 1, 7000], CALL_INLINE, [None, Some(7000), None]),
        (&[WRITE_RESOURCE, 1, 8000], CALL_INLINE, [None, Some(8000), None]),
    ];
    call(GIVE, 0, 100, &more, Some(needs(9000)));
    // What may not be carried out twice, names no remedy, or asks for more than the binding allows, ends the Call.
    call(MOVE, 0, 100, &[], Some(needs(5000)));
    call(GIVE, 0, 100, &[], Some(needs(0)));
    call(GIVE, 0, 100, &[], Some(needs(u32::try_from(ITEM_MAX).unwrap() + 1)));
    call(GIVE, 0, 100, &[], Some(ErrorBody::System));
}

#[test]
fn a_server_that_asks_for_more_room_than_a_value_may_have_is_not_obeyed() {
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (mut link, to) = Link::listen_at(local, &Config::default()).unwrap();
    let config = ClientConfig {
        to,
        timeout: PATIENCE,
        crc: None,
        cpu: None,
        polling: Polling::ADAPTIVE,
        provider: Provider::Iwarp,
        versions: VersionOptions::USUAL,
        hosts: None,
    };
    let why = std::thread::scope(|threads| {
        let get = threads.spawn(|| {
            let key = Key::new(b"key").unwrap();
            let value = KvClient::connect(config, 1 << 20).and_then(|mut client| client.get(key));
            value.map(drop).unwrap_err().to_string()
        });
        link.accept(PATIENCE).unwrap();
        let first = words(&link.message(None).unwrap().unwrap());
        link.send(&message(first[0], CONNPROP_FINAL, &[0], &[])).unwrap();
        let xid = loop {
            let message = words(&link.message(None).unwrap().unwrap());
            if message[3] == CALL_INLINE {
                break message[0];
            }
        };
        link.send(&message(xid, ERROR, &[9, 1, u32::MAX], &[])).unwrap();
        get.join().unwrap()
    });
    assert!(why.contains("room for 4294967295 octets"), "{why}");
}

#[test]
fn a_reply_of_version_1_that_is_to_be_read_ends_its_call_at_once() {
    // The server speaks version 1 alone.
    let mut pair = Pair::answering(Versions::Both, |xid| octets(&[xid, 1, 32, 4, 1, 1, 1]));
    pair.begin(NULL, 0);
    let call = pair.message();
    assert_eq!((call[1], call[3]), (1, MSG));
    let read = [&[1, 0][..], &nowhere(28), &[0, 0, 0]].concat();
    pair.send(&super::message(call[0], NOMSG, &read, &[]));
    let outcome = pair.outcome();
    assert!(matches!(outcome, Err(CallError::Refused(TransportError::One(_)))), "{outcome:?}");
    // The connection goes on, and the client answers no Reply with an error.
    pair.begin(NULL, 0);
    let call = pair.message();
    assert_eq!((call[1], call[3]), (1, MSG));
    pair.send(&super::message(call[0], MSG, &[0; 3], &rpc_reply(call[0])));
    assert_eq!(pair.outcome(), Ok(()));
    pair.thread.stop().unwrap();
}
