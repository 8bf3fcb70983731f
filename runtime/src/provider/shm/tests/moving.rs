use super::endings::in_use;
use super::*;
use crate::outgoing::Data;
use crate::provider::{Head, Outgoing, Port, Refused, Run, Sent};

#[test]
fn bulk_data_is_copied_once_and_counted_once() {
    let (mut active, mut passive) = pair();
    for length in [0, 1, 4096, 100_000] {
        let bytes: Vec<u8> = (0..length).map(|at| u8::try_from(at % 251).unwrap()).collect();
        let (exposed, segment) = active.expose(&vec![0; length], Access::RemoteWrite);
        let (readable, source) = active.expose(&bytes, Access::RemoteRead);
        let before = [active.nic.counters(), passive.nic.counters()];
        let (wrote, written) = passive.write(&bytes, segment);
        let done = passive.succeeded(wrote, Opcode::Write);
        complete::source(written, &done).unwrap();
        let (posted, sink) = passive.sink(length);
        let read = passive.post(Operation::Read { sink, source: claim(source) });
        let done = passive.succeeded(read, Opcode::Read);
        assert_eq!(complete::sink(posted, &done).unwrap().bytes(), bytes);
        let after = [active.nic.counters(), passive.nic.counters()];
        let length = length as u64;
        assert_eq!(after[0].bytes_copied, before[0].bytes_copied);
        assert_eq!(after[1].bytes_copied - before[1].bytes_copied, 2 * length);
        assert_eq!(after[1].tagged_sent - before[1].tagged_sent, length);
        assert_eq!(after[1].tagged_received - before[1].tagged_received, length);
        for (exposed, handle) in [(exposed, segment.handle), (readable, source.handle)] {
            let retired = active.post(Operation::LocalInv { handle });
            let done = active.succeeded(retired, Opcode::LocalInv);
            let proof = complete::invalidated(&done).unwrap();
            assert!(exposed.fence(proof).unwrap().bytes() == bytes);
        }
    }
}

#[test]
fn a_long_transfer_gives_others_their_turn() {
    let (mut active, mut passive) =
        (Node::with(&config(), 32 << 20), Node::with(&config(), 32 << 20));
    connect(&mut active, &mut passive);
    let bytes: Vec<u8> = (0..9 << 20).map(|at: u32| u8::try_from(at % 253).unwrap()).collect();
    let (exposed, segment) = active.expose(&bytes, Access::RemoteRead);
    let (posted, sink) = passive.sink(bytes.len());
    let read = passive.post(Operation::Read { sink, source: claim(segment) });
    passive.poll();
    assert_eq!(passive.seen, [], "9 MiB are not copied in one call");
    let done = passive.succeeded(read, Opcode::Read);
    assert!(complete::sink(posted, &done).unwrap().bytes() == bytes);
    drop(exposed);
    // A Write begins as it is posted, and continues in later polls.
    let (target, segment) = active.expose(&vec![0; bytes.len()], Access::RemoteWrite);
    let (wrote, written) = passive.write(&bytes, segment);
    let done = passive.succeeded(wrote, Opcode::Write);
    complete::source(written, &done).unwrap();
    let retired = active.post(Operation::LocalInv { handle: segment.handle });
    let done = active.succeeded(retired, Opcode::LocalInv);
    let proof = complete::invalidated(&done).unwrap();
    assert!(target.fence(proof).unwrap().bytes() == bytes);
}

/// Reads the memory that the peer opened, for each of its messages, and answers behind a Write if there is time.
struct Copier {
    source: ClaimedSegment,
    octets: Vec<u8>,
    /// A message behind a Write of these octets.
    message: Outgoing,
    written: usize,
    /// The expected contents.
    bytes: Vec<u8>,
}

impl MessageSink for Copier {
    fn messages(&mut self, _: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize {
        let Self { source, octets, message, written, bytes } = self;
        let takes = |_: &&&[u8]| {
            octets.fill(0);
            let read = port.read(source, octets);
            assert_eq!(octets == bytes, read.is_ok());
            assert!(matches!(read, Ok(()) | Err(Refused::NotNow)), "{read:?}");
            let sent = port.send(&Head::written(0..4, None), message, WrId(0));
            assert!(matches!(sent, Sent::Copied | Sent::Full), "{sent:?}");
            *written += usize::from(sent == Sent::Copied);
            read.is_ok()
        };
        run.octets.iter().take_while(takes).count()
    }
}

#[test]
fn what_is_copied_as_messages_are_taken_gives_others_their_turn() {
    let (mut active, mut passive) =
        (Node::with(&config(), 32 << 20), Node::with(&config(), 32 << 20));
    connect(&mut active, &mut passive);
    for (length, written) in [(3 << 20, 0), (2 << 20, 3)] {
        let bytes: Vec<u8> = (0..length).map(|at: u32| u8::try_from(at % 253).unwrap()).collect();
        let (_readable, source) = active.expose(&bytes, Access::RemoteRead);
        let (target, segment) = active.expose(&vec![0; bytes.len()], Access::RemoteWrite);
        let _sent = [(); 3].map(|()| active.send(b"copy", None));
        let source = claim(source);
        let octets = vec![0; bytes.len()];
        let mut lease = passive.pool.lease(bytes.len()).unwrap();
        lease.bytes_mut().copy_from_slice(&bytes);
        let message = Outgoing::within(passive.pool.lease(4).unwrap());
        let message = message.behind(Data::Local(lease), segment);
        let mut copier = Copier { source, octets, message, written: 0, bytes };
        let received = passive.receive(4);
        for _ in 0..3 {
            let taken = passive.nic.receive_in_place(&mut [0; 64], 64, 64, &mut copier);
            assert_eq!(taken, 1, "4 MiB are copied in one call");
            passive.poll();
            assert_eq!(passive.seen, [], "what is left comes in no Receive");
        }
        assert_eq!(copier.written, written);
        let retired = active.post(Operation::LocalInv { handle: segment.handle });
        let done = active.succeeded(retired, Opcode::LocalInv);
        let target = target.fence(complete::invalidated(&done).unwrap()).unwrap();
        assert_eq!(target.bytes() == copier.bytes, written > 0);
        // The Receive is for the next message.
        let _last = active.send(b"last", None);
        passive.succeeded(received.0, Opcode::Receive);
    }
}

/// Takes messages, and for the first opens a lease and retires a handle.
struct Opener {
    lease: Option<Local>,
    opened: Option<OpenResult>,
    handle: Handle,
    retired: Option<Done>,
}

impl MessageSink for Opener {
    fn messages(&mut self, _: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize {
        if let Some(lease) = self.lease.take() {
            self.opened = Some(port.open(lease, Access::RemoteRead));
            self.retired = port.retire(self.handle);
        }
        run.octets.len()
    }
}

#[test]
fn a_lease_is_opened_though_an_earlier_request_waits() {
    let (mut active, mut passive) = pair();
    let (_exposed, segment) = active.expose(b"in use", Access::RemoteRead);
    let (_other, free) = active.expose(b"not in use", Access::RemoteRead);
    in_use(&mut active, segment.handle).store(1, Ordering::SeqCst);
    active.post(Operation::LocalInv { handle: segment.handle });
    active.poll();
    let _sent = passive.send(b"message", None);
    let lease = Some(active.holding(b"opened"));
    let mut opener = Opener { lease, opened: None, handle: free.handle, retired: None };
    assert_eq!(active.nic.receive_in_place(&mut [0; 16], 16, 1, &mut opener), 1);
    let (_opened, segment) = opener.opened.expect("the message came").expect("a handle");
    assert!(opener.retired.is_none(), "the request that waits goes first");
    let (posted, sink) = passive.sink(6);
    let read = passive.post(Operation::Read { sink, source: claim(segment) });
    let done = passive.succeeded(read, Opcode::Read);
    assert_eq!(complete::sink(posted, &done).unwrap().bytes(), b"opened");
}

#[test]
fn a_port_reads_short_chunks_at_once_while_no_messages_are_taken() {
    let (mut active, mut passive) = pair();
    let (_exposed, segment) = active.expose(b"octets", Access::RemoteRead);
    let mut octets = [0; 6];
    let qp = passive.qp();
    passive.nic.port(qp).unwrap().read(&claim(segment), &mut octets).unwrap();
    assert_eq!(&octets, b"octets");
    let (_written, closed) = active.expose(b"closed", Access::RemoteWrite);
    let refused = passive.nic.port(qp).unwrap().read(&claim(closed), &mut octets);
    assert_eq!((refused, &octets), (Err(Refused::NotOpen), b"octets"));
}

#[test]
fn a_message_longer_than_the_ring_travels_in_parts() {
    let small = Config { ring_bytes: 4096, ..config() };
    let (mut active, mut passive) = (Node::with(&small, 4 << 20), Node::with(&small, 4 << 20));
    connect(&mut active, &mut passive);
    for length in [1016, 1017, 4096, 50_000] {
        let bytes: Vec<u8> = (0..length).map(|at: u32| u8::try_from(at % 249).unwrap()).collect();
        let (received, sink) = passive.receive(50_000);
        let (sent, source) = active.send(&bytes, None);
        for _ in 0..A_WHILE {
            active.poll();
            passive.poll();
        }
        let done = passive.succeeded(received, Opcode::Receive);
        assert_eq!(done.length, length);
        let found = complete::sink(sink, &done).unwrap();
        assert!(found.bytes()[..bytes.len()] == bytes);
        let done = active.succeeded(sent, Opcode::Send);
        complete::source(source, &done).unwrap();
    }
}

#[test]
fn a_copied_send_that_waits_for_room_keeps_what_it_was_posted_with() {
    let small = Config { ring_bytes: 4096, ..config() };
    let (mut active, mut passive) = (Node::with(&small, 4 << 20), Node::with(&small, 4 << 20));
    connect(&mut active, &mut passive);
    let flags = Flags { copied: true, ..SIGNALED };
    for number in 0..100_u8 {
        // One lease, changed as soon as `post` returns.
        let (posted, source) = active.source(&[number; 100]);
        let operation = Operation::Send { source, invalidate: None };
        let request = WorkRequest { id: WrId(1000), flags, operation };
        active.nic.post(active.qp(), &mut WorkQueue::from([request])).unwrap();
        let mut lease = posted.complete().expect("no view is left");
        lease.bytes_mut().fill(0xff);
    }
    assert!(active.outflow().pending() > 0, "not all of them fit");
    for number in 0..100 {
        let (received, sink) = passive.receive(100);
        active.poll();
        let done = passive.succeeded(received, Opcode::Receive);
        assert_eq!(complete::sink(sink, &done).unwrap().bytes(), [number; 100]);
    }
}

#[test]
fn a_peer_that_is_awake_costs_no_system_call() {
    let (mut active, mut passive) = pair();
    carry(&mut active, &mut passive);
    let before = [active.nic.counters().syscalls, passive.nic.counters().syscalls];
    let tick = Duration::from_nanos(500);
    let turn = |node: &mut Node, came: &mut usize| {
        node.now = node.now.saturating_add(tick);
        let mut events = Vec::new();
        node.nic.poll(node.now, 64, &mut events);
        *came += events.len();
    };
    for _ in 0..4000 {
        let mut came = 0;
        passive.receive(8);
        let (_, _source) = active.send(b"message", None);
        turn(&mut active, &mut came);
        turn(&mut passive, &mut came);
        assert_eq!(came, 2, "a Send and a Receive");
    }
    assert_eq!(active.nic.counters().syscalls, before[0]);
    assert_eq!(passive.nic.counters().syscalls, before[1]);
    assert_eq!(active.nic.link_counters().doorbells, 0);
}

#[test]
fn a_peer_that_sleeps_is_rung_for_once() {
    let (mut active, mut passive) = pair();
    let received: Vec<_> = (0..3).map(|_| passive.receive(8)).collect();
    passive.nic.sleep(Some(Duration::ZERO));
    let before = active.nic.counters().syscalls;
    for _ in 0..3 {
        active.send(b"message", None);
    }
    assert_eq!(active.nic.link_counters().doorbells, 1);
    assert_eq!(active.nic.counters().syscalls, before + 1);
    // The peer's doorbell wakes it, and it reads the ring.
    passive.nic.sleep(None);
    for (id, _sink) in received {
        passive.succeeded(id, Opcode::Receive);
    }
    active.send(b"message", None);
    assert_eq!(active.nic.link_counters().doorbells, 1, "it is awake");
}

#[test]
fn who_slept_without_a_receive_takes_what_waits_for_one() {
    let (mut active, mut passive) = pair();
    active.send(b"the only one", None);
    passive.poll();
    passive.nic.sleep(Some(Duration::ZERO));
    passive.nic.sleep(Some(Duration::ZERO));
    passive.nothing_happens();
    let (received, _sink) = passive.receive(16);
    passive.succeeded(received, Opcode::Receive);
    assert_eq!(active.nic.link_counters().doorbells, 0);
}

#[test]
fn among_many_the_silent_are_rung_for() {
    let wide = Config { receive_queue_max: 1024, ..config() };
    let (mut active, mut passive) = (Node::with(&wide, 4 << 20), Node::with(&wide, 4 << 20));
    let mut links = Vec::new();
    for _ in 0..=HOT_MAX {
        connect(&mut active, &mut passive);
        links.push((active.qp(), passive.qp()));
    }
    (0..A_WHILE).for_each(|_| passive.poll());
    let silent = links.len() - passive.nic.hot.len();
    assert!(silent > 0, "nobody has said anything for long");
    for &(from, to) in &links {
        (active.qp, passive.qp) = (Some(from), Some(to));
        carry(&mut active, &mut passive);
    }
    assert!(active.nic.link_counters().doorbells >= silent as u64);
}

/// Answers messages, and sends the first if `starts`, until there were `rounds`; sleeps whenever there is none.
fn play(node: &mut Node, starts: bool, rounds: u32) {
    let mut events = Vec::new();
    if starts {
        let (_, _source) = node.send(b"over to you", None);
    }
    node.receive(16);
    let mut heard = 0;
    while heard < rounds {
        node.now = clock::now();
        node.nic.poll(node.now, 64, &mut events);
        let received = |event: &Event<_>| matches!(event, Event::Completion(done) if done.opcode == Opcode::Receive);
        if events.drain(..).filter(received).count() == 0 {
            node.nic.sleep(Some(HANG));
            let slept = clock::now().saturating_since(node.now);
            assert!(slept < HANG, "a doorbell was not rung");
            continue;
        }
        heard += 1;
        node.receive(16);
        if !starts || heard < rounds {
            let (_, _source) = node.send(b"and back to you", None);
        }
    }
}

#[test]
fn no_doorbell_is_missed_by_two_threads_that_sleep() {
    let port = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|threads| {
        let port = &port;
        threads.spawn(move || {
            let mut node = Node::by_the_clock();
            port.store(u32::from(node.listen()), Ordering::Release);
            node.accept();
            play(&mut node, false, ROUNDS);
        });
        let mut node = Node::by_the_clock();
        while port.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let port = u16::try_from(port.load(Ordering::Acquire)).unwrap();
        node.nic.connect(node.now, SocketAddr::new(LOCAL.ip(), port), &PARAMS).unwrap();
        node.until(&Seen::Established);
        play(&mut node, true, ROUNDS);
        assert!(node.nic.link_counters().doorbells > 0, "the other one never slept");
    });
}

const ROUNDS: u32 = 5000;
