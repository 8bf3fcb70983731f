//! Limits on functions: their parameters, and their length.

use std::ops::Range;

use super::Breach;
use super::mutations::{is_for_tests, test_items};
use crate::source::{Source, Workspace, words};

/// Checks that, outside tests, no parameter is a tuple of more than two or a `bool`, and that no function has too many
/// parameters, the parts of tuples counted, or too many lines. The list of exceptions only gets shorter.
pub fn signatures(workspace: &Workspace) -> Vec<Breach> {
    breaches(workspace, &DATA, &REMAINING)
}

/// The file and the name of a function.
type Named = (&'static str, &'static str);

fn breaches(workspace: &Workspace, data: &[Named], remaining: &[Named]) -> Vec<Breach> {
    let mut found = Vec::new();
    let mut met = Vec::new();
    for (path, source) in workspace.rust().filter(|(path, _)| is_held(workspace, path)) {
        for signature in signatures_of(source) {
            let name = signature.name;
            let mut wrongs = signature.wrongs();
            if signature.takes_bool() {
                if data.contains(&(path, name)) {
                    met.push((path, name));
                } else {
                    wrongs
                        .push("takes a `bool`: two cases are an enum or two functions".to_owned());
                }
            }
            if remaining.contains(&(path, name)) && !wrongs.is_empty() {
                met.push((path, name));
                continue;
            }
            let breach =
                |what| Breach::at(path, &source.text, signature.at, format!("fn {name} {what}"));
            found.extend(wrongs.into_iter().map(breach));
        }
    }
    let gone = data.iter().chain(remaining).filter(|(path, name)| !met.contains(&(*path, *name)));
    found.extend(gone.map(|(path, name)| {
        Breach::of_file(path, format!("fn {name} needs no exception: strike it off the list"))
    }));
    found
}

/// Returns whether a file is neither for tests nor for benchmarks.
fn is_held(workspace: &Workspace, path: &str) -> bool {
    let Some((home, _)) = path.split_once("src/") else { return false };
    let is_crate_of_tests = OF_TESTS.iter().any(|crate_| home.starts_with(crate_));
    !is_crate_of_tests && !is_for_tests(workspace, &format!("{home}src/"), path)
}

/// The signature of a function.
struct Signature<'a> {
    name: &'a str,
    /// The offset at which the function begins.
    at: usize,
    /// The types of its parameters, without `self`.
    parameters: Vec<&'a str>,
    /// Its lines of code, from its name to the end of its body, without comments.
    lines: usize,
}

impl Signature<'_> {
    /// Returns the complaints about its tuples and its number of parameters.
    fn wrongs(&self) -> Vec<String> {
        let tuples = self.parameters.iter().map(|parameter| parts(parameter).len());
        let tuples = tuples.filter(|&count| count > TUPLE_MAX);
        let mut found: Vec<_> = tuples
            .map(|count| format!("takes a tuple of {count}: name the fields of a struct"))
            .collect();
        let count: usize = self.parameters.iter().map(|parameter| flat(parameter)).sum();
        if count > PARAMETERS_MAX {
            found.push(format!("has {count} parameters, at most {PARAMETERS_MAX}"));
        }
        if self.lines > LINES_MAX {
            found.push(format!("has {} lines of code, at most {LINES_MAX}: part it", self.lines));
        }
        found
    }

    fn takes_bool(&self) -> bool {
        self.parameters.iter().any(|parameter| parts(parameter).contains(&"bool"))
    }
}

/// Returns the signatures of the functions in a file outside its tests, without closures and function types.
fn signatures_of(source: &Source) -> Vec<Signature<'_>> {
    let code = source.code.as_str();
    let for_tests = test_items(code);
    let is_for_test = |at: usize| for_tests.iter().any(|item: &Range<usize>| item.contains(&at));
    let functions = words(code, "fn").filter(|at| !is_for_test(*at));
    functions.filter_map(|at| signature(code, at)).collect()
}

fn signature(code: &str, at: usize) -> Option<Signature<'_>> {
    let rest = code[at + "fn".len()..].trim_start();
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').filter(|&end| end > 0)?;
    let (name, rest) = rest.split_at(end);
    let rest = rest.trim_start();
    let rest = match rest.starts_with('<') {
        true => rest[closed(rest)?..].trim_start(),
        false => rest,
    };
    let list = rest.starts_with('(').then(|| closed(rest))??;
    let parameters = split(&rest[1..list - 1], ',').into_iter().filter_map(kind).collect();
    let lines = code[at..].len() - rest[list..].len();
    let lines = &code[at..at + lines + body(&rest[list..])];
    let lines = lines.lines().filter(|line| !line.trim().is_empty()).count();
    Some(Signature { name, at, parameters, lines })
}

/// Returns the length of the rest of a function behind its parameters, to the end of its body if it has one.
fn body(rest: &str) -> usize {
    let (mut inside, mut depth) = (0_usize, 0_usize);
    for (at, c) in rest.char_indices() {
        match c {
            '[' | '(' if depth == 0 => inside += 1,
            ']' | ')' if depth == 0 => inside = inside.saturating_sub(1),
            ';' if depth == 0 && inside == 0 => return at + 1,
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            _ => {}
        }
    }
    rest.len()
}

/// Returns the type of a parameter; `None` for `self`.
fn kind(parameter: &str) -> Option<&str> {
    let mut parameter = parameter.trim();
    while let Some(rest) = parameter.strip_prefix('#') {
        parameter = rest[closed(rest)?..].trim_start();
    }
    // A path in a pattern has two colons, which leave an empty part between them.
    let pieces = split(parameter, ':');
    let is_path = |nth: usize| {
        let empty = |nth: usize| pieces.get(nth).is_some_and(|piece| piece.trim().is_empty());
        empty(nth) || empty(nth + 1)
    };
    let nth = (0..pieces.len().checked_sub(1)?).find(|&nth| !is_path(nth))?;
    let before: usize = pieces[..=nth].iter().map(|piece| piece.len() + 1).sum();
    let pattern = parameter[..before - 1].trim().trim_start_matches("mut ");
    (pattern != "self").then(|| parameter[before..].trim())
}

/// Returns the types in a tuple, or the type itself if it is no tuple.
fn parts(kind: &str) -> Vec<&str> {
    let inside = kind.strip_prefix('(').filter(|_| closed(kind) == Some(kind.len()));
    match inside.and_then(|inside| inside.strip_suffix(')')) {
        // Parentheses around one type, as around `dyn A + B`, make no tuple.
        Some(inside) if inside.contains(',') => {
            let parts = split(inside, ',').into_iter().map(str::trim);
            parts.filter(|part| !part.is_empty()).collect()
        }
        _ => vec![kind],
    }
}

/// Returns 1 for a parameter that is no tuple, else the number of its parts, those of inner tuples counted.
fn flat(kind: &str) -> usize {
    match parts(kind)[..] {
        [_] => 1,
        ref many => many.iter().map(|part| flat(part)).sum(),
    }
}

/// Splits `code` at each `separator` outside brackets.
fn split(code: &str, separator: char) -> Vec<&str> {
    let mut found = Vec::new();
    let (mut depth, mut from) = (0_usize, 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if is_arrow(code, at) => {}
            ')' | ']' | '}' | '>' => depth = depth.saturating_sub(1),
            c if c == separator && depth == 0 => {
                found.push(&code[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    if !code[from..].trim().is_empty() {
        found.push(&code[from..]);
    }
    found
}

/// Returns the length of the bracketed text that `code` begins with.
fn closed(code: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if is_arrow(code, at) => {}
            ')' | ']' | '}' | '>' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Returns whether the `>` at `at` ends `->` or `=>`.
fn is_arrow(code: &str, at: usize) -> bool {
    code[..at].ends_with(['-', '='])
}

/// Maximum number of parts in a tuple.
const TUPLE_MAX: usize = 2;
/// Maximum number of parameters of a function, the parts of tuples counted.
const PARAMETERS_MAX: usize = 6;

/// Maximum lines of code of a function.
const LINES_MAX: usize = 100;

/// Crates whose sources are tests or benchmarks.
const OF_TESTS: [&str; 2] = ["benches/", "tests/"];

/// Functions whose `bool` is their data, and no choice between two behaviours.
const DATA: [Named; 4] = [
    // A truth value, which is written or read as one.
    ("apps/haulage/src/output/json.rs", "flag"),
    ("apps/haulage/src/wire/unique.rs", "visit_bool"),
    // Conditions to check, as `assert!` does.
    ("apps/store/src/service.rs", "allow"),
    ("mr-pool/src/region/map.rs", "check"),
];

/// Functions that still break the rule.
const REMAINING: [Named; 0] = [];

#[cfg(test)]
mod tests;
