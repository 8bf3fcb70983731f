//! Transport properties (version 2, section 5).

use crate::xdr::{Reader, Truncated, Writer};

/// What one end said about itself, defaults where it said nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Maximum Send Size: octets of the largest message it sends.
    pub send_size_max: u32,
    /// Receive Buffer Size: octets of the largest message it takes.
    pub receive_buffer_size: u32,
    /// Maximum Segment Size: octets of the largest segment it handles.
    pub segment_size_max: u32,
    /// Maximum Segment Count: segments in one header.
    pub segment_count_max: u32,
    /// Reverse-Direction Support: what it can do as a Responder to its server.
    pub reverse: u32,
}

impl Default for Properties {
    fn default() -> Self {
        Self {
            send_size_max: 4096,
            receive_buffer_size: 4096,
            segment_size_max: 1 << 20,
            segment_count_max: 16,
            reverse: REVERSE_NONE,
        }
    }
}

/// Why a property set was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyFault {
    /// The set itself ends early.
    Truncated(Truncated),
    /// A value is longer than the message, or that of a known property is not of its type.
    BadValue {
        /// Offset of the value.
        at: usize,
    },
}

impl From<Truncated> for PropertyFault {
    fn from(truncated: Truncated) -> Self {
        Self::Truncated(truncated)
    }
}

impl Properties {
    /// Parses a property set. Unknown properties are ignored; of a repeated one the last counts.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self, PropertyFault> {
        let mut properties = Self::default();
        let count = r.u32()?;
        // Each takes at least two words, so a count beyond the bytes ends in `Truncated` soon.
        for _ in 0..count {
            // E8: one word.
            let which = r.u32()?;
            let length = r.u32()?;
            let bad = PropertyFault::BadValue { at: r.position() };
            // [V2-5.1-1] a value longer than what is left of the message.
            let length = usize::try_from(length).map_err(|_| bad)?;
            let data = r.take(length).map_err(|_| bad)?;
            r.skip_pad(length).map_err(|_| bad)?;
            let default = Self::default();
            let (place, default) = match which {
                SBSIZ => (&mut properties.send_size_max, default.send_size_max),
                RBSIZ => (&mut properties.receive_buffer_size, default.receive_buffer_size),
                RSSIZ => (&mut properties.segment_size_max, default.segment_size_max),
                RCSIZ => (&mut properties.segment_count_max, default.segment_count_max),
                BRS => (&mut properties.reverse, default.reverse),
                // Host authentication is opaque and not spoken; the rest is not known.
                _ => continue,
            };
            *place = match data {
                // A value of no octets stands for the default.
                [] => default,
                // [V2-5.1-1] [V2-5.1-2] exactly the type of the property.
                _ => u32::from_be_bytes(data.try_into().map_err(|_| bad)?),
            };
        }
        Ok(properties)
    }

    /// Appends the set of all properties to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let all = [
            (SBSIZ, self.send_size_max),
            (RBSIZ, self.receive_buffer_size),
            (RSSIZ, self.segment_size_max),
            (RCSIZ, self.segment_count_max),
            (BRS, self.reverse),
        ];
        w.u32(u32::try_from(all.len()).unwrap_or(u32::MAX))?;
        for (which, value) in all {
            w.u32(which)?;
            w.opaque(&value.to_be_bytes())?;
        }
        Ok(())
    }
}

/// `RDMA_RVRSDIR_NONE`: no reverse direction.
pub const REVERSE_NONE: u32 = 0;

const SBSIZ: u32 = 1;
const RBSIZ: u32 = 2;
const RSSIZ: u32 = 3;
const RCSIZ: u32 = 4;
const BRS: u32 = 5;
