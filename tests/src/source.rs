//! The files of the workspace as text, and as code without comments and literals.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Every text file of a workspace, by its path from the root, with `/` between the parts.
#[derive(Debug, Default)]
pub struct Workspace {
    files: BTreeMap<String, Source>,
}

/// One file.
#[derive(Debug)]
pub struct Source {
    /// The text of the file.
    pub text: String,
    /// For a Rust file, its text with comments and literals blanked, byte for byte; empty for any
    /// other file.
    pub code: String,
}

impl Workspace {
    /// Reads the workspace at `root`, without its `.git` and `target` directories.
    ///
    /// # Errors
    /// Returns the error of the file system if a directory or a file cannot be read.
    pub fn read(root: &Path) -> io::Result<Self> {
        let mut found = Self::default();
        let mut pending = vec![root.to_path_buf()];
        while let Some(directory) = pending.pop() {
            for entry in fs::read_dir(&directory)? {
                let entry = entry?;
                let path = entry.path();
                let name = entry.file_name();
                if name == ".git" || name == "target" {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    pending.push(path);
                } else if let Ok(text) = String::from_utf8(fs::read(&path)?) {
                    let inside = path.strip_prefix(root).unwrap_or(&path);
                    let parts: Vec<_> =
                        inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                    found.insert(&parts.join("/"), text);
                }
            }
        }
        Ok(found)
    }

    /// Builds a workspace from the files given, to plant breaches in.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let mut made = Self::default();
        for (path, text) in files {
            made.insert(path, (*text).to_owned());
        }
        made
    }

    /// Returns one file.
    pub fn get(&self, path: &str) -> Option<&Source> {
        self.files.get(path)
    }

    /// Returns all files in the order of their paths.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.files.iter().map(|(path, source)| (path.as_str(), source))
    }

    /// Returns the Rust files in the order of their paths.
    pub fn rust(&self) -> impl Iterator<Item = (&str, &Source)> {
        self.files().filter(|(path, _)| path.ends_with(".rs"))
    }

    fn insert(&mut self, path: &str, text: String) {
        let code = if path.ends_with(".rs") { code_of(&text) } else { String::new() };
        self.files.insert(path.to_owned(), Source { text, code });
    }
}

/// Returns the offsets in `text` of `word` with no letter, digit or underscore next to it.
pub fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let inside = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = text.as_bytes();
    text.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).and_then(|i| bytes.get(i));
        !inside(before) && !inside(bytes.get(at + word.len()))
    })
}

/// Returns the number of the line that holds byte `at`, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    1 + text.as_bytes().iter().take(at).filter(|&&b| b == b'\n').count()
}

/// Blanks comments, and string and character literals, keeping every line break.
fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let length = comment(rest).or_else(|| literal(rest, out.last().copied()));
        match length {
            Some(length) => {
                let blank = |b: &u8| if *b == b'\n' { b'\n' } else { b' ' };
                out.extend(bytes[at..at + length].iter().map(blank));
                at += length;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the length of the comment that `rest` begins with.
fn comment(rest: &[u8]) -> Option<usize> {
    if rest.starts_with(b"//") {
        return Some(rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len()));
    }
    if !rest.starts_with(b"/*") {
        return None;
    }
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    Some(rest.len())
}

/// Returns the length of the string or character literal that `rest` begins with.
fn literal(rest: &[u8], before: Option<u8>) -> Option<usize> {
    if before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return None; // inside a word: no prefix begins here, and a bare quote cannot follow one
    }
    let prefix = [&b"br"[..], b"cr", b"b", b"c", b"r"];
    let prefix = prefix.into_iter().find(|p| rest.starts_with(p)).unwrap_or(b"");
    let quoted = [prefix, b""].into_iter().find_map(|prefix| {
        let body = &rest[prefix.len()..];
        let length = if prefix.ends_with(b"r") { raw(body) } else { quoted(body) };
        length.map(|length| prefix.len() + length)
    });
    quoted.filter(|_| !is_lifetime(rest))
}

fn raw(body: &[u8]) -> Option<usize> {
    let hashes = body.iter().take_while(|&&b| b == b'#').count();
    if body.get(hashes) != Some(&b'"') {
        return None;
    }
    let mut end = vec![b'"'];
    end.resize(1 + hashes, b'#');
    let inside = &body[hashes + 1..];
    let closed = inside.windows(end.len()).position(|w| w == end);
    Some(closed.map_or(body.len(), |at| hashes + 1 + at + end.len()))
}

fn quoted(body: &[u8]) -> Option<usize> {
    let quote = *body.first().filter(|&&b| b == b'"' || b == b'\'')?;
    let mut at = 1;
    while at < body.len() {
        match body[at] {
            b'\\' => at += 2,
            b if b == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    Some(body.len())
}

/// Returns whether `rest` begins with a lifetime, and not with a character literal: its second
/// character is a letter or an underscore, and its third is no quote.
fn is_lifetime(rest: &[u8]) -> bool {
    let Some(inside) = rest.strip_prefix(b"'") else { return false };
    let text = String::from_utf8_lossy(&inside[..inside.len().min(8)]);
    let mut chars = text.chars();
    let first = chars.next();
    first.is_some_and(|c| c.is_alphabetic() || c == '_') && chars.next() != Some('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_and_code_is_not() {
        let code = |text| code_of(text).split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(code("a // b\nc"), "a c");
        assert_eq!(code("a /* b /* c */ d */ e"), "a e");
        assert_eq!(code(r#"f("x \" y", z)"#), "f( , z)");
        assert_eq!(code("r#\"a \" b\"# c"), "c");
        assert_eq!(code("br##\"a \"# b\"## c"), "c");
        assert_eq!(code("b'\\'' b\"x\" c"), "c");
        assert_eq!(code("x['\"'] = 'y' // '"), "x[ ] =");
        assert_eq!(code("fn f<'a>(x: &'a u8) {}"), "fn f<'a>(x: &'a u8) {}");
        assert_eq!(code("'é' é 'static"), "é 'static");
        assert_eq!(code("let r = bar; loop { b }"), "let r = bar; loop { b }");
    }

    #[test]
    fn blanking_keeps_lines_and_lengths() {
        let text = "a\n/* é\n */ \"x\ny\"\nb";
        assert_eq!(code_of(text).len(), text.len());
        assert_eq!(line_of(&code_of(text), text.len() - 1), 5);
    }

    #[test]
    fn a_word_stands_alone() {
        let at = |text| words(text, "fox").collect::<Vec<_>>();
        assert_eq!(at("fox a fox"), [0, 6]);
        assert_eq!(at("foxes _fox fox_ a(fox)"), [18]);
    }
}
