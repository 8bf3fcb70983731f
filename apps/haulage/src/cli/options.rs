//! Options that several commands have.

use clap::Args;

use super::values::{CoreList, Polling, Provider, RpcVersion, Switch, Timeout, Unlimited};

/// The timeouts after which a server closes a connection: the options of every command that serves.
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
