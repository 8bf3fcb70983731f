//! A continued message of the peer: its Payload stream, until all parts have arrived.

use std::ops::Range;

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;
use haulage_proto::v2::continuation::Part;

use crate::core::memory::Charge;
use crate::core::progress::Progress;

/// The continued message that is under way, if there is one. A peer sends one at a time.
#[derive(Debug, Default)]
pub(crate) struct Continued(Option<Box<Assembly>>);

/// A Payload stream of which some parts have arrived.
#[derive(Debug)]
struct Assembly {
    /// Room for all of it.
    body: Local,
    /// The memory charged to the connection for it.
    charge: Charge,
    /// Where the part belongs that the engine has told of, and whose message is at hand.
    part: Range<usize>,
    /// By when more of its octets have to be here. Parts without octets bring nobody further.
    progress: Progress,
}

impl Continued {
    /// Begins a message for whose whole Payload stream there is room in `body`.
    pub(crate) fn begin(&mut self, body: Local, charge: Charge) {
        let (part, progress) = (0..0, Progress::default());
        self.0 = Some(Box::new(Assembly { body, charge, part, progress }));
    }

    /// Notes which part the message brings that is at hand. If it brings the message further, more has to be here at
    /// `renewed`.
    pub(crate) fn expect(&mut self, part: &Part, renewed: Instant) {
        if let Some(assembly) = &mut self.0 {
            let (at, length) = (part.offset as usize, part.length as usize);
            assembly.part = at..at + length;
            assembly.progress.count(length, renewed);
        }
    }

    /// Copies the expected part, with which `message` ends, to its place.
    pub(crate) fn fill(&mut self, message: &[u8]) {
        let Some(assembly) = &mut self.0 else { return };
        let part = std::mem::take(&mut assembly.part);
        let from = message.len().saturating_sub(part.len());
        let place = assembly.body.bytes_mut().get_mut(part);
        if let (Some(place), Some(octets)) = (place, message.get(from..)) {
            place.copy_from_slice(octets);
        }
    }

    /// Takes out the Payload stream, and its charge.
    pub(crate) fn take(&mut self) -> Option<(Local, Charge)> {
        self.0.take().map(|assembly| (assembly.body, assembly.charge))
    }

    /// Returns when more octets have to be here.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.as_ref()?.progress.due()
    }
}
