use std::fs::File;
use std::io::{IoSliceMut, PipeWriter, Write as _};
use std::path::Path;
use std::sync::Arc;

use haulage::provider::Waker;
use haulage::sys::files::FileRing;
use rustix::io::ReadWriteFlags;

use super::*;
use crate::access::Caller;
use crate::backend::Backend;
use crate::backend::bed::Bed;
use crate::directory::system::file_system::TMPFS;
use crate::directory::transfers::{UnderWay, WAITING_MAX};
use crate::directory::{Config, Directory, Ring};
use crate::testing::TempDir;

const CONFIG: Config = Config { open_max: 8, ..crate::testing::CONFIG };

/// Returns a served directory and a file in it, with a ring for `ring` transfers if the system has rings.
fn bed(ring: Option<u16>) -> (Bed<Directory>, FileId) {
    let (place, waker) = (TempDir::new(), Waker::new().unwrap());
    let mut bed = Bed::new(|pool, _| {
        let ring = ring.and_then(|transfers_max| FileRing::new(transfers_max, pool, &waker).ok());
        let ring = ring.map(Ring);
        Directory::open(place.path(), None, ring, CONFIG).unwrap()
    });
    bed.caller = Caller::new(0, 0, []);
    bed.place = Some(place);
    let root = bed.root();
    let file = bed.file(root, "f");
    bed.write(file, 0, b"1234").unwrap();
    (bed, file)
}

/// Has a READ of an empty pipe fill the ring, until the pipe is written to.
fn fill(bed: &mut Bed<Directory>) -> PipeWriter {
    let (from, into) = std::io::pipe().unwrap();
    let (ticket, file) = (Ticket { number: 1, network: 0 }, Arc::new(from.into()));
    let read =
        Read { ticket, file, offset: 0, wanted: 4, in_blocks: false, size: 4, done: 0, held: None };
    let lease = bed.pool.lease(4).unwrap();
    bed.backend.data.transfers.queue(UnderWay::Read(read), Some(lease));
    into
}

fn begin_write(
    bed: &mut Bed<Directory>,
    ticket: u64,
    file: FileId,
    (octets, stable): (&[u8], Stable),
) -> Progress<WriteDone> {
    let write = Incoming { offset: 0, data: Octets::Unreduced(octets), stable };
    bed.with(|directory, cx| {
        directory.write(cx, Ticket { number: ticket, network: 0 }, file, write)
    })
}

fn next(bed: &mut Bed<Directory>) -> Finished {
    loop {
        if let Some(finished) = bed.backend.poll() {
            return finished;
        }
        std::thread::yield_now();
    }
}

#[test]
fn the_core_transfers_nothing_itself_while_the_ring_is_full() {
    let (mut bed, file) = bed(Some(1));
    if !bed.backend.data.transfers.has_ring() {
        return eprintln!("skipped: there are no rings");
    }
    let mut into = fill(&mut bed);
    let stable = begin_write(&mut bed, 2, file, (b"", Stable::FileSync));
    let written = begin_write(&mut bed, 3, file, (b"abcd", Stable::DataSync));
    let committed = bed
        .with(|directory, cx| directory.commit(cx, Ticket { number: 5, network: 0 }, file, 0, 0));
    assert!(matches!(
        (stable, written, committed),
        (Progress::Later, Progress::Later, Progress::Later)
    ));
    // A WRITE of no octets need not wait.
    let unstable = begin_write(&mut bed, 6, file, (b"", Stable::Unstable));
    assert!(matches!(unstable, Progress::Ended(Ok(WriteDone { count: 0, .. }))));
    assert_eq!(bed.look(file).size, 4);
    assert_eq!(std::fs::read(bed.place.as_ref().unwrap().path().join("f")).unwrap(), b"1234");
    into.write_all(b"----").unwrap();
    assert!(matches!(next(&mut bed), Finished::Read(Ticket { number: 1, network: 0 }, Ok(_))));
    let Finished::Write(Ticket { number: 2, network: 0 }, Ok(stable)) = next(&mut bed) else {
        panic!()
    };
    let Finished::Write(Ticket { number: 3, network: 0 }, Ok(written)) = next(&mut bed) else {
        panic!()
    };
    assert_eq!((stable.count, stable.stable), (0, Stable::FileSync));
    assert_eq!((written.count, written.stable), (4, Stable::DataSync));
    assert!(matches!(next(&mut bed), Finished::Commit(Ticket { number: 5, network: 0 }, Ok(_))));
}

#[test]
fn what_is_in_memory_is_transferred_in_the_turn_although_the_ring_is_full() {
    let (mut bed, file) = bed(Some(1));
    if !bed.backend.data.transfers.has_ring() {
        return eprintln!("skipped: there are no rings");
    }
    let path = bed.place.as_ref().unwrap().path().join("f");
    let into = fill(&mut bed);
    let has_disk = rustix::fs::statfs(&path).unwrap().f_type != TMPFS;
    let prompt = may_be_asked(&path, |file| {
        rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut [0; 4])], 0, ReadWriteFlags::NOWAIT)
    });
    if prompt || !has_disk {
        let ticket = Ticket { number: 2, network: 0 };
        let read = bed.with(|directory, cx| directory.read(cx, ticket, file, 1, 9));
        let Progress::Ended(Ok(read)) = read else { panic!("{read:?}") };
        assert_eq!((read.data.iter().next().unwrap().bytes(), read.eof), (&b"234"[..], true));
    }
    // A WRITE that might wait for a frozen file system is never the core's.
    let written = begin_write(&mut bed, 3, file, (b"abcdef", Stable::Unstable));
    assert!(matches!(written, Progress::Later));
    drop(into);
}

/// Returns whether the file system has transfers that the system refuses if they would wait.
fn may_be_asked(path: &Path, ask: impl FnOnce(&File) -> Result<usize, Errno>) -> bool {
    let file = File::options().read(true).write(true).open(path).unwrap();
    let asked = ask(&file) == Ok(4);
    if !asked {
        eprintln!("skipped in part: the file system has no transfers that do not wait");
    }
    asked
}

#[test]
fn what_may_not_wait_for_the_ring_is_to_be_asked_again_later() {
    let (mut bed, file) = bed(Some(1));
    if !bed.backend.data.transfers.has_ring() {
        return eprintln!("skipped: there are no rings");
    }
    let into = fill(&mut bed);
    // One network may take only half of the waiting places of each kind.
    let readers: Vec<_> = (0..WAITING_MAX / 2).map(|_| fill(&mut bed)).collect();
    for ticket in 0..WAITING_MAX as u64 / 2 {
        let begun = bed.with(|directory, cx| {
            directory.commit(cx, Ticket { number: ticket, network: 0 }, file, 0, 0)
        });
        assert!(matches!(begun, Progress::Later));
        let begun = begin_write(&mut bed, ticket, file, (b"abcd", Stable::Unstable));
        assert!(matches!(begun, Progress::Later));
    }
    let verifier = bed.backend.tree.files.shared.verifier.get();
    for stable in [Stable::Unstable, Stable::FileSync] {
        let write = begin_write(&mut bed, 2, file, (b"abcd", stable));
        assert!(matches!(write, Progress::Ended(Err(Status::Jukebox))), "{write:?}");
    }
    let read =
        bed.with(|directory, cx| directory.read(cx, Ticket { number: 3, network: 0 }, file, 0, 9));
    assert!(matches!(read, Progress::Ended(Err(Status::Jukebox))), "{read:?}");
    let commit = bed
        .with(|directory, cx| directory.commit(cx, Ticket { number: 4, network: 0 }, file, 0, 0));
    assert!(matches!(commit, Progress::Ended(Err(Status::Jukebox))), "{commit:?}");
    // The verifier stays, because no data was lost.
    assert_eq!(bed.backend.tree.files.shared.verifier.get(), verifier);
    drop((into, readers));
}

#[test]
fn a_write_without_memory_for_its_octets_is_made_by_the_core_only_without_a_ring() {
    for ring in [None, Some(4)] {
        let (mut bed, file) = bed(ring);
        let taken: Vec<_> = std::iter::from_fn(|| bed.pool.lease(1)).collect();
        let verifier = bed.backend.tree.files.shared.verifier.get();
        let written = begin_write(&mut bed, 1, file, (b"abcd", Stable::FileSync));
        if bed.backend.data.transfers.has_ring() {
            assert!(matches!(written, Progress::Ended(Err(Status::Jukebox))), "{written:?}");
        } else {
            assert!(matches!(written, Progress::Ended(Ok(_))), "{written:?}");
        }
        // Nothing was lost, and no octets need no memory.
        assert_eq!(bed.backend.tree.files.shared.verifier.get(), verifier);
        let nothing = begin_write(&mut bed, 2, file, (b"", Stable::Unstable));
        assert!(matches!(nothing, Progress::Ended(Ok(_))), "{nothing:?}");
        drop(taken);
        assert_eq!(bed.write(file, 0, b"abcd").unwrap().count, 4);
    }
}
