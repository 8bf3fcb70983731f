//! Each sentence of force in the specifications, tied to the test that guards it.

use std::collections::BTreeSet;

use super::Breach;
use crate::source::{Workspace, line_of, words};

/// Rows of the coverage table hold: known states, tests that exist, code that cites the sentence;
/// and code cites only sentences that exist.
pub fn coverage(workspace: &Workspace) -> Vec<Breach> {
    let Some(table) = workspace.get(TABLE) else { return Vec::new() };
    let rows: Vec<Row<'_>> = table.text.lines().enumerate().skip(1).map(Row::parse).collect();
    let cited = citations(workspace, &rows);
    let ids: BTreeSet<_> = cited.iter().map(|c| c.id.as_str()).collect();
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for row in &rows {
        let wrong = row.wrong(workspace, &ids);
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

/// Counts the rows that say `open`.
pub fn open(workspace: &Workspace) -> usize {
    let table = workspace.get(TABLE).map(|table| table.text.as_str()).unwrap_or_default();
    table.lines().enumerate().skip(1).filter(|row| Row::parse(*row).status == "open").count()
}

/// One row: id, level, status, where.
struct Row<'a> {
    line: usize,
    id: &'a str,
    status: &'a str,
    place: &'a str,
}

impl<'a> Row<'a> {
    fn parse((index, line): (usize, &'a str)) -> Self {
        let mut cells = line.split('\t');
        let mut next = || cells.next().unwrap_or("").trim();
        let (id, _level, status, place) = (next(), next(), next(), next());
        Self { line: index + 1, id, status, place }
    }

    fn wrong(&self, workspace: &Workspace, cited: &BTreeSet<&str>) -> Vec<String> {
        let mut found = Vec::new();
        match self.status {
            "test" => {
                let tests = self.place.split([' ', ',', ';']).filter(|name| !name.is_empty());
                let missing: Vec<_> = tests.clone().filter(|t| !is_test(workspace, t)).collect();
                found.extend(missing.iter().map(|t| format!("names `{t}`, which is no test")));
                if tests.count() == 0 {
                    found.push("names no test".to_owned());
                }
                if !cited.contains(self.id) {
                    found.push("is cited by no code".to_owned());
                }
            }
            "exception" | "not-applicable" if self.place.is_empty() => {
                found.push("gives no reason".to_owned());
            }
            "exception" | "not-applicable" | "open" => {}
            other => found.push(format!("has the unknown status `{other}`")),
        }
        found
    }

    fn breach(&self, what: String) -> Breach {
        Breach { path: TABLE.to_owned(), line: self.line, what }
    }
}

/// Tells whether a path such as `proto::v2::credit::tests::name` is a test: `fn name` under
/// `#[test]`, in a file whose own path holds the modules in between.
fn is_test(workspace: &Workspace, path: &str) -> bool {
    let mut parts: Vec<_> = path.split("::").collect();
    let Some(name) = parts.pop() else { return false };
    workspace.rust().any(|(file, source)| {
        let places: Vec<_> = file.trim_end_matches(".rs").split('/').collect();
        let inside = parts.iter().all(|part| {
            let plain = part.trim_start_matches("haulage_").replace('_', "-");
            *part == "tests" || places.contains(part) || places.contains(&plain.as_str())
        });
        inside && defines_test(&source.code, name)
    })
}

fn defines_test(code: &str, name: &str) -> bool {
    words(code, name).any(|at| {
        let before = code[..at].trim_end();
        let Some(before) = before.strip_suffix("fn") else { return false };
        let attributes = before.rfind(['}', ';']).map_or(before, |end| &before[end..]);
        attributes.contains("#[test]")
    })
}

/// One id in brackets in a comment.
struct Citation {
    path: String,
    line: usize,
    id: String,
}

/// Finds `[ID]` and `[ID, ID]` in Rust files, for the specifications the table speaks of.
fn citations(workspace: &Workspace, rows: &[Row<'_>]) -> Vec<Citation> {
    let prefixes: BTreeSet<_> = rows.iter().filter_map(|row| row.id.split_once('-')).collect();
    let prefixes: BTreeSet<_> = prefixes.into_iter().map(|(prefix, _)| prefix).collect();
    let mut found = Vec::new();
    for (path, source) in workspace.rust() {
        for (at, _) in source.text.match_indices('[') {
            let rest = &source.text[at + 1..];
            let inside = &rest[..rest.find([']', '\n']).unwrap_or(0)];
            let ids = inside.split(',').map(str::trim).filter(|id| looks_like_id(id, &prefixes));
            found.extend(ids.map(|id| Citation {
                path: path.to_owned(),
                line: line_of(&source.text, at),
                id: id.to_owned(),
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

const TABLE: &str = "proto/REQUIREMENTS.tsv";
