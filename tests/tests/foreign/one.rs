//! RPC-over-RDMA version 1 (RFC 8166), in both directions (RFC 8167), within 1024 octets a message.

use std::net::{SocketAddr, TcpListener};

use super::ddp::Link;
use super::header::{Chunks, Kind, Words, chunk, octets, read_list};
use super::mpa::{Crc, Stream};

/// One end of a connection of version 1.
pub(crate) struct Peer {
    pub(crate) link: Link,
    /// The Calls of this end, and those of the other end.
    pub(crate) ours: Calls,
    pub(crate) theirs: Calls,
    /// Calls that the other end may have unanswered, once it has been told.
    window: u32,
}

/// The Calls in one direction, which has credits of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Calls {
    pub(crate) unanswered: u32,
    /// The most that may be unanswered.
    pub(crate) granted: u32,
}

/// A message of the other end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived {
    Rpc {
        xid: u32,
        kind: Kind,
        chunks: Chunks,
        /// The Payload stream; empty if it is in a chunk.
        stream: Vec<u8>,
    },
    /// `RDMA_ERROR` with `ERR_CHUNK`.
    Refused { xid: u32 },
}

impl Peer {
    pub(crate) fn connect(server: SocketAddr, crc: Crc, window: u32) -> Self {
        Self::over(Stream::connect(server, crc), window)
    }

    pub(crate) fn accept(listener: &TcpListener, crc: Crc, window: u32) -> Self {
        Self::over(Stream::accept(listener, crc), window)
    }

    fn over(stream: Stream, window: u32) -> Self {
        // Each direction has one credit until the first Reply.
        let calls = Calls { unanswered: 0, granted: 1 };
        Self { link: Link::over(stream), ours: calls, theirs: calls, window }
    }

    /// Sends an RPC message in `RDMA_MSG`.
    pub(crate) fn send(&mut self, kind: Kind, stream: &[u8], chunks: &Chunks) {
        let xid = Words(stream).word();
        self.transmit(kind, &[xid, MSG], chunks, stream);
    }

    /// Sends an RPC message whose Payload stream is in a chunk, in `RDMA_NOMSG`.
    pub(crate) fn send_external(&mut self, kind: Kind, xid: u32, chunks: &Chunks) {
        self.transmit(kind, &[xid, NOMSG], chunks, &[]);
    }

    fn transmit(&mut self, kind: Kind, [xid, proc]: &[u32; 2], chunks: &Chunks, stream: &[u8]) {
        let credit = match kind {
            Kind::Call => {
                self.ours.unanswered += 1;
                assert!(
                    self.ours.unanswered <= self.ours.granted,
                    "a test keeps to {:?}",
                    self.ours
                );
                // It is asked for, and grants nothing.
                ASKED
            }
            Kind::Reply => {
                self.theirs.unanswered -= 1;
                self.theirs.granted = self.window;
                self.window
            }
        };
        // A Call chunk is a Read chunk at position 0.
        let reads = [&chunks.call[..], &chunks.reads].concat();
        let writes = chunks.writes.iter().flat_map(|of| chunk(of)).chain([0]).collect();
        let reply = chunks.reply.as_ref().map_or(vec![0], |of| chunk(of));
        let header = [vec![*xid, 1, credit, *proc], read_list(&reads), writes, reply].concat();
        let message = [&octets(&header), stream].concat();
        assert!(message.len() <= LENGTH_MAX, "{} octets", message.len());
        self.link.send(&message, None);
    }

    /// Waits for the next message.
    pub(crate) fn receive(&mut self) -> Arrived {
        let arrived = self.link.receive();
        assert!(arrived.octets.len() <= LENGTH_MAX, "{} octets", arrived.octets.len());
        assert_eq!(arrived.invalidated, None, "nobody allowed that");
        let mut words = Words(&arrived.octets);
        let [xid, version, credit, proc] = [(); 4].map(|()| words.word());
        assert_eq!(version, 1);
        assert!(credit > 0, "some credit is asked for or granted");
        if proc == ERROR {
            assert_eq!(words.0, octets(&[ERR_CHUNK]));
            self.ours = Calls { unanswered: self.ours.unanswered - 1, granted: credit };
            return Arrived::Refused { xid };
        }
        assert!(proc == MSG || proc == NOMSG, "{proc}");
        let mut chunks = Chunks { reads: words.reads(), ..Chunks::default() };
        while words.is_present() {
            chunks.writes.push(words.chunk());
        }
        if words.is_present() {
            chunks.reply = Some(words.chunk());
        }
        let stream = words.0.to_vec();
        assert_eq!(stream.is_empty(), proc == NOMSG, "the message type");
        let kind = if proc == MSG { direction(xid, &stream) } else { Kind::Reply };
        match kind {
            Kind::Call => {
                self.theirs.unanswered += 1;
                assert!(self.theirs.unanswered <= self.theirs.granted, "{:?}", self.theirs);
            }
            Kind::Reply => {
                self.ours.unanswered = self.ours.unanswered.checked_sub(1).expect("a Call of ours");
                self.ours.granted = credit;
            }
        }
        Arrived::Rpc { xid, kind, chunks, stream }
    }

    /// Waits for the next message, which is an RPC message. Returns its XID, its kind, its chunks and its stream.
    pub(crate) fn rpc(&mut self) -> (u32, Kind, Chunks, Vec<u8>) {
        match self.receive() {
            Arrived::Rpc { xid, kind, chunks, stream } => (xid, kind, chunks, stream),
            Arrived::Refused { xid } => panic!("{xid:x} is refused"),
        }
    }
}

/// Returns the direction of an RPC message, which says it; the header does not.
fn direction(xid: u32, stream: &[u8]) -> Kind {
    let mut words = Words(stream);
    assert_eq!(words.word(), xid, "the XIDs of both streams");
    match words.word() {
        0 => Kind::Call,
        1 => Kind::Reply,
        other => panic!("direction {other}"),
    }
}

/// The credits that this end asks for in each Call.
const ASKED: u32 = 77;
/// The length of the longest message between ends that have said nothing about it.
const LENGTH_MAX: usize = 1024;
const MSG: u32 = 0;
const NOMSG: u32 = 1;
const ERROR: u32 = 4;
const ERR_CHUNK: u32 = 2;
