//! Cores over iWARP, each on a thread of its own, for tests that act as the other end of their connections.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use haulage::core::{ConnectOptions, Core, Cx, NoService, Service};
use haulage::cores::{self, CoreThread, Placement};
use haulage::hosts::HostAuth;
use haulage::limits::{LIMITS_DEFAULT, Limits, REPLY_PARTS};
use haulage::polling::Polling;
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::remote::RemoteClient;
use haulage::service::{
    Argument, Binding, Call, CallToken, Data, Eligible, Outcome, Procedure, Program, Reply,
};
use haulage_mr_pool::{PagePreference, Pieces, Pool, PoolConfig};
use haulage_proto::rpc::AcceptStat;

use crate::link::PATIENCE;

/// The number of the program of [`Keeper`], whose version is 1.
pub const PROGRAM: u32 = 0x2000_0007;
/// A procedure without arguments and results.
pub const NULL: u32 = 0;
/// A procedure that takes an item, which must be reduced, and keeps it.
pub const PUT: u32 = 1;
/// A procedure that returns the kept item, which may be reduced.
pub const GET: u32 = 2;
/// A procedure that returns as many octets as it is asked for, which the binding does not allow to reduce.
pub const ECHO: u32 = 3;
/// A procedure that is never answered.
pub const HOLD: u32 = 4;
/// A procedure that returns as many octets as it is asked for, which are no item.
pub const LIST: u32 = 5;
/// A procedure that takes an item, which must be reduced, and returns the one kept before it, which may be reduced.
pub const SWAP: u32 = 6;
/// Like [`SWAP`], but answered in a later turn.
pub const LATE_SWAP: u32 = 7;
/// Like [`GET`], but answered in a later turn.
pub const LATE_GET: u32 = 8;
/// A procedure that takes octets that are no item, and returns their number and their sum.
pub const TALLY: u32 = 9;
/// The most octets that [`LIST`] returns.
pub const LIST_MAX: u32 = 64 << 10;
/// The most octets of an item.
pub const ITEM_MAX: usize = 64 << 10;

/// A service that keeps one item.
#[derive(Debug, Default)]
pub struct Keeper {
    item: Option<Rc<Pieces>>,
    /// Calls to be answered later, and the items that they return.
    late: Vec<(CallToken, Option<Rc<Pieces>>)>,
}

impl Service for Keeper {
    fn programs(&self) -> Vec<Program> {
        vec![Program::new(binding())]
    }

    fn call(&mut self, cx: &mut Cx<'_>, mut call: Call<'_>, reply: &mut Reply) -> Outcome {
        match call.procedure {
            PUT | SWAP | LATE_SWAP => match call.arguments.item(ITEM_MAX) {
                Ok(Argument::Placed(leases)) if call.arguments.is_empty() => {
                    let before = self.item.replace(Rc::new(leases.share().unwrap()));
                    match call.procedure {
                        SWAP => reply.item(before.map_or(Data::Empty, Data::Pieces)),
                        LATE_SWAP => {
                            self.late.push((call.token, before));
                            return Outcome::Later;
                        }
                        _ => {}
                    }
                }
                _ => return Outcome::Failed(AcceptStat::GarbageArgs),
            },
            GET => reply.item(self.item.clone().map_or(Data::Empty, Data::Pieces)),
            ECHO => match call.arguments.u32() {
                Ok(length) => reply.item(Data::Local(cx.pool().lease(length as usize).unwrap())),
                Err(_) => return Outcome::Failed(AcceptStat::GarbageArgs),
            },
            LATE_GET => {
                self.late.push((call.token, self.item.clone()));
                return Outcome::Later;
            }
            HOLD => return Outcome::Later,
            TALLY => match call.arguments.opaque(1 << 20) {
                Ok(octets) if call.arguments.is_empty() => {
                    let sum = octets.iter().map(|octet| u32::from(*octet)).sum();
                    reply.results(|w| {
                        w.u32(u32::try_from(octets.len()).unwrap_or(u32::MAX))?;
                        w.u32(sum)
                    });
                }
                _ => return Outcome::Failed(AcceptStat::GarbageArgs),
            },
            LIST => match call.arguments.u32() {
                Ok(length) => reply.results(|w| w.opaque(&vec![0x11; length as usize])),
                Err(_) => return Outcome::Failed(AcceptStat::GarbageArgs),
            },
            _ => {}
        }
        Outcome::Done
    }

    fn resume(&mut self, _: &mut Cx<'_>, token: CallToken, reply: &mut Reply) -> Outcome {
        let at = self.late.iter().position(|(late, _)| *late == token).unwrap();
        let (_, item) = self.late.swap_remove(at);
        reply.item(item.map_or(Data::Empty, Data::Pieces));
        Outcome::Done
    }

    fn turn(&mut self, cx: &mut Cx<'_>) -> bool {
        self.late.iter().for_each(|(token, _)| cx.resume(*token));
        false
    }
}

/// Returns the binding of [`Keeper`].
pub fn binding() -> Binding {
    let item = Eligible::opaque(ITEM_MAX);
    let procedures = vec![
        Procedure::new("NULL").idempotent(),
        Procedure::new("PUT").argument(item).idempotent(),
        Procedure::new("GET").result(item).idempotent(),
        Procedure::new("ECHO").idempotent(),
        Procedure::new("HOLD"),
        Procedure::new("LIST").results_max(LIST_MAX).idempotent(),
        Procedure::new("SWAP").argument(item).result(item),
        Procedure::new("LATE_SWAP").argument(item).result(item),
        Procedure::new("LATE_GET").result(item).idempotent(),
        Procedure::new("TALLY").results_max(8).idempotent(),
    ];
    Binding { program: PROGRAM, version: 1, procedures }
}

/// Starts a server of a [`Keeper`].
pub fn server() -> CoreThread<SocketAddr> {
    server_of(|_| Keeper::default())
}

/// Starts a server of the service that `make` makes with the core's memory.
pub fn server_of<S: Service>(
    make: impl FnOnce(&Pool) -> S + Send + 'static,
) -> CoreThread<SocketAddr> {
    server_within(Limits { connections_max: 16, receives_max: 256, ..LIMITS_DEFAULT }, make)
}

/// Starts a server that has too few send buffers for Replies of several messages.
pub fn terse_server_of<S: Service>(
    make: impl FnOnce(&Pool) -> S + Send + 'static,
) -> CoreThread<SocketAddr> {
    let limits = Limits { connections_max: 16, receives_max: 256, ..LIMITS_DEFAULT };
    server_within(Limits { send_buffers_max: REPLY_PARTS, ..limits }, make)
}

/// Octets of a server's pool.
pub const SERVER_BYTES: usize = 16 << 20;

/// Starts a server with these limits, of the service that `make` makes with the core's memory.
pub fn server_within<S: Service>(
    limits: Limits,
    make: impl FnOnce(&Pool) -> S + Send + 'static,
) -> CoreThread<SocketAddr> {
    start_server(limits, None, make)
}

/// Starts a server with these limits, to which hosts prove which they are as `auth` says.
pub fn server_proving<S: Service>(
    limits: Limits,
    auth: HostAuth,
    make: impl FnOnce(&Pool) -> S + Send + 'static,
) -> CoreThread<SocketAddr> {
    start_server(limits, Some(auth), make)
}

fn start_server<S: Service>(
    limits: Limits,
    auth: Option<HostAuth>,
    make: impl FnOnce(&Pool) -> S + Send + 'static,
) -> CoreThread<SocketAddr> {
    let placement = Placement { name: "server".to_owned(), cpu: None, polling: Polling::ADAPTIVE };
    cores::start(placement, move || {
        let pool = PoolConfig { bytes: SERVER_BYTES, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&pool).map_err(std::io::Error::other)?;
        let nic = Iwarp::new(&Config::default())?;
        let service = make(&pool);
        let mut core = Core::new(nic, service, pool, limits, 1).map_err(std::io::Error::other)?;
        auth.map_or(Ok(()), |auth| core.authenticate(auth)).map_err(std::io::Error::other)?;
        let at = core.listen((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok::<_, std::io::Error>((core, at))
    })
    .unwrap()
}

/// Starts a client of the server at `at`, which has these limits, but for one connection, and proves which host it is.
pub fn client_proving(
    limits: Limits,
    auth: HostAuth,
    binding: Binding,
    at: SocketAddr,
) -> CoreThread<RemoteClient> {
    client_within(limits, || NoService, ConnectOptions::new(binding).host_auth(auth), at)
}

/// Starts a client of the server at `at`, which has these limits, but for one connection, and the service that `make`
/// makes.
pub fn client_within<S: Service>(
    limits: Limits,
    make: impl FnOnce() -> S + Send + 'static,
    options: impl Into<ConnectOptions> + Send + 'static,
    at: SocketAddr,
) -> CoreThread<RemoteClient> {
    let placement = Placement { name: "client".to_owned(), cpu: None, polling: Polling::ADAPTIVE };
    let limits = Limits { connections_max: 1, receives_max: 64, call_timeout: PATIENCE, ..limits };
    cores::start(placement, move || {
        let pool = PoolConfig { bytes: 8 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&pool).map_err(std::io::Error::other)?;
        let nic = Iwarp::new(&Config::default())?;
        let mut core = Core::new(nic, make(), pool, limits, 1).map_err(std::io::Error::other)?;
        let connection = core.connect(haulage::sys::clock::now(), at, options);
        let client = connection.ok().and_then(|connection| RemoteClient::of(&core, connection));
        Ok::<_, std::io::Error>((core, client.ok_or(std::io::ErrorKind::NotConnected)?))
    })
    .unwrap()
}
