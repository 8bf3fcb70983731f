//! The procedures that list names: READDIR and READDIRPLUS.
//!
//! A list has as many names as the caller wants, up to a number that takes not long, and no more than its Reply has room
//! for. TOOSMALL tells a caller that
//! wants less than one name takes. Where the Reply has less room than that, the list has one name all the same: the
//! transport then tells the caller's how much room the Reply takes, which the caller itself knows nothing of.

use super::{Service, allow};
use crate::access::{EXECUTE, READ};
use crate::backend::{Backend, COOKIE_MIN, Context, Listing as Wanted, ListingKind};
use crate::codec::{List, ListWriter};
use crate::handle::{FileId, SealedHandle};
use crate::nfs3::arguments::{ReadDir, ReadDirPlus};
use crate::nfs3::listing::{Entry, EntryPlus, NamesPlusWriter};
use crate::nfs3::results::{Listing, ListingPlus};
use crate::nfs3::{Arguments, Attributes, Name, Results, Status, Verifier};

/// An encoded list of names.
struct Listed {
    verifier: Verifier,
    /// Length of the list, in octets.
    length: usize,
    /// Whether its names are the last.
    eof: bool,
}

impl<B: Backend> Service<B> {
    /// Lists names in results of at most `room` octets, or one name.
    pub(super) fn read_dir(
        &mut self,
        cx: &Context<'_>,
        asked: &ReadDir<'_>,
        room: usize,
    ) -> Results<'_> {
        let [wanted, room] = self.lengths(asked.count, room);
        let mut memory = std::mem::take(&mut self.listings[0]);
        let outcome = self.on_file(cx, asked.dir, |service, dir, attributes| {
            let verifier =
                service.check_place(cx, dir, attributes, (asked.cookie, asked.verifier))?;
            let w = ListWriter::new(&mut memory[..wanted]).ending_at(room);
            service.list(cx, dir, (asked.cookie, verifier), NAMES_MAX, w)
        });
        self.listings[0] = memory;
        Results::ReadDir(outcome.map(|(Listed { verifier, length, eof }, dir)| {
            let names = List::rewrap(&self.listings[0][..length]);
            Listing { dir, verifier, names, eof }
        }))
    }

    /// Lists names with attributes and handles in results of at most `room` octets, or one name.
    pub(super) fn read_dir_plus(
        &mut self,
        cx: &Context<'_>,
        asked: &ReadDirPlus<'_>,
        room: usize,
    ) -> Results<'_> {
        let ([wanted, room], names_max) =
            (self.lengths(asked.count_max, room), asked.count as usize);
        let [mut names, mut plus] = std::mem::take(&mut self.listings);
        let outcome = self.on_file(cx, asked.dir, |service, dir, attributes| {
            let verifier =
                service.check_place(cx, dir, attributes, (asked.cookie, asked.verifier))?;
            let w = ListWriter::new(&mut names[..wanted]).ending_at(room);
            let mut listed = service.list(cx, dir, (asked.cookie, verifier), NAMES_PLUS_MAX, w)?;
            let listed_names = List::rewrap(&names[..listed.length]);
            let visible = service.backend.check(cx, dir, attributes, EXECUTE).is_ok();
            let mut w = NamesPlusWriter::new(&mut plus[..wanted], names_max).ending_at(room);
            let mut fit = 0;
            let mut entries = listed_names.iter().inspect(|_| fit += 1);
            let complete = entries.all(|entry: Entry<'_>| {
                // Only a caller that could look up the names gets their attributes and handles.
                let told = match service.backend.listed(dir, entry.name) {
                    Some(told) => told,
                    None => service.backend.lookup(cx, dir, entry.name).and_then(|file| {
                        let attributes = service.backend.attributes(cx, file)?;
                        Ok((file, attributes))
                    }),
                };
                service.show(&mut w, entry, told.ok().filter(|_| visible))
            });
            drop(entries);
            // The first name was counted even if it did not fit.
            allow(complete || fit > 1, Status::TooSmall)?;
            listed.eof &= complete;
            listed.length = w.finish().wire_len();
            Ok(listed)
        });
        self.listings = [names, plus];
        Results::ReadDirPlus(outcome.map(|(Listed { verifier, length, eof }, dir)| {
            let names = List::rewrap(&self.listings[1][..length]);
            ListingPlus { dir, verifier, names, eof }
        }))
    }

    /// Returns what a Call lists, if its results have room for `room` octets; `None` if it is refused, or lists nothing.
    pub(super) fn listing(&self, arguments: &Arguments<'_>, room: usize) -> Option<Wanted> {
        let (dir, cookie, count) = match arguments {
            Arguments::ReadDir(asked) => (asked.dir, asked.cookie, asked.count),
            Arguments::ReadDirPlus(asked) => (asked.dir, asked.cookie, asked.count_max),
            _ => return None,
        };
        let octets_max = self.lengths(count, room).into_iter().min()?;
        let dir = self.sealer.open(dir).ok()?;
        let after = if cookie < COOKIE_MIN { 0 } else { cookie };
        let (names_max, octets_each, kind) = match arguments {
            Arguments::ReadDirPlus(asked) => {
                let names_max = (asked.count as usize / ENTRY).min(NAMES_PLUS_MAX as usize);
                (names_max, BEFORE + ENTRY + PLUS, ListingKind::Files)
            }
            _ => (NAMES_MAX as usize, BEFORE + ENTRY, ListingKind::Names),
        };
        Some(Wanted { dir, after, names_max, octets_max, octets_each, kind })
    }

    /// Encodes the names after a cookie, as many as fit, at most `most`.
    fn list(
        &mut self,
        cx: &Context<'_>,
        dir: FileId,
        (after, verifier): (u64, Verifier),
        most: u32,
        mut w: ListWriter<'_>,
    ) -> Result<Listed, Status> {
        // A list without names has an end, too.
        allow(w.capacity() >= List::<Entry<'_>>::EMPTY.wire_len(), Status::TooSmall)?;
        let parent = self.backend.lookup(cx, dir, Name(b".."))?;
        let mut fit = 0;
        let mut show = |name: Name<'_>, file: FileId, cookie| {
            let fits = fit < most && w.push(&Entry { fileid: file.inode, name, cookie });
            fit += u32::from(fits);
            fits
        };
        let own = [(Name(b"."), dir, 1), (Name(b".."), parent, 2)];
        let mut own = own.into_iter().filter(|(.., cookie)| *cookie > after);
        let after = if after < COOKIE_MIN { 0 } else { after };
        let eof = own.all(|(name, file, cookie)| show(name, file, cookie))
            && self.backend.list(cx, dir, after, &mut |n| show(n.name, n.file, n.cookie))?;
        allow(eof || fit > 0, Status::TooSmall)?;
        Ok(Listed { verifier, length: w.finish::<Entry<'_>>().wire_len(), eof })
    }

    /// Adds a name, with its file and what that is like if the caller may know it. Returns whether the name fit.
    fn show(
        &self,
        w: &mut NamesPlusWriter<'_>,
        entry: Entry<'_>,
        told: Option<(FileId, Attributes)>,
    ) -> bool {
        let attributes =
            told.map(|(_, attributes)| Attributes { fsid: self.sealer.fsid(), ..attributes });
        let sealed = told.map(|(file, _)| self.sealer.seal(file));
        let file = sealed.as_ref().map(|sealed| sealed.as_file_handle());
        w.push(&EntryPlus { entry, attributes, file })
    }

    /// Checks that the caller may list a directory, and that the cookie is valid in it. Returns the verifier for the
    /// next cookie.
    fn check_place(
        &mut self,
        cx: &Context<'_>,
        dir: FileId,
        attributes: &Attributes,
        (cookie, verifier): (u64, Verifier),
    ) -> Result<Verifier, Status> {
        self.check_in(cx, dir, attributes, READ)?;
        let current = self.backend.cookie_verifier(cx, dir)?;
        allow(cookie == 0 || verifier == current, Status::BadCookie)?;
        Ok(current)
    }

    /// Returns the octets of a list in results for which the caller wants `count` octets behind the status, and of one
    /// in results of `room` octets.
    fn lengths(&self, count: u32, room: usize) -> [usize; 2] {
        let count = count.min(self.config.limits.readdir_max) as usize;
        [count.saturating_sub(AROUND), room.saturating_sub(STATUS + AROUND)]
    }
}

/// The most names that one READDIR lists, however many the caller takes: other callers wait meanwhile.
const NAMES_MAX: u32 = 1024;
/// The most names that one READDIRPLUS lists. Each is looked up.
const NAMES_PLUS_MAX: u32 = 256;

/// Length of the boolean before an entry, in octets.
const BEFORE: usize = 4;
/// Length of an entry of a READDIR without its name, in octets: its number, the length of the name, and its cookie.
const ENTRY: usize = 8 + 4 + 8;
/// Length of what a READDIRPLUS adds to an entry, in octets: attributes, the length of the handle, and the handle; with a
/// boolean before either.
const PLUS: usize = 4 + Attributes::WIRE_LEN + 4 + 4 + SealedHandle::WIRE_LEN;

/// Length of the status of results, in octets.
const STATUS: usize = 4;

/// Octets around a list: the directory's attributes, the verifier, the end-of-directory mark.
const AROUND: usize = 4 + Attributes::WIRE_LEN + 8 + 4;
