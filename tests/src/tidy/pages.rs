//! The Markdown pages: their links, and the names of the code in the book and in the walks through the code.

use std::collections::BTreeSet;

use super::Breach;
use crate::source::{Source, Workspace};

/// Checks that every relative link of a page leads to a file or a directory of the workspace, and to a heading in it.
pub fn links(workspace: &Workspace) -> Vec<Breach> {
    let mut found = Vec::new();
    for (path, page) in pages(workspace) {
        for Link { line, target } in links_of(&page.text) {
            if let Some(what) = dead(workspace, path, target) {
                found.push(Breach { path: path.to_owned(), line, what });
            }
        }
    }
    found
}

/// Checks that the book lists all its pages and links to no file outside itself, that a doctest runs its Rust code, and
/// that the code has the messages and metrics that the book names.
pub fn book(workspace: &Workspace) -> Vec<Breach> {
    let Some(summary) = workspace.get(SUMMARY) else {
        return vec![Breach::of_file(SUMMARY, "is missing")];
    };
    let listed: BTreeSet<_> =
        links_of(&summary.text).filter_map(|l| join(SUMMARY, l.target)).collect();
    let code = Messages::of(workspace);
    let mut found = Vec::new();
    for (path, page) in pages(workspace).filter(|(path, _)| path.starts_with(BOOK)) {
        if path != SUMMARY && !listed.contains(path) {
            found.push(Breach::of_file(path, format!("is not in {SUMMARY}")));
        }
        if page.text.lines().any(|line| line.starts_with("```rust")) && !is_tested(workspace, path)
        {
            found.push(Breach::of_file(path, "has Rust code that no doctest includes"));
        }
        let mut breach = |line, what| found.push(Breach { path: path.to_owned(), line, what });
        for Link { line, target } in links_of(&page.text).filter(|link| !is_elsewhere(link.target))
        {
            if !join(path, target).is_some_and(|to| to.starts_with(BOOK)) {
                breach(line, format!("links to {target}, which the built book does not hold"));
            }
        }
        for (line, text) in (1..).zip(page.text.lines()) {
            if path == MESSAGES
                && let Some(message) = first_cell(text)
                && !code.has(message)
            {
                breach(line, format!("lists `{message}`, which no message of the code is"));
            }
            let spans = text.split('`').skip(1).step_by(2);
            for metric in spans.filter(|span| span.starts_with(METRIC)) {
                let name = metric.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let name = &metric[..name.unwrap_or(metric.len())];
                if !code.has(name) {
                    breach(line, format!("names the metric `{name}`, which the code has not"));
                }
            }
        }
    }
    found
}

/// Checks that the code has the names that the page of walks through it calls things by.
pub fn walks(workspace: &Workspace) -> Vec<Breach> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let code: BTreeSet<_> =
        workspace.rust().flat_map(|(_, source)| source.code.split(|c| !is_part(c))).collect();
    let mut found = Vec::new();
    let lines = workspace.get(WALKS).into_iter().flat_map(|page| (1..).zip(page.text.lines()));
    for (line, text) in lines {
        let spans = text.split('`').skip(1).step_by(2);
        // Spans with other characters are paths, commands and expressions.
        let names = spans.filter(|span| span.chars().all(|c| is_part(c) || c == ':'));
        for name in names.flat_map(|span| span.split("::")).filter(|name| !code.contains(name)) {
            let what = format!("names `{name}`, which the code has not");
            found.push(Breach { path: WALKS.to_owned(), line, what });
        }
    }
    found
}

/// A link of a page.
struct Link<'a> {
    line: usize,
    target: &'a str,
}

/// Returns the pages of the workspace.
fn pages(workspace: &Workspace) -> impl Iterator<Item = (&str, &Source)> {
    workspace.files().filter(|(path, _)| path.ends_with(".md"))
}

/// Returns the links of a page, without those in code.
fn links_of(page: &str) -> impl Iterator<Item = Link<'_>> {
    let mut is_code = false;
    let prose = (1..).zip(page.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        is_code ^= fence;
        !is_code && !fence
    });
    prose.flat_map(|(line, text)| {
        let ends =
            text.match_indices("](").filter(|(at, _)| text[..*at].matches('`').count() % 2 == 0);
        ends.filter_map(move |(at, mark)| {
            let behind = &text[at + mark.len()..];
            let end = behind.find(|c: char| c == ')' || c.is_whitespace())?;
            Some(Link { line, target: &behind[..end] })
        })
    })
}

/// Returns the reason why a link is dead, if it is.
fn dead(workspace: &Workspace, from: &str, target: &str) -> Option<String> {
    if is_elsewhere(target) {
        return None;
    }
    let heading = target.split_once('#').map(|(_, heading)| heading);
    let Some(to) = join(from, target) else { return Some(format!("{target} is outside")) };
    match (workspace.get(&to), heading) {
        (Some(_), None) => None,
        (Some(page), Some(heading)) => {
            let has = page.text.lines().any(|line| line.starts_with('#') && slug(line) == heading);
            (!has).then(|| format!("{target} names a heading that is not there"))
        }
        (None, _) => {
            let is_directory = workspace.files().any(|(path, _)| {
                to.is_empty() || path.strip_prefix(&*to).is_some_and(|rest| rest.starts_with('/'))
            });
            (!is_directory).then(|| format!("{target} is not there"))
        }
    }
}

/// Returns whether a link leads out of the workspace.
fn is_elsewhere(target: &str) -> bool {
    target.contains("://")
}

/// Returns the path from the root that a link on the page `from` means; `None` if it is outside the workspace.
fn join(from: &str, target: &str) -> Option<String> {
    let file = target.split('#').next().unwrap_or_default();
    if file.is_empty() {
        return Some(from.to_owned());
    }
    let mut parts: Vec<_> = from.split('/').collect();
    parts.pop();
    for part in file.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

/// Returns the anchor of a heading.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Returns whether a crate includes a page as documentation.
fn is_tested(workspace: &Workspace, path: &str) -> bool {
    workspace.rust().any(|(_, source)| {
        let is_of_page = |line: &str| line.contains(&format!("/{path}\""));
        source.text.lines().any(|line| line.contains("include_str!") && is_of_page(line))
    })
}

/// Returns the code in the first cell of a row of a table.
fn first_cell(line: &str) -> Option<&str> {
    line.strip_prefix("| `")?.split('`').next()
}

/// The sources that hold the program's messages, with literals joined across line breaks.
struct Messages(Vec<String>);

impl Messages {
    fn of(workspace: &Workspace) -> Self {
        let sources =
            workspace.rust().filter(|(path, _)| SPEAKERS.iter().any(|top| path.starts_with(top)));
        let tests = |path: &str| path.contains("/tests/") || path.ends_with("/tests.rs");
        Self(
            sources
                .filter(|(path, _)| !tests(path))
                .map(|(_, source)| unbroken(&source.text))
                .collect(),
        )
    }

    /// Returns whether some file has the parts of a message, which `...` separates, close behind each other.
    fn has(&self, message: &str) -> bool {
        let mut parts = message.split("...").map(str::trim).filter(|part| !part.is_empty());
        let Some(first) = parts.next() else { return false };
        let rest: Vec<_> = parts.collect();
        self.0.iter().any(|text| {
            text.match_indices(first).any(|(at, _)| {
                let mut from = at + first.len();
                rest.iter().all(|part| {
                    let behind = &text[from..];
                    let at = behind.find(part).filter(|at| *at < APART_MAX);
                    from += at.unwrap_or_default() + part.len();
                    at.is_some()
                })
            })
        })
    }
}

/// Joins literals that a backslash continues on the next line.
fn unbroken(text: &str) -> String {
    let mut parts = text.split("\\\n");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    parts.for_each(|part| whole.push_str(part.trim_start()));
    whole
}

const BOOK: &str = "docs/book/src/";
/// The page of walks through the code.
const WALKS: &str = "ARCHITECTURE.md";
const SUMMARY: &str = "docs/book/src/SUMMARY.md";
const MESSAGES: &str = "docs/book/src/troubleshooting.md";
const METRIC: &str = "haulage_";
/// Directories of the crates whose messages reach users of the command.
const SPEAKERS: [&str; 4] = ["apps/", "mr-pool/src/", "proto/src/", "runtime/src/"];
/// Maximum number of octets between two parts of one message.
const APART_MAX: usize = 200;

#[cfg(test)]
mod tests;
