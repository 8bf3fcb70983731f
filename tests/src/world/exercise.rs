//! The RPC program that both ends speak: every octet of a Call and of a Reply follows from one number.
//!
//! A Call carries the lengths of its results, so its Responder needs no state to answer it, and both ends can check
//! every octet.

use haulage_proto::chunk::{DataItem, Item, Kind, PayloadReader, Returned, Version};
use haulage_proto::rpc::binding::{Binding, Eligible, Procedure};
use haulage_proto::rpc::{AcceptStat, CallHeader, ReplyHeader};
use haulage_proto::xdr::{Reader, Writer};

use super::choices::Choices;
use crate::pattern;

/// One RPC: the lengths of its arguments and results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exercise {
    /// The number from which its octets follow.
    pub salt: u64,
    /// [`ECHO`], [`SWAP`], [`ONCE`] or [`TELL`].
    pub procedure: u32,
    /// Lengths of its DDP-eligible arguments, in octets.
    pub arguments: Vec<usize>,
    /// Length of its other argument.
    pub rest: usize,
    /// Lengths of its DDP-eligible results; `None` is absent.
    pub results: Vec<Option<usize>>,
    /// Length of its other result.
    pub result_rest: usize,
}

/// Maximum lengths of the items of an exercise.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Maximum length of a DDP-eligible item, in octets.
    pub item_max: usize,
    /// Maximum length of an item that is not.
    pub rest_max: usize,
}

/// A Requester's expectations of the results, before it knows them.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Expected maximum length of each DDP-eligible result, in octets.
    pub results: Vec<u32>,
    /// Expected maximum length of the whole Reply, nothing reduced.
    pub reply_max: u32,
    /// Maximum number of messages in which the Requester takes a Reply.
    pub reply_messages: u32,
    /// Whether the expectations may turn out to be too low.
    pub is_short: bool,
}

impl Expected {
    /// Draws expectations: mostly enough, seldom too low.
    pub fn draw(choices: &mut Choices, exercise: &Exercise) -> Self {
        let mut is_short = choices.one_in(16);
        let mut results = Vec::new();
        let mut reply_max = REPLY_FIXED;
        for length in exercise.results.iter().map(|result| result.unwrap_or(100)) {
            let expected = match choices.below(4) {
                0 if is_short => length / 2,
                1 => length + choices.below(300),
                _ => length,
            };
            reply_max += 8 + expected.next_multiple_of(4);
            results.push(u32::try_from(expected).expect("it is short"));
        }
        reply_max += 4 + exercise.result_rest.next_multiple_of(4);
        reply_max += choices.pick(&[0, 0, 0, 4096]);
        if is_short && choices.one_in(2) {
            reply_max /= 2;
        }
        // Only the peer knows whether it can send that many messages.
        let reply_messages = choices.pick(&[1, 1, 2, 8]);
        is_short |= reply_messages > 1;
        let reply_max = u32::try_from(reply_max).expect("it is short");
        Self { results, reply_max, reply_messages, is_short }
    }
}

/// Length of an RPC Call header without credentials.
pub const ARGUMENTS_AT: u32 = 40;

/// Length of a Reply without results.
const REPLY_FIXED: usize = ReplyHeader::SUCCESS_LEN + 8;

/// A procedure without DDP-eligible items.
pub const ECHO: u32 = 0;
/// An idempotent procedure that takes and returns DDP-eligible items.
pub const SWAP: u32 = 1;
/// Like [`SWAP`], but must not be carried out twice.
pub const ONCE: u32 = 2;
/// A procedure without a Reply.
pub const TELL: u32 = 3;

/// Maximum number of DDP-eligible items in one direction.
pub const ITEMS_MAX: usize = 4;

/// Returns the binding of the program.
pub fn binding() -> Binding {
    let items = Eligible { kind: Kind::Opaque, length_max: LENGTH_MAX, count_max: 4 };
    let items = |procedure: Procedure| procedure.argument(items).result(items);
    let rest = 1 << 20;
    let procedures = vec![
        Procedure::new("echo").results_max(rest).idempotent(),
        items(Procedure::new("swap").results_max(rest).idempotent()),
        items(Procedure::new("once").results_max(rest)),
        Procedure::new("tell").call_only(),
    ];
    Binding { program: PROGRAM, version: 1, procedures }
}

impl Exercise {
    /// Draws an exercise of one of `procedures`.
    pub fn draw(choices: &mut Choices, procedures: &[u32], sizes: Sizes) -> Self {
        let procedure = choices.pick(procedures);
        let items = |choices: &mut Choices| match procedure {
            SWAP | ONCE => {
                let count = choices.pick(&[0, 1, 1, 1, 2, ITEMS_MAX]);
                (0..count).map(|_| size(choices, sizes.item_max)).collect()
            }
            _ => Vec::new(),
        };
        let (arguments, results) = (items(choices), items(choices));
        let results = results.into_iter().map(|length| (!choices.one_in(8)).then_some(length));
        let results = results.collect();
        Self {
            salt: choices.number(),
            procedure,
            arguments,
            results,
            rest: size(choices, sizes.rest_max),
            result_rest: size(choices, sizes.rest_max),
        }
    }

    /// Encodes the Call. Returns it with the places of its DDP-eligible arguments.
    pub fn call(&self, xid: u32) -> (Vec<u8>, Vec<DataItem>) {
        let header = CallHeader::new(xid, PROGRAM, 1, self.procedure);
        let mut stream = Stream::starting(|w| header.encode(w));
        stream.double(self.salt);
        stream.word(self.results.len());
        for result in &self.results {
            stream.word(result.map_or(ABSENT, |length| length));
        }
        stream.word(self.result_rest);
        stream.word(self.arguments.len());
        let items = self.arguments.iter().zip(0..).map(|(length, n)| {
            let item = DataItem::opaque(stream.0.len(), *length);
            stream.opaque(*length, self.salt ^ n);
            item
        });
        let items = items.collect();
        stream.opaque(self.rest, self.salt ^ REST);
        (stream.0, items)
    }

    /// Parses a restored Call, and checks every octet of it. Returns the XID and the exercise.
    pub fn of_call(stream: &[u8]) -> (u32, Self) {
        let (header, at) = CallHeader::decode(stream).expect("the header of a Call");
        let mut r = Reader::new(&stream[at..]);
        let salt = r.u64().expect("a salt");
        let mut word = || r.u32().expect("a word") as usize;
        let count = word();
        let results = (0..count).map(|_| Some(word()).filter(|length| *length != ABSENT));
        let results = results.collect();
        let (result_rest, count) = (word(), word());
        let mut item = |n| {
            let bytes = r.opaque(usize::MAX).expect("an item");
            assert!(bytes == pattern::of(bytes.len(), salt ^ n), "argument {n} is not as sent");
            bytes.len()
        };
        let arguments = (0..count as u64).map(&mut item).collect();
        let rest = item(REST);
        assert!(r.is_empty(), "nothing follows the arguments");
        let procedure = header.procedure;
        (header.xid, Self { salt, procedure, arguments, rest, results, result_rest })
    }

    /// Encodes the Reply. Returns it with the places of its DDP-eligible results.
    pub fn reply(&self, xid: u32) -> (Vec<u8>, Vec<Option<DataItem>>) {
        let header = ReplyHeader::accepted(xid, AcceptStat::Success);
        let mut stream = Stream::starting(|w| header.encode(w));
        stream.double(!self.salt);
        let items = self.results.iter().zip(0..).map(|(result, n)| {
            stream.word(usize::from(result.is_some()));
            result.map(|length| {
                let item = DataItem::opaque(stream.0.len(), length);
                stream.opaque(length, !self.salt ^ n);
                item
            })
        });
        let items = items.collect();
        stream.opaque(self.result_rest, !self.salt ^ REST);
        (stream.0, items)
    }

    /// Checks every octet of a Reply: `body` is its reduced Payload stream, `chunks` the lengths that were returned in
    /// each Write chunk, and `written` the octets of each.
    pub fn check_reply(
        &self,
        version: Version,
        xid: u32,
        body: &[u8],
        chunks: &[Returned],
        written: &[&[u8]],
    ) {
        let (header, at) = ReplyHeader::decode(body).expect("the header of a Reply");
        assert_eq!(header, ReplyHeader::accepted(xid, AcceptStat::Success));
        let mut r = PayloadReader::reply_of_many(body, at, chunks).of_version(version);
        assert_eq!(r.u64(), Ok(!self.salt), "the Reply is of another Call");
        for (n, result) in self.results.iter().enumerate() {
            let present = r.u32().expect("a discriminator") == 1;
            assert_eq!(present, result.is_some());
            let Some(length) = *result else {
                // The Write chunk of an absent result is unused.
                r.absent().expect("an unused Write chunk");
                continue;
            };
            let bytes = match r.eligible_opaque(usize::MAX).expect("a result") {
                Item::Unreduced(bytes) => bytes,
                Item::Reduced { length } => &written[n][..usize::try_from(length).expect("small")],
            };
            assert!(bytes == pattern::of(length, !self.salt ^ n as u64), "result {n}");
        }
        let rest = r.opaque(usize::MAX).expect("the other result");
        assert!(rest == pattern::of(self.result_rest, !self.salt ^ REST), "the other result");
        assert!(r.is_empty(), "nothing follows the results");
    }
}

/// An encoded Payload stream.
struct Stream(Vec<u8>);

impl Stream {
    fn starting<E: std::fmt::Debug>(header: impl FnOnce(&mut Writer<'_>) -> Result<(), E>) -> Self {
        let mut memory = [0; 64];
        let mut w = Writer::new(&mut memory);
        header(&mut w).expect("a header without credentials is short");
        Self(w.written().to_vec())
    }

    fn word(&mut self, word: usize) {
        self.0.extend(u32::try_from(word).expect("it is a word").to_be_bytes());
    }

    fn double(&mut self, word: u64) {
        self.0.extend(word.to_be_bytes());
    }

    fn opaque(&mut self, length: usize, salt: u64) {
        self.word(length);
        let at = self.0.len();
        self.0.resize(at + length.next_multiple_of(4), 0);
        pattern::fill(&mut self.0[at..at + length], salt);
    }
}

/// Draws a length up to `most`: mostly a small one, of any alignment.
fn size(choices: &mut Choices, most: usize) -> usize {
    let bound = match choices.below(100) {
        0..45 => 64,
        45..70 => 700,
        70..90 => 4 << 10,
        90..99 => 16 << 10,
        _ => most,
    };
    choices.below(bound.min(most) + 1)
}

const PROGRAM: u32 = 0x2000_5555;

/// Maximum length of any item in the binding.
const LENGTH_MAX: usize = 1 << 20;

/// Stands for a result that is absent.
const ABSENT: usize = u32::MAX as usize;

/// Stands for the item that is not DDP-eligible.
const REST: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_says_all_that_its_reply_needs() {
        let mut choices = Choices::seeded(3);
        let sizes = Sizes { item_max: 3000, rest_max: 300 };
        for xid in 0..200 {
            let exercise = Exercise::draw(&mut choices, &[ECHO, SWAP, ONCE, TELL], sizes);
            let (call, items) = exercise.call(xid);
            assert_eq!(items.len(), exercise.arguments.len());
            assert!(items.iter().all(|item| call.len() >= item.data().end));
            assert_eq!(Exercise::of_call(&call), (xid, exercise.clone()));
            let (reply, _) = exercise.reply(xid);
            exercise.check_reply(Version::Two, xid, &reply, &[], &[]);
        }
    }
}
