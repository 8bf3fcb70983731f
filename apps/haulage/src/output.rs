//! Output of the command: results on standard output, everything else on standard error. Also standard input.

use std::borrow::Cow;
use std::io::{self, IsTerminal, StdinLock, Write};
use std::path::Path;

use haulage::sys::standard::Standard;
use haulage_store::client::error::printable;

use crate::cli::values::LogFormat;
use crate::failure::Failure;

pub mod file;
pub mod json;
pub mod progress;
pub mod table;

/// The form of the output.
#[derive(Clone, Copy, Debug, Default)]
pub struct Output {
    /// Whether results are JSON.
    pub json: bool,
    /// Whether standard error has details.
    pub verbose: bool,
    /// The format of standard error.
    pub log: LogFormat,
}

impl Output {
    /// Prints one line of results and flushes it.
    pub fn line(&self, line: &str) -> Result<(), Failure> {
        write(&[line.as_bytes(), b"\n"])
    }

    /// Prints one line of a command that does its work whether anybody reads of it or not: a closed pipe is no failure.
    pub fn tell(&self, line: &str) -> Result<(), Failure> {
        self.line(line).or_else(Failure::unless_closed)
    }

    /// Prints text that has its own line ends.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        self.bytes(text.as_bytes())
    }

    /// Prints bytes unchanged.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        write(&[bytes])
    }

    /// Prints a note on standard error.
    pub fn note(&self, line: &str) {
        match self.log {
            LogFormat::Text => say(line),
            LogFormat::Json => tracing::warn!(target: COMMAND, "{line}"),
        }
    }

    /// Like [`Self::note`], for what is as it should be.
    pub fn info(&self, line: &str) {
        match self.log {
            LogFormat::Text => say(line),
            LogFormat::Json => tracing::info!(target: COMMAND, "{line}"),
        }
    }

    /// Like [`Self::info`], but only with `-v`.
    pub fn detail(&self, line: &str) {
        if self.verbose {
            self.info(line);
        }
    }

    /// Prints the error of the command, if it has a message.
    pub fn complain(&self, failure: &Failure) {
        match (failure, self.log) {
            (Failure::ClosedPipe, _) => {}
            (_, LogFormat::Text) => say(&failure.to_string()),
            (_, LogFormat::Json) => tracing::error!(target: COMMAND, "{failure}"),
        }
    }
}

/// Writes to standard output and flushes it.
fn write(pieces: &[&[u8]]) -> Result<(), Failure> {
    progress::clear();
    let mut stdout = io::stdout().lock();
    let written = open(Standard::Output)
        .and_then(|()| pieces.iter().try_for_each(|piece| stdout.write_all(piece)))
        .and_then(|()| stdout.flush());
    written.map_err(|error| Failure::of_output(&error))
}

/// Returns standard input.
///
/// # Errors
/// It was closed when the command began.
pub fn input() -> io::Result<StdinLock<'static>> {
    open(Standard::Input).map(|()| io::stdin().lock())
}

/// Returns what messages call the source that an argument names.
pub fn source(file: &Path) -> Cow<'_, str> {
    if file == Path::new("-") { "standard input".into() } else { file.to_string_lossy() }
}

fn open(standard: Standard) -> io::Result<()> {
    if standard.was_closed() {
        return Err(io::Error::other(
            "it was closed when the command began; name a file, or /dev/null",
        ));
    }
    Ok(())
}

/// How names that a peer chose are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Quoted for a shell where that is needed, so that no octet is an order to a terminal.
    Quoted,
    /// Unchanged, for programs that read lines, unless a name could pass for something else: what is not UTF-8 is quoted,
    /// and so is what has a character that ends lines or is an order to a terminal, or begins as if it were quoted.
    Lines,
}

impl Names {
    /// Returns how names are printed on standard output: as by `ls`, quoted on a terminal, and elsewhere where
    /// that is needed for lines.
    pub fn of_output() -> Self {
        if io::stdout().is_terminal() { Self::Quoted } else { Self::Lines }
    }

    /// Returns the text of a name.
    pub fn show(self, name: &[u8]) -> Cow<'_, str> {
        match (self, str::from_utf8(name)) {
            (Self::Lines, Ok(text)) if is_plain(text) => Cow::Borrowed(text),
            _ => Cow::Owned(printable(name)),
        }
    }
}

/// Returns whether a text is a part of one line wherever it is printed, and cannot pass for a quoted one.
fn is_plain(text: &str) -> bool {
    !text.starts_with(['\'', '"', '$']) && !text.chars().any(is_order)
}

/// Returns whether a character ends lines, or orders a terminal or a reader to do something else than show it.
pub(crate) fn is_order(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn say(line: &str) {
    progress::clear();
    // If standard error is closed, the line is lost.
    let _ = writeln!(io::stderr().lock(), "haulage: {line}");
}

/// The log target of the command's own messages.
pub const COMMAND: &str = "haulage::command";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_part_of_one_line_and_stays_as_it_is_if_it_can() {
        for (name, shown) in [
            ("two words", "two words"),
            ("it's \u{e9} & $x", "it's \u{e9} & $x"),
            ("", ""),
            ("t/a 5\ndel t/forged", r"$'t/a 5\ndel t/forged'"),
            ("a\u{1b}[2J", r"$'a\x1B[2J'"),
            ("a\rb\tc\u{b}\u{c}\u{7f}", r"$'a\rb\tc\x0B\x0C\x7F'"),
            ("\u{85}\u{9b}", r"$'\xC2\x85\xC2\x9B'"),
            ("a\u{2028}b\u{2029}", r"$'a\xE2\x80\xA8'$'b\xE2\x80\xA9'"),
            ("$'x'", r"'$'\''x'\'"),
            ("'x'", r#""'x'""#),
            ("\"x\"", r#"'"x"'"#),
        ] {
            assert_eq!(Names::Lines.show(name.as_bytes()), shown, "{name:?}");
        }
        for bidi in ["a\u{202e}b", "a\u{2066}b"] {
            assert!(!Names::Lines.show(bidi.as_bytes()).contains(bidi), "{bidi:?}");
        }
        assert_eq!(Names::Lines.show(b"\xff"), r"$'\xFF'");
    }
}
