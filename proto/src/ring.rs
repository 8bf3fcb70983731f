//! A queue of fixed capacity that never allocates.

/// A first-in, first-out queue of fixed capacity, held in place.
#[derive(Debug)]
pub(crate) struct Ring<T, const N: usize> {
    items: [Option<T>; N],
    head: usize,
    count: usize,
}

impl<T: Copy, const N: usize> Ring<T, N> {
    pub(crate) const fn new() -> Self {
        Self { items: [None; N], head: 0, count: 0 }
    }

    pub(crate) fn try_push(&mut self, item: T) -> bool {
        if self.is_full() {
            return false;
        }
        let at = self.head.wrapping_add(self.count).checked_rem(N).unwrap_or_default();
        if let Some(place) = self.items.get_mut(at) {
            *place = Some(item);
            self.count = self.count.saturating_add(1);
        }
        true
    }

    pub(crate) fn push(&mut self, item: T) {
        let pushed = self.try_push(item);
        debug_assert!(pushed, "one input asks for no more than fits");
    }

    pub(crate) fn pop(&mut self) -> Option<T> {
        let item = self.items.get_mut(self.head)?.take()?;
        self.count = self.count.saturating_sub(1);
        // An empty queue starts again at its first slot, so the same few slots stay in the cache.
        self.head = match self.count {
            0 => 0,
            _ => self.head.wrapping_add(1).checked_rem(N).unwrap_or_default(),
        };
        Some(item)
    }

    pub(crate) fn clear(&mut self) {
        while self.pop().is_some() {}
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    const fn is_full(&self) -> bool {
        self.count >= N
    }
}
