//! Names in the events of the connection manager, for listeners and connections.

use haulage_proto::verbs::QpNum;

/// The name of a listener of a [`Verbs`](super::Verbs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub(super) u32);

/// The name of a connection's id.
pub(super) fn token(qp: QpNum) -> u32 {
    u32::try_from(qp.slot()).unwrap_or_default()
}

/// The bit that marks the names of listeners.
pub(super) const LISTENER: u32 = 1 << 31;
