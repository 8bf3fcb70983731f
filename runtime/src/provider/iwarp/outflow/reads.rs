//! RDMA Reads: the peer's, which are answered, and ours, which the peer answers.

use haulage_mr_pool::StagFault;
use haulage_proto::iwarp::mpa::handshake::Rtr;
use haulage_proto::iwarp::rdmap::ReadRequest;
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::verbs::Status;

use super::Outflow;
use crate::provider::iwarp::life::Life;
use crate::provider::iwarp::nic::Nic;
use crate::provider::iwarp::transmit_queue::{OutstandingRead, Response};

impl Outflow {
    /// Takes a Read of the peer's, to be answered. `rtr` is the ready-to-receive indication that it may be.
    pub(in crate::provider::iwarp) fn on_read_request(
        &mut self,
        nic: &mut Nic,
        life: &mut Life,
        request: ReadRequest,
        rtr: Option<Rtr>,
    ) -> Result<(), Fault> {
        // A Read that opens the stream needs no grant (RFC 6581 section 4.3).
        let granted = if rtr == Some(Rtr::Read) { self.ird.max(1) } else { self.ird };
        // RFC 5040 section 5.2.2: a Read of no octets names no memory.
        if request.length > 0 {
            let (offset, length) = (request.source_offset, request.length as usize);
            nic.stags.source(request.source, life.qp(), offset, length).map_err(read_fault)?;
        }
        // The response may not wrap in the peer's sink either.
        request.sink_offset.checked_add(u64::from(request.length)).ok_or(Fault::ReadWrap)?;
        let queue = self.queue.get_or_insert_with(|| nic.lend_queue());
        if queue.unanswered() >= granted as usize {
            return Err(Fault::NoBuffer);
        }
        queue.responses.push_back(Response(request));
        life.unsettle(nic);
        Ok(())
    }

    /// Notes that the oldest Read of ours was answered. Returns the next, if there is one.
    pub(in crate::provider::iwarp) fn on_read_done(&mut self) -> Option<OutstandingRead> {
        let queue = self.queue.as_mut()?;
        self.answered += queue.on_read_done();
        queue.reads.front().copied()
    }

    /// Notes that the peer refused the oldest Read of ours.
    pub(in crate::provider::iwarp) const fn on_read_refused(&mut self) {
        self.read_status = Status::RemoteAccess;
    }

    /// Returns whether a Read of ours waits for its response.
    pub(in crate::provider::iwarp) fn has_reads(&self) -> bool {
        self.oldest_read().is_some()
    }

    /// Returns the Read of ours that the peer is to answer next.
    pub(super) fn oldest_read(&self) -> Option<OutstandingRead> {
        self.queue.as_ref().and_then(|queue| queue.reads.front()).copied()
    }
}

const fn read_fault(fault: StagFault) -> Fault {
    match fault {
        StagFault::InvalidStag => Fault::ReadStag,
        StagFault::NotYours => Fault::ReadNotAssociated,
        StagFault::AccessViolation => Fault::ReadAccess,
        StagFault::BaseOrBounds => Fault::ReadBounds,
        StagFault::OffsetWraps => Fault::ReadWrap,
    }
}
