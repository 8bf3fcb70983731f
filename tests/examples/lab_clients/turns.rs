//! Two clients that take turns: each opens a file after the other has closed it.

use std::fs::{self, File, OpenOptions};
use std::io::Write;

use crate::{Clients, Failure, expect};

/// Each client overwrites the file with as many octets as before, so that only its times show the change.
pub(crate) fn rewrites(clients: &Clients) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        let [writer, reader] = clients.turn(round, "file");
        let text = format!("round {round:08}");
        File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(writer)?
            .write_all(text.as_bytes())?;
        let found = fs::read_to_string(reader)?;
        expect(found == text, || format!("{found:?} and not {text:?}"))?;
    }
    Ok(fs::remove_file(clients.one.join("file"))?)
}

/// Each client sets the size of the file, and the other finds that many octets, all of them zero.
pub(crate) fn sizes(clients: &Clients) -> Result<(), Failure> {
    let path = clients.one.join("file");
    File::create(&path)?;
    let mut before = 0;
    for round in 0..ROUNDS {
        let [writer, reader] = clients.turn(round, "file");
        let size = round * 7919 % 20_011;
        OpenOptions::new().write(true).open(writer)?.set_len(size as u64)?;
        let found = fs::read(&reader)?;
        expect(found.len() == size, || {
            format!("{} octets after they were made {size}", found.len())
        })?;
        expect(found.iter().all(|&octet| octet == 0), || {
            format!("octets that are not zero after {before} were made {size}")
        })?;
        before = size;
    }
    Ok(fs::remove_file(path)?)
}

/// Each client appends a line where the other ended.
pub(crate) fn appends(clients: &Clients) -> Result<(), Failure> {
    let mut expected = String::new();
    for round in 0..ROUNDS {
        let [writer, _] = clients.turn(round, "log");
        let line = format!("line {round} of client {}\n", round % 2);
        OpenOptions::new().append(true).create(true).open(writer)?.write_all(line.as_bytes())?;
        expected.push_str(&line);
    }
    for client in clients.both() {
        let found = fs::read_to_string(client.join("log"))?;
        expect(found == expected, || format!("not all lines, or others: {found}"))?;
    }
    Ok(fs::remove_file(clients.one.join("log"))?)
}

/// Each client replaces the file that both have read by a new one.
pub(crate) fn replacements(clients: &Clients) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        let [writer, reader] = clients.turn(round, "file");
        let text = format!("round {round:08}");
        let new = writer.with_file_name("new");
        fs::write(&new, &text)?;
        fs::rename(&new, &writer)?;
        for path in [&reader, &writer] {
            let found = fs::read_to_string(path)?;
            expect(found == text, || format!("{found:?} and not {text:?}"))?;
        }
    }
    Ok(fs::remove_file(clients.one.join("file"))?)
}

const ROUNDS: usize = 100;
