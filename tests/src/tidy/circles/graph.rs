//! Circles in a graph of files.

use std::collections::{BTreeMap, BTreeSet};

use super::Needs;

/// Returns the largest sets of two or more files in which each file needs every other, directly or through others.
pub(super) fn circles(needs: &Needs) -> BTreeSet<BTreeSet<String>> {
    let reached: BTreeMap<_, _> =
        needs.keys().map(|file| (file.as_str(), reached(needs, file))).collect();
    let mut found = BTreeSet::new();
    for (file, others) in &reached {
        let leads_back = |other: &&&str| reached.get(**other).is_some_and(|r| r.contains(file));
        let circle: BTreeSet<_> =
            others.iter().filter(leads_back).map(|other| (*other).to_owned()).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found
}

/// Returns the files that `from` needs, directly or through others. `from` is among them only if it is in a circle.
fn reached<'a>(needs: &'a Needs, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut pending: Vec<_> = needs.get(from).into_iter().flatten().collect();
    while let Some(file) = pending.pop() {
        if found.insert(file.as_str()) {
            pending.extend(needs.get(file).into_iter().flatten());
        }
    }
    found
}
