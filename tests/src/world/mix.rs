//! What a run exercised: how often each thing happened, for each version and direction.

use std::fmt;

use haulage_proto::negotiate::Version;
use haulage_proto::v2::connection::Role;

use super::settings::Opening;

/// How often each thing happened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Connections, by [`Opening`].
    openings: [usize; Opening::ALL.len()],
    lanes: [Tally; LANES.len()],
}

/// How often each thing happened to the Calls of one end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally([usize; Event::ALL.len()]);

/// What can happen to a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It ended with a Reply, or without one where none was due.
    Well,
    /// It was planned again after a refusal.
    Again,
    /// It ended with a refusal.
    Refused,
    /// It was sent in one message that holds it.
    SimpleCall,
    /// It was sent in several messages.
    ContinuedCall,
    /// It was sent as a Call chunk.
    SpecialCall,
    /// Its Reply came in one message that held it.
    SimpleReply,
    /// Its Reply came in several messages.
    ContinuedReply,
    /// Its Reply came in the Reply chunk.
    SpecialReply,
    /// It had a Read chunk.
    ReadChunk,
    /// It had several.
    ReadChunks,
    /// Its Reply filled a Write chunk.
    WriteChunk,
    /// It had several Write chunks.
    WriteChunks,
    /// It had one without segments.
    EmptyWriteChunk,
    /// Its Reply left a Write chunk unused.
    UnusedWriteChunk,
    /// Its Reply left the Reply chunk unused.
    UnusedReplyChunk,
    /// It had a chunk of several segments.
    Segments,
    /// It had a chunk of several handles.
    Handles,
    /// Its Reply invalidated one of its handles.
    Invalidated,
    /// It was sent while a Call of the peer with the same XID was not answered.
    SameXid,
    /// It has no Reply.
    CallOnly,
}

impl Mix {
    /// Adds a connection, and what happened to the Calls of its client and of its server.
    pub fn add(&mut self, opening: Opening, client: &Tally, server: &Tally) {
        self.openings[opening as usize] += 1;
        for (role, tally) in [(Role::Client, client), (Role::Server, server)] {
            let lane = LANES.iter().position(|lane| *lane == (opening.version(), role));
            self.lanes[lane.expect("a lane for each")].join(tally);
        }
    }

    /// Adds another run.
    pub fn join(&mut self, other: &Self) {
        for (sum, count) in self.openings.iter_mut().zip(other.openings) {
            *sum += count;
        }
        for (sum, lane) in self.lanes.iter_mut().zip(&other.lanes) {
            sum.join(lane);
        }
    }

    /// Returns how often something happened at all.
    pub fn count(&self, event: Event) -> usize {
        self.lanes.iter().map(|lane| lane.0[event as usize]).sum()
    }

    /// Returns what can happen and has not.
    pub fn missing(&self) -> Vec<String> {
        let openings =
            Opening::ALL.into_iter().filter(|opening| self.openings[*opening as usize] == 0);
        let openings = openings.map(|opening| format!("{opening:?}"));
        let lanes = LANES.iter().zip(&self.lanes).flat_map(|((version, role), lane)| {
            let never = move |event: &Event| event.is_of(*version) && lane.0[*event as usize] == 0;
            let name = move |event| format!("{event:?} of a {role:?} in version {version}");
            Event::ALL.into_iter().filter(never).map(name)
        });
        openings.chain(lanes).collect()
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (opening, count) in Opening::ALL.into_iter().zip(self.openings) {
            writeln!(f, "connections: {count:>6} {opening:?}")?;
        }
        write!(f, "{:18}", "Calls")?;
        for (version, role) in LANES {
            write!(f, "{:>12}", format!("{version} {role:?}"))?;
        }
        for event in Event::ALL {
            write!(f, "\n{:18}", format!("{event:?}"))?;
            for lane in &self.lanes {
                write!(f, "{:>12}", lane.0[event as usize])?;
            }
        }
        Ok(())
    }
}

impl Tally {
    /// Notes that something happened.
    pub fn note(&mut self, event: Event) {
        self.note_if(true, event);
    }

    /// Notes that something happened, if it did.
    pub fn note_if(&mut self, happened: bool, event: Event) {
        self.0[event as usize] += usize::from(happened);
    }

    fn join(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }
}

impl Event {
    /// Everything.
    pub const ALL: [Self; 21] = [
        Self::Well,
        Self::Again,
        Self::Refused,
        Self::SimpleCall,
        Self::ContinuedCall,
        Self::SpecialCall,
        Self::SimpleReply,
        Self::ContinuedReply,
        Self::SpecialReply,
        Self::ReadChunk,
        Self::ReadChunks,
        Self::WriteChunk,
        Self::WriteChunks,
        Self::EmptyWriteChunk,
        Self::UnusedWriteChunk,
        Self::UnusedReplyChunk,
        Self::Segments,
        Self::Handles,
        Self::Invalidated,
        Self::SameXid,
        Self::CallOnly,
    ];

    /// Returns whether it has to happen in a version, sooner or later.
    const fn is_of(self, version: Version) -> bool {
        match self {
            Self::ContinuedCall | Self::ContinuedReply | Self::EmptyWriteChunk | Self::CallOnly => {
                matches!(version, Version::Two)
            }
            // Version 1 has one error for everything, which names no remedy.
            Self::Again => matches!(version, Version::Two),
            // Its Responders use a Reply chunk that they are given.
            Self::UnusedReplyChunk => matches!(version, Version::Two),
            _ => true,
        }
    }
}

/// Calls of either end, in either version. Those of a server go in the reverse direction.
const LANES: [(Version, Role); 4] = [
    (Version::One, Role::Client),
    (Version::One, Role::Server),
    (Version::Two, Role::Client),
    (Version::Two, Role::Server),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_happened_is_missing() {
        let mut all = Tally::default();
        Event::ALL.into_iter().for_each(|event| all.note(event));
        let mut mix = Mix::default();
        for opening in Opening::ALL {
            mix.add(opening, &all, &all);
        }
        assert_eq!(mix.missing(), [""; 0]);
        assert_eq!(mix.count(Event::Again), 8);
        let mut less = Mix::default();
        less.add(Opening::Two, &all, &Tally::default());
        less.add(Opening::Remembered, &all, &all);
        less.join(&less.clone());
        let missing = less.missing();
        assert_eq!(missing.len(), 2 + Event::ALL.len());
        assert!(missing.contains(&"Fallback".into()) && !missing.contains(&"Two".into()));
        assert!(missing.contains(&"SameXid of a Server in version 2".into()), "{missing:?}");
        assert!(less.to_string().contains("CallOnly"));
    }
}
