//! What must not grow: the contract of a provider, and the page that describes the whole.

use super::Breach;
use crate::source::Workspace;

/// The contract of a provider has so few methods that one can hold them in mind, and the page so few words that it is
/// read.
pub fn bounds(workspace: &Workspace) -> Vec<Breach> {
    let mut found = Vec::new();
    match workspace.get(CONTRACT) {
        Some(source) => {
            let methods: usize = TRAITS.iter().map(|name| methods_of(&source.text, name)).sum();
            if methods > METHODS_MAX {
                let what = format!("{methods} methods in the contract, at most {METHODS_MAX}");
                found.push(Breach::of_file(CONTRACT, what));
            }
        }
        None => found.push(Breach::of_file(CONTRACT, "is missing")),
    }
    match workspace.get(PAGE) {
        Some(source) => {
            let words = source.text.split_whitespace().count();
            if words > WORDS_MAX {
                found.push(Breach::of_file(PAGE, format!("{words} words, at most {WORDS_MAX}")));
            }
        }
        None => found.push(Breach::of_file(PAGE, "is missing")),
    }
    found
}

/// Counts the methods of a trait, provided ones included.
fn methods_of(text: &str, name: &str) -> usize {
    let head = format!("pub trait {name}");
    let begins = |line: &&str| {
        let behind = line.strip_prefix(&*head);
        behind.is_some_and(|rest| rest.starts_with([' ', ':']))
    };
    let lines = text.lines().skip_while(|line| !begins(line)).take_while(|line| *line != "}");
    lines.filter(|line| line.starts_with("    fn ")).count()
}

const CONTRACT: &str = "runtime/src/provider.rs";
const TRAITS: [&str; 3] = ["Provider", "Inlet", "Port"];
const METHODS_MAX: usize = 25;
const PAGE: &str = "ARCHITECTURE.md";
const WORDS_MAX: usize = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_or_a_page_that_has_grown_is_found() {
        let contract = |methods: usize| {
            let one =
                "    /// Does one thing.\n    fn step(&mut self) {\n        if true {}\n    }\n";
            let two = "pub trait Inlet {\n    fn take(&mut self);\n}\n";
            let other = "pub trait Portal {\n    fn no(&self);\n}\n";
            let port = format!("pub trait Port: Sized {{\n{}}}\n", one.repeat(methods - 2));
            format!("pub trait Provider {{\n    fn caps(&self);\n}}\n{two}{other}{port}")
        };
        let found = |methods, words: usize| {
            let page = "word ".repeat(words);
            let files = [(CONTRACT, contract(methods)), (PAGE, page)];
            let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
            bounds(&Workspace::of(&files)).into_iter().map(|breach| breach.path).collect::<Vec<_>>()
        };
        assert_eq!(found(METHODS_MAX, WORDS_MAX), [""; 0]);
        assert_eq!(found(METHODS_MAX + 1, WORDS_MAX), [CONTRACT]);
        assert_eq!(found(METHODS_MAX, WORDS_MAX + 1), [PAGE]);
        assert_eq!(bounds(&Workspace::of(&[])).len(), 2, "neither may be missing");
    }
}
