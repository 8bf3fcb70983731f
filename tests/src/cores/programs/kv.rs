//! Clients of the key-value service, checked against a map.
//!
//! A key has at most one Call under way, so that the map knows its value whenever a Call is drawn.

mod many;

use std::collections::BTreeMap;

use haulage::pool::Pool;
use haulage::service::{CallError, Finished, Request};
use haulage_kv::protocol::{Answer, Carriage, Procedure, Refusal, Value};
use haulage_proto::xdr::Writer;
use haulage_store::client::File;

use super::{Drawn, Program, holding, length};
use crate::cores::mix::{Event, Mix};
use crate::pattern;
use crate::world::choices::Choices;

/// The keys of one client. They share a prefix that no other client uses.
#[derive(Debug)]
pub struct Keys {
    prefix: String,
    /// Keys without a Call under way.
    known: Vec<Known>,
    asked: BTreeMap<u64, Asked>,
    made: usize,
    /// Number of times the server was built again.
    epoch: u32,
}

/// A key, and the value that the server has for it.
#[derive(Debug)]
struct Known {
    key: String,
    value: Option<Octets>,
}

/// The octets of a value, as a pattern and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Octets {
    salt: u64,
    length: usize,
}

impl Octets {
    fn bytes(self) -> Vec<u8> {
        pattern::of(self.length, self.salt)
    }
}

/// A Call that has not ended.
#[derive(Debug)]
struct Asked {
    procedure: Procedure,
    /// The keys of the Call, with their values before it.
    keys: Vec<Known>,
    /// What is asked for, in the order of the arguments.
    items: Vec<Item>,
    epoch: u32,
}

/// A key, and perhaps a value, among the arguments of a Call.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// The place of the key among those of the Call; `None` for a key that no server takes.
    key: Option<usize>,
    /// The value to be stored.
    value: Option<Octets>,
    /// Octets of the room for the value; zero if there is none.
    offered: usize,
}

impl Asked {
    /// Returns the value of the key of an item.
    fn value(&self, item: &Item) -> Option<Octets> {
        self.keys[item.key?].value
    }

    /// Checks the results of a Call, and changes the values of its keys as the server did.
    fn check(&mut self, finished: &mut Finished<'_>, mix: &mut Mix) {
        let Ok(results) = &finished.results else { return };
        mix.note(Event::Well);
        if matches!(self.procedure, Procedure::MGet | Procedure::MPut) {
            return self.check_many(results.clone(), finished.rooms.as_slice(), mix);
        }
        // The server leaves a chunk unused that is too short for the value.
        let carriage = Carriage::of(results.reduced());
        let answer = Answer::decode(self.procedure, results.rest(), carriage);
        let item = self.items[0];
        let before = self.value(&item);
        let key = &mut self.keys[0];
        match (answer.expect("an answer"), self.procedure, before) {
            (Answer::Done, Procedure::Null, _) => {}
            (Answer::Done, Procedure::Put, _) => key.value = item.value,
            (Answer::Done, Procedure::Del, Some(_)) => {
                key.value = None;
                mix.note(Event::KvForgotten);
            }
            (Answer::Refused(Refusal::NotFound), Procedure::Get | Procedure::Del, None) => {
                mix.note(Event::KvAbsent);
            }
            (Answer::Value(value), Procedure::Get, Some(octets)) => {
                mix.note(Event::KvRead);
                assert_eq!(value.length(), octets.length as u64, "{self:?}");
                let found = match value {
                    Value::Unreduced(bytes) => bytes,
                    Value::Reduced { .. } => {
                        let lease = finished.rooms.first();
                        lease.expect("a value that was placed has a lease").bytes()
                    }
                };
                assert!(found == octets.bytes(), "another value: {self:?}");
            }
            (Answer::TooLong { length }, Procedure::Get, Some(octets)) => {
                assert!(item.offered == 0 && octets.length > UNREDUCED_MIN, "{self:?}");
                assert_eq!(length, octets.length as u64, "{self:?}");
                mix.note(Event::KvTooLong);
            }
            (Answer::Refused(Refusal::NoSpace | Refusal::KeysFull { .. }), Procedure::Put, _) => {
                mix.note(Event::StarvedServer);
            }
            (answer, ..) => panic!("{answer:?} to {self:?}"),
        }
    }
}

impl Keys {
    /// Makes a program whose keys begin with `prefix`.
    pub const fn new(prefix: String) -> Self {
        Self { prefix, known: Vec::new(), asked: BTreeMap::new(), made: 0, epoch: 0 }
    }

    /// Takes a key that has no Call under way.
    fn take(&mut self, choices: &mut Choices) -> Known {
        let under_way = self.asked.values().map(|asked| asked.keys.len()).sum::<usize>();
        if self.known.len() + under_way < KEYS_MAX {
            self.made += 1;
            let long = if choices.one_in(10) { 400 } else { 1 };
            return Known { key: format!("{}{:0>long$}", self.prefix, self.made), value: None };
        }
        let at = choices.below(self.known.len().max(1));
        if self.known.is_empty() {
            self.made += 1;
            return Known { key: format!("{}{}", self.prefix, self.made), value: None };
        }
        self.known.swap_remove(at)
    }

    /// Keeps the keys of a Call that has ended, unless the server that stored them is gone.
    fn put_back(&mut self, asked: Asked) {
        if asked.epoch == self.epoch {
            self.known.extend(asked.keys);
        }
    }

    /// Draws a Call for one key, or none.
    fn draw_one(
        &mut self,
        choices: &mut Choices,
        pool: &Pool,
        token: u64,
    ) -> Option<(Asked, Drawn)> {
        let known = self.take(choices);
        let procedure = match choices.below(20) {
            // Most keys without a value get one next.
            4..=10 if known.value.is_none() && !choices.one_in(4) => Procedure::Put,
            0 => Procedure::Null,
            1..=3 => Procedure::Del,
            4..=10 => Procedure::Get,
            _ => Procedure::Put,
        };
        let mut octets = vec![0; 2048];
        let mut w = Writer::new(&mut octets);
        if procedure != Procedure::Null {
            w.opaque(known.key.as_bytes()).expect("room for a key");
        }
        let mut request = Request::new(procedure as u32);
        let mut item = Item { key: Some(0), value: None, offered: 0 };
        let mut has_memory = true;
        match procedure {
            Procedure::Put => {
                let value = Octets { salt: token, length: length(choices, VALUE_MAX) };
                if value.length == 0 || (value.length < 500 && choices.one_in(2)) {
                    w.opaque(&value.bytes()).expect("room for a short value");
                } else {
                    let argument = holding(pool, &value.bytes());
                    has_memory = argument.is_some();
                    request = request.argument(argument);
                }
                item.value = Some(value);
            }
            Procedure::Get if !choices.one_in(4) => {
                item.offered = room(choices, known.value);
                let lease = pool.lease(item.offered);
                has_memory = lease.is_some();
                request = request.room(lease);
            }
            _ => {}
        }
        let length = w.position();
        octets.truncate(length);
        let asked = Asked { procedure, keys: vec![known], items: vec![item], epoch: self.epoch };
        if !has_memory {
            self.put_back(asked);
            return None;
        }
        Some((asked, Drawn { request, arguments: octets }))
    }
}

/// Draws the octets of the room for a value: as many as it has, or fewer.
fn room(choices: &mut Choices, value: Option<Octets>) -> usize {
    let needed = value.map_or(1, |octets| octets.length.max(1));
    if choices.one_in(10) { choices.of(1..=needed) } else { needed }
}

impl Program for Keys {
    fn draw(&mut self, choices: &mut Choices, pool: &Pool, token: u64) -> Option<Drawn> {
        let (asked, drawn) = if choices.one_in(3) {
            self.draw_many(choices, pool, token)?
        } else {
            self.draw_one(choices, pool, token)?
        };
        self.asked.insert(token, asked);
        Some(drawn)
    }

    fn withdraw(&mut self, token: u64) {
        let asked = self.asked.remove(&token).expect("a Call that was drawn");
        self.put_back(asked);
    }

    fn ended(&mut self, token: u64, finished: &mut Finished<'_>, mix: &mut Mix) -> Option<String> {
        let mut asked = self.asked.remove(&token).expect("a Call that was made ends once");
        // A Call made before the server was built again may have reached the new server, and found no such key.
        if asked.epoch == self.epoch {
            asked.check(finished, mix);
        }
        match &finished.results {
            Ok(_) => {}
            Err(CallError::Refused(_)) if asked.may_be_refused() => mix.note(Event::Refused),
            Err(CallError::NoMemory) => mix.note(Event::Starved),
            // The Call may have been carried out, or may be later: the keys are not used again.
            Err(_) => return Some(format!("{asked:?}")),
        }
        self.put_back(asked);
        None
    }

    fn restarted(&mut self, _: Option<File>) {
        self.known.clear();
        self.epoch += 1;
    }
}

/// Length of the longest value, in octets.
pub const VALUE_MAX: usize = 100 << 10;

/// Most keys of one client, with and without a Call under way, unless all of them have one.
const KEYS_MAX: usize = 8;

/// Octets of values that fit the message of a Reply in any case, beside the other results of an MGET.
const UNREDUCED_MIN: usize = 500;
