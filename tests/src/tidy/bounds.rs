//! Upper bounds on the size of the provider contract, and of the pages that describe the whole.

use super::Breach;
use crate::source::Workspace;

/// Checks that the provider contract has few enough methods to remember, and each page few enough words to be read.
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
    for (page, words_max) in PAGES {
        match workspace.get(page) {
            Some(source) => {
                let words = source.text.split_whitespace().count();
                if words > words_max {
                    found
                        .push(Breach::of_file(page, format!("{words} words, at most {words_max}")));
                }
            }
            None => found.push(Breach::of_file(page, "is missing")),
        }
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
const TRAITS: [&str; 3] = ["Provider", "MessageSink", "Port"];
const METHODS_MAX: usize = 25;
/// Pages, with the maximum number of words in each.
const PAGES: [(&str, usize); 2] = [("ARCHITECTURE.md", 2000), ("README.md", 1000)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contract_or_a_page_that_has_grown_is_found() {
        let contract = |methods: usize| {
            let one =
                "    /// Does one thing.\n    fn step(&mut self) {\n        if true {}\n    }\n";
            let two = "pub trait MessageSink {\n    fn take(&mut self);\n}\n";
            let other = "pub trait Portal {\n    fn no(&self);\n}\n";
            let port = format!("pub trait Port: Sized {{\n{}}}\n", one.repeat(methods - 2));
            format!("pub trait Provider {{\n    fn caps(&self);\n}}\n{two}{other}{port}")
        };
        let found = |methods, more: usize| {
            let pages = PAGES.map(|(page, words_max)| (page, "word ".repeat(words_max + more)));
            let contract = (CONTRACT, contract(methods));
            let files: Vec<_> = pages.iter().chain([&contract]).collect();
            let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
            bounds(&Workspace::of(&files)).into_iter().map(|breach| breach.path).collect::<Vec<_>>()
        };
        assert_eq!(found(METHODS_MAX, 0), [""; 0]);
        assert_eq!(found(METHODS_MAX + 1, 0), [CONTRACT]);
        assert_eq!(found(METHODS_MAX, 1), PAGES.map(|(page, _)| page));
        assert_eq!(bounds(&Workspace::of(&[])).len(), 3, "none may be missing");
    }
}
