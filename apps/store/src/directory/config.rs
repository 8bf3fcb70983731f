//! The configuration of a directory backend.

use std::time::Duration;

/// The configuration of a directory backend.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// A number that no earlier run had. It is in the write verifier, which tells clients that unstable data may be
    /// lost.
    pub run: u64,
    /// Maximum number of files kept open.
    pub open_max: usize,
    /// Maximum number of names examined in one pass through the tree, which finds files that were renamed outside the
    /// server.
    pub search_max: usize,
    /// Maximum number of names examined in one turn of the core.
    pub search_turn_max: usize,
    /// Maximum octets of the table of where files were seen: some 150 for each file.
    pub known_octets_max: usize,
    /// How long a list of a directory is kept, for the next Call that asks for it. It shows the names that the directory
    /// has, and every change by the server, but other changes of the files' attributes only when it is that old.
    pub lists_kept: Duration,
    /// Whether a change of names or attributes is on stable storage before the Reply, as the protocol demands
    /// (RFC 1813 section 4.7).
    pub stable: bool,
    /// Whether transfers with suitable alignment bypass the page cache (`O_DIRECT`).
    pub direct: bool,
}
