//! The registrations of a device: memory windows, each open to one peer at most.
//!
//! # Limits
//!
//! All windows are made at the start. One that is found open when its connection ends cannot be closed
//! by a work request any more: it is freed, which takes the access away, and another is made.

use std::collections::VecDeque;
use std::rc::Rc;

use haulage_mr_pool::Stags;
use haulage_proto::verbs::{Handle, QpNum};

use super::Unavailable;
use crate::sys::ibverbs::{Domain, Window};

/// The windows of one provider.
#[derive(Debug)]
pub(super) struct Windows {
    domain: Rc<Domain>,
    places: Vec<Place>,
    /// Places nobody uses, longest unused first: a late message of a peer meets nothing for a while.
    free: VecDeque<usize>,
    /// Which place a handle is of: what of its handle never changes, ascending.
    index: Vec<(u32, usize)>,
    /// Where our part of handles comes from; the device chooses the rest.
    random: Stags,
}

#[derive(Debug)]
struct Place {
    /// `None` if the device would not make another.
    window: Option<Window>,
    used: Option<(QpNum, Handle)>,
    /// The device has closed it for someone else than its owner.
    is_void: bool,
}

impl Windows {
    /// Makes `count` windows, or as many as the device does.
    pub(super) fn new(domain: &Rc<Domain>, count: usize) -> Result<Self, Unavailable> {
        let random = Stags::new(1).map_err(|_| Unavailable::NoEntropy)?;
        let mut places = Vec::with_capacity(count);
        while places.len() < count {
            match Window::new(domain) {
                Ok(window) => {
                    places.push(Place { window: Some(window), used: None, is_void: false })
                }
                Err(refused) if places.is_empty() => return Err(refused.into()),
                Err(_) => break,
            }
        }
        let free = (0..places.len()).collect();
        let index = Vec::with_capacity(count);
        let domain = Rc::clone(domain);
        let mut windows = Self { domain, places, free, index, random };
        windows.sort();
        Ok(windows)
    }

    /// Returns how many there are.
    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Draws a handle for a use by `qp`; `None` if all windows are in use.
    pub(super) fn reserve(&mut self, qp: QpNum) -> Option<Handle> {
        let number = self.free.pop_front()?;
        let place = self.places.get_mut(number)?;
        let last = place.window.as_ref()?.key();
        let handle = Handle(last.0 & !KEY | fresh_key(&mut self.random, last.0));
        place.used = Some((qp, handle));
        Some(handle)
    }

    /// Finds the window that was reserved as `handle` by `qp` and is not bound yet.
    pub(super) fn reserved(&self, handle: Handle, qp: QpNum) -> Option<&Window> {
        let place = self.places.get(self.place(handle)?)?;
        let window = place.window.as_ref()?;
        (place.used == Some((qp, handle)) && !window.is_open()).then_some(window)
    }

    /// Tells whether the device has the window of `qp`'s `handle` open. To close one that is not open
    /// would be an error, and to soft-RoCE a fatal one.
    pub(super) fn is_open(&self, handle: Handle, qp: QpNum) -> bool {
        let place = self.place(handle).and_then(|number| self.places.get(number));
        place.is_some_and(|place| {
            let is_open = place.window.as_ref().is_some_and(Window::is_open);
            is_open && !place.is_void && place.used == Some((qp, handle))
        })
    }

    /// Takes note that the device closed a window for someone it does not belong to.
    pub(super) fn stolen(&mut self, handle: Handle) {
        if let Some(place) = self.place(handle).and_then(|number| self.places.get_mut(number)) {
            place.is_void |= place.used.is_some_and(|(_, used)| used == handle);
        }
    }

    /// Takes note that `qp`'s `handle` was invalidated; drops the view. Returns whether it was open.
    pub(super) fn closed(&mut self, handle: Handle, qp: QpNum) -> bool {
        let Some(number) = self.place(handle) else { return false };
        let Some(place) = self.places.get_mut(number) else { return false };
        let Some(window) = place.window.as_ref().filter(|window| window.is_open()) else {
            return false;
        };
        if place.used != Some((qp, handle)) {
            return false;
        }
        window.closed();
        place.used = None;
        place.is_void = false;
        self.free.push_back(number);
        true
    }

    /// Takes everything from a queue pair that has failed: after this its peer reaches nothing.
    pub(super) fn release(&mut self, qp: QpNum) {
        let mut replaced = false;
        for (number, place) in self.places.iter_mut().enumerate() {
            if place.used.is_none_or(|(owner, _)| owner != qp) {
                continue;
            }
            if place.window.as_ref().is_some_and(Window::is_open) {
                place.window = None; // before another is made: there may be room for no more
                place.window = Window::new(&self.domain).ok();
                replaced = true;
            }
            place.used = None;
            place.is_void = false;
            if place.window.is_some() {
                self.free.push_back(number);
            }
        }
        if replaced {
            self.sort();
        }
    }

    /// Frees all windows: no peer reaches anything.
    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.free.clear();
        self.index.clear();
    }

    fn place(&self, handle: Handle) -> Option<usize> {
        let at = self.index.binary_search_by_key(&(handle.0 >> 8), |(index, _)| *index).ok()?;
        self.index.get(at).map(|(_, number)| *number)
    }

    fn sort(&mut self) {
        let places = self.places.iter().enumerate();
        let known = places.filter_map(|(number, place)| {
            place.window.as_ref().map(|window| (window.key().0 >> 8, number))
        });
        self.index.clear();
        self.index.extend(known);
        self.index.sort_unstable();
    }
}

/// Draws a key for a window whose last one was `last`: another.
fn fresh_key(random: &mut Stags, last: u32) -> u32 {
    // An offset is random from its 12th bit on.
    let key = u32::try_from(random.random_offset() >> 12 & u64::from(KEY)).unwrap_or_default();
    if key == last & KEY { (key + 1) & KEY } else { key }
}

/// The key within a handle.
const KEY: u32 = 0xff;

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
