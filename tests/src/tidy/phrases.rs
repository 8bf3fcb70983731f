//! Phrases that a comment which stands alone does not have.

use super::Breach;
use crate::source::Workspace;

/// Each documentation comment of the product can be read by itself, by a reader who arrives from a search.
pub fn phrases(workspace: &Workspace) -> Vec<Breach> {
    let product = |path: &str| PRODUCT.iter().any(|directory| path.starts_with(directory));
    let mut found = Vec::new();
    for (path, source) in workspace.rust().filter(|(path, _)| product(path)) {
        let mut before = "";
        for (index, line) in source.text.lines().enumerate() {
            let comment = documentation(line);
            let mut breach = |what: String| {
                found.push(Breach { path: path.to_owned(), line: index + 1, what });
            };
            if let Some(text) = comment {
                for phrase in PHRASES.iter().filter(|phrase| text.contains(**phrase)) {
                    breach(format!("\"{phrase}\" sends the reader elsewhere: name what differs"));
                }
                let is_first = documentation(before).is_none();
                for start in STARTS.iter().filter(|start| is_first && text.starts_with(**start)) {
                    breach(format!("begins with \"{}\": name the thing", start.trim_end()));
                }
            }
            before = line;
        }
    }
    found
}

/// Returns the text of a documentation comment.
fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"))?;
    Some(text.trim_start())
}

/// Where the comments are that strangers read.
const PRODUCT: [&str; 4] = ["proto/src/", "mr-pool/src/", "runtime/src/", "apps/"];

/// Phrases that refer to another comment.
const PHRASES: [&str; 4] = ["Does the same", "ikewise", "as of [`", "As of [`"];

/// What a comment does not begin with, as it names nothing.
const STARTS: [&str; 4] = ["The same", "So many ", "Who ", "Does what "];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_that_does_not_stand_alone_is_found() {
        let text = "/// Does the same for two.\nfn a() {}\n\n/// Sends a message, likewise.\nfn b() {}\n\n\
            /// The same.\nfn c() {}\n\n/// Returns a list of those\n/// Who waits.\nfn d() {}\n\n\
            // Likewise.\nfn e() {}\n";
        let lines = |path| {
            let found = phrases(&Workspace::of(&[(path, text)]));
            found.into_iter().map(|breach| breach.line).collect::<Vec<_>>()
        };
        assert_eq!(lines("proto/src/a.rs"), [1, 4, 7]);
        assert_eq!(lines("tests/src/a.rs"), [0; 0], "tests are read from end to end");
    }
}
