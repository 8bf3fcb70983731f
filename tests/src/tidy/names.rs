//! The names of the tests of a workspace.

use std::collections::BTreeMap;

use super::block;
use crate::source::{Workspace, words};

/// Returns the full name of every test that runs by default, with its file. A name is crate directory, modules,
/// function. A unit test of `proto/src/v2/credit.rs` or of its `tests.rs` is `proto::v2::credit::tests::name`, a test
/// in `runtime/tests/host_auth.rs` is `runtime::tests::host_auth::name`, and a test in `tests/tests/world.rs` is
/// `tests::world::name`.
pub(super) fn tests(workspace: &Workspace) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for (path, source) in workspace.rust() {
        let modules = modules(path);
        let inline = inline_modules(&source.code);
        for (at, name) in test_functions(&source.code) {
            let around = inline.iter().filter(|module| module.from < at && at < module.to);
            let parts = modules.iter().copied().chain(around.map(|module| module.name));
            let parts: Vec<_> = parts.chain([name]).collect();
            found.insert(parts.join("::").replace('-', "_"), path.to_owned());
        }
    }
    found
}

/// Returns the crate's directory and the modules that the path of a file stands for.
fn modules(path: &str) -> Vec<&str> {
    let mut parts: Vec<_> = path.trim_end_matches(".rs").split('/').collect();
    // The integration tests in the tests' own crate are named without the second `tests`.
    if parts.starts_with(&["tests", "tests"]) {
        parts.remove(1);
    } else if let Some(at) = parts.iter().take(3).position(|part| *part == "src") {
        parts.remove(at);
        if parts.len() == at + 1 && matches!(parts.last(), Some(&("lib" | "main"))) {
            parts.pop();
        }
    }
    parts
}

/// A module with its body in the same file.
pub(super) struct Inline<'a> {
    pub(super) name: &'a str,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Returns the modules with a body, the outer before the inner.
pub(super) fn inline_modules(code: &str) -> Vec<Inline<'_>> {
    let mut found = Vec::new();
    for at in words(code, "mod") {
        let from = at + "mod".len();
        let Some(open) = code[from..].find(['{', ';']) else { continue };
        if let Some(length) = block(&code[from + open..]) {
            let name = code[from..from + open].trim();
            found.push(Inline { name, from, to: from + open + length });
        }
    }
    found
}

/// Returns the offset and the name of each function under `#[test]` that is not ignored.
fn test_functions(code: &str) -> impl Iterator<Item = (usize, &str)> {
    words(code, "fn").filter_map(|at| {
        let before = &code[..at];
        let attributes = &before[before.rfind(['{', '}', ';']).unwrap_or(0)..];
        let is_run = attributes.contains("#[test]") && !attributes.contains("#[ignore");
        let name = code[at + "fn".len()..].trim_start();
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        is_run.then_some((at, &name[..end]))
    })
}
