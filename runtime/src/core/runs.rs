//! Runs of messages and records: handles Calls and Replies as they arrive, without chunks or with one for an argument or
//! a result.
//!
//! # Normal operation
//! Calls over RDMA and over TCP are taken in one stage (`runs/calls.rs`); a [`Carrier`] says what differs. The rest of this
//! page is about RDMA; [`records`](super::records) finds the records of a stream that are a run.
//!
//! Messages arrive in runs of one connection: from the provider, in its own memory, or in Receives that completed in
//! one poll. The core settles once for all of a run that nothing is out of the ordinary, which credits the peer is
//! given, and how many Replies, or Calls, may leave at once and with which credit word. Then each Call is given to the
//! service, and its Reply leaves; the caller of each Reply is told, and the Call that it makes next leaves under the
//! [`SendGrant`](crate::core::requester::SendGrant) of the connection. If a Reply invalidates the handle of its Call's
//! lease, the handle is retired first.
//!
//! A message that cannot be handled in a run is left. A provider then keeps it, and reports it in a Receive; a message
//! that came in a Receive is decoded and judged by itself.
//!
//! Answers leave by the [`Port`] that came with the run. Some providers show them to the peer only at the end of the
//! turn; so runs are handled as late in the turn as possible.

use haulage_proto::negotiate::{Version, patched, unchunked, unchunked_header_len};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::verbs::{HeaderPatch, NamedTemplate, QpNum};

use self::messages::Messages;
use self::taken::apart;
use super::cx::Cx;
use super::inner::Inner;
use super::tell::{tell_inline, tell_results};
use super::templates::Meaning;
use crate::core::service::Service;
use crate::provider::{MessageSink, Port, Run, RunKind};

mod calls;
mod carrier;
mod messages;
mod replies;
mod sender;
mod taken;

pub(super) use carrier::{Answered, Asked, Carrier, Own};
pub(super) use sender::{Runs, Sender};
pub(super) use taken::Taken;

impl<S: Service> MessageSink for Runs<'_, S> {
    #[inline(always)]
    fn messages(&mut self, qp: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize {
        let Some(from) = self.inner.common.sender(qp) else { return 0 };
        let common = &mut self.inner.common;
        // Those in Receives that wait for their turn came first.
        if self.is_in_place && common.arrived.has_of(qp.slot()) {
            return 0;
        }
        common.arrivals += 1;
        match run.kind {
            RunKind::Whole => self.take_whole(from, run.octets, port),
            RunKind::Like(like, patches) => self.take_like(from, like, patches, run.octets, port),
            RunKind::Invalidating(handles) => self.take_fencing(from, run.octets, handles, port),
        }
    }
}

impl<S: Service> Runs<'_, S> {
    /// Handles messages at the front of a run. Returns how many.
    #[inline]
    fn take_whole(&mut self, from: Sender, run: &[&[u8]], port: &mut impl Port) -> usize {
        let mut taken = 0;
        while let Some(rest) = run.get(taken..).filter(|rest| !rest.is_empty()) {
            let done = match self.take_unchunked(from, rest, port) {
                0 => self.take_chunks(from, rest, port),
                done => done,
            };
            let done = match (done, rest) {
                (0, [first, ..]) => self.take_with_argument(from, first, port),
                _ => done,
            };
            if done == 0 {
                break;
            }
            taken += done;
        }
        taken
    }

    /// Handles messages with one template at the front of a run. Returns how many.
    #[inline]
    fn take_like(
        &mut self,
        from: Sender,
        like: NamedTemplate<'_>,
        patches: &[HeaderPatch],
        bodies: &[&[u8]],
        port: &mut impl Port,
    ) -> usize {
        let meaning = meaning(self.inner, &from, like);
        let Some(kind) = meaning.kind() else { return 0 };
        // Calls of this connection that wait for their turn are older than this run.
        if kind == Kind::Call && self.inner.responder.turns.has_of(from.key.slot()) {
            return 0;
        }
        let headers = patches.iter().map(|patch| patched(kind, *patch));
        let counted = self.inner.common.take(from.key, kind, headers);
        let run = patches.iter().zip(bodies).take(counted);
        let done = match meaning {
            Meaning::Call(header) => {
                let calls = run.map(|(patch, body)| Taken::asking(patch.xid, header, body));
                let Some(programs) = self.inner.common.serves(from.key) else { return 0 };
                self.take_calls(&from, &programs, calls, Messages(port))
            }
            Meaning::Results | Meaning::Unknown => {
                let replies = run.map(|(patch, body)| (patch.xid, *body));
                self.take_replies(from, replies, tell_results, port)
            }
        };
        self.inner.common.settle_run(from.key, kind, counted, done);
        done
    }

    /// Handles messages without chunks at the front of a run, all of them Calls or all of them Replies. Returns how
    /// many.
    #[inline]
    fn take_unchunked(&mut self, from: Sender, messages: &[&[u8]], port: &mut impl Port) -> usize {
        let version = from.version;
        let Some(first) = messages.first().and_then(|message| unchunked(version, message)) else {
            return 0;
        };
        let kind = first.kind;
        // Calls of this connection that wait for their turn are older than this run.
        if kind == Kind::Call && self.inner.responder.turns.has_of(from.key.slot()) {
            return 0;
        }
        let headers = messages.iter().map_while(|message| unchunked(version, message));
        let counted = self.inner.common.take(from.key, kind, headers);
        let run = messages.iter().take(counted);
        let done = match kind {
            Kind::Call => {
                let header_len = unchunked_header_len(version, Kind::Call);
                let Some(programs) = self.inner.common.serves(from.key) else { return 0 };
                let calls = run.map(|call| Taken::unchunked(call, header_len));
                self.take_calls(&from, &programs, calls, Messages(port))
            }
            Kind::Reply => {
                let header_len = unchunked_header_len(version, Kind::Reply);
                let replies = run.clone().map(|reply| apart(reply, header_len));
                let tell = |cx: &mut Cx<'_>, service: &mut S, token, payload: &[u8]| {
                    tell_inline(cx, service, token, version, payload);
                };
                match self.take_replies(from, replies, tell, port) {
                    0 => {
                        let replies = messages.get(..counted).unwrap_or_default();
                        self.take_after_argument(from, replies, header_len, port)
                    }
                    done => done,
                }
            }
        };
        self.inner.common.settle_run(from.key, kind, counted, done);
        done
    }
}

/// Returns the meaning of a template that arrived on a connection. Only version 2 has templates.
#[inline]
fn meaning(inner: &mut Inner, from: &Sender, like: NamedTemplate<'_>) -> Meaning {
    match inner.common.connections.get_mut(from.key) {
        Some(connection) if from.version == Version::Two => connection.session.meaning(like),
        _ => Meaning::Unknown,
    }
}
