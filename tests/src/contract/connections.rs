//! Checks of the contract's lines 1 to 6: connections.

use haulage::provider::{
    ConnectError, ConnectionParams, DisconnectReason, Event, Operation, Place, Provider, Quiesced,
    WorkRequest,
};
use haulage_proto::verbs::{Access, Opcode, QpNum, Status, WrId};

use crate::bed::{ACTIVE, Bed, Link, PARAMS, PASSIVE, SIGNALED};
use crate::by_number::ByNumber as _;
use crate::network::Network;
use crate::pattern;

/// `connect`, `listen`, `next_incoming` and `adopt` never block; the outcome arrives from `poll` as an event.
pub fn line_01_connecting_never_blocks<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    assert_ne!(bed.listening().port(), 0, "the address really bound has a port");
    let (now, to) = (bed.network.now(), bed.listening());
    // The passive end is not polled meanwhile: a `connect` that waited for it would hang here.
    let qp = bed.ends[ACTIVE].provider.connect(now, to, &PARAMS).expect("a queue pair");
    bed.ends[ACTIVE].poll(now, 0);
    let request = |event: &Event<_>| matches!(event, Event::Request { .. });
    let peer = bed.until("Request", |bed| bed.ends[PASSIVE].take(request));
    let Event::Request { qp: peer, .. } = peer else { return };
    bed.ends[PASSIVE].provider.accept(bed.network.now(), peer, &PARAMS);
    bed.until("Established", |bed| bed.ends[ACTIVE].established(qp));
}

/// A listener yields each peer once. Once adopted, it is reported once as `Request`, with the private data that the peer
/// sent; nothing moves on that queue pair before `answer`.
pub fn line_02_a_peer_is_reported_once_and_waits_for_accept<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let (now, to) = (bed.network.now(), bed.listening());
    for private_data in [&b"one"[..], b"", b"three"] {
        let params = ConnectionParams { private_data, ..PARAMS };
        bed.ends[ACTIVE].provider.connect(now, to, &params).expect("a queue pair");
    }
    bed.linger([64; 2]);
    let mut said: Vec<_> = Vec::new();
    let mut qps: Vec<_> = Vec::new();
    for event in bed.ends[PASSIVE].log.drain(..) {
        match event {
            Event::Request { private_data, qp, .. } => {
                said.push(unpadded(&private_data).to_vec());
                qps.push(qp);
            }
            other => panic!("{other:?} before accept"),
        }
    }
    said.sort();
    assert_eq!(said, [b"".to_vec(), b"one".to_vec(), b"three".to_vec()]);
    qps.sort();
    qps.dedup();
    assert_eq!(qps.len(), 3, "each peer has a queue pair of its own");
    assert!(bed.ends[ACTIVE].log.is_empty(), "nobody accepted: {:?}", bed.ends[ACTIVE].log);
}

/// Accepts the peer that waits for an answer, and checks that messages pass.
pub(super) fn become_a_connection<N: Network>(bed: &mut Bed<N>, link: Link) {
    bed.ends[PASSIVE].provider.accept(bed.network.now(), link[PASSIVE], &PARAMS);
    for end in [ACTIVE, PASSIVE] {
        bed.until("Established", |bed| bed.ends[end].established(link[end]));
    }
    bed.carry(link, ACTIVE, b"there");
    bed.carry(link, PASSIVE, b"and back");
}

/// `Accept` makes a connection of what `adopt` began, and carries private data back; both ends then report `Established`, the active one with that
/// private data, both with the granted ORD and IRD.
pub fn line_03_accept_establishes_both_ends<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let asked = ConnectionParams { private_data: b"asks", ord: 3, ird: 5 };
    let link = bed.request(&asked);
    let answer = ConnectionParams { private_data: b"answers", ord: 4, ird: 2 };
    bed.ends[PASSIVE].provider.accept(bed.network.now(), link[PASSIVE], &answer);
    let [active, passive] = [ACTIVE, PASSIVE]
        .map(|end| bed.until("Established", |bed| bed.ends[end].established(link[end])));
    assert_eq!((unpadded(&active.0), &*passive.0), (&b"answers"[..], &b""[..]));
    if bed.ends[ACTIVE].provider.caps().promises.grants_reads {
        assert_eq!((active.1, active.2), (2, 4), "what one end has outstanding, the other serves");
        assert_eq!((passive.1, passive.2), (4, 2));
    } else {
        eprintln!("skipped: what the passive end grants; `grants_reads` of Caps is false");
    }
    bed.carry(link, ACTIVE, b"there");
    bed.carry(link, PASSIVE, b"and back");
}

/// `reject`, a refused connection, an `Incoming` that is dropped and a handshake that misses its deadline end in `Failed`
/// at the active end. A peer that fails its handshake is never reported to the passive end; one that gives up before
/// `adopt` is not reported, or lost once it is answered.
pub fn line_04_a_connection_that_fails_says_why<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.request(&PARAMS);
    bed.ends[PASSIVE].provider.reject(bed.network.now(), link[PASSIVE], b"no");
    assert_eq!(failed(&mut bed, link[ACTIVE]), ConnectError::Rejected);

    let listening = bed.listening();
    bed.network.babble(listening);
    bed.linger([64; 2]);
    let silent = bed.network.silent();
    let now = bed.network.now();
    let qp = bed.ends[ACTIVE].provider.connect(now, silent, &PARAMS).expect("a queue pair");
    for _ in 0..DEADLINES {
        bed.turn([64; 2]);
        let deadline = bed.ends[ACTIVE].provider.poll_deadline();
        deadline.into_iter().for_each(|deadline| bed.network.skip(deadline));
    }
    assert_eq!(failed(&mut bed, qp), ConnectError::TimedOut);

    let (now, nobody) = (bed.network.now(), bed.network.nobody());
    // Some systems refuse at once: that is an outcome, and no wait.
    match bed.ends[ACTIVE].provider.connect(now, nobody, &PARAMS) {
        Ok(qp) => assert_eq!(failed(&mut bed, qp), ConnectError::Refused),
        Err(reason) => assert_eq!(reason, ConnectError::Refused),
    }
    bed.settle();
    assert!(bed.ends.iter().all(|end| end.log.is_empty()), "nothing follows a failure");
    let (qp, incoming) = bed.arrive();
    drop(incoming);
    assert_ne!(failed(&mut bed, qp), ConnectError::TimedOut, "it is closed at once");
    given_up(&mut bed);
}

/// Checks the end of a peer that gives up before it is adopted.
fn given_up<N: Network>(bed: &mut Bed<N>) {
    let (active, incoming) = bed.arrive();
    bed.ends[ACTIVE].provider.disconnect(bed.network.now(), active);
    failed(bed, active);
    bed.linger([64; 2]);
    let now = bed.network.now();
    assert!(
        bed.ends[PASSIVE].provider.adopt(now, incoming, Place::default()).is_ok(),
        "there are slots"
    );
    bed.linger([64; 2]);
    if bed.ends[PASSIVE].log.is_empty() {
        return;
    }
    let passive = bed.requested();
    bed.ends[PASSIVE].provider.accept(bed.network.now(), passive, &PARAMS);
    let is_it = |event: &Event<_>| matches!(event, Event::Established { .. });
    bed.quiesced(PASSIVE, passive);
    bed.ends[PASSIVE].take(is_it);
    let told = bed.ends[PASSIVE].log.pop();
    assert!(matches!(told, Some(Event::Disconnected { .. })), "{told:?}");
}

/// A Send that arrives before the receiver's `Established` is kept and delivered after it.
pub fn line_05_an_early_send_is_delivered_after_established<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.request(&PARAMS);
    let (receive, _sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 64);
    bed.ends[PASSIVE].provider.accept(bed.network.now(), link[PASSIVE], &PARAMS);
    // From here on the passive end works but reports nothing.
    bed.until_with([64, 0], "Established", |bed| bed.ends[ACTIVE].established(link[ACTIVE]));
    let (_, _source) = bed.ends[ACTIVE].send(link[ACTIVE], b"early", None, SIGNALED);
    bed.linger([64, 0]);
    bed.until("the Send", |bed| match bed.ends[PASSIVE].log.as_slice() {
        [] | [Event::Established { .. }] => None,
        [Event::Established { .. }, Event::Completion(done)] => (done.id == receive).then_some(()),
        other => panic!("wrong order: {other:?}"),
    });
}

/// After a connection is lost or `disconnect`ed, each end reports `Disconnected` once, then the
/// flushed completions, then `Quiesced` once, and nothing after it.
pub fn line_06_a_connection_ends_in_order<N: Network>(network: N) {
    let mut bed = Bed::new(network);

    // A connection is closed in order: a request posted before still arrives.
    let link = bed.connect();
    let (received, _sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
    let (sent, _source) = bed.ends[ACTIVE].send(link[ACTIVE], b"the last", None, SIGNALED);
    bed.ends[ACTIVE].provider.disconnect(bed.network.now(), link[ACTIVE]);
    bed.succeeded(PASSIVE, received);
    bed.succeeded(ACTIVE, sent);
    let [active, passive] = [ACTIVE, PASSIVE].map(|end| ending(&mut bed, end, link[end]));
    assert_eq!((active.reason, active.failed.len()), (DisconnectReason::Local, 0));
    // Not every provider knows how much the peer has received.
    let closed = [DisconnectReason::Peer, DisconnectReason::PeerHasAll];
    assert!(closed.contains(&passive.reason) && passive.failed.is_empty(), "{:?}", passive.reason);

    // Both ends disconnect at the same time.
    let link = bed.connect();
    for end in [ACTIVE, PASSIVE] {
        bed.ends[end].provider.disconnect(bed.network.now(), link[end]);
    }
    for end in [ACTIVE, PASSIVE] {
        assert!(ending(&mut bed, end, link[end]).failed.is_empty());
    }

    // A connection is lost with requests outstanding, and one more is posted before its end is known.
    let link = bed.connect();
    let lost = strand(&mut bed, link, 3);
    let gone = |event: &Event<_>| matches!(event, Event::Disconnected { .. });
    bed.until_with([1, 0], "Disconnected", |bed| {
        bed.ends[ACTIVE].log.iter().find(|e| gone(e)).map(drop)
    });
    let qp = link[ACTIVE];
    let posted = bed.ends[ACTIVE].holding(b"too late").into_source();
    let source = posted.source(0..8).expect("the whole lease");
    let (id, operation) = (bed.ends[ACTIVE].id(), Operation::Send { source, invalidate: None });
    let mut batch = [WorkRequest { id, flags: SIGNALED, operation }].into();
    let taken = bed.ends[ACTIVE].provider.post(qp, &mut batch).is_ok();
    assert_eq!(taken, batch.is_empty(), "what is not taken is left");
    let Ending { reason, failed, .. } = ending(&mut bed, ACTIVE, qp);
    assert!(reason == DisconnectReason::Lost || closed.contains(&reason), "{reason:?}");
    let late = taken.then_some(id);
    assert_eq!(failed, lost.into_iter().chain(late).collect::<Vec<_>>());
}

/// Posts `count` signaled Reads that will never be answered, and loses the connection. Returns their ids.
pub(super) fn strand<N: Network>(bed: &mut Bed<N>, link: Link, count: usize) -> Vec<WrId> {
    let bytes = pattern::of(64, 1);
    let (_exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteRead);
    if bed.network.serves_unpolled() {
        bed.replace_passive();
    }
    let ids = bed.ends[ACTIVE].reads(link[ACTIVE], segment, &vec![SIGNALED; count]);
    if !bed.network.serves_unpolled() {
        bed.replace_passive();
    }
    ids
}

/// The end of a connection, as one end reported it.
pub(super) struct Ending {
    pub(super) reason: DisconnectReason,
    /// The requests that did not succeed, in the order of their completions.
    pub(super) failed: Vec<WrId>,
    pub(super) proof: Quiesced,
}

/// Waits for the end of a connection and takes every event that `end` reported of it, checking the order.
pub(super) fn ending<N: Network>(bed: &mut Bed<N>, end: usize, qp: QpNum) -> Ending {
    bed.until("Quiesced", |bed| {
        let quiesced = |event: &Event<_>| matches!(event, Event::Quiesced(q) if q.qp() == qp);
        bed.ends[end].log.iter().any(quiesced).then_some(())
    });
    bed.settle();
    let (own, others): (Vec<_>, _) = bed.ends[end].log.drain(..).partition(|event| of(event) == qp);
    bed.ends[end].log = others;
    let (mut reason, mut failed, mut proof) = (None, Vec::new(), None);
    let mut flushed = false;
    for event in own {
        assert!(proof.is_none(), "{event:?} after Quiesced");
        match event {
            Event::Disconnected { reason: why, .. } => {
                assert_eq!(reason.replace(why), None, "Disconnected twice");
            }
            Event::Completion(done) if done.status != Status::Success => {
                assert!(reason.is_some(), "{done:?} before Disconnected");
                assert_ne!(done.opcode, Opcode::Receive, "Receives return to the shared queue");
                assert!(!flushed || done.status == Status::Flushed, "{done:?} after a flush");
                flushed |= done.status == Status::Flushed;
                failed.push(done.id);
            }
            Event::Completion(done) => assert!(reason.is_none(), "{done:?} after Disconnected"),
            Event::Quiesced(quiesced) => {
                assert!(reason.is_some(), "Quiesced before Disconnected");
                proof = Some(quiesced);
            }
            other => panic!("{other:?} of a connection that was established"),
        }
    }
    Ending { reason: reason.expect("Disconnected"), failed, proof: proof.expect("Quiesced") }
}

fn of<L>(event: &Event<L>) -> QpNum {
    match event {
        Event::Completion(done) => done.qp,
        Event::Quiesced(quiesced) => quiesced.qp(),
        Event::Request { qp, .. }
        | Event::Established { qp, .. }
        | Event::Failed { qp, .. }
        | Event::Disconnected { qp, .. } => *qp,
    }
}

/// Returns private data without the zeros that some networks append. No check sends private data that ends in zero.
fn unpadded(private_data: &[u8]) -> &[u8] {
    let length = private_data.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1);
    &private_data[..length]
}

fn failed<N: Network>(bed: &mut Bed<N>, qp: QpNum) -> ConnectError {
    let is_it = |event: &Event<_>| matches!(event, Event::Failed { qp: q, .. } if *q == qp);
    match bed.until("Failed", |bed| bed.ends[ACTIVE].take(is_it)) {
        Event::Failed { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

/// More deadlines than a connection setup has.
pub(super) const DEADLINES: usize = 200;
