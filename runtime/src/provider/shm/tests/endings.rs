use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

use super::super::table::CopyGrant;
use super::*;

/// Returns the in-use word of a registration of `owner`, whose peer this thread plays.
pub(super) fn in_use(owner: &mut Node, handle: Handle) -> &std::sync::atomic::AtomicU32 {
    let slot = owner.nic.nic.handles.slot(handle);
    let connection = owner.connection();
    let segment = connection.outflow().expect("it is not over").segment();
    segment.memory().u32_at(segment.entry(slot).unwrap() + 32)
}

#[test]
fn an_invalidation_waits_for_a_peer_that_copies() {
    let (mut active, mut passive) = pair();
    let (exposed, segment) = active.expose(b"in use", Access::RemoteWrite);
    in_use(&mut active, segment.handle).store(1, Ordering::SeqCst);
    let retired = active.post(Operation::LocalInv { handle: segment.handle });
    let (sent, _source) = active.send(b"behind it", None);
    active.nothing_happens();
    // The key is cleared meanwhile: the peer cannot enter again.
    let slot = active.nic.nic.handles.slot(segment.handle);
    let theirs = passive.connection().inflow().unwrap().segment();
    let entry = theirs.entry(slot).unwrap();
    assert_eq!(theirs.memory().u64_at(entry).load(Ordering::SeqCst), 0);
    // The end of the connection does not end the copy.
    drop(passive);
    active.until(&Seen::Disconnected(DisconnectReason::Lost));
    active.until(&Seen::Completion(retired, Opcode::LocalInv, Status::Flushed));
    active.until(&Seen::Completion(sent, Opcode::Send, Status::Flushed));
    active.nothing_happens();
    in_use(&mut active, segment.handle).store(0, Ordering::SeqCst);
    active.until(&Seen::Quiesced);
    let proof = complete::destroyed(&exposed, &active.quiesced[0]);
    assert_eq!(exposed.fence(proof).unwrap().bytes(), b"in use");
}

#[test]
fn a_local_invalidation_completes_when_the_copy_is_over() {
    let (mut active, _passive) = pair();
    let (exposed, segment) = active.expose(b"in use", Access::RemoteRead);
    in_use(&mut active, segment.handle).store(1, Ordering::SeqCst);
    let retired = active.post(Operation::LocalInv { handle: segment.handle });
    active.nothing_happens();
    in_use(&mut active, segment.handle).store(0, Ordering::SeqCst);
    let done = active.succeeded(retired, Opcode::LocalInv);
    let proof = complete::invalidated(&done).unwrap();
    assert_eq!(exposed.fence(proof).unwrap().bytes(), b"in use");
}

#[test]
fn a_remote_invalidation_is_delivered_when_the_copy_is_over() {
    let (mut active, mut passive) = pair();
    let (exposed, segment) = active.expose(b"in use", Access::RemoteWrite);
    let (received, _sink) = active.receive(16);
    in_use(&mut active, segment.handle).store(1, Ordering::SeqCst);
    passive.send(b"done with it", Some(segment.handle));
    active.nothing_happens();
    in_use(&mut active, segment.handle).store(0, Ordering::SeqCst);
    let done = active.succeeded(received, Opcode::Receive);
    assert_eq!(done.invalidated, Some(segment.handle));
    let proof = complete::invalidated(&done).unwrap();
    assert_eq!(exposed.fence(proof).unwrap().bytes(), b"in use");
}

#[test]
fn a_connection_that_ends_is_quarantined_while_its_peer_copies() {
    let (mut active, _passive) = pair();
    let (exposed, segment) = active.expose(b"in use", Access::RemoteRead);
    let (free, _) = active.expose(b"not in use", Access::RemoteRead);
    in_use(&mut active, segment.handle).store(1, Ordering::SeqCst);
    let qp = active.qp();
    active.nic.disconnect(active.now, qp);
    active.until(&Seen::Disconnected(DisconnectReason::Local));
    active.seen.clear();
    active.nothing_happens();
    assert!(active.quiesced.is_empty() && active.nic.connections() == 1);
    assert!(active.nic.poll_deadline().is_some(), "it wants to be polled for it");
    let exposed = complete::tests::fence_early(exposed, segment.handle).unwrap_err();
    in_use(&mut active, segment.handle).store(0, Ordering::SeqCst);
    active.until(&Seen::Quiesced);
    assert_eq!(active.nic.connections(), 0);
    for (exposed, bytes) in [(exposed, &b"in use"[..]), (free, b"not in use")] {
        let proof = complete::destroyed(&exposed, &active.quiesced[0]);
        assert_eq!(exposed.fence(proof).unwrap().bytes(), bytes);
    }
}

#[test]
fn a_quarantined_connection_lets_its_core_sleep() {
    let (mut active, passive) = pair();
    let (_exposed, segment) = active.expose(b"in use", Access::RemoteRead);
    in_use(&mut active, segment.handle).store(1, Ordering::SeqCst);
    drop(passive);
    active.until(&Seen::Disconnected(DisconnectReason::Lost));
    let looked = active.nic.counters().syscalls;
    active.nic.sleep(Some(Duration::ZERO));
    assert_eq!(active.nic.counters().syscalls, looked + 1, "it did not wait at the sockets");
}

#[test]
fn memory_in_use_when_its_provider_goes_is_nobodys_again() {
    let (mut active, _passive) = pair();
    let (exposed, segment) = active.expose(b"in use", Access::RemoteRead);
    let (free, other) = active.expose(b"not in use", Access::RemoteRead);
    in_use(&mut active, segment.handle).store(1, Ordering::SeqCst);
    drop(active.nic);
    assert!(complete::tests::fence_early(exposed, segment.handle).is_err());
    assert!(complete::tests::fence_early(free, other.handle).is_ok());
    assert_eq!(active.pool.gauges().orphans, 1);
}

#[test]
fn a_peer_that_closes_has_all_that_it_took() {
    for (taken, reason) in [
        (2, DisconnectReason::PeerHasAll),
        (1, DisconnectReason::Peer),
        (0, DisconnectReason::Peer),
    ] {
        let (mut active, mut passive) = pair();
        let receives: Vec<_> = (0..taken).map(|_| active.receive(8)).collect();
        let sent = [b"first", b"other"].map(|bytes| passive.send(bytes, None));
        for (id, _) in &sent {
            passive.until(&Seen::Completion(*id, Opcode::Send, Status::Success));
        }
        for (id, sink) in receives {
            complete::sink(sink, &active.succeeded(id, Opcode::Receive)).unwrap();
        }
        active.nic.disconnect(active.now, active.qp());
        active.until(&Seen::Disconnected(DisconnectReason::Local));
        passive.until(&Seen::Disconnected(reason));
    }
}

/// Takes every message.
struct Taker;

impl crate::provider::MessageSink for Taker {
    fn messages(&mut self, _: QpNum, run: &crate::provider::Run<'_>, _: &mut impl Port) -> usize {
        run.octets.len()
    }
}

#[test]
fn a_peer_that_took_messages_without_receives_and_closes_at_once_has_them() {
    let (mut active, mut passive) = pair();
    active.poll();
    for bytes in [b"first", b"other"] {
        let (sent, _source) = passive.send(bytes, None);
        passive.until(&Seen::Completion(sent, Opcode::Send, Status::Success));
    }
    assert_eq!(active.nic.receive_in_place(&mut [0; 64], 64, 64, &mut Taker), 2);
    active.nic.disconnect(active.now, active.qp());
    passive.until(&Seen::Disconnected(DisconnectReason::PeerHasAll));
}

/// Starts a process that connects to `port`, copies under the handle it is sent, and does not finish.
fn copying(port: u16) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "--nocapture", "provider::shm::tests::endings::as_a_peer"])
        .env(PORT_VARIABLE, port.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "the process that other tests kill"]
fn as_a_peer() {
    let port: u16 = std::env::var(PORT_VARIABLE).unwrap().parse().unwrap();
    let mut node = Node::by_the_clock();
    let (received, sink) = node.receive(4);
    node.nic.connect(node.now, SocketAddr::new(LOCAL.ip(), port), &PARAMS).unwrap();
    node.until(&Seen::Established);
    let done = node.succeeded(received, Opcode::Receive);
    let handle = complete::sink(sink, &done).unwrap();
    let handle = Handle(u32::from_be_bytes(handle.bytes().try_into().unwrap()));
    let slot = node.nic.nic.handles.slot(handle);
    let theirs = node.connection().inflow().unwrap().segment();
    let grant = CopyGrant::enter(theirs, slot, handle, Access::RemoteWrite).unwrap();
    let mut out = std::io::stdout();
    writeln!(out, "{COPYING}").and_then(|()| out.flush()).unwrap();
    // Wait to be killed, or for the end of the process that would do that.
    let _ = std::io::stdin().read(&mut [0]);
    drop(grant);
}

#[test]
fn a_peer_killed_while_it_copies_gives_the_memory_back() {
    for end in [End::Killed, End::Reaped, End::Disconnected] {
        let mut node = Node::by_the_clock();
        let port = node.listen();
        let mut child = copying(port);
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        node.accept();
        let (exposed, segment) = node.expose(b"in use", Access::RemoteWrite);
        node.send(&segment.handle.0.to_be_bytes(), None);
        assert!(said.any(|line| line.unwrap().contains(COPYING)), "it did not come so far");
        node.poll();
        node.seen.clear();

        if end == End::Disconnected {
            let qp = node.qp();
            node.nic.disconnect(node.now, qp);
            node.until(&Seen::Disconnected(DisconnectReason::Local));
            node.nothing_happens();
        }
        child.kill().unwrap();
        if end == End::Reaped {
            child.wait().unwrap();
        }
        if end != End::Disconnected {
            node.until(&Seen::Disconnected(DisconnectReason::Lost));
        }
        node.until(&Seen::Quiesced);
        assert_eq!(node.nic.link_counters().quarantines, 1);
        let proof = complete::destroyed(&exposed, &node.quiesced[0]);
        assert_eq!(exposed.fence(proof).unwrap().bytes(), b"in use");
        child.wait().unwrap();
    }
}

/// The first end that a connection comes to, whose peer is killed.
#[derive(PartialEq, Eq)]
enum End {
    /// The peer's.
    Killed,
    /// The peer's, and its parent waits for it before we notice.
    Reaped,
    /// Ours.
    Disconnected,
}

const PORT_VARIABLE: &str = "HAULAGE_TEST_SHM_PORT";
const COPYING: &str = "copying now";
