//! Templates for the headers of common messages: see [`NamedTemplate`].
//!
//! # Normal operation
//! Template 0 is for Replies that have results; template `n + 1` is for Calls of procedure `n` of the connection's
//! binding. A peer numbers its templates itself: a core works out the meaning of a template when its number first
//! arrives on a connection, and remembers it.
//!
//! # Limits
//! Procedures beyond the last template number have no template: their Calls leave with their headers written out.

use std::cell::OnceCell;
use std::ops::Deref;

use haulage_proto::negotiate::PlainHeaders;
use haulage_proto::rpc::Binding;
use haulage_proto::v2::continuation::Kind;
use haulage_proto::verbs::{HeaderTemplate, NamedTemplate, TemplateId};

use super::program::{Header, Programs};

/// The template of Replies that have results.
pub(crate) const RESULTS: NamedTemplate<'static> =
    NamedTemplate { id: RESULTS_ID, template: &PlainHeaders::RESULTS };

const RESULTS_ID: TemplateId = match TemplateId::new(0) {
    Some(id) => id,
    None => panic!("template 0 exists"),
};

/// A binding, with a header template for the AUTH_NONE Calls of each procedure.
#[derive(Debug)]
pub(crate) struct Bound {
    binding: Binding,
    /// Templates by procedure number. Each is made at the first Call of its procedure.
    templates: [OnceCell<Box<HeaderTemplate>>; TemplateId::COUNT - 1],
}

impl Bound {
    pub(crate) fn new(binding: Binding) -> Self {
        Self { binding, templates: Default::default() }
    }

    /// Returns the template for Calls of a procedure; `None` if there is no template number for it.
    #[inline]
    pub(crate) fn template(&self, procedure: u32) -> Option<NamedTemplate<'_>> {
        let template = self.templates.get(usize::try_from(procedure).ok()?)?;
        let id = TemplateId::new(u8::try_from(procedure).ok()? + 1)?;
        match template.get() {
            Some(template) => Some(NamedTemplate { id, template }),
            None => self.make(id, procedure),
        }
    }

    #[cold]
    fn make(&self, id: TemplateId, procedure: u32) -> Option<NamedTemplate<'_>> {
        let Binding { program, version, .. } = self.binding;
        let made = PlainHeaders::Call([program, version, procedure]).template()?;
        let template = self.templates.get(usize::try_from(procedure).ok()?)?;
        Some(NamedTemplate { id, template: template.get_or_init(|| Box::new(made)) })
    }
}

impl Deref for Bound {
    type Target = Binding;

    fn deref(&self) -> &Binding {
        &self.binding
    }
}

/// The meanings of the peer's templates that have arrived. Allocated when the first one arrives.
#[derive(Debug, Default)]
pub(crate) struct Meanings(Option<Box<[Option<Meaning>; TemplateId::COUNT]>>);

/// The kind of message that a template of the peer stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Replies that have results.
    Results,
    /// Calls that carry AUTH_NONE, with this header; their arguments come alone.
    Call(Header),
    /// Any other message: each is decoded by itself.
    Unknown,
}

impl Meaning {
    /// Determines the meaning of a template on a connection that serves `programs`.
    fn of(template: &HeaderTemplate, programs: Option<&Programs>) -> Self {
        match PlainHeaders::of(template) {
            Some(PlainHeaders::Results) => Self::Results,
            Some(PlainHeaders::Call(asked)) => {
                let header = programs.and_then(|programs| programs.plain_of(asked));
                header.map_or(Self::Unknown, Self::Call)
            }
            None => Self::Unknown,
        }
    }

    /// Returns whether the messages are Calls or Replies, if that is known.
    #[inline]
    pub(crate) const fn kind(self) -> Option<Kind> {
        match self {
            Self::Results => Some(Kind::Reply),
            Self::Call(_) => Some(Kind::Call),
            Self::Unknown => None,
        }
    }
}

impl Meanings {
    /// Returns the meaning of a template. A number keeps the meaning of the template that first arrived with it.
    #[inline]
    pub(crate) fn of(&mut self, like: NamedTemplate<'_>, programs: Option<&Programs>) -> Meaning {
        let number = usize::from(like.id.number());
        match self.0.as_ref().and_then(|known| *known.get(number)?) {
            Some(meaning) => meaning,
            None => self.learn(like, programs),
        }
    }

    #[cold]
    fn learn(&mut self, like: NamedTemplate<'_>, programs: Option<&Programs>) -> Meaning {
        let meaning = Meaning::of(like.template, programs);
        let places = self.0.get_or_insert_default();
        if let Some(place) = places.get_mut(usize::from(like.id.number())) {
            *place = Some(meaning);
        }
        meaning
    }
}

#[cfg(test)]
mod tests {
    use haulage_proto::rpc::Procedure;

    use super::*;
    use crate::service::{AUTH_SYS, Program};

    fn binding(procedures: usize) -> Binding {
        let procedures = std::iter::repeat_with(|| Procedure::new("A")).take(procedures).collect();
        Binding { program: 7, version: 3, procedures }
    }

    fn like(number: u8, template: &HeaderTemplate) -> NamedTemplate<'_> {
        NamedTemplate { id: TemplateId::new(number).unwrap(), template }
    }

    #[test]
    fn each_procedure_has_a_number_of_its_own_as_long_as_there_are_any() {
        let bound = Bound::new(binding(40));
        let mut numbers = vec![RESULTS.id.number()];
        for procedure in 0..40 {
            let Some(named) = bound.template(procedure) else {
                assert!(procedure >= 15, "{procedure}");
                continue;
            };
            let again = bound.template(procedure).expect("it has one");
            assert_eq!((again.id, again.template), (named.id, named.template));
            let asked = PlainHeaders::Call([7, 3, procedure]);
            assert_eq!(PlainHeaders::of(named.template), Some(asked));
            numbers.push(named.id.number());
        }
        assert_eq!(numbers, Vec::from_iter(0..16));
        assert!(bound.template(u32::MAX).is_none());
    }

    #[test]
    fn a_number_means_what_its_template_meant_when_it_came_first() {
        let programs = Programs::new(vec![Program::new(binding(5))]);
        let made = |asked| PlainHeaders::Call(asked).template().unwrap();
        let results = PlainHeaders::RESULTS;
        let offsets = results.offsets();
        let strange = HeaderTemplate::new(&[1; 44], offsets).unwrap();
        let cases = [
            (made([7, 3, 4]), Meaning::Call(Header { program: 0, procedure: 4, arguments_at: 0 })),
            (made([7, 3, 5]), Meaning::Unknown),
            (made([7, 4, 4]), Meaning::Unknown),
            (made([8, 3, 4]), Meaning::Unknown),
            (results, Meaning::Results),
            (strange, Meaning::Unknown),
        ];
        let mut meanings = Meanings::default();
        for (number, (template, meaning)) in (0..).zip(cases) {
            assert_eq!(meanings.of(like(number, &template), Some(&programs)), meaning, "{number}");
        }
        for (number, (_, meaning)) in (0..).zip(cases) {
            // The meaning of a number is remembered: other octets under the same number do not change it.
            assert_eq!(meanings.of(like(number, &strange), Some(&programs)), meaning, "{number}");
        }
        let refused = Programs::new(vec![Program::new(binding(5)).flavors(&[AUTH_SYS])]);
        let call = cases[0].0;
        assert_eq!(Meanings::default().of(like(0, &call), Some(&refused)), Meaning::Unknown);
        let of_none = Meanings::default().of(like(0, &call), None);
        assert_eq!(of_none, Meaning::Unknown, "nothing is served");
    }
}
