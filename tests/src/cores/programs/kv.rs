//! Clients of the key-value service, checked against a map.

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
    /// Keys without a Call under way, and their values.
    known: Vec<(String, Option<Octets>)>,
    asked: BTreeMap<u64, Asked>,
    made: usize,
    /// Number of times the server was built again.
    epoch: u32,
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

#[derive(Debug)]
struct Asked {
    procedure: Procedure,
    key: String,
    before: Option<Octets>,
    after: Option<Octets>,
    offered: usize,
    epoch: u32,
}

impl Keys {
    /// Makes a program whose keys begin with `prefix`.
    pub const fn new(prefix: String) -> Self {
        Self { prefix, known: Vec::new(), asked: BTreeMap::new(), made: 0, epoch: 0 }
    }

    /// Takes a key that has no Call under way.
    fn take(&mut self, choices: &mut Choices) -> (String, Option<Octets>) {
        if self.known.len() + self.asked.len() < KEYS_MAX {
            self.made += 1;
            let long = if choices.one_in(10) { 400 } else { 1 };
            return (format!("{}{:0>long$}", self.prefix, self.made), None);
        }
        let at = choices.below(self.known.len().max(1));
        if self.known.is_empty() {
            self.made += 1;
            return (format!("{}{}", self.prefix, self.made), None);
        }
        self.known.swap_remove(at)
    }

    /// Keeps a key whose Call has ended, unless the server that stored it is gone.
    fn put_back(&mut self, epoch: u32, key: String, value: Option<Octets>) {
        if epoch == self.epoch {
            self.known.push((key, value));
        }
    }

    fn check(asked: &mut Asked, finished: &mut Finished<'_>, mix: &mut Mix) {
        let Ok(results) = &finished.results else { return };
        mix.note(Event::Well);
        // The server leaves a chunk unused that is too short for the value.
        let carriage = Carriage::of(results.reduced());
        let answer = Answer::decode(asked.procedure, results.rest(), carriage);
        match (answer.expect("an answer"), asked.procedure, asked.before) {
            (Answer::Done, Procedure::Null | Procedure::Put, _) => {}
            (Answer::Done, Procedure::Del, Some(_)) => mix.note(Event::KvForgotten),
            (Answer::Refused(Refusal::NotFound), Procedure::Get | Procedure::Del, None) => {
                mix.note(Event::KvAbsent);
            }
            (Answer::Value(value), Procedure::Get, Some(octets)) => {
                mix.note(Event::KvRead);
                assert_eq!(value.length(), octets.length as u64, "{asked:?}");
                let found = match value {
                    Value::Unreduced(bytes) => bytes,
                    Value::Reduced { .. } => {
                        let lease = finished.rooms.first();
                        lease.expect("a value that was placed has a lease").bytes()
                    }
                };
                assert!(found == octets.bytes(), "another value: {asked:?}");
            }
            (Answer::Refused(Refusal::NoSpace), Procedure::Put, _) => {
                mix.note(Event::StarvedServer);
                asked.after = asked.before;
            }
            (answer, ..) => panic!("{answer:?} to {asked:?}"),
        }
    }
}

impl Program for Keys {
    fn draw(&mut self, choices: &mut Choices, pool: &Pool, token: u64) -> Option<Drawn> {
        let (key, before) = self.take(choices);
        let procedure = match choices.below(20) {
            // Most keys without a value get one next.
            4..=10 if before.is_none() && !choices.one_in(4) => Procedure::Put,
            0 => Procedure::Null,
            1..=3 => Procedure::Del,
            4..=10 => Procedure::Get,
            _ => Procedure::Put,
        };
        let mut octets = vec![0; 2048];
        let mut w = Writer::new(&mut octets);
        if procedure != Procedure::Null {
            w.opaque(key.as_bytes()).expect("room for a key");
        }
        let (mut argument, mut result) = (None, None);
        let mut after = before;
        let (mut offered, epoch) = (0, self.epoch);
        match procedure {
            Procedure::Put => {
                let value = Octets { salt: token, length: length(choices, VALUE_MAX) };
                if value.length == 0 || (value.length < 500 && choices.one_in(2)) {
                    w.opaque(&value.bytes()).expect("room for a short value");
                } else {
                    argument = holding(pool, &value.bytes());
                }
                after = Some(value);
            }
            Procedure::Get => {
                let needed = before.map_or(1, |octets| octets.length.max(1));
                offered = if choices.one_in(10) { choices.of(1..=needed) } else { needed };
                result = Some(pool.lease(offered)?);
            }
            Procedure::Del => after = None,
            _ => {}
        }
        let length = w.position();
        octets.truncate(length);
        let inline = after.is_some_and(|value| value.length == 0 || length > key.len() + 8);
        if procedure == Procedure::Put && argument.is_none() && !inline {
            // The pool has no memory for the value.
            self.known.push((key, before));
            return None;
        }
        self.asked.insert(token, Asked { procedure, key, before, after, offered, epoch });
        let procedure = procedure as u32;
        let request = Request::new(procedure).argument(argument).room(result);
        Some(Drawn { request, arguments: octets })
    }

    fn withdraw(&mut self, token: u64) {
        let asked = self.asked.remove(&token).expect("a Call that was drawn");
        self.put_back(asked.epoch, asked.key, asked.before);
    }

    fn ended(&mut self, token: u64, finished: &mut Finished<'_>, mix: &mut Mix) -> Option<String> {
        let mut asked = self.asked.remove(&token).expect("a Call that was made ends once");
        // A Call made before the server was built again may have reached the new server, and found no such key.
        if asked.epoch == self.epoch {
            Self::check(&mut asked, finished, mix);
        }
        match &finished.results {
            Ok(_) => {
                self.put_back(asked.epoch, asked.key, asked.after);
                None
            }
            Err(CallError::Refused(_))
                if asked.before.is_some_and(|value| value.length > asked.offered) =>
            {
                self.put_back(asked.epoch, asked.key, asked.before);
                mix.note(Event::Refused);
                None
            }
            Err(CallError::NoMemory) => {
                self.put_back(asked.epoch, asked.key, asked.before);
                mix.note(Event::Starved);
                None
            }
            // The Call may have been carried out, or may be later: the key is not used again.
            Err(_) => Some(format!("{asked:?}")),
        }
    }

    fn restarted(&mut self, _: Option<File>) {
        self.known.clear();
        self.epoch += 1;
    }
}

/// Length of the longest value, in octets.
pub const VALUE_MAX: usize = 100 << 10;

const KEYS_MAX: usize = 8;
