//! What a client does about a server that does not answer its first message of version 2 (P6).
//!
//! # Normal operation
//! The first attempt begins with version 2. Once its transport is established, the server has [`SILENCE_PART`] of
//! `Limits::setup_timeout` to speak. If it does not, or loses the connection before, there is a second attempt on another
//! queue pair, under the name of the first. Both share one `setup_timeout`.
//!
//! # Limits
//! There are two attempts, never three. The second one lasts as long as the first one allowed: a server that has then
//! said nothing, though a Call waits for it, is given up.

use std::time::Duration;

use haulage_proto::negotiate::Version;
use haulage_proto::time::Instant;

/// The attempts of a connection to reach its server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Attempt {
    /// Nothing is under watch: the transport of the first attempt is being set up, or the connection needs no second one.
    #[default]
    Unwatched,
    /// The server was sent our properties, and has not spoken.
    First { silent_at: Instant, by: Instant },
    /// The connection begins anew, or has done so, and the server has not spoken since.
    Second { by: Instant },
    /// The server refused version 2, and has said nothing since.
    Refused,
}

impl Attempt {
    /// Begins to watch a server that is sent our properties `now`, and has to have answered within `setup_timeout`.
    pub(super) fn watch(&mut self, now: Instant, setup_timeout: Duration) {
        if matches!(self, Self::Unwatched) {
            *self = Self::First {
                silent_at: now.saturating_add(setup_timeout / SILENCE_PART),
                by: now.saturating_add(setup_timeout),
            };
        }
    }

    /// Begins the second attempt, if the first one is under watch. Returns whether it is.
    pub(super) const fn again(&mut self) -> bool {
        let Self::First { by, .. } = *self else { return false };
        *self = Self::Second { by };
        true
    }

    /// Takes in a message of the server on a connection that is ready, in this version.
    pub(crate) fn hear(&mut self, version: Option<Version>) {
        *self = match (*self, version) {
            (Self::First { .. }, Some(Version::One)) => Self::Refused,
            _ => Self::Unwatched,
        };
    }

    /// Ends the watch: the server has spoken, or no Call waits for it.
    pub(crate) const fn settle(&mut self) {
        *self = Self::Unwatched;
    }
}

/// The part of `Limits::setup_timeout` after which a server counts as silent: a third. With the usual limits it is longer
/// than the last keepalive of an iWARP connection takes (1.3 s), and shorter than a Call may take (2 s).
const SILENCE_PART: u32 = 3;
