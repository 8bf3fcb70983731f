//! The extension on one connection: the agreed terms and the group that is arriving.
//!
//! # Normal operation
//! Properties are exchanged during setup, which [`Extension::agree`] ends. From then on every message whose header type
//! belongs to the extension goes to [`Extension::receive`], and every other to [`Extension::base_message`]. When an RPC
//! message is complete, [`Extension::whole`] locates its Payload stream and its items in the transmissions. The caller
//! keeps their Receives until it has read them. It sends the transmissions of a [`Plan`] once it has credits for all of
//! them (E12).
//!
//! # Recovery
//! A refused message has no effect. Its sender can send it again by the base protocol.
//!
//! # Limits
//! The first header of an unfinished group is copied, so at most one Receive's worth of memory is held
//! besides the Receives themselves.

mod alphabet;
mod limits;

use alloc::vec::Vec;

pub use self::alphabet::{Event, Refusal, RefusalAnswer, Whole};

use super::direction::Directions;
use super::group::{First, Group, Other, Part, Received};
use super::header::{Header, Request, Response};
use super::item::Items;
use super::placement::{Fault, Placement};
use super::plan::{Kind, Outgoing, Plan};
use super::properties::{Heard, Offer, Terms};
use super::report::{MessageType, Report};
use super::respond::{Answers, Asked, Prefer, ResultItem, check_directions};
use super::{Malformed, REPTERR, XMTCONT, XMTREQ, XMTRESP};
use crate::chunk::ChunkLimits;
use crate::v2::VERSION;
use crate::v2::error::ErrorBody;
use crate::v2::header::{ERROR, GRANT, Prefix, REPLY_EXTERNAL, REPLY_INLINE, REPLY_MIDDLE};
use crate::v2::properties::{Properties, PropertySet};
use crate::xdr::{Reader, Truncated, Writer};

/// The configuration of the extension, fixed for the lifetime of the connection.
#[derive(Clone, Debug)]
pub struct Config {
    /// The offer of this end.
    pub offer: Offer,
    /// The most transmissions of a response that this end accepts.
    pub responses_max: u32,
    /// The limits on the items to read and the memory to write in a request.
    pub chunks: ChunkLimits,
}

/// The extension on one connection.
#[derive(Debug)]
pub struct Extension {
    config: Config,
    theirs: Heard,
    terms: Option<Terms>,
    group: Group,
    /// The first header of the RPC message received last, without its prefix.
    header: Vec<u8>,
    /// Whether that message is complete.
    complete: bool,
}

impl Extension {
    /// Makes the extension of a connection before its setup.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            theirs: Heard::default(),
            terms: None,
            group: Group::default(),
            header: Vec::new(),
            complete: false,
        }
    }

    /// Returns the peer's offer so far, with the properties of one more message.
    ///
    /// # Errors
    /// If a value has the wrong type: the caller answers with [`ErrorBody::BadPropval`] and ignores all properties of
    /// the message.
    pub fn heard(&self, set: &PropertySet<'_>) -> Result<Heard, Malformed> {
        self.theirs.with(set)
    }

    /// Sets the peer's offer.
    pub const fn heed(&mut self, heard: Heard) {
        self.theirs = heard;
    }

    /// Ends setup, once both ends have sent all their properties, those of the base protocol
    /// included.
    pub fn agree(&mut self, ours: &Properties, theirs: &Properties) {
        let ours = (&self.config.offer, ours);
        //~ RTR-0-1: `self.theirs.buffers_of(theirs.receive_buffer_size)` ->
        //~   `(&self.config.offer, Some(theirs.receive_buffer_size))`
        let theirs = self.theirs.buffers_of(theirs.receive_buffer_size);
        self.terms = Some(Terms::new(ours, theirs, self.config.responses_max));
    }

    /// Receives one message of the extension: its prefix and the octets after it.
    pub fn receive(&mut self, prefix: &Prefix, body: &[u8]) -> Event {
        self.complete = false;
        let Some(terms) = self.terms.filter(|terms| terms.allows(prefix.htype)) else {
            // [V2-7.1.3-1] a header type that was not agreed on counts as unknown.
            let answer = Some(RefusalAnswer::Error(ErrorBody::InvalHtype))
                .filter(|_| prefix.htype != REPTERR);
            return refused("unsupported header type", prefix.xid, answer);
        };
        let length = body.len().saturating_add(Prefix::WIRE_LEN);
        if let Some(dir) = first_dir(prefix.htype).filter(|_| self.group.is_open()) {
            // A message that begins an RPC breaks an open group, whatever the message holds.
            let (count, count_max, pslen) = (1, 1, 0);
            let (xid, htype) = (prefix.xid, prefix.htype);
            let first = First { xid, dir, htype, count, count_max, pslen };
            let received = self.group.first(first, length, 0);
            return self.took(received);
        }
        let header = match Header::decode(prefix, body) {
            Ok(header) => header,
            Err(fault) => return self.malformed(prefix, fault.rule, fault.report),
        };
        let rest = header.rest().len();
        let received = match header {
            Header::Report(report) => return Event::Reported(report),
            Header::Continue(part) => self.group.next(prefix.xid, &part, length),
            Header::Request(Request { count, pslen, rest, .. })
            | Header::Response(Response { count, pslen, rest, .. }) => {
                let dir = first_dir(prefix.htype).unwrap_or(MessageType::Call);
                let count_max = match dir {
                    MessageType::Call => terms.request_receive_max,
                    MessageType::Reply => terms.response_receive_max,
                };
                let (xid, htype) = (prefix.xid, prefix.htype);
                let first = First { xid, dir, htype, count, count_max, pslen };
                let received = self.group.first(first, length, rest.len());
                let taken = matches!(received, Received::More | Received::Complete);
                // [V2-4.6.1-1] [V2-4.6.2-1] E9: the Payload stream begins with the message's XID.
                if taken && Reader::new(rest).u32() != Ok(prefix.xid) {
                    return self.nonsense("rdma_xid is not the XID of the RPC message");
                }
                received
            }
        };
        if first_dir(prefix.htype).is_some() {
            let header = body.get(..body.len().saturating_sub(rest)).unwrap_or_default();
            self.header.clear();
            self.header.extend_from_slice(header);
        }
        self.took(received)
    }

    /// Handles the arrival of a message of the base protocol. If it interrupts a group, returns the report to send; the
    /// message is then dropped as well.
    pub fn base_message(&mut self, prefix: &Prefix) -> Option<Report> {
        let is_reply = matches!(prefix.htype, REPLY_EXTERNAL | REPLY_MIDDLE | REPLY_INLINE);
        let dir = if is_reply { MessageType::Reply } else { MessageType::Call };
        // E12, E13: grants and errors can come at any time.
        let arrived = match prefix.htype {
            GRANT | ERROR => Other::Neutral,
            _ => Other::Base,
        };
        match self.group.other(prefix, dir, arrived) {
            Received::Bad(report) => Some(report),
            _ => None,
        }
    }

    /// Frees the memory of the RPC message received last, once it has been read.
    pub fn release(&mut self) {
        if core::mem::take(&mut self.complete) {
            self.header = Vec::new();
            self.group = Group::default();
        }
    }

    /// Returns the RPC message that the last [`Self::receive`] completed, if it did.
    pub fn whole(&self) -> Option<Whole<'_>> {
        let terms = self.terms.as_ref().filter(|_| self.complete)?;
        let (dp, rsd, rsbuf) = self.lists()?;
        let (xid, dir) = (self.group.xid(), self.group.dir());
        let placement = Placement::checked(dp, self.group.parts(), &terms.ours);
        Some(Whole { xid, dir, rsd, rsbuf, dp, placement })
    }

    /// Returns the place of the Payload stream in the last transmission of the RPC message that the last
    /// [`Self::receive`] completed, if it did.
    pub fn last(&self) -> Option<Part> {
        self.group.parts().last().copied().filter(|_| self.complete)
    }

    /// Returns the XID of the RPC message that is partly received, if there is one.
    pub fn begun(&self) -> Option<u32> {
        self.group.is_open().then(|| self.group.xid())
    }

    /// Gives up the RPC message that is partly received: what still comes of it is dropped. Returns its direction and its
    /// XID, if there is one.
    pub fn give_up(&mut self) -> Option<(MessageType, u32)> {
        let begun = self.group.is_open().then(|| (self.group.dir(), self.group.xid()))?;
        self.group.drop_rest();
        Some(begun)
    }

    /// Returns whether no group is under way, and none was broken whose transmissions may still come: a message of the base
    /// protocol changes nothing here.
    #[inline]
    pub(crate) fn is_between(&self) -> bool {
        self.group.is_idle()
    }

    /// Returns the agreed terms, once setup has ended.
    pub const fn terms(&self) -> Option<&Terms> {
        self.terms.as_ref()
    }

    /// Returns the offer of this end.
    pub const fn offer(&self) -> &Offer {
        &self.config.offer
    }

    /// Plans the response to a request: the placement of each result, and the transmissions. `length` is the length of
    /// its virtual stream in octets. `preferred` counts where a direction leaves the choice. Returns `None` if the peer
    /// accepts responses of the base protocol only.
    ///
    /// # Errors
    /// The error to answer with if the request leaves no room for the response.
    pub fn respond(
        &self,
        asked: &Asked,
        preferred: Prefer,
        (length, results): (u32, &[ResultItem]),
    ) -> Result<Option<(Answers, Plan)>, ErrorBody> {
        // [V2-7.3.5-1] [V2-7.3.5-2]
        let none = ErrorBody::ReplyResource { length_needed: length };
        let Some(terms) = self.terms().filter(|terms| terms.allows(XMTRESP)) else {
            return Ok(None);
        };
        // [RTR-5.2-1] a response has no more transmissions than the request has room for.
        //~ RTR-5.2-1: `saturating_add(1)` -> `saturating_add(2)`
        let count_max = asked.rsbuf.saturating_add(1);
        // [RTR-5.3-6] results go by Send if there are transmissions for all of them, else by RDMA Write.
        //~ RTR-5.3-6: `, Prefer::Write` -> ``
        for prefer in [preferred, Prefer::Write] {
            let answers = Answers::new(&asked.directions.get(), results, prefer)?;
            let payload = u64::from(length).checked_sub(answers.excised()).ok_or(none)?;
            let message = Outgoing {
                kind: Kind::Response { count_max },
                payload_length: usize::try_from(payload).map_err(|_| none)?,
                items: &answers.items,
            };
            if let Ok(plan) = Plan::new(terms, &message) {
                return Ok(Some((answers, plan)));
            }
        }
        Err(none)
    }

    fn took(&mut self, received: Received) -> Event {
        match received {
            Received::More => self.group.last().map_or(Event::Dropped, Event::More),
            Received::Complete => self.completed(),
            Received::Pass | Received::Dropped => Event::Dropped,
            Received::Bad(report) => reported(report),
        }
    }

    /// Checks an RPC message whose last transmission has arrived.
    fn completed(&mut self) -> Event {
        match self.judge() {
            Ok(()) => {
                self.complete = true;
                Event::Complete
            }
            Err(Wrong::Placement(Fault::Report(info))) => reported(self.group.refuse(info)),
            Err(Wrong::Placement(Fault::Rule(rule))) => self.nonsense(rule),
            Err(Wrong::Limit(error)) => {
                self.group.drop_rest();
                refused(
                    "more chunks than are taken",
                    self.group.xid(),
                    Some(RefusalAnswer::Error(error)),
                )
            }
        }
    }

    fn judge(&self) -> Result<(), Wrong> {
        let rule = Wrong::Placement(Fault::Rule("no group"));
        let terms = self.terms.as_ref().ok_or(rule)?;
        let (dp, rsd, _) = self.lists().ok_or(rule)?;
        // [RTR-7.4-6]
        //~ RTR-7.4-6: `check_directions(&rsd)` -> `Ok::<(), super::report::ReportInfo>(())`
        check_directions(&rsd).map_err(|info| Wrong::Placement(Fault::Report(info)))?;
        Placement::new(dp, self.group.dir(), self.group.parts(), &terms.ours)
            .map_err(Wrong::Placement)?;
        if self.group.dir() == MessageType::Call {
            limits::check(&self.config.chunks, terms, &dp, &rsd).map_err(Wrong::Limit)?;
        }
        Ok(())
    }

    /// Refuses a message that does not match the XDR.
    fn malformed(
        &mut self,
        prefix: &Prefix,
        rule: &'static str,
        report: Option<ErrorBody>,
    ) -> Event {
        // E13: a fault in the continuation of a Reply fails our Call, and the peer is not told.
        let of_reply = prefix.htype == XMTRESP
            || (prefix.htype == XMTCONT
                && self.group.is_open()
                && self.group.dir() == MessageType::Reply);
        if prefix.htype != REPTERR {
            self.group.drop_rest();
        }
        let answer = report.filter(|_| !of_reply).map(RefusalAnswer::Error);
        let failed_call = of_reply.then_some(prefix.xid);
        Event::Refused(Refusal { rule, xid: prefix.xid, answer, failed_call })
    }

    /// Refuses an RPC message that contradicts itself and for which the draft has no error, as if its XDR were wrong
    /// (E15).
    fn nonsense(&mut self, rule: &'static str) -> Event {
        self.group.drop_rest();
        let xid = self.group.xid();
        // [V2-7.2.1-1]; E13: a Reply fails its Call here.
        let is_reply = self.group.dir() == MessageType::Reply;
        let answer = (!is_reply).then_some(RefusalAnswer::Error(ErrorBody::BadXdr));
        Event::Refused(Refusal { rule, xid, answer, failed_call: is_reply.then_some(xid) })
    }

    /// Returns the items, the directions and the `rsbuf` in the first header of the RPC message
    /// received last.
    fn lists(&self) -> Option<(Items<'_>, Directions<'_>, u32)> {
        let htype = match self.group.dir() {
            MessageType::Call => XMTREQ,
            MessageType::Reply => XMTRESP,
        };
        let prefix = Prefix { xid: self.group.xid(), vers: VERSION, credit: 0, htype };
        match Header::decode(&prefix, &self.header).ok()? {
            Header::Request(request) => Some((request.dp, request.rsd, request.rsbuf)),
            Header::Response(response) => Some((response.dp, Directions::default(), 0)),
            _ => None,
        }
    }
}

/// Appends an `ROPT_REPTERR`.
pub fn encode_report(w: &mut Writer<'_>, credit: u32, report: &Report) -> Result<(), Truncated> {
    // [V2-7-2] the prefix of a report has the XID of the message that the report is about.
    Prefix { xid: report.bad.xid, vers: VERSION, credit, htype: REPTERR }.encode(w)?;
    report.encode(w)
}

/// Why a complete RPC message is refused.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Placement(Fault),
    Limit(ErrorBody),
}

/// Returns the direction of an RPC message, by the header type of its first transmission.
const fn first_dir(htype: u32) -> Option<MessageType> {
    match htype {
        XMTREQ => Some(MessageType::Call),
        XMTRESP => Some(MessageType::Reply),
        _ => None,
    }
}

const fn refused(rule: &'static str, xid: u32, answer: Option<RefusalAnswer>) -> Event {
    Event::Refused(Refusal { rule, xid, answer, failed_call: None })
}

/// Returns the event of a report. [RTR-5.4-1] A report goes to the end that sent the message, also if that is a
/// Reply: only that end can send it again.
const fn reported(report: Report) -> Event {
    //~ RTR-5.4-1: `Some(RefusalAnswer::Report(report))` -> `None`
    refused(report.info.name(), report.bad.xid, Some(RefusalAnswer::Report(report)))
}

#[cfg(test)]
mod tests;
