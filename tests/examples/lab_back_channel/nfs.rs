//! The operations of NFS version 4.1 (RFC 8881, RFC 5662) that a client needs to hold a delegation.

use std::fmt;

use haulage_proto::xdr::{Reader, Truncated, Writer};

use haulage_tests::callback;

/// A stateid.
pub(crate) type Stateid = [u8; 16];
/// A session's name.
pub(crate) type SessionId = [u8; 16];

/// The operations of a COMPOUND.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    count: u32,
    octets: Vec<u8>,
}

/// The results of a COMPOUND.
#[derive(Debug)]
pub(crate) struct Results<'a>(Reader<'a>);

/// Why a COMPOUND did not bring what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An operation failed with this status.
    Status {
        /// The number of the operation.
        operation: u32,
        /// The number of the status.
        status: u32,
    },
    /// Anything else.
    Other(String),
}

/// The channel attributes of one direction of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Channel {
    /// The longest request, in octets.
    pub(crate) request_max: u32,
    /// The longest response, in octets.
    pub(crate) response_max: u32,
    /// The longest response that is kept, in octets.
    pub(crate) cached_max: u32,
    /// The most operations of a request.
    pub(crate) operations_max: u32,
    /// The number of slots.
    pub(crate) slots: u32,
}

/// A new session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Created {
    /// The name of the session.
    pub(crate) session: SessionId,
    /// The flags, such as [`BACK_CHANNEL`].
    pub(crate) flags: u32,
    /// The attributes of the back channel.
    pub(crate) back: Channel,
}

/// An open file.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The open state.
    pub(crate) stateid: Stateid,
    /// The delegation for reading, if there is one.
    pub(crate) delegation: Option<Stateid>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status { operation, status } => {
                write!(f, "operation {operation} ended with status {status}")
            }
            Self::Other(what) => f.write_str(what),
        }
    }
}

impl From<Truncated> for Fault {
    fn from(truncated: Truncated) -> Self {
        Self::Other(format!("results: {truncated}"))
    }
}

impl From<String> for Fault {
    fn from(what: String) -> Self {
        Self::Other(what)
    }
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.to_string()
    }
}

impl Operations {
    /// Appends an operation without arguments.
    pub(crate) fn plain(self, operation: u32) -> Self {
        self.with(operation, |_| Ok(()))
    }

    /// Appends `EXCHANGE_ID` of a client of this name.
    pub(crate) fn exchange_id(self, owner: &str) -> Self {
        self.with(EXCHANGE_ID, |w| {
            w.put(*b"one life")?;
            w.opaque(owner.as_bytes())?;
            // No flags, no state protection, no word about the implementation.
            w.words([0, 0, 0])
        })
    }

    /// Appends `CREATE_SESSION` with a back channel on the same connection.
    pub(crate) fn create_session(self, client: u64, sequence: u32) -> Self {
        self.with(CREATE_SESSION, |w| {
            w.u64(client)?;
            w.words([sequence, BACK_CHANNEL])?;
            for channel in [FORE, BACK] {
                let Channel { request_max, response_max, cached_max, operations_max, slots } =
                    channel;
                // Without a header pad, and without a number of RDMA Reads.
                w.words([0, request_max, response_max, cached_max, operations_max, slots, 0])?;
            }
            // One flavor for callbacks, AUTH_SYS: stamp, machine, user, group, no more groups.
            w.words([callback::PROGRAM, 1, 1, 0])?;
            w.opaque(b"lab")?;
            w.words([0, 0, 0])
        })
    }

    /// Appends `SEQUENCE` in the one slot.
    pub(crate) fn sequence(self, session: SessionId, sequence: u32) -> Self {
        self.with(SEQUENCE, |w| {
            w.put(session)?;
            w.words([sequence, 0, 0, 0])
        })
    }

    /// Appends `RECLAIM_COMPLETE` for all file systems.
    pub(crate) fn reclaim_complete(self) -> Self {
        self.with(RECLAIM_COMPLETE, |w| w.u32(0))
    }

    /// Appends `OPEN` of an existing file by name.
    pub(crate) fn open(self, owner: &str, share: u32, name: &str) -> Self {
        self.with(OPEN, |w| {
            // No sequence number; nothing is denied to others; the session tells the client.
            w.words([0, share, 0, 0, 0])?;
            w.opaque(owner.as_bytes())?;
            // OPEN4_NOCREATE, CLAIM_NULL.
            w.words([0, 0])?;
            w.opaque(name.as_bytes())
        })
    }

    /// Appends `CLOSE`.
    pub(crate) fn close(self, stateid: Stateid) -> Self {
        self.with(CLOSE, |w| {
            w.u32(0)?;
            w.put(stateid)
        })
    }

    /// Appends an operation on a file handle: `PUTFH`.
    pub(crate) fn put_handle(self, file: &[u8]) -> Self {
        self.with(PUTFH, |w| w.opaque(file))
    }

    /// Appends an operation whose one argument is a stateid or a session: `DELEGRETURN`, `FREE_STATEID`,
    /// `DESTROY_SESSION`.
    pub(crate) fn named(self, operation: u32, name: [u8; 16]) -> Self {
        self.with(operation, |w| w.put(name))
    }

    /// Appends `DESTROY_CLIENTID`.
    pub(crate) fn destroy_client(self, client: u64) -> Self {
        self.with(DESTROY_CLIENTID, |w| w.u64(client))
    }

    /// Appends the arguments of COMPOUND to `w`.
    pub(crate) fn encode(&self, w: &mut Writer<'_>) -> Result<(), Truncated> {
        // No tag, minor version 1.
        w.words([0, 1, self.count])?;
        w.put(&self.octets)
    }

    fn with(
        mut self,
        operation: u32,
        encode: impl FnOnce(&mut Writer<'_>) -> Result<(), Truncated>,
    ) -> Self {
        let mut room = [0; OPERATION_MAX];
        let mut w = Writer::new(&mut room);
        let encoded = w.u32(operation).and_then(|()| encode(&mut w));
        assert!(encoded.is_ok(), "operation {operation} is short");
        self.octets.extend(w.written());
        self.count += 1;
        self
    }
}

impl<'a> Results<'a> {
    /// Begins with the results of a COMPOUND. Whether all of it succeeded the operations tell.
    pub(crate) fn new(octets: &'a [u8]) -> Result<Self, Fault> {
        let mut r = Reader::new(octets);
        let _status = r.u32()?;
        r.opaque(OPERATION_MAX)?;
        let _count = r.u32()?;
        Ok(Self(r))
    }

    /// Takes the status of the next operation, which has to be success.
    pub(crate) fn of(&mut self, operation: u32) -> Result<&mut Self, Fault> {
        match (self.0.u32()?, self.0.u32()?) {
            (of, 0) if of == operation => Ok(self),
            (operation, status) if status != 0 => Err(Fault::Status { operation, status }),
            (other, _) => Err(Fault::Other(format!("results of {other} instead of {operation}"))),
        }
    }

    /// Takes the results of `EXCHANGE_ID`: the client's name, and the number of its first request.
    pub(crate) fn exchange_id(&mut self) -> Result<(u64, u32), Fault> {
        let r = &mut self.of(EXCHANGE_ID)?.0;
        Ok((r.u64()?, r.u32()?))
    }

    /// Takes the results of `CREATE_SESSION`.
    pub(crate) fn create_session(&mut self) -> Result<Created, Fault> {
        let r = &mut self.of(CREATE_SESSION)?.0;
        let (session, _sequence, flags) = (r.array()?, r.u32()?, r.u32()?);
        let [_fore, back] = [channel(r)?, channel(r)?];
        Ok(Created { session, flags, back })
    }

    /// Takes the results of `SEQUENCE`: the status flags.
    pub(crate) fn sequence(&mut self) -> Result<u32, Fault> {
        let r = &mut self.of(SEQUENCE)?.0;
        r.take(SESSION_AND_SLOT)?;
        Ok(r.u32()?)
    }

    /// Takes the results of `OPEN`.
    pub(crate) fn open(&mut self) -> Result<Opened, Fault> {
        let r = &mut self.of(OPEN)?.0;
        let stateid = r.array()?;
        r.take(CHANGE_AND_FLAGS)?;
        for _ in 0..r.u32()? {
            r.u32()?;
        }
        let delegation = match r.u32()? {
            DELEGATED_NONE => None,
            DELEGATED_READ => {
                let (delegation, _recalled) = (r.array()?, r.u32()?);
                // What the delegation permits, and to whom.
                r.take(ACCESS_ENTRY)?;
                r.opaque(OPERATION_MAX)?;
                Some(delegation)
            }
            DELEGATED_NONE_BECAUSE => {
                let why = r.u32()?;
                if let CONTENTION | RESOURCE = why {
                    r.u32()?;
                }
                None
            }
            other => return Err(Fault::Other(format!("a delegation of kind {other}"))),
        };
        Ok(Opened { stateid, delegation })
    }

    /// Takes the results of `GETFH`.
    pub(crate) fn handle(&mut self) -> Result<Vec<u8>, Fault> {
        Ok(self.of(GETFH)?.0.opaque(HANDLE_MAX)?.to_vec())
    }
}

fn channel(r: &mut Reader<'_>) -> Result<Channel, Truncated> {
    let _pad = r.u32()?;
    let [request_max, response_max] = [r.u32()?, r.u32()?];
    let [cached_max, operations_max, slots] = [r.u32()?, r.u32()?, r.u32()?];
    for _ in 0..r.u32()? {
        r.u32()?;
    }
    Ok(Channel { request_max, response_max, cached_max, operations_max, slots })
}

/// What is asked for in the forward direction.
const FORE: Channel = Channel {
    request_max: 4068,
    response_max: 4068,
    cached_max: 1024,
    operations_max: 8,
    slots: 1,
};
/// What is offered for callbacks: one page less the transport's header, as Linux offers.
pub(crate) const BACK: Channel =
    Channel { request_max: 4068, response_max: 4068, cached_max: 0, operations_max: 2, slots: 16 };

/// The program number of NFS.
pub(crate) const PROGRAM: u32 = 100_003;
/// The version of NFS.
pub(crate) const VERSION: u32 = 4;

/// `CREATE_SESSION4_FLAG_CONN_BACK_CHAN`
pub(crate) const BACK_CHANNEL: u32 = 2;
/// `OPEN4_SHARE_ACCESS_READ`, wanting a delegation for reading
pub(crate) const READ_DELEGATED: u32 = 0x0101;
/// `OPEN4_SHARE_ACCESS_WRITE`, wanting no delegation
pub(crate) const WRITE: u32 = 0x0402;
/// `NFS4ERR_DELAY`
pub(crate) const DELAY: u32 = 10_008;
/// `NFS4ERR_GRACE`
pub(crate) const GRACE: u32 = 10_013;

pub(crate) const CLOSE: u32 = 4;
pub(crate) const DELEGRETURN: u32 = 8;
pub(crate) const GETFH: u32 = 10;
pub(crate) const OPEN: u32 = 18;
pub(crate) const PUTFH: u32 = 22;
pub(crate) const PUTROOTFH: u32 = 24;
const EXCHANGE_ID: u32 = 42;
const CREATE_SESSION: u32 = 43;
pub(crate) const DESTROY_SESSION: u32 = 44;
pub(crate) const FREE_STATEID: u32 = 45;
const SEQUENCE: u32 = 53;
pub(crate) const DESTROY_CLIENTID: u32 = 57;
pub(crate) const RECLAIM_COMPLETE: u32 = 58;

const DELEGATED_NONE: u32 = 0;
const DELEGATED_READ: u32 = 1;
const DELEGATED_NONE_BECAUSE: u32 = 3;
const CONTENTION: u32 = 1;
const RESOURCE: u32 = 2;
const HANDLE_MAX: usize = 128;
const OPERATION_MAX: usize = 512;
/// Octets of the session, the number of the request, and three numbers of slots.
const SESSION_AND_SLOT: usize = 32;
/// Octets of the directory's change and of the flags of the result.
const CHANGE_AND_FLAGS: usize = 24;
/// Octets of type, flags and mask of an entry.
const ACCESS_ENTRY: usize = 12;
