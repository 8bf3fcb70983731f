//! The MPA handshake of an end that receives any octets.

use haulage_proto::iwarp::mpa::handshake::{
    Active, Agreement, Fault, MpaReply, Offer, PRIVATE_DATA_MAX, Passive,
};

use super::super::bound::bounded;
use super::super::octets::{octet, some_octets, spoil, word};
use crate::world::choices::Choices;

pub(in super::super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    match choices.below(3) {
        0 => active(&mut choices),
        1 => passive(&mut choices),
        _ => both(&mut choices),
    }
}

/// Answers an active end with any octets, and checks that its conclusion does not depend on how
/// they are cut.
fn active(choices: &mut Choices) {
    let offer = offer(choices);
    let octets = frame(b"MPA ID Rep Frame", choices);
    let start = || Active::new(offer, b"").expect("no private data is short enough").0;
    let mut end = start();
    let mut rest = octets.as_slice();
    let whole = bounded(octets.len(), || end.handle(&mut rest));
    let mut end = start();
    let (mut at, mut answer) = (0, Ok(None));
    while at < octets.len() && matches!(answer, Ok(None)) {
        let length = choices.of(1..=(octets.len() - at).min(48));
        let mut piece = &octets[at..at + length];
        answer = bounded(length.max(PRIVATE_DATA_MAX), || end.handle(&mut piece));
        at += length - piece.len();
    }
    assert_eq!(answer, whole, "cut as it may be");
    if let Ok(Some(answer)) = whole {
        assert_eq!(rest, &octets[at..], "what follows the Reply is left");
        if let MpaReply::Accepted { agreement, private_data } = answer {
            assert!(private_data.len() <= octets.len());
            // RFC 6581: a passive end asks for no more Reads than the active end offered to serve.
            assert!(agreement.ord <= offer.ord && agreement.ird <= offer.ird);
        }
    }
}

/// Sends a passive end any octets, and checks that an active end understands its reply.
fn passive(choices: &mut Choices) {
    let octets = frame(b"MPA ID Req Frame", choices);
    let mut rest = octets.as_slice();
    let mut end = Passive::new();
    let asked = match bounded(octets.len(), || end.handle(&mut rest)) {
        Ok(Some(asked)) => asked,
        Ok(None) => return assert!(rest.is_empty(), "more was wanted, and something was left"),
        Err(fault) => return drop(bounded(octets.len(), || end.refusal(fault))),
    };
    let private = some_octets(choices, 8);
    let (reply, _) = asked.accept(&offer(choices), &private).expect("eight octets fit");
    let refused = asked.reject(&private);
    for reply in [reply, refused] {
        let (mut end, _) = Active::new(offer(choices), b"").expect("nothing is short enough");
        let answer = bounded(reply.len(), || end.handle(&mut &*reply));
        assert_ne!(answer, Err(Fault::NotMpa), "our own Reply");
    }
}

/// Connects two ends of ours, and checks that they agree.
fn both(choices: &mut Choices) {
    let (ours, theirs) = (offer(choices), offer(choices));
    let said = some_octets(choices, 64);
    let (mut active, request) = Active::new(ours, &said).expect("64 octets fit");
    let asked = Passive::new().handle(&mut &*request);
    let Ok(Some(asked)) = asked else { panic!("our own Request: {asked:?}") };
    assert_eq!((asked.private_data(), asked.asks_crc()), (said.as_slice(), ours.crc));
    let (reply, passive): (_, Agreement) = asked.accept(&theirs, &said).expect("64 octets fit");
    match active.handle(&mut &*reply) {
        Ok(Some(MpaReply::Accepted { agreement, private_data })) => {
            assert_eq!(*private_data, *said);
            assert_eq!(agreement.crc, passive.crc);
            assert_eq!(agreement.rtr, passive.rtr);
            assert!(agreement.ord <= passive.ird && passive.ord <= agreement.ird);
        }
        other => panic!("our own Reply: {other:?}"),
    }
}

fn offer(choices: &mut Choices) -> Offer {
    let (crc, rtr) = (choices.one_in(2), choices.one_in(2));
    Offer { crc, ord: word(choices), ird: word(choices), rtr }
}

/// Draws a frame, about half of the time a valid one.
fn frame(key: &[u8; 16], choices: &mut Choices) -> Vec<u8> {
    let data = some_octets(choices, 255);
    let revision = u8::try_from(choices.of(0..=3)).unwrap_or_default();
    let mut frame = key.to_vec();
    frame.extend([octet(choices), revision]);
    let length = match choices.below(4) {
        0 => u16::from_be_bytes([octet(choices), octet(choices)]),
        _ => u16::try_from(data.len()).unwrap_or_default(),
    };
    frame.extend(length.to_be_bytes());
    frame.extend(data);
    if choices.one_in(4) {
        frame.extend(some_octets(choices, 16));
    }
    if choices.one_in(4) {
        spoil(choices, &mut frame);
    }
    frame
}
