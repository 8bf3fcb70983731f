//! The sender of a run of messages, and the parts of a core that handle the run.

use std::rc::Rc;

use haulage_proto::negotiate::Version;
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::Role;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::Unchunked;
use haulage_proto::verbs::QpNum;

use crate::core::common::Common;
use crate::core::connection::Terms;
use crate::core::inner::Inner;
use crate::core::program::Programs;
use crate::key::ConnectionKey;
use crate::service::Reply;

/// The parts of a core that handle a run of messages.
pub(in crate::core) struct Runs<'a, S> {
    pub(in crate::core) inner: &'a mut Inner,
    pub(in crate::core) service: &'a mut S,
    pub(in crate::core) now: Instant,
    /// The Reply for Calls that are answered at once. It may lack its buffer.
    pub(in crate::core) reply: &'a mut Option<Reply>,
    /// Whether the messages are delivered without Receives.
    pub(in crate::core) is_in_place: bool,
}

/// The properties of a connection that its runs of messages need.
#[derive(Clone, Copy)]
pub(in crate::core) struct Sender {
    pub(in crate::core) key: ConnectionKey,
    /// Our role.
    pub(in crate::core) role: Role,
    pub(in crate::core) version: Version,
    /// Octets of the longest Payload stream of a Reply without chunks.
    pub(in crate::core) unchunked_reply_max: usize,
}

impl Common {
    /// Returns the connection of a queue pair, with the properties that a run needs; `None` if it is being closed, too: a Call on
    /// it is lost with it.
    #[inline]
    pub(super) fn sender(&self, qp: QpNum) -> Option<Sender> {
        let (key, connection) = self.connections.get_at(qp)?;
        if !connection.life.is_up() {
            return None;
        }
        let Terms { version, unchunked_reply_max, .. } = *connection.session.terms();
        Some(Sender { key, role: connection.role(), version, unchunked_reply_max })
    }

    /// Returns the programs that a connection serves, if it serves any.
    #[inline]
    pub(super) fn serves(&self, key: ConnectionKey) -> Option<Rc<Programs>> {
        self.connections.get(key)?.session.serves().map(Rc::clone)
    }

    /// Has a connection's engine take messages, up to the first one that is out of the ordinary. Returns how many it
    /// took.
    #[inline]
    pub(super) fn take(
        &mut self,
        key: ConnectionKey,
        kind: Kind,
        run: impl IntoIterator<Item = Unchunked>,
    ) -> usize {
        let connection = self.connections.get_mut(key);
        connection.map_or(0, |connection| connection.engine.take(kind, run)) as usize
    }

    /// Settles a run: of the `taken` messages `done` were handled, and the engine takes the others back. Marks the
    /// connection as one with something to post.
    #[inline]
    pub(super) fn settle_run(&mut self, key: ConnectionKey, kind: Kind, taken: usize, done: usize) {
        if done < taken {
            self.put_back(key, kind, taken - done);
        }
        if taken > 0
            && let Some(connection) = self.connections.get_touched(key)
        {
            connection.life.count(kind, done as u64);
        }
    }

    /// Has a connection's engine take back the receipt of the last `count` messages.
    #[cold]
    fn put_back(&mut self, key: ConnectionKey, kind: Kind, count: usize) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.engine.put_back(kind, u32::try_from(count).unwrap_or(u32::MAX));
        }
    }
}
