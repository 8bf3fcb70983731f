//! Calls without a Reply over the providers that need no RDMA device.

use super::*;
use crate::provider::iwarp::{self, Iwarp};
use crate::provider::shm::{self, Shm};
use crate::sys::clock;

/// Makes thousands of Calls without a Reply between cores with providers of `make`.
fn never_stalls_over<P: Provider>(make: impl Fn() -> (P, Pool)) {
    let narrow = Limits { call_timeout: PATIENT.call_timeout, ..NARROW };
    let (provider, pool) = make();
    let mut server = Core::new(provider, Notes::default(), pool, narrow, 7).unwrap();
    let (provider, pool) = make();
    let mut client = Core::new(provider, Caller::default(), pool, narrow, 8).unwrap();
    let at = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let connection = client.connect(clock::now(), at, told()).unwrap();
    for token in 0..4_000 {
        let procedure = if token == 3_999 { 0 } else { NOTE };
        let (mut cx, _) = client.cx(clock::now());
        cx.call(connection, request(procedure), u64::from(token), |w| w.u32(token + 100)).unwrap();
        let mut turns = 0;
        let under_way = if token == 3_999 { 0 } else { token as usize % 31 };
        while client.service.ended.len() + under_way < token as usize + 1 {
            client.turn(clock::now());
            server.turn(clock::now());
            turns += 1;
            assert!(turns < 10_000_000, "Call {token}");
        }
    }
    assert!(client.service.ended.iter().all(|(_, result, _)| *result == Ok(0)));
    assert!(server.service.noted.iter().copied().eq(100..4_099));
    for _ in 0..100 {
        client.turn(clock::now());
        server.turn(clock::now());
    }
    all_home(&mut server, clock::now());
    all_home(&mut client, clock::now());
}

fn pool(pages: PagePreference) -> Pool {
    Pool::new(&PoolConfig { bytes: 16 << 20, pages, node: None }).unwrap()
}

#[test]
fn calls_without_a_reply_never_stall_over_iwarp() {
    never_stalls_over(|| {
        (Iwarp::new(&iwarp::Config::default()).unwrap(), pool(PagePreference::Heap))
    });
}

#[test]
fn calls_without_a_reply_never_stall_over_shared_memory() {
    never_stalls_over(|| {
        let pool = pool(PagePreference::Shared);
        (Shm::new(&shm::Config::default(), &pool).unwrap(), pool)
    });
}
