//! What messages begin with that leave, or come, with a template: see
//! [`NamedTemplate`].
//!
//! # Normal operation
//! Number 0 is of Replies that have results, and those behind it are of Calls, by their procedure: the binding of a
//! connection says which procedures there are. A peer gives its own numbers, and what its templates mean is found out
//! when a number comes for the first time on a connection.
//!
//! # Limits
//! Procedures beyond the numbers there are have no template: their Calls leave whole.

use std::cell::OnceCell;
use std::ops::Deref;

use haulage_proto::negotiate::PlainHeaders;
use haulage_proto::rpc::{Binding, PlainCalls};
use haulage_proto::v2::continuation::Kind;
use haulage_proto::verbs::{HeaderTemplate, NamedTemplate, TemplateId};

/// What Replies that have results begin with.
pub(crate) const RESULTS: NamedTemplate<'static> =
    NamedTemplate { id: RESULTS_ID, template: &PlainHeaders::RESULTS };

const RESULTS_ID: TemplateId = match TemplateId::new(0) {
    Some(id) => id,
    None => panic!("there are some"),
};

/// What Calls are bound to, and what those of each procedure begin with that have AUTH_NONE for a credential.
#[derive(Debug)]
pub(crate) struct Bound {
    binding: Binding,
    /// By the number of the template, without that of Replies. Each takes memory once there was such a Call.
    templates: [OnceCell<Box<HeaderTemplate>>; TemplateId::COUNT - 1],
}

impl Bound {
    pub(crate) fn new(binding: Binding) -> Self {
        Self { binding, templates: Default::default() }
    }

    /// Returns what Calls of a procedure begin with; `None` if there is no number for that.
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

/// What the templates of a peer mean, as far as they have come. It takes memory once one has.
#[derive(Debug, Default)]
pub(crate) struct Meanings(Option<Box<[Option<Meaning>; TemplateId::COUNT]>>);

/// What messages with a template of the peer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Replies that have results.
    Results,
    /// Calls with AUTH_NONE for a credential, of this procedure.
    Call(u32),
    /// Messages that are acted on one by one, whatever they are.
    Unknown,
}

impl Meaning {
    /// Finds out what a template means to a core that serves these Calls.
    fn of(template: &HeaderTemplate, plain_calls: &PlainCalls) -> Self {
        match PlainHeaders::of(template) {
            Some(PlainHeaders::Results) => Self::Results,
            Some(PlainHeaders::Call(asked)) => {
                plain_calls.procedure_of(asked).map_or(Self::Unknown, Self::Call)
            }
            None => Self::Unknown,
        }
    }

    /// Returns what the messages are, if that is known.
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
    /// Returns what a template means, which has had its number since it came for the first time.
    #[inline]
    pub(crate) fn of(&mut self, like: NamedTemplate<'_>, plain_calls: &PlainCalls) -> Meaning {
        let number = usize::from(like.id.number());
        match self.0.as_ref().and_then(|known| *known.get(number)?) {
            Some(meaning) => meaning,
            None => self.learn(like, plain_calls),
        }
    }

    #[cold]
    fn learn(&mut self, like: NamedTemplate<'_>, plain_calls: &PlainCalls) -> Meaning {
        let meaning = Meaning::of(like.template, plain_calls);
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
        let plain_calls = PlainCalls::of(&binding(5));
        let made = |asked| PlainHeaders::Call(asked).template().unwrap();
        let results = PlainHeaders::RESULTS;
        let offsets = results.offsets();
        let strange = HeaderTemplate::new(&[1; 44], offsets).unwrap();
        let cases = [
            (made([7, 3, 4]), Meaning::Call(4)),
            (made([7, 3, 5]), Meaning::Unknown),
            (made([7, 4, 4]), Meaning::Unknown),
            (made([8, 3, 4]), Meaning::Unknown),
            (results, Meaning::Results),
            (strange, Meaning::Unknown),
        ];
        let mut meanings = Meanings::default();
        for (number, (template, meaning)) in (0..).zip(cases) {
            assert_eq!(meanings.of(like(number, &template), &plain_calls), meaning, "{number}");
        }
        for (number, (_, meaning)) in (0..).zip(cases) {
            // The octets are not looked at again.
            assert_eq!(meanings.of(like(number, &strange), &plain_calls), meaning, "{number}");
        }
        let refused = plain_calls.refused();
        let call = cases[0].0;
        assert_eq!(Meanings::default().of(like(0, &call), &refused), Meaning::Unknown);
    }
}
