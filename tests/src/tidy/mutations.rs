//! The patches that each break one sentence of force, so that a gate can check that its tests notice.

use std::collections::BTreeMap;
use std::ops::Range;

use super::requirements::{Layer, TestedRow, tested};
use super::{Breach, block};
use crate::mutation::Mutation;
use crate::source::Workspace;

/// Checks that every patch belongs to a sentence with tests, and applies to code of the product that these drive.
pub fn mutations(workspace: &Workspace) -> Vec<Breach> {
    let rows = tested(workspace);
    let rows: BTreeMap<_, _> = rows.iter().map(|row| (row.id.as_str(), row.holds_in)).collect();
    let mut found = Vec::new();
    for (path, source) in workspace.files() {
        let Some(name) = path.strip_prefix(DIRECTORY) else { continue };
        let wrong = match name.strip_suffix(".patch").and_then(|id| rows.get(id)) {
            Some(holds_in) => wrong(workspace, *holds_in, &source.text),
            None => Some("is not named after a row with tests".to_owned()),
        };
        found.extend(wrong.map(|what| Breach::of_file(path, what)));
    }
    found
}

/// Checks that every sentence with tests has a patch that breaks it.
pub fn unmutated(workspace: &Workspace) -> Vec<Breach> {
    let rows = tested(workspace).into_iter();
    let missing = rows.filter(|row| workspace.get(&patch_path(&row.id)).is_none());
    let breach = |row: TestedRow| Breach::of_file(&patch_path(&row.id), "is missing");
    missing.map(breach).collect()
}

/// Returns the path of a row's patch.
pub fn patch_path(id: &str) -> String {
    format!("{DIRECTORY}{id}.patch")
}

/// Returns the reason why a patch does not break what a sentence holds in, if there is one.
fn wrong(workspace: &Workspace, holds_in: Layer, patch: &str) -> Option<String> {
    let mutation = match Mutation::parse(patch) {
        Ok(mutation) => mutation,
        Err(fault) => return Some(fault.to_string()),
    };
    let path = mutation.path();
    let is_driven = layer(workspace, path).is_some_and(|layer| layer <= holds_in);
    let Some(source) = workspace.get(path).filter(|_| is_driven) else {
        let word = holds_in.word();
        return Some(format!("patches `{path}`, which is no code that tests of the {word} drive"));
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

/// Returns the layer of the product that a file is built into; `None` if it is for tests.
fn layer(workspace: &Workspace, path: &str) -> Option<Layer> {
    let (home, layer) = SOURCES.into_iter().find(|(home, _)| path.starts_with(home))?;
    let is_product = path.ends_with(".rs") && !is_for_tests(workspace, home, path);
    is_product.then_some(layer)
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

/// The directories of the product's sources, and the layer that they are.
const SOURCES: [(&str, Layer); 6] = [
    ("proto/src/", Layer::Library),
    ("mr-pool/src/", Layer::Library),
    ("runtime/src/", Layer::Runtime),
    ("apps/kv/src/", Layer::Command),
    ("apps/store/src/", Layer::Command),
    ("apps/haulage/src/", Layer::Command),
];

#[cfg(test)]
mod tests;
