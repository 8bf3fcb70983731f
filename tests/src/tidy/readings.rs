//! The readings of contradictory text: each names the tests that prove it.

use std::collections::BTreeSet;

use super::Breach;
use super::names::tests;
use crate::source::Workspace;

/// Checks that every entry of the page has a row with its tests, and that every name in it is a
/// test.
pub fn readings(workspace: &Workspace) -> Vec<Breach> {
    let Some(page) = workspace.get(PAGE) else {
        return vec![Breach::of_file(PAGE, "is missing")];
    };
    let tests = tests(workspace);
    let (mut entries, mut proved) = (BTreeSet::new(), BTreeSet::new());
    let mut found = Vec::new();
    let mut of_tests = false;
    for (index, line) in page.text.lines().enumerate() {
        of_tests |= line == SECTION;
        let mut cells = line.split('|').map(str::trim).skip(1);
        let Some(id) = cells.next().filter(|id| is_entry(id)) else { continue };
        if !of_tests {
            entries.insert(id);
            continue;
        }
        let names = cells.next().unwrap_or_default();
        let all: Vec<_> = line.split('`').skip(1).step_by(2).collect();
        if names.contains('`') {
            proved.insert(id);
        }
        found.extend(all.into_iter().filter(|name| !tests.contains_key(*name)).map(|name| {
            Breach {
                path: PAGE.to_owned(),
                line: index + 1,
                what: format!("{id} names `{name}`, which is no test"),
            }
        }));
    }
    let unproved = entries.difference(&proved);
    found.extend(unproved.map(|id| Breach::of_file(PAGE, format!("has no test for {id}"))));
    found
}

/// Returns whether a cell is the id of an entry: E or P, and a number.
fn is_entry(cell: &str) -> bool {
    let number = cell.strip_prefix(['E', 'P']);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

const PAGE: &str = "proto/READINGS.md";
const SECTION: &str = "## Tests";
