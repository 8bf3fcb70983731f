//! The remains of a Call that has ended, and of a connection that is closed early.

use super::*;

#[test]
fn the_memory_of_a_call_that_was_fetched_as_a_whole_goes_home_with_it() {
    let mut world = World::new();
    world.call(0, request(0));
    world.until(|w| w.ended().len() == 1);
    world.settle();
    let leased = world.client.cx(world.now).0.gauges().leased_bytes;
    let told = vec![1; TELL_MAX - 44];
    let (mut cx, _) = world.client.cx(world.now);
    cx.call(world.connection, request(TELL), 1, |w| w.opaque(&told)).unwrap();
    world.until(|w| w.ended().len() == 2);
    world.settle();
    assert!(world.ended()[1].1.is_ok(), "{:?}", world.ended()[1]);
    let fetched = world.server.cx(world.now).0.counters().call_chunks;
    assert_eq!(fetched, 1, "it was too long for a message");
    assert_eq!(world.client.cx(world.now).0.gauges().leased_bytes, leased);
    world.all_home();
}

#[test]
fn a_connection_may_be_closed_just_before_it_is_established() {
    // After some of these numbers of turns, the event that the connection is established is on its way to the client's
    // core.
    for turns in 0..6 {
        let mut world = World::new();
        world.call(1, request(0));
        for _ in 0..turns {
            world.server.turn(world.now);
            world.client.turn(world.now);
            world.now = world.fabric.next_event().unwrap_or(world.now);
        }
        world.client.close(world.connection);
        world.until(|w| w.client.inner.common.connections.len() == 0);
        world.settle();
        let (_, outcome, _) = &world.ended()[0];
        assert_eq!(world.ended().len(), 1, "after {turns} turns");
        assert!(turns >= 4 || outcome.is_err(), "after {turns} turns: {outcome:?}");
        world.all_home();
    }
}

#[test]
fn a_call_answered_after_its_grace_leaves_its_slot_to_others() {
    let few = Limits { calls_out_max: 2, ..LIMITS };
    let mut world = World::with(Slow::default(), [LIMITS, few], FabricConfig::default());
    for token in 0..6 {
        let given_up = world.now.saturating_add(LIMITS.call_timeout + LIMITS.grace_timeout);
        world.call(token, request(0));
        world.until(|w| w.now >= given_up);
        world.settle();
        assert_eq!(world.ended_of(token).1, Err(CallError::TimedOut));
        world.server.service.answers = 1;
        world.settle();
        assert_eq!(world.client.inner.requester.calls.each().count(), 0);
    }
    assert_eq!(world.client.inner.common.connections.len(), 1);
    world.all_home();
}

#[test]
fn a_call_that_was_given_up_may_be_refused_at_any_time() {
    let moments: [fn(&World<Slow>) -> bool; 3] = [
        |w| w.ended().len() == 1,
        |w| w.client.inner.common.posted.iter().any(|w| matches!(w.held, Held::LocalInv { .. })),
        // The slot of the Call rests.
        |w| w.client.inner.common.pool.gauges().exposed == 0 && !w.ended().is_empty(),
    ];
    for moment in moments {
        let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
        let result = world.lease(5000, 0);
        world.call(1, request(FETCH).room(result));
        let _rest = world.lease_the_rest();
        world.until(moment);
        let Inner { requester, common, .. } = &mut world.client.inner;
        let (_, xid, _) = requester.calls.only();
        requester.calls.fail_call(common, world.connection.0, xid, CallError::Closed);
        world.settle();
        assert_eq!(world.client.inner.requester.calls.each().count(), 0);
        assert_eq!(world.ended_of(1).1, Err(CallError::TimedOut));
    }
}

#[test]
fn a_call_on_a_connection_that_is_closing_fails_with_the_reason_as_it_does_afterwards() {
    let mut world = World::new();
    world.call(1, request(0));
    world.until(|w| w.ended().len() == 1);
    let why = CallError::Disconnected("an invalidation did not complete in time".into());
    world.client.inner.common.connections.close(world.connection.0, why.clone());
    for gone in [false, true] {
        let (mut cx, _) = world.client.cx(world.now);
        let (failed, _) = cx.call(world.connection, request(0), 2, |_| Ok(())).unwrap_err();
        assert_eq!(failed, why, "gone: {gone}");
        world.until(World::is_disconnected);
    }
}

/// Returns a world whose server has stopped while it copies into the memory of Call 1, which was given up.
fn stopped_while_it_copies() -> World<Slow> {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    let result = world.lease(5000, 0);
    world.call(1, request(FETCH).room(result));
    world.settle();
    world.fabric.stop_copying(SERVER);
    world.until(|w| w.ended().len() == 1);
    assert_eq!(world.ended_of(1).1, Err(CallError::TimedOut));
    world
}

/// Returns the connections and the leases that the client keeps because the server may touch them.
fn held(world: &mut World<Slow>) -> (u32, usize) {
    let census = world.client.cx(world.now).0.census();
    (census.connections_held, census.leases_held)
}

#[test]
fn a_call_that_was_given_up_ends_no_other_while_its_server_copies() {
    let mut world = stopped_while_it_copies();
    let timeout = Some(20 * LIMITS.grace_timeout);
    world.call(2, Request { timeout, ..request(0) });
    let late = world.now.saturating_add(10 * LIMITS.grace_timeout);
    world.until(|w| w.now >= late);
    assert_eq!(held(&mut world), (0, 1));
    assert_eq!(world.client.cx(world.now).0.gauges().exposed, 1, "the server may still write it");
    assert_eq!(world.client.inner.common.connections.len(), 1);
    world.fabric.go_on_copying(SERVER);
    world.server.service.answers = 2;
    world.until(|w| w.ended().len() == 2);
    assert!(world.ended_of(2).1.is_ok(), "{:?}", world.ended_of(2));
    world.settle();
    assert_eq!(held(&mut world), (0, 0));
    world.all_home();
}

#[test]
fn a_call_that_was_given_up_ends_its_connection_when_memory_is_short() {
    let mut world = stopped_while_it_copies();
    let rest = world.lease_the_rest();
    world.until(|w| w.client.inner.census().connections_held == 1);
    assert_eq!(world.client.cx(world.now).0.gauges().exposed, 1, "the server may still write it");
    world.fabric.go_on_copying(SERVER);
    drop(rest);
    world.settle();
    assert_eq!(held(&mut world), (0, 0));
    world.all_home();
}

#[test]
fn a_shutdown_ends_although_a_peer_has_stopped_while_it_copies() {
    let mut world = stopped_while_it_copies();
    world.client.begin_shutdown(world.now);
    let begun = world.now;
    world.until(|w| w.client.is_drained());
    let took = world.now.saturating_since(begun);
    assert!(took >= LIMITS.drain_timeout, "the peer had time: {took:?}");
    assert!(took <= 2 * LIMITS.drain_timeout + LIMITS.drain_timeout / 100, "{took:?}");
    assert_eq!(held(&mut world).0, 1);
}

#[test]
fn a_shutdown_waits_for_no_call_that_was_given_up() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    world.call(1, request(0));
    world.settle();
    world.until(|w| w.ended().len() == 1);
    let begun = world.now;
    world.client.begin_shutdown(world.now);
    world.until(|w| w.client.is_drained());
    assert!(world.now.saturating_since(begun) < LIMITS.drain_timeout / 10);
}

#[test]
fn a_peer_that_does_not_let_go_of_memory_keeps_its_places_and_takes_no_others() {
    let each = Limits { connections_each_max: 1, ..LIMITS };
    let mut world = World::with(Keeper::default(), [each, LIMITS], FabricConfig::default());
    world.settle();
    world.fabric.stop_copying(CLIENT);
    world.lose_the_connection();
    world.settle();
    assert_eq!(world.server.inner.census().connections_held, 1);
    let at = SocketAddr::new(SERVER, 20050);
    let outcome_of = |world: &mut World<Keeper>, token: u64| {
        world.connection = world.client.connect(world.now, at, binding()).unwrap();
        world.call(token, request(0));
        world.until(|w| w.ended().iter().any(|(ended, ..)| *ended == token));
        world.ended_of(token).1.clone()
    };
    let refused = outcome_of(&mut world, 1);
    assert_eq!(refused, Err(CallError::Connect(ConnectError::Rejected)));
    let pool = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
    let other = world.fabric.provider(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3))).unwrap();
    let pool = Pool::new(&pool).unwrap();
    let mut other = Core::new(other, Caller::default(), pool, LIMITS, 3).unwrap();
    let honest = other.connect(world.now, at, binding()).unwrap();
    other.cx(world.now).0.call(honest, request(0), 1, |_| Ok(())).unwrap();
    while world.server.turn(world.now) | other.turn(world.now) || other.service().ended.is_empty() {
        world.now = world.fabric.next_event().unwrap_or(world.now).max(world.now);
    }
    assert!(other.service().ended[0].1.is_ok(), "another is served");
    world.fabric.go_on_copying(CLIENT);
    world.settle();
    assert_eq!(world.server.inner.census().connections_held, 0);
    assert!(outcome_of(&mut world, 2).is_ok(), "its place is free again");
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
