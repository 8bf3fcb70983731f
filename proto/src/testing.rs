//! What tests share: annotated vectors, a seeded generator, and a second opinion on XDR.

mod oracle;

use std::string::{String, ToString};
use std::vec::Vec;

/// Returns the sections of an annotated hex file: their names and their bytes.
pub(crate) fn vectors(text: &str) -> Vec<(String, Vec<u8>)> {
    let mut sections: Vec<(String, String)> = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(name) = line.strip_prefix("==") {
            sections.push((name.trim().to_string(), String::new()));
        } else if !line.is_empty() {
            let section = sections.last_mut().expect("bytes stand in a section");
            section.1.extend(line.chars().filter(|c| !c.is_whitespace()));
        }
    }
    assert!(!sections.is_empty(), "a file has vectors");
    sections.into_iter().map(|(name, digits)| (name, bytes(&digits))).collect()
}

fn bytes(digits: &str) -> Vec<u8> {
    assert!(digits.len().is_multiple_of(2), "half an octet: {digits}");
    let pairs = (0..digits.len()).step_by(2);
    pairs.map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex")).collect()
}

/// splitmix64: the same numbers for the same seed, on every machine.
#[derive(Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    pub(crate) fn octet(&mut self) -> u8 {
        self.next().to_be_bytes()[0]
    }
}

/// Builds streams from the types of the draft's section 8 and RFC 4506, without the code under test.
#[derive(Clone, Debug, Default)]
pub(crate) struct Xdr(pub(crate) Vec<u8>);

impl Xdr {
    /// `struct rpcrdma_common`.
    pub(crate) fn common(xid: u32, vers: u32, credit: u32, htype: u32) -> Self {
        Self::default().words(&[xid, vers, credit, htype])
    }

    pub(crate) fn words(mut self, words: &[u32]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_be_bytes()));
        self
    }

    /// `opaque<>`.
    pub(crate) fn opaque(self, octets: &[u8]) -> Self {
        let mut stream = self.words(&[u32::try_from(octets.len()).expect("a short opaque")]);
        stream.0.extend(octets);
        while !stream.0.len().is_multiple_of(4) {
            stream.0.push(0);
        }
        stream
    }

    /// `struct rpcrdma2_segment`: handle, length, offset.
    pub(crate) fn segment(self, (handle, length, offset): (u32, u32, u64)) -> Self {
        let mut stream = self.words(&[handle, length]);
        stream.0.extend(offset.to_be_bytes());
        stream
    }

    /// `struct rpcrdma2_read_list *`: positions and segments.
    pub(crate) fn read_list(self, entries: &[(u32, (u32, u32, u64))]) -> Self {
        let list = entries.iter().fold(self, |stream, &(position, segment)| {
            stream.words(&[1, position]).segment(segment)
        });
        list.words(&[0])
    }

    /// `struct rpcrdma2_write_list *`: chunks of segments.
    pub(crate) fn write_list(self, chunks: &[&[(u32, u32, u64)]]) -> Self {
        let list =
            chunks.iter().fold(self, |stream, segments| stream.words(&[1]).write_chunk(segments));
        list.words(&[0])
    }

    /// `struct rpcrdma2_write_chunk`.
    pub(crate) fn write_chunk(self, segments: &[(u32, u32, u64)]) -> Self {
        let count = u32::try_from(segments.len()).expect("few segments");
        segments.iter().fold(self.words(&[count]), |stream, &segment| stream.segment(segment))
    }

    /// `rpcrdma2_propset`.
    pub(crate) fn propset(self, properties: &[(u32, &[u8])]) -> Self {
        let count = u32::try_from(properties.len()).expect("few properties");
        let set = self.words(&[count]);
        properties.iter().fold(set, |stream, (which, data)| stream.words(&[*which]).opaque(data))
    }
}
