//! The servers that were found to speak version 1 alone, by address (P6).
//!
//! # Limits
//! A server can be upgraded, and one that was only slow can be taken for one of version 1: each is forgotten after
//! [`KEPT`]. When there are [`SERVERS_MAX`], the one found first is forgotten.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::negotiate::Remembered;
use haulage_proto::time::Instant;

/// Servers to begin with version 1 with.
#[derive(Debug, Default)]
pub(crate) struct OldServers {
    /// The addresses, each with the time at which it is forgotten, in the order of these times.
    servers: VecDeque<(SocketAddr, Instant)>,
}

impl OldServers {
    /// Remembers that a server speaks version 1 alone.
    pub(crate) fn remember(&mut self, now: Instant, server: SocketAddr) {
        self.forget(server);
        if self.servers.len() == SERVERS_MAX {
            self.servers.pop_front();
        }
        self.servers.push_back((server, now.saturating_add(KEPT)));
    }

    /// Forgets a server.
    pub(crate) fn forget(&mut self, server: SocketAddr) {
        self.servers.retain(|(known, _)| *known != server);
    }

    /// Returns what is known about a server.
    pub(crate) fn recall(&mut self, now: Instant, server: SocketAddr) -> Remembered {
        self.servers.retain(|(_, until)| now < *until);
        if self.servers.iter().any(|(known, _)| *known == server) {
            Remembered::OnlyVersionOne
        } else {
            Remembered::Nothing
        }
    }
}

/// How long a server is remembered.
const KEPT: Duration = Duration::from_secs(600);
/// Servers that are remembered.
const SERVERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn server(number: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], number))
    }

    #[test]
    fn a_server_is_remembered_for_ten_minutes_by_address_and_port() {
        let (mut servers, start) = (OldServers::default(), Instant::ZERO);
        servers.remember(start, server(1));
        let end = start.saturating_add(Duration::from_secs(600));
        let before = Instant::from_nanos(end.as_nanos() - 1);
        assert_eq!(servers.recall(before, server(1)), Remembered::OnlyVersionOne);
        assert_eq!(servers.recall(before, server(2)), Remembered::Nothing);
        assert_eq!(servers.recall(end, server(1)), Remembered::Nothing);
        assert!(servers.servers.is_empty());
    }

    #[test]
    fn the_oldest_of_sixty_five_servers_is_forgotten() {
        let mut servers = OldServers::default();
        (0..64).for_each(|number| servers.remember(Instant::ZERO, server(number)));
        // Found again, it is the newest.
        servers.remember(Instant::ZERO, server(0));
        servers.remember(Instant::ZERO, server(64));
        let known = |number| servers.servers.iter().any(|(known, _)| *known == server(number));
        assert_eq!([known(0), known(1), known(2), known(64)], [true, false, true, true]);
        servers.forget(server(2));
        assert_eq!(servers.recall(Instant::ZERO, server(2)), Remembered::Nothing);
        assert_eq!(servers.servers.len(), 63);
    }
}
