//! A client of a core, usable from any other thread.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use haulage_mr_pool::Local;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::time::Instant;
use haulage_proto::xdr::{Truncated, Writer};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::inbox::{Completion, Door, Entered, Entry, Wake};
use crate::limits::INLINE_SIZE;
use crate::service::{CallError, ConnectionId, Request};
use crate::sys::{clock, wake};

/// Makes Calls through a core from another thread. `Send`; for a second thread, `try_clone`.
#[derive(Debug)]
pub struct RemoteClient {
    door: Door,
    number: usize,
    connection: ConnectionId,
    entries: Producer<Entry>,
    completions: Consumer<Completion>,
    wake: Arc<Wake>,
    next_token: u64,
    /// Holds the arguments of one Call, then its results; used again and again.
    buffer: Option<Local>,
}

/// What a Call from another thread came to.
#[derive(Debug)]
pub struct RemoteReply {
    buffer: Option<Local>,
    reduced: Option<u32>,
    /// The argument's lease, ours again.
    pub argument: Option<Local>,
    /// The result's lease, ours again, as long as what was written.
    pub result: Option<Local>,
}

impl RemoteReply {
    /// Returns the results; a reduced one left only its length here.
    pub fn results(&self) -> PayloadReader<'_> {
        let bytes = self.buffer.as_ref().map(Local::bytes).unwrap_or_default();
        PayloadReader::reply(bytes, 0, self.reduced)
    }
}

impl RemoteClient {
    pub(crate) fn new(door: Door, connection: ConnectionId) -> Option<Self> {
        let Entered { number, entries, completions, wake } = door.enter()?;
        let (next_token, buffer) = (0, None);
        Some(Self { door, number, connection, entries, completions, wake, next_token, buffer })
    }

    /// Makes another client of the same connection, for another thread; `None` if there are too many.
    pub fn try_clone(&self) -> Option<Self> {
        Self::new(self.door.clone(), self.connection)
    }

    /// Takes a lease of `length` octets from the core's pool.
    ///
    /// # Errors
    /// `Busy` if the pool has no room, `Closed` if the core is gone.
    pub fn lease(&mut self, length: usize) -> Result<Local, CallError> {
        self.submit(Entry::Lease { length })?;
        match self.wait(LEASE_TIMEOUT)? {
            Completion::Lease(lease) => lease.ok_or(CallError::Busy),
            Completion::Call { .. } => Err(CallError::Closed),
        }
    }

    /// Makes one Call and waits for its Reply. `encode` writes the arguments other than the reduced
    /// one.
    ///
    /// # Errors
    /// See [`CallError`]; leases of a failed Call go home by themselves.
    pub fn call(
        &mut self,
        request: Request,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<RemoteReply, CallError> {
        let mut arguments = match self.buffer.take() {
            Some(buffer) => buffer,
            None => self.lease(INLINE_SIZE)?,
        };
        arguments.set_len(INLINE_SIZE);
        let mut writer = Writer::new(arguments.bytes_mut());
        encode(&mut writer).map_err(|_| CallError::TooLong)?;
        let length = writer.position();
        arguments.set_len(length);
        let token = self.next_token;
        self.next_token += 1;
        // The core tells us in time; this only guards against a core that is gone.
        let patience = request.timeout.unwrap_or(LEASE_TIMEOUT).saturating_add(LEASE_TIMEOUT);
        self.submit(Entry::Call { connection: self.connection, token, arguments, request })?;
        loop {
            if let Completion::Call { token: of, buffer, results, argument, result } =
                self.wait(patience)?
                && of == token
            {
                let reduced = match results {
                    Ok(reduced) => reduced,
                    Err(error) => {
                        self.buffer = buffer;
                        return Err(error);
                    }
                };
                return Ok(RemoteReply { buffer, reduced, argument, result });
            }
        }
    }

    /// Gives a Reply's buffer back for the next Call, once its results have been read.
    pub fn recycle(&mut self, reply: RemoteReply) {
        self.buffer = reply.buffer;
    }

    fn submit(&mut self, entry: Entry) -> Result<(), CallError> {
        if self.entries.is_abandoned() {
            return Err(CallError::Closed);
        }
        self.entries.push(entry).map_err(|_| CallError::Busy)?;
        self.door.announce(self.number);
        Ok(())
    }

    /// Waits for the next completion: spins a little, then sleeps.
    fn wait(&mut self, patience: Duration) -> Result<Completion, CallError> {
        let deadline: Instant = clock::now().saturating_add(patience);
        loop {
            for _ in 0..SPINS {
                if let Ok(completion) = self.completions.pop() {
                    return Ok(completion);
                }
                std::hint::spin_loop();
            }
            self.wake.sleeping.store(true, Ordering::Relaxed);
            // Pairs with the fence in `Wake::signal`: either the core sees `sleeping`, or we its push.
            fence(Ordering::SeqCst);
            let now = clock::now();
            if self.completions.is_empty() && !self.completions.is_abandoned() && now < deadline {
                wake::wait(&self.wake.waker, deadline.saturating_since(now));
            }
            self.wake.sleeping.store(false, Ordering::Relaxed);
            if self.completions.is_empty() {
                if self.completions.is_abandoned() {
                    return Err(CallError::Closed);
                }
                if clock::now() >= deadline {
                    return Err(CallError::TimedOut);
                }
            }
        }
    }
}

impl Drop for RemoteClient {
    fn drop(&mut self) {
        // Abandons the ring before the core is told to look at it.
        self.entries = RingBuffer::new(1).0;
        self.door.announce(self.number);
    }
}

/// Looks at the ring this often before sleeping.
const SPINS: u32 = 2000;

/// How long a core may take to answer what needs no peer.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);
