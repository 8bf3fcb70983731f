//! How often each thing happened in the worlds.

use std::fmt;

/// How often each thing happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix([usize; Event::ALL.len()]);

impl Default for Mix {
    fn default() -> Self {
        Self([0; Event::ALL.len()])
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Something that can happen in a world.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event {
            $($(#[$doc])* $name,)*
        }

        impl Event {
            /// Everything that can happen.
            pub const ALL: [Self; [$(stringify!($name)),*].len()] = [$(Self::$name),*];
        }
    };
}

events! {
    /// A world had a service for exercise.
    Exercise,
    /// A world had a key-value service.
    Kv,
    /// A world had a storage service.
    Nfs,
    /// A Reply came by version 1.
    VersionOne,
    /// A Reply came by version 2.
    VersionTwo,
    /// A Reply came by version 1 to a client that began with version 2.
    Fallback,
    /// A Call was made from outside the client's service.
    FromOutside,
    /// A Call was made in the turn of the client's service.
    FromTurn,
    /// A Call was made as another one ended.
    FromReply,
    /// A Call was made again later because the core was busy or short of memory.
    Postponed,
    /// A Call ended with the results that were due.
    Well,
    /// A server fetched Calls that were longer than a message.
    LongCall,
    /// A Call whose results were longer than a message, none of them placed, ended well.
    LongReply,
    /// A Call whose argument was placed ended well.
    PlacedArgument,
    /// A Call whose argument was inline ended well.
    InlineArgument,
    /// A Call whose result was placed ended well.
    PlacedResult,
    /// A Call whose result was inline ended well.
    InlineResult,
    /// A Call of both an argument and a result ended well.
    BothWays,
    /// A result left in pieces.
    Pieces,
    /// A Call was answered in a later turn.
    Later,
    /// A Call ended as its service failed it.
    Failed,
    /// A Call of a procedure that the server does not have was rejected.
    Unknown,
    /// A Call of a caller whom the server does not take was denied.
    Denied,
    /// A Call was refused for want of room for its result.
    Refused,
    /// A Call was not sent, as there was no memory for its Reply.
    Starved,
    /// A server had no memory for an item of a Call.
    StarvedServer,
    /// A Call was given up before its server answered.
    TimedOut,
    /// The Reply to a Call that was given up was made.
    Late,
    /// A Call failed because the connection could not be made.
    Unconnected,
    /// A Call failed because the connection was lost.
    Lost,
    /// A Call failed because its client closed the connection.
    Closed,
    /// A client lost all its connections.
    Severed,
    /// A server lost all its connections.
    SeveredServer,
    /// What a node sent was swallowed for a while.
    BlackHole,
    /// A server was taken away, and another put in its place.
    Restarted,
    /// A server was shut down in order, and another put in its place.
    ShutDown,
    /// A client closed a connection with Calls on it.
    ClosedEarly,
    /// A server closed a connection that was idle for too long.
    Idle,
    /// A connection gave way to another one.
    GaveWay,
    /// A connection was made anew.
    Reconnected,
    /// A client that was sent other octets than its servers sent was told how a Call ended.
    Misled,
    /// A server was sent other octets than its clients sent.
    MisledServer,
    /// Messages were taken without Receives.
    Taken,
    /// Messages were offered without Receives and left.
    Left,
    /// A result was written while messages were taken.
    WrittenAtOnce,
    /// A lease was opened while messages were taken.
    OpenedAtOnce,
    /// A handle was retired while messages were taken.
    RetiredAtOnce,
    /// A key's value was read back.
    KvRead,
    /// A key that is not stored was asked for.
    KvAbsent,
    /// A key was forgotten.
    KvForgotten,
    /// A part of a file was read back.
    NfsRead,
    /// A part of a file was written.
    NfsWritten,
    /// A file was removed.
    NfsRemoved,
}

impl Mix {
    /// Notes that something happened.
    pub const fn note(&mut self, event: Event) {
        self.0[event as usize] += 1;
    }

    /// Notes that something happened `times` times.
    pub fn add(&mut self, event: Event, times: u64) {
        self.0[event as usize] += usize::try_from(times).unwrap_or(usize::MAX);
    }

    /// Notes that something happened, if it did.
    pub fn note_if(&mut self, happened: bool, event: Event) {
        self.0[event as usize] += usize::from(happened);
    }

    /// Adds another run.
    pub fn join(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    /// Returns how often something happened.
    pub const fn count(&self, event: Event) -> usize {
        self.0[event as usize]
    }

    /// Returns what can happen and has not.
    pub fn missing(&self) -> Vec<String> {
        let never = |event: &Event| self.count(*event) == 0;
        Event::ALL.into_iter().filter(never).map(|event| format!("{event:?}")).collect()
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, event) in Event::ALL.into_iter().enumerate() {
            let end = if n % 4 == 3 { "\n" } else { "" };
            write!(f, "{:>16} {:<10}{end}", format!("{event:?}"), self.count(event))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_not_happened_is_missing() {
        let mut mix = Mix::default();
        Event::ALL.into_iter().for_each(|event| mix.note_if(event != Event::Late, event));
        assert_eq!(mix.missing(), ["Late"]);
        let mut other = Mix::default();
        other.note(Event::Late);
        mix.join(&other);
        assert_eq!((mix.missing(), mix.count(Event::Late)), (Vec::new(), 1));
    }
}
