//! The ports by which Calls leave at once while a service runs.

use super::aim::Aim;
use crate::provider::Port;

/// The way by which the Calls of a service leave.
pub(crate) enum Exit<'a> {
    /// Every Call is queued.
    Closed,
    /// Calls on the connection whose messages are being handled leave at once, by this port.
    One(&'a mut dyn Port),
    /// Calls on any connection leave at once: the port is aimed at each.
    Any(&'a mut dyn Aim),
}

impl Exit<'_> {
    /// Returns the port by which Calls leave at once, if they do.
    #[inline]
    pub(crate) fn port(&mut self) -> Option<&mut dyn Port> {
        match self {
            Self::One(port) => Some(*port),
            Self::Any(port) => Some(*port),
            Self::Closed => None,
        }
    }
}
