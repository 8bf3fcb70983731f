//! One connection as a core sees it. Each group of its state is an object of its own, in a file of its own, and nobody else
//! changes the fields of the group.

mod attempt;
mod continued;
mod credits;
mod held;
mod life;
mod outbox;
mod proof;
mod session;

use std::net::SocketAddr;
use std::time::Duration;

use haulage_proto::negotiate::{
    CloseReason, Connection as Engine, Engine as Spoken, Remembered, SingleChunks,
};
use haulage_proto::time::Instant;
use haulage_proto::v1::private_data::{Agreement, PrivateData};
use haulage_proto::v2::connection::Role;
use haulage_proto::verbs::QpNum;

pub(crate) use self::attempt::Attempt;
pub(crate) use self::continued::Brought;
use self::continued::Continued;
use self::credits::Credits;
use self::held::HeldReplies;
pub(crate) use self::life::{Change, End, Life};
use self::outbox::Outbox;
pub(crate) use self::proof::Proof;
pub(crate) use self::session::{Directions, Session, Terms};
use super::memory::Share;
use super::receives::{Part, Receives};
use super::trace::{Agreed, Subject};
use crate::hosts::HostRefusal;
use crate::key::ConnectionKey;
use crate::limits::{CallsGo, our_private_data};
use crate::provider::{PeerUser, Promises, Provider};
use crate::service::{CallError, ConnectionId, Peer};

/// A connection of this core, in either role.
#[derive(Debug)]
pub(crate) struct Connection {
    link: Link,
    /// The user at the other end, if the service of a server asked for it.
    user: PeerUser,
    pub(crate) life: Life,
    pub(crate) attempt: Attempt,
    pub(crate) session: Session,
    pub(crate) proof: Proof,
    /// The protocol engine: the credits of both ends, and the messages that it wants to send.
    pub(crate) engine: Engine,
    /// The continued message of the peer that is under way.
    pub(crate) continued: Continued,
    credits: Credits,
    /// The Replies that the peer reads.
    pub(crate) held: HeldReplies,
    pub(crate) outbox: Outbox,
    /// The memory that its Calls hold and wait for.
    pub(crate) share: Share,
}

/// The ends of a new connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) qp: QpNum,
    /// Our role.
    pub(crate) role: Role,
    /// The address of the other end.
    pub(crate) peer: SocketAddr,
}

impl Connection {
    /// Makes the entry of a connection whose transport setup is under way.
    pub(crate) fn new(
        link: Link,
        engine: Engine,
        (part, share): (Part, Share),
        session: Session,
        proof: Proof,
    ) -> Self {
        Self {
            link,
            user: PeerUser::Unknown,
            life: Life::new(),
            attempt: Attempt::default(),
            session,
            proof,
            engine,
            continued: Continued::default(),
            credits: Credits::new(part),
            held: HeldReplies::default(),
            outbox: Outbox::default(),
            share,
        }
    }

    /// Begins anew on another queue pair with another engine. The Calls that wait stay. The Receives of the old queue pair
    /// go back, and the minimum is taken; returns `None`, and changes nothing, if there are too few.
    pub(crate) fn renew(
        &mut self,
        qp: QpNum,
        engine: Engine,
        agreed: Agreement,
        receives: &mut Receives,
    ) -> Option<()> {
        self.credits = self.credits.renew(&self.engine, receives, self.link.role)?;
        self.link.qp = qp;
        self.life.change(Change::Anew);
        self.session.renew(engine.engine(), self.link.role, agreed);
        self.engine = engine;
        self.continued = Continued::default();
        self.outbox.renew();
        Some(())
    }

    /// Returns the number of the queue pair.
    #[inline]
    pub(crate) const fn qp(&self) -> QpNum {
        self.link.qp
    }

    /// Returns our role.
    pub(crate) const fn role(&self) -> Role {
        self.link.role
    }

    /// Returns the address of the other end.
    pub(crate) const fn peer(&self) -> SocketAddr {
        self.link.peer
    }

    /// Returns the user at the other end, if it is known.
    pub(crate) const fn user(&self) -> PeerUser {
        self.user
    }

    /// Notes the user at the other end.
    pub(crate) const fn identify(&mut self, user: PeerUser) {
        self.user = user;
    }

    /// Reserves Receives for the peer: replaces those that it used, and adds some if it is busy. `leaving` Replies are
    /// about to be sent, if credit allows; `touched` connections have work this turn.
    #[inline]
    pub(crate) fn replenish(&mut self, receives: &mut Receives, leaving: usize, touched: usize) {
        // A connection that is to close is given no new credits.
        if self.life.is_up() {
            self.credits.replenish(&mut self.engine, receives, leaving, touched);
        }
    }

    /// Grants the peer credits to replace those that the `messages` of a run used; our next message advertises them.
    /// `leaving` Replies are about to be sent, and `touched` connections have work this turn.
    #[inline(always)]
    pub(crate) fn give_credits(
        &mut self,
        receives: &mut Receives,
        touched: usize,
        messages: usize,
        leaving: usize,
    ) {
        // For the only message of a turn the grant can wait until the turn ends; the answer to the message cannot.
        if messages > 1 || self.outbox.is_marked() || self.engine.reserved() < PLENTY {
            self.replenish(receives, leaving, touched);
        }
    }

    /// Tells the provider how many Receives are reserved for the peer, before the peer learns of them.
    #[inline]
    pub(crate) fn provide<P: Provider>(&mut self, provider: &mut P) {
        self.credits.provide(provider, self.link.qp);
    }

    /// Returns the Receives of a connection that is over.
    pub(crate) fn release(&self, receives: &mut Receives) {
        self.credits.release(&self.engine, receives);
    }

    /// Returns whether anything waits to be sent, or has waited.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.outbox.has_waiting() || !self.engine.is_at_rest()
    }

    /// Takes in the private data that a server sent when it accepted. `promises` are those of our provider. The ends
    /// prove which hosts they are from now on, if they do.
    ///
    /// # Errors
    /// Host authentication cannot begin.
    pub(crate) fn heard(
        &mut self,
        private_data: &[u8],
        promises: &Promises,
    ) -> Result<(), CallError> {
        let (ours, _) = our_private_data(self.link.role, promises);
        let server = match self.link.role {
            Role::Client => PrivateData::find(private_data),
            Role::Server => Some(ours),
        };
        if self.link.role == Role::Client {
            //~ R8797-1-1: `PrivateData::find(private_data)` -> `Some(PrivateData::find(private_data).unwrap_or(ours))`
            //~ R8797-4-1: `PrivateData::find(private_data)` -> `{
            //~     use std::{cell::RefCell, collections::HashMap};
            //~     thread_local! {
            //~       static SAID: RefCell<HashMap<SocketAddr, Option<PrivateData>>> = RefCell::default();
            //~     }
            //~     SAID.with_borrow_mut(|said| *said.entry(self.link.peer)
            //~       .or_insert_with(|| PrivateData::find(private_data)))
            //~   }`
            self.session.agree(Agreement::new(Some(ours), PrivateData::find(private_data)));
        }
        self.proof.begin(&mut self.engine, server)
    }

    /// Returns whether the server has not spoken, and is taken to speak version 1 alone.
    pub(crate) fn is_unanswered(&self) -> bool {
        let is_unsettled = self.life.is_negotiating() && self.engine.version().is_none();
        is_unsettled && self.engine.remembered() == Remembered::OnlyVersionOne
    }

    /// Begins to watch a server that may not know version 2, and was sent our properties `now`.
    pub(crate) fn watch(&mut self, now: Instant, setup_timeout: Duration) {
        if self.is_unanswered() {
            self.attempt.watch(now, setup_timeout);
        }
    }

    /// Gives the queue pair up, and has the connection begin anew, if the server has not spoken and this was the first
    /// attempt. Returns whether that is so.
    pub(crate) fn give_up(&mut self) -> bool {
        let begins_anew = self.is_unanswered() && self.attempt.again();
        if begins_anew {
            self.life.change(Change::Anew);
        }
        begins_anew
    }

    /// Takes in that the engine has negotiated: the terms are settled. Returns whether RPC messages may flow since then.
    ///
    /// # Errors
    /// The peer has proved to be a host that is not known any more.
    pub(crate) fn open(&mut self) -> Result<bool, HostRefusal> {
        self.proof.settle(self.engine.engine())?;
        self.session.settle(self.engine.engine(), self.link.role);
        if self.session.calls_go() == CallsGo::BothWays
            && let Spoken::One(one) = self.engine.engine_mut()
            && self.link.role == Role::Server
        {
            // [R8167-6-1] on version 1 nothing but the binding says that a client takes Calls.
            one.announce();
        }
        Ok(self.life.open())
    }

    /// Returns why the connection ends, of which the engine says this.
    pub(crate) fn why_closed(&self, reason: CloseReason) -> CallError {
        match CallError::from(reason) {
            CallError::Host(HostRefusal::Refused { why, .. }) => {
                CallError::Host(self.proof.refused(self.engine.engine(), why))
            }
            other => other,
        }
    }

    /// Returns why the connection must end, if the host at the other end is not known any more.
    pub(crate) fn judge_host(&mut self) -> Option<HostRefusal> {
        self.proof.judge(self.engine.engine()).err()
    }

    /// Returns what recognises the Calls with one chunk that may be handled as they arrive.
    pub(crate) fn single_chunks(&self) -> SingleChunks {
        self.engine.single_chunks(self.session.agreed())
    }

    /// Describes the other end for the service. `key` is the name of the connection in the core.
    pub(crate) const fn described(&self, key: ConnectionKey) -> Peer {
        let Link { peer: address, role, .. } = self.link;
        let (connection, version) = (ConnectionId(key), Some(self.session.terms().version));
        Peer { connection, address, user: self.user, version, role }
    }

    /// Returns the fields by which an event identifies this connection, which the core knows as `key`.
    pub(crate) fn subject<'a>(&'a self, key: &'a ConnectionKey) -> Subject<'a> {
        let host = self.proof.host().map(|host| &**host);
        Subject { conn: key, peer: self.link.peer, role: self.link.role, host }
    }

    /// Returns the terms that both ends agreed on, as the event `connection.ready` reports them.
    pub(crate) fn agreed_terms(&self) -> Agreed {
        let Terms { version, calls, replies, .. } = self.session.terms();
        Agreed {
            version: *version,
            // Our Calls and our Replies go one way, the peer's the other.
            send_max: calls.call_threshold.min(replies.reply_threshold),
            receive_max: calls.reply_threshold.min(replies.call_threshold),
            receives: self.engine.reserved(),
        }
    }

    /// Returns the octets of memory that the connection takes: its entry, and its queues.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.outbox.bytes() + self.share.bytes() + self.held.bytes()
    }

    /// Returns whether Calls of ours may be queued on the connection, now or for when it is ready.
    pub(crate) fn takes_calls(&self) -> bool {
        (self.life.is_up() || self.life.is_renewing()) && self.session.calls().is_some()
    }
}

/// Receives that suffice a peer for a turn: for a Call, for the credit that it leaves, and for a grant.
const PLENTY: u32 = 3;
