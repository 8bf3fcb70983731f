//! The inbox by which other threads reach a core: pairs of single-producer rings, one pair per client thread.
//!
//! # Normal operation
//! A client pushes entries into its submission ring, sets its bit in the core's ready bitmap and, only if the core said
//! that it sleeps, wakes it. The core takes entries in batches and pushes completions, waking the client only if the
//! client said that it sleeps. There is no lock, and no system call while both are awake.
//!
//! # Limits
//! A client has at most [`CALLS_MAX`] Calls begun whose end its caller does not know, and `LEASES_MAX` leases requested
//! and not answered; it counts both and refuses more. Each takes one entry in either ring, and a ring has as many
//! entries: neither can be full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use haulage_mr_pool::Local;
use haulage_proto::chunk::Returned;
use haulage_proto::negotiate::Version;
use haulage_proto::time::Instant;
use haulage_proto::v1::padding::Padding;
use haulage_proto::xdr::Writer;
use rtrb::{Consumer, Producer, RingBuffer};

use super::common::Common;
use super::requester::{Caller, NewCall, Requester};
use crate::items::Items;
use crate::key::{ClientKey, ConnectionKey, GENERATION_MASK};
use crate::limits::Limits;
use crate::service::{CallError, ConnectionId, Finished, InlineRoom, Request};
use crate::sys::wake::Waker;

/// Calls that one client on another thread may have begun and not yet reported as ended.
pub const CALLS_MAX: usize = 64;

/// Leases that one client may have requested and that the core has not answered.
pub(crate) const LEASES_MAX: usize = 2;

/// Entries of each ring.
const RING: usize = {
    let mut entries = 0;
    entries += CALLS_MAX;
    entries += LEASES_MAX;
    entries += 1; // the end of the connection
    entries
};

/// A core's side: every client that may talk to it.
#[derive(Debug)]
pub(crate) struct Inbox {
    clients: Vec<Option<Client>>,
    door: Door,
    /// Clients whose bits were set and whose entries have not all been taken.
    ready: u64,
    /// The client number at which the search for the next ready client begins: one more than that of the client served
    /// last.
    first: u32,
}

/// Lets other threads become clients of a core.
#[derive(Clone, Debug)]
pub(crate) struct Door {
    shared: Arc<Shared>,
}

/// The state that both sides may touch at any time.
#[derive(Debug)]
struct Shared {
    /// A bit for each client that pushed something. The top bit: a client arrived.
    ready: AtomicU64,
    /// NEED_WAKEUP: the core is asleep or about to be.
    sleeping: AtomicBool,
    /// New clients, made by other threads: at most one for each number.
    arrivals: ArrayQueue<Client>,
    /// Whether the core is gone, and takes no client in.
    closed: AtomicBool,
    /// Client numbers that are taken.
    taken: AtomicU64,
    /// Number of clients that ever arrived, which wraps around.
    arrived: AtomicU32,
    clients_max: u32,
    /// How long a Call may take unless it says otherwise.
    call_timeout: Duration,
    waker: Waker,
}

/// One client, as the core sees it.
#[derive(Debug)]
struct Client {
    /// The slot of the key is the number of the client, its generation the number of clients that arrived before.
    key: ClientKey,
    entries: Consumer<Entry>,
    completions: Producer<Completion>,
    wake: Arc<Wake>,
}

/// How a client thread is woken.
#[derive(Debug)]
pub(crate) struct Wake {
    /// NEED_WAKEUP: the client is asleep or about to be.
    pub(crate) sleeping: AtomicBool,
    pub(crate) waker: Waker,
}

/// A request of a client to a core.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A lease of this many octets.
    Lease { length: usize },
    /// A Call whose other arguments are in `arguments`.
    Call { connection: ConnectionId, token: u64, arguments: Local, request: Request },
    /// The end of a connection.
    Close(ConnectionId),
}

/// An answer of a core to a client.
#[derive(Debug)]
pub(crate) enum Completion {
    /// The lease asked for, or none if the pool has no room.
    Lease(Option<Local>),
    /// A Call ended. `buffer` held its arguments, and now holds its results.
    Call {
        token: u64,
        buffer: Option<Local>,
        results: Result<Reduction, CallError>,
        arguments: Items<Local>,
        rooms: Items<Local>,
    },
}

/// How the results in a [`Completion`]'s buffer are to be read.
#[derive(Clone, Debug)]
pub(crate) struct Reduction {
    /// The Write chunks that were returned.
    pub(crate) returned: Items<Returned>,
    pub(crate) version: Version,
    /// The padding in the results, if there may be any, and their place in the message.
    pub(crate) padding: Option<Box<(Padding, u32)>>,
    /// The room of a message of the connection, if it still exists.
    pub(crate) inline_room: Option<InlineRoom>,
}

impl Inbox {
    pub(crate) fn new(limits: &Limits, waker: Waker) -> Self {
        let clients_max = limits.remote_clients_max.min(ARRIVAL_BIT);
        let shared = Arc::new(Shared {
            ready: AtomicU64::new(0),
            sleeping: AtomicBool::new(false),
            arrivals: ArrayQueue::new(clients_max.max(1) as usize),
            closed: AtomicBool::new(false),
            taken: AtomicU64::new(0),
            arrived: AtomicU32::new(0),
            clients_max,
            call_timeout: limits.call_timeout,
            waker,
        });
        Self {
            clients: std::iter::repeat_with(|| None).take(clients_max as usize).collect(),
            door: Door { shared },
            ready: 0,
            first: 0,
        }
    }

    /// Returns a door, by which another thread becomes a client.
    pub(crate) fn door(&self) -> Door {
        self.door.clone()
    }

    /// Takes at most `budget` entries. Returns how many there were.
    #[inline]
    pub(crate) fn take(
        &mut self,
        requester: &mut Requester,
        common: &mut Common,
        now: Instant,
        budget: usize,
    ) -> usize {
        if self.ready == 0 && self.door.shared.ready.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        self.take_entries(requester, common, now, budget)
    }

    #[inline(never)]
    fn take_entries(
        &mut self,
        requester: &mut Requester,
        common: &mut Common,
        now: Instant,
        budget: usize,
    ) -> usize {
        let shared = &self.door.shared;
        if shared.ready.load(Ordering::Relaxed) != 0 {
            self.ready |= shared.ready.swap(0, Ordering::Acquire);
        }
        if self.ready & (1 << ARRIVAL_BIT) != 0 {
            self.ready &= !(1 << ARRIVAL_BIT);
            while let Some(client) = shared.arrivals.pop() {
                let number = client.key.slot();
                self.ready |= 1 << number;
                if let Some(place) = self.clients.get_mut(number) {
                    *place = Some(client);
                }
            }
        }
        let mut taken = 0;
        while taken < budget && self.ready != 0 {
            let number = self.next_ready();
            let client = self.clients.get_mut(number as usize).and_then(Option::as_mut);
            match client.and_then(|client| Some((client.key, client.entries.pop().ok()?))) {
                Some((key, entry)) => {
                    taken += 1;
                    self.first = number + 1;
                    self.on_entry(requester, common, now, key, entry);
                }
                None => {
                    self.ready &= !(1 << number);
                    self.retire(number);
                }
            }
        }
        taken
    }

    /// Returns the number of the ready client whose turn is next. Clients take turns, so that none uses up the budget
    /// of every turn.
    const fn next_ready(&self) -> u32 {
        let later = self.ready & (u64::MAX << self.first);
        if later == 0 { self.ready.trailing_zeros() } else { later.trailing_zeros() }
    }

    fn on_entry(
        &mut self,
        requester: &mut Requester,
        common: &mut Common,
        now: Instant,
        client: ClientKey,
        entry: Entry,
    ) {
        match entry {
            Entry::Lease { length } => {
                let lease = common.pool.lease(length);
                self.push(client, Completion::Lease(lease));
            }
            Entry::Call { connection, token, arguments, mut request } => {
                let caller = Caller::Remote { client, token };
                let encode = |w: &mut Writer<'_>| w.put(arguments.bytes());
                let Request { procedure, timeout, .. } = request;
                let new = NewCall { now, procedure, timeout, caller };
                match requester.call(common, connection.0, new, &mut request, encode) {
                    Ok(slot) => requester.calls.lend(slot, arguments),
                    Err(error) => self.push(
                        client,
                        Completion::Call {
                            token,
                            buffer: Some(arguments),
                            results: Err(error),
                            arguments: request.arguments.into_leases(),
                            rooms: request.rooms,
                        },
                    ),
                }
            }
            Entry::Close(connection) => common.close(connection.0, CallError::Closed),
        }
    }

    /// Tells a client how its Call ended, and which connection it was on. The results are copied into the buffer that the
    /// client lent, or into a longer one.
    pub(crate) fn complete(
        &mut self,
        common: &Common,
        (client, token): (ClientKey, u64),
        (mut buffer, connection): (Option<Local>, Option<ConnectionKey>),
        finished: Finished<'_>,
    ) {
        let Finished { results, arguments, rooms } = finished;
        let results = results.and_then(|reader| {
            let bytes = reader.rest();
            if buffer.as_ref().is_none_or(|buffer| buffer.capacity() < bytes.len()) {
                buffer = common.pool.lease(bytes.len());
            }
            let buffer = buffer.as_mut().ok_or(CallError::NoMemory)?;
            buffer.set_len(bytes.len());
            buffer.bytes_mut().copy_from_slice(bytes);
            let connection = connection.and_then(|key| common.connections.get(key));
            let inline_room = connection.map(|found| found.session.inline_room());
            let (returned, version) = (reader.returned().collect(), reader.version());
            let padding = reader.padding().map(Box::new);
            Ok(Reduction { returned, version, padding, inline_room })
        });
        self.push(client, Completion::Call { token, buffer, results, arguments, rooms });
    }

    /// Announces that the core is about to sleep; false if something arrived and it must not.
    pub(crate) fn begin_sleep(&self) -> bool {
        let shared = &self.door.shared;
        shared.sleeping.store(true, Ordering::Relaxed);
        // Pairs with the fence in `Door::announce`: either the client sees `sleeping`, or we see its bit.
        fence(Ordering::SeqCst);
        self.ready == 0 && shared.ready.load(Ordering::Relaxed) == 0
    }

    /// Announces that the core is awake.
    pub(crate) fn end_sleep(&self) {
        self.door.shared.sleeping.store(false, Ordering::Relaxed);
    }

    fn push(&mut self, key: ClientKey, completion: Completion) {
        let client = self.clients.get_mut(key.slot()).and_then(Option::as_mut);
        // The end of a Call whose client is gone is dropped here, and its leases go home.
        let Some(client) = client.filter(|client| client.key == key) else { return };
        // A client that is gone counts nothing; a completion that finds no room in its ring is dropped here, and its
        // leases go home.
        let pushed = client.completions.push(completion);
        assert!(
            pushed.is_ok() || client.completions.is_abandoned(),
            "the client counts its entries in flight, and the ring holds a completion for each"
        );
        client.wake.signal();
    }

    /// Forgets a client whose thread has gone and whose entries have all been taken.
    fn retire(&mut self, number: u32) {
        let Some(place) = self.clients.get_mut(number as usize) else { return };
        // `is_abandoned` is asked first, because the client may push entries until it goes.
        let is_over = |entries: &Consumer<Entry>| entries.is_abandoned() && entries.is_empty();
        if place.as_ref().is_some_and(|client| is_over(&client.entries)) {
            *place = None;
            self.door.shared.taken.fetch_and(!(1 << number), Ordering::Release);
        }
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        let shared = &self.door.shared;
        shared.closed.store(true, Ordering::Relaxed);
        // Pairs with the fence in `Door::enter`.
        fence(Ordering::SeqCst);
        self.clients.drain(..).flatten().for_each(Client::abandon);
        shared.abandon_arrivals();
    }
}

impl Shared {
    /// Lets go of the clients that arrived at a core that is gone.
    fn abandon_arrivals(&self) {
        while let Some(client) = self.arrivals.pop() {
            client.abandon();
        }
    }
}

impl Client {
    /// Abandons the rings, and wakes the client to find that out.
    fn abandon(self) {
        let Self { entries, completions, wake, .. } = self;
        drop((entries, completions));
        wake.signal();
    }
}

/// A new client's ends of its rings.
#[derive(Debug)]
pub(crate) struct Entered {
    pub(crate) number: u32,
    pub(crate) entries: Producer<Entry>,
    pub(crate) completions: Consumer<Completion>,
    pub(crate) wake: Arc<Wake>,
}

impl Door {
    /// Becomes a client, or `None` if there are too many already.
    pub(crate) fn enter(&self) -> Option<Entered> {
        let shared = &self.shared;
        // The waker is made before a number is taken: if making it fails, no number stays taken.
        let waker = Waker::new().ok()?;
        let number = shared
            .taken
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |taken| {
                let free = taken.trailing_ones();
                (free < shared.clients_max).then(|| taken | 1 << free)
            })
            .ok()?
            .trailing_ones();
        let generation = shared.arrived.fetch_add(1, Ordering::Relaxed);
        let key = ClientKey::new(number, generation & GENERATION_MASK);
        let wake = Arc::new(Wake { sleeping: AtomicBool::new(false), waker });
        let (entries_in, entries) = RingBuffer::new(RING);
        let (completions, completions_out) = RingBuffer::new(RING);
        let client = Client { key, entries, completions, wake: Arc::clone(&wake) };
        // The queue of arrivals has a slot for each number.
        shared.arrivals.push(client).ok()?;
        // Pairs with the fence in `Inbox::drop`: either the core finds the client, or we find the core gone.
        fence(Ordering::SeqCst);
        if shared.closed.load(Ordering::Relaxed) {
            shared.abandon_arrivals();
            return None;
        }
        self.announce(ARRIVAL_BIT);
        Some(Entered { number, entries: entries_in, completions: completions_out, wake })
    }

    /// Returns how long a Call may take unless it says otherwise.
    pub(crate) fn call_timeout(&self) -> Duration {
        self.shared.call_timeout
    }

    /// Tells the core that client `number` pushed something.
    pub(crate) fn announce(&self, number: u32) {
        let shared = &self.shared;
        shared.ready.fetch_or(1 << number, Ordering::Release);
        // Pairs with the fence in `Inbox::begin_sleep`.
        fence(Ordering::SeqCst);
        if shared.sleeping.load(Ordering::Relaxed) {
            shared.waker.wake();
        }
    }
}

impl Wake {
    /// Wakes the client if it sleeps.
    fn signal(&self) {
        // Pairs with the fence in `RemoteClient`'s wait.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) {
            self.waker.wake();
        }
    }
}

/// The bit that says that a client arrived; clients have the bits below.
const ARRIVAL_BIT: u32 = 63;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::LIMITS_DEFAULT;

    fn inbox(remote_clients_max: u32) -> Inbox {
        let limits = Limits { remote_clients_max, ..LIMITS_DEFAULT };
        Inbox::new(&limits, Waker::new().unwrap())
    }

    #[test]
    fn a_core_that_is_gone_lets_go_of_who_was_at_its_door_and_lets_nobody_in() {
        let inbox = inbox(2);
        let door = inbox.door();
        let early = door.enter().unwrap();
        assert!(!early.entries.is_abandoned());
        drop(inbox);
        assert!(early.entries.is_abandoned(), "it would wait for ever");
        assert!(door.enter().is_none());
    }

    #[test]
    fn a_core_that_goes_wakes_the_clients_that_wait_for_it() {
        let mut inbox = inbox(2);
        let waits = |entered: &Entered| entered.wake.sleeping.store(true, Ordering::Relaxed);
        let known = inbox.door().enter().unwrap();
        inbox.clients[0] = inbox.door.shared.arrivals.pop();
        let arriving = inbox.door().enter().unwrap();
        let clients = [known, arriving];
        clients.iter().for_each(waits);
        drop(inbox);
        for client in clients {
            assert!(client.completions.is_abandoned());
            assert!(client.wake.waker.take(), "client {} sleeps on", client.number);
        }
    }

    #[test]
    fn a_client_that_pushes_just_before_it_goes_stays_until_its_entry_is_taken() {
        let mut inbox = inbox(1);
        let mut entered = inbox.door().enter().unwrap();
        inbox.clients[0] = inbox.door.shared.arrivals.pop();
        entered.entries.push(Entry::Lease { length: 1 }).unwrap();
        drop(entered);
        inbox.retire(0);
        assert!(inbox.clients[0].is_some(), "its entry would be lost");
        inbox.clients[0].as_mut().unwrap().entries.pop().unwrap();
        inbox.retire(0);
        assert!(inbox.clients[0].is_none());
    }
}
