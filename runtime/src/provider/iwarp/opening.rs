//! The first FPDUs of a stream: when an end may send, and the keepalives until the peer is heard.
//!
//! # Normal operation
//!
//! A passive end may send once it has received an FPDU (RFC 5044 section 7.1.2), an active end at once. [`Opening`]
//! says how far the connection has come; once it is over, no FPDU is special any more.
//!
//! An active end sends keepalives as long as the peer has sent nothing, since a peer may have overlooked its first
//! FPDUs. Linux siw reads its socket when it is notified that octets came, and as passive end it is not notified of
//! octets just behind its MPA Reply: these lie there until more come (seen with 6.1, in most connections whose first
//! Send left at once). So until the peer's first FPDU has arrived we send now and then the shortest FPDU, an RDMA Write
//! of no octets, which names no memory and delivers nothing (RFC 5040 section 5.2.1). It is harmless to any other peer.

use std::time::Duration;

use haulage_proto::iwarp::mpa::handshake::Rtr;

/// The first FPDUs of a stream, as far as they have come. A passive end that has accepted its peer begins with
/// `Listening`, an active end that was accepted with `Unheard(0)`.
///
/// | from | to | when |
/// |---|---|---|
/// | `Listening` | `Over` | the peer's first FPDU has arrived |
/// | `Unheard(n)` | `Unheard(n + 1)` | the time for another keepalive has come |
/// | `Unheard` | `Over` | the peer's first FPDU has arrived, or as many keepalives were sent as may be |
///
/// Each message that leaves asks for the state, so it has an octet of its own, and the states that may send come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Opening {
    /// We may send, and the next FPDU is like any other.
    Over,
    /// We may send; the peer has sent nothing yet. This many keepalives were due so far.
    Unheard(u32),
    /// We may not send before the peer has. Its first FPDU may be this ready-to-receive indication.
    Listening(Option<Rtr>),
}

impl Opening {
    /// Notes that the time for another keepalive has come, if the peer was not heard. Returns the time until the next,
    /// unless this was none.
    pub(super) fn on_silence(&mut self) -> Option<Duration> {
        let Self::Unheard(count) = *self else { return None };
        if count >= KEEPALIVES_MAX {
            // A peer from which nothing came after this many keepalives is taken to have nothing to send.
            *self = Self::Over;
            return None;
        }
        *self = Self::Unheard(count + 1);
        Some(keepalive_after(count + 1))
    }

    /// Returns whether we may send.
    #[inline]
    pub(super) const fn may_send(self) -> bool {
        matches!(self, Self::Over | Self::Unheard(_))
    }

    /// Returns whether no FPDU is special any more.
    #[inline]
    pub(super) const fn is_over(self) -> bool {
        matches!(self, Self::Over)
    }

    /// Returns whether the next FPDU may be this ready-to-receive indication.
    pub(super) fn expects(self, rtr: Rtr) -> bool {
        self == Self::Listening(Some(rtr))
    }
}

/// Returns the time to wait for the peer after `sent` keepalives.
pub(super) const fn keepalive_after(sent: u32) -> Duration {
    FIRST.saturating_mul(1 << sent)
}

/// Time in which a peer that can answer at once has done so, on any but the longest paths. siw was seen to overlook no
/// octets that came 50 ms after its Reply.
const FIRST: Duration = Duration::from_millis(20);

/// The last keepalive leaves 1.3 s after the connection was made.
const KEEPALIVES_MAX: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_table_is_as_reviewed() {
        let after = |mut opening: Opening| {
            let next = opening.on_silence();
            (opening, next.map(|next| next.as_millis()))
        };
        for opening in [Opening::Listening(None), Opening::Over] {
            assert_eq!(after(opening), (opening, None), "it sends no keepalives");
        }
        let millis = [40, 80, 160, 320, 640, 1280];
        for (sent, next) in (0..).zip(millis) {
            assert_eq!(after(Opening::Unheard(sent)), (Opening::Unheard(sent + 1), Some(next)));
        }
        assert_eq!(after(Opening::Unheard(6)), (Opening::Over, None));

        let states = [Opening::Listening(None), Opening::Unheard(1), Opening::Over];
        assert_eq!(states.map(Opening::may_send), [false, true, true]);
        assert_eq!(states.map(Opening::is_over), [false, false, true]);
        assert!(Opening::Listening(Some(Rtr::Send)).expects(Rtr::Send));
        assert!(!Opening::Listening(Some(Rtr::Write)).expects(Rtr::Send));
    }
}
