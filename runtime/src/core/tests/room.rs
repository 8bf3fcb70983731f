//! The connections that have to go when there is no room for all.

use super::*;
use crate::core::admission::IDLE_MIN;

/// A service that answers at once, except Calls that it is told to keep; it promises callbacks to some connections.
#[derive(Debug, Default)]
struct Host {
    kept: Vec<CallToken>,
    promised: Vec<ConnectionId>,
    /// The connection of the last Call.
    last: Option<ConnectionId>,
}

impl Service for Host {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn has_promised(&self, connection: ConnectionId) -> bool {
        self.promised.contains(&connection)
    }

    fn call(&mut self, _: &mut Cx<'_>, call: Call<'_>, _: &mut Reply) -> Outcome {
        self.last = Some(call.connection);
        if call.procedure == TELL {
            self.kept.push(call.token);
            return Outcome::Later;
        }
        Outcome::Done
    }

    fn resume(&mut self, _: &mut Cx<'_>, _: CallToken, _: &mut Reply) -> Outcome {
        Outcome::Done
    }
}

/// A server with room for few, and machines that call it.
struct Inn {
    fabric: Fabric,
    now: Instant,
    at: SocketAddr,
    server: Core<Sim, Host>,
    guests: Vec<Core<Sim, Caller>>,
    tokens: u64,
}

/// A connection of a machine, by number.
#[derive(Clone, Copy)]
struct Guest {
    machine: usize,
    connection: ConnectionId,
}

const ROOM: Limits = Limits { connections_max: 4, connections_each_max: 4, ..LIMITS };

impl Inn {
    fn new(limits: Limits, machines: u8) -> Self {
        let fabric = Fabric::new(FabricConfig::default());
        let node = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
        let config = PoolConfig { bytes: 4 << 20, pages: PagePreference::Heap, node: None };
        let pool = || Pool::new(&config).unwrap();
        let server = fabric.provider(node(1)).unwrap();
        let mut server = Core::new(server, Host::default(), pool(), limits, 1).unwrap();
        let at = server.listen(SocketAddr::new(node(1), 20050)).unwrap();
        let guests = (0..machines).map(|machine| {
            let provider = fabric.provider(node(machine + 2)).unwrap();
            Core::new(provider, Caller::default(), pool(), LIMITS, 2).unwrap()
        });
        let guests = guests.collect();
        Self { fabric, now: Instant::ZERO, at, server, guests, tokens: 0 }
    }

    /// Lets time pass, with everything that happens in it.
    fn wait(&mut self, time: Duration) {
        let end = self.now.saturating_add(time);
        for _ in 0..100_000 {
            let mut worked = self.server.turn(self.now);
            for guest in &mut self.guests {
                worked |= guest.turn(self.now);
            }
            if worked {
                continue;
            }
            let due = self.server.poll_deadline().filter(|due| *due > self.now && *due <= end);
            let next = self.fabric.next_event().into_iter().chain(due).min();
            match next {
                Some(next) => self.now = next.max(self.now),
                None if self.now < end => self.now = end,
                None => return,
            }
        }
        panic!("it never settles");
    }

    /// Has a machine connect, without a Call.
    fn arrive(&mut self, machine: usize) -> Guest {
        let connection = self.guests[machine].connect(self.now, self.at, binding()).unwrap();
        self.wait(Duration::from_millis(1));
        Guest { machine, connection }
    }

    /// Has a machine connect and make a Call; it must be served.
    fn move_in(&mut self, machine: usize) -> Guest {
        let guest = self.arrive(machine);
        assert_eq!(self.call(guest, 0), Ok(()), "it is served");
        guest
    }

    /// Makes a Call. Returns how it ended, if it is answered at once.
    fn call(&mut self, guest: Guest, procedure: u32) -> Result<(), Option<CallError>> {
        self.tokens += 1;
        let token = self.tokens;
        let (mut cx, _) = self.guests[guest.machine].cx(self.now);
        if let Err((error, _)) = cx.call(guest.connection, request(procedure), token, |w| w.u32(0))
        {
            return Err(Some(error));
        }
        self.wait(Duration::from_millis(1));
        let ended = &self.guests[guest.machine].service().ended;
        let ended = ended.iter().find(|(ended, ..)| *ended == token).ok_or(None)?;
        ended.1.clone().map(drop).map_err(Some)
    }

    fn lives(&self, guest: Guest) -> bool {
        let common = &self.guests[guest.machine].inner.common;
        common.connections.get(guest.connection.0).is_some()
    }

    fn replaced(&self) -> u64 {
        self.server.inner.common.counters.connections_replaced
    }
}

#[test]
fn idle_connections_give_way_once_they_have_been_idle_long_enough() {
    let mut inn = Inn::new(ROOM, 2);
    let mut idle = Vec::new();
    for _ in 0..4 {
        idle.push(inn.move_in(0));
        inn.wait(Duration::from_secs(1));
    }
    let early = inn.arrive(1);
    assert!(!inn.lives(early), "all were active a moment ago");
    assert_eq!((inn.replaced(), inn.server.inner.common.counters.connections_rejected), (0, 1));
    inn.wait(IDLE_MIN);
    // The first connection is active again, so the second has been idle longest.
    assert_eq!(inn.call(idle[0], 0), Ok(()));
    inn.move_in(1);
    let alive: Vec<_> = idle.iter().map(|guest| inn.lives(*guest)).collect();
    assert_eq!((alive, inn.replaced()), (vec![true, false, true, true], 1));
    // The connections of the crowd go one by one, until either machine has as many.
    inn.move_in(1);
    let late = inn.arrive(1);
    assert_eq!((inn.replaced(), inn.lives(late)), (2, false));
}

#[test]
fn connections_that_never_made_a_call_go_first_and_at_once() {
    let mut inn = Inn::new(ROOM, 2);
    let caller = inn.move_in(0);
    let silent: Vec<_> = (0..3).map(|_| inn.arrive(0)).collect();
    let guests: Vec<_> = (0..3).map(|_| inn.move_in(1)).collect();
    assert!(silent.iter().all(|silent| !inn.lives(*silent)));
    assert!(guests.iter().chain([&caller]).all(|guest| inn.lives(*guest)));
    assert_eq!((inn.replaced(), inn.server.inner.common.connections.len()), (3, 4));
    let last = inn.arrive(1);
    assert!(!inn.lives(last));
}

#[test]
fn a_crowd_of_silent_newcomers_pushes_out_its_own() {
    let mut inn = Inn::new(ROOM, 2);
    let honest = inn.move_in(1);
    for _ in 0..20 {
        inn.arrive(0);
        assert!(inn.lives(honest));
    }
    assert_eq!((inn.replaced(), inn.server.inner.common.connections.occupancy().all()), (17, 4));
    assert_eq!(inn.call(honest, 0), Ok(()));
    inn.move_in(1);
}

#[test]
fn what_is_under_way_and_what_was_promised_stay() {
    let mut inn = Inn::new(ROOM, 2);
    let busy = inn.move_in(0);
    assert_eq!(inn.call(busy, TELL), Err(None), "it is kept");
    let waits = inn.move_in(0);
    let promised = inn.server.service().last.unwrap();
    inn.server.cx(inn.now).1.promised.push(promised);
    let idle = [inn.move_in(0), inn.move_in(0)];
    inn.wait(60 * IDLE_MIN);
    inn.move_in(1);
    inn.move_in(1);
    assert!(inn.lives(busy) && inn.lives(waits));
    assert!(idle.iter().all(|idle| !inn.lives(*idle)));
    let late = inn.arrive(1);
    assert!(!inn.lives(late), "nobody can go");
    // Once its Call is answered, the connection can go.
    let (mut cx, host) = inn.server.cx(inn.now);
    host.kept.drain(..).for_each(|token| cx.resume(token));
    inn.wait(Duration::from_millis(1));
    inn.wait(IDLE_MIN);
    assert_eq!(inn.replaced(), 2);
    inn.move_in(0);
    assert_eq!((inn.replaced(), inn.lives(busy), inn.lives(waits)), (3, false, true));
}

#[test]
fn one_address_has_no_more_than_its_part() {
    let mut inn = Inn::new(Limits { connections_each_max: 2, ..ROOM }, 3);
    let mine = [inn.move_in(0), inn.move_in(0)];
    let third = inn.arrive(0);
    assert!(!inn.lives(third), "there is room, but not for this one");
    let others = [inn.move_in(1), inn.move_in(2)];
    inn.wait(IDLE_MIN);
    inn.move_in(0);
    assert!(!inn.lives(mine[0]) && inn.lives(mine[1]), "one of its own went");
    assert!(others.iter().all(|other| inn.lives(*other)));
}

#[test]
fn who_goes_is_out_before_long_and_leaves_nothing_behind() {
    let mut inn = Inn::new(Limits { connections_max: 1, connections_each_max: 1, ..ROOM }, 1);
    for round in 0..50 {
        inn.move_in(0);
        inn.wait(IDLE_MIN);
        assert_eq!(inn.replaced(), round);
        assert_eq!(inn.server.inner.common.connections.len(), 1);
    }
    all_home(&mut inn.server, inn.now);
}

#[test]
fn idle_connections_are_closed_where_that_is_wanted_and_busy_ones_are_not() {
    let limit = Duration::from_secs(30);
    let mut inn = Inn::new(Limits { idle_timeout: Some(limit), ..ROOM }, 1);
    let silent = inn.arrive(0);
    let [idle, active, busy] = [inn.move_in(0), inn.move_in(0), inn.move_in(0)];
    assert_eq!(inn.call(busy, TELL), Err(None));
    for _ in 0..4 {
        inn.wait(limit / 3);
        assert_eq!(inn.call(active, 0), Ok(()));
    }
    let alive = [silent, idle, active, busy].map(|guest| inn.lives(guest));
    assert_eq!(alive, [false, false, true, true]);
    assert_eq!(inn.server.inner.common.counters.connections_idle, 2);
    let (mut cx, host) = inn.server.cx(inn.now);
    host.kept.drain(..).for_each(|token| cx.resume(token));
    inn.wait(Duration::from_millis(1));
    // Nothing else happens from here on.
    for _ in 0..4 {
        let deadline = inn.server.poll_deadline().unwrap_or(inn.now);
        inn.wait(deadline.saturating_since(inn.now));
    }
    assert_eq!(inn.server.inner.common.connections.len(), 0);
    assert_eq!(inn.server.inner.common.counters.connections_idle, 4);
}

#[test]
fn connections_that_are_idle_for_days_live_unless_told_otherwise() {
    let mut inn = Inn::new(ROOM, 1);
    let guests = [inn.arrive(0), inn.move_in(0)];
    inn.wait(Duration::from_secs(3 * 24 * 3600));
    assert_eq!(guests.map(|guest| inn.call(guest, 0)), [Ok(()), Ok(())]);
}

#[test]
fn the_provider_is_never_full_before_the_core() {
    let many = Limits { connections_max: 100, receives_max: 512, ..LIMITS };
    let mut inn = Inn::new(many, 16);
    let pairs = inn.server.provider.caps().queue_pairs_max;
    let most = inn.server.inner.common.limits.connections_max as usize;
    assert!(most < pairs, "{most} connections of {pairs}");
    // However many connections stay silent, the next one finds a place.
    for round in 0..2 * pairs {
        let before = inn.replaced() + u64::from(inn.server.inner.common.connections.len());
        let guest = inn.arrive(round % 16);
        assert_eq!(
            inn.replaced() + u64::from(inn.server.inner.common.connections.len()),
            before + 1
        );
        assert!(inn.lives(guest));
    }
}

#[test]
fn a_crowd_that_comes_at_once_drives_out_no_more_than_take_the_places() {
    let limits =
        Limits { connections_max: 16, connections_each_max: 16, receives_max: 256, ..LIMITS };
    let mut inn = Inn::new(limits, 32);
    let idle: Vec<_> = (0..16).map(|machine| inn.move_in(machine)).collect();
    inn.wait(IDLE_MIN);
    // All newcomers ask before the server turns once.
    let crowd: Vec<_> = (16..32)
        .map(|machine| {
            let connection = inn.guests[machine].connect(inn.now, inn.at, binding()).unwrap();
            Guest { machine, connection }
        })
        .collect();
    inn.wait(Duration::from_millis(1));
    let admitted = crowd.iter().filter(|guest| inn.lives(**guest)).count();
    let left = idle.iter().filter(|guest| inn.lives(**guest)).count();
    assert!(admitted > 0);
    assert_eq!((inn.replaced(), left), (admitted as u64, 16 - admitted));
}
