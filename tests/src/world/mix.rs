//! Counts of the events in a run, for each version and direction.

use std::fmt;

use haulage_proto::negotiate::Version;
use haulage_proto::v2::connection::Role;

use super::settings::Opening;

/// Counts of events, for each version and direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mix {
    /// Number of connections, by [`Opening`].
    openings: [usize; Opening::ALL.len()],
    lanes: [Tally; LANES.len()],
}

/// Counts of events of one end's Calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally([usize; Event::ALL.len()]);

/// An event of a Call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The Call ended with a Reply, or without one where none was due.
    Well,
    /// The Call was planned again after a refusal.
    Again,
    /// The Call ended with a refusal.
    Refused,
    /// The Call was sent in simple format.
    SimpleCall,
    /// The Call was sent in continued format.
    ContinuedCall,
    /// The Call was sent in special format, with a Call chunk.
    SpecialCall,
    /// The Reply came in simple format.
    SimpleReply,
    /// The Reply came in continued format.
    ContinuedReply,
    /// The Reply came in special format, in the Reply chunk.
    SpecialReply,
    /// The Call had a Read chunk.
    ReadChunk,
    /// The Call had several Read chunks.
    ReadChunks,
    /// The Reply filled a Write chunk.
    WriteChunk,
    /// The Call had several Write chunks.
    WriteChunks,
    /// The Call had a Write chunk without segments.
    EmptyWriteChunk,
    /// The Reply left a Write chunk unused.
    UnusedWriteChunk,
    /// The Reply left the Reply chunk unused.
    UnusedReplyChunk,
    /// The Call had a chunk of several segments.
    Segments,
    /// The Call had a chunk of several handles.
    Handles,
    /// The Reply invalidated one of the Call's handles.
    Invalidated,
    /// The Call was sent while a Call of the peer with the same XID was unanswered.
    SameXid,
    /// The Call has no Reply.
    CallOnly,
}

impl Mix {
    /// Adds a connection, and the counts of its client and its server.
    pub fn add(&mut self, opening: Opening, client: &Tally, server: &Tally) {
        self.openings[opening as usize] += 1;
        for (role, tally) in [(Role::Client, client), (Role::Server, server)] {
            let lane = LANES.iter().position(|lane| *lane == (opening.version(), role));
            self.lanes[lane.expect("a lane for each")].join(tally);
        }
    }

    /// Adds the counts of another run.
    pub fn join(&mut self, other: &Self) {
        for (sum, count) in self.openings.iter_mut().zip(other.openings) {
            *sum += count;
        }
        for (sum, lane) in self.lanes.iter_mut().zip(&other.lanes) {
            sum.join(lane);
        }
    }

    /// Returns the count of an event over all versions and directions.
    pub fn count(&self, event: Event) -> usize {
        self.lanes.iter().map(|lane| lane.0[event as usize]).sum()
    }

    /// Returns the names of the openings and events that have not happened.
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
    /// Counts an event.
    pub fn note(&mut self, event: Event) {
        self.note_if(true, event);
    }

    /// Counts an event if it happened.
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
    /// All events.
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

    /// Returns whether enough runs must produce the event in a version.
    const fn is_of(self, version: Version) -> bool {
        match self {
            Self::ContinuedCall | Self::ContinuedReply | Self::EmptyWriteChunk | Self::CallOnly => {
                matches!(version, Version::Two)
            }
            // Version 1 has one chunk error, which names no remedy.
            Self::Again => matches!(version, Version::Two),
            // A version 1 Responder uses any Reply chunk that it is given.
            Self::UnusedReplyChunk => matches!(version, Version::Two),
            _ => true,
        }
    }
}

/// The versions and the caller's role of each tally. A server's Calls go in the reverse direction.
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
