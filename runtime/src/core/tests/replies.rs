//! Replies that wait for credit.

use super::*;

#[test]
fn replies_that_find_no_credit_hold_what_was_set_aside_for_them() {
    let tight = Limits { connections_max: 1, receives_max: 16, send_buffers_max: 4, ..LIMITS };
    let deaf = Limits { connections_max: 1, receives_max: 2 * RECEIVES_IDLE, ..LIMITS };
    for (procedure, expected) in
        [(0, Ok(0)), (9, Err(CallError::Rejected(AcceptStat::ProcUnavail)))]
    {
        let fabric = FabricConfig::default();
        let mut world = World::with(Keeper::default(), [tight, deaf], fabric);
        for token in 0..32 {
            world.call(token, request(procedure));
        }
        world.until(|w| w.ended().len() == 32);
        assert!(world.ended().iter().all(|(_, result, _)| result == &expected));
        world.settle();
        world.all_home();
    }
}

#[test]
fn replies_of_which_some_always_wait_and_some_always_leave_are_no_stall() {
    let stall_timeout = Duration::from_millis(1);
    let tight = Limits { connections_max: 1, receives_max: 64, stall_timeout, ..LIMITS };
    let deaf = Limits { connections_max: 1, receives_max: 2 * RECEIVES_IDLE, ..LIMITS };
    let mut world = World::with(Keeper::default(), [tight, deaf], FabricConfig::default());
    let began = world.now;
    for token in 0..2_000 {
        world.call(token, request(0));
        world.until(|w| w.ended().len() as u64 + 30 > token);
    }
    assert!(world.now.saturating_since(began) > 4 * stall_timeout);
    world.until(|w| w.ended().len() == 2_000);
    assert!(world.ended().iter().all(|(_, result, _)| *result == Ok(0)));
}

#[test]
fn time_in_which_a_server_stands_still_is_no_stall_of_peers_whose_credits_wait_to_be_read() {
    let tight = Limits { connections_max: 1, receives_max: 64, ..LIMITS };
    let call_timeout = Duration::from_secs(24 * 3600);
    let deaf =
        Limits { connections_max: 1, receives_max: 2 * RECEIVES_IDLE, call_timeout, ..LIMITS };
    let mut world = World::with(Keeper::default(), [tight, deaf], FabricConfig::default());
    let waits = |world: &World| {
        world.server.inner.common.connections.iter().any(|found| found.outbox.replies() > 0)
    };
    let (mut token, hour) = (0, Duration::from_secs(3600));
    for _ in 0..8 {
        while !waits(&world) {
            world.call(token, request(0));
            token += 1;
            world.until(|w| waits(w) || w.ended().len() as u64 + 30 > token);
        }
        // Meanwhile the client takes what was sent, and grants credits for more.
        world.now = world.now.saturating_add(hour);
        while world.client.turn(world.now) {}
        assert!(waits(&world), "the server did nothing");
        world.server.turn(world.now);
    }
    world.until(|w| w.ended().len() as u64 == token);
    assert!(world.ended().iter().all(|(_, result, _)| *result == Ok(0)));
}

#[test]
fn replies_for_which_a_peer_grants_no_credit_have_its_time_and_the_connection_ends() {
    let tight = Limits { connections_max: 1, receives_max: 64, ..LIMITS };
    let deaf = Limits { connections_max: 1, receives_max: 2 * RECEIVES_IDLE, ..LIMITS };
    let mut world = World::with(Keeper::default(), [tight, deaf], FabricConfig::default());
    for token in 0..32 {
        world.call(token, request(0));
    }
    let waits = |world: &World| {
        world.server.inner.common.connections.iter().any(|found| found.outbox.replies() > 0)
    };
    world.until(waits);
    // From here on the client does nothing.
    let began = world.now;
    let closed =
        |world: &World| world.server.inner.common.connections.iter().all(|c| !c.life.is_up());
    while !closed(&world) {
        if !world.server.turn(world.now) {
            let next = [world.fabric.next_event(), world.server.poll_deadline()];
            world.now = next.into_iter().flatten().min().expect("a deadline").max(world.now);
        }
    }
    let had = world.now.saturating_since(began);
    let limit = tight.stall_timeout;
    assert!((limit..=limit * 5 / 4).contains(&had), "{had:?}");
}

#[test]
fn the_table_of_served_calls_has_an_entry_for_each_receive_and_each_buffer_of_a_reply() {
    let mut world = World::new();
    world.call(1, request(0));
    world.until(|w| w.ended().len() == 1);
    world.settle();
    let Core { inner: Inner { responder, common, .. }, reply, .. } = &mut world.server;
    let key = common.connections.from(0).unwrap();
    let buffers = common.buffers.len() + usize::from(reply.is_some());
    let most = LIMITS.receives_max + u32::try_from(buffers).unwrap();
    for xid in 0..most {
        responder.insert(ServedCall::with(key, xid, None));
    }
    assert_eq!(responder.calls.len(), most);
}
