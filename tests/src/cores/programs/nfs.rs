//! Clients of the file service, checked against the contents of their files.

use std::collections::BTreeMap;

use haulage::pool::Pool;
use haulage::service::{CallError, Finished, Request};
use haulage_proto::chunk::Item;
use haulage_proto::xdr::Writer;
use haulage_store::client::{Answer, File, Items};
use haulage_store::nfs3::arguments::{Create, How, Read, Stable, Write};
use haulage_store::nfs3::binding::Limits;
use haulage_store::nfs3::{
    Arguments, Data, DirName, Name, Procedure, Results, SetAttributes, Status,
};

use super::{Drawn, Program, holding, length};
use crate::cores::mix::{Event, Mix};
use crate::pattern;
use crate::world::choices::Choices;

/// The files of one client, in the root directory. Their names share a prefix that no other client uses.
#[derive(Debug)]
pub struct Files {
    root: File,
    prefix: String,
    /// Files without a Call under way.
    known: Vec<Known>,
    /// A file that was removed.
    gone: Option<File>,
    asked: BTreeMap<u64, (u32, Asked)>,
    made: usize,
    /// Number of times the server was built again.
    epoch: u32,
}

#[derive(Debug)]
struct Known {
    name: Vec<u8>,
    file: File,
    octets: Vec<u8>,
}

#[derive(Debug)]
enum Asked {
    Create(Vec<u8>),
    Lookup(Known),
    GetAttr(Known),
    Read {
        known: Known,
        offset: usize,
        count: usize,
    },
    Write {
        known: Known,
        offset: usize,
        octets: Vec<u8>,
    },
    Remove(Known),
    /// Asks about a file that was removed.
    Stale(File),
}

impl Asked {
    const fn procedure(&self) -> Procedure {
        match self {
            Self::Create(_) => Procedure::Create,
            Self::Lookup(_) => Procedure::Lookup,
            Self::GetAttr(_) | Self::Stale(_) => Procedure::GetAttr,
            Self::Read { .. } => Procedure::Read,
            Self::Write { .. } => Procedure::Write,
            Self::Remove(_) => Procedure::Remove,
        }
    }

    /// Returns the file of the Call, as it was before.
    fn known(self) -> Option<Known> {
        match self {
            Self::Create(_) | Self::Stale(_) => None,
            Self::Lookup(known)
            | Self::GetAttr(known)
            | Self::Read { known, .. }
            | Self::Write { known, .. }
            | Self::Remove(known) => Some(known),
        }
    }
}

impl Files {
    /// Makes a program with files in `root` whose names begin with `prefix`.
    pub const fn new(root: File, prefix: String) -> Self {
        Self {
            root,
            prefix,
            known: Vec::new(),
            gone: None,
            asked: BTreeMap::new(),
            made: 0,
            epoch: 0,
        }
    }

    fn ask(&mut self, choices: &mut Choices) -> Asked {
        if self.known.is_empty()
            || (self.known.len() + self.asked.len() < FILES_MAX && choices.one_in(4))
        {
            self.made += 1;
            return Asked::Create(format!("{}{}", self.prefix, self.made).into_bytes());
        }
        if let Some(file) = self.gone.filter(|_| choices.one_in(10)) {
            return Asked::Stale(file);
        }
        let known = self.known.swap_remove(choices.below(self.known.len()));
        match choices.below(20) {
            0 => Asked::Lookup(known),
            1 | 2 => Asked::GetAttr(known),
            3 => Asked::Remove(known),
            4..=11 => {
                let offset = choices.below(known.octets.len() + 1);
                let count = length(choices, READ_MAX).max(1);
                Asked::Read { known, offset, count }
            }
            _ => {
                let offset = choices.below(known.octets.len() + 1);
                let length = length(choices, WRITE_MAX).max(1);
                let octets = pattern::of(length, choices.number());
                Asked::Write { known, offset, octets }
            }
        }
    }

    /// Checks results. Returns the file of the Call, as it is now.
    fn check(asked: Asked, answer: &Answer, mix: &mut Mix) -> Option<Known> {
        mix.note(Event::Well);
        let results = answer.results(asked.procedure()).expect("results");
        match (asked, results) {
            (Asked::Create(name), Results::Create(Ok(made))) => {
                let file = File::from(made.file.expect("a handle of what was made"));
                Some(Known { name, file, octets: Vec::new() })
            }
            (Asked::Lookup(known), Results::Lookup(Ok(found))) => {
                assert!(File::from(found.file) == known.file, "another file has the name");
                Some(known)
            }
            (Asked::GetAttr(known), Results::GetAttr(Ok(attributes))) => {
                assert_eq!(attributes.size, known.octets.len() as u64, "the file's size");
                Some(known)
            }
            (Asked::Read { known, offset, count }, Results::Read(Ok(contents))) => {
                mix.note(Event::NfsRead);
                let rest = &known.octets[offset..];
                let expected = &rest[..count.min(rest.len())];
                let octets = match contents.data.0 {
                    Item::Unreduced(octets) => octets,
                    Item::Reduced { .. } => {
                        let lease = answer.items.result.as_ref();
                        lease.expect("data that was placed has a lease").bytes()
                    }
                };
                assert_eq!(contents.count as usize, expected.len(), "octets that were read");
                assert!(octets == expected, "other octets were read");
                assert_eq!(contents.eof, expected.len() == rest.len(), "the end of the file");
                Some(known)
            }
            (Asked::Write { mut known, offset, octets }, Results::Write(Ok(written))) => {
                mix.note(Event::NfsWritten);
                assert_eq!(written.count as usize, octets.len(), "octets that were written");
                let end = offset + octets.len();
                known.octets.resize(known.octets.len().max(end), 0);
                known.octets[offset..end].copy_from_slice(&octets);
                Some(known)
            }
            (Asked::Remove(_), Results::Remove(Ok(_))) => {
                mix.note(Event::NfsRemoved);
                None
            }
            (Asked::Stale(_), Results::GetAttr(Err(failure))) => {
                assert_eq!(failure.status, Status::Stale, "a file that was removed");
                None
            }
            // The pool has no memory, now or for as long as the Call waited for it.
            (asked, results) if matches!(results.status(), Status::NoSpc | Status::Jukebox) => {
                mix.note(Event::StarvedServer);
                asked.known()
            }
            (asked, results) => panic!("{:?} to {:?}", results.status(), asked.procedure()),
        }
    }
}

impl Program for Files {
    fn draw(&mut self, choices: &mut Choices, pool: &Pool, token: u64) -> Option<Drawn> {
        let asked = self.ask(choices);
        let procedure = asked.procedure().number();
        let (mut argument, mut result) = (None, None);
        let mut has_memory = true;
        let root = self.root;
        let arguments = match &asked {
            Asked::Create(name) => {
                let at = DirName { dir: root.handle(), name: Name(name) };
                let attributes = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
                Arguments::Create(Create { at, how: How::Unchecked(attributes) })
            }
            Asked::Lookup(known) => {
                Arguments::Lookup(DirName { dir: root.handle(), name: Name(&known.name) })
            }
            Asked::Remove(known) => {
                Arguments::Remove(DirName { dir: root.handle(), name: Name(&known.name) })
            }
            Asked::GetAttr(known) => Arguments::GetAttr(known.file.handle()),
            Asked::Stale(file) => Arguments::GetAttr(file.handle()),
            Asked::Read { known, offset, count } => {
                result = pool.lease(*count);
                has_memory = result.is_some();
                let count = u32::try_from(*count).expect("few octets");
                Arguments::Read(Read { file: known.file.handle(), offset: *offset as u64, count })
            }
            Asked::Write { known, offset, octets } => {
                let inline = octets.len() < 500 && choices.one_in(2);
                if !inline {
                    argument = holding(pool, octets);
                    has_memory = argument.is_some();
                }
                let data = match inline {
                    true => Item::Unreduced(octets),
                    false => Item::Reduced { length: octets.len() as u64 },
                };
                Arguments::Write(Write {
                    file: known.file.handle(),
                    offset: *offset as u64,
                    count: u32::try_from(octets.len()).expect("few octets"),
                    stable: choices.pick(&[Stable::Unstable, Stable::FileSync]),
                    data: Data(data),
                })
            }
        };
        let mut octets = vec![0; 1024];
        let mut w = Writer::new(&mut octets);
        arguments.encode(&mut w).expect("room for arguments");
        // The runtime writes the length of an argument that has a lease.
        let length = w.position() - if argument.is_some() { 4 } else { 0 };
        octets.truncate(length);
        if !has_memory {
            self.known.extend(asked.known());
            return None;
        }
        self.asked.insert(token, (self.epoch, asked));
        let request = Request::new(procedure).argument(argument).room(result);
        Some(Drawn { request, arguments: octets })
    }

    fn withdraw(&mut self, token: u64) {
        let (epoch, asked) = self.asked.remove(&token).expect("a Call that was drawn");
        self.known.extend(asked.known().filter(|_| epoch == self.epoch));
    }

    fn ended(&mut self, token: u64, finished: &mut Finished<'_>, mix: &mut Mix) -> Option<String> {
        let (epoch, asked) = self.asked.remove(&token).expect("a Call that was made ends once");
        if matches!(finished.results, Err(CallError::NoMemory)) {
            mix.note(Event::Starved);
            self.known.extend(asked.known().filter(|_| epoch == self.epoch));
            return None;
        }
        // A failed Call may have been carried out: its file is not used again.
        let Ok(results) = &finished.results else {
            return Some(format!("{:?}", asked.procedure()));
        };
        let items = Items {
            argument: finished.arguments.take().into_first(),
            result: finished.rooms.take().into_first(),
        };
        let answer = Answer::new(results, items);
        let removed = match &asked {
            Asked::Remove(known) => Some(known.file),
            _ => None,
        };
        // A Call made before the server was built again may have reached the new server, and found no such file.
        if epoch == self.epoch {
            self.gone = removed.or(self.gone);
            self.known.extend(Self::check(asked, &answer, mix));
        }
        None
    }

    fn restarted(&mut self, root: Option<File>) {
        self.root = root.expect("a server of files has a directory at its top");
        self.known.clear();
        self.gone = None;
        self.epoch += 1;
    }
}

/// The server's limits.
pub const LIMITS: Limits =
    Limits { read_max: READ_MAX_WIRE, write_max: READ_MAX_WIRE, readdir_max: 8 << 10 };

const READ_MAX_WIRE: u32 = 64 << 10;
const READ_MAX: usize = READ_MAX_WIRE as usize;
const WRITE_MAX: usize = READ_MAX;
const FILES_MAX: usize = 6;
