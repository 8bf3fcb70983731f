//! Messages built octet by octet, from the XDR of the specifications alone.

use crate::world::choices::Choices;

/// A stream under construction. All integers are big-endian.
#[derive(Debug, Default)]
pub(super) struct Octets(pub(super) Vec<u8>);

/// The handle, length and offset of a segment.
pub(super) type Segment = (u32, u32, u64);

impl Octets {
    pub(super) fn words(mut self, words: &[u32]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        self
    }

    pub(super) fn put(mut self, octets: &[u8]) -> Self {
        self.0.extend_from_slice(octets);
        self
    }

    /// Appends an `opaque<>`.
    pub(super) fn opaque(self, octets: &[u8]) -> Self {
        let mut stream = self.words(&[short(octets.len())]).put(octets);
        stream.0.resize(stream.0.len().next_multiple_of(4), 0);
        stream
    }

    pub(super) fn segment(self, (handle, length, offset): Segment) -> Self {
        self.words(&[handle, length]).put(&offset.to_be_bytes())
    }

    /// Appends a linked list of segments with positions.
    pub(super) fn read_list(self, entries: &[(u32, Segment)]) -> Self {
        let list = entries.iter().fold(self, |stream, &(position, segment)| {
            stream.words(&[1, position]).segment(segment)
        });
        list.words(&[0])
    }

    /// Appends a linked list of counted arrays of segments.
    pub(super) fn write_list(self, chunks: &[Vec<Segment>]) -> Self {
        chunks.iter().fold(self, |stream, chunk| stream.words(&[1]).chunk(chunk)).words(&[0])
    }

    /// Appends a counted array of segments, or its absence.
    pub(super) fn optional_chunk(self, chunk: Option<&[Segment]>) -> Self {
        match chunk {
            Some(segments) => self.words(&[1]).chunk(segments),
            None => self.words(&[0]),
        }
    }

    /// Appends a counted array of segments.
    pub(super) fn chunk(self, segments: &[Segment]) -> Self {
        let stream = self.words(&[short(segments.len())]);
        segments.iter().fold(stream, |stream, &segment| stream.segment(segment))
    }
}

/// Draws a word: half of them small, the rest of any size.
pub(super) fn word(choices: &mut Choices) -> u32 {
    match choices.below(4) {
        0 => 0,
        1 => short(choices.below(256)),
        2 => u32::MAX - short(choices.below(4)),
        _ => any_word(choices),
    }
}

/// Draws any word.
pub(super) fn any_word(choices: &mut Choices) -> u32 {
    let [a, b, c, d, ..] = choices.number().to_be_bytes();
    u32::from_be_bytes([a, b, c, d])
}

/// Draws at most `most` octets.
pub(super) fn some_octets(choices: &mut Choices, most: usize) -> Vec<u8> {
    (0..choices.of(0..=most)).map(|_| octet(choices)).collect()
}

/// Draws one octet.
pub(super) fn octet(choices: &mut Choices) -> u8 {
    u8::try_from(choices.below(256)).unwrap_or_default()
}

/// Draws the segments of one chunk: none ends beyond the address space, and their sum fits a length
/// field.
pub(super) fn segments(choices: &mut Choices, least: usize) -> Vec<Segment> {
    let mut left = u32::MAX;
    let count = choices.of(least..=least + 3);
    let segment = |_| {
        let length = word(choices).min(left);
        left -= length;
        let offset = match choices.below(3) {
            0 => 0,
            1 => u64::MAX - u64::from(length),
            _ => choices.number().min(u64::MAX - u64::from(length)),
        };
        (any_word(choices), length, offset)
    };
    (0..count).map(segment).collect()
}

/// Draws a Read list of data item chunks: positions that are multiples of four and never decrease.
pub(super) fn read_list(choices: &mut Choices) -> Vec<(u32, Segment)> {
    let mut position = 0;
    let mut entries = Vec::new();
    for _ in 0..choices.of(0..=3) {
        position += 4 * short(choices.of(1..=64));
        entries.extend(segments(choices, 1).into_iter().map(|segment| (position, segment)));
    }
    entries
}

/// Draws a Write list.
pub(super) fn write_list(choices: &mut Choices) -> Vec<Vec<Segment>> {
    (0..choices.of(0..=3)).map(|_| segments(choices, 0)).collect()
}

/// Changes a few octets, or cuts the message short.
pub(super) fn spoil(choices: &mut Choices, message: &mut Vec<u8>) {
    for _ in 0..choices.of(1..=3) {
        if message.is_empty() {
            return;
        }
        let at = choices.below(message.len());
        if choices.one_in(4) {
            message.truncate(at);
        } else {
            message[at] = octet(choices);
        }
    }
}

pub(super) fn short(count: usize) -> u32 {
    u32::try_from(count).expect("nothing built here is long")
}
