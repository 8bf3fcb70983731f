//! MGET and MPUT: several keys in one Call, each with an answer of its own.

use haulage::core::Cx;
use haulage::service::{Arguments, CallToken, Outcome, Reply};

use super::waiting::{Given, Waiter};
use super::{KvService, OK, Stop, Unkept, end, has_room, put_inline};
use crate::protocol::encode_too_long;
use crate::protocol::many::{ANSWER_MAX, KEYS_MAX};
use crate::protocol::{KEY_MAX, Procedure, Refusal};

impl KvService {
    pub(super) fn get_many(
        &mut self,
        cx: &Cx<'_>,
        arguments: &mut Arguments<'_>,
        reply: &mut Reply,
    ) -> Result<(), Stop> {
        let count = count(arguments)?;
        let mut keys = [&[][..]; KEYS_MAX];
        let keys = keys.get_mut(..count).unwrap_or_default();
        for key in keys.iter_mut() {
            *key = arguments.opaque(KEY_MAX)?;
        }
        end(arguments)?;
        self.fetch(keys.iter().copied());
        reply.results(|w| w.u32(wire(count)));
        for (key, after) in keys.iter().zip((0..count).rev()) {
            self.answer(cx, key, after * ANSWER_MAX as usize, reply);
        }
        Ok(())
    }

    /// Appends the answer for one key, and leaves `rest` octets of the message for the answers that follow.
    fn answer(&mut self, cx: &Cx<'_>, key: &[u8], rest: usize, reply: &mut Reply) {
        if let Err(refusal) = self.value(cx, key, rest, reply) {
            self.answered.refuse(&refusal);
            reply.results(|w| refusal.encode(w));
            reply.absent();
        }
    }

    /// Appends the value of a key.
    fn value(
        &mut self,
        cx: &Cx<'_>,
        key: &[u8],
        rest: usize,
        reply: &mut Reply,
    ) -> Result<(), Refusal> {
        let Some(value) = self.index.get(key) else { return Err(self.miss(key)) };
        let length = value.len();
        let room = reply.item_room();
        let is_inline = has_room(reply, length, rest as u64);
        if room.is_none() && is_inline {
            put_inline(reply, cx.pool(), value)?;
            self.answered.hits += 1;
            return Ok(());
        }
        if is_inline || room.is_some_and(|room| room >= length) {
            let data = value.data(cx.pool()).ok_or(Refusal::NoSpace)?;
            self.answered.hits += 1;
            reply.results(|w| w.u32(OK));
            reply.item(data);
            return Ok(());
        }
        reply.results(|w| encode_too_long(length, w));
        reply.absent();
        Ok(())
    }

    pub(super) fn put_many(
        &mut self,
        cx: &mut Cx<'_>,
        token: CallToken,
        arguments: &mut Arguments<'_>,
        reply: &mut Reply,
    ) -> Result<Outcome, Stop> {
        let count = count(arguments)?;
        // Nothing is stored before all arguments are known to be well-formed.
        let mut pairs: [Option<Pair<'_>>; KEYS_MAX] = Default::default();
        for pair in pairs.iter_mut().take(count) {
            let key = arguments.opaque(KEY_MAX)?;
            *pair = Some(Pair { key, value: self.take_value(arguments)? });
        }
        end(arguments)?;
        self.fetch(pairs.iter().flatten().map(|pair| pair.key));
        let mut answers = [const { Ok(()) }; KEYS_MAX];
        let mut pairs = pairs.into_iter().flatten();
        for at in 0..count {
            let Some(Pair { key, value }) = pairs.next() else { break };
            answers[at] = match value.map_err(Unkept::from).and_then(|it| self.keep(cx, key, it)) {
                Ok(()) => Ok(()),
                Err(Unkept::Refused(refusal)) => Err(refusal),
                Err(Unkept::Lacks(value)) => {
                    let answers = answers.into_iter().take(at).collect();
                    let mut waiter = Waiter::new(cx, (token, Procedure::MPut), answers);
                    waiter.push(key, Ok(value));
                    pairs.for_each(|Pair { key, value }| waiter.push(key, value));
                    return Ok(self.wait(waiter, reply));
                }
            };
        }
        self.answer_stored(&answers[..count], reply);
        Ok(Outcome::Done)
    }

    /// Answers what became of each pair.
    pub(super) fn answer_stored(&mut self, answers: &[Result<(), Refusal>], reply: &mut Reply) {
        reply.results(|w| w.u32(wire(answers.len())));
        for answer in answers {
            match answer {
                Ok(()) => reply.results(|w| w.u32(OK)),
                Err(refusal) => {
                    self.answered.refuse(refusal);
                    reply.results(|w| refusal.encode(w));
                }
            }
        }
    }
}

/// A pair to be stored, or why it cannot be.
struct Pair<'a> {
    key: &'a [u8],
    value: Result<Given<'a>, Refusal>,
}

/// Takes the number of keys.
fn count(arguments: &mut Arguments<'_>) -> Result<usize, Stop> {
    let count = arguments.u32()? as usize;
    if count <= KEYS_MAX { Ok(count) } else { Err(Stop::Garbage) }
}

/// Converts a number of keys to the wire's.
fn wire(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
