//! Clients that announce what they do not send, and begin what they do not end.

use super::*;

#[test]
fn a_fragment_of_two_gibibytes_ends_its_connection_and_has_no_memory() {
    let mut server = Server::new(TCP);
    let mut bystander = server.connect(1);
    let begun = [&more(4)[..], &[0; 4]].concat();
    let beyond = u32::try_from(TCP.record_max).unwrap() + 1;
    for length in [Mark::LENGTH_MAX, Mark::LENGTH_MAX - 1, 1 << 30, beyond] {
        for mark in [Mark::more(length), Mark::last(length)] {
            for before in [&[][..], &begun, &begun.repeat(10)] {
                let what = format!("a fragment of {length} octets behind {}", before.len());
                server.serves(&mut bystander, &what);
                let held = server.held();
                let mut peer = server.connect(2);
                server.until(|server| (server.connections() == 2).then_some(()));
                peer.push(before);
                peer.push(&mark.unwrap().encode());
                server.until(|server| {
                    let now = server.held();
                    assert!(now < held + (32 << 10), "{now} octets for {what}");
                    (server.connections() == 1).then_some(())
                });
                server.closes(&mut peer, &what);
            }
        }
    }
    server.ends_with_nothing([bystander]);
}

#[test]
fn a_record_that_is_too_long_asks_for_no_memory() {
    // There is room for two records, of which one of this address leaves none for it.
    let mut server = Server::new(TcpLimits { records_octets: 0, ..TCP });
    let begun = &record(&vec![1; TCP.record_max])[..1000];
    let [mut first, mut second] = [(); 2].map(|()| server.connect(2));
    first.push(begun);
    server.turns(4);
    second.push(begun);
    server.turns(4);
    assert_eq!(server.connections(), 2, "it waits");
    let mut peer = server.connect(2);
    peer.push(&Mark::more(Mark::LENGTH_MAX).unwrap().encode());
    server.closes(&mut peer, "a record that is too long");
    server.ends_with_nothing([peer, first, second]);
}

#[test]
fn fragments_that_never_end_a_record_end_their_connection() {
    let mut server = Server::new(TCP);
    let mut bystander = server.connect(1);
    let one = [more(1), vec![0]].concat();
    let mixed = [&one[..], &more(0).repeat(3)].concat();
    // Of empty ones a few are too many; of others as many as the longest record takes, and one more.
    let most = TCP.record_max;
    for (what, fragment, limit) in
        [("empty", more(0), 5000), ("mixed", mixed, 5000), ("of one octet", one, most + 1)]
    {
        let mut peer = server.connect(2);
        let many = fragment.repeat(1000);
        let mut sent = 0;
        while server.send(&mut peer, &many) && sent < 2 * limit {
            sent += 1000;
            server.turn();
            let held = server.held();
            assert!(held <= 2 * TCP.record_max, "{held} octets for fragments {what}");
            peer.receive();
        }
        assert!(sent <= limit + 1000, "{sent} fragments {what}");
        server.closes(&mut peer, what);
        server.serves(&mut bystander, what);
    }
    server.ends_with_nothing([bystander]);
}

#[test]
fn records_that_do_not_go_on_take_a_part_of_the_memory_and_end_in_time() {
    let limits = TcpLimits { records_octets: 16 << 20, ..TCP };
    let mut server = Server::new(limits);
    let mut bystander = server.connect(1);
    server.serves(&mut bystander, "nothing");
    // As many connections as one address may have, each with a record of a mebibyte.
    let begun = &record(&vec![1; 1 << 20])[..200_000];
    let short = &record(&[1; 400])[..200];
    let mut peers: Vec<_> = (0..48).map(|_| server.connect(2)).collect();
    for (at, peer) in peers.iter_mut().enumerate() {
        peer.push(if at % 4 == 3 { short } else { begun });
        server.turn();
    }
    server.turns(20);
    assert_eq!(server.connections(), 49);
    let held = server.held();
    // One address leaves as much as it has.
    assert!(held < limits.records_octets / 2 + 48 * (20 << 10), "{held}");
    assert!(held > 4 << 20, "they hold something: {held}");
    server.serves(&mut bystander, "records that do not go on");
    // A little of a record, now and then, is no progress.
    let wait = limits.progress_timeout / 4;
    for _ in 0..3 {
        server.pass(wait.checked_sub(Duration::from_millis(200)).unwrap());
        for peer in &mut peers {
            peer.push(&[1]);
        }
        server.serves(&mut bystander, "records that hardly go on");
    }
    assert_eq!(server.connections(), 49, "they have some time left");
    server.pass(wait);
    assert_eq!(server.connections(), 1);
    assert_eq!(server.counters().late, 48);
    server.serves(&mut bystander, "records that were given up");
    server.ends_with_nothing(peers.into_iter().chain([bystander]));
}
