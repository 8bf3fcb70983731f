//! Two clients that change the same name at the same time: one succeeds, and the other gets the right error.

use std::io::{self, ErrorKind};
use std::os::unix;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::{fs, thread};

use crate::{Clients, Failure, expect};

/// Both clients make a directory of one name.
pub(crate) fn mkdir(clients: &Clients) -> Result<(), Failure> {
    race(
        clients,
        ErrorKind::AlreadyExists,
        |_| Ok(()),
        |_, path| fs::create_dir(path),
        |path| fs::remove_dir(path),
    )
}

/// Both clients create a new file of one name (O_EXCL).
pub(crate) fn create_new(clients: &Clients) -> Result<(), Failure> {
    race(
        clients,
        ErrorKind::AlreadyExists,
        |_| Ok(()),
        |contestant, path| {
            let mut file = fs::File::create_new(path)?;
            io::Write::write_all(&mut file, contestant.as_bytes())
        },
        |path| fs::remove_file(path),
    )
}

/// Both clients link one name to a file.
pub(crate) fn link(clients: &Clients) -> Result<(), Failure> {
    race(
        clients,
        ErrorKind::AlreadyExists,
        |path| fs::write(beside(path, "from"), ""),
        |_, path| fs::hard_link(beside(path, "from"), path),
        |path| fs::remove_file(path).and_then(|()| fs::remove_file(beside(path, "from"))),
    )
}

/// Both clients make a symbolic link of one name.
pub(crate) fn symlink(clients: &Clients) -> Result<(), Failure> {
    race(
        clients,
        ErrorKind::AlreadyExists,
        |_| Ok(()),
        |contestant, path| unix::fs::symlink(contestant, path),
        |path| fs::remove_file(path),
    )
}

/// Both clients rename one file, each to a name of its own.
pub(crate) fn rename_from(clients: &Clients) -> Result<(), Failure> {
    race(
        clients,
        ErrorKind::NotFound,
        |path| fs::write(path, ""),
        |contestant, path| fs::rename(path, beside(path, contestant)),
        |path| {
            fs::remove_file(beside(path, "one")).or_else(|_| fs::remove_file(beside(path, "other")))
        },
    )
}

/// Both clients rename a file of their own to one name. Both succeed, and the file is one of the two.
pub(crate) fn rename_to(clients: &Clients) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        let name = format!("to.{round}");
        for (client, contestant) in clients.both().iter().zip(CONTESTANTS) {
            fs::write(client.join(contestant), contestant)?;
        }
        let results = together(clients, |contestant, client| {
            fs::rename(client.join(contestant), client.join(&name))
        });
        for result in results {
            result?;
        }
        let found = clients.both().map(|client| fs::read_to_string(client.join(&name)));
        let [one, other] = found;
        let (one, other) = (one?, other?);
        expect(one == other && CONTESTANTS.contains(&one.as_str()), || {
            format!("round {round}: one has {one:?}, the other {other:?}")
        })?;
        fs::remove_file(clients.one.join(name))?;
    }
    Ok(())
}

/// Both clients remove one file.
pub(crate) fn unlink(clients: &Clients) -> Result<(), Failure> {
    race(
        clients,
        ErrorKind::NotFound,
        |path| fs::write(path, ""),
        |_, path| fs::remove_file(path),
        |_| Ok(()),
    )
}

/// Both clients remove one directory.
pub(crate) fn rmdir(clients: &Clients) -> Result<(), Failure> {
    race(
        clients,
        ErrorKind::NotFound,
        |path| fs::create_dir(path),
        |_, path| fs::remove_dir(path),
        |_| Ok(()),
    )
}

/// Calls `act` at both clients with the path of a new name, in each round: exactly one must succeed, and the other must
/// fail with `refusal`. One client alone calls `before` and `after`.
fn race(
    clients: &Clients,
    refusal: ErrorKind,
    before: impl Fn(&Path) -> io::Result<()>,
    act: impl Fn(&str, &Path) -> io::Result<()> + Sync,
    after: impl Fn(&Path) -> io::Result<()>,
) -> Result<(), Failure> {
    for round in 0..ROUNDS {
        let name = format!("name.{round}");
        before(&clients.one.join(&name))?;
        let results = together(clients, |contestant, client| act(contestant, &client.join(&name)));
        let fair = match &results {
            [Ok(()), Err(error)] | [Err(error), Ok(())] => error.kind() == refusal,
            _ => false,
        };
        expect(fair, || format!("round {round}: {results:?}"))?;
        after(&clients.one.join(&name))?;
    }
    Ok(())
}

/// Calls `act` at both clients at once. Returns both results.
fn together(
    clients: &Clients,
    act: impl Fn(&str, &PathBuf) -> io::Result<()> + Sync,
) -> [io::Result<()>; 2] {
    let barrier = Barrier::new(2);
    let run = |contestant: &str, client: &PathBuf| {
        barrier.wait();
        act(contestant, client)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| run(CONTESTANTS[1], &clients.other));
        let one = run(CONTESTANTS[0], &clients.one);
        [one, other.join().unwrap_or_else(|_| Err(io::Error::other("a client panicked")))]
    })
}

/// Returns the path of a name in the same directory, formed from the name in `path` and `suffix`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    path.with_extension(format!(
        "{suffix}.{}",
        path.extension().unwrap_or_default().to_string_lossy()
    ))
}

const ROUNDS: usize = 60;
const CONTESTANTS: [&str; 2] = ["one", "other"];
