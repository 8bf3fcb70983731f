//! The client's core.

use std::time::Duration;

use haulage::cores::{self, CoreThread, Placement as Thread};
use haulage::limits::Limits;
use haulage::service::{Binding, CallError};
use haulage::sys::clock;

use super::load::{Driver, Load, Pace, Stopped, Tally, Work};
use super::progress::Progress;
use crate::calling::Callee;
use crate::cli::values::Switch;
use crate::failure::Failure;
use crate::node::{Carrier, NodeConfig, Notes};

/// A client to be.
#[derive(Debug)]
pub(crate) struct Client {
    /// Whom it calls, and how long it waits for a connection and for each answer.
    pub(crate) callee: Callee,
    /// What may be reduced.
    pub(crate) binding: Binding,
    /// Connections it makes.
    pub(crate) connections: u32,
    /// Octets for its items.
    pub(crate) room: usize,
    /// Bounds of its core.
    pub(crate) limits: Limits,
    /// Whether messages carry a CRC, if that is not left to the provider.
    pub(crate) crc: Option<Switch>,
}

/// A client's core, at work for this thread.
#[derive(Debug)]
pub(crate) struct AtWork<W> {
    core: CoreThread<(Driver<W>, Notes)>,
    callee: Callee,
}

impl Client {
    /// Starts its core, which connects. Calls wait until the connections are there.
    pub(crate) fn start<P: Carrier, W: Work>(self, thread: Thread) -> Result<AtWork<W>, Failure> {
        let Self { callee, binding, connections, room, limits, crc } = self;
        let core = cores::start(thread, move || {
            let mut driver = None;
            let node = NodeConfig { room, limits, crc };
            let (mut core, notes) = node.build::<P, _>(|_, waker| {
                let (load, made) = Load::<W>::new(waker.clone());
                driver = Some(made);
                Ok(load)
            })?;
            let driver = driver.ok_or_else(|| Failure::failed("a core has one service"))?;
            let now = clock::now();
            let connections = (0..connections).map(|_| {
                core.connect(now, callee.to, binding.clone())
                    .map_err(|error| callee.explain(&error))
            });
            let connections = connections.collect::<Result<Vec<_>, _>>()?;
            core.cx(now).1.connections = connections;
            Ok::<_, Failure>((core, (driver, notes)))
        })?;
        Ok(AtWork { core, callee })
    }
}

impl<W: Work> AtWork<W> {
    /// Has work done, and shows how far it has come.
    pub(crate) fn run(
        &self,
        pace: Pace,
        work: W,
        progress: &mut Progress,
    ) -> Result<(Tally, W), Failure> {
        let died = || Failure::failed("the client's core died");
        let (driver, _) = &self.core.started;
        driver.begin(pace, work).ok_or_else(died)?;
        let started = clock::now();
        loop {
            if let Some(ended) = driver.wait(TICK) {
                return ended.map_err(|stopped| self.explain(&stopped));
            }
            if self.core.is_finished() {
                return Err(died());
            }
            progress.tick(clock::now().saturating_since(started));
        }
    }

    /// Returns how it came out.
    pub(crate) const fn notes(&self) -> &Notes {
        &self.core.started.1
    }

    /// Ends the core in order.
    pub(crate) fn stop(self) {
        self.core.stop();
    }

    /// Says in one line why work stopped and what to do about it.
    fn explain(&self, stopped: &Stopped) -> Failure {
        let Callee { to, served_by, .. } = self.callee;
        Failure::failed(match stopped {
            Stopped::Call(CallError::Busy) => {
                format!("{to} takes no more calls; lower --depth or --connections")
            }
            Stopped::Call(error) => return self.callee.explain(error),
            Stopped::NoMemory => "the client has no memory for so many items".to_owned(),
            Stopped::Refused(why) => format!("{to} refuses: {why}"),
            Stopped::BadReply => format!("{to} answers nonsense; check that it is `{served_by}`"),
        })
    }
}

/// How often progress is shown.
const TICK: Duration = Duration::from_millis(100);
