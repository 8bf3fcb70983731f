//! The ports by which Calls leave at once while a service runs.

use super::aim::Aim;
use super::lane::Lane;
use crate::core::table::ConnectionKey;
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

/// A lane, and the port by which its Calls leave.
type Way<'a> = (&'a mut Lane, &'a mut dyn Port);

impl Exit<'_> {
    /// Returns the lane and the port for a Call on `connection`, if the lane takes the Call.
    #[inline]
    pub(crate) fn way<'a>(
        &'a mut self,
        lane: &'a mut Option<Lane>,
        connection: ConnectionKey,
    ) -> Option<Way<'a>> {
        let lane = lane.as_mut().filter(|lane| lane.takes(connection))?;
        match self {
            Self::One(port) => Some((lane, *port)),
            Self::Any(port) => Some((lane, *port)),
            Self::Closed => None,
        }
    }

    /// Returns the lane and the port for a Call on `connection` that exposes a lease, if the lane takes the Call. A
    /// port that can be aimed at any connection exposes none.
    #[inline]
    pub(crate) fn way_of_opening<'a>(
        &'a mut self,
        lane: &'a mut Option<Lane>,
        connection: ConnectionKey,
    ) -> Option<Way<'a>> {
        match self {
            Self::One(_) => self.way(lane, connection),
            Self::Any(_) | Self::Closed => None,
        }
    }
}
