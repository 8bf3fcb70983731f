//! What became of the keys in Calls: counts for operators.

use crate::protocol::Refusal;

/// Numbers of keys by what was answered for them, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Values that GET and MGET returned.
    pub hits: u64,
    /// Keys that GET and MGET asked for and under which nothing is stored.
    pub misses: u64,
    /// Values that PUT and MPUT stored.
    pub stored: u64,
    /// Keys that DEL deleted.
    pub deleted: u64,
    /// Values refused for want of memory.
    pub no_space: u64,
    /// Values refused since the index has no room for another key.
    pub keys_full: u64,
    /// Values refused for their length.
    pub too_large: u64,
    /// Octets that are no key.
    pub bad_key: u64,
    /// Watches refused, as there are as many as there may be.
    pub crowded: u64,
}

impl Answered {
    /// Counts a key that was refused. That nothing is stored under a key is a miss only for who asks for its value.
    #[cold]
    pub(super) const fn refuse(&mut self, refusal: &Refusal) {
        match refusal {
            Refusal::NotFound => {}
            Refusal::NoSpace => self.no_space += 1,
            Refusal::KeysFull { .. } => self.keys_full += 1,
            Refusal::TooLarge { .. } => self.too_large += 1,
            Refusal::BadKey => self.bad_key += 1,
            Refusal::Crowded { .. } => self.crowded += 1,
        }
    }

    /// Returns the number of keys and watches that were refused, whatever the reason.
    pub const fn refused(&self) -> u64 {
        self.no_space + self.keys_full + self.too_large + self.bad_key + self.crowded
    }
}
