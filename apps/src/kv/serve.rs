//! `haulage kv serve`.

use std::net::SocketAddr;
use std::time::Duration;

use haulage::cores::{self, Placement as Thread};
use haulage::limits::{ITEM_MAX, LIMITS_DEFAULT};
use haulage::provider::Waker;
use haulage::sys::{signal, wake};

use super::index::Seed;
use super::service::KvService;
use crate::cli::ServeKv;
use crate::cli::bytes;
use crate::failure::Failure;
use crate::node::{Node, NodeConfig, polling};
use crate::output::{Output, json};
use crate::placement::{Cpus, Placement};

/// Serves until SIGTERM or SIGINT.
pub fn run(options: &ServeKv, output: &Output) -> Result<(), Failure> {
    let value_max = usize::try_from(options.value_max.0).unwrap_or(usize::MAX);
    if value_max > ITEM_MAX {
        let max = bytes::format(ITEM_MAX as u64);
        return Err(Failure::usage(format!(
            "--value-max is at most {max}, the largest item one call moves"
        )));
    }
    let memory = usize::try_from(options.memory.0).unwrap_or(usize::MAX);
    if memory < MEMORY_MIN || memory < value_max {
        let least = bytes::format(MEMORY_MIN.max(value_max) as u64);
        return Err(Failure::usage(format!(
            "--memory is too small: at least {least}, and no less than --value-max"
        )));
    }
    let placement =
        Placement::new(options.core.cores.as_ref(), options.core.polling, &Cpus::here()?);
    let [cpu] = placement.cores[..] else {
        return Err(Failure::usage("this build serves from one core: name one CPU with --cores"));
    };
    placement.note.into_iter().for_each(|note| output.note(note));
    warn_if_open(&options.listen.resolve()?, output);

    signal::catch_termination()
        .map_err(|error| Failure::failed(format!("cannot catch signals: {error}")))?;
    let waker = Waker::new()
        .map_err(|error| Failure::failed(format!("cannot make an eventfd: {error}")))?;
    signal::wake_on_end(&waker).map_err(|_| Failure::failed("too many wakers"))?;

    let seed =
        Seed::random().map_err(|error| Failure::failed(format!("no random numbers: {error}")))?;
    let (listen, crc) = (options.listen.clone(), options.core.crc);
    let thread = Thread { name: "kv-core".to_owned(), cpu, polling: polling(placement.polling) };
    let core = cores::start(thread, move || {
        let keys_max = u32::try_from(memory / INDEX_SHARE / KvService::OCTETS_PER_KEY);
        let service = KvService::new(keys_max.unwrap_or(u32::MAX), seed, value_max, memory as u64);
        let room = memory.saturating_sub(service.index_octets());
        let node = NodeConfig { room, limits: LIMITS_DEFAULT, crc };
        let (mut core, notes) = node.build(service)?;
        let at = listen.resolve()?;
        let bound = listen_at(&mut core, &at)?;
        Ok::<_, Failure>((core, (bound, notes)))
    })?;
    let (bound, notes) = &core.started;
    notes.tell(output);
    ready(*bound, output)?;
    while !signal::end_requested() && !core.is_finished() {
        wake::wait(&waker, CHECK_INTERVAL);
    }
    if core.is_finished() {
        return Err(Failure::failed("the core's thread died"));
    }
    core.stop();
    Ok(())
}

/// Listens at the first of `addresses` that works.
fn listen_at(core: &mut Node<KvService>, addresses: &[SocketAddr]) -> Result<SocketAddr, Failure> {
    let mut failed = None;
    for address in addresses {
        match core.listen(*address) {
            Ok(bound) => return Ok(bound),
            Err(error) => failed = Some((address, error)),
        }
    }
    let Some((address, error)) = failed else {
        return Err(Failure::failed("there is no address to listen at"));
    };
    Err(Failure::failed(match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("{address} is in use; end what listens there, or choose another --listen")
        }
        std::io::ErrorKind::PermissionDenied => {
            format!("{address} may not be used; choose a port from 1024 up with --listen")
        }
        std::io::ErrorKind::AddrNotAvailable => {
            format!("{address} is not an address of this machine; choose another --listen")
        }
        _ => format!("cannot listen at {address}: {error}"),
    }))
}

/// Says once that anybody who can reach the port can use it.
fn warn_if_open(addresses: &[SocketAddr], output: &Output) {
    if addresses.iter().any(|address| !address.ip().is_loopback()) {
        output.note(
            "there is no authentication: whoever reaches this port can read and change everything",
        );
    }
}

/// Prints the one line that says that connections are accepted.
fn ready(bound: SocketAddr, output: &Output) -> Result<(), Failure> {
    if !output.json {
        return output.line(&format!("ready: {bound}"));
    }
    output.line(&json::object(|o| {
        o.flag("ready", true).text("listen", &bound.to_string());
        for absent in ["mount_listen", "tcp_listen", "metrics"] {
            o.json(absent, "null");
        }
        o.count("pid", u64::from(std::process::id()));
    }))
}

/// Of the memory, the index may take one part in so many.
const INDEX_SHARE: usize = 8;

/// Less would be all index and transport.
const MEMORY_MIN: usize = 1 << 20;

/// How often a server looks whether its core is still there; signals wake it at once.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
