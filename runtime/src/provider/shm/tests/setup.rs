use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use super::super::hello::{ANOTHER_RELEASE, Kind as HelloKind, LENGTH_MAX, PartialHello};
use super::rogue::{Rogue, hello, layout};
use super::*;
use crate::provider::base::Peers;
use crate::sys::shared::Shared;
use crate::sys::unix::Listener;

/// Sends `bytes` with `fds` to a listener, and checks that nothing is reported, that the socket is closed, and that the
/// listener serves the next peer.
fn refused(node: &mut Node, what: &str, bytes: &[u8], fds: &[OwnedFd]) {
    let stream = Stream::connect(&name(node.listen())).unwrap().expect("room");
    let failed = node.nic.counters().newcomers.handshakes_failed();
    let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
    stream.send(bytes, &fds).unwrap();
    for _ in 0..POLLS_MAX {
        node.poll();
        if node.nic.counters().newcomers.handshakes_failed() > failed {
            assert_eq!(node.seen, [], "{what} was reported");
            assert!(!stream.discard(), "{what} was left standing");
            assert_eq!(node.nic.connections(), 0);
            return;
        }
    }
    panic!("{what} was not noticed");
}

/// Makes a memfd that is not sealed.
fn unsealed(length: u64) -> OwnedFd {
    let path = format!("/dev/shm/haulage-test-{}", std::process::id());
    let file = File::create(&path).unwrap();
    file.set_len(length).unwrap();
    std::fs::remove_file(path).unwrap();
    file.into()
}

fn sealed(length: usize) -> OwnedFd {
    Shared::create(c"test", length).unwrap().1
}

#[test]
fn nothing_a_stranger_says_harms_the_listener() {
    let mut node = Node::new();
    let length = layout().length();
    let good = hello(None).encode();
    let with_region = hello(Some(4096)).encode();
    let answer = super::super::hello::Hello { kind: HelloKind::Accept, ..hello(None) }.encode();
    let empty: [OwnedFd; 0] = [];
    refused(&mut node, "an HTTP request", b"GET / HTTP/1.1\r\n\r\n", &empty);
    refused(&mut node, "a long story", &[b'x'; 10_000], &empty);
    refused(&mut node, "an answer", &answer, &[sealed(length)]);
    refused(&mut node, "a question without memory", &good, &empty);
    refused(&mut node, "more memory than named", &good, &[sealed(length), sealed(4096)]);
    refused(&mut node, "less memory than named", &with_region, &[sealed(length)]);
    refused(&mut node, "a segment that can shrink", &good, &[unsealed(length as u64)]);
    refused(&mut node, "a segment too short", &good, &[sealed(length - 4096)]);
    refused(&mut node, "a segment too long", &good, &[sealed(length + 4096)]);
    let null = || OwnedFd::from(File::open("/dev/null").unwrap());
    refused(&mut node, "a segment that is no memory", &good, &[null()]);
    refused(&mut node, "a region that is no memory", &with_region, &[sealed(length), null()]);
    refused(&mut node, "a region that can shrink", &with_region, &[sealed(length), unsealed(4096)]);
    refused(&mut node, "a region too short", &with_region, &[sealed(length), sealed(4095)]);
    let huge = hello(Some(u64::MAX)).encode();
    refused(&mut node, "a region of no possible length", &huge, &[sealed(length), sealed(4096)]);
    let many: Vec<_> = (0..4).map(|_| sealed(4096)).collect();
    refused(&mut node, "too many descriptors", &good, &many);
    Rogue::new(&mut node, None); // a valid request
}

#[test]
fn a_stranger_that_hangs_up_or_is_silent_is_forgotten() {
    let mut node = Node::new();
    let good = hello(None).encode();
    for said in 0..good.len() {
        let stream = Stream::connect(&name(node.listen())).unwrap().expect("room");
        if said > 0 {
            stream.send(&good[..said], &[]).unwrap();
        }
        node.poll();
        drop(stream);
    }
    let silent = Stream::connect(&name(node.listen())).unwrap().expect("room");
    silent.send(&good[..20], &[]).unwrap();
    let failed = good.len() as u64;
    for _ in 0..POLLS_MAX {
        if node.nic.counters().newcomers.handshakes_failed() == failed {
            break;
        }
        node.poll();
    }
    assert_eq!(node.nic.connections(), 1, "the silent one has its time");
    assert!(node.nic.poll_deadline().is_some());
    while node.nic.connections() > 0 {
        assert!(node.now < Instant::ZERO.saturating_add(2 * config().handshake_timeout));
        node.poll();
    }
    assert_eq!(
        (node.nic.counters().newcomers.handshakes_failed(), node.seen.len()),
        (failed + 1, 0)
    );
    // A child of another test may hold a copy of the socket while it starts.
    while silent.discard() {
        std::thread::yield_now();
    }
}

#[test]
fn a_peer_of_another_release_is_answered_and_finds_out() {
    let mut node = Node::new();
    let mut question = hello(None).encode();
    question[7] += 1;
    let stream = Stream::connect(&name(node.listen())).unwrap().expect("room");
    stream.send(&question, &[]).unwrap();
    let (mut answer, mut fds) = ([0; LENGTH_MAX], Vec::new());
    for _ in 0..POLLS_MAX {
        node.poll();
        if let Some(count) = stream.receive(&mut answer, &mut fds).unwrap() {
            // It would say the same of ours.
            assert!(answer[..count].starts_with(b"haulshm") && answer[7] != question[7]);
            let (told, _) = PartialHello::default().take(&answer[..count], fds).unwrap().unwrap();
            assert_eq!(told.kind, HelloKind::Reject);
            assert_eq!(node.nic.counters().newcomers.handshakes_failed(), 1);
            return;
        }
    }
    panic!("the peer was not answered");
}

#[test]
fn an_answer_that_is_none_fails_the_connection() {
    let port = 1024 + u16::try_from(std::process::id() % 40_000).unwrap();
    let listener = Listener::bind(&name(port)).unwrap();
    let mut node = Node::new();
    let to = SocketAddr::new(LOCAL.ip(), port);
    let said = [
        (
            hello(None).encode(),
            ConnectError::BadHandshake("a request instead of an answer, or the reverse"),
        ),
        (b"HTTP/1.1 400".to_vec(), ConnectError::BadHandshake("not a setup message")),
        (b"haulshm9".to_vec(), ConnectError::BadHandshake(ANOTHER_RELEASE)),
        (Vec::new(), ConnectError::System(io::ErrorKind::ConnectionReset)),
    ];
    for (bytes, reason) in said {
        node.nic.connect(node.now, to, &PARAMS).unwrap();
        let stream = listener.accept().unwrap().expect("it connected");
        if !bytes.is_empty() {
            let fd = sealed(layout().length());
            let fds = [fd.as_fd()];
            stream.send(&bytes, if bytes.starts_with(b"haul") { &fds } else { &[] }).unwrap();
        }
        drop(stream);
        node.until(&Seen::Failed(reason));
        node.poll();
        assert_eq!(node.nic.connections(), 0);
    }
}

#[test]
fn a_peer_that_leaves_before_it_is_answered_is_lost_then() {
    let mut node = Node::new();
    let port = node.listen();
    let stream = Stream::connect(&name(port)).unwrap().expect("room");
    stream.send(&hello(None).encode(), &[sealed(layout().length()).as_fd()]).unwrap();
    node.until(&Seen::Request(Vec::new()));
    drop(stream);
    node.nothing_happens();
    node.nic.accept(node.now, node.qp(), &PARAMS);
    node.until(&Seen::Established);
    node.until(&Seen::Disconnected(DisconnectReason::Lost));
    node.until(&Seen::Quiesced);
    assert_eq!(node.nic.connections(), 0);
}

#[test]
fn only_this_machine_can_be_named() {
    let mut node = Node::new();
    for address in ["192.0.2.1:7", "0.0.0.0:7", "[::]:7"] {
        let at: SocketAddr = address.parse().unwrap();
        assert_eq!(node.nic.listen(at).unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
        let refused = node.nic.connect(node.now, at, &PARAMS).unwrap_err();
        assert_eq!(refused, ConnectError::System(io::ErrorKind::AddrNotAvailable));
    }
    let (_, bound) = node.nic.listen("[::1]:0".parse().unwrap()).unwrap();
    assert!(bound.port() >= PORT_FIRST && bound.ip().is_loopback());
    let taken = node.nic.listen(bound).unwrap_err();
    assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn an_end_that_only_serves_passes_no_memory() {
    let serving = Config { expose: Expose::Connecting, ..config() };
    let (mut active, mut passive) = (Node::new(), Node::with(&serving, 4 << 20));
    connect(&mut active, &mut passive);
    assert!(active.outflow().region_mut().is_none(), "nothing of the server's was mapped");
    assert!(passive.outflow().region_mut().is_some());
    let (lease, qp) = (passive.holding(b"the server's"), passive.qp());
    assert!(passive.nic.open(qp, lease, Access::RemoteRead).is_err());
    let (_exposed, segment) = active.expose(b"from the client", Access::RemoteRead);
    let (posted, sink) = passive.sink(15);
    let read = passive.post(Operation::Read { sink, source: claim(segment) });
    let done = passive.succeeded(read, Opcode::Read);
    assert_eq!(complete::sink(posted, &done).unwrap().bytes(), b"from the client");
}

#[test]
fn memory_that_no_peer_can_map_cannot_be_exposed() {
    let (mut active, mut passive) = pair();
    let elsewhere = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let elsewhere = Pool::new(&elsewhere).unwrap();
    let (lease, qp) = (elsewhere.lease(8).unwrap(), active.qp());
    let (back, why) = active.nic.open(qp, lease, Access::RemoteRead).unwrap_err();
    assert_eq!((back.len(), why), (8, Refused::NotOpen));
    // The connection is unharmed.
    let (_sent, _source) = active.send(b"still here", None);
    passive.receive(64);
    passive.until(&Seen::Completion(WrId(1), Opcode::Receive, Status::Success));
}

/// Runs this test again as another user, which only root can.
#[test]
fn another_user_is_refused_by_either_end() {
    let mut node = Node::new();
    let port = node.listen();
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "provider::shm::tests::setup::as_another_user"])
        .env(PORT_VARIABLE, port.to_string())
        .uid(NOBODY)
        .output();
    if unix::user() != 0
        || child.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
    {
        eprintln!("only root can run a process as another user, and only where that finds us");
        return;
    }
    let output = child.unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // The other user admits root, but root does not admit the other user: no connection comes of it.
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    (0..A_WHILE).for_each(|_| node.poll());
    assert_eq!(node.seen, []);
    assert_eq!((node.nic.counters().newcomers.handshakes_failed(), node.nic.connections()), (1, 0));
}

#[test]
#[ignore = "the other user of another test"]
fn as_another_user() {
    assert_eq!(unix::user(), NOBODY);
    let port: u16 = std::env::var(PORT_VARIABLE).unwrap().parse().unwrap();
    let stream = Stream::connect(&name(port)).unwrap().expect("room");
    assert!(stream.peer().unwrap().may_share_with(NOBODY), "the listener is root's");
    stream.send(&hello(None).encode(), &[sealed(layout().length()).as_fd()]).unwrap();
}

const PORT_VARIABLE: &str = "HAULAGE_TEST_SHM_PORT";
const NOBODY: u32 = 65534;

#[test]
fn regions_have_a_limit_each_and_together() {
    let mib = 1 << 20;
    let limits = Config { region_bytes_max: 8 * mib, regions_bytes_max: 16 * mib, ..config() };
    let mut passive = Node::with(&limits, 4 << 20);
    let ask = |node: &mut Node, passive: &mut Node| {
        let to = SocketAddr::new(LOCAL.ip(), passive.listen());
        node.nic.connect(node.now, to, &PARAMS).unwrap();
    };
    let refused = |node: &mut Node, passive: &mut Node, reason| {
        let failed = Seen::Failed(ConnectError::BadHandshake(reason));
        ask(node, passive);
        for _ in 0..POLLS_MAX {
            passive.poll();
            node.poll();
            if !node.seen.is_empty() {
                break;
            }
        }
        assert_eq!((node.seen.as_slice(), passive.seen.as_slice()), (&[failed][..], &[][..]));
        node.seen.clear();
    };
    // A peer that passes more than this end maps.
    let mut large = Node::with(&config(), 10 << 20);
    refused(&mut large, &mut passive, "the memory to be shared is longer than the peer maps");
    // Two peers that pass less, but together more than one process may.
    let (mut first, mut second) = (Node::with(&config(), 8 << 20), Node::with(&config(), 6 << 20));
    connect(&mut first, &mut passive);
    let first_qp = passive.qp();
    refused(&mut second, &mut passive, "the peer maps no more memory of others now");
    assert_eq!(passive.nic.counters().newcomers.handshakes_failed(), 2);
    // The peer that was admitted is served, and makes room as it goes.
    passive.qp = Some(first_qp);
    carry(&mut first, &mut passive);
    first.nic.disconnect(first.now, first.qp());
    first.until(&Seen::Quiesced);
    passive.until(&Seen::Quiesced);
    passive.seen.clear();
    connect(&mut second, &mut passive);
    carry(&mut second, &mut passive);
}

#[test]
fn who_passes_something_else_than_memory_is_refused_and_it_is_closed() {
    let mut node = Node::new();
    let stream = Stream::connect(&name(node.listen())).unwrap().expect("room in the queue");
    let (mut end, passed) = io::pipe().unwrap();
    stream.send(&hello(None).encode(), &[passed.as_fd()]).unwrap();
    drop(passed);
    while node.nic.counters().newcomers.handshakes_failed() == 0 {
        node.poll();
    }
    assert_eq!(node.nic.counters().newcomers.malformed, 1);
    // It ends when the last descriptor of the other end is closed.
    assert_eq!(end.read(&mut [0]).unwrap(), 0);
}

#[test]
fn an_end_that_connects_and_has_no_room_says_so() {
    let mib = 1 << 20;
    let reasons = [
        (4 * mib, 1 << 40, "the peer's memory is longer than this end maps"),
        (8 * mib, 12 * mib, "this end maps no more memory of others now"),
    ];
    for (region_bytes_max, regions_bytes_max, reason) in reasons {
        let limits = Config { region_bytes_max, regions_bytes_max, ..config() };
        let mut active = Node::with(&limits, 4 << 20);
        let mut passive = Node::with(&config(), 8 << 20);
        let to = SocketAddr::new(LOCAL.ip(), passive.listen());
        active.nic.connect(active.now, to, &PARAMS).unwrap();
        for _ in 0..POLLS_MAX {
            passive.poll();
            active.poll();
            if passive.seen.pop() == Some(Seen::Request(Vec::new())) {
                passive.nic.accept(passive.now, passive.qp(), &PARAMS);
            }
            if !active.seen.is_empty() {
                break;
            }
        }
        assert_eq!(active.seen, [Seen::Failed(ConnectError::BadHandshake(reason))]);
    }
}

#[test]
fn a_process_that_passes_all_it_may_keeps_no_other_out() {
    let limits = Config { regions_bytes_max: 2 * REGION as u64, ..config() };
    let mut passive = Node::with(&limits, 4 << 20);
    let _rogue = Rogue::new(&mut passive, Some(REGION));
    let (region, segment) = (sealed(REGION), sealed(layout().length()));
    let more = hello(Some(REGION as u64)).encode();
    let stream = Stream::connect(&name(passive.listen())).unwrap().expect("room");
    stream.send(&more, &[segment.as_fd(), region.as_fd()]).unwrap();
    for _ in 0..POLLS_MAX {
        if passive.nic.counters().newcomers.handshakes_failed() > 0 {
            break;
        }
        passive.poll();
    }
    assert_eq!(
        (passive.nic.counters().newcomers.handshakes_failed(), passive.nic.connections()),
        (1, 1)
    );
    let mut stranger = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--ignored", "provider::shm::tests::setup::as_another_process"])
        .env(PORT_VARIABLE, passive.listen().to_string())
        .spawn()
        .unwrap();
    let is_over = |stranger: &mut Child| stranger.try_wait().unwrap().is_some();
    while !is_over(&mut stranger) && passive.seen.is_empty() {
        passive.poll();
        std::thread::yield_now();
    }
    assert_eq!(passive.seen, [Seen::Request(Vec::new())]);
    passive.accept();
    assert!(stranger.wait().unwrap().success());
}

#[test]
#[ignore = "the other process of another test"]
fn as_another_process() {
    let port: u16 = std::env::var(PORT_VARIABLE).unwrap().parse().unwrap();
    let stream = Stream::connect(&name(port)).unwrap().expect("room");
    let (region, segment) = (sealed(REGION), sealed(layout().length()));
    let said = hello(Some(REGION as u64)).encode();
    stream.send(&said, &[segment.as_fd(), region.as_fd()]).unwrap();
    let (mut octets, mut fds) = ([0; LENGTH_MAX], Vec::new());
    let count = loop {
        match stream.receive(&mut octets, &mut fds).unwrap() {
            Some(count) => break count,
            None => std::thread::yield_now(),
        }
    };
    let (answer, _) = PartialHello::default().take(&octets[..count], fds).unwrap().unwrap();
    assert_eq!(answer.kind, HelloKind::Accept);
}

/// Octets of the regions that two processes pass.
const REGION: usize = 1 << 20;

#[test]
fn whoever_finds_no_room_waits_for_it() {
    let narrow = Config { connections_max: 2, ..config() };
    let mut node = Node::with(&narrow, 4 << 20);
    let port = node.listen();
    let ask = || {
        let stream = Stream::connect(&name(port)).unwrap().expect("room in the queue");
        stream.send(&hello(None).encode(), &[sealed(layout().length()).as_fd()]).unwrap();
        stream
    };
    // Two peers never send a request, and a third does: the one that was silent longest makes room.
    let silent = [0, 1].map(|_| Stream::connect(&name(port)).unwrap().expect("room"));
    (0..A_WHILE).for_each(|_| node.poll());
    assert_eq!((node.nic.connections(), node.seen.len()), (2, 0));
    let asking = ask();
    node.until(&Seen::Request(Vec::new()));
    assert!(!silent[0].discard() && silent[1].discard(), "the first one was");
    // Another peer has to wait until one goes.
    drop(silent);
    let second = ask();
    node.until(&Seen::Request(Vec::new()));
    let waiting = ask();
    node.nothing_happens();
    node.nic.reject(node.now, node.qp(), b"");
    node.until(&Seen::Request(Vec::new()));
    drop((asking, second, waiting));
}

#[test]
fn whoever_could_not_be_accepted_is_accepted_in_time() {
    let mut node = Node::with(&Config { connections_max: 1, ..config() }, 4 << 20);
    let (listener, at) = node.nic.listen(LOCAL).unwrap();
    let is_due_soon = |node: &Node| {
        let soon = node.now.saturating_add(Duration::from_millis(100));
        node.nic.poll_deadline().is_some_and(|deadline| deadline <= soon)
    };
    assert!(!is_due_soon(&node));
    // The state after the system refused a descriptor for a peer.
    node.nic.listeners.leave(listener, Peers::Paused);
    node.nic.accept_at = node.now.saturating_add(Duration::from_millis(50));
    assert!(is_due_soon(&node), "it wants to be polled for it");
    node.now = node.nic.accept_at;
    node.poll();
    assert!(!is_due_soon(&node), "no peer waits");
    // While all slots are in use, a waiting peer needs no deadline: the slot that gets free has it accepted.
    let mut active = Node::new();
    active.nic.connect(active.now, at, &PARAMS).unwrap();
    node.accept();
    assert_eq!((node.nic.listeners.is_any_paused(), is_due_soon(&node)), (true, false));
    node.nic.disconnect(node.now, node.qp());
    node.until(&Seen::Quiesced);
    // A listener that is closed accepts nobody.
    node.nic.listeners.leave(listener, Peers::Paused);
    node.nic.unlisten(listener);
    assert!(!is_due_soon(&node));
}

#[test]
fn a_storm_of_newcomers_is_gone_through_without_a_pause() {
    let mut node = Node::new();
    let port = node.listen();
    // Those who left again, as many as several looks take, and one who asks.
    let gone = (0..300).map(|_| Stream::connect(&name(port)).unwrap().expect("room in the queue"));
    gone.for_each(drop);
    let asking = Stream::connect(&name(port)).unwrap().expect("room in the queue");
    asking.send(&hello(None).encode(), &[sealed(layout().length()).as_fd()]).unwrap();
    node.poll();
    let mut polls = 1;
    while !node.seen.iter().any(|seen| matches!(seen, Seen::Request(_))) {
        let deadline = node.nic.poll_deadline();
        assert!(
            deadline.is_some_and(|at| at <= node.now),
            "poll {polls} of {:?}: {deadline:?}",
            node.now
        );
        node.poll();
        polls += 1;
    }
    assert!(polls > 1, "they were too few for this test");
}

#[test]
fn many_connections_have_short_rings() {
    let long = Config { ring_bytes: 1 << 20, ..config() };
    let (mut active, mut passive) = (Node::with(&long, 4 << 20), Node::with(&long, 4 << 20));
    let ring = |node: &mut Node| {
        let qp = node.qp();
        let outflow = node.nic.slots.get(qp).unwrap().outflow().unwrap();
        outflow.segment().layout().ring_bytes()
    };
    let mut connected = Vec::new();
    for count in 1..=LONG_RINGS_MAX + 2 {
        connect(&mut active, &mut passive);
        connected.push(active.qp());
        let octets = if count <= LONG_RINGS_MAX { 1 << 20 } else { 64 << 10 };
        assert_eq!([ring(&mut active), ring(&mut passive)], [octets; 2], "connection {count}");
    }
    for qp in connected.drain(..3) {
        active.nic.disconnect(active.now, qp);
        active.until(&Seen::Quiesced);
    }
    connect(&mut active, &mut passive);
    assert_eq!(ring(&mut active), 1 << 20, "one of {LONG_RINGS_MAX} again");
}

#[test]
fn a_listener_knows_the_process_that_connects() {
    let (_active, passive) = pair();
    assert_eq!(passive.process, Some(std::process::id()));
}

#[test]
fn memory_of_a_peer_is_mapped_when_it_was_accepted_and_not_before() {
    let names = ["waits-as-segment", "waits-as-region"];
    let mapped = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        names.map(|name| maps.contains(name))
    };
    let mut node = Node::new();
    let segment = Shared::create(c"waits-as-segment", layout().length()).unwrap().1;
    let region = Shared::create(c"waits-as-region", REGION).unwrap().1;
    let stream = Stream::connect(&name(node.listen())).unwrap().expect("room");
    let asked = hello(Some(REGION as u64)).encode();
    stream.send(&asked, &[segment.as_fd(), region.as_fd()]).unwrap();
    node.until(&Seen::Request(Vec::new()));
    assert_eq!(mapped(), [false; 2]);
    node.nic.accept(node.now, node.qp(), &PARAMS);
    node.until(&Seen::Established);
    assert_eq!(mapped(), [true; 2]);
    node.nic.disconnect(node.now, node.qp());
    node.until(&Seen::Quiesced);
    assert_eq!(mapped(), [false; 2]);
}
