//! Transport properties (version 2, section 5).

use alloc::vec::Vec;
use core::fmt;

use crate::xdr::{Reader, Truncated, UNIT, Writer, pad};

/// The transport properties of one end. Properties that the end did not announce have their
/// defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Maximum Send Size: the length of the largest message that the end sends, in octets.
    pub send_size_max: u32,
    /// Receive Buffer Size: the length of the largest message that the end accepts, in octets.
    pub receive_buffer_size: u32,
    /// Maximum Segment Size: the length of the largest segment that the end handles, in octets.
    pub segment_size_max: u32,
    /// Maximum Segment Count: the most segments in one header.
    pub segment_count_max: u32,
    /// Reverse-Direction Support: the Calls that a client serves for its server ([`REVERSE_NONE`]
    /// to [`REVERSE_GENL`]).
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

/// The place of a CONNPROP message among those of its sender.
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
    /// The set ends early.
    Truncated(Truncated),
    /// A value extends beyond the message, or the value of a known property has the wrong type.
    BadValue {
        /// The offset of the value.
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
    /// Parses a set. The values of unknown properties are not checked.
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, PropertyFault> {
        let count = r.u32()?;
        let bytes = r.rest();
        let start = r.position();
        // Each property takes at least two words, so a count beyond the bytes ends in `Truncated` soon.
        for _ in 0..count {
            // E8: one word.
            let which = r.u32()?;
            let length = r.u32()?;
            let bad = PropertyFault::BadValue { at: r.position() };
            // [V2-5.1-1] a value is no longer than the rest of the message.
            let length = usize::try_from(length).map_err(|_| bad)?;
            //~ V2-5.1-1: `.map_err(|_| bad)` -> ``
            let data = r.take(length).map_err(|_| bad)?;
            r.skip_pad(length).map_err(|_| bad)?;
            // [V2-5.1-1] [V2-5.1-2] a value has the type of the property, or is empty to ask for the default.
            //~ V2-5-1: `` -> `if !matches!(which, SBSIZ | RBSIZ | RSSIZ | RCSIZ | BRS | HOSTAUTH) { return Err(bad); }`
            if !data.is_empty() && !is_of_its_type(which, data) {
                return Err(bad);
            }
        }
        let length = r.position().saturating_sub(start);
        Ok(Self { bytes: bytes.get(..length).unwrap_or_default(), count })
    }

    /// Returns the number of properties.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Returns the properties in order: code points and values.
    pub fn entries(&self) -> impl Iterator<Item = (u32, &'a [u8])> + use<'a> {
        let mut r = Reader::new(self.bytes);
        core::iter::from_fn(move || Some((r.u32().ok()?, r.opaque(usize::MAX).ok()?)))
    }

    /// Returns the properties in the set, with defaults for the others. Unknown properties are ignored, and the last
    /// value of a repeated property counts.
    pub fn properties(&self) -> Properties {
        let mut properties = Properties::default();
        self.apply(&mut properties);
        properties
    }

    /// Updates `properties` with those in the set, and leaves the others unchanged.
    pub fn apply(&self, properties: &mut Properties) {
        let default = Properties::default();
        for (which, data) in self.entries() {
            // Section 5.1: an absent value stands for the default.
            let value = Reader::new(data).u32().ok();
            match which {
                SBSIZ => properties.send_size_max = value.unwrap_or(default.send_size_max),
                RBSIZ => {
                    properties.receive_buffer_size = value.unwrap_or(default.receive_buffer_size);
                }
                RSSIZ => properties.segment_size_max = value.unwrap_or(default.segment_size_max),
                RCSIZ => properties.segment_count_max = value.unwrap_or(default.segment_count_max),
                BRS => properties.reverse = value.unwrap_or(default.reverse),
                // Host authentication is for the authenticator; the rest is not known.
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

/// Returns whether a value that is not empty is the XDR of its property. Unknown properties have any value.
fn is_of_its_type(which: u32, data: &[u8]) -> bool {
    match which {
        //~ V2-5.1-2: `== UNIT` -> `>= UNIT`
        SBSIZ | RBSIZ | RSSIZ | RCSIZ | BRS => data.len() == UNIT,
        HOSTAUTH => {
            let mut r = Reader::new(data);
            r.opaque(usize::MAX).is_ok() && r.is_empty()
        }
        _ => true,
    }
}

/// Returns the octets in the value of a host authentication property. The value is an `opaque<>` inside the property's
/// own, or empty, which stands for no octets.
pub(super) fn host_auth_octets(data: &[u8]) -> &[u8] {
    Reader::new(data).opaque(usize::MAX).unwrap_or_default()
}

/// Appends one encoded host authentication property.
pub(super) fn push_host_auth(out: &mut Vec<u8>, octets: &[u8]) {
    let padded = octets.len().saturating_add(pad(octets.len()));
    let length = u32::try_from(UNIT.saturating_add(padded)).unwrap_or(u32::MAX);
    out.extend(HOSTAUTH.to_be_bytes());
    out.extend(length.to_be_bytes());
    push_opaque(out, octets);
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

    /// Returns whether the end can receive what refuses a Call of its: every error, and an RPC Reply without results
    /// (E27).
    pub(super) const fn allow_refusals(&self) -> bool {
        self.receive_buffer_size >= REFUSAL_MAX
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

/// Appends one encoded property.
pub(super) fn push_property(out: &mut Vec<u8>, which: u32, data: &[u8]) {
    out.extend(which.to_be_bytes());
    push_opaque(out, data);
}

/// Appends an `opaque<>`.
fn push_opaque(out: &mut Vec<u8>, data: &[u8]) {
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
/// Code point of the Host Authentication Message property: an `opaque<>`, see [`super::host_auth`].
pub const HOSTAUTH: u32 = 6;

/// The length of the longest error or RPC Reply without results, rounded up to a power of two: an `RDMA2_MSG` header of
/// five words, and a Reply of eight that names the versions of a program.
const REFUSAL_MAX: u32 = 64;

const SBSIZ: u32 = 1;
/// Code point of the Receive Buffer Size property.
pub(crate) const RBSIZ: u32 = 2;
const RSSIZ: u32 = 3;
const RCSIZ: u32 = 4;
const BRS: u32 = 5;
