//! The coverage table: each sentence of force in the specifications, and the tests that guard it.

use std::collections::{BTreeMap, BTreeSet};

use super::Breach;
use super::names::tests;
use crate::source::{Workspace, line_of};

pub use holds_in::Layer;

mod holds_in;

/// Checks the coverage table: each row is well formed, its tests exist and drive the layer it states, code cites its
/// sentence, and code cites no sentence without a row.
pub fn coverage(workspace: &Workspace) -> Vec<Breach> {
    let Some(table) = workspace.get(TABLE) else {
        return vec![Breach::of_file(TABLE, "is missing")];
    };
    let mut found = Vec::new();
    if table.text.lines().next() != Some(HEADER) {
        let what = format!("does not begin with `{}`", HEADER.escape_default());
        found.push(Breach { path: TABLE.to_owned(), line: 1, what });
    }
    let rows = rows(&table.text);
    let cited = citations(workspace, &rows);
    let tree = Tree {
        tests: tests(workspace),
        cited: cited.iter().filter(|c| !c.is_of_test).map(|c| c.id.as_str()).collect(),
    };
    let mut known = BTreeSet::new();
    for row in &rows {
        let wrong = row.wrong(&tree);
        let twice = (!known.insert(row.id)).then(|| "has a second row".to_owned());
        let all = wrong.into_iter().chain(twice);
        found.extend(all.map(|what| row.breach(format!("{} {what}", row.id))));
    }
    let unknown = cited.iter().filter(|citation| !known.contains(citation.id.as_str()));
    found.extend(unknown.map(|citation| Breach {
        path: citation.path.clone(),
        line: citation.line,
        what: format!("cites {}, which has no row in {TABLE}", citation.id),
    }));
    found
}

/// A sentence that has tests which run without RDMA devices.
#[derive(Clone, Debug)]
pub struct TestedRow {
    /// The id of the sentence in the table.
    pub id: String,
    /// The outermost layer of the product that obeys the sentence.
    pub holds_in: Layer,
    /// The tests that drive this layer and run without RDMA devices, in the order of the row.
    pub tests: Vec<NamedTest>,
}

/// A test that a row names.
#[derive(Clone, Debug)]
pub struct NamedTest {
    /// The test's full name: crate directory, modules, function.
    pub name: String,
    /// The test's file, from the workspace's root.
    pub path: String,
}

/// Returns the sentences that have tests which run without RDMA devices, in the order of the table.
pub fn tested(workspace: &Workspace) -> Vec<TestedRow> {
    let table = workspace.get(TABLE).map(|table| table.text.as_str()).unwrap_or_default();
    let files = tests(workspace);
    let tested = |row: Row<'_>| {
        let holds_in = Layer::of_word(row.holds_in).filter(|_| row.status == "test")?;
        let named = |name: &str| {
            let path = files.get(name)?.clone();
            let runs = !DEVICES.iter().any(|home| path.starts_with(home));
            runs.then(|| NamedTest { name: name.to_owned(), path })
        };
        let drives = |name: &&str| Layer::of_test(name) == Some(holds_in);
        let tests: Vec<_> = row.tests().filter(drives).filter_map(named).collect();
        (!tests.is_empty()).then(|| TestedRow { id: row.id.to_owned(), holds_in, tests })
    };
    rows(table).into_iter().filter_map(tested).collect()
}

fn rows(table: &str) -> Vec<Row<'_>> {
    table.lines().enumerate().skip(1).map(Row::parse).collect()
}

/// The tests and the citations of the workspace, to check rows against.
struct Tree<'a> {
    tests: BTreeMap<String, String>,
    cited: BTreeSet<&'a str>,
}

/// One row of the table.
struct Row<'a> {
    line: usize,
    id: &'a str,
    level: &'a str,
    status: &'a str,
    /// The outermost layer that the tests of the row drive.
    holds_in: &'a str,
    place: &'a str,
    /// Whether it has more or fewer cells than the header, or no id.
    is_odd: bool,
}

impl<'a> Row<'a> {
    fn parse((index, line): (usize, &'a str)) -> Self {
        let mut cells = line.split('\t');
        let mut next = || cells.next().unwrap_or("").trim();
        let (id, level, status) = (next(), next(), next());
        let (holds_in, place) = (next(), next());
        let is_odd = id.is_empty() || line.split('\t').count() != HEADER.split('\t').count();
        Self { line: index + 1, id, level, status, holds_in, place, is_odd }
    }

    /// Returns the names of the tests of a row of status `test`.
    fn tests(&self) -> impl Iterator<Item = &'a str> + Clone {
        self.place.split([' ', ',', ';']).filter(|name| !name.is_empty())
    }

    fn wrong(&self, tree: &Tree<'_>) -> Vec<String> {
        let mut found = Vec::new();
        if self.is_odd {
            found.push("does not have the cells of the header".to_owned());
        }
        if !LEVELS.contains(&self.level) {
            found.push(format!("has the unknown level `{}`", self.level));
        }
        match self.status {
            "test" => found.extend(self.wrong_of_test(tree)),
            "exception" | "not-applicable" => {
                if self.place.split_whitespace().count() < REASON_WORDS_MIN {
                    found.push("gives no reason".to_owned());
                }
                if self.holds_in != NOWHERE {
                    found.push(format!("is not tested, but holds in `{}`", self.holds_in));
                }
            }
            "open" => found.push("is still open".to_owned()),
            other => found.push(format!("has the unknown status `{other}`")),
        }
        found
    }

    fn wrong_of_test(&self, tree: &Tree<'_>) -> Vec<String> {
        let mut found = Vec::new();
        let mut outermost = None;
        for name in self.tests() {
            let layer = Layer::of_test(name);
            if !tree.tests.contains_key(name) {
                found.push(format!("names `{name}`, which is no test"));
            } else if layer.is_none() {
                found.push(format!("names `{name}`, which drives no layer"));
            } else {
                outermost = outermost.max(layer);
            }
        }
        if let Some(shown) = outermost.map(Layer::word).filter(|shown| *shown != self.holds_in) {
            found.push(format!("holds in `{}`, but its tests show `{shown}`", self.holds_in));
        }
        if self.tests().next().is_none() {
            found.push("names no test".to_owned());
        }
        if !tree.cited.contains(self.id) {
            found.push("is cited by no code".to_owned());
        }
        found
    }

    fn breach(&self, what: String) -> Breach {
        Breach { path: TABLE.to_owned(), line: self.line, what }
    }
}

/// One id in brackets in a Rust file.
struct Citation {
    path: String,
    line: usize,
    id: String,
    /// Whether the citation is in a test, and not in code that obeys the sentence.
    is_of_test: bool,
}

/// Finds `[ID]` and `[ID, ID]` in Rust files, for ids with the prefixes of the table.
fn citations(workspace: &Workspace, rows: &[Row<'_>]) -> Vec<Citation> {
    let prefixes: BTreeSet<_> = rows.iter().filter_map(|row| row.id.split_once('-')).collect();
    let prefixes: BTreeSet<_> = prefixes.into_iter().map(|(prefix, _)| prefix).collect();
    let mut found = Vec::new();
    for (path, source) in workspace.rust() {
        let is_test_file = path.trim_end_matches(".rs").split('/').any(|part| part == "tests");
        let tests_from = source.text.find("#[cfg(test)]\nmod tests {").unwrap_or(usize::MAX);
        for (at, _) in source.text.match_indices('[') {
            let rest = &source.text[at + 1..];
            let inside = &rest[..rest.find([']', '\n']).unwrap_or(0)];
            let ids = inside.split(',').map(str::trim).filter(|id| looks_like_id(id, &prefixes));
            found.extend(ids.map(|id| Citation {
                path: path.to_owned(),
                line: line_of(&source.text, at),
                id: id.to_owned(),
                is_of_test: is_test_file || at > tests_from,
            }));
        }
    }
    found
}

fn looks_like_id(text: &str, prefixes: &BTreeSet<&str>) -> bool {
    text.split_once('-').is_some_and(|(prefix, rest)| {
        prefixes.contains(prefix) && rest.starts_with(|c: char| c.is_ascii_alphanumeric())
    })
}

pub(super) const TABLE: &str = "proto/REQUIREMENTS.tsv";
const HEADER: &str = "id\tlevel\tstatus\tholds_in\twhere";

/// The directories of code for RDMA devices, whose tests are built only with a feature of their own.
const DEVICES: [&str; 2] = ["runtime/src/provider/verbs/", "runtime/src/sys/ibverbs/"];

/// The layer of a sentence that has no test.
const NOWHERE: &str = "-";

/// The words of force.
const LEVELS: [&str; 11] = [
    "MUST",
    "MUST NOT",
    "REQUIRED",
    "SHALL",
    "SHALL NOT",
    "SHOULD",
    "SHOULD NOT",
    "RECOMMENDED",
    "NOT RECOMMENDED",
    "MAY",
    "OPTIONAL",
];

/// Minimum number of words in a reason.
const REASON_WORDS_MIN: usize = 3;

#[cfg(test)]
mod tests;
