//! A client of a Linux NFS server that serves the server's callbacks on the connection that it made itself: the program
//! of the lab's case `back_channel`.
//!
//! `lab_back_channel NFS` takes the address of the server. The root of its export has the files `local`, `other` and
//! `silent`. A process on the server writes to `local` and to `silent` as soon as they are delegated.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "a report of what was seen is its output")]

use std::env;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use haulage::service::AUTH_SYS;
use haulage::sys::clock;
use haulage_proto::time::Instant;
use haulage_tests::callback::{Compound, Manner, Operation, Told};

use client::Client;
use nfs::{Fault, Opened, Stateid};

mod client;
mod nfs;

/// The result of a step.
type Outcome<T> = Result<T, String>;

fn main() -> ExitCode {
    let at = env::args().nth(1).and_then(|address| address.parse().ok());
    match at.ok_or_else(|| "an address is wanted".to_owned()).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lab_back_channel: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(at: SocketAddr) -> Outcome<()> {
    let mut client = Client::connect(at, "answers", Manner::Answers)?;
    println!("a session with a back channel on its connection: {:?}", client.back);
    gives_back_what_a_local_writer_wants(&mut client)?;
    gives_back_what_another_client_wants(&mut client, at)?;
    client.leave()?;
    println!("session and client are destroyed");
    loses_what_it_does_not_give_back(at)
}

/// Holds a delegation until a process of the server writes to the file.
fn gives_back_what_a_local_writer_wants(client: &mut Client) -> Outcome<()> {
    let held = Held::open(client, "local")?;
    held.is_recalled(client, 1)?;
    held.give_back(client)
}

/// Holds a delegation until another client opens the file for writing.
fn gives_back_what_another_client_wants(client: &mut Client, at: SocketAddr) -> Outcome<()> {
    let held = Held::open(client, "other")?;
    let mut writer = Client::connect(at, "writes", Manner::Answers)?;
    match writer.open(nfs::WRITE, "other") {
        Err(Fault::Status { operation: nfs::OPEN, status: nfs::DELAY }) => {
            println!("other: another client that opens it for writing is told to wait");
        }
        other => return Err(format!("another client opened it for writing: {other:?}")),
    }
    held.is_recalled(client, 2)?;
    held.give_back(client)?;
    let (opened, file) = open_in_time(&mut writer, nfs::WRITE, "other")?;
    println!("other: open for writing");
    writer.close(&opened, &file)?;
    Ok(writer.leave()?)
}

/// Holds a delegation without ever answering a callback, until it is revoked.
fn loses_what_it_does_not_give_back(at: SocketAddr) -> Outcome<()> {
    let mut client = Client::connect(at, "silent", Manner::Silent)?;
    let held = Held::open(&mut client, "silent")?;
    held.is_recalled(&client, 1)?;
    let begun = clock::now();
    let mut flags = 0;
    while flags & REVOKED == 0 {
        client.renew()?;
        if client.flags != flags {
            flags = client.flags;
            println!("silent: flags {flags:#x} after {} s", since(begun).as_secs());
        }
        if since(begun) > REVOCATION {
            return Err("the delegation is never revoked".to_owned());
        }
        if let Some(told) = client.told(Duration::from_secs(1)) {
            println!("silent: {told} after {} s", since(begun).as_secs());
        }
    }
    client.give_back(nfs::FREE_STATEID, held.delegation, &held.file)?;
    client.close(&held.opened, &held.file)?;
    client.leave()?;
    println!("silent: revoked");
    Ok(())
}

/// An open file, and the delegation of it.
struct Held {
    name: &'static str,
    opened: Opened,
    delegation: Stateid,
    file: Vec<u8>,
}

impl Held {
    /// Opens a file, which must be delegated.
    fn open(client: &mut Client, name: &'static str) -> Outcome<Self> {
        let (opened, file) = open_in_time(client, nfs::READ_DELEGATED, name)?;
        let delegation = opened.delegation.ok_or_else(|| format!("{name}: not delegated"))?;
        println!("{name}: delegated");
        Ok(Self { name, opened, delegation, file })
    }

    /// Waits until the delegation is recalled by the request of this number.
    fn is_recalled(&self, client: &Client, number: u32) -> Outcome<()> {
        let Self { name, delegation, file, .. } = self;
        let told = client.told(PATIENCE).ok_or_else(|| format!("{name}: not recalled"))?;
        println!("{name}: {told}");
        let operation = Operation::Recall { stateid: *delegation, file: file.clone() };
        let session = client.session();
        let expected = Compound { session, slot: 0, sequence: number, operation };
        if told == Told::Compound(AUTH_SYS, expected) {
            Ok(())
        } else {
            Err(format!("{name}: {told:?} instead of the recall of {delegation:?} of {file:?}"))
        }
    }

    /// Returns the delegation, and closes the file.
    fn give_back(self, client: &mut Client) -> Outcome<()> {
        client.give_back(nfs::DELEGRETURN, self.delegation, &self.file)?;
        client.close(&self.opened, &self.file)?;
        println!("{}: given back", self.name);
        Ok(())
    }
}

/// Opens a file, once the server no longer waits for clients of an earlier life, or for a delegation.
fn open_in_time(client: &mut Client, share: u32, name: &str) -> Outcome<(Opened, Vec<u8>)> {
    let begun = clock::now();
    loop {
        match client.open(share, name) {
            Err(Fault::Status { status: nfs::GRACE | nfs::DELAY, .. })
                if since(begun) < PATIENCE =>
            {
                // A callback in the meantime is not expected, and would be told later as well.
                if let Some(told) = client.told(Duration::from_millis(200)) {
                    return Err(format!("{name}: {told} before it is open"));
                }
            }
            opened => return opened.map_err(|fault| format!("{name}: {fault}")),
        }
    }
}

fn since(begun: Instant) -> Duration {
    clock::now().saturating_since(begun)
}

/// `SEQ4_STATUS_RECALLABLE_STATE_REVOKED`
const REVOKED: u32 = 0x40;
const PATIENCE: Duration = Duration::from_secs(20);
/// Two times the lease, and what the server takes to notice.
const REVOCATION: Duration = Duration::from_secs(40);
