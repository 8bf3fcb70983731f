//! Options that several commands have.

use std::path::PathBuf;

use clap::Args;
use haulage::limits::{Limits, PLACING_SIZE, TRANSMISSIONS_MAX};

use super::rpcbind::RpcbindAddress;
use super::values::{
    CoreList, Extensions, HostPolicy, Polling, ProfileName, Provider, RpcVersion, Switch, Timeout,
    Unlimited,
};

/// How a server treats its clients: the options of every command that serves.
#[derive(Clone, Debug, Args)]
pub struct PeerOptions {
    /// Close a connection whose client takes no data, answers no read or completes no message for this
    /// long; RDMA devices (verbs) give up after retries of their own instead
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    pub progress_timeout: Timeout,
    /// Close a connection that has been idle for this long; 0: never
    #[arg(long, value_name = "SECONDS", default_value = "0")]
    pub idle_timeout: Unlimited,
}

/// Where a server registers: the option of the servers that clients look up.
#[derive(Clone, Debug, Args)]
pub struct RegisterOptions {
    /// Register with the rpcbind of this machine, by which clients find this server: at its local socket PATH, which is
    /// /run/rpcbind.sock if none is given, or at ADDR or ADDR:PORT over TCP [default: do not register]
    #[arg(
        long,
        value_name = "PATH|ADDR",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "/run/rpcbind.sock"
    )]
    pub register: Option<RpcbindAddress>,
}

/// How a core works: the options of every command that starts one.
#[derive(Clone, Debug, Args)]
pub struct CoreOptions {
    /// Provider that carries the messages
    #[arg(long, value_name = "NAME", value_enum, default_value = "iwarp")]
    pub provider: Provider,
    /// CPUs to pin cores to, one core each, such as 0,2-3 [default: one core, not pinned; demo: the
    /// first two CPUs]
    #[arg(long, value_name = "LIST")]
    pub cores: Option<CoreList>,
    /// How a core waits for work
    #[arg(long, value_name = "MODE", value_enum, default_value = "adaptive")]
    pub polling: Polling,
    /// CRC32C on every FPDU, used if either end asks for it [default: clients ask, except those of `store`]
    #[arg(long, value_name = "on|off", value_enum)]
    pub crc: Option<Switch>,
    /// What it speaks
    #[command(flatten)]
    pub versions: VersionOptions,
}

/// What a core speaks.
#[derive(Clone, Copy, Debug, Args)]
pub struct VersionOptions {
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
    /// Text of version 1 to follow. rfc5666: also take padded messages (RDMA_MSGP), and replies that have no other room
    /// are exposed by a server, and read by a client, which then says RDMA_DONE
    #[arg(
        long,
        value_name = "rfc8166|rfc5666",
        value_enum,
        default_value = "rfc8166",
        hide_possible_values = true
    )]
    pub profile: ProfileName,
    /// Round-trip extensions of version 2. auto: data of 4 to 16 KiB come along with the call that they are for, in one round
    /// trip instead of two, if both ends have it so; not over shm, where a read costs no round trip. on: those of up to
    /// 64 KiB, too, which pays where the other end is far away, and results of up to 64 KiB come along with the reply, for
    /// which the client then exposes no memory. Both ends then have 20 KiB for each message that they may receive, instead of
    /// 5. With auto a server alone has them, if they are no more than an eighth of its --memory
    #[arg(
        long,
        value_name = "auto|on|off",
        value_enum,
        default_value = "auto",
        hide_possible_values = true
    )]
    pub extensions: Extensions,
}

impl VersionOptions {
    /// Every version, as a client speaks that is told nothing.
    pub const USUAL: Self = Self {
        rpc_version: RpcVersion::Auto,
        profile: ProfileName::Rfc8166,
        extensions: Extensions::Auto,
    };

    /// Returns `limits` for a client that speaks this.
    #[must_use]
    pub const fn client(self, limits: Limits) -> Limits {
        let spoken = self.spoken(limits);
        match self.extensions {
            Extensions::Auto => Limits { send_size: PLACING_SIZE, ..spoken },
            Extensions::On => Self::all(spoken),
            Extensions::Off => spoken,
        }
    }

    /// Returns `limits` for a server that speaks this, and whose data have `memory` octets.
    #[must_use]
    pub const fn server(self, limits: Limits, memory: usize) -> Limits {
        let spoken = self.spoken(limits);
        let taking = Limits { receive_size: PLACING_SIZE, ..spoken };
        let more = taking.transport_bytes().saturating_sub(limits.transport_bytes());
        match self.extensions {
            Extensions::Auto if more <= memory / 8 => taking,
            Extensions::On => Self::all(spoken),
            Extensions::Auto | Extensions::Off => spoken,
        }
    }

    /// Returns the arguments by which a server that serves either version follows the rest.
    #[must_use]
    pub const fn to_server(self) -> [&'static str; 4] {
        ["--profile", self.profile.name(), "--extensions", self.extensions.name()]
    }

    const fn spoken(self, limits: Limits) -> Limits {
        Limits { versions: self.rpc_version.versions(), profile: self.profile.profile(), ..limits }
    }

    /// Returns the limits of an end with all extensions.
    const fn all(limits: Limits) -> Limits {
        Limits {
            receive_size: PLACING_SIZE,
            send_size: PLACING_SIZE,
            transmissions_max: TRANSMISSIONS_MAX,
            responses: true,
            ..limits
        }
    }
}

/// Whether both ends of a connection prove which hosts they are: the options of servers and clients.
#[derive(Clone, Debug, Args)]
pub struct HostOptions {
    /// Have both ends prove which hosts they are: if the other end does so, too, or in any case, which shuts out version 1
    /// and TCP
    #[arg(
        long,
        value_name = "off|optional|required",
        value_enum,
        default_value = "off",
        hide_possible_values = true
    )]
    pub host_auth: HostPolicy,
    /// File with the secret key of this host, as `haulage host-key new` makes it
    #[arg(long, value_name = "FILE")]
    pub host_key: Option<PathBuf>,
    /// File of the hosts that are accepted, one a line: NAME, a space, and the key that `haulage host-key show` prints. To a
    /// client, NAME is the server's ADDR:PORT, or ADDR, or rpcbind:HOST, of --connect; to a server, what its log calls the client
    #[arg(long, value_name = "FILE")]
    pub known_hosts: Option<PathBuf>,
}

/// The options by which a client proves which host it is.
#[derive(Clone, Debug, Args)]
pub struct ClientHostOptions {
    /// Those that a server has, too
    #[command(flatten)]
    pub hosts: HostOptions,
    /// Accept whatever key a server has that --known-hosts has no line of, and add the line
    #[arg(long)]
    pub trust_new_host: bool,
}
