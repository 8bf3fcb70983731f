//! A peer's greeting on the socket, and the descriptors that come with it.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

use haulage::provider::Event;
use haulage::sys::unix::Stream;
use haulage_proto::xdr::Reader;

use super::{Hello, MAGIC, REGION_MAX, end, memory, name, scene, segment_length};
use crate::by_number::ByNumber as _;
use crate::fuzz::beside::PARAMS;
use crate::fuzz::octets::{some_octets, spoil, word};
use crate::world::choices::Choices;

/// Greets in pieces. The victim reports a request if the greeting and its descriptors are valid, and otherwise nothing.
/// Its place in the victim is free again once the peer has left or was too slow.
pub(in super::super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let mut scene = scene();
    let stream = Stream::connect(&name(scene.at.port())).expect("it listens").expect("room");
    let said = Said::draw(&mut choices);
    let mut passed: Vec<_> = said.passed.iter().map(|one| one.fd.as_fd()).collect();
    let mut rest = &said.octets[..];
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(choices.of(1..=600).min(rest.len()));
        rest = behind;
        // The victim closes the socket once it has refused a greeting.
        if stream.send(piece, &passed).is_err() {
            break;
        }
        passed.clear();
        (0..POLLS).for_each(|_| scene.poll());
    }
    let request = scene.victim.take(|event| matches!(event, Event::Request { .. }));
    match (request, said.private_data()) {
        (Some(Event::Request { qp, private_data, .. }), Some(expected)) => {
            assert_eq!(*private_data, *expected);
            match choices.one_in(2) {
                true => scene.victim.provider.accept(scene.now, qp, &PARAMS),
                false => scene.victim.provider.reject(scene.now, qp, b"no"),
            }
            (0..POLLS).for_each(|_| scene.poll());
        }
        (None, None) => {}
        (request, expected) => panic!(
            "{request:?} where {expected:?} was to be heard: {:02x?} with {:?}",
            said.octets,
            said.passed.iter().map(|one| one.sealed).collect::<Vec<_>>()
        ),
    }
    if choices.one_in(2) {
        drop(stream);
    } else {
        stream.shutdown();
    }
    scene.until("the place", |scene| (scene.victim.provider.connections() == 1).then_some(()));
    scene.assert_unharmed();
    end(scene);
}

/// A greeting, and the descriptors that come with its first octets.
struct Said {
    octets: Vec<u8>,
    passed: Vec<Passed>,
}

/// A descriptor that comes with a greeting.
struct Passed {
    fd: OwnedFd,
    /// Length of the shared memory behind it; `None` if it could be truncated.
    sealed: Option<u64>,
}

impl Passed {
    fn memory(length: u64) -> Self {
        let (_, fd) = memory(usize::try_from(length).expect("it was made"));
        Self { fd, sealed: Some(length) }
    }

    fn draw(choices: &mut Choices, length: u64) -> Self {
        match choices.below(16) {
            0 => Self { fd: File::open("/dev/null").expect("it is there").into(), sealed: None },
            1 => Self::memory(length + 4096),
            2 => Self::memory(1),
            _ => Self::memory(length),
        }
    }
}

impl Said {
    fn draw(choices: &mut Choices) -> Self {
        let region =
            choices.pick(&[None, None, Some(4096), Some(REGION_MAX), Some(REGION_MAX + 1)]);
        let kind = if choices.one_in(8) { word(choices) } else { 1 };
        let mut hello = Hello::new(kind, region);
        if choices.one_in(4) {
            hello.ring_bytes = choices.pick(&[0, 2048, 4096, 5000, 8192, 8 << 20, 16 << 20]);
            hello.entries = choices.pick(&[0, 1, 16, 1 << 16, (1 << 16) + 1, u32::MAX]);
        }
        if choices.one_in(4) {
            hello.private_data = some_octets(choices, 255);
            hello.private_data.extend(vec![7; choices.pick(&[0, 100, 257, 258, 400])]);
        }
        let is_made = hello.ring_bytes <= 16 << 20 && hello.entries <= (1 << 16) + 1;
        let length = if is_made { segment_length(hello.ring_bytes, hello.entries) } else { 4096 };
        let mut passed = vec![Passed::draw(choices, length as u64)];
        passed.extend(region.map(|length| Passed::draw(choices, length)));
        match choices.below(16) {
            0 => drop(passed.pop()),
            1 => passed.extend([Passed::memory(4096), Passed::memory(4096)]),
            2 => passed.reverse(),
            _ => {}
        }
        let mut octets = hello.encode();
        if choices.one_in(4) {
            spoil(choices, &mut octets);
        }
        // Doorbells may follow the greeting.
        octets.extend(some_octets(choices, 8));
        Self { octets, passed }
    }

    /// Returns the private data, if the greeting and its descriptors are valid.
    fn private_data(&self) -> Option<&[u8]> {
        let mut r = Reader::new(self.octets.strip_prefix(MAGIC)?);
        let mut words = [0; 6];
        for word in &mut words {
            *word = r.u32().ok()?;
        }
        let [kind, _, _, ring_bytes, entries, flags] = words;
        let region = r.u64().ok()?;
        let region = (flags & 1 == 1).then_some(region);
        let length = r.u32().ok().filter(|length| *length <= 512)?;
        let private_data = r.rest().get(..length as usize)?;
        let is_layout = ring_bytes.is_power_of_two()
            && (4096..=8 << 20).contains(&ring_bytes)
            && (1..=1 << 16).contains(&entries);
        let of =
            |at: usize, length: u64| self.passed.get(at).is_some_and(|p| p.sealed == Some(length));
        let is_passed = is_layout
            && self.passed.len() == 1 + usize::from(region.is_some())
            && of(0, segment_length(ring_bytes, entries) as u64)
            && region.is_none_or(|length| length <= REGION_MAX && of(1, length));
        (kind == 1 && is_passed).then_some(private_data)
    }
}

const POLLS: usize = 3;
