//! A client of a core, usable from any other thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use haulage_mr_pool::Local;
use haulage_proto::chunk::PayloadReader;
use haulage_proto::negotiate::Version;
use haulage_proto::xdr::{Truncated, Writer};
use rtrb::{Consumer, Producer, RingBuffer};
use thiserror::Error;

pub use crate::core::inbox::CALLS_MAX;
use crate::core::inbox::{Completion, Door, Entered, Entry, LEASES_MAX, Reduction, Wake};
use crate::core::{Core, Service};
use crate::items::Items;
use crate::limits::INLINE_SIZE;
use crate::polling::{Polling, Wait};
use crate::provider::Provider;
use crate::service::{CallError, ConnectionId, InlineRoom, Request};
use crate::sys::{clock, wake};

/// Makes Calls through a core from another thread. It is `Send`; `try_clone` makes another one for a second thread.
#[derive(Debug)]
pub struct RemoteClient {
    door: Door,
    number: u32,
    connection: ConnectionId,
    entries: Producer<Entry>,
    completions: Consumer<Completion>,
    wake: Arc<Wake>,
    next_token: u64,
    /// Free buffers. Each holds the arguments of one Call, then its results.
    buffers: Vec<Local>,
    /// Calls that ended while the client waited for something else.
    ended: VecDeque<Ended>,
    /// Calls begun whose end the caller does not know yet, at most [`CALLS_MAX`].
    begun: usize,
    /// Requests for a lease that the core has not answered, at most [`LEASES_MAX`]. There is more than one only if the
    /// core was too late for an earlier one.
    leases_due: usize,
    /// Tokens of begun Calls that [`Self::call`] stopped waiting for.
    given_up: Vec<u64>,
    /// The room of a message of the connection, as the last Reply told.
    inline_room: InlineRoom,
    /// The longest timeout of any Call so far.
    patience: Duration,
    waiting: Wait,
}

/// How a Call that was begun ended: its token from [`RemoteClient::begin`], and its Reply or its failure.
pub type Ended = (u64, Result<RemoteReply, Failed>);

/// A Call that failed or was not made, with the leases of its request.
#[derive(Debug, Error)]
#[error("{error}")]
pub struct Failed {
    /// Why the Call failed.
    pub error: CallError,
    /// The leases of the arguments. None if the Call had none, or if the peer may still read one.
    pub arguments: Items<Local>,
    /// The rooms for results, whose octets may have changed. None if the Call had none, or if the peer may still write
    /// one.
    pub rooms: Items<Local>,
}

impl Failed {
    /// Makes the failure of a Call that was not made.
    fn unmade(error: CallError, request: Request) -> Self {
        let Request { arguments, rooms, .. } = request;
        Self { error, arguments: arguments.into_leases(), rooms }
    }
}

impl From<CallError> for Failed {
    fn from(error: CallError) -> Self {
        Self { error, arguments: Items::None, rooms: Items::None }
    }
}

impl From<Failed> for CallError {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// The Reply to a Call from another thread.
#[derive(Debug)]
pub struct RemoteReply {
    buffer: Option<Local>,
    reduction: Reduction,
    /// The leases of the arguments.
    pub arguments: Items<Local>,
    /// The rooms for results, each cut to the octets that were written.
    pub rooms: Items<Local>,
}

impl RemoteReply {
    /// Returns the results; of a reduced result they hold only the length.
    pub fn results(&self) -> PayloadReader<'_> {
        let bytes = self.buffer.as_ref().map(Local::bytes).unwrap_or_default();
        let Reduction { returned, version, padding, .. } = &self.reduction;
        let reader = PayloadReader::reply_of_many(bytes, 0, returned.as_slice());
        let reader = reader.of_version(*version);
        match padding.as_deref() {
            Some((padding, at)) => reader.padded(*padding, *at),
            None => reader,
        }
    }

    /// Returns the version of RPC-over-RDMA in which the Reply came.
    pub const fn version(&self) -> Version {
        self.reduction.version
    }
}

impl RemoteClient {
    /// Makes a client of `connection` of `core` for another thread; `None` if the core has too many clients.
    pub fn of<P: Provider, S: Service>(
        core: &Core<P, S>,
        connection: ConnectionId,
    ) -> Option<Self> {
        Self::new(core.door(), connection)
    }

    fn new(door: Door, connection: ConnectionId) -> Option<Self> {
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
            leases_due: 0,
            given_up: Vec::new(),
            inline_room: InlineRoom::MIN,
            patience: Duration::ZERO,
            waiting: Wait::new(Polling::ADAPTIVE, clock::now()),
        })
    }

    /// Makes another client of the same connection, for another thread; `None` if there are too many.
    pub fn try_clone(&self) -> Option<Self> {
        Self::new(self.door.clone(), self.connection)
    }

    /// Returns the room of one message for the arguments of a Call, and for the results of its Reply. Until a Reply has come
    /// it is the least of any connection.
    pub const fn inline_room(&self) -> InlineRoom {
        self.inline_room
    }

    /// Takes a lease of `length` octets from the core's pool.
    ///
    /// # Errors
    /// `NoMemory` if the pool has no room, `Busy` if the core owes answers to earlier requests that timed out,
    /// `TimedOut` if the core does not answer, `Closed` if the core is gone.
    pub fn lease(&mut self, length: usize) -> Result<Local, CallError> {
        if self.entries.is_abandoned() {
            return Err(CallError::Closed);
        }
        // Answers that came too late for earlier requests make room for this one.
        while let Ok(completion) = self.completions.pop() {
            let ended = self.on_end(completion);
            self.ended.extend(ended);
        }
        if self.leases_due == LEASES_MAX {
            return Err(CallError::Busy);
        }
        self.submit(Entry::Lease { length });
        self.leases_due += 1;
        loop {
            match self.wait(LEASE_TIMEOUT)? {
                Completion::Lease(lease) => {
                    self.leases_due -= 1;
                    // The core answers in order: all answers but the last belong to requests that timed out.
                    if self.leases_due == 0 {
                        return lease.ok_or(CallError::NoMemory);
                    }
                }
                call @ Completion::Call { .. } => {
                    let ended = self.on_end(call);
                    self.ended.extend(ended);
                }
            }
        }
    }

    /// Makes one Call and waits for its Reply. `encode` writes the arguments other than the reduced one.
    ///
    /// # Errors
    /// See [`CallError`]. The leases come back with it, unless the peer may still use them or the core does not answer.
    #[expect(clippy::result_large_err, reason = "a failed Call is moved back once, not boxed")]
    pub fn call(
        &mut self,
        request: Request,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<RemoteReply, Failed> {
        let token = self.begin(request, encode)?;
        loop {
            match self.next_from_core() {
                Ok(Some((of, outcome))) if of == token => {
                    self.begun -= 1;
                    return outcome;
                }
                Ok(Some(other)) => self.ended.push_back(other),
                Ok(None) => {}
                Err(error) => {
                    // Nobody asks for the Call any more: `on_end` drops its outcome.
                    self.given_up.push(token);
                    return Err(error.into());
                }
            }
        }
    }

    /// Begins a Call, whose end [`Self::ended`] reports. Returns the token of the Call.
    ///
    /// # Errors
    /// `Busy` if [`CALLS_MAX`] Calls have begun whose end `ended` has not reported: call `ended`, then try again. Any
    /// other error means that the Call cannot be made. Every error returns the leases.
    #[expect(clippy::result_large_err, reason = "a failed Call is moved back once, not boxed")]
    pub fn begin(
        &mut self,
        request: Request,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Result<u64, Failed> {
        if self.entries.is_abandoned() {
            return Err(Failed::unmade(CallError::Closed, request));
        }
        if self.begun == CALLS_MAX {
            return Err(Failed::unmade(CallError::Busy, request));
        }
        let buffer = self.buffers.pop().map_or_else(|| self.lease(INLINE_SIZE), Ok);
        let mut arguments = match buffer {
            Ok(buffer) => buffer,
            Err(error) => return Err(Failed::unmade(error, request)),
        };
        arguments.set_len(INLINE_SIZE);
        let mut writer = Writer::new(arguments.bytes_mut());
        if encode(&mut writer).is_err() {
            self.buffers.push(arguments);
            return Err(Failed::unmade(CallError::TooLong, request));
        }
        let length = writer.position();
        arguments.set_len(length);
        let token = self.next_token;
        let timeout = request.timeout.unwrap_or_else(|| self.door.call_timeout());
        self.submit(Entry::Call { connection: self.connection, token, arguments, request });
        self.next_token += 1;
        // With no other Call under way, the timeouts of ended Calls no longer count.
        let others = if self.begun == 0 { Duration::ZERO } else { self.patience };
        self.patience = others.max(timeout);
        self.begun += 1;
        Ok(token)
    }

    /// Waits until one of the begun Calls has ended, and returns its end. Calls end in any order.
    ///
    /// # Errors
    /// `NothingBegun` if no Call is under way, `TimedOut` if the core does not answer, `Closed` if the core is gone.
    pub fn ended(&mut self) -> Result<Ended, CallError> {
        loop {
            if let Some(ended) = self.ended.pop_front() {
                self.begun -= 1;
                return Ok(ended);
            }
            if self.begun == 0 {
                return Err(CallError::NothingBegun);
            }
            let ended = self.next_from_core()?;
            self.ended.extend(ended);
        }
    }

    /// Closes the connection in order, for every client of it. Calls on it that have not ended fail.
    pub fn close(mut self) {
        self.submit(Entry::Close(self.connection));
    }

    /// Gives a Reply's buffer back for the next Call, once its results have been read.
    pub fn recycle(&mut self, reply: RemoteReply) {
        self.keep(reply.buffer);
    }

    /// Waits for the next completion from the core. Returns the Call that ended, if the completion is about one.
    fn next_from_core(&mut self) -> Result<Option<Ended>, CallError> {
        // The core reports timeouts itself; this deadline only guards against a core that is gone.
        let completion = self.wait(self.patience.saturating_add(LEASE_TIMEOUT))?;
        Ok(self.on_end(completion))
    }

    fn on_end(&mut self, completion: Completion) -> Option<Ended> {
        let Completion::Call { token, buffer, results, arguments, rooms } = completion else {
            // The answer to a request for a lease that timed out; the lease goes home.
            self.leases_due -= 1;
            return None;
        };
        if let Ok(Reduction { inline_room: Some(room), .. }) = &results {
            self.inline_room = *room;
        }
        if let Some(at) = self.given_up.iter().position(|given_up| *given_up == token) {
            self.given_up.swap_remove(at);
            self.begun -= 1;
            return None;
        }
        Some(match results {
            Ok(reduction) => (token, Ok(RemoteReply { buffer, reduction, arguments, rooms })),
            Err(error) => {
                self.keep(buffer);
                (token, Err(Failed { error, arguments, rooms }))
            }
        })
    }

    fn keep(&mut self, buffer: Option<Local>) {
        // A longer buffer was leased for a longer Reply and goes home.
        self.buffers.extend(buffer.filter(|buffer| buffer.capacity() < 2 * INLINE_SIZE));
    }

    fn submit(&mut self, entry: Entry) {
        let pushed = self.entries.push(entry);
        assert!(pushed.is_ok(), "the ring holds every entry that the client may have in flight");
        self.door.announce(self.number);
    }

    /// Waits for the next completion: spins as long as that pays, then sleeps.
    fn wait(&mut self, patience: Duration) -> Result<Completion, CallError> {
        let mut now = clock::now();
        let deadline = now.saturating_add(patience);
        self.waiting.begin(now);
        loop {
            for _ in 0..LOOKS_PER_READING {
                if let Ok(completion) = self.completions.pop() {
                    self.waiting.worked(now);
                    return Ok(completion);
                }
                std::hint::spin_loop();
            }
            now = clock::now();
            if !self.waiting.sleeps(now) {
                continue;
            }
            self.wake.sleeping.store(true, Ordering::Relaxed);
            // Pairs with the fence in `Wake::signal`: either the core sees `sleeping`, or we see its push.
            fence(Ordering::SeqCst);
            if self.completions.is_empty() && !self.completions.is_abandoned() && now < deadline {
                wake::wait(&self.wake.waker, deadline.saturating_since(now));
            }
            self.wake.sleeping.store(false, Ordering::Relaxed);
            let slept = std::mem::replace(&mut now, clock::now());
            self.waiting.woke(slept, now);
            if self.completions.is_empty() {
                if self.completions.is_abandoned() {
                    return Err(CallError::Closed);
                }
                if now >= deadline {
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

/// How often `wait` looks at the ring for each reading of the clock.
const LOOKS_PER_READING: u32 = 32;

/// How long a core may take to answer a request that needs no peer.
const LEASE_TIMEOUT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use haulage_mr_pool::{PagePreference, Pool, PoolConfig};

    use super::*;
    use crate::core::inbox::Inbox;
    use crate::core::table::Table;
    use crate::key::OfConnection;
    use crate::limits::{LIMITS_DEFAULT, Limits};
    use crate::sys::wake::Waker;

    #[test]
    fn a_call_without_a_timeout_of_its_own_is_waited_for_as_long_as_its_core_does() {
        let call_timeout = 10 * LEASE_TIMEOUT;
        let limits = Limits { call_timeout, ..LIMITS_DEFAULT };
        let inbox = Inbox::new(&limits, Waker::new().unwrap());
        let key = Table::<(), OfConnection>::new(1, 0).insert(()).unwrap();
        let mut client = RemoteClient::new(inbox.door(), ConnectionId(key)).unwrap();
        let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&config).unwrap();
        client.buffers.push(pool.lease(INLINE_SIZE).unwrap());
        let request = Request::new(0);
        client.begin(request, |_| Ok(())).unwrap();
        assert_eq!(client.patience, call_timeout);
    }
}
