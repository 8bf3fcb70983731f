use std::fs::File;
use std::io::{PipeWriter, Write as _};
use std::os::fd::OwnedFd;

use haulage::provider::Waker;
use haulage_mr_pool::{PagePreference, Pool, PoolConfig};

use super::*;
use crate::nfs3::arguments::Stable;
use crate::testing::TempDir;

/// Runs a test with a ring, if the system has rings, and without.
fn each(act: impl Fn(&mut Transfers, &Pool, &Arc<OwnedFd>)) {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let waker = Waker::new().unwrap();
    for ring in [None, FileRing::new(4, &pool, &waker).ok()] {
        let place = TempDir::new();
        let path = place.path().join("file");
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        let mut transfers = Transfers::new(
            ring.map(Ring),
            Arc::new(Rights::find().unwrap()),
            (&file, &Helpers::default()),
        )
        .unwrap();
        act(&mut transfers, &pool, &Arc::new(file.into()));
        assert_eq!(pool.gauges().leased_bytes, 0);
    }
}

fn lease(pool: &Pool, octets: &[u8]) -> Local {
    let mut lease = pool.lease(octets.len()).unwrap();
    lease.bytes_mut().copy_from_slice(octets);
    lease
}

fn write(file: &Arc<OwnedFd>, writer: Writer) -> Write {
    let (ticket, stable, file) =
        (Ticket { number: 1, network: 0 }, Stable::Unstable, Arc::clone(file));
    Write {
        ticket,
        file,
        offset: 0,
        stable,
        writer,
        is_direct: false,
        done: 0,
        room: Room::Still,
        held: None,
    }
}

fn ended(transfers: &mut Transfers, at_once: Option<Ended>) -> Ended {
    at_once.unwrap_or_else(|| {
        loop {
            if let Some(ended) = transfers.poll() {
                return ended;
            }
            std::thread::yield_now();
        }
    })
}

#[test]
fn what_was_written_in_part_goes_on_behind_it() {
    each(|transfers, pool, file| {
        let write = Write { offset: 10, ..write(file, Writer::Other) };
        let begun = transfers.on_written(write, lease(pool, b"0123456789"), Ok(4));
        let Ended::Write(.., (_, count)) = ended(transfers, begun) else { panic!() };
        let mut read = [0xee; 30];
        let length = io::pread(file, &mut read, 0).unwrap();
        // The octets in front of the rest of the write are a hole.
        assert_eq!((count, &read[14..length]), (Ok(10), &b"456789"[..]));
        assert_eq!(read[..14], [0; 14]);
    });
}

#[test]
fn the_system_takes_set_id_from_what_others_than_the_superuser_write() {
    if Rights::find().unwrap().is_sole_owner() {
        return eprintln!("skipped: only the superuser acts as others");
    }
    each(|transfers, pool, file| {
        let set_id = fs::Mode::SUID | fs::Mode::RWXU | fs::Mode::XGRP;
        for (writer, left) in
            [(Writer::Superuser, set_id), (Writer::Other, set_id.difference(fs::Mode::SUID))]
        {
            fs::fchmod(file, set_id).unwrap();
            let at_once = transfers.write(write(file, writer), lease(pool, b"octets"));
            let at_once = at_once.map(|ended| {
                Ended::Write(Ticket { number: 1, network: 0 }, None, (Stable::Unstable, ended))
            });
            let Ended::Write(.., (_, count)) = ended(transfers, at_once) else { panic!() };
            let mode = fs::Mode::from_raw_mode(fs::fstat(file).unwrap().st_mode);
            assert_eq!((count, mode), (Ok(6), left), "{writer:?} {transfers:?}");
        }
    });
}

#[test]
fn what_was_read_in_part_goes_on_behind_it() {
    each(|transfers, pool, file| {
        io::pwrite(file, b"0123456789", 0).unwrap();
        let (wanted, file) = (6, Arc::clone(file));
        let read = Read {
            ticket: Ticket { number: 1, network: 0 },
            file,
            offset: 2,
            wanted,
            in_blocks: false,
            size: 10,
            done: 0,
            held: None,
        };
        let begun = transfers.on_read(read, lease(pool, b"------"), Ok(2));
        let Ended::Read(.., Ok(done)) = ended(transfers, begun) else { panic!() };
        let octets: Vec<u8> = done.data.iter().flat_map(|piece| piece.bytes().to_vec()).collect();
        assert_eq!((&octets[..], done.eof), (&b"--4567"[..], false));
    });
}

#[test]
fn what_is_read_in_blocks_goes_on_behind_whole_ones_and_ends_within_one() {
    each(|transfers, pool, file| {
        io::pwrite(file, &[b'x'; 2 * BLOCK], 0).unwrap();
        for (first, expected) in [(BLOCK, 2 * BLOCK), (5000, 5000), (0, 0)] {
            let (file, wanted) = (Arc::clone(file), 2 * BLOCK + 1);
            let size = wanted as u64;
            let read = Read {
                ticket: Ticket { number: 1, network: 0 },
                file,
                offset: 0,
                wanted,
                in_blocks: true,
                size,
                done: 0,
                held: None,
            };
            assert_eq!(read.asked(), 3 * BLOCK);
            let begun = transfers.on_read(read, lease(pool, &[b'-'; 3 * BLOCK]), Ok(first));
            let Ended::Read(.., Ok(done)) = ended(transfers, begun) else { panic!() };
            assert_eq!((done.data.len(), done.eof), (expected, true));
        }
    });
}

#[test]
fn that_some_was_written_counts_more_than_that_the_rest_was_not() {
    each(|transfers, pool, file| {
        for (done, expected) in [(0, Err(Errno::NOSPC)), (4, Ok(4))] {
            let write = Write { done, ..write(file, Writer::Other) };
            let begun = transfers.on_written(write, lease(pool, b"01234567"), Err(Errno::NOSPC));
            let Ended::Write(.., (_, count)) = ended(transfers, begun) else { panic!() };
            assert_eq!(count, expected);
        }
    });
}

/// A ring for one transfer, a READ of an empty pipe, and how to fill that; none where the system has no rings.
fn full(act: impl FnOnce(&mut Transfers, &Pool, &Arc<OwnedFd>, PipeWriter)) {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let (pool, waker) = (Pool::new(&config).unwrap(), Waker::new().unwrap());
    let Ok(ring) = FileRing::new(1, &pool, &waker) else { return };
    let place = TempDir::new();
    let path = place.path().join("file");
    let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
    let rights = Arc::new(Rights::find().unwrap());
    let mut transfers =
        Transfers::new(Some(Ring(ring)), rights, (&file, &Helpers::default())).unwrap();
    let (from, into) = std::io::pipe().unwrap();
    // A pipe has no data that is read promptly.
    transfers.reads = Promptness::Never;
    let first = UnderWay::Read(read(1, &Arc::new(from.into())));
    transfers.queue(first, Some(lease(&pool, b"----")));
    assert!(transfers.poll().is_none());
    act(&mut transfers, &pool, &Arc::new(file.into()), into);
    assert_eq!(pool.gauges().leased_bytes, 0);
}

/// A READ of the first four octets of a file.
fn read(ticket: u64, file: &Arc<OwnedFd>) -> Read {
    let (ticket, file) = (Ticket { number: ticket, network: 0 }, Arc::clone(file));
    Read { ticket, file, offset: 0, wanted: 4, in_blocks: false, size: 4, done: 0, held: None }
}

fn sync(ticket: u64, file: &Arc<OwnedFd>, of: Syncing) -> Sync {
    Sync { ticket: Ticket { number: ticket, network: 0 }, file: Arc::clone(file), of, held: None }
}

fn size(file: &OwnedFd) -> i64 {
    fs::fstat(file).unwrap().st_size
}

#[test]
fn what_finds_the_ring_full_waits_for_it_in_order() {
    full(|transfers, pool, file, mut into| {
        for (ticket, octets) in [(2, b"abcd"), (3, b"efgh")] {
            let write = Write {
                ticket: Ticket { number: ticket, network: 0 },
                ..write(file, Writer::Other)
            };
            assert_eq!(transfers.write(write, lease(pool, octets)), None);
        }
        let empty = sync(4, file, Syncing::Write(Stable::FileSync));
        assert_eq!(transfers.sync(empty), None);
        assert_eq!(transfers.sync(sync(5, file, Syncing::Commit)), None);
        transfers.queue(UnderWay::Read(read(6, file)), Some(lease(pool, b"----")));
        assert!(transfers.poll().is_none());
        assert_eq!(size(file), 0);
        into.write_all(b"1234").unwrap();
        let ended: Vec<_> = (0..6).map(|_| ended(transfers, None)).collect();
        let [
            Ended::Read(Ticket { number: 1, network: 0 }, _, Ok(_)),
            Ended::Write(Ticket { number: 2, network: 0 }, _, (Stable::Unstable, Ok(4))),
            Ended::Write(Ticket { number: 3, network: 0 }, _, (Stable::Unstable, Ok(4))),
            Ended::Write(Ticket { number: 4, network: 0 }, _, (Stable::FileSync, Ok(0))),
            Ended::Commit(Ticket { number: 5, network: 0 }, Ok(())),
            Ended::Read(Ticket { number: 6, network: 0 }, _, Ok(done)),
        ] = &ended[..]
        else {
            panic!("{ended:?}")
        };
        assert_eq!(done.data.iter().next().unwrap().bytes(), b"efgh");
    });
}

#[test]
fn what_is_done_in_part_goes_on_before_what_waits() {
    full(|transfers, pool, file, mut into| {
        assert_eq!(transfers.write(write(file, Writer::Other), lease(pool, b"abcd")), None);
        into.write_all(b"12").unwrap();
        while io::ioctl_fionread(&into).unwrap() > 0 {
            assert!(transfers.poll().is_none());
        }
        into.write_all(b"34").unwrap();
        let first = ended(transfers, None);
        let Ended::Read(.., Ok(done)) = &first else { panic!("{first:?}") };
        assert_eq!(done.data.iter().next().unwrap().bytes(), b"1234");
        drop(first);
        let Ended::Write(.., (_, Ok(4))) = ended(transfers, None) else { panic!() };
    });
}

#[test]
fn no_more_wait_for_the_ring_than_may() {
    full(|transfers, _, file, mut into| {
        // One network may take only half of the waiting places.
        let [one, other] = [0, 1].map(|network| Ticket { number: 1, network });
        for ticket in 0..WAITING_MAX as u64 / 2 {
            assert_eq!(transfers.admit(Lane::Sync, one), Ok(()));
            assert_eq!(transfers.sync(sync(ticket, file, Syncing::Commit)), None);
        }
        assert_eq!(
            (transfers.admit(Lane::Sync, one), transfers.admit(Lane::Sync, other)),
            (Err(Errno::AGAIN), Ok(()))
        );
        into.write_all(b"1234").unwrap();
        let Ended::Read(Ticket { number: 1, network: 0 }, _, Ok(_)) = ended(transfers, None) else {
            panic!()
        };
        assert_eq!(transfers.admit(Lane::Sync, one), Ok(()));
        for expected in 0..WAITING_MAX as u64 / 2 {
            let Ended::Commit(Ticket { number: ticket, network: 0 }, Ok(())) =
                ended(transfers, None)
            else {
                panic!()
            };
            assert_eq!(ticket, expected);
        }
    });
}

#[test]
fn a_network_leaves_room_in_the_ring_to_others() {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let (pool, waker) = (Pool::new(&config).unwrap(), Waker::new().unwrap());
    let Ok(ring) = FileRing::new(4, &pool, &waker) else { return };
    let (from, mut into) = std::io::pipe().unwrap();
    let rights = Arc::new(Rights::find().unwrap());
    let mut transfers =
        Transfers::new(Some(Ring(ring)), rights, (&from, &Helpers::default())).unwrap();
    let from = Arc::new(from.into());
    for number in 1..=4 {
        transfers.queue(UnderWay::Read(read(number, &from)), Some(lease(&pool, b"----")));
    }
    let place = TempDir::new();
    let file = Arc::new(File::create_new(place.path().join("file")).unwrap().into());
    let ticket = Ticket { number: 5, network: 1 };
    let write = Write { ticket, ..write(&file, Writer::Other) };
    assert_eq!(transfers.write(write, lease(&pool, b"abcd")), None);
    assert!(matches!(ended(&mut transfers, None), Ended::Write(.., (_, Ok(4)))));
    into.write_all(&[b'-'; 16]).unwrap();
    for _ in 0..4 {
        assert!(matches!(ended(&mut transfers, None), Ended::Read(.., Ok(_))));
    }
}

#[test]
fn what_hangs_keeps_nothing_of_another_kind_waiting() {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let (pool, waker) = (Pool::new(&config).unwrap(), Waker::new().unwrap());
    let Ok(ring) = FileRing::new(12, &pool, &waker) else { return };
    let (from, mut into) = std::io::pipe().unwrap();
    let rights = Arc::new(Rights::find().unwrap());
    let mut transfers =
        Transfers::new(Some(Ring(ring)), rights, (&from, &Helpers::default())).unwrap();
    let from = Arc::new(from.into());
    let one = Ticket { number: 1, network: 0 };
    let mut hanging = 0;
    while transfers.admit(Lane::Read, one).is_ok() {
        hanging += 1;
        transfers.queue(UnderWay::Read(read(hanging, &from)), Some(lease(&pool, b"----")));
    }
    let place = TempDir::new();
    let file = Arc::new(File::create_new(place.path().join("file")).unwrap().into());
    assert_eq!(transfers.admit(Lane::Write, one), Ok(()));
    assert_eq!(transfers.write(write(&file, Writer::Other), lease(&pool, b"abcd")), None);
    assert!(matches!(ended(&mut transfers, None), Ended::Write(.., (_, Ok(4)))));
    assert_eq!(transfers.admit(Lane::Sync, one), Ok(()));
    assert_eq!(transfers.sync(sync(2, &file, Syncing::Commit)), None);
    assert!(matches!(ended(&mut transfers, None), Ended::Commit(_, Ok(()))));
    for _ in 0..hanging {
        into.write_all(b"----").unwrap();
        assert!(matches!(ended(&mut transfers, None), Ended::Read(.., Ok(_))));
    }
}

#[test]
fn an_unstable_write_of_nothing_ends_at_once() {
    full(|transfers, _, file, into| {
        let nothing = sync(2, file, Syncing::Write(Stable::Unstable));
        assert_eq!(transfers.sync(nothing), Some(Ok(())));
        drop(into);
        let Ended::Read(Ticket { number: 1, network: 0 }, _, Ok(_)) = ended(transfers, None) else {
            panic!()
        };
    });
}
