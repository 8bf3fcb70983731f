//! The connection of an end, of either version, and the state that both its roles share.

use haulage_proto::chunk::Version;
use haulage_proto::exchange::Format;
use haulage_proto::negotiate::{Class, Connection, Control, Engine, Input, Refusal};
use haulage_proto::time::Instant;
use haulage_proto::v1::private_data::Agreement;
use haulage_proto::v2::connection::{Role, Sending, Unsent};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::v2::error::ErrorBody;
use haulage_proto::v2::reverse::Level;
use haulage_proto::verbs::{Handle, Operation};
use haulage_proto::xdr::Writer;

use super::super::fabric::QueuePair;
use super::super::ledger::Ledger;
use super::super::memory::{BlockId, Part};
use super::super::settings::Settings;
use super::Tag;

/// A connection, and the settings of its end.
#[derive(Debug)]
pub struct Line {
    /// The connection under test.
    pub engine: Connection,
    /// The settings of this end.
    pub settings: Settings,
    /// The version 1 terms that both ends agreed upon in private data.
    pub agreed: Agreement,
    /// A second count of credits.
    pub ledger: Ledger,
    /// Whether the connection is ready for Calls.
    pub is_ready: bool,
    /// Whether the peer may refuse a Call whose expectations are high enough.
    pub may_refuse: bool,
    /// Level of the client's reverse service, which a version 1 server learns from its ULP.
    pub reverse_one: Level,
    /// Whether something happened since the connection was last told that nothing more happens for
    /// now.
    pub(super) restless: bool,
    /// Whether a Call, and whether a Reply, waits until something changes.
    pub(super) blocked: [bool; 2],
}

impl Line {
    pub(super) fn handle(&mut self, now: Instant, input: Input<'_>) {
        self.engine.handle(now, input);
        self.blocked = [false; 2];
        self.restless = true;
    }

    /// Returns the version in use.
    pub(super) fn version(&self) -> Version {
        match self.engine.engine() {
            Engine::One(_) => Version::One,
            Engine::Two(_) => Version::Two,
        }
    }

    /// Returns the level at which the peer serves this end's Calls.
    pub(super) fn level(&self) -> Level {
        match (self.settings.role, self.engine.engine()) {
            (Role::Client, _) => Level::General,
            (Role::Server, Engine::One(_)) => self.reverse_one,
            (Role::Server, Engine::Two(two)) => Level::of(two.peer_properties().reverse),
        }
    }

    /// Returns whether Calls may be made.
    pub fn may_call(&self) -> bool {
        self.is_ready && self.level() > Level::None
    }

    /// Asks the connection for credit to post an RPC message.
    pub(super) fn try_post(&mut self, sending: &Sending) -> Result<u32, Unsent> {
        let class = match sending.kind {
            Kind::Call => Class::Call,
            Kind::Reply => Class::Reply,
        };
        let posted = match self.engine.engine_mut() {
            Engine::Two(two) => two.try_post(sending),
            Engine::One(one) => {
                assert!(!matches!(sending.format, Format::Continued { .. }));
                one.try_send(class).ok_or(Unsent::Wait)
            }
        };
        match posted {
            Err(Unsent::Wait) => self.blocked[sending.kind as usize] = true,
            // A message that is sent, or never will be, makes way for others.
            _ => self.blocked = [false; 2],
        }
        posted
    }

    /// Posts a message.
    pub(super) fn send(
        &mut self,
        queue: &mut QueuePair<Tag>,
        bytes: Vec<u8>,
        invalidate: Option<Handle>,
        tag: impl FnOnce(BlockId) -> Tag,
    ) {
        self.ledger.on_sent(&bytes);
        self.restless = true;
        let range = 0..bytes.len();
        let block = queue.memory.lease(bytes);
        let source = Part { block, range };
        queue.post(tag(block), Operation::Send { source, invalidate });
    }

    pub(super) fn send_control(&mut self, queue: &mut QueuePair<Tag>, control: &Control) {
        let bytes = encoded(CONTROL_MAX, |w| self.engine.encode(control, w));
        self.send(queue, bytes, None, Tag::Message);
    }

    /// Reserves more Receives for the peer.
    pub(super) fn reserve(&mut self, count: u32) {
        self.engine.reserve(count);
        self.blocked = [false; 2];
        self.restless = true;
    }

    /// Refuses a Call with an error.
    pub(super) fn refuse(&mut self, xid: u32, error: ErrorBody) {
        self.engine.refuse(xid, error);
        self.blocked = [false; 2];
    }

    /// Tells the connection that a Call gets no Reply.
    pub(super) fn no_reply(&mut self) {
        self.blocked = [false; 2];
        match self.engine.engine_mut() {
            Engine::Two(two) => two.no_reply(),
            Engine::One(_) => panic!("version 1 has a Reply to every Call"),
        }
    }

    /// Tells the connection that an XID was refused under which a Reply may be on its way.
    pub(super) fn refused_both_ways(&mut self, refusal: Refusal) {
        if let (Engine::Two(two), Refusal::Two(error)) = (self.engine.engine_mut(), refusal) {
            two.refused_both_ways(error);
        }
    }
}

/// Returns a refusal as an error of version 2. All refusals of version 1 map to one.
pub(super) const fn in_two(refusal: Refusal) -> ErrorBody {
    match refusal {
        Refusal::Two(error) => error,
        Refusal::One(_) => ErrorBody::System,
    }
}

/// Encodes a message of at most `most` octets.
pub(super) fn encoded<E: std::fmt::Debug>(
    most: usize,
    encode: impl FnOnce(&mut Writer<'_>) -> Result<(), E>,
) -> Vec<u8> {
    let mut bytes = vec![0; most];
    let mut w = Writer::new(&mut bytes);
    encode(&mut w).expect("it fits");
    let length = w.position();
    bytes.truncate(length);
    bytes
}

pub(super) const fn messages(format: Format) -> u32 {
    match format {
        Format::Continued { messages } => messages,
        Format::Simple | Format::Special => 1,
    }
}

/// Length of the largest control message.
const CONTROL_MAX: usize = 4096;
