//! What tells apart Calls of one client that have the same XID.

use std::hash::Hasher as _;

use foldhash::SharedSeed;
use foldhash::quality::FoldHasher;
use haulage_proto::rpc::Credential;

/// A keyed hash of who makes a Call and what the Call says.
///
/// A collision needs the same XID, procedure and client address, so whoever could find one would only have its own Call
/// answered with its own Reply. Chance is therefore all that the hash stands against, and it is fast: it takes all data
/// of a WRITE.
#[derive(Clone, Debug)]
pub struct Digester {
    seed: u64,
    shared: SharedSeed,
}

/// A Call as it is compared with another.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// The caller that the server believes in.
    pub credential: &'a Credential<'a>,
    /// The arguments without the octets of their data item.
    pub arguments: &'a [u8],
    /// The data item, which may have come unreduced on one connection and have been placed on another.
    pub data: &'a [u8],
}

impl Digester {
    /// Creates a hash with a random `seed`.
    pub const fn new(seed: u64) -> Self {
        Self { seed, shared: SharedSeed::from_u64(seed) }
    }

    /// Returns the digest of a Call. Of its credential it takes the user and the groups: a client that was restarted
    /// repeats no Call, and stamp and machine name mean nothing else.
    pub fn digest(&self, said: &Said<'_>) -> u64 {
        let mut hasher = FoldHasher::with_seed(self.seed, &self.shared);
        match said.credential {
            Credential::None => hasher.write_u8(0),
            Credential::Sys(sys) => {
                hasher.write_u8(1);
                hasher.write_u32(sys.uid);
                hasher.write_u32(sys.gid);
                sys.gids().for_each(|gid| hasher.write_u32(gid));
            }
            Credential::Other { .. } => hasher.write_u8(2),
        }
        // Each length tells where one part ends and the next begins.
        for part in [said.arguments, said.data] {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish()
    }
}
