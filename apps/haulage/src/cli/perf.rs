//! The command line of `haulage perf`.

use std::io;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use haulage::identity::Identity;
use haulage::sys::process;

use super::address::Address;
use super::options::{ClientHostOptions, CoreOptions, HostOptions, PeerOptions};
use super::values::{Bytes, CoreList, Timeout};

/// The commands of `haulage perf`.
#[derive(Debug, Subcommand)]
pub enum Perf {
    /// Serves `perf run` until SIGTERM
    Serve(ServePerf),
    /// Measures against a server
    #[command(after_help = TEST_HELP)]
    Run {
        /// What to measure
        #[command(flatten)]
        options: PerfOptions,
        /// The server; `:PORT` is one on this machine
        #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:20060")]
        connect: Address,
        /// How long to wait for a connection, and for each answer
        #[arg(long, value_name = "SECONDS", default_value = "2")]
        timeout: Timeout,
        /// Whether hosts prove which they are
        #[command(flatten)]
        hosts: ClientHostOptions,
    },
    /// Measures with both ends on this machine, each on a CPU of its own if there are enough
    #[command(after_help = TEST_HELP)]
    Local {
        /// What to measure
        #[command(flatten)]
        options: PerfOptions,
        /// Run both ends as threads of one process, not as two processes
        #[arg(long)]
        threads: bool,
        /// A server of several cores
        #[command(flatten)]
        group: GroupOptions,
    },
}

const TEST_HELP: &str = "\
null is a call without payload; read and write move SIZE bytes by direct data placement to and from
the client; inline echoes SIZE bytes inside the messages.
With one call in flight, every call is timed. With several, one in 17 is, as reading the clock takes
as long as a call. With --rate, calls become due at random times and latency counts from then, so
that it includes the wait behind a slow call. With many connections, the memory for each idle
connection is measured at each end. Before each run, the limits of the machine are measured between
the same CPUs: memory copies, raw TCP, and the round trip of a cache line.";

/// The options of `haulage perf serve`.
#[derive(Clone, Debug, Args)]
pub struct ServePerf {
    /// Where to accept connections; `:PORT` is this machine only. The next port up serves raw TCP, for
    /// comparison
    #[arg(long, value_name = "ADDR:PORT", default_value = ":20060")]
    pub listen: Address,
    /// Memory for the payload of reads and writes
    #[arg(long, value_name = "BYTES", default_value = "64MiB")]
    pub memory: Bytes,
    /// Connections at once
    #[arg(long, value_name = "N", default_value = "16")]
    pub connections: Count,
    /// Calls in flight at once, of all connections; more than needed makes the server slower
    #[arg(long, value_name = "N", default_value = "128")]
    pub depth: Count,
    /// Where to serve metrics, at /metrics
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<Address>,
    /// How the server treats its clients
    #[command(flatten)]
    pub peers: PeerOptions,
    /// Whether hosts prove which they are
    #[command(flatten)]
    pub hosts: HostOptions,
    /// How its core works
    #[command(flatten)]
    pub core: CoreOptions,
}

/// The test to run and its options, common to `perf run` and `perf local`.
#[derive(Clone, Debug, Args)]
pub struct PerfOptions {
    /// Test to run
    #[arg(value_enum)]
    pub test: Test,
    /// Payload of each call; 1GiB at most [default: 1MiB; inline: 1KiB]
    #[arg(long, value_name = "BYTES")]
    pub size: Option<Bytes>,
    /// Calls in flight on each connection [default: 1; with --rate: 128, at most]
    #[arg(long, value_name = "N")]
    pub depth: Option<Count>,
    /// Duration of the measurement, without machine limits and warm-up
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    pub seconds: Timeout,
    /// Number of connections of each client
    #[arg(long, value_name = "N", default_value = "1")]
    pub connections: Count,
    /// Number of them that make calls; the others stay idle [default: all]
    #[arg(long, value_name = "N")]
    pub active: Option<Count>,
    /// Open loop: this many calls become due each second (Poisson arrivals), whether earlier ones have ended or
    /// not, of all clients together
    #[arg(long, value_name = "R")]
    pub rate: Option<Rate>,
    /// What calls say about who makes them
    #[arg(long, value_enum, default_value = "none")]
    pub auth: Auth,
    /// Sum every byte at the client
    #[arg(long)]
    pub touch: bool,
    /// Number of runs; the median run is shown
    #[arg(long, value_name = "N", default_value = "1")]
    pub runs: Runs,
    /// Draw the results as SVG
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// How the cores work
    #[command(flatten)]
    pub core: CoreOptions,
}

/// A server of several cores and its clients, of `perf local`.
#[derive(Clone, Debug, Args)]
pub struct GroupOptions {
    /// CPUs of the cores of one server, one core each, such as 0,2-3. Each core has a client; --connections
    /// is for each client, --rate for all together
    #[arg(long, value_name = "LIST", conflicts_with = "cores")]
    pub server_cores: Option<CoreList>,
    /// CPUs of the clients, as many as server cores [default: CPUs without a server core; where there are
    /// too few, ends share CPUs, and which is said]
    #[arg(long, value_name = "LIST", requires = "server_cores", conflicts_with = "cores")]
    pub client_cores: Option<CoreList>,
    /// Measure the first of the server cores alone, then the first two, and so on up to all
    #[arg(long, requires = "server_cores", conflicts_with = "cores")]
    pub sweep: bool,
}

/// The credential of the calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Auth {
    /// Nothing (AUTH_NONE)
    None,
    /// The user and groups of this process (AUTH_SYS)
    Sys,
}

impl Auth {
    /// Returns the identity that calls claim.
    ///
    /// # Errors
    /// The system's error, if it does not say who we are.
    pub fn identity(self) -> io::Result<Identity> {
        match self {
            Self::None => Ok(Identity::Anonymous),
            Self::Sys => process::identity(),
        }
    }
}

/// A test of `haulage perf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Test {
    /// Call without payload
    Null,
    /// Move bytes to the client, by direct data placement
    Read,
    /// Move bytes to the server, by direct data placement
    Write,
    /// Echo bytes inside the messages
    Inline,
}

impl Test {
    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Read => "read",
            Self::Write => "write",
            Self::Inline => "inline",
        }
    }
}

/// A count of connections or calls: 1 to 16,384.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u32);

impl Count {
    /// The largest count.
    pub const MAX: u32 = 16_384;
}

impl FromStr for Count {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        between(text, Self::MAX).map(Self).ok_or_else(|| format!("give 1 to {}", Self::MAX))
    }
}

/// A number of runs: 1 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runs(pub u32);

impl FromStr for Runs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        between(text, RUNS_MAX).map(Self).ok_or_else(|| format!("give 1 to {RUNS_MAX}"))
    }
}

const RUNS_MAX: u32 = 1000;

fn between(text: &str, most: u32) -> Option<u32> {
    text.parse().ok().filter(|number| (1..=most).contains(number))
}

/// Calls a second: more than 0.001, at most 1e9.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = text.parse::<f64>().ok().filter(|rate| *rate > 1e-3 && *rate <= 1e9);
        rate.map(Self).ok_or_else(|| "give calls a second, such as 50000".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_bounds() {
        assert_eq!(("1".parse(), "16384".parse()), (Ok(Count(1)), Ok(Count(16_384))));
        assert!(["0", "16385", "-1", "", "1k"].iter().all(|text| text.parse::<Count>().is_err()));
        assert!(["0", "1001"].iter().all(|text| text.parse::<Runs>().is_err()));
        assert_eq!("2.5e6".parse(), Ok(Rate(2.5e6)));
        assert!(["0", "-1", "nan", "inf", "1e10"].iter().all(|text| text.parse::<Rate>().is_err()));
    }

    #[test]
    fn calls_say_who_makes_them_if_asked_to() {
        assert_eq!(Auth::None.identity().unwrap(), Identity::Anonymous);
        assert!(matches!(Auth::Sys.identity().unwrap(), Identity::User(_)));
    }

    #[test]
    fn names_are_what_is_typed() {
        for test in Test::value_variants() {
            assert_eq!(Test::from_str(test.name(), false), Ok(*test));
        }
    }
}
