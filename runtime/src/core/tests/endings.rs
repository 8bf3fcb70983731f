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
    // After some of these numbers of turns the event is on its way to the client's core.
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
        assert_eq!(world.client.inner.requester.calls.connections().count(), 0);
    }
    assert_eq!(world.client.inner.common.connections.len(), 1);
    world.all_home();
}

#[test]
fn a_call_that_was_given_up_may_be_refused_at_any_time() {
    let moments: [fn(&World<Slow>) -> bool; 3] = [
        |w| w.ended().len() == 1,
        |w| w.client.inner.common.posted.iter().any(|w| matches!(w.held, Held::LocalInv { .. })),
        // Its slot rests.
        |w| w.client.inner.common.pool.gauges().exposed == 0 && !w.ended().is_empty(),
    ];
    for moment in moments {
        let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
        let result = world.lease(5000, 0);
        world.call(1, Request { result: Some(result), ..request(FETCH) });
        world.until(moment);
        let Inner { requester, common, .. } = &mut world.client.inner;
        let (_, xid, _) = requester.calls.only();
        requester.calls.fail_call(common, world.connection.0, xid, CallError::Closed);
        world.settle();
        assert_eq!(world.client.inner.requester.calls.connections().count(), 0);
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
