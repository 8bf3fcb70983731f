//! The only module in which memory comes back from an RNIC.
//!
//! Every function requires evidence from the provider itself, [`Done`] or [`Quiesced`], which no code outside this
//! crate can make. The caller pairs the evidence with its lease: a `Done` must be of the request that the lease was
//! posted with, or of a later one on the same send queue; a `Quiesced` must be of the connection that the lease was
//! posted or exposed on.
//!
//! The evidence is checked: a lease of which the provider still holds a view is not given back. Such a provider is
//! broken, and the lease is an orphan.

use haulage_mr_pool::{
    Exposed, Invalidated, Leases, Local, PostedSink, PostedSinks, PostedSource, Shared,
};
use haulage_proto::verbs::Status;

use crate::work::{Done, Quiesced};

/// Takes back the source of a Send or a Write. `None` only from a broken provider.
pub fn source(posted: PostedSource<Local>, _: &Done) -> Option<Local> {
    posted.complete().map_err(orphan).ok()
}

/// Takes back the sinks of the Reads of one item. The completion of the last one defines their contents. `None` only
/// from a broken provider.
pub fn sinks(posted: PostedSinks, _: &Done) -> Option<Leases> {
    posted.complete().map_err(orphan).ok()
}

/// Takes back the source of a Write that others read, too.
pub fn shared(posted: PostedSource<Shared>, _: &Done) -> Shared {
    posted.complete()
}

/// Takes back the sink of a Receive. The completion defines its contents. `None` only from a broken provider.
pub fn sink(posted: PostedSink, _: &Done) -> Option<Local> {
    posted.complete().map_err(orphan).ok()
}

/// Returns the proof that the peer has lost access to the memory under the handle that `done` names. The proof is valid
/// as long as `done` is borrowed.
pub fn invalidated(done: &Done) -> Option<Invalidated<'_>> {
    let handle = done.invalidated.filter(|_| done.status == Status::Success)?;
    // SAFETY: a provider names a handle in a `Done` only after it retired it, and serves no peer that
    // names a retired one; or the handle was never of the memory that was exposed, but of a `Bounce`.
    Some(unsafe { Invalidated::mint(handle) })
}

/// Takes back the source of a request whose connection is gone. `None` only from a broken provider.
pub fn source_quiesced(posted: PostedSource<Local>, _: &Quiesced) -> Option<Local> {
    posted.complete().map_err(orphan).ok()
}

/// Takes back the shared source of a request whose connection is gone.
pub fn shared_quiesced(posted: PostedSource<Shared>, _: &Quiesced) -> Shared {
    posted.complete()
}

/// Takes back the sinks of Reads whose connection is gone. `None` only from a broken provider.
pub fn sinks_quiesced(posted: PostedSinks, _: &Quiesced) -> Option<Leases> {
    posted.complete().map_err(orphan).ok()
}

/// Returns the proof that the peer has lost access to `exposed`, because its connection is gone.
pub fn destroyed<'turn>(exposed: &Exposed, _: &'turn Quiesced) -> Invalidated<'turn> {
    // SAFETY: a provider makes a `Quiesced` only after the queue pair's registrations are destroyed.
    unsafe { Invalidated::mint(exposed.handle()) }
}

/// Drops a lease whose views the provider kept: its memory is never lent again.
fn orphan<L>(_lent: L) {
    debug_assert!(false, "the provider still holds a view of memory that it reported as done");
}

#[cfg(test)]
pub(crate) mod tests {
    use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
    use haulage_proto::verbs::QpNum;

    use super::*;

    /// Tries to take exposed memory back with a proof that no provider gave.
    pub(crate) fn fence_early(
        exposed: Exposed,
        handle: haulage_proto::verbs::Handle,
    ) -> Result<Local, Exposed> {
        // SAFETY: no peer of a test touches the memory: only its table is looked at.
        let proof = unsafe { Invalidated::mint(handle) };
        exposed.fence(proof).map_err(|(exposed, _)| exposed)
    }

    #[test]
    #[cfg_attr(debug_assertions, should_panic(expected = "still holds a view"))]
    fn what_a_provider_still_views_is_not_given_back() {
        let config = PoolConfig { bytes: 1 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&config).unwrap();
        let mut posted = Leases::from(pool.lease(100).unwrap()).into_sinks().unwrap();
        let mut kept = Vec::new();
        posted.sinks(0..100, |view| kept.push(view));
        assert!(sinks_quiesced(posted, &Quiesced::new(QpNum::new(1, 1))).is_none());
        drop(kept);
        assert_eq!((pool.gauges().orphans, pool.gauges().posted), (1, 0));
    }
}
