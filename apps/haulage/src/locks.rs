//! The lock manager that clients of NFS version 3 look for, which `store serve` does not have.

use std::net::IpAddr;

use haulage::rpcbind::{Program, Rpcbind};

/// Returns why clients find no lock manager at an address; `None` if they find one, of another server. A client of
/// Linux asks again without end, whether nobody answers or an rpcbind knows of no lock manager.
pub(crate) fn lacking(host: IpAddr) -> Option<String> {
    match Rpcbind::of(host).get_addr(LOCK_MANAGER) {
        Ok(Some(_)) => None,
        Ok(None) => Some(format!("the rpcbind of {host} knows of no lock manager")),
        Err(fault) => Some(fault.to_string()),
    }
}

/// The network lock manager for NFS version 3.
const LOCK_MANAGER: Program = Program { program: 100_021, version: 4 };
