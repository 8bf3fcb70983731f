//! Watches that wait for the first change of their keys.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::rc::Rc;

use super::log::Reader;

/// Watches by the prefixes of their keys.
#[derive(Debug, Default)]
pub(super) struct Idle {
    by_prefix: BTreeMap<Rc<[u8]>, Vec<Reader>>,
}

impl Idle {
    /// Has a watch wait for a key with a prefix.
    pub(super) fn insert(&mut self, prefix: &Rc<[u8]>, watch: Reader) {
        self.by_prefix.entry(Rc::clone(prefix)).or_default().push(watch);
    }

    /// Has a watch with a prefix wait no more.
    pub(super) fn remove(&mut self, prefix: &[u8], watch: Reader) {
        let Some(watches) = self.by_prefix.get_mut(prefix) else { return };
        watches.retain(|other| *other != watch);
        if watches.is_empty() {
            self.by_prefix.remove(prefix);
        }
    }

    /// Has all watches that wait for a key wait no more, and returns them.
    #[inline]
    pub(super) fn take(&mut self, key: &[u8]) -> Vec<Reader> {
        if self.by_prefix.is_empty() { Vec::new() } else { self.find(key) }
    }

    fn find(&mut self, key: &[u8]) -> Vec<Reader> {
        let (mut found, mut rest) = (Vec::new(), Some(key));
        while let Some(longest) = rest {
            // In order, a prefix comes before what begins with it, and only what begins with it comes between.
            let before = (Bound::Unbounded, Bound::Included(longest));
            let Some((prefix, _)) = self.by_prefix.range::<[u8], _>(before).next_back() else {
                break;
            };
            let common = prefix.iter().zip(longest).take_while(|(one, other)| one == other).count();
            if common < prefix.len() {
                rest = longest.get(..common);
                continue;
            }
            let prefix = Rc::clone(prefix);
            found.extend(self.by_prefix.remove(&prefix).unwrap_or_default());
            rest = prefix.len().checked_sub(1).and_then(|shorter| longest.get(..shorter));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_all_that_wait_for_it_and_no_others() {
        let words = ["", "a", "a`", "aa", "aaa", "aab", "aba", "ab", "b", "aaaa", "\u{7f}"];
        for set in 0..1_u64 << words.len() {
            let waiting = || (0..).zip(words).filter(|(number, _)| set >> number & 1 == 1);
            for key in words {
                let mut idle = Idle::default();
                waiting().for_each(|(number, word)| idle.insert(&word.as_bytes().into(), number));
                let mut found = idle.take(key.as_bytes());
                found.sort_unstable();
                let (starts, others): (Vec<_>, Vec<_>) =
                    waiting().partition(|(_, word)| key.starts_with(word));
                assert_eq!(found, starts.iter().map(|(number, _)| *number).collect::<Vec<_>>());
                assert_eq!(idle.by_prefix.len(), others.len());
                others.iter().for_each(|(number, word)| idle.remove(word.as_bytes(), *number));
                assert!(idle.by_prefix.is_empty());
            }
        }
    }
}
