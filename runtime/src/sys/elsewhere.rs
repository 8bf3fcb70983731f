//! Dropping values on a thread of its own.
//!
//! # Normal operation
//! Closing a descriptor can take long: a file system in user space answers the close when it likes, and a socket may be
//! set to linger. Unmapping memory takes time to free its pages. A core that is to drop descriptors or memory which a peer
//! passed to it gives them to a thread of this module instead.

use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::thread;

/// Drops `value` on a thread that all cores share; on this one if the system starts no thread.
pub fn drop_elsewhere(value: impl Send + 'static) {
    if let Some(thread) = THREAD.get_or_init(start) {
        // The thread ends with the process.
        let _ = thread.send(Box::new(value));
    }
}

fn start() -> Option<Sender<Box<dyn Dropped>>> {
    let (sender, values) = channel();
    let work = move || values.into_iter().for_each(drop);
    thread::Builder::new().name("dropping".to_owned()).spawn(work).ok()?;
    Some(sender)
}

/// Anything that another thread may drop.
trait Dropped: Send {}

impl<T: Send> Dropped for T {}

/// The way to the thread, which starts with the first value; none inside if the system started none.
static THREAD: OnceLock<Option<Sender<Box<dyn Dropped>>>> = OnceLock::new();

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use super::*;

    struct Tells(Sender<ThreadId>);

    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }

    #[test]
    fn a_value_is_dropped_by_another_thread() {
        let (sender, told) = channel();
        drop_elsewhere(Tells(sender));
        assert_ne!(told.recv().unwrap(), thread::current().id());
    }
}
