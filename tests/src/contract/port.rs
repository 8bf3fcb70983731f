//! Checks of the contract's lines 26 to 29: the port.

use std::collections::VecDeque;

use haulage::provider::{
    Done, Event, Head, MessageSink, Operation, Outgoing, Port, Provider, Run, RunKind, Sent,
    WorkQueue, WorkRequest,
};
use haulage::service::Data;
use haulage_mr_pool::{Exposed, Local};
use haulage_proto::verbs::{
    Access, Handle, HeaderPatch, HeaderTemplate, NamedTemplate, PatchOffsets, QpNum, Segment,
    TemplateId, WrId,
};

use super::connections::ending;
use crate::bed::{
    ACTIVE, Bed, Link, PASSIVE, SIGNALED, Said, claim, fence, filled, outlive, spent,
};
use crate::by_number::ByNumber as _;
use crate::network::Network;
use crate::pattern;

/// An operation that a port does (a Write ahead of a message, a Read at once, an opened or a retired lease) has the effect
/// of the work request: it has happened before a message sent behind it arrives, and a retired handle is out of the
/// peer's reach.
pub fn line_26_a_port_does_what_work_requests_do<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let promises = bed.ends[PASSIVE].provider.caps().promises;
    if !promises.sends_wait || !promises.remote_invalidation {
        eprintln!("skipped: `sends_wait` or `remote_invalidation` of Caps is false");
        return;
    }
    let link = bed.connect();
    let (mut written, mut taken, mut retired) = (0, 0, 0);
    for round in 0..ROUNDS {
        // Every other Write is too long to be copied by most providers.
        let length = if round % 2 == 1 { LONG } else { LENGTH };
        let active = &mut bed.ends[ACTIVE];
        let (theirs, segment) = active.expose(link[ACTIVE], &vec![0; length], Access::RemoteWrite);
        let (source, read) = active.expose(link[ACTIVE], &[7; LENGTH], Access::RemoteRead);
        let (answer, sink) = active.receive(link[ACTIVE], MESSAGE);
        let passive = &mut bed.ends[PASSIVE];
        let id = passive.id();
        let lease = Some(passive.holding(&[0; LENGTH]));
        let made = Some((passive.holding(&[0; 16]), passive.holding(&vec![round; length])));
        let reads = passive.provider.caps().read_max > 0;
        let mut writer = Writer { id, lease, made, opened: None, said: None, reads };
        let message = [encode(segment), encode(read)].concat();
        let in_receive = offer(&mut bed, link, (&message, None), &mut writer);
        let Writer { opened, said, .. } = writer;
        let id = bed.ends[ACTIVE].invalidate(link[ACTIVE], &source);
        drop(fence(source, &bed.succeeded(ACTIVE, id)));
        if in_receive.is_some() {
            // The sink took nothing, so this end posts the answer.
            let passive = &mut bed.ends[PASSIVE];
            let invalidate = Some(segment.handle);
            let (id, source) = passive.send(link[PASSIVE], b"no", invalidate, SIGNALED);
            drop(fence(theirs, &bed.succeeded(ACTIVE, answer)));
            drop(spent(source, &bed.succeeded(PASSIVE, id)));
            continue;
        }
        let done = bed.succeeded(ACTIVE, answer);
        assert_eq!(done.invalidated, Some(segment.handle));
        assert!(fence(theirs, &done).bytes() == vec![round; length], "round {round}");
        written += 1;
        let said = said.expect("the message was taken");
        taken += usize::from(said.sent == Sent::Taken);
        bed.left(PASSIVE, said);

        let (opened, named) = opened.expect("the answer says where it is");
        assert_eq!(decode(filled(sink, &done).bytes()), named);
        let (id, source) = bed.ends[ACTIVE].write(link[ACTIVE], &[!round; LENGTH], named);
        let mut fencer = Fencer { opened: Some(opened), back: None };
        let message = (&b"written"[..], Some(named.handle));
        let back = match offer(&mut bed, link, message, &mut fencer) {
            Some(done) => fence(fencer.opened.expect("it was not taken"), &done),
            None => fencer.back.inspect(|_| retired += 1).expect("it was taken"),
        };
        assert!(back.bytes() == [!round; LENGTH], "round {round}");
        drop(spent(source, &bed.succeeded(ACTIVE, id)));
    }
    eprintln!("{written} were written, {taken} taken, and {retired} retired, in {ROUNDS} rounds");
}

/// A message that begins with a template is a message like any other: the octets of the template with the patch in their
/// places, and the octets behind them, in order. A run names a template by the number that its sender gave it.
pub fn line_27_messages_with_a_template_are_whole<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    if !bed.ends[PASSIVE].provider.caps().promises.sends_wait {
        eprintln!("skipped: `sends_wait` of Caps is false");
        return;
    }
    let link = bed.connect();
    let templates = templates();
    let (mut arrived, mut alike) = (0, 0);
    for round in 0..ROUNDS {
        // Runs of one message and of two alternate, because their answers may leave in different ways.
        let messages = 1 + usize::from(round % 2);
        let passive = &mut bed.ends[PASSIVE];
        let mut ready = || (passive.id(), passive.holding(&[0xaa; LENGTH]));
        let ready = (0..ANSWERS).map(|_| ready()).collect();
        let (sent, said) = (Vec::new(), Vec::new());
        let mut herald = Herald { round, templates: &templates, ready, sent, said };
        let provider = &mut bed.ends[PASSIVE].provider;
        let answered = if round % 3 == 2 {
            let mut port = provider.port(link[PASSIVE]).expect("a queue pair");
            herald.send(messages, &mut port);
            assert_eq!(port.post(&mut WorkQueue::new()), Ok(()));
            messages
        } else {
            let go = &[(&b"go"[..], None); 2][..messages];
            messages - offer_all(&mut bed, link, go, &mut herald).len()
        };
        // In half of the rounds the active end takes them without Receives, if its provider can.
        let Herald { sent, said, .. } = herald;
        let expected = sent.into();
        let mut auditor = Auditor { templates: &templates, expected, alike: 0 };
        let mut room = [0; 4 * LENGTH];
        for _ in 0..if round % 4 < 2 { TURNS } else { 0 } {
            let active = &mut bed.ends[ACTIVE].provider;
            active.receive_in_place(&mut room, LENGTH, ANSWERS, &mut auditor);
            bed.turn([8; 2]);
        }
        arrived += answered * ANSWERS / 2 - auditor.expected.len();
        alike += auditor.alike;
        for (_, message) in auditor.expected {
            let (id, sink) = bed.ends[ACTIVE].receive(link[ACTIVE], LENGTH);
            let done = bed.succeeded(ACTIVE, id);
            assert_eq!(done.length as usize, message.len());
            assert!(filled(sink, &done).bytes().starts_with(&message), "round {round}");
        }
        said.into_iter().for_each(|said| bed.left(PASSIVE, said));
    }
    eprintln!("{arrived} messages were taken as they came, {alike} as what is behind a template");
}

/// Once the peer has taken everything sent, and all completions were polled, any message fits, whatever goes ahead of it.
/// What is posted instead of a message that found no room waits for a completion at most.
pub fn line_28_there_is_room_once_all_was_taken<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let link = bed.connect();
    let (exposed, segment) =
        bed.ends[PASSIVE].expose(link[PASSIVE], &[0; LONG], Access::RemoteWrite);
    let caps = bed.ends[PASSIVE].provider.caps();
    let room = caps.receives_each.unwrap_or(usize::MAX).min(caps.receive_queue_max);
    // Some providers lose a connection whose messages find no Receive.
    let waits = caps.promises.sends_wait;
    let most = if waits { FILLING_MAX } else { FILLING_MAX.min(room - 1) };
    let mut receives = VecDeque::new();
    // Some messages are so short that most providers copy them, and nothing goes ahead of the last.
    let rounds = [(0, 8, LENGTH), (1, LONG, LENGTH), (2, LENGTH, 100), (3, 0, 100)];
    for (round, written, length) in rounds {
        let octets = pattern::of(length, round);
        let data = Data::Local(bed.ends[ACTIVE].holding(&vec![9; written]));
        let mut next = bed.ends[ACTIVE].message(&octets).behind(data, segment);
        let mut said = Vec::new();
        while said.len() < most {
            if !waits && receives.len() == said.len() {
                receives.push_back(bed.ends[PASSIVE].receive(link[PASSIVE], length));
            }
            let message = bed.ends[ACTIVE].say(link[ACTIVE], (length, None), next);
            if message.sent == Sent::Full {
                break;
            }
            said.push(message);
            next = bed.ends[ACTIVE].message(&octets);
        }
        assert!(!said.is_empty(), "round {round}: all was taken, and there is no room");
        eprintln!("{} messages fitted", said.len());
        // What found no room is posted.
        if !waits && receives.len() == said.len() {
            receives.push_back(bed.ends[PASSIVE].receive(link[PASSIVE], length));
        }
        let active = &mut bed.ends[ACTIVE];
        let (id, posted) = (active.id(), active.holding(&octets).into_source());
        let source = posted.source(0..length).expect("the whole lease");
        let operation = Operation::Send { source, invalidate: None };
        let mut batch = WorkQueue::from([WorkRequest { id, flags: SIGNALED, operation }]);
        let _ = active.provider.post(link[ACTIVE], &mut batch);
        for at in 0..=said.len() {
            if at == said.len() && !batch.is_empty() {
                let completed = |event: &Event<_>| matches!(event, Event::Completion(_));
                bed.until("a completion, which says that there is room", |bed| {
                    bed.ends[ACTIVE].log.iter().any(completed).then_some(())
                });
                assert_eq!(bed.ends[ACTIVE].provider.post(link[ACTIVE], &mut batch), Ok(()));
            }
            let posted = receives.pop_front();
            let (id, sink) =
                posted.unwrap_or_else(|| bed.ends[PASSIVE].receive(link[PASSIVE], length));
            let done = bed.succeeded(PASSIVE, id);
            assert!(filled(sink, &done).bytes() == octets, "round {round}");
        }
        said.into_iter().for_each(|said| bed.left(ACTIVE, said));
        drop(spent(posted, &bed.succeeded(ACTIVE, id)));
        bed.settle();
    }
    let id = bed.ends[PASSIVE].invalidate(link[PASSIVE], &exposed);
    drop(fence(exposed, &bed.succeeded(PASSIVE, id)));
}

/// If the peer refuses a Write that goes ahead of a message, the connection ends, the message does not arrive, and its
/// Receive is for another. If it was taken, it completes once all the same.
pub fn line_29_a_message_behind_a_refused_write_does_not_arrive<N: Network>(network: N) {
    let mut bed = Bed::new(network);
    let bystander = bed.connect();
    for length in [8, LENGTH, LONG] {
        let link = bed.connect();
        let octets = pattern::of(length, 4);
        let (exposed, segment) =
            bed.ends[PASSIVE].expose(link[PASSIVE], &octets, Access::RemoteWrite);
        let (receive, sink) = bed.ends[PASSIVE].receive(link[PASSIVE], LENGTH);
        // The handle names another slot.
        let named = Segment { handle: Handle(segment.handle.0 ^ 1 << 8), ..segment };
        let active = &mut bed.ends[ACTIVE];
        let data = Data::Local(active.holding(&vec![9; length]));
        let message = active.message(b"behind").behind(data, named);
        let said = active.say(link[ACTIVE], (6, None), message);
        assert!(matches!(said.sent, Sent::Copied | Sent::Taken), "{length}: {:?}", said.sent);
        // The connection may be over already.
        let _ = active.provider.post(link[ACTIVE], &mut WorkQueue::new());
        let told = bed.until("Quiesced", |bed| {
            let log = &bed.ends[ACTIVE].log;
            let of = |event: &&Event<_>| matches!(event, Event::Completion(d) if d.id == said.id);
            let is_over =
                |event: &Event<_>| matches!(event, Event::Quiesced(q) if q.qp() == link[ACTIVE]);
            log.iter().any(is_over).then(|| log.iter().filter(of).count())
        });
        assert_eq!(told, usize::from(said.sent == Sent::Taken), "{length}: completions");
        drop(ending(&mut bed, ACTIVE, link[ACTIVE]));
        let proof = ending(&mut bed, PASSIVE, link[PASSIVE]).proof;
        assert!(outlive(exposed, &proof).bytes() == octets, "{length}: what is not named stays");
        let link = bed.connect();
        bed.ends[PASSIVE].provider.reserve_receives(link[PASSIVE], 1);
        let (next, source) = bed.ends[ACTIVE].send(link[ACTIVE], b"next", None, SIGNALED);
        let done = bed.succeeded(PASSIVE, receive);
        assert_eq!((done.qp, &filled(sink, &done).bytes()[..4]), (link[PASSIVE], &b"next"[..]));
        drop(spent(source, &bed.succeeded(ACTIVE, next)));
    }
    bed.carry(bystander, ACTIVE, b"unharmed");
}

/// Sends a message that `sink` may take. Returns the completion of its Receive if the sink did not take it.
fn offer<N: Network>(
    bed: &mut Bed<N>,
    link: Link,
    message: (&[u8], Option<Handle>),
    sink: &mut impl MessageSink,
) -> Option<Done> {
    offer_all(bed, link, &[message], sink).pop()
}

/// Sends messages that `sink` may take. Returns the completions of the Receives of those that it did not take.
fn offer_all<N: Network>(
    bed: &mut Bed<N>,
    link: Link,
    messages: &[(&[u8], Option<Handle>)],
    sink: &mut impl MessageSink,
) -> Vec<Done> {
    let sent: Vec<_> = messages
        .iter()
        .map(|(message, handle)| bed.ends[ACTIVE].send(link[ACTIVE], message, *handle, SIGNALED))
        .collect();
    let (mut room, mut taken) = ([0; 4 * MESSAGE], 0);
    for _ in 0..TURNS {
        if taken == messages.len() {
            break;
        }
        let passive = &mut bed.ends[PASSIVE].provider;
        taken += passive.receive_in_place(&mut room, MESSAGE, messages.len() - taken, sink);
        assert_eq!(passive.post(link[PASSIVE], &mut WorkQueue::new()), Ok(()));
        bed.turn([8; 2]);
    }
    let others = messages[taken..].iter().map(|(message, _)| {
        let (received, sink) = bed.ends[PASSIVE].receive(link[PASSIVE], MESSAGE);
        let done = bed.succeeded(PASSIVE, received);
        assert!(filled(sink, &done).bytes().starts_with(message));
        done
    });
    let others = others.collect();
    for (id, source) in sent {
        drop(spent(source, &bed.succeeded(ACTIVE, id)));
    }
    others
}

/// Takes one message with two segments: reads from the second, opens a lease, and answers with its segment, behind a Write
/// to the first.
struct Writer {
    /// The name of the answer.
    id: WrId,
    lease: Option<Local>,
    /// The leases of the answer, and of what is written.
    made: Option<(Local, Local)>,
    opened: Option<(Exposed, Segment)>,
    said: Option<Said>,
    /// Whether the provider reads at once.
    reads: bool,
}

impl MessageSink for Writer {
    fn messages(&mut self, _: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize {
        let segment = decode(run.octets[0]);
        let mut octets = [0; LENGTH];
        let is_read = port.read(&claim(decode(&run.octets[0][16..])), &mut octets).is_ok();
        assert_eq!((is_read, octets[0]), (self.reads, if is_read { 7 } else { 0 }));
        assert!(octets == [octets[0]; LENGTH]);
        let lease = self.lease.take().expect("one message");
        let (exposed, named) = port.open(lease, Access::RemoteWrite).expect("a handle for a test");
        assert_eq!((named.handle, named.length as usize), (exposed.handle(), LENGTH));
        let (mut answer, data) = self.made.take().expect("one message");
        answer.bytes_mut().copy_from_slice(&encode(named));
        let mut message = Outgoing::within(answer).behind(Data::Local(data), segment);
        let head = Head::written(0..16, Some(segment.handle));
        let sent = port.send(&head, &mut message, self.id);
        self.said = Some(Said { id: self.id, message, sent });
        self.opened = Some((exposed, named));
        1
    }
}

/// Returns templates with their numbers: the shortest, the longest, and some with the XID at one offset or at two.
fn templates() -> Vec<(TemplateId, HeaderTemplate)> {
    let shapes = [
        (0, 44, PatchOffsets { xid: [0, 20], credit: 8 }),
        (15, 72, PatchOffsets { xid: [0, 32], credit: 8 }),
        (7, HeaderTemplate::LEN_MAX, PatchOffsets { xid: [92, 92], credit: 0 }),
        (3, 12, PatchOffsets { xid: [8, 8], credit: 0 }),
    ];
    let made = shapes.map(|(number, length, offsets)| {
        let octets = pattern::of(length, u64::from(number));
        let template = HeaderTemplate::new(&octets, offsets).expect("whole words");
        (TemplateId::new(number).expect("there are sixteen"), template)
    });
    made.into()
}

/// Answers each message with several messages, some of them with a template.
struct Herald<'a> {
    round: u8,
    templates: &'a [(TemplateId, HeaderTemplate)],
    /// Names and leases for the answers.
    ready: Vec<(WrId, Local)>,
    sent: Vec<(Option<TemplateId>, Vec<u8>)>,
    said: Vec<Said>,
}

impl Herald<'_> {
    /// Sends the answers to a run of `messages` messages.
    fn send(&mut self, messages: usize, port: &mut impl Port) {
        for at in 0..ANSWERS / 2 * messages {
            let credit = u32::from(self.round);
            let named = match at % 8 {
                3 => None,
                0..6 => self.templates.first(),
                // Each template comes first in a round of its own.
                _ => self.templates.get(1 + at % 2 + usize::from(self.round / 4 % 2)),
            };
            let header = named.map_or(0, |(_, template)| template.len());
            let length = usize::from(self.round) * at % (LENGTH - header);
            let body = if at % 3 == 0 { Vec::new() } else { pattern::of(length, at as u64) };
            let xid = u32::from(self.round) << 8 | u32::try_from(at).expect("few");
            let patch = HeaderPatch { xid, credit };
            let (id, mut lease) = self.ready.pop().expect("a lease for each answer");
            lease.set_len(header + body.len());
            lease.bytes_mut()[header..].copy_from_slice(&body);
            let mut whole = lease.bytes().to_vec();
            let (mut message, range) = (Outgoing::within(lease), 0..whole.len());
            let head = match named {
                Some((id, template)) => {
                    template.put(&mut whole, patch).expect("as long as it is");
                    Head::like(range, NamedTemplate { id: *id, template }, patch)
                }
                None => Head::written(range, None),
            };
            let sent = port.send(&head, &mut message, id);
            assert!(matches!(sent, Sent::Copied | Sent::Taken), "room for few");
            self.sent.push((named.map(|(id, _)| *id), whole));
            self.said.push(Said { id, message, sent });
        }
    }
}

impl MessageSink for Herald<'_> {
    fn messages(&mut self, _: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize {
        self.send(run.octets.len(), port);
        run.octets.len()
    }
}

/// Takes the expected messages, and checks the template of each run that has one.
struct Auditor<'a> {
    templates: &'a [(TemplateId, HeaderTemplate)],
    expected: VecDeque<(Option<TemplateId>, Vec<u8>)>,
    alike: usize,
}

impl MessageSink for Auditor<'_> {
    fn messages(&mut self, _: QpNum, run: &Run<'_>, _: &mut impl Port) -> usize {
        let count = run.octets.len();
        match run.kind {
            RunKind::Whole => {
                for message in run.octets {
                    assert_eq!(self.expected.pop_front().expect("it was sent").1, *message);
                }
            }
            RunKind::Like(NamedTemplate { id, template }, patches) => {
                assert_eq!(patches.len(), count);
                let named = self.templates.iter().find(|(named, _)| *named == id);
                assert_eq!(named, Some(&(id, *template)), "what its sender gave the number to");
                for (patch, body) in patches.iter().zip(run.octets) {
                    let mut message = vec![0; template.len()];
                    template.put(&mut message, *patch).expect("as long as it is");
                    message.extend_from_slice(body);
                    assert_eq!(self.expected.pop_front(), Some((Some(id), message)));
                }
                self.alike += count;
            }
            RunKind::Invalidating(_) => panic!("nothing invalidates anything"),
        }
        count
    }
}

/// Retires the handle that a message invalidates, and takes the lease back.
struct Fencer {
    opened: Option<Exposed>,
    back: Option<Local>,
}

impl MessageSink for Fencer {
    fn messages(&mut self, _: QpNum, run: &Run<'_>, port: &mut impl Port) -> usize {
        let RunKind::Invalidating(handles) = run.kind else {
            panic!("the message invalidates a handle")
        };
        let opened = self.opened.take().expect("one message");
        assert_eq!((run.octets, handles), (&[&b"written"[..]][..], &[opened.handle()][..]));
        let handle = handles[0];
        assert!(port.retire(Handle(handle.0 ^ 1)).is_none(), "of nothing");
        let done = port.retire(handle).expect("nobody is copying");
        assert!(port.retire(handle).is_none(), "it is retired");
        self.back = Some(fence(opened, &done));
        1
    }
}

fn encode(Segment { handle, length, offset }: Segment) -> Vec<u8> {
    [&handle.0.to_be_bytes()[..], &length.to_be_bytes(), &offset.to_be_bytes()].concat()
}

fn decode(message: &[u8]) -> Segment {
    let word = |at| u32::from_be_bytes(message[at..at + 4].try_into().expect("four octets"));
    let offset = u64::from_be_bytes(message[8..16].try_into().expect("eight octets"));
    Segment { handle: Handle(word(0)), length: word(4), offset }
}

const ROUNDS: u8 = 40;
/// Length of the short Writes and of the longest message, in octets.
const LENGTH: usize = 500;
/// Length of the other Writes, in octets.
const LONG: usize = 40_000;
const MESSAGE: usize = 64;
/// Messages that answer a run of two.
const ANSWERS: usize = 16;
/// Turns in which a message is offered to the sink before there is a Receive for it.
const TURNS: usize = 40;

/// Maximum number of messages sent to find out how many fit.
const FILLING_MAX: usize = 600;
