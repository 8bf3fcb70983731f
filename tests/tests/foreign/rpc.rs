//! RPC-over-RDMA version 2: credits, properties, and RPC messages in one transport message or several.
//!
//! Credits are counted as readings E1 and E2 have it: a credit word is the number of messages received, and of those
//! that may still come.

use std::collections::{BTreeMap, VecDeque};
use std::net::{SocketAddr, TcpListener};

use super::ddp::Link;
use super::header::{Chunks, Header, Kind, Message, Words, octets};
use super::mpa::{Crc, Stream};

/// One end of a connection of version 2.
pub(crate) struct Peer {
    pub(crate) link: Link,
    /// Messages sent, and the most that may be sent.
    sent: u32,
    limit: u32,
    /// Messages received, and the most that the other end was allowed to send.
    received: u32,
    granted: u32,
    /// Messages that the other end may send at once.
    window: u32,
    /// The length of the longest message that this end takes.
    room: usize,
    /// The RPC message of which a part has arrived: its kind, its XID, and the octets that are still to come.
    incoming: Option<(Kind, u32, usize)>,
    /// Messages that arrived while this end waited for credit.
    waiting: VecDeque<Message>,
    /// The properties of the other end.
    pub(crate) properties: BTreeMap<u32, Vec<u8>>,
}

/// An RPC message, however it came.
#[derive(Debug)]
pub(crate) struct Rpc {
    pub(crate) xid: u32,
    pub(crate) kind: Kind,
    pub(crate) chunks: Chunks,
    /// The Payload stream; empty if it is in a chunk.
    pub(crate) stream: Vec<u8>,
    /// The number of transport messages.
    pub(crate) messages: usize,
}

impl Peer {
    /// Connects, and exchanges properties. The server may send `window` messages at once.
    pub(crate) fn connect(server: SocketAddr, crc: Crc, window: u32) -> Self {
        Self::connect_saying(server, crc, window, &[])
    }

    /// Connects as [`Self::connect`] does, with `more` properties of one word.
    pub(crate) fn connect_saying(
        server: SocketAddr,
        crc: Crc,
        window: u32,
        more: &[[u32; 2]],
    ) -> Self {
        let mut peer = Self::over(Stream::connect(server, crc), window);
        peer.say(0x1111, more);
        peer.take_properties();
        peer
    }

    /// Accepts a client, and exchanges properties. The client may send `window` messages at once.
    pub(crate) fn accept(listener: &TcpListener, crc: Crc, window: u32) -> Self {
        Self::accept_saying(listener, crc, window, &[])
    }

    /// Accepts a client as [`Self::accept`] does, with `more` properties of one word.
    pub(crate) fn accept_saying(
        listener: &TcpListener,
        crc: Crc,
        window: u32,
        more: &[[u32; 2]],
    ) -> Self {
        let mut peer = Self::over(Stream::accept(listener, crc), window);
        let xid = peer.take_properties();
        peer.say(xid, more);
        peer
    }

    /// Sends an RPC message: parts of these lengths, and the rest in the last message, which has the chunks.
    pub(crate) fn send(&mut self, kind: Kind, stream: &[u8], parts: &[usize], chunks: &Chunks) {
        let xid = Words(stream).word();
        let mut rest = stream;
        for length in parts {
            let part;
            (part, rest) = rest.split_at(*length);
            let remaining = u32::try_from(rest.len()).unwrap();
            self.transmit(xid, Header::Middle(kind, remaining), part);
        }
        self.transmit(xid, Header::Inline(kind, chunks.clone()), rest);
    }

    /// Sends an RPC message whose Payload stream is in a chunk.
    pub(crate) fn send_external(&mut self, kind: Kind, xid: u32, chunks: &Chunks) {
        self.transmit(xid, Header::External(kind, chunks.clone()), &[]);
    }

    /// Waits for the next RPC message, and assembles its parts.
    pub(crate) fn receive(&mut self) -> Rpc {
        let (mut stream, mut messages) = (Vec::new(), 0);
        loop {
            let Message { xid, header, payload, .. } = self.next();
            stream.extend(payload);
            messages += 1;
            match header {
                Header::Middle(..) => {}
                Header::Inline(kind, chunks) => {
                    assert_eq!(Words(&stream).word(), xid, "the XIDs of both streams");
                    return Rpc { xid, kind, chunks, stream, messages };
                }
                Header::External(kind, chunks) => {
                    return Rpc { xid, kind, chunks, stream, messages };
                }
                other => panic!("no part of an RPC message: {xid:x} {other:x?}"),
            }
        }
    }

    /// Waits for the next message, which is an error. Returns its XID, and its code with the words of its union.
    pub(crate) fn error(&mut self) -> (u32, Vec<u8>) {
        match self.next() {
            Message { xid, header: Header::Error(union), .. } => (xid, union),
            other => panic!("no error: {other:x?}"),
        }
    }

    fn over(stream: Stream, window: u32) -> Self {
        Self {
            link: Link::over(stream),
            sent: 0,
            limit: 1,
            received: 0,
            granted: 1,
            window,
            room: RECEIVE,
            incoming: None,
            waiting: VecDeque::new(),
            properties: BTreeMap::new(),
        }
    }

    /// Sends the properties of this end. Those of `more` take the places of others.
    fn say(&mut self, xid: u32, more: &[[u32; 2]]) {
        let mut properties: BTreeMap<_, _> = our_properties().into_iter().collect();
        properties.extend(more.iter().map(|[code, value]| (*code, octets(&[*value]))));
        if let Some(value) = properties.get(&RECEIVE_SIZE) {
            self.room = Words(value).word() as usize;
        }
        self.transmit(xid, Header::Properties(properties.into_iter().collect()), &[]);
    }

    /// Waits for the properties of the other end. Returns their XID.
    fn take_properties(&mut self) -> u32 {
        let Message { xid, header: Header::Properties(values), .. } = self.next() else {
            panic!("properties come first");
        };
        self.properties.extend(values);
        xid
    }

    /// Waits for the next message that is no grant, and sends grants meanwhile.
    fn next(&mut self) -> Message {
        loop {
            let left = self.granted.saturating_sub(self.received);
            // Nothing is granted before the client has begun.
            let may_grant = self.sent > 0 && self.sent <= self.limit && self.waiting.is_empty();
            if may_grant && left <= self.window / 2 {
                self.transmit(0, Header::Grant, &[]);
            }
            let message = self.waiting.pop_front().unwrap_or_else(|| self.hear());
            if message.header != Header::Grant {
                return message;
            }
        }
    }

    /// Takes in one message, and checks that it may come now.
    fn hear(&mut self) -> Message {
        let arrived = self.link.receive();
        // A client's first message fits a server of version 1.
        let room = if self.sent == 0 { 1024 } else { self.room };
        assert!(arrived.octets.len() <= room, "{} octets", arrived.octets.len());
        let mut message = Message::decode(&arrived.octets);
        self.received += 1;
        let is_grant = message.header == Header::Grant;
        let most = self.granted + u32::from(is_grant);
        assert!(self.received <= most, "{} of {most}: {message:x?}", self.received);
        assert!(message.credit >= self.limit, "a limit never falls: {message:x?}");
        self.limit = message.credit;
        assert!(!is_grant || message.xid == 0, "a grant has no XID");
        let (begun, length) = (self.incoming.take(), message.payload.len());
        assert!(length.is_multiple_of(4), "whole words in each part: {length}");
        match &mut message.header {
            Header::Middle(kind, remaining) => {
                let (kind, xid, remaining) = (*kind, message.xid, *remaining as usize);
                self.incoming = Some((kind, xid, remaining));
                let whole = (kind, xid, length + remaining);
                assert_eq!(begun.unwrap_or(whole), whole, "parts fit together");
            }
            Header::Inline(kind, _) => {
                let last = (*kind, message.xid, length);
                assert_eq!(begun.unwrap_or(last), last, "the last part fits");
            }
            other => assert_eq!(begun, None, "between parts: {other:x?}"),
        }
        match (arrived.invalidated, &mut message.header) {
            (None, _) => {}
            (
                Some(handle),
                Header::Inline(Kind::Reply, chunks) | Header::External(Kind::Reply, chunks),
            ) => {
                chunks.invalidate = handle;
            }
            (Some(handle), other) => panic!("{handle:x} invalidated by {other:x?}"),
        }
        message
    }

    /// Sends one message, once there is credit for it. No grant comes between the parts of an RPC message.
    fn transmit(&mut self, xid: u32, header: Header, payload: &[u8]) {
        let is_grant = header == Header::Grant;
        // What has come by now is within the limit that was told before.
        while self.sent + u32::from(!is_grant) > self.limit || self.link.has_message() {
            let heard = self.hear();
            self.waiting.push_back(heard);
        }
        self.sent += 1;
        self.granted = self.granted.max(self.received + self.window);
        let invalidate = match &header {
            Header::Inline(Kind::Reply, chunks) | Header::External(Kind::Reply, chunks) => {
                (chunks.invalidate != 0).then_some(chunks.invalidate)
            }
            _ => None,
        };
        let payload = payload.to_vec();
        let message = Message { xid, credit: self.granted, header, payload }.encode();
        let most = self.properties.get(&RECEIVE_SIZE).map_or(4096, |value| Words(value).word());
        assert!(message.len() <= most as usize, "the other end takes it");
        self.link.send(&message, invalidate);
    }
}

impl Rpc {
    /// Returns the results of a Reply to a Call that was carried out.
    pub(crate) fn results(&self) -> &[u8] {
        results(&self.stream)
    }

    /// Returns the procedure of a Call of program `program` in version 1, and its arguments.
    pub(crate) fn called(&self, program: u32) -> (u32, &[u8]) {
        let mut words = Words(&self.stream);
        assert_eq!((self.kind, words.word()), (Kind::Call, self.xid));
        let [direction, version, number, its_version, procedure] = [(); 5].map(|()| words.word());
        assert_eq!((direction, version, number, its_version), (0, 2, program, 1));
        for _ in ["credential", "verifier"] {
            words.word();
            words.opaque();
        }
        (procedure, words.0)
    }
}

/// Returns the results in the Payload stream of a Reply to a Call that was carried out.
pub(crate) fn results(stream: &[u8]) -> &[u8] {
    let mut words = Words(stream);
    // XID, direction, accepted, no verifier, success
    assert_eq!([(); 6].map(|()| words.word())[1..], [1, 0, 0, 0, 0], "{stream:x?}");
    words.0
}

/// Returns a Call without a credential, of version 1 of a program.
pub(crate) fn call(xid: u32, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
    [&octets(&[xid, 0, 2, program, 1, procedure, 0, 0, 0, 0]), arguments].concat()
}

/// Returns a Reply to a Call that was carried out.
pub(crate) fn reply(xid: u32, results: &[u8]) -> Vec<u8> {
    [&octets(&[xid, 1, 0, 0, 0, 0]), results].concat()
}

/// The length of the longest message that this end takes, unless it says otherwise.
const RECEIVE: usize = 4096;

/// The code of the property that says this.
pub(crate) const RECEIVE_SIZE: u32 = 2;

/// Returns the properties of this end: its Sends, its Receives, and one that nobody knows.
fn our_properties() -> Vec<(u32, Vec<u8>)> {
    vec![(1, octets(&[4096])), (RECEIVE_SIZE, octets(&[4096])), (0x7777, vec![1, 2, 3])]
}
