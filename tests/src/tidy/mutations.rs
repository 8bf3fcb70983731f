//! The markers that each break one sentence of force, so that a gate can check that its tests notice.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::requirements::{Layer, TABLE, TestedRow, tested};
use super::{Breach, block};
use crate::mutation::{Marker, Mutation, markers};
use crate::source::{Source, Workspace};

/// Checks that every marker can be applied, belongs to a sentence with tests, changes code of the product that these
/// drive, and is there once.
pub fn mutations(workspace: &Workspace) -> Vec<Breach> {
    let rows = tested(workspace);
    let rows: BTreeMap<_, _> = rows.iter().map(|row| (row.id.as_str(), row.holds_in)).collect();
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for (path, source) in workspace.rust() {
        let layer = layer(workspace, path);
        for marker in markers(&source.text) {
            let (line, wrong) = match marker {
                Ok(marker) => {
                    let holds_in = rows.get(marker.id.as_str()).copied();
                    let wrong = wrong(&marker, source, holds_in, layer);
                    let old = &source.text[marker.place];
                    let is_first = known.insert((marker.id, old, marker.new));
                    let twice = (!is_first).then(|| "is there twice".to_owned());
                    (marker.line, wrong.or(twice))
                }
                Err(fault) => (fault.line, Some(fault.what.to_owned())),
            };
            let breach = |what| Breach { path: path.to_owned(), line, what };
            found.extend(wrong.map(|what| breach(format!("the marker {what}"))));
        }
    }
    found
}

/// Checks that every sentence with tests has markers that break it, and that those which break it together can be
/// applied so.
pub fn unmutated(workspace: &Workspace) -> Vec<Breach> {
    let mutations = Mutation::all(workspace);
    let wrong = |TestedRow { id, .. }: TestedRow| {
        let what = match mutations.get(&id) {
            Some(all) if all.iter().all(|mutation| mutation.broken().is_some()) => return None,
            Some(_) => format!("two markers of {id} overlap"),
            None => format!("no marker breaks {id}"),
        };
        Some(Breach::of_file(TABLE, what))
    };
    tested(workspace).into_iter().filter_map(wrong).collect()
}

/// Returns the reason why a marker in a file of `layer` does not break what its sentence holds in, if there is one.
fn wrong(
    marker: &Marker,
    source: &Source,
    holds_in: Option<Layer>,
    layer: Option<Layer>,
) -> Option<String> {
    let Marker { id, place, .. } = marker;
    let Some(holds_in) = holds_in else {
        return Some(format!("breaks {id}, which is not a row with tests"));
    };
    if layer.is_none_or(|layer| layer > holds_in) {
        let word = holds_in.word();
        return Some(format!("breaks {id}, but tests of the {word} do not drive this code"));
    }
    let meets = |item: &Range<usize>| item.start < place.end && place.start < item.end;
    let is_of_tests = test_items(&source.code).iter().any(meets);
    is_of_tests.then(|| format!("breaks {id} in what only tests see"))
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
