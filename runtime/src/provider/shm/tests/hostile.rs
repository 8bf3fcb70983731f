use super::super::ended::{BAD_RING, Ended};
use super::super::ring::Kind;
use super::super::segment::{RING, Segment};
use super::rogue::{Rogue, layout};
use super::*;
use crate::provider::Run;
use crate::sys::shared::Shared;
use crate::sys::shared::rogue::{huge_page, punch, unsealed};

/// A node with a connection to an honest peer, which must survive, and one to a rogue.
struct Victim {
    node: Node,
    honest: Node,
    honest_qp: QpNum,
    rogue: Rogue,
}

impl Victim {
    fn new(region: Option<usize>) -> Self {
        let region =
            region.map(|length| (Shared::create(c"rogue", length).unwrap().1, length as u64));
        Self::passed(region.as_ref())
    }

    /// Makes the bed; the rogue passes `region`, a descriptor and its length in octets, if any.
    fn passed(region: Option<&(OwnedFd, u64)>) -> Self {
        let (honest, mut node) = pair();
        let honest_qp = node.qp();
        let rogue = Rogue::passing(&mut node, region);
        Self { node, honest, honest_qp, rogue }
    }

    /// Checks that the rogue has lost its connection for `fault`, and that no other connection suffers.
    fn ends_for(mut self, fault: Fault) {
        self.node.until(&Seen::Disconnected(DisconnectReason::PeerMisbehaved(fault.rule())));
        self.node.until(&Seen::Quiesced);
        assert_eq!(self.rogue.told(), Ended::YouBroke(fault.code()));
        self.others_live_on();
    }

    fn others_live_on(mut self) {
        assert!(!self.rogue.stream.discard(), "the socket was closed");
        self.node.qp = Some(self.honest_qp);
        // The first Receive may be one that the rogue did not use.
        self.node.receive(8);
        self.honest.send(b"message", None);
        self.node.heard();
        carry(&mut self.node, &mut self.honest);
    }
}

#[test]
fn what_is_no_record_ends_that_connection_alone() {
    for header in [u64::MAX, 6, 7, 0x1f_ffff << 11 | 1, 3, 5, 1 << 63, 1 << 32, 4 << 11, 8 << 3] {
        let mut victim = Victim::new(None);
        victim.node.receive(64);
        victim.rogue.scribble(header);
        victim.ends_for(BAD_RING);
    }
}

/// Describes a template in the upper half of a header: its number, the offsets of its XID, and that of its credit word.
fn described(number: u8, [first, second]: [u8; 2], credit: u8) -> Handle {
    Handle(u32::from_be_bytes([number, first, second, credit]))
}

/// Takes no message, and remembers whether it was asked.
#[derive(Default)]
struct Refuser {
    was_asked: bool,
}

impl MessageSink for Refuser {
    fn messages(&mut self, _: QpNum, _: &Run<'_>, _: &mut impl Port) -> usize {
        self.was_asked = true;
        0
    }
}

#[test]
fn a_template_that_cannot_be_ends_that_connection_alone() {
    for (described, length) in [
        (described(16, [0, 20], 8), 44),  // a number there is not
        (described(0, [0, 20], 8), 100),  // too long
        (described(0, [0, 20], 8), 1000), // as long as a record can be, nearly
        (described(0, [44, 20], 8), 44),  // an XID out of bounds
        (described(0, [0, 44], 8), 44),   // the other
        (described(0, [0, 20], 44), 44),  // a credit word out of bounds
        (described(0, [0, 252], 8), 96),  // far out of bounds
        (described(0, [0, 20], 9), 44),   // across words
    ] {
        for is_asked in [false, true] {
            let mut victim = Victim::new(None);
            victim.node.receive(64);
            victim.rogue.push(Kind::Template, described, &vec![1; length]);
            if is_asked {
                let mut refuser = Refuser::default();
                victim.node.nic.receive_in_place(&mut [0; 2000], 2000, 16, &mut refuser);
                assert!(!refuser.was_asked, "it is no message");
            }
            victim.ends_for(BAD_RING);
        }
    }
}

#[test]
fn a_template_too_many_or_twice_ends_that_connection_alone() {
    for more in [16, 15, 0] {
        for is_asked in [false, true] {
            let mut victim = Victim::new(None);
            for number in 0..16 {
                let described = described(number, [0, 20], 8);
                victim.rogue.push(Kind::Template, described, &[number; 44]);
            }
            // Template records are no messages: they use no Receive, and the connection stays open.
            victim.node.receive(64);
            victim.node.nothing_happens();
            victim.rogue.push(Kind::Send, Handle(0), b"a message");
            victim.node.heard();
            victim.rogue.push(Kind::Template, described(more, [0, 20], 8), &[more; 44]);
            if is_asked {
                let mut refuser = Refuser::default();
                victim.node.nic.receive_in_place(&mut [0; 2000], 2000, 16, &mut refuser);
                assert!(!refuser.was_asked, "it is no message");
            }
            victim.ends_for(BAD_RING);
        }
    }
}

#[test]
fn a_series_of_a_template_that_nobody_introduced_ends_that_connection_alone() {
    for number in [1, 15, 16, 31] {
        for is_asked in [false, true] {
            let mut victim = Victim::new(None);
            victim.node.receive(64);
            victim.rogue.push(Kind::Template, described(0, [0, 20], 8), &[7; 44]);
            victim.node.nothing_happens();
            // An entry without a body, one line behind the header.
            let memory = victim.rogue.producer.segment().memory();
            memory.u64_at(RING + 64 + 8).store(7, Ordering::SeqCst);
            memory.u64_at(RING + 64).store(number << 22 | 8 << 11 | 7, Ordering::SeqCst);
            if is_asked {
                let mut refuser = Refuser::default();
                victim.node.nic.receive_in_place(&mut [0; 2000], 2000, 16, &mut refuser);
                assert!(!refuser.was_asked, "nobody knows what it is");
            }
            victim.ends_for(BAD_RING);
        }
    }
}

#[test]
fn an_index_that_cannot_be_ends_that_connection_alone() {
    for head in [1, 1 << 20, u64::MAX - 63, 1 << 63] {
        let mut victim = Victim::new(None);
        victim.rogue.theirs.head().store(head, Ordering::Relaxed);
        // The index is read when the ring is full.
        let mut posted = Vec::new();
        while !victim.node.seen.iter().any(|seen| matches!(seen, Seen::Disconnected(_))) {
            let (kept, source) = victim.node.source(&[1; 4000]);
            posted.push(kept);
            let operation = Operation::Send { source, invalidate: None };
            let request = WorkRequest { id: WrId(0), flags: Flags::default(), operation };
            let _ = victim.node.nic.post(victim.node.qp(), &mut WorkQueue::from([request]));
            victim.node.poll();
        }
        victim.node.until(&Seen::Completion(WrId(0), Opcode::Send, Status::Flushed));
        victim.ends_for(BAD_RING);
    }
}

#[test]
fn a_message_without_end_stops_at_the_end_of_its_receive() {
    let mut victim = Victim::new(None);
    let (_, sink) = victim.node.receive(3000);
    let part = vec![7; victim.rogue.producer.part_max()];
    for _ in 0..3 {
        victim.rogue.push(Kind::Part, Handle(0), &part);
    }
    victim
        .node
        .until(&Seen::Disconnected(DisconnectReason::PeerMisbehaved(Fault::MessageTooLong.rule())));
    // The Receive is there for others, as if nothing had happened.
    assert_eq!(victim.node.nic.nic.receives.len(), 1);
    victim.node.qp = Some(victim.honest_qp);
    victim.honest.send(b"next", None);
    victim.node.until(&Seen::Completion(WrId(1), Opcode::Receive, Status::Success));
    let done = victim.node.done.pop().unwrap();
    assert_eq!(&complete::sink(sink, &done).unwrap().bytes()[..4], b"next");
}

#[test]
fn a_close_in_the_middle_of_a_message_is_a_fault() {
    let mut victim = Victim::new(None);
    victim.node.receive(4096);
    let part = vec![7; victim.rogue.producer.part_max()];
    victim.rogue.push(Kind::Part, Handle(0), &part);
    victim.rogue.push(Kind::Close, Handle(0), &[]);
    victim.ends_for(BAD_RING);
}

#[test]
fn a_handle_of_nobody_or_somebody_else_retires_nothing() {
    for of_honest in [false, true] {
        let mut victim = Victim::new(None);
        let rogue_qp = victim.node.qp.replace(victim.honest_qp);
        let (exposed, segment) = victim.node.expose(b"the honest one's", Access::RemoteWrite);
        victim.node.qp = rogue_qp;
        let handle = if of_honest { segment.handle } else { Handle(0) };
        victim.node.receive(64);
        victim.rogue.push(Kind::SendInvalidate, handle, b"x");
        victim.node.until(&Seen::Disconnected(DisconnectReason::PeerMisbehaved(
            Fault::CannotInvalidate.rule(),
        )));
        // The handle still works for its own connection.
        let (wrote, _source) = victim.honest.write(b"by the honest..!", segment);
        victim.honest.succeeded(wrote, Opcode::Write);
        victim.node.qp = Some(victim.honest_qp);
        let retired = victim.node.post(Operation::LocalInv { handle: segment.handle });
        let done = victim.node.succeeded(retired, Opcode::LocalInv);
        let proof = complete::invalidated(&done).unwrap();
        assert_eq!(exposed.fence(proof).unwrap().bytes(), b"by the honest..!");
        victim.others_live_on();
    }
}

#[test]
fn a_table_that_names_memory_that_is_not_there_is_not_believed() {
    // The rogue's claims of where a registration starts and how long it is, in 4096 octets.
    let lies = [(4096, 1), (4000, 200), (u64::MAX, 8), (1 << 40, 1 << 40), (0, u64::MAX)];
    for region in [None, Some(4096)] {
        for (start, length) in lies {
            let mut victim = Victim::new(region);
            let entry = victim.rogue.producer.segment().entry(0).unwrap();
            let memory = victim.rogue.producer.segment().memory();
            let handle = Handle(0x1234_0001 & !0x700); // slot 0
            for (at, value) in
                [(8, 0), (16, start), (24, length), (0, 2 << 32 | u64::from(handle.0))]
            {
                memory.u64_at(entry + at).store(value, Ordering::SeqCst);
            }
            let length = if start == 0 { 5000 } else { 8.min(length) };
            let length = u32::try_from(length).unwrap().max(if start == 4000 { 150 } else { 1 });
            let target = Claim { handle, offset: 0, length };
            let bytes = vec![9; length as usize];
            let (wrote, _source) = victim.node.write(&bytes, target);
            victim.node.until(&Seen::Completion(wrote, Opcode::Write, Status::RemoteAccess));
            victim.node.until(&Seen::Quiesced);
            assert_eq!(victim.rogue.told(), Ended::WeBroke(Fault::TaggedBounds.code()));
            victim.others_live_on();
        }
    }
}

/// Makes the entry of a rogue's table that opens its region.
fn open_region(rogue: &Rogue, access: u64, length: u64) -> Claim {
    let segment = rogue.producer.segment();
    let (entry, memory) = (segment.entry(0).unwrap(), segment.memory());
    let handle = Handle(0x1234_0001 & !0x700); // slot 0
    for (at, value) in [(8, 0), (16, 0), (24, length), (0, access << 32 | u64::from(handle.0))] {
        memory.u64_at(entry + at).store(value, Ordering::SeqCst);
    }
    Claim { handle, offset: 0, length: u32::try_from(length).unwrap() }
}

#[test]
fn a_region_whose_pages_are_taken_away_ends_that_connection_alone() {
    let mut victim = Victim::new(Some(4096));
    // The file can be truncated, as no peer's region can, which has the effect of a hole without a page.
    let file = unsealed(4096);
    let region = Shared::open_unsealed(file.as_fd(), 4096).unwrap();
    let region = victim.node.nic.nic.regions.hold(region, 0);
    *victim.node.outflow().region_mut() = Some(region);
    let target = open_region(&victim.rogue, 2, 4096);
    let (wrote, _source) = victim.node.write(&[9; 4096], target);
    victim.node.until(&Seen::Completion(wrote, Opcode::Write, Status::Success));
    file.set_len(0).unwrap();
    let (wrote, _source) = victim.node.write(&[9; 4096], target);
    victim.node.until(&Seen::Completion(wrote, Opcode::Write, Status::Success));
    let reason = DisconnectReason::PeerMisbehaved(ended::MEMORY_LOST);
    victim.node.until(&Seen::Disconnected(reason));
    victim.node.until(&Seen::Quiesced);
    assert_eq!(victim.rogue.told(), Ended::YouBroke(BAD_RING.code()));
    victim.others_live_on();
}

#[test]
fn a_core_whose_memory_lost_pages_polls_before_it_sleeps() {
    let mut victim = Victim::new(None);
    let node = &mut victim.node;
    (0..A_WHILE).for_each(|_| node.poll());
    // Pretend that a page was lost after the last poll looked.
    node.nic.faults_seen = node.nic.faults_seen.wrapping_sub(1);
    let looked = node.nic.counters().syscalls;
    node.nic.sleep(Some(Duration::ZERO));
    assert_eq!(node.nic.counters().syscalls, looked, "it listened to the sockets");
    // A page that is missing when the rings are read for the last time.
    let length = layout().length();
    let file = unsealed(length);
    let lost = Shared::open_unsealed(file.as_fd(), length).unwrap();
    node.connection().inflow().unwrap().replace_segment(Segment::new(lost, layout()));
    node.poll();
    file.set_len(0).unwrap();
    let at = node.nic.looked;
    node.now = node.now.saturating_add(TICK);
    node.nic.nic.now = node.now;
    node.nic.sleep(Some(Duration::ZERO));
    assert_eq!(node.nic.looked, at, "it slept");
}

/// Runs only where the machine has huge pages.
#[test]
fn holes_in_huge_pages_end_that_connection_alone() {
    let Ok(memfd) = huge_page() else {
        eprintln!("the machine has no huge page for this test");
        return;
    };
    let region = (memfd, 2 << 20);
    let mut victim = Victim::passed(Some(&region));
    let target = open_region(&victim.rogue, 1, 4096);
    let lost = Seen::Disconnected(DisconnectReason::PeerMisbehaved(ended::MEMORY_LOST));
    let mut taken = Vec::new();
    for _ in 0..POLLS_MAX {
        let (posted, sink) = victim.node.sink(4096);
        let read = victim.node.post(Operation::Read { sink, source: claim(target) });
        let done = victim.node.succeeded(read, Opcode::Read);
        complete::sink(posted, &done).unwrap();
        (0..2).for_each(|_| victim.node.poll());
        if victim.node.seen.contains(&lost) {
            break;
        }
        // The page goes, and other files take all free ones: again, if another test freed one.
        punch(&region.0).unwrap();
        taken.extend(std::iter::from_fn(|| huge_page().ok()));
    }
    victim.node.until(&lost);
    victim.node.until(&Seen::Quiesced);
    victim.others_live_on();
}

/// A peer that was passed the region can write all of it, whatever is registered.
#[test]
fn what_a_peer_writes_into_the_region_changes_nothing_but_contents() {
    for scribble in [0, 1, 0xff] {
        let node = Node::new();
        let first = node.holding(b"shared by two").share();
        let second = first.clone();
        let (posted, view) = node.source(b"and lent");
        let region = Shared::open(node.pool.memfd().unwrap(), node.pool.usable()).unwrap();
        region.copy_in(0, &vec![scribble; node.pool.usable()]);
        // The block stays out until the last reference is gone, and the lease until its view is.
        drop(second);
        let posted = posted.complete().unwrap_err();
        drop(view);
        let lease = posted.complete().unwrap();
        assert_eq!((node.pool.gauges().shared, node.pool.gauges().local), (1, 1));
        assert_ne!(node.pool.lease(first.len()).unwrap().bytes().as_ptr(), first.bytes().as_ptr());
        drop((first, lease));
        assert_eq!((node.pool.gauges().leased_bytes, node.pool.gauges().orphans), (0, 0));
    }
}

#[test]
fn doorbells_without_end_are_not_listened_to() {
    let mut victim = Victim::new(None);
    while victim.rogue.stream.send(&[0; 1024], &[]).is_ok() {}
    victim.node.until(&Seen::Disconnected(DisconnectReason::Lost));
    victim.node.until(&Seen::Quiesced);
    victim.others_live_on();
}

#[test]
fn whatever_a_peer_says_of_the_end_is_an_end() {
    for (word, expected) in [
        (u32::MAX, DisconnectReason::Lost),
        (0x03ff_ffff, DisconnectReason::PeerMisbehaved("a rule it does not name")),
        (0x02ff_fefd, DisconnectReason::Terminated { layer: 0xff, etype: 0xfe, code: 0xfd }),
    ] {
        let mut victim = Victim::new(None);
        victim.rogue.producer.segment().ended().store(word, Ordering::SeqCst);
        victim.rogue.stream.shutdown();
        victim.node.until(&Seen::Disconnected(expected));
        victim.node.until(&Seen::Quiesced);
        victim.others_live_on();
    }
}

#[test]
fn what_was_sent_before_the_end_arrives_before_it() {
    let mut victim = Victim::new(None);
    for _ in 0..3 {
        victim.rogue.push(Kind::Send, Handle(0), b"last words");
    }
    victim.rogue.stream.shutdown();
    // No Receive is posted yet, so the connection is not over.
    victim.node.nothing_happens();
    let received: Vec<_> = (0..3).map(|_| victim.node.receive(64)).collect();
    for (id, _) in &received {
        victim.node.until(&Seen::Completion(*id, Opcode::Receive, Status::Success));
    }
    victim.node.until(&Seen::Disconnected(DisconnectReason::Lost));
    victim.others_live_on();
}

/// A ring has an empty word behind the last record; the ring of this peer has records all around.
#[test]
fn a_ring_without_end_is_gone_through_once_after_its_peer_left() {
    let mut victim = Victim::new(None);
    let memory = victim.rogue.producer.segment().memory();
    // Plain messages of one line each.
    for line in (0..layout().ring_bytes() as usize).step_by(64) {
        memory.u64_at(RING + line).store(8 << 11 | 1, Ordering::SeqCst);
    }
    victim.rogue.stream.shutdown();
    let lost = Seen::Disconnected(DisconnectReason::Lost);
    let mut received = Vec::new();
    for _ in 0..10_000 {
        if victim.node.seen.contains(&lost) {
            break;
        }
        if victim.node.nic.nic.receives.is_empty() {
            received.push(victim.node.receive(64));
        }
        victim.node.poll();
    }
    assert!(victim.node.seen.contains(&lost), "after {} messages", received.len());
    assert!(received.len() >= 64, "what was there before the end arrives");
    drop(received);
    victim.others_live_on();
}

/// The contents of a peer's memory, and the times at which it changes, are arbitrary.
#[test]
fn random_words_everywhere_hurt_nobody_else() {
    use crate::provider::sim::Rng;

    let (mut honest, mut node) = (Node::new(), Node::with(&config(), 32 << 20));
    connect(&mut honest, &mut node);
    let honest_qp = node.qp();
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let rogue = Rogue::new(&mut node, Some(4096));
        let rogue_qp = node.qp();
        let (exposed, _) = node.expose(b"left alone?", Access::RemoteWrite);
        let room = 8 - node.nic.nic.receives.len().min(8);
        let posted: Vec<_> = (0..room).map(|_| node.receive(100)).collect();
        for _ in 0..40 {
            // A word of the rogue's own segment, half of the time one that looks like a header.
            let memory = rogue.producer.segment().memory();
            let word = rng.next();
            let (kind, ahead, length) = (word % 8, word % 7, (word >> 8) % 1100);
            let header = kind | (ahead << 3) | (length << 11) | ((word & 1) << 35);
            let places = memory.len() as u64 / 8;
            let at = match word % 3 {
                0 => rng.next() % places,
                1 => (super::super::segment::RING as u64 / 8) + rng.next() % 64,
                _ => places - 1 - rng.next() % 128,
            };
            // Or a word that introduces a template, or begins a series that has one.
            let value = match word & 6 {
                0 | 4 => header,
                2 if word & 1 == 0 => (word >> 40 & 3) << 56 | 0x0014_0800 << 32 | 44 << 11,
                2 => (word >> 40 & 3) << 22 | (word >> 48 & 0x7f) << 11 | 7,
                _ => rng.next(),
            };
            memory.u64_at(usize::try_from(at).unwrap() * 8).store(value, Ordering::SeqCst);
            if word & 12 == 0 {
                // Or a word of the RNIC's segment, where the peer may write.
                rogue.theirs.head().store(rng.next() % 5 * 64, Ordering::SeqCst);
                rogue.theirs.waits().store(1, Ordering::SeqCst);
            }
            if node.connection_of(rogue_qp).is_some_and(|c| c.is_open()) {
                node.qp = Some(rogue_qp);
                let (_, _source) = node.send(&[1; 500], None);
                let handle = Handle(u32::try_from(value >> 8 & 0xffff_ffff).unwrap());
                if word & 16 == 0 && node.connection_of(rogue_qp).is_some_and(|c| c.is_open()) {
                    node.write(b"eight...", Claim { handle, offset: value, length: 8 });
                }
            }
            node.poll();
        }
        rogue.stream.shutdown();
        // Receives that the rogue left are for others; a message that waits for one may end nothing before.
        for _ in 0..POLLS_MAX {
            if node.connection_of(rogue_qp).is_none() {
                break;
            }
            if node.nic.nic.receives.len() < 8 {
                node.receive(100);
            }
            node.poll();
        }
        assert!(node.connection_of(rogue_qp).is_none(), "seed {seed}");
        let quiesced = node.quiesced.pop().expect("it was reported");
        let proof = complete::destroyed(&exposed, &quiesced);
        assert_eq!(exposed.fence(proof).unwrap().bytes(), b"left alone?", "seed {seed}");
        rogue.producer.segment().waits().store(0, Ordering::SeqCst);
        drop(posted);
        node.seen.clear();
        node.done.clear();
        node.qp = Some(honest_qp);
        honest.send(b"message", None);
        if node.nic.nic.receives.is_empty() {
            node.receive(100);
        }
        node.heard();
    }
}
