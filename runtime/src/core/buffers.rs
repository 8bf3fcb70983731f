//! The buffers that messages are sent from.

use haulage_mr_pool::{Local, Pool};

use crate::limits::SEND_BUFFER;

/// What messages are sent from.
#[derive(Debug)]
pub(crate) struct SendBuffers {
    /// Those not in use, the one used last on top.
    free: Vec<Local>,
    /// Those in use beyond the ones there are to be.
    spares: u32,
    /// How many of these there may be.
    spares_max: u32,
}

impl SendBuffers {
    /// Leases `count` buffers; `None` if the pool is too small. Control messages may take `spares_max` more.
    pub(crate) fn new(pool: &Pool, count: u32, spares_max: u32) -> Option<Self> {
        let free = (0..count).map(|_| pool.lease(SEND_BUFFER)).collect::<Option<_>>()?;
        Some(Self { free, spares: 0, spares_max })
    }

    /// Takes one for a control message, or leases one when all are in use.
    pub(crate) fn pop_or_lease(&mut self, pool: &Pool) -> Option<Local> {
        if let Some(buffer) = self.free.pop() {
            return Some(buffer);
        }
        let more = self.spares < self.spares_max;
        let buffer = pool.lease(SEND_BUFFER).filter(|_| more)?;
        self.spares += 1;
        Some(buffer)
    }

    /// Returns how many are not in use.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.free.len()
    }

    /// Borrows the one that would be taken next.
    #[inline]
    pub(crate) fn top(&mut self) -> Option<&mut Local> {
        self.free.last_mut()
    }

    /// Takes one that is not in use.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Local> {
        self.free.pop()
    }

    /// Puts one back. One more than there are to be goes home instead.
    #[inline]
    pub(crate) fn recycle(&mut self, mut buffer: Local) {
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
