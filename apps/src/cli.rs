//! What can be typed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::Output;

pub mod address;
pub mod bytes;
mod mistakes;
pub mod perf;
pub mod values;

use address::Address;
use perf::{Count, Perf};
use values::{
    Bytes, CoreList, Export, Keys, LogFormat, Maybe, Network, Polling, Provider, Ratio, RpcVersion,
    Squash, Switch, Timeout, Unlimited,
};

/// A command line that makes sense.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, for the length of one command")]
pub enum Parsed {
    /// Print this and be done: help or the version.
    Help(String),
    /// Do this, and print in this way.
    Command(Command, Output),
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Moves values of many sizes between two processes, verifies every byte, prints what it measured
    Demo(CoreOptions),
    /// The key-value service
    #[command(subcommand)]
    Kv(Kv),
    /// The storage server: NFS version 3 over RDMA, mounted by any Linux machine
    #[command(subcommand)]
    Store(Store),
    /// Measures calls, next to what this machine can do at best
    #[command(subcommand)]
    Perf(Perf),
    /// Looks inside RPC-over-RDMA messages, and makes them
    #[command(subcommand)]
    Wire(Wire),
    /// Says what this machine lacks to run Haulage well, and the command that fixes it
    Doctor,
    /// Prints a script that completes commands and options in a shell
    #[command(after_help = COMPLETIONS_HELP)]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Writes the manual pages, one for each command
    #[command(after_help = MAN_HELP)]
    Man {
        /// Where to put them; made if it is not there
        dir: PathBuf,
    },
}

const COMPLETIONS_HELP: &str = "\
For this user, bash reads ~/.local/share/bash-completion/completions/haulage, fish reads
~/.config/fish/completions/haulage.fish, and zsh reads _haulage in any directory of its fpath.";

const MAN_HELP: &str = "\
Pages in DIR/man1 are found by man if DIR is in MANPATH: `haulage man ~/.local/share/man/man1`.";

/// What to do with the key-value service.
#[derive(Debug, Subcommand)]
pub enum Kv {
    /// Serves keys and values until SIGTERM
    Serve(ServeKv),
    /// Stores a value
    Put {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
        /// 1 to 512 bytes of UTF-8
        key: String,
        /// Where the value is; `-` is standard input
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Prints a value as it is
    Get {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
        /// 1 to 512 bytes of UTF-8
        key: String,
    },
    /// Forgets a key
    Del {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
        /// 1 to 512 bytes of UTF-8
        key: String,
    },
    /// Lists the keys, in no order
    Keys {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
    },
    /// Stores and fetches values at random, and measures
    #[command(after_help = BENCH_HELP)]
    Bench(BenchKv),
    /// Says how a server is doing
    Stat {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
    },
}

/// What to do with storage.
#[derive(Debug, Subcommand)]
pub enum Store {
    /// Serves files until SIGTERM
    #[command(after_help = STORE_HELP)]
    Serve(ServeStore),
    /// Lists a directory
    #[command(after_help = PATH_HELP)]
    Ls {
        /// The server
        #[command(flatten)]
        mount: MountOptions,
        /// The directory, or a single file
        #[arg(default_value = "/")]
        path: OsString,
    },
    /// Says what is known of a file; of a symbolic link, not of where it leads
    #[command(after_help = PATH_HELP)]
    Stat {
        /// The server
        #[command(flatten)]
        mount: MountOptions,
        /// The file
        #[arg(default_value = "/")]
        path: OsString,
    },
    /// Says how much room there is
    Df {
        /// The server
        #[command(flatten)]
        mount: MountOptions,
        /// Any file of the file system
        #[arg(default_value = "/")]
        path: OsString,
    },
    /// Fetches a file
    #[command(after_help = PATH_HELP)]
    Get {
        /// The server
        #[command(flatten)]
        mount: MountOptions,
        /// The file on the server
        path: OsString,
        /// Where to put it; `-` is standard output
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Stores a file, in place of what is there
    #[command(after_help = PATH_HELP, override_usage = "haulage store put [OPTIONS] [FILE|-] <PATH>")]
    Put {
        /// The server
        #[command(flatten)]
        mount: MountOptions,
        /// What to store, standard input if it is `-` or left out; and the file on the server
        #[arg(required = true, num_args = 1..=2, value_name = "PATH")]
        files: Vec<OsString>,
    },
}

const PATH_HELP: &str = "\
Paths begin at the top of what is mounted and never leave it, by `..` and by symbolic links neither.";

/// Which server's files to work on, and how long to wait for it.
#[derive(Clone, Debug, Args)]
pub struct MountOptions {
    /// Where NFS is served over RDMA; `:PORT` is on this machine
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:20049")]
    pub connect: Address,
    /// Where to ask what to mount, over TCP [default: port 20048 of the same host]
    #[arg(long, value_name = "ADDR:PORT")]
    pub mount_connect: Option<Address>,
    /// What to mount
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub export: OsString,
    /// How long to wait for a connection, and for each answer
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub timeout: Timeout,
    /// How its core works
    #[command(flatten)]
    pub core: CoreOptions,
}

const STORE_HELP: &str = "\
Memory begins empty, and is gone when the server ends. The files of a directory stay; without
privilege to give files away, all that is made there is the server's own, and whoever connects acts
as the server's user.
NFS has no authentication but AUTH_SYS, which is a claim. A server that runs as root, or can act as
other users, believes over TCP only claims from ports below 1024, and over RDMA root of this machine,
other users of this machine about themselves, and other machines, and containers and virtual machines
with addresses of their own. Callers whose claims it does not believe are the anonymous user.
--insecure makes it believe all claims. --allow says which clients may connect, --squash which claims
count for nothing. A server of a directory that runs as root needs CAP_CHOWN, CAP_DAC_OVERRIDE and
CAP_FOWNER, or --insecure.";

/// What a storage server can be told.
#[derive(Clone, Debug, Args)]
pub struct ServeStore {
    /// What to serve: the files of a directory, or so much memory, as in memory:1GiB
    #[arg(long, value_name = "DIR|memory:BYTES")]
    pub export: Export,
    /// Where to keep what lets clients go on over a restart [default: nowhere]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Read and write the files of a directory around the system's cache, where a READ or WRITE allows
    #[arg(long)]
    pub direct: bool,
    /// Answer a change of names in a directory before the disk has it: faster, but lost if the machine
    /// fails
    #[arg(long)]
    pub unstable_names: bool,
    /// Where to accept NFS over RDMA; `:PORT` is this machine only
    #[arg(long, value_name = "ADDR:PORT", default_value = ":20049")]
    pub listen: Address,
    /// Where clients ask what to mount, over TCP
    #[arg(long, value_name = "ADDR:PORT", default_value = ":20048")]
    pub mount_listen: Address,
    // [V2-11.2.2.1-1] clients that use RPCSEC_GSS ask for NFS here, without RDMA.
    /// Where to accept NFS over TCP, if anywhere
    #[arg(long, value_name = "ADDR:PORT|off", default_value = ":2049")]
    pub tcp_listen: Maybe<Address>,
    /// Where to answer `GET /metrics`, for Prometheus [default: nowhere]
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<Address>,
    /// Let nothing be changed
    #[arg(long)]
    pub read_only: bool,
    /// Which claims not to believe: none, that of being root, or all
    #[arg(long, value_enum, default_value = "root")]
    pub squash: Squash,
    /// User of callers who are squashed or not believed
    #[arg(long, value_name = "N", default_value = "65534")]
    pub anonuid: u32,
    /// Group of callers who are squashed or not believed
    #[arg(long, value_name = "N", default_value = "65534")]
    pub anongid: u32,
    /// Allow connections from CIDR; may be given several times [default: everybody]
    #[arg(long, value_name = "CIDR")]
    pub allow: Vec<Network>,
    /// Believe AUTH_SYS claims from unreserved ports and of other local users, too
    #[arg(long)]
    pub insecure: bool,
    /// Connections at once; one address can have half of them [default: 256, fewer if the limit of open files is low]
    #[arg(long, value_name = "N")]
    pub connections: Option<Count>,
    /// When it closes connections
    #[command(flatten)]
    pub peers: PeerOptions,
    /// How its core works
    #[command(flatten)]
    pub core: CoreOptions,
}

/// What to do with messages on standard input, one a line.
#[derive(Debug, Subcommand)]
pub enum Wire {
    /// Turns messages in hex into JSON
    #[command(after_help = DECODE_HELP)]
    Decode {
        /// The lines are MPA frames and FPDUs, not RPC-over-RDMA messages
        #[arg(long)]
        iwarp: bool,
    },
    /// Turns JSON, as `wire decode` writes it, into messages in hex
    #[command(after_help = ENCODE_HELP)]
    Encode,
}

const DECODE_HELP: &str = "\
Each line holds the transport header of a message and its inline Payload stream, in hex of either
case; blank lines are skipped. Each gives one JSON object. Versions 2 (with the round-trip
extensions) and 1 are told apart by the version word. Only the transport header is judged.
A line that is no message gives {\"error\":..,\"report\":..}: what is wrong and where, and the error
a receiver reports; report is null if it reports none, which is so for errors and grants, and
always with --iwarp. That is no failure: the exit status is 0. A line beyond 4 MiB of message is
such a line.
With --iwarp each line is one FPDU (length, ULPDU, padding, CRC) or one MPA Request or Reply.";

const ENCODE_HELP: &str = "\
Each line is a JSON object with exactly the fields that `wire decode` prints for its header type,
in any order; blank lines are skipped. Offsets may also be strings of decimal digits. Fields are
held to their types and no further, so messages that break the protocol's rules can be made.
A line that cannot be encoded, and an {\"error\":..} line, gives an empty line. Standard error then
names the first such line and its field, and the exit status is 1.";

const BENCH_HELP: &str = "\
Keys are bench-00000000 and up; every one is stored once before anything is measured, and what was
stored stays. A get counts as a miss if its key is gone by then. Times are as of `haulage perf`.";

/// What to store and fetch, and how.
#[derive(Clone, Debug, Args)]
pub struct BenchKv {
    /// Bytes of each value
    #[arg(long, value_name = "BYTES", default_value = "4KiB")]
    pub value_size: Bytes,
    /// What part of the calls are gets: 0 to 1
    #[arg(long, value_name = "R", default_value = "0.9")]
    pub get_ratio: Ratio,
    /// Keys
    #[arg(long, value_name = "N", default_value = "10000")]
    pub keys: Keys,
    /// How long calls are made, filling and warming up not counted
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    pub seconds: Timeout,
    /// Calls in flight on each connection
    #[arg(long, value_name = "N", default_value = "1")]
    pub depth: Count,
    /// Connections
    #[arg(long, value_name = "N", default_value = "1")]
    pub connections: Count,
    /// The server
    #[command(flatten)]
    pub connect: ConnectOptions,
}

/// What a key-value server can be told.
#[derive(Clone, Debug, Args)]
pub struct ServeKv {
    /// Where to accept connections; `:PORT` is this machine only
    #[arg(long, value_name = "ADDR:PORT", default_value = ":20050")]
    pub listen: Address,
    /// Memory for values and index together
    #[arg(long, value_name = "BYTES", default_value = "256MiB")]
    pub memory: Bytes,
    /// The largest value that is taken
    #[arg(long, value_name = "BYTES", default_value = "16MiB")]
    pub value_max: Bytes,
    /// Connections at once; one address can have half of them [default: 256, fewer if the limit of open files is low]
    #[arg(long, value_name = "N")]
    pub connections: Option<Count>,
    /// When it closes connections
    #[command(flatten)]
    pub peers: PeerOptions,
    /// Where to answer `GET /metrics`, for Prometheus [default: nowhere]
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<Address>,
    /// How its core works
    #[command(flatten)]
    pub core: CoreOptions,
}

/// When a server closes connections: the options of every command that serves.
#[derive(Clone, Debug, Args)]
pub struct PeerOptions {
    /// Close a connection whose client takes no data, answers no read or completes no message for this
    /// long; RDMA devices (verbs) give up after retries of their own instead
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub progress_timeout: Timeout,
    /// Close a connection that has been idle for this long; 0 is never
    #[arg(long, value_name = "SECONDS", default_value = "0")]
    pub idle_timeout: Unlimited,
}

/// How a core works: the options of every command that starts one.
#[derive(Clone, Debug, Args)]
pub struct CoreOptions {
    /// What carries the messages
    #[arg(long, value_name = "NAME", value_enum, default_value = "iwarp")]
    pub provider: Provider,
    /// CPUs to pin cores to, one core each, such as 0,2-3 [default: one core, not pinned; demo: the
    /// first two CPUs]
    #[arg(long, value_name = "LIST")]
    pub cores: Option<CoreList>,
    /// How a core waits
    #[arg(long, value_name = "MODE", value_enum, default_value = "adaptive")]
    pub polling: Polling,
    /// Whether messages carry a CRC [default: on if the peer asks, or we connect]
    #[arg(long, value_name = "on|off", value_enum)]
    pub crc: Option<Switch>,
    /// Versions of RPC-over-RDMA to speak. auto: clients begin with version 2 and fall back to 1,
    /// servers answer in the version of each client
    #[arg(
        long,
        value_name = "auto|1|2",
        value_enum,
        default_value = "auto",
        hide_possible_values = true
    )]
    pub rpc_version: RpcVersion,
}

/// Where a client finds its server, and how long it waits for it.
#[derive(Clone, Debug, Args)]
pub struct ConnectOptions {
    /// The server; `:PORT` is one on this machine
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:20050")]
    pub connect: Address,
    /// How long to wait for a connection, and for each answer
    #[arg(long, value_name = "SECONDS", default_value = "2")]
    pub timeout: Timeout,
    /// How its core works
    #[command(flatten)]
    pub core: CoreOptions,
}

/// Reads a command line, the program's name first.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Parsed, Failure> {
    match CommandLine::try_parse_from(arguments) {
        Ok(line) => {
            let CommandLine { command, json, verbose, log_format: log } = line;
            Ok(Parsed::Command(command, Output { json, verbose, log }))
        }
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Parsed::Help(error.to_string()))
            }
            _ => Err(Failure::usage(mistakes::in_one_line(&error))),
        },
    }
}

/// Returns the description of all that can be typed.
pub fn description() -> clap::Command {
    CommandLine::command()
}

/// Bulk data placed directly: an RPC-over-RDMA stack for any machine
#[derive(Debug, Parser)]
#[command(name = NAME, version, long_version = VERSION.as_str(), disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
    /// Print results as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Say more on standard error
    #[arg(short, global = true)]
    verbose: bool,
    /// Form of the log on standard error. It holds warnings and errors, with -v also changes of
    /// connections; RUST_LOG, such as haulage=info, overrides that
    #[arg(
        long,
        global = true,
        value_name = "text|json",
        value_enum,
        default_value = "text",
        hide_possible_values = true
    )]
    log_format: LogFormat,
}

/// The name of the command.
pub const NAME: &str = "haulage";

/// The version, and what this build is made of.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let providers: Vec<_> = Provider::value_variants().iter().map(|it| it.name()).collect();
    format!(
        "{}\ncommit: {}\nfeatures: {}\nproviders: {}",
        env!("CARGO_PKG_VERSION"),
        env!("HAULAGE_COMMIT"),
        if cfg!(feature = "verbs") { "verbs" } else { "none" },
        providers.join(", ")
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_options_are_common() {
        let common = "--provider iwarp --cores 0 --polling event --crc off --rpc-version 1 --log-format json --json -v";
        let peers = "--progress-timeout 2.5 --idle-timeout 0";
        let clients = "--connect [::1]:7 --timeout 0.5";
        let mounts = format!("{clients} --mount-connect :8 --export /exp");
        for line in [
            format!("demo {common}"),
            format!("kv serve --listen :0 --memory 64MiB --value-max 1MiB --metrics :0 {common}"),
            format!("kv serve {peers} --connections 1000 {common}"),
            format!("perf serve {peers} {common}"),
            format!("store serve --export memory:64MiB {peers} --connections 16 {common}"),
            format!("kv put key - {clients} {common}"),
            format!("kv get key {clients} {common}"),
            format!("kv del key {clients} {common}"),
            format!("kv stat {clients} {common}"),
            format!("kv keys {clients} {common}"),
            format!("kv bench --value-size 1KiB --get-ratio 0.5 --keys 10 {clients} {common}"),
            format!("kv bench --seconds 1 --depth 4 --connections 2 {common}"),
            format!("perf serve --listen :0 --memory 8MiB --connections 2 --depth 4 {common}"),
            format!("perf run null --depth 8 --seconds 0.1 --runs 2 {clients} {common}"),
            format!("perf local read --size 1KiB --connections 2 --rate 5e3 --touch {common}"),
            format!("perf local inline --threads --plot a.svg {common}"),
            format!("store serve --export /srv --state /var/lib/haulage {common}"),
            format!("store serve --export memory:64MiB --squash all --allow 10.0.0.0/8 {common}"),
            format!("store serve --export memory:64MiB --insecure {common}"),
            format!("store ls {mounts} {common}"),
            format!("store stat /a {mounts} {common}"),
            format!("store df {mounts} {common}"),
            format!("store get /a b {mounts} {common}"),
            format!("store put /a {mounts} {common}"),
            format!("store put - /a {mounts} {common}"),
            "--json doctor".to_owned(),
            "wire decode --iwarp --json".to_owned(),
            "wire encode --json".to_owned(),
            "completions bash --json".to_owned(),
            "man directory --json".to_owned(),
        ] {
            let Ok(Parsed::Command(_, output)) = parsed(&line) else { panic!("{line}") };
            assert!(output.json, "{line}");
        }
    }

    #[test]
    fn what_this_build_lacks_is_neither_accepted_nor_listed() {
        for line in [
            "kv list",
            "perf",
            "perf run",
            "store rm /file",
            "kv serve --shards 2",
            "kv serve --connections 0",
            "kv get key --idle-timeout 5",
            "demo --metrics :0",
        ] {
            assert!(matches!(parsed(line), Err(Failure::Usage(_))), "{line}");
        }
        if !cfg!(feature = "verbs") {
            let Err(Failure::Usage(text)) = parsed("demo --provider verbs") else { panic!() };
            assert!(text.contains("feature `verbs`"), "{text}");
            assert_eq!(text.lines().count(), 1);
        }
    }

    fn parsed(line: &str) -> Result<Parsed, Failure> {
        parse(["haulage"].into_iter().chain(line.split(' ')).map(OsString::from))
    }
}
