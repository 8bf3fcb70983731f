//! Random Payload streams, and registered memory to fetch from.

use std::vec;
use std::vec::Vec;

use super::{DataItem, Kind, Step};
use crate::testing::Rng;
use crate::verbs::{ClaimedSegment, Handle, Segment};

/// Octets of what stands for an RPC header.
pub(crate) const HEADER: usize = 40;

pub(crate) const KINDS: [Kind; 5] =
    [Kind::Opaque, Kind::Array, Kind::Optional, Kind::Arm, Kind::Fixed];

/// An encoded Payload stream, and the data items in it.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) stream: Vec<u8>,
    pub(crate) items: Vec<DataItem>,
}

impl Sample {
    /// A header, and at most `items_max` items of up to `length_max` octets among words.
    pub(crate) fn random(rng: &mut Rng, items_max: usize, length_max: usize) -> Self {
        let mut sample = Self { stream: vec![0xee; HEADER], items: Vec::new() };
        for _ in 0..rng.below(items_max + 1) {
            sample.words(rng);
            let kind = KINDS[rng.below(KINDS.len())];
            let length = rng.below(length_max + 1);
            sample.item(rng, kind, length);
        }
        sample.words(rng);
        sample
    }

    /// Appends an item of the given type, of about `length` octets.
    pub(crate) fn item(&mut self, rng: &mut Rng, kind: Kind, length: usize) {
        let units = length / 4;
        let (word, length) = match kind {
            Kind::Opaque => (Some(u32::try_from(length).unwrap()), length),
            // Between one element and as many as there are units.
            Kind::Array if units == 0 => (Some(0), 0),
            Kind::Array => (Some(u32::try_from(1 + rng.below(units)).unwrap()), 4 * units),
            Kind::Optional => (Some(u32::from(units > 0)), 4 * units),
            Kind::Arm => (Some(rng.octet().into()), 4 * units),
            Kind::Fixed => (None, length),
        };
        self.items.push(DataItem::new(kind, self.stream.len(), length));
        self.stream.extend(word.into_iter().flat_map(u32::to_be_bytes));
        self.stream.extend((0..length).map(|_| rng.octet()));
        while !self.stream.len().is_multiple_of(4) {
            self.stream.push(0);
        }
    }

    /// Appends some words; before an item of fixed length there is always one, as in any protocol.
    fn words(&mut self, rng: &mut Rng) {
        for _ in 0..=rng.below(3) {
            self.stream.extend(u32::from(rng.octet()).to_be_bytes());
        }
    }
}

/// Memory a peer registered, each range under its own handle and at its own offset.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    ranges: Vec<(u64, Vec<u8>)>,
}

impl Memory {
    /// Registers `octets` as one range, and returns its handle and offset.
    pub(crate) fn register(&mut self, rng: &mut Rng, octets: Vec<u8>) -> (Handle, u64) {
        let handle = Handle(u32::try_from(self.ranges.len()).unwrap());
        let offset = rng.next() >> 1;
        self.ranges.push((offset, octets));
        (handle, offset)
    }

    /// Registers `octets` as one chunk of several segments, some of them empty, none longer than
    /// `segment_max`.
    pub(crate) fn expose(
        &mut self,
        rng: &mut Rng,
        octets: &[u8],
        segment_max: usize,
    ) -> Vec<Segment> {
        let mut segments = Vec::new();
        let mut left = octets;
        while !left.is_empty() || rng.below(4) == 0 {
            let length = rng.below(left.len().min(segment_max) + 1);
            let (now, later) = left.split_at(length);
            let (handle, offset) = self.register(rng, now.to_vec());
            let length = u32::try_from(length).unwrap();
            segments.push(Segment { handle, length, offset });
            left = later;
        }
        segments
    }

    /// Carries out an RDMA Write.
    pub(crate) fn write(&mut self, target: &ClaimedSegment, source: &[u8]) {
        let (offset, octets) = &mut self.ranges[usize::try_from(target.handle().0).unwrap()];
        let start = usize::try_from(target.offset() - *offset).unwrap();
        octets[start..start + source.len()].copy_from_slice(source);
    }

    /// Returns the first octets of a registered range.
    pub(crate) fn range(&self, handle: Handle, length: u32) -> &[u8] {
        let (_, octets) = &self.ranges[usize::try_from(handle.0).unwrap()];
        &octets[..usize::try_from(length).unwrap()]
    }

    fn read(&self, source: &ClaimedSegment) -> &[u8] {
        let (offset, octets) = &self.ranges[usize::try_from(source.handle().0).unwrap()];
        let start = usize::try_from(source.offset() - offset).unwrap();
        &octets[start..start + usize::try_from(source.length()).unwrap()]
    }

    /// Carries out the steps of a restoration.
    pub(crate) fn restore(&self, inline: &[u8], steps: &[Step], length: usize) -> Vec<u8> {
        let mut whole = vec![None; length];
        for step in steps {
            let (to, octets) = match step {
                Step::Copy { from, to } => (to, inline[*from..*from + to.len()].to_vec()),
                Step::Read { source, to } => (to, self.read(source).to_vec()),
                Step::Zero { to } => (to, vec![0; to.len()]),
            };
            assert_eq!(octets.len(), to.len());
            assert!(!octets.is_empty(), "nothing is posted for nothing");
            for (place, octet) in whole[to.clone()].iter_mut().zip(octets) {
                assert_eq!(*place, None, "filled once");
                *place = Some(octet);
            }
        }
        whole.into_iter().map(|octet| octet.expect("every octet is filled")).collect()
    }
}
