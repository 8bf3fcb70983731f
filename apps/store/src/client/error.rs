//! Errors of the storage client, with their texts.

use std::io;

use haulage::service::CallError;
use os_display::Quoted;

use crate::codec::Malformed;
use crate::nfs3::{Procedure, Results, Status};

/// An error of the storage client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A Call failed without results.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The server answered with this status; the context tells which file it is about.
    #[error("{}", words(*.0))]
    Refused(Status),
    /// The server answered with this status for the file of this path.
    #[error("{}: {}", words(*.1), printable(.0))]
    File(Vec<u8>, Status),
    /// A path leads from symbolic link to symbolic link without end.
    #[error("too many symbolic links: {}", printable(.0))]
    Links(Vec<u8>),
    /// Results cannot be parsed.
    #[error("malformed results of {0:?}: {1}")]
    Malformed(Procedure, Malformed),
    /// The server contradicts itself.
    #[error("the server breaks the protocol: {0}")]
    Nonsense(&'static str),
    /// Reading the data to write, or writing the data that was read, failed on this machine.
    #[error(transparent)]
    Local(io::Error),
}

impl Error {
    /// Creates the error from the status of failed results.
    pub(super) fn of(results: &Results<'_>) -> Self {
        Self::Refused(results.status())
    }

    /// Adds the path of the file, if the error has none.
    #[must_use]
    pub fn at(self, path: &[u8]) -> Self {
        match self {
            Self::Refused(status) => Self::File(path.to_vec(), status),
            other => other,
        }
    }

    /// Returns the status, if the server answered with one.
    pub const fn status(&self) -> Option<Status> {
        match self {
            Self::Refused(status) | Self::File(_, status) => Some(*status),
            _ => None,
        }
    }
}

/// Returns octets as text that is safe to print on a terminal, as `ls` does: where a character could mislead a reader
/// or a shell, the text is quoted for a shell, with octets that cannot be shown escaped. A shell reads it as the same
/// octets.
pub fn printable(octets: &[u8]) -> String {
    Quoted::unix_raw(octets).force(false).to_string()
}

/// Returns the text of a status, in the user's words.
const fn words(status: Status) -> &'static str {
    match status {
        Status::Ok => "no error",
        Status::Perm => "not the owner",
        Status::NoEnt => "no such file",
        Status::Io => "the server's storage failed",
        Status::NxIo | Status::NoDev => "no such device",
        Status::Acces => "permission denied",
        Status::Exist => "file exists",
        Status::XDev => "on another file system",
        Status::NotDir => "not a directory",
        Status::IsDir => "is a directory",
        Status::Inval => "invalid for this kind of file",
        Status::FBig => "file too large",
        Status::NoSpc => "no space left",
        Status::RoFs => "read-only file system",
        Status::MLink => "too many links",
        Status::NameTooLong => "file name too long",
        Status::NotEmpty => "directory not empty",
        Status::DQuot => "quota exceeded",
        Status::Stale => "the file is gone",
        Status::Remote => "on another server",
        Status::BadHandle => "the server does not know its own file handle",
        Status::NotSync => "the file was changed meanwhile",
        Status::BadCookie => "the directory was changed while it was listed; ask again",
        Status::NotSupp => "operation not supported by the server",
        Status::TooSmall => "the request is too small for the server",
        Status::ServerFault => "the server failed",
        Status::BadType => "file type not supported by the server",
        Status::Jukebox => "the server is busy with the file; ask again later",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_words_of_its_own_and_a_path() {
        for status in Status::ALL {
            let text = Error::Refused(*status).at(b"/a/b").to_string();
            assert!(text.ends_with(": /a/b") && text.len() > 10, "{text}");
            assert_eq!(text.lines().count(), 1);
        }
        assert_eq!(Error::File(b"/x".to_vec(), Status::NoEnt).to_string(), "no such file: /x");
    }

    #[test]
    fn text_of_the_server_does_nothing_to_a_terminal() {
        assert_eq!(printable("häuser".as_bytes()), "häuser");
        assert_eq!(printable(b"two words"), "'two words'");
        assert_eq!(printable(b"a\x1b[2J\nb\\"), r"$'a\x1B[2J\nb\\'");
        assert_eq!(printable(b"\xff\xc3x"), r"$'\xFF\xC3x'");
        // U+202E shows what follows it in the other direction.
        assert!(printable("txt.\u{202e}exe".as_bytes()).is_ascii());
    }
}
