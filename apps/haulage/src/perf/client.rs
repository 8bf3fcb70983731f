//! The core of the benchmark's client.

use haulage::core::{ConnectOptions, Core, Cx};
use haulage::cores::{self, CoreThread, Placement as Thread};
use haulage::identity::Identity;
use haulage::proto::time::Instant;
use haulage::provider::ConnectError;
use haulage::provider::Provider;
use haulage::service::{Binding, CallError, ConnectionId};
use haulage::sys::clock;
use haulage_kv::figures::Figures;

use super::load::{Driver, Load, Pace, Stopped, Work};
use super::progress::Progress;
use super::protocol::CoreFigures;
use super::tally::Tally;
use crate::calling::Callee;
use crate::failure::Failure;
use crate::node::{Carrier, NodeConfig, Notes};
use crate::output::progress::Step;

/// The configuration of a client.
#[derive(Debug)]
pub(crate) struct Client {
    /// The server, and the timeouts.
    pub(crate) callee: Callee,
    /// The binding of the server's program.
    pub(crate) binding: Binding,
    /// The identity that the Calls claim.
    pub(crate) identity: Identity,
    /// Number of connections.
    pub(crate) connections: u32,
    /// Number of connections on which Calls are made.
    pub(crate) active: u32,
    /// The configuration of the client's core.
    pub(crate) node: NodeConfig,
}

/// The running cores of a benchmark's clients, which this thread gives work.
#[derive(Debug)]
pub(crate) struct Clients<W>(Vec<AtWork<W>>);

/// A running client's core.
#[derive(Debug)]
struct AtWork<W> {
    core: CoreThread<Started<W>>,
    callee: Callee,
    /// The connections of all clients.
    connections: u32,
}

/// What a client knows of those that are started with it.
#[derive(Clone, Debug)]
struct Beside {
    /// The cores of the server whose counters they ask for.
    watched: Vec<u64>,
    /// The connections of all clients, itself included.
    connections: u32,
}

/// What is made beside a client's core.
#[derive(Debug)]
struct Started<W> {
    driver: Driver<W>,
    notes: Notes,
    idle: Option<Idle>,
    /// The cores of the server whose counters this client asks for.
    watched: Vec<u64>,
}

/// The memory of an idle connection at each end, in octets, from the growth of the process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    /// Octets at the server.
    pub(crate) server: u64,
    /// Octets at the client.
    pub(crate) client: u64,
}

impl Client {
    /// Starts the client's core, which connects.
    fn start<P: Carrier, W: Work>(
        self,
        thread: Thread,
        beside: Beside,
    ) -> Result<AtWork<W>, Failure> {
        let Self { callee, binding, identity, connections, active, node } = self;
        let (called, connections_all) = (callee.clone(), beside.connections);
        let core = cores::start(thread, move || {
            let mut driver = None;
            let (mut core, notes) = node.build::<P, _>(|_, waker| {
                let (load, made) = Load::<W>::new(waker.clone());
                driver = Some(made);
                Ok(load)
            })?;
            let driver = driver.ok_or_else(|| Failure::failed("a core has one service"))?;
            let _step = Step::begin(format_args!("connecting to {}", called.to));
            let mut connecting =
                Connecting { core: &mut core, callee: called, binding, identity, beside };
            let (made, idle) = connecting.all(connections as usize)?;
            let found = connecting.watch(&made)?;
            let watched = found.iter().map(|(figures, _)| figures.core.number).collect();
            let evenly = made.iter().step_by((connections / active.max(1)).max(1) as usize);
            let chosen = evenly.take(active as usize).copied().collect();
            let (_, load) = core.cx(clock::now());
            load.connections = chosen;
            load.watched = found.into_iter().map(|(_, connection)| connection).collect();
            Ok::<_, Failure>((core, Started { driver, notes, idle, watched }))
        })?;
        Ok(AtWork { core, callee, connections: connections_all })
    }
}

/// A core that makes a client's connections.
struct Connecting<'a, P: Provider, W: Work> {
    core: &'a mut Core<P, Load<W>>,
    callee: Callee,
    binding: Binding,
    identity: Identity,
    /// What the other clients have.
    beside: Beside,
}

impl<P: Provider, W: Work> Connecting<'_, P, W> {
    /// Opens `count` connections. If there are at least [`CENSUS_MIN`], and no other client yet, also measures the memory of
    /// an idle one.
    ///
    /// A connection that failed is reported by the first Call on it.
    fn all(&mut self, count: usize) -> Result<(Vec<ConnectionId>, Option<Idle>), Failure> {
        let mut made = Vec::with_capacity(count);
        if count < CENSUS_MIN || !self.beside.watched.is_empty() {
            self.more(&mut made, count)?;
            return Ok((made, None));
        }
        self.more(&mut made, 1)?;
        let before = self.census(&made)?;
        while made.len() < count {
            let more = AT_ONCE.min(count - made.len());
            self.more(&mut made, more)?;
        }
        let [server, client] = self.census(&made)?;
        let each = |after: Figures, before| {
            let grown = after.since(before);
            grown.memory / grown.connections.max(1)
        };
        let idle = Idle { server: each(server, before[0]), client: each(client, before[1]) };
        Ok((made, Some(idle)))
    }

    /// Opens `count` more connections, and waits until each is set up or has failed.
    fn more(&mut self, made: &mut Vec<ConnectionId>, count: usize) -> Result<(), Failure> {
        let old = made.len();
        for _ in 0..count {
            let options = ConnectOptions::new(self.binding.clone()).identity(self.identity.clone());
            made.push(self.callee.connection(self.core, options)?);
        }
        let new = made.get(old..).unwrap_or_default();
        self.turn_until(|cx, _| {
            let connecting = new.iter().any(|connection| cx.is_connecting(*connection));
            (!connecting).then_some(())
        });
        Ok(())
    }

    /// Returns the counters of the server and of this core.
    fn census(&mut self, made: &[ConnectionId]) -> Result<[Figures; 2], Failure> {
        let mut server = Figures::default();
        self.watch(made)?.into_iter().for_each(|(of_core, _)| server += of_core.figures);
        let (cx, _) = self.core.cx(clock::now());
        Ok([server, Figures::of(&cx)])
    }

    /// Finds a connection on each core of the server that no other client watches, as far as there is one. Returns them
    /// with the counters of their cores.
    fn watch(
        &mut self,
        made: &[ConnectionId],
    ) -> Result<Vec<(CoreFigures, ConnectionId)>, Failure> {
        let mut found: Vec<(CoreFigures, ConnectionId)> = Vec::new();
        for connection in made.iter().take(ASKED_MAX) {
            let (mut cx, load) = self.core.cx(clock::now());
            load.ask(&mut cx, *connection);
            let asked = self.turn_until(|_, load| load.take_asked());
            let figures = asked
                .map_err(|stopped| explain(&self.callee, self.beside.connections, &stopped))?;
            let number = figures.core.number;
            let is_found = found.iter().any(|(found, _)| found.core.number == number);
            if !is_found && !self.beside.watched.contains(&number) {
                found.push((figures, *connection));
            }
            if (found.len() + self.beside.watched.len()) as u64 >= figures.core.count {
                break;
            }
        }
        Ok(found)
    }

    /// Turns the core until `happened` returns a value, which the core's timeouts guarantee.
    fn turn_until<T>(&mut self, mut happened: impl FnMut(&Cx<'_>, &mut Load<W>) -> Option<T>) -> T {
        loop {
            let now = clock::now();
            let worked = self.core.turn(now);
            let (cx, load) = self.core.cx(now);
            if let Some(what) = happened(&cx, load) {
                return what;
            }
            if !worked {
                let limit = self.core.poll_deadline();
                self.core.sleep(limit.map(|deadline| deadline.saturating_since(now)));
            }
        }
    }
}

impl<W: Work> Clients<W> {
    /// Starts clients one after another, each of which connects. Each asks for the counters of those cores of the server
    /// whose counters none before it asks for.
    ///
    /// # Errors
    /// A core cannot be started, or does not reach the server.
    pub(crate) fn start<P: Carrier>(clients: Vec<(Client, Thread)>) -> Result<Self, Failure> {
        let connections = clients.iter().map(|(client, _)| client.connections).sum();
        let (mut beside, mut started) = (Beside { watched: Vec::new(), connections }, Vec::new());
        for (client, thread) in clients {
            let client: AtWork<W> = client.start::<P, _>(thread, beside.clone())?;
            beside.watched.extend(&client.core.started.watched);
            started.push(client);
        }
        Ok(Self(started))
    }

    /// Runs a job: each client does one of `works`, at its part of the pace, all at once. Shows the progress. Returns
    /// the results of all clients together, and what became of their works, in the same order.
    ///
    /// # Errors
    /// The reason that one of the clients stopped, with what to do.
    pub(crate) fn run(
        &self,
        pace: Pace,
        works: Vec<W>,
        progress: &Progress,
    ) -> Result<(Tally, Vec<W>), Failure> {
        let count = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        for ((number, client), work) in (0..).zip(&self.0).zip(works) {
            client.begin(pace.part(number, count), work)?;
        }
        let (started, mut all, mut works) = (clock::now(), Tally::default(), Vec::new());
        for client in &self.0 {
            let (tally, work) = client.wait(started, progress)?;
            all.merge(tally);
            works.push(work);
        }
        Ok((all, works))
    }

    /// Returns the notes about each core for the user.
    pub(crate) fn notes(&self) -> impl Iterator<Item = &Notes> {
        self.0.iter().map(|client| &client.core.started.notes)
    }

    /// Returns the memory of an idle connection, if the first client opened at least [`CENSUS_MIN`] connections.
    pub(crate) fn idle(&self) -> Option<Idle> {
        self.0.first().and_then(|client| client.core.started.idle)
    }

    /// Ends the cores.
    ///
    /// # Errors
    /// One of them failed.
    pub(crate) fn stop(self) -> Result<(), Failure> {
        self.0.into_iter().try_for_each(|client| Ok(client.core.stop()?))
    }
}

impl<W: Work> AtWork<W> {
    /// Begins a job.
    fn begin(&self, pace: Pace, work: W) -> Result<(), Failure> {
        self.core.started.driver.begin(pace, work).ok_or_else(died)
    }

    /// Waits for the end of the job, and shows the progress of the jobs that began at `started`.
    fn wait(&self, started: Instant, progress: &Progress) -> Result<(Tally, W), Failure> {
        loop {
            if let Some(ended) = self.core.started.driver.wait(progress.interval()) {
                return ended.map_err(|stopped| explain(&self.callee, self.connections, &stopped));
            }
            if self.core.is_finished() {
                return Err(died());
            }
            progress.tick(clock::now().saturating_since(started));
        }
    }
}

fn died() -> Failure {
    Failure::failed("the client's core died")
}

/// Converts the reason that a job stopped to a one-line message that says what to do.
fn explain(callee: &Callee, connections: u32, stopped: &Stopped) -> Failure {
    let Callee { to, served_by, .. } = callee;
    Failure::failed(match stopped {
        // A server that turns a connection away, or closes it in favour of another, cannot say why.
        Stopped::Call(
            error @ (CallError::Disconnected(_)
            | CallError::Unready(_)
            | CallError::Closed
            | CallError::Connect(ConnectError::Rejected)),
        ) if connections > 1 => {
            format!(
                "{to}: {error}; check that the server runs, and that one address may have {connections} connections \
                 there: half of its --connections"
            )
        }
        Stopped::Call(CallError::Busy) => {
            format!("{to} takes no more calls; lower --depth or --connections")
        }
        Stopped::Call(error) => return callee.explain(error),
        Stopped::NoMemory => {
            "the client has no memory for so many items; lower --depth or --connections".to_owned()
        }
        Stopped::Refused(why) => format!("{to} refuses: {why}"),
        Stopped::OtherValue(what) => format!("{to}: {what}"),
        Stopped::BadReply => format!("{to} sends invalid replies; check that it is `{served_by}`"),
    })
}

/// Minimum number of connections for measuring the memory of an idle one: with fewer, the result would be noise.
const CENSUS_MIN: usize = 512;
/// Maximum number of connections in setup at the same time, which every listener can keep up with.
const AT_ONCE: usize = 64;
/// Maximum number of connections that are asked which core they are on, when a client looks for all cores of a server.
const ASKED_MAX: usize = 256;
