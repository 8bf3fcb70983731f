//! Conversion of segments and chunk lists to JSON and back.

use haulage_proto::chunk::{ReadList, Segments, WriteChunk, WriteList};
use haulage_proto::verbs::{Handle, Segment};

use super::fields::{Complaint, Field, Object};
use crate::output::json;

/// Describes a Read list, or the list of a Call chunk.
pub fn reads(list: ReadList<'_>) -> String {
    json::array(list.entries().map(|(position, segment)| {
        json::object(|entry| {
            entry.count("position", position);
            members(entry, segment);
        })
    }))
}

/// Describes a Write list.
pub fn writes(list: WriteList<'_>) -> String {
    json::array(list.chunks().map(|chunk| segments(chunk.segments())))
}

/// Describes an optional chunk, such as a Reply chunk.
pub fn optional(chunk: Option<WriteChunk<'_>>) -> String {
    chunk.map_or_else(|| "null".to_owned(), |chunk| segments(chunk.segments()))
}

/// Describes segments.
pub fn segments(segments: Segments<'_>) -> String {
    json::array(segments.map(|segment| json::object(|entry| members(entry, segment))))
}

fn members(entry: &mut json::Object, segment: Segment) {
    entry.count("handle", segment.handle.0).count("length", segment.length);
    entry.exact("offset", segment.offset);
}

/// Parses segments with their positions.
pub fn parse_reads(field: Field) -> Result<Vec<(u32, Segment)>, Complaint> {
    let entries = field.elements()?.map(|element| {
        let mut entry = element.object()?;
        Ok((entry.u32("position")?, parse_segment(entry)?))
    });
    entries.collect()
}

/// Parses the chunks of a Write list.
pub fn parse_writes(field: Field) -> Result<Vec<std::vec::IntoIter<Segment>>, Complaint> {
    field.elements()?.map(|chunk| Ok(parse_segments(chunk)?.into_iter())).collect()
}

/// Parses an optional chunk.
pub fn parse_optional(field: Field) -> Result<Option<std::vec::IntoIter<Segment>>, Complaint> {
    field.nullable().map(|chunk| Ok(parse_segments(chunk)?.into_iter())).transpose()
}

/// Parses segments.
pub fn parse_segments(field: Field) -> Result<Vec<Segment>, Complaint> {
    field.elements()?.map(|element| parse_segment(element.object()?)).collect()
}

fn parse_segment(mut entry: Object) -> Result<Segment, Complaint> {
    let handle = Handle(entry.u32("handle")?);
    let (length, offset) = (entry.u32("length")?, entry.take("offset")?.u64()?);
    entry.end()?;
    Ok(Segment { handle, length, offset })
}
