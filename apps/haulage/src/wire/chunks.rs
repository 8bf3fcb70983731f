//! Parsing of segments and chunk lists.

use haulage_proto::verbs::{Handle, Segment};

use super::fields::{Complaint, Field, Object};

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
