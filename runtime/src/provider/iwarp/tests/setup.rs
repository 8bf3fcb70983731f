//! Connection setup that succeeds, and that fails.

use haulage_proto::iwarp::mpa::Mulpdu;
use haulage_proto::iwarp::mpa::handshake::{Active, Offer};
use haulage_proto::iwarp::rdmap::ReadRequest;
use haulage_proto::iwarp::transmit::Transmitter;

use super::*;

const PARAMS: ConnectionParams<'_> = ConnectionParams { private_data: b"", ord: 4, ird: 4 };

/// Polls a node until its peer has closed the plain socket `stream`.
pub(super) fn until_closed(node: &mut Node, stream: &mut TcpStream) -> Vec<u8> {
    stream.set_nonblocking(true).unwrap();
    let mut read = Vec::new();
    for _ in 0..POLLS_MAX {
        node.poll();
        let mut room = [0; 4096];
        match stream.read(&mut room) {
            Ok(0) => return read,
            Ok(count) => read.extend(&room[..count]),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return read,
        }
    }
    panic!("still open");
}

#[test]
fn both_ends_learn_private_data_and_what_is_granted() {
    for variant in VARIANTS {
        let pair = Pair::new(variant);
        assert_eq!(pair.b.seen[0], Seen::Request(b"hello".to_vec()));
        // The client asks for 4 out and 8 in, the server for 16 and 3.
        let server = Seen::Established { private_data: Vec::new(), ord: 8, ird: 3 };
        let client = Seen::Established { private_data: b"welcome".to_vec(), ord: 3, ird: 8 };
        assert_eq!((&pair.b.seen[1], &pair.a.seen[0]), (&server, &client));
    }
}

#[test]
fn a_rejected_connection_fails_at_the_active_end() {
    for (backend, crc) in VARIANTS {
        let config = config(backend, crc);
        let mut pair = Pair { a: Node::new(&config), b: Node::new(&config) };
        let (_, at) = pair.b.nic.listen(LOCAL).unwrap();
        pair.a.nic.connect(Instant::ZERO, at, &PARAMS).unwrap();
        pair.until(|_, b| b.qp.is_some());
        pair.b.nic.reject(Instant::ZERO, pair.b.qp(), b"no");
        pair.until(|a, _| !a.seen.is_empty());
        assert_eq!(pair.a.seen, [Seen::Failed(ConnectError::Rejected)]);
        pair.until(|a, b| a.nic.connections() + b.nic.connections() == 0);
    }
}

#[test]
fn nobody_there_is_a_failure_not_a_wait() {
    for (backend, crc) in VARIANTS {
        let mut node = Node::new(&config(backend, crc));
        let at = TcpListener::bind(LOCAL).unwrap().local_addr().unwrap();
        if node.nic.connect(Instant::ZERO, at, &PARAMS).is_ok() {
            for _ in 0..POLLS_MAX {
                node.poll();
                if !node.seen.is_empty() {
                    break;
                }
            }
            assert_eq!(node.seen, [Seen::Failed(ConnectError::Refused)]);
        }
        node.poll();
        assert_eq!(node.nic.connections(), 0);
    }
}

#[test]
fn a_silent_peer_meets_the_deadline_at_either_end() {
    for (backend, crc) in VARIANTS {
        let mut node = Node::new(&config(backend, crc));
        let silent = TcpListener::bind(LOCAL).unwrap();
        node.nic.connect(Instant::ZERO, silent.local_addr().unwrap(), &PARAMS).unwrap();
        let (_, at) = node.nic.listen(LOCAL).unwrap();
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(b"MPA ID Req").unwrap();
        for _ in 0..10_000 {
            node.poll();
        }
        assert_eq!((node.seen.len(), node.nic.connections()), (0, 2));
        let deadline = node.nic.poll_deadline().unwrap();
        assert_eq!(deadline, Instant::ZERO.saturating_add(Duration::from_secs(5)));
        node.now = deadline;
        until_closed(&mut node, &mut client);
        assert_eq!(node.seen, [Seen::Failed(ConnectError::TimedOut)], "and nothing of the other");
        for _ in 0..1000 {
            node.poll();
        }
        assert_eq!(node.nic.connections(), 0);
        assert_eq!(node.nic.counters().newcomers.handshakes_failed(), 1);
    }
}

#[test]
fn a_connect_that_hangs_in_tcp_meets_the_deadline() {
    for (backend, crc) in VARIANTS {
        // A listener that never accepts, with its queue full, does not even answer.
        let full = TcpListener::bind(LOCAL).unwrap();
        let at = full.local_addr().unwrap();
        let wait = Duration::from_millis(20);
        let mut waiting = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&at, wait) {
            waiting.push(stream);
            assert!(waiting.len() < 5000);
        }
        let mut node = Node::new(&config(backend, crc));
        node.nic.connect(Instant::ZERO, at, &PARAMS).unwrap();
        for _ in 0..1000 {
            node.poll();
        }
        assert!(node.seen.is_empty());
        node.now = node.nic.poll_deadline().unwrap();
        for _ in 0..1000 {
            node.poll();
        }
        assert_eq!(node.seen, [Seen::Failed(ConnectError::TimedOut)]);
        assert_eq!(node.nic.connections(), 0, "and nothing of it is left");
    }
}

#[test]
fn version_6_addresses_work() {
    for (backend, crc) in VARIANTS {
        let config = config(backend, crc);
        let mut pair = Pair { a: Node::new(&config), b: Node::new(&config) };
        let Ok((_, at)) = pair.b.nic.listen((std::net::Ipv6Addr::LOCALHOST, 0).into()) else {
            return; // this machine has none
        };
        pair.a.nic.connect(Instant::ZERO, at, &PARAMS).unwrap();
        pair.until(|_, b| b.qp.is_some());
        pair.b.nic.accept(Instant::ZERO, pair.b.qp(), &PARAMS);
        pair.until(|a, b| a.is_open() && b.is_open());
    }
}

#[test]
fn garbage_hurts_only_its_own_connection() {
    for (backend, crc) in VARIANTS {
        let mut pair = Pair::new((backend, crc));
        let (_, at) = pair.b.nic.listen(LOCAL).unwrap();
        let request = |bytes: &[u8]| [&b"MPA ID Req Frame"[..], bytes].concat();
        for garbage in [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            vec![0; 5000],
            request(&[0, 9, 0, 0]),
            request(&[0, 1, 0xff, 0xff]),
            request(&[0x80, 1, 0, 0]),
            request(&[0x10, 2, 0, 3, 0, 0, 0]),
        ] {
            let mut client = TcpStream::connect(at).unwrap();
            client.write_all(&garbage).unwrap();
            until_closed(&mut pair.b, &mut client);
        }
        let failed = pair.b.nic.counters().newcomers.handshakes_failed();
        assert_eq!(failed, 6);
        let sink = pair.b.post_receive(1, 8);
        let source = pair.a.post_send(2, b"alive", None);
        pair.until(|a, b| a.is_done(2) && b.is_done(1));
        complete::sink(sink, &pair.b.done(1).unwrap()).unwrap();
        complete::source(source, &pair.a.done(2).unwrap()).unwrap();
    }
}

#[test]
fn octets_between_request_and_reply_end_the_connection() {
    for (backend, crc) in VARIANTS {
        let mut node = Node::new(&config(backend, crc));
        let (_, at) = node.nic.listen(LOCAL).unwrap();
        let offer = Offer { crc: false, ord: 1, ird: 1, rtr: false };
        let (_, request) = Active::new(offer, b"pd").unwrap();
        let mut client = TcpStream::connect(at).unwrap();
        client.write_all(&request).unwrap();
        for _ in 0..POLLS_MAX {
            node.poll();
            if node.qp.is_some() {
                break;
            }
        }
        assert_eq!(node.seen, [Seen::Request(b"pd".to_vec())]);
        client.write_all(b"too early").unwrap();
        for _ in 0..10_000 {
            node.poll();
        }
        node.nic.accept(Instant::ZERO, node.qp(), &PARAMS);
        for _ in 0..10_000 {
            node.poll();
        }
        let early = DisconnectReason::PeerMisbehaved("octets before our MPA Reply");
        assert!(matches!(
            &node.seen[1..],
            [Seen::Established { .. }, Seen::Disconnected(reason), Seen::Quiesced] if *reason == early
        ));
    }
}

#[test]
fn silent_peers_cannot_keep_others_out() {
    for (backend, crc) in VARIANTS {
        let small = Config { connections_max: 4, ..config(backend, crc) };
        let mut pair = Pair { a: Node::new(&config(backend, crc)), b: Node::new(&small) };
        let (_, at) = pair.b.nic.listen(LOCAL).unwrap();
        let silent: Vec<_> = (0..12).map(|_| TcpStream::connect(at).unwrap()).collect();
        pair.idle();
        assert!(pair.b.nic.connections() <= 4);
        pair.a.nic.connect(Instant::ZERO, at, &PARAMS).unwrap();
        pair.until(|_, b| b.qp.is_some());
        pair.b.nic.accept(Instant::ZERO, pair.b.qp(), &PARAMS);
        pair.until(|a, b| a.is_open() && b.is_open());
        drop(silent);
    }
}

#[test]
fn the_last_who_finds_room_costs_nobody_theirs() {
    for (backend, crc) in VARIANTS {
        let small = Config { connections_max: 4, ..config(backend, crc) };
        let mut pair = Pair { a: Node::new(&config(backend, crc)), b: Node::new(&small) };
        let (_, at) = pair.b.nic.listen(LOCAL).unwrap();
        let silent = [0; 4].map(|_| TcpStream::connect(at).unwrap());
        pair.idle();
        assert_eq!(pair.b.nic.connections(), 4);
        assert_eq!(pair.b.nic.counters().newcomers.handshakes_failed(), 0);
        // The next connection needs room, and one gives way.
        pair.a.nic.connect(Instant::ZERO, at, &PARAMS).unwrap();
        pair.until(|_, b| b.qp.is_some());
        assert_eq!(pair.b.nic.counters().newcomers.crowded_out, 1);
        drop(silent);
    }
}

#[test]
fn nobody_connects_once_we_stop_listening() {
    for (backend, crc) in VARIANTS {
        let mut node = Node::new(&config(backend, crc));
        let (listener, at) = node.nic.listen(LOCAL).unwrap();
        node.nic.unlisten(listener);
        node.poll();
        assert!(TcpStream::connect(at).is_err());
    }
}

#[test]
fn a_queue_pair_number_is_not_used_twice() {
    let mut pair = Pair::new(VARIANTS[2]);
    let (a, b) = (pair.a.qp(), pair.b.qp());
    pair.a.nic.disconnect(Instant::ZERO, a);
    pair.until(|a, b| a.nic.connections() + b.nic.connections() == 0);
    for node in [&mut pair.a, &mut pair.b] {
        node.seen.clear();
        node.qp = None;
    }
    pair.connect();
    assert_eq!((pair.a.qp().slot(), pair.b.qp().slot()), (a.slot(), b.slot()));
    assert!(pair.a.qp() != a && pair.b.qp() != b);
}

#[test]
fn what_io_uring_lacks_is_reported_not_hidden() {
    let node = Node::new(&config(Backend::Sockets, Crc::IfAsked));
    assert_eq!(node.nic.backend().to_string(), "plain sockets");
    let auto = Node::new(&config(Backend::Auto, Crc::IfAsked));
    assert!(auto.nic.backend().to_string().contains("io_uring"));
}

#[test]
fn revision_1_is_spoken_where_it_is_asked_for() {
    for (backend, crc) in VARIANTS {
        let config = config(backend, crc);
        let old = Config { enhanced: false, ..config.clone() };
        let mut pair = Pair { a: Node::new(&old), b: Node::new(&config) };
        pair.connect();
        // Nothing is negotiated: each end keeps to its own depths.
        let server = Seen::Established { private_data: Vec::new(), ord: 16, ird: 3 };
        let client = Seen::Established { private_data: b"welcome".to_vec(), ord: 4, ird: 8 };
        assert_eq!((&pair.b.seen[1], &pair.a.seen[0]), (&server, &client));
        // The passive end waits for the first FPDU, as revision 1 has it.
        let [first, second] = [pair.b.post_receive(1, 8), pair.a.post_receive(1, 8)];
        let back = pair.b.post_send(2, b"back", None);
        pair.idle();
        assert!(!pair.a.is_done(1));
        let there = pair.a.post_send(2, b"there", None);
        pair.until(|a, b| a.is_done(1) && b.is_done(1) && a.is_done(2) && b.is_done(2));
        drop([first, second]);
        drop([back, there]);
    }
}

#[test]
fn every_ready_to_receive_indication_opens_the_stream() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        // Flags with IRD and ORD, and the FPDU: a Send, a Write, and a Read of no octets.
        let empty = ReadRequest {
            sink: Handle(5),
            sink_offset: 0,
            length: 0,
            source: Handle(6),
            source_offset: 0,
        };
        let mut transmitter = Transmitter::new(None, Mulpdu::default());
        let indications = [
            ([0xc0, 0x00], transmitter.send(None, 0, &[])),
            ([0x80, 0x80], transmitter.write(Handle(0), 0, &[])),
            ([0x80, 0x40], transmitter.read_request(&empty)),
        ];
        for (flags, indication) in indications {
            let mut node = Node::new(&config(backend, Crc::IfAsked));
            let (_, at) = node.nic.listen(LOCAL).unwrap();
            // No Reads are asked for, nor offered.
            let offer = Offer { crc: false, ord: 0, ird: 0, rtr: false };
            let (_, request) = Active::new(offer, b"").unwrap();
            let mut request = request.into_vec();
            (request[20], request[22]) = (flags[0], flags[1]);
            let mut client = TcpStream::connect(at).unwrap();
            client.write_all(&request).unwrap();
            for _ in 0..POLLS_MAX {
                node.poll();
                if node.qp.is_some() {
                    break;
                }
            }
            node.nic.accept(Instant::ZERO, node.qp(), &PARAMS);
            let mut reply = [0; 24];
            client.read_exact(&mut reply).unwrap();
            assert_eq!([reply[20], reply[22]], flags, "answered in kind");

            let sink = node.post_receive(1, 8);
            let source = node.post_send(2, b"first", None);
            for _ in 0..1000 {
                node.poll();
            }
            assert!(!node.is_done(2), "not before the indication");
            client.write_all(&[indication.prefix(), indication.trailer()].concat()).unwrap();
            for _ in 0..POLLS_MAX {
                node.poll();
                if node.is_done(2) {
                    break;
                }
            }
            assert!(node.is_done(2), "{flags:?}");
            assert!(!node.is_done(1), "it uses no Receive");
            assert_eq!(node.reason(), None);
            drop((sink, source));
        }
    }
}

/// Takes the next peer from a listener of `node`, without adopting it.
fn next_incoming(node: &mut Node) -> Incoming {
    for _ in 0..POLLS_MAX {
        node.nic.poll(node.now, 64, &mut Vec::new());
        if let Some(incoming) = node.nic.next_incoming(node.now, || false) {
            return incoming;
        }
    }
    panic!("nobody came");
}

#[test]
fn the_time_of_a_handshake_begins_when_it_is_adopted() {
    for (backend, crc) in VARIANTS {
        let [mut node, mut other] = [(); 2].map(|()| Node::new(&config(backend, crc)));
        let (_, at) = node.nic.listen(LOCAL).unwrap();
        let mut client = TcpStream::connect(at).unwrap();
        let incoming = next_incoming(&mut node);
        assert_eq!(node.nic.connections(), 0);
        other.now = Instant::ZERO.saturating_add(Duration::from_secs(60));
        other.nic.adopt(other.now, incoming, Place::default()).unwrap();
        let deadline = other.nic.poll_deadline();
        assert_eq!(deadline, Some(other.now.saturating_add(Duration::from_secs(5))));
        other.now = deadline.unwrap();
        until_closed(&mut other, &mut client);
        assert_eq!((other.seen.len(), other.nic.counters().newcomers.timed_out), (0, 1));
    }
}

#[test]
fn a_peer_that_left_before_it_was_adopted_is_lost_in_its_handshake() {
    for (backend, crc) in VARIANTS {
        let mut node = Node::new(&config(backend, crc));
        let (_, at) = node.nic.listen(LOCAL).unwrap();
        drop(TcpStream::connect(at).unwrap());
        let incoming = next_incoming(&mut node);
        node.nic.adopt(node.now, incoming, Place::default()).unwrap();
        for _ in 0..POLLS_MAX {
            node.poll();
            if node.nic.connections() == 0 {
                break;
            }
        }
        assert_eq!((node.seen.len(), node.nic.counters().newcomers.closed), (0, 1));
    }
}

#[test]
fn a_peer_comes_back_from_whoever_has_no_slot_for_it_and_the_oldest_setup_gives_way() {
    for (backend, crc) in VARIANTS {
        let small = Config { connections_max: 1, ..config(backend, crc) };
        let (mut node, mut full) = (Node::new(&config(backend, crc)), Node::new(&small));
        let (_, at) = node.nic.listen(LOCAL).unwrap();
        let mut clients = [0; 2].map(|_| TcpStream::connect(at).unwrap());
        let incoming = next_incoming(&mut node);
        full.nic.adopt(full.now, incoming, Place::default()).unwrap();
        let incoming = next_incoming(&mut node);
        let incoming = full.nic.adopt(full.now, incoming, Place::default()).unwrap_err();
        let (incoming, place) = incoming;
        full.nic.poll(full.now, 64, &mut Vec::new());
        full.nic.adopt(full.now, incoming, place).unwrap();
        assert_eq!((full.nic.connections(), node.nic.connections()), (1, 0));
        drop(full);
        for client in &mut clients {
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is closed");
        }
    }
}

#[test]
fn all_who_came_before_one_report_are_accepted() {
    for (backend, crc) in VARIANTS {
        let mut node = Node::new(&config(backend, crc));
        let (_, at) = node.nic.listen(LOCAL).unwrap();
        let clients = [(); 100].map(|()| TcpStream::connect(at).unwrap());
        for _ in 0..POLLS_MAX {
            node.poll();
            if node.nic.connections() == clients.len() {
                break;
            }
        }
        assert_eq!(node.nic.connections(), clients.len());
    }
}

#[test]
fn a_peer_is_served_by_the_thread_that_adopts_it() {
    for (backend, crc) in VARIANTS {
        let (mut dealer, mut client) =
            (Node::new(&config(backend, crc)), Node::new(&config(backend, crc)));
        let (_, at) = dealer.nic.listen(LOCAL).unwrap();
        client.nic.connect(Instant::ZERO, at, &PARAMS).unwrap();
        let incoming = next_incoming(&mut dealer);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let mut server = Node::new(&config(backend, crc));
                server.nic.adopt(server.now, incoming, Place::default()).unwrap();
                while server.qp.is_none() {
                    server.poll();
                }
                server.nic.accept(Instant::ZERO, server.qp(), &PARAMS);
                let source = server.post_send(1, b"from afar", None);
                while !server.is_quiesced() {
                    server.poll();
                }
                assert_eq!(server.reason(), Some(DisconnectReason::PeerHasAll));
                complete::source(source, &server.done(1).unwrap()).unwrap();
            });
            while !client.is_open() {
                client.poll();
            }
            let sink = client.post_receive(1, 16);
            while !client.is_done(1) {
                client.poll();
            }
            let done = client.done(1).unwrap();
            assert_eq!(&complete::sink(sink, &done).unwrap().bytes()[..9], b"from afar");
            client.nic.disconnect(Instant::ZERO, client.qp());
            while !client.is_quiesced() {
                client.poll();
            }
        });
    }
}
