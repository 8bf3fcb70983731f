//! The round-trip extensions on a connection that offers them.

use alloc::boxed::Box;

use super::{Connection, ControlBody, Event, Role};
use crate::rtrext::extension::{
    Config as ExtensionConfig, Event as Extends, Extension, Refusal, RefusalAnswer,
};
use crate::rtrext::properties::{Heard, Offer};
use crate::rtrext::report::MessageType;
use crate::rtrext::{Malformed, REPTERR, header_name};
use crate::v2::VERSION;
use crate::v2::continuation::Kind;
use crate::v2::error::ErrorBody;
use crate::v2::header::{Extended, Prefix};
use crate::v2::properties::PropertySet;
use crate::v2::reverse::Level;

impl Connection {
    /// Offers the round-trip extensions to the peer, and accepts responses of at most `responses_max` transmissions.
    /// Call it before [`Input::Established`](super::Input::Established).
    ///
    /// The segments of `offer.structure` must be those of every Receive posted for the peer.
    pub fn extend(&mut self, offer: Offer, responses_max: u32) {
        for (which, data) in offer.entries() {
            let fits = self.announce(which, &data);
            debug_assert!(fits, "no property of an offer is long");
        }
        let config = ExtensionConfig { offer, responses_max, chunks: self.config.chunks };
        self.extension = Some(Box::new(Extension::new(config)));
    }

    /// Returns the state of the round-trip extensions, if this end offers them: the agreed terms and the last complete
    /// message.
    pub fn extension(&self) -> Option<&Extension> {
        self.extension.as_deref()
    }

    /// Releases the last complete message of the round-trip extensions, once it has been read.
    pub fn release(&mut self) {
        if let Some(extension) = &mut self.extension {
            extension.release();
        }
    }

    /// Returns whether the peer has begun a message in several transmissions, and not ended it.
    pub(super) fn is_grouped(&self) -> bool {
        self.extension().is_some_and(|extension| extension.begun().is_some())
    }

    /// Gives up the message in several transmissions under way. Returns its kind and its XID, if there was one.
    pub(super) fn give_up_group(&mut self) -> Option<(Kind, u32)> {
        let (dir, xid) = self.extension.as_mut()?.give_up()?;
        let kind = match dir {
            MessageType::Call => Kind::Call,
            MessageType::Reply => Kind::Reply,
        };
        Some((kind, xid))
    }

    /// Permits sending a Reply again that the peer reported as bad.
    pub const fn answer_again(&mut self) {
        self.credits.owe(1);
    }

    /// Returns the peer's offer with these properties added to it.
    pub(super) fn heard(&self, set: &PropertySet<'_>) -> Result<Option<Heard>, Malformed> {
        self.extension.as_ref().map(|extension| extension.heard(set)).transpose()
    }

    pub(super) fn heed(&mut self, heard: Option<Heard>) {
        if let Some((extension, heard)) = self.extension.as_mut().zip(heard) {
            extension.heed(heard);
        }
    }

    /// Settles the terms that both offers allow.
    pub(super) fn agree(&mut self) {
        if let Some(extension) = &mut self.extension {
            extension.agree(&self.config.properties, self.setup.theirs());
        }
    }

    /// Refuses a message of the base protocol that arrives between the transmissions of a group, together with the
    /// group. Returns whether it refused them.
    pub(super) fn breaks_group(&mut self, prefix: &Prefix) -> bool {
        let extension = self.extension.as_mut().filter(|_| header_name(prefix.htype).is_none());
        let Some(extension) = extension else { return false };
        let begun = extension.begun();
        let Some(report) = extension.base_message(prefix) else { return false };
        self.control(report.bad.xid, VERSION, ControlBody::Report(report));
        if let Some(xid) = begun {
            self.tell(Event::Abandoned { xid });
        }
        true
    }

    pub(super) fn on_extended(&mut self, message: &Extended<'_>) {
        let Extended { prefix, body } = message;
        let Some(extension) = &mut self.extension else {
            // [V2-7.1.3-1] [RTR-0-1] header types of an extension that we do not offer are unknown. E13: an error is
            // not answered.
            if prefix.htype != REPTERR {
                //~ V2-7.1.3-1: `InvalHtype` -> `System`
                self.report(prefix, ErrorBody::InvalHtype);
            }
            return;
        };
        let begun = extension.begun();
        match extension.receive(prefix, body) {
            Extends::More(sent) => self.tell(Event::Transmission(sent)),
            Extends::Complete => self.on_complete(prefix.xid),
            Extends::Dropped => {}
            Extends::Reported(report) => {
                for (dir, _) in report.messages() {
                    if dir == MessageType::Call {
                        self.gate.on_answered(1);
                    }
                }
                self.tell(Event::Reported(report));
            }
            Extends::Refused(refusal) => {
                let begun =
                    begun.filter(|_| self.extension().is_some_and(|ext| ext.begun().is_none()));
                self.on_refusal(begun, &refusal);
            }
        }
    }

    /// Handles an RPC message whose transmissions have all arrived.
    fn on_complete(&mut self, xid: u32) {
        let dir = self.extension().and_then(Extension::whole).map(|whole| whole.dir);
        if dir == Some(MessageType::Reply) {
            self.gate.on_answered(1);
            return self.tell(Event::Reply);
        }
        let level = Level::of(self.config.properties.reverse);
        if self.config.role == Role::Client && level < Level::General {
            // [V2-4.6.4-2] the client announced less for the reverse direction.
            self.release();
            self.control(xid, VERSION, ControlBody::Error(ErrorBody::InvalHtype));
            return self.tell(Event::Abandoned { xid });
        }
        self.credits.owe(1);
        self.tell(Event::Call);
    }

    fn on_refusal(&mut self, begun: Option<u32>, refusal: &Refusal) {
        let body = match refusal.answer {
            Some(RefusalAnswer::Error(error)) => Some(ControlBody::Error(error)),
            Some(RefusalAnswer::Report(report)) => Some(ControlBody::Report(report)),
            None => None,
        };
        if let Some(body) = body {
            self.control(refusal.xid, VERSION, body);
        }
        if let Some(xid) = begun {
            self.tell(Event::Abandoned { xid });
        }
        if let Some(xid) = refusal.failed_call {
            // E13: a malformed Reply fails the Call here.
            self.fail(xid, ErrorBody::BadXdr);
        }
    }
}
