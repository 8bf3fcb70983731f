//! Replies that wait until what they rest on is on stable storage.
//!
//! # Normal operation
//! A Call that changes names, or attributes, may be answered at once because of what another Call has changed, which waits
//! for stable storage itself: a CREATE finds the file, a REMOVE finds no such name. If the system crashed then, that would
//! not hold any more. So the Reply waits, too. Its results are those of when the Call was executed.
//!
//! # Limits
//! The backend bounds the Calls that wait.

use haulage_mr_pool::Local;

use super::parked::changes;
use super::{Answer, LateReply, Service};
use crate::backend::{Backend, Context, Finished, Ticket};
use crate::handle::FileId;
use crate::nfs3::results::Made;
use crate::nfs3::{Arguments, FileHandle, Procedure, Results, Status};

impl<B: Backend> Service<B> {
    /// Executes a Call whose files are at hand, and holds its Reply back until what it rests on is on stable storage.
    pub(super) fn carry_out(
        &mut self,
        cx: &Context<'_>,
        arguments: Arguments<'_>,
        placed: Option<Local>,
        room: usize,
    ) -> Answer<'_> {
        let procedure = arguments.procedure();
        // A WRITE promises its octets alone.
        if !changes(procedure) || procedure == Procedure::Write {
            return self.execute(cx, arguments, placed, room);
        }
        let [first, second] =
            arguments.files().map(|file| file.and_then(|file| self.claimed(file)));
        if ![first, second].into_iter().flatten().any(|file| self.backend.is_unsettled(file)) {
            return self.execute(cx, arguments, placed, room);
        }
        let ticket = self.ticket();
        self.resumed = Some(ticket);
        let answer = self.execute(cx, arguments, placed, room);
        let (found, reply) = match answer {
            Answer::Later(ticket) => return Answer::Later(ticket),
            Answer::Now(reply) => {
                let found = match &reply.results {
                    Results::Create(Ok(Made { file: Some(file), .. })) => {
                        Some(file.bytes().to_vec())
                    }
                    _ => None,
                };
                (found, LateReply::of(procedure, &reply.results))
            }
        };
        self.resumed = None;
        let found = found.and_then(|found| self.claimed(FileHandle::new(&found)?));
        self.hold(ticket, [first, second, found], (procedure, reply))
    }

    /// Holds a Reply back until what was changed of these files is on stable storage.
    fn hold(
        &mut self,
        ticket: Ticket,
        files: [Option<FileId>; 3],
        (procedure, reply): (Procedure, LateReply),
    ) -> Answer<'static> {
        match self.backend.settle(ticket, files) {
            Ok(()) => {
                self.held.insert(ticket, (procedure, reply));
                Answer::Later(ticket)
            }
            Err(status) => Answer::Now(Results::refusal(procedure, status).into()),
        }
    }

    /// Takes in that what a Reply rests on is on stable storage, or cannot be. Returns the Reply, if it was held back.
    pub(super) fn finish_held(&mut self, ticket: Ticket, finished: &Finished) -> Option<LateReply> {
        let Finished::Changed(_, ended) = finished else { return None };
        let (procedure, reply) = self.held.remove(&ticket)?;
        let refusal = |status: Status| Results::refusal(procedure, status).into();
        Some(ended.map_or_else(refusal, |()| reply))
    }

    /// Returns the file that a handle claims to name. A forged one is refused when the Call is executed.
    fn claimed(&self, handle: FileHandle<'_>) -> Option<FileId> {
        self.sealer.peek(handle)
    }
}
