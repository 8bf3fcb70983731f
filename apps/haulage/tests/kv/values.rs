//! Values survive, whatever their length.

use haulage::provider::iwarp::Backend;
use haulage_apps::demo::load::{fill, matches};

use crate::pair::{Pair, VALUE_MAX};

const LENGTHS: [usize; 8] = [0, 1, 3, 4095, 4096, 1 << 20, (4 << 20) - 1, 4 << 20];

fn values_survive(backend: Backend) {
    let mut pair = Pair::new(backend, 4);
    for length in LENGTHS {
        // The keys are as many as fit into the server's memory at this length; long values are stored twice each, short
        // ones all at once, on 4 connections.
        let (keys, requests) = if length > 64 << 10 { (8, 16) } else { (64, 64) };
        for at in 0..requests {
            let mut value = pair.lease(length);
            fill(value.bytes_mut(), length, at % keys);
            pair.put(at % 4, at as u64, &format!("key-{}", at % keys), value);
        }
        for ended in pair.ended(requests) {
            assert_eq!(ended.status, Ok(0), "PUT {} of {length}", ended.token);
        }
        for at in 0..requests {
            let room = pair.lease(length.max(1));
            pair.get(at % 4, at as u64, &format!("key-{}", at % keys), room);
        }
        for ended in pair.ended(requests) {
            assert_eq!(ended.status, Ok(0), "GET {} of {length}", ended.token);
            let value = ended.lease.unwrap();
            let key = usize::try_from(ended.token).unwrap() % keys;
            assert!(matches(value.bytes(), length, key), "value {key} of {length} differs");
        }
    }
    pair.shut_down();
}

#[test]
fn values_survive_over_io_uring_or_what_replaces_it() {
    values_survive(Backend::Auto);
}

#[test]
fn values_survive_over_plain_sockets() {
    values_survive(Backend::Sockets);
}

#[test]
fn a_value_beyond_the_limit_is_refused_with_the_limit_and_disturbs_nothing() {
    let mut pair = Pair::new(Backend::Auto, 1);
    let at = pair.server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let wide = haulage_kv::service::binding(2 * VALUE_MAX);
    let now = haulage::sys::clock::now();
    pair.connections.push(pair.client.connect(now, at, wide).unwrap());
    let value = pair.lease(VALUE_MAX + 1);
    pair.put(1, 0, "large", value);
    let too_large = 2;
    assert_eq!(pair.ended(1)[0].status, Ok(too_large));
    let value = pair.lease(VALUE_MAX);
    pair.put(1, 1, "large", value);
    assert_eq!(pair.ended(1)[0].status, Ok(0));
}
