//! Whose turn it is: what waits, by connection and by origin.
//!
//! Origins have turns, each for one of its connections, and the connections of an origin have turns among themselves. So
//! an origin keeps another waiting for one turn of a connection, however many connections it has and however much waits on
//! each.

use std::collections::VecDeque;

/// What waits for turns. Connections are named by a slot, each origin by its number.
#[derive(Debug)]
pub(crate) struct Turns<T> {
    /// The origins with connections here, in the order of their turns.
    rotation: VecDeque<usize>,
    /// The slots of each origin's connections with something here, in the order of their turns.
    connections: Vec<VecDeque<usize>>,
    /// What waits, by the connection's slot.
    queues: Vec<Queue<T>>,
    /// Connections with something here.
    count: usize,
}

#[derive(Debug)]
struct Queue<T> {
    /// Oldest first. Some may be stale.
    items: VecDeque<T>,
    /// Whether the connection will have a turn.
    is_queued: bool,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        let (rotation, connections) = (VecDeque::new(), Vec::new());
        Self { rotation, connections, queues: Vec::new(), count: 0 }
    }
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: VecDeque::new(), is_queued: false }
    }
}

impl<T> Turns<T> {
    /// Queues something of the connection in a slot, which is of this origin.
    #[inline]
    pub(crate) fn push(&mut self, origin: usize, slot: usize, item: T) {
        if self.queues.len() <= slot {
            self.queues.resize_with(slot + 1, Queue::default);
        }
        let Some(queue) = self.queues.get_mut(slot) else { panic!("there is room for it") };
        queue.items.push_back(item);
        if !std::mem::replace(&mut queue.is_queued, true) {
            self.begin(origin, slot);
        }
    }

    /// Has a connection have turns.
    fn begin(&mut self, origin: usize, slot: usize) {
        if self.connections.len() <= origin {
            self.connections.resize_with(origin + 1, VecDeque::new);
        }
        let Some(connections) = self.connections.get_mut(origin) else {
            panic!("there is room for it")
        };
        if connections.is_empty() {
            self.rotation.push_back(origin);
        }
        connections.push_back(slot);
        self.count += 1;
    }

    /// Takes what is next in its turn, if it may be taken now. A connection of which it may not loses its turn.
    #[inline]
    pub(crate) fn pop(&mut self, may: impl Fn(&T) -> bool) -> Option<T> {
        for _ in 0..self.count {
            let origin = self.rotation.pop_front()?;
            let connections = self.connections.get_mut(origin)?;
            let slot = connections.pop_front()?;
            let queue = self.queues.get_mut(slot)?;
            let next = queue.items.pop_front_if(|next| may(next));
            queue.is_queued = !queue.items.is_empty();
            if queue.is_queued {
                connections.push_back(slot);
            } else {
                self.count -= 1;
            }
            if !connections.is_empty() {
                self.rotation.push_back(origin);
            }
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Takes all that waits of the connection in a slot.
    pub(crate) fn take_all_of(&mut self, slot: usize) -> VecDeque<T> {
        self.queues
            .get_mut(slot)
            .map_or_else(VecDeque::new, |queue| std::mem::take(&mut queue.items))
    }

    /// Returns whether nothing waits.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether something waits of the connection in a slot.
    #[inline]
    pub(crate) fn has_of(&self, slot: usize) -> bool {
        !self.is_empty() && self.queues.get(slot).is_some_and(|queue| !queue.items.is_empty())
    }

    /// Returns the number of connections with something here.
    pub(crate) const fn connections(&self) -> usize {
        self.count
    }

    /// Returns the number of origins with something here.
    pub(crate) fn origins(&self) -> usize {
        self.rotation.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_have_turns_and_each_keeps_the_order_of_its_connections() {
        let mut turns = Turns::default();
        (0..4).for_each(|slot| turns.push(3, slot, slot * 100));
        turns.push(3, 0, 1);
        turns.push(1, 10, 1000);
        assert_eq!((turns.origins(), turns.connections()), (2, 5));
        assert_eq!([turns.pop(|_| true), turns.pop(|_| true)], [Some(0), Some(1000)]);
        turns.push(1, 11, 1100);
        let rest: Vec<_> = std::iter::from_fn(|| turns.pop(|_| true)).collect();
        assert_eq!(rest, [100, 1100, 200, 300, 1]);
        assert!(turns.is_empty() && turns.origins() == 0);
    }

    #[test]
    fn what_may_not_be_taken_keeps_nothing_of_others_waiting() {
        let mut turns = Turns::default();
        turns.push(0, 0, 'a');
        turns.push(0, 1, 'b');
        turns.push(1, 2, 'c');
        assert_eq!(turns.pop(|item| *item == 'b'), Some('b'));
        assert!(turns.has_of(0) && !turns.has_of(1) && turns.has_of(2));
        assert_eq!(turns.pop(|_| false), None);
        assert_eq!([turns.pop(|_| true), turns.pop(|_| true)], [Some('c'), Some('a')]);
    }

    #[test]
    fn what_is_taken_apart_from_its_turn_leaves_an_empty_one() {
        let mut turns = Turns::default();
        turns.push(0, 5, 1);
        turns.push(0, 5, 2);
        turns.push(0, 6, 3);
        assert_eq!(turns.take_all_of(5), [1, 2]);
        turns.push(0, 5, 4);
        assert_eq!([turns.pop(|_| true), turns.pop(|_| true)], [Some(4), Some(3)]);
        assert_eq!(turns.pop(|_| true), None);
        assert!(turns.is_empty() && turns.take_all_of(7).is_empty());
    }
}
