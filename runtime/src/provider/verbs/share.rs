//! The division of the completion queue among queue pairs.

/// The division of the completion queue: a queue pair always has its share, and more while others do not use theirs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    /// Entries in all.
    pub(super) all: usize,
    /// Entries kept for each queue pair.
    pub(super) each: u32,
    /// The most queue pairs.
    pub(super) queue_pairs: usize,
}

/// The entries of the completion queue, and how many of them queue pairs have taken.
#[derive(Debug)]
pub(super) struct Entries {
    share: Share,
    occupied: usize,
}

impl Entries {
    pub(super) const fn new(share: Share) -> Self {
        Self { share, occupied: 0 }
    }

    /// Notes that a queue pair, which had taken `before` entries, has taken `after` now.
    pub(super) const fn settle(&mut self, before: u32, after: u32) {
        self.occupied = self.occupied + after as usize - before as usize;
    }

    /// Returns how many more entries a queue pair with `own` may take.
    pub(super) fn room(&self, own: u32) -> u32 {
        self.share.room(self.occupied, own)
    }
}

impl Share {
    /// Returns how many more entries a queue pair with `own` may take, `all` being taken.
    pub(super) fn room(self, all: usize, own: u32) -> u32 {
        let others = self.queue_pairs.saturating_sub(1) * self.each as usize;
        let free = self.all.saturating_sub(others).saturating_sub(all);
        self.each.saturating_sub(own).max(u32::try_from(free).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept_for_those_who_do_not_use_them() {
        let share = Share { all: 100, each: 10, queue_pairs: 5 };
        assert_eq!(share.room(0, 0), 60, "all but the others' shares");
        assert_eq!(share.room(60, 0), 10, "one that has nothing has its share");
        assert_eq!(share.room(60, 60), 0);
        assert_eq!(share.room(50, 30), 10);
        assert_eq!(share.room(50, 4), 10, "the larger of both");
    }
}
