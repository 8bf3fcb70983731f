//! What is to be measured, checked, and what both ends need for it.

use std::time::Duration;

use haulage::limits::{CALLS_OUT_MAX, ITEM_MAX, LIMITS_DEFAULT, Limits, RECEIVES_IDLE};

use super::load::Pace;
use super::protocol::ECHO_MAX;
use crate::cli::bytes;
use crate::cli::perf::{PerfOptions, Test};
use crate::failure::Failure;
use crate::limits::SMALL;
use crate::open_files;

/// A benchmark that makes sense.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What the Calls do.
    pub subject: Subject,
    /// Octets of payload in each.
    pub size: usize,
    /// How many are made.
    pub pace: Pace,
    /// Every octet is summed at the client.
    pub touch: bool,
    /// Connections it makes.
    pub connections: u32,
    /// Those of them that it makes Calls on.
    pub active: u32,
    /// What the two ends are.
    pub ends: Ends,
    /// How often it is run.
    pub runs: u32,
    /// Octets that the machine's limits are measured with.
    pub limits_size: usize,
}

/// What the two ends of a run are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Two processes, perhaps on two machines; this one is the client.
    Processes,
    /// Two threads of this process.
    Threads,
}

impl Plan {
    /// Checks options against each other, and against what this build holds.
    ///
    /// # Errors
    /// What they ask for makes no sense, or is more than this process may have.
    pub fn new(options: &PerfOptions, ends: Ends) -> Result<Self, Failure> {
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
        let plan = Self {
            subject: Subject::Test(test),
            size: if test == Test::Null { 0 } else { size },
            pace: Pace { depth, rate, warm: time.min(WARM), time },
            touch: options.touch,
            connections,
            active,
            ends,
            runs: options.runs.0,
            limits_size: size.max(SMALL),
        };
        plan.check()?;
        Ok(plan)
    }

    /// Checks it against what this build holds, and this process.
    pub fn check(&self) -> Result<(), Failure> {
        let (connections, depth) = (self.connections, self.pace.depth);
        let in_flight = self.active.saturating_mul(depth);
        // One more is the Call for the server's figures.
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
        let memory = self.memory();
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

    /// Returns how many Calls are in flight, at most.
    pub const fn in_flight(&self) -> u32 {
        // Each factor is at most 2^14.
        self.active * self.pace.depth
    }

    /// Returns the octets of items at one end.
    pub fn memory(&self) -> usize {
        let items = if self.subject.moves() { self.in_flight() as usize } else { 0 };
        // What is not the item is the rest of its slab.
        items.saturating_mul(self.size).saturating_mul(2).saturating_add(SLABS)
    }

    /// Returns what the server needs.
    pub fn server_room(&self) -> Room {
        let (connections, in_flight) = (self.connections, self.in_flight());
        Room { connections, in_flight, memory: self.memory() }
    }

    /// Returns the bounds of the client's core; `timeout` is for a connection, and for each answer.
    pub fn client_limits(&self, timeout: Duration) -> Limits {
        let room = self.server_room();
        let calls_out_max = room.in_flight + 1; // the Call for the server's figures
        Limits { calls_out_max, setup_timeout: timeout, call_timeout: timeout, ..room.limits() }
    }

    fn check_open_files(&self) -> Result<(), Failure> {
        let ends = match self.ends {
            Ends::Processes => 1,
            Ends::Threads => 2,
        };
        open_files::check(self.connections, ends)
    }
}

/// What Calls do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// What a test of `haulage perf` does.
    Test(Test),
    /// GETs and PUTs of the key-value service.
    Kv,
}

impl Subject {
    /// Returns its name in results.
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

/// What a server has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Connections.
    pub connections: u32,
    /// Calls in flight, of all connections.
    pub in_flight: u32,
    /// Octets for items.
    pub memory: usize,
}

impl Room {
    /// Returns the bounds of a core that has it.
    pub fn limits(&self) -> Limits {
        Limits {
            connections_max: self.connections,
            // All are of one machine, and meant to be.
            connections_each_max: self.connections,
            credits_max: self.in_flight + CREDITS_BESIDE,
            receives_max: Self::receives(self.connections, self.in_flight),
            calls_out_max: 1,
            send_buffers_max: self.send_buffers(),
            ..LIMITS_DEFAULT
        }
    }

    /// Returns how many messages it sends at once.
    const fn send_buffers(&self) -> u32 {
        let mut buffers = 0;
        buffers += self.in_flight; // Calls, or their Replies
        // A grant of each that is busy, or what a connection begins with: few do so at once.
        let grants = if self.in_flight > STARTING_MAX { self.in_flight } else { STARTING_MAX };
        buffers += if self.connections < grants { self.connections } else { grants };
        buffers += CREDITS_BESIDE; // the Call for figures
        buffers
    }

    /// Returns how many Receives that takes. More would be in the way: they are used in turn, and the
    /// fewer there are the hotter they stay.
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
/// Calls in flight on a connection of an open loop, unless told otherwise.
const OPEN_DEPTH: u32 = 128;
/// How long Calls are made before they count: memory is touched, buffers are found, windows open.
pub const WARM: Duration = Duration::from_millis(300);
/// Receives that the provider's queue holds.
const RECEIVES_MAX: u32 = 1 << 18;
/// Connections whose first message is under way, at most.
const STARTING_MAX: u32 = 512;
/// Credits of a connection beside those for Calls.
const CREDITS_BESIDE: u32 = 8;
/// The most memory one end takes for items.
const MEMORY_MAX: usize = 8 << 30;
/// Slabs of other lengths than the items'.
const SLABS: usize = 4 << 20;
