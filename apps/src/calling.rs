//! What commands that call a server have in common: finding where it listens, and saying in one line
//! why a Call failed and what to do about it.

use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use haulage::provider::ConnectError;
use haulage::service::CallError;

use crate::cli::CoreOptions;
use crate::failure::Failure;
use crate::node::polling;
use crate::placement::{Cpus, Placement};

/// Who is called.
#[derive(Clone, Copy, Debug)]
pub struct Callee {
    /// The server.
    pub to: SocketAddr,
    /// How long a connection and each answer may take.
    pub timeout: Duration,
    /// What starts such a server.
    pub served_by: &'static str,
}

impl Callee {
    /// Says what went wrong with a Call and what to do about it.
    pub fn explain(&self, error: &CallError) -> Failure {
        let Self { to, timeout, served_by } = self;
        let seconds = timeout.as_secs_f64();
        Failure::failed(match error {
            CallError::Connect(ConnectError::Refused) => format!(
                "nobody listens at {to}; start `{served_by}`, or give its address with --connect"
            ),
            CallError::Connect(ConnectError::TimedOut) => format!(
                "{to} did not finish connecting within {seconds} s; check that it is such a server"
            ),
            CallError::Connect(reason) => format!("cannot connect to {to}: {reason}"),
            CallError::TimedOut => format!(
                "no answer from {to} within {seconds} s; look whether the server lives, or raise \
                 --timeout"
            ),
            CallError::Disconnected(reason) => {
                format!("the connection to {to} is lost ({reason}); look whether the server lives")
            }
            error => format!("{to}: {error}"),
        })
    }
}

/// Settles where the one core of a client runs: its name, its CPU if it gets one, and how it waits.
pub fn one_core(name: &str, options: &CoreOptions) -> Result<haulage::cores::Placement, Failure> {
    let placement = Placement::new(options.cores.as_ref(), options.polling, &Cpus::here()?)?;
    let [cpu] = placement.cores[..] else {
        return Err(Failure::usage("a client has one core: name one CPU with --cores"));
    };
    let polling = polling(placement.polling);
    Ok(haulage::cores::Placement { name: name.to_owned(), cpu, polling })
}

/// Returns the first of several addresses at which anybody listens; the first of all if nobody does,
/// so that its error is the one to be told.
pub fn reachable(addresses: &[SocketAddr], timeout: Duration) -> Result<SocketAddr, Failure> {
    let first = addresses.first().ok_or_else(|| Failure::failed("the server has no address"))?;
    let listens = |to: &&SocketAddr| TcpStream::connect_timeout(to, timeout).is_ok();
    let found = if addresses.len() > 1 { addresses.iter().find(listens) } else { None };
    Ok(*found.unwrap_or(first))
}
