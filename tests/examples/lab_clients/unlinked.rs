//! Two clients, of which one has a file open while its name changes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use crate::{Clients, Failure, expect, names};

/// The other client renames the file: the open handle stays valid.
pub(crate) fn renamed_by_other(clients: &Clients) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        let [reader, other] = clients.turn(round, "file");
        let open = open_at_start(&other, &reader)?;
        let renamed = other.with_file_name("renamed");
        fs::rename(&other, &renamed)?;
        expect_end(&open)?;
        expect(File::open(&reader).is_err(), || "the old name is still there".to_owned())?;
        drop(open);
        fs::remove_file(&renamed)?;
    }
    Ok(())
}

/// A client that removes a file which it has open renames the file until it is closed.
pub(crate) fn unlinked_by_itself(clients: &Clients) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        let [reader, other] = clients.turn(round, "file");
        let open = open_at_start(&other, &reader)?;
        fs::remove_file(&reader)?;
        for client in clients.both() {
            let left = names(&client)?;
            expect(left.len() == 1 && left[0].starts_with(".nfs"), || {
                format!("{left:?} in {}", client.display())
            })?;
        }
        expect(open.metadata()?.size() == SIZE as u64, || "it has another size".to_owned())?;
        expect_end(&open)?;
        open.write_all_at(b"written", 0)?;
        open.sync_all()?;
        drop(open);
        for client in clients.both() {
            let left = names(&client)?;
            expect(left.is_empty(), || {
                format!("{left:?} in {} after it was closed", client.display())
            })?;
        }
    }
    Ok(())
}

/// The other client removes the file: the server does not know that it is open, so the handle is stale.
pub(crate) fn lost_to_other(clients: &Clients) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        let [reader, other] = clients.turn(round, "file");
        let open = open_at_start(&other, &reader)?;
        fs::remove_file(&other)?;
        expect_stale(&open)?;
        drop(open);

        let open = open_at_start(&other, &reader)?;
        let new = other.with_file_name("new");
        fs::write(&new, "new")?;
        fs::rename(&new, &other)?;
        expect_stale(&open)?;
        let found = fs::read_to_string(&reader)?;
        expect(found == "new", || {
            format!("opened again, the file is {} octets long", found.len())
        })?;
        drop(open);
        fs::remove_file(&other)?;
    }
    Ok(())
}

/// Makes one client write a file, and the other open it and read so little that its end is in no cache.
fn open_at_start(writer: &PathBuf, reader: &PathBuf) -> Result<File, Failure> {
    fs::write(writer, contents())?;
    let open = File::options().read(true).write(true).open(reader)?;
    let mut start = [0; 4096];
    open.read_exact_at(&mut start, 0)?;
    expect(start[..] == contents()[..start.len()], || "the file begins otherwise".to_owned())?;
    Ok(open)
}

fn expect_end(open: &File) -> Result<(), Failure> {
    let found = read_end(open)?;
    expect(found[..] == contents()[SIZE - END..], || "the file ends otherwise".to_owned())
}

fn expect_stale(open: &File) -> Result<(), Failure> {
    match read_end(open) {
        Err(error) if error.kind() == io::ErrorKind::StaleNetworkFileHandle => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Failure("a file that is gone is read on".to_owned())),
    }
}

fn read_end(open: &File) -> io::Result<[u8; END]> {
    let mut end = [0; END];
    open.read_exact_at(&mut end, (SIZE - END) as u64)?;
    Ok(end)
}

/// Returns the contents of a file, different in each page.
fn contents() -> Vec<u8> {
    (0..SIZE).map(|at| (at / 4096 + at % 251).to_le_bytes()[0]).collect()
}

/// Length of the file, far beyond what a client reads ahead of 4096 octets.
const SIZE: usize = 4 << 20;
const END: usize = 4096;
const ROUNDS: usize = 5;
