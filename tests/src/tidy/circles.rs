//! Import circles: files of one crate that name each other, so that no one of them can be read first.
//!
//! A file needs another if it names an item defined there, by a `use` or by a path in its code. Names are followed
//! through re-exports to the file that defines them; a `use` needs the file that it names as well, since a reader goes
//! there first. Three things do not count: a `mod` line, a `pub use` that passes
//! on an item of a file below without using it, and code compiled for tests only.

use std::collections::{BTreeMap, BTreeSet};

use super::Breach;
use crate::source::Workspace;

mod graph;
mod names;

/// Checks that no file of these crates is in a circle.
pub fn circles(workspace: &Workspace) -> Vec<Breach> {
    let mut found = Vec::new();
    for home in CRATES {
        let needs = names::needs(workspace, home);
        for circle in graph::circles(&needs) {
            found.extend(circle.iter().map(|file| names_others(file, &circle, &needs)));
        }
    }
    found
}

/// The files that each file of a crate needs, by path.
type Needs = BTreeMap<String, BTreeSet<String>>;

fn names_others(file: &str, circle: &BTreeSet<String>, needs: &Needs) -> Breach {
    let others = needs.get(file).into_iter().flatten().filter(|other| circle.contains(*other));
    let others: Vec<_> = others.map(String::as_str).collect();
    Breach::of_file(file, format!("is in an import circle: it names {}", others.join(", ")))
}

/// The crates that are checked.
const CRATES: [&str; 6] = ["apps/haulage", "apps/kv", "apps/store", "mr-pool", "proto", "runtime"];

#[cfg(test)]
mod tests;
