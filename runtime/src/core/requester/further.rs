//! What a Call of ours exposes beside one argument, which is its last, and the room for one result. Most Calls have nothing
//! of it.

use haulage_mr_pool::Local;
use haulage_proto::chunk::DataItem;

use super::encoded::Encoded;
use super::lease::{CallLease, LeaseRole};
use crate::items::Items;
use crate::outgoing::segments::Segments;
use crate::service::{ArgumentItem, CallError, Place};

/// The arguments and rooms of a Call behind the first of each, and the places of all its arguments.
#[derive(Debug, Default)]
pub(super) struct Further {
    /// The place of each argument; empty if the only one is the last argument.
    places: Vec<Place>,
    pub(super) leases: Vec<FurtherLease>,
}

/// A lease behind the first one of its role.
#[derive(Debug)]
pub(super) struct FurtherLease {
    /// The argument, or the result.
    pub(super) role: LeaseRole,
    pub(super) lease: CallLease,
    /// Our own record of the Write chunk that we offered for the result.
    pub(super) offered: Option<Segments>,
    /// Octets that the peer placed, once the lease has come back.
    pub(super) placed: u32,
}

impl FurtherLease {
    /// Prepares the lease for a Call that goes again.
    pub(super) fn begin_again(&mut self) {
        (self.offered, self.placed) = (None, 0);
    }
}

impl Further {
    /// Takes in the arguments and the rooms of a Call. Returns the first of each.
    pub(super) fn begin(
        &mut self,
        arguments: Items<ArgumentItem>,
        rooms: Items<Local>,
    ) -> [Option<Local>; 2] {
        self.forget();
        match (arguments, rooms) {
            (Items::None, Items::None) => [None, None],
            (Items::One(ArgumentItem { lease, place: Place::Last }), Items::None) => {
                [Some(lease), None]
            }
            (Items::None, Items::One(room)) => [None, Some(room)],
            (arguments, rooms) => self.begin_several(arguments, rooms),
        }
    }

    #[cold]
    fn begin_several(
        &mut self,
        arguments: Items<ArgumentItem>,
        rooms: Items<Local>,
    ) -> [Option<Local>; 2] {
        let is_usual =
            matches!(arguments.as_slice(), [] | [ArgumentItem { place: Place::Last, .. }]);
        if !is_usual {
            self.places = arguments.iter().map(|argument| argument.place).collect();
        }
        let mut arguments = arguments.into_iter().map(|argument| argument.lease);
        let mut rooms = rooms.into_iter();
        let first = [arguments.next(), rooms.next()];
        let arguments = arguments.map(|lease| (LeaseRole::Argument, lease));
        let rooms = rooms.map(|lease| (LeaseRole::Result, lease));
        self.leases.extend(arguments.chain(rooms).map(|(role, lease)| FurtherLease {
            role,
            lease: CallLease::Local(lease),
            offered: None,
            placed: 0,
        }));
        first
    }

    /// Forgets the Call, whose leases are gone.
    #[inline]
    pub(super) fn forget(&mut self) {
        if !self.is_empty() {
            (self.places, self.leases) = (Vec::new(), Vec::new());
        }
    }

    /// Returns whether the Call has nothing beside one last argument and one room.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.places.is_empty() && self.leases.is_empty()
    }

    /// Returns this, unless it is empty.
    pub(super) fn any(&self) -> Option<&Self> {
        (!self.is_empty()).then_some(self)
    }

    /// Returns the leases of one role.
    pub(super) fn of(&self, role: LeaseRole) -> impl Iterator<Item = &FurtherLease> {
        self.leases.iter().filter(move |one| one.role == role)
    }

    /// Returns the leases of one role, to be changed.
    pub(super) fn of_mut(&mut self, role: LeaseRole) -> impl Iterator<Item = &mut FurtherLease> {
        self.leases.iter_mut().filter(move |one| one.role == role)
    }

    /// Returns the place of each argument.
    fn places(&self) -> &[Place] {
        if self.places.is_empty() { &[Place::Last] } else { &self.places }
    }

    /// Describes the arguments of an encoded Call, whose first one has `first` octets, and returns the octets of its rooms,
    /// of which the first has `room`.
    pub(super) fn described(
        &self,
        encoded: &Encoded,
        [first, room]: [usize; 2],
    ) -> (Items<DataItem>, Items<u32>) {
        // An empty lease is no item, unless its place counts.
        let of = |role, first: usize, counts: bool| {
            let others = self.of(role).map(|one| one.lease.octets());
            Some(first).filter(|octets| *octets > 0 || counts).into_iter().chain(others)
        };
        let has_rooms = self.of(LeaseRole::Result).next().is_some();
        let lengths = of(LeaseRole::Argument, first, !self.places.is_empty());
        let mut gone = 0;
        let items = self.places().iter().zip(lengths).map(|(place, octets)| {
            let item = place.item(encoded, octets, gone);
            // [V2-4.5.3-2] each item takes a whole number of units of the stream.
            //~ V2-4.5.3-2: `octets.next_multiple_of(4)` -> `octets`
            gone += octets.next_multiple_of(4);
            item
        });
        let items = items.collect();
        let wire = |octets| u32::try_from(octets).unwrap_or(u32::MAX);
        (items, of(LeaseRole::Result, room, has_rooms).map(wire).collect())
    }
}

impl Place {
    /// Describes the item of `octets` here in the stream of an encoded Call, if those before it take `gone` octets.
    fn item(&self, encoded: &Encoded, octets: usize, gone: usize) -> DataItem {
        match *self {
            Self::Last => DataItem::opaque(encoded.length.saturating_sub(4) + gone, octets),
            // A place that its caller made up may be anywhere.
            Self::At(kind, at) => {
                let at = at.saturating_add(encoded.arguments_at).saturating_add(gone);
                DataItem::new(kind, at, octets)
            }
        }
    }
}

/// Checks that arguments which are not the only and last one have their places in the encoded Call, in order.
///
/// # Errors
/// [`CallError::Misplaced`].
pub(super) fn check_places(
    arguments: &[ArgumentItem],
    encoded: &Encoded,
    stream: &[u8],
) -> Result<(), CallError> {
    let mut end = encoded.arguments_at;
    for (left, argument) in (0..arguments.len()).rev().zip(arguments) {
        let item = argument.place.item(encoded, argument.lease.len(), 0);
        // Only one argument can be the last.
        let is_last = argument.place == Place::Last;
        if item.at() < end || is_last && left > 0 || !item.is_described_in(stream) {
            return Err(CallError::Misplaced);
        }
        end = item.data().start;
    }
    Ok(())
}
