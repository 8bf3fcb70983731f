//! RPC messages independent of the version that conveys them.

use super::alphabet::Received;
use crate::chunk::{Few, ReadChunk, ReadList, Version, WriteChunk, WriteList};
use crate::exchange::ReplyLists;
use crate::v1;
use crate::v1::header::{Form, Padding};
use crate::v1::private_data::Agreement;
use crate::v2;
use crate::v2::continuation::Kind;
use crate::v2::header::{Returned, SingleChunk, Unchunked};
use crate::verbs::{Handle, HeaderPatch, HeaderTemplate, PatchOffsets, Segment};
use crate::xdr::{Truncated, Writer};

/// A received Call, or the last message of one.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The XID of the Call.
    pub xid: u32,
    /// The handle that the Reply may invalidate.
    pub invalidate: Option<Handle>,
    /// The Call chunk, if the Payload stream is not inline. On version 1 the same list holds the
    /// data items.
    body: ReadList<'a>,
    reads: ReadList<'a>,
    /// The Write chunks for reduced results.
    pub writes: WriteList<'a>,
    /// The Reply chunk, which may hold the whole Reply.
    pub reply: Option<WriteChunk<'a>>,
    /// The inline Payload stream.
    pub payload: &'a [u8],
    /// The padding in the Payload stream, if there may be any.
    pub padding: Option<Padding>,
}

impl<'a> Call<'a> {
    /// Reads a message that an engine reported as a Call; returns `None` for any other. On version 1 `agreed` decides
    /// whether the Reply may invalidate a handle.
    pub fn of(received: &Received<'a>, agreed: &Agreement) -> Option<Self> {
        use v1::header::Message as One;
        use v2::header::Message as Two;
        let of_one = |rpc: &v1::header::Rpc<'a>, padding| Self {
            xid: rpc.prefix.xid,
            invalidate: v1::invalidation::choose(rpc, agreed),
            body: rpc.reads,
            reads: rpc.reads,
            writes: rpc.writes,
            reply: rpc.reply,
            payload: rpc.payload,
            padding,
        };
        Some(match received {
            Received::One(Ok(One::Msg(rpc) | One::NoMsg(rpc))) => of_one(rpc, None),
            Received::One(Ok(One::MsgP(padding, rpc))) => of_one(rpc, Some(*padding)),
            Received::Two(Ok(Two::CallInline(call))) => Self {
                xid: call.prefix.xid,
                invalidate: solicited(call.inv_handle),
                body: ReadList::default(),
                reads: call.reads,
                writes: call.writes,
                reply: call.reply,
                payload: call.payload,
                padding: None,
            },
            Received::Two(Ok(Two::CallExternal(call))) => Self {
                xid: call.prefix.xid,
                invalidate: solicited(call.inv_handle),
                body: call.call,
                reads: call.reads,
                writes: call.writes,
                reply: call.reply,
                payload: &[],
                padding: None,
            },
            _ => return None,
        })
    }

    /// Returns the segments of the Call chunk in order; there are none if the Payload stream is
    /// inline.
    pub fn body(&self) -> impl Iterator<Item = Segment> + use<'a> {
        self.body.entries().filter(|(position, _)| *position == 0).map(|(_, segment)| segment)
    }

    /// Returns the Read chunks of reduced arguments.
    pub fn items(&self) -> impl Iterator<Item = ReadChunk<'a>> + use<'a> {
        self.reads.chunks().filter(|chunk| chunk.position() != 0)
    }

    /// Returns whether the Responder has to fetch any part of the Call.
    pub const fn is_read(&self) -> bool {
        !self.body.is_empty() || !self.reads.is_empty()
    }
}

/// A received Reply, or the last message of one.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    /// The XID of the Call that it answers.
    pub xid: u32,
    /// The chunk lists, for [`check_reply`](crate::exchange::check_reply).
    pub lists: ReplyLists<'a>,
    /// The Read list: the Payload stream at position zero, reduced results at others. Version 1 alone has one, and only
    /// between ends that honour `RDMA_DONE`.
    pub reads: ReadList<'a>,
    /// The inline Payload stream.
    pub payload: &'a [u8],
    /// The padding in the Payload stream, if there may be any.
    pub padding: Option<Padding>,
}

impl<'a> Reply<'a> {
    /// Reads a message that an engine reported as a Reply; returns `None` for any other.
    pub fn of(received: &Received<'a>) -> Option<Self> {
        use v1::header::Message as One;
        use v2::header::Message as Two;
        let of_one = |rpc: &v1::header::Rpc<'a>, external, padding| Self {
            xid: rpc.prefix.xid,
            lists: ReplyLists {
                writes: rpc.writes,
                reply: rpc.reply,
                external,
                reads: !rpc.reads.is_empty(),
            },
            reads: rpc.reads,
            payload: rpc.payload,
            padding,
        };
        Some(match received {
            Received::One(Ok(One::Msg(rpc))) => of_one(rpc, false, None),
            Received::One(Ok(One::NoMsg(rpc))) => of_one(rpc, true, None),
            Received::One(Ok(One::MsgP(padding, rpc))) => of_one(rpc, false, Some(*padding)),
            Received::Two(Ok(Two::ReplyInline(reply))) => Self {
                xid: reply.prefix.xid,
                lists: ReplyLists { writes: reply.writes, ..ReplyLists::default() },
                reads: ReadList::default(),
                payload: reply.payload,
                padding: None,
            },
            Received::Two(Ok(Two::ReplyExternal(reply))) => Self {
                xid: reply.prefix.xid,
                lists: ReplyLists {
                    writes: reply.writes,
                    reply: Some(reply.reply),
                    external: true,
                    reads: false,
                },
                reads: ReadList::default(),
                payload: &[],
                padding: None,
            },
            _ => return None,
        })
    }
}

/// Recognises a Call or a Reply without chunks that is complete in one message. Returns `None` for any other message,
/// valid or not.
#[doc(hidden)]
#[inline]
pub fn unchunked(version: Version, message: &[u8]) -> Option<Unchunked> {
    match version {
        Version::One => v1::header::unchunked(message),
        Version::Two => Unchunked::of(message),
    }
}

/// Writes the transport header of a Call or a Reply without chunks to the beginning of `message`. The header is the one
/// that an empty [`CallChunks`] or [`ReplyChunks`] encodes, and has [`unchunked_header_len`] octets; if `message` is
/// shorter, nothing is written.
#[doc(hidden)]
#[inline]
pub fn put_unchunked_header(
    version: Version,
    kind: Kind,
    message: &mut [u8],
    xid: u32,
    credit: u32,
) -> Option<()> {
    use v2::header::{CALL_INLINE, REPLY_INLINE};
    let message = message.get_mut(..unchunked_header_len(version, kind))?;
    match (version, kind) {
        // No handle to invalidate, two empty lists, no Reply chunk.
        (Version::Two, Kind::Call) => {
            //~ V2-4.6.1-2: `v2::VERSION` -> `1`
            //~ V2-4.6.2-2: `v2::VERSION` -> `1`
            put_pairs(message, [[xid, v2::VERSION], [credit, CALL_INLINE], [0; 2], [0; 2]])?;
            Some(())
        }
        // An empty Write list.
        (Version::Two, Kind::Reply) => {
            put_word(put_pairs(message, [[xid, v2::VERSION], [credit, REPLY_INLINE]])?, 0)
        }
        // RDMA_MSG with two empty lists and no Reply chunk.
        (Version::One, _) => {
            //~ R8167-5.1-1: `v1::VERSION` -> `v1::VERSION + 1`
            put_word(put_pairs(message, [[xid, v1::VERSION], [credit, 0], [0; 2]])?, 0)
        }
    }
}

/// Returns the length of the transport header of a Call or a Reply without chunks, in octets.
#[doc(hidden)]
#[inline]
pub const fn unchunked_header_len(version: Version, kind: Kind) -> usize {
    match (version, kind) {
        (Version::Two, Kind::Call) => 32,
        (Version::Two, Kind::Reply) => 20,
        (Version::One, _) => v1::header::UNCHUNKED_LEN,
    }
}

/// Returns the length of the transport header of a Call with one chunk of one segment, or of a Reply that returns one, in
/// octets.
#[doc(hidden)]
#[inline]
pub const fn single_chunk_header_len(version: Version, kind: Kind) -> usize {
    match (version, kind) {
        (Version::Two, Kind::Call) => SingleChunk::CALL_LEN,
        (Version::Two, Kind::Reply) => SingleChunk::REPLY_LEN,
        (Version::One, _) => v1::header::SINGLE_CHUNK_LEN,
    }
}

/// Writes the transport header and the RPC header of a successful Reply to the beginning of `message`: without chunks, or
/// with one Write chunk of one segment, `returned`, whose length is the number of octets written. Returns `None` if
/// `message` is too short.
///
/// The headers are written as 64-bit words, because the copy that follows reads 64-bit words.
#[doc(hidden)]
#[inline(always)]
pub fn put_results_headers(
    version: Version,
    message: &mut [u8],
    HeaderPatch { xid, credit }: HeaderPatch,
    returned: Option<&Segment>,
) -> Option<()> {
    match (version, returned) {
        (Version::One, None) => put_results_headers_one(message, xid, credit),
        (Version::One, Some(segment)) => {
            put_results_headers_one_with(message, xid, credit, segment)
        }
        (Version::Two, None) => put_results_headers_two(message, xid, credit),
        (Version::Two, Some(segment)) => {
            put_results_headers_two_with(message, xid, credit, segment)
        }
    }
}

#[inline(always)]
fn put_results_headers_one(message: &mut [u8], xid: u32, credit: u32) -> Option<()> {
    let message = message.first_chunk_mut::<52>()?;
    // RDMA_MSG, two empty lists and no Reply chunk; accepted, with AUTH_NONE for a verifier, and success.
    //~ R8167-5.2-1: `v1::VERSION` -> `v1::VERSION + 1`
    let transport = [[xid, v1::VERSION], [credit, 0], [0; 2]];
    //~ R8167-5.2-2: `0, xid` -> `0, xid ^ 1`
    let rpc = [[0, xid], [REPLY, 0], [0; 2]];
    let rest = put_pairs(put_pairs(message, transport)?, rpc)?;
    put_word(rest, 0)
}

#[inline(always)]
fn put_results_headers_one_with(
    message: &mut [u8],
    xid: u32,
    credit: u32,
    segment: &Segment,
) -> Option<()> {
    let message = message.first_chunk_mut::<76>()?;
    let [handle, length, high, low] = words_of(segment);
    // RDMA_MSG, no Read list, a Write list of one chunk of one segment, and no Reply chunk.
    let transport =
        [[xid, v1::VERSION], [credit, 0], [0, 1], [1, handle], [length, high], [low, 0]];
    let rest = put_pairs(put_pairs(message, transport)?, [[0, xid], [REPLY, 0], [0; 2]])?;
    put_word(rest, 0)
}

#[inline(always)]
fn put_results_headers_two(message: &mut [u8], xid: u32, credit: u32) -> Option<()> {
    use v2::header::REPLY_INLINE;
    let message = message.first_chunk_mut::<44>()?;
    // An empty Write list; accepted, with AUTH_NONE for a verifier, and success.
    let rest = put_pairs(
        message,
        [[xid, v2::VERSION], [credit, REPLY_INLINE], [0, xid], [REPLY, 0], [0; 2]],
    )?;
    put_word(rest, 0)
}

#[inline(always)]
fn put_results_headers_two_with(
    message: &mut [u8],
    xid: u32,
    credit: u32,
    segment: &Segment,
) -> Option<()> {
    use v2::header::REPLY_INLINE;
    let message = message.first_chunk_mut::<68>()?;
    let [handle, length, high, low] = words_of(segment);
    // A Write list of one chunk of one segment; accepted, with AUTH_NONE for a verifier, and success.
    let transport = [[xid, v2::VERSION], [credit, REPLY_INLINE], [1, 1], [handle, length]];
    let rest = put_pairs(message, transport)?;
    put_word(put_pairs(rest, [[high, low], [0, xid], [REPLY, 0], [0; 2]])?, 0)
}

/// Writes the transport header and the RPC header of an anonymous (AUTH_NONE) version 2 Call without chunks, for this
/// program, version and procedure, to the beginning of `message`. Returns `None` if `message` is too short.
#[inline(always)]
fn put_call_headers(
    message: &mut [u8],
    xid: u32,
    credit: u32,
    [program, version, procedure]: [u32; 3],
) -> Option<()> {
    use v2::header::CALL_INLINE;
    const CALL: u32 = 0;
    const RPC: u32 = 2;
    let message = message.first_chunk_mut::<72>()?;
    // No handle to invalidate, two empty lists, no Reply chunk; AUTH_NONE, twice.
    let transport = [[xid, v2::VERSION], [credit, CALL_INLINE], [0; 2], [0; 2]];
    let rpc = [[xid, CALL], [RPC, program], [version, procedure], [0; 2], [0; 2]];
    put_pairs(put_pairs(message, transport)?, rpc)?;
    Some(())
}

/// Writes the transport header and the RPC header of an anonymous (AUTH_NONE) version 2 Call with one chunk of one
/// segment, for this program, version and procedure, to the beginning of `message`. The chunk is a Read chunk if
/// `position` is given, else a Write chunk; the Reply may invalidate `inv_handle`. Returns `None` if `message` is too
/// short.
#[doc(hidden)]
#[inline(always)]
pub fn put_call_headers_with(
    message: &mut [u8],
    HeaderPatch { xid, credit }: HeaderPatch,
    inv_handle: Handle,
    position: Option<u32>,
    segment: &Segment,
    [program, version, procedure]: [u32; 3],
) -> Option<()> {
    use v2::header::CALL_INLINE;
    const CALL: u32 = 0;
    const RPC: u32 = 2;
    let message = message.first_chunk_mut::<96>()?;
    let [handle, length, high, low] = words_of(segment);
    let lists = match position {
        // One entry, and then no Write list and no Reply chunk.
        Some(position) => [[1, position], [handle, length], [high, low]],
        // No Read list, a list of one chunk of one segment.
        None => [[0, 1], [1, handle], [length, high]],
    };
    let last = if position.is_some() { 0 } else { low };
    let [[first, second], [third, fourth], [fifth, sixth]] = lists;
    let front = [[xid, v2::VERSION], [credit, CALL_INLINE], [inv_handle.0, first]];
    let back = [[second, third], [fourth, fifth], [sixth, last], [0; 2]];
    let rpc = [[xid, CALL], [RPC, program], [version, procedure], [0; 2], [0; 2]];
    put_pairs(put_pairs(put_pairs(message, front)?, back)?, rpc)?;
    Some(())
}

/// The transport and RPC headers of version 2 messages without chunks that differ only in a [`HeaderPatch`].
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlainHeaders {
    /// The headers of a Call of this program, version and procedure, with AUTH_NONE as credential and verifier.
    Call([u32; 3]),
    /// The headers of a successful Reply.
    Results,
}

impl PlainHeaders {
    /// The template of successful Replies.
    pub const RESULTS: HeaderTemplate = RESULTS;

    /// Recognises the headers in a template; returns `None` if they are neither those of a Call nor
    /// those of a Reply.
    pub fn of(template: &HeaderTemplate) -> Option<Self> {
        if *template == RESULTS {
            return Some(Self::Results);
        }
        let asked = template.octets().get(CALL_ASKED..)?.first_chunk::<12>()?;
        let words = asked.as_chunks().0.try_into().ok().map(|words: [[u8; 4]; 3]| words)?;
        let call = Self::Call(words.map(u32::from_be_bytes));
        (call.template() == Some(*template)).then_some(call)
    }

    /// Returns the template of the headers.
    pub fn template(&self) -> Option<HeaderTemplate> {
        let mut octets = [0; Self::LEN_MAX];
        self.put(&mut octets, HeaderPatch::default())?;
        HeaderTemplate::new(octets.get(..self.len())?, self.offsets())
    }

    /// The length of the longest headers, in octets.
    pub const LEN_MAX: usize = 72;

    /// Returns the length of the headers in octets.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    #[inline]
    pub const fn len(&self) -> usize {
        match self {
            Self::Call(_) => Self::LEN_MAX,
            Self::Results => RESULTS.len(),
        }
    }

    /// Returns the kind of the messages that begin with the headers.
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Call(_) => Kind::Call,
            Self::Results => Kind::Reply,
        }
    }

    /// Writes the headers to the beginning of `message`. Returns `None` if `message` is too short.
    #[inline(always)]
    pub fn put(&self, message: &mut [u8], HeaderPatch { xid, credit }: HeaderPatch) -> Option<()> {
        match *self {
            Self::Call(asked) => put_call_headers(message, xid, credit, asked),
            Self::Results => put_results_headers_two(message, xid, credit),
        }
    }

    /// Returns the offsets of the patch: the XID is the first word of both headers, and the credit word is in the
    /// transport header.
    const fn offsets(&self) -> PatchOffsets {
        #[expect(clippy::cast_possible_truncation, reason = "of a few words")]
        let rpc = unchunked_header_len(Version::Two, self.kind()) as u8;
        PatchOffsets { xid: [0, rpc], credit: 8 }
    }
}

/// Returns what [`Unchunked::of`] would find in a version 2 message of this kind, with this patch and without chunks.
#[doc(hidden)]
#[inline]
pub const fn patched(kind: Kind, HeaderPatch { xid, credit }: HeaderPatch) -> Unchunked {
    #[expect(clippy::cast_possible_truncation, reason = "of a few words")]
    let payload_at = unchunked_header_len(Version::Two, kind) as u32;
    Unchunked { kind, xid, credit, payload_at }
}

/// The template of [`PlainHeaders::Results`], as a constant.
const RESULTS: HeaderTemplate = {
    let words = [0, v2::VERSION, 0, v2::header::REPLY_INLINE, 0, 0, REPLY, 0, 0, 0, 0];
    let mut octets = [[0; 4]; 11];
    let (mut room, mut rest): (&mut [[u8; 4]], &[u32]) = (&mut octets, &words);
    while let ([place, room_left @ ..], [word, words_left @ ..]) = (room, rest) {
        *place = word.to_be_bytes();
        (room, rest) = (room_left, words_left);
    }
    match HeaderTemplate::new(octets.as_flattened(), PatchOffsets { xid: [0, 20], credit: 8 }) {
        Some(template) => template,
        None => panic!("two short headers"),
    }
};

/// The message type of a Reply (RFC 5531 section 9).
const REPLY: u32 = 1;

/// The offset of program, version and procedure in the headers of a Call.
const CALL_ASKED: usize = unchunked_header_len(Version::Two, Kind::Call) + 12;

/// Returns the words of an encoded segment.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "an offset is two words")]
const fn words_of(segment: &Segment) -> [u32; 4] {
    let Segment { handle, length, offset } = *segment;
    [handle.0, length, (offset >> 32) as u32, offset as u32]
}

/// Writes words in pairs, as 64-bit stores: a provider that copies 64 bits at a time can then forward each store to its
/// load. Returns what follows them in `message`.
#[inline(always)]
fn put_pairs<const N: usize>(message: &mut [u8], pairs: [[u32; 2]; N]) -> Option<&mut [u8]> {
    let (front, rest) = message.split_at_mut_checked(size_of_val(&pairs))?;
    // The lengths are those of arrays, so that the loop is unrolled wherever this is compiled.
    let places: &mut [[u8; 8]; N] = front.as_chunks_mut().0.first_chunk_mut()?;
    for (place, &[first, second]) in places.iter_mut().zip(&pairs) {
        *place = (u64::from(first) << 32 | u64::from(second)).to_be_bytes();
    }
    Some(rest)
}

/// Writes one word.
#[inline(always)]
fn put_word(message: &mut [u8], word: u32) -> Option<()> {
    *message.first_chunk_mut()? = word.to_be_bytes();
    Some(())
}

/// The chunks of a Call to be sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallChunks<'a> {
    /// The handle that the Reply may invalidate; zero for none. Version 1 has no field for it.
    pub inv_handle: Handle,
    /// The Call chunk, if the Payload stream is not inline.
    pub body: Option<&'a [Segment]>,
    /// The Read chunks of reduced arguments, at most one less than [`CHUNKS_MAX`](crate::chunk::CHUNKS_MAX): the
    /// position of each in the unreduced Payload stream, in ascending order, and its segments.
    pub reads: &'a [(u32, &'a [Segment])],
    /// The Write chunks for reduced results.
    pub writes: &'a [&'a [Segment]],
    /// The Reply chunk, which may hold the whole Reply.
    pub reply: Option<&'a [Segment]>,
}

impl CallChunks<'_> {
    /// Returns the length of the Call's transport header in octets.
    pub fn wire_len(&self, version: Version) -> usize {
        let reads = self.reads.iter().map(|(_, segments)| segments.len()).sum::<usize>();
        let writes = self.writes.iter().map(|segments| segments.len());
        let reply = self.reply.map(<[Segment]>::len);
        match (version, self.body) {
            (Version::One, body) => {
                let body = body.map_or(0, <[Segment]>::len);
                v1::header::call_wire_len(reads.saturating_add(body), writes, reply)
            }
            (Version::Two, None) => v2::header::call_inline_wire_len(reads, writes, reply),
            (Version::Two, Some(body)) => {
                let call = ReadList::wire_len(body.len());
                v2::header::call_inline_wire_len(reads, writes, reply).saturating_add(call)
            }
        }
    }

    /// Appends the transport header of the Call.
    pub fn encode(
        &self,
        version: Version,
        w: &mut Writer<'_>,
        xid: u32,
        credit: u32,
    ) -> Result<(), Truncated> {
        let Self { inv_handle, body, reads, writes, reply } = *self;
        match (version, body) {
            (Version::One, _) => {
                let form = if body.is_some() { Form::NoMsg } else { Form::Msg };
                // Version 1 has a single Read list, where the body stands at position zero.
                let all =
                    body.map(|segments| (0, segments)).into_iter().chain(reads.iter().copied());
                let reads = Few::collect(all).ok_or(Truncated { at: w.position() })?;
                let lists = v1::header::CallLists { reads: &reads, writes, reply };
                v1::header::encode_call(w, xid, credit, form, &lists)
            }
            (Version::Two, None) => {
                let lists = v2::header::CallLists { inv_handle, reads, writes, reply };
                v2::header::encode_call_inline(w, xid, credit, &lists)
            }
            (Version::Two, Some(body)) => {
                let lists = v2::header::CallLists { inv_handle, reads, writes, reply };
                v2::header::encode_call_external(w, xid, credit, body, &lists)
            }
        }
    }
}

/// The chunks of a Reply to be sent: the chunks of its Call, with the lengths written.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReplyChunks<'a> {
    /// All the Write chunks of the Call.
    pub writes: &'a [Returned<'a>],
    /// The Reply chunk, if the Payload stream was written into it.
    pub reply: Option<Returned<'a>>,
}

impl ReplyChunks<'_> {
    /// Returns the length of the Reply's transport header in octets.
    pub fn wire_len(&self, version: Version) -> usize {
        let count = |chunk: &Returned<'_>| u32::try_from(chunk.offered.len()).unwrap_or(u32::MAX);
        let writes = self.writes.iter().map(count);
        crate::exchange::format::reply_wire_len(version, writes, self.reply.as_ref().map(count))
    }

    /// Appends the transport header of the Reply.
    pub fn encode(
        &self,
        version: Version,
        w: &mut Writer<'_>,
        xid: u32,
        credit: u32,
    ) -> Result<(), Truncated> {
        match (version, &self.reply) {
            (Version::One, reply) => {
                let form = if reply.is_some() { Form::NoMsg } else { Form::Msg };
                self.encode_one(w, HeaderPatch { xid, credit }, form, &[])
            }
            (Version::Two, None) => v2::header::encode_reply_inline(w, xid, credit, self.writes),
            (Version::Two, Some(reply)) => {
                v2::header::encode_reply_external(w, xid, credit, self.writes, reply)
            }
        }
    }

    /// Returns the length of the header that [`Self::encode_read`] appends, in octets.
    pub fn read_wire_len(&self) -> usize {
        let extra = ReadList::wire_len(1).saturating_sub(ReadList::wire_len(0));
        self.wire_len(Version::One).saturating_add(extra)
    }

    /// Appends the transport header of a Reply whose whole Payload stream the peer reads from `stream`, which only
    /// version 1 has, and only between ends that honour `RDMA_DONE`.
    pub fn encode_read(
        &self,
        w: &mut Writer<'_>,
        patch: HeaderPatch,
        stream: Segment,
    ) -> Result<(), Truncated> {
        self.encode_one(w, patch, Form::NoMsg, &[(0, &[stream])])
    }

    fn encode_one(
        &self,
        w: &mut Writer<'_>,
        HeaderPatch { xid, credit }: HeaderPatch,
        form: Form,
        reads: &[(u32, &[Segment])],
    ) -> Result<(), Truncated> {
        let pairs = self.writes.iter().map(|chunk| (chunk.offered, chunk.length));
        let writes = Few::collect(pairs).ok_or(Truncated { at: w.position() })?;
        let reply = self.reply.map(|chunk| (chunk.offered, chunk.length));
        let lists = v1::header::ReplyLists { reads, writes: &writes, reply };
        v1::header::encode_reply(w, xid, credit, form, &lists)
    }
}

/// Returns the handle that a Call solicits the invalidation of; zero solicits nothing.
const fn solicited(handle: Handle) -> Option<Handle> {
    if handle.0 == 0 { None } else { Some(handle) }
}

#[cfg(test)]
mod tests;
