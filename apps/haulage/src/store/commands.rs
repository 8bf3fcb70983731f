//! `haulage store ls`, `stat`, `df`, `get` and `put`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use haulage_store::client::listing::Listing;
use haulage_store::client::put::New;
use haulage_store::client::{Error, Last};
use haulage_store::nfs3::FileType;

use super::session::Session;
use super::show::{self, Named};
use crate::cli::{MountOptions, bytes};
use crate::failure::Failure;
use crate::output::file::Whole;
use crate::output::{self, Names, Output};

/// Runs `store ls PATH`, which prints a table sorted by name, or one JSON object a line in the server's order.
pub fn ls(mount: &MountOptions, path: &OsStr, output: &Output) -> Result<(), Failure> {
    let mut session = Session::open(mount, output)?;
    let path = path.as_bytes();
    let found = session.client.find_file(path, Last::Keep);
    let found = found.map_err(|error| session.explain(&error))?;
    let mut names = Vec::new();
    let mut show = |session: &mut Session, named: Named| {
        let named = named.with_target(&mut session.client);
        let named = named.map_err(|error| session.explain(&error.at(path)))?;
        if output.json {
            return output.line(&named.to_json());
        }
        names.push(named);
        session.step.update(format_args!("{} names", names.len()));
        if names.len() > NAMES_MAX {
            return Err(Failure::failed(format!(
                "more than {NAMES_MAX} names; --json prints them as they come"
            )));
        }
        Ok(())
    };
    if found.attributes.kind == FileType::Directory {
        let mut listing = Listing::new(found.file);
        loop {
            let next = listing.next(&mut session.client);
            let next = next.map_err(|error| session.explain(&error.at(path)))?;
            let Some(entry) = next else { break };
            show(&mut session, Named::from(entry))?;
        }
    } else {
        show(&mut session, Named::of(path, &found))?;
    }
    session.close(output)?;
    if output.json {
        return Ok(());
    }
    names.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    output.text(&show::listing(&names, Names::of_output()))
}

/// Runs `store stat PATH`.
pub fn stat(mount: &MountOptions, path: &OsStr, output: &Output) -> Result<(), Failure> {
    let mut session = Session::open(mount, output)?;
    let path = path.as_bytes();
    let found = session.client.find_file(path, Last::Keep);
    let named = found
        .and_then(|found| Named::of(path, &found).with_target(&mut session.client))
        .map_err(|error| session.explain(&error.at(path)))?;
    session.close(output)?;
    if output.json {
        output.line(&named.to_json())
    } else {
        output.text(&named.to_text(Names::of_output()))
    }
}

/// Runs `store df PATH`.
pub fn df(mount: &MountOptions, path: &OsStr, output: &Output) -> Result<(), Failure> {
    let mut session = Session::open(mount, output)?;
    let path = path.as_bytes();
    let found = session.client.find_file(path, Last::Follow);
    let room = found
        .and_then(|found| session.client.room(&found.file))
        .map_err(|error| session.explain(&error.at(path)))?;
    session.close(output)?;
    if output.json {
        output.line(&show::room_json(&room))
    } else {
        output.text(&show::room_text(&room))
    }
}

/// Runs `store get PATH [FILE|-]`.
pub fn get(
    mount: &MountOptions,
    path: &OsStr,
    file: &Path,
    output: &Output,
) -> Result<(), Failure> {
    let mut session = Session::open(mount, output)?;
    let path = path.as_bytes();
    let found = session.client.find_file(path, Last::Follow).and_then(|found| found.regular(path));
    let found = found.map_err(|error| session.explain(&error))?;
    // Create the target only once the source is known to exist.
    let mut target = Target::create(file)?;
    let (mut fetched, size, watched) = (0, found.attributes.size, target.is_watched_apart());
    let Session { client, step, .. } = &mut session;
    let read = client.read(&found.file, size, |octets| {
        fetched += octets.len() as u64;
        if watched {
            step.update(format_args!("{} of {}", bytes::rounded(fetched), bytes::rounded(size)));
        }
        target.write(octets, output)
    });
    if let Err(error) = read {
        return Err(match error {
            Error::Local(error) => target.failure(&error),
            error => session.explain(&error.at(path)),
        });
    }
    target.finish()?;
    session.close(output)
}

/// Runs `store put [FILE|-] PATH`.
pub fn put(mount: &MountOptions, files: &[OsString], output: &Output) -> Result<(), Failure> {
    let (file, path) = match files {
        [file, path] => (Path::new(file), path.as_bytes()),
        [path] => (Path::new(STANDARD), path.as_bytes()),
        _ => return Err(Failure::usage("give a file, or none, and a path on the server")),
    };
    let unreadable = |error: &io::Error| {
        Failure::failed(format!("cannot read {}: {error}", output::source(file)))
    };
    let (mut source, mode) = open(file).map_err(|error| unreadable(&error))?;
    let mut session = Session::open(mount, output)?;
    let Session { client, step, .. } = &mut session;
    let mut sent = 0;
    let new = New { mode, number: std::process::id().into() };
    let put = client.put(path, new, |room| {
        let read = source.read(room)?;
        sent += read as u64;
        step.update(format_args!("{} sent", bytes::rounded(sent)));
        Ok(read)
    });
    if let Err(error) = put {
        return Err(match error {
            Error::Local(error) => unreadable(&error),
            error => session.explain(&error.at(path)),
        });
    }
    session.close(output)
}

/// Opens the source of a put. Returns it, with the permission bits for the new file.
fn open(file: &Path) -> io::Result<(Box<dyn Read>, u32)> {
    if file == Path::new(STANDARD) {
        return Ok((Box::new(output::input()?), 0o644));
    }
    let file = File::open(file)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    // Write permission of the group and of others is not copied.
    let mode = file.metadata()?.permissions().mode() & 0o755;
    Ok((Box::new(file), mode))
}

/// The destination of a fetched file.
enum Target<'a> {
    Output(Option<Failure>),
    File(&'a Path, Whole),
}

impl<'a> Target<'a> {
    fn create(path: &'a Path) -> Result<Self, Failure> {
        if path == Path::new(STANDARD) {
            return Ok(Self::Output(None));
        }
        let file = Whole::create(path).map_err(|error| {
            Failure::failed(format!("cannot create {}: {error}", path.display()))
        })?;
        Ok(Self::File(path, file))
    }

    fn write(&mut self, octets: &[u8], output: &Output) -> io::Result<()> {
        match self {
            Self::Output(failed) => output.bytes(octets).map_err(|failure| {
                *failed = Some(failure);
                io::ErrorKind::Other.into()
            }),
            Self::File(_, file) => file.write_all(octets),
        }
    }

    /// Gives a file its name, now that it is complete.
    fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Output(_) => Ok(()),
            Self::File(path, file) => file.finish().map_err(|error| unwritten(path, &error)),
        }
    }

    /// Returns whether a progress line would not mix with the fetched data.
    fn is_watched_apart(&self) -> bool {
        matches!(self, Self::File(..)) || !io::stdout().is_terminal()
    }

    /// Returns the failure for an error of writing to the destination.
    fn failure(self, error: &io::Error) -> Failure {
        match self {
            Self::Output(Some(failure)) => failure,
            Self::Output(None) => Failure::of_output(error),
            Self::File(path, _) => unwritten(path, error),
        }
    }
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format!("cannot write to {}: {error}", path.display()))
}

/// The name of standard input or standard output.
const STANDARD: &str = "-";

/// Maximum number of names that are sorted.
const NAMES_MAX: usize = 1 << 20;
