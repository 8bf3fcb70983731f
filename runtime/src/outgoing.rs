//! Messages of ours, each with the memory that it leaves from.
//!
//! # Normal operation
//! A message is a range of a registered buffer, behind the RDMA Writes that go ahead of it. A provider that is asked to
//! send it either copies all octets at once and keeps nothing, or takes views of them: it lends itself the parts that it
//! does not copy.
//!
//! A message may begin with a template. The octets of the template are not written then, only their room is in the
//! buffer: a ring that has seen the template needs its number alone, and others write it where the message goes.
//!
//! # Memory ownership
//! A lease of a message that is lent is posted: it comes back against the completion of the message, or the end of its
//! connection, but not before every view of it was dropped. A lease that was not lent is its owner's at any time.

use std::ops::Range;

use haulage_mr_pool::{Local, PostedSource, Source};
use haulage_proto::chunk;
use haulage_proto::verbs::{
    ClaimedSegment, Flags, Handle, HeaderPatch, NamedTemplate, Segment, WrId,
};

use self::data::PostedData;
use self::segments::Segments;
use crate::items::Items;
use crate::sys::complete;
use crate::work::{Done, Operation, Parts, Quiesced, WorkRequest};

mod data;
pub(crate) mod segments;

pub use data::Data;

/// What a provider did with a message that it was asked to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All octets were copied: everything is the caller's again, and no completion reports the message.
    Copied,
    /// The provider holds views of what it lent itself; one completion reports the message, once the last of them was
    /// dropped. A part of the message that is still the caller's was copied.
    Taken,
    /// Nothing happened, for want of room.
    Full,
    /// Nothing happened: the connection is not open.
    Gone,
}

/// The octets of a message in its buffer, and how it begins.
#[derive(Clone, Copy, Debug, Default)]
pub struct Head<'a> {
    /// Where in the buffer the message starts, with the room of its template.
    start: usize,
    end: usize,
    like: Option<(NamedTemplate<'a>, HeaderPatch)>,
    invalidate: Option<Handle>,
}

impl<'a> Head<'a> {
    /// Describes a message whose octets are all in the buffer. It may invalidate a handle of the peer's.
    #[inline]
    pub const fn written(Range { start, end }: Range<usize>, invalidate: Option<Handle>) -> Self {
        Self { start, end, like: None, invalidate }
    }

    /// Describes a message that begins with a template: the front of its octets in the buffer is room for the template,
    /// and what is there does not matter.
    #[inline(always)]
    pub const fn like(
        Range { start, end }: Range<usize>,
        template: NamedTemplate<'a>,
        patch: HeaderPatch,
    ) -> Self {
        Self { start, end, like: Some((template, patch)), invalidate: None }
    }

    /// Returns the same head, made anew: one that is passed on only rarely need not be in memory otherwise.
    #[inline(always)]
    pub(crate) const fn anew(&self) -> Self {
        let Self { start, end, like, invalidate } = *self;
        Self { start, end, like, invalidate }
    }

    /// Returns the octets of the message.
    #[inline]
    pub(crate) const fn octets(&self) -> usize {
        self.end - self.start
    }

    /// Returns the handle of the peer's that the message invalidates.
    #[inline]
    pub(crate) const fn invalidated(&self) -> Option<Handle> {
        self.invalidate
    }
}

/// The memory of a message of ours, and the RDMA Writes that go ahead of it.
#[derive(Debug, Default)]
pub struct Outgoing {
    buffer: Buffer,
    /// The Writes of data items, and of a Payload stream.
    writes: Items<Write>,
}

/// The buffer of a message.
#[derive(Debug, Default)]
enum Buffer {
    #[default]
    None,
    Own(Local),
    Lent(PostedSource<Local>),
}

/// Data, and the peer's memory that it is written to.
#[derive(Debug)]
struct Write {
    from: WriteSource,
    target: Segments,
}

/// The data of RDMA Writes.
#[derive(Debug)]
enum WriteSource {
    Own(Data),
    Lent(PostedData),
    /// A range of the message's own buffer.
    Buffer(Range<usize>),
}

impl Outgoing {
    /// Makes the memory of a message in `buffer`.
    #[inline]
    pub fn within(buffer: Local) -> Self {
        Self { buffer: Buffer::Own(buffer), ..Self::default() }
    }

    /// Has RDMA Writes of `data` to memory of the peer go ahead of the message.
    #[must_use]
    pub fn behind(mut self, data: Data, target: Segment) -> Self {
        self.write(data, Segments::one(target));
        self
    }

    /// Returns the lease of the message, unless a provider holds a view of it.
    pub fn into_own(self) -> Option<Local> {
        match self.buffer {
            Buffer::Own(buffer) => Some(buffer),
            Buffer::Lent(posted) => posted.complete().ok(),
            Buffer::None => None,
        }
    }

    /// Returns the octets of the buffer; none if it is lent.
    #[inline]
    pub(crate) fn room(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Buffer::Own(buffer) => buffer.bytes_mut(),
            Buffer::None | Buffer::Lent(_) => &mut [],
        }
    }

    /// Has Writes of `data`, which fill the chunk `target` in order, go ahead of the message.
    #[inline]
    pub(crate) fn write(&mut self, data: Data, target: Segments) {
        if !data.is_empty() {
            self.enter(Write { from: WriteSource::Own(data), target });
        }
    }

    /// Has Writes of a range of the buffer go ahead of the message.
    pub(crate) fn write_buffer(&mut self, range: Range<usize>, target: Segments) {
        self.enter(Write { from: WriteSource::Buffer(range), target });
    }

    #[inline]
    fn enter(&mut self, write: Write) {
        match &self.writes {
            Items::None => self.writes = Items::One(write),
            Items::One(_) | Items::Several(_) => self.enter_another(write),
        }
    }

    #[cold]
    fn enter_another(&mut self, write: Write) {
        self.writes.push(write);
    }

    /// Forgets what goes ahead of the message, which has been copied.
    #[inline]
    pub(crate) fn forget_writes(&mut self) {
        match self.writes.take() {
            Items::None => {}
            Items::One(write) => drop(write),
            Items::Several(writes) => forget_several(writes),
        }
    }

    /// Returns whether RDMA Writes go ahead of the message.
    #[inline]
    pub(crate) const fn has_writes(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Returns whether there is a buffer that is not lent.
    #[inline]
    pub(crate) const fn owns_buffer(&self) -> bool {
        matches!(self.buffer, Buffer::Own(_))
    }

    /// Takes the buffer out, unless it is lent.
    #[inline]
    pub(crate) fn take_buffer(&mut self) -> Option<Local> {
        match std::mem::take(&mut self.buffer) {
            Buffer::Own(buffer) => Some(buffer),
            other => {
                self.buffer = other;
                None
            }
        }
    }

    /// Gives the message another buffer.
    pub(crate) fn fill(&mut self, buffer: Local) {
        self.buffer = Buffer::Own(buffer);
    }
}

/// What a provider asks of a message.
impl Outgoing {
    /// Returns the template that a message begins with, its patch, and the octets behind it.
    #[inline(always)]
    pub(crate) fn like<'a>(
        &self,
        head: &Head<'a>,
    ) -> Option<(NamedTemplate<'a>, HeaderPatch, &[u8])> {
        let (template, patch) = head.like?;
        let Buffer::Own(buffer) = &self.buffer else { return None };
        let body = head.start + template.template.len()..head.end;
        Some((template, patch, buffer.bytes().get(body)?))
    }

    /// Returns all octets of a message. Its template is written.
    #[inline(always)]
    pub(crate) fn message(&mut self, head: &Head<'_>) -> &[u8] {
        if head.like.is_some() {
            self.write_head(&head.anew());
        }
        match &self.buffer {
            Buffer::Own(buffer) => buffer.bytes().get(head.start..head.end).unwrap_or_default(),
            Buffer::None | Buffer::Lent(_) => &[],
        }
    }

    /// Writes the template of a message into the buffer.
    #[inline(never)]
    fn write_head(&mut self, head: &Head<'_>) {
        let (Some((template, patch)), Buffer::Own(buffer)) = (head.like, &mut self.buffer) else {
            return;
        };
        let room = buffer.bytes_mut().get_mut(head.start..head.end).unwrap_or_default();
        let written = template.template.put(room, patch);
        assert!(written.is_some(), "a message has room for its template");
    }

    /// Writes the template of a message into the buffer. Returns how the message begins then.
    #[inline]
    pub(crate) fn in_full(&mut self, head: &Head<'_>) -> Head<'static> {
        self.write_head(head);
        Head::written(head.start..head.end, head.invalidate)
    }

    /// Returns how many requests [`Self::lend`] makes at most.
    pub(crate) fn requests_max(&self) -> usize {
        let each = |write: &Write| match &write.from {
            WriteSource::Own(data) => data.parts_max() + write.target.len(),
            WriteSource::Lent(_) | WriteSource::Buffer(_) => write.target.len(),
        };
        1 + self.writes.iter().map(each).sum::<usize>()
    }

    /// Returns the octets of the Writes.
    pub(crate) fn written(&self) -> usize {
        self.writes.iter().map(|write| write.from.len()).sum()
    }

    /// Lends the octets of the Writes, in order, with the memory that they go to: of each segment part by part. Stops,
    /// and returns false, when `copy` returns false, or at a segment of too many parts.
    #[inline]
    pub(crate) fn copy_writes(
        &self,
        mut copy: impl FnMut(&[&[u8]], &ClaimedSegment) -> bool,
    ) -> bool {
        self.writes.iter().all(|Write { from, target }| {
            // Most results go into one segment, from where they are.
            if let (WriteSource::Own(data), &[segment]) = (from, target.as_slice())
                && let Some(claim) = chunk::claim(segment, data.len())
            {
                return data.with_parts(0..data.len(), |parts| copy(parts, &claim)) == Some(true);
            }
            // [V2-4.5.2.1-1] fill the segments in order, without gaps.
            chunk::fill(target.as_slice(), from.len()).all(|(claim, range)| {
                let done = match (from, &self.buffer) {
                    (WriteSource::Own(data), _) => {
                        data.with_parts(range, |parts| copy(parts, &claim))
                    }
                    (WriteSource::Buffer(own), Buffer::Own(buffer)) => {
                        let range = own.start + range.start..own.start + range.end;
                        buffer.bytes().get(range).map(|octets| copy(&[octets], &claim))
                    }
                    (WriteSource::Lent(_) | WriteSource::Buffer(_), _) => None,
                };
                done == Some(true)
            })
        })
    }

    /// Lends a provider the whole message: calls `each` with a request for every Write, and then with the Send, whose
    /// identifier is `id`.
    pub(crate) fn lend(&mut self, head: &Head<'_>, id: WrId, mut each: impl FnMut(WorkRequest)) {
        self.lend_writes(&mut each);
        self.lend_message(head, id, each);
    }

    /// Lends a provider the message without its Writes: calls `each` with the Send, whose identifier is `id`.
    pub(crate) fn lend_message(
        &mut self,
        head: &Head<'_>,
        id: WrId,
        mut each: impl FnMut(WorkRequest),
    ) {
        self.write_head(head);
        let source = self.lend_buffer(head.start..head.end);
        let flags = Flags { signaled: true, ..Flags::default() };
        let operation = Operation::Send { source, invalidate: head.invalidate };
        each(WorkRequest { id, flags, operation });
    }

    /// Lends a provider the data of the Writes: calls `each` with a request for every Write. None is signaled for its own
    /// sake.
    pub(crate) fn lend_writes(&mut self, mut each: impl FnMut(WorkRequest)) {
        let mut parts = Parts::default();
        let mut writes = self.writes.take();
        for Write { from, target } in writes.as_mut_slice() {
            *from = std::mem::replace(from, WriteSource::Own(Data::Empty)).lent();
            // [V2-4.5.2.1-1] fill the segments in order, without gaps.
            for (claim, range) in chunk::fill(target.as_slice(), from.len()) {
                let mut done = 0;
                let mut post = |source: Source| {
                    let part = u32::try_from(source.len()).unwrap_or(u32::MAX);
                    let Ok(target) = claim.window(done, part) else { return };
                    done += u64::from(part);
                    let operation = Operation::Write { source, target };
                    each(parts.next(operation));
                };
                match &*from {
                    WriteSource::Lent(data) => data.sources(range, &mut post),
                    WriteSource::Buffer(own) => {
                        let range = own.start + range.start..own.start + range.end;
                        post(self.lend_buffer(range));
                    }
                    WriteSource::Own(_) => {}
                }
            }
        }
        self.writes = writes;
    }

    /// Returns a view of a range of the buffer, which is lent from now on.
    ///
    /// # Panics
    /// If the message does not lie within a buffer: no completion would ever report it.
    fn lend_buffer(&mut self, range: Range<usize>) -> Source {
        if let Some(buffer) = self.take_buffer() {
            self.buffer = Buffer::Lent(buffer.into_source());
        }
        let source = match &self.buffer {
            Buffer::Lent(posted) => posted.source(range),
            Buffer::None | Buffer::Own(_) => None,
        };
        let Some(source) = source else { panic!("a message lies within its buffer") };
        source
    }
}

impl Outgoing {
    /// Takes out the buffer, if it was lent.
    #[inline]
    pub(crate) fn take_lent(&mut self) -> Option<PostedSource<Local>> {
        match std::mem::take(&mut self.buffer) {
            Buffer::Lent(posted) => Some(posted),
            other => {
                self.buffer = other;
                None
            }
        }
    }

    /// Takes out the Writes, and returns their data, as far as it was lent.
    #[inline(never)]
    pub(crate) fn take_lent_data(&mut self) -> LentData {
        let lent = self.writes.take().into_iter().filter_map(|write| match write.from {
            WriteSource::Lent(data) => Some(data),
            WriteSource::Own(_) | WriteSource::Buffer(_) => None,
        });
        LentData(lent.collect())
    }

    /// Takes the memory back once the provider has completed the message, as `done` says. Returns the lease of the
    /// message, if that was lent.
    pub fn complete(mut self, done: &Done) -> Option<Local> {
        self.take_lent_data().complete(done);
        complete::source(self.take_lent()?, done)
    }
}

/// Drops the Writes ahead of a message that has several.
#[cold]
fn forget_several(writes: Vec<Write>) {
    drop(writes);
}

/// The data of the Writes ahead of a message, as far as a provider holds it.
#[derive(Debug)]
pub(crate) struct LentData(Items<PostedData>);

impl LentData {
    /// Takes the memory back once the provider has completed the message.
    pub(crate) fn complete(self, done: &Done) {
        self.0.into_iter().for_each(|data| data.complete(done));
    }

    /// Takes the memory back once the connection has quiesced.
    pub(crate) fn quiesced(self, proof: &Quiesced) {
        self.0.into_iter().for_each(|data| data.quiesced(proof));
    }
}

impl WriteSource {
    fn len(&self) -> usize {
        match self {
            Self::Own(data) => data.len(),
            Self::Lent(data) => data.len(),
            Self::Buffer(range) => range.len(),
        }
    }

    /// Makes the data the source of posted Writes.
    fn lent(self) -> Self {
        match self {
            Self::Own(data) => PostedData::of(data).map_or(Self::Own(Data::Empty), Self::Lent),
            other => other,
        }
    }
}
