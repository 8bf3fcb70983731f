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
