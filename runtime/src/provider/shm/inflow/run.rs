//! Runs of messages that are taken without Receives.

use haulage_proto::verbs::{Handle, HeaderPatch, NamedTemplate, QpNum, TemplateId};

use crate::provider::shm::outflow::RingPort;
use crate::provider::shm::ring::{Consumer, Look};
use crate::provider::{MessageSink, RUN_MAX, Run as Offered, RunKind};

/// Messages copied out of the ring. They leave it once the number that the sink takes is known.
pub(super) struct Run<'a> {
    of: Of,
    /// Each message, or its octets behind the template.
    messages: [&'a [u8]; RUN_MAX],
    count: usize,
    octets: usize,
    /// The handle that each message invalidates, if they do.
    handles: [Handle; RUN_MAX],
    /// The patch of each message, if they have a template.
    patches: [HeaderPatch; RUN_MAX],
}

/// The property that the messages of a run share.
enum Of {
    Nothing,
    Template(TemplateId),
    /// Each invalidates a handle.
    Invalidating,
}

impl<'a> Run<'a> {
    /// Makes an empty run. A constructor costs less than a copy.
    #[inline(always)]
    pub(super) const fn new() -> Self {
        Self {
            of: Of::Nothing,
            messages: [&[]; RUN_MAX],
            count: 0,
            octets: 0,
            handles: [Handle(0); RUN_MAX],
            patches: [HeaderPatch { xid: 0, credit: 0 }; RUN_MAX],
        }
    }

    /// Copies at most `budget` messages of at most `length_max` octets each to `room`: plain messages, or messages with
    /// one template, or messages that invalidate a handle each. Returns what follows them in the ring, if that was
    /// looked at.
    #[inline]
    pub(super) fn copy(
        &mut self,
        consumer: &mut Consumer,
        mut room: &'a mut [u8],
        length_max: usize,
        budget: usize,
    ) -> Option<Look> {
        consumer.look_again();
        let (mut count, all) = (0, room.len());
        let mut behind = None;
        let most = budget.min(RUN_MAX);
        while let Some(messages) = self.messages.get_mut(count..most)
            && let Some(message) = messages.first_mut()
        {
            let fitting = length_max.min(room.len());
            match consumer.look(room.get_mut(..fitting).unwrap_or_default()) {
                Look::Plain(length) => {
                    (*message, room) = std::mem::take(&mut room).split_at_mut(length);
                    count += 1;
                }
                Look::Series if count == 0 => {
                    return self.copy_series(consumer, room, length_max, most);
                }
                Look::Other if count == 0 => {
                    return self.copy_invalidating(consumer, room, length_max, most);
                }
                other => {
                    behind = Some(other);
                    break;
                }
            }
        }
        (self.count, self.octets) = (count, all - room.len());
        behind
    }

    /// Copies, of at most `most` messages of a series, the octets behind the template.
    #[inline]
    fn copy_series(
        &mut self,
        consumer: &mut Consumer,
        mut room: &'a mut [u8],
        length_max: usize,
        most: usize,
    ) -> Option<Look> {
        let (mut count, all) = (0, room.len());
        let behind = loop {
            let places = (&mut self.patches[count..most], &mut self.messages[count..most]);
            let given = if let Of::Template(id) = self.of { Some(id) } else { None };
            match consumer.look_at_series(given, &mut room, length_max, places) {
                Some((id, new)) if new > 0 => {
                    self.of = Of::Template(id);
                    count += new;
                }
                _ => break Some(Look::Other),
            }
            if count == most {
                break None;
            }
            match consumer.glance() {
                Look::Series => {}
                other => break Some(other),
            }
        };
        (self.count, self.octets) = (count, all - room.len());
        behind
    }

    /// Copies at most `most` messages that invalidate a handle each.
    #[inline(never)]
    fn copy_invalidating(
        &mut self,
        consumer: &mut Consumer,
        mut room: &'a mut [u8],
        length_max: usize,
        most: usize,
    ) -> Option<Look> {
        let (mut count, all) = (0, room.len());
        let mut behind = None;
        for (message, place) in self.messages[..most].iter_mut().zip(&mut self.handles) {
            let fitting = length_max.min(room.len());
            match consumer.look_invalidating(room.get_mut(..fitting).unwrap_or_default()) {
                Ok((length, handle)) => {
                    (*message, room) = std::mem::take(&mut room).split_at_mut(length);
                    *place = handle;
                    count += 1;
                }
                Err(other) => {
                    behind = Some(other);
                    break;
                }
            }
        }
        self.of = Of::Invalidating;
        (self.count, self.octets) = (count, all - room.len());
        behind
    }

    /// Offers the messages to `sink`, which may answer by `port`. Returns how many it takes.
    #[inline]
    pub(super) fn offer(
        &self,
        qp: QpNum,
        consumer: &Consumer,
        sink: &mut impl MessageSink,
        port: &mut RingPort<'_>,
    ) -> usize {
        let octets = &self.messages[..self.count];
        match &self.of {
            Of::Nothing => {
                let offered = Offered { octets, kind: RunKind::Whole };
                sink.messages(qp, &offered, port)
            }
            Of::Template(id) => match consumer.template(*id) {
                Some(template) => {
                    let like = NamedTemplate { id: *id, template };
                    let kind = RunKind::Like(like, &self.patches[..self.count]);
                    sink.messages(qp, &Offered { octets, kind }, port)
                }
                None => 0,
            },
            Of::Invalidating => {
                let kind = RunKind::Invalidating(&self.handles[..self.count]);
                sink.messages(qp, &Offered { octets, kind }, port)
            }
        }
    }

    /// Returns the number of messages.
    #[inline]
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Takes the first `count` messages from the ring. Returns their octets.
    #[inline]
    pub(super) fn pass(&self, consumer: &mut Consumer, count: usize) -> usize {
        if count == self.count {
            consumer.pass();
            return self.octets;
        }
        consumer.pass_some(count);
        self.messages.iter().take(count).map(|message| message.len()).sum()
    }
}
