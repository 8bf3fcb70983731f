//! What the cores of one server tell each other: what they count, which keys have changed, and that they want memory.
//!
//! # Normal operation
//! A Call is served by the core on which it arrives. Only STAT and FIGURES ask the other cores, and are answered when all have answered.
//! A core that has watches says so in a [`Registry`], which every core reads once it has changed a key: the key goes to those
//! cores, each of which looks up what became of it. A core that finds no memory asks the others to give back what they do not need.
//!
//! # Limits
//! The mailbox of a core has room for [`POSTS_MAX`] posts. If it is full when a key is to be posted, all watches of that core
//! end, and their clients are told that they have lost changes. If it is full when the core is to be asked, the question is
//! answered without that core. If it is full when the core is to be answered, the answer is sent later.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::time::Duration;

use haulage::core::{CORES_MAX, CoreNumber, Cx};
use haulage::cores::post::{Mailbox, Undelivered, mailboxes};
use haulage::service::CallToken;
use haulage_proto::time::Instant;

use crate::figures::Figures;
use crate::stat::Stat;

/// The other cores of a server, as one of them knows them.
#[derive(Debug)]
pub(super) struct Others {
    core: CoreNumber,
    mailbox: Mailbox<Post>,
    registry: Arc<Registry>,
    /// Whether this core is in the registry.
    is_registered: bool,
    /// Questions that were not answered by all cores.
    asked: Vec<Question>,
    /// Questions that were answered, whose Calls go on.
    answered: Vec<(CallToken, Told)>,
    next_number: u64,
    /// Answers that found no room.
    unsent: VecDeque<(CoreNumber, Post)>,
    want: Want,
    /// Before this time no core is asked for memory again: none had any.
    asks_from: Instant,
    /// Cores that wait for memory of this one.
    wanting: Vec<CoreNumber>,
}

/// Whether this core waits for memory that others give back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    Nothing,
    /// `left` cores have not answered, and the others gave back `given` octets.
    Asked {
        left: usize,
        given: usize,
    },
    /// All have answered, and gave back `given` octets.
    Answered {
        given: usize,
    },
}

/// Which cores have watches, and what each counts.
#[derive(Debug)]
struct Registry {
    watching: Watching,
    /// Which of them have missed a change.
    missed: Box<[AtomicBool]>,
    counts: Box<[Counts]>,
}

/// A bit for each core that has watches. The line of the cache is written when that changes, and has nothing else in it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Watching([AtomicU64; 2]);

/// What a core counts, as of the end of its last turn: less what others have counted of the same, so that only the sum over all cores makes
/// sense.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counts {
    keys: AtomicU64,
    value_bytes: AtomicU64,
}

/// What one core tells another.
#[derive(Debug)]
pub(super) enum Post {
    /// The sender asks for what the core counts.
    Asks(u64, What),
    /// The answer to a question of this number.
    Answers(u64, Told),
    /// A key has changed.
    Changed(Box<[u8]>),
    /// The sender has no memory left, and nor has the reservoir.
    Wants,
    /// The sender gave back what it does not need: this many octets.
    Gave(usize),
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Stat,
    Figures,
}

/// What one core counts, or several.
#[derive(Debug)]
pub(super) enum Told {
    Stat(Box<Stat>),
    Figures(Box<Figures>),
}

/// A question of a Call.
#[derive(Debug)]
struct Question {
    number: u64,
    token: CallToken,
    /// The cores that have not answered.
    left: usize,
    /// What was told so far.
    told: Told,
}

impl Others {
    /// Makes what each of `cores` cores knows of the others.
    pub(super) fn all(cores: usize) -> Vec<Self> {
        let registry = Arc::new(Registry {
            watching: Watching::default(),
            missed: (0..cores).map(|_| AtomicBool::default()).collect(),
            counts: (0..cores).map(|_| Counts::default()).collect(),
        });
        let numbers = (0..CORES_MAX).filter_map(CoreNumber::new);
        let one = |(core, mailbox)| Self {
            core,
            mailbox,
            registry: Arc::clone(&registry),
            is_registered: false,
            asked: Vec::new(),
            answered: Vec::new(),
            next_number: 0,
            unsent: VecDeque::new(),
            want: Want::Nothing,
            asks_from: Instant::default(),
            wanting: Vec::new(),
        };
        numbers.zip(mailboxes(cores, POSTS_MAX)).map(one).collect()
    }

    /// Asks all other cores for a Call that was answered with `Later`. `told` is this core's own answer.
    pub(super) fn ask(&mut self, token: CallToken, what: What, told: Told) -> Option<Told> {
        self.next_number += 1;
        let number = self.next_number;
        let asked = |core: &CoreNumber| self.mailbox.post(*core, Post::Asks(number, what)).is_ok();
        let left = self.others().filter(asked).count();
        if left == 0 {
            return Some(told);
        }
        self.asked.push(Question { number, token, left, told });
        None
    }

    /// Answers a question of another core.
    pub(super) fn answer(&mut self, to: CoreNumber, number: u64, told: Told) {
        self.unsent.push_back((to, Post::Answers(number, told)));
        self.send();
    }

    /// Drops the answer of the other cores, if nobody waited for it: by the time at which memory is wanted again, they may have
    /// some to give.
    pub(super) fn forget_answer(&mut self) {
        if let Want::Answered { .. } = self.want {
            self.want = Want::Nothing;
        }
    }

    /// Asks the other cores to give back memory that they do not need, unless they were asked and have not all answered. Returns whether it is worth
    /// waiting: not if they gave nothing, and have answered within the last [`ASKED_EVERY`].
    pub(super) fn want(&mut self, now: Instant) -> bool {
        match self.want {
            Want::Nothing if now < self.asks_from => false,
            Want::Nothing => {
                let asked = |core: &CoreNumber| self.mailbox.post(*core, Post::Wants).is_ok();
                let left = self.others().filter(asked).count();
                // A core whose mailbox is full is not waited for.
                if left > 0 {
                    self.want = Want::Asked { left, given: 0 };
                }
                left > 0
            }
            Want::Asked { .. } => true,
            Want::Answered { given } => {
                self.want = Want::Nothing;
                if given == 0 {
                    self.asks_from = now.saturating_add(ASKED_EVERY);
                }
                given > 0
            }
        }
    }

    /// Notes that a core wants memory.
    pub(super) fn owe(&mut self, to: CoreNumber) {
        self.wanting.push(to);
    }

    /// Returns whether any core waits for memory of this one.
    pub(super) const fn owes(&self) -> bool {
        !self.wanting.is_empty()
    }

    /// Answers the cores that want memory.
    pub(super) fn give(&mut self, octets: usize) {
        self.unsent.extend(self.wanting.drain(..).map(|to| (to, Post::Gave(octets))));
        self.send();
    }

    /// Takes in what a core that was asked gave back.
    pub(super) fn take_given(&mut self, octets: usize) {
        if let Want::Asked { left, given } = self.want {
            let given = given + octets;
            self.want = match left {
                ..=1 => Want::Answered { given },
                _ => Want::Asked { left: left - 1, given },
            };
        }
    }

    /// Takes in the answer of another core.
    pub(super) fn take_in(&mut self, cx: &mut Cx<'_>, number: u64, told: Told) {
        let Some(at) = self.asked.iter().position(|question| question.number == number) else {
            return;
        };
        let question = &mut self.asked[at];
        question.told.add(told);
        question.left -= 1;
        if question.left == 0 {
            let Question { token, told, .. } = self.asked.swap_remove(at);
            // The client of a Call that is gone is told nothing.
            if cx.awaits(token) {
                self.answered.push((token, told));
                cx.resume(token);
            }
        }
    }

    /// Forgets answers to Calls whose connections have ended.
    pub(super) fn forget_gone(&mut self, cx: &Cx<'_>) {
        self.answered.retain(|(token, _)| cx.awaits(*token));
    }

    /// Returns what all cores told for a Call that goes on.
    pub(super) fn told(&mut self, token: CallToken) -> Option<Told> {
        let at = self.answered.iter().position(|(answered, _)| *answered == token)?;
        Some(self.answered.swap_remove(at).1)
    }

    /// Takes the next post, and says who sent it.
    #[inline]
    pub(super) fn next(&mut self, cx: &Cx<'_>) -> Option<(CoreNumber, Post)> {
        self.mailbox.take(cx)
    }

    /// Sends answers that found no room before. Returns whether any are left.
    #[inline]
    pub(super) fn send(&mut self) -> bool {
        while let Some((to, post)) = self.unsent.pop_front() {
            if let Err(Undelivered(post)) = self.mailbox.post(to, post) {
                self.unsent.push_front((to, post));
                return true;
            }
        }
        false
    }

    /// Has the cores that have watches hear of a key, which this core has changed just now.
    #[inline]
    pub(super) fn changed(&self, key: &[u8]) {
        let Watching([low, high]) = &self.registry.watching;
        // Sequentially consistent: see `show_watches`.
        let watching = [low.load(Ordering::SeqCst), high.load(Ordering::SeqCst)];
        if watching != [0, 0] {
            self.tell(watching, key);
        }
    }

    #[cold]
    fn tell(&self, watching: [u64; 2], key: &[u8]) {
        let has_watches = |core: &CoreNumber| {
            let number = core.get();
            watching[usize::from(number / 64)] & 1 << (number % 64) != 0
        };
        for core in self.others().filter(has_watches) {
            if self.mailbox.post(core, Post::Changed(key.into())).is_err()
                && let Some(missed) = self.registry.missed.get(usize::from(core.get()))
            {
                // It has posts to take, and so it looks.
                missed.store(true, Ordering::Release);
            }
        }
    }

    /// Says how many watches this core has. From then on each change is posted to it, or was made before: then a look at the
    /// key finds it.
    pub(super) fn show_watches(&mut self, count: usize) {
        let any = count > 0;
        if any == self.is_registered {
            return;
        }
        self.is_registered = any;
        let Watching(words) = &self.registry.watching;
        let (word, bit) = (&words[usize::from(self.core.get() / 64)], 1 << (self.core.get() % 64));
        if any {
            word.fetch_or(bit, Ordering::SeqCst);
            // A change is sequentially consistent, as is the look at the registry behind it: if that does not find our bit, we
            // find the change.
            fence(Ordering::SeqCst);
        } else {
            word.fetch_and(!bit, Ordering::SeqCst);
        }
    }

    /// Returns whether this core has missed a change since this was last called.
    #[inline]
    pub(super) fn has_missed(&self) -> bool {
        let Some(missed) = self.registry.missed.get(usize::from(self.core.get())) else {
            return false;
        };
        missed.load(Ordering::Relaxed) && missed.swap(false, Ordering::Acquire)
    }

    /// Shows the others what this core counts.
    pub(super) fn show(&self, keys: i64, value_bytes: u64) {
        if let Some(counts) = self.registry.counts.get(usize::from(self.core.get())) {
            counts.keys.store(keys.cast_unsigned(), Ordering::Relaxed);
            counts.value_bytes.store(value_bytes, Ordering::Relaxed);
        }
    }

    /// Returns the numbers of keys and of the octets of values of all cores, as they showed them last.
    pub(super) fn shown(&self) -> (u64, u64) {
        let counts = self.registry.counts.iter();
        counts.fold((0, 0), |(keys, octets): (u64, u64), counts| {
            let both =
                (counts.keys.load(Ordering::Relaxed), counts.value_bytes.load(Ordering::Relaxed));
            (keys.wrapping_add(both.0), octets.wrapping_add(both.1))
        })
    }

    /// Returns the number of this core.
    pub(super) const fn core(&self) -> CoreNumber {
        self.core
    }

    /// Returns the number of all cores.
    pub(super) fn cores(&self) -> usize {
        self.registry.counts.len()
    }

    fn others(&self) -> impl Iterator<Item = CoreNumber> + use<> {
        let (own, cores) = (self.core, self.cores());
        (0..CORES_MAX).filter_map(CoreNumber::new).take(cores).filter(move |core| *core != own)
    }
}

impl Told {
    fn add(&mut self, other: Self) {
        match (self, other) {
            (Self::Stat(sum), Self::Stat(one)) => sum.add(*one),
            (Self::Figures(sum), Self::Figures(one)) => **sum += *one,
            // Each core answers what was asked.
            (Self::Stat(_), Self::Figures(_)) | (Self::Figures(_), Self::Stat(_)) => {}
        }
    }
}

/// After how long cores that had no memory to give are asked again.
const ASKED_EVERY: Duration = Duration::from_millis(1);
/// Posts that a core may leave lying.
const POSTS_MAX: usize = 1024;
