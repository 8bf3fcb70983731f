//! MGET and MPUT: Calls for several keys, each with an outcome of its own.

use haulage::pool::{Local, Pool};
use haulage::service::{Place, Request};
use haulage_kv::protocol::many::{self, Found, KEYS_MAX};
use haulage_kv::protocol::{Procedure, Refusal};
use haulage_proto::chunk::{Item as Carried, Kind, PayloadReader, Version};
use haulage_proto::xdr::Writer;

use super::{Asked, Drawn, Item, Keys, Octets, UNREDUCED_MIN, VALUE_MAX, holding, length, room};
use crate::cores::mix::{Event, Mix};
use crate::world::choices::Choices;

impl Keys {
    /// Draws a Call for several keys, one, or none. Some of its keys may be the same.
    pub(super) fn draw_many(
        &mut self,
        choices: &mut Choices,
        pool: &Pool,
        token: u64,
    ) -> Option<(Asked, Drawn)> {
        let count = choices.pick(&[0, 1, 2, 3, 4, 4]);
        assert!(count <= KEYS_MAX);
        let mut asked = Asked {
            procedure: Procedure::MGet,
            keys: Vec::new(),
            items: Vec::new(),
            epoch: self.epoch,
        };
        for _ in 0..count {
            let key = match choices.below(20) {
                0 => None,
                1 | 2 if !asked.keys.is_empty() => Some(choices.below(asked.keys.len())),
                _ => {
                    asked.keys.push(self.take(choices));
                    Some(asked.keys.len() - 1)
                }
            };
            asked.items.push(Item { key, value: None, offered: 0 });
        }
        // Most keys without a value get one next.
        let without = asked.keys.iter().filter(|known| known.value.is_none()).count();
        let drawn = if choices.below(4) < without {
            asked.procedure = Procedure::MPut;
            asked.store(choices, pool, token)
        } else {
            asked.fetch(choices, pool)
        };
        if drawn.is_none() {
            // The pool has no memory for the values.
            self.put_back(asked);
            return None;
        }
        Some((asked, drawn?))
    }
}

impl Asked {
    /// Draws the rooms of an MGET: the last keys may have none.
    fn fetch(&mut self, choices: &mut Choices, pool: &Pool) -> Option<Drawn> {
        let mut request = Request::new(Procedure::MGet as u32);
        let rooms = if choices.one_in(8) { choices.of(0..=self.items.len()) } else { KEYS_MAX };
        for at in 0..self.items.len().min(rooms) {
            let offered = room(choices, self.value(&self.items[at]));
            request = request.room(pool.lease(offered)?);
            self.items[at].offered = offered;
        }
        Some(self.encoded(request, |_, _| {}))
    }

    /// Draws the values of an MPUT, some of which have a lease.
    fn store(&mut self, choices: &mut Choices, pool: &Pool, token: u64) -> Option<Drawn> {
        let mut leases = Vec::new();
        // Of long values a small server soon has as many as it can keep.
        let are_long = choices.one_in(3);
        for (at, item) in (0..).zip(&mut self.items) {
            let length = if are_long && !choices.one_in(3) {
                choices.of(VALUE_MAX / 2..=VALUE_MAX)
            } else {
                length(choices, VALUE_MAX)
            };
            let value = Octets { salt: (token << 2) + at, length };
            item.value = Some(value);
            let is_in_stream = value.length <= UNREDUCED_MAX && choices.one_in(2);
            let has_lease = value.length > 0 && !is_in_stream;
            leases.push(if has_lease { Some(holding(pool, &value.bytes())?) } else { None });
        }
        let is_reduced: Vec<_> = leases.iter().map(Option::is_some).collect();
        let mut places = Vec::new();
        let drawn = self.encoded(Request::new(Procedure::MPut as u32), |item, w| {
            let value = item.value.expect("a value to store");
            if is_reduced[places.len()] {
                places.push(w.position());
                w.u32(u32::try_from(value.length).expect("a short value"))
                    .expect("room for a word");
            } else {
                places.push(0);
                w.opaque(&value.bytes()).expect("room for a short value");
            }
        });
        let Drawn { request, arguments } = drawn;
        let placed = places.into_iter().zip(leases).filter_map(|(at, lease)| Some((at, lease?)));
        let request = placed.fold(request, |request, (at, lease)| {
            request.argument_at(Place::At(Kind::Opaque, at), lease)
        });
        Some(Drawn { request, arguments })
    }

    /// Encodes the array of items: each key, and what `rest` puts behind it.
    fn encoded(&self, request: Request, mut rest: impl FnMut(&Item, &mut Writer<'_>)) -> Drawn {
        let mut octets = vec![0; 4096];
        let mut w = Writer::new(&mut octets);
        w.u32(u32::try_from(self.items.len()).expect("few keys")).expect("room for a word");
        for item in &self.items {
            let key = item.key.map_or("", |key| &self.keys[key].key);
            w.opaque(key.as_bytes()).expect("room for a key");
            rest(item, &mut w);
        }
        let length = w.position();
        octets.truncate(length);
        Drawn { request, arguments: octets }
    }

    /// Checks the outcome for each key of an MGET or MPUT.
    pub(super) fn check_many(
        &mut self,
        results: PayloadReader<'_>,
        rooms: &[Local],
        mix: &mut Mix,
    ) {
        mix.note_if(results.version() == Version::One, Event::KvManyOnOne);
        if self.procedure == Procedure::MGet {
            let found = many::decode_found(results, self.items.len());
            return self.check_found(&found.expect("answers"), rooms, mix);
        }
        let stored = many::decode_stored(results, self.items.len()).expect("answers");
        self.check_stored(&stored, mix);
    }

    fn check_found(&self, found: &[Found<'_>], rooms: &[Local], mix: &mut Mix) {
        // Octets of values in the message, and the number of values in chunks.
        let (mut unreduced, mut placed) = (0, 0);
        for (at, (item, found)) in self.items.iter().zip(found).enumerate() {
            match (self.value(item), found) {
                (None, Found::Refused(Refusal::NotFound)) if item.key.is_some() => {}
                (None, Found::Refused(Refusal::BadKey)) if item.key.is_none() => {}
                (Some(octets), Found::Value(Carried::Reduced { length })) => {
                    assert_eq!(*length, octets.length as u64, "{at}: {self:?}");
                    assert!(rooms[at].bytes() == octets.bytes(), "{at}: another value: {self:?}");
                    placed += 1;
                }
                (Some(octets), Found::Value(Carried::Unreduced(bytes))) => {
                    assert!(*bytes == octets.bytes(), "{at}: another value: {self:?}");
                    unreduced += octets.length;
                }
                (Some(octets), Found::TooLong { length }) => {
                    assert_eq!(*length, octets.length as u64, "{at}: {self:?}");
                    let has_room = item.offered >= octets.length || octets.length == 0;
                    assert!(!has_room, "{at}: there is room for it: {self:?}");
                    let all = unreduced + octets.length;
                    assert!(all > UNREDUCED_MIN, "{at}: it fits the message: {self:?}");
                    mix.note(Event::KvTooLong);
                }
                (_, found) => panic!("{at}: {found:?} to {self:?}"),
            }
        }
        mix.note_if(placed > 1, Event::KvManyRead);
    }

    fn check_stored(&mut self, stored: &[Result<(), Refusal>], mix: &mut Mix) {
        let (mut kept, mut starved) = (0, 0);
        for (at, (item, stored)) in self.items.iter().zip(stored).enumerate() {
            match (item.key, stored) {
                (Some(key), Ok(())) => {
                    self.keys[key].value = item.value;
                    kept += 1;
                }
                (Some(_), Err(Refusal::NoSpace | Refusal::KeysFull { .. })) => starved += 1,
                (None, Err(Refusal::BadKey | Refusal::NoSpace)) => {}
                (_, stored) => panic!("{at}: {stored:?} to {self:?}"),
            }
        }
        mix.note_if(kept > 1, Event::KvManyStored);
        mix.note_if(kept > 0 && starved > 0, Event::KvPartlyStored);
        mix.note_if(starved > 0, Event::StarvedServer);
    }

    /// Returns whether the transport may refuse the Call: for a value that is longer than its room.
    pub(super) fn may_be_refused(&self) -> bool {
        let is_longer =
            |item: &Item| self.value(item).is_some_and(|value| value.length > item.offered);
        let has_chunk = self.items.iter().any(|item| item.offered > 0);
        self.procedure == Procedure::Get && has_chunk && self.items.iter().any(is_longer)
    }
}

/// Octets of the longest value of an MPUT that may go without a lease: four of them, with the longest keys, are in one
/// send buffer.
const UNREDUCED_MAX: usize = 400;
