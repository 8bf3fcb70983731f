//! The MOUNT service for one export.
//!
//! The list of mounts only informs operators: clients that crash stay in it, and nothing depends on it.
//!
//! # Limits
//! The list keeps a bounded number of the latest mounts. Encoded lists are truncated to the memory for them.

use std::collections::VecDeque;

use haulage_proto::rpc::Credential;

use crate::backend::{Backend, Ticket};
use crate::codec::{List, ListWriter};
use crate::handle::SealedHandle;
use crate::mount3::{
    Arguments, Export, Flavors, Host, Mount, Mounted, NAME_MAX, PATH_MAX, Path, Results, Status,
};
use crate::service::{LateReply, Service, Surroundings, Walk, Walked};

/// The mounts of one export, whose path is `/`.
#[derive(Debug)]
pub struct Mounts {
    /// The hosts that may mount, as text; empty if all may.
    hosts: Vec<Box<[u8]>>,
    known: VecDeque<Known>,
    mounts_max: usize,
    /// The directory in the Reply being made.
    mounted: Option<SealedHandle>,
    /// Memory for encoded lists.
    memory: [Box<[u8]>; 2],
}

/// An entry of the list of mounts.
#[derive(Debug, PartialEq, Eq)]
struct Known {
    host: Box<[u8]>,
    path: Box<[u8]>,
}

/// The answer to a Call: its results, or the ticket of a Reply with which it goes on.
#[derive(Debug)]
pub enum Answer<'a> {
    /// The results.
    Now(Results<'a>),
    /// [`Service::poll`] will return a Reply under this ticket, with which [`Mounts::go_on`] goes on.
    Later(Ticket, Mounting),
}

/// A Call of MNT that waits for a name of its path.
#[derive(Debug)]
pub struct Mounting {
    walk: Walk,
    known: Known,
}

/// The caller of a MOUNT procedure.
#[derive(Clone, Copy, Debug)]
pub struct Visitor<'a> {
    /// The host, as text.
    pub host: Host<'a>,
    /// The credential of the Call.
    pub credential: Credential<'a>,
    /// Whether the host may mount.
    pub is_allowed: bool,
    /// The network of the host, by which what is bounded is shared.
    pub network: u64,
}

impl Mounts {
    /// Creates a service that remembers at most `mounts_max` mounts. `hosts` are listed with the export.
    pub fn new(hosts: Vec<Box<[u8]>>, mounts_max: usize) -> Self {
        let memory = [vec![0; LIST_MAX].into(), vec![0; LIST_MAX].into()];
        Self { hosts, known: VecDeque::new(), mounts_max, mounted: None, memory }
    }

    /// Carries out a Call, or begins to.
    pub fn call<B: Backend>(
        &mut self,
        service: &mut Service<B>,
        around: Surroundings<'_>,
        visitor: &Visitor<'_>,
        arguments: &Arguments<'_>,
    ) -> Answer<'_> {
        Answer::Now(match arguments {
            Arguments::Null => Results::Nothing,
            Arguments::Mnt(_) if !visitor.is_allowed => Results::Mnt(Err(Status::Acces)),
            Arguments::Mnt(path) => {
                let host = visitor.host.0.get(..NAME_MAX).unwrap_or(visitor.host.0);
                let known = Known { host: host.into(), path: path.0.into() };
                let walked =
                    service.directory(around, (visitor.network, &visitor.credential), path.0);
                return self.mount(walked, known);
            }
            Arguments::Dump => Results::Dump(self.dump()),
            Arguments::Umnt(path) => {
                self.known.retain(|k| *k.host != *visitor.host.0 || *k.path != *path.0);
                Results::Nothing
            }
            Arguments::UmntAll => {
                self.known.retain(|known| *known.host != *visitor.host.0);
                Results::Nothing
            }
            Arguments::Export => Results::Export(self.export()),
        })
    }

    /// Goes on with a Call that waited for this Reply.
    pub fn go_on<B: Backend>(
        &mut self,
        service: &mut Service<B>,
        around: Surroundings<'_>,
        Mounting { walk, known }: Mounting,
        reply: &LateReply,
    ) -> Answer<'_> {
        let walked = service.walk_on(around, walk, reply);
        self.mount(walked, known)
    }

    fn mount(&mut self, walked: Walked, known: Known) -> Answer<'_> {
        let root = match walked {
            Walked::Later(ticket, walk) => return Answer::Later(ticket, Mounting { walk, known }),
            Walked::Ended(Err(status)) => return Answer::Now(Results::Mnt(Err(status))),
            Walked::Ended(Ok(root)) => root,
        };
        if !self.known.contains(&known) && self.mounts_max > 0 {
            if self.known.len() == self.mounts_max {
                self.known.pop_front();
            }
            self.known.push_back(known);
        }
        let root = self.mounted.insert(root).as_file_handle();
        Answer::Now(Results::Mnt(Ok(Mounted { root, flavors: Flavors::SYS })))
    }

    fn dump(&mut self) -> List<'_, Mount<'_>> {
        let mut list = ListWriter::new(&mut self.memory[0]);
        for Known { host, path } in &self.known {
            if !list.push(&Mount { host: Host(host), path: Path(path) }) {
                break;
            }
        }
        list.finish()
    }

    fn export(&mut self) -> List<'_, Export<'_>> {
        let [hosts, exports] = &mut self.memory;
        // An export's list of hosts is one of its fields, so it gets less room.
        let mut list = ListWriter::new(&mut hosts[..LIST_MAX / 2]);
        for host in &self.hosts {
            if !list.push(&Host(host)) {
                break;
            }
        }
        let export = Export { path: Path(b"/"), hosts: list.finish() };
        let mut list = ListWriter::new(exports);
        let fits = list.push(&export);
        debug_assert!(fits, "half of the memory is left for its path");
        list.finish()
    }
}

/// Maximum length of an encoded list, in octets.
const LIST_MAX: usize = 32 << 10;

const _: () = assert!(LIST_MAX > 2 * (PATH_MAX + NAME_MAX));

#[cfg(test)]
mod tests;
