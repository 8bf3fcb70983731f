//! The registrations of a device with memory windows, each open to one peer at most.
//!
//! # Normal operation
//!
//! A window is made for one queue pair, after it, and serves no other. When a process is killed, the kernel takes away
//! its objects, the youngest first, and soft-RoCE waits 50 s for a queue pair that a window is still bound to, then
//! frees it all the same: no window may be older than the queue pair it is bound to.
//!
//! A connection gets as many windows as it has open at once, and some more, so that a closed window rests for a while:
//! a late message of the peer finds no open handle.
//!
//! # Limits
//!
//! All connections share one number of windows. When that is reached, a resting window makes room. A window that is
//! open when its connection ends cannot be closed by a work request any more: it is freed, as are all others of the
//! connection, which takes the access away.

use std::collections::VecDeque;
use std::sync::Arc;

use haulage_mr_pool::Stags;
use haulage_proto::verbs::{Handle, QpNum};

use super::config::Unavailable;
use crate::sys::ibverbs::{Domain, Refused, Window};

/// The windows of one provider.
#[derive(Debug)]
pub(super) struct Windows {
    domain: Arc<Domain>,
    /// The windows by number, as many as there may be.
    windows: Vec<Option<OwnedWindow>>,
    /// The numbers without a window.
    vacant: Vec<usize>,
    /// The numbers of the windows of each connection that are not in use, by slot, longest unused first.
    resting: Vec<VecDeque<usize>>,
    /// The number of the window of each handle, by the part of the handle that never changes, ascending.
    index: Vec<(u32, usize)>,
    /// The source of our part of handles; the device chooses the rest.
    random: Stags,
}

/// A window, its owner and its use.
#[derive(Debug)]
struct OwnedWindow {
    window: Window,
    /// The only queue pair that uses the window.
    owner: QpNum,
    used: Option<Handle>,
    /// The device has closed it for a peer that does not own it.
    is_void: bool,
}

impl Windows {
    /// Prepares for `count` windows of at most `connections` at once.
    pub(super) fn new(
        domain: &Arc<Domain>,
        count: usize,
        connections: usize,
    ) -> Result<Self, Unavailable> {
        Ok(Self {
            domain: Arc::clone(domain),
            windows: std::iter::repeat_with(|| None).take(count).collect(),
            vacant: (0..count).rev().collect(),
            resting: vec![VecDeque::new(); connections],
            index: Vec::with_capacity(count),
            random: Stags::new(1).map_err(|_| Unavailable::NoEntropy)?,
        })
    }

    /// Checks that the device makes windows, by having it make one.
    pub(super) fn probe(domain: &Arc<Domain>) -> Result<(), Refused> {
        Window::new(domain).map(drop)
    }

    /// Draws a handle for `qp`; `None` if all windows are in use, or the device makes no more.
    pub(super) fn reserve(&mut self, qp: QpNum) -> Option<Handle> {
        let rested = self.resting.get(qp.slot())?.len() >= RESTING_MIN;
        if !rested {
            self.add(qp);
        }
        let number = self.resting.get_mut(qp.slot())?.pop_front()?;
        let owned = self.windows.get_mut(number)?.as_mut()?;
        let last = owned.window.key();
        let handle = Handle(last.0 & !KEY | fresh_key(&mut self.random, last.0));
        owned.used = Some(handle);
        Some(handle)
    }

    /// Makes a window for `qp`, if there may be one more, or if `qp` has no resting window and another connection has
    /// one.
    fn add(&mut self, qp: QpNum) {
        let needs = self.resting.get(qp.slot()).is_some_and(VecDeque::is_empty);
        if self.vacant.is_empty() && needs {
            let most = self.resting.iter_mut().max_by_key(|resting| resting.len());
            if let Some(number) = most.and_then(VecDeque::pop_front) {
                self.free(number);
            }
        }
        let Some(number) = self.vacant.pop() else { return };
        let Ok(window) = Window::new(&self.domain) else { return self.vacant.push(number) };
        let known = window.key().0 >> 8;
        let at = self.index.partition_point(|(index, _)| *index < known);
        self.index.insert(at, (known, number));
        let owned = OwnedWindow { window, owner: qp, used: None, is_void: false };
        if let (Some(free), Some(resting)) =
            (self.windows.get_mut(number), self.resting.get_mut(qp.slot()))
        {
            *free = Some(owned);
            // A window that was never used goes before those that rest after use.
            resting.push_front(number);
        }
    }

    /// Finds the window that `qp` reserved as `handle` and that is not bound yet.
    pub(super) fn reserved(&self, handle: Handle, qp: QpNum) -> Option<&Window> {
        let owned = self.of_handle(handle).filter(|owned| owned.is_used(handle, qp))?;
        (!owned.window.is_open()).then_some(&owned.window)
    }

    /// Returns whether the device has the window of `qp`'s `handle` open. Closing a window that is not open would be an
    /// error, and with soft-RoCE a fatal one.
    pub(super) fn is_open(&self, handle: Handle, qp: QpNum) -> bool {
        self.of_handle(handle).is_some_and(|owned| {
            owned.is_used(handle, qp) && owned.window.is_open() && !owned.is_void
        })
    }

    /// Notes that the device closed a window for a peer that does not own it.
    pub(super) fn stolen(&mut self, handle: Handle) {
        let found = self.find(handle).and_then(|number| self.windows.get_mut(number));
        if let Some(owned) = found.and_then(Option::as_mut) {
            owned.is_void |= owned.used == Some(handle);
        }
    }

    /// Notes that `qp`'s `handle` was invalidated, and drops the view. Returns whether it was open.
    pub(super) fn closed(&mut self, handle: Handle, qp: QpNum) -> bool {
        let Some(number) = self.find(handle) else { return false };
        let found = self.windows.get_mut(number).and_then(Option::as_mut);
        let Some(owned) = found.filter(|owned| owned.is_used(handle, qp)) else { return false };
        if !owned.window.is_open() {
            return false;
        }
        owned.window.closed();
        owned.used = None;
        owned.is_void = false;
        if let Some(resting) = self.resting.get_mut(qp.slot()) {
            resting.push_back(number);
        }
        true
    }

    /// Frees the windows of a queue pair that has failed: after this its peer reaches nothing.
    pub(super) fn release(&mut self, qp: QpNum) {
        if let Some(resting) = self.resting.get_mut(qp.slot()) {
            resting.clear();
        }
        for number in 0..self.windows.len() {
            let owned = self.windows.get(number).and_then(Option::as_ref);
            if owned.is_some_and(|owned| owned.owner == qp) {
                self.free(number);
            }
        }
    }

    /// Frees all windows: no peer reaches anything.
    pub(super) fn clear(&mut self) {
        self.windows.clear();
        self.vacant.clear();
        self.resting.clear();
        self.index.clear();
    }

    /// Frees a window that is not resting.
    fn free(&mut self, number: usize) {
        let owned = self.windows.get_mut(number).and_then(Option::take);
        if let Some(OwnedWindow { window, .. }) = owned {
            let known = window.key().0 >> 8;
            self.index.retain(|(index, _)| *index != known);
            drop(window);
            self.vacant.push(number);
        }
    }

    fn of_handle(&self, handle: Handle) -> Option<&OwnedWindow> {
        self.windows.get(self.find(handle)?)?.as_ref()
    }

    fn find(&self, handle: Handle) -> Option<usize> {
        let at = self.index.binary_search_by_key(&(handle.0 >> 8), |(index, _)| *index).ok()?;
        self.index.get(at).map(|(_, number)| *number)
    }
}

impl OwnedWindow {
    fn is_used(&self, handle: Handle, by: QpNum) -> bool {
        self.owner == by && self.used == Some(handle)
    }
}

/// Draws a key for a window, different from that of its last use, `last`.
fn fresh_key(random: &mut Stags, last: u32) -> u32 {
    // An offset is random from its 12th bit on.
    let key = u32::try_from(random.random_offset() >> 12 & u64::from(KEY)).unwrap_or_default();
    if key == last & KEY { (key + 1) & KEY } else { key }
}

/// The bits of a handle that are the key.
const KEY: u32 = 0xff;

/// The number of resting windows that a connection has, if possible, before one is used again.
const RESTING_MIN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_that_of_the_last_use() {
        let mut random = Stags::seeded(1, 3);
        let mut last = 0x1234_56ff;
        for _ in 0..2000 {
            let key = fresh_key(&mut random, last);
            assert!(key <= KEY && key != last & KEY);
            last = last & !KEY | key;
        }
    }
}
