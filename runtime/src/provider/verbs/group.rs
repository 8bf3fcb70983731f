//! Providers of several cores that share a protection domain.
//!
//! A domain is shared only where providers say so, and only on a device with memory windows. A window is bound to one
//! queue pair, so a peer reaches only what was opened on its own connection. Without windows, a peer may use every grant of
//! its domain ([`Grants`](super::grants::Grants)), so each connection has a domain of its own.

use std::sync::Arc;

use haulage_mr_pool::Strategy;

use super::config::Unavailable;
use crate::sys::ibverbs::{Device, Domain};

/// The protection domain of a [`Verbs`](super::Verbs), for those of other cores of this process, which
/// [join](super::Verbs::join) it. It is freed with the last provider in it, and the last group.
#[derive(Clone, Debug)]
pub struct Group(Arc<Domain>);

impl Group {
    /// Makes a group of those that share `domain`, if exposed memory is opened in a way that allows it.
    pub(super) fn of(domain: &Arc<Domain>, strategy: Strategy) -> Option<Self> {
        is_shared(strategy).then(|| Self(Arc::clone(domain)))
    }

    /// Returns the domain, for a provider on `device`.
    ///
    /// # Errors
    ///
    /// The group is on another device.
    pub(super) fn domain(&self, device: &Device, name: &str) -> Result<Arc<Domain>, Unavailable> {
        if !self.0.is_on(device) {
            return Err(lacking(name, "protection domain of this group, which is on another"));
        }
        Ok(Arc::clone(&self.0))
    }

    /// Checks that a provider which opens memory by `strategy` may be in a group.
    ///
    /// # Errors
    ///
    /// Its peers could reach memory of the others.
    pub(super) fn admit(strategy: Strategy, name: &str) -> Result<(), Unavailable> {
        let refused = || lacking(name, "memory windows in use, without which no domain is shared");
        is_shared(strategy).then_some(()).ok_or_else(refused)
    }
}

/// Returns whether a peer reaches only what was opened on its own connection, among all that is in a domain.
const fn is_shared(strategy: Strategy) -> bool {
    matches!(strategy, Strategy::Window)
}

fn lacking(device: &str, what: &'static str) -> Unavailable {
    Unavailable::Lacking { device: device.to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_opens_memory_by_windows_is_in_a_group() {
        let others = [Strategy::PerCall, Strategy::Persistent, Strategy::FastReg];
        for strategy in others {
            let refused = Group::admit(strategy, "siw0").unwrap_err();
            assert!(refused.to_string().starts_with("RDMA device siw0 has no memory windows"));
        }
        assert!(Group::admit(Strategy::Window, "mlx5_0").is_ok());
    }

    #[test]
    fn a_group_goes_to_the_threads_of_other_cores() {
        const fn goes<T: Clone + Send + Sync>() {}
        goes::<Group>();
    }
}
