//! Peers that make no progress, and peers that make little.

use haulage_proto::iwarp::mpa::handshake::Offer;

use super::super::turn::FPDUS_PER_POLL;
use super::rogue::Rogue;
use super::*;
use crate::provider::Stall;

const LIMIT: Duration = Duration::from_secs(10);
const BACKENDS: [Backend; 2] = [Backend::Sockets, Backend::Auto];
/// Polls in which everything in the sockets is read.
const POLLS: u32 = 64;

fn patient(backend: Backend) -> Config {
    Config { progress_timeout: Some(LIMIT), ..config(backend, Crc::IfAsked) }
}

impl Node {
    /// Lets time pass, in small steps.
    fn pass(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        while self.now < end {
            self.now = self.now.saturating_add(Duration::from_millis(250)).min(end);
            (0..POLLS).for_each(|_| self.poll());
        }
    }

    fn stalled(&self) -> Option<Stall> {
        match self.reason() {
            Some(DisconnectReason::NoProgress(stall, limit)) => {
                assert_eq!(limit, LIMIT);
                Some(stall)
            }
            None => None,
            other => panic!("{other:?}"),
        }
    }

    /// Checks that the connection has not ended before its time, and ends soon after it.
    fn ends_in_time(&mut self, stall: Stall) {
        self.pass(LIMIT - Duration::from_millis(250));
        assert_eq!(self.stalled(), None);
        self.pass(LIMIT / 2);
        assert_eq!((self.stalled(), self.is_quiesced()), (Some(stall), true));
        assert_eq!(self.nic.wire_counters().stalls, 1);
    }

    fn read_from(&mut self, length: u32) -> PostedSink {
        self.post_read(1, Segment { handle: Handle(0x100), length, offset: 0 })
    }
}

/// Connects a peer whose octets are sent at once, without Nagle's delay.
fn prompt(node: &mut Node) -> Rogue {
    let rogue = Rogue::new(node, false);
    rogue.stream.set_nodelay(true).unwrap();
    rogue
}

/// Sends a message of one octet, for which there is a Receive.
fn speak(rogue: &mut Rogue, node: &mut Node, id: u64) {
    let sink = node.post_receive(id, 8);
    let fpdu = rogue.transmitter.send(None, 0, b"!");
    rogue.send(&fpdu, b"!");
    for _ in 0..POLLS_MAX {
        if node.is_done(id) {
            break;
        }
        node.poll();
    }
    complete::sink(sink, &node.done(id).expect("it arrived")).unwrap();
}

#[test]
fn a_read_that_is_never_answered_ends_its_connection_and_the_memory_is_home() {
    for backend in BACKENDS {
        let mut node = Node::new(&patient(backend));
        let mut rogue = prompt(&mut node);
        speak(&mut rogue, &mut node, 7);
        let posted = node.read_from(100);
        node.ends_in_time(Stall::Read);
        let done = node.done(1).unwrap();
        assert_eq!(done.status, Status::Flushed);
        complete::sink(posted, &done).unwrap();
        assert_eq!(node.nic.nic.stags.in_use(), 0);
        let told = node.reason().unwrap().to_string();
        assert_eq!(told, "no progress for 10 s: the peer does not answer an RDMA Read");
    }
}

#[test]
fn messages_are_no_answer_to_a_read() {
    for backend in BACKENDS {
        let mut node = Node::new(&patient(backend));
        let mut rogue = prompt(&mut node);
        speak(&mut rogue, &mut node, 7);
        let posted = node.read_from(100);
        let mut answers = Vec::new();
        for second in 0..9 {
            speak(&mut rogue, &mut node, 10 + second);
            answers.push((50 + second, node.post_send(50 + second, b"and an answer", None)));
            node.pass(Duration::from_secs(1));
        }
        assert_eq!(node.stalled(), None);
        node.pass(Duration::from_secs(4));
        assert_eq!(node.stalled(), Some(Stall::Read));
        complete::sink(posted, &node.done(1).unwrap()).unwrap();
        for (id, source) in answers {
            complete::source(source, &node.done(id).unwrap()).unwrap();
        }
    }
}

#[test]
fn a_read_that_is_answered_octet_by_octet_lives() {
    for backend in BACKENDS {
        let mut node = Node::new(&patient(backend));
        let mut rogue = prompt(&mut node);
        speak(&mut rogue, &mut node, 7);
        let posted = node.read_from(12);
        (0..POLLS).for_each(|_| node.poll());
        let qp = node.qp();
        let queue = node.nic.slots.get(qp).unwrap().outflow().queue().unwrap();
        let read = *queue.reads.front().unwrap();
        let payload = pattern(12);
        let fpdu = rogue.transmitter.read_response(read.handle, read.offset, &payload);
        rogue.stream.write_all(fpdu.prefix()).unwrap();
        for octet in &payload {
            node.pass(LIMIT - Duration::from_secs(1));
            assert_eq!(node.stalled(), None);
            rogue.stream.write_all(&[*octet]).unwrap();
        }
        rogue.stream.write_all(fpdu.trailer()).unwrap();
        node.pass(Duration::from_secs(1));
        let done = node.done(1).expect("all of it came");
        assert_eq!(complete::sink(posted, &done).unwrap().bytes(), payload);
        node.pass(10 * LIMIT);
        assert_eq!((node.stalled(), node.nic.poll_deadline()), (None, None));
    }
}

#[test]
fn output_that_is_never_taken_ends_its_connection_and_the_memory_is_home() {
    for backend in BACKENDS {
        let mut node = Node::with_memory(&patient(backend), 17 << 20);
        let mut rogue = prompt(&mut node);
        speak(&mut rogue, &mut node, 7);
        let source = node.post_send(1, &pattern(16 << 20), None);
        node.ends_in_time(Stall::Output);
        complete::source(source, &node.done(1).unwrap()).unwrap();
    }
}

#[test]
fn output_that_is_taken_slowly_is_taken() {
    for backend in BACKENDS {
        let mut node = Node::with_memory(&patient(backend), 17 << 20);
        let mut rogue = prompt(&mut node);
        speak(&mut rogue, &mut node, 7);
        let source = node.post_send(1, &pattern(16 << 20), None);
        rogue.stream.set_nonblocking(true).unwrap();
        let mut room = vec![0; 64 << 10];
        for _ in 0..8 {
            node.pass(LIMIT - Duration::from_secs(1));
            assert_eq!(node.stalled(), None);
            // The system's clock would count as long as the window is too small for what waits.
            assert_eq!(system_limit(&mut node), 0, "{backend:?}");
            // The rogue reads just enough for the TCP window to open.
            let before = taken(&mut node);
            for _ in 0..POLLS_MAX {
                if taken(&mut node) > before {
                    break;
                }
                let _ = rogue.stream.read(&mut room);
                node.poll();
            }
        }
        for _ in 0..POLLS_MAX {
            if node.is_done(1) {
                break;
            }
            let _ = rogue.stream.read(&mut room);
            node.poll();
        }
        complete::source(source, &node.done(1).expect("it is sent")).unwrap();
    }
}

/// Returns the time after which the system ends the connection because output waits, in milliseconds; 0: its own.
fn system_limit(node: &mut Node) -> u32 {
    let qp = node.qp();
    node.nic.slots.get(qp).expect("it lives").life().socket().user_timeout()
}

/// Returns the octets that the peer's system has acknowledged.
fn taken(node: &mut Node) -> u64 {
    let qp = node.qp();
    let connection = node.nic.slots.get(qp).expect("it lives");
    connection.outflow().sent() - connection.life().socket().unacknowledged().unwrap()
}

/// Has a peer send a message in these pieces, two seconds apart; returns how its connection ends.
fn dribble<'a>(
    backend: Backend,
    pieces: impl Fn(&mut Rogue) -> Vec<Vec<u8>> + 'a,
) -> Option<Stall> {
    let mut node = Node::new(&patient(backend));
    let mut rogue = prompt(&mut node);
    speak(&mut rogue, &mut node, 7);
    let sink = node.post_receive(1, 16_000);
    for piece in pieces(&mut rogue).into_iter().take(20) {
        rogue.stream.write_all(&piece).unwrap();
        node.pass(Duration::from_secs(2));
        if node.stalled().is_some() {
            break;
        }
    }
    let stalled = node.stalled();
    assert_eq!(node.nic.nic.receives.len(), usize::from(stalled.is_some()), "where it was");
    drop(sink);
    stalled
}

#[test]
fn a_message_that_has_begun_has_one_deadline() {
    for backend in BACKENDS {
        let by_octet = |rogue: &mut Rogue| {
            let message = pattern(100);
            let fpdu = rogue.transmitter.send(None, 0, &message);
            let octets = [fpdu.prefix(), &message, fpdu.trailer()].concat();
            octets.iter().map(|octet| vec![*octet]).collect()
        };
        assert_eq!(dribble(backend, by_octet), Some(Stall::Message));
        let by_segment = |rogue: &mut Rogue| {
            let (message, mut at) = (pattern(16_000), 0);
            let mut segments = Vec::new();
            while at < message.len() {
                let rest = &message[at..];
                let fpdu = rogue.transmitter.send(None, at as u32, rest);
                at += fpdu.payload_len();
                segments
                    .push([fpdu.prefix(), &rest[..fpdu.payload_len()], fpdu.trailer()].concat());
            }
            assert!(segments.len() > 6, "they take longer than there is time");
            segments
        };
        assert_eq!(dribble(backend, by_segment), Some(Stall::Message));
        // Other FPDUs between the message's segments are no progress.
        let beside = |rogue: &mut Rogue| {
            let nothing = rogue.transmitter.write(Handle(0), 0, &[]);
            let nothing = [nothing.prefix(), nothing.trailer()].concat();
            by_segment(rogue)
                .into_iter()
                .map(|segment| [segment, nothing.clone()].concat())
                .collect()
        };
        assert_eq!(dribble(backend, beside), Some(Stall::Message));
        // Segments without payload are no progress, either.
        let without_end = |rogue: &mut Rogue| {
            let message = pattern(16_000);
            let fpdu = rogue.transmitter.send(None, 0, &message);
            // The ULPDU of a segment without payload: an untagged header.
            let header = [&18_u16.to_be_bytes()[..], &fpdu.prefix()[2..], &[0; 4]].concat();
            vec![header; 20]
        };
        assert_eq!(dribble(backend, without_end), Some(Stall::Message));
    }
}

#[test]
fn payload_that_comes_between_two_checks_of_one_fpdu_is_progress() {
    for backend in BACKENDS {
        let mut node = Node::with_memory(&patient(backend), 1 << 20);
        let mut rogue = prompt(&mut node);
        speak(&mut rogue, &mut node, 7);
        let lease = node.pool.lease(1000).unwrap();
        let (exposed, segment) = node.expose(lease, true);
        let payload = pattern(1000);
        let fpdu = rogue.transmitter.write(segment.handle, segment.offset, &payload);
        let octets = [fpdu.prefix(), &payload, fpdu.trailer()].concat();
        // Part of the header, then all but the last octet: none of the payload is under way at any check.
        let (begun, rest) = octets.split_at(4);
        let (rest, last) = rest.split_at(rest.len() - 1);
        for piece in [begun, rest] {
            rogue.stream.write_all(piece).unwrap();
            node.pass(LIMIT - Duration::from_secs(1));
            assert_eq!(node.stalled(), None);
        }
        rogue.stream.write_all(last).unwrap();
        node.pass(10 * LIMIT);
        assert_eq!((node.stalled(), node.nic.poll_deadline()), (None, None));
        drop(exposed);
    }
}

#[test]
fn reads_that_are_answered_one_by_one_while_others_wait_are_no_stall() {
    for backend in BACKENDS {
        let mut node = Node::new(&patient(backend));
        let mut rogue = prompt(&mut node);
        speak(&mut rogue, &mut node, 7);
        let read = |node: &mut Node, id| {
            node.post_read(id, Segment { handle: Handle(0x100), length: 12, offset: 0 })
        };
        let mut posted = vec![(1, read(&mut node, 1))];
        for id in 2..16 {
            // Two Reads are outstanding before one is answered, and one when the peer is checked.
            posted.push((id, read(&mut node, id)));
            (0..POLLS).for_each(|_| node.poll());
            let qp = node.qp();
            let queue = node.nic.slots.get(qp).unwrap().outflow().queue().unwrap();
            let oldest = *queue.reads.front().unwrap();
            let payload = pattern(12);
            let fpdu = rogue.transmitter.read_response(oldest.handle, oldest.offset, &payload);
            rogue.send(&fpdu, &payload);
            node.pass(LIMIT / 4);
            assert_eq!(node.stalled(), None);
            let (answered, sink) = posted.remove(0);
            complete::sink(sink, &node.done(answered).expect("it was answered")).unwrap();
        }
        node.pass(LIMIT * 5 / 4);
        assert_eq!(node.stalled(), Some(Stall::Read));
    }
}

#[test]
fn a_connection_on_which_nothing_waits_for_the_peer_lives_for_ever() {
    for backend in BACKENDS {
        let mut node = Node::new(&patient(backend));
        let mut rogue = prompt(&mut node);
        for hour in 0..10 {
            speak(&mut rogue, &mut node, 100 + hour);
            node.now = node.now.saturating_add(Duration::from_secs(3600));
            (0..POLLS).for_each(|_| node.poll());
        }
        assert_eq!((node.stalled(), node.nic.poll_deadline()), (None, None));
    }
}

#[test]
fn a_message_that_waits_for_our_receive_waits_for_us() {
    for backend in BACKENDS {
        let mut node = Node::new(&patient(backend));
        let at = node.nic.listen(LOCAL).unwrap().1;
        let offer = Offer { crc: false, ord: 2, ird: 2, rtr: false };
        let mut rogue = Rogue::join(&mut node, at, offer);
        let fpdu = rogue.transmitter.send(None, 0, b"wait");
        rogue.send(&fpdu, b"wait");
        node.pass(10 * LIMIT);
        assert_eq!((node.stalled(), node.nic.wire_counters().starvations), (None, 1));
        let sink = node.post_receive(1, 8);
        node.pass(LIMIT);
        let done = node.done(1).expect("it arrived");
        assert_eq!(&complete::sink(sink, &done).unwrap().bytes()[..4], b"wait");
    }
}

/// Has a peer send FPDUs that deliver nothing, more than two polls handle, and polls once of these.
fn fill_backlog(rogue: &mut Rogue, node: &mut Node) {
    let fpdu = rogue.transmitter.write(Handle(0), 0, &[]);
    let octets = [fpdu.prefix(), fpdu.trailer()].concat().repeat(3 * FPDUS_PER_POLL as usize);
    rogue.send_all(node, &octets);
    for _ in 0..POLLS {
        if !node.nic.nic.throttled.is_empty() {
            break;
        }
        node.poll();
    }
}

#[test]
fn a_backlog_at_every_check_is_no_answer_to_a_read() {
    for backend in BACKENDS {
        let mut node = Node::new(&patient(backend));
        let mut rogue = prompt(&mut node);
        speak(&mut rogue, &mut node, 7);
        let posted = node.read_from(100);
        // Few enough in each second to be no flood.
        let step = Duration::from_millis(500);
        for _ in 0..30 {
            fill_backlog(&mut rogue, &mut node);
            node.now = node.now.saturating_add(step);
            (0..POLLS).for_each(|_| node.poll());
            if node.stalled().is_some() {
                break;
            }
        }
        assert_eq!(node.stalled(), Some(Stall::Read));
        complete::sink(posted, &node.done(1).unwrap()).unwrap();
    }
}

#[test]
fn a_send_that_waits_for_a_receive_at_a_check_wins_no_time_for_a_read() {
    for backend in BACKENDS {
        let mut node = Node::new(&patient(backend));
        let mut rogue = prompt(&mut node);
        speak(&mut rogue, &mut node, 7);
        let posted = node.read_from(100);
        // The message that arrives acknowledges the request, which is progress.
        (0..POLLS).for_each(|_| node.poll());
        speak(&mut rogue, &mut node, 8);
        node.pass(LIMIT * 3 / 4);
        // There is no Receive for this message at the next check.
        let fpdu = rogue.transmitter.send(None, 0, b"wait");
        rogue.send(&fpdu, b"wait");
        node.pass(LIMIT / 4);
        assert_eq!((node.stalled(), node.nic.wire_counters().starvations), (None, 1));
        let sink = node.post_receive(9, 8);
        node.pass(LIMIT * 3 / 4);
        assert_eq!(node.stalled(), Some(Stall::Read), "before it had all its time again");
        complete::sink(sink, &node.done(9).unwrap()).unwrap();
        complete::sink(posted, &node.done(1).unwrap()).unwrap();
    }
}

#[test]
fn time_in_which_nobody_polls_counts_for_nothing() {
    for backend in BACKENDS {
        let mut node = Node::new(&patient(backend));
        let mut rogue = prompt(&mut node);
        speak(&mut rogue, &mut node, 7);
        let posted = node.read_from(100);
        (0..POLLS).for_each(|_| node.poll());
        // The core was stopped for an hour, three times.
        for _ in 0..3 {
            node.now = node.now.saturating_add(Duration::from_secs(3600));
            (0..POLLS).for_each(|_| node.poll());
        }
        assert_eq!(node.stalled(), None);
        node.pass(LIMIT);
        assert_eq!(node.stalled(), Some(Stall::Read));
        drop(posted);
    }
}
