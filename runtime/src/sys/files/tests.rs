use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use haulage_mr_pool::{PagePreference, PoolConfig};

use super::*;
use crate::sys::epoll::Epoll;
use crate::sys::wake;

/// A ring; `None` where the system has none.
struct Bed {
    ring: FileRing<u32>,
    waker: Waker,
    file: Arc<OwnedFd>,
    pool: Pool,
}

fn bed(requests_max: u16, name: &str) -> Option<Bed> {
    let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let waker = Waker::new().unwrap();
    let path = std::env::temp_dir().join(format!("haulage-files-{name}-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
    // The file exists as long as it is open.
    std::fs::remove_file(path).unwrap();
    let ring = FileRing::new(requests_max, &pool, &waker).ok()?;
    Some(Bed { ring, waker, file: Arc::new(file.into()), pool })
}

const fn by_us(stability: Stability) -> Writing {
    Writing { stability, by: None, road: Road::Kernel }
}

const UNSTABLE: Writing = by_us(Stability::None);

impl Bed {
    fn lease(&self, octets: &[u8]) -> Local {
        let mut lease = self.pool.lease(octets.len()).unwrap();
        lease.bytes_mut().copy_from_slice(octets);
        lease
    }

    /// Sleeps as a core does until a request has ended.
    fn next(&mut self) -> Done<u32> {
        loop {
            if let Some(done) = self.ring.pop() {
                return done;
            }
            wake::wait(&self.waker, Duration::from_secs(10));
        }
    }
}

#[test]
fn what_is_written_from_a_lease_is_read_into_one() {
    let Some(mut bed) = bed(4, "written") else { return };
    let file = Arc::clone(&bed.file);
    for (round, stability) in
        [Stability::None, Stability::Data, Stability::All].into_iter().enumerate()
    {
        let octets: Vec<u8> =
            (0..100_000).map(|at| u8::try_from(at % 251 + round).unwrap()).collect();
        let lease = bed.lease(&octets);
        bed.ring.write(&file, 5, (lease, 10..100_000), by_us(stability), 1).unwrap();
        let done = bed.next();
        assert_eq!((done.what, done.result.unwrap()), (1, 99_990));
        bed.ring.sync(&file, stability, 2).unwrap();
        let done = bed.next();
        assert_eq!((done.what, done.result.unwrap(), done.lease.is_none()), (2, 0, true));
        let lease = bed.lease(&[0xee; 200]);
        bed.ring.read(&file, 5, lease, 50..150, 3).unwrap();
        let done = bed.next();
        assert_eq!((done.what, done.result.unwrap()), (3, 100));
        let lease = done.lease.unwrap();
        assert_eq!(lease.bytes()[50..150], octets[10..110]);
        assert!(
            lease.bytes()[..50].iter().chain(&lease.bytes()[150..]).all(|octet| *octet == 0xee)
        );
    }
    assert_eq!(bed.pool.gauges().leased_bytes, 0);
}

#[test]
fn a_full_ring_hands_back() {
    let Some(mut bed) = bed(2, "full") else { return };
    let file = Arc::clone(&bed.file);
    for what in 0..2 {
        let lease = bed.lease(b"1234");
        bed.ring.write(&file, 0, (lease, 0..4), UNSTABLE, what).unwrap();
    }
    assert_eq!(bed.ring.under_way(), 2);
    let lease = bed.lease(b"5678");
    let (what, lease) = bed.ring.write(&file, 0, (lease, 0..4), UNSTABLE, 8).unwrap_err();
    assert_eq!((what, lease.bytes()), (8, &b"5678"[..]));
    let (what, lease) = bed.ring.read(&file, 0, lease, 0..4, 9).unwrap_err();
    assert_eq!((what, lease.bytes()), (9, &b"5678"[..]));
    assert_eq!(bed.ring.sync(&file, Stability::Data, 10), Err(10));
    let mut ended = [bed.next().what, bed.next().what];
    ended.sort_unstable();
    assert_eq!((ended, bed.ring.under_way()), ([0, 1], 0));
    assert!(bed.ring.pop().is_none());
}

#[test]
fn failures_are_told_with_the_lease() {
    let Some(mut bed) = bed(2, "failures") else { return };
    let file = Arc::new(File::open("/dev/null").unwrap().into());
    let lease = bed.lease(b"1234");
    bed.ring.write(&file, 0, (lease, 0..4), UNSTABLE, 1).unwrap();
    let done = bed.next();
    assert_eq!(done.result.unwrap_err().raw_os_error(), Some(libc::EBADF));
    assert_eq!(done.lease.unwrap().bytes(), b"1234");
    let lease = bed.lease(b"1234");
    bed.ring.read(&file, 0, lease, 0..4, 2).unwrap();
    assert_eq!(bed.next().result.unwrap(), 0);
}

#[test]
fn what_is_under_way_when_a_ring_is_dropped_is_waited_for() {
    let Some(mut bed) = bed(8, "dropped") else { return };
    let file = Arc::clone(&bed.file);
    (&File::from(file.try_clone().unwrap())).write_all(&[7; 4096]).unwrap();
    for what in 0..8 {
        let lease = bed.pool.lease(4096).unwrap();
        bed.ring.read(&file, 0, lease, 0..4096, what).unwrap();
    }
    bed.ring.submit().unwrap();
    let Bed { ring, pool, file: kept, .. } = bed;
    drop(ring);
    assert_eq!((pool.gauges().leased_bytes, Arc::strong_count(&kept)), (0, 2));
}

#[test]
fn writes_are_made_by_either_road_and_those_of_one_file_by_a_thread_in_order() {
    for road in [Road::Kernel, Road::Thread] {
        let Some(mut bed) = bed(64, "order") else { return };
        let files: Vec<_> =
            (0..4).map(|number| self::bed(1, &format!("order-{number}")).unwrap().file).collect();
        let how = Writing { stability: Stability::None, by: None, road };
        for round in 0..100_u8 {
            for file in &files {
                for what in 0..16_u8 {
                    let lease = bed.lease(&[round, what, 0, 0]);
                    bed.ring.write(file, 0, (lease, 0..4), how, 1).unwrap();
                }
            }
            for _ in 0..64 {
                assert_eq!(bed.next().result.unwrap(), 4);
            }
            for file in &files {
                let mut last = [0; 4];
                rustix::io::pread(file, &mut last, 0).unwrap();
                assert!(road == Road::Kernel || last == [round, 15, 0, 0], "{last:?}");
            }
        }
        // Those that are under way when the ring is dropped are made, too.
        let lease = bed.lease(b"last");
        bed.ring.write(&files[0], 0, (lease, 0..4), how, 0).unwrap();
        let Bed { ring, pool, .. } = bed;
        drop(ring);
        let mut last = [0; 4];
        rustix::io::pread(&files[0], &mut last, 0).unwrap();
        assert_eq!((&last, pool.gauges().leased_bytes), (b"last", 0));
    }
}

#[test]
fn only_an_end_that_was_waited_for_wakes() {
    let Some(mut bed) = bed(4, "wakes") else { return };
    let mut epoll = Epoll::new().unwrap();
    epoll.watch(bed.waker.fd(), 1).unwrap();
    let mut readable = |limit| epoll.wait(Some(limit)).any(|event| event.readable);
    let (from, mut into) = io::pipe().unwrap();
    let from = Arc::new(OwnedFd::from(from));
    // The pipe is empty, so the read is still under way after the pop.
    let lease = bed.lease(b"----");
    bed.ring.read(&from, 0, lease, 0..4, 1).unwrap();
    assert!(bed.ring.pop().is_none());
    assert!(!readable(Duration::ZERO));
    into.write_all(b"1234").unwrap();
    assert!(readable(Duration::from_secs(10)));
    assert_eq!(bed.next().lease.unwrap().bytes(), b"1234");
    bed.waker.clear();
    // A request that ends while it is submitted wakes nothing.
    into.write_all(b"5678").unwrap();
    let lease = bed.lease(b"----");
    bed.ring.read(&from, 0, lease, 0..4, 2).unwrap();
    bed.ring.submit().unwrap();
    assert!(!readable(Duration::ZERO));
    assert_eq!(bed.next().lease.unwrap().bytes(), b"5678");
}

#[test]
fn the_kernel_may_start_a_thread_for_each_request() {
    let Some(bed) = bed(512, "workers") else { return };
    let mut workers_max = [0; 2];
    if bed.ring.ring.submitter().register_iowq_max_workers(&mut workers_max).is_err() {
        return eprintln!("skipped: the system does not tell");
    }
    assert_eq!(workers_max[0], 512);
}
