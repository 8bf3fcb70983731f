//! Peers that break the rules, beside one that does not. We answer at least as Linux does.

use haulage_proto::iwarp::mpa::handshake::{Active, Offer};
use haulage_proto::iwarp::mpa::pad;
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::iwarp::{CRC_INIT, crc_octets};
use rustix::net::sockopt;

use super::rogue::Rogue;
use super::setup::until_closed;
use super::*;
use crate::sys::crc::crc32c;
use crate::sys::process;

/// A server with an honest connection, which must not suffer.
struct Scene {
    pair: Pair,
    at: SocketAddr,
    messages: u64,
}

/// The memory that the server has opened to the attacker, and to the bystander.
struct Opened {
    writable: Segment,
    readable: Segment,
    foreign: Segment,
    memory: [Exposed; 2],
    of_bystander: Exposed,
    /// The Receive of the next message, from either connection.
    receive: PostedSink,
}

impl Scene {
    fn new(backend: Backend) -> Self {
        let mut pair = Pair::with(&config(backend, Crc::IfAsked), 2 << 20);
        let (_, at) = pair.b.nic.listen(LOCAL).unwrap();
        Self { pair, at, messages: 0 }
    }

    /// Has an attacker connect, whose every message will find a Receive of 64 octets.
    fn attack(&mut self, offer: Offer) -> (Rogue, Opened) {
        let (of_bystander, foreign) = self.open(true);
        let rogue = Rogue::join(&mut self.pair.b, self.at, offer);
        let bystander = self.pair.b.qp.replace(rogue.qp);
        let [(first, writable), (second, readable)] = [self.open(true), self.open(false)];
        self.pair.b.qp = bystander;
        self.messages += 1;
        let receive = self.pair.b.post_receive(RECEIVE + self.messages, 64);
        let memory = [first, second];
        (rogue, Opened { writable, readable, foreign, memory, of_bystander, receive })
    }

    fn open(&mut self, write: bool) -> (Exposed, Segment) {
        let lease = self.pair.b.lease(&[7; 64]);
        self.pair.b.expose(lease, write)
    }

    /// Checks that nothing is left of the attacker, and that the bystander is unharmed.
    fn assert_unharmed(&mut self, rogue: Rogue, opened: Opened, what: &str) {
        drop(rogue);
        self.pair.until(|_, b| b.nic.connections() == 1);
        let node = &mut self.pair.b;
        assert_eq!(node.nic.nic.stags.in_use(), 1, "{what}: the bystander's registration");
        let quiesced = node.quiesced.pop().unwrap();
        for exposed in opened.memory {
            let proof = complete::destroyed(&exposed, &quiesced);
            assert_eq!(exposed.fence(proof).unwrap().bytes(), [7; 64], "{what}");
        }
        node.post(INVALIDATE, SIGNALED, Operation::LocalInv { handle: opened.foreign.handle });
        self.pair.until(|_, b| b.is_done(INVALIDATE));
        let done = self.pair.b.done(INVALIDATE).unwrap();
        let proof = complete::invalidated(&done).unwrap();
        assert_eq!(opened.of_bystander.fence(proof).unwrap().bytes(), [7; 64], "{what}");

        // The attacker's Receive is the next in turn again.
        let receive = RECEIVE + self.messages;
        let source = self.pair.a.post_send(SEND, b"alive", None);
        self.pair.until(|a, b| a.is_done(SEND) && b.is_done(receive));
        let filled = complete::sink(opened.receive, &self.pair.b.done(receive).unwrap()).unwrap();
        assert_eq!(filled.bytes()[..5], *b"alive", "{what}");
        complete::source(source, &self.pair.a.done(SEND).unwrap()).unwrap();
        self.pair.b.seen.clear();
        self.pair.b.done.clear();
    }
}

/// Returns an FPDU around a ULPDU.
fn fpdu(crc: bool, ulpdu: &[u8]) -> Vec<u8> {
    let mut octets = (ulpdu.len() as u16).to_be_bytes().to_vec();
    octets.extend(ulpdu);
    octets.extend(&[0; 3][..pad(ulpdu.len())]);
    let sum = if crc { crc_octets(crc32c(CRC_INIT, &octets)) } else { [0xff; 4] };
    octets.extend(sum);
    octets
}

fn tagged(control: [u8; 2], handle: Handle, offset: u64, payload: &[u8]) -> Vec<u8> {
    [&control[..], &handle.0.to_be_bytes(), &offset.to_be_bytes(), payload].concat()
}

fn untagged(control: [u8; 2], ulp: u32, [queue, msn, at]: [u32; 3], payload: &[u8]) -> Vec<u8> {
    let words = [ulp, queue, msn, at].map(u32::to_be_bytes).concat();
    [&control[..], &words, payload].concat()
}

fn read(msn: u32, source: Segment, sink_offset: u64) -> Vec<u8> {
    let mut body = 5_u32.to_be_bytes().to_vec();
    body.extend(sink_offset.to_be_bytes());
    body.extend(source.length.to_be_bytes());
    body.extend(source.handle.0.to_be_bytes());
    body.extend(source.offset.to_be_bytes());
    untagged([0x41, 0x41], 0, [1, msn, 0], &body)
}

/// The name of an attack, the ULPDUs that make it, and the rule it breaks.
type Row = (&'static str, Vec<Vec<u8>>, Fault);

fn rows(opened: &Opened) -> Vec<Row> {
    let (writable, readable, foreign) = (opened.writable, opened.readable, opened.foreign);
    let write = |to: Segment, skip: u64| {
        vec![tagged([0xc1, 0x40], to.handle, to.offset.wrapping_add(skip), &[1; 8])]
    };
    let send = |control: [u8; 2], queue, payload: &[u8]| vec![untagged(control, 0, queue, payload)];
    let invalidate = |handle: Handle| vec![untagged([0x41, 0x44], handle.0, FIRST, b"hi")];
    let nobody = Segment { handle: Handle(!writable.handle.0), ..writable };
    let at = |offset| Segment { offset, ..readable };
    let reads = |count| (1..=count).map(|msn| read(msn, readable, 0)).collect();
    vec![
        ("a ULPDU without a header", vec![vec![0x41, 0x43]], Fault::UlpduLength),
        ("DDP version 0, untagged", send([0x40, 0x43], FIRST, b"hi"), Fault::DdpVersionUntagged),
        (
            "DDP version 0, tagged",
            vec![tagged([0xc0, 0x40], writable.handle, writable.offset, b"")],
            Fault::DdpVersionTagged,
        ),
        ("RDMAP version 0", send([0x41, 0x03], FIRST, b"hi"), Fault::RdmapVersion),
        ("RDMAP opcode 9", send([0x41, 0x49], FIRST, b"hi"), Fault::UnexpectedOpcode),
        ("a Send on queue 1", send([0x41, 0x43], [1, 1, 0], b"hi"), Fault::UnexpectedOpcode),
        ("a Send on queue 7", send([0x41, 0x43], [7, 1, 0], b"hi"), Fault::QueueNumber),
        ("message number 0", send([0x41, 0x43], [0, 0, 0], b"hi"), Fault::MessageNumber),
        ("message number 2", send([0x41, 0x43], [0, 2, 0], b"hi"), Fault::MessageNumber),
        ("message offset 4", send([0x41, 0x43], [0, 1, 4], b"hi"), Fault::MessageOffset),
        ("a Send too long", send([0x41, 0x43], FIRST, &[0; 65]), Fault::MessageTooLong),
        ("a Write to nothing", write(nobody, 0), Fault::TaggedStag),
        ("a Write behind the end", write(writable, 57), Fault::TaggedBounds),
        ("a Write before the start", write(writable, u64::MAX), Fault::TaggedBounds),
        (
            "a Write that wraps",
            write(Segment { offset: u64::MAX, ..writable }, 0),
            Fault::TaggedWrap,
        ),
        ("a Write to what may be read", write(readable, 0), Fault::WriteAccess),
        ("a Write to another's memory", write(foreign, 0), Fault::TaggedNotAssociated),
        (
            "an unasked Read Response",
            vec![tagged([0xc1, 0x42], Handle(5), 0, b"hi")],
            Fault::TaggedStag,
        ),
        ("a Read of nothing", vec![read(1, nobody, 0)], Fault::ReadStag),
        ("a Read behind the end", vec![read(1, at(readable.offset + 1), 0)], Fault::ReadBounds),
        ("a Read that wraps", vec![read(1, at(u64::MAX), 0)], Fault::ReadWrap),
        ("a Read whose sink wraps", vec![read(1, readable, u64::MAX)], Fault::ReadWrap),
        ("a Read of what may be written", vec![read(1, writable, 0)], Fault::ReadAccess),
        ("a Read of another's memory", vec![read(1, foreign, 0)], Fault::ReadNotAssociated),
        ("a Read out of turn", vec![read(2, readable, 0)], Fault::MessageNumber),
        ("more Reads than granted", reads(3), Fault::NoBuffer),
        ("an invalidation of nothing", invalidate(nobody.handle), Fault::CannotInvalidate),
        (
            "an invalidation of another's memory",
            invalidate(foreign.handle),
            Fault::CannotInvalidate,
        ),
    ]
}

#[test]
fn every_broken_rule_ends_its_connection_with_the_right_code_and_no_other() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut scene = Scene::new(backend);
        for (crc, split) in [(false, false), (true, false), (false, true), (true, true)] {
            for number in 0.. {
                let (mut rogue, opened) = scene.attack(Offer { crc, ..OFFER });
                let Some((what, ulpdus, fault)) = rows(&opened).into_iter().nth(number) else {
                    assert_eq!(number, 28);
                    scene.assert_unharmed(rogue, opened, "nothing at all");
                    break;
                };
                let octets: Vec<u8> = ulpdus.iter().flat_map(|ulpdu| fpdu(crc, ulpdu)).collect();
                for piece in octets.chunks(if split { 1 } else { octets.len() }) {
                    // The node may have closed already.
                    if rogue.stream.write_all(piece).is_err() {
                        break;
                    }
                    scene.pair.b.poll();
                }
                assert_eq!(rogue.terminate(&mut scene.pair.b), fault.code(), "{what}");
                let reason = DisconnectReason::PeerMisbehaved(fault.rule());
                assert_eq!(scene.pair.b.reason(), Some(reason), "{what}");
                scene.assert_unharmed(rogue, opened, what);
            }
        }
    }
}

#[test]
fn a_peer_granted_no_reads_may_not_read() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut scene = Scene::new(backend);
        let (mut rogue, opened) = scene.attack(Offer { ord: 0, ..OFFER });
        rogue.stream.write_all(&fpdu(false, &read(1, opened.readable, 0))).unwrap();
        assert_eq!(rogue.terminate(&mut scene.pair.b), Fault::NoBuffer.code());
        scene.assert_unharmed(rogue, opened, "a Read where none is granted");
    }
}

#[test]
fn a_wrong_crc_counts_only_where_crcs_are_in_force() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut scene = Scene::new(backend);
        let hello = untagged([0x41, 0x43], 0, FIRST, b"hi");
        for wrong in [[0; 4], [0xff; 4]] {
            let (mut rogue, opened) = scene.attack(Offer { crc: true, ..OFFER });
            let mut octets = fpdu(true, &hello);
            let at = octets.len() - 4;
            octets[at..].copy_from_slice(&wrong);
            rogue.stream.write_all(&octets).unwrap();
            assert_eq!(rogue.terminate(&mut scene.pair.b), Fault::Crc.code());
            scene.assert_unharmed(rogue, opened, "a wrong CRC");
        }
        assert_eq!(scene.pair.b.nic.wire_counters().crc_failures, 2);

        let (mut rogue, opened) = scene.attack(OFFER);
        rogue.stream.write_all(&fpdu(false, &hello)).unwrap();
        let receive = RECEIVE + scene.messages;
        scene.pair.until(|_, b| b.is_done(receive));
        let done = scene.pair.b.done(receive).unwrap();
        assert_eq!(done.qp, rogue.qp);
        let filled = complete::sink(opened.receive, &done).unwrap();
        assert_eq!(filled.bytes()[..2], *b"hi", "any CRC will do");
    }
}

#[test]
fn a_stream_that_ends_within_an_fpdu_is_lost_and_between_two_is_closed() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut scene = Scene::new(backend);
        let hello = fpdu(false, &untagged([0x01, 0x43], 0, FIRST, b"more to come"));
        for cut in 0..hello.len() {
            let (mut rogue, opened) = scene.attack(OFFER);
            rogue.stream.write_all(&hello[..cut]).unwrap();
            rogue.stream.shutdown(std::net::Shutdown::Write).unwrap();
            scene.pair.until(|_, b| b.is_quiesced());
            let why = if cut == 0 { DisconnectReason::PeerHasAll } else { DisconnectReason::Lost };
            assert_eq!(scene.pair.b.reason(), Some(why), "cut at {cut}");
            scene.assert_unharmed(rogue, opened, "half an FPDU");
        }
    }
}

#[test]
fn a_peer_that_closes_has_all_if_its_system_acknowledged_it() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        // The peer reads nothing. The second message is more than its socket holds, the third more than both sockets
        // hold.
        for (length, awaited, why) in [
            (8, SEND, DisconnectReason::PeerHasAll),
            (256 << 10, SEND, DisconnectReason::Peer),
            (32 << 20, RECEIVE, DisconnectReason::Peer),
        ] {
            let mut node = Node::with_memory(&config(backend, Crc::IfAsked), 33 << 20);
            let mut rogue = Rogue::new(&mut node, false);
            sockopt::set_socket_recv_buffer_size(&rogue.stream, 4096).unwrap();
            // An accepting end sends nothing before it has heard of the other.
            let sink = node.post_receive(RECEIVE, 8);
            let fpdu = rogue.transmitter.send(None, 0, b"go on");
            rogue.send(&fpdu, b"go on");
            let source = node.post_send(SEND, &vec![7; length], None);
            let polled = (0..POLLS_MAX).any(|_| {
                node.poll();
                node.is_done(awaited)
            });
            assert!(polled, "{:?}", node.seen);
            rogue.stream.shutdown(std::net::Shutdown::Write).unwrap();
            let polled = (0..POLLS_MAX).any(|_| {
                node.poll();
                node.is_quiesced()
            });
            assert!(polled, "{:?}", node.seen);
            assert_eq!(node.reason(), Some(why), "{length}");
            complete::sink(sink, &node.done(RECEIVE).unwrap()).unwrap();
            complete::source(source, &node.done(SEND).unwrap()).unwrap();
        }
    }
}

#[test]
fn a_terminate_is_believed_and_not_answered() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut scene = Scene::new(backend);
        for word in [[0x12, 0x02], [0x21, 0x02], [0xff, 0xff]] {
            let (mut rogue, opened) = scene.attack(OFFER);
            let body = [word[0], word[1], 0, 0];
            let ulpdu = untagged([0x41, 0x47], 0, [2, 1, 0], &body);
            rogue.stream.write_all(&fpdu(false, &ulpdu)).unwrap();
            assert_eq!(until_closed(&mut scene.pair.b, &mut rogue.stream), b"");
            let [first, code] = word;
            let told = DisconnectReason::Terminated { layer: first >> 4, etype: first & 15, code };
            assert_eq!(scene.pair.b.reason(), Some(told));
            scene.assert_unharmed(rogue, opened, "a Terminate");
        }
    }
    let said = DisconnectReason::Terminated { layer: 2, etype: 1, code: 2 }.to_string();
    assert_eq!(
        said,
        "terminated by the peer (layer 2, type 1, code 2), \
         by which Linux siw means layer 1, type 2, code 2: no buffer for the message"
    );
}

#[test]
fn a_handshake_aborted_at_any_octet_leaves_the_listener_alive() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut scene = Scene::new(backend);
        let (_, request) = Active::new(OFFER, b"private").unwrap();
        for cut in 0..request.len() {
            let mut client = TcpStream::connect(scene.at).unwrap();
            client.write_all(&request[..cut]).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(until_closed(&mut scene.pair.b, &mut client), b"", "cut at {cut}");
        }
        let failed = request.len() as u64;
        assert_eq!(scene.pair.b.nic.counters().newcomers.closed, failed);
        // The whole request comes from a peer that leaves before the node answers, or before it reads the answer.
        for answered in [false, true] {
            let bystander = scene.pair.b.qp.take();
            let mut client = TcpStream::connect(scene.at).unwrap();
            client.write_all(&request).unwrap();
            scene.pair.until(|_, b| b.qp.is_some());
            let qp = scene.pair.b.qp();
            let client = (answered).then_some(client);
            let params = ConnectionParams { private_data: b"", ord: 2, ird: 2 };
            scene.pair.b.nic.accept(Instant::ZERO, qp, &params);
            drop(client);
            scene.pair.until(|_, b| b.is_quiesced() && b.nic.connections() == 1);
            scene.pair.b.qp = bystander;
        }
        let (rogue, opened) = scene.attack(OFFER);
        scene.assert_unharmed(rogue, opened, "a handshake that is not aborted");
    }
}

#[test]
fn a_handshake_that_is_none_is_closed_without_a_word_or_refused() {
    // Key, flags, revision, length and the octets behind them.
    let frame = |flags: u8, revision: u8, length: u16, rest: &[u8]| {
        let length = length.to_be_bytes();
        [&b"MPA ID Req Frame"[..], &[flags, revision], &length, rest].concat()
    };
    let enhanced = [0, 1, 0, 1];
    let silent = [
        ("another key", b"MPA ID Rep Frame\0\x01\0\0".to_vec()),
        ("revision 0", frame(0, 0, 0, b"")),
        ("revision 3", frame(0x10, 3, 4, &enhanced)),
        ("private data too long", frame(0x10, 2, 513, &[0; 513])),
        ("Enhanced data cut short", frame(0x10, 2, 3, &enhanced[..3])),
        ("an octet behind it", frame(0x10, 2, 4, &[0, 1, 0, 1, 0])),
        ("an FPDU behind it", [frame(0x10, 2, 4, &enhanced), fpdu(false, &[0x41; 18])].concat()),
    ];
    let refused = [
        ("markers", frame(0x90, 2, 4, &enhanced)),
        ("markers, revision 1", frame(0x80, 1, 0, b"")),
        ("no indication in common", frame(0x10, 2, 4, &[0x80, 1, 0, 1])),
    ];
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut scene = Scene::new(backend);
        for (what, octets) in silent.iter().chain(&refused) {
            let mut client = TcpStream::connect(scene.at).unwrap();
            client.write_all(octets).unwrap();
            let answer = until_closed(&mut scene.pair.b, &mut client);
            if silent.iter().any(|(quiet, _)| quiet == what) {
                assert_eq!(answer, b"", "{what}");
            } else {
                assert_eq!(answer[..16], *b"MPA ID Rep Frame", "{what}");
                assert_eq!(answer[16..], [0x20, octets[17], 0, 0], "{what}: rejected in kind");
            }
        }
        let failed = scene.pair.b.nic.counters().newcomers.malformed;
        assert_eq!(failed as usize, silent.len() + refused.len());
        assert_eq!(scene.pair.b.seen.len(), 2, "and nobody is told: {:?}", scene.pair.b.seen);
    }
}

#[test]
fn a_request_that_says_rejected_is_served_all_the_same() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut node = Node::new(&config(backend, Crc::IfAsked));
        let (_, at) = node.nic.listen(LOCAL).unwrap();
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(b"MPA ID Req Frame\x20\x01\0\x02pd").unwrap();
        for _ in 0..POLLS_MAX {
            node.poll();
            if node.qp.is_some() {
                break;
            }
        }
        assert_eq!(node.seen, [Seen::Request(b"pd".to_vec())], "as by Linux");
    }
}

#[test]
fn a_thousand_connections_that_stall_are_shed_at_their_deadline() {
    let files = usize::try_from(process::raise_open_files().unwrap()).unwrap();
    // Both ends of each connection are descriptors of this process.
    let count = 1000.min(files.saturating_sub(200) / 2);
    assert!(count > 100, "{files} files are too few for this test");
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut scene = Scene::new(backend);
        let (_, request) = Active::new(OFFER, b"private").unwrap();
        let mut stalled = Vec::new();
        for number in 0..count {
            let mut client = TcpStream::connect(scene.at).unwrap();
            client.write_all(&request[..number % request.len()]).unwrap();
            stalled.push(client);
            scene.pair.b.poll();
        }
        scene.pair.until(|_, b| b.nic.connections() == count + 1);
        // Other peers are served meanwhile.
        let (rogue, opened) = scene.attack(OFFER);
        drop(rogue);
        scene.pair.until(|_, b| b.nic.connections() == count + 1);
        drop(opened);
        let timeout = Config::default().handshake_timeout;
        scene.pair.b.now = Instant::ZERO.saturating_add(timeout - Duration::from_nanos(1));
        scene.pair.idle();
        assert_eq!(scene.pair.b.nic.connections(), count + 1, "not before its time");
        scene.pair.b.now = Instant::ZERO.saturating_add(timeout);
        scene.pair.until(|_, b| b.nic.connections() == 1);
        assert_eq!(scene.pair.b.nic.counters().newcomers.timed_out as usize, count);
        for mut client in stalled {
            client.set_nonblocking(false).unwrap();
            assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0, "closed without a word");
        }
    }
}

const OFFER: Offer = Offer { crc: false, ord: 2, ird: 2, rtr: false };
/// Queue 0, message 1, offset 0.
const FIRST: [u32; 3] = [0, 1, 0];
/// Ids of work requests.
const SEND: u64 = 2;
const INVALIDATE: u64 = 1;
const RECEIVE: u64 = 100;
