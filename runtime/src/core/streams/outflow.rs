//! The Replies that a TCP connection sends, each as one record (RFC 5531 section 11).
//!
//! Short octets are copied one behind the other; data of some length leaves from where it lies. All that waits leaves in one
//! system call.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use haulage_proto::rpc::record::Mark;
use haulage_proto::xdr::pad;

use crate::core::memory::Charge;
use crate::outgoing::Data;
use crate::sys::socket::Socket;

/// The Replies that have not left.
#[derive(Debug, Default)]
pub(in crate::core) struct Outflow {
    /// The octets that were copied, in their order.
    copied: Vec<u8>,
    /// How many of these have left.
    sent: usize,
    parts: VecDeque<Part>,
    /// All octets that have not left.
    waiting: usize,
}

/// A part of what waits.
#[derive(Debug)]
enum Part {
    /// Octets that were copied: how many.
    Copied(usize),
    /// Data that leaves from where it lies, of which some octets have left. Its Call is charged until all have.
    Lying { data: Data, sent: usize, charge: Charge },
}

/// A Reply: the Payload stream, of which `data`, if there is any, lies behind `front`.
#[derive(Debug)]
pub(in crate::core) struct Record<'a> {
    pub(in crate::core) front: &'a [u8],
    pub(in crate::core) data: Data,
    pub(in crate::core) back: &'a [u8],
}

impl Outflow {
    /// Appends a Reply. Returns its charge if nothing of it is left behind in the pool.
    pub(in crate::core) fn push(&mut self, record: Record<'_>, charge: Charge) -> Option<Charge> {
        let Record { front, data, back } = record;
        let padding = &[0; 3][..pad(data.len())];
        let length = front.len() + data.len() + padding.len() + back.len();
        // No Reply is that long.
        let Some(mark) = u32::try_from(length).ok().and_then(Mark::last) else {
            return Some(charge);
        };
        self.waiting += Mark::WIRE_LEN + length;
        self.copy([&mark.encode(), front]);
        let rest = if data.is_empty() {
            Some(charge)
        } else {
            self.parts.push_back(Part::Lying { data, sent: 0, charge });
            None
        };
        if padding.len() + back.len() > 0 {
            self.copy([padding, back]);
        }
        rest
    }

    /// Appends octets that are copied.
    fn copy(&mut self, [front, back]: [&[u8]; 2]) {
        let added = front.len() + back.len();
        self.copied.reserve(added);
        self.copied.extend_from_slice(front);
        self.copied.extend_from_slice(back);
        match self.parts.back_mut() {
            Some(Part::Copied(length)) => *length += added,
            _ => self.parts.push_back(Part::Copied(added)),
        }
    }

    /// Sends what waits, in one system call as far as it goes; `None` if the socket takes nothing now. The charges of what
    /// has left go into `left`. Returns the octets sent.
    pub(in crate::core) fn send(
        &mut self,
        socket: &Socket,
        left: &mut Vec<Charge>,
    ) -> io::Result<Option<usize>> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let mut count = 0;
        let mut copied = self.copied.get(self.sent..).unwrap_or_default();
        'gathering: for part in &self.parts {
            match part {
                Part::Copied(length) => {
                    let Some((here, rest)) = copied.split_at_checked(*length) else { break };
                    copied = rest;
                    let Some(slice) = slices.get_mut(count) else { break };
                    *slice = IoSlice::new(here);
                    count += 1;
                }
                Part::Lying { data, sent, .. } => {
                    let mut skip = *sent;
                    for piece in data.parts() {
                        let Some(piece) = piece.get(skip..) else {
                            skip -= piece.len();
                            continue;
                        };
                        skip = 0;
                        let Some(slice) = slices.get_mut(count) else { break 'gathering };
                        *slice = IoSlice::new(piece);
                        count += 1;
                    }
                }
            }
        }
        let Some(octets) = socket.send(slices.get(..count).unwrap_or_default())? else {
            return Ok(None);
        };
        self.leave(octets, left);
        Ok(Some(octets))
    }

    /// Notes that octets have left.
    fn leave(&mut self, mut octets: usize, left: &mut Vec<Charge>) {
        self.waiting -= octets;
        while let Some(part) = self.parts.front_mut() {
            match part {
                Part::Copied(length) => {
                    let some = octets.min(*length);
                    *length -= some;
                    self.sent += some;
                    octets -= some;
                    if *length > 0 {
                        break;
                    }
                }
                Part::Lying { data, sent, charge } => {
                    let some = octets.min(data.len() - *sent);
                    *sent += some;
                    octets -= some;
                    if *sent < data.len() {
                        break;
                    }
                    left.push(std::mem::take(charge));
                }
            }
            self.parts.pop_front();
        }
        self.forget_sent();
    }

    /// Gives up what has left of the octets that were copied. A peer that is always a little behind never has all of them.
    fn forget_sent(&mut self) {
        if self.sent == self.copied.len() {
            self.copied.clear();
            if self.copied.capacity() > KEPT {
                self.copied = Vec::new();
            }
        } else if self.sent >= KEPT && self.sent >= self.copied.len() / 2 {
            // No more octets are moved than have left since they were moved last.
            self.copied.drain(..self.sent);
        } else {
            return;
        }
        self.sent = 0;
    }

    /// Returns the octets that wait.
    pub(in crate::core) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns how many of these were copied: no pool bounds their memory.
    pub(in crate::core) const fn copied(&self) -> usize {
        self.copied.len() - self.sent
    }

    /// Takes out the charges of all that waits, of a connection that ends.
    pub(in crate::core) fn end(&mut self, left: &mut Vec<Charge>) {
        let parts = self.parts.drain(..).filter_map(|part| match part {
            Part::Lying { charge, .. } => Some(charge),
            Part::Copied(_) => None,
        });
        left.extend(parts);
    }

    /// Returns the octets of heap memory.
    pub(in crate::core) fn bytes(&self) -> usize {
        self.copied.capacity() + self.parts.capacity() * size_of::<Part>()
    }
}

/// Pieces that leave in one system call, at most.
const SLICES_MAX: usize = 64;
/// Octets of the buffer that a connection keeps while nothing waits.
const KEPT: usize = 16 << 10;
