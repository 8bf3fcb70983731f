//! Counts of the events in the worlds.

use std::fmt;

/// Counts of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix([usize; Event::ALL.len()]);

impl Default for Mix {
    fn default() -> Self {
        Self([0; Event::ALL.len()])
    }
}

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// An event of a world.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event {
            $($(#[$doc])* $name,)*
        }

        impl Event {
            /// All events.
            pub const ALL: [Self; [$(stringify!($name)),*].len()] = [$(Self::$name),*];
        }
    };
}

events! {
    /// A world had an exercise service.
    Exercise,
    /// A world had a key-value service.
    Kv,
    /// A world had a storage service.
    Nfs,
    /// A server of several cores was built.
    Several,
    /// A Reply came over version 1.
    VersionOne,
    /// A Reply came over version 2.
    VersionTwo,
    /// A Reply came over version 1 to a client that began with version 2.
    Fallback,
    /// A Reply came over version 1 because the server had not answered version 2.
    BegunAnew,
    /// A Call was made from outside the client's service.
    FromOutside,
    /// A Call was made in a turn of the client's service.
    FromTurn,
    /// A Call was made as another Call ended.
    FromReply,
    /// A Call was put off because the core was busy or short of memory.
    Postponed,
    /// A Call ended with the expected results.
    Well,
    /// A server fetched Calls that were longer than a message.
    LongCall,
    /// A Call whose results were longer than a message, none of them placed, ended well.
    LongReply,
    /// A Call whose argument was placed ended well.
    PlacedArgument,
    /// A Call whose argument was unreduced ended well.
    UnreducedArgument,
    /// A Call whose result was placed ended well.
    PlacedResult,
    /// A Call whose result was unreduced ended well.
    UnreducedResult,
    /// A Call that was refused went again and ended well.
    Repeated,
    /// A Call with both an argument and a result ended well.
    BothWays,
    /// A result left in pieces.
    Pieces,
    /// The free memory of a key-value server was in single pages.
    Scattered,
    /// A Call was answered in a later turn.
    Later,
    /// A Call ended because its service failed it.
    Failed,
    /// A Call of a procedure that the server does not have was rejected.
    Unknown,
    /// A Call with a flavor that the server does not take was denied.
    Denied,
    /// A Call was refused because its result had too little room.
    Refused,
    /// A Call was not sent because there was no memory for its Reply, or its Reply was not read for that reason.
    Starved,
    /// A server exposed a Reply for its client to read.
    Held,
    /// A client began to read a Reply.
    Read,
    /// A server had no memory for an item of a Call.
    StarvedServer,
    /// A Call timed out before its server answered.
    TimedOut,
    /// A server made the Reply to a Call that its client may have given up.
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
    /// The messages of a node were swallowed for a while.
    BlackHole,
    /// A node was stopped in the middle of its copies.
    Stopped,
    /// A server was taken away without shutdown, to be built again.
    Restarted,
    /// A misfortune met one core of a server of several.
    OneOfSeveral,
    /// A core panicked, and the others of its server left.
    Fell,
    /// A post to a core was taken by its mailbox.
    Posted,
    /// A post to a core came back: its mailbox was full.
    Undelivered,
    /// A server began an orderly shutdown, to be built again.
    ShutDown,
    /// A client closed its connections, perhaps with Calls on them.
    ClosedEarly,
    /// A Call arrived from a host that had proved which it is.
    HostProved,
    /// A server did not know a host any more.
    HostForgotten,
    /// A server ended a connection because of the host at the other end.
    HostRefused,
    /// A server closed a connection that was idle for too long.
    Idle,
    /// A server closed a connection to make room for another.
    GaveWay,
    /// A client connected to a server again.
    Reconnected,
    /// A Call of a client whose link corrupts messages ended.
    Misled,
    /// A Call arrived at a server that receives corrupted messages.
    MisledServer,
    /// Messages were taken without Receives.
    Taken,
    /// Messages were offered without Receives, and left.
    Left,
    /// A result was written while messages were taken.
    WrittenAtOnce,
    /// A lease was opened while messages were taken.
    OpenedAtOnce,
    /// A handle was retired while messages were taken.
    RetiredAtOnce,
    /// A client read a key's value back.
    KvRead,
    /// A client asked for a key that is not stored.
    KvAbsent,
    /// A client deleted a key.
    KvForgotten,
    /// A client read several values by one Call, each of them placed.
    KvManyRead,
    /// A client stored several values by one Call.
    KvManyStored,
    /// A server stored some values of a Call, and had no memory for the others.
    KvPartlyStored,
    /// A value among several had too little room, and its client was told its length.
    KvTooLong,
    /// A Call for several keys ended well over version 1.
    KvManyOnOne,
    /// A client read a part of a file back.
    NfsRead,
    /// A client wrote a part of a file.
    NfsWritten,
    /// A client removed a file.
    NfsRemoved,
}

impl Mix {
    /// Counts an event.
    pub const fn note(&mut self, event: Event) {
        self.0[event as usize] += 1;
    }

    /// Counts an event `times` times.
    pub fn add(&mut self, event: Event, times: u64) {
        self.0[event as usize] += usize::try_from(times).unwrap_or(usize::MAX);
    }

    /// Counts an event if it happened.
    pub fn note_if(&mut self, happened: bool, event: Event) {
        self.0[event as usize] += usize::from(happened);
    }

    /// Adds the counts of another run.
    pub fn join(&mut self, other: &Self) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }

    /// Returns the count of an event.
    pub const fn count(&self, event: Event) -> usize {
        self.0[event as usize]
    }

    /// Returns the names of the events that have not happened.
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
