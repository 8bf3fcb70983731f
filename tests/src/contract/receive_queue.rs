//! Lines 15 to 18, and 24.

use std::collections::VecDeque;

use haulage::provider::{DisconnectReason, Event, Provider, Receive};

use super::connections::ending;
use crate::bed::{ACTIVE, Bed, PASSIVE, SIGNALED, filled, spent};
use crate::network::Network;
use crate::{Rng, pattern};

/// Receives are shared by all queue pairs of the provider and used in the order they were posted.
pub fn line_15_receives_are_shared_and_used_in_order<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let links = [bed.connect(), bed.connect(), bed.connect()];
    let sinks: Vec<_> = (0..9).map(|_| bed.ends[PASSIVE].receive(8)).collect();
    for (turn, (receive, sink)) in sinks.into_iter().enumerate() {
        let link = links[(turn * 2) % 3];
        let message = pattern::of(8, turn as u64);
        let (_, _source) = bed.ends[ACTIVE].send(link[ACTIVE], &message, None, SIGNALED);
        let done = bed.succeeded(PASSIVE, receive);
        assert_eq!(done.qp, link[PASSIVE], "the completion names the queue pair of the message");
        assert_eq!(filled(sink, &done).bytes(), message);
    }
}

/// A Send that finds no Receive waits; neither end loses the connection over it.
pub fn line_16_a_send_without_a_receive_waits<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    if !bed.ends[PASSIVE].provider.caps().promises.sends_wait {
        eprintln!("skipped: `sends_wait` of Caps is false");
        return;
    }
    let link = bed.connect();
    let messages = [&b"first"[..], b"second", b"third"];
    let sent = messages.map(|message| bed.ends[ACTIVE].send(link[ACTIVE], message, None, SIGNALED));
    bed.settle();
    assert!(bed.ends[PASSIVE].log.is_empty(), "{:?}", bed.ends[PASSIVE].log);
    let lost = |event: &Event<_>| matches!(event, Event::Disconnected { .. });
    assert!(!bed.ends[ACTIVE].log.iter().any(lost), "{:?}", bed.ends[ACTIVE].log);
    for message in messages {
        let (receive, sink) = bed.ends[PASSIVE].receive(64);
        let done = bed.succeeded(PASSIVE, receive);
        assert_eq!(&filled(sink, &done).bytes()[..done.length as usize], message);
    }
    for (id, source) in sent {
        spent(source, &bed.succeeded(ACTIVE, id));
    }
}

/// A Send larger than the Receive it meets ends the connection, and only that one.
pub fn line_17_a_send_larger_than_its_receive_ends_its_connection<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let (doomed, other) = (bed.connect(), bed.connect());
    let (receive, sink) = bed.ends[PASSIVE].receive(16);
    let long = pattern::of(17, 7);
    let (_, _source) = bed.ends[ACTIVE].send(doomed[ACTIVE], &long, None, SIGNALED);
    let reason = ending(&mut bed, PASSIVE, doomed[PASSIVE]).reason;
    let explained = bed.ends[PASSIVE].provider.caps().promises.explains_ends;
    let blamed = matches!(reason, DisconnectReason::PeerMisbehaved(_));
    assert!(blamed || !explained, "{reason:?}");
    let reason = ending(&mut bed, ACTIVE, doomed[ACTIVE]).reason;
    let told = matches!(reason, DisconnectReason::Terminated { .. });
    assert!(told || !explained, "{reason:?}");

    let (_, _source) = bed.ends[ACTIVE].send(other[ACTIVE], &long[..16], None, SIGNALED);
    let done = bed.succeeded(PASSIVE, receive);
    assert_eq!((done.qp, done.length), (other[PASSIVE], 16));
    assert_eq!(filled(sink, &done).bytes(), &long[..16]);
}

/// A Receive fills its scatter list in order.
pub fn line_18_a_receive_fills_its_scatter_list_in_order<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let sizes = [7, 1, 64, 10_000];
    for length in [0, 7, 8, 50, 72, 73, 10_072] {
        let passive = &mut bed.ends[PASSIVE];
        let mut leases = sizes.map(|size| passive.holding(&vec![0xa5; size]).into_sink());
        let sinks = [0, 1, 2, 3].map(|at| leases[at].sink(0..sizes[at]).expect("the whole lease"));
        let ([first, rest @ ..], id) = (sinks, passive.id());
        let receive = Receive { id, first, rest: Box::from(rest) };
        passive.provider.post_receives(&mut vec![receive]).expect("room");
        let message = pattern::of(length, 8);
        let (sent, source) = bed.ends[ACTIVE].send(link[ACTIVE], &message, None, SIGNALED);
        let done = bed.succeeded(PASSIVE, id);
        assert_eq!(done.length as usize, length);
        let mut found = Vec::new();
        for lease in leases {
            found.extend_from_slice(filled(lease, &done).bytes());
        }
        assert!(found[..length] == message, "a message of {length} octets was scattered wrongly");
        assert!(found[length..].iter().all(|&b| b == 0xa5), "octets after the end of {length}");
        spent(source, &bed.succeeded(ACTIVE, sent));
    }
}

/// A message that is taken without a Receive is taken in its turn, and one that is not wanted so arrives in
/// a Receive like any other.
pub fn line_24_messages_are_taken_without_receives_in_their_turn<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    if !bed.ends[PASSIVE].provider.caps().promises.sends_wait {
        eprintln!("skipped: `sends_wait` of Caps is false");
        return;
    }
    let links = [bed.connect(), bed.connect()];
    let messages: Vec<Vec<u8>> = (0..120).map(message).collect();
    let mut receives: Vec<_> = (0..16).map(|_| bed.ends[PASSIVE].receive(4096)).collect();
    let (mut posted, mut sent) = (0, VecDeque::new());
    let (mut arrived, mut taken, mut into) = ([0, 0], 0, [0; 300]);
    let mut random = Rng::new(18);
    // Both are sent every message, in bursts.
    bed.until_with([4, 4], "every message", |bed| {
        let active = &mut bed.ends[ACTIVE];
        // They may complete in another order than they were posted in: there are two queue pairs.
        for _ in 0..sent.len() {
            let Some((id, source)) = sent.pop_front() else { break };
            match active.done(id) {
                Some(done) => drop(spent(source, &done)),
                None => sent.push_back((id, source)),
            }
        }
        let burst = random.below(0..6);
        for _ in 0..burst.min(SENDS_MAX.saturating_sub(sent.len() as u64)) {
            let Some(message) = messages.get(posted / 2) else { break };
            let qp = links[posted % 2][ACTIVE];
            sent.push_back(active.send(qp, message, None, SIGNALED));
            posted += 1;
        }
        let passive = &mut bed.ends[PASSIVE];
        while let Some(event) = passive.take(|event| matches!(event, Event::Completion(_))) {
            let Event::Completion(done) = event else { unreachable!("it was looked for") };
            let at = receives.iter().position(|(id, _)| *id == done.id).expect("a Receive of ours");
            let bytes = filled(receives.remove(at).1, &done);
            let link = usize::from(done.qp == links[1][PASSIVE]);
            assert!(
                bytes.bytes()[..done.length as usize] == messages[arrived[link]],
                "{arrived:?}"
            );
            arrived[link] += 1;
        }
        for _ in 0..random.below(0..4) {
            let wanted = random.below(0..4) > 0;
            let take = |qp, bytes: &[u8]| wanted.then(|| (qp, bytes.to_vec()));
            let Some(((qp, seen), length)) = passive.provider.receive_inline(&mut into, take)
            else {
                break;
            };
            assert_eq!(seen, into[..length], "it is shown where it is copied to");
            let link = usize::from(qp == links[1][PASSIVE]);
            assert!(seen == messages[arrived[link]], "{arrived:?} were before it");
            arrived[link] += 1;
            taken += 1;
        }
        if receives.len() < 8 {
            receives.extend((0..8).map(|_| passive.receive(4096)));
        }
        (arrived == [messages.len(); 2] && sent.is_empty()).then_some(())
    });
    eprintln!("{taken} of {} were taken without Receives", 2 * messages.len());
}

/// Sends in flight at once: fewer than any send queue holds.
const SENDS_MAX: u64 = 12;

/// Returns a message of some length; some are as Calls are, with runs of zeros.
fn message(number: usize) -> Vec<u8> {
    let lengths = [8, 72, 80, 88, 89, 300, 301, 4000];
    let mut bytes = pattern::of(lengths[number % lengths.len()], number as u64);
    if number.is_multiple_of(3) {
        bytes.iter_mut().skip(16).take(16).for_each(|octet| *octet = 0);
        bytes.iter_mut().skip(56).take(16).for_each(|octet| *octet = 0);
    }
    bytes
}
