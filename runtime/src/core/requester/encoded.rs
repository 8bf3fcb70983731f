//! A Call in a send buffer, before it has a transport header.

use std::ops::Range;

use haulage_proto::negotiate::{Version, put_unchunked_header, unchunked_header_len};
use haulage_proto::rpc::CallHeader;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::verbs::HeaderPatch;
use haulage_proto::xdr::{Truncated, Writer};

use crate::identity::Identity;
use crate::limits::HEADER_ROOM;
use crate::provider::{Head, Outgoing};

/// A Call's Payload stream, without the argument that has a lease of its own. It is in a send buffer,
/// behind the header room.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoded {
    /// Where the arguments start.
    pub(super) arguments_at: usize,
    /// Octets of the Payload stream.
    pub(super) length: usize,
}

impl Encoded {
    /// Writes the RPC header and the arguments of a Call that `identity` makes. Of an argument with a lease of its own,
    /// only the length is written.
    #[inline]
    pub(super) fn write(
        buffer: &mut [u8],
        header: CallHeader<'_>,
        identity: &Identity,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
        argument: Option<usize>,
    ) -> Result<Self, Truncated> {
        let room = buffer.get_mut(HEADER_ROOM..).unwrap_or_default();
        let mut writer = Writer::new(room);
        match identity {
            Identity::Anonymous => header.encode(&mut writer)?,
            somebody => somebody.encode(header, &mut writer)?,
        }
        let arguments_at = writer.position();
        encode(&mut writer)?;
        put_length(&mut writer, argument)?;
        Ok(Self { arguments_at, length: writer.position() })
    }

    /// Returns the range of the buffer that holds the message of a Call without chunks.
    #[inline]
    pub(super) const fn message(&self, version: Version) -> Range<usize> {
        HEADER_ROOM - unchunked_header_len(version, Kind::Call)..HEADER_ROOM + self.length
    }

    /// Makes the Payload stream in `message` a Call without chunks: writes its transport header.
    #[inline]
    pub(super) fn complete(
        &self,
        message: &mut Outgoing,
        version: Version,
        HeaderPatch { xid, credit }: HeaderPatch,
    ) -> Head<'static> {
        let range = self.message(version);
        let room = message.room().get_mut(range.clone()).unwrap_or_default();
        let written = put_unchunked_header(version, Kind::Call, room, xid, credit);
        assert!(written.is_some(), "every send buffer has the room");
        Head::written(range, None)
    }
}

/// Writes the length of an argument that has a lease of its own.
#[inline]
pub(super) fn put_length(
    writer: &mut Writer<'_>,
    argument: Option<usize>,
) -> Result<(), Truncated> {
    match argument {
        // [V2-4.5.3.1-1] the length word stays in the Payload stream, wherever the octets go.
        //~ V2-4.5.3.1-3: `try_from(length)` -> `try_from(length.next_multiple_of(4))`
        Some(length) => writer.u32(u32::try_from(length).map_err(|_| Truncated { at: 0 })?),
        None => Ok(()),
    }
}
