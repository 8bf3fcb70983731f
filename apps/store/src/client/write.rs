//! Writing a file: several WRITEs are in flight, and unstable data is kept until it is committed.

use std::io;

use haulage::pool::Local;
use haulage_proto::chunk::Item;

use super::requester::{BUSY_MAX, BUSY_PAUSE, ask};
use super::{Client, Error, File, Items, Requester};
use crate::nfs3::arguments::{Commit, Stable, Write};
use crate::nfs3::results::Written;
use crate::nfs3::{Arguments, Data, Procedure, Results, Status, Verifier};

impl<R: Requester> Client<R> {
    /// Writes the octets of `source` to a file, from its start. `source` fills memory and returns the number of octets,
    /// zero at its end. Returns the total, all of it on stable storage.
    ///
    /// # Errors
    /// The server refuses, or `source` does.
    pub fn write(
        &mut self,
        file: &File,
        mut source: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<u64, Error> {
        let mut transfer = Transfer {
            client: self,
            file: *file,
            end: 0,
            pieces: Vec::new(),
            spare: Vec::new(),
            busy: 0,
        };
        let outcome = transfer.run(&mut source);
        transfer.settle();
        outcome
    }
}

struct Transfer<'c, R> {
    client: &'c mut Client<R>,
    file: File,
    /// The offset of the next piece.
    end: u64,
    /// The pieces that are not known to be on stable storage.
    pieces: Vec<Piece>,
    /// Free leases for pieces.
    spare: Vec<Local>,
    /// Number of consecutive busy Replies.
    busy: u32,
}

struct Piece {
    offset: u64,
    state: State,
}

impl Piece {
    /// Returns whether this piece's Call is in flight and has this token.
    fn is(&self, token: u64) -> bool {
        matches!(self.state, State::Sent(sent) if sent == token)
    }
}

enum State {
    /// The WRITE is in flight, with this token; the Call holds the lease.
    Sent(u64),
    /// Written, but lost if the server's verifier changes from this one.
    Written(Local, Verifier),
}

impl<R: Requester> Transfer<'_, R> {
    fn run(
        &mut self,
        source: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> Result<u64, Error> {
        let size = self.client.limits.write_max as usize;
        let mut more = true;
        while more {
            while more && self.pieces.len() < PIECES {
                while self.under_way() >= WRITES {
                    self.wait()?;
                }
                let mut lease = match self.spare.pop() {
                    Some(lease) => lease,
                    None => self.client.requester.lease(size)?,
                };
                lease.set_len(size);
                let length = fill(lease.bytes_mut(), source).map_err(Error::Local)?;
                more = length == size;
                if length > 0 {
                    lease.set_len(length);
                    self.send(self.end, lease)?;
                    self.end += length as u64;
                }
            }
            self.commit()?;
        }
        Ok(self.end)
    }

    /// Brings all pieces to stable storage.
    fn commit(&mut self) -> Result<(), Error> {
        for _ in 0..COMMITS_MAX {
            while self.under_way() > 0 {
                self.wait()?;
            }
            if self.pieces.is_empty() {
                return Ok(());
            }
            // From the start to the end of the file.
            let all = Commit { file: self.file.handle(), offset: 0, count: 0 };
            let answer = ask(&mut self.client.requester, &Arguments::Commit(all), Items::default)?;
            let now = match answer.results(Procedure::Commit)? {
                Results::Commit(Ok(committed)) => committed.verifier,
                other => return Err(Error::of(&other)),
            };
            for piece in std::mem::take(&mut self.pieces) {
                match piece.state {
                    State::Written(lease, verifier) if verifier == now => self.keep(lease),
                    // The verifier changed: the server was restarted and may have lost the piece.
                    State::Written(lease, _) => self.send(piece.offset, lease)?,
                    State::Sent(_) => self.pieces.push(piece),
                }
            }
        }
        Err(Error::Nonsense("it keeps losing written data"))
    }

    fn send(&mut self, offset: u64, lease: Local) -> Result<(), Error> {
        let length = lease.len();
        let arguments = Arguments::Write(Write {
            file: self.file.handle(),
            offset,
            count: u32::try_from(length).unwrap_or(u32::MAX),
            stable: Stable::Unstable,
            data: Data(Item::Reduced { length: length as u64 }),
        });
        let items = Items { argument: Some(lease), result: None };
        let token = self.client.requester.begin(&arguments, items)?;
        self.pieces.push(Piece { offset, state: State::Sent(token) });
        Ok(())
    }

    /// Waits until one of the WRITEs ends.
    fn wait(&mut self) -> Result<(), Error> {
        let (token, outcome) = self.client.requester.ended()?;
        let at = self.pieces.iter().position(|piece| piece.is(token));
        let Some(at) = at else { return Ok(()) };
        let Piece { offset, .. } = self.pieces.swap_remove(at);
        let mut answer = outcome?;
        let lease = answer.items.argument.take();
        let mut lease = lease.ok_or(Error::Nonsense("a Call took its argument along"))?;
        if answer.status() == Some(Status::Jukebox) && self.busy < BUSY_MAX {
            self.busy += 1;
            self.client.requester.pause(BUSY_PAUSE);
            return self.send(offset, lease);
        }
        self.busy = 0;
        let Written { count, committed, verifier, .. } = match answer.results(Procedure::Write)? {
            Results::Write(Ok(written)) => written,
            other => return Err(Error::of(&other)),
        };
        let length = count as usize;
        if length == 0 || length > lease.len() {
            return Err(Error::Nonsense("a WRITE wrote nothing, or more than was sent"));
        }
        if length < lease.len() {
            // The server wrote less than was sent: the rest becomes a piece of its own.
            let mut rest = self.client.requester.lease(lease.len() - length)?;
            rest.bytes_mut().copy_from_slice(lease.bytes().get(length..).unwrap_or_default());
            self.send(offset + u64::from(count), rest)?;
            lease.set_len(length);
        }
        if committed == Stable::Unstable {
            self.pieces.push(Piece { offset, state: State::Written(lease, verifier) });
        } else {
            self.keep(lease);
        }
        Ok(())
    }

    /// Keeps a lease for another piece, if it is large enough.
    fn keep(&mut self, lease: Local) {
        let size = self.client.limits.write_max as usize;
        self.spare.extend(Some(lease).filter(|lease| lease.capacity() >= size));
    }

    fn under_way(&self) -> usize {
        self.pieces.iter().filter(|piece| matches!(piece.state, State::Sent(_))).count()
    }

    /// Waits for WRITEs that are no longer wanted, since their memory is exposed to the server.
    fn settle(&mut self) {
        self.pieces.retain(|piece| matches!(piece.state, State::Sent(_)));
        while !self.pieces.is_empty()
            && let Ok((token, _)) = self.client.requester.ended()
        {
            self.pieces.retain(|piece| !piece.is(token));
        }
    }
}

/// Fills memory from the source, up to the source's end. Returns the number of octets filled.
pub(super) fn fill(
    memory: &mut [u8],
    source: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(room) = memory.get_mut(filled..).filter(|room| !room.is_empty()) {
        match source(room) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Maximum number of WRITEs in flight.
pub(super) const WRITES: usize = 8;

/// Maximum number of pieces that are not committed.
pub(super) const PIECES: usize = 32;

/// Maximum number of COMMITs; more mean that the server keeps losing data.
pub(super) const COMMITS_MAX: u32 = 8;
