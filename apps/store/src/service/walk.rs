//! The way along a path of MOUNT: one LOOKUP by the caller after the other, each of which may be answered later.

use std::ops::Range;

use haulage_proto::chunk::PayloadReader;
use haulage_proto::rpc::Credential;
use haulage_proto::xdr::Writer;

use super::parking::Wait;
use super::{Answer, LateReply, Service, Surroundings};
use crate::access::Caller;
use crate::backend::{Backend, Context, Ticket};
use crate::handle::SealedHandle;
use crate::mount3;
use crate::nfs3::{Arguments, DirName, FileHandle, FileType, Name, Procedure, Results, Status};

/// A path from the top, partly gone.
#[derive(Debug)]
pub struct Walk {
    caller: Caller,
    network: u64,
    /// The handle of the file that was reached.
    reached: [u8; SealedHandle::WIRE_LEN],
    is_directory: bool,
    path: Box<[u8]>,
    /// The octets of `path` that were gone.
    gone: usize,
}

/// The state of a walk.
#[derive(Debug)]
pub enum Walked {
    /// The walk has ended, at a directory or not.
    Ended(Result<SealedHandle, mount3::Status>),
    /// The walk goes on with the Reply that [`Service::poll`] returns under this ticket.
    Later(Ticket, Walk),
}

impl<B: Backend> Service<B> {
    /// Looks for a directory by its path from the top, for MOUNT. The empty path is the top, as in Linux. Symbolic links
    /// are not followed, and `..` of the top is the top, so that no path leads out. The walk ends with the status of MNT
    /// if the path leads to no directory, or the caller may not look up one of its names.
    pub fn directory(
        &mut self,
        around: Surroundings<'_>,
        (network, credential): (u64, &Credential<'_>),
        path: &[u8],
    ) -> Walked {
        let relative = match path {
            [] => path,
            [b'/', relative @ ..] => relative,
            _ => return Walked::Ended(Err(mount3::Status::Inval)),
        };
        let root = self.root();
        let Ok(reached) = root.as_file_handle().bytes().try_into() else {
            return Walked::Ended(Err(mount3::Status::ServerFault));
        };
        let walk = Walk {
            caller: self.config.policy.caller(credential),
            network,
            reached,
            is_directory: true,
            path: relative.into(),
            gone: 0,
        };
        self.walk(around, walk)
    }

    /// Goes on with a walk that waited for this Reply.
    pub fn walk_on(
        &mut self,
        around: Surroundings<'_>,
        mut walk: Walk,
        reply: &LateReply,
    ) -> Walked {
        let mut octets = vec![0; reply.length_max()];
        let mut w = Writer::new(&mut octets);
        let taken = match reply.encode(&mut w) {
            Ok(()) => {
                let mut r = PayloadReader::reply(w.written(), 0, None);
                let results = Results::decode(Procedure::Lookup, &mut r);
                results.map_or(Err(Status::ServerFault), |results| walk.take(&results))
            }
            Err(_) => Err(Status::ServerFault),
        };
        match taken {
            Ok(()) => self.walk(around, walk),
            Err(status) => Walked::Ended(Err(refusal(status))),
        }
    }

    fn walk(&mut self, around: Surroundings<'_>, mut walk: Walk) -> Walked {
        self.network = walk.network;
        self.hear(around);
        let caller = walk.caller;
        let cx = &Context { pool: around.pool, now: around.now, caller: &caller };
        while let Some(name) = walk.next() {
            let (dir, name) = (walk.reached, walk.path.get(name).unwrap_or_default());
            let Some(dir) = FileHandle::new(&dir) else {
                return Walked::Ended(Err(mount3::Status::ServerFault));
            };
            let arguments = Arguments::Lookup(DirName { dir, name: Name(name) });
            if let Some((file, wait)) = self.hindrance(&arguments, 0, None) {
                let begun = (wait != Wait::TooMany).then_some((file, wait));
                let parked = begun
                    .and_then(|for_it| self.park(for_it, &caller, &arguments, (None, usize::MAX)));
                return match parked {
                    Some(ticket) => Walked::Later(ticket, walk),
                    None => Walked::Ended(Err(refusal(Status::Jukebox))),
                };
            }
            let taken = match self.carry_out(cx, arguments, None, usize::MAX) {
                Answer::Now(reply) => walk.take(&reply.results),
                Answer::Later(ticket) => return Walked::Later(ticket, walk),
            };
            if let Err(status) = taken {
                return Walked::Ended(Err(refusal(status)));
            }
        }
        if !walk.is_directory {
            return Walked::Ended(Err(mount3::Status::NotDir));
        }
        let reached = FileHandle::new(&walk.reached).ok_or(Status::ServerFault);
        let reached = reached.and_then(|reached| self.sealer.open(reached));
        // The top may be gone: nobody looked at it if the path has no name.
        let there = reached.and_then(|file| self.look(cx, file).map(|_| file));
        Walked::Ended(there.map(|file| self.sealer.seal(file)).map_err(refusal))
    }
}

impl Walk {
    /// Returns the place of the next name in the path.
    fn next(&mut self) -> Option<Range<usize>> {
        let rest = self.path.get(self.gone..)?;
        let start = self.gone + rest.iter().position(|octet| *octet != b'/')?;
        let rest = self.path.get(start..)?;
        let length = rest.iter().position(|octet| *octet == b'/').unwrap_or(rest.len());
        self.gone = start + length;
        Some(start..self.gone)
    }

    /// Takes in the results of LOOKUP of a name.
    fn take(&mut self, results: &Results<'_>) -> Result<(), Status> {
        let Results::Lookup(Ok(found)) = results else { return Err(results.status()) };
        self.is_directory =
            found.attributes.ok_or(Status::ServerFault)?.kind == FileType::Directory;
        self.reached = found.file.bytes().try_into().map_err(|_| Status::ServerFault)?;
        Ok(())
    }
}

/// Converts the status of LOOKUP to that of MNT.
const fn refusal(status: Status) -> mount3::Status {
    match status {
        Status::NoEnt | Status::Stale => mount3::Status::NoEnt,
        Status::Acces => mount3::Status::Acces,
        Status::NotDir => mount3::Status::NotDir,
        Status::Inval => mount3::Status::Inval,
        Status::NameTooLong => mount3::Status::NameTooLong,
        _ => mount3::Status::ServerFault,
    }
}
