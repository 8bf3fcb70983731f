//! NFS version 3 over files in memory, with Calls from any user that have any arguments.

use haulage_proto::chunk::{Item, PayloadReader};
use haulage_proto::rpc::AcceptStat;
use haulage_store::nfs3::binding::is_idempotent;
use haulage_store::nfs3::{Arguments, Attributes, Procedure, Results, Status, Time};

use self::calls::Asked;
use self::served::{Got, Served, results};
use super::octets::Octets;
use crate::world::choices::Choices;

mod calls;
mod served;

/// Makes Calls. Each is answered with well-formed results, or refused for its arguments. A Call that comes twice gets
/// the same answer twice and is carried out once, unless it found no memory. A refused Call changes nothing, except for
/// the marks that the procedures leave on modes and times. All memory comes home.
pub(super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let mut served = Served::new(&mut choices);
    let mut known = vec![served.root().as_file_handle().bytes().to_vec()];
    let mut xid = 0;
    while !choices.is_spent() && xid < CALLS_MAX {
        xid += 1;
        served.seconds += u32::from(choices.one_in(2));
        let asked = calls::draw(&mut choices, &known);
        for handle in exchange(&mut served, xid, &asked, &known) {
            if known.len() < HANDLES_MAX && !known.contains(&handle) {
                known.push(handle);
            }
        }
    }
    served.end();
}

/// Makes a Call twice. Returns the handles in its results.
fn exchange(served: &mut Served, xid: u32, asked: &Asked, known: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let before = FileSystemState::of(served, known);
    let got = served.call(xid, asked);
    let Some(procedure) = Procedure::from_number(asked.procedure) else {
        assert_eq!(got, Got::Failed(AcceptStat::ProcUnavail));
        return Vec::new();
    };
    let chunk = asked.placed.as_ref().map(|octets| (asked.position, octets.len() as u64));
    let mut reader = PayloadReader::call(&asked.octets, 0, chunk);
    let arguments = Arguments::decode(procedure, &mut reader);
    let octets = match &got {
        Got::Results(octets) => octets,
        Got::Failed(stat) => {
            assert_eq!(*stat, AcceptStat::GarbageArgs);
            assert!(arguments.is_err(), "arguments that make sense");
            assert_eq!(FileSystemState::of(served, known), before, "garbage changes nothing");
            assert_eq!(served.call(xid, asked), got, "the same arguments are the same garbage");
            return Vec::new();
        }
    };
    let arguments = arguments.expect("arguments that were carried out");
    let results = results(procedure, octets);
    let after = FileSystemState::of(served, known);
    if is_idempotent(procedure) {
        let (before, after) = (before.without_atimes(), after.clone().without_atimes());
        assert_eq!(after, before, "{procedure:?} only looks");
    } else if results.status() != Status::Ok {
        let (before, after) = match procedure {
            // A WRITE clears the set-user-ID bit before it finds that there is no room.
            Procedure::Write => (before.without_modes(), after.clone().without_modes()),
            // A file that cannot be made as asked is removed again, but the times of its directory have changed.
            Procedure::Create | Procedure::MkDir | Procedure::Symlink | Procedure::MkNod => {
                (before.without_times(), after.clone().without_times())
            }
            _ => (before, after.clone()),
        };
        assert_eq!(after, before, "{procedure:?} was refused: {:?}", results.status());
    }
    // A Call that found no memory may find some the next time.
    if results.status() != Status::Jukebox {
        assert_eq!(served.call(xid, asked), got, "{procedure:?} came twice");
        assert_eq!(FileSystemState::of(served, known), after, "and was carried out once");
    }
    if let (Arguments::Write(write), Results::Write(Ok(done))) = (&arguments, &results) {
        assert!(done.count <= write.count, "more than was sent");
        let range = (write.file.bytes(), write.offset, done.count);
        written(served, asked, range, data(asked));
    }
    handles(&results)
}

/// The state of the file system, as Calls show it without changing it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileSystemState {
    free: (u64, u64),
    /// The attributes of the known files, or the errors of GETATTR.
    files: Vec<Result<Attributes, Status>>,
}

impl FileSystemState {
    fn of(served: &mut Served, known: &[Vec<u8>]) -> Self {
        let file = |handle: &Vec<u8>| Octets::default().opaque(handle).0;
        let octets = served.aside(Procedure::FsStat, file(&known[0]));
        let Results::FsStat(Ok(room)) = results(Procedure::FsStat, &octets) else {
            panic!("the top has room, little as it may be")
        };
        let free = (room.free_bytes, room.free_files);
        let attributes = |handle| {
            let octets = served.aside(Procedure::GetAttr, file(handle));
            let Results::GetAttr(outcome) = results(Procedure::GetAttr, &octets) else {
                unreachable!("results of GETATTR")
            };
            outcome.map_err(|failure| failure.status)
        };
        Self { free, files: known.iter().map(attributes).collect() }
    }

    /// Clears the times of access.
    fn without_atimes(mut self) -> Self {
        self.files.iter_mut().flatten().for_each(|file| file.atime = Time::default());
        self
    }

    /// Clears the times of modification and change.
    fn without_times(mut self) -> Self {
        for file in self.files.iter_mut().flatten() {
            [file.mtime, file.ctime] = [Time::default(); 2];
        }
        self
    }

    /// Clears modes, and the times of change.
    fn without_modes(mut self) -> Self {
        for file in self.files.iter_mut().flatten() {
            (file.mode, file.ctime) = (0, Time::default());
        }
        self
    }
}

/// Checks that a READ returns the data just written.
fn written(served: &mut Served, asked: &Asked, range: (&[u8], u64, u32), data: &[u8]) {
    let (file, offset, count) = range;
    let octets = Octets::default().opaque(file).put(&offset.to_be_bytes()).words(&[count]).0;
    let (is_anonymous, caller) = (asked.is_anonymous, asked.caller);
    let read = Asked { octets, is_anonymous, caller, ..Asked::new(Procedure::Read.number()) };
    let Got::Results(octets) = served.call(0, &read) else { panic!("READ was refused") };
    let Results::Read(outcome) = results(Procedure::Read, &octets) else { unreachable!() };
    match outcome {
        Ok(contents) => {
            assert_eq!(contents.count, count, "all that was written is there");
            let Item::Unreduced(read) = contents.data.0 else { panic!("nothing was reduced") };
            assert!(data.get(..count as usize) == Some(read), "what was written is read");
        }
        Err(failure) => assert_eq!(failure.status, Status::Acces),
    }
}

/// Returns the data of a WRITE: the Read chunk, or the octets behind their length, padding included.
fn data(asked: &Asked) -> &[u8] {
    asked.placed.as_deref().unwrap_or_else(|| {
        // The arguments in front of the data: handle with its length, offset, count, stability, length.
        let handle = asked.octets.first_chunk().map_or(0, |word| u32::from_be_bytes(*word));
        let at = 4 + handle.next_multiple_of(4) as usize + 8 + 4 + 4 + 4;
        asked.octets.get(at..).unwrap_or_default()
    })
}

/// Returns the file handles in results.
fn handles(results: &Results<'_>) -> Vec<Vec<u8>> {
    let handle = match results {
        Results::Lookup(Ok(found)) => Some(found.file),
        Results::Create(Ok(made))
        | Results::MkDir(Ok(made))
        | Results::Symlink(Ok(made))
        | Results::MkNod(Ok(made)) => made.file,
        _ => None,
    };
    handle.map(|handle| handle.bytes().to_vec()).into_iter().collect()
}

const CALLS_MAX: u32 = 48;
const HANDLES_MAX: usize = 12;
