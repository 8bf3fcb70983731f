//! One connection: its life, and how it ends.
//!
//! # Normal operation
//!
//! `Connecting -> Requesting -> Open` at the active end, `Awaiting -> Asked -> Open` at the passive one.
//! What arrives is handled in `arrive`, what leaves in `depart`, connection setup in `setup`.
//!
//! # Recovery
//!
//! None. Whoever ends a connection says why in its segment and closes the socket, which the other notices;
//! what was sent before lies in the ring until then, whoever is gone.
//!
//! # Memory ownership
//!
//! At its end every registration is taken from the peer. Where the peer is copying at that moment, the
//! connection is quarantined: it keeps the views, and is not reported `Quiesced`, until the peer is done
//! or its process is gone.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use haulage_mr_pool::{Sink, Source};
use haulage_proto::iwarp::terminate::Fault;
use haulage_proto::time::Instant;
use haulage_proto::verbs::{ClaimedSegment, Exposure, Flags, Handle, Opcode, QpNum, Status, WrId};

use super::ended::{BAD_RING, Ended, MEMORY_LOST};
use super::nic::Nic;
use super::progress::Progress;
use super::receives::Filling;
use super::regions::Mapped;
use super::ring::{Consumer, Producer};
use super::setup::Setup;
use super::table::Registrations;
use crate::provider::DisconnectReason;
use crate::sys::shared::Shared;
use crate::sys::unix::{Process, Stream};

/// A queue pair, and what it shares with the peer.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) qp: QpNum,
    pub(super) state: State,
    /// It is looked at in every poll; else the peer rings a doorbell.
    pub(super) hot: bool,
    /// What is in the ring now is left to be taken without Receives.
    pub(super) left_inline: bool,
    /// What was taken last was all there was, and one message.
    pub(super) came_alone: bool,
    /// The peer has closed the socket: nothing comes that is not in the ring yet.
    pub(super) over: bool,
    /// A message waits for a Receive.
    pub(super) starved: bool,
    /// It is on the provider's list of those who are given another look with the next Receive.
    pub(super) listed: bool,
    /// Our ring, and the table of what we expose.
    pub(super) producer: Option<Producer>,
    /// The peer's.
    pub(super) consumer: Option<Consumer>,
    /// The peer's memory, where it exposes any.
    pub(super) region: Option<Mapped>,
    /// Our region was passed to the peer.
    pub(super) exposes: bool,
    pub(super) registrations: Registrations,
    /// What could not be carried out yet, oldest first.
    pub(super) pending: VecDeque<Entry>,
    /// The Receive that a message in parts fills.
    pub(super) filling: Option<Filling>,
    pub(super) progress: Progress,
    pub(super) ord: u32,
    pub(super) ird: u32,
    pub(super) socket: Option<Stream>,
    /// Until the connection is open.
    pub(super) setup: Option<Box<Setup>>,
    /// Tells when the peer is gone, in quarantine.
    process: Option<Process>,
    pub(super) deadline: Option<Instant>,
    /// When something last came.
    pub(super) heard: Instant,
}

/// A posted request that waits.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: WrId,
    pub(super) flags: Flags,
    pub(super) work: Work,
    /// Octets of it that were moved.
    pub(super) moved: usize,
}

/// What a request has to do, and the views it holds for it.
#[derive(Debug)]
pub(super) enum Work {
    Send { payload: Payload, invalidate: Option<Handle> },
    Write { payload: Payload, target: ClaimedSegment },
    Read { sink: Sink, source: ClaimedSegment },
    FastReg { handle: Handle, offset: u64, memory: Option<Exposure<Source, Sink>> },
    LocalInv { handle: Handle },
}

impl Work {
    pub(super) const fn opcode(&self) -> Opcode {
        match self {
            Self::Send { .. } => Opcode::Send,
            Self::Write { .. } => Opcode::Write,
            Self::Read { .. } => Opcode::Read,
            Self::FastReg { .. } => Opcode::FastReg,
            Self::LocalInv { .. } => Opcode::LocalInv,
        }
    }
}

/// What a Send or a Write carries.
#[derive(Debug)]
pub(super) enum Payload {
    View(Source),
    Copied(Box<[u8]>),
}

impl Payload {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::View(source) => source.bytes(),
            Self::Copied(bytes) => bytes,
        }
    }
}

/// The life of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The listener's queue is full.
    Connecting,
    /// Our question is out.
    Requesting,
    /// A peer's question is to come.
    Awaiting,
    /// It came; the application is to answer.
    Asked,
    /// Messages flow.
    Open,
    /// We close, once what was posted has left.
    Draining,
    /// It ended while the peer was copying.
    Quarantined,
    /// Nothing is left but the slot.
    Closed,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The socket is connected.
    Connected,
    /// The peer's question is complete.
    Requested,
    /// Both ends said yes.
    Agreed,
    /// The application closes.
    Close,
    /// Setup failed or was refused, or the connection is over, for whatever reason.
    Ended,
    /// The peer is done copying, or gone.
    Released,
}

impl State {
    /// The whole transition table; anything not listed changes nothing.
    pub(super) const fn on(self, step: Step) -> Option<Self> {
        use Step::{Agreed, Close, Connected, Ended, Released, Requested};
        Some(match (self, step) {
            (Self::Connecting, Connected) => Self::Requesting,
            (Self::Awaiting, Requested) => Self::Asked,
            (Self::Requesting | Self::Asked, Agreed) => Self::Open,
            (Self::Open, Close) => Self::Draining,
            (Self::Connecting | Self::Requesting | Self::Awaiting | Self::Asked, Close | Ended) => {
                Self::Closed
            }
            (Self::Open | Self::Draining, Ended) => Self::Quarantined,
            (Self::Quarantined, Released) => Self::Closed,
            _ => return None,
        })
    }

    /// Returns whether the queue pair holds views and owes completions.
    #[inline]
    pub(super) const fn is_live(self) -> bool {
        matches!(self, Self::Open | Self::Draining)
    }
}

impl Connection {
    pub(super) fn new(qp: QpNum, socket: Option<Stream>, state: State, setup: Setup) -> Self {
        Self {
            qp,
            state,
            hot: false,
            left_inline: false,
            came_alone: false,
            over: false,
            starved: false,
            listed: false,
            producer: None,
            consumer: None,
            region: None,
            exposes: false,
            registrations: Registrations::default(),
            pending: VecDeque::new(),
            filling: None,
            progress: Progress::default(),
            ord: 0,
            ird: 0,
            socket,
            setup: Some(Box::new(setup)),
            process: None,
            deadline: None,
            heard: Instant::ZERO,
        }
    }

    /// Sets the deadline `after` from now.
    pub(super) fn set_deadline(&mut self, nic: &mut Nic, after: Duration) {
        let deadline = nic.now.saturating_add(after);
        self.deadline = Some(deadline);
        nic.deadlines.push((deadline, self.qp));
    }

    /// Moves on, if the table knows the step from here.
    pub(super) fn step(&mut self, step: Step) -> bool {
        let next = self.state.on(step);
        self.state = next.unwrap_or(self.state);
        next.is_some()
    }

    /// Starts to close in order.
    pub(super) fn close(&mut self, nic: &mut Nic) {
        if self.step(Step::Close) {
            self.set_deadline(nic, nic.config.close_timeout);
            self.pump(nic);
        }
    }

    /// Ends the connection because the peer broke a rule, and tells it which.
    #[cold]
    pub(super) fn fault(&mut self, nic: &mut Nic, fault: Fault) {
        nic.link.faults += 1;
        self.end(
            nic,
            Ended::YouBroke(fault.code()),
            DisconnectReason::PeerMisbehaved(fault.rule()),
            None,
        );
    }

    /// Ends the connection if memory that it shares with the peer lost pages.
    #[cold]
    pub(super) fn end_if_broken(&mut self, nic: &mut Nic) {
        if self.state.is_live() && self.is_broken() {
            nic.link.faults += 1;
            let reason = DisconnectReason::PeerMisbehaved(MEMORY_LOST);
            self.end(nic, Ended::YouBroke(BAD_RING.code()), reason, None);
        }
    }

    fn is_broken(&self) -> bool {
        let ours = self.producer.as_ref().map(|producer| producer.segment().memory());
        let theirs = self.consumer.as_ref().map(|consumer| consumer.segment().memory());
        let region = self.region.as_ref().map(Mapped::memory);
        [ours, theirs, region].into_iter().flatten().any(Shared::is_broken)
    }

    /// Ends the connection: says so to the peer, drops every view but those of memory the peer is
    /// copying from or to, and reports it, `failed` being how the oldest request that was not carried
    /// out failed, if it was not just flushed.
    #[cold]
    pub(super) fn end(
        &mut self,
        nic: &mut Nic,
        word: Ended,
        reason: DisconnectReason,
        failed: Option<(WrId, Opcode, Status)>,
    ) {
        if !self.state.is_live() {
            return;
        }
        self.step(Step::Ended);
        nic.disconnected(self.qp, reason);
        if let Some(filling) = self.filling.take() {
            nic.receives.put_back(filling);
        }
        if let Some((id, opcode, status)) = failed {
            nic.fail(self.qp, id, opcode, status);
        }
        for Entry { id, work, .. } in std::mem::take(&mut self.pending) {
            let opcode = work.opcode();
            drop(work);
            nic.fail(self.qp, id, opcode, Status::Flushed);
        }
        let released = self.withdraw(nic, word);
        // What was the peer's is no longer needed; in quarantine it tells when it is gone.
        (self.consumer, self.region) = (None, None);
        if let Some(socket) = self.socket.take() {
            if !released {
                self.process = socket.peer_process().ok();
            }
            socket.shutdown();
        }
        (self.hot, self.deadline) = (false, None);
        if released {
            self.release(nic);
        } else {
            nic.link.quarantines += 1;
            nic.quarantined.push(self.qp);
        }
    }

    /// Takes what we expose from the peer; returns whether it was not copying.
    fn withdraw(&mut self, nic: &mut Nic, word: Ended) -> bool {
        let Some(producer) = &self.producer else { return true };
        // Told first: a peer that is refused after this knows why.
        producer.segment().ended().store(word.encode(), Ordering::SeqCst);
        let (freed, all) = self.registrations.retire_all(producer.segment());
        nic.registrations -= freed;
        all
    }

    /// Looks whether a quarantined connection can go; returns whether it did.
    pub(super) fn try_release(&mut self, nic: &mut Nic) -> bool {
        if self.state != State::Quarantined {
            return true;
        }
        if let Some(producer) = &self.producer {
            let (freed, all) = self.registrations.retire_all(producer.segment());
            nic.registrations -= freed;
            if !all {
                if !self.process.as_ref().is_some_and(Process::is_gone) {
                    return false;
                }
                nic.registrations -= self.registrations.abandon();
            }
        }
        self.release(nic);
        true
    }

    fn release(&mut self, nic: &mut Nic) {
        self.step(Step::Released);
        (self.producer, self.process) = (None, None);
        nic.quiesced(self.qp);
        nic.closed.push(self.qp);
    }

    /// Drops what is left when the provider goes. Memory the peer is copying from or to is nobody's
    /// ever again.
    pub(super) fn abandon(&mut self, nic: &mut Nic) {
        if !self.withdraw(nic, Ended::Closed) {
            self.registrations.leak();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 8] = {
        use State::*;
        [Connecting, Requesting, Awaiting, Asked, Open, Draining, Quarantined, Closed]
    };
    const STEPS: [Step; 6] = {
        use Step::*;
        [Connected, Requested, Agreed, Close, Ended, Released]
    };

    const MATRIX: &str = "
            Connected   Requested   Agreed      Close       Ended       Released
Connecting  Requesting  -           -           Closed      Closed      -
Requesting  -           -           Open        Closed      Closed      -
Awaiting    -           Asked       -           Closed      Closed      -
Asked       -           -           Open        Closed      Closed      -
Open        -           -           -           Draining    Quarantined -
Draining    -           -           -           -           Quarantined -
Quarantined -           -           -           -           -           Closed
Closed      -           -           -           -           -           -
";

    #[test]
    fn the_whole_table_is_as_reviewed() {
        let row = |head: String, cells: Vec<String>| {
            let cells: String = cells.iter().map(|cell| format!("{cell:<12}")).collect();
            format!("{head:<12}{cells}").trim_end().to_owned() + "\n"
        };
        let mut matrix =
            format!("\n{}", row(String::new(), STEPS.map(|s| format!("{s:?}")).into()));
        for state in STATES {
            let next = |step| state.on(step).map_or("-".to_owned(), |next| format!("{next:?}"));
            matrix += &row(format!("{state:?}"), STEPS.map(next).into());
        }
        assert_eq!(matrix, MATRIX, "{matrix}");
    }

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 1024, "{}", size_of::<Connection>());
    }
}
