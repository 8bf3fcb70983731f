//! Reading a file: several READs are in flight, and their data is delivered in order.

use std::collections::VecDeque;
use std::io;

use haulage::pool::Local;
use haulage_proto::chunk::Item;

use super::requester::{BUSY_MAX, BUSY_PAUSE};
use super::{Answer, Client, Error, File, Items, Requester};
use crate::nfs3::arguments::Read;
use crate::nfs3::{Arguments, Procedure, Results, Status};

impl<R: Requester> Client<R> {
    /// Reads a whole file, whose end is expected at `size`, and passes its octets to `sink` in order, without a copy.
    /// Returns the number of octets.
    ///
    /// # Errors
    /// The server refuses, or `sink` does.
    pub fn read(
        &mut self,
        file: &File,
        size: u64,
        mut sink: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> Result<u64, Error> {
        let mut transfer = Transfer {
            client: self,
            file: *file,
            size,
            next: 0,
            pieces: VecDeque::new(),
            spare: Vec::new(),
            busy: 0,
        };
        let outcome = transfer.run(&mut sink);
        transfer.settle();
        outcome
    }
}

struct Transfer<'c, R> {
    client: &'c mut Client<R>,
    file: File,
    /// The expected end of the file.
    size: u64,
    /// The offset of the next piece.
    next: u64,
    /// The pieces requested and not yet passed to the sink, in order.
    pieces: VecDeque<Piece>,
    /// Free leases for pieces.
    spare: Vec<Local>,
    /// Number of consecutive busy Replies.
    busy: u32,
}

struct Piece {
    offset: u64,
    count: u32,
    state: State,
}

impl Piece {
    /// Returns whether this piece's Call is in flight and has this token.
    fn is(&self, token: u64) -> bool {
        matches!(self.state, State::Asked(asked) if asked == token)
    }
}

enum State {
    /// The READ is in flight, with this token.
    Asked(u64),
    Arrived(Answer),
}

impl<R: Requester> Transfer<'_, R> {
    fn run(&mut self, sink: &mut impl FnMut(&[u8]) -> io::Result<()>) -> Result<u64, Error> {
        let mut total = 0;
        loop {
            self.fill()?;
            while let Some(Piece { state: State::Arrived(_), .. }) = self.pieces.front() {
                let Some(piece) = self.pieces.pop_front() else { break };
                let (offset, count) = (piece.offset, piece.count);
                let State::Arrived(answer) = piece.state else { break };
                let (length, eof) = taken(&answer, count, sink)?;
                self.spare.extend(answer.items.result);
                total += u64::from(length);
                if eof {
                    return Ok(total);
                }
                if length < count {
                    // The server returned less than asked for: request the rest before later pieces.
                    let rest = self.ask(offset + u64::from(length), count - length)?;
                    self.pieces.push_front(rest);
                }
            }
            if !self.pieces.is_empty() {
                self.wait()?;
            }
        }
    }

    /// Requests pieces up to the expected end. Once all have arrived, requests one beyond it: only the server knows
    /// where the file ends.
    fn fill(&mut self) -> Result<(), Error> {
        while self.pieces.is_empty() || (self.pieces.len() < READS && self.next < self.size) {
            let left = self.size.saturating_sub(self.next).max(u64::from(PIECE_MIN));
            let count = u32::try_from(left).unwrap_or(u32::MAX).min(self.client.limits.read_max);
            let piece = self.ask(self.next, count)?;
            self.pieces.push_back(piece);
            self.next += u64::from(count);
        }
        Ok(())
    }

    fn ask(&mut self, offset: u64, count: u32) -> Result<Piece, Error> {
        let requester = &mut self.client.requester;
        let mut lease = match self.spare.pop() {
            Some(lease) if lease.capacity() >= count as usize => lease,
            _ => requester.lease(count as usize)?,
        };
        lease.set_len(count as usize);
        let arguments = Arguments::Read(Read { file: self.file.handle(), offset, count });
        let items = Items { argument: None, result: Some(lease) };
        let token = requester.begin(&arguments, items)?;
        Ok(Piece { offset, count, state: State::Asked(token) })
    }

    /// Waits until one of the READs ends.
    fn wait(&mut self) -> Result<(), Error> {
        let (token, outcome) = self.client.requester.ended()?;
        let at = self.pieces.iter().position(|piece| piece.is(token));
        let Some(at) = at else { return Ok(()) };
        let answer = outcome.inspect_err(|_| _ = self.pieces.remove(at))?;
        let piece = if answer.status() == Some(Status::Jukebox) && self.busy < BUSY_MAX {
            self.busy += 1;
            self.client.requester.pause(BUSY_PAUSE);
            self.ask(self.pieces[at].offset, self.pieces[at].count)?
        } else {
            self.busy = 0;
            Piece { state: State::Arrived(answer), ..self.pieces[at] }
        };
        self.pieces[at] = piece;
        Ok(())
    }

    /// Waits for READs that are no longer wanted, since their memory is exposed to the server.
    fn settle(&mut self) {
        self.pieces.retain(|piece| matches!(piece.state, State::Asked(_)));
        while !self.pieces.is_empty()
            && let Ok((token, _)) = self.client.requester.ended()
        {
            self.pieces.retain(|piece| !piece.is(token));
        }
    }
}

/// Passes the data of one READ of at most `count` octets to the sink. Returns its length, and whether the file ends
/// after it.
fn taken(
    answer: &Answer,
    count: u32,
    sink: &mut impl FnMut(&[u8]) -> io::Result<()>,
) -> Result<(u32, bool), Error> {
    let contents = match answer.results(Procedure::Read)? {
        Results::Read(Ok(contents)) => contents,
        other => return Err(Error::of(&other)),
    };
    let octets = match contents.data.0 {
        Item::Unreduced(octets) => Some(octets),
        Item::Reduced { length } => {
            let written = answer.items.result.as_ref().map(Local::bytes).unwrap_or_default();
            usize::try_from(length).ok().and_then(|length| written.get(..length))
        }
    };
    let octets = octets.filter(|octets| octets.len() == contents.count as usize);
    let octets = octets.filter(|octets| octets.len() <= count as usize);
    let octets = octets.ok_or(Error::Nonsense("a READ returned another length than announced"))?;
    if octets.is_empty() && !contents.eof {
        return Err(Error::Nonsense("a READ returned no data before the end of the file"));
    }
    sink(octets).map_err(Error::Local)?;
    Ok((contents.count, contents.eof))
}

/// Maximum number of READs in flight.
pub(super) const READS: usize = 8;

/// Octets requested beyond the expected end of the file.
const PIECE_MIN: u32 = 1024;
