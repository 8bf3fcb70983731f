//! A memory barrier whose cost falls on the rare side only.
//!
//! A thread that is about to sleep writes so in shared memory and looks for news once more; a thread that has published
//! something looks whether another sleeps. Each needs a barrier between its store and its load. The system can issue
//! one on every thread of every process that asked for it, so that the publishing side, which runs often, needs none.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Has this process take part in [`heavy`] barriers of others; returns whether the system supports that.
pub fn join() -> bool {
    static JOINED: OnceLock<bool> = OnceLock::new();
    *JOINED.get_or_init(|| {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED)
            && membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED)
    })
}

/// Issues a barrier on every running thread of every process that joined, and on this one.
pub fn heavy() {
    fence(Ordering::SeqCst);
    if join() {
        membarrier(libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    }
}

/// The barrier of a thread that publishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// Order for the compiler only. It is enough if this process and the one that sleeps have both [`join`]ed.
    Light,
    /// A full barrier of the thread's own.
    Full,
}

impl Barrier {
    /// Orders earlier stores before later loads.
    #[inline]
    pub fn pass(self) {
        match self {
            Self::Light => compiler_fence(Ordering::SeqCst),
            Self::Full => fence(Ordering::SeqCst),
        }
    }
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: membarrier takes integers and touches no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

    use super::*;

    #[test]
    fn one_of_two_sees_the_other() {
        // Both threads store, then load: without a barrier between, both can miss each other's store.
        let barrier = if join() { Barrier::Light } else { Barrier::Full };
        let words = [const { AtomicU32::new(0) }; 2];
        let missed = [const { AtomicBool::new(false) }; 2];
        let round_ends = std::sync::Barrier::new(2);
        std::thread::scope(|threads| {
            for end in [0, 1] {
                let (words, missed, round_ends) = (&words, &missed, &round_ends);
                threads.spawn(move || {
                    for round in 1..=1_000 {
                        words[end].store(round, Relaxed);
                        if end == 0 {
                            barrier.pass();
                        } else {
                            heavy();
                        }
                        missed[end].store(words[1 - end].load(Relaxed) < round, Relaxed);
                        round_ends.wait();
                        let neither = missed.iter().all(|missed| missed.load(Relaxed));
                        assert!(!neither, "both missed round {round}");
                        round_ends.wait();
                    }
                });
            }
        });
    }
}
