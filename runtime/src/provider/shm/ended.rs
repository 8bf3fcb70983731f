//! How a connection ended, as one end tells the other in its segment.

use haulage_proto::iwarp::terminate::{Code, Fault};

use crate::provider::DisconnectReason;

/// The word an end leaves behind. Codes are those of iWARP's Terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It has not ended, as far as its owner knows.
    No,
    /// It has; whether in order, the ring tells.
    Closed,
    /// The owner says that its peer broke a rule.
    YouBroke(Code),
    /// The owner broke a rule: it was refused what it asked of its peer's memory.
    WeBroke(Code),
}

impl Ended {
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

    /// Returns what the word of a peer whose socket is closed means to us, when its ring is empty.
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

/// The fault of a ring that cannot be.
pub(super) const BAD_RING: Fault = Fault::UlpduLength;
/// The rule a peer breaks whose memory loses pages.
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
