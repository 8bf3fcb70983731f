//! The reverse direction (section 4.6; RFC 8167): a server that calls our client, and a client that our server calls.

use std::collections::{BTreeMap, VecDeque};

use haulage::core::{ConnectOptions, Cx, Service};
use haulage::limits::{Limits, Versions};
use haulage::service::{Call, CallToken, ConnectionId, Finished, Outcome, Program, Reply};
use haulage_proto::rpc::AcceptStat;
use haulage_tests::ends::{Keeper, server_of};

use super::rpc::Rpc;
use super::*;

/// The code of the Reverse-Direction Support property, and the value that stands for all formats.
const REVERSE: [u32; 2] = [5, 3];

/// Connects a client that serves what a [`Keeper`] does, and calls the same program, to what `accept` makes.
fn serving<T>(
    versions: Versions,
    accept: impl FnOnce(&TcpListener) -> T,
) -> (CoreThread<RemoteClient>, T) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let programs = Keeper::default().programs();
    let options = ConnectOptions::new(programs[0].binding().clone()).serving(programs);
    let limits = Limits { versions, ..LIMITS_DEFAULT };
    let client = client_within(limits, Keeper::default, options, at);
    let peer = accept(&listener);
    (client, peer)
}

/// Has a client begin Calls without arguments.
fn begin(client: &mut CoreThread<RemoteClient>, count: u32) {
    for _ in 0..count {
        client.started.begin(Request::new(NULL), |_| Ok(())).unwrap();
    }
}

/// Waits until as many Calls of a client have ended well.
fn ended(client: &mut CoreThread<RemoteClient>, count: u32) {
    for _ in 0..count {
        let (_, ended) = client.started.ended().unwrap();
        assert!(ended.unwrap().results().is_empty());
    }
}

/// Takes a Reply to a Call of the peer. Calls of the other end that come meanwhile go to `calls`.
fn answer(peer: &mut Peer, calls: &mut VecDeque<Rpc>) -> Rpc {
    loop {
        let arrived = peer.receive();
        match arrived.kind {
            Kind::Call => calls.push_back(arrived),
            Kind::Reply => return arrived,
        }
    }
}

// [V2-3.1.5.4-1] [V2-4.6.2-2]
#[test]
fn a_server_of_version_2_calls_a_client_while_the_clients_own_calls_wait() {
    const OURS: u32 = 24;
    const THEIRS: u32 = 12;
    for (crc, window) in [(Crc::NotAsked, WINDOW), (Crc::Asked, 4)] {
        let (mut client, mut peer) =
            serving(Versions::Both, |listener| Peer::accept(listener, crc, window));
        assert_eq!(peer.properties[&REVERSE[0]], header::octets(&REVERSE[1..]));
        begin(&mut client, THEIRS);
        // Calls of the client; none is answered before those of the server are.
        let mut calls = VecDeque::from([peer.receive()]);
        assert_eq!(calls[0].called(PROGRAM), (NULL, &[][..]));
        let first = calls[0].xid;
        // The server's Calls have the XIDs of Calls that the client has under way.
        let mut expected = BTreeMap::new();
        for (xid, number) in (first..).zip(0..OURS as usize) {
            let (call, results) = tally(xid, 37 * number);
            let parts: &[usize] = if number % 3 == 0 { &[8, 32] } else { &[] };
            peer.send(Kind::Call, &call, parts, &Chunks::default());
            expected.insert(xid, results);
        }
        for _ in 0..OURS {
            let answer = answer(&mut peer, &mut calls);
            let results = expected.remove(&answer.xid).expect("each is answered once");
            assert_eq!((answer.results(), answer.messages), (&results[..], 1));
            assert_eq!(answer.chunks, Chunks::default());
        }
        moves_items(&mut peer, first, &mut calls);
        let mut answered = 0;
        while answered < THEIRS {
            let call = calls.pop_front().unwrap_or_else(|| peer.receive());
            assert_eq!(call.called(PROGRAM), (NULL, &[][..]));
            peer.send(Kind::Reply, &reply(call.xid, &[]), &[], &Chunks::default());
            answered += 1;
        }
        ended(&mut client, THEIRS);
        client.stop().unwrap();
    }
}

/// Has a client take an item and return it, by chunks whose handle it invalidates, and a long Reply.
fn moves_items(peer: &mut Peer, xid: u32, calls: &mut VecDeque<Rpc>) {
    let item = pattern(9001);
    let source = peer.link.expose(&item, Access::Read);
    let reads = vec![(44, source.part(0, 4001)), (44, source.part(4001, 5000))];
    let invalidate = source.handle;
    let chunks = Chunks { invalidate, reads, ..Chunks::default() };
    let length = header::octets(&[source.length]);
    peer.send(Kind::Call, &call(xid, PROGRAM, PUT, &length), &[], &chunks);
    let put = answer(peer, calls);
    assert_eq!((put.xid, put.results()), (xid, &[][..]));
    assert_eq!(put.chunks, Chunks { invalidate, ..Chunks::default() });
    assert_eq!(peer.link.served.drain(..).sum::<u32>(), source.length, "each octet once");

    let room = peer.link.expose(&[0xee; 10_000], Access::Write);
    let segments = vec![room.part(0, 4097), room.part(4097, 5903)];
    let invalidate = room.handle;
    let chunks = Chunks { invalidate, writes: vec![segments.clone()], ..Chunks::default() };
    peer.send(Kind::Call, &call(xid, PROGRAM, GET, &[]), &[], &chunks);
    let got = answer(peer, calls);
    assert_eq!((got.xid, got.results()), (xid, &length[..]));
    let writes = vec![fill(&segments, item.len())];
    assert_eq!(got.chunks, Chunks { invalidate, writes, ..Chunks::default() });
    assert!(!peer.link.exposes(room.handle));
    assert!(peer.link.retire(room.handle)[..item.len()] == item, "another item");

    let room = peer.link.expose(&[0xee; 6000], Access::Write);
    let chunks = Chunks { reply: Some(vec![room]), ..Chunks::default() };
    let asked = header::octets(&[5000]);
    peer.send(Kind::Call, &call(xid, PROGRAM, LIST, &asked), &[], &chunks);
    let listed = answer(peer, calls);
    let stream = reply(xid, &opaque(&[0x11; 5000]));
    assert_eq!((listed.xid, &listed.stream[..]), (xid, &[][..]), "all is in the Reply chunk");
    assert_eq!(listed.chunks.reply, Some(fill(&[room], stream.len())));
    assert!(peer.link.retire(room.handle)[..stream.len()] == stream, "another Reply");
}

// [R8167-2.4.1-1] [R8167-5.2-1] [R8167-5.2-2]
#[test]
fn a_server_of_version_1_calls_a_client_while_the_clients_own_calls_wait() {
    // As many Calls as the client may have unanswered, and in all.
    const EACH: u32 = 3;
    const THEIRS: u32 = 8;
    let (mut client, mut peer) =
        serving(Versions::OnlyOne, |listener| one::Peer::accept(listener, Crc::Asked, EACH));
    begin(&mut client, THEIRS);
    let null = |peer: &mut one::Peer| {
        let (xid, kind, chunks, stream) = peer.rpc();
        assert_eq!((kind, chunks), (Kind::Call, Chunks::default()));
        assert_eq!(stream, call(xid, PROGRAM, NULL, &[]));
        xid
    };
    let first = null(&mut peer);
    peer.send(Kind::Reply, &reply(first, &[]), &Chunks::default());
    let waiting = [(); EACH as usize].map(|()| null(&mut peer));
    // The client has a credit in each direction: its own Calls take none of those that it grants.
    let mut next = waiting[0];
    let mut most = 0;
    for round in 0..5 {
        let burst = peer.ours.granted.min(6);
        most = most.max(burst);
        let mut expected = BTreeMap::new();
        for _ in 0..burst {
            let (call, results) = tally(next, 5 * round + expected.len());
            peer.send(Kind::Call, &call, &Chunks::default());
            expected.insert(next, results);
            next += 1;
        }
        for _ in 0..burst {
            // A fourth Call of the client would be no Reply, and beyond its credits.
            let (xid, kind, chunks, stream) = peer.rpc();
            assert_eq!((kind, chunks), (Kind::Reply, Chunks::default()));
            let results = expected.remove(&xid).expect("each is answered once");
            assert_eq!(super::results(&stream), results);
        }
        // The Calls of both ends have the same XIDs.
        next = waiting[0];
    }
    assert!(most > 1, "the client grants more credits than the first");
    for xid in waiting {
        peer.send(Kind::Reply, &reply(xid, &[]), &Chunks::default());
    }
    for _ in 1 + EACH..THEIRS {
        let xid = null(&mut peer);
        peer.send(Kind::Reply, &reply(xid, &[]), &Chunks::default());
    }
    ended(&mut client, THEIRS);
    client.stop().unwrap();
}

/// The program that a [`Caller`] calls at its clients.
const BACK: u32 = PROGRAM + 1;
/// Takes octets, and returns their number and their sum.
const SUM: u32 = 1;
/// Takes an item, and returns one.
const TURN: u32 = 2;
/// A procedure of a [`Caller`]: makes as many Calls of [`SUM`] as it is told, of as many octets each as it is told, and
/// returns all sums together.
const ASK: u32 = 1;
/// A procedure of a [`Caller`]: has an item of as many octets turned round.
const ASK_TURN: u32 = 2;

/// A service that calls back, and answers once it knows the results.
#[derive(Default)]
struct Caller {
    /// What it has been asked, by the tokens of its Calls.
    asked: Vec<Asked>,
    begun: usize,
}

struct Asked {
    connection: ConnectionId,
    token: CallToken,
    procedure: u32,
    count: u32,
    length: usize,
    ended: u32,
    sum: u32,
}

impl Caller {
    /// Makes the Calls that are asked for.
    fn begin(&mut self, cx: &mut Cx<'_>) {
        let asked = &self.asked[self.begun];
        let octets = pattern(asked.length);
        for _ in 0..asked.count {
            let called = if asked.procedure == ASK {
                let sum = Request::new(SUM);
                cx.call(asked.connection, sum, self.begun as u64, |w| w.opaque(&octets))
            } else {
                let mut item = cx.pool().lease(octets.len()).unwrap();
                item.bytes_mut().copy_from_slice(&octets);
                let room = cx.pool().lease(octets.len()).unwrap();
                let turn = Request::new(TURN).argument(item).room(room);
                cx.call(asked.connection, turn, self.begun as u64, |_| Ok(()))
            };
            called.map_err(|(why, _)| why).unwrap();
        }
        self.begun += 1;
    }
}

impl Service for Caller {
    fn programs(&self) -> Vec<Program> {
        let ask = |name| Procedure::new(name).results_max(4);
        let procedures = vec![Procedure::new("NULL"), ask("ASK"), ask("ASK_TURN")];
        vec![Program::new(Binding { program: PROGRAM, version: 1, procedures })]
    }

    fn callbacks(&self) -> Option<Binding> {
        let item = Eligible::opaque(ITEM_MAX);
        let procedures = vec![
            Procedure::new("NULL"),
            Procedure::new("SUM").results_max(8),
            Procedure::new("TURN").argument(item).result(item),
        ];
        Some(Binding { program: BACK, version: 1, procedures })
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, _: &mut Reply) -> Outcome {
        let Call { connection, token, procedure, .. } = call;
        if procedure == NULL {
            return Outcome::Done;
        }
        let (Ok(count), Ok(length)) = (call.arguments.u32(), call.arguments.u32()) else {
            return Outcome::Failed(AcceptStat::GarbageArgs);
        };
        let length = length as usize;
        self.asked.push(Asked { connection, token, procedure, count, length, ended: 0, sum: 0 });
        Outcome::Later
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let is_asked = self.begun < self.asked.len();
        if is_asked {
            self.begin(cx);
        }
        is_asked
    }

    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let asked = &mut self.asked[usize::try_from(token).unwrap()];
        let mut results = finished.results.unwrap();
        if asked.procedure == ASK {
            assert_eq!(results.u32().unwrap() as usize, asked.length);
            asked.sum += results.u32().unwrap();
        } else {
            assert_eq!(results.eligible().unwrap(), Some(asked.length as u64));
            let mut turned = pattern(asked.length);
            turned.reverse();
            assert!(finished.rooms.first().unwrap().bytes() == turned, "another result");
            asked.sum += 1;
        }
        asked.ended += 1;
        if asked.ended == asked.count {
            cx.resume(asked.token);
        }
    }

    fn resume(&mut self, _: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let asked = self.asked.iter().rfind(|asked| asked.token == token).unwrap();
        reply.results(|w| w.u32(asked.sum));
        Outcome::Done
    }
}

/// Returns a Call that asks a [`Caller`], and the results.
fn ask(xid: u32, procedure: u32, [count, length]: [u32; 2]) -> (Vec<u8>, Vec<u8>) {
    let sum: u32 = match procedure {
        ASK => pattern(length as usize).iter().map(|octet| u32::from(*octet)).sum(),
        _ => 1,
    };
    let call = call(xid, PROGRAM, procedure, &header::octets(&[count, length]));
    (call, header::octets(&[count * sum]))
}

/// Returns the results of [`SUM`].
fn summed(arguments: &[u8]) -> Vec<u8> {
    let octets = Words(arguments).opaque();
    let sum = octets.iter().map(|octet| u32::from(*octet)).sum();
    header::octets(&[u32::try_from(octets.len()).unwrap(), sum])
}

/// Answers a Call of a [`Caller`] on version 2.
fn answer_back(peer: &mut Peer, mut called: Rpc) {
    if called.stream.is_empty() {
        let segments = called.chunks.call.iter();
        called.stream = segments.flat_map(|(_, segment)| peer.link.read(*segment)).collect();
    }
    let (procedure, arguments) = called.called(BACK);
    let (mut results, mut chunks) = (Vec::new(), Chunks::default());
    // A client may invalidate what its server offers to it.
    chunks.invalidate = called.chunks.invalidate;
    match procedure {
        SUM => results = summed(arguments),
        TURN => {
            let reads = called.chunks.reads.iter();
            let mut item: Vec<u8> =
                reads.flat_map(|(_, segment)| peer.link.read(*segment)).collect();
            item.reverse();
            results.extend(arguments);
            let room = fill(&called.chunks.writes[0], item.len());
            let mut rest = &item[..];
            for segment in &room {
                let part;
                (part, rest) = rest.split_at(segment.length as usize);
                peer.link.write(part, *segment);
            }
            chunks.writes.push(room);
        }
        other => panic!("procedure {other}"),
    }
    peer.send(Kind::Reply, &reply(called.xid, &results), &[], &chunks);
}

// [V2-4.6.1-2]
#[test]
fn a_client_of_version_2_that_serves_is_called_and_gets_its_own_replies() {
    let server = server_of(|_| Caller::default());
    // The server's Calls leave a credit for the Reply to each Call that waits for them, and one more: a client that gives few
    // credits asks for one thing at a time.
    for (crc, window, together) in [(Crc::Asked, WINDOW, 4), (Crc::NotAsked, 4, 1)] {
        let mut peer = Peer::connect_saying(server.started, crc, window, &[REVERSE]);
        let asks = [(ASK, [7, 30]), (ASK_TURN, [2, 9001]), (ASK, [1, 0]), (ASK, [2, 4600])];
        let mut xids = 2..;
        let mut served = 0;
        for asks in asks.chunks(together) {
            served += asked_together(&mut peer, &mut xids, asks);
        }
        assert_eq!(served, 12, "each Call comes once");
        is_served(&mut peer, xids.next().unwrap());
    }
    server.stop().unwrap();
}

/// Has a server answer Calls for which it calls back, and others meanwhile. Returns how many Calls of the server came.
fn asked_together(
    peer: &mut Peer,
    xids: &mut impl Iterator<Item = u32>,
    asks: &[(u32, [u32; 2])],
) -> u32 {
    let mut expected = BTreeMap::new();
    let mut calls = VecDeque::new();
    for (procedure, told) in asks {
        let xid = xids.next().unwrap();
        let (call, results) = ask(xid, *procedure, *told);
        peer.send(Kind::Call, &call, &[], &Chunks::default());
        expected.insert(xid, results);
    }
    for xid in xids.by_ref().take(5) {
        peer.send(Kind::Call, &call(xid, PROGRAM, NULL, &[]), &[], &Chunks::default());
        let answer = answer(peer, &mut calls);
        assert_eq!((answer.xid, answer.results()), (xid, &[][..]));
    }
    let mut served = 0;
    while !expected.is_empty() {
        // The last Call is answered first.
        let arrived = calls.pop_back().unwrap_or_else(|| peer.receive());
        if arrived.kind == Kind::Call {
            answer_back(peer, arrived);
            served += 1;
        } else {
            let results = expected.remove(&arrived.xid).expect("each is answered once");
            assert_eq!((arrived.results(), &arrived.chunks), (&results[..], &Chunks::default()));
        }
    }
    served
}

// [R8167-4.1-1] [R8167-5.1-1] [R8167-5.1-2]
#[test]
fn a_client_of_version_1_is_called_within_the_credits_that_it_grants() {
    let server = server_of(|_| Caller::default());
    let mut peer = one::Peer::connect(server.started, Crc::NotAsked, 3);
    let null = |peer: &mut one::Peer, xid: u32, calls: &mut VecDeque<Vec<u8>>| {
        peer.send(Kind::Call, &call(xid, PROGRAM, NULL, &[]), &Chunks::default());
        loop {
            let (told, kind, chunks, stream) = peer.rpc();
            assert_eq!(chunks, Chunks::default(), "there are none on version 1");
            if kind == Kind::Reply {
                assert_eq!((told, results(&stream)), (xid, &[][..]));
                return;
            }
            calls.push_back(stream);
        }
    };
    let mut calls = VecDeque::new();
    null(&mut peer, 2, &mut calls);
    let (asking, expected) = ask(3, ASK, [9, 40]);
    peer.send(Kind::Call, &asking, &Chunks::default());
    let mut xids = Vec::new();
    let mut served = 0;
    let told = loop {
        // While its Calls wait, the server answers ours, and has time for more Calls than it has credits for.
        if served < 9 {
            null(&mut peer, 100 + served, &mut calls);
        }
        let Some(stream) = calls.pop_front() else {
            let (xid, kind, chunks, stream) = peer.rpc();
            assert_eq!(chunks, Chunks::default(), "there are none on version 1");
            if kind == Kind::Reply {
                break (xid, results(&stream).to_vec());
            }
            calls.push_back(stream);
            continue;
        };
        let xid = Words(&stream).word();
        let arguments = stream.strip_prefix(&call(xid, BACK, SUM, &[])[..]).expect("a Call of SUM");
        peer.send(Kind::Reply, &reply(xid, &summed(arguments)), &Chunks::default());
        xids.push(xid);
        served += 1;
    };
    assert_eq!(told, (3, expected));
    assert_eq!(peer.theirs.unanswered, 0);
    xids.sort_unstable();
    xids.dedup();
    assert_eq!(xids.len(), 9, "each has an XID of its own");
    server.stop().unwrap();
}
