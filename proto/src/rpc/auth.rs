//! Authentication flavors (RFC 5531 section 8 and appendix A).

use super::stat::RejectStat;
use crate::xdr::{Reader, Truncated, Writer};

/// A credential or a verifier: the identity that a caller claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credential<'a> {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys(AuthSys<'a>),
    /// Any other flavor, or a body that does not match its flavor, uninterpreted.
    Other {
        /// The number of the flavor.
        flavor: u32,
        /// The body, of at most 400 octets.
        body: &'a [u8],
    },
}

/// The body of AUTH_SYS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthSys<'a> {
    /// An arbitrary value that the caller chooses.
    pub stamp: u32,
    /// The name of the caller's host, at most 255 octets.
    pub machine: &'a [u8],
    /// The effective user ID.
    pub uid: u32,
    /// The effective group ID.
    pub gid: u32,
    /// The supplementary group IDs, at most 16 big-endian words.
    gids: &'a [u8],
}

impl<'a> AuthSys<'a> {
    /// Makes a body without supplementary groups.
    pub const fn new(stamp: u32, machine: &'a [u8], uid: u32, gid: u32) -> Self {
        Self { stamp, machine, uid, gid, gids: &[] }
    }

    /// Sets the supplementary group IDs, in big-endian order. Returns `None` if there are more than
    /// 16.
    #[must_use]
    pub const fn with_gids(self, gids: &'a [[u8; 4]]) -> Option<Self> {
        if gids.len() > GIDS_MAX {
            return None;
        }
        Some(Self { gids: gids.as_flattened(), ..self })
    }

    /// Returns the supplementary group IDs.
    pub fn gids(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.gids.chunks_exact(4).filter_map(|gid| Reader::new(gid).u32().ok())
    }

    fn decode(body: &'a [u8]) -> Option<Self> {
        let mut r = Reader::new(body);
        let stamp = r.u32().ok()?;
        let machine = r.opaque(MACHINE_MAX).ok()?;
        let (uid, gid) = (r.u32().ok()?, r.u32().ok()?);
        let count = usize::try_from(r.u32().ok()?).ok()?;
        if count > GIDS_MAX {
            return None;
        }
        let gids = r.take(count.checked_mul(4)?).ok()?;
        r.is_empty().then_some(Self { stamp, machine, uid, gid, gids })
    }

    fn wire_len(&self) -> usize {
        let machine = self.machine.len().saturating_add(crate::xdr::pad(self.machine.len()));
        machine.saturating_add(self.gids.len()).saturating_add(20)
    }
}

impl<'a> Credential<'a> {
    /// Parses a credential or a verifier.
    #[inline]
    pub fn decode(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        // AUTH_NONE with an empty body.
        match r.rest().first_chunk() {
            Some([0, 0, 0, 0, 0, 0, 0, 0]) => r.take(8).map(|_| Self::None),
            _ => Self::decode_other(r),
        }
    }

    fn decode_other(r: &mut Reader<'a>) -> Result<Self, Truncated> {
        let flavor = r.u32()?;
        let body = r.opaque(BODY_MAX)?;
        let sys = if flavor == AUTH_SYS { AuthSys::decode(body) } else { None };
        Ok(sys.map_or(Self::Other { flavor, body }, Self::Sys))
    }

    /// Returns the number of the credential's flavor.
    pub const fn flavor(&self) -> u32 {
        match self {
            Self::None => AUTH_NONE,
            Self::Sys(_) => AUTH_SYS,
            Self::Other { flavor, .. } => *flavor,
        }
    }

    /// Checks that the credential has one of the `flavors` that a service accepts, and that the body of AUTH_NONE or
    /// AUTH_SYS is valid.
    ///
    /// # Errors
    /// The denial to answer with (RFC 5531 section 9): `AUTH_REJECTEDCRED` for any other flavor, `AUTH_BADCRED` for an
    /// invalid body.
    pub fn check(&self, flavors: &[u32]) -> Result<(), RejectStat> {
        match self {
            _ if !flavors.contains(&self.flavor()) => Err(RejectStat::AuthError(AUTH_REJECTEDCRED)),
            Self::Other { flavor: AUTH_NONE | AUTH_SYS, .. } => {
                Err(RejectStat::AuthError(AUTH_BADCRED))
            }
            _ => Ok(()),
        }
    }

    /// Appends the credential to `w`.
    #[inline]
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::None => w.words([AUTH_NONE, 0]),
            Self::Sys(_) | Self::Other { .. } => self.encode_other(w),
        }
    }

    fn encode_other(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match self {
            Self::None => Ok(()),
            Self::Sys(sys) => {
                w.u32(AUTH_SYS)?;
                let length = u32::try_from(sys.wire_len());
                w.u32(length.map_err(|_| Truncated { at: w.position() })?)?;
                w.u32(sys.stamp)?;
                w.opaque(sys.machine)?;
                w.u32(sys.uid)?;
                w.u32(sys.gid)?;
                let count = u32::try_from(sys.gids().count());
                w.u32(count.map_err(|_| Truncated { at: w.position() })?)?;
                w.put(sys.gids)
            }
            Self::Other { flavor, body } => {
                w.u32(*flavor)?;
                w.opaque(body)
            }
        }
    }
}

/// The flavor of anonymous callers.
pub const AUTH_NONE: u32 = 0;
/// The flavor of callers that claim a user and a group of a machine.
pub const AUTH_SYS: u32 = 1;
/// `auth_stat` of an invalid credential.
const AUTH_BADCRED: u32 = 1;
/// `auth_stat` of a credential that is not accepted.
const AUTH_REJECTEDCRED: u32 = 2;
/// The longest body of a credential or verifier, in octets (RFC 5531 section 8.2).
const BODY_MAX: usize = 400;
/// The longest machine name, in octets (RFC 5531 appendix A).
const MACHINE_MAX: usize = 255;
const GIDS_MAX: usize = 16;
