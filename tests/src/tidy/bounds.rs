//! Upper bounds on the size of the provider contract, and of the page that strangers read.

use super::Breach;
use crate::source::Workspace;

/// Checks that the provider contract has few enough methods to remember.
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
    found
}

/// Checks that the page that strangers read has few enough words to be read.
pub fn readable(workspace: &Workspace) -> Vec<Breach> {
    let Some(source) = workspace.get(README) else {
        return vec![Breach::of_file(README, "is missing")];
    };
    let words = source.text.split_whitespace().count();
    let what = format!("{words} words, at most {WORDS_MAX}");
    (words > WORDS_MAX).then(|| Breach::of_file(README, what)).into_iter().collect()
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
const TRAITS: [&str; 3] = ["Provider", "MessageSink", "Port"];
const METHODS_MAX: usize = 25;
const README: &str = "README.md";
const WORDS_MAX: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_that_has_grown_is_found() {
        let contract = |methods: usize| {
            let one =
                "    /// Does one thing.\n    fn step(&mut self) {\n        if true {}\n    }\n";
            let two = "pub trait MessageSink {\n    fn take(&mut self);\n}\n";
            let other = "pub trait Portal {\n    fn no(&self);\n}\n";
            let port = format!("pub trait Port: Sized {{\n{}}}\n", one.repeat(methods - 2));
            format!("pub trait Provider {{\n    fn caps(&self);\n}}\n{two}{other}{port}")
        };
        let found = |methods| {
            let workspace = Workspace::of(&[(CONTRACT, &contract(methods))]);
            bounds(&workspace).into_iter().map(|breach| breach.path).collect::<Vec<_>>()
        };
        assert_eq!(found(METHODS_MAX), [""; 0]);
        assert_eq!(found(METHODS_MAX + 1), [CONTRACT]);
        assert_eq!(bounds(&Workspace::of(&[])).len(), 1, "it may not be missing");
    }

    #[test]
    fn a_page_that_has_grown_is_found() {
        let found = |words| readable(&Workspace::of(&[(README, &"word ".repeat(words))])).len();
        assert_eq!(found(WORDS_MAX), 0);
        assert_eq!(found(WORDS_MAX + 1), 1);
        assert_eq!(readable(&Workspace::of(&[])).len(), 1, "it may not be missing");
    }
}
