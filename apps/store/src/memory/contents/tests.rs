use haulage_mr_pool::{PagePreference, PoolConfig};

use super::*;
use crate::testing::Rng;

struct Bed {
    pool: Pool,
    zeros: Piece,
}

fn bed(bytes: usize) -> Bed {
    let pool = Pool::new(&PoolConfig { bytes, pages: PagePreference::Heap, node: None }).unwrap();
    let mut zeros = pool.lease(BLOCK).unwrap();
    zeros.bytes_mut().fill(0);
    Bed { zeros: Piece::whole(zeros.share()), pool }
}

impl Bed {
    fn placed(&self, octets: &[u8]) -> Octets<'static> {
        let mut lease = self.pool.lease(octets.len()).unwrap();
        lease.bytes_mut().copy_from_slice(octets);
        Octets::Placed(lease)
    }

    fn read(&self, file: &mut Contents, offset: u64, count: usize) -> (Vec<u8>, bool) {
        let done = file.read(offset, count, &self.zeros);
        (done.data.iter().flat_map(Piece::bytes).copied().collect(), done.eof)
    }
}

#[test]
fn a_file_holds_what_was_written_and_zeros_elsewhere() {
    let bed = bed(64 << 20);
    let mut rng = Rng::new(11);
    for _ in 0..8 {
        let (mut file, mut model) = (Contents::default(), Vec::new());
        for _ in 0..60 {
            step(&bed, &mut rng, &mut file, &mut model);
            assert_eq!(file.length(), model.len() as u64);
            let stored: u64 = file.blocks.values().map(Block::len).sum();
            assert_eq!(file.stored(), stored);
        }
    }
    // Only the block of zeros is still leased.
    assert_eq!(bed.pool.gauges().leased_bytes, BLOCK);
}

/// Runs one operation on a file and on the model of its data.
fn step(bed: &Bed, rng: &mut Rng, file: &mut Contents, model: &mut Vec<u8>) {
    let at = rng.below(model.len() + 3 * BLOCK / 2);
    let at = if rng.flip() { at - at % BLOCK } else { at };
    match rng.below(8) {
        0 => {
            file.set_length(&bed.pool, at as u64).unwrap();
            model.resize(at, 0);
        }
        1..=3 => {
            let count = rng.of(&[1, 100, BLOCK, 3 * BLOCK + 1]);
            let (octets, eof) = bed.read(file, at as u64, count);
            let end = (at + count).min(model.len());
            assert_eq!(octets, model.get(at..end).unwrap_or_default());
            assert_eq!(eof, at + count >= model.len());
        }
        kind => {
            let length = rng.of(&[1, 7, 4096, BLOCK - 1, BLOCK, 2 * BLOCK + 5]);
            let octets: Vec<u8> = (0..length).map(|_| rng.next().to_be_bytes()[0]).collect();
            let written = if kind < 6 {
                file.write(&bed.pool, at as u64, Octets::Unreduced(&octets))
            } else {
                file.write(&bed.pool, at as u64, bed.placed(&octets))
            };
            assert_eq!(written, Ok(u32::try_from(length).unwrap()));
            model.resize(model.len().max(at + length), 0);
            model[at..at + length].copy_from_slice(&octets);
        }
    }
}

#[test]
fn placed_data_stays_where_it_is() {
    let bed = bed(8 << 20);
    let mut file = Contents::default();
    let octets = vec![7; 1 << 20];
    let Octets::Placed(lease) = bed.placed(&octets) else { unreachable!() };
    let place = lease.bytes().as_ptr();
    file.write(&bed.pool, 0, Octets::Placed(lease)).unwrap();
    let done = file.read(0, 1 << 20, &bed.zeros);
    let pieces: Vec<_> = done.data.iter().collect();
    assert_eq!(pieces.len(), 1);
    assert_eq!((pieces[0].bytes().as_ptr(), pieces[0].len()), (place, 1 << 20));
    // A placed write over a file that ends within a block takes the place of its lease, too.
    let mut file = Contents::default();
    file.write(&bed.pool, 0, bed.placed(&[1; 5001])).unwrap();
    let before = bed.pool.gauges().leased_bytes;
    file.write(&bed.pool, 0, bed.placed(&[2; 5001])).unwrap();
    assert_eq!(bed.pool.gauges().leased_bytes, before);
}

#[test]
fn a_ragged_write_copies_its_ends_only() {
    let bed = bed(8 << 20);
    let mut file = Contents::default();
    file.write(&bed.pool, 0, bed.placed(&[1; 4 * BLOCK])).unwrap();
    file.write(&bed.pool, 10, bed.placed(&[2; 3 * BLOCK])).unwrap();
    // The zeros, the new lease and a block for each of its ends; nothing is left of the old one.
    assert_eq!(bed.pool.gauges().leased_bytes, BLOCK + 3 * BLOCK + 2 * BLOCK);
    let (octets, eof) = bed.read(&mut file, 0, 4 * BLOCK);
    let expected = [vec![1; 10], vec![2; 3 * BLOCK], vec![1; BLOCK - 10]].concat();
    assert_eq!((octets == expected, eof), (true, true));
}

#[test]
fn an_open_block_is_written_in_place_as_far_as_its_lease_goes() {
    let bed = bed(1 << 20);
    let mut file = Contents::default();
    file.write(&bed.pool, 0, Octets::Unreduced(&[1; 100])).unwrap();
    let lease = |file: &Contents| match &file.blocks[&0] {
        Block::Open(lease) => (lease.bytes().as_ptr(), lease.capacity()),
        Block::Frozen(_) => panic!("nobody read it"),
    };
    let (place, capacity) = lease(&file);
    file.write(&bed.pool, 50, Octets::Unreduced(&vec![2; capacity - 50])).unwrap();
    assert_eq!(lease(&file), (place, capacity));
    // A write beyond the capacity at least doubles the lease.
    file.write(&bed.pool, capacity as u64, Octets::Unreduced(&[3])).unwrap();
    assert!(lease(&file).1 >= 2 * capacity);
}

#[test]
fn what_a_reader_holds_no_writer_changes() {
    let bed = bed(1 << 20);
    let mut file = Contents::default();
    file.write(&bed.pool, 0, Octets::Unreduced(b"before")).unwrap();
    let held = file.read(0, 6, &bed.zeros);
    file.write(&bed.pool, 0, Octets::Unreduced(b"after!")).unwrap();
    file.set_length(&bed.pool, 3).unwrap();
    let octets: Vec<_> = held.data.iter().flat_map(Piece::bytes).copied().collect();
    assert_eq!(octets, b"before");
    assert_eq!(bed.read(&mut file, 0, 9), (b"aft".to_vec(), true));
}

#[test]
fn files_take_at_most_twice_what_they_have() {
    let bed = bed(8 << 20);
    let zeros = bed.pool.gauges().leased_bytes;
    let taken = || bed.pool.gauges().leased_bytes - zeros;
    let octets: Vec<u8> = (0..16 * BLOCK).map(|at| (at % 251).to_be_bytes()[7]).collect();
    let placed = || {
        let mut file = Contents::default();
        file.write(&bed.pool, 0, bed.placed(&octets)).unwrap();
        assert_eq!(taken(), 16 * BLOCK);
        file
    };
    let expect = |mut file: Contents, expected: &[u8], taken_max: usize| {
        assert!(taken() <= taken_max, "{} of {taken_max}", taken());
        assert!(bed.read(&mut file, 0, 17 * BLOCK).0 == expected);
    };
    // Files that were placed and files that were copied are cut within a block and between blocks.
    for (length, taken_max) in [(1, 64), (7 * BLOCK + 5, 7 * BLOCK + 64), (7 * BLOCK, 7 * BLOCK)] {
        let mut file = placed();
        file.set_length(&bed.pool, length as u64).unwrap();
        expect(file, &octets[..length], taken_max);
        let mut file = Contents::default();
        file.write(&bed.pool, 0, Octets::Unreduced(&octets)).unwrap();
        file.set_length(&bed.pool, length as u64).unwrap();
        expect(file, &octets[..length], taken_max);
    }
    // A file cut to half of its lease keeps the lease.
    let mut file = placed();
    file.set_length(&bed.pool, 8 * BLOCK as u64).unwrap();
    expect(file, &octets[..8 * BLOCK], 16 * BLOCK);
    // All of the file but both ends is overwritten.
    let mut file = placed();
    file.write(&bed.pool, BLOCK as u64, bed.placed(&octets[..14 * BLOCK])).unwrap();
    let expected = [&octets[..BLOCK], &octets[..14 * BLOCK], &octets[15 * BLOCK..]].concat();
    expect(file, &expected, 16 * BLOCK);
    // A placed write that is not aligned to blocks is mostly copied.
    let mut file = Contents::default();
    file.write(&bed.pool, 1, bed.placed(&octets[..BLOCK])).unwrap();
    expect(file, &[&[0], &octets[..BLOCK]].concat(), BLOCK + 64);
    // The lease is longer than its octets.
    let mut lease = bed.pool.lease(16 * BLOCK).unwrap();
    lease.set_len(1);
    lease.bytes_mut().fill(7);
    let mut file = Contents::default();
    file.write(&bed.pool, 0, Octets::Placed(lease)).unwrap();
    expect(file, &[7], 64);
    assert_eq!(taken(), 0);
}

#[test]
fn without_room_for_a_copy_a_lease_stays_whole() {
    let bed = bed(4 << 20);
    let mut file = Contents::default();
    file.write(&bed.pool, 0, bed.placed(&[1; 8 * BLOCK])).unwrap();
    let all: Vec<Local> = std::iter::from_fn(|| bed.pool.lease(BLOCK))
        .chain(std::iter::from_fn(|| bed.pool.lease(1)))
        .collect();
    file.set_length(&bed.pool, 10).unwrap();
    assert_eq!(bed.read(&mut file, 0, 99), (vec![1; 10], true));
    drop(all);
    assert!(bed.pool.gauges().leased_bytes >= 8 * BLOCK);
    // The next change nearby frees the lease that the cut could not.
    file.set_length(&bed.pool, 9).unwrap();
    assert_eq!(bed.read(&mut file, 0, 99), (vec![1; 9], true));
    assert_eq!(bed.pool.gauges().leased_bytes, BLOCK + 64);
}

#[test]
fn what_was_cut_off_never_comes_back() {
    let bed = bed(1 << 20);
    for freeze in [false, true] {
        let mut file = Contents::default();
        file.write(&bed.pool, 0, Octets::Unreduced(&[9; 100])).unwrap();
        if freeze {
            bed.read(&mut file, 0, 100);
        }
        file.set_length(&bed.pool, 10).unwrap();
        file.set_length(&bed.pool, 100).unwrap();
        file.write(&bed.pool, 50, Octets::Unreduced(b"x")).unwrap();
        let expected = [&[9; 10][..], &[0; 40], b"x", &[0; 49]].concat();
        assert_eq!(bed.read(&mut file, 0, 100), (expected, true));
    }
}

#[test]
fn a_full_pool_takes_what_fits_and_says_so() {
    let bed = bed(2 * BLOCK + (4 << 10));
    let mut file = Contents::default();
    assert_eq!(file.write(&bed.pool, 0, Octets::Unreduced(&[1; 3 * BLOCK])), Ok(1 << 16));
    assert_eq!(file.length(), BLOCK as u64);
    let more = file.write(&bed.pool, BLOCK as u64, Octets::Unreduced(&[1; BLOCK]));
    assert_eq!(more, Err(Status::NoSpc));
    assert_eq!(file.write(&bed.pool, 0, Octets::Unreduced(&[])), Ok(0));
}

#[test]
fn no_file_is_longer_than_the_longest() {
    let bed = bed(1 << 20);
    let mut file = Contents::default();
    let write =
        |file: &mut Contents, offset| file.write(&bed.pool, offset, Octets::Unreduced(b"xy"));
    assert_eq!(write(&mut file, FILE_MAX - 1), Err(Status::FBig));
    assert_eq!(write(&mut file, u64::MAX), Err(Status::FBig));
    assert_eq!(file.set_length(&bed.pool, FILE_MAX + 1), Err(Status::FBig));
    assert_eq!((file.length(), file.stored()), (0, 0));
    assert_eq!(file.set_length(&bed.pool, FILE_MAX), Ok(()));
    assert_eq!(write(&mut file, FILE_MAX - 2), Ok(2));
    assert_eq!(bed.read(&mut file, FILE_MAX - 3, 99), (b"\0xy".to_vec(), true));
    assert_eq!(bed.read(&mut file, u64::MAX, 1), (Vec::new(), true));
}
