//! How connections end.

use haulage_proto::iwarp::rdmap::ReadRequest;
use haulage_proto::iwarp::terminate::{Code, Fault};

use super::rogue::Rogue;
use super::*;

/// Checks that both ends see the fault: one reports it, the other a Terminate.
fn assert_terminated(pair: &mut Pair, fault: Fault) {
    pair.until(|a, b| a.is_quiesced() && b.is_quiesced());
    let Code { layer, etype, code } = fault.code();
    assert_eq!(pair.b.reason(), Some(DisconnectReason::PeerMisbehaved(fault.rule())));
    assert_eq!(pair.a.reason(), Some(DisconnectReason::Terminated { layer, etype, code }));
    pair.until(|a, b| a.nic.connections() + b.nic.connections() == 0);
}

#[test]
fn a_send_longer_than_its_receive_ends_the_connection() {
    for variant in VARIANTS {
        let mut pair = Pair::new(variant);
        let sink = pair.b.post_receive(1, 100);
        let source = pair.a.post_send(2, &pattern(101), None);
        assert_terminated(&mut pair, Fault::MessageTooLong);
        assert!(pair.b.done.is_empty(), "the Receive went back to the shared queue");
        assert_eq!(pair.b.nic.nic.receives.len(), 1);
        assert!(pair.b.nic.nic.stags.in_use() == 0);
        drop((sink, source));
    }
}

#[test]
fn a_long_send_that_waited_for_a_receive_too_short_ends_the_connection() {
    for variant in VARIANTS {
        let mut pair = Pair::new(variant);
        let source = pair.a.post_send(2, &pattern(101), None);
        pair.idle();
        let sink = pair.b.post_receive(1, 100);
        assert_terminated(&mut pair, Fault::MessageTooLong);
        drop((sink, source));
    }
}

#[test]
fn tagged_data_for_what_was_not_opened_changes_no_memory() {
    for variant in VARIANTS {
        for (change, fault) in [
            ((1 << 9, 0, 0), Fault::TaggedStag),
            ((0, 1, 0), Fault::TaggedBounds),
            ((0, u64::MAX, 0), Fault::TaggedBounds),
            ((0, 0, 1), Fault::TaggedBounds),
        ] {
            let mut pair = Pair::new(variant);
            let lease = pair.b.lease(&[7; 1000]);
            let (exposed, segment) = pair.b.expose(lease, true);
            let to = Segment {
                handle: Handle(segment.handle.0 ^ change.0),
                offset: segment.offset.wrapping_add(change.1),
                length: segment.length + change.2,
            };
            let source = pair.a.post_write(1, &pattern(to.length as usize), to);
            assert_terminated(&mut pair, fault);
            let quiesced = pair.b.quiesced.pop().unwrap();
            let proof = complete::destroyed(&exposed, &quiesced);
            assert_eq!(exposed.fence(proof).unwrap().bytes(), [7; 1000]);
            drop(source);
        }
    }
}

#[test]
fn access_is_for_reading_or_for_writing_never_both() {
    for variant in VARIANTS {
        let mut pair = Pair::new(variant);
        let (exposed, segment) = pair.b.expose(pair.b.lease(&[7; 1000]), false);
        let source = pair.a.post_write(1, &[1; 1000], segment);
        assert_terminated(&mut pair, Fault::WriteAccess);
        drop((exposed, source));

        let mut pair = Pair::new(variant);
        let (exposed, segment) = pair.b.expose(pair.b.lease(&[7; 1000]), true);
        let ahead = pair.a.post_read(1, segment);
        let behind = pair.a.post_read(2, segment);
        assert_terminated(&mut pair, Fault::ReadAccess);
        let ends: Vec<_> = pair.a.done.iter().map(|done| (done.id.0, done.status)).collect();
        assert_eq!(ends, [(1, Status::RemoteAccess), (2, Status::Flushed)]);
        drop((exposed, ahead, behind));
    }
}

#[test]
fn a_handle_works_only_between_fast_reg_and_invalidation() {
    for variant in VARIANTS {
        let mut pair = Pair::new(variant);
        let (exposed, segment) = pair.b.expose(pair.b.lease(&[7; 64]), true);
        pair.b.post(1, SIGNALED, Operation::LocalInv { handle: segment.handle });
        pair.until(|_, b| b.is_done(1));
        let done = pair.b.done(1).unwrap();
        let lease = exposed.fence(complete::invalidated(&done).unwrap()).unwrap();
        let source = pair.a.post_write(2, &[1; 64], segment);
        assert_terminated(&mut pair, Fault::TaggedStag);
        assert_eq!(lease.bytes(), [7; 64]);
        drop(source);
    }
}

#[test]
fn memory_taken_back_in_the_middle_of_a_write_gets_no_more_of_it() {
    for (backend, _) in VARIANTS.into_iter().step_by(2) {
        for crc in [false, true] {
            let mut node = Node::new(&config(backend, Crc::IfAsked));
            let mut rogue = Rogue::new(&mut node, crc);
            rogue.stream.set_nodelay(true).unwrap();
            let (exposed, segment) = node.expose(node.lease(&[7; 1000]), true);
            let write = rogue.transmitter.write(segment.handle, segment.offset, &[1; 1000]);
            let (first, rest) = [1; 1000].split_at(400);
            rogue.stream.write_all(&[write.prefix(), first].concat()).unwrap();
            let came = |node: &Node| node.nic.counters().tagged_received;
            for _ in 0..POLLS_MAX {
                if came(&node) == 400 {
                    break;
                }
                node.poll();
            }

            node.post(1, SIGNALED, Operation::LocalInv { handle: segment.handle });
            node.poll();
            let done = node.done(1).unwrap();
            let lease = exposed.fence(complete::invalidated(&done).unwrap()).unwrap();
            rogue.stream.write_all(&[rest, write.trailer()].concat()).unwrap();
            assert_eq!(rogue.terminate(&mut node), Fault::TaggedStag.code());
            assert_eq!(lease.bytes(), [&[1; 400][..], &[7; 600]].concat());
            assert_eq!(came(&node), 400);
        }
    }
}

#[test]
fn a_handle_of_another_connection_is_worth_nothing() {
    let mut pair = Pair::new(VARIANTS[3]);
    let (exposed, segment) = pair.b.expose(pair.b.lease(&[7; 64]), true);
    for node in [&mut pair.a, &mut pair.b] {
        node.seen.clear();
    }
    pair.connect();
    let source = pair.a.post_write(1, &[1; 64], segment);
    pair.until(|a, b| a.is_quiesced() && b.is_quiesced());
    let rule = Fault::TaggedNotAssociated.rule();
    assert_eq!(pair.b.reason(), Some(DisconnectReason::PeerMisbehaved(rule)));
    pair.until(|_, b| b.nic.connections() < 2);
    assert_eq!(pair.b.nic.connections(), 1, "the connection the handle belongs to lives");
    drop((exposed, source));
}

#[test]
fn only_an_exposed_handle_can_be_invalidated_by_the_peer() {
    for variant in VARIANTS {
        let mut pair = Pair::new(variant);
        let sink = pair.b.post_receive(1, 8);
        let source = pair.a.post_send(2, b"x", Some(Handle(0x1234_5678)));
        assert_terminated(&mut pair, Fault::CannotInvalidate);
        assert!(pair.b.done.is_empty());
        drop((sink, source));
    }
}

#[test]
fn a_vanished_peer_flushes_what_was_posted_in_order() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 26 << 20);
        let lease = pair.a.pool.lease(64).unwrap();
        let (exposed, _) = pair.a.expose(lease, true);
        let large = pattern(8 << 20);
        let sent: Vec<_> = (2..5).map(|id| pair.a.post_send(id, &large, None)).collect();
        let receive = pair.a.post_receive(9, 64);
        drop(pair.b);
        for _ in 0..POLLS_MAX {
            pair.a.poll();
            if pair.a.is_quiesced() {
                break;
            }
        }
        let done = |id, opcode, status| Seen::Completion(WrId(id), opcode, status);
        let lost = |seen: &Seen| {
            matches!(
                seen,
                Seen::Disconnected(
                    DisconnectReason::Lost | DisconnectReason::Peer | DisconnectReason::PeerHasAll
                )
            )
        };
        let at = pair.a.seen.iter().position(lost).unwrap();
        let mut expected = Vec::new();
        for id in 2..5 {
            if !pair.a.seen[..at].contains(&done(id, Opcode::Send, Status::Success)) {
                expected.push(done(id, Opcode::Send, Status::Flushed));
            }
        }
        expected.push(Seen::Quiesced);
        assert_eq!(pair.a.seen[at + 1..], expected, "{variant:?}");
        let quiesced = pair.a.quiesced.pop().unwrap();
        for source in sent {
            complete::source_quiesced(source, &quiesced).unwrap();
        }
        let proof = complete::destroyed(&exposed, &quiesced);
        exposed.fence(proof).unwrap();
        assert_eq!(pair.a.nic.nic.receives.len(), 1, "the shared queue is as it was");
        drop(receive);
        let mut batch = WorkQueue::new();
        let qp = pair.a.qp();
        assert_eq!(pair.a.nic.post(qp, &mut batch), Ok(()), "posting nothing is no error");
    }
}

#[test]
fn disconnect_sends_what_was_posted_first() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 20 << 20);
        let contents = pattern(6 << 20);
        let sinks: Vec<_> = (0..3).map(|id| pair.b.post_receive(id, contents.len())).collect();
        let sent: Vec<_> = (0..3).map(|id| pair.a.post_send(id, &contents, None)).collect();
        pair.a.nic.disconnect(Instant::ZERO, pair.a.qp());
        pair.until(|a, b| a.is_quiesced() && b.is_quiesced());
        assert_eq!(pair.a.reason(), Some(DisconnectReason::Local));
        assert_eq!(pair.b.reason(), Some(DisconnectReason::PeerHasAll));
        for (id, sink) in (0..).zip(sinks) {
            let done = pair.b.done(id).unwrap();
            assert!(complete::sink(sink, &done).unwrap().bytes() == contents, "{variant:?}");
        }
        for (id, source) in (0..).zip(sent) {
            let done = pair.a.done(id).unwrap();
            assert_eq!(done.status, Status::Success);
            complete::source(source, &done).unwrap();
        }
        pair.until(|a, b| a.nic.connections() + b.nic.connections() == 0);
    }
}

#[test]
fn disconnect_gives_up_at_its_deadline() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 33 << 20);
        // No Receive and far more than the sockets hold.
        let source = pair.a.post_send(0, &pattern(32 << 20), None);
        pair.a.nic.disconnect(Instant::ZERO, pair.a.qp());
        pair.idle();
        assert_eq!(pair.a.reason(), None);
        pair.a.now = Instant::ZERO.saturating_add(Config::default().close_timeout);
        pair.until(|a, _| a.is_quiesced());
        let expected = [
            Seen::Disconnected(DisconnectReason::Local),
            Seen::Completion(WrId(0), Opcode::Send, Status::Flushed),
            Seen::Quiesced,
        ];
        assert_eq!(pair.a.seen[1..], expected);
        complete::source_quiesced(source, &pair.a.quiesced.pop().unwrap()).unwrap();
    }
}

#[test]
fn a_request_that_contradicts_itself_ends_the_connection() {
    for variant in VARIANTS {
        let mut pair = Pair::new(variant);
        let posted = pair.a.lease(&[0; 8]).into_source();
        let source = posted.source(0..8).unwrap();
        let wrong = Segment { handle: Handle(1), length: 9, offset: 0 };
        let target = ClaimedSegment::try_from(wrong).unwrap();
        pair.a.post(1, Flags::default(), Operation::Write { source, target });
        pair.until(|a, b| a.is_quiesced() && b.is_quiesced());
        let expected = [
            Seen::Disconnected(DisconnectReason::Local),
            Seen::Completion(WrId(1), Opcode::Write, Status::LocalFault),
            Seen::Quiesced,
        ];
        assert_eq!(pair.a.seen[1..], expected, "reported though it was not signaled");
        complete::source(posted, &pair.a.done(1).unwrap()).unwrap();
    }
}

#[test]
fn a_damaged_fpdu_completes_nothing() {
    for (backend, _) in VARIANTS {
        let mut node = Node::new(&config(backend, Crc::IfAsked));
        let mut rogue = Rogue::new(&mut node, true);
        let receive = node.post_receive(1, 64);
        let fpdu = rogue.transmitter.send(None, 0, b"hello");
        let mut octets = [fpdu.prefix(), b"hellp", fpdu.trailer()].concat();
        rogue.stream.write_all(&std::mem::take(&mut octets)).unwrap();
        assert_eq!(rogue.terminate(&mut node), Fault::Crc.code());
        assert_eq!(node.reason(), Some(DisconnectReason::PeerMisbehaved("CRC")));
        assert!(node.done.is_empty());
        assert_eq!(node.nic.wire_counters().crc_failures, 1);
        drop(receive);
    }
}

#[test]
fn more_reads_than_granted_end_the_connection() {
    for (backend, _) in VARIANTS {
        let mut node = Node::with_memory(&config(backend, Crc::IfAsked), 17 << 20);
        let mut rogue = Rogue::new(&mut node, false);
        let contents = pattern(16 << 20);
        let (exposed, segment) = node.expose(node.lease(&contents), false);
        // Two Reads are granted. The answers are not read, so the third meets a full queue.
        let octets: Vec<u8> = (0..3)
            .flat_map(|_| {
                let fpdu = rogue.transmitter.read_request(&ReadRequest {
                    sink: Handle(1),
                    sink_offset: 0,
                    length: segment.length,
                    source: segment.handle,
                    source_offset: segment.offset,
                });
                [fpdu.prefix(), fpdu.trailer()].concat()
            })
            .collect();
        rogue.stream.write_all(&octets).unwrap();
        for _ in 0..10_000 {
            node.poll();
        }
        node.now = node.nic.poll_deadline().unwrap();
        for _ in 0..POLLS_MAX {
            node.poll();
            if node.is_quiesced() {
                break;
            }
        }
        let rule = Fault::NoBuffer.rule();
        assert_eq!(node.reason(), Some(DisconnectReason::PeerMisbehaved(rule)));
        drop(exposed);
    }
}

#[test]
fn every_broken_rule_gets_its_terminate() {
    let odd = |node: &mut Node, rogue: &mut Rogue, at: usize, value: u8| {
        let receive = node.post_receive(1, 64);
        let fpdu = rogue.transmitter.send(None, 0, b"");
        let mut octets = [fpdu.prefix(), fpdu.trailer()].concat();
        octets[at] = value;
        rogue.stream.write_all(&octets).unwrap();
        drop(receive);
    };
    for (backend, _) in VARIANTS {
        for (at, value, fault) in [
            (1, 2, Fault::UlpduLength),
            (2, 0x40, Fault::DdpVersionUntagged),
            (2, 0xc2, Fault::DdpVersionTagged),
            (3, 0x03, Fault::RdmapVersion),
            (3, 0x49, Fault::UnexpectedOpcode),
            (11, 9, Fault::QueueNumber),
            (15, 2, Fault::MessageNumber),
            (19, 1, Fault::MessageOffset),
        ] {
            let mut node = Node::new(&config(backend, Crc::IfAsked));
            let mut rogue = Rogue::new(&mut node, false);
            odd(&mut node, &mut rogue, at, value);
            assert_eq!(rogue.terminate(&mut node), fault.code(), "{fault}");
        }
        let mut node = Node::new(&config(backend, Crc::IfAsked));
        let mut rogue = Rogue::new(&mut node, false);
        let fpdu = rogue.transmitter.read_response(Handle(5), 0, b"unasked");
        rogue.send(&fpdu, b"unasked");
        assert_eq!(rogue.terminate(&mut node), Fault::TaggedStag.code());
    }
}

#[test]
fn the_sink_of_a_read_is_filled_by_its_response_alone() {
    let mut node = Node::new(&config(Backend::Auto, Crc::IfAsked));
    let mut rogue = Rogue::new(&mut node, false);
    let first = rogue.transmitter.write(Handle(0), 0, b"");
    rogue.send(&first, b"");
    let from = Segment { handle: Handle(9), length: 5, offset: 0 };
    let sink = node.post_read(1, from);
    // The Read Request names the sink; a Write to it is refused.
    let mut octets = Vec::new();
    rogue.stream.set_nonblocking(true).unwrap();
    for _ in 0..POLLS_MAX {
        node.poll();
        let mut room = [0; 64];
        if let Ok(count) = rogue.stream.read(&mut room) {
            octets.extend(&room[..count]);
        }
        if octets.len() >= 52 {
            break;
        }
    }
    let handle = Handle(u32::from_be_bytes(octets[20..24].try_into().unwrap()));
    let offset = u64::from_be_bytes(octets[24..32].try_into().unwrap());
    let write = rogue.transmitter.write(handle, offset, b"wrong");
    rogue.send(&write, b"wrong");
    assert_eq!(rogue.terminate(&mut node), Fault::WriteAccess.code());
    assert_eq!(node.done.len(), 1);
    assert_eq!(node.done[0].status, Status::Flushed);
    drop(sink);
}

#[test]
fn garbage_on_an_open_connection_hurts_nobody_else() {
    let mut seed = 1_u64;
    let mut draw = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as u8
    };
    for (backend, _) in VARIANTS {
        let mut pair = Pair::new((backend, Crc::IfAsked));
        for _ in 0..20 {
            let mut node = Node::new(&config(backend, Crc::IfAsked));
            let mut rogue = Rogue::new(&mut node, false);
            let garbage: Vec<u8> = (0..4000).map(|_| draw()).collect();
            rogue.stream.write_all(&garbage).unwrap();
            for _ in 0..2000 {
                node.poll();
            }
        }
        let sink = pair.b.post_receive(1, 8);
        let source = pair.a.post_send(2, b"alive", None);
        pair.until(|a, b| a.is_done(2) && b.is_done(1));
        complete::sink(sink, &pair.b.done(1).unwrap()).unwrap();
        complete::source(source, &pair.a.done(2).unwrap()).unwrap();
    }
}
