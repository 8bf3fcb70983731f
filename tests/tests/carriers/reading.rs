//! Replies that a server exposes, and that its client reads (RFC 5666).

use haulage::core::{Core, Cx, Service};
use haulage::limits::{Limits, Profile, Versions};
use haulage::service::{Finished, Request};
use haulage_tests::ends::{self, GET, Keeper, PUT};
use haulage_tests::network::{Expect, Network};
use haulage_tests::pattern;

use super::LIMITS;

/// The results of Calls that ended well.
#[derive(Debug, Default)]
struct Reader(Vec<Vec<u8>>);

impl Service for Reader {
    fn replied(&mut self, _: &mut Cx<'_>, _: u64, finished: Finished<'_>) {
        self.0.push(finished.results.expect("results").rest().to_vec());
    }
}

/// Has a client store an item, and fetch it time and again without room for it.
pub(super) fn exchange<N: Network>(mut network: N) {
    let limits = Limits { profile: Profile::Rfc5666, versions: Versions::OnlyOne, ..LIMITS };
    let (provider, pool, at) = network.join();
    let mut server = Core::new(provider, Keeper::default(), pool, limits, 1).expect("room");
    let at = server.listen(at).expect("nobody listens yet");
    let (provider, pool, _) = network.join();
    let mut client = Core::new(provider, Reader::default(), pool, limits, 2).expect("room");
    let connection = client.connect(network.now(), at, ends::binding()).expect("a queue pair");
    let item = pattern::of(60_001, 7);
    let expected = [&60_001_u32.to_be_bytes()[..], &item, &[0; 3]].concat();

    let (mut cx, _) = client.cx(network.now());
    let mut lease = cx.pool().lease(item.len()).expect("memory");
    lease.bytes_mut().copy_from_slice(&item);
    cx.call(connection, Request::new(PUT).argument(lease), 0, |_| Ok(())).expect("it is queued");
    for count in 1..=READ {
        until(&mut network, &mut server, &mut client, |reader| reader.0.len() == count);
        let (mut cx, _) = client.cx(network.now());
        let asked = cx.call(connection, Request::new(GET), 0, |_| Ok(()));
        asked.map_err(|(error, _)| error).expect("it is queued");
    }
    until(&mut network, &mut server, &mut client, |reader| reader.0.len() == 1 + READ);
    let now = network.now();
    let (cx, reader) = client.cx(now);
    assert!(reader.0.iter().skip(1).all(|results| *results == expected));
    let held = server.cx(now).0.counters().replies_held;
    assert_eq!([held, cx.counters().replies_read], [READ as u64; 2]);
    client.close(connection);
    loop {
        let now = network.now();
        let moved = server.turn(now) | client.turn(now);
        let gauges = server.cx(now).0.gauges();
        if (server.cx(now).0.connections(), gauges.exposed, gauges.orphans) == (0, 0, 0) {
            break;
        }
        let deadlines = [server.poll_deadline(), client.poll_deadline()];
        let next = deadlines.into_iter().flatten().min();
        assert_ne!(network.wait(moved, next), Expect::Stuck, "{gauges:?}");
    }
}

/// Turns both ends until something holds.
fn until<N: Network>(
    network: &mut N,
    server: &mut Core<N::Provider, Keeper>,
    client: &mut Core<N::Provider, Reader>,
    holds: impl Fn(&Reader) -> bool,
) {
    while !holds(client.cx(network.now()).1) {
        let now = network.now();
        let moved = server.turn(now) | client.turn(now);
        let next = [server.poll_deadline(), client.poll_deadline()].into_iter().flatten().min();
        assert_ne!(network.wait(moved, next), Expect::Stuck, "progress");
    }
}

/// How many Replies are read, more than a server exposes at once.
const READ: usize = 20;
