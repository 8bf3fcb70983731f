//! Whose AUTH_SYS claims the server believes.
//!
//! AUTH_SYS is a claim that anybody can write. A server that can act as other users would lend its rights to
//! every local process if it believed all of them, so it asks the system first:
//!
//! - Over TCP, a source port below 1024 shows that the peer's root opened it, unless the peer's machine lets all
//!   users open such ports. Of this machine that is known ([`ports_for_all`]): of its own addresses, only ports
//!   below those for all count. Claims from other ports count for nothing: the caller is the anonymous user.
//! - Over RDMA ports show nothing, as Linux's client uses ephemeral ones. A peer on this machine is known by the
//!   user who owns its socket: root may claim to be anybody, other users only to be themselves, in groups that
//!   `/etc/passwd` and `/etc/group` list for them. A socket of the kernel, such as one of its NFS client, belongs
//!   to root; one of a virtual machine in user mode networking, to the user who runs it. Where the system names
//!   no owner, as of a peer over an RDMA device, the caller is the anonymous user.
//! - Peers on other machines are believed over RDMA; which ones connect is for `--allow` to say. So are containers
//!   and virtual machines with addresses of their own.
//!
//! A server without privilege checks no claims. It acts on a directory's files as its own user, whatever is claimed.
//! In memory, claims decide about files that exist nowhere else.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::Path;

use haulage::provider::PeerUser;
use haulage::sys::{interfaces, unix};
use haulage_proto::rpc::{AuthSys, Credential};

use crate::directory;

/// How far the server trusts what callers claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// Whether the server can act as other users.
    pub privilege: Privilege,
    /// Which peers are believed.
    pub claims: Claims,
    /// The group in place of one that a local user claims and is not in.
    pub anonymous_gid: u32,
    /// Ports below this one are opened on this machine by root alone.
    pub local_ports_reserved: u16,
}

/// What the server's process may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// It runs as root, or can make and open files as any user.
    Privileged,
    /// It acts as its own user alone.
    Unprivileged,
}

/// Which claims a privileged server believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claims {
    /// Those that the system vouches for, and those of other machines over RDMA.
    Vouched,
    /// All: the operator trusts whoever can connect.
    All,
}

/// A caller's end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// NFS or MOUNT over TCP.
    Tcp {
        /// The source port.
        port: u16,
        /// Where the peer is.
        host: Host,
    },
    /// NFS over RDMA.
    Rdma(PeerUser),
}

/// Where a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Its address is one of this machine's.
    Here,
    /// It has another address.
    Elsewhere,
}

/// What the claims of one peer are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The peer may claim to be anybody.
    Anybody,
    /// The peer may claim to be this user.
    Only(u32),
    /// The peer is the anonymous user.
    Anonymous,
}

impl Trust {
    /// Believes all claims: the trust of a server without privilege.
    pub const ALL: Self = Self {
        privilege: Privilege::Unprivileged,
        claims: Claims::All,
        anonymous_gid: 65_534,
        local_ports_reserved: RESERVED_PORTS,
    };

    /// Returns what the claims of a peer are worth.
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

    /// Returns the first port that shows nothing of who opened it.
    const fn ports_reserved(&self, host: Host) -> u16 {
        match host {
            Host::Here if self.local_ports_reserved < RESERVED_PORTS => self.local_ports_reserved,
            Host::Here | Host::Elsewhere => RESERVED_PORTS,
        }
    }

    /// Returns as whom a caller is served who makes this claim: `None` if it is not believed. A believed local
    /// user keeps the groups that `is_member` confirms, which are written to `gids`.
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
    /// Returns where a peer with this address is. If the system does not list its own addresses, every peer
    /// is taken to be here.
    pub fn of(address: IpAddr) -> Self {
        let address = address.to_canonical();
        let is_other = || interfaces::addresses().is_ok_and(|own| !own.contains(&address));
        if !address.is_loopback() && is_other() { Self::Elsewhere } else { Self::Here }
    }
}

impl Privilege {
    /// Returns that of this process.
    pub fn here() -> Self {
        if unix::user() == ROOT || directory::sole_owner().is_none() {
            Self::Privileged
        } else {
            Self::Unprivileged
        }
    }
}

/// Returns the first port below 1024 that every user of this machine may open, if there is one: from there on,
/// ports show nothing of local callers. Containers are often set up so.
pub fn ports_for_all() -> Option<u16> {
    let first = read(Path::new("/proc/sys/net/ipv4/ip_unprivileged_port_start"));
    let first = str::from_utf8(&first).ok()?.trim().parse().ok()?;
    Some(first).filter(|first| *first < RESERVED_PORTS)
}

/// Reads the groups of a user from this machine's own account files. A user that they do not list, such as one
/// of a directory service, is in no group here.
pub fn groups_of(uid: u32) -> Vec<u32> {
    memberships(uid, &read(Path::new("/etc/passwd")), &read(Path::new("/etc/group")))
}

/// Returns the groups of a user, as the text of the account files has them.
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

/// Returns the text of an account file, or nothing if it cannot be read whole: then it confirms no group.
fn read(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    let file = File::open(path).ok();
    let read = file.and_then(|file| file.take(ACCOUNTS_MAX).read_to_end(&mut text).ok());
    if read.is_none_or(|length| length as u64 == ACCOUNTS_MAX) {
        text.clear();
    }
    text
}

/// Further groups of AUTH_SYS (RFC 5531 appendix A).
pub const GIDS_MAX: usize = 16;
/// Ports below this one are opened by root alone, unless a machine is set up otherwise.
pub const RESERVED_PORTS: u16 = 1024;
/// The superuser.
const ROOT: u32 = 0;
/// Octets of the longest account file that is read.
const ACCOUNTS_MAX: u64 = 1 << 20;
/// Groups of one user that are kept.
const MEMBERSHIPS_MAX: usize = 1024;

#[cfg(test)]
mod tests;
