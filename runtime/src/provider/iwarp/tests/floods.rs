//! Peers that send many FPDUs that deliver nothing.

use haulage_proto::iwarp::mpa::handshake::Offer;

use super::super::turn::{EMPTY_PER_SECOND_MAX, FPDUS_PER_POLL};
use super::rogue::Rogue;
use super::*;

const BACKENDS: [Backend; 2] = [Backend::Sockets, Backend::Auto];
const OFFER: Offer = Offer { crc: false, ord: 2, ird: 2, rtr: false };

/// A node with a rogue and, beside it, an honest peer, each of which has sent a message.
struct Scene {
    pair: Pair,
    rogue: Rogue,
    honest: QpNum,
}

impl Scene {
    fn new(backend: Backend) -> Self {
        let mut pair = Pair::with(&config(backend, Crc::IfAsked), SMALL);
        let at = pair.b.nic.listen(LOCAL).unwrap().1;
        let rogue = Rogue::join(&mut pair.b, at, OFFER);
        rogue.stream.set_nonblocking(true).unwrap();
        let honest = pair.b.qp();
        Self { pair, rogue, honest }
    }

    /// Has the rogue send as much of `octets` as its socket takes; returns how many octets that is.
    fn flood(&mut self, octets: &[u8]) -> usize {
        let mut sent = 0;
        while sent < octets.len() {
            match self.rogue.stream.write(&octets[sent..]) {
                Ok(count) => sent += count,
                Err(_) => break,
            }
        }
        sent
    }

    fn fpdus(&self) -> u64 {
        self.pair.b.nic.wire_counters().fpdus_received
    }
}

/// Returns the octets of `count` RDMA Writes without payload.
fn empty_writes(rogue: &Rogue, count: usize) -> Vec<u8> {
    let fpdu = rogue.transmitter.write(Handle(0), 0, &[]);
    [fpdu.prefix(), fpdu.trailer()].concat().repeat(count)
}

#[test]
fn a_poll_handles_so_many_fpdus_of_a_connection_and_the_others_have_their_turn() {
    for backend in BACKENDS {
        let mut scene = Scene::new(backend);
        // So few FPDUs in each second of the node's time are no flood.
        let count = 9_000;
        let octets = empty_writes(&scene.rogue, count);
        let (mut at, before) = (scene.flood(&octets), scene.fpdus());
        let sinks: Vec<_> = (1..=4).map(|id| scene.pair.b.post_receive(id, 8)).collect();
        let sources: Vec<_> =
            (1..=4).map(|id| scene.pair.a.post_send(id, b"me too", None)).collect();
        let (mut most, mut heard_after) = (0, 0);
        for poll in 1..POLLS_MAX {
            at += scene.flood(&octets[at..]);
            let last = scene.fpdus();
            scene.pair.b.poll();
            most = most.max(scene.fpdus() - last);
            if heard_after == 0 && scene.pair.b.is_done(4) {
                heard_after = scene.fpdus() - before;
            }
            if scene.fpdus() - before == count as u64 + 4 {
                break;
            }
            assert!(poll < POLLS_MAX - 1, "all of it is handled in time");
        }
        let each = u64::from(FPDUS_PER_POLL);
        assert!(most > each / 2 && most <= each + 4, "{most} in a poll");
        // An epoll is asked in every eighth poll.
        assert!(
            heard_after > 0 && heard_after <= 9 * each + 4,
            "{heard_after} before the honest peer"
        );
        assert_eq!(scene.pair.b.reason(), None);
        scene.pair.until(|a, _| a.is_done(4));
        for (id, (sink, source)) in (1..).zip(sinks.into_iter().zip(sources)) {
            complete::sink(sink, &scene.pair.b.done(id).unwrap()).unwrap();
            complete::source(source, &scene.pair.a.done(id).unwrap()).unwrap();
        }
    }
}

#[test]
fn what_is_left_of_a_turn_is_handled_before_the_connection_ends() {
    for backend in BACKENDS {
        let mut node = Node::new(&config(backend, Crc::IfAsked));
        let mut rogue = Rogue::new(&mut node, false);
        let sink = node.post_receive(1, 8);
        let mut octets = empty_writes(&rogue, 5_000);
        let fpdu = rogue.transmitter.send(None, 0, b"last");
        octets.extend([fpdu.prefix(), b"last", fpdu.trailer()].concat());
        rogue.send_all(&mut node, &octets);
        drop(rogue);
        for _ in 0..POLLS_MAX {
            if node.is_quiesced() {
                break;
            }
            node.poll();
        }
        assert_eq!(node.reason(), Some(DisconnectReason::PeerHasAll));
        let done = node.done(1).expect("it came before the end");
        assert_eq!(&complete::sink(sink, &done).unwrap().bytes()[..4], b"last");
    }
}

/// Has a peer send FPDUs that deliver nothing until its connection ends; returns how many were received.
fn flood_until_the_end(backend: Backend, octets: impl Fn(&mut Rogue) -> Vec<u8>) -> u64 {
    let mut scene = Scene::new(backend);
    let lease = scene.pair.b.lease(&[7; 8]);
    let (bystanders, _) = scene.pair.b.expose(lease, true);
    let receive = scene.pair.b.post_receive(78, 8);
    let before = scene.fpdus();
    let octets = octets(&mut scene.rogue);
    let mut at = 0;
    for _ in 0..100_000 {
        at += scene.flood(&octets[at..]);
        scene.pair.b.poll();
        let mut answers = [0; 4096];
        let _ = scene.rogue.stream.read(&mut answers);
        if scene.pair.b.is_quiesced() {
            break;
        }
    }
    assert_eq!(scene.pair.b.reason(), Some(DisconnectReason::Flooded));
    assert_eq!(scene.pair.b.nic.wire_counters().floods, 1);
    let received = scene.fpdus() - before;
    // The other connection works, and has the Receive that the flood began to fill.
    scene.pair.b.qp = Some(scene.honest);
    let source = scene.pair.a.post_send(1, b"me", None);
    scene.pair.until(|a, b| a.is_done(1) && b.is_done(78));
    complete::sink(receive, &scene.pair.b.done(78).unwrap()).unwrap();
    complete::source(source, &scene.pair.a.done(1).unwrap()).unwrap();
    drop(bystanders);
    received
}

#[test]
fn a_flood_of_fpdus_that_deliver_nothing_ends_its_connection() {
    let most = u64::from(EMPTY_PER_SECOND_MAX + FPDUS_PER_POLL);
    for backend in BACKENDS {
        let writes = |rogue: &mut Rogue| empty_writes(rogue, 50_000);
        let received = flood_until_the_end(backend, writes);
        assert!(received <= most, "{received} writes");
        let segments = |_: &mut Rogue| {
            // DDP version 1, not the last; RDMAP version 1, Send; message 1 of queue 0, octet 0.
            let ulpdu = [&[0x01, 0x43][..], &[0; 11], &[1], &[0; 4]].concat();
            [&[0, 18][..], &ulpdu, &[0; 4]].concat().repeat(50_000)
        };
        let received = flood_until_the_end(backend, segments);
        assert!(received <= most, "{received} segments");
    }
}

#[test]
fn reads_of_nothing_are_a_flood_too() {
    let most = u64::from(EMPTY_PER_SECOND_MAX + FPDUS_PER_POLL);
    for backend in BACKENDS {
        let mut node = Node::new(&config(backend, Crc::IfAsked));
        let mut rogue = Rogue::new(&mut node, false);
        rogue.stream.set_nonblocking(true).unwrap();
        let before = node.nic.wire_counters().fpdus_received;
        for _ in 0..POLLS_MAX {
            if node.is_quiesced() {
                break;
            }
            // The rogue sends one Read Request at a time, and the node answers it at once.
            let request = haulage_proto::iwarp::rdmap::ReadRequest {
                sink: Handle(5),
                sink_offset: 0,
                length: 0,
                source: Handle(0),
                source_offset: 0,
            };
            let fpdu = rogue.transmitter.read_request(&request);
            let _ = rogue.stream.write_all(&[fpdu.prefix(), fpdu.trailer()].concat());
            let count = node.nic.wire_counters().fpdus_received;
            for _ in 0..POLLS_MAX {
                node.poll();
                if node.is_quiesced() || node.nic.wire_counters().fpdus_received > count {
                    break;
                }
            }
            let _ = rogue.stream.read(&mut [0; 4096]);
        }
        assert_eq!(node.reason(), Some(DisconnectReason::Flooded));
        assert!(node.nic.wire_counters().fpdus_received - before <= most);
    }
}

#[test]
fn as_many_in_a_longer_time_are_no_flood_nor_are_messages_without_payload() {
    for backend in BACKENDS {
        let mut scene = Scene::new(backend);
        let octets = empty_writes(&scene.rogue, 4_000);
        for second in 1..=5 {
            scene.pair.b.now = Instant::ZERO.saturating_add(Duration::from_secs(2 * second));
            let before = scene.fpdus();
            let mut at = 0;
            for _ in 0..POLLS_MAX {
                at += scene.flood(&octets[at..]);
                if scene.fpdus() - before == 4_000 {
                    break;
                }
                scene.pair.b.poll();
            }
            assert_eq!(scene.fpdus() - before, 4_000, "all of it is handled in time");
        }
        assert_eq!(scene.pair.b.reason(), None);
    }
    let mut pair = Pair::new((Backend::Sockets, Crc::IfAsked));
    for round in 0..u64::from(EMPTY_PER_SECOND_MAX) + 100 {
        let sink = pair.b.post_receive(round, 8);
        let source = pair.a.post_send(round, b"", None);
        pair.until(|a, b| a.is_done(round) && b.is_done(round));
        complete::sink(sink, &pair.b.done(round).unwrap()).unwrap();
        complete::source(source, &pair.a.done(round).unwrap()).unwrap();
        (pair.a.seen, pair.b.seen) = (Vec::new(), Vec::new());
    }
    assert_eq!(pair.b.reason(), None);
}
