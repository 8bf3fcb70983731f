//! A message of the peer in several transport messages: its octets, until all have arrived. It is a continued message, or a
//! group of transmissions (round-trip extensions).

use haulage_mr_pool::Local;
use haulage_proto::time::Instant;

use crate::core::gathered::Gathered;
use crate::core::memory::Charge;
use crate::core::progress::Progress;

/// The message in several transport messages that is under way, if there is one. A peer sends one at a time.
#[derive(Debug, Default)]
pub(crate) struct Continued(Option<Box<Assembly>>);

/// A message of which some transport messages have arrived.
#[derive(Debug)]
struct Assembly {
    /// Room for all of it.
    gathered: Gathered,
    /// The memory charged to the connection for it.
    charge: Charge,
    /// Number of transport messages that have arrived.
    arrived: usize,
    /// Where the octets begin that came behind the Payload stream. They fill the room from its end.
    end: usize,
    /// What the transport message at hand brings, as the engine has told.
    part: Option<Brought>,
    /// By when more octets have to be here. Messages without octets bring nobody further.
    progress: Progress,
}

/// What a transport message brings: its last octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Brought {
    /// Octets of the Payload stream.
    pub(crate) payload: usize,
    /// Octets behind these.
    pub(crate) behind: usize,
}

impl Continued {
    /// Begins a message for all of which there is room in `octets`.
    pub(crate) fn begin(&mut self, octets: Local, charge: Charge) {
        let end = octets.len();
        let gathered = Gathered::of(octets);
        let (part, progress) = (None, Progress::default());
        self.0 = Some(Box::new(Assembly { gathered, charge, arrived: 0, end, part, progress }));
    }

    /// Notes what the transport message at hand brings. If it brings the message further, more has to be here at
    /// `renewed`.
    pub(crate) fn expect(&mut self, brought: Brought, renewed: Instant) {
        if let Some(assembly) = &mut self.0 {
            assembly.part = Some(brought);
            assembly.progress.count(brought.payload + brought.behind, renewed);
        }
    }

    /// Copies what `message` brings to its place.
    pub(crate) fn fill(&mut self, message: &[u8]) {
        let Some(assembly) = &mut self.0 else { return };
        let Some(Brought { payload, behind }) = assembly.part.take() else { return };
        let Gathered { octets, payload: at, behind: places } = &mut assembly.gathered;
        let start = message.len().saturating_sub(payload + behind);
        let (front, back) = message[start..].split_at(payload.min(message.len() - start));
        let room = octets.bytes_mut().get_mut(*at..assembly.end).unwrap_or_default();
        // The engine has seen that no part is longer than what was said, and no Receive is longer than its part of the
        // room.
        if front.len() + back.len() > room.len() {
            return;
        }
        room[..front.len()].copy_from_slice(front);
        let place = room.len() - back.len();
        room[place..].copy_from_slice(back);
        *at += front.len();
        assembly.end -= back.len();
        if let Some(place) = places.get_mut(assembly.arrived) {
            *place = assembly.end;
        }
        assembly.arrived += 1;
    }

    /// Takes out the message, and its charge.
    pub(crate) fn take(&mut self) -> Option<(Gathered, Charge)> {
        self.0.take().map(|assembly| (assembly.gathered, assembly.charge))
    }

    /// Returns whether a message is under way.
    pub(crate) const fn is_begun(&self) -> bool {
        self.0.is_some()
    }

    /// Returns when more octets have to be here.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.as_ref()?.progress.due()
    }
}
