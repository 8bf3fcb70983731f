//! Keepalives of an active end whose peer has sent nothing.

use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::{Offer, Passive};
use haulage_proto::iwarp::receive::{Delivery, Event as FpduEvent, Header, Receiver};
use haulage_proto::iwarp::transmit::Transmitter;

use super::*;

/// A peer that has accepted `node`'s connection, and the FPDUs it was sent so far.
struct Quiet {
    stream: TcpStream,
    receiver: Receiver,
    heard: Vec<Delivery>,
}

impl Quiet {
    fn new(node: &mut Node, rtr: bool) -> Self {
        let listener = TcpListener::bind(LOCAL).unwrap();
        let params = ConnectionParams { private_data: b"", ord: 4, ird: 4 };
        node.nic.connect(Instant::ZERO, listener.local_addr().unwrap(), &params).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let (mut handshake, mut request) = (Passive::new(), Vec::new());
        let asked = (0..POLLS_MAX).find_map(|_| {
            node.poll();
            receive(&mut stream, &mut request);
            let mut octets = &std::mem::take(&mut request)[..];
            handshake.handle(&mut octets).unwrap()
        });
        let offer = Offer { crc: false, ord: 4, ird: 4, rtr: false };
        let (reply, agreement) = asked.unwrap().accept(&offer, b"").unwrap();
        assert_eq!(agreement.rtr.is_some(), rtr);
        stream.write_all(&reply).unwrap();
        while !node.is_open() {
            node.poll();
        }
        Self { stream, receiver: Receiver::new(None), heard: Vec::new() }
    }

    /// Polls `node` long enough for everything it sends to arrive.
    fn listen(&mut self, node: &mut Node) {
        for _ in 0..2000 {
            node.poll();
            let mut octets = Vec::new();
            receive(&mut self.stream, &mut octets);
            let mut octets = &octets[..];
            while let Some(event) = self.receiver.next(&mut octets).unwrap() {
                match event {
                    FpduEvent::Header(Header::Write { handle, offset, length }) => {
                        assert_eq!((handle, offset, length), (Handle(0), 0, 0), "it names nothing");
                    }
                    FpduEvent::End(delivery) => self.heard.push(delivery),
                    FpduEvent::Header(_) | FpduEvent::Payload(_) => {}
                }
            }
        }
    }

    fn writes(&self) -> usize {
        self.heard.iter().filter(|delivery| **delivery == Delivery::Write).count()
    }
}

fn receive(stream: &mut TcpStream, octets: &mut Vec<u8>) {
    let mut room = [0; 65_536];
    match stream.read(&mut room) {
        Ok(count) => octets.extend(&room[..count]),
        Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
    }
}

fn node(backend: Backend, rtr: bool) -> Node {
    Node::new(&Config { ready_to_receive: rtr, ..config(backend, Crc::IfAsked) })
}

#[test]
fn a_peer_that_says_nothing_gets_a_few_keepalives_and_is_left_alone() {
    for (backend, _) in VARIANTS {
        for rtr in [false, true] {
            let mut node = node(backend, rtr);
            let mut peer = Quiet::new(&mut node, rtr);
            let source = node.post_send(1, b"hello", None);
            peer.listen(&mut node);
            assert_eq!(peer.writes(), usize::from(rtr), "not before its time has come");
            let mut times = Vec::new();
            while node.nic.wire_counters().keepalives < 6 {
                node.now = node.nic.poll_deadline().unwrap();
                times.push(node.now);
                peer.listen(&mut node);
            }
            let after = |ms| Instant::ZERO.saturating_add(Duration::from_millis(ms));
            assert_eq!(times, [20, 60, 140, 300, 620, 1260].map(after));
            node.now = after(60_000);
            peer.listen(&mut node);
            assert_eq!(peer.writes(), usize::from(rtr) + 6);
            assert!(node.seen.iter().all(|seen| !matches!(seen, Seen::Disconnected(_))));
            drop(source);
        }
    }
}

#[test]
fn a_peer_that_has_been_heard_gets_no_keepalive() {
    for (backend, _) in VARIANTS {
        let mut node = node(backend, false);
        let mut peer = Quiet::new(&mut node, false);
        let first = Transmitter::new(None, Mulpdu::default()).write(Handle(0), 0, &[]);
        peer.stream.write_all(&[first.prefix(), first.trailer()].concat()).unwrap();
        peer.listen(&mut node);
        node.now = Instant::ZERO.saturating_add(Duration::from_secs(60));
        peer.listen(&mut node);
        assert_eq!((peer.heard.len(), node.nic.wire_counters().keepalives), (0, 0));
    }
}

#[test]
fn a_keepalive_lets_the_passive_end_send_first() {
    for (backend, crc) in VARIANTS {
        let config = Config { ready_to_receive: false, ..config(backend, crc) };
        let mut pair = Pair::with(&config, SMALL);
        let sink = pair.a.post_receive(1, 8);
        let source = pair.b.post_send(2, b"first", None);
        pair.idle();
        assert!(!pair.b.is_done(2), "it has not heard anything yet");
        pair.a.now = pair.a.nic.poll_deadline().unwrap();
        pair.until(|a, b| a.is_done(1) && b.is_done(2));
        assert_eq!(pair.a.nic.wire_counters().keepalives, 1);
        complete::sink(sink, &pair.a.done(1).unwrap()).unwrap();
        complete::source(source, &pair.b.done(2).unwrap()).unwrap();
    }
}

#[test]
fn a_keepalive_does_not_come_between_the_fpdus_of_a_message() {
    for (backend, _) in VARIANTS {
        let patient = Config { progress_timeout: None, ..config(backend, Crc::IfAsked) };
        let mut node = Node::with_memory(&patient, 9 << 20);
        let mut peer = Quiet::new(&mut node, true);
        // More than the sockets hold, so that the message is under way while the peer does not read.
        let contents = pattern(8 << 20);
        let source = node.post_send(1, &contents, None);
        for second in 1..=60 {
            node.now = Instant::ZERO.saturating_add(Duration::from_secs(second));
            for _ in 0..100 {
                node.poll();
            }
        }
        assert_eq!(node.nic.wire_counters().keepalives, 0, "there is enough to read");
        while !node.is_done(1) {
            peer.listen(&mut node);
        }
        peer.listen(&mut node);
        let whole = Delivery::Send { length: 8 << 20, invalidate: None, solicited: false };
        assert_eq!(peer.heard.last(), Some(&whole));
        assert_eq!(peer.writes(), 1, "the indication alone");
        complete::source(source, &node.done(1).unwrap()).unwrap();
    }
}

#[test]
fn a_connection_that_is_closed_meanwhile_keeps_its_deadline() {
    let after = |ms| Instant::ZERO.saturating_add(Duration::from_millis(ms));
    for (backend, _) in VARIANTS {
        let mut node = node(backend, false);
        let mut peer = Quiet::new(&mut node, false);
        node.nic.disconnect(Instant::ZERO, node.qp());
        node.now = after(500);
        peer.listen(&mut node);
        assert_eq!((peer.heard.len(), node.nic.connections()), (0, 1), "it waits for the peer");
        node.now = after(2000);
        peer.listen(&mut node);
        assert_eq!((node.nic.wire_counters().keepalives, node.nic.connections()), (0, 0));
    }
    for (backend, _) in VARIANTS {
        // Far more than the sockets hold, so that closing waits for its deadline.
        let mut node = Node::with_memory(&config(backend, Crc::IfAsked), 33 << 20);
        let mut peer = Quiet::new(&mut node, true);
        let source = node.post_send(1, &pattern(32 << 20), None);
        node.nic.disconnect(Instant::ZERO, node.qp());
        let first = Transmitter::new(None, Mulpdu::default()).write(Handle(0), 0, &[]);
        peer.stream.write_all(&[first.prefix(), first.trailer()].concat()).unwrap();
        for now in [after(500), after(2000)] {
            assert!(!node.is_quiesced());
            node.now = now;
            for _ in 0..2000 {
                node.poll();
            }
        }
        assert!(node.is_quiesced(), "though the peer was heard meanwhile");
        complete::source_quiesced(source, &node.quiesced.pop().unwrap()).unwrap();
    }
}
