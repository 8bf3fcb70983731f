//! The client of the benchmark: a service that keeps Calls in flight from within its core.
//!
//! # Normal operation
//! The load runs one job at a time: it makes Calls to warm up, then Calls that count. After either phase, when no Call
//! is in flight, it asks the cores of the server that it watches for their counters, one after another. A closed loop makes the next Call when one has ended. An open
//! loop makes Calls when they are due, whether earlier ones have ended or not. [`Work`] defines the Calls.
//!
//! # Time
//! Reading the clock can cost as much as a Call. With one Call in flight, Calls are timed by the start of the core's
//! turns, which the core reads anyway: each Call begins in the turn in which the last one ended, so that their times
//! add up to the total. With several in flight, one in [`SAMPLE`] is timed. In an open loop, each Call is timed from
//! when it was due to the first read of the clock in the turn in which it ended.

use std::sync::mpsc;
use std::time::Duration;

use haulage::core::{Cx, Service};
use haulage::proto::time::Instant;
use haulage::proto::xdr::Reader;
use haulage::provider::Waker;
use haulage::service::{CallError, ConnectionId, Finished, Request};
use haulage::sys::clock;
use haulage_kv::figures::Figures;

use super::arrivals::Arrivals;
use super::protocol::CoreFigures;
use super::tally::Tally;

/// The kind of Calls that a load makes.
pub trait Work: Send + 'static {
    /// The state that one Call after another reuses, such as memory for its item.
    type Slot: std::fmt::Debug;

    /// The procedure that answers with [`CoreFigures`].
    const FIGURES: u32;

    /// Creates a slot; `None` if there is no memory for it.
    fn slot(&mut self, cx: &Cx<'_>) -> Option<Self::Slot>;

    /// Makes a Call with this token.
    ///
    /// # Errors
    /// The Call cannot be made.
    fn make(
        &mut self,
        cx: &mut Cx<'_>,
        connection: ConnectionId,
        slot: &mut Self::Slot,
        token: u64,
    ) -> Result<(), CallError>;

    /// Takes the results of a Call, and its resources back into the slot.
    ///
    /// # Errors
    /// The Call failed, or its results are wrong.
    fn ended(
        &mut self,
        cx: &mut Cx<'_>,
        slot: &mut Self::Slot,
        finished: Finished<'_>,
    ) -> Result<(), Stopped>;

    /// Returns the procedure by which the server tells more than [`CoreFigures`], if this work wants to know. It is called
    /// on one connection, before and after the Calls that count.
    fn asks(&self) -> Option<u32> {
        None
    }

    /// Takes the results of the procedure that [`Work::asks`] returns.
    ///
    /// # Errors
    /// The Call failed, or its results are wrong.
    fn told(&mut self, _: Moment, _: Finished<'_>) -> Result<(), Stopped> {
        Ok(())
    }

    /// Begins the phase in which Calls count.
    fn begin(&mut self) {}

    /// Returns whether there are Calls left to make.
    fn is_left(&self) -> bool {
        true
    }
}

/// The number of Calls in flight, their rate, and the duration of a job.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Calls in flight on each connection: in a closed loop always, in an open loop at most.
    pub depth: u32,
    /// Arrivals a second of an open loop; `None` for a closed loop.
    pub rate: Option<f64>,
    /// Duration of the warm-up.
    pub warm: Duration,
    /// Duration of the phase in which Calls count.
    pub time: Duration,
    /// Chooses the arrivals of an open loop.
    pub seed: u64,
    /// The Calls of a closed loop that are timed, the same for all clients: the latencies of one that timed more would
    /// count for more.
    pub timed: Timed,
}

/// The Calls of a closed loop that are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// Each Call.
    Each,
    /// One in [`SAMPLE`].
    Sampled,
}

impl Timed {
    /// Returns what is timed where a client has at most `in_flight` Calls in flight.
    #[must_use]
    pub const fn of(in_flight: u32) -> Self {
        if in_flight == 1 { Self::Each } else { Self::Sampled }
    }
}

impl Pace {
    /// Divides this pace among `count` clients: together they make as many Calls a second as this pace says. Returns the part of
    /// client `number`, whose arrivals have a seed of their own.
    #[must_use]
    pub fn part(self, number: u32, count: u32) -> Self {
        let rate = self.rate.map(|rate| rate / f64::from(count));
        let seed = self.seed.wrapping_mul(u64::from(number) * 2 + 1);
        Self { rate, seed, ..self }
    }
}

/// The end of a job: its results and its work, or the reason it stopped.
pub type Ended<W> = Result<(Tally, W), Stopped>;

/// The reason that a job could not be finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// A Call failed.
    Call(CallError),
    /// The client has no memory for the items.
    NoMemory,
    /// The server refuses.
    Refused(String),
    /// The server has another value than was stored, as this says.
    OtherValue(String),
    /// A Reply is malformed or wrong.
    BadReply,
}

impl From<CallError> for Stopped {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Gives jobs to a [`Load`], from another thread.
#[derive(Debug)]
pub struct Driver<W> {
    jobs: mpsc::Sender<(Pace, W)>,
    ended: mpsc::Receiver<Ended<W>>,
    waker: Waker,
}

impl<W> Driver<W> {
    /// Begins a job. `None` if the core has ended.
    pub fn begin(&self, pace: Pace, work: W) -> Option<()> {
        self.jobs.send((pace, work)).ok()?;
        self.waker.wake();
        Some(())
    }

    /// Waits at most `time` for the end of the job. Returns `None` if it has not ended, or the core has.
    pub fn wait(&self, time: Duration) -> Option<Ended<W>> {
        self.ended.recv_timeout(time).ok()
    }
}

/// The service of the client's core.
#[derive(Debug)]
pub struct Load<W: Work> {
    /// The connections on which Calls are made, in turn.
    pub connections: Vec<ConnectionId>,
    /// A connection on each core of the server whose counters are asked for.
    pub watched: Vec<ConnectionId>,
    jobs: mpsc::Receiver<(Pace, W)>,
    ended: mpsc::Sender<Ended<W>>,
    running: Option<Running<W>>,
    /// The counters of a core of the server, asked for without a job.
    asked: Option<Result<CoreFigures, Stopped>>,
}

impl<W: Work> Load<W> {
    /// Creates a load, and the driver that gives it jobs; `waker` wakes the load's core.
    pub fn new(waker: Waker) -> (Self, Driver<W>) {
        let (jobs_in, jobs) = mpsc::channel();
        let (ended, ended_out) = mpsc::channel();
        let (connections, watched) = (Vec::new(), Vec::new());
        let load = Self { connections, watched, jobs, ended, running: None, asked: None };
        (load, Driver { jobs: jobs_in, ended: ended_out, waker })
    }

    /// Asks the core of the server on which `connection` is for its counters, while there is no job.
    pub(super) fn ask(&mut self, cx: &mut Cx<'_>, connection: ConnectionId) {
        let request = figures_of::<W>();
        self.asked = match cx.call(connection, request, FIGURES, |_| Ok(())) {
            Ok(()) => None,
            Err((error, _)) => Some(Err(error.into())),
        };
    }

    /// Returns the counters that were asked for, once they have arrived.
    pub(super) const fn take_asked(&mut self) -> Option<Result<CoreFigures, Stopped>> {
        self.asked.take()
    }

    fn begin(&mut self, cx: &mut Cx<'_>, pace: Pace, work: W) {
        match Running::new(cx, pace, work, &self.connections, &self.watched) {
            Some(running) => {
                let running = self.running.insert(running);
                if !running.pace.warm.is_zero() {
                    running.start(cx, Phase::WarmUp);
                }
                self.settle(cx);
            }
            None => self.end(Err(Stopped::NoMemory)),
        }
    }

    /// Enters the next stage while no Call is in flight. A stage without Calls to make is skipped at once, since no
    /// Reply would call this again.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        while let Some(running) = &mut self.running {
            if running.in_flight > 0 {
                return;
            }
            if let Some(stopped) = running.stopped.take() {
                return self.end(Err(stopped));
            }
            match running.stage {
                // An open loop may have no Call in flight before its end.
                Stage::Calls { .. } if running.is_due() => return,
                Stage::Calls { phase: Phase::WarmUp, .. } => running.stage = Stage::BEFORE,
                Stage::Calls { .. } => {
                    running.finish(cx);
                    running.stage = Stage::AFTER;
                }
                Stage::Asking { at, .. } if at < running.questions() => running.ask(cx, at),
                Stage::Asking { moment: Moment::Before, .. } => running.start(cx, Phase::Counted),
                Stage::Asking { moment: Moment::After, .. } => {
                    if let Some(Running { tally, work, .. }) = self.running.take() {
                        self.end(Ok((tally, work)));
                    }
                }
            }
        }
    }

    fn end(&mut self, ended: Ended<W>) {
        self.running = None;
        // The driver waits for this; if it is gone, nobody needs the results.
        let _ = self.ended.send(ended);
    }
}

impl<W: Work> Service for Load<W> {
    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let Some(running) = &mut self.running else {
            self.asked = Some(decode(finished));
            return;
        };
        running.in_flight -= 1;
        if token == FIGURES {
            running.on_figures(finished);
        } else {
            // The token is the number of the Call's slot.
            let number = usize::try_from(token).unwrap_or(usize::MAX);
            if let Err(stopped) = running.ended(cx, number, finished) {
                running.stopped.get_or_insert(stopped);
            }
            running.go_on(cx, number);
        }
        if running.in_flight == 0 {
            self.settle(cx);
        }
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        let Some(running) = &mut self.running else {
            let Ok((pace, work)) = self.jobs.try_recv() else { return false };
            self.begin(cx, pace, work);
            return true;
        };
        if running.arrivals.is_none() {
            return false;
        }
        running.make_due(cx);
        running.looked = None;
        self.settle(cx);
        // The next Call may be due before an event wakes the core.
        true
    }
}

/// A running job.
#[derive(Debug)]
struct Running<W: Work> {
    pace: Pace,
    work: W,
    slots: Vec<Slot<W::Slot>>,
    /// Slots without a Call, the most recently used last.
    idle: Vec<usize>,
    /// A connection on each core of the server whose counters are asked for.
    watched: Vec<ConnectionId>,
    in_flight: usize,
    stage: Stage,
    started: Instant,
    tally: Tally,
    /// The client's counters when Calls began to count.
    before: Figures,
    /// Those of the server's cores, in the order of `watched`.
    served_before: Vec<CoreFigures>,
    stopped: Option<Stopped>,
    arrivals: Option<Arrivals>,
    /// Calls until the next one that is timed.
    untimed: u32,
    /// The last read of the clock: in an open loop in this turn; with one Call in flight when the last one ended, which
    /// is when the next begins.
    looked: Option<Instant>,
}

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Warm-up: Calls do not count.
    WarmUp,
    /// Measurement: Calls count.
    Counted,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Calls are made until a time.
    Calls { phase: Phase, until: Instant },
    /// The watched cores of the server are asked for their counters, now the one at this position, and last what else the
    /// work asks for.
    Asking { moment: Moment, at: usize },
}

impl Stage {
    const BEFORE: Self = Self::Asking { moment: Moment::Before, at: 0 };
    const AFTER: Self = Self::Asking { moment: Moment::After, at: 0 };
}

/// When the server is asked for counters: before or after the Calls that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// No Call counts yet.
    Before,
    /// All Calls that count have ended.
    After,
}

/// A slot, which makes one Call after another.
#[derive(Debug)]
struct Slot<S> {
    connection: ConnectionId,
    of_work: S,
    /// When the Call began, if it is timed.
    began: Option<Instant>,
}

impl<W: Work> Running<W> {
    /// Creates a job with its slots on `connections`; `None` if there is not enough memory.
    fn new(
        cx: &Cx<'_>,
        pace: Pace,
        mut work: W,
        connections: &[ConnectionId],
        watched: &[ConnectionId],
    ) -> Option<Self> {
        let count = pace.depth as usize * connections.len();
        let slot = |number: usize| {
            let connection = *connections.get(number % connections.len().max(1))?;
            Some(Slot { connection, of_work: work.slot(cx)?, began: None })
        };
        Some(Self {
            pace,
            slots: (0..count).map(slot).collect::<Option<_>>()?,
            work,
            idle: (0..count).rev().collect(),
            watched: watched.to_vec(),
            in_flight: 0,
            stage: Stage::BEFORE,
            started: cx.now(),
            tally: Tally::default(),
            before: Figures::default(),
            served_before: Vec::with_capacity(watched.len()),
            stopped: None,
            arrivals: pace.rate.map(|rate| Arrivals::new(rate, pace.seed)),
            untimed: 0,
            looked: None,
        })
    }

    /// Begins a phase and makes its first Calls.
    fn start(&mut self, cx: &mut Cx<'_>, phase: Phase) {
        let time = match phase {
            Phase::WarmUp => self.pace.warm,
            Phase::Counted => self.pace.time,
        };
        let tally = &mut self.tally;
        (tally.operations, tally.late) = (0, 0);
        tally.samples.clear();
        self.work.begin();
        self.before = Figures::of(cx);
        // The clock is read after these preparations, so that they make no Call late.
        self.started = clock::now();
        self.stage = Stage::Calls { phase, until: self.started.saturating_add(time) };
        match &mut self.arrivals {
            Some(arrivals) => arrivals.begin(self.started),
            None => {
                for _ in 0..self.idle.len() {
                    let Some(number) = self.idle.pop() else { break };
                    self.go_on(cx, number);
                }
            }
        }
    }

    /// Records the results, as all Calls that count have ended.
    fn finish(&mut self, cx: &Cx<'_>) {
        self.tally.took = cx.now().saturating_since(self.started);
        self.tally.client = Figures::of(cx).since(self.before);
    }

    /// Returns whether an open loop has more arrivals.
    fn is_due(&self) -> bool {
        self.arrivals.as_ref().is_some_and(|arrivals| arrivals.due().is_some())
    }

    /// Returns how many questions the server is asked before the Calls that count, and after them.
    fn questions(&self) -> usize {
        self.watched.len() + usize::from(self.work.asks().is_some())
    }

    /// Asks the watched core at this position for its counters, or behind them what else the work asks for.
    fn ask(&mut self, cx: &mut Cx<'_>, at: usize) {
        let any = self.slots.first().map(|slot| slot.connection);
        let asked = match self.watched.get(at) {
            Some(connection) => Some((*connection, figures_of::<W>())),
            None => any.zip(self.work.asks().map(Request::new)),
        };
        let Some((connection, request)) = asked else { return };
        match cx.call(connection, request, FIGURES, |_| Ok(())) {
            Ok(()) => self.in_flight += 1,
            Err((error, _)) => self.stopped = Some(error.into()),
        }
    }

    fn on_figures(&mut self, finished: Finished<'_>) {
        let Stage::Asking { moment, at } = &mut self.stage else { return };
        let asked = std::mem::replace(at, *at + 1);
        if asked >= self.watched.len() {
            if let Err(stopped) = self.work.told(*moment, finished) {
                self.stopped = Some(stopped);
            }
            return;
        }
        match (decode(finished), moment) {
            (Ok(figures), Moment::Before) => self.served_before.push(figures),
            (Ok(figures), Moment::After) => {
                let before = self.served_before.get(asked);
                before.into_iter().for_each(|before| self.tally.add_core(before, &figures));
            }
            (Err(stopped), _) => self.stopped = Some(stopped),
        }
    }

    /// Makes the Calls of an open loop that are due, while there are free slots.
    fn make_due(&mut self, cx: &mut Cx<'_>) {
        let Stage::Calls { until, .. } = self.stage else { return };
        let now = self.look();
        for _ in 0..DUE_PER_TURN {
            let Some(arrivals) = &mut self.arrivals else { return };
            let Some(due) = arrivals.due() else { return };
            if now >= until || self.stopped.is_some() {
                // The time is over: late Calls are counted and not made.
                self.tally.late = arrivals.end(until);
                return;
            }
            if due > now {
                return;
            }
            let Some(number) = self.idle.pop() else { return };
            arrivals.advance();
            self.make(cx, number, Some(due));
        }
    }

    /// Makes the next Call of a free slot, or adds the slot to the idle ones.
    #[inline]
    fn go_on(&mut self, cx: &mut Cx<'_>, number: usize) {
        match self.stage {
            Stage::Calls { until, .. }
                if self.arrivals.is_none()
                    && (cx.now() < until || self.tally.operations == 0)
                    && self.stopped.is_none()
                    && self.work.is_left() =>
            {
                self.make(cx, number, None);
            }
            _ => self.idle.push(number),
        }
    }

    /// Makes a Call. `due` is the time from which its latency counts.
    #[inline]
    fn make(&mut self, cx: &mut Cx<'_>, number: usize, due: Option<Instant>) {
        let began = due.or_else(|| self.stamp());
        let Some(slot) = self.slots.get_mut(number) else { return };
        slot.began = began;
        match self.work.make(cx, slot.connection, &mut slot.of_work, number as u64) {
            Ok(()) => self.in_flight += 1,
            Err(error) => _ = self.stopped.get_or_insert(error.into()),
        }
    }

    /// Returns the start of a Call of a closed loop, if the Call is timed.
    #[inline]
    fn stamp(&mut self) -> Option<Instant> {
        if self.pace.timed == Timed::Each {
            return Some(self.looked.take().unwrap_or_else(clock::now));
        }
        match self.untimed.checked_sub(1) {
            Some(left) => {
                self.untimed = left;
                None
            }
            None => {
                self.untimed = SAMPLE - 1;
                Some(clock::now())
            }
        }
    }

    /// Counts a Call that has ended.
    #[inline]
    fn ended(
        &mut self,
        cx: &mut Cx<'_>,
        number: usize,
        finished: Finished<'_>,
    ) -> Result<(), Stopped> {
        let slot = self.slots.get_mut(number).ok_or(Stopped::BadReply)?;
        self.work.ended(cx, &mut slot.of_work, finished)?;
        self.tally.operations += 1;
        if let Some(began) = slot.began.take() {
            let now = self.look();
            self.tally.samples.record(now.saturating_since(began));
        }
        Ok(())
    }

    /// Returns the time. An open loop reads the clock once a turn.
    #[inline]
    fn look(&mut self) -> Instant {
        if self.arrivals.is_none() {
            return *self.looked.insert(clock::now());
        }
        *self.looked.get_or_insert_with(clock::now)
    }
}

/// Returns the Call that asks for the server's counters.
const fn figures_of<W: Work>() -> Request {
    Request::new(W::FIGURES)
}

/// Decodes the counters of a core of the server from a Reply.
fn decode(finished: Finished<'_>) -> Result<CoreFigures, Stopped> {
    let results = finished.results?;
    CoreFigures::decode(&mut Reader::new(results.rest())).map_err(|_| Stopped::BadReply)
}

/// One in this many Calls is timed. A prime, so that the timed Call is not always the first of a batch.
pub const SAMPLE: u32 = 17;
/// Maximum number of Calls that an open loop makes in one turn.
const DUE_PER_TURN: usize = 256;
/// The seed of the arrivals, the same in every run.
pub const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// The token of the Calls that ask for the server's counters.
const FIGURES: u64 = u64::MAX;
