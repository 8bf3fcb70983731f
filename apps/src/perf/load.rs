//! The client's half: a service that keeps Calls in flight, from within its core.
//!
//! # Normal operation
//! One job at a time: Calls are made until the core is warm, then until the time is over. In between,
//! and at the end, nothing is in flight and the server is asked for its figures. A closed loop makes
//! the next Call when one has ended; an open loop makes them when they are due, whatever became of
//! those before. What the Calls do is [`Work`].
//!
//! # Time
//! Reading the clock can cost as much as a Call. One Call at a time is timed by the time its core's
//! turns began, which the core has read anyway: as each Call begins in the turn in which the last one
//! ended, their times add up to the whole. Of several in flight one in [`SAMPLE`] is stamped. In an
//! open loop each counts from when it was due, to the first look at the clock in the turn it ended in.

use std::sync::mpsc;
use std::time::Duration;

use haulage::core::Cx;
use haulage::proto::rpc::AcceptStat;
use haulage::proto::time::Instant;
use haulage::proto::xdr::Reader;
use haulage::provider::Waker;
use haulage::service::{
    Binding, Call, CallError, ConnectionId, Finished, NoService, Outcome, Reply, Request, Service,
};
use haulage::sys::clock;

use super::arrivals::Arrivals;
use super::figures::Figures;
use crate::samples::Samples;

/// What Calls do.
pub trait Work: Send + 'static {
    /// What one Call after another needs, such as memory for its item.
    type Slot: std::fmt::Debug;

    /// The procedure that answers with [`Figures`].
    const FIGURES: u32;

    /// Makes a slot; `None` if there is no memory for it.
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

    /// A Call has ended: takes back what it needed.
    ///
    /// # Errors
    /// It did not do what it was made for.
    fn ended(
        &mut self,
        cx: &mut Cx<'_>,
        slot: &mut Self::Slot,
        finished: Finished<'_>,
    ) -> Result<(), Stopped>;

    /// Calls count from now on.
    fn begin(&mut self) {}

    /// Returns whether there is more to do, if time allows.
    fn is_left(&self) -> bool {
        true
    }
}

/// How many Calls to make, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How many are in flight on each connection: in a closed loop always, in an open one at most.
    pub depth: u32,
    /// How many a second become due; none, if each waits for another to end.
    pub rate: Option<f64>,
    /// How long Calls are made before they count.
    pub warm: Duration,
    /// How long they are made then.
    pub time: Duration,
}

/// What came of a job.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Calls that ended.
    pub operations: u64,
    /// From the first Call to the last Reply.
    pub took: Duration,
    /// How long Calls took, those that were timed.
    pub samples: Samples,
    /// What the client spent.
    pub client: Figures,
    /// What the server spent.
    pub server: Figures,
    /// Calls of an open loop that were due and could not be made before the time was over.
    pub late: u64,
}

/// How a job ends: with what came of it, and the work that was given.
pub type Ended<W> = Result<(Tally, W), Stopped>;

/// Why a job could not be finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// A Call failed.
    Call(CallError),
    /// The client has no memory for the items.
    NoMemory,
    /// The server refuses.
    Refused(String),
    /// A Reply makes no sense.
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

    /// Waits at most so long for the job's end. Returns `None` until then, or if the core has ended.
    pub fn wait(&self, time: Duration) -> Option<Ended<W>> {
        self.ended.recv_timeout(time).ok()
    }
}

/// The service of the client's core.
#[derive(Debug)]
pub struct Load<W: Work> {
    /// What the Calls go to, in turn.
    pub connections: Vec<ConnectionId>,
    jobs: mpsc::Receiver<(Pace, W)>,
    ended: mpsc::Sender<Ended<W>>,
    running: Option<Running<W>>,
    /// What the server said when it was asked without a job.
    asked: Option<Result<Figures, Stopped>>,
}

impl<W: Work> Load<W> {
    /// Makes one, and what gives it jobs; `waker` ends its core's sleep.
    pub fn new(waker: Waker) -> (Self, Driver<W>) {
        let (jobs_in, jobs) = mpsc::channel();
        let (ended, ended_out) = mpsc::channel();
        let load = Self { connections: Vec::new(), jobs, ended, running: None, asked: None };
        (load, Driver { jobs: jobs_in, ended: ended_out, waker })
    }

    /// Asks the server for its figures while there is no job.
    pub(super) fn ask(&mut self, cx: &mut Cx<'_>, connection: ConnectionId) {
        let request = figures_of::<W>();
        self.asked = match cx.call(connection, request, FIGURES, |_| Ok(())) {
            Ok(()) => None,
            Err((error, _)) => Some(Err(error.into())),
        };
    }

    /// Takes what the server said, once it has.
    pub(super) const fn take_asked(&mut self) -> Option<Result<Figures, Stopped>> {
        self.asked.take()
    }

    fn begin(&mut self, cx: &mut Cx<'_>, pace: Pace, work: W) {
        match Running::new(cx, pace, work, &self.connections) {
            Some(running) => {
                let running = self.running.insert(running);
                if running.pace.warm.is_zero() {
                    running.ask(cx, Stage::Before);
                } else {
                    running.start(cx, Phase::WarmUp);
                }
                self.settle(cx);
            }
            None => self.end(Err(Stopped::NoMemory)),
        }
    }

    /// Goes on to the next stage while nothing is in flight. Nobody else looks at a job without Calls, so a stage
    /// that begins and has none to make is passed at once.
    fn settle(&mut self, cx: &mut Cx<'_>) {
        while let Some(running) = &mut self.running {
            if running.in_flight > 0 {
                return;
            }
            if let Some(stopped) = running.stopped.take() {
                return self.end(Err(stopped));
            }
            match running.stage {
                // An open loop may have nothing in flight before it is over.
                Stage::Calls { .. } if running.is_due() => return,
                Stage::Calls { phase: Phase::WarmUp, .. } => running.ask(cx, Stage::Before),
                Stage::Calls { .. } => {
                    running.finish(cx);
                    running.ask(cx, Stage::After);
                }
                Stage::Before => running.start(cx, Phase::Counted),
                Stage::After => {
                    if let Some(Running { tally, work, .. }) = self.running.take() {
                        self.end(Ok((tally, work)));
                    }
                }
            }
        }
    }

    fn end(&mut self, ended: Ended<W>) {
        self.running = None;
        // Whoever gave the job waits for exactly this; if it is gone, so is the reason to report.
        let _ = self.ended.send(ended);
    }
}

impl<W: Work> Service for Load<W> {
    fn binding(&self) -> Binding {
        NoService.binding()
    }

    fn call(&mut self, _: &mut Cx<'_>, _: Call<'_>, _: &mut Reply) -> Outcome {
        Outcome::Failed(AcceptStat::ProgUnavail)
    }

    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, finished: Finished<'_>) {
        let Some(running) = &mut self.running else {
            self.asked = Some(decode(finished));
            return;
        };
        running.in_flight -= 1;
        if token == FIGURES {
            running.on_figures(finished);
        } else {
            // The token is the number of the slot the Call was made from.
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
        // The next one may be due before anything wakes the core.
        true
    }
}

/// A job under way.
#[derive(Debug)]
struct Running<W: Work> {
    pace: Pace,
    work: W,
    slots: Vec<Slot<W::Slot>>,
    /// Slots without a Call, the one used last at the end.
    idle: Vec<usize>,
    /// What the server's figures are asked on.
    first: ConnectionId,
    in_flight: usize,
    stage: Stage,
    started: Instant,
    tally: Tally,
    /// The client's figures, and the server's, when Calls began to count.
    before: [Figures; 2],
    stopped: Option<Stopped>,
    arrivals: Option<Arrivals>,
    /// Calls until the next one that is timed.
    untimed: u32,
    /// What the clock said when it was last looked at: in an open loop in this turn; with one Call at a
    /// time when the last one ended, which is when the next begins.
    looked: Option<Instant>,
}

/// What Calls are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To warm up: they do not count.
    WarmUp,
    /// To measure them.
    Counted,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Calls are made until then.
    Calls {
        phase: Phase,
        until: Instant,
    },
    /// The server was asked for its figures, before and after the Calls that count.
    Before,
    After,
}

/// One Call after another.
#[derive(Debug)]
struct Slot<S> {
    connection: ConnectionId,
    of_work: S,
    /// When the Call began, if it is timed.
    began: Option<Instant>,
}

impl<W: Work> Running<W> {
    /// Takes memory for the items; `None` if there is not enough.
    fn new(cx: &Cx<'_>, pace: Pace, mut work: W, connections: &[ConnectionId]) -> Option<Self> {
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
            first: *connections.first()?,
            in_flight: 0,
            stage: Stage::Before,
            started: cx.now(),
            tally: Tally::default(),
            before: [Figures::default(); 2],
            stopped: None,
            arrivals: pace.rate.map(|rate| Arrivals::new(rate, SEED)),
            untimed: 0,
            looked: None,
        })
    }

    /// Begins to make Calls.
    fn start(&mut self, cx: &mut Cx<'_>, phase: Phase) {
        let time = match phase {
            Phase::WarmUp => self.pace.warm,
            Phase::Counted => self.pace.time,
        };
        let tally = &mut self.tally;
        (tally.operations, tally.late) = (0, 0);
        tally.samples.clear();
        self.work.begin();
        self.before[0] = Figures::of(cx);
        // Nothing is late for what that took.
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

    /// The Calls that count have all ended.
    fn finish(&mut self, cx: &Cx<'_>) {
        self.tally.took = cx.now().saturating_since(self.started);
        self.tally.client = Figures::of(cx).since(self.before[0]);
    }

    /// Returns whether more Calls of an open loop become due.
    fn is_due(&self) -> bool {
        self.arrivals.as_ref().is_some_and(|arrivals| arrivals.due().is_some())
    }

    /// Asks the server for its figures.
    fn ask(&mut self, cx: &mut Cx<'_>, stage: Stage) {
        self.stage = stage;
        match cx.call(self.first, figures_of::<W>(), FIGURES, |_| Ok(())) {
            Ok(()) => self.in_flight += 1,
            Err((error, _)) => self.stopped = Some(error.into()),
        }
    }

    fn on_figures(&mut self, finished: Finished<'_>) {
        match (decode(finished), self.stage) {
            (Ok(figures), Stage::After) => self.tally.server = figures.since(self.before[1]),
            (Ok(figures), _) => self.before[1] = figures,
            (Err(stopped), _) => self.stopped = Some(stopped),
        }
    }

    /// Makes the Calls of an open loop that are due, as far as there are slots.
    fn make_due(&mut self, cx: &mut Cx<'_>) {
        let Stage::Calls { until, .. } = self.stage else { return };
        let now = self.look();
        for _ in 0..DUE_PER_TURN {
            let Some(arrivals) = &mut self.arrivals else { return };
            let Some(due) = arrivals.due() else { return };
            if now >= until || self.stopped.is_some() {
                // It is over: what could not be made in time is not made.
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

    /// A slot has no Call any more: makes the next one, or lets it rest.
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

    /// Makes a Call. `due` is when it should have been made.
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

    /// Returns when a Call of a closed loop begins, if it is one that is timed.
    #[inline]
    fn stamp(&mut self) -> Option<Instant> {
        if self.slots.len() == 1 {
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

    /// A Call has ended: counts it.
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

    /// Returns what the clock says; in an open loop it is read once a turn.
    #[inline]
    fn look(&mut self) -> Instant {
        if self.arrivals.is_none() {
            return *self.looked.insert(clock::now());
        }
        *self.looked.get_or_insert_with(clock::now)
    }
}

/// The Call that asks for the server's figures.
const fn figures_of<W: Work>() -> Request {
    Request { procedure: W::FIGURES, argument: None, result: None, timeout: None }
}

/// Returns what it brought.
fn decode(finished: Finished<'_>) -> Result<Figures, Stopped> {
    let results = finished.results?;
    Figures::decode(&mut Reader::new(results.rest())).map_err(|_| Stopped::BadReply)
}

/// Of how many Calls one is timed. A prime, so that it is not always the first of a batch.
pub const SAMPLE: u32 = 17;
/// Calls of an open loop made before the rest of the turn has its turn.
const DUE_PER_TURN: usize = 256;
/// The same arrivals in every run.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
/// The token of the Calls that ask for the server's figures.
const FIGURES: u64 = u64::MAX;
