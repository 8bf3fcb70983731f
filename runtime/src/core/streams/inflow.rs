//! The records that a TCP connection receives (RFC 5531 section 11).
//!
//! A record that comes in one fragment and fits [`BUFFER`] is read where it lies in the buffer. Any other is put together
//! in memory of its own, into which its octets are received directly. A connection between two records has no memory.

use std::io;

use haulage_proto::rpc::record::Mark;

use crate::sys::socket::Socket;

/// The records that are being received.
#[derive(Debug, Default)]
pub(in crate::core) struct Inflow {
    /// Memory for records that fit it, while there are octets in it.
    buffer: Option<Box<[u8]>>,
    start: usize,
    end: usize,
    long: Option<Long>,
    /// Whether the system had fewer octets than there was room for.
    is_drained: bool,
}

/// A record in memory of its own.
#[derive(Debug)]
pub(in crate::core) struct Long {
    octets: Vec<u8>,
    /// Octets of it that have arrived.
    filled: usize,
    /// Octets of the fragment that have not arrived.
    left: usize,
    is_last: bool,
    /// Fragments that were empty.
    empty: u32,
}

/// What comes next.
#[derive(Debug)]
pub(in crate::core) enum Next {
    /// Whole records lie in the buffer: one at least.
    Records,
    /// A record in memory of its own.
    Long(Long),
    /// Memory of at least as many octets is needed before the rest can be taken.
    Wants(usize),
    /// More octets have to arrive.
    More,
    /// The peer broke the rules of records, or its record is too long.
    Broken(&'static str),
}

impl Inflow {
    /// Finds the next record, of at most `record_max` octets.
    pub(in crate::core) fn next(&mut self, record_max: usize) -> Next {
        loop {
            // Not by a method: a long record is changed beside it.
            let held = self.buffer.as_deref().and_then(|all| all.get(self.start..self.end));
            let held = held.unwrap_or_default();
            let Some(long) = &mut self.long else {
                let Some(mark) = held.first_chunk().map(|octets| Mark::decode(*octets)) else {
                    return Next::More;
                };
                let length = mark.length() as usize;
                if length > record_max {
                    return Next::Broken(TOO_LONG);
                }
                let end = Mark::WIRE_LEN + length;
                if !mark.is_last() || end > BUFFER {
                    return Next::Wants(length.max(LONG_MIN).min(record_max));
                }
                if held.len() < end {
                    return Next::More;
                }
                return Next::Records;
            };
            let taken = held.len().min(long.left);
            let Some((octets, held)) = held.split_at_checked(taken) else { return Next::More };
            let to = long.octets.get_mut(long.filled..long.filled + taken);
            to.into_iter().for_each(|to| to.copy_from_slice(octets));
            self.start += taken;
            long.filled += taken;
            long.left -= taken;
            if long.left > 0 {
                return Next::More;
            }
            if long.is_last {
                return self.long.take().map_or(Next::More, Next::Long);
            }
            let Some(mark) = held.first_chunk().map(|octets| Mark::decode(*octets)) else {
                return Next::More;
            };
            let length = mark.length() as usize;
            // RFC 5531 section 11: a fragment may be empty.
            long.empty += u32::from(length == 0);
            if length > record_max - long.filled || long.empty > EMPTY_MAX {
                return Next::Broken(TOO_LONG);
            }
            let needed = long.filled + length;
            if needed > long.octets.len() {
                // The room at least doubles, so that many short fragments are not copied often.
                return Next::Wants(needed.max(2 * long.octets.len()).min(record_max));
            }
            self.start += Mark::WIRE_LEN;
            (long.left, long.is_last) = (length, mark.is_last());
        }
    }

    /// Makes the memory that was wanted, in place of a shorter one.
    pub(in crate::core) fn provide(&mut self, octets: usize) {
        match &mut self.long {
            Some(long) => long.octets.resize(octets, 0),
            None => {
                let octets = vec![0; octets];
                let long = Long { octets, filled: 0, left: 0, is_last: false, empty: 0 };
                self.long = Some(long);
            }
        }
    }

    /// Returns the octets of memory that a long record has.
    pub(in crate::core) fn held(&self) -> usize {
        self.long.as_ref().map_or(0, Long::held)
    }

    /// Puts a record back that cannot be taken now.
    pub(in crate::core) fn put_back(&mut self, long: Long) {
        self.long = Some(long);
    }

    /// Returns the whole records that lie in the buffer next, as many as `most`.
    pub(in crate::core) fn records(&self, record_max: usize, most: usize) -> Records<'_> {
        let octets = self.held_octets();
        let all = Records { octets, left: most };
        let is_short = |record: &&[u8]| record.len() <= record_max;
        Records { octets, left: all.take_while(is_short).count() }
    }

    /// Passes over records that lie in the buffer.
    pub(in crate::core) fn pass(&mut self, records: usize) {
        let passed = Records { octets: self.held_octets(), left: records };
        self.start += passed.map(|record| Mark::WIRE_LEN + record.len()).sum::<usize>();
    }

    fn held_octets(&self) -> &[u8] {
        self.buffer.as_deref().and_then(|all| all.get(self.start..self.end)).unwrap_or_default()
    }

    /// Receives octets, into the memory of a long record if nothing lies before them. The buffer comes from `spare` if there
    /// is none. Returns their number, 0 at the end of the stream, or `None` if none wait.
    pub(in crate::core) fn receive(
        &mut self,
        socket: &Socket,
        spare: &mut Vec<Box<[u8]>>,
    ) -> io::Result<Option<usize>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if let Some(long) = self.long.as_mut().filter(|long| long.left >= BUFFER) {
                let most = long.filled + long.left.min(AT_ONCE_MAX);
                let room = long.octets.get_mut(long.filled..most).unwrap_or_default();
                let received = socket.receive(room)?;
                self.is_drained = received.is_none_or(|octets| octets < room.len());
                let octets = received.unwrap_or(0);
                long.filled += octets;
                long.left -= octets;
                return Ok(received);
            }
        }
        let buffer = self
            .buffer
            .get_or_insert_with(|| spare.pop().unwrap_or_else(|| vec![0; BUFFER].into()));
        if self.start > 0 {
            buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let room = buffer.get_mut(self.end..).unwrap_or_default();
        let received = socket.receive(room)?;
        self.is_drained = received.is_none_or(|octets| octets < room.len());
        self.end += received.unwrap_or(0);
        Ok(received)
    }

    /// Returns whether the system had fewer octets than there was room for, when it was last asked.
    pub(in crate::core) const fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Gives the buffer back if there is nothing in it.
    pub(in crate::core) fn rest(&mut self, spare: &mut Vec<Box<[u8]>>) {
        if self.start == self.end
            && let Some(buffer) = self.buffer.take()
        {
            (self.start, self.end) = (0, 0);
            if spare.len() < SPARE_MAX {
                spare.push(buffer);
            }
        }
    }

    /// Returns whether a record has begun and not ended.
    pub(in crate::core) const fn is_amid(&self) -> bool {
        self.start < self.end || self.long.is_some()
    }

    /// Returns the octets of heap memory.
    pub(in crate::core) fn bytes(&self) -> usize {
        self.held() + self.buffer.as_ref().map_or(0, |buffer| buffer.len())
    }
}

/// Records that lie one behind the other, each in one fragment.
#[derive(Clone, Debug)]
pub(in crate::core) struct Records<'a> {
    octets: &'a [u8],
    /// How many there are, at most.
    left: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        let (mark, rest) = self.octets.split_first_chunk()?;
        let mark = Mark::decode(*mark);
        let (record, rest) = rest.split_at_checked(mark.length() as usize)?;
        self.octets = rest;
        mark.is_last().then_some(record)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

/// As many as are `left`, if they have been counted.
impl ExactSizeIterator for Records<'_> {}

impl Long {
    /// Returns the octets of the record.
    pub(in crate::core) fn octets(&self) -> &[u8] {
        self.octets.get(..self.filled).unwrap_or_default()
    }

    /// Returns the octets of its memory.
    pub(in crate::core) const fn held(&self) -> usize {
        self.octets.len()
    }
}

/// Octets of the buffer of a connection: with its mark, of the longest record that takes no memory of its own.
pub(in crate::core) const BUFFER: usize = 16 << 10;
/// Octets of the shortest memory for a record in several fragments.
const LONG_MIN: usize = 4 << 10;
/// Octets received at once, at most: others have their turns as well.
const AT_ONCE_MAX: usize = 256 << 10;
/// Buffers that are kept for the next connections.
const SPARE_MAX: usize = 16;
/// Maximum number of empty fragments in a record.
const EMPTY_MAX: u32 = 64;
const TOO_LONG: &str = "its record is too long, or in too many fragments";
