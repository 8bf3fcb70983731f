//! The statistics of a key-value server.

use haulage::core::CORES_MAX;
use haulage::pool::{PageKind, PageReport};
use haulage_proto::xdr::{Reader, Truncated, Writer};

/// The statistics of `kv stat`. Memory is in octets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Cores of the server.
    pub shards: u64,
    /// Keys stored.
    pub keys: u64,
    /// Octets of all values.
    pub value_bytes: u64,
    /// Maximum octets of all values.
    pub value_bytes_max: u64,
    /// The `--memory` of the server, for values and index.
    pub memory_bytes: u64,
    /// VmRSS and HugetlbPages of the process.
    pub resident_bytes: u64,
    /// Memory that connections hold beyond the shared receive buffers.
    pub connection_bytes: u64,
    /// Open connections, including the client's own.
    pub connections: u64,
    /// Leases readable and writable by the server alone.
    pub leases_local: u64,
    /// Leases any number of replies may be sent from.
    pub leases_shared: u64,
    /// Leases owned by a posted work request.
    pub leases_posted: u64,
    /// Leases a peer may touch.
    pub leases_exposed: u64,
    /// Registrations in flight.
    pub registrations: u64,
    /// Registrations whose lease was dropped while exposed.
    pub orphans: u64,
    /// Handles invalidated by a peer's Send with Invalidate.
    pub invalidations_remote: u64,
    /// Handles invalidated by the server itself.
    pub invalidations_local: u64,
    /// Octets of payload the server's user space copied.
    pub copied_user: u64,
    /// Octets the system copied between the server's memory and its sockets.
    pub copied_system: u64,
    /// Registered memory in pages of 1 GiB.
    pub pages_1g: u64,
    /// Registered memory in pages of 2 MiB.
    pub pages_2m: u64,
    /// Registered memory in transparent huge pages.
    pub pages_thp: u64,
    /// Registered memory in pages of 4 KiB.
    pub pages_4k: u64,
    /// Connections that are over and keep memory that a peer may still touch.
    pub connections_held: u64,
    /// Leases of Calls that were given up, which wait for their invalidation.
    pub leases_held: u64,
    /// Peers that were lost before their connection was set up: they closed it.
    pub handshakes_closed: u64,
    /// Peers so lost that broke a rule of the handshake.
    pub handshakes_malformed: u64,
    /// Peers so lost that took too long.
    pub handshakes_timed_out: u64,
    /// Peers so lost for want of room.
    pub handshakes_crowded_out: u64,
    /// Peers so lost that this process shares no memory with.
    pub handshakes_forbidden: u64,
    /// Accepts that failed for want of a descriptor.
    pub accepts_descriptors: u64,
    /// Accepts that failed for want of memory.
    pub accepts_memory: u64,
    /// Other accepts that failed.
    pub accepts_other: u64,
    /// Free memory that keys and values can take, once the server has moved others together.
    pub usable_bytes: u64,
    /// The part of the usable memory that needs no moving: free pages.
    pub usable_unmoved_bytes: u64,
    /// Octets of keys and values moved since the start.
    pub moved_bytes: u64,
    /// Maximum number of keys; zero if the server does not tell.
    pub keys_max: u64,
    /// Clients that are told of changes.
    pub watches: u64,
    /// Values that were asked for and found since the start.
    pub hits: u64,
    /// Values that were asked for and not found since the start.
    pub misses: u64,
    /// Values, keys and watches that were refused since the start.
    pub refused: u64,
    /// Each core, by its number, if the server tells.
    pub per_core: Vec<CoreStat>,
}

/// The statistics of one core of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreStat {
    /// Keys that it stored, less those that it deleted, whichever core had stored them. The sum over all cores is the number of keys.
    pub keys: i64,
    /// Keys whose values it was asked for.
    pub gets: u64,
    /// Open connections.
    pub connections: u64,
}

impl Stat {
    /// Decodes the statistics, which are all that is left. A server of an earlier release has fewer: the others are
    /// zero. One of a later release may have more.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self, Truncated> {
        let mut stat = Self::default();
        for (number, figure) in stat.figures_mut().into_iter().enumerate() {
            if number >= FIGURES_LEAST && r.is_empty() {
                break;
            }
            *figure = r.u64()?;
        }
        let count = if r.is_empty() { 0 } else { r.u64()? };
        for _ in 0..count.min(CORES_MAX.into()) {
            let (keys, gets, connections) = (r.u64()?.cast_signed(), r.u64()?, r.u64()?);
            stat.per_core.push(CoreStat { keys, gets, connections });
        }
        while !r.is_empty() {
            r.u64()?;
        }
        Ok(stat)
    }

    /// Appends the statistics to `w`.
    pub(crate) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.clone().figures_mut().into_iter().try_for_each(|figure| w.u64(*figure))?;
        w.u64(self.per_core.len() as u64)?;
        self.per_core.iter().try_for_each(|CoreStat { keys, gets, connections }| {
            w.u64(keys.cast_unsigned())?;
            w.u64(*gets)?;
            w.u64(*connections)
        })
    }

    /// Adds the statistics of another core of the same server. What the process or the server has once stays as it is. Of
    /// `per_core`, each of the two has what its own core counts at the place of that core's number, and zeros before it.
    pub(crate) fn add(&mut self, mut other: Self) {
        let Self { value_bytes_max, memory_bytes, resident_bytes, keys_max, .. } = *self;
        let pages = [self.pages_1g, self.pages_2m, self.pages_thp, self.pages_4k];
        for (figure, more) in self.figures_mut().into_iter().zip(other.figures_mut()) {
            // A core counts less than nothing where others stored what it deleted.
            *figure = figure.wrapping_add(*more);
        }
        let count = self.per_core.len().max(other.per_core.len());
        self.per_core.resize(count, CoreStat::default());
        for (core, more) in self.per_core.iter_mut().zip(other.per_core) {
            core.keys += more.keys;
            core.gets += more.gets;
            core.connections += more.connections;
        }
        (self.value_bytes_max, self.memory_bytes) = (value_bytes_max, memory_bytes);
        (self.resident_bytes, self.keys_max) = (resident_bytes, keys_max);
        [self.pages_1g, self.pages_2m, self.pages_thp, self.pages_4k] = pages;
    }

    /// Sets the page counters of the registered memory.
    pub fn set_pages(&mut self, report: &PageReport) {
        let (bytes, huge) = (report.bytes as u64, report.huge_bytes as u64);
        match report.kind {
            PageKind::Gigantic => self.pages_1g = bytes,
            PageKind::Huge => self.pages_2m = bytes,
            // The system decides which part gets huge pages.
            PageKind::Transparent => {
                (self.pages_thp, self.pages_4k) = (huge, bytes.saturating_sub(huge));
            }
            PageKind::Small | PageKind::Heap => self.pages_4k = bytes,
        }
    }

    /// Returns the statistics in their order on the wire.
    fn figures_mut(&mut self) -> [&mut u64; 40] {
        [
            &mut self.shards,
            &mut self.keys,
            &mut self.value_bytes,
            &mut self.value_bytes_max,
            &mut self.memory_bytes,
            &mut self.resident_bytes,
            &mut self.connection_bytes,
            &mut self.connections,
            &mut self.leases_local,
            &mut self.leases_shared,
            &mut self.leases_posted,
            &mut self.leases_exposed,
            &mut self.registrations,
            &mut self.orphans,
            &mut self.invalidations_remote,
            &mut self.invalidations_local,
            &mut self.pages_1g,
            &mut self.pages_2m,
            &mut self.pages_thp,
            &mut self.pages_4k,
            &mut self.copied_user,
            &mut self.copied_system,
            &mut self.connections_held,
            &mut self.leases_held,
            &mut self.handshakes_closed,
            &mut self.handshakes_malformed,
            &mut self.handshakes_timed_out,
            &mut self.handshakes_crowded_out,
            &mut self.handshakes_forbidden,
            &mut self.accepts_descriptors,
            &mut self.accepts_memory,
            &mut self.accepts_other,
            &mut self.usable_bytes,
            &mut self.usable_unmoved_bytes,
            &mut self.moved_bytes,
            &mut self.keys_max,
            &mut self.watches,
            &mut self.hits,
            &mut self.misses,
            &mut self.refused,
        ]
    }
}

/// The number of figures that the first servers sent.
const FIGURES_LEAST: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_other_releases_may_have_fewer_figures_or_more() {
        let mut sent: Vec<u8> = (1..=40_u64).flat_map(u64::to_be_bytes).collect();
        sent.extend([1, u64::MAX, 8, 9, 0].into_iter().flat_map(u64::to_be_bytes));
        let decode = |figures: usize| Stat::decode(&mut Reader::new(&sent[..8 * figures]));
        let first = decode(22).unwrap();
        assert_eq!((first.shards, first.copied_system, first.connections_held), (1, 22, 0));
        let all = decode(45).unwrap();
        assert_eq!((all.copied_system, all.connections_held, all.refused), (22, 23, 40));
        assert_eq!(all.per_core, [CoreStat { keys: -1, gets: 8, connections: 9 }]);
        assert_eq!(decode(40).unwrap(), Stat { per_core: Vec::new(), ..all });
        assert!(decode(43).is_err(), "a core is missing");
        assert!(decode(21).is_err(), "no server sent as few");
    }

    #[test]
    fn statistics_of_cores_add_up_but_for_what_the_server_has_once() {
        let of_core = |keys| CoreStat { keys, gets: 1, connections: 2 };
        let none = CoreStat::default();
        let core = |number: usize, keys: i64| Stat {
            shards: 1,
            keys: keys.cast_unsigned(),
            memory_bytes: 7,
            resident_bytes: 8,
            value_bytes_max: 9,
            keys_max: 10,
            connections: 2,
            per_core: [vec![none; number], vec![of_core(keys)]].concat(),
            ..Stat::default()
        };
        let mut sum = core(1, 3);
        sum.add(core(3, -2));
        sum.add(core(0, 4));
        let per_core = vec![of_core(4), of_core(3), none, of_core(-2)];
        assert_eq!(sum, Stat { shards: 3, keys: 5, connections: 6, per_core, ..core(0, 0) });
    }
}
