//! What Calls leave by that leave at once.

use super::aim::Aim;
use super::lane::Lane;
use crate::core::table::ConnectionKey;
use crate::provider::Port;

/// What Calls leave by while a service runs.
pub(crate) enum Exit<'a> {
    /// They are queued.
    Closed,
    /// Those of the connection whose messages are acted upon leave at once.
    One(&'a mut dyn Port),
    /// Those of any connection do.
    Any(&'a mut dyn Aim),
}

/// A lane, and what its Calls leave by.
type Way<'a> = (&'a mut Lane, &'a mut dyn Port);

impl Exit<'_> {
    /// Returns the way of a Call on `connection`, if the lane takes it.
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

    /// Returns the way of a Call on `connection` that opens a lease, if the lane takes it. A port that is turned from
    /// connection to connection opens none.
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
