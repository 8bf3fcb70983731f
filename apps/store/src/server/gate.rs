//! The server's checks of its clients: addresses that may connect, claims that are believed, and notices to the
//! operator about the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use haulage::crowd::network;
use haulage::provider::PeerUser;
use haulage_proto::rpc::Credential;
use haulage_proto::time::Instant;

use super::admission::Admission;
use crate::trust::{GIDS_MAX, Peer, Standing, Trust, groups_of};

/// The checks that a server makes of its clients.
#[derive(Debug)]
pub struct Gate {
    pub(super) admission: Admission,
    trust: Trust,
    /// The channel for notices, if there is one.
    notices: Option<SyncSender<Notice>>,
    /// The addresses and users that notices were about.
    told: BTreeSet<Topic>,
    groups: BTreeMap<u32, Groups>,
    figures: Figures,
}

/// Counters of callers that were refused or not believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Calls over TCP whose claims were not believed; they were served as the anonymous user's.
    pub disbelieved_tcp: u64,
    /// Calls over RDMA whose claims were not believed; they were served as the anonymous user's.
    pub disbelieved_rdma: u64,
    /// MOUNT requests from addresses that may not mount.
    pub mounts_refused: u64,
}

/// A notice to the operator, sent once for each address or user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A caller over TCP claimed to be a user, from an unreserved port.
    UnreservedPort(IpAddr),
    /// A local user claimed to be another one.
    OtherUser(u32),
    /// A caller over RDMA from an address of this machine claimed to be a user, and the system does not name the
    /// owner of the connection.
    UnknownUser(IpAddr),
    /// An address that may not mount asked for it.
    MountRefused(IpAddr),
    /// The maximum number of notices was reached; others are not sent.
    Silence,
}

/// The subject of a notice, by which it is sent only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Topic {
    Claims(u64),
    User(u32),
    Mount(u64),
    Silence,
}

/// The groups of a local user, and when they were read.
#[derive(Debug)]
struct Groups {
    gids: Vec<u32>,
    read: Instant,
}

impl Gate {
    /// Creates a gate with these rules.
    pub const fn new(admission: Admission, trust: Trust) -> Self {
        Self {
            admission,
            trust,
            notices: None,
            told: BTreeSet::new(),
            groups: BTreeMap::new(),
            figures: Figures { disbelieved_tcp: 0, disbelieved_rdma: 0, mounts_refused: 0 },
        }
    }

    /// Sends notices to `notices`. A notice is dropped if the channel is full.
    #[must_use]
    pub fn telling(self, notices: SyncSender<Notice>) -> Self {
        Self { notices: Some(notices), ..self }
    }

    /// Returns the counters.
    pub const fn figures(&self) -> Figures {
        self.figures
    }

    /// Returns whether the checks need the user of each accepted connection.
    pub(super) fn identifies_peers(&self) -> bool {
        self.trust.standing(Peer::Rdma(PeerUser::Unknown)) != Standing::Anybody
    }

    /// Returns the credential with which a caller is served: all of the claim, the believed part of it, or none. `gids`
    /// is memory for groups.
    pub(super) fn believed<'a>(
        &mut self,
        now: Instant,
        (peer, address): (Peer, IpAddr),
        claim: Credential<'a>,
        gids: &'a mut [[u8; 4]; GIDS_MAX],
    ) -> Credential<'a> {
        let standing = self.trust.standing(peer);
        if standing == Standing::Anybody {
            return claim;
        }
        let trust = self.trust;
        let groups = match standing {
            Standing::Only(uid) => self.groups_of(now, uid),
            Standing::Anybody | Standing::Anonymous => &[],
        };
        let is_member = |gid: u32| groups.contains(&gid);
        if let Some(credential) = trust.judge(standing, claim, is_member, gids) {
            return credential;
        }
        match peer {
            Peer::Tcp { .. } => {
                self.figures.disbelieved_tcp += 1;
                self.tell(Topic::Claims(network(address)), Notice::UnreservedPort(address));
            }
            Peer::Rdma(user) => {
                self.figures.disbelieved_rdma += 1;
                match user {
                    PeerUser::Local(uid) => self.tell(Topic::User(uid), Notice::OtherUser(uid)),
                    PeerUser::Remote | PeerUser::Unknown => {
                        let topic = Topic::Claims(network(address));
                        self.tell(topic, Notice::UnknownUser(address));
                    }
                }
            }
        }
        Credential::None
    }

    /// Counts a MOUNT request from an address that may not mount, and notifies the operator.
    pub(super) fn refuse_mount(&mut self, address: IpAddr) {
        self.figures.mounts_refused += 1;
        self.tell(Topic::Mount(network(address)), Notice::MountRefused(address));
    }

    fn tell(&mut self, topic: Topic, notice: Notice) {
        let Some(notices) = &self.notices else { return };
        let (topic, notice) = if self.told.len() < TOLD_MAX || self.told.contains(&topic) {
            (topic, notice)
        } else {
            (Topic::Silence, Notice::Silence)
        };
        if self.told.insert(topic) {
            // The core does not wait for room; the notice is dropped.
            let _ = notices.try_send(notice);
        }
    }

    /// Returns the groups of a local user, from a cache that expires after [`GROUPS_AGE_MAX`].
    fn groups_of(&mut self, now: Instant, uid: u32) -> &[u32] {
        let is_old = |known: &Groups| now.saturating_since(known.read) >= GROUPS_AGE_MAX;
        if self.groups.get(&uid).is_none_or(is_old) {
            if self.groups.len() >= USERS_MAX {
                self.groups.clear();
            }
            self.groups.insert(uid, Groups { gids: groups_of(uid), read: now });
        }
        self.groups.get(&uid).map_or(&[], |known| &known.gids)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnreservedPort(address) => write!(
                f,
                "{} claims users from unreserved ports over TCP and is served as the anonymous user; \
                 --insecure would believe it",
                address.to_canonical()
            ),
            Self::OtherUser(uid) => write!(
                f,
                "user {uid} of this machine claims to be another user and is served as the anonymous \
                 user; --insecure would believe it"
            ),
            Self::UnknownUser(address) => write!(
                f,
                "{} is an address of this machine, but the system does not say which user connects \
                 from it: served as the anonymous user; --insecure would believe its claims",
                address.to_canonical()
            ),
            Self::MountRefused(address) => write!(
                f,
                "{} asked to mount and was refused: no --allow names it",
                address.to_canonical()
            ),
            Self::Silence => {
                f.write_str("others are refused or disbelieved, too, and not named here")
            }
        }
    }
}

/// Maximum number of notices about addresses and users; [`Notice::Silence`] follows the last.
const TOLD_MAX: usize = 1024;

/// Maximum number of local users whose groups are cached.
const USERS_MAX: usize = 64;

/// How long a user's groups are cached.
const GROUPS_AGE_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    use haulage_proto::rpc::AuthSys;

    use super::*;
    use crate::trust::{Claims, Host, Privilege};

    fn checked() -> Trust {
        Trust { privilege: Privilege::Privileged, claims: Claims::Vouched, ..Trust::ALL }
    }

    #[test]
    fn each_disbelieved_address_is_counted_every_time_and_told_once() {
        let (sender, told) = mpsc::sync_channel(8);
        let mut gate = Gate::new(Admission::default(), checked()).telling(sender);
        let claim = Credential::Sys(AuthSys::new(0, b"host", 1000, 1000));
        let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        for last in [1, 1, 2] {
            let from = (Peer::Tcp { port: 50_000, host: Host::Elsewhere }, address(last));
            let mut gids = [[0; 4]; GIDS_MAX];
            let served = gate.believed(Instant::ZERO, from, claim, &mut gids);
            assert_eq!(served, Credential::None);
        }
        let from = (Peer::Rdma(PeerUser::Local(7)), address(1));
        gate.believed(Instant::ZERO, from, claim, &mut [[0; 4]; GIDS_MAX]);
        gate.refuse_mount(address(1));
        gate.refuse_mount(address(1));
        let figures = Figures { disbelieved_tcp: 3, disbelieved_rdma: 1, mounts_refused: 2 };
        assert_eq!(gate.figures(), figures);
        let notices = [
            Notice::UnreservedPort(address(1)),
            Notice::UnreservedPort(address(2)),
            Notice::OtherUser(7),
            Notice::MountRefused(address(1)),
        ];
        assert_eq!(told.try_iter().collect::<Vec<_>>(), notices);
        let reserved = (Peer::Tcp { port: 1023, host: Host::Elsewhere }, address(1));
        let mut gids = [[0; 4]; GIDS_MAX];
        let served = gate.believed(Instant::ZERO, reserved, claim, &mut gids);
        assert_eq!((served, gate.figures()), (claim, figures));
    }

    #[test]
    fn what_is_remembered_of_strangers_is_bounded() {
        let (sender, told) = mpsc::sync_channel(2 * TOLD_MAX);
        let mut gate = Gate::new(Admission::default(), checked()).telling(sender);
        for number in 0..3 * u32::try_from(TOLD_MAX).unwrap() {
            gate.refuse_mount(IpAddr::V4(Ipv4Addr::from_bits(number)));
        }
        let notices: Vec<_> = told.try_iter().collect();
        assert_eq!((notices.len(), gate.told.len()), (TOLD_MAX + 1, TOLD_MAX + 1));
        assert_eq!(notices.last(), Some(&Notice::Silence));
        let users = u32::try_from(USERS_MAX).unwrap();
        (0..3 * users).for_each(|uid| _ = gate.groups_of(Instant::ZERO, uid));
        assert!(gate.groups.len() <= USERS_MAX);
    }

    #[test]
    fn groups_are_read_again_when_they_are_old() {
        let mut gate = Gate::new(Admission::default(), checked());
        gate.groups.insert(7, Groups { gids: vec![5], read: Instant::ZERO });
        let young = Instant::ZERO.saturating_add(GROUPS_AGE_MAX / 2);
        assert_eq!(gate.groups_of(young, 7), [5]);
        let old = Instant::ZERO.saturating_add(GROUPS_AGE_MAX);
        gate.groups_of(old, 7);
        assert_eq!(gate.groups[&7].read, old);
    }
}
