//! Properties of the simulated fabric beyond the contract of every provider.

use std::time::Duration;

use haulage::provider::sim::FabricConfig;
use haulage::provider::{
    ConnectError, ConnectionParams, DisconnectReason, Event, Operation, Provider, WorkQueue,
    WorkRequest,
};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{Access, Opcode, QpNum, Segment, Status};
use haulage_tests::bed::{ACTIVE, Bed, Link, PARAMS, PASSIVE, SIGNALED, claim};
use haulage_tests::by_number::ByNumber as _;
use haulage_tests::network::{Network, Virtual};
use haulage_tests::pattern;

#[test]
fn a_seed_repeats_a_run_to_the_nanosecond() {
    let run = |seed| {
        let mut bed = bed(FabricConfig { seed, ..FabricConfig::default() });
        let links = [bed.connect(), bed.connect()];
        let bytes = pattern::of(1000, 1);
        for link in links {
            let grant = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteRead);
            let _ = [8, 8].map(|length| bed.ends[PASSIVE].receive(link[PASSIVE], length));
            for _ in 0..4 {
                bed.ends[ACTIVE].read(link[ACTIVE], grant.1, SIGNALED);
                bed.ends[ACTIVE].send(link[ACTIVE], b"either", None, SIGNALED);
            }
        }
        let mut trace = Vec::new();
        while let Some(next) = bed.network.fabric().next_event() {
            bed.network.skip(next);
            for end in &mut bed.ends {
                end.poll(next, 64);
                trace.extend(end.log.drain(..).map(|event| format!("{next} {event:?}")));
            }
        }
        assert!(trace.len() > 10);
        trace
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2), "and another seed is another run");
}

#[test]
fn nothing_is_seen_before_it_is_due() {
    let mut bed = bed(FabricConfig { latency_min_ns: 700, latency_max_ns: 900, ..exact() });
    let link = bed.connect();
    let (receive, _sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
    bed.settle();
    let start = bed.network.now();
    assert_eq!(bed.network.fabric().next_event(), None, "deadlines that were met are forgotten");
    let (_, _source) = bed.ends[ACTIVE].send(link[ACTIVE], b"on time", None, SIGNALED);
    let due = bed.network.fabric().next_event().unwrap();
    let took = due.saturating_since(start).as_nanos();
    assert!((700..=900).contains(&took), "{took} ns");
    let early = Instant::from_nanos(due.as_nanos() - 1);
    assert!(!bed.ends[PASSIVE].poll(early, 64));
    // A node that is ahead in time does not show another one the future.
    bed.ends[ACTIVE].poll(due, 64);
    assert!(!bed.ends[PASSIVE].poll(early, 64));
    assert!(bed.ends[PASSIVE].poll(due, 64));
    assert!(bed.ends[PASSIVE].done(receive).is_some());
}

#[test]
fn a_black_hole_is_noticed_by_deadlines_alone() {
    let mut bed = bed(exact());
    let link = bed.connect();
    let hole = bed.listening().ip();
    let received = bed.ends[PASSIVE].receive(link[PASSIVE], 8);

    // Messages of the passive end are swallowed, acknowledgements too, so the Send never completes.
    bed.network.fabric().black_hole(hole);
    let (_, _source) = bed.ends[ACTIVE].send(link[ACTIVE], b"hello?", None, SIGNALED);
    bed.succeeded(PASSIVE, received.0);
    bed.settle();
    assert!(bed.ends[ACTIVE].log.is_empty(), "{:?}", bed.ends[ACTIVE].log);

    // A disconnect gives up after its deadline, and so does a new connection.
    let start = bed.network.now();
    bed.ends[ACTIVE].provider.disconnect(start, link[ACTIVE]);
    bed.quiesced(ACTIVE, link[ACTIVE]);
    assert_eq!(bed.network.now().saturating_since(start), CLOSE);
    let [Event::Disconnected { reason, .. }, Event::Completion(done)] = &bed.ends[ACTIVE].log[..]
    else {
        panic!("{:?}", bed.ends[ACTIVE].log);
    };
    assert_eq!((*reason, done.status), (DisconnectReason::Local, Status::Flushed));
    bed.ends[ACTIVE].log.clear();

    let (start, to) = (bed.network.now(), bed.listening());
    let qp = bed.ends[ACTIVE].provider.connect(start, to, &PARAMS).unwrap();
    let failed = bed.until("Failed", |bed| bed.ends[ACTIVE].log.pop());
    assert!(matches!(failed, Event::Failed { qp: q, reason: ConnectError::TimedOut } if q == qp));
    assert_eq!(bed.network.now().saturating_since(start), HANDSHAKE);

    // Once the black hole is closed, new connections work; lost messages stay lost.
    bed.network.fabric().close_black_hole(hole);
    bed.ends[PASSIVE].log.clear();
    let link = bed.connect();
    bed.carry(link, PASSIVE, b"hello!");
}

#[test]
fn a_severed_connection_is_lost_at_both_ends_and_no_other_is() {
    let mut bed = bed(exact());
    let (doomed, other) = (bed.connect(), bed.connect());
    let (sent, _source) = bed.ends[ACTIVE].send(doomed[ACTIVE], b"never", None, SIGNALED);
    let at = bed.listening().ip();
    bed.network.fabric().sever(at, doomed[PASSIVE]);
    bed.settle();
    assert_eq!(lost(&bed, PASSIVE, doomed), [DisconnectReason::Lost]);
    assert_eq!(lost(&bed, ACTIVE, doomed), [DisconnectReason::Lost]);
    assert_eq!(bed.ends[ACTIVE].done(sent).map(|done| done.status), Some(Status::Flushed));
    bed.carry(other, ACTIVE, b"still here");

    bed.network.fabric().sever_all(at);
    bed.settle();
    assert_eq!(lost(&bed, PASSIVE, other), [DisconnectReason::Lost]);
}

#[test]
fn a_request_that_is_wrong_ends_its_connection() {
    let mut bed = bed(exact());
    let link = bed.connect();
    let bytes = pattern::of(64, 1);
    let (_exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteWrite);
    let _received = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
    let longer = Segment { length: 65, ..segment };
    let active = &mut bed.ends[ACTIVE];
    let (wrong, _source) = active.write(link[ACTIVE], &bytes, longer);
    let (behind, _source) = active.send(link[ACTIVE], b"written!", None, SIGNALED);
    bed.settle();
    let ends = [wrong, behind].map(|id| bed.ends[ACTIVE].done(id).map(|done| done.status));
    assert_eq!(ends, [Some(Status::LocalFault), Some(Status::Flushed)]);
    assert_eq!(lost(&bed, PASSIVE, link), [DisconnectReason::Lost]);
    let received = |event: &Event<_>| matches!(event, Event::Completion(_));
    assert!(
        !bed.ends[PASSIVE].log.iter().any(received),
        "the peer was told of a Write that failed"
    );
}

#[test]
fn a_read_where_none_is_granted_is_wrong() {
    let mut bed = bed(exact());
    let (link, granted) = bed.connect_with(&PARAMS, &ConnectionParams { ird: 0, ..PARAMS });
    assert_eq!(granted[ACTIVE].0, 0);
    let (_exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], b"x", Access::RemoteRead);
    let (read, _sink) = bed.ends[ACTIVE].read(link[ACTIVE], segment, SIGNALED);
    assert_eq!(bed.done(ACTIVE, read).status, Status::LocalFault);
}

#[test]
fn a_node_can_connect_to_itself() {
    let mut network = Virtual::new(exact());
    let (provider, _pool, at) = network.join();
    drop(provider);
    let mut bed = Bed::new(network);
    let (now, to) = (bed.network.now(), bed.listening());
    assert_ne!(at.ip(), to.ip());
    let active = bed.ends[PASSIVE].provider.connect(now, to, &PARAMS).unwrap();
    let request = |event: &Event<_>| matches!(event, Event::Request { .. });
    let asked = bed.until("Request", |bed| bed.ends[PASSIVE].take(request));
    let Event::Request { qp: passive, peer, .. } = asked else { unreachable!() };
    assert_eq!(peer.ip(), to.ip());
    bed.ends[PASSIVE].provider.accept(bed.network.now(), passive, &PARAMS);
    for qp in [active, passive] {
        bed.until("Established", |bed| bed.ends[PASSIVE].established(qp));
    }
    let bytes = pattern::of(5000, 2);
    let node = &mut bed.ends[PASSIVE];
    let (exposed, segment) = node.expose(passive, &vec![0; 5000], Access::RemoteWrite);
    let (wrote, _source) = node.write(active, &bytes, segment);
    let (received, _sink) = node.receive(passive, 8);
    node.send(active, b"there", Some(segment.handle), SIGNALED);
    let done = bed.succeeded(PASSIVE, received);
    assert!(haulage_tests::bed::fence(exposed, &done).bytes() == bytes);
    bed.succeeded(PASSIVE, wrote);
}

#[test]
fn queues_are_bounded_and_places_come_back_when_completions_are_polled() {
    let mut bed = bed(FabricConfig { send_queue_max: 3, receive_queue_max: 2, ..exact() });
    let link = bed.connect();
    let qp = link[ACTIVE];
    let (_exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], b"x", Access::RemoteRead);
    let mut batch: WorkQueue = (0..4).map(|_| read(&mut bed, segment)).collect();
    assert!(bed.ends[ACTIVE].provider.post(qp, &mut batch).is_err());
    assert_eq!(batch.len(), 1);
    // The requests complete, but nobody has polled: they still hold their places.
    let later = bed.network.now().saturating_add(Duration::from_secs(1));
    bed.ends[PASSIVE].poll(later, 64);
    assert!(bed.ends[ACTIVE].provider.post(qp, &mut batch).is_err());
    bed.ends[ACTIVE].poll(later, 1);
    assert!(bed.ends[ACTIVE].provider.post(qp, &mut batch).is_ok());

    let receives = [8, 8].map(|length| bed.ends[ACTIVE].receive(qp, length));
    let mut sink = bed.ends[ACTIVE].pool.lease(8).unwrap().into_sink();
    let mut third =
        vec![haulage::provider::Receive::single(receives[0].0, sink.sink(0..8).unwrap())];
    assert!(bed.ends[ACTIVE].provider.post_receives(&mut third).is_err());
    assert_eq!(third.len(), 1);
}

#[test]
fn an_address_or_a_port_is_taken_once() {
    let mut bed = bed(exact());
    let (at, elsewhere) = (bed.listening(), "10.9.9.9:0".parse().unwrap());
    let passive = &mut bed.ends[PASSIVE].provider;
    assert_eq!(passive.listen(at).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    let kind = passive.listen(elsewhere).unwrap_err().kind();
    assert_eq!(kind, std::io::ErrorKind::AddrNotAvailable);
    assert!(bed.network.fabric().provider(at.ip()).is_err());
    let (listener, second) = bed.ends[PASSIVE].provider.listen((at.ip(), 0).into()).unwrap();
    assert_ne!(second, at);
    bed.ends[PASSIVE].provider.unlisten(listener);
    let qp = bed.ends[ACTIVE].provider.connect(bed.network.now(), second, &PARAMS).unwrap();
    let failed = bed.until("Failed", |bed| bed.ends[ACTIVE].log.pop());
    assert!(matches!(failed, Event::Failed { qp: q, reason: ConnectError::Refused } if q == qp));
}

#[test]
fn a_peer_that_gave_up_waiting_is_lost_when_accepted() {
    let mut bed = bed(exact());
    let link = bed.request(&ConnectionParams { private_data: b"", ord: 1, ird: 1 });
    bed.settle();
    let failed = bed.ends[ACTIVE].log.pop();
    assert!(matches!(failed, Some(Event::Failed { reason: ConnectError::TimedOut, .. })));
    bed.ends[PASSIVE].provider.accept(bed.network.now(), link[PASSIVE], &PARAMS);
    bed.quiesced(PASSIVE, link[PASSIVE]);
    assert_eq!(lost(&bed, PASSIVE, link), [DisconnectReason::Lost]);
}

#[test]
fn a_deep_queue_completes_in_order_whatever_the_delays() {
    for seed in 0..16 {
        let mut bed =
            bed(FabricConfig { seed, latency_max_ns: 100_000, ..FabricConfig::default() });
        let link = bed.connect();
        let bytes = pattern::of(300, seed);
        let (_exposed, segment) =
            bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteRead);
        let _received: Vec<_> =
            (0..40).map(|_| bed.ends[PASSIVE].receive(link[PASSIVE], 8)).collect();
        let active = &mut bed.ends[ACTIVE];
        let posted: Vec<_> = (0..80)
            .map(|n| match n % 2 {
                0 => (active.read(link[ACTIVE], segment, SIGNALED).0, Opcode::Read),
                _ => (active.send(link[ACTIVE], b"and", None, SIGNALED).0, Opcode::Send),
            })
            .collect();
        bed.settle();
        let done = bed.ends[ACTIVE].log.iter().map(|event| match event {
            Event::Completion(done) => (done.id, done.opcode),
            other => panic!("seed {seed}: {other:?}"),
        });
        assert_eq!(done.collect::<Vec<_>>(), posted, "seed {seed}");
    }
}

const HANDSHAKE: Duration = Duration::from_secs(3);
const CLOSE: Duration = Duration::from_secs(7);

/// Returns a fabric on which a completion always proves that the peer has the message.
fn exact() -> FabricConfig {
    FabricConfig {
        eager_percent: 0,
        handshake_timeout: HANDSHAKE,
        close_timeout: CLOSE,
        ..FabricConfig::default()
    }
}

fn bed(config: FabricConfig) -> Bed<Virtual> {
    Bed::new(Virtual::new(config))
}

fn read(bed: &mut Bed<Virtual>, segment: Segment) -> WorkRequest {
    let active = &mut bed.ends[ACTIVE];
    let mut posted = active.pool.lease(1).expect("memory").into_sink();
    let sink = posted.sink(0..1).expect("the whole lease");
    let operation = Operation::Read { sink, source: claim(segment) };
    WorkRequest { id: active.id(), flags: SIGNALED, operation }
}

/// Returns the reasons that one end reported for the end of a connection.
fn lost(bed: &Bed<Virtual>, end: usize, link: Link) -> Vec<DisconnectReason> {
    let of = |event: &Event<_>, qp: QpNum| match event {
        Event::Disconnected { qp: of, reason } if *of == qp => Some(*reason),
        _ => None,
    };
    bed.ends[end].log.iter().filter_map(|event| of(event, link[end])).collect()
}
