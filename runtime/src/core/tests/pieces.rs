//! Arguments that find no run of free pages as long as they are.

use std::rc::Rc;

use haulage_mr_pool::Density;

use super::*;
use crate::provider::iwarp::{self, Iwarp};
use crate::provider::shm::{self, Shm};
use crate::service::ArgumentLeases;
use crate::sys::clock;

const PAGE: usize = 4096;
/// Octets of an item.
const ITEM: usize = (1 << 20) - 5;
/// Octets of a pool.
const POOL: usize = 16 << 20;

/// A service that keeps the last item that it was sent, in as many leases as it came in, and returns it.
#[derive(Debug, Default)]
struct Heap {
    item: Rc<Pieces>,
    /// The leases of each item.
    counts: Vec<usize>,
    refused: Vec<Refusal>,
    /// Memory that nobody else gets.
    kept: Vec<Local>,
}

impl Service for Heap {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding()).argument_leases(EXCHANGE, ArgumentLeases::One)]
    }

    fn call(&mut self, _: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        match call.procedure {
            STORE | EXCHANGE => match call.arguments.item(24) {
                Ok(Argument::Placed(leases)) => {
                    self.counts.push(leases.as_slice().len());
                    self.item = Rc::new(leases.share().unwrap());
                }
                Ok(Argument::Refused { why, .. }) => self.refused.push(why),
                other => panic!("{other:?}"),
            },
            FETCH => reply.item(Data::Pieces(Rc::clone(&self.item))),
            _ => {}
        }
        Outcome::Done
    }
}

/// Leases memory until no two free pages are neighbours.
fn scatter(pool: &Pool) -> Vec<Local> {
    let all: Vec<_> = std::iter::from_fn(|| pool.lease(PAGE / 4)).collect();
    let is_even = |lease: &Local| (lease.bytes().as_ptr().addr() / PAGE).is_multiple_of(2);
    let kept = all.into_iter().filter(is_even).collect();
    assert_eq!(pool.gauges().largest_run, PAGE);
    kept
}

fn pattern(length: usize) -> impl Iterator<Item = u8> {
    (0..length).map(|at| (at / PAGE * 31 + at % 251).to_le_bytes()[0])
}

/// A server whose free pages are scattered.
fn scattered() -> World<Heap> {
    let mut world = World::of(POOL, Heap::default(), ONCE, FabricConfig::default());
    let (cx, service) = world.server.cx(world.now);
    service.kept = scatter(cx.pool());
    world
}

impl World<Heap> {
    fn item(&mut self, length: usize) -> Local {
        let mut lease = self.lease(length, 0);
        lease.bytes_mut().iter_mut().zip(pattern(length)).for_each(|(to, from)| *to = from);
        lease
    }

    fn store(&mut self, token: u64, length: usize) {
        let argument = Some(self.item(length));
        self.call(token, request(STORE).argument(argument));
        self.until(|w| w.ended().iter().any(|(ended, ..)| *ended == token));
        assert_eq!(self.ended_of(token).1, Ok(0));
    }

    fn free(&self) -> usize {
        self.server.inner.common.pool.free_bytes()
    }
}

#[test]
fn an_item_is_read_into_scattered_pages_and_sent_from_there() {
    let mut world = scattered();
    let free = world.free();
    for (token, length) in (0..).zip([PAGE + 1, 2 * PAGE, 300_000, ITEM, 4 << 20]) {
        world.store(token, length);
        let result = world.lease((length + 10).min(ITEM_MAX), 0);
        world.call(100 + token, request(FETCH).room(result));
        world.until(|w| w.ended().len() as u64 == 2 * (token + 1));
        let (_, reduced, lease) = world.ended_of(100 + token);
        assert_eq!(*reduced, Ok(u32::try_from(length).unwrap()));
        assert!(lease.as_ref().unwrap().bytes().iter().copied().eq(pattern(length)), "{length}");
        assert_eq!(world.server.service.counts.pop(), Some(length.div_ceil(PAGE)));
    }
    world.server.service.item = Rc::default();
    world.settle();
    assert_eq!((world.free(), &world.server.service.refused[..]), (free, &[][..]));
    world.all_home();
}

#[test]
fn an_item_is_refused_only_if_its_octets_are_not_free() {
    let mut world = scattered();
    let free = world.free();
    let (fits, exceeds) = (3 << 20, (3 << 20) + 1);
    let rest = {
        let (cx, _) = world.server.cx(world.now);
        cx.pool().leases(free - fits, Density::Any).unwrap()
    };
    world.store(1, exceeds);
    assert_eq!(world.server.service.refused, [Refusal::NoMemory]);
    world.store(2, fits);
    assert_eq!((world.server.service.refused.len(), world.free()), (1, 0));
    world.server.service.item = Rc::default();
    drop(rest);
    world.settle();
    assert_eq!(world.free(), free);
    world.all_home();
}

#[test]
fn a_service_that_needs_one_slice_gets_one_or_a_refusal() {
    let mut world = scattered();
    for (token, length) in [(1, PAGE), (2, PAGE + 1)] {
        let argument = Some(world.item(length));
        world.call(token, request(EXCHANGE).argument(argument));
        world.until(|w| w.ended().len() as u64 == token);
    }
    let service = &world.server.service;
    assert_eq!((&service.counts[..], &service.refused[..]), (&[1][..], &[Refusal::NoMemory][..]));
}

#[test]
fn a_peer_that_is_lost_at_any_moment_leaves_no_page_behind() {
    let (mut under_way, mut waiting) = (0, 0);
    for moment in (0..120).step_by(2) {
        let mut world = scattered();
        let free = world.free();
        // The Reads of the first do not all fit the send queue.
        for (token, length) in (0..).zip([1_500_000, 200_000, 200_000]) {
            let (argument, result) = (world.item(length), world.lease(length, 2));
            world.call(token, request(STORE).argument(argument));
            world.call(100 + token, request(FETCH).room(result));
        }
        world.turns(moment);
        let reads = |work: &&Work| matches!(work.held, Held::Read { .. });
        under_way += world.server.inner.common.posted.iter().filter(reads).count();
        let connections = &world.server.inner.common.connections;
        waiting += connections.iter().map(|connection| connection.outbox.requests()).sum::<usize>();
        world.lose_the_connection();
        world.until(|w| w.ended().len() == 6 && w.is_disconnected());
        world.server.service.item = Rc::default();
        world.all_home();
        assert_eq!(world.free(), free, "moment {moment}");
    }
    assert!(
        under_way > 0 && waiting > 0,
        "some were lost while they were read, or waited for that"
    );
}

/// Stores and fetches items between cores with providers of `make`, in one segment and in as many as a chunk has, which end
/// within pages; the server's free pages are scattered.
fn goes_there_and_back<P: Provider>(make: impl Fn() -> (P, Pool)) {
    let many = u32::try_from(ITEM / SEGMENTS_MAX + 2).unwrap();
    for segment_size_max in [LIMITS.segment_size_max, many] {
        goes_in_segments(segment_size_max, &make);
    }
}

fn goes_in_segments<P: Provider>(segment_size_max: u32, make: &impl Fn() -> (P, Pool)) {
    let (provider, pool) = make();
    let limits = Limits { segment_size_max, ..LIMITS };
    let mut server = Core::new(provider, Heap::default(), pool, limits, 7).unwrap();
    let (cx, service) = server.cx(clock::now());
    service.kept = scatter(cx.pool());
    let free = cx.pool().free_bytes();
    let (provider, pool) = make();
    let mut client = Core::new(provider, Caller::default(), pool, LIMITS, 8).unwrap();
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let connection = client.connect(clock::now(), at, binding()).unwrap();
    for (round, length) in [ITEM, 2 * PAGE, 70_000].into_iter().enumerate() {
        for procedure in [STORE, FETCH] {
            let (mut cx, _) = client.cx(clock::now());
            let mut lease = cx.pool().lease(length).unwrap();
            let (mut argument, mut result) = (None, None);
            if procedure == STORE {
                lease.bytes_mut().iter_mut().zip(pattern(length)).for_each(|(to, o)| *to = o);
                argument = Some(lease);
            } else {
                lease.bytes_mut().fill(0);
                result = Some(lease);
            }
            let asked = request(procedure).argument(argument).room(result);
            cx.call(connection, asked, u64::from(procedure), |_| Ok(())).unwrap();
            let ended = client.service.ended.len();
            let mut turns = 0;
            while client.service.ended.len() == ended {
                client.turn(clock::now());
                server.turn(clock::now());
                turns += 1;
                assert!(turns < 10_000_000, "round {round}");
            }
        }
        let (_, reduced, lease) = client.service.ended.last().unwrap();
        assert_eq!(*reduced, Ok(u32::try_from(length).unwrap()));
        assert!(lease.as_ref().unwrap().bytes().iter().copied().eq(pattern(length)), "{length}");
        assert_eq!(server.service.counts.pop(), Some(length.div_ceil(PAGE)));
    }
    server.service.item = Rc::default();
    for _ in 0..100 {
        client.turn(clock::now());
        server.turn(clock::now());
    }
    all_home(&mut server, clock::now());
    assert_eq!(server.cx(clock::now()).0.pool().free_bytes(), free);
}

fn pool(pages: PagePreference) -> Pool {
    Pool::new(&PoolConfig { bytes: POOL, pages, node: None }).unwrap()
}

#[test]
fn an_item_goes_there_and_back_over_iwarp() {
    goes_there_and_back(|| {
        (Iwarp::new(&iwarp::Config::default()).unwrap(), pool(PagePreference::Heap))
    });
}

#[test]
fn an_item_goes_there_and_back_over_shared_memory() {
    goes_there_and_back(|| {
        let pool = pool(PagePreference::Shared);
        (Shm::new(&shm::Config::default(), &pool).unwrap(), pool)
    });
}
