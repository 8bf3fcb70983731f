//! One iWARP connection to any peer, for a thread that blocks.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use haulage::provider::iwarp::{Config, Iwarp, ListenerId};
use haulage::provider::{
    ConnectError, ConnectionParams, DisconnectReason, Done, Event, Operation, Provider, Receive,
    WorkRequest,
};
use haulage::sys::{clock, complete};
use haulage_mr_pool::{Exposed, Local, PagePreference, Pool, PoolConfig, PostedSink, PostedSource};
use haulage_proto::time::Instant;
use haulage_proto::verbs::{
    Access, ClaimedSegment, Flags, Handle, Opcode, QpNum, Segment, Status, WrId,
};

use crate::by_number::ByNumber as _;

/// A provider with one connection at a time, and the leases posted on it.
#[derive(Debug)]
pub struct Link {
    provider: Iwarp,
    pool: Pool,
    qp: QpNum,
    ids: u64,
    receives: BTreeMap<u64, PostedSink>,
    sources: BTreeMap<u64, PostedSource<Local>>,
    reads: BTreeMap<u64, PostedSink>,
    exposed: BTreeMap<u32, Exposed>,
    /// Leases that the peer has lost access to, by their handles.
    retired: BTreeMap<u32, Local>,
    /// Contents fetched by Reads, by the request.
    fetched: BTreeMap<u64, Vec<u8>>,
    invalidations: u32,
    events: Vec<Event<ListenerId>>,
    messages: VecDeque<Vec<u8>>,
}

/// The reason why there is no connection, or no result.
#[derive(Debug)]
pub enum Failure {
    /// The connection was not established.
    Setup(ConnectError),
    /// The connection ended.
    Ended(DisconnectReason),
    /// Nothing happened in time.
    Waited(&'static str),
    /// An error on this side.
    Local(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup(error) => error.fmt(f),
            Self::Ended(reason) => reason.fmt(f),
            Self::Waited(what) => write!(f, "waited in vain for {what}"),
            Self::Local(what) => f.write_str(what),
        }
    }
}

impl From<Failure> for String {
    fn from(failure: Failure) -> Self {
        failure.to_string()
    }
}

impl From<String> for Failure {
    fn from(what: String) -> Self {
        Self::Local(what)
    }
}

impl Link {
    /// Connects, serving at most `ird` Reads at once. Returns the private data of the server, too.
    pub fn connect(
        to: SocketAddr,
        config: &Config,
        private_data: &[u8],
        ird: u32,
    ) -> Result<(Self, Box<[u8]>), Failure> {
        Self::connect_as(to, config, &ConnectionParams { private_data, ord: 0, ird })
    }

    /// Connects on these terms. Returns the private data of the server, too.
    pub fn connect_as(
        to: SocketAddr,
        config: &Config,
        params: &ConnectionParams<'_>,
    ) -> Result<(Self, Box<[u8]>), Failure> {
        let mut link = Self::new(config)?;
        link.qp = link.provider.connect(clock::now(), to, params).map_err(Failure::Setup)?;
        let deadline = clock::now().saturating_add(PATIENCE);
        loop {
            match link.turn(deadline, "the connection")? {
                Some(Event::Established { private_data, .. }) => return Ok((link, private_data)),
                Some(Event::Failed { reason, .. }) => return Err(Failure::Setup(reason)),
                _ => {}
            }
        }
    }

    /// Listens at `at`, for one peer after another.
    pub fn listen(at: SocketAddr, config: &Config) -> Result<Self, Failure> {
        Self::listen_at(at, config).map(|(link, _)| link)
    }

    /// Listens at `at`, for one peer after another. Returns the address, too, with the port that the system chose for
    /// port 0.
    pub fn listen_at(at: SocketAddr, config: &Config) -> Result<(Self, SocketAddr), Failure> {
        let mut link = Self::new(config)?;
        let listening = link.provider.listen(at).map_err(|e| Failure::Local(e.to_string()))?;
        Ok((link, listening.1))
    }

    /// Waits at most `patience` for the next peer, and accepts it.
    pub fn accept(&mut self, patience: Duration) -> Result<(), Failure> {
        self.accept_serving(READS, patience)
    }

    /// Waits at most `patience` for the next peer, and accepts it. At most `reads` Reads of the peer are served at once.
    pub fn accept_serving(&mut self, reads: u32, patience: Duration) -> Result<(), Failure> {
        let deadline = clock::now().saturating_add(patience);
        let params = ConnectionParams { private_data: b"", ord: READS, ird: reads };
        loop {
            match self.turn(deadline, "a peer")? {
                Some(Event::Request { qp, .. }) => {
                    self.qp = qp;
                    self.provider.accept(clock::now(), qp, &params);
                }
                Some(Event::Established { .. }) => return Ok(()),
                _ => {}
            }
        }
    }

    /// Sends one message.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Failure> {
        let posted = self.holding(message)?.into_source();
        let source = posted.source(0..message.len()).ok_or_else(no_memory)?;
        let id = self.post(SIGNALED, Operation::Send { source, invalidate: None })?;
        self.sources.insert(id, posted);
        Ok(())
    }

    /// Writes into the peer's memory.
    pub fn write(&mut self, contents: &[u8], target: Segment) -> Result<(), Failure> {
        let target = ClaimedSegment::try_from(target).map_err(|_| unknown())?;
        let posted = self.holding(contents)?.into_source();
        let source = posted.source(0..contents.len()).ok_or_else(no_memory)?;
        let id = self.post(SIGNALED, Operation::Write { source, target })?;
        self.sources.insert(id, posted);
        Ok(())
    }

    /// Reads the peer's memory, and waits for its contents.
    pub fn read(&mut self, source: Segment) -> Result<Vec<u8>, Failure> {
        let length = source.length as usize;
        let source = ClaimedSegment::try_from(source).map_err(|_| unknown())?;
        let mut posted = self.lease(length)?.into_sink();
        let sink = posted.sink(0..length).ok_or_else(no_memory)?;
        let id = self.post(SIGNALED, Operation::Read { sink, source })?;
        self.reads.insert(id, posted);
        let deadline = clock::now().saturating_add(PATIENCE);
        loop {
            if let Some(fetched) = self.fetched.remove(&id) {
                return Ok(fetched);
            }
            self.turn(deadline, "a Read")?;
        }
    }

    /// Waits for a message until `deadline`, if there is one. Returns `None` if the deadline passes.
    pub fn message(&mut self, deadline: Option<Instant>) -> Result<Option<Vec<u8>>, Failure> {
        let patience = clock::now().saturating_add(PATIENCE);
        while self.messages.is_empty() {
            if deadline.is_some_and(|deadline| deadline <= clock::now()) {
                return Ok(None);
            }
            self.turn(deadline.unwrap_or(patience).min(patience), "a message").or_else(
                |failure| match failure {
                    Failure::Waited(_) if deadline.is_some_and(|d| d < patience) => Ok(None),
                    other => Err(other),
                },
            )?;
        }
        Ok(self.messages.pop_front())
    }

    /// Exposes `length` octets to the peer, which begin with `contents`.
    pub fn expose(
        &mut self,
        contents: &[u8],
        length: usize,
        access: Access,
    ) -> Result<Segment, Failure> {
        let mut lease = self.lease(length)?;
        if let Some(start) = lease.bytes_mut().get_mut(..contents.len()) {
            start.copy_from_slice(contents);
        }
        let opened = self.provider.open(self.qp, lease, access);
        let (exposed, segment) = opened.map_err(|_| no_memory())?;
        self.exposed.insert(segment.handle.0, exposed);
        Ok(segment)
    }

    /// Takes an exposed lease back, and posts a LocalInv unless the peer has invalidated its handle already.
    pub fn retire(&mut self, handle: Handle) -> Result<Local, Failure> {
        if self.exposed.contains_key(&handle.0) {
            self.post(SIGNALED, Operation::LocalInv { handle })?;
        }
        let deadline = clock::now().saturating_add(PATIENCE);
        loop {
            if let Some(lease) = self.retired.remove(&handle.0) {
                return Ok(lease);
            }
            self.turn(deadline, "an invalidation")?;
        }
    }

    /// Returns the number of Receives that are posted.
    pub const fn receives() -> u32 {
        RECEIVES
    }

    /// Returns whether the peer has access by `handle`.
    pub fn exposes(&self, handle: Handle) -> bool {
        self.exposed.contains_key(&handle.0)
    }

    /// Returns the number of handles that the peer has invalidated.
    pub const fn invalidations(&self) -> u32 {
        self.invalidations
    }

    /// Closes the connection in order, and waits until it is quiesced.
    pub fn close(mut self) -> Result<(), Failure> {
        self.hang_up()
    }

    /// Like [`Self::close`], but another peer may connect afterwards.
    pub fn hang_up(&mut self) -> Result<(), Failure> {
        self.provider.disconnect(clock::now(), self.qp);
        match self.ended()? {
            DisconnectReason::Local => Ok(()),
            reason => Err(Failure::Ended(reason)),
        }
    }

    /// Waits until a connection that has ended is quiesced.
    pub fn quiesced(&mut self) -> Result<(), Failure> {
        let deadline = clock::now().saturating_add(PATIENCE);
        while !matches!(self.turn(deadline, "the end")?, Some(Event::Quiesced(_))) {}
        Ok(())
    }

    /// Waits until the connection has ended and is quiesced. Returns the reason.
    pub fn ended(&mut self) -> Result<DisconnectReason, Failure> {
        let deadline = clock::now().saturating_add(PATIENCE);
        let mut why = DisconnectReason::Lost;
        loop {
            match self.turn(deadline, "the end") {
                Ok(Some(Event::Quiesced(_))) => return Ok(why),
                Err(Failure::Ended(reason)) => why = reason,
                Ok(_) => {}
                Err(other) => return Err(other),
            }
        }
    }

    fn new(config: &Config) -> Result<Self, Failure> {
        let provider = Iwarp::new(config).map_err(|e| Failure::Local(e.to_string()))?;
        let pool = PoolConfig { bytes: POOL_BYTES, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&pool).map_err(|e| Failure::Local(e.to_string()))?;
        let mut link = Self {
            provider,
            pool,
            qp: QpNum::new(0, 0),
            ids: 0,
            receives: BTreeMap::new(),
            sources: BTreeMap::new(),
            reads: BTreeMap::new(),
            exposed: BTreeMap::new(),
            retired: BTreeMap::new(),
            fetched: BTreeMap::new(),
            invalidations: 0,
            events: Vec::new(),
            messages: VecDeque::new(),
        };
        for _ in 0..RECEIVES {
            link.receive()?;
        }
        Ok(link)
    }

    /// Takes one event, waiting for it until `deadline`. Returns `None` for a completion, which it handles.
    fn turn(
        &mut self,
        deadline: Instant,
        what: &'static str,
    ) -> Result<Option<Event<ListenerId>>, Failure> {
        while self.events.is_empty() {
            let now = clock::now();
            if now >= deadline {
                return Err(Failure::Waited(what));
            }
            self.provider.adopt_own(now);
            self.provider.poll(now, 1, &mut self.events);
            if self.events.is_empty() {
                let next =
                    self.provider.poll_deadline().map_or(deadline, |next| next.min(deadline));
                self.provider.sleep(Some(next.saturating_since(now)));
            }
        }
        match self.events.pop() {
            Some(Event::Completion(done)) => self.on_done(&done).map(|()| None),
            Some(Event::Disconnected { reason, .. }) => Err(Failure::Ended(reason)),
            other => Ok(other),
        }
    }

    fn on_done(&mut self, done: &Done) -> Result<(), Failure> {
        if done.status == Status::Flushed {
            return Ok(());
        }
        if done.status != Status::Success {
            return Err(Failure::Local(format!("a request ended as {:?}", done.status)));
        }
        if let (Some(handle), Some(proof)) = (done.invalidated, complete::invalidated(done)) {
            let exposed = self.exposed.remove(&handle.0).ok_or_else(unknown)?;
            let lease = exposed.fence(proof).map_err(|_| unknown())?;
            self.retired.insert(handle.0, lease);
            self.invalidations += u32::from(done.opcode == Opcode::Receive);
        }
        match done.opcode {
            Opcode::Receive => {
                let posted = self.receives.remove(&done.id.0).ok_or_else(unknown)?;
                let lease = complete::sink(posted, done).ok_or_else(unknown)?;
                let length = done.length as usize;
                self.messages.push_back(lease.bytes().get(..length).unwrap_or_default().to_vec());
                self.receive()
            }
            Opcode::Read => {
                let posted = self.reads.remove(&done.id.0).ok_or_else(unknown)?;
                let lease = complete::sink(posted, done).ok_or_else(unknown)?;
                self.fetched.insert(done.id.0, lease.bytes().to_vec());
                Ok(())
            }
            Opcode::Send | Opcode::Write => {
                let posted = self.sources.remove(&done.id.0).ok_or_else(unknown)?;
                complete::source(posted, done).map(drop).ok_or_else(unknown)
            }
            _ => Ok(()),
        }
    }

    fn receive(&mut self) -> Result<(), Failure> {
        let mut posted = self.lease(MESSAGE)?.into_sink();
        let sink = posted.sink(0..MESSAGE).ok_or_else(no_memory)?;
        self.ids += 1;
        self.receives.insert(self.ids, posted);
        let mut batch = vec![Receive::single(WrId(self.ids), sink)];
        self.provider.post_receives(&mut batch).map_err(|_| no_memory())
    }

    fn post(&mut self, flags: Flags, operation: Operation) -> Result<u64, Failure> {
        self.ids += 1;
        let mut batch = [WorkRequest { id: WrId(self.ids), flags, operation }].into();
        self.provider.post(self.qp, &mut batch).map_err(|_| no_memory())?;
        Ok(self.ids)
    }

    fn holding(&self, contents: &[u8]) -> Result<Local, Failure> {
        let mut lease = self.lease(contents.len())?;
        lease.bytes_mut().copy_from_slice(contents);
        Ok(lease)
    }

    fn lease(&self, length: usize) -> Result<Local, Failure> {
        self.pool.lease(length).ok_or_else(no_memory)
    }
}

fn no_memory() -> Failure {
    Failure::Local("out of memory, handles or room in a queue".to_owned())
}

fn unknown() -> Failure {
    Failure::Local("a completion of something that was not posted".to_owned())
}

/// Maximum time for any step on a busy, emulated machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Length of the largest message in either direction, in octets.
pub const MESSAGE: usize = 4096;

const SIGNALED: Flags = Flags { signaled: true, fence: false, copied: false };
const RECEIVES: u32 = 16;
/// Maximum number of Reads outstanding on an accepted connection, at either end.
const READS: u32 = 16;
const POOL_BYTES: usize = 16 << 20;
