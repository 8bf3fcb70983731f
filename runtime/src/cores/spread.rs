//! How evenly peers are spread over the cores of a group: seats and simulated providers, without cores around them.

use std::net::{IpAddr, SocketAddr};

use haulage_proto::time::Instant;
use haulage_proto::verbs::QpNum;

use super::deal::{Deal, Place, Places, Slots};
use super::seat::{DEALT_MAX, Seat};
use crate::origin::Origin;
use crate::provider::sim::{Fabric, FabricConfig, Incoming, Listener, Rng, Sim};
use crate::provider::{ConnectionAnswer, ConnectionParams, Event, Provider};

/// A server of several providers, and clients that connect to it.
struct House {
    fabric: Fabric,
    now: Instant,
    cores: Vec<(Sim, Seat<Incoming>)>,
    at: SocketAddr,
    rng: Rng,
    events: Vec<Event<Listener>>,
}

/// A connection at the server: its core, its queue pair there, and its place.
struct Served {
    core: usize,
    qp: QpNum,
    /// Given back when it is dropped.
    _place: Place,
}

const PARAMS: ConnectionParams<'static> = ConnectionParams { private_data: b"", ord: 1, ird: 1 };

impl House {
    fn of(cores: usize, seed: u64) -> Self {
        Self::with_slots(cores, seed, 1024)
    }

    fn with_slots(cores: usize, seed: u64, slots: u16) -> Self {
        let config = FabricConfig { seed, queue_pairs_max: slots, ..FabricConfig::default() };
        let fabric = Fabric::new(config);
        let seats = Seat::of_all(cores, seed);
        let core = |(at, seat): (u8, Seat<_>)| {
            let sim = fabric.provider([10, 1, 0, at].into()).unwrap();
            let (count, connections_max) = (slots.into(), slots.into());
            let slots = Slots { count, connections_max, connections_give_way: false };
            seat.open(slots, sim.waker());
            (sim, seat)
        };
        let mut cores: Vec<_> = (0..).zip(seats).map(core).collect();
        let (_, at) = cores[0].0.listen(([10, 1, 0, 0], 0).into()).unwrap();
        Self { fabric, now: Instant::ZERO, cores, at, rng: Rng::new(seed), events: Vec::new() }
    }

    fn client(&self, number: u8) -> Sim {
        self.fabric.provider(IpAddr::from([10, 0, 0, number])).unwrap()
    }

    fn draw(&mut self, bound: u64) -> usize {
        usize::try_from(self.rng.below(0..bound)).unwrap()
    }

    /// Connects a client, and has the core that it is dealt to accept it.
    fn connect(&mut self, client: &mut Sim) -> Served {
        client.connect(self.now, self.at, &PARAMS).unwrap();
        loop {
            for (number, (sim, seat)) in self.cores.iter_mut().enumerate() {
                seat.adopt(sim, self.now);
                sim.poll(self.now, 64, &mut self.events);
                for event in self.events.drain(..) {
                    if let Event::Request { qp, mut place, .. } = event {
                        place.become_connection();
                        sim.answer(self.now, qp, &ConnectionAnswer::Accept(PARAMS));
                        return Served { core: number, qp, _place: place };
                    }
                }
            }
            self.now = self.fabric.next_event().unwrap_or(self.now).max(self.now);
        }
    }

    /// Loses a connection at both ends, and lets them forget it.
    fn end(&mut self, served: Served, client: &mut Sim) {
        let (sim, _) = &mut self.cores[served.core];
        sim.disconnect(self.now, served.qp);
        drop(served);
        while let Some(next) = self.fabric.next_event() {
            self.now = self.now.max(next);
            client.poll(self.now, 64, &mut self.events);
        }
        self.cores.iter_mut().for_each(|(sim, _)| sim.poll(self.now, 64, &mut self.events));
        self.events.clear();
    }
}

/// Returns the most of a core, as a multiple of the mean.
fn busiest(loads: &[u32]) -> f64 {
    let most = loads.iter().max().copied().unwrap_or_default();
    f64::from(most) * loads.len() as f64 / f64::from(loads.iter().sum::<u32>())
}

/// Fifty thousand connections to sixteen cores, each over before the next begins.
#[test]
fn short_connections_are_spread_evenly() {
    let mut house = House::of(16, 1);
    let mut clients: Vec<_> = (0..16).map(|number| house.client(number)).collect();
    let mut served = [0; 16];
    for _ in 0..50_000 {
        let client = &mut clients[house.draw(16)];
        let one = house.connect(client);
        served[one.core] += 1;
        house.end(one, client);
    }
    assert!(busiest(&served) <= 1.1, "{served:?}");
}

/// Fifty thousand places, of which some are held at once. Providers would take ten seconds for as many connections to
/// each number of cores.
#[test]
fn places_of_short_connections_are_spread_evenly() {
    for cores in [2, 3, 4, 8, 16] {
        let (deal, mut rng) = (Deal::new(cores, 1), Rng::new(1));
        let slots = Slots { count: 64, connections_max: 64, connections_give_way: false };
        (0..cores).for_each(|at| deal.open(at, slots));
        let mut served = vec![0; cores];
        let mut held = Vec::new();
        for _ in 0..50_000 {
            let origin = Origin::V4([10, 0, 0, rng.below(0..16).to_le_bytes()[0]]);
            let (core, mut place) = deal.choose(origin).unwrap();
            place.become_connection();
            served[core] += 1;
            held.push(place);
            if held.len() > 40 {
                held.swap_remove(rng.below(0..40).to_le_bytes()[0].into());
            }
        }
        assert!(busiest(&served) <= 1.1, "{cores} cores: {served:?}");
        drop(held);
        let (setups, connections) = (vec![0; cores], vec![0; cores]);
        assert_eq!(deal.places(), Places { setups, connections, origins: 0 });
    }
}

/// A hundred clients connect eight times each, and the first connection carries as much as the seven others together.
///
/// Where cores that are alike were dealt by chance alone, the busiest had 1.18 times the mean at 8 cores, and 1.31 times at 16
/// (means of many seeds). Dealt in turn, the busy ones would all meet one core of 8, or two of 16, which had 4 times the mean.
#[test]
fn a_busy_first_connection_of_each_client_meets_all_cores() {
    for cores in 2..=16 {
        for seed in SEEDS {
            let most = busy_firsts(cores, seed);
            assert!(most <= 1.3, "{cores} cores, seed {seed:#x}: {most}");
        }
    }
}

/// One of two cores stands still, and peers come in the meantime: it keeps some of them waiting, and the other takes the rest.
#[test]
fn a_core_that_stands_still_keeps_a_bounded_number_of_peers() {
    let mut house = House::with_slots(2, 1, 4096);
    let mut client = house.client(1);
    let mut held = Vec::new();
    for _ in 0..3000 {
        client.connect(house.now, house.at, &PARAMS).unwrap();
        house.now = house.fabric.next_event().unwrap_or(house.now).max(house.now);
        let (sim, seat) = &mut house.cores[0];
        seat.adopt(sim, house.now);
        sim.poll(house.now, 64, &mut house.events);
        for event in house.events.drain(..) {
            if let Event::Request { mut place, .. } = event {
                place.become_connection();
                held.push(place);
            }
        }
    }
    let Places { setups, connections, .. } = house.cores[0].1.places();
    let kept = u32::try_from(DEALT_MAX).unwrap();
    assert_eq!((setups, connections), (vec![0, kept], vec![3000 - kept, 0]));
}

fn busy_firsts(cores: usize, seed: u64) -> f64 {
    let mut house = House::of(cores, seed);
    let mut loads = vec![0; cores];
    let (mut held, mut clients) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let mut client = house.client(number);
        for at in 0..8 {
            let one = house.connect(&mut client);
            loads[one.core] += if at == 0 { 7 } else { 1 };
            held.push(one);
        }
        clients.push(client);
    }
    busiest(&loads)
}

/// Drawn once, so that the test says the same each time.
const SEEDS: [u64; 3] = [0x5eed_0001, 0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];
