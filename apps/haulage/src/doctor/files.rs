//! Reading the files in which the kernel describes the machine.

use std::fs;

use super::machine::Machine;

impl Machine {
    /// Returns the file at `path` without the space around it; `None` if it cannot be read.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        let text = fs::read_to_string(self.root.join(path)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Returns the number in the file at `path`.
    pub(super) fn number(&self, path: &str) -> Option<u64> {
        self.text(path)?.parse().ok()
    }

    /// Returns the names in the directory at `path`, sorted; none if it is not there.
    pub(super) fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names
    }

    /// Returns the word in brackets of a file such as `always [madvise] never`.
    pub(super) fn chosen(&self, path: &str) -> Option<String> {
        let text = self.text(path)?;
        let (_, rest) = text.split_once('[')?;
        rest.split_once(']').map(|(chosen, _)| chosen.to_owned())
    }

    /// Returns a field of `/proc/self/status`.
    fn status(&self, field: &str) -> Option<String> {
        let status = self.text("proc/self/status")?;
        let mut values = status.lines().filter_map(|line| line.split_once(':'));
        values.find(|(name, _)| *name == field).map(|(_, value)| value.trim().to_owned())
    }

    /// Returns whether this process may lock any amount of memory, whatever the limit.
    pub(super) fn may_lock_anything(&self) -> bool {
        let capabilities = self.status("CapEff").and_then(|set| u64::from_str_radix(&set, 16).ok());
        capabilities.is_some_and(|set| set & CAP_IPC_LOCK != 0)
    }

    /// Returns `command` as this user must type it: with `sudo`, unless the user is root.
    pub(super) fn as_root(&self, command: &str) -> String {
        // Real, effective, saved, file system.
        let user =
            self.status("Uid").and_then(|ids| ids.split_whitespace().nth(1).map(str::to_owned));
        if user.as_deref() == Some("0") { command.to_owned() } else { format!("sudo {command}") }
    }
}

/// Bit 14 of a capability set.
const CAP_IPC_LOCK: u64 = 1 << 14;
