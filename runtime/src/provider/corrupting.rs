//! A network that corrupts messages, for tests.

use super::sim::Rng;

/// Changes octets of messages that a [`Lending`](super::lending::Lending) provider has received, before its core
/// sees them, and loses connections.
///
/// Proofs are left alone: invalidations are reported unchanged, and no completion is made up or withheld.
#[derive(Debug)]
pub struct Corrupting {
    rng: Rng,
    percent: u8,
}

/// The fate of a connection once one of its messages has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// The connection stays.
    Kept,
    /// The connection is lost.
    Lost,
}

impl Corrupting {
    /// Changes about `percent` of a hundred messages; every tenth of these ends its connection instead.
    pub const fn new(seed: u64, percent: u8) -> Self {
        Self { rng: Rng::new(seed), percent }
    }

    /// Changes a message now and then. Returns the fate of the message's connection.
    pub(super) fn befall(&mut self, octets: &mut [u8]) -> Fate {
        if self.rng.below(0..100) >= u64::from(self.percent) {
            return Fate::Kept;
        }
        if self.rng.below(0..10) == 0 {
            return Fate::Lost;
        }
        for _ in 0..self.rng.below(1..5) {
            // Headers come first, and matter most.
            let end = if self.rng.below(0..4) == 0 { usize::MAX } else { HEADERS };
            let end = octets.len().min(end) as u64;
            let at = if end == 0 { return Fate::Kept } else { self.rng.below(0..end) };
            let change = self.rng.below(1..256);
            if let Some(octet) = usize::try_from(at).ok().and_then(|at| octets.get_mut(at)) {
                *octet ^= u8::try_from(change).unwrap_or(1);
            }
        }
        Fate::Kept
    }
}

/// Octets that hold the headers of most messages.
const HEADERS: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_what_befalls_messages() {
        let run = |seed, percent| {
            let mut corrupting = Corrupting::new(seed, percent);
            let mut messages = vec![[0; 300]; 200];
            let fates: Vec<_> =
                messages.iter_mut().map(|message| corrupting.befall(message)).collect();
            (messages, fates)
        };
        let (messages, fates) = run(1, 50);
        assert_eq!((&messages, &fates), (&run(1, 50).0, &run(1, 50).1));
        assert_ne!(messages, run(2, 50).0);
        let changed = messages.iter().filter(|message| message.iter().any(|octet| *octet != 0));
        assert!((50..150).contains(&changed.count()), "about half of them");
        assert!(fates.contains(&Fate::Lost) && fates.contains(&Fate::Kept));
        assert!(run(1, 0).0.iter().flatten().all(|octet| *octet == 0), "or none");
    }
}
