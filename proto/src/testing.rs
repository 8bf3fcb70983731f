//! What tests share: annotated vectors, a seeded generator, and a second opinion on XDR.

mod oracle;

use std::vec::Vec;

pub(crate) use haulage_test_support::Rng;
pub(crate) use haulage_test_support::hex::vectors;

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
