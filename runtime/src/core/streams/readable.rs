//! The connections that may have octets to be read, and whose turn it is.
//!
//! Origins have turns, each for one of its connections, in their order. So an origin keeps another waiting for one turn of a
//! connection, on however many connections it sends.

use std::collections::VecDeque;

use crate::key::ConnectionKey;

/// The connections that may have octets to be read, by origin.
#[derive(Debug, Default)]
pub(in crate::core) struct Readable {
    /// The numbers of origins with connections here, in the order of their turns.
    rotation: VecDeque<usize>,
    /// The connections of each origin, by its number. The names of some may be stale.
    queues: Vec<VecDeque<ConnectionKey>>,
    /// All connections.
    count: usize,
}

impl Readable {
    /// Queues a connection of the origin of this number.
    pub(in crate::core) fn push(&mut self, origin: usize, key: ConnectionKey) {
        if self.queues.len() <= origin {
            self.queues.resize_with(origin + 1, VecDeque::new);
        }
        let Some(queue) = self.queues.get_mut(origin) else { panic!("there is room for it") };
        if queue.is_empty() {
            self.rotation.push_back(origin);
        }
        queue.push_back(key);
        self.count += 1;
    }

    /// Takes the connection whose turn is next.
    pub(in crate::core) fn pop(&mut self) -> Option<ConnectionKey> {
        let origin = self.rotation.pop_front()?;
        let queue = self.queues.get_mut(origin)?;
        let key = queue.pop_front();
        if !queue.is_empty() {
            self.rotation.push_back(origin);
        }
        self.count -= usize::from(key.is_some());
        key
    }

    /// Returns the number of origins with connections here.
    pub(in crate::core) fn origins(&self) -> usize {
        self.rotation.len()
    }

    /// Returns the number of connections.
    pub(in crate::core) const fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there is no connection.
    pub(in crate::core) const fn is_empty(&self) -> bool {
        self.count == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_have_turns_and_each_keeps_the_order_of_its_connections() {
        let key = |slot| ConnectionKey::new(slot, 0);
        let mut readable = Readable::default();
        (0..4).for_each(|slot| readable.push(3, key(slot)));
        readable.push(1, key(10));
        assert_eq!((readable.origins(), readable.len()), (2, 5));
        assert_eq!([readable.pop(), readable.pop()], [Some(key(0)), Some(key(10))]);
        readable.push(1, key(11));
        let rest: Vec<_> = std::iter::from_fn(|| readable.pop()).collect();
        assert_eq!(rest, [1, 11, 2, 3].map(key));
        assert!(readable.is_empty() && readable.origins() == 0);
    }
}
