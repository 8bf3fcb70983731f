//! Registration strategies, and the states of one registration.

/// The strategy by which memory is exposed to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// FRWR: a work request on the send queue registers memory, and another one, or the peer's
    /// Send, invalidates the registration.
    FastReg,
    /// Memory windows of type 2, the counterpart of FRWR in user space: a work request binds a
    /// window, and another one, or the peer's Send, invalidates it.
    Window,
    /// One call registers memory and another deregisters it; both enter the kernel.
    PerCall,
    /// Buffers registered once for each connection, to and from which leases are copied. Their handles stay valid and
    /// are never invalidated. This strategy is used only on request.
    Persistent,
}

impl Strategy {
    /// Returns the name of the strategy in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::FastReg => "FastReg",
            Self::Window => "Window",
            Self::PerCall => "PerCall",
            Self::Persistent => "Persistent",
        }
    }
}

/// The state of one registration, as seen by the core that posts its work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MrState {
    /// No handle is valid; the memory is local.
    Idle,
    /// FastReg is posted; the handle was not sent to the peer yet.
    Registering,
    /// The peer may access the memory.
    Exposed,
    /// LocalInv is posted, not yet complete.
    Fencing,
    /// A work request of the registration was flushed, so that the handle may be valid or not. Only
    /// destroying the registration releases the memory.
    Orphaned,
}

/// An event of a registration: a post or a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MrEvent {
    /// FastReg was posted.
    FastRegPosted,
    /// A Send with the handle was posted after the FastReg.
    SendPosted,
    /// LocalInv was posted.
    LocalInvPosted,
    /// LocalInv completed, or the peer's Send with Invalidate arrived.
    Invalidated,
    /// A work request of the registration was flushed.
    Flushed,
    /// The queue pair is quiesced and its registrations are destroyed.
    Destroyed,
}

impl MrState {
    /// Applies the transition table. Returns `None` for a pair that is not in it, which is a bug of
    /// the caller.
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
