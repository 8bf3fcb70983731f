//! NFS version 3 over any backend and any transport: one Call in, one Reply out.
//!
//! # Normal operation
//! A transport decodes a Call's [`Arguments`] and passes them to [`Service::call`], with the lease into which a reduced
//! argument was placed. It gets an [`Answer`]: results to encode, and the data that follows them, still in the
//! backend's memory. If the backend needs more time, the answer is [`Answer::Later`], and [`Service::poll`] returns the
//! Reply in a later turn.
//!
//! # Recovery
//! [`Replays`](crate::replays::Replays) filters repeated Calls before they get here.

use std::collections::BTreeMap;

use haulage::service::ResultSource;
use haulage_mr_pool::{Local, Pool};
use haulage_proto::rpc::Credential;
use haulage_proto::time::Instant;
use haulage_proto::xdr::{Truncated, Writer};

use crate::access::{EXECUTE, Policy, READ, WRITE};
use crate::backend::{Backend, Context, Ticket};
use crate::handle::{FileId, SealedHandle, Sealer};
use crate::nfs3::binding::Limits;
use crate::nfs3::{
    Arguments, Attributes, Failure, FileHandle, FileType, Name, Outcome, Procedure, Results,
    Status, Time, Wcc,
};
use haulage_mr_pool::{Piece, Pieces};

mod attributes;
mod data;
mod held;
mod listing;
mod names;
mod parked;
mod parking;
mod pending;
mod reduced;
mod walk;

pub use walk::{Walk, Walked};

pub(crate) use parking::is_costly;

use parking::{Parking, Wait};
use pending::Pending;

/// The configuration of a service.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// The rules of squashing.
    pub policy: Policy,
    /// Whether the file system is read-only.
    pub read_only: bool,
    /// The maximum transfer sizes of one Call.
    pub limits: Limits,
}

/// NFS version 3 over one backend.
#[derive(Debug)]
pub struct Service<B> {
    backend: B,
    sealer: Sealer,
    config: Config,
    /// Calls that wait for the backend.
    pending: BTreeMap<Ticket, Pending>,
    /// Calls that wait until one of their files is found.
    parking: Parking,
    /// Replies that wait until what they rest on is on stable storage.
    held: BTreeMap<Ticket, (Procedure, LateReply)>,
    /// The network of the client whose Call is executed.
    network: u64,
    next_ticket: u64,
    /// The number of arrivals for which attributes were read.
    arrivals: Option<u64>,
    /// The ticket of the resumed Call that is being executed.
    resumed: Option<Ticket>,
    /// The file handle in the Reply being made.
    sealed: SealedHandle,
    /// Memory for encoded listings: of READDIR, and of READDIRPLUS.
    listings: [Box<[u8]>; 2],
}

/// A decoded Call.
#[derive(Debug)]
pub struct Call<'a> {
    /// The credential of the caller.
    pub credential: Credential<'a>,
    /// The procedure and its arguments.
    pub arguments: Arguments<'a>,
    /// The lease of a reduced argument; `None` also if there was no memory to place the argument in, and none is to be
    /// expected.
    pub placed: Option<Local>,
    /// Octets of results that the Reply has room for: a list of names ends there.
    pub room: usize,
    /// The network of the client, by which what is bounded is shared.
    pub network: u64,
}

/// The surroundings of a Call: memory and clocks.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The registered memory of the core that serves the Call.
    pub pool: &'a Pool,
    /// The time of day.
    pub now: Time,
    /// The core's clock, which is never set.
    pub clock: Instant,
    /// A number that grows when Calls arrive: Calls under one number share the attributes that are read for the first.
    /// [`Cx::arrivals`](haulage::core::Cx::arrivals) returns it. `None` if each Call came alone.
    pub arrivals: Option<u64>,
}

/// The answer to a Call: its Reply, or a ticket.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a READ takes nothing from the heap")]
pub enum Answer<'a> {
    /// The Reply.
    Now(Reply<'a>),
    /// [`Service::poll`] will return the Reply, under this ticket.
    Later(Ticket),
}

/// A Reply whose results are to be encoded.
#[derive(Debug)]
pub struct Reply<'a> {
    /// The results. Those of READ and READLINK end in the length of the data.
    pub results: Results<'a>,
    /// The data that follows the results, by direct data placement, or unreduced and padded.
    pub data: Pieces,
}

impl<B: Backend> Service<B> {
    /// Returns the source of the data of a READ.
    pub fn read_source(&self) -> ResultSource {
        self.backend.read_source()
    }

    /// Creates a service for `backend`, whose file handles `sealer` seals.
    pub fn new(backend: B, sealer: Sealer, config: Config) -> Self {
        let sealed = sealer.seal(backend.root());
        let room = config.limits.readdir_max as usize;
        let listings = [vec![0; room].into(), vec![0; room].into()];
        Self {
            backend,
            sealer,
            config,
            pending: BTreeMap::new(),
            parking: Parking::default(),
            held: BTreeMap::new(),
            network: 0,
            next_ticket: 0,
            arrivals: None,
            resumed: None,
            sealed,
            listings,
        }
    }

    /// Executes a Call.
    pub fn call(&mut self, around: Surroundings<'_>, call: Call<'_>) -> Answer<'_> {
        self.network = call.network;
        self.hear(around);
        let caller = self.config.policy.caller(&call.credential);
        let cx = &Context { pool: around.pool, now: around.now, caller: &caller };
        let Call { arguments, placed, room, .. } = call;
        if let Some((file, wait)) = self.hindrance(&arguments, room, None) {
            let procedure = arguments.procedure();
            // A Call whose data found no memory does not wait for its file.
            let parked = if reduced::lacks_data(&arguments, placed.as_ref()) {
                Err(self.backend.exhausted())
            } else {
                let begun = (wait != Wait::TooMany).then_some(placed);
                let parked = begun.and_then(|placed| {
                    self.park((file, wait), &caller, &arguments, (placed, room))
                });
                parked.ok_or(Status::Jukebox)
            };
            return match parked {
                Ok(ticket) => Answer::Later(ticket),
                Err(status) => Answer::Now(Results::refusal(procedure, status).into()),
            };
        }
        self.carry_out(cx, arguments, placed, room)
    }

    /// Executes a Call whose files are at hand. A list of names ends at `room` octets of results.
    fn execute(
        &mut self,
        cx: &Context<'_>,
        arguments: Arguments<'_>,
        placed: Option<Local>,
        room: usize,
    ) -> Answer<'_> {
        Answer::Now(match arguments {
            Arguments::Read(arguments) => return self.read(cx, &arguments),
            Arguments::Write(arguments) => return self.write(cx, &arguments, placed),
            Arguments::Commit(arguments) => return self.commit(cx, &arguments),
            Arguments::Create(arguments) => return self.create(cx, &arguments),
            Arguments::MkDir(arguments) => return self.mk_dir(cx, &arguments),
            Arguments::Symlink(arguments) => return self.symlink(cx, &arguments, placed),
            Arguments::MkNod(arguments) => return self.mk_nod(cx, &arguments),
            Arguments::SetAttr(arguments) => return self.set_attr(cx, &arguments),
            Arguments::Remove(at) => return self.remove(cx, &at),
            Arguments::RmDir(at) => return self.rm_dir(cx, &at),
            Arguments::Rename(arguments) => return self.rename(cx, &arguments),
            Arguments::Link(arguments) => return self.link(cx, &arguments),
            Arguments::ReadLink(link) => self.read_link(cx, link),
            Arguments::Null => Results::Null.into(),
            Arguments::GetAttr(file) => self.get_attr(cx, file).into(),
            Arguments::Lookup(at) => self.lookup(cx, &at).into(),
            Arguments::Access(arguments) => self.access(cx, &arguments).into(),
            Arguments::ReadDir(arguments) => self.read_dir(cx, &arguments, room).into(),
            Arguments::ReadDirPlus(arguments) => self.read_dir_plus(cx, &arguments, room).into(),
            Arguments::FsStat(file) => self.fs_stat(cx, file).into(),
            Arguments::FsInfo(file) => self.fs_info(cx, file).into(),
            Arguments::PathConf(file) => self.path_conf(cx, file).into(),
        })
    }

    /// Begins a turn of the core. Returns whether the backend has background work left.
    pub fn turn(&mut self) -> bool {
        self.parking.turn() | self.backend.turn()
    }

    /// Returns whether another turn is needed: Calls wait to be resumed, or searches to continue.
    pub fn has_work(&self) -> bool {
        self.parking.has_ready() || self.backend.has_work()
    }

    /// Returns the next Reply of a Call that was answered with [`Answer::Later`].
    pub fn poll(&mut self, around: Surroundings<'_>) -> Option<(Ticket, LateReply)> {
        self.hear(around);
        while let Some(finished) = self.backend.poll() {
            if let Some((ticket, reply)) = self.finish(around, finished) {
                return Some((ticket, reply));
            }
        }
        loop {
            let ended = self.resume(around)?;
            if ended.is_some() {
                return ended;
            }
        }
    }

    /// Returns the handle of the directory at the top.
    pub fn root(&self) -> SealedHandle {
        self.sealer.seal(self.backend.root())
    }

    /// Returns the backend.
    pub const fn backend_mut(&mut self) -> &mut B {
        &mut self.backend
    }

    /// Has attributes read anew for Calls that arrived since they were read.
    fn hear(&mut self, around: Surroundings<'_>) {
        if around.arrivals.is_none() || around.arrivals != self.arrivals {
            self.arrivals = around.arrivals;
            self.backend.forget_attributes();
        }
    }

    /// Returns the attributes of a file.
    fn look(&mut self, cx: &Context<'_>, file: FileId) -> Result<Attributes, Status> {
        let attributes = self.backend.attributes(cx, file)?;
        Ok(Attributes { fsid: self.sealer.fsid(), ..attributes })
    }

    /// Runs an operation that does not change a file. Success and failure both return the file's attributes.
    fn on_file<T>(
        &mut self,
        cx: &Context<'_>,
        file: FileHandle<'_>,
        act: impl FnOnce(&mut Self, FileId, &Attributes) -> Result<T, Status>,
    ) -> Outcome<(T, Option<Attributes>), Option<Attributes>> {
        let found = self.sealer.open(file).and_then(|file| Ok((file, self.look(cx, file)?)));
        let (file, before) = found.map_err(|status| Failure { status, rest: None })?;
        let done = act(self, file, &before);
        let after = self.look(cx, file).ok();
        done.map(|done| (done, after)).map_err(|status| Failure { status, rest: after })
    }

    /// Runs an operation that may change a file. Success and failure both return the attributes before and after; those
    /// before are left out if something else may have changed the file in between.
    #[expect(clippy::result_large_err, reason = "a failure tells as much as a success")]
    fn changing<T>(
        &mut self,
        cx: &Context<'_>,
        file: FileHandle<'_>,
        act: impl FnOnce(&mut Self, FileId, &Attributes) -> Result<T, Status>,
    ) -> Outcome<(T, Wcc), Wcc> {
        let found = self.sealer.open(file).and_then(|file| Ok((file, self.look(cx, file)?)));
        let nothing = |status| Failure { status, rest: Wcc::default() };
        let (file, before) = found.map_err(nothing)?;
        let may = allow(!self.is_read_only(file), Status::RoFs);
        // Without the attributes before, the caller does not take for its own what a WRITE under way changes (RFC 1813
        // section 2.6).
        let is_alone = !self.pending.values().any(|pending| pending.writes(file));
        // Nor does it take for its own what changes that are under way do meanwhile.
        let is_still = !self.backend.is_changing(file, None);
        let done = may.and_then(|()| act(self, file, &before));
        let after = self.look(cx, file).ok();
        let is_same = is_still || after.is_some_and(|after| after == before);
        let wcc = Wcc { before: (is_alone && is_same).then(|| before.wcc()), after };
        done.map(|done| (done, wcc)).map_err(|status| Failure { status, rest: wcc })
    }

    /// Checks that a file is a directory, and allows the caller what is `wanted`.
    fn check_in(
        &mut self,
        cx: &Context<'_>,
        dir: FileId,
        attributes: &Attributes,
        wanted: u32,
    ) -> Result<(), Status> {
        allow(attributes.kind == FileType::Directory, Status::NotDir)?;
        self.backend.check(cx, dir, attributes, wanted)
    }

    /// Checks that the caller may read a file's data. The owner always may, since a client keeps reading an open file after
    /// its bits changed. A caller who may execute the file may read it, too (RFC 1813 section 4.4).
    fn check_read(
        &mut self,
        cx: &Context<'_>,
        file: FileId,
        attributes: &Attributes,
    ) -> Result<(), Status> {
        if cx.caller.owns(attributes) {
            return Ok(());
        }
        match self.backend.check(cx, file, attributes, READ) {
            Err(Status::Acces) => self.backend.check(cx, file, attributes, EXECUTE),
            checked => checked,
        }
    }

    /// Checks that the caller may write a file's data. The owner may, whatever the file allows him, since a client keeps
    /// writing an open file after its bits changed.
    fn check_write(
        &mut self,
        cx: &Context<'_>,
        file: FileId,
        attributes: &Attributes,
    ) -> Result<(), Status> {
        match self.backend.check(cx, file, attributes, WRITE) {
            Err(Status::Acces) if cx.caller.owns(attributes) => Ok(()),
            checked => checked,
        }
    }

    /// Returns whether nobody may change a file.
    fn is_read_only(&self, file: FileId) -> bool {
        self.config.read_only || self.backend.is_read_only(file)
    }

    /// Checks that a name is valid: not empty, not too long, without slash or NUL.
    fn check_name(&self, name: Name<'_>) -> Result<(), Status> {
        let bytes = name.0;
        if bytes.len() > self.backend.capabilities().name_max as usize {
            return Err(Status::NameTooLong);
        }
        // A slash or a NUL in a name would make a path of it for a backend that takes paths. The status
        // is the one of RFC 1813 section 3.2.
        let bad = bytes.is_empty() || bytes.contains(&b'/') || bytes.contains(&0);
        if bad { Err(Status::Acces) } else { Ok(()) }
    }
}

impl<'a> From<Results<'a>> for Reply<'a> {
    fn from(results: Results<'a>) -> Self {
        Self { results, data: Pieces::default() }
    }
}

/// The Reply of a Call that ended in a later turn.
#[derive(Debug)]
pub struct LateReply {
    results: LateResults,
    /// The data that follows the results, by direct data placement, or unreduced and padded.
    pub data: Pieces,
}

/// The results of a Call that ended in a later turn.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a READ takes nothing from the heap")]
enum LateResults {
    /// Results that borrow nothing.
    Owned(Results<'static>),
    /// Results that are already encoded.
    Encoded(Box<[u8]>),
}

impl LateReply {
    pub(crate) const fn encoded(octets: Box<[u8]>, data: Pieces) -> Self {
        Self { results: LateResults::Encoded(octets), data }
    }

    /// Encodes results without data.
    fn of(procedure: Procedure, results: &Results<'_>) -> Self {
        let mut octets = vec![0; RESULTS_OWNED_MAX];
        let mut w = Writer::new(&mut octets);
        if results.encode(&mut w).is_err() {
            return Results::refusal(procedure, Status::ServerFault).into();
        }
        let length = w.position();
        octets.truncate(length);
        Self::encoded(octets.into(), Pieces::default())
    }

    /// Returns the status of the procedure.
    pub fn status(&self) -> Status {
        match &self.results {
            LateResults::Owned(results) => results.status(),
            LateResults::Encoded(octets) => {
                let number = octets.first_chunk().copied().map(u32::from_be_bytes);
                number.and_then(Status::from_number).unwrap_or(Status::ServerFault)
            }
        }
    }

    /// Returns a copy of a Reply, for a caller that repeated its Call. Returns `None` if the Reply has data, or its
    /// results are too long to be copied.
    pub fn copy(&self) -> Option<Self> {
        if !self.data.is_empty() {
            return None;
        }
        let mut octets = vec![0; self.length_max()];
        let mut w = Writer::new(&mut octets);
        self.encode(&mut w).ok()?;
        let length = w.position();
        octets.truncate(length);
        Some(Self::encoded(octets.into(), Pieces::default()))
    }

    /// Appends the results to `w`; the data follows them.
    pub fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        match &self.results {
            LateResults::Owned(results) => results.encode(w),
            LateResults::Encoded(octets) => w.put(octets),
        }
    }

    /// Appends all of the Reply to `w`, its data unreduced.
    pub fn encode_inline(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.encode(w)?;
        put_unreduced(&self.data, w)
    }

    /// Returns an upper bound on the length of the whole Reply, in octets.
    pub fn length_max(&self) -> usize {
        let results = match &self.results {
            LateResults::Owned(_) => RESULTS_OWNED_MAX,
            LateResults::Encoded(octets) => octets.len(),
        };
        results + self.data.len().next_multiple_of(4)
    }
}

impl From<Reply<'static>> for LateReply {
    fn from(Reply { results, data }: Reply<'static>) -> Self {
        Self { results: LateResults::Owned(results), data }
    }
}

impl From<Results<'static>> for LateReply {
    fn from(results: Results<'static>) -> Self {
        Reply::from(results).into()
    }
}

impl Reply<'_> {
    /// Appends all of the Reply to `w`, its data unreduced.
    pub fn encode_inline(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        self.results.encode(w)?;
        put_unreduced(&self.data, w)
    }
}

/// Appends data and its padding to `w`.
fn put_unreduced(data: &Pieces, w: &mut Writer<'_>) -> Result<(), Truncated> {
    for piece in data.iter() {
        w.put(piece.bytes())?;
    }
    w.pad(data.len())
}

/// Maximum length of results that borrow nothing, in octets: those of READ, WRITE and COMMIT, and of failures.
const RESULTS_OWNED_MAX: usize = 512;

/// Returns [`Pieces`] with one piece.
fn row(piece: Piece) -> Pieces {
    let mut row = Pieces::default();
    let fits = row.push(piece);
    debug_assert!(fits.is_ok(), "the row is empty");
    row
}

/// Returns `status` as the error unless `may` is true.
pub(crate) const fn allow(may: bool, status: Status) -> Result<(), Status> {
    if may { Ok(()) } else { Err(status) }
}

#[cfg(test)]
pub(crate) mod tests;
