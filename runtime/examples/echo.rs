//! A service with one procedure, and a client that calls it: two cores in one process.
//!
//! `cargo run --release --package haulage --example echo -- [iwarp|shm]`
//!
//! The procedure ECHO returns its argument. Both are DDP-eligible: the argument is fetched by an RDMA Read into memory
//! of the server, and an RDMA Write returns it into a lease of the client.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the example prints its results")]

use std::error::Error;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use haulage::core::{Core, Cx, NoService, Service};
use haulage::cores::{self, CoreThread, Placement};
use haulage::limits::LIMITS_DEFAULT;
use haulage::polling::Polling;
use haulage::pool::{PagePreference, Pool, PoolConfig};
use haulage::proto::rpc::AcceptStat;
use haulage::provider::Provider;
use haulage::provider::iwarp::{self, Iwarp};
use haulage::provider::shm::{self, Shm};
use haulage::remote::RemoteClient;
use haulage::service::{
    Argument, Binding, Call, Data, Eligible, Outcome, Procedure, Program, Reply, Request,
};
use haulage::sys::clock;

type Failure = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    match std::env::args().nth(1).as_deref() {
        None | Some("iwarp") => {
            run::<Iwarp>(PagePreference::Best, |_| Iwarp::new(&iwarp::Config::default()))
        }
        // A peer of this provider maps the region, so the region is a shared memory file.
        Some("shm") => {
            run::<Shm>(PagePreference::Shared, |pool| Shm::new(&shm::Config::default(), pool))
        }
        Some(other) => Err(format!("{other} is neither iwarp nor shm").into()),
    }
}

/// Starts a server and a client over one provider, and has every length echoed.
fn run<P: Provider + 'static>(
    pages: PagePreference,
    provider: fn(&Pool) -> io::Result<P>,
) -> Result<(), Failure> {
    let server = serve(pages, provider)?;
    let mut client = connect(pages, provider, server.started)?;
    for length in [64, 64 << 10, ITEM_MAX] {
        let returned = echo(&mut client.started, length)?;
        println!("{length} octets went there and came back, {returned}");
    }
    // A core that is stopped lets its Calls finish and closes its connections.
    client.stop()?;
    server.stop()?;
    Ok(())
}

/// Starts the server's core. Returns its thread, with the address it listens at.
fn serve<P: Provider + 'static>(
    pages: PagePreference,
    provider: fn(&Pool) -> io::Result<P>,
) -> Result<CoreThread<SocketAddr>, Failure> {
    cores::start(placement("echo-server"), move || {
        let mut core = core(pages, provider, Echo)?;
        let bound = core.listen((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok((core, bound))
    })
}

/// Starts the client's core and connects. Returns its thread, with a client for this thread.
fn connect<P: Provider + 'static>(
    pages: PagePreference,
    provider: fn(&Pool) -> io::Result<P>,
    to: SocketAddr,
) -> Result<CoreThread<RemoteClient>, Failure> {
    cores::start(placement("echo-client"), move || {
        let mut core = core(pages, provider, NoService)?;
        let connection = core.connect(clock::now(), to, binding())?;
        let client =
            RemoteClient::of(&core, connection).ok_or("the core has no room for a client")?;
        Ok((core, client))
    })
}

fn placement(name: &str) -> Placement {
    Placement { name: name.to_owned(), cpu: None, polling: Polling::ADAPTIVE }
}

/// Makes a core with memory for a few items.
fn core<P: Provider, S: Service>(
    pages: PagePreference,
    provider: fn(&Pool) -> io::Result<P>,
    service: S,
) -> Result<Core<P, S>, Failure> {
    let bytes = 8 * ITEM_MAX + LIMITS_DEFAULT.transport_bytes();
    let pool = Pool::new(&PoolConfig { bytes, pages, node: None })?;
    let provider = provider(&pool)?;
    Ok(Core::new(provider, service, pool, LIMITS_DEFAULT, SEED)?)
}

/// Has `length` octets echoed and checks them. Returns how the result came.
fn echo(client: &mut RemoteClient, length: usize) -> Result<&'static str, Failure> {
    let mut argument = client.lease(length)?;
    argument.bytes_mut().fill(0x5a);
    let result = client.lease(length)?;
    let request = Request::new(ECHO).argument(argument).room(result);
    // The argument's lease is all that ECHO takes: there is nothing to encode beside it.
    let reply = client.call(request, |_| Ok(())).map_err(|failed| failed.error)?;
    let results = reply.results();
    // The lease is ours again: the server's access to it has ended.
    let returned = reply.rooms.first().map(|lease| lease.bytes()).unwrap_or_default();
    match results.reduced() {
        Some(_) if returned.len() == length && returned.iter().all(|octet| *octet == 0x5a) => {
            Ok("placed by RDMA Write")
        }
        Some(_) => Err("the octets are not those that were sent".into()),
        None => Err("the result came inline although there was a lease for it".into()),
    }
}

/// What both ends agree on: which items may be placed directly, and how long they may be.
fn binding() -> Binding {
    let item = Eligible::opaque(ITEM_MAX);
    let echo = Procedure::new("ECHO").argument(item).result(item).idempotent();
    Binding { program: 0x2000_0001, version: 1, procedures: vec![Procedure::new("NULL"), echo] }
}

/// Returns to each caller what it sent.
struct Echo;

impl Service for Echo {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        if call.procedure != ECHO {
            return Outcome::Done; // NULL takes nothing and returns nothing.
        }
        let item = match call.arguments.item(ITEM_MAX) {
            // An RDMA Read has put the argument into a lease of our pool. An RDMA Write returns the same lease's
            // octets.
            Ok(Argument::Placed(leases)) => match Data::placed(leases) {
                Some(data) => data,
                None => return Outcome::Failed(AcceptStat::SystemErr),
            },
            Ok(Argument::Unreduced([])) => Data::Empty,
            Ok(Argument::Unreduced(octets)) => {
                let Some(mut lease) = cx.pool().lease(octets.len()) else {
                    return Outcome::Failed(AcceptStat::SystemErr);
                };
                lease.bytes_mut().copy_from_slice(octets);
                Data::Local(lease)
            }
            Ok(Argument::Refused { .. }) => return Outcome::Failed(AcceptStat::SystemErr),
            Err(_) => return Outcome::Failed(AcceptStat::GarbageArgs),
        };
        reply.item(item);
        Outcome::Done
    }
}

const ECHO: u32 = 1;
/// Octets of the longest item.
const ITEM_MAX: usize = 1 << 20;
/// Where the core's XIDs begin. A program that meets strangers takes it from the system's random numbers.
const SEED: u64 = 1;
