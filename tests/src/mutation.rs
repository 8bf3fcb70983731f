//! Small patches, each of which breaks one sentence of force in the product's code.
//!
//! A patch is the output of `git diff -U1` for a single file. Only its lines place it in the file: the old lines of
//! each hunk, context and removed ones, are searched for, and line numbers are ignored. So a patch survives every
//! change of the file that is not next to it.

use std::fmt;
use std::ops::Range;

/// A patch of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    path: String,
    hunks: Vec<Hunk>,
}

/// One hunk of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hunk {
    /// The line of the patch on which the hunk begins, from 1.
    line: usize,
    /// The old lines of the file, with their ends.
    old: String,
    /// The new lines, with their ends.
    new: String,
}

/// The reason why a patch is malformed, or does not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No file is named by `--- a/PATH`, or no hunk follows.
    Empty,
    /// The line with this number begins a second file, or names another file as the new one.
    OtherFile(usize),
    /// The line with this number belongs to no hunk.
    OddLine(usize),
    /// The hunk at this line changes nothing, or has no old line to be found by.
    Idle(usize),
    /// The old lines of the hunk at this line are not in the file.
    Missing(usize),
    /// The old lines of the hunk at this line are in the file several times, as the second number says.
    Ambiguous(usize, usize),
    /// The place of the hunk at this line is before the end of the last hunk's place.
    OutOfOrder(usize),
}

impl Mutation {
    /// Parses the output of `git diff`.
    ///
    /// # Errors
    /// Returns the reason why it is not the patch of one file.
    pub fn parse(patch: &str) -> Result<Self, Fault> {
        let mut path = None;
        let mut hunks: Vec<Hunk> = Vec::new();
        for (index, line) in patch.lines().enumerate() {
            let number = index + 1;
            if line.starts_with("diff ") && path.is_some() {
                return Err(Fault::OtherFile(number));
            } else if line.starts_with("@@ ") && path.is_some() {
                hunks.push(Hunk { line: number, old: String::new(), new: String::new() });
            } else if let Some(hunk) = hunks.last_mut() {
                hunk.push(line).ok_or(Fault::OddLine(number))?;
            } else if let Some(old) = line.strip_prefix("--- a/") {
                path = Some(old.to_owned());
            } else if let Some(new) = line.strip_prefix("+++ ") {
                let same = path.as_deref() == new.strip_prefix("b/");
                same.then_some(()).ok_or(Fault::OtherFile(number))?;
            }
        }
        let path = path.filter(|_| !hunks.is_empty()).ok_or(Fault::Empty)?;
        match hunks.iter().find(|hunk| hunk.old == hunk.new || hunk.old.is_empty()) {
            Some(idle) => Err(Fault::Idle(idle.line)),
            None => Ok(Self { path, hunks }),
        }
    }

    /// Returns the path of the patched file, from the workspace's root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns `text` with every hunk applied.
    ///
    /// # Errors
    /// Returns the first hunk that has no single place in `text`.
    pub fn apply(&self, text: &str) -> Result<String, Fault> {
        let mut patched = String::with_capacity(text.len());
        let mut from = 0;
        for (hunk, place) in self.hunks.iter().zip(self.places(text)?) {
            patched.push_str(&text[from..place.start]);
            patched.push_str(&hunk.new);
            from = place.end;
        }
        patched.push_str(&text[from..]);
        Ok(patched)
    }

    /// Returns the ranges of `text` that the hunks replace, in order.
    ///
    /// # Errors
    /// Returns the first hunk that has no single place in `text`.
    pub fn places(&self, text: &str) -> Result<Vec<Range<usize>>, Fault> {
        let mut places: Vec<Range<usize>> = Vec::new();
        for hunk in &self.hunks {
            let place = hunk.place(text)?;
            if places.last().is_some_and(|before| place.start < before.end) {
                return Err(Fault::OutOfOrder(hunk.line));
            }
            places.push(place);
        }
        Ok(places)
    }
}

impl Hunk {
    /// Adds a line of the patch to the hunk; `None` if it cannot belong to a hunk.
    fn push(&mut self, line: &str) -> Option<()> {
        // An editor may have removed the space of an empty context line.
        let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
        let sides: &mut [&mut String] = match sign {
            " " => &mut [&mut self.old, &mut self.new],
            "-" => &mut [&mut self.old],
            "+" => &mut [&mut self.new],
            _ => return None,
        };
        for side in sides {
            side.push_str(rest);
            side.push('\n');
        }
        Some(())
    }

    /// Returns the single place of the old lines in `text`.
    fn place(&self, text: &str) -> Result<Range<usize>, Fault> {
        let starts_line = |at: usize| at == 0 || text.as_bytes()[at - 1] == b'\n';
        let mut found = Vec::new();
        let mut from = 0;
        // Overlapping places count too; `match_indices` would skip them.
        while let Some(at) = text[from..].find(&self.old).map(|at| from + at) {
            if starts_line(at) {
                found.push(at..at + self.old.len());
            }
            from = at + text[at..].find('\n').map_or(1, |end| end + 1);
        }
        match found.as_slice() {
            [place] => Ok(place.clone()),
            [] => Err(Fault::Missing(self.line)),
            several => Err(Fault::Ambiguous(self.line, several.len())),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "names no file by `--- a/PATH`, or changes nothing in it"),
            Self::OtherFile(line) => write!(f, "line {line}: speaks of another file"),
            Self::OddLine(line) => {
                write!(f, "line {line}: begins with none of ` `, `-`, `+` and `@@`")
            }
            Self::Idle(line) => {
                write!(f, "line {line}: the hunk changes nothing, or has no old lines")
            }
            Self::Missing(line) => {
                write!(f, "line {line}: the old lines of the hunk are not in the file")
            }
            Self::Ambiguous(line, times) => {
                write!(f, "line {line}: the old lines of the hunk are in the file {times} times")
            }
            Self::OutOfOrder(line) => {
                write!(f, "line {line}: the hunk belongs before the end of the one before")
            }
        }
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests;
