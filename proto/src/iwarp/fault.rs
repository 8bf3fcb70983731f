//! The rules of iWARP that a peer can break, and the Terminate code of each.

use core::fmt;

/// A rule that the peer broke. Every fault ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Fault {
    /// The CRC of an FPDU is wrong (RFC 5044 section 4.4).
    Crc,
    /// A segment that is too short for its header, or whose length is not that of the message it carries.
    UlpduLength,
    /// A tagged segment of another DDP version.
    DdpVersionTagged,
    /// An untagged segment of another DDP version.
    DdpVersionUntagged,
    /// A queue RDMAP does not use.
    QueueNumber,
    /// A message number out of turn.
    MessageNumber,
    /// More Read Requests than were granted.
    NoBuffer,
    /// A message offset that is not the octets received so far.
    MessageOffset,
    /// A message larger than the Receive it met.
    MessageTooLong,
    /// Tagged data for an STag that names nothing.
    TaggedStag,
    /// Tagged data outside the buffer, or a Read Response outside its Read.
    TaggedBounds,
    /// Tagged data for a buffer of another connection.
    TaggedNotAssociated,
    /// Tagged data whose offset wraps.
    TaggedWrap,
    /// Tagged data for a buffer the peer may only read.
    WriteAccess,
    /// A message of another RDMAP version.
    RdmapVersion,
    /// An unexpected or unknown operation.
    UnexpectedOpcode,
    /// A Read of an STag that names nothing.
    ReadStag,
    /// A Read outside the buffer.
    ReadBounds,
    /// A Read of a buffer the peer may only write.
    ReadAccess,
    /// A Read of a buffer of another connection.
    ReadNotAssociated,
    /// A Read whose offset wraps.
    ReadWrap,
    /// A Send with Invalidate of a handle that the peer may not invalidate.
    CannotInvalidate,
    /// The peer's Reply asks for more outstanding Reads than this end offered (RFC 6581 section
    /// 4.1).
    InsufficientIrd,
    /// A local failure, which is not the peer's fault.
    Local,
}

impl Fault {
    /// Every fault, for tests and tables.
    pub const ALL: [Self; 24] = [
        Self::Crc,
        Self::UlpduLength,
        Self::DdpVersionTagged,
        Self::DdpVersionUntagged,
        Self::QueueNumber,
        Self::MessageNumber,
        Self::NoBuffer,
        Self::MessageOffset,
        Self::MessageTooLong,
        Self::TaggedStag,
        Self::TaggedBounds,
        Self::TaggedNotAssociated,
        Self::TaggedWrap,
        Self::WriteAccess,
        Self::RdmapVersion,
        Self::UnexpectedOpcode,
        Self::ReadStag,
        Self::ReadBounds,
        Self::ReadAccess,
        Self::ReadNotAssociated,
        Self::ReadWrap,
        Self::CannotInvalidate,
        Self::InsufficientIrd,
        Self::Local,
    ];

    /// Returns the Terminate code and the rule in words.
    ///
    /// Codes are those of RFC 5040 section 4.8 (layer 0), RFC 5041 section 8.2 (layer 1) and
    /// RFC 5044 section 8 with RFC 6581 section 8 (layer 2).
    pub const fn describe(self) -> (Code, &'static str) {
        let (layer, etype, code, rule) = match self {
            Self::Local => (0, 2, 0x07, "cannot go on"),
            Self::ReadStag => (0, 1, 0x00, "Read of an STag that names nothing"),
            Self::ReadBounds => (0, 1, 0x01, "Read out of bounds"),
            Self::ReadAccess => (0, 1, 0x02, "Read of memory not open for reading"),
            Self::WriteAccess => (0, 1, 0x02, "Write to memory not open for writing"),
            Self::ReadNotAssociated => (0, 1, 0x03, "Read of another connection's memory"),
            Self::ReadWrap => (0, 1, 0x04, "Read whose offset wraps"),
            Self::CannotInvalidate => (0, 1, 0x09, "STag cannot be invalidated"),
            Self::RdmapVersion => (0, 2, 0x05, "RDMAP version"),
            Self::UnexpectedOpcode => (0, 2, 0x06, "unexpected RDMAP opcode"),
            Self::TaggedStag => (1, 1, 0x00, "tagged data for an STag that names nothing"),
            Self::TaggedBounds => (1, 1, 0x01, "tagged data out of bounds"),
            Self::TaggedNotAssociated => (1, 1, 0x02, "tagged data for another connection"),
            Self::TaggedWrap => (1, 1, 0x03, "tagged data whose offset wraps"),
            Self::DdpVersionTagged => (1, 1, 0x04, "DDP version"),
            Self::QueueNumber => (1, 2, 0x01, "queue number"),
            Self::NoBuffer => (1, 2, 0x02, "no buffer for the message"),
            Self::MessageNumber => (1, 2, 0x03, "message number out of turn"),
            Self::MessageOffset => (1, 2, 0x04, "message offset out of turn"),
            Self::MessageTooLong => (1, 2, 0x05, "message longer than its Receive"),
            Self::DdpVersionUntagged => (1, 2, 0x06, "DDP version"),
            Self::Crc => (2, 0, 0x02, "CRC"),
            Self::UlpduLength => (2, 0, 0x03, "ULPDU length"),
            Self::InsufficientIrd => (2, 0, 0x06, "more Reads asked for than offered"),
        };
        (Code { layer, etype, code }, rule)
    }

    /// Returns the code of the Terminate that reports the fault.
    pub const fn code(self) -> Code {
        self.describe().0
    }

    /// Returns the rule in words.
    pub const fn rule(self) -> &'static str {
        self.describe().1
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.rule())
    }
}

impl core::error::Error for Fault {}

/// The code of a Terminate: layer, error type, error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Code {
    /// 0 RDMAP, 1 DDP, 2 the lower layer: MPA.
    pub layer: u8,
    /// Error type within the layer.
    pub etype: u8,
    /// Error code within the type.
    pub code: u8,
}

impl Code {
    /// Returns the code with layer and error type exchanged, which is the meaning of a peer that
    /// swaps them, as Linux siw does; `None` if both are equal.
    pub fn swapped(self) -> Option<Self> {
        let Self { layer, etype, code } = self;
        (layer != etype).then_some(Self { layer: etype, etype: layer, code })
    }

    /// Returns the rule in words, if the code is known.
    pub fn rule(self) -> Option<&'static str> {
        Fault::ALL.iter().find(|fault| fault.code() == self).map(|fault| fault.rule())
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, etype, code } = self;
        write!(f, "layer {layer}, type {etype}, code {code}")?;
        self.rule().map_or(Ok(()), |rule| write!(f, ": {rule}"))
    }
}
