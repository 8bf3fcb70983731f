//! Groups: several cores that serve the same address as one server.
//!
//! # Normal operation
//! The first core has the ports. Peers that reach them are dealt to all cores, before anything was read of them. A connection
//! stays on its core: its Calls are read, served and answered there.
//!
//! # What a core owns
//! Its provider, its pool, its service, its connections and their Calls. None of these goes to another thread. What cores
//! share is the service's own, in an `Arc`; what is rare they tell each other by [posts](super::post). The names of connections
//! and Calls say whose they are: [`Cx::call`](crate::core::Cx::call) on another core's connection is refused with
//! [`CallError::Elsewhere`](crate::service::CallError::Elsewhere).
//!
//! # Limits
//! [`Limits`](crate::limits::Limits) and the size of a pool are a core's: whoever makes a group gives each core its part.
//! The limits of the log are the group's.
//!
//! # Recovery
//! A group starts whole or not at all. Once a core has panicked, the others leave their connections, too, and serve no Call
//! more: what they would answer may depend on what that one had.

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::{CoreThread, Panicked, Placement, Stop, Unstopped, start_stopped_by};
use crate::core::{CORES_MAX, Core, CoreNumber, Seats, Service};
use crate::provider::{Provider, Waker};

/// The cores of one server, each on a thread of its own. Dropping it shuts them down, and waits until they have drained.
#[derive(Debug)]
pub struct Group<T> {
    /// By their numbers.
    cores: Vec<CoreThread<T>>,
}

/// Starts a group: a thread for each core, where it is placed, and on it the core, which its `make` makes. The first core is
/// made last, when the others turn: it is the one to listen. What a `make` returns beside its core is handed out, by number.
/// `seed` is not to be guessed by peers.
///
/// # Errors
/// The error that a `make` returned, or the system's if a thread could not be started or pinned; `InvalidInput` if there are
/// no cores, or more than [`CORES_MAX`]. No core is left then.
pub fn start<P, S, T, E>(
    cores: Vec<(Placement, impl FnOnce(CoreNumber) -> Result<(Core<P, S>, T), E> + Send + 'static)>,
    seed: u64,
) -> Result<Group<T>, E>
where
    P: Provider,
    S: Service,
    T: Send + 'static,
    E: From<io::Error> + Send + 'static,
{
    let count = cores.len();
    if count == 0 || count > usize::from(CORES_MAX) {
        let why = format!("a group has 1 to {CORES_MAX} cores, not {count}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
    }
    let numbers = (0..CORES_MAX).filter_map(CoreNumber::new);
    let seated: Vec<_> = numbers.zip(Seats::of_all(count, seed)).zip(cores).collect();
    let alarm = Arc::new(Alarm::of(count));
    let mut started = Vec::with_capacity(count);
    for ((number, seats), (placement, make)) in seated.into_iter().rev() {
        let (stop, heard, rung) = (alarm.stop(number), Arc::clone(&alarm), Arc::clone(&alarm));
        let core = start_stopped_by(
            stop,
            placement,
            move || rung.ring(),
            move || {
                let (mut core, beside) = make(number)?;
                core.join(seats);
                heard.reaches(number, core.waker());
                Ok::<_, E>((core, beside))
            },
        )?;
        started.push(core);
    }
    started.reverse();
    Ok(Group { cores: started })
}

/// How a core that panics reaches the others.
#[derive(Debug)]
struct Alarm(Box<[(Stop, OnceLock<Waker>)]>);

impl Alarm {
    fn of(cores: usize) -> Self {
        Self((0..cores).map(|_| (Stop::new(), OnceLock::new())).collect())
    }

    /// Returns what stops the core of this number.
    fn stop(&self, number: CoreNumber) -> Stop {
        self.0.get(usize::from(number.get())).map(|(stop, _)| stop.clone()).unwrap_or_default()
    }

    /// Has the core of this number be woken.
    fn reaches(&self, number: CoreNumber, waker: Waker) {
        if let Some((_, place)) = self.0.get(usize::from(number.get())) {
            // A core is made once.
            let _ = place.set(waker);
        }
    }

    /// Has all cores leave their connections.
    fn ring(&self) {
        for (stop, waker) in &self.0 {
            stop.ask_to_leave();
            waker.get().into_iter().for_each(Waker::wake);
        }
    }
}

impl<T> From<CoreThread<T>> for Group<T> {
    /// Makes the group of a core that is alone.
    fn from(core: CoreThread<T>) -> Self {
        Self { cores: vec![core] }
    }
}

impl<T> Group<T> {
    /// Returns the cores, by their numbers.
    pub fn cores(&self) -> &[CoreThread<T>] {
        &self.cores
    }

    /// Returns what was made beside the first core.
    pub fn started(&self) -> &T {
        &self.cores[0].started
    }

    /// Returns whether a thread has ended. Before [`Self::stop_while_turning`] that means that it panicked.
    pub fn is_finished(&self) -> bool {
        self.cores.iter().any(CoreThread::is_finished)
    }

    /// Asks every core for a sign of life, which it gives in its next turn, and wakes it.
    pub fn ask_for_life(&self) {
        self.cores.iter().for_each(CoreThread::ask_for_life);
    }

    /// Has every core close the connections to hosts that are not known any more, in its next turn.
    pub fn judge_hosts(&self) {
        self.cores.iter().for_each(CoreThread::judge_hosts);
    }

    /// Returns whether every core has turned since [`Self::ask_for_life`] was last called.
    pub fn is_alive(&self) -> bool {
        self.cores.iter().all(CoreThread::is_alive)
    }

    /// Asks all cores to shut down, and waits until they have drained.
    ///
    /// # Errors
    /// The panic of the first core that panicked, then or earlier.
    pub fn stop(self) -> Result<(), Panicked> {
        self.cores.iter().for_each(CoreThread::ask_to_stop);
        self.cores.into_iter().map(CoreThread::stop).fold(Ok(()), Result::and)
    }

    /// Asks all cores to shut down, and waits until they have drained, each while it turns at least once in `patience`.
    ///
    /// # Errors
    /// What kept the first core that did not stop in order: a panic, or one turn that does not end. The others were waited
    /// for.
    pub fn stop_while_turning(self, patience: Duration) -> Result<(), Unstopped> {
        self.cores.iter().for_each(CoreThread::ask_to_stop);
        let stopped = self.cores.into_iter().map(|core| core.stop_while_turning(patience));
        stopped.fold(Ok(()), Result::and)
    }
}
