//! What is registered with rpcbind.

use std::fmt;

/// A program's version, which is what is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its number.
    pub program: u32,
    /// Its version.
    pub version: u32,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {} version {}", self.program, self.version)
    }
}
