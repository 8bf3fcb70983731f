//! The identity that our Calls claim.

use haulage_proto::rpc::{AuthSys, CallHeader, Credential};
use haulage_proto::xdr::{Truncated, Writer};

/// The identity in the credential of our Calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Identity {
    /// No user: AUTH_NONE.
    #[default]
    Anonymous,
    /// A user of a machine, which the server may or may not believe: AUTH_SYS.
    User(User),
}

/// A user of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    machine: Vec<u8>,
    uid: u32,
    gid: u32,
    gids: Vec<[u8; 4]>,
}

impl Identity {
    /// Appends `header` with the credential of this identity.
    #[cold]
    pub(crate) fn encode<'a>(
        &'a self,
        header: CallHeader<'a>,
        w: &mut Writer<'_>,
    ) -> Result<(), Truncated> {
        CallHeader { credential: self.credential(), ..header }.encode(w)
    }

    /// Returns the credential of this identity.
    pub fn credential(&self) -> Credential<'_> {
        match self {
            Self::Anonymous => Credential::None,
            Self::User(user) => user.credential(),
        }
    }
}

impl User {
    /// Names a user by number. A credential has no room for more than 255 octets of the machine's name and 16
    /// supplementary groups; the rest is left out.
    pub fn new(machine: &str, uid: u32, gid: u32, gids: &[u32]) -> Self {
        let machine = machine.bytes().take(MACHINE_MAX).collect();
        let gids = gids.iter().take(GIDS_MAX).map(|gid| gid.to_be_bytes()).collect();
        Self { machine, uid, gid, gids }
    }

    fn credential(&self) -> Credential<'_> {
        let user = AuthSys::new(0, &self.machine, self.uid, self.gid);
        Credential::Sys(user.with_gids(&self.gids).unwrap_or(user))
    }
}

/// Octets of the longest machine name in an AUTH_SYS credential (RFC 5531 appendix A).
const MACHINE_MAX: usize = 255;
/// Supplementary groups in an AUTH_SYS credential, at most (RFC 5531 appendix A).
const GIDS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use haulage_proto::xdr::{Reader, Writer};

    use super::*;

    #[test]
    fn a_credential_holds_as_much_as_it_may() {
        let groups: Vec<u32> = (100..120).collect();
        let user = Identity::User(User::new(&"m".repeat(300), 1000, 1001, &groups));
        let mut room = [0; 400];
        let mut w = Writer::new(&mut room);
        user.credential().encode(&mut w).unwrap();
        let decoded = Credential::decode(&mut Reader::new(w.written())).unwrap();
        let Credential::Sys(sys) = decoded else { panic!("{decoded:?}") };
        assert_eq!((sys.machine.len(), sys.uid, sys.gid), (255, 1000, 1001));
        assert_eq!(sys.gids().collect::<Vec<_>>(), groups[..16]);
        assert_eq!(Identity::default().credential(), Credential::None);
    }
}
