//! The shape of the runtime's core: few functions that pass messages in and out, and types of limited size.

use std::collections::{BTreeMap, BTreeSet};

use super::Breach;
use crate::source::{Source, Workspace};

/// Checks that few functions of the core give a message to a [`Port`](haulage::provider::Port), or are the first to
/// take a message or a completion from a provider.
pub fn routes(workspace: &Workspace) -> Vec<Breach> {
    let mut ends = BTreeSet::new();
    for (path, source) in core(workspace) {
        let mut function = None;
        for line in product(source) {
            function = function_of(line).or(function);
            let is_end = ENDS.iter().any(|end| line.contains(end));
            if let Some(function) = function.filter(|_| is_end) {
                ends.insert(format!("{path}: {function}"));
            }
        }
    }
    if ends.len() <= ENDS_MAX {
        return Vec::new();
    }
    let all: Vec<_> = ends.iter().map(String::as_str).collect();
    let what = format!("{} ends of routes, at most {ENDS_MAX}: {}", ends.len(), all.join(", "));
    vec![Breach::of_file(HOME, what)]
}

/// Checks that each type of the core has few methods, in few files.
pub fn rooms(workspace: &Workspace) -> Vec<Breach> {
    let mut types: BTreeMap<&str, (BTreeSet<&str>, usize)> = BTreeMap::new();
    for (path, source) in core(workspace) {
        let mut of = None;
        for line in product(source) {
            let head = line.strip_prefix("impl").filter(|head| !head.contains(" for "));
            if let Some(head) = head {
                // This is the text behind the type parameters, if there are any.
                let head = head
                    .strip_prefix('<')
                    .map_or(head, |rest| rest.split_once("> ").map_or(rest, |(_, behind)| behind));
                of = Some(first_word(head.trim_start()));
                types.entry(first_word(head.trim_start())).or_default().0.insert(path);
            } else if line == "}" {
                of = None;
            } else if line.starts_with("    ")
                && !line.starts_with("     ")
                && function_of(line).is_some()
                && let Some(entry) = of.and_then(|of| types.get_mut(of))
            {
                entry.1 += 1;
            }
        }
    }
    let mut found = Vec::new();
    for (name, (files, methods)) in types {
        if files.len() > FILES_MAX {
            let what = format!("{name} has methods in {} files, at most {FILES_MAX}", files.len());
            found.push(Breach::of_file(HOME, what));
        }
        if methods > METHODS_MAX {
            let what = format!("{name} has {methods} methods, at most {METHODS_MAX}");
            found.push(Breach::of_file(HOME, what));
        }
    }
    found
}

/// Returns the files of the core, without its tests.
fn core(workspace: &Workspace) -> impl Iterator<Item = (&str, &Source)> {
    workspace.rust().filter(|(path, _)| {
        let inside = path.strip_prefix(HOME).and_then(|rest| rest.strip_prefix(['/', '.']));
        inside.is_some_and(|inside| !inside.starts_with("tests"))
    })
}

/// Returns the lines of code before the file's unit tests.
fn product(source: &Source) -> impl Iterator<Item = &str> {
    let end = source.code.find("#[cfg(test)]\nmod ").unwrap_or(source.code.len());
    source.code[..end].lines()
}

/// Returns the name of the function whose signature the line begins.
fn function_of(line: &str) -> Option<&str> {
    let (before, behind) = line.split_once("fn ")?;
    let is_head = before.split_whitespace().all(|word| {
        ["const", "unsafe", "pub", "in"].contains(&word)
            || word.starts_with("pub(")
            || word.ends_with(')')
    });
    Some(first_word(behind)).filter(|name| is_head && !name.is_empty())
}

fn first_word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

const HOME: &str = "runtime/src/core";
/// Code that gives a message to a port, or that takes one.
const ENDS: [&str; 4] = ["port.send(", "fn messages(", "posted.complete(", "engine.decode("];
const ENDS_MAX: usize = 6;
const FILES_MAX: usize = 3;
const METHODS_MAX: usize = 25;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_ends_of_routes_than_there_may_be_are_told_by_name() {
        let sends = |count: usize| {
            let each = |at: usize| format!("fn leave_{at}() {{\n    port.send(message);\n}}\n");
            (0..count).map(each).collect::<String>()
        };
        let found = |text: &str| {
            let other = ("runtime/src/core/tests/more.rs", "fn test() {\n    port.send(it);\n}\n");
            let one =
                ("runtime/src/core/a.rs", "impl MessageSink {\n    fn messages(&self) {}\n}\n");
            let files = [("runtime/src/core/sends.rs", text), one, other];
            routes(&Workspace::of(&files)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(found(&sends(ENDS_MAX - 1)), [""; 0]);
        let breach = found(&sends(ENDS_MAX)).concat();
        assert!(breach.contains("7 ends of routes"), "{breach}");
        assert!(breach.contains("sends.rs: leave_5") && breach.contains("a.rs: messages"));
        assert!(!breach.contains("test"), "{breach}");
    }

    #[test]
    fn a_type_with_too_many_methods_or_files_is_found() {
        let with = |methods: usize| {
            let each = |at: usize| format!("    pub(crate) const fn a{at}(&self) {{}}\n");
            let methods: String = (0..methods).map(each).collect();
            format!("impl<'a, T: Into<u8>> Many<'a, T> {{\n{methods}}}\n")
        };
        let found = |many: &str, files: usize| {
            let names = ["core.rs", "core/b.rs", "core/c.rs", "core/d.rs"];
            let mut tree = vec![("runtime/src/core/a.rs".to_owned(), many.to_owned())];
            let spread = names.iter().take(files);
            tree.extend(spread.map(|name| {
                (format!("runtime/src/{name}"), "impl Spread {\n    fn x() {}\n}\n".to_owned())
            }));
            let tree: Vec<_> = tree.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
            rooms(&Workspace::of(&tree)).iter().map(|one| one.what.clone()).collect::<Vec<_>>()
        };
        assert_eq!(found(&with(METHODS_MAX), FILES_MAX), [""; 0]);
        assert_eq!(found(&with(METHODS_MAX + 1), 0), ["Many has 26 methods, at most 25"]);
        let spread = found("impl MessageSink for Many {\n    fn x() {}\n}\n", FILES_MAX + 1);
        assert_eq!(spread, ["Spread has methods in 4 files, at most 3"]);
    }
}
