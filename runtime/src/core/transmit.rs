//! The last stage of a turn: posts what is ready, with one doorbell for each queue pair, and sends what waits over TCP.

use haulage_proto::exchange::Format;
use haulage_proto::negotiate::Input;
use haulage_proto::time::Instant;
use haulage_proto::v2::connection::{Sending, Unsent};
use haulage_proto::v2::continuation::Kind;

use super::common::Common;
use super::inner::Inner;
use super::records;
use super::requester::Direct;
use super::responder::{self, Delivery, Responder, ServedCall};
use crate::key::{ConnectionKey, Transport};
use crate::provider::{Port, Provider};

/// Lets everything leave that is ready. Returns the number of connections that had something to post or to send, or were
/// closed.
pub(crate) fn flush(provider: &mut impl Provider, inner: &mut Inner, now: Instant) -> usize {
    // Receives first (P1): a credit limit is advertised only once the Receives behind it are posted.
    post_receives(provider, &mut inner.common);
    let mut flushed = 0;
    // Connections touched meanwhile wait for the next turn; this bounds the loop.
    for _ in 0..inner.common.connections.touched() {
        let Some(key) = inner.common.connections.next_touched() else { break };
        match key.transport() {
            Transport::Rdma => flush_connection(provider, inner, now, key),
            Transport::Tcp => records::flush(inner, now, key),
        }
        flushed += 1;
    }
    flushed + close_connections(provider, inner, now)
}

/// Posts Receives, and tells the provider how many are reserved for a new connection, before its peer can send.
pub(crate) fn provide(provider: &mut impl Provider, common: &mut Common, key: ConnectionKey) {
    post_receives(provider, common);
    if let Some(connection) = common.connections.get_mut(key) {
        connection.provide(provider);
    }
}

#[inline]
fn post_receives(provider: &mut impl Provider, common: &mut Common) {
    let receives = common.receives.batch();
    if !receives.is_empty() {
        let posted = provider.post_receives(receives);
        debug_assert!(posted.is_ok(), "the provider holds every buffer there is");
    }
}

fn flush_connection(
    provider: &mut impl Provider,
    inner: &mut Inner,
    now: Instant,
    key: ConnectionKey,
) {
    let Common { connections, receives, .. } = &mut inner.common;
    let touched = connections.touched();
    let Some(connection) = connections.get_mut(key) else { return };
    if connection.life.is_over() || connection.life.is_renewing() {
        connection.outbox.unmark();
        return;
    }
    connection.life.be_active(now);
    // The connection stays marked while it sends: messages queued meanwhile leave below.
    let leaving = connection.outbox.replies();
    connection.replenish(receives, leaving, touched);
    connection.provide(provider);
    if connection.has_work() {
        let qp = connection.qp();
        send_waiting(inner, now, key, &mut Direct::to(provider, qp));
    }
    let Some(connection) = inner.common.connections.get_mut(key) else { return };
    connection.outbox.unmark();
    if connection.outbox.takes_doorbell() {
        connection.provide(provider);
        if let Some(mut port) = provider.port(connection.qp()) {
            connection.outbox.post(&mut port);
        }
    }
}

/// Sends the waiting Replies and Calls of a connection, and the messages of its engine.
#[inline(never)]
fn send_waiting(inner: &mut Inner, now: Instant, key: ConnectionKey, port: &mut impl Port) {
    let Inner { responder, requester, common, .. } = inner;
    send_replies(responder, common, now, key, port);
    requester.send_calls(common, key, port);
    inner.drive(now, key, Input::Idle);
    watch_replies(&mut inner.common, now, key);
}

/// Sends the Replies that wait, as far as credits allow.
fn send_replies(
    served: &mut Responder,
    common: &mut Common,
    now: Instant,
    key: ConnectionKey,
    port: &mut impl Port,
) {
    while let Some(connection) = common.connections.get(key)
        && let Some(name) = connection.outbox.first_reply()
    {
        let waits = served.calls.get(name);
        let format = match waits.map_or(Delivery::Sent(Format::Simple), ServedCall::delivery) {
            Delivery::Sent(format) => format,
            Delivery::Read if served.send_read(common, now, (key, name), port) => continue,
            Delivery::Read => return,
        };
        let parts = waits.map_or(0, ServedCall::parts);
        let has_buffers = parts == 0 || common.has_buffers(key, parts);
        let Some(connection) = common.connections.get_mut(key) else { return };
        let posted = if has_buffers {
            match connection.engine.try_post(&Sending { format, ..Sending::REPLY }) {
                Err(Unsent::Wait) => return,
                posted => posted.ok(),
            }
        } else {
            connection.engine.give_up(Kind::Reply);
            None
        };
        connection.outbox.end_reply();
        common.memory.end_sending(&mut connection.share);
        let Some(call) = served.calls.remove(name) else { continue };
        match posted {
            Some(credit) => responder::send(common, call, credit, port),
            None => served.refuse_answered(common, call),
        }
    }
}

/// Has a peer checked while Replies wait for its credit, so that they do not wait for ever (P3).
fn watch_replies(common: &mut Common, now: Instant, key: ConnectionKey) {
    let Some(connection) = common.connections.get_mut(key) else { return };
    if connection.outbox.replies() == 0 {
        connection.outbox.stop_checking();
    } else if connection.outbox.check_at().is_none() {
        common.check_replies(now, key);
    }
}

/// Disconnects the connections that the turn decided to close. Returns how many it decided on.
fn close_connections(provider: &mut impl Provider, inner: &mut Inner, now: Instant) -> usize {
    let mut closed = 0;
    while let Some(key) = inner.common.connections.next_closing() {
        closed += 1;
        match (key.transport(), inner.common.connections.get(key)) {
            (Transport::Rdma, Some(connection)) if connection.life.gives_up() => {
                provider.disconnect(now, connection.qp());
            }
            (Transport::Rdma, _) => {}
            (Transport::Tcp, _) => records::end(inner, key, "it was closed"),
        }
    }
    closed
}
