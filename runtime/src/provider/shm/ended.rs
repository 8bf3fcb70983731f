//! The word in which one end tells the other how a connection ended.

use std::sync::atomic::Ordering;

use haulage_proto::iwarp::terminate::{Code, Fault};

use super::segment::Segment;
use crate::provider::DisconnectReason;

/// The end of a connection as its owner states it. Codes are those of iWARP's Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// The connection has not ended, as far as the owner knows.
    No,
    /// The connection ended; the ring tells whether in order.
    Closed,
    /// The owner says that its peer broke a rule.
    YouBroke(Code),
    /// The owner broke a rule: its access to the peer's memory was refused.
    WeBroke(Code),
}

impl Ended {
    /// Returns the word in which the owner of a segment says how the connection ended.
    pub(super) fn of(segment: &Segment) -> Self {
        Self::decode(segment.ended().load(Ordering::SeqCst))
    }

    /// Tells the peer, in our segment, how the connection ended.
    pub(super) fn tell(self, segment: &Segment) {
        segment.ended().store(self.encode(), Ordering::SeqCst);
    }

    pub(super) fn encode(self) -> u32 {
        let word =
            |kind: u8, Code { layer, etype, code }| u32::from_be_bytes([kind, layer, etype, code]);
        match self {
            Self::No => 0,
            Self::Closed => 1 << 24,
            Self::YouBroke(code) => word(2, code),
            Self::WeBroke(code) => word(3, code),
        }
    }

    pub(super) fn decode(word: u32) -> Self {
        let [kind, layer, etype, code] = word.to_be_bytes();
        let code = Code { layer, etype, code };
        match kind {
            0 => Self::No,
            2 => Self::YouBroke(code),
            3 => Self::WeBroke(code),
            _ => Self::Closed,
        }
    }

    /// Returns the reason that the word of a peer gives us, once its socket is closed and its ring empty.
    pub(super) fn reason(self) -> DisconnectReason {
        match self {
            Self::No | Self::Closed => DisconnectReason::Lost,
            Self::YouBroke(Code { layer, etype, code }) => {
                DisconnectReason::Terminated { layer, etype, code }
            }
            Self::WeBroke(code) => {
                DisconnectReason::PeerMisbehaved(code.rule().unwrap_or("a rule it does not name"))
            }
        }
    }
}

/// The fault of a peer whose ring is invalid.
pub(super) const BAD_RING: Fault = Fault::UlpduLength;
/// The rule that a peer breaks whose memory loses pages.
pub(super) const MEMORY_LOST: &str = "pages of shared memory were taken away";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_is_told_and_understood() {
        for fault in Fault::ALL {
            for ended in [Ended::YouBroke(fault.code()), Ended::WeBroke(fault.code())] {
                assert_eq!(Ended::decode(ended.encode()), ended);
            }
        }
        for ended in [Ended::No, Ended::Closed] {
            assert_eq!(Ended::decode(ended.encode()), ended);
            assert_eq!(ended.reason(), DisconnectReason::Lost);
        }
        assert_eq!(Ended::decode(u32::MAX), Ended::Closed);
        let told = Ended::WeBroke(Fault::ReadBounds.code()).reason();
        assert_eq!(told, DisconnectReason::PeerMisbehaved("Read out of bounds"));
        let told = Ended::YouBroke(Fault::MessageTooLong.code()).reason();
        assert_eq!(told, DisconnectReason::Terminated { layer: 1, etype: 2, code: 5 });
    }
}
