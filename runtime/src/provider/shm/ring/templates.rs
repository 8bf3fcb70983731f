//! Templates as records: each is sent once, before the first series of messages with it.
//!
//! ```text
//!  63    56 55      48 47    40 39    32 31      11 10     3 2    0
//! +--------+----------+--------+--------+----------+--------+------+
//! | number | XID      | XID    | credit | length   | ahead  | kind |  octets ...
//! +--------+----------+--------+--------+----------+--------+------+
//! ```
//! The upper half of the header has the number of the template, and where in its octets the label belongs. The octets
//! are copied before anything is made of them, and a number is given once.

use haulage_proto::verbs::{Handle, HeaderTemplate, LabelOffsets, NamedTemplate, TemplateId};

/// Templates that a producer has introduced, by their numbers. It takes memory once there is one.
#[derive(Debug, Default)]
pub(super) struct Templates(Option<Box<Places>>);

type Places = [Option<Box<HeaderTemplate>>; TemplateId::COUNT];

impl Templates {
    /// Makes one without any.
    pub(super) const fn new() -> Self {
        Self(None)
    }

    /// Takes in a template that a record says is this: `described` in its header, and with these octets. `None` if
    /// there can be no such template, or there is one of its number.
    pub(super) fn learn(&mut self, described: Handle, octets: &[u8]) -> Option<()> {
        let [number, first, second, credit] = described.0.to_be_bytes();
        let id = TemplateId::new(number)?;
        let template = HeaderTemplate::new(octets, LabelOffsets { xid: [first, second], credit })?;
        let places = self.0.get_or_insert_default();
        let place = places.get_mut(usize::from(id.number())).filter(|place| place.is_none())?;
        *place = Some(Box::new(template));
        Some(())
    }

    /// Returns the template of a number.
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

/// Describes a template, in the upper half of a header.
pub(super) const fn describe(NamedTemplate { id, template }: NamedTemplate<'_>) -> Handle {
    let LabelOffsets { xid: [first, second], credit } = template.offsets();
    Handle(u32::from_be_bytes([id.number(), first, second, credit]))
}
