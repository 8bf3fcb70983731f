//! The AUTH_SYS claims that the server believes.
//!
//! Any process can write an AUTH_SYS claim. A server that can act as other users would lend its rights to every local
//! process if it believed all claims, so it checks them:
//!
//! - Over TCP, a source port below 1024 shows that root opened it, unless the peer's machine lets all users open such
//!   ports. The server knows the limit of its own machine ([`ports_for_all`]) and applies it to local addresses. A
//!   caller from another port is the anonymous user.
//! - Over RDMA, ports show nothing, as the Linux client uses ephemeral ones. A peer on this machine is identified by
//!   the user who owns its socket: root may claim to be any user, other users only to be themselves, in groups that
//!   `/etc/passwd` and `/etc/group` list for them. A socket of the kernel, such as one of its NFS client, belongs to
//!   root; one of a virtual machine in user mode networking, to the user who runs it. If the system names no owner, as
//!   for a peer over an RDMA device, the caller is the anonymous user.
//! - Peers on other machines are believed over RDMA; `--allow` limits which may connect. Containers and virtual
//!   machines with addresses of their own count as other machines.
//!
//! A server without privilege checks no claims: it accesses a directory's files as its own user in any case. In memory,
//! claims only decide about files that exist nowhere else.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

use haulage::provider::PeerUser;
use haulage::sys::{interfaces, unix};
use haulage_proto::rpc::{AuthSys, Credential};

use crate::directory;

/// The rules by which the server believes claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Whether the server can act as other users.
    pub privilege: Privilege,
    /// The claims that are believed.
    pub claims: Claims,
    /// The group that replaces a claimed one which a local user is not in.
    pub anonymous_gid: u32,
    /// On this machine, only root can open ports below this one.
    pub local_ports_reserved: u16,
}

/// The privilege of the server's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// The process runs as root, or can create and open files as any user.
    Privileged,
    /// The process acts as its own user alone.
    Unprivileged,
}

/// The claims that a privileged server believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// Claims that the system confirms, and those of other machines over RDMA.
    Vouched,
    /// All claims: the operator trusts every client that can connect.
    All,
}

/// A caller's end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// NFS or MOUNT over TCP.
    Tcp {
        /// The source port.
        port: u16,
        /// The machine of the peer.
        host: Host,
    },
    /// NFS over RDMA.
    Rdma(PeerUser),
}

/// The machine of a peer: this one or another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// The peer's address is one of this machine's.
    Here,
    /// The peer has another address.
    Elsewhere,
}

/// The users that a peer may claim to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The peer may claim to be any user.
    Anybody,
    /// The peer may claim to be this user.
    Only(u32),
    /// The peer is the anonymous user.
    Anonymous,
}

impl Trust {
    /// Rules that believe all claims, for a server without privilege.
    pub const ALL: Self = Self {
        privilege: Privilege::Unprivileged,
        claims: Claims::All,
        anonymous_gid: 65_534,
        local_ports_reserved: RESERVED_PORTS,
    };

    /// Returns the users that a peer may claim to be.
    pub const fn standing(&self, peer: Peer) -> Standing {
        match (self.privilege, self.claims, peer) {
            (Privilege::Unprivileged, ..) | (_, Claims::All, _) => Standing::Anybody,
            (.., Peer::Tcp { port, host }) if port < self.ports_reserved(host) => Standing::Anybody,
            (.., Peer::Tcp { .. }) => Standing::Anonymous,
            (.., Peer::Rdma(PeerUser::Remote | PeerUser::Local(ROOT))) => Standing::Anybody,
            (.., Peer::Rdma(PeerUser::Local(uid))) => Standing::Only(uid),
            (.., Peer::Rdma(PeerUser::Unknown)) => Standing::Anonymous,
        }
    }

    /// Returns the first port that users other than root may open.
    const fn ports_reserved(&self, host: Host) -> u16 {
        match host {
            Host::Here if self.local_ports_reserved < RESERVED_PORTS => self.local_ports_reserved,
            Host::Here | Host::Elsewhere => RESERVED_PORTS,
        }
    }

    /// Returns the believed part of a claim, or `None` if it is not believed. A believed local user keeps the groups
    /// that `is_member` confirms, which are written to `gids`.
    pub fn judge<'a>(
        &self,
        standing: Standing,
        claim: Credential<'a>,
        is_member: impl Fn(u32) -> bool,
        gids: &'a mut [[u8; 4]; GIDS_MAX],
    ) -> Option<Credential<'a>> {
        let Credential::Sys(sys) = claim else { return Some(claim) };
        match standing {
            Standing::Anybody => Some(claim),
            Standing::Only(uid) if uid == sys.uid => {
                let gid = if is_member(sys.gid) { sys.gid } else { self.anonymous_gid };
                let mut count = 0;
                for (place, gid) in gids.iter_mut().zip(sys.gids().filter(|gid| is_member(*gid))) {
                    *place = gid.to_be_bytes();
                    count += 1;
                }
                let own = AuthSys::new(sys.stamp, sys.machine, uid, gid);
                own.with_gids(gids.get(..count).unwrap_or_default()).map(Credential::Sys)
            }
            Standing::Only(_) | Standing::Anonymous => None,
        }
    }
}

impl Host {
    /// Returns the machine of a peer with this address. If the system does not list its own addresses, every peer
    /// counts as local.
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let is_other = || interfaces::addresses().is_ok_and(|own| !own.contains(&address));
        if !address.is_loopback() && is_other() { Self::Elsewhere } else { Self::Here }
    }
}

impl Privilege {
    /// Returns the privilege of this process.
    pub fn here() -> Self {
        if unix::user() == ROOT || directory::is_overriding() {
            Self::Privileged
        } else {
            Self::Unprivileged
        }
    }
}

/// Returns the first port below 1024 that every user of this machine may open, if there is one. From there on, ports do
/// not identify local callers. Containers are often configured so.
pub fn ports_for_all() -> Option<u16> {
    let first = read(Path::new("/proc/sys/net/ipv4/ip_unprivileged_port_start"));
    let first = str::from_utf8(&first).ok()?.trim().parse().ok()?;
    Some(first).filter(|first| *first < RESERVED_PORTS)
}

/// Reads the groups of a user from this machine's own account files. A user whom they do not list, such as one of a
/// directory service, is in no group.
pub fn groups_of(uid: u32) -> Vec<u32> {
    memberships(uid, &read(Path::new("/etc/passwd")), &read(Path::new("/etc/group")))
}

/// Returns the groups of a user, from the text of the account files.
fn memberships(uid: u32, passwd: &[u8], group: &[u8]) -> Vec<u32> {
    let mut groups = Vec::new();
    let mut names: Vec<&[u8]> = Vec::new();
    // name:password:uid:gid:...
    for fields in lines(passwd).filter(|fields| number(fields.get(2)) == Some(uid)) {
        groups.extend(number(fields.get(3)));
        names.extend(fields.first().filter(|name| !name.is_empty()));
    }
    // name:password:gid:member,member
    for fields in lines(group) {
        let members = fields.get(3).copied().unwrap_or_default();
        let is_member = members.split(|octet| *octet == b',').any(|name| names.contains(&name));
        groups.extend(number(fields.get(2)).filter(|_| is_member));
    }
    groups.truncate(MEMBERSHIPS_MAX);
    groups
}

fn lines(text: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    text.split(|octet| *octet == b'\n').map(|line| line.split(|octet| *octet == b':').collect())
}

fn number(field: Option<&&[u8]>) -> Option<u32> {
    str::from_utf8(field?).ok()?.parse().ok()
}

/// Returns the text of an account file. Returns an empty text, which confirms no group, if the file cannot be read
/// whole.
fn read(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    let file = File::open(path).ok();
    let read = file.and_then(|file| file.take(ACCOUNTS_MAX).read_to_end(&mut text).ok());
    if read.is_none_or(|length| length as u64 == ACCOUNTS_MAX) {
        text.clear();
    }
    text
}

/// Maximum number of further groups in an AUTH_SYS credential (RFC 5531 appendix A).
pub const GIDS_MAX: usize = 16;
/// By default, only root can open ports below this one.
pub const RESERVED_PORTS: u16 = 1024;
/// The superuser.
const ROOT: u32 = 0;
/// Maximum length of an account file that is read, in octets.
const ACCOUNTS_MAX: u64 = 1 << 20;
/// Maximum number of groups of one user.
const MEMBERSHIPS_MAX: usize = 1024;

#[cfg(test)]
mod tests;
