//! Reactions of an active end to the answers it gets.

use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::receive::{Delivery, Event as FpduEvent, Receiver};
use haulage_proto::iwarp::terminate::Code;
use haulage_proto::iwarp::transmit::Transmitter;

use super::setup::until_closed;
use super::*;

/// Has `node` connect to a plain socket, which takes its Request of `length` octets.
fn requested(node: &mut Node, length: usize) -> TcpStream {
    let listener = TcpListener::bind(LOCAL).unwrap();
    let params = ConnectionParams { private_data: b"", ord: 4, ird: 4 };
    node.nic.connect(Instant::ZERO, listener.local_addr().unwrap(), &params).unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut request: Vec<u8> = Vec::new();
    while request.len() < length {
        node.poll();
        let mut room = [0; 512];
        match stream.read(&mut room) {
            Ok(count) => request.extend(&room[..count]),
            Err(e) => assert_eq!(e.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert_eq!(request.len(), length);
    stream
}

fn reply(flags: u8, revision: u8, length: u16, rest: &[u8]) -> Vec<u8> {
    [&b"MPA ID Rep Frame"[..], &[flags, revision], &length.to_be_bytes(), rest].concat()
}

#[test]
fn a_reply_that_is_none_fails_the_connection() {
    let cases = [
        ("another key", b"MPA ID Req Frame\x10\x02\0\x04\0\x04\0\x04".to_vec(), "not an MPA frame"),
        ("text", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "not an MPA frame"),
        ("revision 3", reply(0x10, 3, 4, &[0, 4, 0, 4]), "MPA revision"),
        ("markers", reply(0x90, 2, 4, &[0, 4, 0, 4]), "MPA markers are not supported"),
        ("too long", reply(0x10, 2, 513, &[0; 513]), "MPA private data length"),
        ("cut short", reply(0x10, 2, 2, &[0, 4]), "MPA private data length"),
    ];
    for (backend, crc) in VARIANTS {
        for (what, octets, rule) in &cases {
            let mut node = Node::new(&config(backend, crc));
            let mut peer = requested(&mut node, 24);
            peer.write_all(octets).unwrap();
            assert_eq!(until_closed(&mut node, &mut peer), b"", "{what}: without a word");
            assert_eq!(node.seen, [Seen::Failed(ConnectError::BadHandshake(rule))], "{what}");
            assert_eq!(node.nic.connections(), 0, "{what}");
        }
    }
}

#[test]
fn terms_that_cannot_be_met_are_answered_with_a_terminate() {
    // Reads beyond what we offered to serve, and an indication that we did not offer.
    let cases = [
        ([0x00, 4, 0x00, 5], Code { layer: 2, etype: 0, code: 6 }),
        ([0x80, 4, 0x40, 4], Code { layer: 2, etype: 0, code: 7 }),
    ];
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        for (words, code) in cases {
            let mut node = Node::new(&config(backend, Crc::IfAsked));
            let mut peer = requested(&mut node, 24);
            peer.write_all(&reply(0x10, 2, 4, &words)).unwrap();
            let said = until_closed(&mut node, &mut peer);
            let mut receiver = Receiver::new(None);
            let told = match receiver.next(&mut &said[..]).unwrap() {
                Some(FpduEvent::End(Delivery::Terminate(terminate))) => terminate.code,
                other => panic!("{other:?}"),
            };
            assert_eq!(told, code);
            assert!(matches!(node.seen[..], [Seen::Failed(ConnectError::BadHandshake(_))]));
        }
    }
}

#[test]
fn a_reply_cut_at_any_octet_fails_the_connection() {
    let whole = reply(0x10, 2, 7, &[0, 4, 0, 4, b'a', b'b', b'c']);
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut node = Node::new(&config(backend, Crc::IfAsked));
        for cut in 0..whole.len() {
            let mut peer = requested(&mut node, 24);
            peer.write_all(&whole[..cut]).unwrap();
            drop(peer);
            for _ in 0..POLLS_MAX {
                node.poll();
                if !node.seen.is_empty() {
                    break;
                }
            }
            let lost = ConnectError::BadHandshake("closed before it was complete");
            assert_eq!(node.seen, [Seen::Failed(lost)], "cut at {cut}");
            assert_eq!(node.nic.connections(), 0);
            node.seen.clear();
        }
    }
}

#[test]
fn what_follows_the_reply_at_once_is_not_lost() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        let mut node = Node::new(&config(backend, Crc::IfAsked));
        let sink = node.post_receive(1, 8);
        let mut peer = requested(&mut node, 24);
        let mut octets = reply(0x10, 2, 4, &[0, 4, 0, 4]);
        let first = Transmitter::new(None, Mulpdu::default()).send(None, 0, b"hello");
        octets.extend([first.prefix(), b"hello", first.trailer()].concat());
        peer.write_all(&octets).unwrap();
        while !node.is_done(1) {
            node.poll();
        }
        assert!(matches!(node.seen[0], Seen::Established { .. }), "first things first");
        let filled = complete::sink(sink, &node.done(1).unwrap()).unwrap();
        assert_eq!(filled.bytes()[..5], *b"hello");
    }
}
