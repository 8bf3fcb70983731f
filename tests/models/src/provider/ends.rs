//! The shared memory of two ends.

use super::ring::{Consumer, Producer};
use super::segment::{Layout, RING, RING_BYTES_MIN, Segment};
use crate::sys::barrier::Barrier;
use crate::sys::shared::{LINE, Shared};

/// Builds a segment with a ring of `lines` and one registration. Returns the views of its owner and of the peer.
pub(super) fn segment(lines: usize) -> [Segment; 2] {
    let ring = RING..RING + lines * LINE;
    let layout = Layout::new(RING_BYTES_MIN, 1).expect("the shortest ring");
    let layout = layout.with_ring_at_most(u32::try_from(ring.len()).expect("a short ring"));
    let memory = Shared::with_ring(ring.end + LINE, &ring);
    [memory.clone(), memory].map(|memory| Segment::new(memory, layout))
}

/// Builds a ring of `lines`, all but one of which can hold records.
pub(super) fn ring(lines: usize) -> (Producer, Consumer) {
    let [ours, theirs] = segment(lines);
    (Producer::new(ours, Barrier::Full), Consumer::new(theirs))
}
