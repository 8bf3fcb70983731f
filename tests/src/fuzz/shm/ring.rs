//! A peer that writes anything into the memory it shares, while the victim works with it.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::Ordering;

use haulage::provider::shm::Shm;
use haulage::provider::{
    ConnectionParams, Event, Head, MessageSink, Operation, Outgoing, Port, Provider as _, Run,
    RunKind, Sent, WorkRequest,
};
use haulage::sys::complete;
use haulage::sys::shared::Shared;
use haulage::sys::unix::{Listener, Stream};
use haulage_mr_pool::Exposed;
use haulage_proto::verbs::{Access, ClaimedSegment, Handle, QpNum, Segment, WrId};

use super::{ENTRIES, Hello, LINE, RING, RING_BYTES, end, memory, name, scene, segment_length};
use crate::bed::SIGNALED;
use crate::by_number::ByNumber as _;
use crate::fuzz::beside::{Lent, PARAMS, Scene};
use crate::fuzz::octets::{octet, short, some_octets};
use crate::world::choices::Choices;

/// Attacks the victim as a peer that knows the format of the shared memory and breaks its rules. The attacker's
/// connection ends at the latest when it leaves, and no other does.
pub(in super::super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let mut scene = scene();
    let mut rogue = match choices.one_in(2) {
        true => Rogue::joins(&mut scene, &mut choices),
        false => Rogue::is_joined(&mut scene, &mut choices),
    };
    for _ in 0..STEPS_MAX {
        if choices.is_spent() {
            break;
        }
        match choices.below(4) {
            0 | 1 => rogue.step(&mut choices),
            2 => rogue.work(&mut scene, &mut choices),
            _ => scene.poll(),
        }
    }
    rogue.leave(&mut scene);
    scene.assert_unharmed();
    end(scene);
}

/// The attacker.
struct Rogue {
    stream: Stream,
    /// The segment of the attacker, which holds its ring and its table.
    ours: Shared,
    theirs: Shared,
    /// Place of its next record, counted without wrapping.
    at: u64,
    /// The queue pair of its connection at the victim.
    qp: QpNum,
    /// Leases that the victim exposed to it.
    opened: Vec<(Exposed, Segment)>,
    is_over: bool,
}

impl Rogue {
    /// Connects to the victim.
    fn joins(scene: &mut Scene<Shm>, choices: &mut Choices) -> Self {
        let stream = Stream::connect(&name(scene.at.port())).expect("it listens").expect("room");
        let ours = say(&stream, 1, choices);
        let qp = scene.until("a request", Scene::requested);
        scene.victim.provider.accept(scene.now, qp, &PARAMS);
        Self::new(scene, stream, ours, qp)
    }

    /// Makes the victim connect, which then passes its region.
    fn is_joined(scene: &mut Scene<Shm>, choices: &mut Choices) -> Self {
        let (listener, port) = (0..)
            .find_map(|n| Some((Listener::bind(&name(PORT + n)).ok()?, PORT + n)))
            .expect("a free name");
        let mut at = scene.at;
        at.set_port(port);
        let params = ConnectionParams { private_data: b"", ord: 2, ird: 2 };
        let qp = scene.victim.provider.connect(scene.now, at, &params).expect("a queue pair");
        let stream = scene.until("a connection", |_| listener.accept().expect("no failure"));
        let ours = say(&stream, 2, choices);
        Self::new(scene, stream, ours, qp)
    }

    fn new(scene: &mut Scene<Shm>, stream: Stream, ours: Shared, qp: QpNum) -> Self {
        scene.until("the connection", |scene| scene.victim.established(qp).map(drop));
        let (mut octets, mut fds) = ([0; 600], Vec::<OwnedFd>::new());
        let count = stream.receive(&mut octets, &mut fds).expect("it is open").expect("an answer");
        assert!(count >= 44, "a whole greeting");
        let length = segment_length(RING_BYTES, ENTRIES);
        let theirs = Shared::open(fds[0].as_fd(), length).expect("what it says it is");
        Self { stream, ours, theirs, at: 0, qp, opened: Vec::new(), is_over: false }
    }

    /// Writes something into the shared memory.
    fn step(&mut self, choices: &mut Choices) {
        let store = |memory: &Shared, at: usize, value| {
            memory.u64_at(at).store(value, Ordering::SeqCst);
        };
        let words = self.ours.len() / 8;
        match choices.below(12) {
            0..=4 => self.push(choices),
            // The attacker changes any word of its own segment: a header of the ring, or a word of the table.
            5 => store(&self.ours, choices.below(words) * 8, choices.number()),
            6 => {
                let at = RING + choices.below(64) * LINE;
                let length = choices.below(1100) as u64;
                let header = choices.below(2048) as u64 | length << 11 | choices.number() << 32;
                store(&self.ours, at, header);
            }
            7 => self.open(choices),
            // The attacker lies about how far it has read, and whether it waits.
            8 => {
                let head = match choices.one_in(4) {
                    true => choices.number(),
                    false => choices.below(65) as u64 * 64,
                };
                store(&self.theirs, 0, head);
                store(&self.theirs, 2 * LINE, choices.below(2) as u64);
            }
            // The attacker changes any word of the victim's segment.
            9 => store(&self.theirs, choices.below(words) * 8, choices.number()),
            10 => store(&self.ours, 4 * LINE, choices.number()),
            _ => _ = self.stream.send(&some_octets(choices, 8), &[]),
        }
    }

    /// Writes a record in the next place of the ring.
    fn push(&mut self, choices: &mut Choices) {
        let kind = choices.of(1..=7) as u64;
        if kind == 7 && !choices.one_in(4) {
            return match choices.one_in(3) {
                true => self.introduce(choices),
                false => self.push_series(choices),
            };
        }
        let length = match kind {
            // A part of a message is as long as a record can be.
            3 if !choices.one_in(4) => RING_BYTES as usize / 4 - 8,
            4 | 5 if !choices.one_in(4) => 0,
            _ => choices.pick(&[0, 1, 8, 40, 56, 57, 64, 100, 300]),
        };
        let octets: Vec<u8> = match choices.one_in(2) {
            true => vec![octet(choices); length],
            false => (0..length).map(|_| octet(choices)).collect(),
        };
        let handle = match self.opened.last() {
            Some((_, segment)) if choices.one_in(2) => segment.handle.0,
            _ => short(choices.below(8)),
        };
        self.record(u64::from(handle) << 32 | kind, &octets);
    }

    /// Introduces a template, more often than not a valid one.
    fn introduce(&mut self, choices: &mut Choices) {
        let number = number(choices);
        let length = choices.pick(&[44, 44, 72, 96, 8, 100, 42]);
        let octets: Vec<u8> = (0..length).map(|_| octet(choices)).collect();
        let mut offset = || match choices.one_in(16) {
            true => choices.below(256) as u64,
            false => choices.below(length / 4) as u64 * 4,
        };
        let [first, second, credit] = [offset(), offset(), offset()];
        self.record(number << 56 | first << 48 | second << 40 | credit << 32, &octets);
    }

    /// Writes messages with one template, most often one that was introduced.
    fn push_series(&mut self, choices: &mut Choices) {
        let number = number(choices);
        let mut octets = Vec::new();
        for _ in 0..choices.below(8) {
            let body = choices.pick(&[0_usize, 0, 1, 8, 20, 192, 193]);
            octets.extend(((body as u64) << 32 | choices.below(100) as u64).to_ne_bytes());
            let there = if choices.one_in(16) { 0 } else { body.next_multiple_of(8) };
            octets.extend(vec![octet(choices); there]);
        }
        self.record((choices.below(64) as u64) << 32 | number << 22 | 7, &octets);
    }

    /// Writes a record behind the last one, with `header` and its length; or, where the ring has too little left, a
    /// record that skips the rest.
    fn record(&mut self, header: u64, octets: &[u8]) {
        let (capacity, length) = (u64::from(RING_BYTES), octets.len());
        let span = (8 + length as u64).next_multiple_of(LINE as u64);
        let from = self.at % capacity;
        if from + span > capacity {
            // The rest of the ring holds no record.
            self.at += capacity - from;
            self.header(from, 5);
            return;
        }
        if length > 0 {
            self.ours.copy_in(RING + usize::try_from(from).expect("small") + 8, octets);
        }
        self.at += span;
        self.header(self.at % capacity, 0);
        self.header(from, header | (length as u64) << 11);
    }

    fn header(&self, from: u64, header: u64) {
        let at = RING + usize::try_from(from).expect("in the ring");
        self.ours.u64_at(at).store(header, Ordering::SeqCst);
    }

    /// Writes the first entry of its table, which exposes memory to the victim.
    fn open(&self, choices: &mut Choices) {
        let entry = RING + RING_BYTES as usize;
        let mut number = || match choices.one_in(4) {
            true => choices.number(),
            false => choices.pick(&[0, 8, 64, 4096, 4000, 1 << 40]),
        };
        let [base, start, length] = [number(), number(), number()];
        let key = (choices.of(1..=2) as u64 * (1 << 32)) | u64::from(TARGET.0);
        for (at, value) in [(8, base), (16, start), (24, length), (0, key)] {
            self.ours.u64_at(entry + at).store(value, Ordering::SeqCst);
        }
    }

    /// Makes the victim do something on the connection.
    fn work(&mut self, scene: &mut Scene<Shm>, choices: &mut Choices) {
        let ended =
            |event: &Event<_>| matches!(event, Event::Disconnected { qp, .. } if *qp == self.qp);
        self.is_over |= scene.victim.log.iter().any(ended);
        let length = choices.pick(&[1, 8, 64, 2000]);
        match choices.below(if self.is_over { 2 } else { 7 }) {
            0 if scene.victim.pool.free_bytes() > 256 << 10 => {
                let length = length.max(64);
                let (_, sink) = scene.victim.receive(self.qp, length);
                scene.lend(Lent::Sink(sink));
            }
            0 | 1 => {
                let answer = scene.victim.message(&[7; 64]);
                let mut taker = Taker { takes: choices.one_in(2), answer };
                scene.victim.provider.receive_in_place(&mut [0; 4096], 4096, 16, &mut taker);
            }
            2 => {
                let message = scene.victim.message(&vec![7; length]);
                let said = scene.victim.say(self.qp, (length, None), message);
                if said.sent == Sent::Taken {
                    scene.lend(Lent::Message(Box::new(said.message)));
                }
            }
            3 | 4 => self.post(scene, choices, length),
            5 if self.opened.len() < 4 => self.expose(scene),
            _ => {
                let Some((exposed, _)) = self.opened.last() else { return };
                let operation = Operation::LocalInv { handle: exposed.handle() };
                try_post(scene, self.qp, operation);
            }
        }
    }

    /// Posts a Send, or a Write or Read of the memory that the attacker's table exposes.
    fn post(&self, scene: &mut Scene<Shm>, choices: &mut Choices, length: usize) {
        let offset = choices.pick(&[0, 0, 8, 4000, u64::MAX - 4096]);
        let target = Segment { handle: TARGET, length: short(length), offset };
        let Ok(target) = ClaimedSegment::try_from(target) else { return };
        let Some(lease) = scene.victim.pool.lease(length) else { return };
        let operation = match choices.below(3) {
            0 => {
                let mut posted = lease.into_sink();
                let sink = posted.sink(0..length).expect("the whole lease");
                scene.lend(Lent::Sink(posted));
                Operation::Read { sink, source: target }
            }
            chosen => {
                let posted = lease.into_source();
                let source = posted.source(0..length).expect("the whole lease");
                scene.lend(Lent::Source(posted));
                match chosen {
                    1 => Operation::Write { source, target },
                    _ => Operation::Send { source, invalidate: None },
                }
            }
        };
        try_post(scene, self.qp, operation);
    }

    /// Exposes memory to the attacker, if the victim passed its region.
    fn expose(&mut self, scene: &mut Scene<Shm>) {
        let lease = scene.victim.holding(CONTENTS);
        self.opened.extend(scene.victim.provider.open(self.qp, lease, Access::RemoteRead).ok());
    }

    /// Leaves, and takes back all leases that were exposed to it.
    fn leave(self, scene: &mut Scene<Shm>) {
        // A registration marked as in use stays lent while the peer's process lives, which is this one.
        for entry in 0..ENTRIES as usize {
            let at = RING + RING_BYTES as usize + entry * LINE + IN_USE;
            self.theirs.u64_at(at).store(0, Ordering::SeqCst);
        }
        self.stream.shutdown();
        let qp = self.qp;
        let mut receives = 0;
        let quiesced = scene.until("the end", |scene| {
            // The last messages of the attacker may wait for Receives.
            if receives < RECEIVES_MAX {
                receives += 1;
                let (_, sink) = scene.victim.receive(qp, 64);
                scene.lend(Lent::Sink(sink));
            }
            scene.quiesced(qp)
        });
        for (exposed, _) in self.opened {
            let proof = complete::destroyed(&exposed, &quiesced);
            let lease = exposed.fence(proof).map_err(|_| ()).expect("no view is left");
            assert_eq!(lease.bytes(), CONTENTS, "what nobody was to write");
        }
        scene.until("the place", |scene| (scene.victim.provider.connections() == 1).then_some(()));
    }
}

/// Draws the number of a template, sometimes one that cannot exist.
fn number(choices: &mut Choices) -> u64 {
    let bound = if choices.one_in(8) { 32 } else { 4 };
    choices.below(bound) as u64
}

/// Posts a request, if there is room for it.
fn try_post(scene: &mut Scene<Shm>, qp: QpNum, operation: Operation) {
    let id = scene.victim.id();
    let mut batch = [WorkRequest { id, flags: SIGNALED, operation }].into();
    let _ = scene.victim.provider.post(qp, &mut batch);
}

/// Sends a greeting that passes a region or none. Returns the attacker's segment.
fn say(stream: &Stream, kind: u32, choices: &mut Choices) -> Shared {
    let (segment, fd) = memory(segment_length(RING_BYTES, ENTRIES));
    let region = choices.one_in(2).then(|| memory(4096));
    let hello = Hello::new(kind, region.as_ref().map(|_| 4096));
    let mut fds = vec![fd.as_fd()];
    fds.extend(region.iter().map(|(_, fd)| fd.as_fd()));
    stream.send(&hello.encode(), &fds).expect("room");
    segment
}

/// Takes all messages, or none, and answers those that it takes.
struct Taker {
    takes: bool,
    answer: Outgoing,
}

impl MessageSink for Taker {
    fn messages(&mut self, _: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize {
        if !self.takes || matches!(run.kind, RunKind::Invalidating(_)) {
            return 0;
        }
        for _ in run.octets {
            // A full ring takes no answer, and this port only copies.
            let head = Head::written(0..64, None);
            assert_ne!(port.send(&head, &mut self.answer, WrId(0)), Sent::Taken);
        }
        run.octets.len()
    }
}

/// The handle in the first entry of the attacker's table.
const TARGET: Handle = Handle(0x1234_0000);
const CONTENTS: &[u8] = b"left alone?";
/// First port to try to listen at.
const PORT: u16 = 40_000;
/// Offset in a table's entry of the mark that its registration is in use.
const IN_USE: usize = 32;
const STEPS_MAX: usize = 256;
/// Maximum number of Receives posted for a peer that has left: more messages than its ring holds.
const RECEIVES_MAX: usize = 512;
