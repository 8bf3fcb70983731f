//! A continued message of the peer: its Payload stream, until all parts have arrived.

use std::ops::Range;

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;
use haulage_proto::v2::continuation::Part;

use crate::core::memory::Charge;

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
    /// When the next part has to be here.
    due: Instant,
}

impl Continued {
    /// Begins a message for whose whole Payload stream there is room in `body`.
    pub(crate) fn begin(&mut self, body: Local, charge: Charge) {
        let (part, due) = (0..0, Instant::ZERO);
        self.0 = Some(Box::new(Assembly { body, charge, part, due }));
    }

    /// Notes which part the message brings that is at hand. The next one has to be here at `due`.
    pub(crate) fn expect(&mut self, part: &Part, due: Instant) {
        if let Some(assembly) = &mut self.0 {
            let at = part.offset as usize;
            (assembly.part, assembly.due) = (at..at + part.length as usize, due);
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

    /// Returns when the next part has to be here.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.as_ref().map(|assembly| assembly.due)
    }
}
