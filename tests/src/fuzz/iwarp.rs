//! MPA, DDP and RDMAP: one header, a handshake, and a stream of FPDUs.

use haulage_proto::iwarp::rdmap::{Kind, ReadRequest, Segment};
use haulage_proto::iwarp::terminate::Terminate;
use haulage_proto::xdr::{Reader, Writer};

use super::Codec;
use super::bound::bounded;
use super::octets::{Octets, any_word, octet, some_octets, word};
use crate::world::choices::Choices;

pub(super) mod handshake;
pub(super) mod observe;
pub(super) mod provider;
pub(super) mod receive;

/// The header of one DDP segment, the body that goes with it, and any payload behind it.
pub(super) const HEADER: Codec = Codec { valid, again };

fn valid(choices: &mut Choices) -> Vec<u8> {
    let opcode = choices.below(8);
    let last = if choices.one_in(2) { LAST } else { 0 };
    let rdmap = 1 << 6 | u8::try_from(opcode).unwrap_or_default();
    let stag = any_word(choices);
    let untagged = Octets::default().put(&[last | DDP_VERSION, rdmap]);
    let tagged = Octets::default().put(&[TAGGED | last | DDP_VERSION, rdmap]);
    let numbers = [word(choices), word(choices)];
    let segment = match opcode {
        0 | 2 => tagged.segment_place(stag, choices.number()),
        1 => untagged.words(&[0, 1]).words(&numbers).put(&body(choices)),
        4 | 6 => untagged.words(&[stag, 0]).words(&numbers),
        7 => untagged.words(&[0, 2]).words(&numbers).put(&[octet(choices), octet(choices), 0, 0]),
        _ => untagged.words(&[0, 0]).words(&numbers),
    };
    segment.put(&some_octets(choices, 16)).0
}

/// The body of a Read Request.
fn body(choices: &mut Choices) -> [u8; ReadRequest::WIRE_LEN] {
    std::array::from_fn(|_| octet(choices))
}

impl Octets {
    fn segment_place(self, stag: u32, offset: u64) -> Self {
        self.words(&[stag]).put(&offset.to_be_bytes())
    }
}

fn again(data: &[u8]) -> Option<Vec<u8>> {
    let mut r = Reader::new(data);
    let segment = match bounded(data.len(), || Segment::decode(&mut r)) {
        Ok(segment) => segment,
        Err(fault) => {
            assert!(!fault.to_string().is_empty());
            return None;
        }
    };
    // Reserved bits are not kept, and a Send that invalidates nothing keeps no STag.
    if data[0] & RESERVED != 0 || data[1] & 0x30 != 0 {
        return None;
    }
    let keeps_stag = matches!(segment.kind, Kind::Send { invalidate: Some(_), .. });
    if data[0] & TAGGED == 0 && !keeps_stag && data[2..6] != [0; 4] {
        return None;
    }
    let mut room = vec![0; data.len()];
    let mut w = Writer::new(&mut room);
    let mut written = segment.encode(&mut w);
    match segment.kind {
        Kind::ReadRequest { .. } => {
            let request = bounded(data.len(), || ReadRequest::decode(&mut r)).ok()?;
            written = written.and_then(|()| request.encode(&mut w));
        }
        Kind::Terminate { .. } => {
            let quotes = r.rest().get(2..4)? != [0; 2];
            let terminate = bounded(data.len(), || Terminate::decode(&mut r)).ok()?;
            if quotes {
                return None;
            }
            written = written.and_then(|()| Terminate::encode(terminate.code, None, &mut w));
        }
        _ => {}
    }
    written.and_then(|()| w.put(r.rest())).expect("it is as long as it was");
    Some(room)
}

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const RESERVED: u8 = 0x3c;
const DDP_VERSION: u8 = 1;
