//! The end of a connection over TCP.

use std::net::SocketAddr;

use crate::core::common::Common;
use crate::core::inner::Inner;
use crate::core::streams::Stream;
use crate::key::ConnectionKey;
use crate::provider::PeerUser;
use crate::service::{CallError, ConnectionId, Ended, Peer, Role};

/// Ends a connection for the reason that was noted, or else for `why`, and forgets its Calls.
pub(in crate::core) fn end(inner: &mut Inner, key: ConnectionKey, why: &str) {
    let Inner { responder, common, .. } = inner;
    responder.drop_calls(common, key);
    let Common { streams, memory, connections, .. } = common;
    let held = streams.get(key).map_or(0, Stream::held);
    streams.give_back(key, held);
    let Some(mut stream) = streams.remove(key) else { return };
    stream.release(&mut streams.left);
    for charge in streams.left.drain(..) {
        memory.discharge(Some(&mut stream.share), charge);
    }
    memory.leave(&stream.share);
    let has_all = stream.has_left();
    let peer = described(key, stream.peer());
    let why = stream.into_end(CallError::Disconnected(why.to_owned()));
    connections.gone.push_back(Ended { peer, why, has_all });
}

/// Describes a connection to the service.
pub(super) fn described(key: ConnectionKey, address: SocketAddr) -> Peer {
    let (connection, user) = (ConnectionId(key), PeerUser::Unknown);
    Peer { connection, address, user, version: None, role: Role::Server }
}
