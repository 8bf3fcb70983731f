//! What both ends of a connection send, as a capture has it: cut into pieces anywhere, spoiled, and with octets missing.

use haulage::sys::crc::crc32c;
use haulage_proto::describe::iwarp;
use haulage_proto::iwarp::Crc32c;
use haulage_proto::iwarp::mpa::handshake::{Active, Offer, Passive};
use haulage_proto::iwarp::observe::{End, Message, Observer, Seen, Unreadable};

use super::super::octets::{some_octets, spoil};
use super::receive::stream;
use crate::world::choices::Choices;

/// Checks that octets that come whole and in pieces show the same, and that what is held is bounded.
pub(in super::super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let sent = sent(&mut choices);
    let whole = transcript(&sent, || usize::MAX);
    let pieces = transcript(&sent, || choices.of(1..=33));
    assert_eq!(pieces, whole, "cut as they may be");
}

/// What is there of one end.
enum Sent {
    Octets(Vec<u8>),
    Missing(u64),
}

#[derive(Debug, PartialEq, Eq)]
enum Line {
    Described(String),
    Part(usize),
    Whole(Vec<u8>),
    Broken(String),
    Incomplete,
    Unreadable(Unreadable),
}

fn transcript(sent: &[(End, Sent)], mut piece: impl FnMut() -> usize) -> Vec<(End, Line)> {
    let mut observer = Observer::new(crc32c, MESSAGE_MAX);
    let mut lines = Vec::new();
    for (end, sent) in sent {
        let mut rest = match sent {
            Sent::Octets(octets) => &octets[..],
            Sent::Missing(count) => {
                if let Err(why) = observer.missing(*end, *count) {
                    lines.push((*end, Line::Unreadable(why)));
                }
                &[]
            }
        };
        loop {
            let (mut bytes, behind) = rest.split_at(piece().min(rest.len()));
            rest = behind;
            while look(&mut observer, *end, &mut bytes, &mut lines) {}
            assert!(observer.memory() < MEMORY_MAX, "{} octets are held", observer.memory());
            if rest.is_empty() {
                break;
            }
        }
    }
    // How often the same reason is told depends on the pieces.
    lines.dedup();
    lines
}

/// Notes what is seen next. Returns whether there may be more.
fn look(
    observer: &mut Observer,
    end: End,
    bytes: &mut &[u8],
    lines: &mut Vec<(End, Line)>,
) -> bool {
    match observer.next(end, bytes) {
        Ok(None) => {
            assert!(bytes.is_empty(), "a piece is taken");
            return false;
        }
        Ok(Some(Seen::Frame(frame))) => {
            lines.push((end, Line::Described(iwarp::frame(&frame).to_string())));
        }
        Ok(Some(Seen::Fpdu(fpdu, message))) => {
            let described = match iwarp::fpdu(&fpdu) {
                Ok(fields) => fields.to_string(),
                Err(refusal) => refusal.to_string(),
            };
            lines.push((end, Line::Described(described)));
            lines.push((
                end,
                match message {
                    Message::None => return true,
                    Message::Part(octets) => Line::Part(octets.len()),
                    Message::Whole(octets) => Line::Whole(octets.to_vec()),
                    Message::Broken(fault) => Line::Broken(fault.to_string()),
                    Message::Incomplete => Line::Incomplete,
                },
            ));
        }
        Err(why) => {
            lines.push((end, Line::Unreadable(why)));
            return false;
        }
    }
    true
}

fn sent(choices: &mut Choices) -> Vec<(End, Sent)> {
    let crc: Option<Crc32c> = choices.one_in(2).then_some(crc32c);
    let mut sent = frames(crc.is_some(), choices);
    for _ in 0..choices.of(1..=6) {
        let end = choices.pick(&[End::Active, End::Passive]);
        let mut octets = stream(crc, choices);
        if choices.one_in(3) {
            // A part of it is missing.
            let from = choices.below(octets.len().max(1));
            let behind = octets.split_off(from.min(octets.len()));
            let count = choices.below(behind.len() + 1);
            let behind = behind[count..].to_vec();
            sent.push((end, Sent::Octets(octets)));
            sent.push((end, Sent::Missing(count as u64)));
            octets = behind;
        }
        sent.push((end, Sent::Octets(octets)));
    }
    sent
}

/// The frames that open a connection, of which one may be spoiled.
fn frames(crc: bool, choices: &mut Choices) -> Vec<(End, Sent)> {
    let offer = Offer { crc, ord: 1, ird: 1, rtr: choices.one_in(2) };
    let private = some_octets(choices, 40);
    let (_, request) = Active::new(offer, &private).expect("the private data is short");
    let asked = Passive::new().handle(&mut &request[..]).ok().flatten().expect("it is whole");
    let (reply, _) = asked.accept(&offer, &private).expect("the private data is short");
    let mut frames = [request.into_vec(), reply.into_vec()];
    if choices.one_in(4) {
        spoil(choices, &mut frames[0]);
    }
    if choices.one_in(4) {
        spoil(choices, &mut frames[1]);
    }
    let [request, reply] = frames;
    vec![(End::Active, Sent::Octets(request)), (End::Passive, Sent::Octets(reply))]
}

/// The longest Send that is put together.
const MESSAGE_MAX: usize = 300;
/// An FPDU for each end, twice, as memory that grows is doubled; and more than enough for Sends.
const MEMORY_MAX: usize = 4 * (65_536 + 64) + 4 * 65_536;
