//! Clients on other threads, whose rings a test fills and empties itself.

use super::*;
use crate::core::inbox::{Completion, Door, Entered, Entry};

/// Has the client begin a Call that carries no octets.
fn begin(world: &mut World<Slow>, client: &mut Entered, token: u64) {
    let arguments = world.lease(0, 0);
    let (connection, request) = (world.connection, request(0));
    client.entries.push(Entry::Call { connection, token, arguments, request }).unwrap();
    world.client.inbox.door().announce(client.number);
}

/// Drops a client as `RemoteClient` does.
fn leave(door: &Door, client: Entered) {
    let number = client.number;
    drop(client);
    door.announce(number);
}

#[test]
fn a_call_that_outlives_its_client_does_not_end_at_the_next_one_of_that_number() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    let door = world.client.inbox.door();
    let mut early = door.enter().unwrap();
    begin(&mut world, &mut early, 0);
    world.settle();
    assert_eq!(world.server.service().waiting.len(), 1);
    let number = early.number;
    leave(&door, early);
    world.settle();
    let mut late = door.enter().unwrap();
    assert_eq!(late.number, number, "the number is free again");
    begin(&mut world, &mut late, 0);
    world.settle();
    world.server.service.answers = 1;
    world.settle();
    assert!(late.completions.is_empty(), "its own Call is not answered yet");
    world.server.service.answers = 1;
    world.settle();
    assert!(late.completions.pop().is_ok() && late.completions.is_empty());
    assert!(world.ended().is_empty());
    world.all_home();
}

#[test]
fn a_client_that_closes_ends_the_connection_for_all_of_its_clients() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    let door = world.client.inbox.door();
    let [mut one, mut other] = [door.enter().unwrap(), door.enter().unwrap()];
    begin(&mut world, &mut other, 0);
    world.settle();
    assert_eq!(world.server.service().waiting.len(), 1);
    one.entries.push(Entry::Close(world.connection)).unwrap();
    leave(&door, one);
    world.until(World::is_disconnected);
    for token in [0, 1] {
        let Ok(Completion::Call { token: ended, results, .. }) = other.completions.pop() else {
            panic!("the Call has ended")
        };
        assert_eq!((ended, results.err()), (token, Some(CallError::Closed)));
        begin(&mut world, &mut other, token + 1);
        world.settle();
    }
}

#[test]
fn the_buffer_of_a_call_that_is_given_up_goes_home() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    world.settle();
    let leased = world.client.cx(world.now).0.gauges().leased_bytes;
    let mut client = world.client.inbox.door().enter().unwrap();
    begin(&mut world, &mut client, 0);
    world.until(|_| client.completions.slots() == 1);
    client.completions.pop().unwrap();
    assert_eq!(world.client.cx(world.now).0.gauges().leased_bytes, leased);
}

#[test]
fn a_client_that_fills_every_turn_does_not_keep_the_others_out() {
    let mut world = World::with(Slow::default(), [LIMITS; 2], FabricConfig::default());
    let door = world.client.inbox.door();
    let mut clients: Vec<_> = (0..3).map(|_| door.enter().unwrap()).collect();
    for _ in 0..4 {
        let [greedy, others @ ..] = &mut clients[..] else { panic!("there are three") };
        while greedy.entries.push(Entry::Lease { length: 1 }).is_ok() {}
        door.announce(greedy.number);
        for other in &mut *others {
            other.entries.push(Entry::Lease { length: 1 }).unwrap();
            door.announce(other.number);
        }
        // The greedy client lets its leases go home, and asks for more.
        for _ in 0..2 {
            world.client.turn(world.now);
            while greedy.completions.pop().is_ok() {}
            while greedy.entries.push(Entry::Lease { length: 1 }).is_ok() {}
            door.announce(greedy.number);
        }
        for other in others {
            assert!(other.completions.pop().is_ok(), "client {}", other.number);
        }
    }
}
