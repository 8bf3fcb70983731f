//! Tests of changes on their way to stable storage.

use std::io::Write as _;

use haulage::provider::Waker;
use haulage::sys::files::FileRing;

use super::*;
use crate::backend::{New, Ticket};
use crate::nfs3::SetTime;

const STABLE: Config = Config { stable: true, ..CONFIG };

/// Begins to create a file.
fn begin(bed: &mut Bed<Directory>, number: u64, (dir, name): (FileId, &str)) {
    let ((uid, gid), time) = (bed.owner, SetTime::Keep);
    let kind = NewKind::Regular;
    let new = New { kind, mode: 0o644, uid, gid, size: None, atime: time, mtime: time };
    let at = (dir, Name(name.as_bytes()));
    let begun =
        bed.with(|directory, cx| directory.make(cx, Ticket { number, network: 0 }, at, new));
    assert!(matches!(begun, Progress::Later), "{begun:?}");
}

/// Waits until all changes are made, none of which has ended.
fn made_all(bed: &mut Bed<Directory>) {
    while bed.backend.under_way() > 0 {
        assert!(matches!(bed.backend.poll(), None | Some(Finished::Free(..))));
        std::thread::yield_now();
    }
    assert!(bed.backend.poll().is_none());
}

#[test]
fn a_sync_goes_by_the_ring_and_waits_for_room_there() {
    let (world, waker) = (World::new(), Waker::new().unwrap());
    let mut bed = Bed::new(|pool, _| {
        let ring = FileRing::new(1, pool, &waker).ok().map(Ring);
        Directory::open(&world.path("served"), None, ring, STABLE).unwrap().woken_by(&waker)
    });
    if !bed.backend.data.transfers.has_ring() {
        return eprintln!("skipped: there are no rings");
    }
    bed.owner = sole_owner().unwrap().map_or((1, 2), |owner| (owner.uid, owner.gid));
    bed.caller = Caller::new(0, 0, []);
    let root = bed.root();
    // A READ of an empty pipe fills the ring.
    let (from, mut into) = io::pipe().unwrap();
    let read = transfers::Read {
        ticket: Ticket { number: 99, network: 0 },
        file: Arc::new(from.into()),
        offset: 0,
        wanted: 4,
        in_blocks: false,
        size: 4,
        done: 0,
        held: None,
    };
    let lease = bed.pool.lease(4).unwrap();
    assert!(bed.backend.data.transfers.read(read, lease).is_none());
    begin(&mut bed, 0, (root, "0"));
    made_all(&mut bed);
    for number in 1..9 {
        begin(&mut bed, number, (root, &format!("{number}")));
    }
    made_all(&mut bed);
    into.write_all(b"----").unwrap();
    assert!(matches!(bed.wait(), Finished::Read(..)));
    let mut made: Vec<_> = (0..9)
        .map(|_| match bed.wait() {
            Finished::Made(ticket, Ok(_)) => ticket.number,
            other => panic!("{other:?}"),
        })
        .collect();
    made.sort_unstable();
    assert_eq!(made, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bed.backend.syncs_of(root), 2, "of the first, and of all the others");
    assert!(bed.backend.is_settled());
}

#[test]
fn what_is_made_in_a_new_directory_waits_for_the_name_of_that() {
    let world = World::new();
    let mut bed = world.serve(None, STABLE);
    bed.backend.tree.files.helpers.wake_by(Waker::new().unwrap());
    let root = bed.root();
    let dir = bed.dir(root, "dir");
    // Another change of the directory above is on its way.
    let above = Ticket { number: 98, network: 0 };
    let sync = jobs::syncing::Sync::File(root, Arc::clone(&bed.backend.tree.files.top));
    bed.backend.settling.enter(above);
    let settled = (Finished::Changed(above, Ok(())), vec![sync]);
    bed.backend.settling.settle(&mut bed.backend.tree.files, above, settled);
    let under_way = bed.backend.settling.begin_unseen();
    assert_eq!(under_way, Some(jobs::syncing::Target::File(root)));
    begin(&mut bed, 1, (dir, "file"));
    made_all(&mut bed);
    while bed.backend.is_unsettled(dir) {
        assert!(bed.backend.poll().is_none(), "the name of the directory is not settled");
        std::thread::yield_now();
    }
    let shared = &mut bed.backend.tree.files.shared;
    bed.backend.settling.synced(shared, jobs::syncing::Target::File(root), Ok(()));
    assert!(matches!(bed.wait(), Finished::Changed(ticket, Ok(())) if ticket == above));
    assert!(matches!(bed.wait(), Finished::Made(Ticket { number: 1, .. }, Ok(_))));
    assert!(bed.backend.is_settled());
}

#[test]
fn one_network_leaves_places_for_changes_to_others() {
    let mut settling = settling::Settling::new();
    let mut enter = |number, network| {
        let ticket = Ticket { number, network };
        let may = !settling.is_full(ticket);
        if may {
            settling.enter(ticket);
        }
        may
    };
    assert_eq!((0..2000).filter(|number| enter(*number, 1)).count(), 512);
    assert!(enter(2000, 2));
}

#[test]
fn names_of_one_drain_are_recorded_in_one_go() {
    let mut world = World::new();
    let mut bed = world.start();
    bed.backend.tree.files.helpers.wake_by(Waker::new().unwrap());
    let (root, gate) = (bed.root(), bed.backend.gate());
    let journal = world.path("state/names");
    let length = || std::fs::metadata(&journal).unwrap().len();
    let before = length();
    gate.store(true, Ordering::Release);
    (0..4).for_each(|number| begin(&mut bed, number, (root, &format!("{number}"))));
    gate.store(false, Ordering::Release);
    while !bed.backend.is_idle() {
        std::thread::yield_now();
    }
    // The changes are taken in one by one, and recorded together.
    for _ in 0..4 {
        assert!(matches!(bed.backend.poll(), Some(Finished::Free(..))));
        assert_eq!(length(), before);
    }
    assert!(matches!(bed.backend.poll(), Some(Finished::Made(..))));
    let after = length();
    assert!(after > before);
    (0..3).for_each(|_| assert!(matches!(bed.backend.poll(), Some(Finished::Made(..)))));
    assert_eq!(length(), after);
    // What a LOOKUP finds is recorded at once.
    std::fs::write(world.path("served/found"), b"").unwrap();
    bed.find(root, "found").unwrap();
    assert!(length() > after);
    drop(bed);
    let mut bed = world.start();
    assert!((0..4).all(|number| bed.find(root, &format!("{number}")).is_ok()));
}
