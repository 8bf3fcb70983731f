//! The two threads of a measurement.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::thread;

use haulage::sys::affinity;

/// The CPUs of the two threads of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    pub(super) near: Option<usize>,
    pub(super) far: Option<usize>,
    /// Whether the threads may share a CPU, so that a waiting thread must yield.
    pub(super) yielding: bool,
}

impl Pair {
    /// Two threads that are not pinned, and yield in case they share a CPU.
    pub const UNPINNED: Self = Self { near: None, far: None, yielding: true };

    /// Returns a pair whose measuring thread is pinned to `near`. The other end runs anywhere, perhaps on another
    /// machine.
    pub const fn near(near: usize) -> Self {
        Self { near: Some(near), far: None, yielding: false }
    }

    /// Returns a pair of pinned threads, of which the one on `near` measures.
    pub const fn pinned(near: usize, far: usize) -> Self {
        Self { near: Some(near), far: Some(far), yielding: near == far }
    }

    /// Returns a pair pinned to two CPUs of this machine, the measuring thread to `near` if that is given. On a machine
    /// with one CPU the threads share it.
    pub fn here(near: Option<usize>) -> Self {
        let usable = affinity::usable().unwrap_or_default();
        let near = near.or_else(|| usable.first().copied());
        let far = usable.iter().copied().find(|cpu| Some(*cpu) != near);
        near.zip(far).map_or(Self::UNPINNED, |(near, far)| Self::pinned(near, far))
    }

    /// Runs `near` and `far` on the two threads. `near` measures, and ends `far` by dropping its end of their channel.
    pub(super) fn run<T: Send>(
        self,
        near: impl FnOnce() -> io::Result<T> + Send,
        far: impl FnOnce() -> io::Result<()> + Send,
    ) -> io::Result<T> {
        thread::scope(|scope| {
            let start = |name: &str| thread::Builder::new().name(name.to_owned());
            let far = start("limits-far").spawn_scoped(scope, move || {
                self.far.map_or(Ok(()), affinity::pin)?;
                far()
            })?;
            let near = start("limits-near").spawn_scoped(scope, move || {
                self.near.map_or(Ok(()), affinity::pin)?;
                near()
            })?;
            let (near, far) = (near.join(), far.join());
            let panicked = || io::Error::other("a measuring thread panicked");
            // If both sides failed, the far side's failure is the cause.
            far.map_err(|_| panicked())??;
            near.map_err(|_| panicked())?
        })
    }

    /// Pauses between two polls.
    pub(super) fn relax(self) {
        if self.yielding {
            thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }

    /// Polls a channel until something arrives; `None` once the other side is gone.
    pub(super) fn receive<T>(self, channel: &Receiver<T>) -> Option<T> {
        loop {
            match channel.try_recv() {
                Ok(item) => return Some(item),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => self.relax(),
            }
        }
    }
}

/// Octets of a GiB.
pub(super) const GIB: f64 = (1_u64 << 30) as f64;
