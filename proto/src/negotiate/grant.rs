//! Grants: credits for several messages at once, spent one by one and settled at the end.

use super::{Class, Connection, Engine, alphabet};
use crate::v1;

/// Credits for several messages of one class, all with one credit word.
///
/// [`Connection::lend`] makes a grant, and the caller returns it to [`Connection::settle`] before the next input. In a
/// debug build the connection detects a grant that was not settled.
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "credits that are not settled are lost"]
pub struct CreditGrant {
    class: Class,
    /// The number of messages that may be posted.
    count: u32,
    posted: u32,
    word: u32,
    /// The credits that a peer of version 1 had before the grant.
    granted_before: u32,
}

impl CreditGrant {
    /// An empty grant, which belongs to no connection.
    pub const NONE: Self =
        Self { class: Class::Reply, count: 0, posted: 0, word: 0, granted_before: 0 };

    /// Returns whether another message may be posted.
    #[inline]
    pub const fn has_more(&self) -> bool {
        self.posted < self.count
    }

    /// Returns the credit word of each message.
    #[inline]
    pub const fn word(&self) -> u32 {
        self.word
    }

    /// Counts a message that was posted after [`Self::has_more`] returned true.
    #[inline]
    pub const fn spend(&mut self) {
        self.posted = self.posted.wrapping_add(1);
    }

    /// Returns the number of messages posted.
    #[inline]
    pub const fn posted(&self) -> u32 {
        self.posted
    }
}

impl Connection {
    /// Takes credits for at most `count` RPC messages of this class, each under the conditions of
    /// [`Self::try_send`].
    #[doc(hidden)]
    #[inline]
    pub fn lend(&mut self, class: Class, count: u32) -> CreditGrant {
        #[cfg(debug_assertions)]
        {
            let is_out = core::mem::replace(self.is_lent(class), true);
            debug_assert!(!is_out, "what was lent before is not settled");
        }
        let (count, word, granted_before) = match &mut self.engine {
            Engine::One(one) => {
                let v1::connection::Lent { count, word, granted_before } = one.lend(class, count);
                (count, word, granted_before)
            }
            Engine::Two(two) => {
                let (count, word) = two.lend(alphabet::class(class), count);
                (count, word, 0)
            }
        };
        CreditGrant { class, count, posted: 0, word, granted_before }
    }

    /// Settles a grant and returns the credits of the messages that were not posted.
    ///
    /// # Panics
    /// If more messages were posted than granted.
    #[doc(hidden)]
    #[inline]
    pub fn settle(&mut self, grant: &CreditGrant) {
        // Read where it is: a copy would wait until what was counted last has reached the cache.
        let CreditGrant { class, count, posted, word, granted_before } = *grant;
        assert!(posted <= count, "messages were posted for which there was no credit");
        #[cfg(debug_assertions)]
        {
            *self.is_lent(class) = false;
        }
        match &mut self.engine {
            Engine::One(one) => {
                one.settle(class, v1::connection::Lent { count, word, granted_before }, posted);
            }
            Engine::Two(two) => two.settle(alphabet::class(class), count, posted),
        }
    }

    /// Returns the flag that says whether a grant of this class is not settled yet.
    #[cfg(debug_assertions)]
    const fn is_lent(&mut self, class: Class) -> &mut bool {
        let [calls, replies] = &mut self.lent;
        match class {
            Class::Call => calls,
            Class::Reply => replies,
        }
    }
}
