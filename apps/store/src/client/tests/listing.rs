//! Listing directories.

use super::super::listing::{Entry, Listing};
use super::*;
use crate::nfs3::listing::{self, EntryPlus, NamesPlus, NamesPlusWriter};
use crate::nfs3::results::ListingPlus;
use crate::nfs3::{Failure, Verifier};

const FILES: usize = 300;

fn directory() -> Client<Near> {
    let mut client = Near::new(LIMITS).client();
    let root = client.root;
    for n in 0..FILES {
        client.create(&root, format!("{n}").as_bytes(), 0o600).unwrap();
    }
    client.requester.asked.clear();
    client
}

fn list(client: &mut Client<Near>) -> Result<Vec<Entry>, Error> {
    let mut listing = Listing::new(client.root);
    let mut entries = Vec::new();
    while let Some(entry) = listing.next(client)? {
        entries.push(entry);
    }
    assert!(listing.next(client)?.is_none(), "the end is the end");
    entries.sort_by_key(|entry| str::from_utf8(&entry.name).unwrap().parse::<usize>().unwrap());
    Ok(entries)
}

fn names(entries: &[Entry]) -> Vec<String> {
    entries.iter().map(|entry| String::from_utf8(entry.name.clone()).unwrap()).collect()
}

fn expected() -> Vec<String> {
    (0..FILES).map(|n| n.to_string()).collect()
}

#[test]
fn every_name_comes_once_with_its_file() {
    let mut client = directory();
    let entries = list(&mut client).unwrap();
    assert_eq!(names(&entries), expected());
    for entry in &entries {
        let (file, attributes) = entry.file.unwrap();
        assert_eq!(entry.fileid, attributes.fileid);
        assert_eq!(client.attributes(&file).unwrap().fileid, entry.fileid);
    }
    assert!(client.requester.count(Procedure::ReadDirPlus) > 3, "more than one Reply");
    assert_eq!(client.requester.count(Procedure::Lookup), 0);
}

#[test]
fn names_without_attributes_are_looked_up() {
    let mut client = directory();
    client.requester.instead = Box::new(|arguments| match arguments {
        Arguments::ReadDirPlus(_) => {
            let failure = Failure { status: Status::NotSupp, rest: None };
            refusal(&Results::ReadDirPlus(Err(failure)))
        }
        _ => None,
    });
    let entries = list(&mut client).unwrap();
    assert_eq!(names(&entries), expected());
    assert!(entries.iter().all(|entry| entry.file.is_some()));
    assert_eq!(client.requester.count(Procedure::ReadDirPlus), 1, "it is not asked twice");
    assert_eq!(client.requester.count(Procedure::Lookup), FILES);
}

#[test]
fn names_that_are_gone_are_left_out_and_those_not_ours_to_see_are_not() {
    let mut client = directory();
    client.requester.instead = Box::new(|arguments| {
        let status = match arguments {
            Arguments::ReadDirPlus(_) => {
                let failure = Failure { status: Status::NotSupp, rest: None };
                return refusal(&Results::ReadDirPlus(Err(failure)));
            }
            Arguments::Lookup(at) if at.name.0 == b"7" => Status::NoEnt,
            Arguments::Lookup(at) if at.name.0 == b"8" => Status::Acces,
            _ => return None,
        };
        refusal(&Results::Lookup(Err(Failure { status, rest: None })))
    });
    let entries = list(&mut client).unwrap();
    let mut left = expected();
    left.remove(7);
    assert_eq!(names(&entries), left);
    assert!(entries[7].file.is_none() && entries[6].file.is_some());
}

#[test]
fn a_listing_that_does_not_get_on_is_an_error() {
    // The server lists no names, and does not say that the list ends.
    let mut client = directory();
    client.requester.edit = Box::new(|_, results| match results {
        Results::ReadDirPlus(Ok(listed)) => {
            let none = ListingPlus { names: NamesPlus::EMPTY, eof: false, ..*listed };
            refusal(&Results::ReadDirPlus(Ok(none)))
        }
        _ => None,
    });
    assert!(matches!(list(&mut client), Err(Error::Nonsense(_))));
    // The server lists the same names for ever.
    let mut client = directory();
    let mut kept: Option<Vec<u8>> = None;
    client.requester.edit = Box::new(move |_, results| match results {
        Results::ReadDirPlus(Ok(_)) => {
            let octets = kept.get_or_insert_with(|| written(|w| results.encode(w)));
            Some(octets.clone())
        }
        _ => None,
    });
    let error = list(&mut client).unwrap_err();
    assert!(matches!(error, Error::Nonsense(_)), "{error:?}");
    assert_eq!(client.requester.count(Procedure::ReadDirPlus), 2);
}

#[test]
fn a_cookie_comes_back_with_its_verifier() {
    let mut client = directory();
    client.requester.instead = Box::new(|arguments| {
        let Arguments::ReadDirPlus(asked) = arguments else { return None };
        let (cookie, verifier, eof) = match (asked.cookie, asked.verifier) {
            (0, Verifier(0)) => (5, Verifier(77), false),
            (5, Verifier(77)) => (6, Verifier(78), false),
            (6, Verifier(78)) => (7, Verifier(79), true),
            other => panic!("{other:?}"),
        };
        let mut room = [0; 100];
        let mut names = NamesPlusWriter::new(&mut room, 100);
        let entry = listing::Entry { fileid: cookie, name: Name(b"1"), cookie };
        assert!(names.push(&EntryPlus { entry, attributes: None, file: None }));
        let listed = ListingPlus { dir: None, verifier, names: names.finish(), eof };
        refusal(&Results::ReadDirPlus(Ok(listed)))
    });
    let entries = list(&mut client).unwrap();
    assert_eq!(entries.iter().map(|entry| entry.fileid).collect::<Vec<_>>(), [5, 6, 7]);
}

#[test]
fn what_is_no_directory_has_no_listing() {
    let mut client = directory();
    let root = client.root;
    let file = client.create(&root, b"0", 0o600).unwrap();
    let error = Listing::new(file.file).next(&mut client).unwrap_err();
    assert_eq!(error.status(), Some(Status::NotDir));
}
