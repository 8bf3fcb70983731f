//! The command line: commands, options and their help texts.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::Output;

pub mod address;
pub mod bytes;
mod mistakes;
mod options;
pub mod perf;
pub mod rpcbind;
mod similar;
pub mod values;

pub use options::{
    ClientHostOptions, CoreOptions, HostOptions, PeerOptions, RegisterOptions, VersionOptions,
};

use address::Address;
use perf::{Count, Perf};
use rpcbind::ServerAddress;
use values::{
    Bytes, CoreList, Exponent, Export, Keys, LogFormat, Maybe, Network, ProfileName, Provider,
    Ratio, RpcVersion, Share, Squash, Timeout, Unlimited,
};

/// A command line without mistakes.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, for the length of one command")]
pub enum Parsed {
    /// Print this text, help or the version, and exit.
    Help(String),
    /// Run this command and print its results in this form.
    Command(Command, Output),
}

/// The commands of `haulage`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Moves values of many sizes between a server and a client, verifies every byte, prints rates and latency
    Demo(CoreOptions),
    /// Key-value server and client
    #[command(subcommand)]
    Kv(Kv),
    /// NFS version 3 server over RDMA, for any Linux machine to mount, and a client
    #[command(subcommand)]
    Store(Store),
    /// Measures rate and latency of calls, next to the limits of this machine
    #[command(subcommand)]
    Perf(Perf),
    /// Decodes and encodes RPC-over-RDMA messages
    #[command(subcommand)]
    Wire(Wire),
    /// Makes and shows the keys by which hosts prove which they are
    #[command(subcommand)]
    HostKey(HostKey),
    /// Checks what this machine lacks to run Haulage well, and prints the commands that fix it
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
        /// Directory to write to; created if it is missing
        dir: PathBuf,
    },
}

const COMPLETIONS_HELP: &str = "\
For this user, bash reads ~/.local/share/bash-completion/completions/haulage, fish reads
~/.config/fish/completions/haulage.fish, and zsh reads _haulage in any directory of its fpath.";

const MAN_HELP: &str = "\
Pages in DIR/man1 are found by man if DIR is in MANPATH: `haulage man ~/.local/share/man/man1`.";

/// The commands of `haulage kv`.
#[derive(Debug, Subcommand)]
pub enum Kv {
    /// Serves keys and values until SIGTERM
    Serve(ServeKv),
    /// Stores a value
    Put {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
        /// Key: 1 to 512 bytes of UTF-8
        key: String,
        /// File that holds the value; `-` is standard input
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Writes a value to standard output, unchanged
    Get {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
        /// Key: 1 to 512 bytes of UTF-8
        key: String,
    },
    /// Stores several values, and prints which were stored
    #[command(after_help = MPUT_HELP)]
    Mput {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
        /// Key, and file that holds its value; `-` is standard input. The last `=` divides them
        #[arg(required = true, value_name = "KEY=FILE")]
        pairs: Vec<OsString>,
    },
    /// Writes several values to standard output, each behind a line with its key and length
    #[command(after_help = MGET_HELP)]
    Mget {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
        /// Keys: 1 to 512 bytes of UTF-8 each
        #[arg(required = true, value_name = "KEY")]
        keys: Vec<String>,
    },
    /// Deletes a key
    Del {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
        /// Key: 1 to 512 bytes of UTF-8
        key: String,
    },
    /// Prints each change of the keys with a prefix, until SIGINT
    #[command(after_help = WATCH_HELP)]
    Watch {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
        /// What the keys begin with: up to 512 bytes of UTF-8, none for all keys
        prefix: String,
    },
    /// Lists the keys, in no particular order
    Keys {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
    },
    /// Measures the rate and latency of random puts and gets
    #[command(after_help = BENCH_HELP)]
    Bench(BenchKv),
    /// Prints the statistics of a server: keys, memory, connections
    Stat {
        /// The server
        #[command(flatten)]
        connect: ConnectOptions,
    },
}

/// The commands of `haulage host-key`.
#[derive(Debug, Subcommand)]
pub enum HostKey {
    /// Makes a secret key that only this user can read, and prints its public key
    New {
        /// File to make, which must not exist
        file: PathBuf,
    },
    /// Prints the public key of a secret key, by which other hosts know this one
    Show {
        /// File with the secret key
        file: PathBuf,
    },
}

/// The commands of `haulage store`.
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
    /// Prints the attributes of a file; a symbolic link is not followed
    #[command(after_help = PATH_HELP)]
    Stat {
        /// The server
        #[command(flatten)]
        mount: MountOptions,
        /// The file
        #[arg(default_value = "/")]
        path: OsString,
    },
    /// Prints the size and the free space of the file system
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
        /// File to write, which has its name once it is whole; `-` is standard output
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Stores a file; replaces an existing one
    #[command(after_help = PATH_HELP, override_usage = "haulage store put [OPTIONS] [FILE|-] <PATH>")]
    Put {
        /// The server
        #[command(flatten)]
        mount: MountOptions,
        /// File to store, standard input if it is `-` or left out; and the file on the server
        #[arg(required = true, num_args = 1..=2, value_name = "PATH")]
        files: Vec<OsString>,
    },
}

const PATH_HELP: &str = "\
Paths begin at the top of the mounted export. Neither `..` nor a symbolic link leads out of it.";

/// The server, the export to mount, and the timeouts: the options of the storage client.
#[derive(Clone, Debug, Args)]
pub struct MountOptions {
    /// Address of NFS over RDMA; `:PORT` is on this machine, rpcbind:HOST where the rpcbind of HOST says
    #[arg(long, value_name = "ADDR:PORT|rpcbind:HOST", default_value = "127.0.0.1:20049")]
    pub connect: ServerAddress,
    /// Address of the MOUNT service, over TCP [default: where NFS is, then where rpcbind says, if that is asked, or port
    /// 20048 of that host]
    #[arg(long, value_name = "ADDR:PORT")]
    pub mount_connect: Option<Address>,
    /// Exported path to mount
    #[arg(long, value_name = "PATH", default_value = "/")]
    pub export: OsString,
    /// How long to wait for a connection, and for each answer
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub timeout: Timeout,
    /// Whether hosts prove which they are
    #[command(flatten)]
    pub hosts: ClientHostOptions,
    /// How its core works
    #[command(flatten)]
    pub core: CoreOptions,
}

const STORE_HELP: &str = "\
An export of memory begins empty and is lost when the server ends. The files of a directory stay.
There, a server without the privilege to give files away owns all files that clients create, and
every client acts as the server's user.
NFS callers name themselves by AUTH_SYS, which proves nothing. A server that runs as root, or can act
as other users, therefore believes only some claims. Over TCP it believes those from ports below 1024.
Over RDMA it believes root of this machine, other users of this machine about themselves, and all
other machines, including containers and virtual machines with addresses of their own. Callers whose
claims it does not believe become the anonymous user. --insecure makes it believe all claims. --allow
limits which clients may connect. --squash turns root, or all callers, into the anonymous user. A
server of a directory that runs as root needs CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_SETGID and
CAP_SETUID, or --insecure.";

/// The options of `haulage store serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeStore {
    /// Directory to serve, or an amount of memory, such as memory:1GiB
    #[arg(long, value_name = "DIR|memory:BYTES")]
    pub export: Export,
    /// Directory for the state that lets clients continue after a restart [default: none]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Bypass the page cache for the files of a directory, where the alignment of a READ or WRITE allows
    #[arg(long)]
    pub direct: bool,
    /// Reply to changes of names in a directory before they are on disk: faster, but lost if the machine
    /// fails
    #[arg(long)]
    pub unstable_names: bool,
    /// Keep lists of a directory for this long; its names and what clients change show at once, other
    /// changes of files after this time; 0: never keep any
    #[arg(long, value_name = "SECONDS", default_value = "1")]
    pub lists_kept: Unlimited,
    /// Where to accept NFS over RDMA; `:PORT` is this machine only
    #[arg(long, value_name = "ADDR:PORT", default_value = ":20049")]
    pub listen: Address,
    /// Where to serve MOUNT over TCP; clients ask there for the file system to mount. off: nowhere, as with --host-auth
    /// required
    #[arg(
        long,
        value_name = "ADDR:PORT|off",
        default_value = ":20048",
        default_value_if("host_auth", "required", "off")
    )]
    pub mount_listen: Maybe<Address>,
    // [V2-11.2.2.1-1] clients that use RPCSEC_GSS ask for NFS here, without RDMA.
    /// Where to accept NFS over TCP; off: nowhere, as with --host-auth required
    #[arg(
        long,
        value_name = "ADDR:PORT|off",
        //~ V2-11.2.2.1-1: `":2049"` -> `"off"`
        default_value = ":2049",
        default_value_if("host_auth", "required", "off")
    )]
    pub tcp_listen: Maybe<Address>,
    /// Where it registers
    #[command(flatten)]
    pub register: RegisterOptions,
    /// Where to answer `GET /metrics`, for Prometheus [default: nowhere]
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<Address>,
    /// Export read-only
    #[arg(long)]
    pub read_only: bool,
    /// Callers to turn into the anonymous user: none, root or all
    #[arg(long, value_enum, default_value = "root")]
    pub squash: Squash,
    /// User ID of the anonymous user: callers who are squashed or not believed
    #[arg(long, value_name = "N", default_value = "65534", value_parser = clap::value_parser!(u32).range(..=ID_MAX))]
    pub anonuid: u32,
    /// Group ID of the anonymous user
    #[arg(long, value_name = "N", default_value = "65534", value_parser = clap::value_parser!(u32).range(..=ID_MAX))]
    pub anongid: u32,
    /// Allow connections from CIDR; may be given several times [default: everybody]
    #[arg(long, value_name = "CIDR")]
    pub allow: Vec<Network>,
    /// Believe AUTH_SYS claims from ports above 1023 and about other local users, too
    #[arg(long)]
    pub insecure: bool,
    /// Connections at once; one address can have half of them [default: 256, fewer if the limit of open files is low]
    #[arg(long, value_name = "N")]
    pub connections: Option<Count>,
    /// When it closes connections
    #[command(flatten)]
    pub peers: PeerOptions,
    /// Whether hosts prove which they are
    #[command(flatten)]
    pub hosts: HostOptions,
    /// How its core works
    #[command(flatten)]
    pub core: CoreOptions,
}

/// The largest ID of a user or group: the system takes the next one for none.
const ID_MAX: i64 = u32::MAX as i64 - 1;

/// The commands of `haulage wire`; each reads messages from standard input, one a line.
#[derive(Debug, Subcommand)]
pub enum Wire {
    /// Turns messages in hex, or those of a capture, into JSON
    #[command(after_help = DECODE_HELP)]
    Decode {
        /// The lines are MPA frames and FPDUs, not RPC-over-RDMA messages
        #[arg(long)]
        iwarp: bool,
        /// Decode a capture of tcpdump or Wireshark instead of lines; `-` is standard input
        #[arg(long, value_name = "FILE|-", conflicts_with = "iwarp")]
        pcap: Option<PathBuf>,
        /// With --pcap: only connections with this TCP port, or 4791 for RoCEv2; may be given several times [default:
        /// all that begin with an MPA Request, and RoCEv2]
        #[arg(long, value_name = "N", requires = "pcap")]
        port: Vec<u16>,
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
always with --iwarp. That is no failure: the exit status is 0. A message of more than 4 MiB gives
such an object, too.
With --iwarp each line is one FPDU (length, ULPDU, padding, CRC) or one MPA Request or Reply.
With --pcap the input is a capture, pcap or pcapng, and may be one that is still being written:
  tcpdump -i lo -U -w - port 20050 | haulage wire decode --pcap -
Each line begins with \"at\" (seconds since 1970), \"from\" and \"to\"; over RoCEv2 also \"qp\", the queue
pair of the receiver. Messages have their RPC header in \"rpc\". All else is shown as with --iwarp,
packets of RoCEv2 with \"frame\":\"roce\". Packets may be Ethernet, cooked (SLL, SLL2), loopback or IP.
A connection is read from its beginning. If packets are missing in it, a line with \"error\" says so,
and if where the next FPDU begins is unknown then, nothing more of that direction is shown.
A capture that ends within a packet gives exit status 1, after the lines of the whole ones.";

const ENCODE_HELP: &str = "\
Each line is a JSON object with exactly the fields that `wire decode` prints for its header type,
in any order; blank lines are skipped. Offsets may also be strings of decimal digits. Fields are
held to their types and no further, so messages that break the protocol's rules can be made.
A line that cannot be encoded, and an {\"error\":..} line, gives an empty line. Standard error then
names the first such line and its field, and the exit status is 1.";

const MPUT_HELP: &str = "\
Prints `KEY stored`, or KEY and the reason, one a line and in order. The exit status is 1 if any value
was not stored; the others are. With --json: {\"key\":..,\"stored\":true}, or false with \"why\".";

const MGET_HELP: &str = "\
Prints `KEY LENGTH`, one line, and then that many bytes; or `KEY -` if there is no such key. The exit
status is 1 if any is missing. With --json: {\"key\":..,\"found\":true,\"bytes\":LENGTH}, one a line,
without the values.";

const WATCH_HELP: &str = "\
Prints `watching`, and from then on `set KEY LENGTH` or `del KEY` for each change, as the server tells of
it. The changes of one key come in order. What is read too slowly is merged: of several changes of one key
the last comes, and `merged N` counts the others. SIGINT and SIGTERM end it, with exit status 0. With
--json: {\"watching\":true}, {\"set\":KEY,\"bytes\":LENGTH}, {\"del\":KEY}, {\"merged\":N}.";

const BENCH_HELP: &str = "\
Keys are bench-00000000 and up, or those of a trace. Each is stored once before the measurement, and none
is deleted after it. A get counts as a miss if its key is gone by then. Latency is measured as by `haulage perf`.
Where some keys are asked for more often than others, the share of the server's busiest core is told, too.";

/// The options of `haulage kv bench`.
#[derive(Clone, Debug, Args)]
pub struct BenchKv {
    /// Size of each value
    #[arg(long, value_name = "BYTES", default_value = "4KiB")]
    pub value_size: Bytes,
    /// Largest value that travels in messages; 0 has all travel by chunks [default: 4KiB, over shm 1KiB]
    #[arg(long, value_name = "BYTES")]
    pub inline_max: Option<Bytes>,
    /// Share of the calls that are gets, 0 to 1
    #[arg(long, value_name = "R", default_value = "0.9")]
    pub get_ratio: Ratio,
    /// Number of keys
    #[arg(long, value_name = "N", default_value = "10000")]
    pub keys: Keys,
    /// Draw key n in proportion to 1/n^S, rather than each alike
    #[arg(long, value_name = "S", conflicts_with_all = ["hot", "trace"])]
    pub zipf: Option<Exponent>,
    /// Share of the gets that are of the first key, 0 to 1; the rest is of any key
    #[arg(long, value_name = "SHARE", conflicts_with = "trace")]
    pub hot: Option<Ratio>,
    /// Take the keys from the lines of a file, in order and again: `KEY SIZE`, where the first SIZE of a key holds; or JSON
    /// objects whose hash_ids are keys, as Mooncake publishes them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["keys", "value_size"])]
    pub trace: Option<PathBuf>,
    /// Size of the value of each of the hash_ids of a trace
    #[arg(long, value_name = "BYTES", default_value = "4KiB", requires = "trace")]
    pub block_size: Bytes,
    /// Duration of the measurement, without filling and warm-up
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    pub seconds: Timeout,
    /// Calls in flight on each connection
    #[arg(long, value_name = "N", default_value = "1")]
    pub depth: Count,
    /// Number of connections
    #[arg(long, value_name = "N", default_value = "1")]
    pub connections: Count,
    /// CPUs to make the calls from, one core each, such as 0,2-3: the connections are shared out among them, one at least
    /// to each [default: one core, as --cores says]
    #[arg(long, value_name = "LIST", conflicts_with = "cores")]
    pub client_cores: Option<CoreList>,
    /// The server
    #[command(flatten)]
    pub connect: ConnectOptions,
}

/// The options of `haulage kv serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeKv {
    /// Where to accept connections; `:PORT` is this machine only
    #[arg(long, value_name = "ADDR:PORT", default_value = ":20050")]
    pub listen: Address,
    /// Where it registers
    #[command(flatten)]
    pub register: RegisterOptions,
    /// Memory for values and index together
    #[arg(long, value_name = "BYTES", default_value = "256MiB")]
    pub memory: Bytes,
    /// Share of the memory that is for the index: it bounds the number of keys, to one for some 912 bytes of memory unless
    /// told otherwise
    #[arg(long, value_name = "PERCENT", default_value = "12.5")]
    pub index_share: Share,
    /// Largest value that is accepted; 1GiB at most
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
    /// Whether hosts prove which they are
    #[command(flatten)]
    pub hosts: HostOptions,
    /// How its core works
    #[command(flatten)]
    pub core: CoreOptions,
}

/// The server's address and the timeout: the options of every key-value client.
#[derive(Clone, Debug, Args)]
pub struct ConnectOptions {
    /// The server; `:PORT` is one on this machine, rpcbind:HOST the one that the rpcbind of HOST knows
    #[arg(long, value_name = "ADDR:PORT|rpcbind:HOST", default_value = "127.0.0.1:20050")]
    pub connect: ServerAddress,
    /// How long to wait for a connection, and for each answer
    #[arg(long, value_name = "SECONDS", default_value = "2")]
    pub timeout: Timeout,
    /// Whether hosts prove which they are
    #[command(flatten)]
    pub hosts: ClientHostOptions,
    /// How its core works
    #[command(flatten)]
    pub core: CoreOptions,
}

/// Reads a command line, the program's name first.
pub fn parse(arguments: &[OsString]) -> Result<Parsed, Failure> {
    let matches = CommandLine::command().try_get_matches_from(arguments);
    let line = matches.and_then(|matches| {
        let line = CommandLine::from_arg_matches(&matches)?;
        Ok((line, has_profile_without_version(&matches)))
    });
    match line {
        Ok((_, true)) => Err(Failure::usage(
            "--profile rfc5666 is a text of version 1, which --rpc-version 2 does not speak",
        )),
        Ok((line, false)) => {
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

/// Returns whether a command is to follow a text of version 1, and to speak version 2 alone.
fn has_profile_without_version(matches: &ArgMatches) -> bool {
    match matches.subcommand() {
        Some((_, matches)) => has_profile_without_version(matches),
        None => {
            let profile = matches.try_get_one("profile").ok().flatten();
            let version = matches.try_get_one("rpc_version").ok().flatten();
            (profile, version) == (Some(&ProfileName::Rfc5666), Some(&RpcVersion::Two))
        }
    }
}

/// Returns the format of the log that a command line asks for which is wrong otherwise.
pub fn log_format(arguments: &[OsString]) -> LogFormat {
    let texts = || arguments.iter().map(|text| text.to_string_lossy());
    let alone = texts().zip(texts().skip(1)).filter(|(option, _)| option == "--log-format");
    let together = texts().filter_map(|text| Some(text.strip_prefix("--log-format=")?.to_owned()));
    let mut asked = alone.map(|(_, format)| format.into_owned()).chain(together);
    let format = asked.find_map(|format| LogFormat::from_str(&format, false).ok());
    format.unwrap_or_default()
}

/// Returns the parser's description of all commands and options.
pub fn description() -> clap::Command {
    CommandLine::command()
}

/// RPC over RDMA with direct data placement, on any machine
#[derive(Debug, Parser)]
#[command(name = NAME, version, long_version = VERSION.as_str(), disable_help_subcommand = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
    /// Print results as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Print more on standard error
    #[arg(short, global = true)]
    verbose: bool,
    /// Format of the log on standard error. It holds warnings and errors, with -v also connections that open
    /// and close; RUST_LOG, such as haulage=info, overrides that
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

/// The version, commit, features and providers of this build.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let providers: Vec<_> = Provider::value_variants().iter().map(|it| it.name()).collect();
    format!(
        "{}\ncommit: {}\nfeatures: {}\nproviders: {}",
        env!("CARGO_PKG_VERSION"),
        env!("HAULAGE_COMMIT"),
        if cfg!(feature = "verbs") { "host-auth, verbs" } else { "host-auth" },
        providers.join(", ")
    )
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_common_options_are_common() {
        let common = "--provider iwarp --cores 0 --polling event --crc off --rpc-version 1 --profile rfc5666 \
                      --log-format json --json -v";
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
            format!("kv mget key other {clients} {common}"),
            format!("kv mput key=file a=b=- {clients} {common}"),
            format!("kv watch prefix {clients} {common}"),
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
            format!("store serve --export memory:64MiB --register {common}"),
            format!("kv serve --register=/run/rpcbind.sock {common}"),
            format!("kv serve --register=192.0.2.7 {common}"),
            format!("kv stat --connect rpcbind:server {common}"),
            format!("store ls --connect rpcbind:[::1] --mount-connect :8 {common}"),
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
            "kv serve --register /run/rpcbind.sock",
            "kv serve --register=",
            "perf serve --register",
            "perf run null --connect rpcbind:server",
            "kv get key --idle-timeout 5",
            "kv mget",
            "kv mput",
            "kv watch",
            "kv watch a b",
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
        let words = ["haulage"].into_iter().chain(line.split(' '));
        parse(&words.map(OsString::from).collect::<Vec<_>>())
    }
}
