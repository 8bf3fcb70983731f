//! The client's core.

use std::net::SocketAddr;
use std::time::Duration;

use haulage::cores::{self, CoreThread, Placement as Thread};
use haulage::service::CallError;
use haulage::sys::clock;

use super::load::{Driver, Load, Stopped};
use super::plan::Plan;
use super::protocol::binding;
use crate::calling::Callee;
use crate::cli::bytes;
use crate::cli::values::Switch;
use crate::failure::Failure;
use crate::node::{Carrier, NodeConfig, Notes};

/// What the client's thread hands out.
#[derive(Debug)]
pub(super) struct Client {
    /// Gives it work.
    pub(super) driver: Driver,
    /// How it came out.
    pub(super) notes: Notes,
}

/// Starts a core that connects to `to`. Calls wait until the connections are there.
pub(super) fn start<P: Carrier>(
    thread: Thread,
    plan: Plan,
    to: SocketAddr,
    timeout: Duration,
    crc: Option<Switch>,
) -> Result<CoreThread<Client>, Failure> {
    cores::start(thread, move || {
        let node = NodeConfig { room: plan.memory(), limits: plan.client_limits(timeout), crc };
        let mut driver = None;
        let (mut core, notes) = node.build_on::<P, _>(|_, waker| {
            let (load, made) = Load::new(waker.clone());
            driver = Some(made);
            Ok(load)
        })?;
        let driver = driver.ok_or_else(|| Failure::failed("a core has one service"))?;
        let now = clock::now();
        let connections = (0..plan.connections).map(|_| {
            core.connect(now, to, binding()).map_err(|error| callee(to, timeout).explain(&error))
        });
        let connections = connections.collect::<Result<Vec<_>, _>>()?;
        core.cx(now).1.connections = connections;
        Ok::<_, Failure>((core, Client { driver, notes }))
    })
}

/// Says in one line why a run stopped and what to do about it.
pub(super) fn explain(
    stopped: &Stopped,
    plan: &Plan,
    to: SocketAddr,
    timeout: Duration,
) -> Failure {
    let size = bytes::format(plan.job.size as u64);
    Failure::failed(match stopped {
        Stopped::Call(CallError::Busy) => {
            format!("{to} takes no more calls; lower --depth or --connections")
        }
        Stopped::Call(error) => return callee(to, timeout).explain(error),
        Stopped::NoMemory => format!("there is no memory for {} items of {size}", plan.in_flight()),
        Stopped::ServerNoMemory => {
            format!(
                "{to} has no memory for items of {size}; raise --memory of `haulage perf serve`"
            )
        }
        Stopped::BadReply => {
            format!("{to} answers nonsense; check that it is `haulage perf serve`")
        }
    })
}

fn callee(to: SocketAddr, timeout: Duration) -> Callee {
    Callee { to, timeout, served_by: "haulage perf serve" }
}
