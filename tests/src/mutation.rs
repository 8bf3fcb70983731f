//! Markers in the product's code, each of which breaks one sentence of force.
//!
//! A marker is a comment above the line of code that it changes, so that it moves along with this line:
//!
//! ```text
//! //~ EX-1-2: `100_417` -> `100_418`
//! pub const PROGRAM: u32 = 100_417;
//! ```
//!
//! The text on the left is in the line once, and the text on the right takes its place, which may be no text. If there
//! is no text on the left, the text on the right comes before the line. A marker may take several lines, each of which
//! begins with `//~`. Other comments and markers may be between a marker and its line.
//!
//! Each marker is a mutation of its own, so that a sentence that several parts of the code obey can have one for each
//! of them. Where only several changes at once break a sentence, each of their markers ends in ` together` after its
//! last text, and those of one sentence are one mutation.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::source::Workspace;

/// A replacement that breaks a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The id of the sentence.
    pub id: String,
    /// The line on which the marker begins, from 1.
    pub line: usize,
    /// The range of the file's text that is replaced; empty if the new text comes before it.
    pub place: Range<usize>,
    /// The new text.
    pub new: String,
    /// Whether it breaks the sentence only together with other markers of it.
    pub is_together: bool,
}

/// The markers of one sentence that are applied at once.
#[derive(Clone, Debug)]
pub struct Mutation<'a> {
    /// The path and the text of each file with markers, and these in the order of the file.
    files: BTreeMap<&'a str, (&'a str, Vec<Marker>)>,
}

/// A marker that cannot be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The line on which the marker begins, from 1.
    pub line: usize,
    /// What is wrong with the marker.
    pub what: &'static str,
}

impl<'a> Mutation<'a> {
    /// Returns the mutations of a workspace by the ids of their sentences, without markers that cannot be applied.
    pub fn all(workspace: &'a Workspace) -> BTreeMap<String, Vec<Self>> {
        let mut found: BTreeMap<_, Vec<Self>> = BTreeMap::new();
        for (path, source) in workspace.rust() {
            for marker in markers(&source.text).into_iter().flatten() {
                let of_sentence = found.entry(marker.id.clone()).or_default();
                let mut begun = of_sentence.iter_mut().filter(|_| marker.is_together);
                let begun = begun.find(|mutation| mutation.first().1.is_together);
                let Some(Self { files }) = begun else {
                    let files = BTreeMap::from([(path, (source.text.as_str(), vec![marker]))]);
                    of_sentence.push(Self { files });
                    continue;
                };
                files.entry(path).or_insert((&source.text, Vec::new())).1.push(marker);
            }
        }
        found
    }

    /// Returns the path of the first file with markers, and the first of these.
    pub fn first(&self) -> (&'a str, &Marker) {
        let first =
            self.files.iter().find_map(|(path, (_, markers))| Some((*path, markers.first()?)));
        first.expect("it is made with a marker")
    }

    /// Returns the path and the text of each file with markers before they are applied.
    pub fn whole(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files.iter().map(|(path, (text, _))| (*path, *text))
    }

    /// Returns the path and the text of each file with markers after they are applied; `None` if two overlap.
    pub fn broken(&self) -> Option<Vec<(&'a str, String)>> {
        let files = self.files.iter();
        files.map(|(path, (text, markers))| Some((*path, applied(text, markers)?))).collect()
    }
}

/// Returns a text with all its `markers` applied; `None` if two overlap.
fn applied(text: &str, markers: &[Marker]) -> Option<String> {
    let mut markers: Vec<_> = markers.iter().collect();
    markers.sort_by_key(|marker| marker.place.start);
    let mut made = String::with_capacity(text.len());
    let mut from = 0;
    for marker in markers {
        made.push_str(text.get(from..marker.place.start)?);
        made.push_str(&marker.new);
        from = marker.place.end;
    }
    made.push_str(&text[from..]);
    Some(made)
}

/// Finds the markers in the text of a Rust file.
pub fn markers(text: &str) -> Vec<Result<Marker, Fault>> {
    let mut found = Vec::new();
    // Where each marker begins and what it says, until its line of code is found.
    let mut waiting: Vec<(usize, String)> = Vec::new();
    let mut end = 0;
    for (index, whole) in text.split_inclusive('\n').enumerate() {
        end += whole.len();
        let line = whole.trim_start();
        if let Some(rest) = line.strip_prefix(PREFIX) {
            match waiting.last_mut().filter(|(_, said)| !is_complete(said)) {
                Some((_, said)) => *said = format!("{said} {}", rest.trim()),
                None => waiting.push((index + 1, rest.trim().to_owned())),
            }
        } else if !line.starts_with("//") {
            let code = (end - line.len(), line.trim_end());
            found.extend(waiting.drain(..).map(|(line, said)| {
                marker(line, &said, code).map_err(|what| Fault { line, what })
            }));
        }
    }
    let what = NO_CODE;
    found.extend(waiting.into_iter().map(|(line, _)| Err(Fault { line, what })));
    found
}

/// Returns whether a line is a marker, or a part of one.
pub fn is_of_marker(line: &str) -> bool {
    line.trim_start().starts_with(PREFIX)
}

/// Returns whether both texts of a marker have ended.
fn is_complete(said: &str) -> bool {
    said.matches('`').count() >= 4
}

/// Parses what a marker on `line` says, for the line of code below it, which begins at an offset. Returns what is wrong
/// with it if it cannot be applied.
fn marker(line: usize, said: &str, (start, code): (usize, &str)) -> Result<Marker, &'static str> {
    let parts: Vec<_> = said.split('`').collect();
    let [id, left, " -> ", right, end] = parts[..] else { return Err(NOT_A_MARKER) };
    let is_together = match end {
        "" => false,
        " together" => true,
        _ => return Err(NOT_A_MARKER),
    };
    let id = id.strip_suffix(": ").ok_or(NOT_A_MARKER)?;
    if left == right {
        return Err("changes nothing");
    }
    if code.is_empty() {
        return Err(NO_CODE);
    }
    let (at, new) = match left {
        "" => (0, format!("{right} ")),
        _ => (code.find(left).ok_or(NOT_ONCE)?, right.to_owned()),
    };
    if !left.is_empty() && code.rfind(left) != Some(at) {
        return Err(NOT_ONCE);
    }
    let place = start + at..start + at + left.len();
    Ok(Marker { id: id.to_owned(), line, place, new, is_together })
}

/// What each line of a marker begins with.
const PREFIX: &str = "//~";

const NOT_A_MARKER: &str = "is not `//~ ID: ` and two texts in backticks with ` -> ` between them, or with ` together` behind";
const NO_CODE: &str = "has no line of code below it";
const NOT_ONCE: &str =
    "does not find its text on the left exactly once in the line of code below it";

#[cfg(test)]
mod tests;
