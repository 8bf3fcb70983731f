//! Random octets, and random changes of good records, in pieces of random lengths.

use haulage_test_support::Rng;

use super::*;

/// Returns good records, of which some are in several fragments.
fn good(rng: &mut Rng) -> Vec<u8> {
    let mut stream = Vec::new();
    for xid in 0..1 + u32::from(rng.octet() % 5) {
        let call = match rng.below(7) {
            0 => rpc(xid, NULL, &[]),
            1 => rpc(xid, TALLY, &counted(rng.octets(300))),
            2 => rpc(xid, FETCH, &words(&[rng.word() % 5000])),
            3 => rpc(xid, LIST, &words(&[rng.word() % 5000])),
            4 => rpc(xid, HOLD, &[]),
            5 => rpc(xid, WEIGH, &counted(rng.octets(8000))),
            _ => rpc(xid, TALLY, &counted(&vec![1; 20_000 + rng.below(20_000)])),
        };
        if rng.flip() {
            stream.extend(record(&call));
            continue;
        }
        let mut rest = &call[..];
        while !rest.is_empty() && rng.below(8) > 0 {
            let (fragment, behind) = rest.split_at(rng.below(rest.len() + 1));
            stream.extend(more(u32::try_from(fragment.len()).unwrap()));
            stream.extend(fragment);
            rest = behind;
        }
        stream.extend(record(rest));
    }
    stream
}

#[test]
fn no_octets_trouble_the_server_or_others() {
    let mut rng = Rng::new(0x7cb5_3100);
    // Little memory for long records shows whether all of it comes back.
    let mut server = Server::new(TcpLimits { records_octets: 0, ..TCP });
    let mut bystander = server.connect(1);
    let (mut peers, mut answered, mut ended) = (Vec::new(), 0, 0);
    for round in 0..3000 {
        let mut stream = match round % 8 {
            0 => rng.octets(3000).to_vec(),
            _ => good(&mut rng),
        };
        if round % 8 > 1 {
            rng.mutate(&mut stream);
        }
        let mut peer = server.connect(2 + (round % 3) as u8);
        let mut rest = &stream[..];
        while !rest.is_empty() && !peer.is_over {
            let length = rng.length(14).clamp(1, rest.len());
            let count = peer.push(&rest[..length]);
            assert!(count > 0 || peer.is_over, "the system has room for a few records");
            rest = &rest[count..];
            if rng.flip() {
                server.turn();
            }
        }
        // One that waits for the end of what has begun may be replaced later, by one of the next.
        server.turns(3);
        peer.receive();
        answered += u32::from(peer.received.len() > 4);
        ended += u32::from(peer.is_over);
        match rng.below(3) {
            0 => drop(peer),
            1 => {
                let _ = peer.stream.shutdown(std::net::Shutdown::Write);
                peers.push(peer);
            }
            _ => peers.push(peer),
        }
        if peers.len() > 40 {
            peers.swap_remove(rng.below(40));
        }
        if round % 100 == 99 {
            let mut fresh = server.connect(9);
            server.serves(&mut fresh, &format!("the octets of round {round}"));
        }
        if round % 500 == 499 {
            server.pass(TCP.progress_timeout / 2);
        }
    }
    // Neither end of the scale was missed.
    assert!(answered > 500 && ended > 300, "{answered} answered, {ended} ended");
    server.serves(&mut bystander, "all of them");
    server.ends_with_nothing(peers.into_iter().chain([bystander]));
}
