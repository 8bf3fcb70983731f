//! Registration of servers with rpcbind, and how clients find them by it.
//!
//! # Normal operation
//! A server registers its services once it listens, before it says that it is ready, and ends their registration when it
//! ends. In between it looks every few seconds whether rpcbind still knows them. Calls to rpcbind block, so a thread of
//! their own makes them.
//!
//! # Recovery
//! An rpcbind that starts again may know nothing: the services are registered with it again. A server that was killed
//! leaves its registration behind, which a server at the same addresses takes over. The registration of another server is
//! neither replaced nor removed.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use haulage::rpcbind::{Endpoint, Rpcbind};
use haulage::sys::signal;

use crate::cli::RegisterOptions;
use crate::cli::rpcbind::RpcbindAddress;
use crate::cli::values::Provider;
use crate::failure::Failure;
use crate::output::Output;

use keeper::Keeper;
use service::Service;

mod keeper;
pub mod lookup;
pub mod service;

/// The registration of a server, which ends when this value is dropped.
#[derive(Debug)]
pub struct Registration {
    /// The thread ends the registration when this is dropped.
    stop: Option<Sender<()>>,
    /// Tells whether the services were registered, and by its end that they are registered no more.
    told: Receiver<Result<(), Failure>>,
    output: Output,
}

impl Registration {
    /// Registers services with `rpcbind`, if there is one, and keeps them registered. Signals end the server in order from then
    /// on.
    ///
    /// # Errors
    /// rpcbind refuses or does not answer, or another server is registered. Nothing is registered then.
    pub fn begin(
        rpcbind: Option<Rpcbind>,
        services: Vec<Service>,
        output: &Output,
    ) -> Result<Option<Self>, Failure> {
        let Some(rpcbind) = rpcbind else { return Ok(None) };
        let keeper = Keeper::new(rpcbind, services);
        signal::end_start();
        let (stop, stopped) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let output = *output;
        let keep = move || keep(keeper, &stopped, &tell, &output);
        thread::Builder::new().name("registration".to_owned()).spawn(keep)?;
        let begun = told.recv().unwrap_or_else(|_| Err(Failure::failed("the registration failed")));
        begun.map(|()| Some(Self { stop: Some(stop), told, output }))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.stop = None;
        if self.told.recv_timeout(END_TIME) == Err(RecvTimeoutError::Timeout) {
            self.output.note("rpcbind does not answer; this server stays registered with it");
        }
    }
}

/// Registers the services, looks after them until the registration is to end, and ends it.
fn keep(
    mut keeper: Keeper,
    stopped: &Receiver<()>,
    tell: &Sender<Result<(), Failure>>,
    output: &Output,
) {
    let begun = keeper.begin();
    let is_begun = begun.is_ok();
    // The receiver waits for this.
    let _ = tell.send(begun);
    if !is_begun {
        return;
    }
    while stopped.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        keeper.check().into_iter().for_each(|note| output.note(&note));
    }
    keeper.end().into_iter().for_each(|note| output.note(&note));
}

/// Returns the rpcbind with which a server is to register, if it is, once that answers: before memory is filled.
///
/// # Errors
/// It does not answer, or does not help clients to find a server over `provider`.
pub fn prepare(
    RegisterOptions { register }: &RegisterOptions,
    provider: Provider,
) -> Result<Option<Rpcbind>, Failure> {
    let Some(at) = register else { return Ok(None) };
    if provider == Provider::Shm {
        return Err(Failure::usage(
            "--register is not for --provider shm: rpcbind tells of servers that are reached over a network",
        ));
    }
    let rpcbind = Rpcbind::at(endpoints(at)?, TIMEOUT);
    match rpcbind.dump() {
        Ok(_) => Ok(Some(rpcbind)),
        Err(fault) => {
            Err(Failure::failed(format!("{fault}; start rpcbind, or leave out --register")))
        }
    }
}

/// Returns the addresses at which an rpcbind may listen.
fn endpoints(at: &RpcbindAddress) -> Result<Vec<Endpoint>, Failure> {
    match at {
        RpcbindAddress::Local(path) => Ok(vec![Endpoint::Local(path.clone())]),
        RpcbindAddress::Tcp(address) => {
            Ok(address.resolve(None)?.into_iter().map(Endpoint::Tcp).collect())
        }
    }
}

/// Timeout of a call to rpcbind.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Interval at which a server looks whether it is still registered.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Longest time that a server takes to end its registration: a check that is under way, and a call that fails.
const END_TIME: Duration = Duration::from_secs(5);
