//! Send buffers: the registered memory that messages are sent from.

use haulage_mr_pool::{Local, Pool};
use haulage_proto::exchange::Format;

use crate::limits::SEND_BUFFER;

/// The send buffers of a core.
#[derive(Debug)]
pub(crate) struct SendBuffers {
    /// Buffers not in use, the one used last on top.
    free: Vec<Local>,
    /// Buffers leased beyond the initial number.
    spares: u32,
    /// The largest number of spares.
    spares_max: u32,
}

impl SendBuffers {
    /// Leases `count` buffers; `None` if the pool is too small. Control messages may take `spares_max` more.
    pub(crate) fn new(pool: &Pool, count: u32, spares_max: u32) -> Option<Self> {
        let free = (0..count).map(|_| pool.lease(SEND_BUFFER)).collect::<Option<_>>()?;
        Some(Self { free, spares: 0, spares_max })
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

    /// Puts a buffer back, or returns it to the pool while there are spares. A longer lease, of a message with data items,
    /// goes home.
    #[inline]
    pub(crate) fn recycle(&mut self, mut buffer: Local) {
        if buffer.len() > SEND_BUFFER {
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
