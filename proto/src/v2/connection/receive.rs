//! The handling of a connection's inputs.

use super::config::CallChunks;
use super::{CloseReason, Connection, ControlBody, Event, Output, Phase, Role};
use crate::chunk::Format;
use crate::time::Instant;
use crate::v2::VERSION;
use crate::v2::continuation::{Kind, Step};
use crate::v2::credit::Arrived;
use crate::v2::error::ErrorBody;
use crate::v2::header::{CONNPROP_FINAL, CONNPROP_MIDDLE, ConnProp, HeaderFault, Message, Prefix};
use crate::v2::properties::ConnPropKind;
use crate::v2::reverse::Level;
use crate::v2::setup::{Event as SetupEvent, SetupAction};

impl Connection {
    pub(super) fn on_established(&mut self, now: Instant) {
        self.phase = Phase::Setup;
        self.deadline = Some(now.saturating_add(self.config.setup_timeout));
        let answer = self.setup.on_event(SetupEvent::Start);
        self.answer(answer);
    }

    pub(super) fn on_message(&mut self, message: &Message<'_>) {
        //~ V2-7.1.1-3: `*message` -> `*message && self.phase == Phase::Setup`
        if let Message::Error { error: ErrorBody::Vers { low, high }, .. } = *message {
            // P6: the credit word of this error is not version 2's. [V2-7.1.1-3] a version the peer does not speak is
            // not used again.
            let _ = self.credits.on_ignored(Arrived::Other);
            return self.close(CloseReason::Unsupported { low, high });
        }
        let arrived = match message {
            Message::Grant { .. } => Arrived::Grant,
            _ => Arrived::Other,
        };
        if let Err(fault) = self.credits.on_received(message.prefix().credit, arrived) {
            return self.close(fault.into());
        }
        // [V2-4.3.3-1] [V2-4.6.1-2] [V2-4.6.2-2] from here on all messages of both directions have version 2.
        //~ V2-7.1.2-1: `true` -> `self.config.role == Role::Server`
        self.is_version_settled = true;
        match message {
            Message::Grant { .. } => self.on_grant(),
            Message::Error { prefix, error } => self.on_error(prefix.xid, *error),
            _ => self.on_sequenced(message),
        }
    }

    fn on_grant(&mut self) {
        if !self.setup.is_over() {
            let answer = self.setup.on_event(SetupEvent::Grant);
            self.answer(answer);
            self.opened_without_properties();
        }
    }

    fn on_error(&mut self, xid: u32, error: ErrorBody) {
        match (error, self.phase) {
            // [V2-7.1.2-3] we have no other version to go on with.
            //~ V2-7.1.2-3: `VersMismatch, _` -> `VersMismatch, Phase::Setup`
            //~ V2-7.1.2-3: `_) =>` -> `_) if self.config.role == Role::Client =>`
            (ErrorBody::VersMismatch, _) => self.close(CloseReason::VersionRefused),
            (_, Phase::Setup) => self.close(CloseReason::SetupRefused),
            _ => {
                // If a continued Reply to the Call had begun, its remaining messages do not come.
                self.incoming.refuse(Kind::Reply, xid);
                if error == ErrorBody::InvalHtype {
                    // [V2-7.1.3-3] the caller knows the header type that the peer does not support.
                    self.tell(Event::NotSupported { xid });
                }
                // [V2-7.3.1-4] [V2-7.3.2-2] [V2-7.3.3-2] [V2-7.3.4-4] [V2-7.3.5-3] [V2-7.4.1-3] the Call
                // ends; nothing is sent again here.
                //~ V2-7.3.1-4: `` -> `if matches!(error, ErrorBody::ReadChunks { .. }) { return; }`
                //~ V2-7.3.2-2: `` -> `if matches!(error, ErrorBody::WriteChunks { .. }) { return; }`
                //~ V2-7.3.3-2: `` -> `if matches!(error, ErrorBody::Segments { .. }) { return; }`
                //~ V2-7.3.4-4: `` -> `if matches!(error, ErrorBody::WriteResource { .. }) { return; }`
                //~ V2-7.3.5-3: `` -> `if matches!(error, ErrorBody::ReplyResource { .. }) { return; }`
                //~ V2-7.4.1-3: `` -> `if error == ErrorBody::System { return; }`
                self.fail(xid, error);
            }
        }
    }

    /// Handles a message whose meaning depends on the messages before it.
    fn on_sequenced(&mut self, message: &Message<'_>) {
        let prefix = message.prefix();
        if self.breaks_group(prefix) {
            return;
        }
        let begun = self.incoming.current();
        let step = self.incoming.on_message(message);
        match (message, step) {
            (_, Step::Dropped) => return,
            (_, Step::Intruder) => return self.on_out_of_place(prefix),
            (Message::ConnProp(properties), _) => return self.on_properties(properties),
            _ => {}
        }
        if self.setup.on_event(SetupEvent::Other) == SetupAction::OutOfPlace {
            // A continued message that begins out of place is refused once: the parts that follow are dropped.
            if let Some((kind, xid)) = self.incoming.current() {
                self.incoming.refuse(kind, xid);
            }
            //~ V2-6.3.3-1: `on_out_of_place(prefix)` -> `report(prefix, ErrorBody::InvalHtype)`
            return self.on_out_of_place(prefix);
        }
        if self.setup.is_required() && !self.setup.is_over() {
            // P9: nothing passes before the peer has proved who it is.
            return self.close(CloseReason::Unauthenticated);
        }
        if let Step::Broken(error) = step {
            return self.on_broken(begun, prefix, error);
        }
        if let Message::Extended(extended) = message {
            return self.on_extended(extended);
        }
        match step {
            Step::Part(part) => self.tell(Event::Part(part)),
            Step::Last(part) => match self.serves(message) {
                Ok(()) => {
                    self.tell(Event::Part(part));
                    self.on_whole(prefix);
                }
                Err(error) => self.on_broken(begun, prefix, error),
            },
            _ => match self.serves_whole(message) {
                Ok(()) => self.on_whole(prefix),
                //~ V2-7.2.1-2: `` -> `Err(error @ ErrorBody::BadXdr) if Kind::of(prefix) == Some(Kind::Call) => {
                //~     self.on_broken(None, prefix, error); self.on_whole(prefix);
                //~   }`
                //~ V2-7.3.1-3: `` -> `Err(error @ ErrorBody::ReadChunks { .. }) => {
                //~     self.on_broken(None, prefix, error); self.on_whole(prefix);
                //~   }`
                //~ V2-7.4.1-2: `` -> `Err(error @ ErrorBody::System) => {
                //~     self.on_broken(None, prefix, error); self.on_whole(prefix);
                //~   }`
                Err(error) => self.on_broken(None, prefix, error),
            },
        }
    }

    fn on_properties(&mut self, properties: &ConnProp<'_>) {
        let ConnProp { prefix, kind, set } = properties;
        let heard = self.heard(set).ok().filter(|_| set.properties().allow_refusals());
        let Some(heard) = heard else {
            // [V2-5.1-1] [V2-7.2.2-1]
            //~ V2-7.2.2-2: `` -> `let _ = self.setup.on_properties(*kind, set);`
            //~ V2-7.2.2-1: `BadPropval` -> `BadXdr`
            return self.report(prefix, ErrorBody::BadPropval);
        };
        match self.setup.on_properties(*kind, set) {
            //~ V2-6.3.4-1: `InvalCont` -> `BadXdr`
            Ok(SetupAction::OutOfPlace) => self.report(prefix, ErrorBody::InvalCont),
            Ok(answer) => {
                self.heed(heard);
                if self.config.role == Role::Server {
                    self.setup_xid = prefix.xid;
                }
                self.answer(answer);
            }
            Err(fault) => self.close(fault.into()),
        }
    }

    /// Carries out the answer of setup, and opens the connection once setup is over.
    fn answer(&mut self, answer: SetupAction) {
        match answer {
            SetupAction::Speak => match self.setup.speak() {
                // [V2-4.3.3-1] properties go in the version that the client spoke, like all later messages, and
                // [V2-4.3.3-2] that version stays.
                Ok(kind) => {
                    let last = kind == ConnPropKind::Final;
                    //~ V2-4.3-1: `ControlBody::Properties { last });` ->
                    //~   `ControlBody::Properties { last }); self.control(0, VERSION, ControlBody::Grant);`
                    //~ V2-4.3.3-1: `VERSION` -> `if self.config.role == Role::Server { 1 } else { VERSION }`
                    self.control(self.setup_xid, VERSION, ControlBody::Properties { last });
                }
                Err(fault) => return self.close(fault.into()),
            },
            // E12: the grant carries the credit that a MIDDLE of ours would have.
            SetupAction::Grant => self.control(0, VERSION, ControlBody::Grant),
            SetupAction::Nothing | SetupAction::OutOfPlace => {}
        }
        self.open_if_over();
    }

    /// Opens the connection if setup is over and this end's properties have left: [V2-6.3.3-1] no other message may come between
    /// them.
    pub(super) fn open_if_over(&mut self) {
        let says = |(_, _, body): &_| matches!(body, ControlBody::Properties { .. });
        //~ V2-6.3.3-1: `!self.controls.iter().any(says)` -> `(true || self.controls.iter().any(says))`
        if self.setup.is_over() && !self.controls.iter().any(says) {
            self.opened();
        }
    }

    /// Handles a complete RPC message.
    pub(super) fn on_whole(&mut self, prefix: &Prefix) {
        // [V2-3.1.5.4-1] the XID does not tell the direction, because it may be in use in both.
        //~ V2-3.1.5.4-1: `Some(Kind::Reply)` -> `Some(Kind::Reply) && prefix.xid != self.setup_xid` together
        if Kind::of(prefix) == Some(Kind::Reply) {
            self.gate.on_answered(1);
            return self.tell(Event::Reply);
        }
        //~ V2-3.1.5.4-1: `` -> `self.setup_xid = prefix.xid;` together
        self.opened_without_properties();
        self.credits.owe(1);
        self.tell(Event::Call);
    }

    /// Checks a message that is not part of a continued one.
    pub(super) fn serves_whole(&self, message: &Message<'_>) -> Result<(), ErrorBody> {
        //~ V2-7.2.1-1: `BadXdr` -> `InvalHtype`
        message.check_start(0).map_err(|_| ErrorBody::BadXdr)?;
        self.serves(message)
    }

    /// Checks that a Call in this direction and with these chunks is served; returns the error to answer with if it is
    /// not.
    fn serves(&self, message: &Message<'_>) -> Result<(), ErrorBody> {
        let chunks = match message {
            Message::CallExternal(call) => CallChunks::of_external(call),
            Message::CallInline(call) => CallChunks::of_inline(call),
            _ => return Ok(()),
        };
        let level = match self.config.role {
            Role::Server => Level::General,
            Role::Client => Level::of(self.config.properties.reverse),
        };
        //~ V2-4.6.4-1: `Level::General` -> `Level::Simple`
        //~ V2-4.6.4-2: `level < Level::General` -> `level < Level::General && level.allows(Format::Simple)`
        if level < Level::General {
            self.config.check_chunkless(&chunks)?;
        }
        if !level.allows(Format::Simple) {
            // A direction that was not announced has no header types.
            return Err(ErrorBody::InvalHtype);
        }
        // [V2-7.3.1-3] a Call beyond these limits is refused without an event.
        self.config.check(&chunks)
    }

    pub(super) fn on_fault(&mut self, fault: &HeaderFault) {
        // A Receive was used up whatever it held; its credit word counts if it is version 2's.
        let counted = match fault.credit {
            Some(credit) => self.credits.on_received(credit, Arrived::Other),
            None => self.credits.on_ignored(Arrived::Other),
        };
        match counted {
            Ok(()) => self.on_malformed(fault),
            Err(fault) => self.close(fault.into()),
        }
    }

    /// Handles a malformed message: [V2-7.1.1-2] [V2-7.1.2-2] [V2-7.1.3-2] [V2-7.2.1-2] [V2-7.2.2-2] its only effect is
    /// an answer.
    fn on_malformed(&mut self, fault: &HeaderFault) {
        //~ V2-7-1: `return` -> `return self.control(0, VERSION, ControlBody::Error(ErrorBody::BadXdr))`
        let Some(prefix) = &fault.prefix else { return };
        if prefix.vers == VERSION && self.breaks_group(prefix) {
            return;
        }
        let begun = self.incoming.current();
        match (self.incoming.on_malformed(prefix), fault.report) {
            (Step::Dropped, _) => {}
            //~ V2-6.3.6-2: `self.on_out_of_place(prefix)` -> `self.report(prefix, ErrorBody::BadXdr)`
            (Step::Intruder, _) => self.on_out_of_place(prefix),
            //~ V2-7.1.4-1: `prefix, error` -> `prefix, fault.report.unwrap_or(error)`
            (Step::Broken(error), _) => self.on_broken(begun, prefix, error),
            //~ V2-7.1.1-1: `self.is_version_settled` -> `self.is_version_settled || self.phase == Phase::Setup`
            (_, Some(ErrorBody::Vers { .. })) if self.is_version_settled => {
                // [V2-7.1.2-1] the message has another version than the one settled on.
                //~ V2-7.1.2-1: `VersMismatch` -> `Vers { low: VERSION, high: VERSION }`
                self.report(prefix, ErrorBody::VersMismatch);
            }
            (_, Some(error)) => {
                let is_properties = matches!(prefix.htype, CONNPROP_MIDDLE | CONNPROP_FINAL);
                let is_other = prefix.vers == VERSION && !is_properties;
                if is_other && self.setup.on_event(SetupEvent::Other) == SetupAction::OutOfPlace {
                    //~ V2-6.3.3-1: `on_out_of_place(prefix)` -> `report(prefix, error)`
                    return self.on_out_of_place(prefix);
                }
                self.report(prefix, error);
            }
            (_, None) => {
                if let Some(xid) = fault.failed_call() {
                    // E13: a malformed Reply fails the Call here; the peer is not told.
                    self.fail(xid, ErrorBody::BadXdr);
                }
            }
        }
    }

    /// Refuses a message that must not follow the one before it.
    fn on_out_of_place(&mut self, prefix: &Prefix) {
        // [V2-6.3.3-1] [V2-6.3.6-2] [V2-6.3.9-2]
        self.report(prefix, ErrorBody::InvalCont);
        if Kind::of(prefix) == Some(Kind::Reply) {
            self.fail(prefix.xid, ErrorBody::InvalCont);
        }
    }

    /// Refuses an RPC message, and the continued message `begun` before it.
    fn on_broken(&mut self, begun: Option<(Kind, u32)>, prefix: &Prefix, error: ErrorBody) {
        if let Some((Kind::Call, xid)) = begun {
            self.tell(Event::Abandoned { xid });
        }
        match Kind::of(prefix) {
            // E13: a Responder does not wait to hear of a bad Reply.
            Some(Kind::Reply) => self.fail(prefix.xid, error),
            _ => self.report(prefix, error),
        }
    }

    pub(super) fn report(&mut self, prefix: &Prefix, error: ErrorBody) {
        self.control(prefix.xid, prefix.vers, ControlBody::Error(error));
    }

    /// Ends a Call of this end without a Reply.
    pub(super) fn fail(&mut self, xid: u32, error: ErrorBody) {
        self.gate.on_answered(1);
        self.tell(Event::Refused { xid, error });
    }

    pub(super) fn on_deadline(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.close(CloseReason::SetupTimedOut);
            return;
        }
        // What was allowed since the last input counts.
        self.watch(now);
        if self.phase == Phase::Open && self.gate.has_stalled(now) {
            // The peer gives no more, so the caller's next question is decided by the credits in hand alone.
            self.credits.forget_window();
            self.gate.restart();
        }
    }

    /// Opens a server's connection to a client that begins without its properties, if that is
    /// allowed.
    fn opened_without_properties(&mut self) {
        let may = self.config.role == Role::Server && !self.setup.is_required();
        if self.phase == Phase::Setup && may && !self.setup.has_begun() {
            self.opened();
        }
    }

    /// Opens the connection, or reports properties that arrived late.
    fn opened(&mut self) {
        if self.phase != Phase::Closed {
            self.phase = Phase::Open;
            self.deadline = None;
            self.agree();
            // [V2-4.2.2-1] properties that the peer did not send have their defaults.
            self.tell(Event::Ready(*self.setup.theirs()));
        }
    }

    /// Reports an event to the application, unless the connection was closed meanwhile.
    pub(super) fn tell(&mut self, event: Event) {
        if self.phase != Phase::Closed {
            self.outputs.push(Output::Event(event));
        }
    }
}
