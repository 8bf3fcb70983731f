//! Arguments of NFS procedures, octet by octet, most of them valid and some of them spoiled.

use haulage_store::nfs3::Procedure;

use super::super::octets::{Octets, any_word, octet, short, some_octets, spoil, word};
use crate::world::choices::Choices;

/// One Call.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) procedure: u32,
    /// The arguments, without the reduced data.
    pub(super) octets: Vec<u8>,
    /// Position of the Read chunk in the unreduced stream.
    pub(super) position: u32,
    /// The contents of the Read chunk.
    pub(super) placed: Option<Vec<u8>>,
    pub(super) is_anonymous: bool,
    /// The user and the group of the caller.
    pub(super) caller: (u32, u32),
}

impl Asked {
    /// A Call of the superuser without arguments.
    pub(super) fn new(procedure: u32) -> Self {
        let (octets, placed) = (Vec::new(), None);
        Self { procedure, octets, position: 0, placed, is_anonymous: false, caller: (0, 0) }
    }
}

/// Draws a Call about files with known handles.
pub(super) fn draw(choices: &mut Choices, known: &[Vec<u8>]) -> Asked {
    let number = short(choices.below(24));
    let users = [0, 7, 8];
    let mut asked = Asked {
        is_anonymous: choices.one_in(8),
        caller: (choices.pick(&users), choices.pick(&users)),
        ..Asked::new(number)
    };
    let Some(procedure) = Procedure::from_number(number).filter(|_| !choices.one_in(16)) else {
        asked.octets = some_octets(choices, 96);
        return asked;
    };
    let mut files = Files { choices, known };
    let mut stream = files.arguments(procedure);
    if matches!(procedure, Procedure::Write | Procedure::Symlink) {
        stream = item(choices, stream, &mut asked);
    }
    asked.octets = stream.0;
    if choices.one_in(8) {
        spoil(choices, &mut asked.octets);
    }
    asked
}

/// Appends the DDP-eligible argument, inline or reduced.
fn item(choices: &mut Choices, stream: Octets, asked: &mut Asked) -> Octets {
    let length = choices.pick(&[0, 1, 4, 100, 5000]);
    let data = vec![octet(choices); length];
    let stream = match asked.procedure == Procedure::Write.number() {
        // The two words of a WRITE are the count and the stability.
        true => stream.words(&[short(length), short(choices.below(3))]),
        false => stream,
    };
    if choices.one_in(2) {
        return stream.opaque(&data);
    }
    let stream = stream.words(&[short(length)]);
    asked.position = short(stream.0.len());
    asked.placed = Some(data);
    if choices.one_in(8) {
        asked.position = 4 * short(choices.below(64));
        asked.placed = Some(some_octets(choices, 64));
    }
    stream
}

/// The file handles and the choices to draw arguments from.
struct Files<'a> {
    choices: &'a mut Choices,
    known: &'a [Vec<u8>],
}

impl Files<'_> {
    /// Draws the arguments of a procedure, without its DDP-eligible argument and the words that
    /// count it.
    fn arguments(&mut self, procedure: Procedure) -> Octets {
        let none = Octets::default();
        match procedure {
            Procedure::Null => none,
            Procedure::GetAttr
            | Procedure::ReadLink
            | Procedure::FsStat
            | Procedure::FsInfo
            | Procedure::PathConf => self.file(none),
            Procedure::Lookup | Procedure::Remove | Procedure::RmDir => self.place(none),
            Procedure::SetAttr => {
                let stream = self.file(none);
                let stream = self.attributes(stream);
                match self.choices.one_in(4) {
                    true => stream.words(&[1, short(self.choices.below(4)), 0]),
                    false => stream.words(&[0]),
                }
            }
            Procedure::Access => self.file(none).words(&[any_word(self.choices)]),
            Procedure::Read | Procedure::Commit => self.range(none).words(&[word(self.choices)]),
            Procedure::Write => self.range(none),
            Procedure::Create => {
                let stream = self.place(none);
                match self.choices.below(3) {
                    2 => stream.words(&[2, 0, short(self.choices.below(2))]),
                    how => self.attributes(stream.words(&[short(how)])),
                }
            }
            Procedure::MkDir | Procedure::Symlink => {
                let stream = self.place(none);
                self.attributes(stream)
            }
            Procedure::MkNod => {
                let kind = short(self.choices.of(1..=7));
                let stream = self.place(none).words(&[kind]);
                match kind {
                    3 | 4 => self.attributes(stream).words(&[1, 2]),
                    6 | 7 => self.attributes(stream),
                    _ => stream,
                }
            }
            Procedure::Rename => {
                let stream = self.place(none);
                self.place(stream)
            }
            Procedure::Link => {
                let stream = self.file(none);
                self.place(stream)
            }
            Procedure::ReadDir => self.listing(none).words(&[self.room()]),
            Procedure::ReadDirPlus => self.listing(none).words(&[self.room(), self.room()]),
        }
    }

    fn file(&mut self, stream: Octets) -> Octets {
        if self.choices.one_in(32) {
            return stream.opaque(&some_octets(self.choices, 80));
        }
        let chosen = self.choices.below(self.known.len());
        stream.opaque(&self.known[chosen])
    }

    /// Appends a directory and a name in it.
    fn place(&mut self, stream: Octets) -> Octets {
        let stream = self.file(stream);
        let names: [&[u8]; 9] = [b"a", b"b", b"c", b"d", b".", b"..", b"", b"a/b", &[b'n'; 256]];
        match self.choices.below(12) {
            chosen @ 4..=11 if chosen < names.len() => stream.opaque(names[chosen]),
            chosen => stream.opaque(names[chosen % 4]),
        }
    }

    fn attributes(&mut self, stream: Octets) -> Octets {
        let choices = &mut *self.choices;
        let mut stream = stream;
        for values in [[0o777, 0o4700, 0o70, u32::MAX], [0, 7, 8, u32::MAX], [0, 7, 8, u32::MAX]] {
            stream = match choices.one_in(2) {
                true => stream.words(&[1, choices.pick(&values)]),
                false => stream.words(&[0]),
            };
        }
        stream = match choices.one_in(3) {
            true => stream.words(&[1]).put(&offset(choices).to_be_bytes()),
            false => stream.words(&[0]),
        };
        for _ in 0..2 {
            stream = match choices.below(4) {
                2 => stream.words(&[2, word(choices), short(choices.below(2))]),
                how => stream.words(&[short(how % 2)]),
            };
        }
        stream
    }

    /// Appends a file and an offset in it.
    fn range(&mut self, stream: Octets) -> Octets {
        self.file(stream).put(&offset(self.choices).to_be_bytes())
    }

    /// Appends a directory, a cookie and its verifier.
    fn listing(&mut self, stream: Octets) -> Octets {
        let stream = self.file(stream);
        let cookie = match self.choices.one_in(8) {
            true => self.choices.number(),
            false => self.choices.below(6) as u64,
        };
        stream.put(&cookie.to_be_bytes()).words(&[0, 0])
    }

    fn room(&mut self) -> u32 {
        match self.choices.one_in(4) {
            true => word(self.choices),
            false => short(self.choices.of(64..=4096)),
        }
    }
}

/// Draws an offset, most of them small.
fn offset(choices: &mut Choices) -> u64 {
    match choices.below(8) {
        0 => choices.number(),
        1 => i64::MAX as u64 - choices.below(3) as u64,
        2 => 1 << choices.below(64),
        _ => choices.below(9000) as u64,
    }
}
