//! Files that no build compiles.

use std::collections::{BTreeMap, BTreeSet};

use super::Breach;
use super::names::inline_modules;
use crate::source::{Source, Workspace, words};

/// Checks that every Rust file is a crate root, or is reached from one by `mod` lines.
pub fn orphans(workspace: &Workspace) -> Vec<Breach> {
    let mut reached = BTreeSet::new();
    let mut pending = roots(workspace);
    while let Some((path, is_root)) = pending.pop_first() {
        let Some(source) = workspace.get(&path) else { continue };
        let children = children(&path, is_root, source).into_iter();
        pending.extend(children.filter(|child| !reached.contains(child)).map(|c| (c, false)));
        reached.insert(path);
    }
    let unreached = workspace.rust().filter(|(path, _)| !reached.contains(*path));
    unreached.map(|(path, _)| Breach::of_file(path, "no `mod` line leads here")).collect()
}

/// Checks that the manifest of the tests' crate lists every test program in `tests/tests`.
pub fn unlisted_tests(workspace: &Workspace) -> Vec<Breach> {
    let listed = workspace.get("tests/Cargo.toml").map(|m| m.text.as_str()).unwrap_or_default();
    let mut found = Vec::new();
    for (path, _) in workspace.rust() {
        let Some(stem) = path.strip_prefix("tests/tests/").and_then(|p| p.strip_suffix(".rs"))
        else {
            continue;
        };
        if !stem.contains('/') && !names_test(listed, stem) {
            found.push(Breach::of_file(path, "not a [[test]] of tests/Cargo.toml: it never runs"));
        }
    }
    found
}

fn names_test(manifest: &str, stem: &str) -> bool {
    let name = format!("name = \"{stem}\"");
    manifest.split("\n[").any(|section| {
        section.starts_with("[test]]") && section.lines().any(|line| line.trim() == name)
    })
}

/// Returns the roots that Cargo finds by itself in each crate, and the `path`s that manifests name.
fn roots(workspace: &Workspace) -> BTreeMap<String, bool> {
    let mut found = BTreeMap::new();
    for (path, manifest) in workspace.files() {
        let Some(home) = path.strip_suffix("Cargo.toml") else { continue };
        for root in ["src/lib.rs", "src/main.rs", "build.rs"] {
            found.insert(format!("{home}{root}"), true);
        }
        for (file, _) in workspace.rust() {
            let inside = file.strip_prefix(home).and_then(|file| file.rsplit_once('/'));
            let automatic = ["src/bin", "tests", "examples", "benches"];
            if inside.is_some_and(|(directory, _)| automatic.contains(&directory)) {
                found.insert(file.to_owned(), true);
            }
        }
        for line in manifest.text.lines() {
            let named = line.strip_prefix("path = \"").and_then(|rest| rest.strip_suffix('"'));
            found.extend(named.map(|named| (format!("{home}{named}"), true)));
        }
    }
    found
}

/// Returns the files that the `mod` lines of a file lead to. Files are called `name.rs`, never `name/mod.rs`; a crate
/// root in `tests/` keeps its modules in a directory of its name, with `#[path]` on the line before each. On the line
/// before a module with a body, `#[path]` names the directory of the modules within.
fn children(path: &str, is_root: bool, source: &Source) -> Vec<String> {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.strip_suffix(".rs").filter(|_| !is_root);
    let inline = inline_modules(&source.code);
    let mut found = Vec::new();
    for at in words(&source.code, "mod") {
        let rest = &source.code[at + "mod".len()..];
        let Some(end) = rest.find([';', '{']).filter(|&end| rest[end..].starts_with(';')) else {
            continue;
        };
        let (mut place, mut own) = (directory.to_owned(), stem);
        for around in inline.iter().filter(|module| module.from < at && at < module.to) {
            place = match path_attribute(&source.text[..around.from]) {
                Some(path) => join(&place, path),
                None => join(&join(&place, own.unwrap_or_default()), around.name),
            };
            own = None;
        }
        found.push(match path_attribute(&source.text[..at]) {
            Some(path) => join(&place, path),
            None => {
                let name = format!("{}.rs", rest[..end].trim());
                join(&join(&place, own.unwrap_or_default()), &name)
            }
        });
    }
    found
}

/// Returns the path from the root that `path` means in `directory`.
fn join(directory: &str, path: &str) -> String {
    let mut parts: Vec<_> = directory.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

/// Returns the file in the `#[path]` attribute on the last line but one of `text`, just before a module.
fn path_attribute(text: &str) -> Option<&str> {
    let before = &text[..text.rfind('\n')?];
    let line = before.rsplit('\n').next()?.trim();
    line.strip_prefix("#[path = \"")?.strip_suffix("\"]")
}
