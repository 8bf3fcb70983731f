//! The short way through a connection.

use super::*;
use crate::v2::header::{
    CALL_EXTERNAL, CALL_INLINE, CALL_MIDDLE, GRANT, REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE,
    SingleChunk, Unchunked, decode_transport,
};

/// Three connections hear the same; one takes what it can by its words alone, one what it can once it is
/// decoded, and one nothing.
#[test]
fn the_short_ways_end_where_the_long_way_does() {
    let (mut short, mut chunks, mut whole, mut refused, mut closed) = (0, 0, 0, 0, 0);
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let role = if seed % 2 == 0 { Role::Server } else { Role::Client };
        let mut ends = [(); 3].map(|()| Connection::new(config(role)));
        for end in &mut ends {
            end.reserve(8);
            end.handle(Instant::ZERO, Input::Established);
            while end.poll().is_some() {}
        }
        for _ in 0..40 {
            let message = message(&mut rng);
            let (unchunked, decoded) = (Unchunked::of(&message), decode_transport(&message));
            let single_chunk = SingleChunk::of(&message).filter(|one| {
                let max = ends[0].chunk_max()[usize::from(one.position.is_none())];
                one.unchunked.kind == Kind::Reply || one.segment.length <= max
            });
            let either = unchunked.or(single_chunk.map(|one| one.unchunked));
            let taken = either.filter(|unchunked| ends[0].take(unchunked.kind, [*unchunked]) == 1);
            chunks += u32::from(taken.is_some() && unchunked.is_none());
            let taken_whole = match &decoded {
                Ok(message) => ends[1].take_whole(message),
                Err(_) => None,
            };
            short += u32::from(taken.is_some());
            whole += u32::from(unchunked.is_none() && taken_whole.is_some());
            refused += u32::from(unchunked.is_some() && taken.is_none());
            let told = [taken.map(|unchunked| unchunked.kind), taken_whole, None];
            let outputs = ends.each_mut().into_iter().zip(told).map(|(end, kind)| {
                let event = kind.map(|kind| match kind {
                    Kind::Call => Event::Call,
                    Kind::Reply => Event::Reply,
                });
                if event.is_none() {
                    end.handle(Instant::ZERO, Input::Received(&decoded));
                }
                let told = event.map(Output::Event);
                told.into_iter().chain(core::iter::from_fn(|| end.poll())).collect::<Vec<_>>()
            });
            let outputs: Vec<_> = outputs.collect();
            assert_eq!(outputs[0], outputs[2], "seed {seed}");
            assert_eq!(outputs[1], outputs[2], "seed {seed}");
            if rng.below(12) > 0 {
                ends.iter_mut().for_each(|end| end.reserve(1));
            }
            closed += u32::from(outputs[2].iter().any(|o| matches!(o, Output::Close(_))));
            let states = ends.each_ref().map(|end| format!("{end:?}"));
            assert!(states[0] == states[2] && states[1] == states[2], "seed {seed}: {states:#?}");
        }
    }
    let counts = [short, chunks, whole, refused, closed];
    assert!(short > 2_000 && chunks > 50 && whole > 300, "{counts:?}");
    assert!(refused > 500 && closed > 20, "{counts:?}");
}

/// Two connections hear the same messages. One takes them one by one, the other in runs, and gives the last of a run
/// back now and then, to hear them the long way.
#[test]
fn a_run_is_taken_as_far_as_one_after_the_other_is() {
    let (mut taken, mut cut_short, mut again) = (0, 0, 0);
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let role = if seed % 2 == 0 { Role::Server } else { Role::Client };
        let mut ends = [(); 2].map(|()| Connection::new(config(role)));
        for end in &mut ends {
            end.reserve(8);
            end.handle(Instant::ZERO, Input::Established);
            while end.poll().is_some() {}
            // The peer sends its properties.
            let properties = Xdr::common(0, 2, 8, CONNPROP_FINAL).propset(&[]).0;
            end.handle(Instant::ZERO, Input::Received(&decode_transport(&properties)));
            while end.poll().is_some() {}
        }
        for _ in 0..20 {
            let messages: Vec<_> = (0..rng.below(8)).map(|_| message(&mut rng)).collect();
            let run: Vec<_> = messages.iter().map_while(|message| Unchunked::of(message)).collect();
            let single = run.iter().take_while(|unchunked| {
                let alike = unchunked.kind == run[0].kind;
                alike && ends[0].take(unchunked.kind, [**unchunked]) == 1
            });
            let count = single.count();
            let kind = run.first().map_or(Kind::Call, |unchunked| unchunked.kind);
            let together = ends[1].take(kind, run.iter().copied());
            assert_eq!(together, u32::try_from(count).unwrap());
            taken += count;
            cut_short += usize::from(count < run.len());
            let back = rng.below(8);
            let kept = count.checked_sub(back).filter(|_| back > 0 && rng.below(2) == 0);
            if let Some(kept) = kept {
                ends[1].put_back(run[0].kind, u32::try_from(back).unwrap());
                for message in &messages[kept..count] {
                    let decoded = decode_transport(message);
                    ends[1].handle(Instant::ZERO, Input::Received(&decoded));
                    let told = ends[1].poll();
                    assert!(matches!(told, Some(Output::Event(Event::Call | Event::Reply))));
                    assert_eq!(ends[1].poll(), None);
                }
                again += back;
            }
            let room = u32::try_from(rng.below(6)).unwrap();
            ends.iter_mut().for_each(|end| end.reserve(room));
            let states = ends.each_ref().map(|end| format!("{end:?}"));
            assert!(states[0] == states[1], "seed {seed}: {states:#?}");
        }
    }
    let counts = [taken, cut_short, again];
    assert!(taken > 5_000 && cut_short > 1_000 && again > 300, "{counts:?}");
}

/// A message that may be anything, most often an unchunked one.
fn message(rng: &mut Rng) -> Vec<u8> {
    let xid = 1 + u32::from(rng.octet() % 3);
    let credit = match rng.below(200) {
        0 => 1 << 31, // which no peer can mean
        _ => u32::from(rng.octet() % 32),
    };
    let start = |htype| Xdr::common(xid, 2, credit, htype);
    let segments = [(5, 100, 0), (6, 100, 0), (7, 100, 0), (8, 100, 0), (9, 100, 0)];
    // Now and then a message has more chunks or segments than are served.
    let chunk = &segments[..[0, 1, 1, 2, 3, 5][rng.below(6)]];
    let chunks = &[chunk, chunk][..rng.below(3)];
    let message = match rng.below(48) {
        40..42 => start(CALL_INLINE).words(&[0, 0]).write_list(chunks).words(&[0]),
        42 => start(CALL_INLINE).words(&[0, 1, 44, 5, 100, 0, 0, 0, 0, 0]),
        43..46 => start(REPLY_INLINE).write_list(chunks),
        46 => return start(REPLY_EXTERNAL).words(&[0]).write_chunk(chunk).0,
        47 => return start(CALL_EXTERNAL).words(&[0, 1, 0, 5, 100, 0, 0, 0, 0, 0, 0]).0,
        0..16 => start(CALL_INLINE).words(&[0, 0, 0, 0]),
        16..32 => start(REPLY_INLINE).words(&[0]),
        32 => start(CALL_MIDDLE).words(&[8]),
        33 => start(REPLY_MIDDLE).words(&[8]),
        34 => start(CALL_INLINE).words(&[9, 0, 0, 0]),
        35 => return Xdr::common(0, 2, credit, GRANT).0,
        _ => return start(CONNPROP_FINAL).propset(&[]).0,
    };
    // Now and then the Payload stream has another XID than the header.
    message.words(&[if rng.below(30) == 0 { 77 } else { xid }, 0]).0
}
