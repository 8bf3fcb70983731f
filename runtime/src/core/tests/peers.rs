//! The notices about connections that a service gets: `opened` and `closed` once each, and neither for a connection
//! that never became ready.

use super::*;
use crate::service::{Peer, Program, Role, Version};

/// A notice to a service.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Heard {
    Opened(Peer),
    Called(ConnectionId),
    Replied(Result<(), CallError>),
    Left(Peer),
    Closed(Peer, CallError),
}

/// A service that notes what it is told, and answers at once or never.
#[derive(Debug, Default)]
struct Witness {
    heard: Vec<Heard>,
    never: bool,
    shuns: Option<IpAddr>,
    /// Number of Calls that it makes as soon as a connection is ready.
    greetings: u64,
}

impl Service for Witness {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn admits(&self, peer: SocketAddr) -> bool {
        Some(peer.ip()) != self.shuns
    }

    fn opened(&mut self, cx: &mut Cx<'_>, peer: &Peer) {
        assert_eq!(cx.peer(peer.connection), Some(peer.address), "it is there");
        self.heard.push(Heard::Opened(*peer));
        for token in 0..self.greetings {
            cx.call(peer.connection, request(0), token, |_| Ok(())).unwrap();
        }
    }

    fn closed(&mut self, cx: &mut Cx<'_>, peer: &Peer, why: &CallError) {
        assert_eq!(cx.peer(peer.connection), None, "it is gone");
        self.heard.push(Heard::Closed(*peer, why.clone()));
    }

    fn left(&mut self, _: &mut Cx<'_>, peer: &Peer) {
        self.heard.push(Heard::Left(*peer));
    }

    fn call(&mut self, _: &mut Cx<'_>, call: Call<'_>, _: &mut Reply) -> Outcome {
        self.heard.push(Heard::Called(call.connection));
        if self.never { Outcome::Later } else { Outcome::Done }
    }

    fn replied(&mut self, _: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        self.heard.push(Heard::Replied(finished.results.map(drop)));
    }
}

/// Two cores with witnesses, one of which connects to the other.
struct Pair {
    fabric: Fabric,
    now: Instant,
    server: Core<Sim, Witness>,
    client: Core<Sim, Witness>,
    at: SocketAddr,
    connection: ConnectionId,
}

const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));

impl Pair {
    fn new(versions: [Versions; 2], server: Witness, client: Witness) -> Self {
        let fabric = Fabric::new(FabricConfig::default());
        let core = |node, witness, versions, seed| {
            let pool = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
            let limits = Limits { versions, ..LIMITS };
            let nic = fabric.provider(node).unwrap();
            Core::new(nic, witness, Pool::new(&pool).unwrap(), limits, seed).unwrap()
        };
        let mut server = core(SERVER, server, versions[0], 1);
        let mut client = core(CLIENT, client, versions[1], 2);
        let at = server.listen(SocketAddr::new(SERVER, 20050)).unwrap();
        let connection = client.connect(Instant::ZERO, at, binding()).unwrap();
        Self { fabric, now: Instant::ZERO, server, client, at, connection }
    }

    /// Makes a pair whose ends speak version 2 and whose client makes a Call at once, which is answered.
    fn ready() -> Self {
        let greeting = Witness { greetings: 1, ..Witness::default() };
        let mut pair = Self::new([Versions::Both; 2], Witness::default(), greeting);
        pair.until(|pair| pair.client.service().heard.len() == 2);
        pair
    }

    fn until(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..1_000_000 {
            if done(self) {
                return;
            }
            if !(self.server.turn(self.now) | self.client.turn(self.now)) {
                let deadlines = [self.server.poll_deadline(), self.client.poll_deadline()];
                let next = deadlines.into_iter().chain([self.fabric.next_event()]).flatten().min();
                let next = next.expect("something is to happen");
                self.now = next.max(self.now.saturating_add(Duration::from_nanos(1)));
            }
        }
        panic!("no progress");
    }

    fn until_it_is_over(&mut self) {
        self.until(|pair| {
            [&pair.server, &pair.client].iter().all(|core| core.inner.common.connections.len() == 0)
        });
    }

    /// Returns the notices at the server and at the client.
    fn heard(&self) -> [&[Heard]; 2] {
        [&self.server.service().heard, &self.client.service().heard]
    }
}

/// Checks that the notices are those of one connection from its beginning to its end. Returns its peer, and why it
/// ended.
fn one_life(heard: &[Heard]) -> (Peer, CallError) {
    let [Heard::Opened(opened), between @ .., Heard::Closed(closed, why)] = heard else {
        panic!("{heard:?}")
    };
    let told = |heard: &Heard| matches!(heard, Heard::Opened(_) | Heard::Closed(..));
    assert!(!between.iter().any(told), "each is told once: {heard:?}");
    assert_eq!(opened, closed);
    (*opened, why.clone())
}

fn disconnected(why: &CallError, reason: &str) -> bool {
    matches!(why, CallError::Disconnected(text) if text == reason)
}

#[test]
fn a_service_is_told_of_a_connection_before_its_calls_and_after_they_ended() {
    for (versions, version) in [
        ([Versions::Both; 2], Version::Two),
        ([Versions::OnlyOne, Versions::Both], Version::One),
        ([Versions::Both, Versions::OnlyOne], Version::One),
        ([Versions::OnlyOne; 2], Version::One),
    ] {
        let greetings = 5;
        let client = Witness { greetings, ..Witness::default() };
        let mut pair = Pair::new(versions, Witness::default(), client);
        pair.until(|pair| pair.client.service().heard.len() == 6);
        pair.client.close(pair.connection);
        pair.until_it_is_over();
        let [server, client] = pair.heard();
        let (peer, why) = one_life(server);
        assert!(disconnected(&why, "closed by the peer"), "{why:?}");
        assert_eq!(
            (peer.address.ip(), peer.role, peer.version),
            (CLIENT, Role::Server, Some(version))
        );
        assert_eq!(server.len(), 8, "{server:?}");
        assert_eq!(server[6], Heard::Left(peer), "it has every Reply");
        let (peer, why) = one_life(client);
        assert_eq!(why, CallError::Closed);
        assert_eq!((peer.address, peer.role, peer.version), (pair.at, Role::Client, Some(version)));
        assert_eq!((peer.connection, client.len()), (pair.connection, 7));
    }
}

#[test]
fn the_first_message_may_be_a_call_and_is_served_after_its_connection_was_told_of() {
    // A client of version 1 begins with a Call.
    let versions = [Versions::Both, Versions::OnlyOne];
    let mut pair = Pair::new(versions, Witness::default(), Witness::default());
    let (mut cx, _) = pair.client.cx(pair.now);
    cx.call(pair.connection, request(0), 1, |_| Ok(())).unwrap();
    pair.until(|pair| pair.client.service().heard.len() == 2);
    let [server, client] = pair.heard();
    assert!(matches!(server, [Heard::Opened(_), Heard::Called(_)]), "{server:?}");
    assert!(matches!(client, [Heard::Opened(_), Heard::Replied(Ok(()))]), "{client:?}");
}

#[test]
fn calls_that_come_with_the_news_of_their_connection_are_served_behind_it() {
    let versions = [Versions::OnlyOne; 2];
    let mut pair = Pair::new(versions, Witness::default(), Witness::default());
    let (mut cx, _) = pair.client.cx(pair.now);
    cx.call(pair.connection, request(0), 1, |_| Ok(())).unwrap();
    pair.until(|pair| pair.server.inner.common.connections.len() == 1);
    // The server sleeps from its answer until all that the client can do is done.
    loop {
        while pair.client.turn(pair.now) {}
        let Some(next) = pair.fabric.next_event() else { break };
        pair.now = next.max(pair.now);
    }
    pair.server.turn(pair.now);
    let [server, _] = pair.heard();
    assert!(matches!(server, [Heard::Opened(_), Heard::Called(_)]), "{server:?}");
}

#[test]
fn a_connection_that_is_severed_ends_once_and_after_its_calls() {
    let client = Witness { greetings: 3, ..Witness::default() };
    let server = Witness { never: true, ..Witness::default() };
    let mut pair = Pair::new([Versions::Both; 2], server, client);
    pair.until(|pair| pair.server.service().heard.len() == 4);
    pair.fabric.sever_all(CLIENT);
    pair.until_it_is_over();
    for heard in pair.heard() {
        let (_, why) = one_life(heard);
        assert!(disconnected(&why, "connection lost"), "{why:?}");
        assert_eq!(heard.len(), 5, "{heard:?}");
    }
}

#[test]
fn a_client_that_closes_without_a_reply_has_not_left() {
    for closes in [true, false] {
        let client = Witness { greetings: 3, ..Witness::default() };
        let server = Witness { never: closes, ..Witness::default() };
        let mut pair = Pair::new([Versions::Both; 2], server, client);
        pair.until(|pair| pair.server.service().heard.len() == 4);
        if closes {
            pair.client.close(pair.connection);
        } else {
            // The connection is lost while the Replies are on their way.
            pair.fabric.sever_all(CLIENT);
        }
        pair.until_it_is_over();
        let left = |heard: &Heard| matches!(heard, Heard::Left(_));
        assert!(!pair.heard()[0].iter().any(left), "{:?}", pair.heard()[0]);
    }
}

#[test]
fn a_server_that_closes_tells_its_own_service_so() {
    let mut pair = Pair::ready();
    let Heard::Opened(peer) = pair.server.service().heard[0] else { panic!("not opened") };
    pair.server.close(peer.connection);
    pair.until_it_is_over();
    let [server, client] = pair.heard();
    assert_eq!(one_life(server).1, CallError::Closed);
    assert!(disconnected(&one_life(client).1, "closed by the peer"));
}

#[test]
fn a_core_that_has_drained_has_told_of_every_end() {
    let mut pair = Pair::ready();
    pair.server.begin_shutdown(pair.now);
    pair.client.begin_shutdown(pair.now);
    pair.until(|pair| pair.server.is_drained());
    assert_eq!(one_life(pair.heard()[0]).1, CallError::Closed);
    pair.until(|pair| pair.client.is_drained());
    one_life(pair.heard()[1]);
}

#[test]
fn of_a_connection_whose_setup_fails_nobody_is_told() {
    let shuns = Witness { shuns: Some(CLIENT), ..Witness::default() };
    let mut pair = Pair::new([Versions::Both; 2], shuns, Witness::default());
    pair.until_it_is_over();
    assert_eq!(pair.heard(), [&[][..]; 2]);
    // The ends have no version in common. An end that speaks version 1 alone agrees on nothing, and is ready at once.
    for (versions, ready) in [
        ([Versions::OnlyOne, Versions::OnlyTwo], [true, false]),
        ([Versions::OnlyTwo, Versions::OnlyOne], [false, true]),
    ] {
        let mut pair = Pair::new(versions, Witness::default(), Witness::default());
        let (mut cx, _) = pair.client.cx(pair.now);
        cx.call(pair.connection, request(0), 1, |_| Ok(())).unwrap();
        pair.until(|pair| {
            pair.client.service().heard.iter().any(|h| matches!(h, Heard::Replied(_)))
        });
        pair.client.close(pair.connection);
        pair.until_it_is_over();
        for (heard, ready) in pair.heard().into_iter().zip(ready) {
            if ready {
                one_life(heard);
            } else {
                let told = |heard: &Heard| matches!(heard, Heard::Opened(_) | Heard::Closed(..));
                assert!(!heard.iter().any(told), "{versions:?}: {heard:?}");
            }
        }
    }
    // The connection is closed, or severed, before it is ready.
    for sever in [true, false] {
        let mut pair = Pair::new([Versions::Both; 2], Witness::default(), Witness::default());
        if sever {
            pair.fabric.sever_all(CLIENT);
        } else {
            pair.client.close(pair.connection);
        }
        pair.until_it_is_over();
        assert_eq!(pair.heard(), [&[][..]; 2], "severed: {sever}");
    }
}

#[test]
fn a_slot_that_lives_again_is_another_connection() {
    let mut pair = Pair::ready();
    let first = pair.connection;
    for lives in 2..5 {
        pair.client.close(pair.connection);
        pair.until_it_is_over();
        pair.connection = pair.client.connect(pair.now, pair.at, binding()).unwrap();
        assert_ne!(pair.connection, first);
        pair.until(|pair| {
            let opened = |heard: &&Heard| matches!(heard, Heard::Opened(_));
            pair.heard().iter().all(|heard| heard.iter().filter(opened).count() == lives)
        });
    }
    for heard in pair.heard() {
        let states = heard.iter().filter_map(|heard| match heard {
            Heard::Opened(peer) => Some((peer.connection, true)),
            Heard::Closed(peer, _) => Some((peer.connection, false)),
            _ => None,
        });
        let states: Vec<_> = states.collect();
        assert_eq!(states.len(), 7, "{states:?}");
        for pair in states.chunks_exact(2) {
            assert_eq!((pair[0].0, pair[0].1, pair[1].1), (pair[1].0, true, false), "{states:?}");
        }
    }
}
