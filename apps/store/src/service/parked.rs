//! Calls that wait until one of their files is found, or until a change of it has ended.
//!
//! # Normal operation
//! A Call whose file the backend has to search for is not executed yet: its arguments are kept, with the lease of a
//! reduced one. When the search has ended, the Call is executed as if it had just been received, and answered under its
//! ticket. A Call that changes a file waits in the same way for a change of it that is under way; such Calls go on one by
//! one, in the order in which they came. Those that make or remove other names of one directory need not wait for each other.
//! Behind one that waits for them, the next ones wait, too.
//!
//! # Limits
//! The waiting Calls and their octets are bounded, and shared by network; a Call beyond the bounds, or one that has waited for several
//! searches, is answered with JUKEBOX. A turn resumes a bounded number of Calls.

use haulage_mr_pool::Local;
use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::xdr::Writer;

use super::parking::{Parked, Wait, is_costly};
use super::reduced::data;
use super::{Answer, LateReply, Service, Surroundings};
use crate::access::Caller;
use crate::backend::{Backend, Context, Located, Names, Ticket};
use crate::handle::FileId;
use crate::nfs3::{Arguments, Name, Procedure, Results, Status};

impl<B: Backend> Service<B> {
    /// Returns the first file of a Call that the Call has to wait for, and why. `room` is the octets of results that its
    /// Reply has room for. A Call that has waited has a ticket.
    pub(super) fn hindrance(
        &mut self,
        arguments: &Arguments<'_>,
        room: usize,
        ticket: Option<Ticket>,
    ) -> Option<(FileId, Wait)> {
        for handle in arguments.files().into_iter().flatten() {
            // A forged handle is refused when the Call is executed.
            let Some(claimed) = self.sealer.peek(handle) else { continue };
            let is_changing = changes(arguments.procedure())
                && (self.backend.is_changing(claimed, only_name(arguments))
                    || ticket.is_none() && self.is_queued_for(claimed));
            if !is_changing && self.backend.is_at_hand(claimed) {
                continue;
            }
            let Ok(file) = self.sealer.open(handle) else { continue };
            match self.backend.locate(file) {
                Located::Now if is_changing => {
                    self.expect_names(arguments);
                    return Some((file, Wait::Change));
                }
                Located::Now => {}
                Located::Later => return Some((file, Wait::Search)),
                Located::Busy => return Some((file, Wait::TooMany)),
            }
        }
        if is_costly(arguments.procedure()) {
            let listing = self.listing(arguments, room)?;
            let ticket = ticket.unwrap_or_else(|| self.ticket());
            return match self.backend.look_into(ticket, &listing) {
                Names::Known => None,
                Names::Begun => Some((listing.dir, Wait::Name(ticket))),
                Names::Behind(dir) => Some((dir, Wait::List)),
                Names::Full => Some((listing.dir, Wait::TooMany)),
            };
        }
        let names = arguments.names();
        let dir = names.first().copied().flatten()?.dir;
        let dir = self.sealer.open(dir).ok()?;
        let ticket = ticket.unwrap_or_else(|| self.ticket());
        // A name that is refused when the Call is executed is not looked up.
        let names = names.map(|at| {
            let at = at.filter(|at| self.check_name(at.name).is_ok())?;
            Some((self.sealer.open(at.dir).ok()?, at.name))
        });
        match self.backend.look_up(ticket, names) {
            Names::Known if !changes(arguments.procedure()) => None,
            Names::Known => self.backend.named_changing().map(|file| (file, Wait::Change)),
            Names::Begun => Some((dir, Wait::Name(ticket))),
            Names::Behind(dir) => {
                self.expect_names(arguments);
                Some((dir, Wait::Change))
            }
            Names::Full => Some((dir, Wait::TooMany)),
        }
    }

    /// Returns whether a Call that changes a file has to wait behind others.
    fn is_queued_for(&self, file: FileId) -> bool {
        self.parking.is_awaited(file) && self.backend.is_changing(file, None)
    }

    /// Tells the backend which names a Call takes that waits.
    fn expect_names(&mut self, arguments: &Arguments<'_>) {
        if !takes_new_name(arguments.procedure()) {
            return;
        }
        for at in arguments.names().into_iter().flatten() {
            if self.check_name(at.name).is_ok()
                && let Ok(dir) = self.sealer.open(at.dir)
            {
                self.backend.expect(dir, at.name);
            }
        }
    }

    /// Keeps a Call until `file` is found, or is not changed any more, with its reduced argument and the room for its
    /// results. Returns `None` if too much waits already.
    pub(super) fn park(
        &mut self,
        (file, wait): (FileId, Wait),
        caller: &Caller,
        arguments: &Arguments<'_>,
        (placed, room): (Option<Local>, usize),
    ) -> Option<Ticket> {
        let procedure = arguments.procedure();
        let length = arguments_max(arguments);
        if wait == Wait::List && self.parking.listers(file) >= LISTERS_MAX {
            return None;
        }
        let ticket = if let Wait::Name(ticket) = wait { ticket } else { self.ticket() };
        let all = length + placed.as_ref().map_or(0, Local::len);
        if !self.parking.has_room(ticket.network, all) {
            return None;
        }
        let mut octets = vec![0; length];
        let mut w = Writer::new(&mut octets);
        arguments.encode(&mut w).ok()?;
        let length = w.position();
        octets.truncate(length);
        let arguments = octets.into();
        let caller = *caller;
        let parked = Parked { ticket, file, procedure, arguments, placed, room, caller, waits: 1 };
        self.parking.add(wait, parked);
        Some(ticket)
    }

    /// Resumes the next ready Call. Returns whether there was one, and its Reply if it has ended.
    pub(super) fn resume(
        &mut self,
        around: Surroundings<'_>,
    ) -> Option<Option<(Ticket, LateReply)>> {
        let parked = self.parking.next()?;
        let (file, ticket, procedure) = (parked.file, parked.ticket, parked.procedure);
        let resumed = self.carry_on(around, parked);
        // The next Call goes on at once, unless this one is changing the file.
        if is_costly(procedure) {
            // The directory can now be read for another Call.
            if !self.parking.is_to_list(file, ticket) {
                self.parking.wake_lister(file);
            }
        } else if !self.backend.is_changing(file, Some(Name(b"")))
            && !self.parking.holds(file, ticket)
        {
            self.parking.wake_first(file);
        }
        Some(resumed)
    }

    /// Executes a Call that has waited. Returns its Reply if it has ended.
    fn carry_on(
        &mut self,
        around: Surroundings<'_>,
        mut parked: Parked,
    ) -> Option<(Ticket, LateReply)> {
        let Parked { ticket, procedure, caller, .. } = parked;
        let encoded = std::mem::take(&mut parked.arguments);
        let reduced = parked.placed.as_ref().and_then(|_| reduced(&encoded));
        let mut reader = PayloadReader::call(&encoded, 0, reduced);
        let refusal = |status| LateReply::from(Results::refusal(procedure, status));
        let Ok(arguments) = Arguments::decode(procedure, &mut reader) else {
            return Some((ticket, refusal(Status::ServerFault)));
        };
        match self.hindrance(&arguments, parked.room, Some(ticket)) {
            Some((file, wait))
                if wait.is_bounded() || parked.may_search() && wait == Wait::Search =>
            {
                parked.arguments = encoded;
                parked.waits += usize::from(wait == Wait::Search);
                let before = std::mem::replace(&mut parked.file, file);
                self.parking.add_again(wait, parked, before);
                return None;
            }
            Some(_) => return Some((ticket, refusal(Status::Jukebox))),
            None => {}
        }
        let cx = &Context { pool: around.pool, now: around.now, caller: &caller };
        self.resumed = Some(ticket);
        let mut octets = vec![0; self.results_max(procedure)];
        let answer = match self.carry_out(cx, arguments, parked.placed, parked.room) {
            // The Call keeps its ticket.
            Answer::Later(_) => None,
            Answer::Now(reply) => {
                let mut w = Writer::new(&mut octets);
                let written = reply.results.encode(&mut w).map(|()| w.position());
                Some((written, reply.data))
            }
        };
        self.resumed = None;
        answer.map(|(written, data)| match written {
            Ok(length) => {
                octets.truncate(length);
                (ticket, LateReply::encoded(octets.into(), data))
            }
            Err(_) => (ticket, refusal(Status::ServerFault)),
        })
    }

    /// Returns an upper bound on the length of a procedure's results, in octets.
    const fn results_max(&self, procedure: Procedure) -> usize {
        match procedure {
            Procedure::ReadDir | Procedure::ReadDirPlus => {
                self.config.limits.readdir_max as usize + RESULTS_MAX
            }
            _ => RESULTS_MAX,
        }
    }
}

/// Returns whether a procedure changes the files that its arguments name, or names in them.
pub(super) const fn changes(procedure: Procedure) -> bool {
    match procedure {
        Procedure::SetAttr
        | Procedure::Write
        | Procedure::Create
        | Procedure::MkDir
        | Procedure::Symlink
        | Procedure::MkNod
        | Procedure::Remove
        | Procedure::RmDir
        | Procedure::Rename
        | Procedure::Link => true,
        Procedure::Null
        | Procedure::GetAttr
        | Procedure::Lookup
        | Procedure::Access
        | Procedure::ReadLink
        | Procedure::Read
        | Procedure::ReadDir
        | Procedure::ReadDirPlus
        | Procedure::FsStat
        | Procedure::FsInfo
        | Procedure::PathConf
        | Procedure::Commit => false,
    }
}

/// Returns the name that a Call makes or removes, if it changes nothing else.
const fn only_name<'a>(arguments: &Arguments<'a>) -> Option<Name<'a>> {
    match arguments {
        Arguments::Create(_)
        | Arguments::MkDir(_)
        | Arguments::Symlink(_)
        | Arguments::MkNod(_)
        | Arguments::Remove(_) => match arguments.names() {
            [Some(at), _] => Some(at.name),
            [None, _] => None,
        },
        _ => None,
    }
}

/// Returns whether a procedure mostly names a file that does not exist yet.
const fn takes_new_name(procedure: Procedure) -> bool {
    matches!(
        procedure,
        Procedure::Create
            | Procedure::MkDir
            | Procedure::Symlink
            | Procedure::MkNod
            | Procedure::Link
            | Procedure::Rename
    )
}

/// Returns the position and the length of the reduced data of a Call, from its arguments, which end in that length.
fn reduced(arguments: &[u8]) -> Option<(u32, u64)> {
    let length = u32::from_be_bytes(*arguments.last_chunk()?);
    Some((u32::try_from(arguments.len()).ok()?, u64::from(length)))
}

/// Returns an upper bound on the length of arguments, in octets.
fn arguments_max(arguments: &Arguments<'_>) -> usize {
    match data(arguments) {
        Some(Item::Unreduced(bytes)) => ARGUMENTS_MAX + bytes.len(),
        Some(Item::Reduced { .. }) | None => ARGUMENTS_MAX,
    }
}

/// Maximum number of Calls that wait to list one directory.
const LISTERS_MAX: usize = 256;
/// Maximum length of arguments without data, in octets: two handles, and two names of 255 octets.
const ARGUMENTS_MAX: usize = 2 * (4 + 64 + 4 + 256) + 128;
/// Maximum length of results without data or names, in octets.
const RESULTS_MAX: usize = 512;
