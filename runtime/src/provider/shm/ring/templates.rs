//! Template records: each template is sent once, before the first series of messages with it.
//!
//! ```text
//!  63    56 55      48 47    40 39    32 31      11 10     3 2    0
//! +--------+----------+--------+--------+----------+--------+------+
//! | number | XID      | XID    | credit | length   | ahead  | kind |  octets ...
//! +--------+----------+--------+--------+----------+--------+------+
//! ```
//! The upper half of the header holds the number of the template, and the offsets of the patch in its octets. The
//! octets are copied before they are decoded, and a number is given once.

use haulage_proto::verbs::{Handle, HeaderTemplate, NamedTemplate, PatchOffsets, TemplateId};

/// Templates that a producer has introduced, by their numbers. Memory is allocated with the first.
#[derive(Debug, Default)]
pub(super) struct Templates(Option<Box<Places>>);

type Places = [Option<Box<HeaderTemplate>>; TemplateId::COUNT];

impl Templates {
    /// Makes an empty table.
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Adds the template that a record introduces: `described` is its header's upper half. `None` if the template is
    /// not valid, or its number is in use.
    pub(super) fn learn(&mut self, described: Handle, octets: &[u8]) -> Option<()> {
        let [number, first, second, credit] = described.0.to_be_bytes();
        let id = TemplateId::new(number)?;
        let template = HeaderTemplate::new(octets, PatchOffsets { xid: [first, second], credit })?;
        let places = self.0.get_or_insert_default();
        let place = places.get_mut(usize::from(id.number())).filter(|place| place.is_none())?;
        *place = Some(Box::new(template));
        Some(())
    }

    /// Returns the template with a number.
    #[inline]
    pub(super) fn get(&self, id: TemplateId) -> Option<&HeaderTemplate> {
        self.0.as_ref()?.get(usize::from(id.number()))?.as_deref()
    }
}

/// The numbers of the templates that a producer has introduced.
#[derive(Debug)]
pub(super) struct Introduced(u16);

impl Introduced {
    pub(super) const NONE: Self = Self(0);

    pub(super) const fn insert(&mut self, id: TemplateId) {
        self.0 |= 1 << id.number();
    }

    #[inline]
    pub(super) const fn has(&self, id: TemplateId) -> bool {
        self.0 >> id.number() & 1 != 0
    }
}

const _: () = assert!(TemplateId::COUNT <= u16::BITS as usize);

/// Encodes a template's number and patch offsets for the upper half of a header.
pub(super) const fn describe(NamedTemplate { id, template }: NamedTemplate<'_>) -> Handle {
    let PatchOffsets { xid: [first, second], credit } = template.offsets();
    Handle(u32::from_be_bytes([id.number(), first, second, credit]))
}
