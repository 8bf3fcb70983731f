//! Calls with any arguments.

use haulage_kv::protocol::{KEY_MAX, Procedure, many};
use haulage_proto::xdr::Reader;

use super::super::octets::{Octets, short, some_octets, spoil, word};
use super::{INLINE_MIN, VALUE_MAX};
use crate::world::choices::Choices;

/// A Call.
pub(super) struct Asked {
    pub(super) procedure: Procedure,
    /// The arguments, without a value in a Read chunk.
    pub(super) octets: Vec<u8>,
    /// The last value, if it is in a Read chunk.
    pub(super) argument: Option<Vec<u8>>,
    /// Other values in Read chunks, each with the offset of its length word.
    pub(super) placed: Vec<(usize, Vec<u8>)>,
    /// Lengths of the Write chunks.
    pub(super) rooms: Vec<usize>,
}

impl Asked {
    pub(super) fn draw(choices: &mut Choices) -> Self {
        let procedures = [Procedure::Get, Procedure::Put, Procedure::Del, Procedure::Keys];
        let several = [Procedure::MGet, Procedure::MPut];
        let others = [Procedure::Null, Procedure::Stat, Procedure::Figures, Procedure::Watch];
        let procedure = match choices.one_in(8) {
            true => choices.pick(&others),
            false if choices.one_in(3) => choices.pick(&several),
            false => choices.pick(&procedures),
        };
        let stream = Octets::default();
        let (mut argument, mut placed, mut rooms) = (None, Vec::new(), Vec::new());
        let room = |choices: &mut Choices| choices.pick(&[1, 100, VALUE_MAX]);
        let mut octets = match procedure {
            Procedure::Get => {
                rooms.extend(choices.one_in(2).then(|| room(choices)));
                stream.opaque(&key(choices))
            }
            // The client does not serve the Calls that follow a WATCH.
            Procedure::Del | Procedure::Watch => stream.opaque(&key(choices)),
            Procedure::Put => {
                let stream = stream.opaque(&key(choices));
                let length = choices.pick(&[0, 1, 4, 100, 1000, VALUE_MAX, VALUE_MAX + 1]);
                let value = vec![u8::try_from(choices.below(256)).unwrap_or(0); length];
                if length > 0 && choices.one_in(2) {
                    argument = Some(value);
                    stream
                } else {
                    stream.opaque(&value[..length.min(INLINE_MIN - KEY_MAX)])
                }
            }
            Procedure::Keys => stream.words(&[word(choices)]),
            Procedure::MGet => {
                let count = choices.of(0..=many::KEYS_MAX + 1);
                rooms.extend((0..count.min(many::KEYS_MAX)).map(|_| room(choices)));
                rooms.truncate(choices.of(0..=many::KEYS_MAX));
                let stream = stream.words(&[short(count)]);
                (0..count).fold(stream, |stream, _| stream.opaque(&key(choices)))
            }
            Procedure::MPut => {
                let count = choices.of(0..=many::KEYS_MAX + 1);
                let mut stream = stream.words(&[short(count)]);
                for _ in 0..count {
                    stream = stream.opaque(&key(choices));
                    let length = choices.pick(&[0, 1, 4, 100, 500, VALUE_MAX, VALUE_MAX + 1]);
                    let value = vec![u8::try_from(choices.below(256)).unwrap_or(0); length];
                    if length > 500 || (length > 0 && choices.one_in(2)) {
                        placed.push((stream.0.len(), value));
                        stream = stream.words(&[short(length)]);
                    } else {
                        stream = stream.opaque(&value);
                    }
                }
                placed.truncate(many::KEYS_MAX);
                stream
            }
            Procedure::Null | Procedure::Stat | Procedure::Figures => stream,
        };
        // The client sends no value that is elsewhere than it says.
        let is_loose = placed.is_empty();
        if choices.one_in(8) && is_loose {
            spoil(choices, &mut octets.0);
        }
        if choices.one_in(16) && is_loose {
            octets = Octets::default().put(&some_octets(choices, 64));
        }
        // The length of a Payload stream is a multiple of four.
        octets.0.resize(octets.0.len().next_multiple_of(4), 0);
        Self { procedure, octets: octets.0, argument, placed, rooms }
    }

    /// Returns the arguments with the values in their places, inline or reduced.
    pub(super) fn whole(&self) -> Vec<u8> {
        let (mut stream, mut at) = (Octets::default(), 0);
        for (offset, value) in &self.placed {
            stream = stream.put(&self.octets[at..*offset]).opaque(value);
            at = offset + 4;
        }
        let stream = stream.put(&self.octets[at..]);
        self.argument.iter().fold(stream, |stream, value| stream.opaque(value)).0
    }

    /// Returns whether the value in a Read chunk is not where a value belongs: right behind a key.
    pub(super) fn is_misplaced(&self) -> bool {
        let mut r = Reader::new(&self.octets);
        self.argument.is_some() && (r.opaque(KEY_MAX).is_err() || !r.is_empty())
    }
}

fn key(choices: &mut Choices) -> Vec<u8> {
    let keys: [&[u8]; 8] =
        [b"a", b"b", b"c", b"", b"\xff", &[b'k'; KEY_MAX], &[b'k'; KEY_MAX + 1], b"d"];
    choices.pick(&keys).to_vec()
}
