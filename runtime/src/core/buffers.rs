//! Send buffers: the registered memory that messages are sent from.

use haulage_mr_pool::{Local, Pool};
use haulage_proto::exchange::Format;

use crate::limits::{Limits, SEND_BUFFER};

/// The send buffers of a core.
#[derive(Debug)]
pub(crate) struct SendBuffers {
    /// Buffers not in use, the one used last on top.
    free: Vec<Local>,
    /// Longer buffers not in use, for messages with data items.
    placing: Vec<Local>,
    /// Octets of each of these.
    placing_octets: usize,
    /// Buffers leased beyond the initial number.
    spares: u32,
    /// The largest number of spares.
    spares_max: u32,
}

impl SendBuffers {
    /// Leases the buffers of a core; `None` if the pool is too small. Control messages may take a spare for each connection.
    pub(crate) fn new(pool: &Pool, limits: &Limits) -> Option<Self> {
        let lease = |count, octets| (0..count).map(|_| pool.lease(octets)).collect::<Option<_>>();
        let free = lease(limits.send_buffers_max, SEND_BUFFER)?;
        let placing = lease(limits.placing_buffers(), limits.placing_buffer())?;
        let placing_octets = limits.placing_buffer();
        Some(Self { free, placing, placing_octets, spares: 0, spares_max: limits.connections_max })
    }

    /// Takes a buffer for a control message, or leases a spare when all are in use. `None` if all spares are in use,
    /// too, or the pool has no room.
    pub(crate) fn pop_or_lease(&mut self, pool: &Pool) -> Option<Local> {
        if let Some(buffer) = self.free.pop() {
            return Some(buffer);
        }
        let more = self.spares < self.spares_max;
        let buffer = pool.lease(SEND_BUFFER).filter(|_| more)?;
        self.spares += 1;
        Some(buffer)
    }

    /// Returns the number of buffers not in use.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.free.len()
    }

    /// Returns whether there is a buffer for each message of a Call in this format, beside the one that it is encoded in.
    pub(crate) fn suffice(&self, format: Format) -> bool {
        match format {
            Format::Continued { messages } => self.len() >= messages as usize,
            Format::Simple | Format::Special => true,
        }
    }

    /// Takes a buffer that is not in use.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Local> {
        self.free.pop()
    }

    /// Takes a buffer for a message that brings data items. `octets` is its length, headers and the room in front of these
    /// included. `None` if all buffers of that kind are in use.
    pub(crate) fn pop_for(&mut self, octets: usize) -> Option<Local> {
        if octets > SEND_BUFFER { self.placing.pop() } else { self.free.pop() }
    }

    /// Puts a buffer back, or returns it to the pool while there are spares, or if it was leased for one message alone.
    #[inline]
    pub(crate) fn recycle(&mut self, mut buffer: Local) {
        if buffer.len() > SEND_BUFFER {
            if buffer.len() == self.placing_octets {
                self.placing.push(buffer);
            }
            return;
        }
        if self.spares > 0 {
            self.spares -= 1;
            return;
        }
        if buffer.len() != SEND_BUFFER {
            buffer.set_len(SEND_BUFFER);
        }
        self.free.push(buffer);
    }
}
