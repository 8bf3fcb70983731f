//! The callback program of NFS version 4.1 (RFC 8881 section 20), as far as a client needs it that holds delegations for
//! reading.
//!
//! It is the other end of one session with one server. Whatever else the server calls is refused, and told as
//! [`Told::Odd`].

use std::fmt;
use std::sync::mpsc::Sender;

use haulage::core::{Cx, Service};
use haulage::service::{Binding, Call, Outcome, Procedure, Program, Reply};
use haulage_proto::rpc::AcceptStat;
use haulage_proto::xdr::{Reader, Truncated, Writer};

/// The client's half of a session's back channel, as a service. It tells what the server calls.
#[derive(Debug)]
pub struct Callbacks {
    manner: Manner,
    slots: Slots,
    told: Sender<Told>,
}

/// Whether callbacks are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Each callback is answered at once.
    Answers,
    /// No callback is ever answered.
    Silent,
}

/// A Call of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// `CB_NULL`.
    Null,
    /// `CB_COMPOUND`, from a caller of this authentication flavor.
    Compound(u32, Compound),
    /// Any other Call, and the reason why it was refused.
    Odd(String),
}

/// `CB_COMPOUND`: one operation behind `CB_SEQUENCE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compound {
    /// The session.
    pub session: [u8; 16],
    /// The slot of the session.
    pub slot: u32,
    /// The number of the request among those of its slot.
    pub sequence: u32,
    /// The operation.
    pub operation: Operation,
}

/// An operation of a callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// `CB_RECALL`: the server wants one delegation back.
    Recall {
        /// The delegation.
        stateid: [u8; 16],
        /// The handle of the file.
        file: Vec<u8>,
    },
    /// `CB_RECALL_ANY`: the server wants the client to return delegations of its choice.
    RecallAny {
        /// The number of delegations that the client may keep.
        keep: u32,
    },
}

/// The slots of a session's back channel, each with the number of its last request.
#[derive(Clone, Debug)]
pub struct Slots(Vec<u32>);

impl Callbacks {
    /// Makes the back channel of a session with `slots` slots.
    pub fn new(manner: Manner, slots: u32, told: Sender<Told>) -> Self {
        Self { manner, slots: Slots::new(slots), told }
    }

    /// Tells what was called. If nobody listens any more, nobody wants to know.
    fn tell(&self, told: Told) {
        let _ = self.told.send(told);
    }
}

impl Service for Callbacks {
    fn call(&mut self, _: &mut Cx<'_>, call: Call<'_>, reply: &mut Reply) -> Outcome {
        let Call { procedure, credential, arguments, .. } = call;
        let (arguments, _) = arguments.into_parts();
        let compound = match procedure {
            CB_NULL if arguments.is_empty() => None,
            CB_NULL => Some(Err("CB_NULL with arguments".to_owned())),
            _ => Some(Compound::decode(arguments.rest())),
        };
        let taken = compound.map(|compound| {
            let compound = compound?;
            self.slots.take(&compound).map(|()| compound)
        });
        let outcome = match (&taken, self.manner) {
            (Some(Err(_)), _) => Outcome::Failed(AcceptStat::GarbageArgs),
            (_, Manner::Silent) => Outcome::Later,
            (None, Manner::Answers) => Outcome::Done,
            (Some(Ok(compound)), Manner::Answers) => {
                reply.results(|w| self.slots.encode_results(compound, w));
                Outcome::Done
            }
        };
        self.tell(match taken {
            None => Told::Null,
            Some(Ok(compound)) => Told::Compound(credential.flavor(), compound),
            Some(Err(why)) => Told::Odd(why),
        });
        outcome
    }
}

impl Compound {
    /// Parses the arguments of `CB_COMPOUND`.
    ///
    /// # Errors
    /// The arguments are malformed, or of operations that are not served here.
    pub fn decode(arguments: &[u8]) -> Result<Self, String> {
        let mut r = Reader::new(arguments);
        let front = front(&mut r).map_err(|e| format!("CB_COMPOUND: {e}"))?;
        let [minor, _callback, 2, CB_SEQUENCE] = front else {
            return Err(format!("CB_COMPOUND begins with {front:?}"));
        };
        if minor != 1 {
            return Err(format!("CB_COMPOUND of minor version {minor}"));
        }
        let parsed = Self::decode_operations(&mut r).map_err(|e| format!("CB_COMPOUND: {e}"))?;
        let compound = parsed.map_err(|code| format!("CB_COMPOUND with operation {code}"))?;
        if r.is_empty() { Ok(compound) } else { Err("CB_COMPOUND goes on".to_owned()) }
    }

    /// Parses the arguments of `CB_SEQUENCE`, and the operation behind it. Returns its number if it is not known.
    fn decode_operations(r: &mut Reader<'_>) -> Result<Result<Self, u32>, Truncated> {
        let (session, sequence, slot) = (r.array()?, r.u32()?, r.u32()?);
        let [_highest_slot, _cache, _referring_lists] = [r.u32()?, r.u32()?, r.u32()?];
        let operation = match r.u32()? {
            CB_RECALL => {
                let (stateid, _truncates) = (r.array()?, r.u32()?);
                Operation::Recall { stateid, file: r.opaque(HANDLE_MAX)?.to_vec() }
            }
            CB_RECALL_ANY => {
                let keep = r.u32()?;
                for _ in 0..r.u32()? {
                    r.u32()?;
                }
                Operation::RecallAny { keep }
            }
            other => return Ok(Err(other)),
        };
        Ok(Ok(Self { session, slot, sequence, operation }))
    }
}

/// Takes the tag, which is not looked at. Returns minor version, `callback_ident`, number of operations and the first one.
fn front(r: &mut Reader<'_>) -> Result<[u32; 4], Truncated> {
    r.opaque(TAG_MAX)?;
    Ok([r.u32()?, r.u32()?, r.u32()?, r.u32()?])
}

impl Slots {
    /// Makes the slots of a new session.
    pub fn new(count: u32) -> Self {
        Self((0..count).map(|_| 0).collect())
    }

    /// Counts a request.
    ///
    /// # Errors
    /// There is no such slot, or the request is not the next one of its slot.
    pub fn take(&mut self, compound: &Compound) -> Result<(), String> {
        let Compound { slot, sequence, .. } = *compound;
        let last = usize::try_from(slot).ok().and_then(|slot| self.0.get_mut(slot));
        let last = last.ok_or_else(|| format!("CB_SEQUENCE for slot {slot}"))?;
        if sequence != last.wrapping_add(1) {
            return Err(format!("CB_SEQUENCE has number {sequence} after {last}"));
        }
        *last = sequence;
        Ok(())
    }

    /// Appends the results of a request that succeeds.
    pub fn encode_results(&self, of: &Compound, w: &mut Writer<'_>) -> Result<(), Truncated> {
        // The status, an empty tag, and the results of two operations, each with its own status.
        w.words([NFS4_OK, 0, 2, CB_SEQUENCE, NFS4_OK])?;
        w.put(of.session)?;
        let highest = u32::try_from(self.0.len()).unwrap_or(u32::MAX).saturating_sub(1);
        w.words([of.sequence, of.slot, highest, highest])?;
        w.words([of.operation.code(), NFS4_OK])
    }
}

impl Operation {
    const fn code(&self) -> u32 {
        match self {
            Self::Recall { .. } => CB_RECALL,
            Self::RecallAny { .. } => CB_RECALL_ANY,
        }
    }
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("CB_NULL"),
            Self::Odd(why) => f.write_str(why),
            Self::Compound(flavor, Compound { slot, sequence, operation, .. }) => {
                let name = match operation {
                    Operation::Recall { .. } => "CB_RECALL",
                    Operation::RecallAny { .. } => "CB_RECALL_ANY",
                };
                write!(f, "{name}, number {sequence} of slot {slot}, flavor {flavor}")
            }
        }
    }
}

/// Returns the binding of the callback program, which reduces nothing.
pub fn binding() -> Binding {
    let null = Procedure::new("CB_NULL").results_max(0).idempotent();
    let compound = Procedure::new("CB_COMPOUND").results_max(RESULTS_MAX);
    Binding { program: PROGRAM, version: VERSION, procedures: vec![null, compound] }
}

/// Returns the callback program, to be served on a connection to the server.
pub fn program() -> Program {
    Program::new(binding())
}

/// The number of the callback program, which the client chooses.
pub const PROGRAM: u32 = 0x4000_0000;
/// The version of the callback program.
pub const VERSION: u32 = 1;

const CB_NULL: u32 = 0;
const CB_RECALL: u32 = 4;
const CB_RECALL_ANY: u32 = 8;
const CB_SEQUENCE: u32 = 11;
const NFS4_OK: u32 = 0;
const TAG_MAX: usize = 1024;
const HANDLE_MAX: usize = 128;
/// Octets of the results of [`Slots::encode_results`].
const RESULTS_MAX: u32 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    use haulage_proto::rpc::{CallHeader, ReplyHeader};
    use haulage_proto::v1::header::{Message, decode};
    use haulage_test_support::hex::vectors;

    /// Returns the RPC message of a captured message.
    fn captured(name: &str) -> Vec<u8> {
        let all = vectors(include_str!("../../proto/vectors/v1/reverse.hex"));
        let (_, octets) = all.into_iter().find(|(of, _)| of == name).unwrap();
        let Ok(Message::Msg(rpc)) = decode(&octets) else { panic!("{name}") };
        rpc.payload.to_vec()
    }

    fn arguments(call: &[u8]) -> &[u8] {
        let (header, at) = CallHeader::decode(call).unwrap();
        let of = (header.program, header.version, header.procedure);
        assert_eq!(of, (PROGRAM, VERSION, 1));
        &call[at..]
    }

    #[test]
    fn what_linux_called_is_answered_as_linux_answered_it() {
        let mut slots = Slots::new(16);
        for name in ["recall_any", "recall"] {
            let call = captured(&format!("{name}_call"));
            let compound = Compound::decode(arguments(&call)).unwrap();
            slots.take(&compound).unwrap();
            let mut room = [0xee; RESULTS_MAX as usize];
            let mut w = Writer::new(&mut room);
            slots.encode_results(&compound, &mut w).unwrap();
            let reply = captured(&format!("{name}_reply"));
            let (_, at) = ReplyHeader::decode(&reply).unwrap();
            assert_eq!(w.written(), &reply[at..], "{name}");
        }
    }

    #[test]
    fn a_recall_names_delegation_and_file() {
        let compound = Compound::decode(arguments(&captured("recall_call"))).unwrap();
        let session = *b"\xc0\xf4\x00\x6b\xb6\x76\x8c\x85\x01\0\0\0\0\0\0\0";
        let stateid = *b"\0\0\0\x01\xc0\xf4\x00\x6b\xb6\x76\x8c\x85\x16\0\0\0";
        let file = b"\x01\0\x01\x01\0\0\0\0\x31\xb5\x3b\xde\x44\0\0\0\0\0\0\0".to_vec();
        let operation = Operation::Recall { stateid, file };
        assert_eq!(compound, Compound { session, slot: 0, sequence: 2, operation });
    }

    #[test]
    fn what_is_cut_or_goes_on_or_is_repeated_is_refused() {
        let call = captured("recall_call");
        let whole = arguments(&call);
        for length in 0..whole.len() {
            assert!(Compound::decode(&whole[..length]).is_err(), "{length} octets");
        }
        let more = [whole, &[0; 4]].concat();
        assert_eq!(Compound::decode(&more), Err("CB_COMPOUND goes on".to_owned()));
        let mut other = whole.to_vec();
        other[7] = 2;
        assert_eq!(Compound::decode(&other), Err("CB_COMPOUND of minor version 2".to_owned()));

        let mut slots = Slots::new(1);
        let compound = Compound::decode(whole).unwrap();
        let first = Compound { sequence: 1, ..compound.clone() };
        assert!(slots.take(&compound).is_err());
        assert_eq!([&first, &compound].map(|next| slots.take(next)), [Ok(()), Ok(())]);
        assert!(slots.take(&compound).is_err());
        assert!(slots.take(&Compound { slot: 1, ..first }).is_err());
    }
}
