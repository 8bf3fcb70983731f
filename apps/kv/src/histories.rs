//! Whether what several clients saw of one key could have happened one thing after another.
//!
//! A history is linearizable if each act can be given a moment between its beginning and its end so that, in the order of
//! these moments, every act saw what the ones before it had left. All orders that may be are searched, with what was seen to fail
//! remembered, as Wing and Gong do, and Lowe.

use std::collections::{BTreeSet, HashSet};

/// An act on a key that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Act {
    /// The moment at which it began.
    pub(crate) began: u64,
    /// The moment at which its end was known.
    pub(crate) ended: u64,
    /// What it was.
    pub(crate) what: What,
}

/// What was done, and seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A value was stored.
    Put(u32),
    /// This value was found, or none.
    Get(Option<u32>),
    /// The key was deleted, or was not there.
    Del(Found),
}

/// Whether a key was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Yes,
    No,
}

impl What {
    /// Returns what is left of the key, if this can be what happens to it.
    fn after(self, value: Option<u32>) -> Option<Option<u32>> {
        match self {
            Self::Put(new) => Some(Some(new)),
            Self::Get(seen) => (seen == value).then_some(value),
            Self::Del(found) => ((found == Found::Yes) == value.is_some()).then_some(None),
        }
    }
}

/// Returns what may be left of a key after all of these acts, of which there are at most 64, if one of `before` was there.
/// There is nothing if no order explains them.
pub(crate) fn outcomes(acts: &[Act], before: &BTreeSet<Option<u32>>) -> BTreeSet<Option<u32>> {
    assert!(acts.len() <= 64, "a bit for each");
    let all = if acts.is_empty() { 0 } else { u64::MAX >> (64 - acts.len()) };
    let mut seen = HashSet::new();
    let mut open: Vec<_> = before.iter().map(|value| (0_u64, *value)).collect();
    let mut left = BTreeSet::new();
    while let Some((done, value)) = open.pop() {
        if !seen.insert((done, value)) {
            continue;
        }
        if done == all {
            left.insert(value);
            continue;
        }
        let rest = || acts.iter().enumerate().filter(|(at, _)| done & 1 << at == 0);
        // What began after another ended comes behind it.
        let first_end = rest().map(|(_, act)| act.ended).min().unwrap_or(u64::MAX);
        for (at, act) in rest().filter(|(_, act)| act.began <= first_end) {
            if let Some(next) = act.what.after(value) {
                open.push((done | 1 << at, next));
            }
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    fn act(began: u64, ended: u64, what: What) -> Act {
        Act { began, ended, what }
    }

    fn left(acts: &[Act]) -> Vec<Option<u32>> {
        outcomes(acts, &BTreeSet::from([None])).into_iter().collect()
    }

    #[test]
    fn acts_in_turn_have_one_outcome() {
        let acts = [
            act(1, 2, What::Get(None)),
            act(3, 4, What::Put(7)),
            act(5, 6, What::Get(Some(7))),
            act(7, 8, What::Del(Found::Yes)),
            act(9, 10, What::Del(Found::No)),
        ];
        assert_eq!(left(&acts), [None]);
        assert_eq!(left(&acts[..3]), [Some(7)]);
        assert_eq!(left(&[]), [None]);
    }

    #[test]
    fn acts_at_the_same_time_have_either_outcome() {
        let both = [act(1, 9, What::Put(1)), act(2, 8, What::Put(2))];
        assert_eq!(left(&both), [Some(1), Some(2)]);
        // Who looks afterwards decides.
        assert_eq!(left(&[both[0], both[1], act(10, 11, What::Get(Some(1)))]), [Some(1)]);
        assert_eq!(left(&[both[0], act(3, 4, What::Get(None))]), [Some(1)]);
    }

    #[test]
    fn what_no_order_explains_is_found() {
        // A value older than one whose PUT had ended.
        let old = [act(1, 2, What::Put(1)), act(3, 4, What::Put(2)), act(5, 6, What::Get(Some(1)))];
        assert_eq!(left(&old), []);
        // A newer value, and then an older one.
        let back = [
            act(1, 2, What::Put(1)),
            act(3, 20, What::Put(2)),
            act(4, 5, What::Get(Some(2))),
            act(6, 7, What::Get(Some(1))),
        ];
        assert_eq!(left(&back), []);
        // A value of nobody, and a key that two have deleted.
        assert_eq!(left(&[act(1, 2, What::Get(Some(9)))]), []);
        let twice = [
            act(1, 2, What::Put(1)),
            act(3, 9, What::Del(Found::Yes)),
            act(4, 8, What::Del(Found::Yes)),
        ];
        assert_eq!(left(&twice), []);
    }
}
