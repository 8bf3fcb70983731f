//! The patches that each break one sentence of force, so that a gate can check that its tests notice.

use std::collections::BTreeSet;
use std::ops::Range;

use super::requirements::{LibraryRow, held_in_library};
use super::{Breach, block};
use crate::mutation::Mutation;
use crate::source::Workspace;

/// Checks that every patch belongs to a sentence held in the library, and applies to the library's present code.
pub fn mutations(workspace: &Workspace) -> Vec<Breach> {
    let rows = held_in_library(workspace);
    let ids: BTreeSet<_> = rows.iter().map(|row| row.id.as_str()).collect();
    let mut found = Vec::new();
    for (path, source) in workspace.files() {
        let Some(name) = path.strip_prefix(DIRECTORY) else { continue };
        let id = name.strip_suffix(".patch").filter(|id| ids.contains(id));
        if id.is_none() {
            found.push(Breach::of_file(path, "is not named after a row that holds in the library"));
        }
        found.extend(wrong(workspace, &source.text).map(|what| Breach::of_file(path, what)));
    }
    found
}

/// Checks that every sentence held in the library has a patch that breaks it.
pub fn unmutated(workspace: &Workspace) -> Vec<Breach> {
    let rows = held_in_library(workspace).into_iter();
    let missing = rows.filter(|row| workspace.get(&patch_path(&row.id)).is_none());
    let breach = |row: LibraryRow| Breach::of_file(&patch_path(&row.id), "is missing");
    missing.map(breach).collect()
}

/// Returns the path of a row's patch.
pub fn patch_path(id: &str) -> String {
    format!("{DIRECTORY}{id}.patch")
}

/// Returns the reason why a patch does not break the library, if there is one.
fn wrong(workspace: &Workspace, patch: &str) -> Option<String> {
    let mutation = match Mutation::parse(patch) {
        Ok(mutation) => mutation,
        Err(fault) => return Some(fault.to_string()),
    };
    let path = mutation.path();
    let Some(source) = workspace.get(path).filter(|_| is_of_library(workspace, path)) else {
        return Some(format!("patches `{path}`, which is no code of the library"));
    };
    let places = match mutation.places(&source.text) {
        Ok(places) => places,
        Err(fault) => return Some(fault.to_string()),
    };
    let of_tests = test_items(&source.code);
    let meets = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
    let is_of_tests = places.iter().any(|place| of_tests.iter().any(|item| meets(place, item)));
    is_of_tests.then(|| format!("patches what only tests of `{path}` see"))
}

/// Returns whether a file is built into the library itself.
fn is_of_library(workspace: &Workspace, path: &str) -> bool {
    let home = LIBRARY.into_iter().find(|home| path.starts_with(home));
    home.is_some_and(|home| path.ends_with(".rs") && !is_for_tests(workspace, home, path))
}

/// Returns whether a file of the crate with sources in `home` is compiled for tests only: it, or a module around it, is
/// declared by an item under `#[cfg(test)]`.
pub(super) fn is_for_tests(workspace: &Workspace, home: &str, path: &str) -> bool {
    let modules: Vec<_> = path[home.len()..].trim_end_matches(".rs").split('/').collect();
    modules.iter().enumerate().any(|(depth, name)| {
        let around = modules[..depth].join("/");
        let roots = ["lib", "main"];
        let parents = if depth == 0 { &roots[..] } else { &[around.as_str()][..] };
        let declared = format!("mod {name};");
        parents.iter().any(|parent| {
            let parent = workspace.get(&format!("{home}{parent}.rs"));
            parent.is_some_and(|parent| {
                let mut items = test_items(&parent.code).into_iter();
                items.any(|item| parent.code[item].ends_with(&declared))
            })
        })
    })
}

/// Returns the ranges of the items under `#[cfg(test)]`.
pub(super) fn test_items(code: &str) -> Vec<Range<usize>> {
    let items = code.match_indices("#[cfg(test)]").filter_map(|(at, _)| {
        let open = at + code[at..].find(['{', ';'])?;
        let end = open + block(&code[open..]).unwrap_or(1);
        Some(at..end)
    });
    items.collect()
}

const DIRECTORY: &str = "proto/mutations/";

/// The directories of the library's sources.
const LIBRARY: [&str; 2] = ["proto/src/", "mr-pool/src/"];

#[cfg(test)]
mod tests;
