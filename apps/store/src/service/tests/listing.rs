//! READDIR and READDIRPLUS.

use super::*;
use crate::nfs3::arguments::{ReadDir, ReadDirPlus};

/// Returns the results of one READDIR: names, the last cookie, and whether the names are the last.
type Page = (Vec<String>, u64, bool);

fn text(name: Name<'_>) -> String {
    String::from_utf8(name.0.to_vec()).unwrap()
}

impl Bed {
    fn page(&mut self, dir: &Handle, cookie: u64, count: u32) -> Result<Page, Status> {
        let (dir, verifier) = (dir.get(), Verifier(0));
        let sent = self.call(Arguments::ReadDir(ReadDir { dir, cookie, verifier, count }));
        // The count asked for bounds the whole results but the status.
        let fits = sent.bytes.len() <= 4 + count as usize;
        assert!(fits || sent.results().status() == Status::TooSmall);
        match sent.results() {
            Results::ReadDir(Ok(listing)) => {
                let last = listing.names.iter().last().map_or(cookie, |entry| entry.cookie);
                let names = listing.names.iter().map(|entry| text(entry.name)).collect();
                Ok((names, last, listing.eof))
            }
            other => Err(other.status()),
        }
    }

    fn plus<'a>(&mut self, asked: ReadDirPlus<'a>) -> Sent {
        let sent = self.call(Arguments::ReadDirPlus(asked));
        let fits = sent.bytes.len() <= 4 + asked.count_max as usize;
        assert!(fits || sent.results().status() == Status::TooSmall);
        sent
    }
}

fn ask(dir: &Handle, cookie: u64, count: u32, count_max: u32) -> ReadDirPlus<'_> {
    ReadDirPlus { dir: dir.get(), cookie, verifier: Verifier(0), count, count_max }
}

#[test]
fn pages_of_any_size_make_up_the_whole_list() {
    let mut bed = bed();
    let root = bed.root();
    let dir = bed.dir(&root, "d", 0o700);
    let mut expected = vec![".".to_owned(), "..".to_owned()];
    for number in 0..50 {
        expected.push(format!("{}{number}", "n".repeat(number)));
        bed.file(&dir, &expected[number + 2]);
    }
    for count in [190, 200, 400, 1000, 4096, u32::MAX] {
        let (mut names, mut cookie, mut eof) = (Vec::new(), 0, false);
        while !eof {
            let (page, last, end) = bed.page(&dir, cookie, count).unwrap();
            assert!(!page.is_empty() || end);
            names.extend(page);
            (cookie, eof) = (last, end);
        }
        assert_eq!(names, expected, "{count}");
    }
}

#[test]
fn the_dots_have_the_numbers_of_their_directories() {
    let mut bed = bed();
    let root = bed.root();
    let dir = bed.dir(&root, "d", 0o700);
    let sent = bed.plus(ask(&dir, 0, 999, 999));
    let Results::ReadDirPlus(Ok(listing)) = sent.results() else { panic!("{:?}", sent.results()) };
    let dots: Vec<_> = listing.names.iter().map(|plus| plus.entry.fileid).collect();
    assert_eq!(dots, [bed.look(&dir).fileid, bed.look(&root).fileid]);
    assert_eq!((listing.dir, listing.eof), (Some(bed.look(&dir)), true));
}

#[test]
fn what_is_listed_with_attributes_can_be_used() {
    let mut bed = bed();
    let root = bed.root();
    let file = bed.file(&root, "f");
    let sent = bed.plus(ask(&root, 2, 999, 999));
    let Results::ReadDirPlus(Ok(listing)) = sent.results() else { panic!("{:?}", sent.results()) };
    let entries: Vec<_> = listing.names.iter().collect();
    assert_eq!((entries.len(), entries[0].file), (1, Some(file.get())));
    assert_eq!(entries[0].attributes, Some(bed.look(&file)));
    assert_eq!(entries[0].entry.fileid, bed.look(&file).fileid);
}

#[test]
fn each_bound_of_a_readdirplus_holds() {
    let mut bed = bed();
    let root = bed.root();
    for number in 0..9 {
        bed.file(&root, &format!("{number}"));
    }
    // An entry's name, number and cookie take 24 octets; all of it 4 + 24 + 88 + 52.
    for (count, count_max, expected) in
        [(24, 4096, 1), (71, 4096, 2), (999, 100 + 4 + 168, 1), (999, 100 + 4 + 3 * 168, 3)]
    {
        let sent = bed.plus(ask(&root, 0, count, count_max));
        let Results::ReadDirPlus(Ok(listing)) = sent.results() else { panic!("{count}") };
        assert_eq!((listing.names.iter().count(), listing.eof), (expected, false), "{count}");
    }
    for (count, count_max) in [(23, 4096), (999, 100 + 4 + 167), (999, 0), (0, 999)] {
        let sent = bed.plus(ask(&root, 0, count, count_max));
        assert_eq!(sent.results().status(), Status::TooSmall, "{count} {count_max}");
    }
    let end = bed.page(&root, 0, 4096).unwrap().1;
    let sent = bed.plus(ask(&root, end, 24, 4096));
    let Results::ReadDirPlus(Ok(listing)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((listing.names.iter().count(), listing.eof), (0, true));
}

#[test]
fn a_long_list_comes_in_slices_whatever_is_asked_for() {
    let limits = memory::Limits { files_max: 1200, names_max: 1200 };
    let backend = |pool: &Pool, now| Memory::new(pool, limits, 77, now).unwrap();
    let mut bed = bed_with(16 << 20, 1 << 16, backend);
    let root = bed.root();
    for number in 0..1100 {
        bed.file(&root, &format!("{number}"));
    }
    let (mut slices, mut cookie, mut eof) = (Vec::new(), 0, false);
    while !eof {
        let (page, last, end) = bed.page(&root, cookie, u32::MAX).unwrap();
        slices.push(page.len());
        (cookie, eof) = (last, end);
    }
    assert_eq!(slices, [1024, 78]);
    let sent = bed.plus(ask(&root, 0, u32::MAX, u32::MAX));
    let Results::ReadDirPlus(Ok(listing)) = sent.results() else { panic!("{:?}", sent.results()) };
    assert_eq!((listing.names.iter().count(), listing.eof), (256, false));
}

#[test]
fn a_page_too_small_for_one_name_is_refused() {
    let mut bed = bed();
    let root = bed.root();
    assert_eq!(bed.page(&root, 0, 100 + 4 + 27), Err(Status::TooSmall));
    assert_eq!(bed.page(&root, 0, 100 + 4 + 28), Ok((vec![".".to_owned()], 1, false)));
}

#[test]
fn a_page_too_small_for_the_end_of_the_list_is_refused() {
    let mut bed = bed();
    let root = bed.root();
    bed.file(&root, "f");
    // The memory of the results still has a longer list, which must not show.
    let end = bed.page(&root, 0, 4096).unwrap().1;
    let sent = bed.plus(ask(&root, 0, 4096, 4096));
    assert_eq!(sent.results().status(), Status::Ok);
    for count in [0, 100, 100 + 3] {
        assert_eq!(bed.page(&root, end, count), Err(Status::TooSmall), "{count}");
        let sent = bed.plus(ask(&root, end, 4096, count));
        assert_eq!(sent.results().status(), Status::TooSmall, "{count}");
    }
    assert_eq!(bed.page(&root, end, 100 + 4), Ok((Vec::new(), end, true)));
}

#[test]
fn a_cookie_without_its_verifier_has_no_place() {
    let mut bed = bed();
    let root = bed.root();
    let dir = root.get();
    let (cookie, verifier, count) = (1, Verifier(9), 999);
    let list = ReadDir { dir, cookie, verifier, count };
    assert_eq!(bed.status(Arguments::ReadDir(list)), Status::BadCookie);
    let plus = ReadDirPlus { verifier, ..ask(&root, cookie, count, count) };
    assert_eq!(bed.status(Arguments::ReadDirPlus(plus)), Status::BadCookie);
    let first = ReadDir { cookie: 0, ..list };
    assert_eq!(bed.status(Arguments::ReadDir(first)), Status::Ok);
}

#[test]
fn who_may_not_look_names_up_sees_nothing_but_names() {
    let mut bed = bed();
    let root = bed.root();
    let dir = bed.dir(&root, "d", 0o744);
    bed.file(&dir, "f");
    bed.by(9, 9);
    let sent = bed.plus(ask(&dir, 2, 999, 999));
    let Results::ReadDirPlus(Ok(listing)) = sent.results() else { panic!("{:?}", sent.results()) };
    let seen: Vec<_> = listing.names.iter().map(|plus| (plus.attributes, plus.file)).collect();
    assert_eq!(seen, [(None, None)]);
}
