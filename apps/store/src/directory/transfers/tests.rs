use std::fs::File;

use haulage::provider::Waker;
use haulage_mr_pool::{PagePreference, Pool, PoolConfig};

use super::*;
use crate::testing::Place;

/// With a ring, if there are such, and without.
fn each(act: impl Fn(&mut Transfers, &Pool, &Arc<OwnedFd>)) {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let waker = Waker::new().unwrap();
    for ring in [None, FileRing::new(4, &pool, &waker).ok()] {
        let place = Place::new();
        let path = place.path().join("file");
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        let mut transfers = Transfers::new(ring, Arc::new(Rights::find())).unwrap();
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
    let (ticket, stable, file) = (Ticket(1), Stable::Unstable, Arc::clone(file));
    Write { ticket, file, offset: 0, stable, writer, done: 0, _held: None }
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
        let Ended::Write(_, _, count) = ended(transfers, begun) else { panic!() };
        let mut read = [0xee; 30];
        let length = io::pread(file, &mut read, 0).unwrap();
        // What was before it is a hole.
        assert_eq!((count, &read[14..length]), (Ok(10), &b"456789"[..]));
        assert_eq!(read[..14], [0; 14]);
    });
}

#[test]
fn the_system_takes_set_id_from_what_others_than_the_superuser_write() {
    if Rights::find().is_sole_owner() {
        return eprintln!("skipped: only the superuser acts as others");
    }
    each(|transfers, pool, file| {
        let set_id = fs::Mode::SUID | fs::Mode::RWXU | fs::Mode::XGRP;
        for (writer, left) in
            [(Writer::Superuser, set_id), (Writer::Other, set_id.difference(fs::Mode::SUID))]
        {
            fs::fchmod(file, set_id).unwrap();
            let at_once = transfers.write(write(file, writer), lease(pool, b"octets"));
            let at_once = at_once.map(|ended| Ended::Write(Ticket(1), Stable::Unstable, ended));
            let Ended::Write(_, _, count) = ended(transfers, at_once) else { panic!() };
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
            ticket: Ticket(1),
            file,
            offset: 2,
            wanted,
            in_blocks: false,
            size: 10,
            done: 0,
            _held: None,
        };
        let begun = transfers.on_read(read, lease(pool, b"------"), Ok(2));
        let Ended::Read(_, Ok(done)) = ended(transfers, begun) else { panic!() };
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
                ticket: Ticket(1),
                file,
                offset: 0,
                wanted,
                in_blocks: true,
                size,
                done: 0,
                _held: None,
            };
            assert_eq!(read.asked(), 3 * BLOCK);
            let begun = transfers.on_read(read, lease(pool, &[b'-'; 3 * BLOCK]), Ok(first));
            let Ended::Read(_, Ok(done)) = ended(transfers, begun) else { panic!() };
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
            let Ended::Write(_, _, count) = ended(transfers, begun) else { panic!() };
            assert_eq!(count, expected);
        }
    });
}
