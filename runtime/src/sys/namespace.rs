//! The users and groups of this process's user namespace: to no others can it give files (user_namespaces(7)).

/// User IDs or group IDs that a user namespace maps.
#[derive(Debug)]
pub struct Ids(Vec<Range>);

/// The first ID of a range, and how many there are.
type Range = [u32; 2];

impl Ids {
    /// Returns the users of this process's namespace.
    pub fn users() -> Self {
        Self::read("/proc/self/uid_map")
    }

    /// Returns the groups of this process's namespace.
    pub fn groups() -> Self {
        Self::read("/proc/self/gid_map")
    }

    /// Without `/proc`, all IDs count as mapped.
    fn read(path: &str) -> Self {
        std::fs::read_to_string(path).map_or(Self(vec![[0, u32::MAX]]), |text| Self::parse(&text))
    }

    /// Parses a map, of which each line has the first ID, the ID that it is outside, and the number of IDs.
    pub fn parse(text: &str) -> Self {
        let range = |line: &str| {
            let mut fields = line.split_whitespace();
            Some([fields.next()?.parse().ok()?, fields.nth(1)?.parse().ok()?])
        };
        Self(text.lines().filter_map(range).collect())
    }

    /// Returns whether an ID is mapped.
    pub fn has(&self, id: u32) -> bool {
        self.0.iter().any(|[first, count]| id.checked_sub(*first).is_some_and(|at| at < *count))
    }

    /// Returns an ID that has no rights: the one that stands for nobody, or the last one, if that is not mapped.
    pub fn powerless(&self) -> u32 {
        let last = |[first, count]: &Range| first.saturating_add(count.saturating_sub(1));
        match self.0.iter().map(last).max() {
            Some(last) if !self.has(NOBODY) => last,
            _ => NOBODY,
        }
    }

    /// Returns whether at most one ID is mapped.
    fn is_single(&self) -> bool {
        self.0.iter().fold(0_u32, |sum, [_, count]| sum.saturating_add(*count)) <= 1
    }
}

/// Returns whether this process can give files to nobody: its user namespace has one user, or one group.
pub fn is_alone() -> bool {
    Ids::users().is_single() || Ids::groups().is_single()
}

/// The user, and the group, to whom no file belongs.
const NOBODY: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_those_of_the_ranges() {
        let all = Ids::parse("         0          0 4294967295\n");
        assert!(all.has(0) && all.has(u32::MAX - 1) && !all.has(u32::MAX) && !all.is_single());
        let one = Ids::parse("      1000       5000          1\n");
        assert!(one.has(1000) && !one.has(999) && !one.has(1001) && one.is_single());
        let two = Ids::parse("0 1000 1\n1 100000 65536\n");
        assert!(two.has(0) && two.has(65_536) && !two.has(65_537) && !two.is_single());
        assert!(Ids::parse("").is_single());
        let few = Ids::parse("0 1000 1\n1 100000 9\n");
        assert_eq!([all, two, few].map(|ids| ids.powerless()), [65_534, 65_534, 9]);
    }
}
