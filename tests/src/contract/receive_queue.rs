//! Checks of the contract's lines 15 to 18, 24 and 25: the receive queue.

use std::collections::VecDeque;

use haulage::provider::{
    DisconnectReason, Event, Head, MessageSink, Outgoing, Port, Provider, Receive, Run, Sent,
    WorkQueue,
};
use haulage_mr_pool::{Local, PostedSink};
use haulage_proto::verbs::{Opcode, QpNum, Status, WrId};

use super::connections::ending;
use crate::bed::{ACTIVE, Bed, End, Link, PARAMS, PASSIVE, SIGNALED, Said, filled, spent};
use crate::by_number::ByNumber as _;
use crate::network::{Expect, Network};
use crate::{Rng, pattern};

/// Receives are used in the order they were posted, by whichever queue pair a message is for, or by the queue pair they
/// are reserved for.
pub fn line_15_receives_are_used_in_order<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let links = [bed.connect(), bed.connect(), bed.connect()];
    let turns: Vec<_> = (0..9).map(|turn| links[(turn * 2) % 3]).collect();
    let passive = &mut bed.ends[PASSIVE];
    let sinks: Vec<_> = turns.iter().map(|link| passive.receive(link[PASSIVE], 8)).collect();
    for (turn, ((receive, sink), link)) in sinks.into_iter().zip(turns).enumerate() {
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
        let (receive, sink) = bed.ends[PASSIVE].receive(link[PASSIVE], 64);
        let done = bed.succeeded(PASSIVE, receive);
        assert_eq!(&filled(sink, &done).bytes()[..done.length as usize], message);
    }
    for (id, source) in sent {
        spent(source, &bed.succeeded(ACTIVE, id));
    }
}

/// A Send larger than the Receive it meets ends the connection, and only that one. The Send completes once, as sent or
/// as flushed, and no completion names the Receive, which stays posted for another connection.
pub fn line_17_a_send_larger_than_its_receive_ends_its_connection<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let (doomed, other) = (bed.connect(), bed.connect());
    let (receive, sink) = bed.ends[PASSIVE].receive(doomed[PASSIVE], 16);
    let long = pattern::of(17, 7);
    let (sent, _source) = bed.ends[ACTIVE].send(doomed[ACTIVE], &long, None, SIGNALED);
    let reason = ending(&mut bed, PASSIVE, doomed[PASSIVE]).reason;
    let explained = bed.ends[PASSIVE].provider.caps().promises.explains_ends;
    let blamed = matches!(reason, DisconnectReason::PeerMisbehaved(_));
    assert!(blamed || !explained, "{reason:?}");
    bed.until("the sender's Quiesced", |bed| {
        let is_it =
            |event: &Event<_>| matches!(event, Event::Quiesced(q) if q.qp() == doomed[ACTIVE]);
        bed.ends[ACTIVE].log.iter().any(is_it).then_some(())
    });
    let of_it = bed.ends[ACTIVE].log.iter().filter_map(|event| match event {
        Event::Completion(done) if done.id == sent => Some(done.status),
        _ => None,
    });
    let statuses: Vec<_> = of_it.collect();
    assert!(matches!(statuses[..], [Status::Success | Status::Flushed]), "{statuses:?}");
    let reason = ending(&mut bed, ACTIVE, doomed[ACTIVE]).reason;
    let told = matches!(reason, DisconnectReason::Terminated { .. });
    assert!(told || !explained, "{reason:?}");

    bed.ends[PASSIVE].provider.reserve_receives(other[PASSIVE], 1);
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
        passive.provider.reserve_receives(link[PASSIVE], 1);
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

/// A message that is taken without a Receive keeps its place, and a message that the sink does not take arrives in a
/// Receive. Messages that the sink sends keep their places too.
pub fn line_24_messages_are_taken_without_receives_in_their_turn<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    if !bed.ends[PASSIVE].provider.caps().promises.sends_wait {
        eprintln!("skipped: `sends_wait` of Caps is false");
        return;
    }
    let links = [bed.connect(), bed.connect()];
    let messages: Vec<Vec<u8>> = (0..120).map(message).collect();
    // The two queue pairs in turn.
    let more = |passive: &mut End<N::Provider>, count| -> Vec<_> {
        (0..count).map(|at| passive.receive(links[at % 2][PASSIVE], 4096)).collect()
    };
    let mut receives = more(&mut bed.ends[PASSIVE], 16);
    let (mut posted, mut sent) = (0, VecDeque::new());
    let (mut arrived, mut taken, mut into) = ([0, 0], 0, [0; 1000]);
    // Messages that the sink sent back, and the Receives they are to arrive in.
    let (mut answers, mut echoes) =
        ([VecDeque::new(), VecDeque::new()], Vec::<(WrId, PostedSink)>::new());
    // Messages that the provider of the sink has taken.
    let mut told = Vec::<Said>::new();
    let is_receive = |event: &Event<_>| matches!(event, Event::Completion(done) if done.opcode == Opcode::Receive);
    let mut random = Rng::new(18);
    // Each connection carries every message, in bursts.
    bed.until_with([4, 4], "every message", |bed| {
        let active = &mut bed.ends[ACTIVE];
        // Sends may complete in another order than they were posted in: there are two queue pairs.
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
        // Receives are used in the order they were posted.
        while let Some((at, done)) =
            (0..echoes.len()).find_map(|at| active.done(echoes[at].0).map(|done| (at, done)))
        {
            let bytes = filled(echoes.remove(at).1, &done);
            let answer = answers[usize::from(done.qp == links[1][ACTIVE])].pop_front();
            assert!(bytes.bytes().get(..done.length as usize) == answer.as_deref(), "an answer");
        }
        let mut passive = &mut bed.ends[PASSIVE];
        for said in std::mem::take(&mut told) {
            match passive.done(said.id) {
                Some(done) => drop(said.message.complete(&done)),
                None => told.push(said),
            }
        }
        while let Some(event) = passive.take(is_receive) {
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
            let wanted = random.below(0..4);
            let ready = (0..wanted).map(|_| (passive.id(), passive.holding(&[0; 300]))).collect();
            let mut sink = Echo { ready, took: Vec::new() };
            let budget = usize::try_from(random.below(1..4)).expect("few");
            let count = passive.provider.receive_in_place(&mut into, 300, budget, &mut sink);
            assert!(count == sink.took.len() && count <= budget, "{count} of {budget}");
            for (qp, bytes, said) in sink.took {
                let link = usize::from(qp == links[1][PASSIVE]);
                assert!(bytes == messages[arrived[link]], "{arrived:?} were before it");
                arrived[link] += 1;
                taken += 1;
                if matches!(said.sent, Sent::Copied | Sent::Taken) {
                    answers[link].push_back(bytes);
                    echoes.push(bed.ends[ACTIVE].receive(links[link][ACTIVE], 300));
                }
                told.extend((said.sent == Sent::Taken).then_some(said));
            }
            for link in links {
                let rung = bed.ends[PASSIVE].provider.post(link[PASSIVE], &mut WorkQueue::new());
                assert_eq!(rung, Ok(()));
            }
            passive = &mut bed.ends[PASSIVE];
        }
        if receives.len() < 8 {
            receives.extend(more(passive, 8));
        }
        let is_over = arrived == [messages.len(); 2]
            && sent.is_empty()
            && echoes.is_empty()
            && told.is_empty();
        is_over.then_some(())
    });
    eprintln!("{taken} of {} were taken without Receives", 2 * messages.len());
}

/// Takes messages as long as leases are ready for the answers, and sends each back.
struct Echo {
    ready: Vec<(WrId, Local)>,
    /// The queue pair and the octets of each message, and the answer.
    took: Vec<(QpNum, Vec<u8>, Said)>,
}

impl MessageSink for Echo {
    fn messages(&mut self, qp: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize {
        let before = self.took.len();
        for message in run.octets {
            let Some((id, mut lease)) = self.ready.pop() else { break };
            lease.set_len(message.len());
            lease.bytes_mut().copy_from_slice(message);
            let mut answer = Outgoing::within(lease);
            let sent = port.send(&Head::written(0..message.len(), None), &mut answer, id);
            self.took.push((qp, message.to_vec(), Said { id, message: answer, sent }));
        }
        self.took.len() - before
    }
}

/// Receives reserved for a queue pair are its own, whenever it reserved them; Receives that it leaves are for the
/// others.
pub fn line_25_receives_are_there_for_whom_they_are_reserved<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    // Reserved before the queue pair is connected, and before any Receive is posted.
    let first = bed.request(&PARAMS);
    bed.ends[PASSIVE].provider.reserve_receives(first[PASSIVE], 2);
    let sinks: Vec<_> = (0..5).map(|_| posted(&mut bed.ends[PASSIVE], 8)).collect();
    bed.ends[PASSIVE].provider.accept(bed.network.now(), first[PASSIVE], &PARAMS);
    for end in [ACTIVE, PASSIVE] {
        bed.until("Established", |bed| bed.ends[end].established(first[end]));
    }
    let (second, third) = (bed.connect(), bed.connect());
    bed.ends[PASSIVE].provider.reserve_receives(second[PASSIVE], 1);
    // One Receive is posted after the reservations.
    bed.ends[PASSIVE].provider.reserve_receives(third[PASSIVE], 3);
    let sinks = sinks.into_iter().chain([posted(&mut bed.ends[PASSIVE], 8)]);
    let mut left: Vec<_> = sinks.collect();
    let mut expect = |bed: &mut Bed<N>, link: Link, count: usize| {
        for at in 0..count {
            let message = pattern::of(8, at as u64);
            let (_, _source) = bed.ends[ACTIVE].send(link[ACTIVE], &message, None, SIGNALED);
            let done = bed.until("a message", |bed| {
                let passive = &mut bed.ends[PASSIVE];
                left.iter().find_map(|(id, _)| passive.done(*id))
            });
            let at = left.iter().position(|(id, _)| *id == done.id).expect("one of them");
            assert_eq!(done.qp, link[PASSIVE]);
            assert_eq!(filled(left.remove(at).1, &done).bytes(), message);
        }
    };
    expect(&mut bed, third, 3);
    expect(&mut bed, second, 1);
    // Receives that the first connection has not used are for the others once it is gone.
    bed.ends[PASSIVE].provider.disconnect(bed.network.now(), first[PASSIVE]);
    ending(&mut bed, PASSIVE, first[PASSIVE]);
    bed.ends[PASSIVE].provider.reserve_receives(second[PASSIVE], 1);
    bed.ends[PASSIVE].provider.reserve_receives(third[PASSIVE], 1);
    expect(&mut bed, second, 1);
    expect(&mut bed, third, 1);
    given_up(&mut bed);
}

/// Gives up a connection that may already have a message: unless a completion reports its Receive, at once or later, the
/// next connection uses that Receive.
fn given_up<N: Network>(bed: &mut Bed<N>) {
    let given_up = bed.request(&PARAMS);
    let (receive, sink) = bed.ends[ACTIVE].receive(given_up[ACTIVE], 8);
    // Time stands still for the active end: some providers check only now and then whether their connection is there.
    let then = bed.network.now();
    bed.ends[ACTIVE].poll(then, 64);
    bed.ends[PASSIVE].provider.accept(bed.network.now(), given_up[PASSIVE], &PARAMS);
    let mut sent = None;
    loop {
        let now = bed.network.now();
        let [active, passive] = &mut bed.ends;
        let moved = active.poll(then, 64) | passive.poll(now, 64);
        if passive.established(given_up[PASSIVE]).is_some() {
            sent = Some(passive.send(given_up[PASSIVE], b"in vain!", None, SIGNALED));
        }
        if bed.network.wait(moved, None) != Expect::More {
            break;
        }
    }
    eprintln!("a message was {}sent", if sent.is_some() { "" } else { "not " });
    bed.ends[ACTIVE].provider.disconnect(then, given_up[ACTIVE]);
    let link = bed.connect();
    bed.ends[ACTIVE].provider.reserve_receives(link[ACTIVE], 1);
    let (_, _source) = bed.ends[PASSIVE].send(link[PASSIVE], b"the next", None, SIGNALED);
    let done = bed.succeeded(ACTIVE, receive);
    let expected = if done.qp == given_up[ACTIVE] { b"in vain!" } else { b"the next" };
    assert_eq!(filled(sink, &done).bytes(), expected);
}

/// Posts a Receive of `length` octets without reserving it.
fn posted<P: Provider>(end: &mut End<P>, length: usize) -> (WrId, PostedSink) {
    let mut posted = end.holding(&vec![0; length]).into_sink();
    let sink = posted.sink(0..length).expect("the whole lease");
    let id = end.id();
    end.provider.post_receives(&mut vec![Receive::single(id, sink)]).expect("room");
    (id, posted)
}

/// Maximum number of Sends in flight: fewer than any send queue holds.
const SENDS_MAX: u64 = 12;

/// Returns a message of one of several lengths. Every third has runs of zeros, as Calls do.
fn message(number: usize) -> Vec<u8> {
    let lengths = [8, 72, 80, 88, 89, 300, 301, 4000];
    let mut bytes = pattern::of(lengths[number % lengths.len()], number as u64);
    if number.is_multiple_of(3) {
        bytes.iter_mut().skip(16).take(16).for_each(|octet| *octet = 0);
        bytes.iter_mut().skip(56).take(16).for_each(|octet| *octet = 0);
    }
    bytes
}
