//! Messages that are taken without Receives.

use haulage_proto::iwarp::terminate::{Code, Fault};

use super::rogue::Rogue;
use super::*;
use crate::provider::{MessageSink, Port, Run};

/// A server whose one peer can write any octets, and which reads its connection at every poll.
struct Scene {
    node: Node,
    rogue: Rogue,
    /// Messages that were reported in Receives so far.
    reported: u64,
}

impl Scene {
    fn new(backend: Backend, crc: bool) -> Self {
        let mut node = Node::new(&config(backend, Crc::IfAsked));
        let rogue = Rogue::new(&mut node, crc);
        // The octets must arrive while the idle connection is still hot.
        rogue.stream.set_nodelay(true).unwrap();
        let mut scene = Self { node, rogue, reported: 0 };
        scene.heat();
        scene
    }

    /// Has the connection read at every poll, and for messages without Receives, too.
    fn heat(&mut self) {
        let before = self.reported;
        // The first message takes a slower path than the others.
        while self.reported == 0 || self.node.nic.hot.is_empty() {
            let octets = self.message(b"hello");
            self.write(&octets);
            self.expect_reported(b"hello");
            assert!(self.reported < before + 100, "a busy connection becomes hot");
        }
        self.node.nic.slots.get(self.rogue.qp).unwrap().intake().end_backoff();
    }

    fn octets(fpdu: &haulage_proto::iwarp::transmit::Fpdu, payload: &[u8]) -> Vec<u8> {
        assert_eq!(fpdu.payload_len(), payload.len());
        [fpdu.prefix(), payload, fpdu.trailer()].concat()
    }

    /// Returns the octets of the next message.
    fn message(&mut self, contents: &[u8]) -> Vec<u8> {
        Self::octets(&self.rogue.transmitter.send(None, 0, contents), contents)
    }

    /// Has octets arrive after a poll, so that they can be looked for before the next one.
    fn write(&mut self, octets: &[u8]) {
        self.node.poll();
        self.rogue.stream.write_all(octets).unwrap();
    }

    /// Asks for messages, without polls that would read them, until there is one; returns it.
    fn take(&mut self) -> Vec<u8> {
        let mut offers = Offers { wanted: true, seen: Vec::new() };
        for _ in 0..POLLS_MAX {
            if self.node.nic.receive_in_place(&mut [], 64, 1, &mut offers) > 0 {
                return offers.seen.pop().unwrap();
            }
            self.node.poll();
        }
        panic!("nothing came: {:?}", self.node.seen);
    }

    /// Asks until a message is offered, and refuses it.
    fn refuse(&mut self, length_max: usize) {
        let mut offers = Offers { wanted: false, seen: Vec::new() };
        for _ in 0..POLLS_MAX {
            assert_eq!(self.node.nic.receive_in_place(&mut [], length_max, 1, &mut offers), 0);
            if !offers.seen.is_empty() || self.node.nic.inbox.refused {
                return;
            }
            self.node.poll();
        }
        panic!("nothing came: {:?}", self.node.seen);
    }

    /// Checks that nothing is taken until the next poll.
    fn assert_nothing_taken(&mut self) {
        let mut offers = Offers { wanted: true, seen: Vec::new() };
        for _ in 0..3 {
            assert_eq!(self.node.nic.receive_in_place(&mut [], 64, 1, &mut offers), 0);
        }
    }

    /// Checks that the next message comes in a Receive.
    fn expect_reported(&mut self, contents: &[u8]) {
        self.reported += 1;
        let id = self.reported;
        let sink = self.node.post_receive(id, 64);
        for _ in 0..POLLS_MAX {
            if let Some(done) = self.node.done(id) {
                assert_eq!(done.length as usize, contents.len());
                let filled = complete::sink(sink, &done).unwrap();
                assert_eq!(filled.bytes()[..contents.len()], *contents);
                return;
            }
            self.node.poll();
        }
        panic!("nothing came: {:?}", self.node.seen);
    }
}

/// Keeps the messages that it is offered, and takes them if `wanted`.
struct Offers {
    wanted: bool,
    seen: Vec<Vec<u8>>,
}

impl MessageSink for Offers {
    fn messages(&mut self, _: QpNum, run: &Run<'_>, _: &mut impl Port) -> usize {
        self.seen.extend(run.octets.iter().map(|message| message.to_vec()));
        if self.wanted { run.octets.len() } else { 0 }
    }
}

/// Every backend, with CRCs and without.
const SCENES: [(Backend, bool); 4] = [
    (Backend::Sockets, false),
    (Backend::Sockets, true),
    (Backend::Auto, false),
    (Backend::Auto, true),
];

#[test]
fn a_write_is_in_place_when_the_message_behind_it_is_taken() {
    for (backend, crc) in SCENES {
        let mut scene = Scene::new(backend, crc);
        let contents = pattern(1000);
        let (exposed, segment) = scene.node.expose(scene.node.lease(&[7; 1000]), true);
        let (first, rest) = contents.split_at(400);
        let Segment { handle, offset, .. } = segment;
        let t = &mut scene.rogue.transmitter;
        let mut octets = Scene::octets(&t.write(handle, offset, first), first);
        octets.extend(Scene::octets(&t.write(handle, offset + 400, rest), rest));
        octets.extend(scene.message(b"done"));
        scene.write(&octets);
        assert_eq!(scene.take(), b"done");
        assert_eq!(scene.node.nic.counters().tagged_received, 1000);
        assert!(scene.node.nic.nic.receives.is_empty(), "there was no Receive to take");
        scene.node.post(51, SIGNALED, Operation::LocalInv { handle });
        while !scene.node.is_done(51) {
            scene.node.poll();
        }
        let done = scene.node.done(51).unwrap();
        let lease = exposed.fence(complete::invalidated(&done).unwrap()).unwrap();
        assert!(lease.bytes() == contents, "{backend:?} {crc}");
    }
}

#[test]
fn a_message_in_pieces_arrives_in_its_turn_wherever_it_is_cut() {
    for (backend, crc) in SCENES {
        let mut scene = Scene::new(backend, crc);
        let mut cut = 1;
        loop {
            scene.heat();
            let [first, second, third] =
                [&b"first"[..], b"second", b"third"].map(|m| scene.message(m));
            if cut == second.len() {
                break;
            }
            let (head, tail) = second.split_at(cut);
            scene.write(&[&first, head].concat());
            assert_eq!(scene.take(), b"first", "cut {cut}");
            scene.assert_nothing_taken();
            scene.write(&[tail, &third].concat());
            scene.expect_reported(b"second");
            scene.expect_reported(b"third");
            cut += 1;
        }
    }
}

#[test]
fn a_message_that_finds_no_room_or_is_not_wanted_stays_and_all_behind_it() {
    for (backend, crc) in SCENES {
        let mut scene = Scene::new(backend, crc);
        for room in [3, 64] {
            scene.heat();
            let octets = [&b"taken"[..], b"long", b"s"].map(|m| scene.message(m)).concat();
            scene.write(&octets);
            assert_eq!(scene.take(), b"taken");
            scene.refuse(room);
            scene.assert_nothing_taken();
            scene.expect_reported(b"long");
            scene.expect_reported(b"s");
        }
    }
}

#[test]
fn what_nobody_asks_for_any_more_is_reported_in_order() {
    for (backend, crc) in SCENES {
        let mut scene = Scene::new(backend, crc);
        let octets = [&b"1"[..], b"22", b"333"].map(|m| scene.message(m)).concat();
        scene.write(&octets);
        assert_eq!(scene.take(), b"1");
        scene.expect_reported(b"22");
        let later = scene.message(b"4444");
        scene.write(&later);
        scene.expect_reported(b"333");
        scene.expect_reported(b"4444");
    }
}

#[test]
fn a_connection_with_a_message_left_does_not_sleep() {
    let mut scene = Scene::new(Backend::Auto, false);
    let octets = [&b"1"[..], b"22"].map(|m| scene.message(m)).concat();
    scene.node.poll();
    scene.write(&octets);
    assert_eq!(scene.take(), b"1");
    scene.node.poll();
    // The sleep must end at once.
    scene.node.nic.sleep(None);
    assert_eq!(scene.take(), b"22");
}

#[test]
fn a_damaged_message_is_not_taken_and_ends_the_connection() {
    for backend in [Backend::Sockets, Backend::Auto] {
        let mut scene = Scene::new(backend, true);
        let [good, mut bad] = [&b"good"[..], b"good"].map(|m| scene.message(m));
        bad[20] ^= 1;
        scene.write(&[good, bad].concat());
        assert_eq!(scene.take(), b"good");
        scene.assert_nothing_taken();
        // The message that breaks the rule waits for a Receive first.
        let _sink = scene.node.post_receive(50, 64);
        let Code { layer, etype, code } = scene.rogue.terminate(&mut scene.node);
        let expected = Fault::Crc.code();
        assert_eq!((layer, etype, code), (expected.layer, expected.etype, expected.code));
        let rule = Fault::Crc.rule();
        assert_eq!(scene.node.reason(), Some(DisconnectReason::PeerMisbehaved(rule)));
        assert_eq!(scene.node.nic.wire_counters().crc_failures, 1);
        assert!(scene.node.done.is_empty());
    }
}

#[test]
fn nothing_is_taken_behind_a_write_that_is_refused() {
    for (backend, crc) in SCENES {
        let mut scene = Scene::new(backend, crc);
        let (exposed, segment) = scene.node.expose(scene.node.lease(&[7; 100]), true);
        let fpdu = scene.rogue.transmitter.write(segment.handle, segment.offset + 1, &[1; 100]);
        let mut octets = Scene::octets(&fpdu, &[1; 100]);
        octets.extend(scene.message(b"behind"));
        scene.write(&octets);
        scene.refuse(64);
        scene.assert_nothing_taken();
        let Code { layer, etype, code } = scene.rogue.terminate(&mut scene.node);
        let expected = Fault::TaggedBounds.code();
        assert_eq!((layer, etype, code), (expected.layer, expected.etype, expected.code));
        let quiesced = scene.node.quiesced.pop().unwrap();
        let proof = complete::destroyed(&exposed, &quiesced);
        assert_eq!(exposed.fence(proof).unwrap().bytes(), [7; 100]);
    }
}
