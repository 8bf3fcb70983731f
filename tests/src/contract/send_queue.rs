//! Checks of the contract's lines 7 to 14: the send queue.

use haulage::provider::{
    ConnectionParams, Event, Operation, Outgoing, Provider, Sent, WorkQueue, WorkRequest,
};
use haulage::service::Data;
use haulage_mr_pool::Exposed;
use haulage_proto::verbs::{Access, Flags, Handle, Opcode, Segment, Status, WrId};

use super::connections::{ending, strand};
use crate::bed::{
    ACTIVE, Bed, Link, PARAMS, PASSIVE, SIGNALED, Said, UNSIGNALED, claim, fence, filled, spent,
};
use crate::by_number::ByNumber as _;
use crate::network::Network;
use crate::pattern;

/// `post` takes a prefix of the batch, in order, and leaves the rest; it never blocks.
pub fn line_07_post_takes_a_prefix<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let (_exposed, segment) =
        bed.ends[PASSIVE].expose(link[PASSIVE], &pattern::of(64, 1), Access::RemoteRead);
    let active = &mut bed.ends[ACTIVE];
    let depth = active.provider.caps().send_queue_max;
    let count = depth + 5;
    let mut posted = active.pool.lease(count).expect("memory").into_sink();
    // One octet each, so that no Read can be answered before the peer is polled.
    let one = Segment { length: 1, ..segment };
    let mut batch: WorkQueue = (0..count)
        .map(|at| {
            let sink = posted.sink(at..at + 1).expect("in the lease");
            let operation = Operation::Read { sink, source: claim(one) };
            WorkRequest { id: WrId(1000 + at as u64), flags: SIGNALED, operation }
        })
        .collect();
    let full = active.provider.post(link[ACTIVE], &mut batch);
    assert!(full.is_err() && batch.len() >= 5, "the queue holds {depth}, {} left", batch.len());
    let left: Vec<_> = batch.iter().map(|request| request.id.0).collect();
    let expected: Vec<_> = (0..count as u64).map(|at| 1000 + at).skip(count - left.len()).collect();
    assert_eq!(left, expected, "what is left is the end of the batch, in order");
    for id in (0..count as u64).map(|at| WrId(1000 + at)) {
        if !batch.is_empty() {
            // Room in the queue comes back with completions, not before.
            let _ = bed.ends[ACTIVE].provider.post(link[ACTIVE], &mut batch);
        }
        bed.succeeded(ACTIVE, id);
    }
}

/// Requests of one queue pair complete in the order they were posted.
pub fn line_08_requests_complete_in_the_order_posted<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let bytes = pattern::of(100_000, 2);
    let zeros = vec![0; bytes.len()];
    let (_read, readable) = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteRead);
    let (_write, writable) = bed.ends[PASSIVE].expose(link[PASSIVE], &zeros, Access::RemoteWrite);
    let _received: Vec<_> = (0..8).map(|_| bed.ends[PASSIVE].receive(link[PASSIVE], 8)).collect();
    let (active, qp) = (&mut bed.ends[ACTIVE], link[ACTIVE]);
    let mut posted = Vec::new();
    for _ in 0..4 {
        posted.push((active.read(qp, readable, SIGNALED).0, Opcode::Read));
        posted.push((active.send(qp, b"short", None, SIGNALED).0, Opcode::Send));
        posted.push((active.write(qp, &bytes, writable).0, Opcode::Write));
        let (exposed, _) = active.expose(qp, &bytes, Access::RemoteRead);
        posted.push((active.send(qp, b"again", None, SIGNALED).0, Opcode::Send));
        posted.push((active.invalidate(qp, &exposed), Opcode::LocalInv));
    }
    bed.until("all completions", |bed| (bed.ends[ACTIVE].log.len() >= posted.len()).then_some(()));
    let done: Vec<_> = bed.ends[ACTIVE].log.iter().filter_map(completed).collect();
    assert_eq!(done, posted);
}

/// Each signaled request yields exactly one completion; an unsignaled one only if it fails.
pub fn line_09_signaled_requests_complete_once<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let (_exposed, segment) =
        bed.ends[PASSIVE].expose(link[PASSIVE], b"fetch me", Access::RemoteRead);
    let _received: Vec<_> = (0..4).map(|_| bed.ends[PASSIVE].receive(link[PASSIVE], 8)).collect();
    let (active, qp) = (&mut bed.ends[ACTIVE], link[ACTIVE]);
    let mut signaled = Vec::new();
    for flags in [UNSIGNALED, SIGNALED, UNSIGNALED, SIGNALED] {
        let (read, _) = active.read(qp, segment, flags);
        let (send, _) = active.send(qp, b"message", None, flags);
        signaled.extend(flags.signaled.then_some([(read, Opcode::Read), (send, Opcode::Send)]));
    }
    bed.settle();
    let done: Vec<_> = bed.ends[ACTIVE].log.drain(..).filter_map(|e| completed(&e)).collect();
    assert_eq!(done, signaled.concat());

    // Failing requests: Reads that no peer answers.
    let bytes = b"out of reach";
    let (_exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], bytes, Access::RemoteRead);
    if bed.network.serves_unpolled() {
        bed.replace_passive();
    }
    let active = &mut bed.ends[ACTIVE];
    let reads = active.reads(qp, segment, &[UNSIGNALED, SIGNALED]);
    if !bed.network.serves_unpolled() {
        bed.replace_passive();
    }
    assert_eq!(ending(&mut bed, ACTIVE, qp).failed, reads, "failures are reported, each once");
}

/// Once one completion is flushed, every later one of that queue pair is, except Receives, which
/// return to the shared queue and are not reported.
pub fn line_10_after_one_flush_everything_is_flushed<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let sinks = [8, 8].map(|length| bed.ends[ACTIVE].receive(link[ACTIVE], length));
    let mut lost = strand(&mut bed, link, 4);
    // A message is reported only if it is taken.
    let message = bed.ends[ACTIVE].message(b"untold");
    let said = bed.ends[ACTIVE].say(link[ACTIVE], (6, None), message);
    lost.extend((said.sent == Sent::Taken).then_some(said.id));
    let (sent, _source) = bed.ends[ACTIVE].send(link[ACTIVE], b"behind", None, SIGNALED);
    // `ending` checks that every completion after a flushed one is flushed, and that none is a Receive's.
    let failed = ending(&mut bed, ACTIVE, link[ACTIVE]).failed;
    lost.push(sent);
    assert_eq!(failed, lost);

    // The Receives are still posted, for the next connection.
    let link = bed.connect();
    bed.ends[ACTIVE].provider.reserve_receives(link[ACTIVE], 2);
    for ((receive, sink), message) in sinks.into_iter().zip([b"one     ", b"two     "]) {
        bed.ends[PASSIVE].send(link[PASSIVE], message, None, SIGNALED);
        let done = bed.succeeded(ACTIVE, receive);
        assert_eq!(filled(sink, &done).bytes(), message);
    }
}

/// A completed Write's bytes are at rest before a later Send of the same queue pair is received.
pub fn line_11_a_write_is_at_rest_before_a_later_send<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let remote = bed.ends[PASSIVE].provider.caps().promises.remote_invalidation;
    for length in [0, 1, 4096, 1_500_003] {
        let (old, new) = (pattern::of(length, 3), pattern::of(length, 4));
        let (exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], &old, Access::RemoteWrite);
        let (receive, _sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
        let (active, qp) = (&mut bed.ends[ACTIVE], link[ACTIVE]);
        let (wrote, written) = active.write(qp, &new, segment);
        let handle = remote.then_some(segment.handle);
        let (sent, told) = active.send(qp, b"look now", handle, SIGNALED);
        let mut done = bed.succeeded(PASSIVE, receive);
        if !remote {
            let retired = bed.ends[PASSIVE].invalidate(link[PASSIVE], &exposed);
            done = bed.succeeded(PASSIVE, retired);
        }
        counted(&bed, &exposed, length);
        assert!(fence(exposed, &done).bytes() == new, "a Write of {length} octets came late");
        spent(written, &bed.succeeded(ACTIVE, wrote));
        spent(told, &bed.succeeded(ACTIVE, sent));
    }
    if remote {
        behind(&mut bed, link);
    }
}

/// Checks the count of octets placed in a lease by a single Write: `length` where `counts_placed` of Promises is set,
/// zero elsewhere.
fn counted<N: Network>(bed: &Bed<N>, exposed: &Exposed, length: usize) {
    let counts = bed.ends[PASSIVE].provider.caps().promises.counts_placed;
    let expected = if counts { u32::try_from(length).expect("a short Write") } else { 0 };
    assert_eq!(exposed.placed(), expected, "a Write of {length} octets");
}

/// Checks line 11 for Writes that go ahead of a message, which invalidates.
fn behind<N: Network>(bed: &mut Bed<N>, link: Link) {
    for length in [0, 1, 4096, 40_000, 300_001] {
        let (old, new) = (pattern::of(length, 5), pattern::of(length, 6));
        let (exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], &old, Access::RemoteWrite);
        let (receive, _sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
        let (active, qp) = (&mut bed.ends[ACTIVE], link[ACTIVE]);
        let data = Data::Local(active.holding(&new));
        let message = active.message(b"look now").behind(data, segment);
        let said = active.say(qp, (8, Some(segment.handle)), message);
        assert_eq!(active.provider.post(qp, &mut WorkQueue::new()), Ok(()));
        let done = bed.succeeded(PASSIVE, receive);
        counted(bed, &exposed, length);
        assert!(fence(exposed, &done).bytes() == new, "a Write of {length} octets came late");
        bed.left(ACTIVE, said);
    }
}

/// Reads beyond the granted ORD wait in the send queue; the peer never sees more.
pub fn line_12_reads_beyond_the_ord_wait<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    // The peer serves two Reads at once and ends the connection over a third.
    let serves_two = ConnectionParams { ird: 2, ..PARAMS };
    let (link, granted) = bed.connect_with(&PARAMS, &serves_two);
    if bed.ends[ACTIVE].provider.caps().promises.grants_reads {
        assert_eq!(granted[ACTIVE].0, 2);
    } else {
        eprintln!("skipped: what the passive end grants; `grants_reads` of Caps is false");
    }
    let bytes = pattern::of(300_000, 5);
    let (_exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteRead);
    let parts = (0..12).map(|part| Segment {
        handle: segment.handle,
        length: 25_000,
        offset: segment.offset + part * 25_000,
    });
    let reads: Vec<_> =
        parts.map(|part| bed.ends[ACTIVE].read(link[ACTIVE], part, SIGNALED)).collect();
    let mut found = Vec::new();
    for (id, sink) in reads {
        let done = bed.succeeded(ACTIVE, id);
        found.extend_from_slice(filled(sink, &done).bytes());
    }
    assert!(found == bytes, "the Reads fetched something else");
    bed.carry(link, ACTIVE, b"and the connection stands");
}

/// A fenced request does not start before earlier Reads of its queue pair completed.
pub fn line_13_a_fenced_request_waits_for_reads<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let bytes = pattern::of(4 << 20, 6);
    let (_exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteRead);
    let (received, _sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
    let (read, sink) = bed.ends[ACTIVE].read(link[ACTIVE], segment, SIGNALED);
    let flags = Flags { fence: true, ..SIGNALED };
    let (_, _source) = bed.ends[ACTIVE].send(link[ACTIVE], b"after it", None, flags);
    bed.succeeded(PASSIVE, received);
    // The peer is not polled any more and time stands still, so a Read that had not completed when
    // the Send started could not complete now: 4 MiB fit into no socket's buffer.
    let now = bed.network.now();
    for _ in 0..100 {
        bed.ends[ACTIVE].poll(now, 64);
    }
    let done = bed.ends[ACTIVE].done(read).expect("the Read completed before the Send started");
    assert!(filled(sink, &done).bytes() == bytes);
}

/// A copied Send's source may be reused as soon as `post` returns, and a message that was copied at once.
pub fn line_14_a_copied_source_is_free_at_once<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let (received, sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
    let flags = Flags { copied: true, ..SIGNALED };
    let (sent, source) = bed.ends[ACTIVE].send(link[ACTIVE], b"original", None, flags);
    let done = bed.succeeded(PASSIVE, received);
    assert_eq!(filled(sink, &done).bytes(), b"original");
    spent(source, &bed.succeeded(ACTIVE, sent));
    messages(&mut bed, link);
}

/// Sends messages, in order with posted requests, and with one doorbell.
fn messages<N: Network>(bed: &mut Bed<N>, link: Link) {
    let qp = link[ACTIVE];
    let receives: Vec<_> = (0..3).map(|_| bed.ends[PASSIVE].receive(link[PASSIVE], 8)).collect();
    let said = [*b"octets 0", *b"octets 1"].map(|octets| say(bed, link, &octets));
    let last = bed.ends[ACTIVE].send(qp, b"octets 2", None, SIGNALED);
    for (at, (received, sink)) in receives.into_iter().enumerate() {
        let done = bed.succeeded(PASSIVE, received);
        assert_eq!(filled(sink, &done).bytes(), format!("octets {at}").as_bytes());
    }
    said.into_iter().for_each(|said| bed.left(ACTIVE, said));
    spent(last.1, &bed.succeeded(ACTIVE, last.0));
    // An empty batch rings the doorbell too.
    let (received, sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
    let said = say(bed, link, b"alone...");
    assert_eq!(bed.ends[ACTIVE].provider.post(qp, &mut WorkQueue::new()), Ok(()));
    let done = bed.succeeded(PASSIVE, received);
    assert_eq!(filled(sink, &done).bytes(), b"alone...");
    bed.left(ACTIVE, said);
    // Nothing is written to a segment that goes around the end of all offsets, and the message leaves.
    let nowhere = Segment { handle: Handle(7), length: 2000, offset: u64::MAX - 9 };
    let (exposed, somewhere) =
        bed.ends[PASSIVE].expose(link[PASSIVE], &[0; 2000], Access::RemoteWrite);
    let places = [(somewhere, b"one goes"), (nowhere, b"nowhere.")];
    let receives = places.map(|_| bed.ends[PASSIVE].receive(link[PASSIVE], 8));
    let said = places.map(|(target, octets)| {
        let active = &mut bed.ends[ACTIVE];
        let data = Data::Local(active.holding(&[1; 2000]));
        let message = active.message(octets).behind(data, target);
        active.say(qp, (8, None), message)
    });
    assert_eq!(bed.ends[ACTIVE].provider.post(qp, &mut WorkQueue::new()), Ok(()));
    for ((id, sink), (_, octets)) in receives.into_iter().zip(places) {
        let done = bed.succeeded(PASSIVE, id);
        assert_eq!(filled(sink, &done).bytes(), octets);
    }
    // Each completion is that of its own message.
    said.into_iter().for_each(|said| bed.left(ACTIVE, said));
    let id = bed.ends[PASSIVE].invalidate(link[PASSIVE], &exposed);
    assert!(fence(exposed, &bed.succeeded(PASSIVE, id)).bytes() == [1; 2000]);
}

/// Sends a message, and writes over its octets if they were copied.
fn say<N: Network>(bed: &mut Bed<N>, link: Link, octets: &[u8]) -> Said {
    let active = &mut bed.ends[ACTIVE];
    let message = active.message(octets);
    let Said { id, message, sent } = active.say(link[ACTIVE], (octets.len(), None), message);
    if sent != Sent::Copied {
        return Said { id, message, sent };
    }
    let mut lease = message.into_own().expect("it was copied");
    lease.bytes_mut().fill(b'?');
    Said { id, message: Outgoing::within(lease), sent }
}

fn completed<L>(event: &Event<L>) -> Option<(WrId, Opcode)> {
    match event {
        Event::Completion(done) => {
            assert_eq!(done.status, Status::Success, "{done:?}");
            Some((done.id, done.opcode))
        }
        _ => None,
    }
}
