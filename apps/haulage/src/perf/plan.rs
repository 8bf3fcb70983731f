//! The checked options of a benchmark, and the resources that both ends need for it.

use std::time::Duration;

use haulage::limits::{
    CALLS_OUT_MAX, ITEM_MAX, LIMITS_DEFAULT, Limits, RECEIVES_IDLE, REPLY_PARTS,
};

use super::load::{Pace, SEED, Timed};
use super::protocol::ECHO_MAX;
use crate::cli::bytes;
use crate::cli::perf::{Count, PerfOptions, Test};
use crate::failure::Failure;
use crate::limits::{MESSAGE_MAX, SMALL};
use crate::node::CLIENT_DRAIN;
use crate::open_files;

/// The checked options of a benchmark.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The kind of Calls.
    pub subject: Subject,
    /// Octets of payload in each Call.
    pub size: usize,
    /// The number of Calls in flight, their rate, and the duration.
    pub pace: Pace,
    /// Whether the client sums every octet.
    pub touch: bool,
    /// Number of clients, each with a core of its own. The server has as many cores, if this command starts it.
    pub clients: u32,
    /// Number of connections of each client.
    pub connections: u32,
    /// Number of those on which Calls are made.
    pub active: u32,
    /// The two ends: processes or threads.
    pub ends: Ends,
    /// Number of runs.
    pub runs: u32,
    /// Size of items with which the machine's limits are measured, in octets.
    pub limits_size: usize,
}

/// The kind of the two ends of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Two processes, perhaps on two machines; this one is the client.
    Processes,
    /// Two threads of this process.
    Threads,
}

impl Plan {
    /// Creates a plan from checked options.
    ///
    /// # Errors
    /// The options contradict each other, or exceed the limits of this build or process.
    pub fn new(options: &PerfOptions, ends: Ends, clients: u32) -> Result<Self, Failure> {
        let test = options.test;
        let default = if test == Test::Inline { INLINE_DEFAULT } else { SIZE_DEFAULT };
        let asked = options.size.map_or(default, |size| size.0);
        let most = if test == Test::Inline { ECHO_MAX } else { ITEM_MAX };
        let size = usize::try_from(asked).ok().filter(|size| (1..=most).contains(size));
        let Some(size) = size.or((test == Test::Null).then_some(1)) else {
            return Err(Failure::usage(format!(
                "--size of {} is 1 to {most} bytes, not {asked}",
                test.name()
            )));
        };
        let rate = options.rate.map(|rate| rate.0);
        let depth_default = if rate.is_some() { OPEN_DEPTH } else { 1 };
        let depth = options.depth.map_or(depth_default, |depth| depth.0);
        let connections = options.connections.0;
        let active = options.active.map_or(connections, |active| active.0);
        if active > connections {
            return Err(Failure::usage(format!(
                "--active {active} is more than there are; raise --connections, which is {connections}"
            )));
        }
        let time = options.seconds.0;
        let timed = Timed::of(active.saturating_mul(depth));
        let plan = Self {
            subject: Subject::Test(test),
            size: if test == Test::Null { 0 } else { size },
            pace: Pace { depth, rate, warm: time.min(WARM), time, seed: SEED, timed },
            touch: options.touch,
            clients,
            connections,
            active,
            ends,
            runs: options.runs.0,
            limits_size: size.clamp(SMALL, MESSAGE_MAX),
        };
        plan.check()?;
        Ok(plan)
    }

    /// Divides the connections among `count` clients as evenly as they go. Returns the plan of client `number`, from zero.
    /// The first client has the most.
    #[must_use]
    pub const fn part(self, number: u32, count: u32) -> Self {
        const fn share(all: u32, number: u32, count: u32) -> u32 {
            all / count + if number < all % count { 1 } else { 0 }
        }
        let connections = share(self.connections, number, count);
        Self { connections, active: share(self.active, number, count), ..self }
    }

    /// Checks the plan against the limits of this build and process.
    ///
    /// # Errors
    /// It exceeds them, with what to do.
    pub fn check(&self) -> Result<(), Failure> {
        self.check_client()?;
        self.check_all()
    }

    /// Checks what each client has against the limits of a core.
    ///
    /// # Errors
    /// There are more Calls or connections than one core has. The text says what to do.
    pub fn check_client(&self) -> Result<(), Failure> {
        let (connections, depth) = (self.connections, self.pace.depth);
        let in_flight = self.active.saturating_mul(depth);
        // One more Call asks for the server's counters.
        if in_flight >= CALLS_OUT_MAX {
            return Err(Failure::usage(format!(
                "{in_flight} calls in flight are more than one core makes, which is {}; lower --depth, \
                 --active or --connections",
                CALLS_OUT_MAX - 1
            )));
        }
        if Room::receives(connections, in_flight) > RECEIVES_MAX {
            return Err(Failure::usage(format!(
                "{connections} connections with {depth} calls in flight each are more than one core \
                 of this build holds; lower --connections or --depth"
            )));
        }
        Ok(())
    }

    /// Checks what all clients have together against the limits of a server and of this process.
    ///
    /// # Errors
    /// They have more, with what to do.
    pub fn check_all(&self) -> Result<(), Failure> {
        let all = self.server_room();
        if all.connections.max(all.in_flight) > Count::MAX {
            return Err(Failure::usage(format!(
                "all clients have {} connections and {} calls in flight, and a server takes {} of either; lower \
                 --connections or --depth",
                all.connections,
                all.in_flight,
                Count::MAX
            )));
        }
        let memory = all.memory;
        if memory > MEMORY_MAX {
            return Err(Failure::usage(format!(
                "so many items of {} take {}, of {} at most; lower --depth, --connections or --size",
                bytes::format(self.size as u64),
                bytes::format(memory as u64),
                bytes::format(MEMORY_MAX as u64)
            )));
        }
        self.check_open_files()
    }

    /// Returns the maximum number of Calls in flight of one client.
    pub const fn in_flight(&self) -> u32 {
        // Each factor is at most 2^14.
        self.active * self.pace.depth
    }

    /// Returns the memory for items of one client, in octets.
    pub fn memory(&self) -> usize {
        let items = if self.subject.moves() { self.in_flight() as usize } else { 0 };
        // An item may leave half of its slab unused.
        items.saturating_mul(self.size).saturating_mul(2).saturating_add(SLABS)
    }

    /// Returns the resources that the server needs, with all its cores.
    pub fn server_room(&self) -> Room {
        let Room { connections, in_flight, memory } = self.client_room();
        Room {
            connections: connections * self.clients,
            in_flight: in_flight * self.clients,
            memory: memory.saturating_mul(self.clients as usize),
        }
    }

    /// Returns the resources that each client needs.
    fn client_room(&self) -> Room {
        let (connections, in_flight) = (self.connections, self.in_flight());
        Room { connections, in_flight, memory: self.memory() }
    }

    /// Returns the limits of the client's core; `timeout` is for connecting, and for each Call.
    pub fn client_limits(&self, timeout: Duration) -> Limits {
        let room = self.client_room();
        let calls_out_max = room.in_flight + 1; // the Call for the server's figures
        Limits {
            calls_out_max,
            setup_timeout: timeout,
            call_timeout: timeout,
            drain_timeout: CLIENT_DRAIN.min(timeout),
            ..room.limits()
        }
    }

    fn check_open_files(&self) -> Result<(), Failure> {
        let ends = match self.ends {
            Ends::Processes => 1,
            Ends::Threads => 2,
        };
        open_files::check(self.connections * self.clients, ends)
    }
}

/// The kind of Calls of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// A test of `haulage perf`.
    Test(Test),
    /// GETs and PUTs of the key-value service.
    Kv,
}

impl Subject {
    /// Returns the name in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Test(test) => test.name(),
            Self::Kv => "kv",
        }
    }

    /// Returns whether payload is moved by direct data placement.
    pub const fn moves(self) -> bool {
        matches!(self, Self::Test(Test::Read | Test::Write) | Self::Kv)
    }
}

/// The resources of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Maximum number of connections.
    pub connections: u32,
    /// Maximum number of Calls in flight, of all connections.
    pub in_flight: u32,
    /// Octets for items.
    pub memory: usize,
}

impl Room {
    /// Divides these resources among `cores` cores. Returns the part of each, rounded up.
    #[must_use]
    pub fn part(self, cores: usize) -> Self {
        let count = u32::try_from(cores).unwrap_or(u32::MAX);
        Self {
            connections: self.connections.div_ceil(count),
            in_flight: self.in_flight.div_ceil(count),
            memory: self.memory.div_ceil(cores),
        }
    }

    /// Returns the limits of a core with these resources.
    pub fn limits(&self) -> Limits {
        Limits {
            connections_max: self.connections,
            // All connections may come from one machine.
            connections_each_max: self.connections,
            credits_max: self.in_flight + CREDITS_BESIDE,
            receives_max: Self::receives(self.connections, self.in_flight),
            calls_out_max: 1,
            send_buffers_max: self.send_buffers(),
            ..LIMITS_DEFAULT
        }
    }

    /// Returns the number of send buffers: messages being sent at once.
    fn send_buffers(&self) -> u32 {
        // One connection may have all Replies, and may use a part of the buffers.
        let one = self.in_flight.saturating_mul(self.connections.clamp(1, REPLY_PARTS));
        // The connections may all be of one origin, which leaves as many buffers free as it uses.
        let all = self.in_flight.saturating_mul(2);
        let mut buffers = one.min(LIMITS_DEFAULT.send_buffers_max).max(all); // Calls, or their Replies
        // A grant of each busy connection, or the first message of each starting one: few start at once.
        buffers += self.connections.min(self.in_flight.max(STARTING_MAX));
        buffers += CREDITS_BESIDE; // the Call for figures
        buffers
    }

    /// Returns the number of Receives. It is no larger than needed: Receives are used in turn, so that fewer of them
    /// stay in the cache.
    const fn receives(connections: u32, in_flight: u32) -> u32 {
        let busy = if connections < in_flight { connections } else { in_flight };
        let mut receives = 0_u32;
        receives += RECEIVES_IDLE * connections; // the floors
        receives += RECEIVES_IDLE * busy; // what is moved between connections
        receives = receives.saturating_add(in_flight); // Calls, and their Replies at the other end
        receives = receives.saturating_add(2 * CREDITS_BESIDE); // grants, and the Call for figures
        receives
    }
}

const SIZE_DEFAULT: u64 = 1 << 20;
const INLINE_DEFAULT: u64 = 1 << 10;
/// Default maximum of Calls in flight on a connection of an open loop.
const OPEN_DEPTH: u32 = 128;
/// Duration of the warm-up, in which memory is touched and TCP windows open.
pub const WARM: Duration = Duration::from_millis(300);
/// Maximum number of Receives in the provider's queue.
const RECEIVES_MAX: u32 = 1 << 18;
/// Maximum number of connections that start at once.
const STARTING_MAX: u32 = 512;
/// Credits of a connection besides those for Calls.
const CREDITS_BESIDE: u32 = 8;
/// Maximum memory of one end for items, in octets.
const MEMORY_MAX: usize = 8 << 30;
/// Octets for slabs of other sizes than the items'.
const SLABS: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connections_of_a_plan_are_dealt_evenly() {
        let pace = Pace {
            depth: 2,
            rate: None,
            warm: WARM,
            time: WARM,
            seed: SEED,
            timed: Timed::Sampled,
        };
        let plan = Plan {
            subject: Subject::Kv,
            size: 8,
            pace,
            touch: false,
            clients: 1,
            connections: 8,
            active: 8,
            ends: Ends::Processes,
            runs: 1,
            limits_size: SMALL,
        };
        let parts = |count| -> Vec<_> {
            (0..count).map(|number| plan.part(number, count).in_flight()).collect()
        };
        assert_eq!((parts(1), parts(3)), (vec![16], vec![6, 6, 4]));
        assert_eq!(parts(8), [2; 8]);
        // More than one core makes, and not more than two do.
        let many = Plan { connections: 4, active: 4, ..plan };
        let many = Plan { pace: Pace { depth: CALLS_OUT_MAX / 4, ..pace }, ..many };
        assert!(many.check_client().is_err() && many.part(0, 2).check_client().is_ok());
    }

    #[test]
    fn the_replies_of_one_connection_need_not_wait_for_send_buffers() {
        for connections in [1, 2, 12, 100] {
            for in_flight in [1, 32, 64] {
                let limits = Room { connections, in_flight, memory: 0 }.limits();
                assert!(limits.replies_each() >= in_flight, "{connections}, {in_flight}");
                assert!(limits.send_buffers_max >= 2 * in_flight, "{connections}, {in_flight}");
            }
        }
    }
}
