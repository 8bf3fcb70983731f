//! The limits on the items to read and the memory to write in a request.

use crate::chunk::ChunkLimits;
use crate::rtrext::XMTCONT;
use crate::rtrext::direction::Directions;
use crate::rtrext::item::{Items, Location};
use crate::rtrext::properties::Terms;
use crate::v2::error::ErrorBody;

/// Checks a request against the limits on items to read and memory to write.
pub(super) fn check(
    limits: &ChunkLimits,
    terms: &Terms,
    dp: &Items<'_>,
    rsd: &Directions<'_>,
) -> Result<(), ErrorBody> {
    let exceeds = |count: usize, max| u32::try_from(count).map_or(true, |count| count > max);
    let reads = || {
        dp.iter().filter_map(|item| match item.place {
            Location::Exrw(chunk) => Some(chunk),
            _ => None,
        })
    };
    let directions = || rsd.iter().flat_map(|set| set.items.iter());
    let offered = || directions().filter_map(|direction| direction.place.segments().copied());
    // [V2-7.3.1-1] [V2-7.3.1-2] [V2-7.3.2-1] [V2-7.3.3-1] the errors are those for chunks of the base protocol.
    if exceeds(reads().count(), limits.read_chunks_max) {
        return Err(ErrorBody::ReadChunks { max: limits.read_chunks_max });
    }
    if exceeds(offered().count(), limits.write_chunks_max) {
        let continues = terms.allows(XMTCONT);
        if limits.write_chunks_max == 0 && !continues {
            // [V2-7.3.2-3] zero, because the length of the Reply is not known yet.
            return Err(ErrorBody::ReplyResource { length_needed: 0 });
        }
        return Err(ErrorBody::WriteChunks { max: limits.write_chunks_max });
    }
    let chunks = || reads().chain(offered());
    let mut counts = chunks().map(|chunk| chunk.segments().len());
    if counts.any(|count| exceeds(count, limits.segments_max)) {
        return Err(ErrorBody::Segments { max: limits.segments_max });
    }
    let mut segments = chunks().flat_map(|chunk| chunk.segments());
    if segments.any(|segment| segment.length > terms.segment_size_max) {
        // [V2-7.4.1-1] there is no error for a segment larger than we said we handle.
        return Err(ErrorBody::System);
    }
    Ok(())
}
