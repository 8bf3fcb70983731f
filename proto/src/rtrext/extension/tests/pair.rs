//! Two ends, and the Receives that one's Sends are scattered over.

use std::vec;
use std::vec::Vec;

use super::*;
use crate::rtrext::plan::Content;

/// The transmissions of one RPC message.
pub(super) type Sent = Vec<Vec<u8>>;

/// One end: its extension, and its Receives in the order in which they were filled.
#[derive(Debug)]
pub(super) struct End {
    pub(super) ext: Extension,
    structure: Structure,
    pub(super) receives: Vec<Receive>,
}

/// A Receive that a message has filled.
#[derive(Debug)]
pub(super) struct Receive {
    message: Vec<u8>,
    /// The memory of each segment, full of something else where the message did not reach.
    pub(super) scattered: Vec<Vec<u8>>,
}

/// Receive buffers: plain segments have positive lengths, targetable ones negative.
pub(super) fn structure(lengths: &[i32]) -> Structure {
    let segments: Vec<_> = lengths
        .iter()
        .map(|&length| BufferSegment {
            length: length.unsigned_abs(),
            align: 4,
            flags: if length < 0 { FLAG_TARGETABLE } else { 0 },
        })
        .collect();
    Structure::new(&segments).unwrap()
}

pub(super) fn offer(structure: &Structure, support: u32) -> Offer {
    Offer { support, structure: Some(*structure), request_receive_max: 8, response_send_max: 8 }
}

fn limits() -> ChunkLimits {
    ChunkLimits { read_chunks_max: 8, write_chunks_max: 8, segments_max: 8 }
}

/// Two ends with the same receive buffers that have agreed on everything.
pub(super) fn pair(lengths: &[i32]) -> (End, End) {
    let (mut client, mut server) = (End::new(lengths, 7), End::new(lengths, 7));
    let both = offer(&structure(lengths), 7);
    client.agree(&both);
    server.agree(&both);
    (client, server)
}

/// A virtual stream: the XID, and octets that are all different for a while.
pub(super) fn stream(xid: u32, length: usize) -> Vec<u8> {
    let mut rng = Rng::new(u64::from(xid));
    let mut stream: Vec<u8> = (0..length).map(|_| rng.octet()).collect();
    stream[..4].copy_from_slice(&xid.to_be_bytes());
    stream
}

impl End {
    pub(super) fn new(lengths: &[i32], support: u32) -> Self {
        Self::with_limits(lengths, support, limits())
    }

    pub(super) fn with_limits(lengths: &[i32], support: u32, chunks: ChunkLimits) -> Self {
        let structure = structure(lengths);
        let config = Config { offer: offer(&structure, support), responses_max: 8, chunks };
        Self { ext: Extension::new(config), structure, receives: Vec::new() }
    }

    /// Hears what the peer offers, octet for octet.
    pub(super) fn agree(&mut self, theirs: &Offer) {
        let entries = theirs.entries();
        let entries: Vec<_> = entries.iter().map(|(which, data)| (*which, &data[..])).collect();
        let octets = Xdr::default().propset(&entries).0;
        let set = PropertySet::decode(&mut Reader::new(&octets)).unwrap();
        self.ext.heed(self.ext.heard(&set).unwrap());
        let base = Properties {
            send_size_max: 1 << 20,
            receive_buffer_size: 1 << 20,
            ..Properties::default()
        };
        self.ext.agree(&base, &base);
    }

    /// Takes out of `stream` what is not in the Payload stream, arranges and encodes.
    pub(super) fn send(
        &self,
        xid: u32,
        kind: Kind<'_>,
        items: &[Item<Source>],
        stream: &[u8],
    ) -> Result<Sent, Unfit> {
        let payload_length = reduce(items, stream).len();
        let message = Outgoing { kind, payload_length, items };
        let no_terms = Err(Unfit::NotAgreed);
        let plan = self.ext.terms().map_or(no_terms, |terms| Plan::new(terms, &message))?;
        Ok(self.encode(xid, kind, items, stream, &plan))
    }

    pub(super) fn encode(
        &self,
        xid: u32,
        kind: Kind<'_>,
        items: &[Item<Source>],
        stream: &[u8],
        plan: &Plan,
    ) -> Sent {
        let payload = reduce(items, stream);
        let message = Outgoing { kind, payload_length: payload.len(), items };
        let bulk: Vec<_> = items.iter().map(|item| &stream[octets(item)]).collect();
        let encode = |transmission| {
            let mut memory = vec![0xee; plan.length(transmission)];
            let mut w = Writer::new(&mut memory);
            let content = Content { payload: &payload, items: &bulk };
            plan.encode(&mut w, transmission, (xid, 9), &message, content).unwrap();
            memory
        };
        (0..plan.transmissions()).map(encode).collect()
    }

    /// Receives one message.
    pub(super) fn take(&mut self, message: &[u8]) -> Event {
        let mut left = message;
        let scatter = |segment: &BufferSegment| {
            let mut memory = vec![0xcc; segment.length as usize];
            let taken = left.len().min(memory.len());
            memory[..taken].copy_from_slice(&left[..taken]);
            left = &left[taken..];
            memory
        };
        let scattered = self.structure.segments().iter().map(scatter).collect();
        self.receives.push(Receive { message: message.to_vec(), scattered });
        let mut r = Reader::new(message);
        let prefix = Prefix::decode(&mut r).unwrap();
        self.ext.receive(&prefix, r.rest())
    }

    /// Receives all transmissions of an RPC message, each but the last of which is one of several.
    pub(super) fn take_all(&mut self, sent: &[Vec<u8>]) -> Event {
        let (last, before) = sent.split_last().unwrap();
        for message in before {
            assert!(matches!(self.take(message), Event::More(_)));
        }
        self.take(last)
    }

    /// Returns the virtual stream of what was received last, out of the memory it landed in. What it
    /// has by explicit RDMA is left out.
    pub(super) fn restored(&mut self) -> Vec<u8> {
        let whole = self.ext.whole().expect("a complete message");
        let items: Vec<_> = whole.placement.items().collect();
        let mut stream = Vec::new();
        for span in whole.placement.stream() {
            match span {
                Span::Payload(transmission, range) => {
                    let receive = &self.receives[transmission];
                    let octets: Vec<u8> = self
                        .structure
                        .scatter(range.clone())
                        .flat_map(|(segment, range)| receive.scattered[segment][range].to_vec())
                        .collect();
                    assert_eq!(octets, receive.message[range]);
                    stream.extend(octets);
                }
                Span::Item(index, length) => {
                    let start = stream.len();
                    assert_eq!(items[index].disp as usize, start, "where it says it stands");
                    for piece in whole.placement.pieces(&items[index]) {
                        let receive = &self.receives[piece.transmission];
                        let octets = &receive.scattered[piece.segment][piece.range];
                        assert_eq!(*octets, receive.message[piece.message]);
                        stream.extend(octets);
                    }
                    if items[index].place.code() == crate::rtrext::item::TBSN {
                        assert_eq!(stream.len() - start, length as usize);
                    }
                    stream.resize(start + length as usize, 0);
                }
                Span::Pad(count) => stream.resize(stream.len() + count, 0),
            }
        }
        self.receives.clear();
        stream
    }
}

/// Returns which octets of the virtual stream an item is.
pub(super) fn octets(item: &Item<Source>) -> core::ops::Range<usize> {
    item.disp as usize..(item.disp + item.length) as usize
}

/// Returns the Payload stream: what is left without the items and their padding.
pub(super) fn reduce(items: &[Item<Source>], stream: &[u8]) -> Vec<u8> {
    let (mut payload, mut at) = (Vec::new(), 0);
    for item in items {
        if matches!(item.place, Source::Send | Source::Exrw(_)) {
            payload.extend(&stream[at..item.disp as usize]);
            at = octets(item).end.next_multiple_of(4);
        }
    }
    payload.extend(&stream[at..]);
    payload
}
