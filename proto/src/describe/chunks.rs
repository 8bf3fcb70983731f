//! Segments and chunk lists.

use super::value::{Fields, Value};
use crate::chunk::{ReadList, Segments, WriteChunk, WriteList};
use crate::verbs::Segment;

/// Describes a Read list, or the list of a Call chunk.
pub(super) fn reads<'a>(list: ReadList<'a>) -> impl Iterator<Item = Value<'a>> + use<'a> {
    list.entries().map(|(position, segment)| {
        Value::of_fields(|entry| {
            entry.number("position", position);
            members(entry, segment);
        })
    })
}

/// Describes a Write list.
pub(super) fn writes<'a>(list: WriteList<'a>) -> impl Iterator<Item = Value<'a>> + use<'a> {
    list.chunks().map(|chunk| Value::List(segments(chunk.segments()).collect()))
}

/// Describes an optional chunk, such as a Reply chunk.
pub(super) fn optional<'a>(chunk: Option<WriteChunk<'a>>) -> Value<'a> {
    chunk.map_or(Value::Null, |chunk| Value::List(segments(chunk.segments()).collect()))
}

/// Describes segments.
pub(super) fn segments<'a>(segments: Segments<'a>) -> impl Iterator<Item = Value<'a>> + use<'a> {
    segments.map(|segment| Value::of_fields(|entry| members(entry, segment)))
}

fn members(entry: &mut Fields<'_>, segment: Segment) {
    entry.number("handle", segment.handle.0).number("length", segment.length);
    entry.add("offset", Value::Exact(segment.offset));
}
