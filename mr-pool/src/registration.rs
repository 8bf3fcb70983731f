//! How memory is opened to a peer, and the life of one registration.

/// How memory is opened to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// A work request on the send queue registers, another or the peer's Send invalidates: FRWR.
    FastReg,
    /// The same by memory windows of type 2, which user space has in its stead.
    Window,
    /// A call registers and another takes back, each of which takes the system.
    PerCall,
    /// Registered once for each connection, beside the leases, which are copied there or from there: the
    /// handles stay good, and are never invalidated. For who asks for it.
    Persistent,
}

impl Strategy {
    /// Returns the name reports use.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FastReg => "FastReg",
            Self::Window => "Window",
            Self::PerCall => "PerCall",
            Self::Persistent => "Persistent",
        }
    }
}

/// Life of one registration, as the core that posts its work requests sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MrState {
    /// No handle is valid; the memory is ours.
    Idle,
    /// FastReg is posted; the peer has not been told the handle.
    Registering,
    /// The peer may touch the memory.
    Exposed,
    /// LocalInv is posted, not yet complete.
    Fencing,
    /// A request on it was flushed: whether the handle is valid is unknown. Only destroying the
    /// registration brings the memory back.
    Orphaned,
}

/// What a post or a completion did to a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MrEvent {
    /// FastReg was posted.
    FastRegPosted,
    /// A Send that tells the peer the handle was posted behind the FastReg.
    SendPosted,
    /// LocalInv was posted.
    LocalInvPosted,
    /// LocalInv completed, or the peer's Send with Invalidate arrived.
    Invalidated,
    /// One of our requests on it was flushed.
    Flushed,
    /// The queue pair is quiesced and its registrations are destroyed.
    Destroyed,
}

impl MrState {
    /// The whole transition table; anything not listed is a bug of the caller.
    pub const fn on(self, event: MrEvent) -> Option<Self> {
        use MrEvent::{Destroyed, FastRegPosted, Flushed, Invalidated, LocalInvPosted, SendPosted};
        Some(match (self, event) {
            (Self::Idle, FastRegPosted) => Self::Registering,
            (Self::Registering, SendPosted) => Self::Exposed,
            // A Call given up before it was sent never exposes what it registered.
            (Self::Registering | Self::Exposed, LocalInvPosted) => Self::Fencing,
            (Self::Exposed | Self::Fencing, Invalidated) => Self::Idle,
            (Self::Registering | Self::Exposed | Self::Fencing | Self::Orphaned, Flushed) => {
                Self::Orphaned
            }
            (Self::Registering | Self::Exposed | Self::Fencing | Self::Orphaned, Destroyed) => {
                Self::Idle
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [MrState; 5] = {
        use MrState::*;
        [Idle, Registering, Exposed, Fencing, Orphaned]
    };
    const EVENTS: [MrEvent; 6] = {
        use MrEvent::*;
        [FastRegPosted, SendPosted, LocalInvPosted, Invalidated, Flushed, Destroyed]
    };

    const MATRIX: &str = "
              FastRegPosted  SendPosted     LocalInvPosted Invalidated    Flushed        Destroyed
Idle          Registering    -              -              -              -              -
Registering   -              Exposed        Fencing        -              Orphaned       Idle
Exposed       -              -              Fencing        Idle           Orphaned       Idle
Fencing       -              -              -              Idle           Orphaned       Idle
Orphaned      -              -              -              -              Orphaned       Idle
";

    #[test]
    fn the_whole_table_is_as_reviewed() {
        let name = |name: String| format!("{name:<15}");
        let row = |first: String, cells: Vec<String>| {
            let line = format!("{first:<14}{}", cells.into_iter().map(name).collect::<String>());
            line.trim_end().to_owned() + "\n"
        };
        let heads = EVENTS.map(|event| format!("{event:?}")).to_vec();
        let rows = STATES.map(|state| {
            let next = |event| state.on(event).map_or("-".to_owned(), |next| format!("{next:?}"));
            row(format!("{state:?}"), EVENTS.map(next).to_vec())
        });
        let matrix = format!("\n{}{}", row(String::new(), heads), rows.concat());
        assert_eq!(matrix, MATRIX, "{matrix}");
    }
}
