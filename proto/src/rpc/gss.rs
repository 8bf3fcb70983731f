//! The restrictions of RPCSEC_GSS (RFC 2203) on reduction (version 2, section 11.2.2).
//!
//! Contexts, sequence numbers and checksums belong to the RPC layer; this module reads only the service in a
//! credential.

use super::Credential;
use crate::xdr::{Reader, Truncated};

impl Credential<'_> {
    /// Returns whether DDP-eligible items of a message with this credential may be reduced.
    ///
    /// Reduction is not allowed if RPCSEC_GSS protects the integrity or the privacy of the data,
    /// nor in the messages that create and destroy its contexts.
    pub fn may_reduce(&self) -> bool {
        match self {
            Self::None | Self::Sys(_) => true,
            Self::Other { flavor: RPCSEC_GSS, body } => {
                // A credential that cannot be decoded may protect its data.
                Gss::decode(body).is_ok_and(|gss| {
                    // [V2-11.2.2-1] control messages are not reduced, and [V2-11.2.2.3-2] neither are signed or sealed
                    // data.
                    //~ V2-11.2.2-1: `procedure == DATA` -> `procedure >= DATA`
                    //~ V2-11.2.2.3-2: `service == SERVICE_NONE` -> `service >= SERVICE_NONE`
                    gss.procedure == DATA && gss.service == SERVICE_NONE
                })
            }
            Self::Other { .. } => true,
        }
    }
}

/// The start of a version 1 RPCSEC_GSS credential.
struct Gss {
    procedure: u32,
    service: u32,
}

impl Gss {
    fn decode(body: &[u8]) -> Result<Self, Truncated> {
        let mut r = Reader::new(body);
        if r.u32()? != GSS_VERSION {
            return Err(Truncated { at: 0 });
        }
        let procedure = r.u32()?;
        let _sequence = r.u32()?;
        Ok(Self { procedure, service: r.u32()? })
    }
}

const RPCSEC_GSS: u32 = 6;
const GSS_VERSION: u32 = 1;
/// `RPCSEC_GSS_DATA`; all others are control messages.
const DATA: u32 = 0;
/// `rpc_gss_svc_none`: authentication only.
const SERVICE_NONE: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Xdr;

    fn gss(words: &[u32]) -> bool {
        let body = Xdr::default().words(words).opaque(b"context").0;
        Credential::Other { flavor: RPCSEC_GSS, body: &body }.may_reduce()
    }

    #[test]
    fn nothing_is_reduced_under_integrity_or_privacy() {
        assert!(gss(&[1, 0, 7, 1]));
        assert!(!gss(&[1, 0, 7, 2]), "integrity");
        assert!(!gss(&[1, 0, 7, 3]), "privacy");
        assert!(!gss(&[1, 0, 7, 4]), "unknown");
    }

    #[test]
    fn nothing_is_reduced_while_a_context_is_made_or_destroyed() {
        for procedure in [1, 2, 3, 4] {
            assert!(!gss(&[1, procedure, 7, 1]));
        }
    }

    #[test]
    fn a_credential_that_cannot_be_read_is_protected() {
        assert!(!gss(&[2, 0, 7, 1]));
        for length in [0, 4, 8, 12, 15] {
            let body = &Xdr::default().words(&[1, 0, 7, 1]).0[..length];
            assert!(!Credential::Other { flavor: RPCSEC_GSS, body }.may_reduce(), "{length}");
        }
    }

    #[test]
    fn other_flavors_do_not_forbid_it() {
        assert!(Credential::None.may_reduce());
        assert!(Credential::Other { flavor: 7, body: &[] }.may_reduce());
    }
}
