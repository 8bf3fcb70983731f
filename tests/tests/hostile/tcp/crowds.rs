//! Clients that take no Replies, and clients whose Calls wait.

use super::*;

#[test]
fn clients_that_take_no_replies_hold_a_part_of_the_memory_and_end_in_time() {
    for (what, call) in [
        ("copied results", rpc(1, LIST, &words(&[LIST_MAX]))),
        ("leased results", rpc(1, FETCH, &words(&[1 << 20]))),
        ("verdicts", rpc(1, 99, &[])),
    ] {
        let mut server = Server::new(TCP);
        let mut bystander = server.connect(1);
        server.serves(&mut bystander, what);
        let many = record(&call).repeat(4000);
        let mut peers: Vec<_> = (0..8).map(|_| server.connect(2)).collect();
        let mut sent = vec![0; peers.len()];
        for _ in 0..60 {
            for (peer, sent) in peers.iter_mut().zip(&mut sent) {
                let from = *sent % many.len();
                *sent += peer.push(&many[from..]);
            }
            server.turns(10);
            // Each has a little that was copied, and all of them have half of the pool.
            let most = POOL_BYTES / 2 + 8 * (1 << 20);
            let held = server.held();
            assert!(held < most, "{held} octets for {what}");
        }
        // A connection is read for 32 Calls at a time: the peers push until the system takes no more Replies for them.
        let mut still = 0;
        for _ in 0..1_000 {
            server.turns(250);
            let took = peers.iter_mut().zip(&mut sent).map(|(peer, sent)| {
                let more = peer.push(&many[*sent % many.len()..]);
                *sent += more;
                more
            });
            still = if took.sum::<usize>() == 0 { still + 1 } else { 0 };
            if still == 4 {
                break;
            }
        }
        assert_eq!(still, 4, "{what}");
        server.serves(&mut bystander, what);
        // What one gives up in the end, another may wait for that has its own time then.
        for _ in 0..peers.len() {
            server.pass(TCP.progress_timeout);
            server.serves(&mut bystander, what);
        }
        assert_eq!(server.connections(), 1, "{what}");
        server.ends_with_nothing(peers.into_iter().chain([bystander]));
    }
}

#[test]
fn a_client_that_is_always_a_little_behind_holds_no_more_than_waits() {
    let mut server = Server::new(TCP);
    let mut peer = server.connect(2);
    let many = record(&rpc(1, LIST, &words(&[LIST_MAX]))).repeat(1000);
    let (mut sent, mut received) = (0, 0);
    // More than a hundred mebibytes of Replies leave, and some wait all the time.
    while received < 128 << 20 {
        sent += peer.push(&many[sent % many.len()..]);
        server.turns(2);
        peer.receive();
        received += std::mem::take(&mut peer.received).len();
        let held = server.held();
        assert!(held < 1 << 20, "{held} octets held after {received}");
    }
    server.ends_with_nothing([peer]);
}

#[test]
fn calls_that_wait_leave_room_for_calls_of_others() {
    let mut server = Server::new(TCP);
    let mut bystander = server.connect(1);
    server.serves(&mut bystander, "nothing");
    // More Calls than a core has in service altogether, all from one address.
    let many = record(&rpc(1, HOLD, &[])).repeat(200);
    let mut peers: Vec<_> = (0..40).map(|_| server.connect(2)).collect();
    for peer in &mut peers {
        assert_eq!(peer.push(&many), many.len());
    }
    server.turns(100);
    let waiting = server.core.cx(server.now).0.census().calls_served;
    assert!(waiting > 1000, "{waiting} Calls wait");
    server.serves(&mut bystander, "Calls that are never answered");
    let mut newcomer = server.connect(3);
    server.serves(&mut newcomer, "Calls that are never answered");
    server.ends_with_nothing(peers.into_iter().chain([bystander, newcomer]));
}

#[test]
fn long_calls_that_wait_for_their_turn_have_the_memory_of_long_records() {
    let limits = TcpLimits { records_octets: 16 << 20, ..TCP };
    let mut server = Server::new(limits);
    let mut bystander = server.connect(1);
    server.serves(&mut bystander, "nothing");
    let before = server.counters().calls;
    let octets = vec![1; (1 << 20) - 4];
    let call = record(&rpc(1, WEIGH, &counted(&octets)));
    let mut peers: Vec<_> = (0..32).map(|_| server.connect(2)).collect();
    let mut sent = vec![0; peers.len()];
    for _ in 0..60 {
        for (peer, sent) in peers.iter_mut().zip(&mut sent) {
            *sent = (*sent + peer.push(&call[*sent..])) % call.len();
        }
        server.turn();
        let waiting = server.core.cx(server.now).0.census().calls_served as usize;
        assert!(waiting * (1 << 20) <= limits.records_octets / 2, "{waiting} Calls wait");
    }
    let taken = server.counters().calls - before;
    assert!(taken > 20, "{taken} Calls have had their turn");
    server.serves(&mut bystander, "long Calls");
    server.ends_with_nothing(peers.into_iter().chain([bystander]));
}
