//! A table of connections: one dense slot for each, with a generation that tells successive uses apart.

use haulage_proto::verbs::QpNum;

/// Values by queue pair number. Grows with use, up to a limit.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    slots: Vec<QpSlot<T>>,
    free: Vec<u16>,
    slots_max: usize,
    in_use: usize,
}

#[derive(Debug)]
struct QpSlot<T> {
    generation: u16,
    is_in_use: bool,
    value: Option<Box<T>>,
}

impl<T> Slots<T> {
    /// Makes an empty table.
    ///
    /// # Panics
    ///
    /// If `slots_max` exceeds 65,536.
    pub(crate) fn new(slots_max: usize) -> Self {
        assert!(slots_max <= 1 << 16, "a slot number has 16 bits");
        Self { slots: Vec::new(), free: Vec::new(), slots_max, in_use: 0 }
    }

    /// Puts a value into a free slot; `None` if all are in use.
    pub(crate) fn insert(&mut self, make: impl FnOnce(QpNum) -> T) -> Option<QpNum> {
        let qp = self.reserve()?;
        self.fill(qp, make(qp));
        Some(qp)
    }

    /// Takes a free slot, whose value comes later, if ever; `None` if all are in use.
    pub(crate) fn reserve(&mut self) -> Option<QpNum> {
        if self.is_full() {
            return None;
        }
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                let index = u16::try_from(self.slots.len()).ok()?;
                self.slots.push(QpSlot { generation: 0, is_in_use: false, value: None });
                index
            }
        };
        let slot = self.slots.get_mut(usize::from(index))?;
        slot.generation = slot.generation.wrapping_add(1);
        slot.is_in_use = true;
        self.in_use += 1;
        Some(QpNum::new(index, slot.generation))
    }

    /// Puts a value into a slot that was reserved.
    pub(crate) fn fill(&mut self, qp: QpNum, value: T) {
        let slot = self.slots.get_mut(qp.slot()).filter(|s| s.generation == qp.generation());
        if let Some(slot) = slot.filter(|slot| slot.is_in_use) {
            slot.value = Some(Box::new(value));
        }
    }

    /// Finds a value.
    #[inline]
    pub(crate) fn get(&mut self, qp: QpNum) -> Option<&mut T> {
        let slot = self.slots.get_mut(qp.slot())?;
        if slot.generation != qp.generation() {
            return None;
        }
        slot.value.as_deref_mut()
    }

    /// Frees a slot and returns its value, if it had one.
    pub(crate) fn remove(&mut self, qp: QpNum) -> Option<Box<T>> {
        let slot = self.slots.get_mut(qp.slot()).filter(|s| s.generation == qp.generation())?;
        if std::mem::take(&mut slot.is_in_use) {
            self.in_use -= 1;
            self.free.extend(u16::try_from(qp.slot()).ok());
        }
        slot.value.take()
    }

    /// Returns all values.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_deref_mut())
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.in_use >= self.slots_max
    }

    pub(crate) const fn in_use(&self) -> usize {
        self.in_use
    }

    /// Finds a value, for reading only.
    pub(crate) fn peek(&self, qp: QpNum) -> Option<&T> {
        let slot = self.slots.get(qp.slot())?;
        slot.value.as_deref().filter(|_| slot.generation == qp.generation())
    }

    /// Returns the queue pair in use at `slot`.
    #[cfg(feature = "verbs")]
    pub(crate) fn at(&self, slot: u32) -> Option<QpNum> {
        let index = u16::try_from(slot).ok()?;
        let slot = self.slots.get(usize::from(index))?;
        slot.value.as_ref().map(|_| QpNum::new(index, slot.generation))
    }

    /// Returns all queue pairs in use.
    pub(crate) fn all(&self) -> impl Iterator<Item = QpNum> + '_ {
        let used = (0_u16..).zip(&self.slots).filter(|(_, slot)| slot.value.is_some());
        used.map(|(index, slot)| QpNum::new(index, slot.generation))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_in_use_from_its_reservation_until_it_is_freed() {
        let mut slots = Slots::new(2);
        let [first, second] = [(); 2].map(|()| slots.reserve().unwrap());
        assert!(slots.is_full() && slots.reserve().is_none() && slots.all().next().is_none());
        slots.fill(first, 7);
        assert_eq!((slots.peek(first), slots.peek(second)), (Some(&7), None));
        assert_eq!((slots.remove(second), slots.remove(second), slots.in_use()), (None, None, 1));
        slots.fill(second, 8);
        assert_eq!(slots.get(second), None, "the reservation is over");
        let third = slots.insert(|_| 9).unwrap();
        assert_eq!((third.slot(), slots.remove(third)), (second.slot(), Some(Box::new(9))));
        assert_eq!((slots.remove(first), slots.in_use()), (Some(Box::new(7)), 0));
    }
}
