//! The threads of cores, each pinned to a CPU if asked.

use std::any::Any;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use thiserror::Error;

use crate::core::{Core, Service};
use crate::polling::{Polling, Wait};
use crate::provider::{Provider, Waker};
use crate::sys::{affinity, clock};

pub use crate::sys::entries;

pub(crate) mod deal;
pub mod group;
pub mod post;
pub(crate) mod seat;
#[cfg(test)]
mod spread;

/// Tells cores to shut down or to judge hosts again, or asks them whether they still turn, from any thread or from a signal
/// handler's.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Bits: what the core has not been seen to take notice of.
    asked: Arc<AtomicU8>,
}

impl Stop {
    /// Makes a flag that is not set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks for a shutdown. Wake the cores afterwards: a core that sleeps does not see the flag.
    pub fn ask(&self) {
        self.asked.fetch_or(SHUTDOWN, Ordering::Release);
    }

    /// Returns whether a shutdown was asked for.
    pub fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire) & SHUTDOWN != 0
    }

    /// Asks the core to leave its connections at once, as it does if it panics. Wake it afterwards.
    fn ask_to_leave(&self) {
        self.asked.fetch_or(LEAVE, Ordering::Release);
    }

    /// Answers what was asked, as the driver of the core does in each turn. Returns what was asked.
    fn heed(&self) -> u8 {
        let asked = self.asked.load(Ordering::Acquire);
        let once = asked & (SIGN_OF_LIFE | JUDGE_HOSTS);
        if once != 0 {
            self.asked.fetch_and(!once, Ordering::AcqRel);
        }
        asked
    }
}

/// The core is to shut down.
const SHUTDOWN: u8 = 1;
/// The core is to clear this bit.
const SIGN_OF_LIFE: u8 = 2;
/// The core is to turn no more.
const LEAVE: u8 = 4;
/// The core is to close the connections to hosts that are not known any more, and to clear this bit.
const JUDGE_HOSTS: u8 = 8;

/// Drives a core until it has drained after `stop` was asked.
pub fn run<P: Provider, S: Service>(core: &mut Core<P, S>, polling: Polling, stop: &Stop) {
    let mut now = clock::now();
    let mut wait = Wait::new(polling, now);
    let (mut turns, mut worked) = (0, false);
    while !core.is_drained() {
        if turns == 0 {
            (now, turns) = (clock::now(), TURNS_PER_READING);
            // A turn with work can be long: the last one may have ended just now.
            if std::mem::take(&mut worked) {
                wait.worked(now);
            }
        }
        turns -= 1;
        let asked = stop.heed();
        if asked & LEAVE != 0 {
            return;
        }
        if asked & SHUTDOWN != 0 {
            core.begin_shutdown(now);
        }
        if asked & JUDGE_HOSTS != 0 {
            core.judge_hosts();
        }
        if core.turn(now) {
            worked = true;
        } else if !worked && wait.sleeps(now) {
            let limit = core.poll_deadline().map(|deadline| deadline.saturating_since(now));
            core.sleep(limit);
            let slept = std::mem::replace(&mut now, clock::now());
            wait.woke(slept, now);
            turns = TURNS_PER_READING;
        }
    }
}

/// Turns that share one reading of the clock: readings take a good part of a busy `shm` server's time, and deadlines
/// are thousands of turns away.
const TURNS_PER_READING: u32 = 8;

/// A core on a thread of its own. Dropping it shuts the core down, and waits until it has drained.
#[derive(Debug)]
pub struct CoreThread<T> {
    name: String,
    thread: Option<JoinHandle<()>>,
    stop: Stop,
    waker: Waker,
    /// A channel by which nothing is sent. It is disconnected once the core has made its last turn.
    turning: mpsc::Receiver<Infallible>,
    /// The value that `make` returned beside the core.
    pub started: T,
}

/// A core's thread panicked: in its service, or by a defect of this crate. Its connections are gone.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the thread {core} panicked: {message}")]
pub struct Panicked {
    /// Name of the thread.
    pub core: String,
    /// The panic's message, if it had one.
    pub message: String,
}

/// Why a core did not stop in order.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unstopped {
    /// Its thread panicked.
    #[error(transparent)]
    Panicked(#[from] Panicked),
    /// It stands still inside one turn.
    #[error("the thread {core} has not turned for {patience:?}")]
    Stands {
        /// Name of the thread.
        core: String,
        /// How long it was waited for.
        patience: Duration,
    },
}

impl Panicked {
    /// Describes the panic that joining a thread returned as `payload`.
    fn new(core: &str, payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self { core: core.to_owned(), message: text.unwrap_or("no message").to_owned() }
    }
}

/// Where and how a core runs.
#[derive(Clone, Debug)]
pub struct Placement {
    /// The thread's name.
    pub name: String,
    /// The CPU it is pinned to, or none.
    pub cpu: Option<usize>,
    /// How the core waits for work.
    pub polling: Polling,
}

/// Starts a thread, makes a core on it, and drives it until it is stopped.
///
/// `make` runs on the new thread, so that memory and rings belong to it; the value it returns beside
/// the core is handed out.
///
/// # Errors
/// The error that `make` returned, or the system's if the thread could not be started or pinned.
pub fn start<P, S, T, E>(
    placement: Placement,
    make: impl FnOnce() -> Result<(Core<P, S>, T), E> + Send + 'static,
) -> Result<CoreThread<T>, E>
where
    P: Provider,
    S: Service,
    T: Send + 'static,
    E: From<io::Error> + Send + 'static,
{
    start_stopped_by(Stop::new(), placement, || (), make)
}

/// As [`start`], of a core that `stop` stops. `panicked` is called as the thread ends by a panic.
fn start_stopped_by<P, S, T, E>(
    stop: Stop,
    placement: Placement,
    panicked: impl FnOnce() + Send + 'static,
    make: impl FnOnce() -> Result<(Core<P, S>, T), E> + Send + 'static,
) -> Result<CoreThread<T>, E>
where
    P: Provider,
    S: Service,
    T: Send + 'static,
    E: From<io::Error> + Send + 'static,
{
    let (tell, told) = mpsc::channel();
    let (turns, turning) = mpsc::channel();
    let stopping = stop.clone();
    let Placement { cpu, polling, .. } = placement;
    let thread = std::thread::Builder::new().name(placement.name.clone()).spawn(move || {
        let _panicked = OnPanic(Some(panicked));
        let pinned = cpu.map_or(Ok(()), affinity::pin);
        let made = pinned.map_err(E::from).and_then(|()| make());
        let mut core = match made {
            Ok((core, started)) => {
                // The receiver waits for exactly this message.
                let _ = tell.send(Ok((started, core.waker())));
                core
            }
            Err(error) => {
                let _ = tell.send(Err(error));
                return;
            }
        };
        run(&mut core, polling, &stopping);
        // After its last turn the core gives its memory back, which nobody should take for a turn that does not end.
        drop(turns);
    })?;
    let (started, waker) =
        told.recv().map_err(|_| io::Error::other("the core's thread panicked as it started"))??;
    Ok(CoreThread { name: placement.name, thread: Some(thread), stop, waker, turning, started })
}

/// Calls the function if it is dropped by a panic.
struct OnPanic<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(call) = self.0.take()
        {
            call();
        }
    }
}

impl<T> CoreThread<T> {
    /// Asks the core to shut down and waits until it has drained.
    ///
    /// # Errors
    /// The core's thread panicked, then or earlier.
    pub fn stop(mut self) -> Result<(), Panicked> {
        self.join()
    }

    /// Asks the core to shut down and waits until it has drained, while it turns at least once in `patience`.
    ///
    /// # Errors
    /// [`Unstopped::Stands`]: the core stands still, as in a system call that does not return. Its thread is left behind,
    /// and the process should end. [`Unstopped::Panicked`]: as in [`Self::stop`].
    pub fn stop_while_turning(mut self, patience: Duration) -> Result<(), Unstopped> {
        self.ask_to_stop();
        loop {
            self.ask_for_life();
            match self.turning.recv_timeout(patience) {
                Err(RecvTimeoutError::Timeout) if self.is_alive() => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.thread = None;
                    return Err(Unstopped::Stands {
                        core: std::mem::take(&mut self.name),
                        patience,
                    });
                }
                Ok(never) => match never {},
                Err(RecvTimeoutError::Disconnected) => return Ok(self.join()?),
            }
        }
    }

    /// Returns whether the thread has ended. Before [`Self::stop`] that means that it panicked; `stop` returns the
    /// panic.
    pub fn is_finished(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Asks the core for a sign of life, which it gives in its next turn, and wakes it.
    pub fn ask_for_life(&self) {
        self.stop.asked.fetch_or(SIGN_OF_LIFE, Ordering::Release);
        self.waker.wake();
    }

    /// Returns whether the core has turned since [`Self::ask_for_life`] was last called.
    pub fn is_alive(&self) -> bool {
        self.stop.asked.load(Ordering::Acquire) & SIGN_OF_LIFE == 0
    }

    /// Has the core close the connections to hosts that are not known any more, in its next turn, and wakes it.
    pub fn judge_hosts(&self) {
        self.stop.asked.fetch_or(JUDGE_HOSTS, Ordering::Release);
        self.waker.wake();
    }

    fn ask_to_stop(&self) {
        self.stop.ask();
        self.waker.wake();
    }

    fn join(&mut self) -> Result<(), Panicked> {
        self.ask_to_stop();
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        ended.map_err(|payload| Panicked::new(&self.name, payload.as_ref()))
    }
}

impl<T> Drop for CoreThread<T> {
    fn drop(&mut self) {
        // The panic hook has printed a panic, and `drop` cannot return it.
        let _ = self.join();
    }
}

#[cfg(test)]
mod tests {
    use haulage_mr_pool::{PagePreference, Pool, PoolConfig};

    use super::*;
    use crate::core::{Cx, Service};
    use crate::limits::{LIMITS_DEFAULT, Limits};
    use crate::provider::iwarp::{Config, Iwarp};

    /// A service that does not return from its first turn until it is let go.
    struct Standing {
        entered: mpsc::Sender<()>,
        let_go: mpsc::Receiver<()>,
    }

    impl Service for Standing {
        fn turn(&mut self, _: &mut Cx<'_>) -> bool {
            // Sending fails once the test has ended and dropped its ends of both channels.
            if self.entered.send(()).is_ok() {
                let _ = self.let_go.recv();
            }
            false
        }
    }

    /// Starts a core whose service is [`Standing`]. Returns the channel on which the service says that it is inside its first
    /// turn, and the one that lets it go on.
    fn standing() -> (CoreThread<()>, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let (entered, is_inside) = mpsc::channel();
        let (let_go, released) = mpsc::channel();
        let service = Standing { entered, let_go: released };
        let placement = Placement { name: "core".to_owned(), cpu: None, polling: Polling::Event };
        let core = start(placement, move || {
            let pool = PoolConfig { bytes: 16 << 20, pages: PagePreference::Heap, node: None };
            let pool = Pool::new(&pool).map_err(io::Error::other)?;
            let limits = Limits { connections_max: 4, receives_max: 64, ..LIMITS_DEFAULT };
            let core = Core::new(Iwarp::new(&Config::default())?, service, pool, limits, 1);
            Ok::<_, io::Error>((core.map_err(io::Error::other)?, ()))
        });
        (core.unwrap(), is_inside, let_go)
    }

    #[test]
    fn a_core_that_stands_still_gives_no_sign_of_life() {
        let (core, is_inside, let_go) = standing();
        assert!(core.is_alive(), "nothing was asked");
        is_inside.recv().unwrap();
        core.ask_for_life();
        assert!(!core.is_alive(), "it is inside a turn");
        drop((is_inside, let_go));
        while !core.is_alive() {
            std::thread::yield_now();
        }
        core.ask_for_life();
        while !core.is_alive() {
            std::thread::yield_now();
        }
        core.stop().unwrap();
    }

    #[test]
    fn a_core_that_stands_still_is_not_waited_for() {
        let (core, is_inside, let_go) = standing();
        is_inside.recv().unwrap();
        let patience = Duration::from_millis(1);
        let core_name = "core".to_owned();
        assert_eq!(
            core.stop_while_turning(patience),
            Err(Unstopped::Stands { core: core_name, patience })
        );
        drop((is_inside, let_go));
    }

    #[test]
    fn a_core_that_turns_is_waited_for() {
        let (core, is_inside, let_go) = standing();
        is_inside.recv().unwrap();
        drop((is_inside, let_go));
        assert_eq!(core.stop_while_turning(Duration::from_secs(60)), Ok(()));
    }
}
