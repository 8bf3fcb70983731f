//! Cores on RDMA devices, and the environment variables that configure them. Child processes inherit the variables.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use haulage::limits::{ITEMS_MAX, LEAVING_MAX};
use haulage::pool::{Pool, Strategy};
use haulage::proto::v2::connection::Role;
use haulage::provider::Provider;
use haulage::provider::verbs::{Config, ReceiveQueues, Unavailable, Verbs};
use haulage::sys::cpu;
use haulage::sys::socket::Listener;

use super::{Carrier, NodeConfig, Notes};
use crate::failure::Failure;

/// The variable that selects the RDMA device, by its name or by an address of this machine.
pub const DEVICE: &str = "HAULAGE_RDMA_DEVICE";

/// The variable that selects the receive queues: one for all connections (`shared`) or one for each (`own`). Unset, the
/// queue is shared if the device supports it.
pub const RECEIVES: &str = "HAULAGE_RDMA_RECEIVES";

/// The variable that sets the number of retries of a message for which the peer had no Receive; 7 means no limit.
pub const RNR_RETRIES: &str = "HAULAGE_RDMA_RNR_RETRIES";

/// The variable that selects the registration of memory: `window`, `per-call` or `persistent`. Unset, the device
/// decides.
pub const REGISTRATION: &str = "HAULAGE_RDMA_REGISTRATION";

impl Carrier for Verbs {
    /// The ports of devices are not those of TCP: only the address is looked at.
    fn check_listen(at: SocketAddr) -> io::Result<()> {
        Listener::check(SocketAddr::new(at.ip(), 0))
    }

    fn start(node: &NodeConfig, pool: &Pool) -> Result<(Self, Notes), Failure> {
        let limits = &node.limits;
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let config = Config {
            connections_max: count(limits.connections_max.saturating_add(LEAVING_MAX)),
            receive_queue_max: count(limits.receives_max),
            receives_each_max: count(limits.receives_each(Role::Client)),
            registrations_max: count(limits.calls_out_max.saturating_mul(ITEMS_MAX)),
            handshake_timeout: limits.setup_timeout,
            node: node.device_cpu.and_then(|cpu| cpu::node_of(Path::new("/"), cpu)),
            ..asked_for()?
        };
        let mut provider = Self::new(&config).map_err(|error| no_verbs(&error))?;
        provider.register(pool).map_err(|error| no_verbs(&error))?;
        let device = provider.device_name();
        let caps = provider.caps();
        let mut warnings = Vec::new();
        if !caps.promises.exact_bounds {
            warnings.push(format!(
                "RDMA device {device} does not hold peers to what they are granted: for tests, and for \
                 peers that are trusted"
            ));
        }
        let (strategy, most) = (caps.strategy.name(), caps.registrations_max);
        let why = if config.registration.is_some() { ", as asked for" } else { "" };
        let receives = caps.receives_each.map_or_else(
            || format!("one for all connections, of {}", caps.receive_queue_max),
            |each| format!("one for each connection, of up to {each}"),
        );
        let details = vec![
            format!("RDMA device: {}", provider.describe()),
            format!("registrations: {strategy}{why}, {most} at once"),
            format!("receive queue: {receives}"),
            format!("work requests: posted by {}", caps.posting.unwrap_or("the provider")),
        ];
        Ok((provider, Notes { warnings, details }))
    }

    fn own_address() -> Result<IpAddr, Failure> {
        let config = Config { connections_max: 1, registrations_max: 1, ..asked_for()? };
        let provider = Self::new(&config).map_err(|error| no_verbs(&error))?;
        provider.address().ok_or_else(|| {
            let name = provider.device_name();
            Failure::failed(format!("RDMA device {name} has no address; `ip address` shows them"))
        })
    }
}

/// Returns the configuration from the environment variables.
fn asked_for() -> Result<Config, Failure> {
    let said = |variable| std::env::var(variable).ok().filter(|wanted| !wanted.is_empty());
    let wanted = said(DEVICE);
    let mut config = Config { registration: registration()?, ..Config::default() };
    if let Some(wanted) = said(RECEIVES) {
        config.receive_queues = receive_queues(&wanted)?;
    }
    if let Some(wanted) = said(RNR_RETRIES) {
        config.retries_no_receive = rnr_retries(&wanted)?;
    }
    match wanted.as_ref().map(|wanted| wanted.parse()) {
        Some(Ok(address)) => config.source = Some(address),
        _ => config.device = wanted,
    }
    Ok(config)
}

fn receive_queues(wanted: &str) -> Result<ReceiveQueues, Failure> {
    match wanted {
        "shared" => Ok(ReceiveQueues::Shared),
        "own" => Ok(ReceiveQueues::Own),
        _ => Err(Failure::usage(format!("{RECEIVES} is `shared` or `own`, not `{wanted}`"))),
    }
}

fn rnr_retries(wanted: &str) -> Result<u8, Failure> {
    let count = wanted.parse().ok().filter(|count| *count <= 7);
    let wrong =
        || format!("{RNR_RETRIES} is a number up to 7, which is without end, not `{wanted}`");
    count.ok_or_else(|| Failure::usage(wrong()))
}

/// Returns the registration strategy from [`REGISTRATION`], if the variable is set.
///
/// # Errors
/// The variable has another value.
pub fn registration() -> Result<Option<Strategy>, Failure> {
    let wanted = std::env::var(REGISTRATION).unwrap_or_default();
    strategy(&wanted)
}

/// Parses the value of [`REGISTRATION`].
fn strategy(wanted: &str) -> Result<Option<Strategy>, Failure> {
    Ok(match wanted {
        "" => None,
        "window" => Some(Strategy::Window),
        "per-call" => Some(Strategy::PerCall),
        "persistent" => Some(Strategy::Persistent),
        _ => {
            let all = "`window`, `per-call` or `persistent`";
            return Err(Failure::usage(format!("{REGISTRATION} is {all}, not `{wanted}`")));
        }
    })
}

fn no_verbs(error: &Unavailable) -> Failure {
    Failure::failed(format!("cannot start the verbs provider: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_receives_is_one_of_what_there_is() {
        assert_eq!(receive_queues("shared").unwrap(), ReceiveQueues::Shared);
        assert_eq!(receive_queues("own").unwrap(), ReceiveQueues::Own);
        let refused = receive_queues("any").unwrap_err().to_string();
        assert_eq!(refused, "HAULAGE_RDMA_RECEIVES is `shared` or `own`, not `any`");
        assert_eq!([rnr_retries("0").unwrap(), rnr_retries("7").unwrap()], [0, 7]);
        for wrong in ["8", "-1", "256", "few"] {
            let refused = rnr_retries(wrong).unwrap_err().to_string();
            assert!(
                refused.contains("a number up to 7") && refused.ends_with(&format!("`{wrong}`"))
            );
        }
    }

    #[test]
    fn registrations_are_asked_for_by_these_words_alone() {
        let asked = ["", "window", "per-call", "persistent"].map(|word| strategy(word).unwrap());
        let known = [Strategy::Window, Strategy::PerCall, Strategy::Persistent].map(Some);
        assert_eq!(asked, [None, known[0], known[1], known[2]]);
        for wrong in ["Window", "percall", "persistent ", "fast-reg"] {
            assert!(strategy(wrong).unwrap_err().to_string().ends_with(&format!("`{wrong}`")));
        }
    }
}
