use std::collections::BTreeSet;

use haulage_proto::rpc::{AuthSys, Credential};

use super::*;
use crate::testing::Rng;

const SECOND: Duration = Duration::from_secs(1);

fn key(client: u128, xid: u32) -> CallKey {
    CallKey { client, xid, procedure: 12, digest: 99 }
}

/// Returns an IPv4 address.
const fn v4(host: usize) -> u128 {
    0xffff << 32 | host as u128
}

/// Creates a cache for this many Replies of successful Calls, and a third as many of failed Calls.
fn replays(successes: usize) -> Replays {
    let all = successes / 3 * 4;
    let (reply_max, age_max) = (8, 120 * SECOND);
    let limits = Limits { octets_max: all * (reply_max + kept::NOTED), reply_max, age_max };
    assert_eq!(limits.replies(End::Success), successes);
    assert_eq!(limits.replies(End::Failure), successes / 3);
    Replays::new(&limits, 5)
}

fn at(seconds: u32) -> Instant {
    Instant::ZERO.saturating_add(seconds * SECOND)
}

impl Replays {
    fn put(&mut self, key: &CallKey, now: Instant, end: End, reply: &[u8]) {
        self.keep(key, &Given { connection: Connection(0), now, end, reply });
    }

    fn call(&mut self, key: &CallKey, end: End) {
        assert_eq!(self.begin(key, at(0)), Seen::New);
        self.put(key, at(0), end, &key.xid.to_be_bytes());
    }

    fn knows(&mut self, key: &CallKey) -> bool {
        match self.begin(key, at(0)) {
            Seen::New => false,
            seen => {
                assert_eq!(seen, Seen::Answered(&key.xid.to_be_bytes()));
                true
            }
        }
    }
}

#[test]
fn a_call_is_carried_out_once() {
    let mut replays = replays(12);
    let call = key(1, 1);
    assert_eq!(replays.begin(&call, at(0)), Seen::New);
    replays.wait(call, Ticket { number: 5, network: 0 });
    assert_eq!(replays.begin(&call, at(200)), Seen::Pending(Ticket { number: 5, network: 0 }));
    replays.put(&call, at(200), End::Success, b"done");
    assert_eq!(replays.begin(&call, at(200)), Seen::Answered(b"done"));
    replays.wait(key(1, 2), Ticket { number: 6, network: 0 });
    replays.forget(&key(1, 2));
    assert_eq!(replays.begin(&key(1, 2), at(200)), Seen::New);
}

#[test]
fn every_part_of_the_key_tells_calls_apart() {
    let mut replays = replays(12);
    let first = key(1, 1);
    for other in [
        first,
        CallKey { client: 2, ..first },
        CallKey { client: 1 << 64, ..first },
        CallKey { xid: 2, ..first },
        CallKey { procedure: 13, ..first },
        CallKey { digest: 98, ..first },
    ] {
        replays.call(&other, End::Success);
    }
}

#[test]
fn what_is_too_long_is_not_kept() {
    let mut replays = replays(3);
    replays.put(&key(1, 1), at(0), End::Success, b"too long.");
    assert_eq!(replays.begin(&key(1, 1), at(0)), Seen::New);
    replays.put(&key(1, 1), at(0), End::Success, b"it fits.");
    assert_eq!(replays.begin(&key(1, 1), at(0)), Seen::Answered(b"it fits."));
}

#[test]
fn an_old_reply_is_neither_used_nor_in_the_way() {
    let mut replays = replays(12);
    for xid in 0..12 {
        replays.put(&key(1, xid), at(xid), End::Success, b"old");
    }
    assert_eq!(replays.begin(&key(1, 0), at(120)), Seen::Answered(b"old"));
    assert_eq!(replays.begin(&key(1, 0), at(121)), Seen::New);
    assert_eq!(replays.begin(&key(1, 1), at(121)), Seen::Answered(b"old"));
    // Much later, no kept Reply is used, and they are dropped a few at a time.
    for left in [7, 3, 0] {
        assert_eq!(replays.begin(&key(1, 11), at(500)), Seen::New);
        assert_eq!(replays.successes.count(1), left);
    }
    // An old Reply that is still kept does not hide the next for the same key.
    replays.put(&key(1, 1), at(500), End::Success, b"old");
    replays.put(&key(1, 1), at(700), End::Success, b"new");
    assert_eq!(replays.begin(&key(1, 1), at(700)), Seen::Answered(b"new"));
}

#[test]
fn no_failure_takes_the_place_of_a_success() {
    let mut replays = replays(12);
    for xid in 0..12 {
        replays.call(&key(1, xid), End::Success);
    }
    for xid in 12..1000 {
        replays.call(&key(1, xid), End::Failure);
    }
    assert!((0..12).all(|xid| replays.knows(&key(1, xid))));
    // The latest failures are known.
    assert!((996..1000).all(|xid| replays.knows(&key(1, xid))));
}

#[test]
fn an_address_that_is_alone_has_all_the_room() {
    let mut replays = replays(12);
    for xid in 0..100 {
        replays.call(&key(1, xid), End::Success);
    }
    let known: BTreeSet<_> = (0..100).filter(|xid| replays.knows(&key(1, *xid))).collect();
    assert_eq!(known, (88..100).collect());
}

#[test]
fn each_address_keeps_its_share_whatever_the_others_do() {
    for (seed, addresses) in [(1, 2), (2, 3), (3, 5), (4, 7)] {
        let (room, mut rng) = (60, Rng::new(seed));
        let mut replays = replays(room);
        let mut xids = vec![0; addresses];
        for _ in 0..3000 {
            // The first address makes most Calls.
            let who = if rng.below(4) > 0 { 0 } else { rng.below(addresses) };
            xids[who] += 1;
            replays.call(&key(v4(who), xids[who]), End::Success);
            for (who, last) in xids.iter().enumerate() {
                let share = u32::try_from(room / addresses).unwrap().min(*last);
                for xid in last - share + 1..=*last {
                    assert!(replays.knows(&key(v4(who), xid)), "{who} {xid} of {last}");
                }
            }
        }
        let kept: usize = (0..addresses).map(|who| replays.successes.count(v4(who))).sum();
        assert_eq!(kept, room);
    }
}

#[test]
fn an_ipv6_network_is_one_address_and_an_ipv4_network_is_not() {
    let mut replays = replays(12);
    let v6 = |host: u64| 0x2001_0db8 << 96 | u128::from(host);
    for xid in 0..6 {
        replays.call(&key(v4(7), xid), End::Success);
    }
    for xid in 0..100 {
        replays.call(&key(v6(xid.into()), xid), End::Success);
    }
    assert!((0..6).all(|xid| replays.knows(&key(v4(7), xid))));
    for host in 8..100 {
        replays.call(&key(v4(host), 1), End::Success);
    }
    assert_eq!(replays.successes.count(v4(7)), 1);
}

#[test]
fn no_memory_is_no_panic() {
    let limits = Limits { octets_max: 0, reply_max: 8, age_max: SECOND };
    let mut replays = Replays::new(&limits, 1);
    replays.put(&key(1, 1), at(0), End::Success, b"x");
    assert_eq!(replays.begin(&key(1, 1), at(0)), Seen::New);
}

#[test]
fn the_replies_of_a_connection_that_was_left_are_used_no_more() {
    let mut replays = replays(12);
    let given = |connection, end| Given { connection, now: at(0), end, reply: b"done" };
    let (left, other) = (Connection(1), Connection(2));
    replays.keep(&key(1, 1), &given(left, End::Success));
    replays.keep(&key(1, 2), &given(left, End::Failure));
    replays.keep(&key(1, 3), &given(other, End::Success));
    replays.forget_connection(left);
    let known = |replays: &mut Replays, xid| replays.begin(&key(1, xid), at(0)) != Seen::New;
    assert_eq!([1, 2, 3].map(|xid| known(&mut replays, xid)), [false, false, true]);
    // A Reply that is kept later for the same Call is used, although the first Reply still has its place.
    replays.keep(&key(1, 1), &given(other, End::Success));
    assert!(known(&mut replays, 1));
    // The names of connections go with their last Replies.
    for xid in 10..22 {
        replays.keep(&key(1, xid), &given(Connection(3), End::Success));
    }
    assert_eq!(replays.successes.connections(), [Connection(3)]);
}

#[test]
fn who_calls_and_every_octet_make_a_digest() {
    let sys = |uid, gid, gids| {
        let sys = AuthSys::new(0, b"host", uid, gid);
        Credential::Sys(sys.with_gids(gids).unwrap())
    };
    let data = vec![7; 1 << 20];
    let last = [&data[1..], b"8"].concat();
    let first =
        Said { credential: &sys(1, 2, &[[0, 0, 0, 3]]), arguments: b"arguments", data: &data };
    let others = [
        Said { credential: &Credential::None, ..first },
        Said { credential: &sys(2, 2, &[[0, 0, 0, 3]]), ..first },
        Said { credential: &sys(1, 1, &[[0, 0, 0, 3]]), ..first },
        Said { credential: &sys(1, 2, &[[0, 0, 0, 4]]), ..first },
        Said { credential: &sys(1, 2, &[]), ..first },
        Said { arguments: b"argumentt", ..first },
        Said { arguments: b"", ..first },
        Said { data: &last, ..first },
        Said { data: &data[1..], ..first },
        Said { arguments: b"", data: b"arguments", ..first },
    ];
    let digester = Digester::new(5);
    let all: BTreeSet<_> =
        others.iter().chain([&first]).map(|said| digester.digest(said)).collect();
    assert_eq!(all.len(), others.len() + 1);
    // The same caller after its machine was named anew.
    let mut renamed = AuthSys::new(9, b"other", 1, 2);
    renamed = renamed.with_gids(&[[0, 0, 0, 3]]).unwrap();
    let said = Said { credential: &Credential::Sys(renamed), ..first };
    assert_eq!(digester.digest(&said), digester.digest(&first));
    assert_ne!(Digester::new(6).digest(&first), digester.digest(&first));
}

#[test]
fn a_small_server_keeps_the_replies_to_twice_the_calls_of_a_connection() {
    for octets in [0, 4 << 20, 64 << 20] {
        let limits = Limits::of_memory(octets, 264);
        assert!(limits.replies(End::Success) >= 2 * LIMITS_DEFAULT.credits_max as usize);
    }
}
