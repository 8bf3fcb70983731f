//! Transport properties (version 2, section 5).

use alloc::vec::Vec;
use core::fmt;

use crate::xdr::{Reader, Truncated, UNIT, Writer, pad};

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

/// Where a CONNPROP message stands among those of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnPropKind {
    /// More properties follow.
    Middle,
    /// No more properties follow.
    Final,
}

/// Why a property set was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
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

/// A property set, borrowed from the message it arrived in.
#[derive(Clone, Copy)]
pub struct PropertySet<'a> {
    /// Whole properties: code point, length, value, padding.
    bytes: &'a [u8],
    count: u32,
}

impl<'a> PropertySet<'a> {
    /// Parses a set. The values of unknown properties are not judged.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, PropertyFault> {
        let count = r.u32()?;
        let bytes = r.rest();
        let start = r.position();
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
            // [V2-5.1-1] [V2-5.1-2] exactly the type of the property, or nothing for its default.
            if is_word(which) && !data.is_empty() && data.len() != UNIT {
                return Err(bad);
            }
        }
        let length = r.position().saturating_sub(start);
        Ok(Self { bytes: bytes.get(..length).unwrap_or_default(), count })
    }

    /// Returns how many properties there are.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the properties in order: code points and values.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let mut r = Reader::new(self.bytes);
        core::iter::from_fn(move || Some((r.u32().ok()?, r.opaque(usize::MAX).ok()?)))
    }

    /// Returns what the set says. Unknown properties are ignored; of a repeated one the last counts.
    pub fn properties(&self) -> Properties {
        let mut properties = Properties::default();
        self.apply(&mut properties);
        properties
    }

    /// Sets what the set says in `properties`, and leaves the rest as it was.
    pub fn apply(&self, properties: &mut Properties) {
        let default = Properties::default();
        for (which, data) in self.entries() {
            // Section 5.1: no value stands for the default.
            let value = Reader::new(data).u32().ok();
            match which {
                SBSIZ => properties.send_size_max = value.unwrap_or(default.send_size_max),
                RBSIZ => {
                    properties.receive_buffer_size = value.unwrap_or(default.receive_buffer_size);
                }
                RSSIZ => properties.segment_size_max = value.unwrap_or(default.segment_size_max),
                RCSIZ => properties.segment_count_max = value.unwrap_or(default.segment_count_max),
                BRS => properties.reverse = value.unwrap_or(default.reverse),
                // Host authentication is opaque; the rest is not known.
                _ => {}
            }
        }
    }

    /// Appends the set as it was received.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        w.u32(self.count)?;
        for (which, data) in self.entries() {
            w.u32(which)?;
            w.opaque(data)?;
        }
        Ok(())
    }
}

// A value may be a secret, so only its length is printed.
impl fmt::Debug for PropertySet<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries().map(|(which, data)| (which, data.len()))).finish()
    }
}

/// Returns whether a property is known and its value is one word.
const fn is_word(which: u32) -> bool {
    matches!(which, SBSIZ | RBSIZ | RSSIZ | RCSIZ | BRS)
}

impl Properties {
    /// Appends the set of all properties to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        let all = self.words();
        w.u32(u32::try_from(all.len()).unwrap_or(u32::MAX))?;
        for (which, value) in all {
            w.u32(which)?;
            w.opaque(&value.to_be_bytes())?;
        }
        Ok(())
    }

    /// Returns the code points and values.
    pub(super) const fn words(&self) -> [(u32, u32); 5] {
        [
            (SBSIZ, self.send_size_max),
            (RBSIZ, self.receive_buffer_size),
            (RSSIZ, self.segment_size_max),
            (RCSIZ, self.segment_count_max),
            (BRS, self.reverse),
        ]
    }
}

/// Appends a property as it is encoded.
pub(super) fn push_property(out: &mut Vec<u8>, which: u32, data: &[u8]) {
    out.extend(which.to_be_bytes());
    out.extend(u32::try_from(data.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(data);
    out.extend([0; UNIT].iter().take(pad(data.len())));
}

/// `RDMA_RVRSDIR_NONE`: no reverse direction.
pub const REVERSE_NONE: u32 = 0;
/// `RDMA_RVRSDIR_SIMPLE`: Simple Format without chunks.
pub const REVERSE_SIMPLE: u32 = 1;
/// `RDMA_RVRSDIR_CONT`: Simple and Continued Format without chunks.
pub const REVERSE_CONT: u32 = 2;
/// `RDMA_RVRSDIR_GENL`: everything that the forward direction has.
pub const REVERSE_GENL: u32 = 3;
/// Host Authentication Message: opaque octets, see [`super::host_auth`].
pub const HOSTAUTH: u32 = 6;

const SBSIZ: u32 = 1;
/// Receive Buffer Size.
pub(crate) const RBSIZ: u32 = 2;
const RSSIZ: u32 = 3;
const RCSIZ: u32 = 4;
const BRS: u32 = 5;
