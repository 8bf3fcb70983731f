//! What messages begin with that leave, or come, with a template: see
//! [`NamedTemplate`](haulage_proto::verbs::NamedTemplate).
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
