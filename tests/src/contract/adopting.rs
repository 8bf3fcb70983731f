//! Check of the contract's line 30: peers that are dealt.

use std::time::Duration;

use haulage::provider::{ConnectError, Event, Place, Provider};
use haulage_proto::verbs::QpNum;

use super::connections::{DEADLINES, become_a_connection};
use crate::bed::{ACTIVE, Bed, End, Link, PARAMS, PASSIVE};
use crate::network::Network;

/// A peer is adopted on whichever thread, by whichever provider of this kind and however late. While no slot is free it
/// comes back with its place. The place comes with `Request`, or is dropped with the handshake.
pub fn line_30_a_peer_is_adopted_anywhere_and_keeps_its_place<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    adopted_late(&mut bed);
    adopted_elsewhere(&mut bed);
    bed.replace_passive();
    place_of_a_request(&mut bed);
    places_of_failures(&mut bed);
    refused_for_want_of_a_slot(&mut bed);
}

/// Checks that a peer waits to be adopted, unseen, and that another thread may have it meanwhile.
fn adopted_late<N: Network>(bed: &mut Bed<N>) {
    let (active, incoming) = bed.arrive();
    let incoming = std::thread::scope(|threads| threads.spawn(move || incoming).join());
    let incoming = incoming.expect("the thread does nothing");
    bed.linger([64; 2]);
    bed.network.skip(bed.network.now().saturating_add(LATE));
    bed.linger([64; 2]);
    assert!(bed.ends[PASSIVE].log.is_empty(), "{:?} before it was adopted", bed.ends[PASSIVE].log);
    adopt(bed, incoming, Place::default());
    let passive = bed.requested();
    become_a_connection(bed, [active, passive]);
}

/// Checks that another provider of the same kind may adopt a peer.
fn adopted_elsewhere<N: Network>(bed: &mut Bed<N>) {
    let (active, incoming) = bed.arrive();
    let (provider, pool, _) = bed.network.join();
    let first = std::mem::replace(&mut bed.ends[PASSIVE], End::new(provider, pool));
    adopt(bed, incoming, Place::default());
    let passive = bed.requested();
    become_a_connection(bed, [active, passive]);
    assert!(first.log.is_empty(), "{:?} where it was not adopted", first.log);
}

/// Checks that the place of a peer comes with its request, and that dropping it gives it back.
fn place_of_a_request<N: Network>(bed: &mut Bed<N>) {
    let (active, incoming) = bed.arrive();
    let (place, places) = Place::watched();
    adopt(bed, incoming, place);
    let (passive, place) = requested(bed);
    assert_eq!((places().setups[0], places().origins), (1, 1), "the peer has its place");
    become_a_connection(bed, [active, passive]);
    drop(place);
    assert_eq!((places().setups[0], places().origins), (0, 0), "it was given back");
}

/// Checks that the places of peers whose handshakes fail are given back.
fn places_of_failures<N: Network>(bed: &mut Bed<N>) {
    let listening = bed.listening();
    bed.ends[PASSIVE].adopts = false;
    bed.network.babble(listening);
    bed.linger([64; 2]);
    let mut watched = Vec::new();
    while let Some(incoming) = bed.next_incoming() {
        let (place, places) = Place::watched();
        adopt(bed, incoming, place);
        watched.push(places);
    }
    for _ in 0..DEADLINES {
        bed.turn([64; 2]);
        let deadline = bed.ends[PASSIVE].provider.poll_deadline();
        deadline.into_iter().for_each(|deadline| bed.network.skip(deadline));
    }
    assert!(watched.iter().all(|places| places().origins == 0), "a place is not given back");
    let is_request = |event: &Event<_>| matches!(event, Event::Request { .. });
    assert!(!bed.ends[PASSIVE].log.iter().any(is_request), "nobody made a request");
    bed.ends[PASSIVE].adopts = true;
}

/// Checks that a peer comes back with its place while all slots are taken, and is adopted once one is free.
fn refused_for_want_of_a_slot<N: Network>(bed: &mut Bed<N>) {
    let mut others = Vec::new();
    let Some(link) = fill(bed, &mut others) else {
        eprintln!("skipped: the network has no more connections than one provider takes");
        return;
    };
    let (active, incoming) = bed.arrive();
    let (place, places) = Place::watched();
    let mut dealt = (incoming, place);
    for _ in 0..2 {
        let (now, (incoming, place)) = (bed.network.now(), dealt);
        let back = bed.ends[PASSIVE].provider.adopt(now, incoming, place);
        dealt = back.expect_err("no slot is free");
        assert_eq!(places().setups[0], 1, "it keeps its place");
        bed.linger([64; 2]);
    }
    assert!(
        bed.ends[PASSIVE].log.is_empty(),
        "{:?} of a peer that came back",
        bed.ends[PASSIVE].log
    );
    bed.ends[PASSIVE].provider.disconnect(bed.network.now(), link[PASSIVE]);
    bed.quiesced(PASSIVE, link[PASSIVE]);
    // Some providers let go of the slot a turn later.
    let mut waits = Some(dealt);
    bed.until("a slot", |bed| {
        let (now, (incoming, place)) = (bed.network.now(), waits.take()?);
        waits = bed.ends[PASSIVE].provider.adopt(now, incoming, place).err();
        waits.is_none().then_some(())
    });
    let (passive, place) = requested(bed);
    become_a_connection(bed, [active, passive]);
    drop(place);
    assert_eq!(places().origins, 0);
}

/// Connects until all slots of a new passive end are taken: half of them from an active end that goes to `others`. Returns
/// the last connection; `None` if the network has no room for so many.
fn fill<N: Network>(bed: &mut Bed<N>, others: &mut Vec<End<N::Provider>>) -> Option<Link> {
    bed.replace_passive();
    others.push(bed.replace_active());
    let slots = bed.ends[PASSIVE].provider.caps().queue_pairs_max;
    let mut last = None;
    for count in 0..slots {
        if count == slots / 2 {
            others.push(bed.replace_active());
        }
        let (now, to) = (bed.network.now(), bed.listening());
        let active = bed.ends[ACTIVE].provider.connect(now, to, &PARAMS);
        let active = active.inspect_err(|why| assert_eq!(*why, ConnectError::NoQueuePair)).ok()?;
        let link = [active, bed.requested()];
        become_a_connection(bed, link);
        last = Some(link);
    }
    last
}

fn adopt<N: Network>(
    bed: &mut Bed<N>,
    incoming: <N::Provider as Provider>::Incoming,
    place: Place,
) {
    let now = bed.network.now();
    let adopted = bed.ends[PASSIVE].provider.adopt(now, incoming, place);
    assert!(adopted.is_ok(), "there are slots");
}

/// Waits for a `Request`. Returns its queue pair, and the place that comes with it.
fn requested<N: Network>(bed: &mut Bed<N>) -> (QpNum, Place) {
    bed.until("Request", |bed| {
        match bed.ends[PASSIVE].take(|event| matches!(event, Event::Request { .. }))? {
            Event::Request { qp, place, .. } => Some((qp, place)),
            _ => None,
        }
    })
}

/// The time that a peer waits to be adopted: less than connection setup may take.
const LATE: Duration = Duration::from_secs(1);
