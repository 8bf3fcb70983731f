//! Runs of messages: Calls and Replies without chunks, or with one for an argument or a result, acted upon as they come.
//!
//! # Normal operation
//! Messages come in runs of one connection: from the provider, where they lie, or in Receives that completed in one
//! poll. What holds for all of a run is settled once: that nothing is out of the ordinary, what credits the peer is
//! given, and how many Replies, or Calls, may leave at once and with which credit word. Then each Call is given to
//! the service, and its Reply leaves; each Reply is told, and the Call that its caller makes next leaves by the
//! [`Lane`](crate::core::outbound::Lane) of the connection. A Reply that invalidates the handle of its Call's lease
//! has the handle retired first.
//!
//! A message that cannot be acted upon so is left. A provider then keeps it, and reports it in a Receive; one that
//! came in a Receive is decoded and judged by itself.
//!
//! What a message comes to leaves by the [`Port`] that came with the run. Some providers show it to the
//! peer at the end of the turn; so this comes as late in it as it can.

use haulage_proto::negotiate::{Version, bare, bare_header_len, labeled};
use haulage_proto::time::Instant;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::Bare;
use haulage_proto::verbs::{Label, NamedTemplate, QpNum};

use self::calls::Taken;
use crate::core::Core;
use crate::core::connection::{Connection, Terms};
use crate::core::outbound::{tell_inline, tell_results};
use crate::core::receives::Receives;
use crate::core::state::{Cx, State};
use crate::core::table::Key;
use crate::core::templates::Meaning;
use crate::core::trace::Traffic;
use crate::limits::INLINE_SIZE;
use crate::provider::{Inlet, Port, Provider, Run, RunKind};
use crate::service::{Reply, Service};

mod calls;
mod replies;

#[cfg(test)]
pub(super) use calls::{Sources, allows};

impl<P: Provider, S: Service> Core<P, S> {
    /// Acts on at most `budget` messages. Returns how many there were.
    pub(crate) fn take_inline(&mut self, now: Instant, budget: usize) -> usize {
        let Self { provider, service, state, incoming, reply, .. } = self;
        let mut short = Short { state, service, now, reply };
        provider.receive_inline(incoming, INLINE_SIZE, budget, &mut short)
    }
}

/// What acts on a run of messages.
pub(super) struct Short<'a, S> {
    pub(super) state: &'a mut State,
    pub(super) service: &'a mut S,
    pub(super) now: Instant,
    /// The buffer that Replies are made in, one after the other; without it no Call is taken.
    pub(super) reply: &'a mut Option<Reply>,
}

/// What is known of a connection while messages come from it.
#[derive(Clone, Copy)]
struct Origin {
    key: Key<Connection>,
    version: Version,
    /// Octets of the longest Payload stream of a Reply without chunks.
    bare_reply_max: usize,
}

impl<S: Service> Inlet for Short<'_, S> {
    #[inline(always)]
    fn messages(&mut self, qp: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize {
        let Some(from) = self.state.origin(qp) else { return 0 };
        match run.kind {
            RunKind::Whole => self.take_whole(from, run.octets, port),
            RunKind::Like(like, labels) => self.take_like(from, (like, labels), run.octets, port),
            RunKind::Invalidating(handles) => self.take_fencing(from, run.octets, handles, port),
        }
    }
}

impl<S: Service> Short<'_, S> {
    /// Takes messages from the front of a run. Returns how many.
    #[inline]
    fn take_whole(&mut self, from: Origin, run: &[&[u8]], port: &mut impl Port) -> usize {
        let mut taken = 0;
        while let Some(rest) = run.get(taken..).filter(|rest| !rest.is_empty()) {
            let done = match self.take_bare(from, rest, port) {
                0 => self.take_chunks(from, rest, port),
                done => done,
            };
            if done == 0 {
                break;
            }
            taken += done;
        }
        taken
    }

    /// Takes messages with one template from the front of a run. Returns how many.
    #[inline]
    fn take_like(
        &mut self,
        from: Origin,
        (like, labels): (NamedTemplate<'_>, &[Label]),
        bodies: &[&[u8]],
        port: &mut impl Port,
    ) -> usize {
        let meaning = self.state.meaning(&from, like);
        let Some(kind) = meaning.kind() else { return 0 };
        // Older Calls are acted upon first.
        if kind == Kind::Call && !self.state.ready.is_empty() {
            return 0;
        }
        let headers = labels.iter().map(|label| labeled(kind, *label));
        let counted = self.state.take(self.now, from.key, kind, headers);
        let run = labels.iter().zip(bodies).take(counted);
        let done = match meaning {
            Meaning::Call(procedure) => {
                let calls = run.map(|(label, body)| Taken::asking(label.xid, procedure, body));
                self.take_calls(from, calls, port)
            }
            Meaning::Results | Meaning::Unknown => {
                let replies = run.map(|(label, body)| (label.xid, *body));
                self.take_replies(from, replies, tell_results, port)
            }
        };
        self.state.settle_run(from.key, kind, counted, done);
        done
    }

    /// Takes messages without chunks from the front of a run, all of them Calls or all of them Replies. Returns
    /// how many.
    #[inline]
    fn take_bare(&mut self, from: Origin, run: &[&[u8]], port: &mut impl Port) -> usize {
        let version = from.version;
        let Some(first) = run.first().and_then(|message| bare(version, message)) else { return 0 };
        let kind = first.kind;
        // Older Calls are acted upon first.
        if kind == Kind::Call && !self.state.ready.is_empty() {
            return 0;
        }
        let headers = run.iter().map_while(|message| bare(version, message));
        let counted = self.state.take(self.now, from.key, kind, headers);
        let run = run.iter().take(counted);
        let done = match kind {
            Kind::Call => {
                let header_len = bare_header_len(version, Kind::Call);
                self.take_calls(from, run.map(|call| Taken::bare(call, header_len)), port)
            }
            Kind::Reply => {
                let header_len = bare_header_len(version, Kind::Reply);
                let replies = run.map(|reply| apart(reply, header_len));
                let tell = |cx: &mut Cx<'_>, service: &mut S, token, payload: &[u8]| {
                    tell_inline(cx, service, token, (version, payload));
                };
                self.take_replies(from, replies, tell, port)
            }
        };
        self.state.settle_run(from.key, kind, counted, done);
        done
    }
}

/// Takes the transport header off a message, which has one of that length. Returns its XID, and the Payload stream.
#[inline]
fn apart(message: &[u8], header_len: usize) -> (u32, &[u8]) {
    let (header, payload) = message.split_at_checked(header_len).unwrap_or_default();
    (header.first_chunk().copied().map_or(0, u32::from_be_bytes), payload)
}

impl State {
    /// Finds the connection of a queue pair.
    #[inline]
    fn origin(&self, qp: QpNum) -> Option<Origin> {
        let key = (*self.by_queue_pair.get(qp.slot())?)?;
        let connection = self.connections.get(key).filter(|found| found.qp == qp)?;
        let Terms { version, bare_reply_max, .. } = connection.terms;
        Some(Origin { key, version, bare_reply_max })
    }

    /// Returns what the messages are that came on a connection with a template. Those have templates that are of
    /// version 2.
    #[inline]
    fn meaning(&mut self, from: &Origin, like: NamedTemplate<'_>) -> Meaning {
        match self.connections.get_mut(from.key) {
            Some(connection) if from.version == Version::Two => {
                connection.meanings.of(like, &self.plain_calls)
            }
            _ => Meaning::Unknown,
        }
    }

    /// Has a connection's engine take messages. Returns how many.
    #[inline]
    fn take(
        &mut self,
        now: Instant,
        key: Key<Connection>,
        kind: Kind,
        run: impl IntoIterator<Item = Bare>,
    ) -> usize {
        let connection = self.connections.get_mut(key);
        connection.map_or(0, |connection| connection.engine.take(now, kind, run)) as usize
    }

    /// Settles what of the messages that an engine took has been acted upon: it takes back the others. Marks the
    /// connection, which nothing that has left had to wait for.
    #[inline]
    fn settle_run(&mut self, key: Key<Connection>, kind: Kind, taken: usize, done: usize) {
        if done < taken {
            self.put_back(key, kind, taken - done);
        }
        if taken > 0
            && let Some(connection) = self.connections.get_mut(key)
        {
            connection.called |= kind == Kind::Call;
            let Traffic { calls_received, replies_received } = &mut connection.traffic;
            *match kind {
                Kind::Call => calls_received,
                Kind::Reply => replies_received,
            } += done as u64;
            if !std::mem::replace(&mut connection.dirty, true) {
                self.dirty.push_back(key);
            }
        }
    }

    /// Has a connection's engine take back that so many messages have been received.
    #[cold]
    fn put_back(&mut self, key: Key<Connection>, kind: Kind, count: usize) {
        if let Some(connection) = self.connections.get_mut(key) {
            connection.engine.put_back(kind, u32::try_from(count).unwrap_or(u32::MAX));
        }
    }
}

impl Connection {
    /// Gives the peer room for others than the messages of a run, of which it is told with the next one of ours; so
    /// many Replies are about to leave.
    #[inline(always)]
    pub(super) fn give_credits(
        &mut self,
        receives: &mut Receives,
        touched: usize,
        (messages, leaving): (usize, usize),
    ) {
        // For one message that can wait until the turn ends, and what comes of it cannot.
        if messages > 1 || self.engine.reserved() < PLENTY {
            self.replenish(receives, u32::try_from(leaving).unwrap_or(u32::MAX), touched);
        }
    }
}

/// Receives that a peer can do with for a turn: for a Call, the credit that it leaves, and a grant.
const PLENTY: u32 = 3;
/// Octets of room for messages that are taken at once.
pub(super) const INCOMING: usize = 2 * INLINE_SIZE;
