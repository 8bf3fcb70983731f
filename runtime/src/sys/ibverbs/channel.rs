//! The channels on which the events of librdmacm's ids arrive.

use std::marker::PhantomData;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::{Arc, PoisonError};

use rdma_sys::{rdma_create_event_channel, rdma_destroy_event_channel, rdma_event_channel};

use super::Refused;
use super::descriptor::nonblocking;

/// The channel on which the events of ids arrive, as the thread has it that takes them.
#[derive(Debug)]
pub(crate) struct EventChannel {
    channel: Arc<Channel>,
    /// Other threads have no use of it.
    _thread: PhantomData<*const ()>,
}

/// The library's channel, kept by its events' thread and by every id on it.
#[derive(Debug)]
pub(super) struct Channel {
    channel: NonNull<rdma_event_channel>,
    /// Taken for each event, and for each id that leaves: the library allows one of the two at a time.
    taking: Lock<()>,
}

// SAFETY: any thread may call librdmacm; what it does not allow at the same time, `taking` keeps apart.
unsafe impl Send for Channel {}
// SAFETY: as above; the descriptor never changes.
unsafe impl Sync for Channel {}

/// A lock that two threads want at once only while a connection is handed over.
#[expect(
    clippy::disallowed_types,
    reason = "connections are set up rarely, by the standard of messages"
)]
type Lock<T> = std::sync::Mutex<T>;

impl EventChannel {
    /// Makes a channel that never blocks.
    pub(crate) fn new() -> Result<Self, Refused> {
        let what = "opening the RDMA connection manager";
        // SAFETY: it takes no argument.
        let channel = unsafe { rdma_create_event_channel() };
        let channel = NonNull::new(channel).ok_or_else(|| Refused::last(what))?;
        let channel = Channel { channel, taking: Lock::new(()) };
        nonblocking(channel.fd()).map_err(|error| Refused { what, error })?;
        Ok(Self { channel: Arc::new(channel), _thread: PhantomData })
    }

    /// Returns the descriptor that is readable while there are events.
    pub(crate) fn fd(&self) -> RawFd {
        self.channel.fd()
    }

    pub(super) const fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }
}

impl Channel {
    /// Keeps all ids on the channel, and its events untaken, until the returned value is dropped.
    pub(super) fn keep_ids(&self) -> impl Drop + use<'_> {
        // There is nothing in it that a panic could have left half done.
        self.taking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn raw(&self) -> *mut rdma_event_channel {
        self.channel.as_ptr()
    }

    fn fd(&self) -> RawFd {
        // SAFETY: the channel is live, and its descriptor never changes.
        unsafe { self.channel.as_ref() }.fd
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: it came from rdma_create_event_channel and is freed once; ids on it hold a count of us.
        unsafe { rdma_destroy_event_channel(self.raw()) };
    }
}
