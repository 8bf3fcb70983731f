//! Checks of the contract's lines 19 to 22: registration.

use haulage::provider::{DisconnectReason, Provider, Quiesced, Refused};
use haulage_mr_pool::Local;
use haulage_proto::verbs::{Access, Handle, Opcode, Segment, Status};

use super::connections::ending;
use crate::bed::{ACTIVE, Bed, Link, PASSIVE, SIGNALED, fence, filled, outlive, spent};
use crate::by_number::ByNumber as _;
use crate::network::Network;
use crate::pattern;

/// A handle is valid for one queue pair, one range and one access, from the moment its lease is opened to its
/// invalidation.
pub fn line_19_a_handle_is_valid_from_registration_to_invalidation<N: Network>(network: N) {
    let mut bed = Bed::new(network);

    let handles_end = bed.ends[PASSIVE].provider.caps().promises.handles_end;
    // A registered range can be read at any octet, and repeatedly.
    let link = bed.connect();
    let bytes = pattern::of(64, 2);
    let (exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteRead);
    for (skip, length) in [(0, 64), (63, 1), (0, 1), (10, 20)] {
        let part = Segment { length, offset: segment.offset + skip, ..segment };
        let (read, sink) = bed.ends[ACTIVE].read(link[ACTIVE], part, SIGNALED);
        let found = filled(sink, &bed.succeeded(ACTIVE, read));
        let skip = usize::try_from(skip).expect("small");
        assert_eq!(found.bytes(), &bytes[skip..skip + length as usize]);
    }

    // An invalidated handle is refused, if the provider ends handles.
    let retired = bed.ends[PASSIVE].invalidate(link[PASSIVE], &exposed);
    let done = bed.succeeded(PASSIVE, retired);
    assert_eq!(fence(exposed, &done).bytes(), bytes);
    if handles_end {
        refused(&mut bed, link, Attempt::Read, segment);
    } else {
        eprintln!("skipped: a handle after its invalidation; `handles_end` of Caps is false");
        outlasted(&mut bed, link, segment, &bytes);
    }
    by_turns(&mut bed);
}

/// Exposes leases on two connections by turns. Handles that one connection has retired do no harm to the other, and the
/// last one, once retired, is out of the other's reach.
fn by_turns<N: Network>(bed: &mut Bed<N>) {
    let links = [bed.connect(), bed.connect()];
    let mut last = None;
    // Often enough that handles come around again.
    for round in 0..40 {
        let link = links[round % 2];
        let bytes = pattern::of(64, round as u64);
        let (exposed, segment) =
            bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteRead);
        let (read, sink) = bed.ends[ACTIVE].read(link[ACTIVE], segment, SIGNALED);
        assert_eq!(filled(sink, &bed.succeeded(ACTIVE, read)).bytes(), bytes);
        let retired = bed.ends[PASSIVE].invalidate(link[PASSIVE], &exposed);
        fence(exposed, &bed.succeeded(PASSIVE, retired));
        last = Some(segment);
    }
    let segment = last.expect("there were rounds");
    refused(bed, links[0], Attempt::Read, segment);
}

/// A peer that names memory it was not granted loses its connection; no memory changes.
pub fn line_20_a_peer_that_names_anything_else_loses_its_connection<N: Network>(network: N) {
    use Access::{RemoteRead, RemoteWrite};
    // A name, the access granted, the attempt, and its differences in handle (bits), offset and length.
    let bounds = [
        ("an octet past the end", RemoteWrite, Attempt::Write, 0, 1, 0),
        ("an octet before the start", RemoteWrite, Attempt::Write, 0, u64::MAX, 0),
        ("one octet too many", RemoteWrite, Attempt::Write, 0, 0, 1),
        ("a Read past the end", RemoteRead, Attempt::Read, 0, 1, 0),
    ];
    let access = [("a Read of what may be written", RemoteWrite, Attempt::Read, 0, 0, 0)];
    let others = [
        ("far away", RemoteWrite, Attempt::Write, 0, 1 << 62, 0),
        ("a Read far away", RemoteRead, Attempt::Read, 0, 1 << 62, 0),
        ("a Write of what may be read", RemoteRead, Attempt::Write, 0, 0, 0),
        ("another key", RemoteWrite, Attempt::Write, 1, 0, 0),
        ("another slot", RemoteWrite, Attempt::Write, 1 << 8, 0, 0),
        ("an invalidation by another key", RemoteWrite, Attempt::Invalidate, 1, 0, 0),
    ];
    let mut bed = Bed::new(network);
    let bystander = bed.connect();
    let promises = bed.ends[PASSIVE].provider.caps().promises;
    if !promises.exact_bounds {
        eprintln!("skipped: what is just out of bounds; `exact_bounds` of Caps is false");
    }
    if !promises.exact_access {
        eprintln!("skipped: a Read of what may be written; `exact_access` of Caps is false");
    }
    if !promises.handles_end {
        eprintln!("skipped: what is just out of bounds; `handles_end` of Caps is false");
    }
    let exact = promises.exact_bounds && promises.handles_end;
    let bounds = bounds.into_iter().filter(|_| exact);
    let access = access.into_iter().filter(|_| promises.exact_access);
    let others = others.into_iter().filter(|(_, _, attempt, ..)| {
        promises.remote_invalidation || !matches!(attempt, Attempt::Invalidate)
    });
    for (name, access, attempt, handle, offset, length) in bounds.chain(access).chain(others) {
        let link = bed.connect();
        let bytes = pattern::of(64, 3);
        let (exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, access);
        let named = Segment {
            handle: Handle(segment.handle.0 ^ handle),
            offset: segment.offset.wrapping_add(offset),
            length: segment.length + length,
        };
        let proof = refused(&mut bed, link, attempt, named);
        assert_eq!(outlive(exposed, &proof).bytes(), bytes, "{name}");
    }

    // A handle of another connection, where the end that exposes is the one that asked for both connections.
    let link = bed.connect();
    let bytes = pattern::of(64, 7);
    for attempt in [Attempt::Write, Attempt::Read] {
        let access = if matches!(attempt, Attempt::Write) { RemoteWrite } else { RemoteRead };
        let thief = bed.connect();
        let (exposed, segment) = bed.ends[ACTIVE].expose(link[ACTIVE], &bytes, access);
        let (other, _) = bed.ends[ACTIVE].expose(thief[ACTIVE], &bytes, access);
        let proof = refused_by(&mut bed, PASSIVE, thief, attempt, segment);
        assert_eq!(outlive(other, &proof).bytes(), bytes);
        let retired = bed.ends[ACTIVE].invalidate(link[ACTIVE], &exposed);
        let done = bed.succeeded(ACTIVE, retired);
        untouched(&fence(exposed, &done), &bytes, access, promises.handles_end);
    }
    bed.carry(link, PASSIVE, b"unharmed");

    // A handle of another connection, where the end that exposes accepted both.
    let link = bed.connect();
    let bytes = pattern::of(64, 4);
    for attempt in [Attempt::Write, Attempt::Invalidate] {
        let thief = bed.connect();
        let (exposed, segment) =
            bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteWrite);
        refused(&mut bed, thief, attempt, segment);
        let retired = bed.ends[PASSIVE].invalidate(link[PASSIVE], &exposed);
        let done = bed.succeeded(PASSIVE, retired);
        untouched(&fence(exposed, &done), &bytes, Access::RemoteWrite, promises.handles_end);
    }
    own_handle(&mut bed);
    bed.carry(bystander, ACTIVE, b"unharmed");
    bed.carry(link, PASSIVE, b"unharmed too");
}

/// An end that names at its peer what it has opened itself, on another connection, is refused: both ends may be in one
/// protection domain.
fn own_handle<N: Network>(bed: &mut Bed<N>) {
    let (link, thief) = (bed.connect(), bed.connect());
    let bytes = pattern::of(64, 8);
    let (exposed, segment) = bed.ends[ACTIVE].expose(link[ACTIVE], &bytes, Access::RemoteRead);
    refused(bed, thief, Attempt::Read, segment);
    let retired = bed.ends[ACTIVE].invalidate(link[ACTIVE], &exposed);
    assert_eq!(fence(exposed, &bed.succeeded(ACTIVE, retired)).bytes(), bytes);
}

/// A Send with Invalidate retires the handle before the Receive completes, and the completion names
/// it. LocalInv retires it before its own completion.
pub fn line_21_an_invalidation_retires_its_handle_first<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let bytes = pattern::of(4096, 5);

    if bed.ends[PASSIVE].provider.caps().promises.remote_invalidation {
        let link = bed.connect();
        let (exposed, segment) =
            bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteWrite);
        let (receive, _sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
        let handle = Some(segment.handle);
        let (_, _source) = bed.ends[ACTIVE].send(link[ACTIVE], b"done", handle, SIGNALED);
        let done = bed.succeeded(PASSIVE, receive);
        assert_eq!((done.opcode, done.invalidated), (Opcode::Receive, handle));
        let lease = fence(exposed, &done);
        refused(&mut bed, link, Attempt::Write, segment);
        assert_eq!(lease.bytes(), bytes);
    } else {
        eprintln!("skipped: Send with Invalidate; `remote_invalidation` of Caps is false");
    }

    let handles_end = bed.ends[PASSIVE].provider.caps().promises.handles_end;
    let link = bed.connect();
    let (exposed, segment) = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteWrite);
    let retired = bed.ends[PASSIVE].invalidate(link[PASSIVE], &exposed);
    let done = bed.succeeded(PASSIVE, retired);
    assert_eq!((done.opcode, done.invalidated), (Opcode::LocalInv, Some(segment.handle)));
    let lease = fence(exposed, &done);
    if handles_end {
        refused(&mut bed, link, Attempt::Write, segment);
        assert_eq!(lease.bytes(), bytes);
    } else {
        eprintln!("skipped: a Write after LocalInv is refused; `handles_end` of Caps is false");
        late(&mut bed, link, segment, &lease);
    }
}

/// Without `handles_end` a handle works after its lease is local again: a Read by it returns the octets that were
/// exposed, whatever becomes of the lease.
fn outlasted<N: Network>(bed: &mut Bed<N>, link: Link, segment: Segment, bytes: &[u8]) {
    let mut reused = bed.ends[PASSIVE].holding(&pattern::of(bytes.len(), 98));
    reused.bytes_mut().fill(0x55);
    let (read, sink) = bed.ends[ACTIVE].read(link[ACTIVE], segment, SIGNALED);
    assert_eq!(filled(sink, &bed.succeeded(ACTIVE, read)).bytes(), bytes);
}

/// Without `handles_end` a handle works after its lease is local again: a Write by it changes no lease, and shows in
/// the next lease that the same connection exposes in that place.
fn late<N: Network>(bed: &mut Bed<N>, link: Link, segment: Segment, lease: &Local) {
    let before = lease.bytes().to_vec();
    let bytes = pattern::of(segment.length as usize, 97);
    let (wrote, source) = bed.ends[ACTIVE].write(link[ACTIVE], &bytes, segment);
    spent(source, &bed.succeeded(ACTIVE, wrote));
    bed.carry(link, ACTIVE, b"behind it");
    assert_eq!(lease.bytes(), before, "a lease that is ours again is out of reach");

    let (exposed, again) = bed.ends[PASSIVE].expose(link[PASSIVE], &before, Access::RemoteWrite);
    assert_eq!(again.handle, segment.handle, "the same place");
    let copied = bed.ends[PASSIVE].provider.counters().bytes_copied;
    let retired = bed.ends[PASSIVE].invalidate(link[PASSIVE], &exposed);
    let found = fence(exposed, &bed.succeeded(PASSIVE, retired));
    assert_eq!(found.bytes(), bytes);
    let copied = bed.ends[PASSIVE].provider.counters().bytes_copied - copied;
    assert_eq!(copied, bytes.len() as u64, "it is said what that takes");

    // The place ends with its connection, and with it the octets written there.
    bed.ends[PASSIVE].provider.disconnect(bed.network.now(), link[PASSIVE]);
    for end in [ACTIVE, PASSIVE] {
        ending(bed, end, link[end]);
    }
    let link = bed.connect();
    let (exposed, _) = bed.ends[PASSIVE].expose(link[PASSIVE], &before, Access::RemoteWrite);
    let retired = bed.ends[PASSIVE].invalidate(link[PASSIVE], &exposed);
    let found = fence(exposed, &bed.succeeded(PASSIVE, retired));
    untouched(&found, &before, Access::RemoteWrite, false);
}

/// Checks a lease that a peer was allowed to write and did not.
fn untouched(lease: &Local, bytes: &[u8], access: Access, handles_end: bool) {
    if access == Access::RemoteWrite && !handles_end {
        eprintln!("skipped: octets not written stay as they were; `handles_end` of Caps is false");
        assert!(lease.bytes().iter().all(|octet| *octet == 0), "nobody has written there");
    } else {
        assert_eq!(lease.bytes(), bytes);
    }
}

/// A completion is reported only after the provider dropped every view of the memory it names, an
/// invalidation only after it dropped the registration's view, `Quiesced` only after it dropped
/// every view of that queue pair.
pub fn line_22_views_are_dropped_before_the_report<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let registrations = bed.ends[PASSIVE].provider.caps().registrations_max;
    let before = bed.ends.each_ref().map(|end| end.pool.free_bytes());
    let bytes = pattern::of(10_000, 6);
    let (exposed, readable) = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteRead);
    let (received, sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 8);
    let (sent, source) = bed.ends[ACTIVE].send(link[ACTIVE], b"a", None, SIGNALED);
    let (read, read_sink) = bed.ends[ACTIVE].read(link[ACTIVE], readable, SIGNALED);
    spent(source, &bed.succeeded(ACTIVE, sent));
    filled(read_sink, &bed.succeeded(ACTIVE, read));
    filled(sink, &bed.succeeded(PASSIVE, received));
    let retired = bed.ends[PASSIVE].invalidate(link[PASSIVE], &exposed);
    fence(exposed, &bed.succeeded(PASSIVE, retired));

    // Leases that were exposed leave room for later ones.
    let longest = bed.ends[PASSIVE].pool.gauges().largest_run * 3 / 5;
    for length in (0..10).rev().map(|halved| longest >> halved) {
        for access in [Access::RemoteRead, Access::RemoteWrite] {
            let (passive, qp) = (&mut bed.ends[PASSIVE], link[PASSIVE]);
            let (exposed, _) = passive.expose(qp, &vec![0; length], access);
            let retired = passive.invalidate(qp, &exposed);
            let lease = fence(exposed, &bed.succeeded(PASSIVE, retired));
            assert!(lease.bytes().iter().all(|octet| *octet == 0));
        }
    }

    // A Read that is posted, and a lease that is exposed, when the connection ends.
    let (exposed, readable) = bed.ends[PASSIVE].expose(link[PASSIVE], &bytes, Access::RemoteRead);
    let (flushed, read_sink) = bed.ends[ACTIVE].read(link[ACTIVE], readable, SIGNALED);
    bed.ends[PASSIVE].provider.disconnect(bed.network.now(), link[PASSIVE]);
    let done = bed.done(ACTIVE, flushed);
    assert!(matches!(done.status, Status::Flushed | Status::Success), "{done:?}");
    filled(read_sink, &done);
    bed.quiesced(ACTIVE, link[ACTIVE]);
    let proof = bed.quiesced(PASSIVE, link[PASSIVE]);
    assert_eq!(outlive(exposed, &proof).bytes(), bytes);
    let after = bed.ends.each_ref().map(|end| end.pool.free_bytes());
    assert_eq!(after, before, "every lease came home");
    let link = bed.connect();
    let passive = &mut bed.ends[PASSIVE];
    let mut opened = Vec::new();
    for _ in 0..registrations {
        let lease = passive.holding(&bytes);
        let open = passive.provider.open(link[PASSIVE], lease, Access::RemoteRead);
        opened.push(open.expect("every registration came back"));
    }
    let lease = passive.holding(&bytes);
    let refused = passive.provider.open(link[PASSIVE], lease, Access::RemoteRead);
    let (back, why) = refused.expect_err("no more than the provider says");
    assert_eq!((back.bytes(), why), (&bytes[..], Refused::Full));
}

/// An operation that a peer attempts on memory it was not granted.
#[derive(Clone, Copy, Debug)]
enum Attempt {
    Read,
    Write,
    Invalidate,
}

/// Makes `attempt` at the active end, which must cost it the connection. Returns the passive end's proof that the
/// connection is over.
fn refused<N: Network>(
    bed: &mut Bed<N>,
    link: Link,
    attempt: Attempt,
    segment: Segment,
) -> Quiesced {
    refused_by(bed, ACTIVE, link, attempt, segment)
}

/// Makes `attempt` at the end `by`, and returns the proof of the other end.
fn refused_by<N: Network>(
    bed: &mut Bed<N>,
    by: usize,
    link: Link,
    attempt: Attempt,
    segment: Segment,
) -> Quiesced {
    let owner = 1 - by;
    let bytes = pattern::of(segment.length as usize, 99);
    let receive =
        matches!(attempt, Attempt::Invalidate).then(|| bed.ends[owner].receive(link[owner], 64));
    let (thief, qp) = (&mut bed.ends[by], link[by]);
    let tried = match attempt {
        Attempt::Read => thief.read(qp, segment, SIGNALED).0,
        Attempt::Write => thief.write(qp, &bytes, segment).0,
        Attempt::Invalidate => thief.send(qp, b"x", Some(segment.handle), SIGNALED).0,
    };
    let [thief, owner] = [by, owner].map(|end| ending(bed, end, link[end]));
    let explained = bed.ends[PASSIVE].provider.caps().promises.explains_ends;
    let blamed = matches!(owner.reason, DisconnectReason::PeerMisbehaved(_));
    assert!(blamed || !explained, "{:?}", owner.reason);
    // InfiniBand reports no reason when it ends a connection over an invalidation.
    let told = matches!(thief.reason, DisconnectReason::Terminated { .. });
    let closed = matches!(thief.reason, DisconnectReason::Peer | DisconnectReason::PeerHasAll);
    let untold = closed && matches!(attempt, Attempt::Invalidate);
    assert!(told || untold || !explained, "{:?}", thief.reason);
    if matches!(attempt, Attempt::Read) {
        assert_eq!(thief.failed, [tried], "a refused Read fails");
    }
    if let Some((receive, sink)) = receive {
        // The Receive was not used, so it is still posted.
        let link = bed.connect();
        bed.ends[PASSIVE].provider.reserve_receives(link[PASSIVE], 1);
        let (_, _source) = bed.ends[ACTIVE].send(link[ACTIVE], b"next", None, SIGNALED);
        let done = bed.succeeded(PASSIVE, receive);
        assert_eq!(&filled(sink, &done).bytes()[..4], b"next");
    }
    owner.proof
}
