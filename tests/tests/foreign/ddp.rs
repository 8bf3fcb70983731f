//! DDP (RFC 5041) and RDMAP (RFC 5040): Sends, and RDMA Writes and Reads in both directions.

use std::collections::{BTreeMap, VecDeque};

use super::mpa::Stream;

/// A range of a region, as chunks name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) handle: u32,
    pub(crate) length: u32,
    pub(crate) offset: u64,
}

impl Segment {
    /// Returns the part of `length` octets at `at`.
    pub(crate) fn part(self, at: u32, length: u32) -> Self {
        assert!(at + length <= self.length);
        Self { length, offset: self.offset + u64::from(at), ..self }
    }
}

/// The operation that may be carried out on a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Reads of the other end.
    Read,
    /// Writes of the other end.
    Write,
    /// The Response to a Read of this end.
    Sink,
    /// None: the other end has invalidated the handle.
    Invalidated,
}

/// Octets under a handle.
struct Region {
    access: Access,
    offset: u64,
    octets: Vec<u8>,
}

/// A message of the other end, and the handle that it invalidated.
pub(crate) struct Arrived {
    pub(crate) octets: Vec<u8>,
    pub(crate) invalidated: Option<u32>,
}

/// One end of a connection.
pub(crate) struct Link {
    pub(crate) stream: Stream,
    regions: BTreeMap<u32, Region>,
    handles: u32,
    /// Messages sent on the queues of Sends and of Read Requests.
    sent: [u32; 2],
    /// Messages begun by the other end on these queues.
    begun: [u32; 2],
    /// The Send of which a part has arrived.
    partial: Option<Arrived>,
    arrived: VecDeque<Arrived>,
    /// The sink whose Read Response is complete.
    fetched: Option<u32>,
    /// The numbers of octets in the Read Requests of the other end.
    pub(crate) served: Vec<u32>,
}

impl Link {
    pub(crate) fn over(stream: Stream) -> Self {
        Self {
            stream,
            regions: BTreeMap::new(),
            handles: 0,
            sent: [0; 2],
            begun: [0; 2],
            partial: None,
            arrived: VecDeque::new(),
            fetched: None,
            served: Vec::new(),
        }
    }

    /// Exposes these octets to the other end.
    pub(crate) fn expose(&mut self, octets: &[u8], access: Access) -> Segment {
        self.handles += 1;
        let handle = self.handles << 8 | 0xa5;
        // Offsets need all their octets, and are aligned to nothing.
        let offset = 0x0123_4567_ffff_f003 + (u64::from(handle) << 32);
        self.regions.insert(handle, Region { access, offset, octets: octets.to_vec() });
        Segment { handle, length: u32::try_from(octets.len()).unwrap(), offset }
    }

    /// Returns whether the other end has access by this handle.
    pub(crate) fn exposes(&self, handle: u32) -> bool {
        matches!(self.regions[&handle].access, Access::Read | Access::Write)
    }

    /// Takes a region back, whether or not its handle was invalidated. Returns its octets.
    pub(crate) fn retire(&mut self, handle: u32) -> Vec<u8> {
        self.regions.remove(&handle).unwrap().octets
    }

    /// Sends a message, which invalidates a handle of the other end if there is one.
    pub(crate) fn send(&mut self, message: &[u8], invalidate: Option<u32>) {
        let opcode = if invalidate.is_some() { SEND_INVALIDATE } else { SEND };
        self.untagged(opcode, invalidate.unwrap_or(0), message);
    }

    /// Writes into memory of the other end.
    pub(crate) fn write(&mut self, octets: &[u8], to: Segment) {
        assert!(octets.len() <= to.length as usize);
        self.tagged(WRITE, to, octets);
    }

    /// Reads memory of the other end.
    pub(crate) fn read(&mut self, from: Segment) -> Vec<u8> {
        assert!(self.stream.ord > 0, "the other end serves Reads");
        let sink = self.expose(&vec![0; from.length as usize], Access::Sink);
        let place = |of: Segment| {
            let (handle, offset) = (of.handle.to_be_bytes(), of.offset.to_be_bytes());
            [&handle[..], &offset].concat()
        };
        let request = [place(sink), from.length.to_be_bytes().to_vec(), place(from)].concat();
        self.untagged(READ_REQUEST, 0, &request);
        while self.fetched != Some(sink.handle) {
            self.turn();
        }
        self.fetched = None;
        self.retire(sink.handle)
    }

    /// Waits for the next message.
    pub(crate) fn receive(&mut self) -> Arrived {
        loop {
            if let Some(message) = self.arrived.pop_front() {
                return message;
            }
            self.turn();
        }
    }

    /// Returns whether a message has arrived that was not received.
    pub(crate) fn has_message(&mut self) -> bool {
        while self.stream.has_input() {
            self.turn();
        }
        !self.arrived.is_empty()
    }

    /// Takes in one FPDU, and answers it if it is a Read Request.
    fn turn(&mut self) {
        let ulpdu = self.stream.receive();
        let (ddp, rdmap) = (ulpdu[0], ulpdu[1]);
        assert_eq!((ddp & 3, rdmap >> 6), (1, 1), "the versions");
        let (is_last, opcode) = (ddp & LAST != 0, rdmap & 0xf);
        if ddp & TAGGED != 0 {
            let (handle, offset) = (word(&ulpdu, 2), offset(&ulpdu, 6));
            return self.on_tagged(opcode, (handle, offset), &ulpdu[14..], is_last);
        }
        let [reserved, queue, msn, mo] = [2, 6, 10, 14].map(|at| word(&ulpdu, at));
        let payload = &ulpdu[18..];
        match (opcode, queue) {
            (SEND..=SEND_SE_INVALIDATE, 0) => {
                let invalidates = matches!(opcode, SEND_INVALIDATE | SEND_SE_INVALIDATE);
                let new =
                    || Arrived { octets: vec![], invalidated: invalidates.then_some(reserved) };
                self.begun[0] += u32::from(self.partial.is_none());
                let mut send = self.partial.take().unwrap_or_else(new);
                assert_eq!((msn, mo as usize), (self.begun[0], send.octets.len()), "MSN and MO");
                assert_eq!(send.invalidated, invalidates.then_some(reserved), "one handle");
                send.octets.extend(payload);
                if is_last { self.on_send(send) } else { self.partial = Some(send) }
            }
            (READ_REQUEST, 1) => {
                self.begun[1] += 1;
                assert_eq!((msn, mo, is_last), (self.begun[1], 0, true), "a Read Request");
                assert_eq!(payload.len(), 28, "a Read Request");
                self.on_read(payload);
            }
            _ => panic!("opcode {opcode} on queue {queue}: {payload:x?}"),
        }
    }

    fn on_send(&mut self, send: Arrived) {
        if let Some(handle) = send.invalidated {
            assert!(self.exposes(handle), "{handle:x} was exposed");
            self.regions.get_mut(&handle).unwrap().access = Access::Invalidated;
        }
        self.arrived.push_back(send);
    }

    fn on_tagged(&mut self, opcode: u8, to: (u32, u64), payload: &[u8], is_last: bool) {
        let access = match opcode {
            WRITE => Access::Write,
            READ_RESPONSE => Access::Sink,
            _ => panic!("opcode {opcode} in a tagged segment"),
        };
        // A Write of nothing names no memory.
        if opcode == WRITE && payload.is_empty() {
            return;
        }
        self.range(to, payload.len(), access).copy_from_slice(payload);
        if opcode == READ_RESPONSE && is_last {
            self.fetched = Some(to.0);
        }
    }

    /// Answers a Read Request: its sink, its number of octets, and its source.
    fn on_read(&mut self, request: &[u8]) {
        assert!(self.stream.ird > 0, "Reads are served");
        let length = word(request, 12);
        let source = (word(request, 16), offset(request, 20));
        let octets = self.range(source, length as usize, Access::Read).to_vec();
        let sink = Segment { handle: word(request, 0), length, offset: offset(request, 4) };
        self.served.push(length);
        self.tagged(READ_RESPONSE, sink, &octets);
    }

    fn range(&mut self, (handle, offset): (u32, u64), length: usize, access: Access) -> &mut [u8] {
        let region = self.regions.get_mut(&handle).unwrap_or_else(|| panic!("handle {handle:x}"));
        assert_eq!(region.access, access, "{handle:x}");
        let at = usize::try_from(offset.checked_sub(region.offset).unwrap()).unwrap();
        &mut region.octets[at..at + length]
    }

    fn untagged(&mut self, opcode: u8, reserved: u32, message: &[u8]) {
        let queue = u32::from(opcode == READ_REQUEST);
        self.sent[queue as usize] += 1;
        let msn = self.sent[queue as usize];
        for (at, part, last) in parts(message) {
            let words = [reserved, queue, msn, u32::try_from(at).unwrap()].map(u32::to_be_bytes);
            let control = [last | 1, 0x40 | opcode];
            self.stream.send(&[&control[..], words.as_flattened(), part].concat());
        }
    }

    fn tagged(&mut self, opcode: u8, to: Segment, octets: &[u8]) {
        for (at, part, last) in parts(octets) {
            let offset = to.offset + u64::try_from(at).unwrap();
            let control = [TAGGED | last | 1, 0x40 | opcode];
            let place = [&to.handle.to_be_bytes()[..], &offset.to_be_bytes()].concat();
            self.stream.send(&[&control[..], &place, part].concat());
        }
    }
}

/// Divides a message into the payloads of its DDP segments, each with its offset and its flag L.
fn parts(message: &[u8]) -> impl Iterator<Item = (usize, &[u8], u8)> {
    let count = message.len().div_ceil(PAYLOAD_MAX).max(1);
    (0..count).map(move |number| {
        let at = number * PAYLOAD_MAX;
        let end = message.len().min(at + PAYLOAD_MAX);
        (at, &message[at..end], if number + 1 == count { LAST } else { 0 })
    })
}

fn word(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(octets[at..at + 4].try_into().unwrap())
}

fn offset(octets: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(octets[at..at + 8].try_into().unwrap())
}

/// Octets of payload in a DDP segment of this end: an odd number, so that FPDUs have padding.
const PAYLOAD_MAX: usize = 701;

const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const SEND: u8 = 3;
const SEND_INVALIDATE: u8 = 4;
const SEND_SE_INVALIDATE: u8 = 6;
