//! Data on a healthy connection.

use super::*;

#[test]
fn sends_of_every_size_arrive_whole() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 12 << 20);
        for (id, size) in (1..).zip(SIZES) {
            let contents = pattern(size);
            let sink = pair.b.post_receive(id, size);
            let source = pair.a.post_send(id, &contents, None);
            pair.until(|a, b| a.is_done(id) && b.is_done(id));
            let done = pair.b.done(id).unwrap();
            assert_eq!((done.opcode, done.status), (Opcode::Receive, Status::Success));
            assert_eq!((done.length as usize, done.qp), (size, pair.b.qp()));
            assert!(complete::sink(sink, &done).unwrap().bytes() == contents, "{variant:?} {size}");
            complete::source(source, &pair.a.done(id).unwrap()).unwrap();
        }
    }
}

#[test]
fn a_write_is_in_place_when_the_send_behind_it_retires_its_handle() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 12 << 20);
        for (id, size) in (1..).step_by(4).zip(SIZES) {
            let lease = pair.b.pool.lease(size).unwrap();
            let (exposed, segment) = pair.b.expose(lease, true);
            let sink = pair.b.post_receive(id + 1, 8);
            let contents = pattern(size);
            let written = pair.a.post_write(id + 2, &contents, segment);
            let sent = pair.a.post_send(id + 3, b"done", Some(segment.handle));
            pair.until(|a, b| a.is_done(id + 3) && b.is_done(id + 1));
            complete::source(written, &pair.a.done(id + 2).unwrap()).unwrap();
            complete::source(sent, &pair.a.done(id + 3).unwrap()).unwrap();
            let done = pair.b.done(id + 1).unwrap();
            assert_eq!(done.invalidated, Some(segment.handle));
            assert_eq!(complete::sink(sink, &done).unwrap().bytes()[..4], *b"done");
            let lease = exposed.fence(complete::invalidated(&done).unwrap()).unwrap();
            assert!(lease.bytes() == contents, "{variant:?} {size}");
        }
        assert_eq!(pair.b.nic.counters().invalidated_remote, SIZES.len() as u64);
        let total: usize = SIZES.iter().sum();
        assert_eq!(pair.b.nic.counters().tagged_received, total as u64);
        assert_eq!(pair.a.nic.counters().tagged_sent, total as u64);
    }
}

#[test]
fn reads_of_every_size_fetch_what_is_there() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 12 << 20);
        for (id, size) in (1..).step_by(3).zip(SIZES) {
            let contents = pattern(size);
            let (exposed, segment) = pair.b.expose(pair.b.lease(&contents), false);
            let sink = pair.a.post_read(id + 1, segment);
            pair.until(|a, _| a.is_done(id + 1));
            let done = pair.a.done(id + 1).unwrap();
            assert_eq!((done.opcode, done.status), (Opcode::Read, Status::Success));
            assert!(complete::sink(sink, &done).unwrap().bytes() == contents, "{variant:?} {size}");
            let handle = segment.handle;
            pair.b.post(id + 2, SIGNALED, Operation::LocalInv { handle });
            pair.until(|_, b| b.is_done(id + 2));
            let done = pair.b.done(id + 2).unwrap();
            assert_eq!(exposed.fence(complete::invalidated(&done).unwrap()).unwrap().len(), size);
        }
        assert_eq!(pair.b.nic.counters().invalidated_local, SIZES.len() as u64);
    }
}

#[test]
fn small_segments_carry_what_large_ones_do() {
    // A receiver must take any split, several FPDUs in one octet run and FPDUs cut anywhere; an MSS
    // of Ethernet's size makes many.
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 8 << 20);
        for node in [&mut pair.a, &mut pair.b] {
            let qp = node.qp();
            node.nic.slots.get(qp).unwrap().outflow().shrink_segments();
        }
        let contents = pattern(1_000_003);
        let lease = pair.b.pool.lease(contents.len()).unwrap();
        let (exposed, segment) = pair.b.expose(lease, true);
        let written = pair.a.post_write(2, &contents, segment);
        let sink = pair.b.post_receive(3, contents.len());
        let sent = pair.a.post_send(4, &contents, Some(segment.handle));
        let (readable, from) = pair.a.expose(pair.a.lease(&contents), false);
        let read = pair.b.post_read(6, from);
        pair.until(|a, b| a.is_done(4) && b.is_done(3) && b.is_done(6));
        complete::source(written, &pair.a.done(2).unwrap()).unwrap();
        complete::source(sent, &pair.a.done(4).unwrap()).unwrap();
        let done = pair.b.done(3).unwrap();
        assert!(complete::sink(sink, &done).unwrap().bytes() == contents);
        let lease = exposed.fence(complete::invalidated(&done).unwrap()).unwrap();
        assert!(lease.bytes() == contents);
        assert!(complete::sink(read, &pair.b.done(6).unwrap()).unwrap().bytes() == contents);
        drop(readable);
    }
}

#[test]
fn traffic_both_ways_at_once_never_blocks() {
    // More than the sockets hold in each direction, so that each end must read while it cannot send.
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 52 << 20);
        let contents = pattern(4 << 20);
        let mut posted = Vec::new();
        for id in 0..6 {
            posted.push(pair.b.post_receive(id, contents.len()));
            posted.push(pair.a.post_receive(id, contents.len()));
        }
        let mut sent = Vec::new();
        for id in 10..16 {
            sent.push(pair.a.post_send(id, &contents, None));
            sent.push(pair.b.post_send(id, &contents, None));
        }
        pair.until(|a, b| a.done.len() == 12 && b.done.len() == 12);
        for (at, sink) in posted.into_iter().enumerate() {
            let node = if at % 2 == 0 { &mut pair.b } else { &mut pair.a };
            let done = node.done(at as u64 / 2).unwrap();
            assert!(complete::sink(sink, &done).unwrap().bytes() == contents);
        }
        for (at, source) in sent.into_iter().enumerate() {
            let node = if at % 2 == 0 { &mut pair.a } else { &mut pair.b };
            complete::source(source, &node.done(10 + at as u64 / 2).unwrap()).unwrap();
        }
    }
}

#[test]
fn a_receive_fills_its_scatter_list_in_order() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 4 << 20);
        // The last part is large enough to be received into place.
        let parts = [3, 0, 70_000, 1 << 20];
        let mut posted = parts.map(|length| pair.b.pool.lease(length).unwrap().into_sink());
        let [first, rest @ ..] = posted.each_mut().map(|sink| sink.sink(0..sink.len()).unwrap());
        let receive = Receive { id: WrId(1), first, rest: Box::from(rest) };
        pair.b.nic.post_receives(&mut vec![receive]).unwrap();
        let contents = pattern(3 + 70_000 + 500_000);
        let source = pair.a.post_send(2, &contents, None);
        pair.until(|a, b| a.is_done(2) && b.is_done(1));
        let done = pair.b.done(1).unwrap();
        let parts = posted.map(|sink| complete::sink(sink, &done).unwrap());
        let joined: Vec<u8> = parts.iter().flat_map(|part| part.bytes()).copied().collect();
        assert!(joined[..contents.len()] == contents);
        complete::source(source, &pair.a.done(2).unwrap()).unwrap();
    }
}

#[test]
fn completions_come_in_the_order_of_the_posts() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 4 << 20);
        let contents = pattern(100_000);
        let (exposed, segment) = pair.b.expose(pair.b.lease(&contents), false);
        let mut received = Vec::new();
        let mut kept = (Vec::new(), Vec::new());
        for id in 0..10 {
            // Far more Reads than the 3 granted: the others wait, and so do the requests behind them.
            kept.0.push(pair.a.post_read(100 + 2 * id, segment));
            received.push(pair.b.post_receive(50 + id, 16));
            kept.1.push(pair.a.post_send(101 + 2 * id, b"behind a Read", None));
        }
        pair.until(|a, b| a.is_done(119) && b.is_done(59));
        let ids: Vec<u64> = pair.a.done.iter().map(|done| done.id.0).collect();
        assert_eq!(ids, (100..120).collect::<Vec<_>>());
        for (at, sink) in kept.0.into_iter().enumerate() {
            let done = pair.a.done(100 + 2 * at as u64).unwrap();
            assert!(complete::sink(sink, &done).unwrap().bytes() == contents);
        }
        for (at, source) in kept.1.into_iter().enumerate() {
            complete::source(source, &pair.a.done(101 + 2 * at as u64).unwrap()).unwrap();
        }
        drop((exposed, received));
    }
}

#[test]
fn a_read_that_was_answered_makes_room_for_the_next() {
    // Several answers leave in one batch, and the peer has the first of them before the last has left.
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 16 << 20);
        let contents = pattern(700_000);
        let (_exposed, segment) = pair.b.expose(pair.b.lease(&contents), false);
        let sinks: Vec<_> = (1..20).map(|id| pair.a.post_read(id, segment)).collect();
        pair.until(|a, b| a.is_done(19) || b.reason().is_some());
        assert_eq!(pair.b.reason(), None, "{variant:?}");
        for (id, sink) in (1..).zip(sinks) {
            let done = pair.a.done(id).unwrap();
            assert!(complete::sink(sink, &done).unwrap().bytes() == contents);
        }
    }
}

#[test]
fn a_read_that_found_no_registration_goes_on_when_another_connection_retires_one() {
    for (backend, crc) in VARIANTS.into_iter().step_by(2) {
        let config = Config { registrations_max: 1, ..config(backend, crc) };
        let mut pair = Pair::with(&config, SMALL);
        let first = pair.a.qp();
        let (_exposed, held) = pair.a.expose(pair.a.lease(&[7; 64]), true);
        pair.a.seen.clear();
        pair.b.seen.clear();
        pair.connect();
        let (_source, segment) = pair.b.expose(pair.b.lease(b"contents"), false);
        let sink = pair.a.post_read(1, segment);
        pair.idle();
        assert!(!pair.a.is_done(1), "the table is full");

        pair.a.qp = Some(first);
        pair.a.post(2, Flags::default(), Operation::LocalInv { handle: held.handle });
        let looked = pair.a.nic.counters().syscalls;
        pair.a.nic.sleep(Some(Duration::ZERO));
        assert_eq!(pair.a.nic.counters().syscalls, looked, "there is room now: no time to sleep");
        pair.until(|a, _| a.is_done(1));
        let done = pair.a.done(1).unwrap();
        assert_eq!(complete::sink(sink, &done).unwrap().bytes(), b"contents");
    }
}

#[test]
fn a_fenced_send_leaves_after_the_reads_before_it() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 5 << 20);
        let contents = pattern(2 << 20);
        let (exposed, segment) = pair.b.expose(pair.b.lease(&contents), false);
        let sink = pair.b.post_receive(1, 16);
        let read = pair.a.post_read(2, segment);
        let posted = pair.a.lease(b"fenced").into_source();
        let source = posted.source(0..6).unwrap();
        let fenced = Flags { fence: true, ..SIGNALED };
        pair.a.post(3, fenced, Operation::Send { source, invalidate: None });
        for _ in 0..POLLS_MAX {
            if pair.b.is_done(1) {
                break;
            }
            pair.a.poll();
            assert!(!pair.b.is_done(1));
            pair.b.poll();
            assert!(!pair.b.is_done(1) || pair.a.is_done(2), "the Read is complete first");
        }
        pair.until(|a, b| a.is_done(3) && b.is_done(1));
        complete::sink(read, &pair.a.done(2).unwrap()).unwrap();
        complete::source(posted, &pair.a.done(3).unwrap()).unwrap();
        complete::sink(sink, &pair.b.done(1).unwrap()).unwrap();
        drop(exposed);
    }
}

#[test]
fn a_copied_source_is_free_as_soon_as_it_is_posted() {
    let mut pair = Pair::roomy(VARIANTS[0], 18 << 20);
    // So much output is ahead of the copied messages that they cannot leave at once.
    let ahead = pair.a.post_send(1, &pattern(8 << 20), None);
    let flags = Flags { copied: true, ..Flags::default() };
    for id in 2..12_u8 {
        let posted = pair.a.lease(&[id; 600]).into_source();
        let source = posted.source(0..600).unwrap();
        let send = Operation::Send { source, invalidate: None };
        // A request whose source is not copied follows in the same batch.
        let (_exposed, segment) = pair.a.expose(pair.a.lease(b"other"), true);
        let other = Operation::LocalInv { handle: segment.handle };
        let mut batch: WorkQueue = [(flags, send), (Flags::default(), other)]
            .map(|(flags, operation)| WorkRequest { id: WrId(u64::from(id)), flags, operation })
            .into();
        let qp = pair.a.qp();
        pair.a.nic.post(qp, &mut batch).unwrap();
        let queue = pair.a.nic.slots.get(qp).unwrap().outflow().queue().unwrap();
        assert!(
            !queue.entries.iter().skip(1).any(transmit_queue::Entry::is_leased),
            "no view of the source is left"
        );
    }
    let length = |id| if id == 1 { 8 << 20 } else { 600 };
    let sinks: Vec<_> = (1..12).map(|id| pair.b.post_receive(id, length(id))).collect();
    pair.until(|_, b| b.is_done(11));
    for (id, sink) in (1..).zip(sinks) {
        let done = pair.b.done(id).unwrap();
        let lease = complete::sink(sink, &done).unwrap();
        if id > 1 {
            assert_eq!(lease.bytes()[..600], [id as u8; 600]);
        }
    }
    complete::source(ahead, &pair.a.done(1).unwrap()).unwrap();
    assert_eq!(pair.a.done.len(), 0, "unsignaled requests that succeed are not reported");
}

#[test]
fn a_send_that_finds_no_receive_waits_and_hurts_nobody() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 8 << 20);
        let contents = pattern(300_000);
        let sent: Vec<_> = (0..20).map(|id| pair.a.post_send(id, &contents, None)).collect();
        pair.idle();
        assert!(pair.b.done.is_empty());
        assert_eq!(pair.a.reason(), None);
        // A second connection of the same RNIC is served meanwhile, Writes and Reads included.
        let mut third = Node::with_memory(&config(variant.0, variant.1), 1 << 20);
        let (_, at) = pair.b.nic.listen(LOCAL).unwrap();
        let params = ConnectionParams { private_data: b"", ord: 4, ird: 4 };
        third.nic.connect(Instant::ZERO, at, &params).unwrap();
        let first = pair.b.qp();
        let mut polls = 0;
        while !third.is_open() {
            third.poll();
            pair.b.poll();
            if pair.b.qp() != first {
                pair.b.nic.accept(Instant::ZERO, pair.b.qp(), &params);
            }
            polls += 1;
            assert!(polls < POLLS_MAX);
        }
        let lease = pair.b.pool.lease(contents.len()).unwrap();
        let (exposed, segment) = pair.b.expose(lease, true);
        let written = third.post_write(901, &contents, segment);
        while !third.is_done(901) || pair.b.nic.counters().tagged_received < 300_000 {
            third.poll();
            pair.b.poll();
        }
        complete::source(written, &third.done(901).unwrap()).unwrap();
        drop(exposed);
        // Now the Receives come, two at a time.
        for id in (0..20).step_by(2) {
            let sinks = [id, id + 1].map(|id| pair.b.post_receive(id, contents.len()));
            pair.until(|_, b| b.is_done(id + 1));
            for (id, sink) in (id..).zip(sinks) {
                let done = pair.b.done(id).unwrap();
                assert!(complete::sink(sink, &done).unwrap().bytes() == contents);
            }
        }
        pair.until(|a, _| a.is_done(19));
        for (id, source) in (0..).zip(sent) {
            complete::source(source, &pair.a.done(id).unwrap()).unwrap();
        }
        assert!(pair.b.nic.wire_counters().starvations > 0);
    }
}

#[test]
fn the_passive_end_may_send_first() {
    for variant in VARIANTS {
        let mut pair = Pair::new(variant);
        let sink = pair.a.post_receive(1, 8);
        let source = pair.b.post_send(2, b"first", None);
        pair.until(|a, b| a.is_done(1) && b.is_done(2));
        assert_eq!(&complete::sink(sink, &pair.a.done(1).unwrap()).unwrap().bytes()[..5], b"first");
        complete::source(source, &pair.b.done(2).unwrap()).unwrap();
    }
}

#[test]
fn a_full_send_queue_takes_a_prefix() {
    let limited = Config { send_queue_max: 3, ..config(Backend::Sockets, Crc::IfAsked) };
    let mut pair = Pair::with(&limited, 26 << 20);
    let contents = pattern(8 << 20);
    let ahead = pair.a.post_send(0, &contents, None);
    let posted = pair.a.lease(&contents[..64]).into_source();
    let request = |id| WorkRequest {
        id: WrId(id),
        flags: SIGNALED,
        operation: Operation::Send { source: posted.source(0..64).unwrap(), invalidate: None },
    };
    let mut batch: WorkQueue = (1..6).map(request).collect();
    let qp = pair.a.qp();
    assert_eq!(pair.a.nic.post(qp, &mut batch), Err(QueueFull));
    let left: Vec<u64> = batch.iter().map(|request| request.id.0).collect();
    assert_eq!(left, [3, 4, 5]);
    let mut sinks: Vec<_> = (0..3).map(|id| pair.b.post_receive(id, 8 << 20)).collect();
    pair.until(|a, _| a.is_done(2));
    assert_eq!(pair.a.nic.post(qp, &mut batch), Ok(()));
    sinks.extend((3..6).map(|id| pair.b.post_receive(id, 64)));
    pair.until(|a, b| a.is_done(5) && b.is_done(5));
    complete::source(ahead, &pair.a.done(0).unwrap()).unwrap();
    complete::source(posted, &pair.a.done(5).unwrap()).unwrap();
}

#[test]
fn large_payload_arrives_without_a_copy_of_ours() {
    for variant in VARIANTS {
        let mut pair = Pair::roomy(variant, 40 << 20);
        let contents = pattern(4 << 20);
        let lease = pair.b.pool.lease(contents.len()).unwrap();
        let (exposed, segment) = pair.b.expose(lease, true);
        let before = pair.b.nic.counters();
        let mut written = Vec::new();
        for id in 1..9 {
            written.push(pair.a.post_write(id, &contents, segment));
            pair.until(|a, _| a.is_done(id));
        }
        let total = 8 * contents.len() as u64;
        pair.until(|_, b| b.nic.counters().tagged_received - before.tagged_received == total);
        let after = pair.b.nic.counters();
        assert_eq!(after.bytes_copied + after.bytes_direct, total, "{variant:?}");
        assert!(after.bytes_direct > total / 2, "{variant:?}: {} direct", after.bytes_direct);
        for (id, source) in (1..).zip(written) {
            complete::source(source, &pair.a.done(id).unwrap()).unwrap();
        }
        drop(exposed);
    }
}

#[test]
fn sleep_ends_with_an_arrival_a_wake_up_or_its_limit() {
    for variant in VARIANTS {
        let mut pair = Pair::new(variant);
        pair.idle();
        // The limit ends the sleep. An earlier wake-up, if any, is spent by the first sleep.
        pair.b.nic.sleep(Some(Duration::from_millis(1)));
        pair.b.poll();
        pair.b.nic.sleep(Some(Duration::from_millis(1)));
        // A wake-up ends the sleep, even if a poll comes between them.
        let waker = pair.b.nic.waker();
        waker.wake();
        pair.b.nic.sleep(None);
        pair.b.poll();
        waker.wake();
        pair.b.poll();
        pair.b.nic.sleep(None);
        pair.b.poll();
        // Each arrival ends the sleep; later ones find the connection hot.
        for id in 1..8 {
            let sink = pair.b.post_receive(id, 8);
            let source = pair.a.post_send(id, b"wake up", None);
            for _ in 0..POLLS_MAX {
                pair.b.nic.sleep(None);
                pair.b.poll();
                if pair.b.is_done(id) {
                    break;
                }
            }
            complete::sink(sink, &pair.b.done(id).unwrap()).unwrap();
            pair.until(|a, _| a.is_done(id));
            complete::source(source, &pair.a.done(id).unwrap()).unwrap();
        }
    }
}

#[test]
fn many_connections_are_served_by_turns_and_cost_little_when_idle() {
    for variant in VARIANTS {
        let config = Config { receive_buffers: 4, ..config(variant.0, variant.1) };
        let node = || Node::with_memory(&config, 16 << 20);
        let mut pair = Pair { a: node(), b: node() };
        let (_, at) = pair.b.nic.listen(LOCAL).unwrap();
        let params = ConnectionParams { private_data: b"", ord: 4, ird: 4 };
        for count in 1..=CONNECTIONS {
            pair.a.nic.connect(Instant::ZERO, at, &params).unwrap();
            pair.until(|_, b| {
                b.seen.iter().filter(|seen| matches!(seen, Seen::Request(_))).count() == count
            });
            let qp = pair.b.qp();
            pair.b.nic.accept(Instant::ZERO, qp, &params);
            pair.until(|a, b| a.open.len() == count && b.open.len() == count);
        }
        // Two rounds: all at once, more than the ring has buffers for; then a few that are busy.
        let contents = pattern(60_000);
        let message = |at: usize| &contents[..1 + at * 7919 % contents.len()];
        let everyone: Vec<usize> = (0..CONNECTIONS).collect();
        let few: Vec<usize> = (0..CONNECTIONS).map(|i| i % 3).collect();
        for active in [everyone, few] {
            let sinks: Vec<_> =
                (0..CONNECTIONS).map(|id| pair.b.post_receive(id as u64, contents.len())).collect();
            let mut sent = Vec::new();
            for (id, &at) in active.iter().enumerate() {
                pair.a.qp = Some(pair.a.open[at]);
                sent.push(pair.a.post_send(id as u64, message(id), None));
            }
            pair.until(|a, b| a.done.len() == CONNECTIONS && b.done.len() == CONNECTIONS);
            let mut lengths = Vec::new();
            for (id, sink) in sinks.into_iter().enumerate() {
                let done = pair.b.done(id as u64).unwrap();
                let length = done.length as usize;
                assert!(
                    complete::sink(sink, &done).unwrap().bytes()[..length] == contents[..length]
                );
                lengths.push(length);
            }
            lengths.sort_unstable();
            let mut expected: Vec<_> = (0..CONNECTIONS).map(|id| message(id).len()).collect();
            expected.sort_unstable();
            assert_eq!(lengths, expected);
            for (id, source) in sent.into_iter().enumerate() {
                complete::source(source, &pair.a.done(id as u64).unwrap());
            }
        }
        assert!(pair.a.reason().is_none() && pair.b.reason().is_none());
        for node in [&mut pair.a, &mut pair.b] {
            for qp in std::mem::take(&mut node.open) {
                let connection = node.nic.slots.get(qp).unwrap();
                let has_queue = connection.outflow().queue().is_some();
                assert_eq!((has_queue, connection.inflow().backlog_capacity()), (false, 0));
            }
        }
    }
}

const CONNECTIONS: usize = 120;

#[test]
fn with_crcs_the_first_octets_leave_before_the_last_are_sealed() {
    let mut pair = Pair::roomy((Backend::Sockets, Crc::Connecting), 8 << 20);
    let contents = pattern(512 << 10);
    let lease = pair.b.pool.lease(contents.len()).unwrap();
    let (exposed, segment) = pair.b.expose(lease, true);
    let before = pair.a.nic.counters().syscalls;
    let written = pair.a.post_write(1, &contents, segment);
    // One system call asks for the segment size, and three send batches.
    assert!(pair.a.nic.counters().syscalls - before > 3);
    pair.until(|a, _| a.is_done(1));
    complete::source(written, &pair.a.done(1).unwrap()).unwrap();
    drop(exposed);
}

#[test]
fn after_a_long_message_less_is_read_ahead() {
    let mut pair = Pair::roomy((Backend::Sockets, Crc::IfAsked), 8 << 20);
    let lease = pair.b.pool.lease(1 << 20).unwrap();
    let (exposed, segment) = pair.b.expose(lease, true);
    let qp = pair.b.qp();
    for (id, length, long) in [(1, 1 << 20, true), (2, 4096, false), (3, 64 << 10, true)] {
        let part = Segment { length: u32::try_from(length).unwrap(), ..segment };
        let written = pair.a.post_write(id, &pattern(length), part);
        pair.until(|a, b| {
            let [sent, received] = [a, b].map(|node| node.nic.wire_counters());
            a.is_done(id) && received.fpdus_received == sent.fpdus_sent
        });
        assert_eq!(pair.b.nic.slots.get(qp).unwrap().inflow().expects_bulk(), long, "{length}");
        complete::source(written, &pair.a.done(id).unwrap()).unwrap();
    }
    drop(exposed);
}
