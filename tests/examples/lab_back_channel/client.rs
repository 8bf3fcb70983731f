//! A client with one session, whose back channel is on the same connection.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use haulage::core::{ConnectOptions, Core};
use haulage::cores::{self, CoreThread, Placement};
use haulage::identity::{Identity, User};
use haulage::limits::{LIMITS_DEFAULT, Limits};
use haulage::polling::Polling;
use haulage::provider::iwarp::{Config, Iwarp};
use haulage::remote::RemoteClient;
use haulage::service::{Binding, Procedure, Request};
use haulage::sys::clock;
use haulage_mr_pool::{PagePreference, Pool, PoolConfig};
use haulage_tests::callback::{self, Callbacks, Manner, Told};
use haulage_tests::link::PATIENCE;

use super::nfs::{self, Channel, Created, Fault, Opened, Operations, Results, SessionId, Stateid};

/// A client with one session.
#[derive(Debug)]
pub(crate) struct Client {
    core: CoreThread<RemoteClient>,
    told: Receiver<Told>,
    owner: String,
    id: u64,
    session: SessionId,
    /// The number of the last request of the one slot.
    sequence: u32,
    /// The attributes of the back channel.
    pub(crate) back: Channel,
    /// The status flags of the last answer.
    pub(crate) flags: u32,
}

impl Client {
    /// Connects, and makes a session with a back channel for a client of this name.
    pub(crate) fn connect(at: SocketAddr, owner: &str, manner: Manner) -> Result<Self, Fault> {
        let (tell, told) = channel();
        let callbacks = Callbacks::new(manner, nfs::BACK.slots, tell);
        let core = start(at, callbacks).map_err(|e| Fault::Other(e.to_string()))?;
        let (session, back, flags) = ([0; 16], nfs::BACK, 0);
        let owner = owner.to_owned();
        let mut client = Self { core, told, owner, id: 0, session, sequence: 0, back, flags };
        let asked = Operations::default().exchange_id(&client.owner);
        let (id, sequence) = client.alone(&asked, |results| results.exchange_id())?;
        client.id = id;
        let asked = Operations::default().create_session(id, sequence);
        let Created { session, flags, back } =
            client.alone(&asked, |results| results.create_session())?;
        if flags & nfs::BACK_CHANNEL == 0 {
            return Err(Fault::Other(format!("no back channel on this connection: {flags:#x}")));
        }
        (client.session, client.back) = (session, back);
        let done = nfs::RECLAIM_COMPLETE;
        client.call(Operations::reclaim_complete, |results| results.of(done).map(drop))?;
        Ok(client)
    }

    /// Opens a file of the root directory. Returns its handle, too.
    pub(crate) fn open(&mut self, share: u32, name: &str) -> Result<(Opened, Vec<u8>), Fault> {
        let owner = self.owner.clone();
        self.call(
            |of| of.plain(nfs::PUTROOTFH).open(&owner, share, name).plain(nfs::GETFH),
            |results| {
                let opened = results.of(nfs::PUTROOTFH)?.open()?;
                Ok((opened, results.handle()?))
            },
        )
    }

    /// Returns a delegation, or frees one that was revoked: `operation` says which.
    pub(crate) fn give_back(
        &mut self,
        operation: u32,
        delegation: Stateid,
        file: &[u8],
    ) -> Result<(), Fault> {
        self.call(
            |of| of.put_handle(file).named(operation, delegation),
            |results| results.of(nfs::PUTFH)?.of(operation).map(drop),
        )
    }

    /// Closes a file.
    pub(crate) fn close(&mut self, opened: &Opened, file: &[u8]) -> Result<(), Fault> {
        self.call(
            |of| of.put_handle(file).close(opened.stateid),
            |results| results.of(nfs::PUTFH)?.of(nfs::CLOSE).map(drop),
        )
    }

    /// Renews the lease.
    pub(crate) fn renew(&mut self) -> Result<(), Fault> {
        self.call(|of| of, |_| Ok(()))
    }

    /// Waits for a callback.
    pub(crate) fn told(&self, patience: Duration) -> Option<Told> {
        self.told.recv_timeout(patience).ok()
    }

    /// Returns the name of the session.
    pub(crate) const fn session(&self) -> SessionId {
        self.session
    }

    /// Destroys session and client, and closes the connection.
    pub(crate) fn leave(mut self) -> Result<(), Fault> {
        let asked = Operations::default().named(nfs::DESTROY_SESSION, self.session);
        self.alone(&asked, |results| results.of(nfs::DESTROY_SESSION).map(drop))?;
        let asked = Operations::default().destroy_client(self.id);
        self.alone(&asked, |results| results.of(nfs::DESTROY_CLIENTID).map(drop))?;
        self.core.stop().map_err(|e| Fault::Other(e.to_string()))
    }

    /// Has operations carried out in the session.
    fn call<T>(
        &mut self,
        ask: impl FnOnce(Operations) -> Operations,
        take: impl FnOnce(&mut Results<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.sequence += 1;
        let asked = ask(Operations::default().sequence(self.session, self.sequence));
        let (flags, taken) =
            self.alone(&asked, |results| Ok((results.sequence()?, take(results))))?;
        self.flags = flags;
        taken
    }

    /// Has operations carried out as they are.
    fn alone<T>(
        &mut self,
        asked: &Operations,
        take: impl FnOnce(&mut Results<'_>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let request = Request::new(COMPOUND);
        let reply = self.core.started.call(request, |w| asked.encode(w));
        let reply = reply.map_err(|failed| Fault::Other(failed.to_string()))?;
        let taken = take(&mut Results::new(reply.results().rest())?);
        self.core.started.recycle(reply);
        taken
    }
}

/// Starts a core that is connected to the server, and serves callbacks.
fn start(at: SocketAddr, callbacks: Callbacks) -> io::Result<CoreThread<RemoteClient>> {
    let placement = Placement { name: "client".to_owned(), cpu: None, polling: Polling::ADAPTIVE };
    let limits = Limits { connections_max: 1, receives_max: 64, credits_max: 16, ..LIMITS_DEFAULT };
    // A callback that is never answered would hold up the end.
    let drain_timeout = Duration::from_millis(200);
    let limits = Limits { call_timeout: PATIENCE, drain_timeout, ..limits };
    let procedures = vec![Procedure::new("NULL"), Procedure::new("COMPOUND").results_max(1024)];
    let binding = Binding { program: nfs::PROGRAM, version: nfs::VERSION, procedures };
    cores::start(placement, move || {
        let pool = PoolConfig { bytes: 8 << 20, pages: PagePreference::Heap, node: None };
        let pool = Pool::new(&pool).map_err(io::Error::other)?;
        let nic = Iwarp::new(&Config::default())?;
        let mut core = Core::new(nic, callbacks, pool, limits, 1).map_err(io::Error::other)?;
        let root = Identity::User(User::new("lab", 0, 0, &[]));
        let options =
            ConnectOptions::new(binding).identity(root).serving(vec![callback::program()]);
        let connection = core.connect(clock::now(), at, options);
        let client = connection.ok().and_then(|connection| RemoteClient::of(&core, connection));
        Ok((core, client.ok_or(io::ErrorKind::NotConnected)?))
    })
}

const COMPOUND: u32 = 1;
