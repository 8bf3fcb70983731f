//! Peers that make no progress, and peers that make little.

use super::super::leaving::MOVED_PER_CALL;
use super::super::ring::Kind;
use super::endings::in_use;
use super::rogue::Rogue;
use super::*;
use crate::provider::Stall;

const LIMIT: Duration = Duration::from_secs(10);

impl Node {
    /// Lets time pass, in small steps.
    fn pass(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        while self.now < end {
            self.now = self.now.saturating_add(Duration::from_millis(250)).min(end);
            (0..4).for_each(|_| self.poll());
        }
    }

    fn stalled(&self) -> Option<Stall> {
        let reason = self.seen.iter().find_map(|seen| match seen {
            Seen::Disconnected(reason) => Some(*reason),
            _ => None,
        })?;
        let DisconnectReason::NoProgress(stall, LIMIT) = reason else { panic!("{reason:?}") };
        Some(stall)
    }

    /// Checks that the connection has not ended before its time, and ends soon after it.
    fn ends_in_time(&mut self, stall: Stall) {
        self.pass(LIMIT - Duration::from_millis(250));
        assert_eq!(self.stalled(), None);
        self.pass(LIMIT / 2);
        assert_eq!(self.stalled(), Some(stall));
        assert!(self.seen.contains(&Seen::Quiesced));
        assert_eq!(self.nic.link_counters().stalls, 1);
    }

    /// Sends messages until some do not fit into the ring.
    fn fill_ring(&mut self) -> Vec<(WrId, PostedSource<Local>)> {
        let mut sent = Vec::new();
        while self.outflow().pending() < 3 {
            sent.push(self.send(&[7; 1000], None));
        }
        sent
    }
}

#[test]
fn a_ring_that_is_never_emptied_ends_its_connection_and_the_memory_is_home() {
    let mut node = Node::new();
    let rogue = Rogue::new(&mut node, None);
    let sent = node.fill_ring();
    node.ends_in_time(Stall::Output);
    for (id, source) in sent {
        let at = node.done.iter().position(|done| done.id == id).expect("it ended");
        complete::source(source, &node.done.remove(at)).unwrap();
    }
    let told = DisconnectReason::NoProgress(Stall::Output, LIMIT).to_string();
    assert_eq!(told, "no progress for 10 s: the peer does not take our output");
    drop(rogue);
}

#[test]
fn a_ring_that_is_emptied_slowly_lives() {
    let (mut passive, mut active) = pair();
    let sent = active.fill_ring();
    for _ in 0..2 * sent.len().min(20) {
        active.pass(LIMIT - Duration::from_secs(1));
        assert_eq!(active.stalled(), None);
        // A message that is taken makes room now and then.
        let (received, sink) = passive.receive(1000);
        let done = passive.succeeded(received, Opcode::Receive);
        complete::sink(sink, &done).unwrap();
    }
    drop(sent);
}

#[test]
fn writes_that_wait_at_every_check_and_are_carried_out_between_two_are_no_stall() {
    let [mut active, mut passive] = [(); 2].map(|()| Node::with(&config(), 8 << 20));
    connect(&mut active, &mut passive);
    let bytes = vec![7; MOVED_PER_CALL / 2];
    let (exposed, segment) = active.expose(&bytes, Access::RemoteWrite);
    let written = passive.holding(&bytes).into_source();
    for _ in 0..8 {
        // Unsignaled requests have one name between them, and all of these look alike.
        let write = |()| {
            let source = written.source(0..bytes.len()).expect("all of it");
            let operation = Operation::Write { source, target: claim(segment) };
            WorkRequest { id: WrId(0), flags: Flags { signaled: false, ..SIGNALED }, operation }
        };
        passive.nic.post(passive.qp(), &mut WorkQueue::from([(); 5].map(write))).expect("room");
        // Two were carried out as they were posted, and two are in the poll that checks.
        passive.now = passive.now.saturating_add(LIMIT / 4);
        passive.poll();
        assert_eq!(passive.stalled(), None);
        assert_eq!(passive.outflow().pending(), 1);
        passive.poll();
        assert!(passive.outflow().pending() == 0);
    }
    drop(exposed);
}

#[test]
fn a_peer_that_copies_for_ever_is_not_excused_by_what_it_says_of_the_ring() {
    let mut node = Node::new();
    let rogue = Rogue::new(&mut node, None);
    let (exposed, segment) = node.expose(b"in use", Access::RemoteWrite);
    in_use(&mut node, segment.handle).store(1, Ordering::SeqCst);
    node.post(Operation::LocalInv { handle: segment.handle });
    for taken in 1..80 {
        rogue.theirs.head().store(64 * taken, Ordering::SeqCst);
        node.pass(Duration::from_millis(250));
        if node.stalled().is_some() {
            break;
        }
    }
    assert_eq!(node.stalled(), Some(Stall::Output));
    drop(exposed);
}

#[test]
fn a_message_in_parts_has_one_deadline() {
    let mut node = Node::new();
    let mut rogue = Rogue::new(&mut node, None);
    let part = vec![7; rogue.producer.part_max()];
    let (_, sink) = node.receive(16 * part.len());
    for _ in 0..6 {
        assert_eq!(node.stalled(), None);
        rogue.push(Kind::Part, Handle(0), &part);
        node.pass(Duration::from_secs(2));
    }
    node.pass(Duration::from_secs(2));
    assert_eq!(node.stalled(), Some(Stall::Message));
    // The next message gets the Receive.
    assert_eq!(node.nic.nic.receives.len(), 1);
    drop(sink);
}

#[test]
fn messages_that_are_completed_and_silence_are_no_stall() {
    let mut node = Node::new();
    let mut rogue = Rogue::new(&mut node, None);
    let part = vec![7; rogue.producer.part_max()];
    for _ in 0..6 {
        let (received, sink) = node.receive(2 * part.len());
        rogue.push(Kind::Part, Handle(0), &part);
        node.pass(LIMIT - Duration::from_secs(1));
        rogue.push(Kind::Send, Handle(0), b"rest");
        let done = node.succeeded(received, Opcode::Receive);
        complete::sink(sink, &done).unwrap();
    }
    node.pass(10 * LIMIT);
    assert_eq!((node.stalled(), node.nic.watches_deadline()), (None, None));
}

impl Shm {
    fn watches_deadline(&self) -> Option<Instant> {
        self.nic.watches.deadline()
    }
}
