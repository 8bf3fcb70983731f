//! Tests of Replies that wait for stable storage, beside Calls that do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::waits::World;
use super::*;
use crate::handle::FileId;

/// Returns a world whose helpers make changes, and sync nothing while the gate is shut.
fn shut() -> (World, Handle, Arc<AtomicBool>) {
    let world = World::new();
    let (dir, gate) = (world.dir.clone(), world.bed.service.backend.sync_gate());
    gate.store(true, Ordering::Release);
    (world, dir, gate)
}

fn id(world: &World, file: &Handle) -> FileId {
    world.bed.service.sealer.open(file.get()).unwrap()
}

/// Waits until all changes are made, none of which is answered.
fn made_all(world: &mut World) {
    loop {
        assert!(world.poll(Procedure::Create).is_none(), "a Reply came before its sync");
        let is_ready = world.bed.service.has_work() || world.bed.service.parking.has_any();
        if !is_ready && world.bed.service.backend.under_way() == 0 {
            return;
        }
        std::thread::yield_now();
    }
}

/// Returns the status of each of these Calls, in any order.
fn ended(world: &mut World, tickets: &[Ticket]) -> Vec<(Ticket, Status)> {
    let ended = tickets.iter().map(|_| {
        let (ticket, sent) = world.end(Procedure::Create);
        (ticket, Status::from_number(u32::from_be_bytes(sent.bytes[..4].try_into().unwrap())))
    });
    let ended: Vec<_> = ended.map(|(ticket, status)| (ticket, status.unwrap())).collect();
    assert!(tickets.iter().all(|ticket| ended.iter().any(|(other, _)| other == ticket)));
    assert!(world.bed.service.parking.is_empty() && world.bed.service.pending.is_empty());
    assert!(world.bed.service.held.is_empty() && world.bed.service.backend.is_settled());
    ended
}

fn create<'a>(dir: &'a Handle, name: &'a str, how: How) -> Arguments<'a> {
    Arguments::Create(Create { at: dir.at(name), how })
}

#[test]
fn changes_of_a_directory_share_one_sync_and_keep_nobody_waiting() {
    let (mut world, dir, gate) = shut();
    let (other, dir_id) = (world.file("other"), id(&world, &dir));
    let unchecked = How::Unchecked(mode(0o640));
    let mut tickets = vec![world.begin(create(&dir, "first", unchecked))];
    made_all(&mut world);
    assert_eq!(world.bed.service.backend.syncs_of(dir_id), 1);
    let names: Vec<_> = (0..8).map(|number| format!("{number}")).collect();
    tickets.extend(names.iter().map(|name| world.begin(create(&dir, name, unchecked))));
    made_all(&mut world);
    tickets.push(world.begin(Arguments::Remove(dir.at("7"))));
    made_all(&mut world);
    // What waits for stable storage is there for all to see.
    assert_eq!(world.bed.look(&other).size, 6);
    world.bed.is_patient = true;
    let found = world.bed.find(&dir, "3").unwrap();
    assert_eq!(world.bed.look(&found).mode, 0o640);
    assert_eq!(world.bed.find(&dir, "7"), Err(Status::NoEnt));
    assert_eq!(world.bed.service.backend.syncs_of(dir_id), 1, "the others wait for the next");
    gate.store(false, Ordering::Release);
    let ended = ended(&mut world, &tickets);
    assert!(ended.iter().all(|(_, status)| *status == Status::Ok), "{ended:?}");
    assert_eq!(world.bed.service.backend.syncs_of(dir_id), 2, "one for nine changes");
}

#[test]
fn a_sync_that_fails_fails_all_that_wait_for_it() {
    let (mut world, dir, gate) = shut();
    let file = world.file("file");
    let committed = |world: &mut World| {
        let commit = Commit { file: file.get(), offset: 0, count: 0 };
        match world.bed.call(Arguments::Commit(commit)).results() {
            Results::Commit(Ok(committed)) => committed.verifier,
            other => panic!("{other:?}"),
        }
    };
    let verifier = committed(&mut world);
    let unchecked = How::Unchecked(mode(0o640));
    let first = world.begin(create(&dir, "first", unchecked));
    made_all(&mut world);
    world.bed.service.backend.fail_syncs();
    let mut tickets = vec![
        world.begin(create(&dir, "second", unchecked)),
        world.begin(Arguments::Remove(dir.at("file"))),
    ];
    made_all(&mut world);
    // This one makes nothing, and is not answered as if the first two were sure.
    tickets.push(world.begin(Arguments::Remove(dir.at("file"))));
    made_all(&mut world);
    tickets.push(first);
    gate.store(false, Ordering::Release);
    for (ticket, status) in ended(&mut world, &tickets) {
        let expected = if ticket == first { Status::Ok } else { Status::Inval };
        assert_eq!(status, expected, "{ticket:?}");
    }
    let other = world.file("other");
    let commit = Commit { file: other.get(), offset: 0, count: 0 };
    let Results::Commit(Ok(now)) = world.bed.call(Arguments::Commit(commit)).results() else {
        panic!()
    };
    assert_ne!(now.verifier, verifier);
}

#[test]
fn what_rests_on_a_change_is_not_answered_before_that_is_settled() {
    let (mut world, dir, gate) = shut();
    let verifier = Verifier(0x0102_0304_0506_0708);
    let unchecked = How::Unchecked(mode(0o640));
    for (name, made, again, expected) in [
        ("unchecked", unchecked, unchecked, Status::Ok),
        ("exclusive", How::Exclusive(verifier), How::Exclusive(verifier), Status::Ok),
        ("guarded", unchecked, How::Guarded(mode(0o640)), Status::Exist),
    ] {
        gate.store(true, Ordering::Release);
        let first = world.begin(create(&dir, name, made));
        made_all(&mut world);
        let second = world.begin(create(&dir, name, again));
        made_all(&mut world);
        gate.store(false, Ordering::Release);
        for (ticket, status) in ended(&mut world, &[first, second]) {
            assert_eq!(status, if ticket == first { Status::Ok } else { expected }, "{name}");
        }
        // Once it is settled, the same Call is answered without one more sync.
        let syncs = world.bed.service.backend.syncs_of(id(&world, &dir));
        world.bed.is_patient = true;
        assert_eq!(world.bed.status(create(&dir, name, again)), expected);
        assert_eq!(world.bed.service.backend.syncs_of(id(&world, &dir)), syncs);
    }
}

#[test]
fn what_a_call_has_changed_is_told_apart_from_what_others_change_while_it_waits() {
    let (mut world, dir, gate) = shut();
    let first = world.begin(create(&dir, "first", How::Unchecked(mode(0o640))));
    made_all(&mut world);
    let before = world.bed.look(&dir);
    let second =
        world.begin(Arguments::MkDir(MkDir { at: dir.at("second"), attributes: mode(0o700) }));
    made_all(&mut world);
    assert_ne!(world.bed.look(&dir), before);
    gate.store(false, Ordering::Release);
    for _ in 0..2 {
        let (ticket, mut sent) = world.end(Procedure::Create);
        if ticket == first {
            let Results::Create(Ok(made)) = sent.results() else { panic!() };
            assert_eq!(made.dir.after, Some(before));
        } else {
            sent.procedure = Procedure::MkDir;
            let Results::MkDir(Ok(made)) = sent.results() else { panic!() };
            assert_eq!((ticket, made.dir.before), (second, Some(before.wcc())));
        }
    }
}

#[test]
fn changes_of_other_names_are_queued_for_one_helper_and_overtake_nobody() {
    let (mut world, dir, _) = shut();
    world.bed.service.backend.sync_gate().store(false, Ordering::Release);
    let gate = world.bed.service.backend.gate();
    let names: Vec<_> = (0..6).map(|number| format!("{number}")).collect();
    names.iter().for_each(|name| drop(world.file(name)));
    let idle = world.bed.service.backend.busy();
    gate.store(true, Ordering::Release);
    let mut tickets: Vec<_> =
        names[..4].iter().map(|name| world.begin(Arguments::Remove(dir.at(name)))).collect();
    assert_eq!(world.bed.service.backend.under_way(), 4, "none waits for another");
    assert_eq!(world.bed.service.backend.busy(), idle + 1, "one waits for the lock");
    // What changes more than a name waits for them, and what comes behind it for that.
    let set = SetAttr { file: dir.get(), to: mode(0o700), guard: None };
    tickets.push(world.begin(Arguments::SetAttr(set)));
    tickets.push(world.begin(Arguments::Remove(dir.at("4"))));
    tickets.push(world.begin(Arguments::Remove(dir.at("5"))));
    assert_eq!(world.bed.service.backend.under_way(), 4);
    gate.store(false, Ordering::Release);
    let ended: Vec<_> = tickets
        .iter()
        .map(|_| {
            let (ticket, sent) = world.end(Procedure::Remove);
            assert_eq!(sent.bytes[..4], [0; 4]);
            ticket
        })
        .collect();
    let place = |ticket: &Ticket| ended.iter().position(|other| other == ticket).unwrap();
    assert!(tickets[..4].iter().all(|ticket| place(ticket) < place(&tickets[5])));
    assert!(place(&tickets[5]) < place(&tickets[6]));
    assert_eq!(world.bed.look(&dir).mode, 0o700);
}

#[test]
fn names_are_looked_up_ahead_by_one_helper_of_a_directory() {
    let (mut world, dir, _) = shut();
    world.bed.service.backend.sync_gate().store(false, Ordering::Release);
    let gate = world.bed.service.backend.gate();
    gate.store(true, Ordering::Release);
    world.begin(Arguments::MkDir(MkDir { at: dir.at("first"), attributes: mode(0o700) }));
    let set = SetAttr { file: dir.get(), to: mode(0o700), guard: None };
    world.begin(Arguments::SetAttr(set));
    let busy = world.bed.service.backend.busy();
    for number in 0..12 {
        let how = How::Guarded(mode(0o600));
        world.begin(Arguments::Create(Create { at: dir.at(&format!("new-{number}")), how }));
        // Each turn has other names to look up.
        assert!(world.poll(Procedure::Create).is_none());
    }
    assert_eq!(world.bed.service.backend.busy(), busy + 1, "one looks them all up");
    gate.store(false, Ordering::Release);
    for _ in 0..14 {
        let (_, sent) = world.end(Procedure::Create);
        assert_eq!(sent.bytes[..4], [0; 4]);
    }
}
