use crate::size::PAGE;
use crate::tests::{Rng, assert_all_home, pool};
use crate::{Density, Leases, Local, PagePreference, Pool, PoolConfig};

/// Makes a pool of which every other page of the first `pages` is leased, and no other page is free.
fn alternating(pages: usize) -> (Pool, Vec<Local>) {
    let config = PoolConfig { bytes: pages * PAGE, pages: PagePreference::Heap, node: None };
    let pool = Pool::new(&config).unwrap();
    let mut kept = Vec::new();
    let mut freed = Vec::new();
    for page in 0..pages {
        let lease = page_of(&pool);
        if page % 2 == 0 { &mut kept } else { &mut freed }.push(lease);
    }
    drop(freed);
    assert_eq!((pool.free_bytes(), pool.gauges().largest_run), (pages / 2 * PAGE, PAGE));
    (pool, kept)
}

/// Leases the first free page.
fn page_of(pool: &Pool) -> Local {
    pool.take(PAGE, |blocks| blocks.take_pages(PAGE)).unwrap()
}

fn octets(leases: &Leases) -> Vec<u8> {
    leases.parts().flat_map(<[u8]>::to_vec).collect()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / PAGE * 31 + at % 251).to_le_bytes()[0]).collect()
}

#[test]
fn scattered_pages_hold_an_item_that_no_run_does() {
    let (pool, kept) = alternating(32);
    let length = 15 * PAGE + 1;
    assert!(pool.lease(2 * PAGE).is_none() && pool.leases(16 * PAGE + 1, Density::Any).is_none());
    let leases = pool.leases(length, Density::Any).unwrap();
    assert_eq!((leases.len(), leases.as_slice().len(), pool.free_bytes()), (length, 16, 0));
    assert!(pool.leases(1, Density::Any).is_none(), "nothing is left");
    drop(leases);
    drop(kept);
    assert_all_home(&pool);
}

#[test]
fn the_longest_runs_are_taken_first_and_one_block_if_it_has_all() {
    let pool = pool(64 * PAGE);
    let mut all: Vec<_> = (0..64).map(|_| Some(page_of(&pool))).collect();
    // Free runs of 1, 8 and 3 pages.
    for page in (1..2).chain(10..18).chain(20..23) {
        all[page] = None;
    }
    assert!(matches!(pool.leases(8 * PAGE, Density::Any), Some(Leases::One(_))));
    let leases = pool.leases(11 * PAGE, Density::Any).unwrap();
    let lengths: Vec<_> = leases.parts().map(|part| part.len() / PAGE).collect();
    assert_eq!(lengths, [8, 3]);
    drop((leases, all));
    assert_all_home(&pool);
}

#[test]
fn several_are_read_into_shared_and_sent_as_one() {
    let (pool, kept) = alternating(16);
    let length = 6 * PAGE + 100;
    let mut sinks = pool.leases(length, Density::Any).unwrap().into_sinks().unwrap();
    assert_eq!((sinks.len(), sinks.is_empty()), (length, false));
    // Two Reads, one of which ends within a page.
    let octets = pattern(length);
    let cut = 2 * PAGE + 7;
    for range in [0..cut, cut..length] {
        let mut at = range.start;
        let mut views = Vec::new();
        sinks.sinks(range, |view| views.push(view));
        for view in &mut views {
            view.place(0, &octets[at..at + view.len()]).unwrap();
            at += view.len();
        }
        sinks = sinks.complete().expect_err("the views are still there");
    }
    let leases = sinks.complete().unwrap();
    assert!(self::octets(&leases) == octets);
    let pieces = leases.share().unwrap();
    assert_eq!((pieces.len(), pieces.count()), (length, 7));
    let views: Vec<_> = pieces.iter().map(|piece| piece.source(0..piece.len()).unwrap()).collect();
    drop(pieces);
    let sent: Vec<u8> = views.iter().flat_map(|view| view.bytes().to_vec()).collect();
    assert!(sent == octets && pool.lease(PAGE).is_some(), "one page was free");
    assert_eq!(pool.free_bytes(), PAGE, "what a view shows is in use");
    drop((views, kept));
    assert_all_home(&pool);
}

#[test]
fn what_is_cut_off_goes_home() {
    for length in [0, 1, PAGE, PAGE + 1, 3 * PAGE - 1, 3 * PAGE, 9 * PAGE] {
        let (pool, kept) = alternating(8);
        let mut leases = pool.leases(3 * PAGE, Density::Any).unwrap();
        assert!(matches!(leases, Leases::Several(_)), "no run has it");
        let before = pattern(3 * PAGE);
        leases.copy_from_slice(&before);
        leases.truncate(length);
        let left = length.min(3 * PAGE);
        assert!(octets(&leases) == before[..left] && leases.is_empty() == (length == 0));
        assert_eq!(pool.free_bytes(), (4 - left.div_ceil(PAGE)) * PAGE);
        drop((leases, kept));
        assert_all_home(&pool);
    }
    let pool = pool(PAGE);
    let mut one = Leases::from(pool.lease(100).unwrap());
    one.copy_from_slice(&pattern(100));
    assert!(octets(&one) == pattern(100));
    one.truncate(200);
    assert_eq!(one.len(), 100);
    one.truncate(7);
    assert_eq!(one.share().unwrap().len(), 7);
}

/// After any history an item has room exactly if the free pages have, and nobody else writes where it lies.
#[test]
fn an_item_fits_if_its_octets_are_free() {
    let steps = if cfg!(miri) { 150 } else { 20_000 };
    let pool = pool(64 * PAGE);
    let mut rng = Rng::new(0x1ea5e);
    let mut held: Vec<(Leases, u8)> = Vec::new();
    let (mut refused, mut scattered) = (0, 0);
    for step in 0..steps {
        let [fill, ..] = usize::to_le_bytes(step);
        // Items of one octet to a quarter of the pool, and many more short ones than long ones.
        let most = 1 << rng.below(17);
        let length = 1 + rng.below(most);
        let (free, fits_one) = (pool.free_bytes(), pool.lease(length).is_some());
        match pool.leases(length, Density::Any) {
            Some(leases) => {
                assert!(fits_one || length <= free);
                assert_eq!(matches!(leases, Leases::One(_)), fits_one);
                assert_eq!(leases.len(), length);
                let Leases::Several(mut parts) = leases else {
                    let Leases::One(mut lease) = leases else { unreachable!() };
                    lease.bytes_mut().fill(fill);
                    held.push((lease.into(), fill));
                    continue;
                };
                assert_eq!(pool.free_bytes(), free - length.next_multiple_of(PAGE));
                scattered += 1;
                parts.iter_mut().for_each(|part| part.bytes_mut().fill(fill));
                held.push((Leases::Several(parts), fill));
            }
            None => {
                assert!(!fits_one && length > free, "{length} of {free}");
                assert_eq!(pool.free_bytes(), free, "nothing is kept");
                refused += 1;
            }
        }
        while pool.free_bytes() < rng.below(64) * PAGE / 4 && !held.is_empty() {
            let (leases, fill) = held.swap_remove(rng.below(held.len()));
            assert!(octets(&leases).iter().all(|octet| *octet == fill), "another wrote here");
        }
    }
    assert!(cfg!(miri) || (refused > 100 && scattered > 100), "{refused}, {scattered}");
    drop(held);
    assert_all_home(&pool);
}
