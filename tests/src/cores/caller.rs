//! The service of a core that only calls: it makes the Calls of its programs, and checks how each ends.

use std::collections::BTreeMap;
use std::time::Duration;

use haulage::core::{CoreNumber, Cx, Service};
use haulage::limits::LIMITS_DEFAULT;
use haulage::service::{CallError, ConnectionId, Finished};
use haulage_proto::negotiate::{Refusal, Version};
use haulage_proto::time::Instant;
use haulage_proto::v2::error::ErrorBody;

use super::mix::{Event, Mix};
use super::programs::{Drawn, Program};
use crate::world::choices::Choices;

/// The service of one client.
#[derive(Debug)]
pub struct Caller {
    choices: Choices,
    links: Vec<Link>,
    /// Calls that have not ended, by token.
    pending: BTreeMap<u64, Pending>,
    next: u64,
    settings: Settings,
    /// Calls that are still to be made.
    left: usize,
    /// Counts of the events of this client.
    pub mix: Mix,
}

/// How a client makes its Calls.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The number of the client.
    pub number: u64,
    /// The seed of the client's choices.
    pub seed: u64,
    /// Number of Calls that the client makes.
    pub calls: usize,
    /// Maximum number of Calls under way at once.
    pub window: usize,
    /// Whether Calls are made in turns of the service.
    pub in_turns: bool,
    /// Whether Calls are made as others end.
    pub in_replies: bool,
}

/// A client's link to one server: a connection, and another after that was lost.
#[derive(Debug)]
pub struct Link {
    /// The Calls to the server.
    pub program: Box<dyn Program>,
    /// The version that both ends agree upon.
    pub version: Version,
    /// Whether the client begins with another version and falls back.
    pub falls_back: bool,
    /// Whether both ends speak both versions: the client begins anew with version 1 if it loses the first connection
    /// early.
    pub begins_anew: bool,
    /// Whether a connection met a misfortune, or waited for long. Connections may speak version 1 for a while then.
    was_hurt: bool,
    /// Whether the client reads Replies that have no other room: one for which it has no memory ends the connection.
    pub reads: bool,
    /// Whether messages are corrupted on their way: a Call may then end in any way, but ends once.
    pub is_misled: bool,
    connection: Option<ConnectionId>,
    /// Number of connections made so far.
    made: u32,
    /// Whether the connection met a misfortune that may fail its Calls.
    doomed: bool,
    /// The core that has served a Call on the connection.
    home: Option<CoreNumber>,
    /// How long the server keeps an idle connection.
    pub idle_timeout: Option<Duration>,
    /// Whether the server has too little room for all its clients: it may refuse a connection, or close it for another.
    pub is_crowded: bool,
    /// When the connection was made, or last carried a Reply.
    active: Instant,
    /// Number of refused connections since a Call was last answered.
    turned_away: u32,
    not_before: Instant,
    /// When the connection was made; `None` once a Call on it was answered.
    silent_since: Option<Instant>,
    /// Connections that the link gave up, and that may still be open.
    lost: Vec<ConnectionId>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    link: usize,
    /// The number, on its link, of the connection that carries the Call.
    made: u32,
}

impl Caller {
    /// Makes a client that has no connection yet.
    pub fn new(settings: Settings, links: Vec<Link>) -> Self {
        Self {
            choices: Choices::seeded(settings.seed),
            links,
            pending: BTreeMap::new(),
            next: settings.number << 32,
            left: settings.calls,
            settings,
            mix: Mix::default(),
        }
    }

    /// Returns the number of links.
    pub const fn links(&self) -> usize {
        self.links.len()
    }

    /// Returns a link.
    pub fn link(&mut self, link: usize) -> &mut Link {
        &mut self.links[link]
    }

    /// Returns whether every Call has been made and has ended.
    pub fn is_done(&self) -> bool {
        self.left == 0 && self.pending.is_empty()
    }

    /// Returns the number of Calls that have not ended.
    pub fn under_way(&self) -> usize {
        self.pending.len()
    }

    /// Makes no further Calls.
    pub const fn stop(&mut self) {
        self.left = 0;
    }

    /// Makes a Call, if one can be made now. Returns whether one was made.
    pub fn make(&mut self, cx: &mut Cx<'_>, from: Event) -> bool {
        if self.left == 0 || self.pending.len() >= self.settings.window {
            return false;
        }
        let at = self.choices.below(self.links.len());
        let Some(connection) = self.links[at].connection else { return false };
        let token = self.next;
        let Self { links, choices, .. } = self;
        let link = &mut links[at];
        let drawn = link.program.draw(choices, cx.pool(), token);
        let Some(Drawn { request, arguments }) = drawn else {
            self.mix.note(Event::Postponed);
            return false;
        };
        self.next += 1;
        match cx.call(connection, request, token, |w| w.put(&arguments)) {
            Ok(()) => {
                self.pending.insert(token, Pending { link: at, made: link.made });
                self.left -= 1;
                self.mix.note(from);
                true
            }
            Err((error, _)) => {
                link.program.withdraw(token);
                match error {
                    CallError::Busy | CallError::NoMemory => self.mix.note(Event::Postponed),
                    error => {
                        let is_starved = link.reads && is_starved(&error);
                        let may_fail =
                            link.doomed || link.is_misled || link.is_crowded || is_starved;
                        assert!(may_fail, "nothing befell the connection: {error:?}");
                        link.give_up(cx.now());
                    }
                }
                false
            }
        }
    }
}

impl Link {
    /// Makes a link without a connection.
    pub fn new(program: Box<dyn Program>, version: Version, falls_back: bool) -> Self {
        Self {
            program,
            version,
            falls_back,
            begins_anew: false,
            was_hurt: false,
            reads: false,
            is_misled: false,
            idle_timeout: None,
            is_crowded: false,
            active: Instant::ZERO,
            turned_away: 0,
            not_before: Instant::ZERO,
            connection: None,
            made: 0,
            doomed: false,
            home: None,
            silent_since: None,
            lost: Vec::new(),
        }
    }

    /// Makes Calls on `connection` from now on.
    pub const fn connect(&mut self, connection: ConnectionId, now: Instant) {
        self.connection = Some(connection);
        self.home = None;
        self.silent_since = Some(now);
        self.active = now;
        self.made += 1;
        self.was_hurt |= self.doomed;
        self.doomed = false;
    }

    /// Allows Calls on the connection to fail.
    pub const fn doom(&mut self) {
        self.doomed = true;
    }

    /// Allows Calls on the connection to fail if it may be on this core of the server.
    pub fn doom_at(&mut self, core: CoreNumber) {
        self.doomed |= self.home.is_none_or(|home| home == core);
    }

    /// Checks that the connection is still on the same core, as one has served a Call on it.
    fn stay(&mut self, core: CoreNumber) {
        let home = *self.home.get_or_insert(core);
        assert_eq!(core, home, "a Call was served by another core than those before it");
    }

    /// Allows Calls to fail if the server may have closed the connection because no first message came in time.
    pub fn doom_if_silent(&mut self, now: Instant) {
        let Some(since) = self.silent_since else { return };
        let waited = now.saturating_since(since);
        self.doomed |= waited >= LIMITS_DEFAULT.setup_timeout;
        self.was_hurt |= waited >= LIMITS_DEFAULT.setup_timeout / 3;
    }

    /// Allows Calls to fail if the connection has been idle for so long that the server may have closed it, or may
    /// close it before they arrive.
    pub fn doom_if_idle(&mut self, now: Instant) {
        let for_long = |limit| now.saturating_since(self.active) >= limit / 2;
        self.doomed |= self.idle_timeout.is_some_and(for_long);
    }

    /// Returns whether a connection to the server has met a misfortune, or may have been turned away.
    const fn is_hurt(&self) -> bool {
        self.was_hurt || self.doomed || self.is_crowded
    }

    /// Returns when the link may be connected again.
    pub const fn not_before(&self) -> Instant {
        self.not_before
    }

    /// Gives the connection up. At a crowded server the next attempt has to wait, longer each time.
    pub fn give_up(&mut self, now: Instant) {
        if self.is_crowded {
            let wait = Duration::from_micros(100) * 2_u32.pow(self.turned_away.min(12));
            self.not_before = now.saturating_add(wait);
            self.turned_away += 1;
        }
        self.disconnect();
    }

    /// Returns the connection, unless it was lost.
    pub const fn connection(&self) -> Option<ConnectionId> {
        self.connection
    }

    /// Gives the connection up: no further Call is made on it, and its Calls may fail.
    pub fn disconnect(&mut self) {
        self.doomed = true;
        self.lost.extend(self.connection.take());
    }

    /// Takes the connections that are to be closed.
    pub fn take_lost(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.lost)
    }

    /// Returns the number of connections made.
    pub const fn made(&self) -> u32 {
        self.made
    }
}

impl Service for Caller {
    fn replied(&mut self, cx: &mut Cx<'_>, token: u64, mut finished: Finished<'_>) {
        let pending = self.pending.remove(&token);
        let pending = pending.expect("each Call that was made is told of once");
        // What a client knows about a server, it knows on all links.
        let was_hurt = self.links.iter().any(Link::is_hurt);
        let link = &mut self.links[pending.link];
        if link.is_misled {
            self.mix.note(Event::Misled);
            link.program.withdraw(token);
            let is_lost = matches!(
                finished.results,
                Err(CallError::TimedOut
                    | CallError::Connect(_)
                    | CallError::Disconnected(_)
                    | CallError::Unready(_)
                    | CallError::Closed)
            );
            if is_lost && pending.made == link.made {
                link.give_up(cx.now());
            }
            return;
        }
        if let Ok(results) = &finished.results {
            let spoken = results.version();
            if pending.made == link.made {
                link.silent_since = None;
                link.program.served_by(token).into_iter().for_each(|core| link.stay(core));
                (link.active, link.turned_away) = (cx.now(), 0);
            }
            let is_anew = link.begins_anew && was_hurt && spoken == Version::One;
            assert!(
                spoken == link.version || is_anew,
                "{spoken}: the version that both ends speak"
            );
            self.mix.note_if(is_anew, Event::BegunAnew);
            let event = match spoken {
                Version::One => Event::VersionOne,
                Version::Two => Event::VersionTwo,
            };
            self.mix.note(event);
            self.mix.note_if(link.falls_back, Event::Fallback);
        }
        let what = link.program.ended(token, &mut finished, &mut self.mix);
        if let Some(what) = what {
            let Err(error) = &finished.results else { unreachable!("results are as they must be") };
            if link.reads && is_starved(error) {
                self.mix.note(Event::Starved);
                if pending.made == link.made {
                    link.disconnect();
                }
                return;
            }
            let is_old = pending.made < link.made || link.connection.is_none();
            let may_fail = is_old || link.doomed || link.is_crowded;
            assert!(may_fail, "nothing befell the connection: {error:?} to {what}");
            let event = match error {
                CallError::TimedOut => Event::TimedOut,
                CallError::Connect(_) => Event::Unconnected,
                CallError::Disconnected(_) | CallError::Unready(_) => Event::Lost,
                CallError::Closed => Event::Closed,
                // It was to go again by chunks: the server had no memory for it in several messages.
                CallError::Refused(Refusal::Two(ErrorBody::InvalHtype)) => Event::Refused,
                error => panic!("a lost connection does not do this: {token:x} {error:?}"),
            };
            self.mix.note(event);
            if pending.made == link.made {
                link.give_up(cx.now());
            }
        }
        if self.settings.in_replies && self.choices.one_in(2) {
            self.make(cx, Event::FromReply);
        }
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.settings.in_turns && self.choices.one_in(4) && self.make(cx, Event::FromTurn)
    }
}

/// Returns whether a connection ends because its client has no memory to read a Reply, by what one of its Calls is told.
fn is_starved(error: &CallError) -> bool {
    match error {
        CallError::NoMemory => true,
        CallError::Disconnected(why) => why.ends_with(&CallError::NoMemory.to_string()),
        _ => false,
    }
}
