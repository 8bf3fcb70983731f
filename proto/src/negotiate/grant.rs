//! Messages that may be posted while others are taken: asked for once, counted one by one, settled at the end.

use super::{Class, Connection, Engine, alphabet};
use crate::v1;

/// Messages of one class that may be posted now, all with one credit word.
///
/// [`Connection::lend`] makes it, [`Connection::settle`] takes it back before anything else is made known to the
/// connection. In a debug build the connection notices one that is forgotten with its next input.
#[derive(Debug)]
#[must_use = "credits that are not settled are lost"]
pub struct Grant {
    class: Class,
    lent: Lent,
    posted: u32,
}

/// What the engine of the connection lent.
#[derive(Clone, Copy, Debug)]
enum Lent {
    One(v1::connection::Lent),
    Two { count: u32, word: u32 },
}

impl Grant {
    /// A grant of nothing, of no connection.
    pub const NONE: Self =
        Self { class: Class::Reply, lent: Lent::Two { count: 0, word: 0 }, posted: 0 };

    /// Returns how many messages more may be posted.
    #[inline]
    pub const fn left(&self) -> u32 {
        let (Lent::One(v1::connection::Lent { count, .. }) | Lent::Two { count, .. }) = self.lent;
        count.saturating_sub(self.posted)
    }

    /// Returns the credit word of each message.
    #[inline]
    pub const fn word(&self) -> u32 {
        let (Lent::One(v1::connection::Lent { word, .. }) | Lent::Two { word, .. }) = self.lent;
        word
    }

    /// Counts a message that was posted.
    ///
    /// # Panics
    /// If none was left: more were posted than may be.
    #[inline]
    pub const fn spend(&mut self) {
        assert!(self.left() > 0, "a message is posted for which there is no credit");
        self.posted = self.posted.saturating_add(1);
    }

    /// Returns how many messages were posted.
    #[inline]
    pub const fn posted(&self) -> u32 {
        self.posted
    }
}

impl Connection {
    /// Asks to post at most `count` RPC messages of this class now, each as of [`Self::try_send`].
    #[inline]
    pub fn lend(&mut self, class: Class, count: u32) -> Grant {
        let lent = match &mut self.engine {
            Engine::One(one) => Lent::One(one.lend(class, count)),
            Engine::Two(two) => {
                let (count, word) = two.lend(alphabet::class(class), count);
                Lent::Two { count, word }
            }
        };
        #[cfg(debug_assertions)]
        {
            let is_out = core::mem::replace(self.is_lent(class), true);
            debug_assert!(!is_out, "what was lent before is not settled");
        }
        Grant { class, lent, posted: 0 }
    }

    /// Settles what was lent: the messages that were not posted are as if they had not been asked for.
    #[inline]
    pub fn settle(&mut self, grant: &Grant) {
        // Read where it is: a copy would wait until what was counted last has reached the cache.
        let Grant { class, lent, posted } = *grant;
        #[cfg(debug_assertions)]
        {
            *self.is_lent(class) = false;
        }
        match (&mut self.engine, lent) {
            (Engine::One(one), Lent::One(lent)) => one.settle(class, lent, posted),
            (Engine::Two(two), Lent::Two { count, .. }) => {
                two.settle(alphabet::class(class), count, posted);
            }
            // Nothing is lent before the version is settled, and then it stays.
            _ => debug_assert!(posted == 0, "the version changed while messages were posted"),
        }
    }

    /// Tells whether messages of a class are lent.
    #[cfg(debug_assertions)]
    const fn is_lent(&mut self, class: Class) -> &mut bool {
        let [calls, replies] = &mut self.lent;
        match class {
            Class::Call => calls,
            Class::Reply => replies,
        }
    }
}
