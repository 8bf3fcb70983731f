//! Import circles: files of one crate that name each other, so that none can be read first.
//!
//! A file needs another if it names an item defined there, by a `use` or by a path in its code. Names are followed
//! through re-exports to the file that defines them. Three things are no need: a `mod` line, a `pub use` by which a
//! file passes on an item of a file below it without using it, and whatever is compiled for tests only.

use std::collections::{BTreeMap, BTreeSet};

use super::Breach;
use crate::source::Workspace;

mod graph;
mod names;

/// No file of these crates is in a circle, but for those in the list of known circles, which is true: each file
/// listed is in a circle, and with no file but those listed beside it.
pub fn circles(workspace: &Workspace) -> Vec<Breach> {
    let known = known(workspace);
    let mut found = Vec::new();
    let mut circling = BTreeSet::new();
    for home in CRATES {
        let needs = names::needs(workspace, home);
        for circle in graph::circles(&needs) {
            let is_known = known
                .iter()
                .any(|listed| circle.iter().all(|file| listed.contains_key(file.as_str())));
            if !is_known {
                found.extend(circle.iter().map(|file| names_others(file, &circle, &needs)));
            }
            circling.extend(circle);
        }
    }
    for (file, line) in known.into_iter().flatten() {
        if !circling.contains(file) {
            let what = format!("{file} is in no circle any more: strike it out");
            found.push(Breach { path: KNOWN.to_owned(), line, what });
        }
    }
    found
}

/// What each file of a crate needs, by their paths.
type Needs = BTreeMap<String, BTreeSet<String>>;

fn names_others(file: &str, circle: &BTreeSet<String>, needs: &Needs) -> Breach {
    let others = needs.get(file).into_iter().flatten().filter(|other| circle.contains(*other));
    let others: Vec<_> = others.map(String::as_str).collect();
    Breach::of_file(file, format!("is in an import circle: it names {}", others.join(", ")))
}

/// Reads the list of known circles: the files of each, with the lines they are listed on.
fn known(workspace: &Workspace) -> Vec<BTreeMap<&str, usize>> {
    let list = workspace.get(KNOWN).map(|list| list.text.as_str()).unwrap_or_default();
    let mut circles = vec![BTreeMap::new()];
    for (index, line) in list.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
        if line.is_empty() {
            circles.push(BTreeMap::new());
        } else if let Some(circle) = circles.last_mut() {
            circle.insert(line, index + 1);
        }
    }
    circles
}

/// The crates that are held to the rule.
const CRATES: [&str; 3] = ["mr-pool", "proto", "runtime"];

/// One file a line, an empty line between circles, `#` before what is for readers.
const KNOWN: &str = "tests/circles.txt";

#[cfg(test)]
mod tests;
