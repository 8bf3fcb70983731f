//! The device, and the connection manager: what they have to tell.

use std::time::Duration;

use haulage_proto::time::Instant;

use crate::provider::Waker;
use crate::sys::ibverbs::{CmEvent, Device, EventChannel, Fault, Reader};

/// A device with the events that concern its connections.
#[derive(Debug)]
pub(super) struct Manager {
    device: Device,
    /// The faults of devices that any core has found.
    news: Reader,
    channel: EventChannel,
    ask_at: Instant,
}

impl Manager {
    /// Watches for the events of `device` and `channel`. `waker` is signaled for faults that other cores find.
    pub(super) fn new(device: Device, channel: EventChannel, waker: Waker) -> Self {
        Self { device, news: Device::join_news(waker), channel, ask_at: Instant::ZERO }
    }

    /// Returns the faults found since they were asked for last, and has them asked for again in a while.
    pub(super) fn faults(&mut self, now: Instant) -> Vec<Fault> {
        self.ask_at = now.saturating_add(ASK_EVERY);
        self.device.faults(&mut self.news)
    }

    /// Takes the next event of the connection manager.
    pub(super) fn next(&self) -> Option<CmEvent> {
        self.channel.next()
    }

    /// Has the manager asked again at `at`.
    pub(super) const fn ask_at(&mut self, at: Instant) {
        self.ask_at = at;
    }

    /// Returns whether it is time to ask for events.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.ask_at || self.news.has_more()
    }

    pub(super) const fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the channel of the connection manager, for ids of this provider.
    pub(super) const fn channel(&self) -> &EventChannel {
        &self.channel
    }
}

/// The interval at which the connection manager is asked while connections carry messages.
const ASK_EVERY: Duration = Duration::from_micros(200);
