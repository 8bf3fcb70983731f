//! The unit of registration with rpcbind.

use std::fmt;

/// A version of a program, which is what servers register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// The number of the program.
    pub program: u32,
    /// The number of the version.
    pub version: u32,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {} version {}", self.program, self.version)
    }
}
