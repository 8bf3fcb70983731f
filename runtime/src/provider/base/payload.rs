//! The payload of a Send or a Write that waits in a send queue.

use haulage_mr_pool::Source;

/// Octets to be sent.
#[derive(Debug)]
pub(crate) enum Payload {
    /// The octets are in memory that the application has leased.
    View(Source),
    /// The octets were copied, so that the application can reuse its memory.
    Copied(Vec<u8>),
}

impl Payload {
    /// Returns the octets.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::View(source) => source.bytes(),
            Self::Copied(copy) => copy,
        }
    }
}
