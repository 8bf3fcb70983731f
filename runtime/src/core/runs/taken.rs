//! A Call of a run, as its provider hands it over.

use haulage_proto::negotiate::{SingleChunks, single_chunk_header_len};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::header::SingleChunk;

use crate::core::program::{Header, Programs};
use crate::service::Foreseen;

/// A Call of a run.
#[derive(Clone, Copy)]
pub(in crate::core) struct Taken<'a> {
    pub(in crate::core) xid: u32,
    pub(in crate::core) chunk: Option<SingleChunk>,
    /// The parts of its RPC header, if they are known already.
    pub(in crate::core) header: Option<Header>,
    /// The Payload stream; if `header` is given, it may begin with the arguments.
    pub(in crate::core) payload: &'a [u8],
}

impl<'a> Taken<'a> {
    /// Makes a Call without chunks from a whole message, whose transport header has `header_len` octets.
    #[inline]
    pub(super) fn unchunked(call: &'a [u8], header_len: usize) -> Self {
        let (xid, payload) = apart(call, header_len);
        Self { xid, chunk: None, header: None, payload }
    }

    /// Makes a Call without chunks from a record, which is its Payload stream.
    pub(in crate::core) fn whole(record: &'a [u8]) -> Self {
        let xid = record.first_chunk().copied().map_or(0, u32::from_be_bytes);
        Self { xid, chunk: None, header: None, payload: record }
    }

    /// Makes a Call with one chunk from a whole message, which `chunks` has recognised.
    #[inline]
    pub(super) fn with_chunk(call: &'a [u8], chunks: &SingleChunks) -> Self {
        let (xid, payload) = apart(call, single_chunk_header_len(chunks.version(), Kind::Call));
        Self { xid, chunk: chunks.read(call), header: None, payload }
    }

    /// Makes an anonymous Call without chunks of the procedure that `header` names, with these arguments.
    #[inline]
    pub(super) const fn asking(xid: u32, header: Header, arguments: &'a [u8]) -> Self {
        // Said here, so that the compiler knows.
        let header = Header { arguments_at: 0, ..header };
        Self { xid, chunk: None, header: Some(header), payload: arguments }
    }

    /// Returns what the service may know of the Call before it is served, if its header is a common one.
    #[inline]
    pub(super) fn foreseen(&self, programs: &Programs) -> Option<Foreseen<'a>> {
        let header = self.header.or_else(|| programs.plain(self.payload));
        let Header { program, procedure, arguments_at } = header?;
        let arguments = self.payload.get(arguments_at..)?;
        Some(Foreseen { program: program as usize, procedure, arguments })
    }
}

/// Splits a message behind its transport header of `header_len` octets. Returns its XID and the Payload stream.
#[inline]
pub(super) fn apart(message: &[u8], header_len: usize) -> (u32, &[u8]) {
    let (header, payload) = message.split_at_checked(header_len).unwrap_or_default();
    (header.first_chunk().copied().map_or(0, u32::from_be_bytes), payload)
}
