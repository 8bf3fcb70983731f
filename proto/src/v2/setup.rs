//! Setup: the exchange of CONNPROP messages (sections 4.3, 6.3.3 and 6.3.4).
//!
//! # Normal operation
//! Each end sends its properties in any number of MIDDLE messages and a FINAL. The client begins, and the ends take
//! turns: each MIDDLE is answered by a MIDDLE, which may be empty, or by a FINAL, and these carry the credit for the
//! next one (E12). An end that has sent its FINAL answers with a grant. Setup is over once both ends have sent their
//! FINAL.
//!
//! # Limits
//! The client's first message fits the default inline threshold of version 1, all others that of
//! version 2. A peer that does not send its FINAL within [`MESSAGES_MAX`] messages is refused.

mod auth;
mod fault;

use alloc::boxed::Box;
use alloc::vec::Vec;

use self::auth::HostAuth;
pub(super) use self::fault::Fault;
use super::header::Prefix;
use super::host_auth::{Authenticator, Policy, Refused, WHOLE_MAX};
use super::properties::{ConnPropKind, Properties, PropertySet, push_host_auth, push_property};
use crate::engine::Role;
use crate::xdr::{Reader, UNIT};

/// The exchange of properties on one connection.
#[derive(Debug)]
pub(super) struct Setup {
    role: Role,
    progress: Progress,
    /// The properties that the peer has sent so far, with defaults for the others.
    theirs: Properties,
    /// Encoded properties that this end has not sent yet.
    unsaid: Vec<u8>,
    /// The property set of this end's last message.
    message: Vec<u8>,
    messages_received: u32,
    auth: HostAuth,
}

/// The progress of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Progress {
    ours: Side,
    theirs: Side,
}

/// The progress of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    /// The end has sent no properties.
    Silent,
    /// The last message of the end was a MIDDLE.
    Middle,
    /// The end has sent its FINAL.
    Final,
}

/// An event that matters to setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// The queue pair is up.
    Start,
    /// A MIDDLE arrived.
    Middle,
    /// A FINAL arrived.
    Final,
    /// A grant arrived.
    Grant,
    /// Any other message that is not an error arrived.
    Other,
}

/// The action that follows an event of setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SetupAction {
    /// This end sends its next CONNPROP message.
    Speak,
    /// This end sends a grant, because it has already sent its FINAL.
    Grant,
    /// This end sends nothing.
    Nothing,
    /// The message is out of order.
    OutOfPlace,
}

impl Progress {
    /// Applies the transition table: returns the peer's new progress and the action due.
    const fn on(self, role: Role, event: Event) -> (Side, SetupAction) {
        use Side::{Final, Middle, Silent};
        match (event, self.ours, self.theirs) {
            (Event::Start, Silent, Silent) if matches!(role, Role::Client) => {
                (Silent, SetupAction::Speak)
            }
            (Event::Start, _, theirs) => (theirs, SetupAction::Nothing),
            // [V2-6.3.4-1] no CONNPROP message follows a FINAL.
            //~ V2-6.3.4-1: `OutOfPlace` -> `Speak`
            (Event::Middle | Event::Final, _, Final) => (Final, SetupAction::OutOfPlace),
            (Event::Middle, Final, _) => (Middle, SetupAction::Grant),
            (Event::Middle, _, _) => (Middle, SetupAction::Speak),
            (Event::Final, Final, _) => (Final, SetupAction::Nothing),
            (Event::Final, _, _) => (Final, SetupAction::Speak),
            (Event::Grant, Middle, Final) => (Final, SetupAction::Speak),
            // E12: otherwise grants disturb nothing.
            (Event::Grant, _, theirs) => (theirs, SetupAction::Nothing),
            // [V2-6.3.3-1] only properties follow a MIDDLE.
            (Event::Other, _, Middle) => (Middle, SetupAction::OutOfPlace),
            (Event::Other, _, theirs) => (theirs, SetupAction::Nothing),
        }
    }
}

impl Setup {
    /// Makes the exchange of an end with the properties `ours`.
    pub(super) fn new(role: Role, ours: &Properties) -> Self {
        let mut unsaid = Vec::new();
        for (which, value) in ours.words() {
            push_property(&mut unsaid, which, &value.to_be_bytes());
        }
        Self {
            role,
            progress: Progress { ours: Side::Silent, theirs: Side::Silent },
            // [V2-4.2.2-1] properties that the peer does not send have their defaults.
            //~ V2-4.2.2-1: `Properties::default()` ->
            //~   `Properties { receive_buffer_size: ours.receive_buffer_size, ..Properties::default() }`
            theirs: Properties::default(),
            unsaid,
            message: Vec::new(),
            messages_received: 0,
            auth: HostAuth::default(),
        }
    }

    /// Adds a property to those to be sent. Returns whether a message has room for it.
    ///
    /// [V2-5-1] The property is one of an extension, which the peer may not know.
    pub(super) fn announce(&mut self, which: u32, data: &[u8]) -> bool {
        let fits = data.len() <= PROPERTY_MAX;
        if fits {
            push_property(&mut self.unsaid, which, data);
        }
        fits
    }

    /// Enables host authentication according to `policy`.
    pub(super) fn authenticate(&mut self, policy: Policy, authenticator: Box<dyn Authenticator>) {
        self.auth = HostAuth::new(policy, authenticator);
    }

    /// Handles an event without properties.
    pub(super) fn on_event(&mut self, event: Event) -> SetupAction {
        let (theirs, answer) = self.progress.on(self.role, event);
        self.progress.theirs = theirs;
        answer
    }

    /// Handles the properties of a CONNPROP message. Those of a message out of order are ignored.
    pub(super) fn on_properties(
        &mut self,
        kind: ConnPropKind,
        set: &PropertySet<'_>,
    ) -> Result<SetupAction, Fault> {
        let is_first = self.progress.theirs == Side::Silent;
        let answer = self.on_event(match kind {
            ConnPropKind::Middle => Event::Middle,
            ConnPropKind::Final => Event::Final,
        });
        if answer == SetupAction::OutOfPlace {
            return Ok(answer);
        }
        self.messages_received = self.messages_received.saturating_add(1);
        if self.messages_received > MESSAGES_MAX {
            return Err(Fault::TooLong);
        }
        set.apply(&mut self.theirs);
        let from = match self.role {
            Role::Client => Role::Server,
            Role::Server => Role::Client,
        };
        if is_first {
            self.auth.meet(set)?;
        }
        self.auth.listen(from, kind, set)?;
        Ok(answer)
    }

    /// Composes the next CONNPROP message of this end. Returns its kind.
    pub(super) fn speak(&mut self) -> Result<ConnPropKind, Fault> {
        let is_first = self.progress.ours == Side::Silent;
        let message_max = match self.role {
            // [V2-4.3-2] P6: a server of version 1 can take the first message.
            Role::Client if is_first => FIRST_MESSAGE_MAX,
            _ => MESSAGE_MAX,
        };
        let room = message_max.saturating_sub(HEADER_LEN);
        let is_authenticating = self.auth.speaks();
        let reserve =
            if is_authenticating { HOST_AUTH_HEADER_LEN.saturating_add(WHOLE_MAX) } else { 0 };
        let (mut count, length) = self.fitting(room.saturating_sub(reserve));
        let rest = self.unsaid.split_off(length);
        let mut said = core::mem::replace(&mut self.unsaid, rest);
        //~ V2-4.3-2: `` -> `if is_first && self.role == Role::Client {
        //~     push_property(&mut said, 0x7f00, &[0; 1500]);
        //~     count = count.saturating_add(1);
        //~   }`
        let is_last = self.unsaid.is_empty() && (!is_authenticating || self.auth.may_end());
        let kind = if is_last { ConnPropKind::Final } else { ConnPropKind::Middle };
        if is_authenticating {
            let room = room.saturating_sub(said.len()).saturating_sub(HOST_AUTH_HEADER_LEN);
            // Whole units, so that padding needs no room of its own.
            let room = room & !(UNIT - 1);
            let octets = self.auth.speak(self.role, kind, &said, room)?;
            if self.auth.waits() && (is_last || self.progress.theirs == Side::Final) {
                // Authentication is not complete, and one of the two ends has already sent its last message.
                return Err(Fault::Refused(Refused::Unfinished));
            }
            if is_first || !octets.is_empty() {
                push_host_auth(&mut said, &octets);
                count = count.saturating_add(1);
            }
        }
        self.message.clear();
        self.message.extend(count.to_be_bytes());
        self.message.append(&mut said);
        self.progress.ours = if is_last { Side::Final } else { Side::Middle };
        Ok(kind)
    }

    /// Returns the property set of the message composed last.
    pub(super) fn message(&self) -> &[u8] {
        &self.message
    }

    /// Returns whether both ends have sent their FINAL.
    pub(super) fn is_over(&self) -> bool {
        self.progress == Progress { ours: Side::Final, theirs: Side::Final }
    }

    /// Returns whether either end has sent properties.
    pub(super) fn has_begun(&self) -> bool {
        self.progress != Progress { ours: Side::Silent, theirs: Side::Silent }
    }

    /// Returns whether this end has sent a MIDDLE and not yet its FINAL, so that it may send
    /// nothing else.
    pub(super) fn is_speaking(&self) -> bool {
        self.progress.ours == Side::Middle
    }

    /// Returns whether RPC messages have to wait until setup is over.
    pub(super) const fn is_required(&self) -> bool {
        self.auth.policy().requires()
    }

    /// Returns the properties that the peer has sent so far.
    pub(super) const fn theirs(&self) -> &Properties {
        &self.theirs
    }

    /// Returns the identity that the peer has proved, once setup is over.
    pub(super) fn peer(&self) -> Option<&[u8]> {
        self.auth.peer().filter(|_| self.is_over())
    }

    /// Returns the identity that the peer claims, proved or not.
    pub(super) fn claimed(&self) -> Option<&[u8]> {
        self.auth.claimed()
    }

    /// Returns the number of unsent properties that fit `room` octets, and their length in octets.
    fn fitting(&self, room: usize) -> (u32, usize) {
        let mut r = Reader::new(&self.unsaid);
        let mut fitting = (0_u32, 0);
        while r.u32().is_ok() && r.opaque(usize::MAX).is_ok() && r.position() <= room {
            fitting = (fitting.0.saturating_add(1), r.position());
        }
        fitting
    }
}

/// The longest first message of a client: the default inline threshold of version 1.
//~ V2-4.3-2: `1024` -> `1028`
const FIRST_MESSAGE_MAX: usize = 1024;

/// The longest later message: the default inline threshold of version 2 (section 6.3.4).
const MESSAGE_MAX: usize = 4096;

/// The length of the prefix and the count, which precede the first property.
const HEADER_LEN: usize = Prefix::WIRE_LEN + UNIT;

/// The length of the code point and length, which precede a property's value.
const PROPERTY_HEADER_LEN: usize = 2 * UNIT;

/// The length of what precedes the octets of host authentication: code point and length, and the length of the `opaque<>`
/// inside the value.
const HOST_AUTH_HEADER_LEN: usize = PROPERTY_HEADER_LEN + UNIT;

/// The longest value of one announced property, in octets.
pub(super) const PROPERTY_MAX: usize = 512;

/// The most CONNPROP messages accepted from one peer.
const MESSAGES_MAX: u32 = 64; // E24

const _: () = {
    // Each message has room for any property, and for host authentication beside it.
    assert!(
        HEADER_LEN + PROPERTY_HEADER_LEN + HOST_AUTH_HEADER_LEN + PROPERTY_MAX <= FIRST_MESSAGE_MAX
    );
};

#[cfg(test)]
mod tests;
