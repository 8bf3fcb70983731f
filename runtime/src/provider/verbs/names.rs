//! Names by which the connection manager's events say which listener or connection they are about.

use haulage_proto::verbs::QpNum;

/// Names a listener of a [`Verbs`](super::Verbs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListenerId(pub(super) u32);

/// The name of a connection's id.
pub(super) fn token(qp: QpNum) -> u32 {
    u32::try_from(qp.slot()).unwrap_or_default()
}

/// Of the names of ids, those of listeners.
pub(super) const LISTENER: u32 = 1 << 31;
