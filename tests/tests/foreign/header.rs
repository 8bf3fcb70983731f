//! Transport headers of RPC-over-RDMA version 2 (draft, section 8).

use super::ddp::Segment;

/// The direction of an RPC message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Call,
    Reply,
}

/// The chunks of an RPC message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chunks {
    /// In a Call, the handle that the Responder may invalidate; in a Reply, the one that the Send invalidates; or 0.
    pub(crate) invalidate: u32,
    /// The Call chunk, as a list of Read segments at position 0.
    pub(crate) call: Vec<(u32, Segment)>,
    /// The Read list: each segment with its position.
    pub(crate) reads: Vec<(u32, Segment)>,
    /// The Write list.
    pub(crate) writes: Vec<Vec<Segment>>,
    /// The Reply chunk.
    pub(crate) reply: Option<Vec<Segment>>,
}

/// A transport header behind its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// `RDMA2_ERROR`, with the octets of its union.
    Error(Vec<u8>),
    Grant,
    /// `RDMA2_CONNPROP_FINAL`, with its property codes and values.
    Properties(Vec<(u32, Vec<u8>)>),
    /// `RDMA2_CALL_MIDDLE` or `RDMA2_REPLY_MIDDLE`, with its `rdma_remaining`.
    Middle(Kind, u32),
    /// `RDMA2_CALL_INLINE` or `RDMA2_REPLY_INLINE`.
    Inline(Kind, Chunks),
    /// `RDMA2_CALL_EXTERNAL` or `RDMA2_REPLY_EXTERNAL`.
    External(Kind, Chunks),
}

/// A transport message.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) xid: u32,
    pub(crate) credit: u32,
    pub(crate) header: Header,
    /// The Payload stream, or a part of it.
    pub(crate) payload: Vec<u8>,
}

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let htype = self.header.htype();
        let mut message = octets(&[self.xid, 2, self.credit, htype]);
        match &self.header {
            Header::Error(union) => message.extend(union),
            Header::Grant => {}
            Header::Properties(values) => {
                message.extend(octets(&[u32::try_from(values.len()).unwrap()]));
                for (code, value) in values {
                    message.extend([octets(&[*code]), opaque(value)].concat());
                }
            }
            Header::Middle(_, remaining) => message.extend(octets(&[*remaining])),
            Header::Inline(_, chunks) | Header::External(_, chunks) => {
                message.extend(octets(&chunks.encode(htype)));
            }
        }
        message.extend(&self.payload);
        message
    }

    pub(crate) fn decode(message: &[u8]) -> Self {
        let mut words = Words(message);
        let [xid, version, credit, htype] = [(); 4].map(|()| words.word());
        assert_eq!(version, 2);
        let kind = if htype < REPLY_EXTERNAL { Kind::Call } else { Kind::Reply };
        let header = match htype {
            ERROR => Header::Error(std::mem::take(&mut words.0).to_vec()),
            GRANT => Header::Grant,
            CONNPROP_FINAL => {
                let count = words.word();
                Header::Properties((0..count).map(|_| (words.word(), words.opaque())).collect())
            }
            CALL_MIDDLE | REPLY_MIDDLE => Header::Middle(kind, words.word()),
            CALL_INLINE | REPLY_INLINE => Header::Inline(kind, Chunks::decode(htype, &mut words)),
            CALL_EXTERNAL | REPLY_EXTERNAL => {
                Header::External(kind, Chunks::decode(htype, &mut words))
            }
            _ => panic!("header type {htype}"),
        };
        let has_payload = matches!(header, Header::Middle(..) | Header::Inline(..));
        assert!(has_payload || words.0.is_empty(), "behind {header:?}: {:x?}", words.0);
        Self { xid, credit, header, payload: words.0.to_vec() }
    }
}

impl Header {
    const fn htype(&self) -> u32 {
        match self {
            Self::Error(_) => ERROR,
            Self::Grant => GRANT,
            Self::Properties(_) => CONNPROP_FINAL,
            Self::External(Kind::Call, _) => CALL_EXTERNAL,
            Self::Middle(Kind::Call, _) => CALL_MIDDLE,
            Self::Inline(Kind::Call, _) => CALL_INLINE,
            Self::External(Kind::Reply, _) => REPLY_EXTERNAL,
            Self::Middle(Kind::Reply, _) => REPLY_MIDDLE,
            Self::Inline(Kind::Reply, _) => REPLY_INLINE,
        }
    }
}

impl Chunks {
    fn encode(&self, htype: u32) -> Vec<u32> {
        let mut words = Vec::new();
        if htype < REPLY_EXTERNAL {
            words.push(self.invalidate);
            let lists = if htype == CALL_EXTERNAL {
                &[&self.call, &self.reads][..]
            } else {
                &[&self.reads]
            };
            for list in lists {
                words.extend(read_list(list));
            }
        }
        words.extend(self.writes.iter().flat_map(|of| chunk(of)).chain([0]));
        if htype != REPLY_INLINE {
            words.extend(self.reply.as_ref().map_or(vec![0], |of| chunk(of)));
        }
        words
    }

    fn decode(htype: u32, words: &mut Words<'_>) -> Self {
        let mut chunks = Self::default();
        if htype < REPLY_EXTERNAL {
            chunks.invalidate = words.word();
            if htype == CALL_EXTERNAL {
                chunks.call = words.reads();
            }
            chunks.reads = words.reads();
        }
        while words.is_present() {
            chunks.writes.push(words.chunk());
        }
        if htype != REPLY_INLINE && words.is_present() {
            chunks.reply = Some(words.chunk());
        }
        chunks
    }
}

/// Returns a Read list.
pub(crate) fn read_list(list: &[(u32, Segment)]) -> Vec<u32> {
    let entry = |(position, segment): &(u32, Segment)| {
        [1, *position].into_iter().chain(segment.words()).collect::<Vec<_>>()
    };
    list.iter().flat_map(entry).chain([0]).collect()
}

/// Returns a chunk of a Write list, or a Reply chunk.
pub(crate) fn chunk(chunk: &[Segment]) -> Vec<u32> {
    let count = u32::try_from(chunk.len()).unwrap();
    [1, count].into_iter().chain(chunk.iter().flat_map(|of| of.words())).collect()
}

impl Segment {
    fn words(self) -> [u32; 4] {
        let [high, low] = [self.offset >> 32, self.offset & 0xffff_ffff];
        [self.handle, self.length, u32::try_from(high).unwrap(), u32::try_from(low).unwrap()]
    }
}

/// XDR that has not been read.
pub(crate) struct Words<'a>(pub(crate) &'a [u8]);

impl Words<'_> {
    pub(crate) fn word(&mut self) -> u32 {
        let (word, rest) = self.0.split_first_chunk().expect("another word");
        self.0 = rest;
        u32::from_be_bytes(*word)
    }

    pub(crate) fn opaque(&mut self) -> Vec<u8> {
        let length = self.word() as usize;
        let (padded, rest) = self.0.split_at(length.next_multiple_of(4));
        self.0 = rest;
        assert!(padded[length..].iter().all(|octet| *octet == 0), "padding is zero");
        padded[..length].to_vec()
    }

    pub(crate) fn is_present(&mut self) -> bool {
        let word = self.word();
        assert!(word <= 1, "an XDR boolean, not {word}");
        word == 1
    }

    fn segment(&mut self) -> Segment {
        let [handle, length, high, low] = [(); 4].map(|()| self.word());
        Segment { handle, length, offset: u64::from(high) << 32 | u64::from(low) }
    }

    pub(crate) fn chunk(&mut self) -> Vec<Segment> {
        let count = self.word();
        (0..count).map(|_| self.segment()).collect()
    }

    pub(crate) fn reads(&mut self) -> Vec<(u32, Segment)> {
        let mut list = Vec::new();
        while self.is_present() {
            list.push((self.word(), self.segment()));
        }
        list
    }
}

pub(crate) fn octets(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// Returns variable-length opaque data: its length, its octets, and padding.
pub(crate) fn opaque(data: &[u8]) -> Vec<u8> {
    let mut encoded = [&octets(&[u32::try_from(data.len()).unwrap()]), data].concat();
    encoded.resize(encoded.len().next_multiple_of(4), 0);
    encoded
}

const ERROR: u32 = 4;
const GRANT: u32 = 5;
const CONNPROP_FINAL: u32 = 7;
const CALL_EXTERNAL: u32 = 8;
const CALL_MIDDLE: u32 = 9;
const CALL_INLINE: u32 = 10;
const REPLY_EXTERNAL: u32 = 11;
const REPLY_MIDDLE: u32 = 12;
const REPLY_INLINE: u32 = 13;
