//! The short way through a connection.

use super::*;
use crate::v2::header::{
    Bare, CALL_INLINE, CALL_MIDDLE, GRANT, REPLY_INLINE, REPLY_MIDDLE, decode_transport,
};

/// Two connections hear the same; one takes what it can the short way.
#[test]
fn the_short_way_ends_where_the_long_way_does() {
    let (mut short, mut refused, mut closed) = (0, 0, 0);
    for seed in 0..600 {
        let mut rng = Rng::new(seed);
        let role = if seed % 2 == 0 { Role::Server } else { Role::Client };
        let mut ends = [(); 2].map(|()| Connection::new(config(role)));
        for end in &mut ends {
            end.reserve(8);
            end.handle(Instant::ZERO, Input::Established);
            while end.poll().is_some() {}
        }
        for _ in 0..40 {
            let message = message(&mut rng);
            let told = match Bare::of(&message) {
                Some(bare) if ends[0].take(Instant::ZERO, &bare) => {
                    short += 1;
                    Some(match bare.kind {
                        Kind::Call => Event::Call,
                        Kind::Reply => Event::Reply,
                    })
                }
                other => {
                    refused += u32::from(other.is_some());
                    ends[0].handle(Instant::ZERO, Input::Received(&decode_transport(&message)));
                    None
                }
            };
            ends[1].handle(Instant::ZERO, Input::Received(&decode_transport(&message)));
            let outputs: [Vec<Output>; 2] =
                ends.each_mut().map(|end| core::iter::from_fn(|| end.poll()).collect());
            let [mut ours, theirs] = outputs;
            if let Some(event) = told {
                ours.insert(0, Output::Event(event));
            }
            assert_eq!(ours, theirs, "seed {seed}");
            if rng.below(12) > 0 {
                ends.iter_mut().for_each(|end| end.reserve(1));
            }
            closed += u32::from(theirs.iter().any(|o| matches!(o, Output::Close(_))));
            assert_eq!(format!("{:?}", ends[0]), format!("{:?}", ends[1]), "seed {seed}");
        }
    }
    assert!(short > 2_000 && refused > 500 && closed > 20, "{short}, {refused}, {closed}");
}

/// A message that may be anything, most often a bare one.
fn message(rng: &mut Rng) -> Vec<u8> {
    let xid = 1 + u32::from(rng.octet() % 3);
    let credit = match rng.below(200) {
        0 => 1 << 31, // which no peer can mean
        _ => u32::from(rng.octet() % 32),
    };
    let start = |htype| Xdr::common(xid, 2, credit, htype);
    let message = match rng.below(40) {
        0..16 => start(CALL_INLINE).words(&[0, 0, 0, 0]),
        16..32 => start(REPLY_INLINE).words(&[0]),
        32 => start(CALL_MIDDLE).words(&[8]),
        33 => start(REPLY_MIDDLE).words(&[8]),
        34 => start(CALL_INLINE).words(&[9, 0, 0, 0]),
        35 => return Xdr::common(0, 2, credit, GRANT).0,
        _ => return start(CONNPROP_FINAL).propset(&[]).0,
    };
    // Now and then of another RPC message than the header says.
    message.words(&[if rng.below(30) == 0 { 77 } else { xid }, 0]).0
}
