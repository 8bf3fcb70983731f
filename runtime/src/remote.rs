//! A client of a core, usable from any other thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use haulage_mr_pool::Local;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::negotiate::Version;
use haulage_proto::time::Instant;
use haulage_proto::xdr::{Truncated, Writer};
use rtrb::{Consumer, Producer, RingBuffer};

use crate::inbox::{Completion, Door, Entered, Entry, Reduction, Wake};
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
    /// Hold the arguments of one Call each, then its results; used again and again.
    buffers: Vec<Local>,
    /// Calls that ended while something else was waited for.
    ended: VecDeque<Ended>,
    /// Calls begun that have not been told to have ended.
    begun: usize,
    /// The longest any of them may take.
    patience: Duration,
}

/// How a Call that was begun ended: what [`RemoteClient::begin`] called it, and what came of it.
pub type Ended = (u64, Result<RemoteReply, CallError>);

/// What a Call from another thread came to.
#[derive(Debug)]
pub struct RemoteReply {
    buffer: Option<Local>,
    reduction: Reduction,
    /// The argument's lease, ours again.
    pub argument: Option<Local>,
    /// The result's lease, ours again, as long as what was written.
    pub result: Option<Local>,
}

impl RemoteReply {
    /// Returns the results; a reduced one left only its length here.
    pub fn results(&self) -> PayloadReader<'_> {
        let bytes = self.buffer.as_ref().map(Local::bytes).unwrap_or_default();
        let Reduction { reduced, version } = self.reduction;
        PayloadReader::reply(bytes, 0, reduced).of_version(version)
    }

    /// Returns the version of RPC-over-RDMA it came in.
    pub const fn version(&self) -> Version {
        self.reduction.version
    }
}

impl RemoteClient {
    pub(crate) fn new(door: Door, connection: ConnectionId) -> Option<Self> {
        let Entered { number, entries, completions, wake } = door.enter()?;
        Some(Self {
            door,
            number,
            connection,
            entries,
            completions,
            wake,
            next_token: 0,
            buffers: Vec::new(),
            ended: VecDeque::new(),
            begun: 0,
            patience: Duration::ZERO,
        })
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
        loop {
            match self.wait(LEASE_TIMEOUT)? {
                Completion::Lease(lease) => return lease.ok_or(CallError::Busy),
                call @ Completion::Call { .. } => {
                    let ended = self.on_end(call);
                    self.ended.extend(ended);
                }
            }
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
        let token = self.begin(request, encode)?;
        loop {
            if let Some((of, outcome)) = self.next_from_core()? {
                if of == token {
                    return outcome;
                }
                self.ended.push_back((of, outcome));
            }
        }
    }

    /// Begins a Call, of which [`Self::ended`] tells how it ended. Returns how it is called there.
    ///
    /// # Errors
    /// `Busy` if there are too many already, and what else keeps a Call from being made at all.
    pub fn begin(
        &mut self,
        request: Request,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<u64, CallError> {
        let mut arguments = match self.buffers.pop() {
            Some(buffer) => buffer,
            None => self.lease(INLINE_SIZE)?,
        };
        arguments.set_len(INLINE_SIZE);
        let mut writer = Writer::new(arguments.bytes_mut());
        encode(&mut writer).map_err(|_| CallError::TooLong)?;
        let length = writer.position();
        arguments.set_len(length);
        let token = self.next_token;
        let timeout = request.timeout.unwrap_or(LEASE_TIMEOUT);
        self.submit(Entry::Call { connection: self.connection, token, arguments, request })?;
        self.next_token += 1;
        self.begun += 1;
        self.patience = self.patience.max(timeout);
        Ok(token)
    }

    /// Waits until one of the Calls that were begun has ended. They end in any order.
    ///
    /// # Errors
    /// None is under way, or the core is gone: `Closed`.
    pub fn ended(&mut self) -> Result<Ended, CallError> {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                return Ok(ended);
            }
            if self.begun == 0 {
                return Err(CallError::Closed);
            }
            let ended = self.next_from_core()?;
            self.ended.extend(ended);
        }
    }

    /// Gives a Reply's buffer back for the next Call, once its results have been read.
    pub fn recycle(&mut self, reply: RemoteReply) {
        self.keep(reply.buffer);
    }

    /// Waits for the core to say something; returns the Call that has ended, if it is about one.
    fn next_from_core(&mut self) -> Result<Option<Ended>, CallError> {
        // The core tells us in time; this only guards against a core that is gone.
        let completion = self.wait(self.patience.saturating_add(LEASE_TIMEOUT))?;
        Ok(self.on_end(completion))
    }

    fn on_end(&mut self, completion: Completion) -> Option<Ended> {
        let Completion::Call { token, buffer, results, argument, result } = completion else {
            return None;
        };
        self.begun = self.begun.saturating_sub(1);
        Some(match results {
            Ok(reduction) => (token, Ok(RemoteReply { buffer, reduction, argument, result })),
            Err(error) => {
                self.keep(buffer);
                (token, Err(error))
            }
        })
    }

    fn keep(&mut self, buffer: Option<Local>) {
        // A longer one was made for a longer Reply.
        self.buffers.extend(buffer.filter(|buffer| buffer.capacity() < 2 * INLINE_SIZE));
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
