//! Shares of something bounded, by network.
//!
//! A network that holds none may take all that is free, and one that holds some takes more only if it then holds no more
//! than is then free. So one network leaves as much as it has, however many connections and addresses it has.

use std::collections::BTreeMap;

/// What networks hold of something of which there is so much.
#[derive(Debug)]
pub struct Shares {
    most: usize,
    held: usize,
    by_network: BTreeMap<u64, usize>,
}

impl Shares {
    /// Makes shares of `most` of which nobody holds anything.
    pub const fn new(most: usize) -> Self {
        Self { most, held: 0, by_network: BTreeMap::new() }
    }

    /// Has there be at least `most` to share.
    pub fn raise(&mut self, most: usize) {
        self.most = self.most.max(most);
    }

    /// Returns whether a network may take `more`.
    pub fn has_room(&self, network: u64, more: usize) -> bool {
        let own = self.by_network.get(&network).copied().unwrap_or(0);
        let free = self.most.saturating_sub(self.held);
        more <= free && (own == 0 || own.saturating_add(more) <= free - more)
    }

    /// Notes that a network takes `more`, whether it may or not.
    pub fn take(&mut self, network: u64, more: usize) {
        if more > 0 {
            self.held += more;
            *self.by_network.entry(network).or_default() += more;
        }
    }

    /// Notes that a network gives back some of what it holds.
    pub fn give_back(&mut self, network: u64, some: usize) {
        let Some(own) = self.by_network.get_mut(&network) else { return };
        let some = some.min(*own);
        self.held -= some;
        *own -= some;
        if *own == 0 {
            self.by_network.remove(&network);
        }
    }

    /// Returns what all networks hold.
    pub const fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_network_leaves_as_much_as_it_holds() {
        let mut shares = Shares::new(16);
        let mut take = |network, more| {
            let may = shares.has_room(network, more);
            if may {
                shares.take(network, more);
            }
            may
        };
        assert_eq!((0..20).filter(|_| take(1, 1)).count(), 8);
        assert_eq!((0..20).filter(|_| take(2, 1)).count(), 4);
        assert!(take(3, 4), "who has none may take what is free");
        assert!(!take(4, 1));
        shares.give_back(1, 5);
        assert!(shares.has_room(4, 5) && !shares.has_room(1, 2) && shares.has_room(1, 1));
        shares.give_back(1, 9);
        shares.give_back(5, 1);
        assert_eq!(shares.held(), 8);
    }
}
