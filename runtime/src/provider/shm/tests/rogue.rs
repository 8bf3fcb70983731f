//! A peer made of the provider's own parts, which can do things that an RNIC would not.

use super::super::hello::{Hello, Kind as HelloKind, LENGTH_MAX, PartialHello};
use super::super::ring::{Kind, Producer};
use super::super::segment::{Layout, RING, Segment};
use super::*;
use crate::sys::barrier::Barrier;
use crate::sys::shared::Shared;

/// The active end of a connection that was accepted.
pub(super) struct Rogue {
    pub(super) stream: Stream,
    pub(super) producer: Producer,
    /// The segment of the RNIC.
    pub(super) theirs: Segment,
}

pub(super) fn layout() -> Layout {
    Layout::new(4096, 8).unwrap()
}

/// Returns a valid request.
pub(super) fn hello(region: Option<u64>) -> Hello {
    let private_data = Box::default();
    let kind = HelloKind::Ask;
    Hello {
        kind,
        ord: 4,
        ird: 4,
        layout: layout(),
        region,
        barriers: false,
        refusal: None,
        private_data,
    }
}

impl Rogue {
    /// Connects to a new listener of `node`, which accepts; passes a region of `region` octets, if any.
    pub(super) fn new(node: &mut Node, region: Option<usize>) -> Self {
        let region =
            region.map(|length| (Shared::create(c"rogue", length).unwrap().1, length as u64));
        Self::passing(node, region.as_ref())
    }

    /// Connects, and passes `region`, a descriptor and its length in octets, if any.
    pub(super) fn passing(node: &mut Node, region: Option<&(OwnedFd, u64)>) -> Self {
        let stream = Stream::connect(&name(node.listen())).unwrap().expect("room");
        let (segment, segment_fd) = Segment::create(layout()).unwrap();
        let mut fds = vec![segment_fd.as_fd()];
        fds.extend(region.map(|(fd, _)| fd.as_fd()));
        let said = hello(region.map(|(_, length)| *length));
        stream.send(&said.encode(), &fds).unwrap();
        node.accept();
        let (mut octets, mut fds) = ([0; LENGTH_MAX], Vec::new());
        let count = stream.receive(&mut octets, &mut fds).unwrap().expect("an answer");
        let (answer, fds) = PartialHello::default().take(&octets[..count], fds).unwrap().unwrap();
        assert_eq!(answer.kind, HelloKind::Accept);
        let theirs = Segment::open(fds[0].as_fd(), answer.layout).unwrap();
        Self { stream, producer: Producer::new(segment, Barrier::Full), theirs }
    }

    pub(super) fn push(&mut self, kind: Kind, handle: Handle, bytes: &[u8]) {
        assert_eq!(self.producer.push(kind, handle, bytes), Ok(true));
        if self.producer.publish() {
            self.stream.send(&[0], &[]).unwrap();
        }
    }

    /// Writes a double word into the ring, as if it were the first header.
    pub(super) fn scribble(&self, header: u64) {
        self.producer.segment().memory().u64_at(RING).store(header, Ordering::Release);
    }

    /// Returns the reason that the RNIC gives for the end of the connection.
    pub(super) fn told(&self) -> ended::Ended {
        ended::Ended::decode(self.theirs.ended().load(Ordering::SeqCst))
    }
}
