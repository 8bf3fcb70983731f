//! Accesses to keys that were recorded elsewhere.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use haulage::limits::ITEM_MAX;
use haulage_kv::protocol::Key;
use serde_json::Value;

use crate::cli::bytes;
use crate::failure::Failure;

/// The accesses of a trace, in order.
#[derive(Debug, Default)]
pub(super) struct Trace {
    /// The names of all keys, one after another.
    names: Vec<u8>,
    keys: Vec<Traced>,
    /// The numbers of the keys.
    accesses: Vec<u32>,
}

/// A key of a trace.
#[derive(Clone, Copy, Debug)]
struct Traced {
    /// Where its name ends among all names. It begins where the name of the key before it ends.
    name_end: usize,
    /// Octets of its value.
    size: usize,
}

impl Trace {
    /// Reads a trace. Each line is `KEY SIZE`, or a JSON object whose `hash_ids` are keys with values of `block` octets, as
    /// in the traces published with Mooncake (FAST 2025).
    ///
    /// # Errors
    /// The file cannot be read, or a line is neither.
    pub(super) fn read(path: &Path, block: u64) -> Result<Self, Failure> {
        let cannot = |error| Failure::failed(format!("cannot read {}: {error}", path.display()));
        let block = size(block).map_err(|why| Failure::usage(format!("--block-size: {why}")))?;
        let (mut trace, mut numbers) = (Self::default(), HashMap::new());
        for (line, at) in BufReader::new(File::open(path).map_err(cannot)?).lines().zip(1_u64..) {
            let line = line.map_err(cannot)?;
            trace.add(line.trim(), block, &mut numbers).map_err(|why| {
                Failure::failed(format!("line {at} of {}: {why}", path.display()))
            })?;
        }
        if trace.accesses.is_empty() {
            return Err(Failure::failed(format!("{} has no accesses", path.display())));
        }
        Ok(trace)
    }

    fn add(
        &mut self,
        line: &str,
        block: usize,
        numbers: &mut HashMap<Vec<u8>, u32>,
    ) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        if line.starts_with('{') {
            let request: Value = serde_json::from_str(line).map_err(|error| error.to_string())?;
            let ids = request["hash_ids"].as_array().ok_or("no list of hash_ids")?;
            for id in ids {
                let id = id.as_u64().ok_or("one of the hash_ids is no number")?;
                self.access_to(format!("block-{id}").as_bytes(), block, numbers)?;
            }
            return Ok(());
        }
        let (key, octets) = line
            .rsplit_once(char::is_whitespace)
            .and_then(|(key, octets)| Some((key.trim_end(), octets.parse().ok()?)))
            .ok_or("give KEY SIZE, the size in bytes, or an object with hash_ids")?;
        self.access_to(key.as_bytes(), size(octets)?, numbers)
    }

    fn access_to(
        &mut self,
        key: &[u8],
        size: usize,
        numbers: &mut HashMap<Vec<u8>, u32>,
    ) -> Result<(), String> {
        let number = match numbers.get(key) {
            Some(number) => *number,
            None => {
                Key::new(key).map_err(|error| error.to_string())?;
                let number = u32::try_from(self.keys.len()).map_err(|_| "too many keys")?;
                self.names.extend_from_slice(key);
                self.keys.push(Traced { name_end: self.names.len(), size });
                numbers.insert(key.to_vec(), number);
                number
            }
        };
        self.accesses.push(number);
        Ok(())
    }

    /// Returns the number of keys.
    pub(super) fn keys(&self) -> u32 {
        u32::try_from(self.keys.len()).unwrap_or(u32::MAX)
    }

    /// Returns the name of a key.
    pub(super) fn name(&self, number: u32) -> &[u8] {
        let number = number as usize;
        let begin = number.checked_sub(1).map_or(0, |before| self.keys[before].name_end);
        &self.names[begin..self.keys[number].name_end]
    }

    /// Returns the octets of the value of a key: as many as at its first access.
    pub(super) fn size(&self, number: u32) -> usize {
        self.keys[number as usize].size
    }

    /// Returns the octets of the longest value.
    pub(super) fn size_max(&self) -> usize {
        self.keys.iter().map(|key| key.size).max().unwrap_or_default()
    }

    /// Returns the octets of the values of all accesses, on average.
    pub(super) fn size_mean(&self) -> usize {
        let all: usize = self.accesses.iter().map(|number| self.size(*number)).sum();
        all / self.accesses.len().max(1)
    }

    /// Returns the key of access `number`; the first follows the last.
    pub(super) fn access(&self, number: usize) -> u32 {
        self.accesses[number % self.accesses.len()]
    }
}

/// Checks the octets of a value.
fn size(octets: u64) -> Result<usize, String> {
    let size = usize::try_from(octets).ok().filter(|size| (1..=ITEM_MAX).contains(size));
    size.ok_or_else(|| format!("a value has 1 byte to {}", bytes::format(ITEM_MAX as u64)))
}

#[cfg(test)]
impl Trace {
    /// Makes a trace of accesses to keys that are called by their numbers, which are below ten.
    pub(super) fn of_accesses(numbers: &[u32]) -> Self {
        let mut trace = Self { accesses: numbers.to_vec(), ..Self::default() };
        for number in 0..10 {
            trace.names.extend(number.to_string().bytes());
            trace.keys.push(Traced { name_end: trace.names.len(), size: 1 });
        }
        trace
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Trace, String> {
        let (mut trace, mut numbers) = (Trace::default(), HashMap::new());
        for line in text.lines() {
            trace.add(line.trim(), 512, &mut numbers)?;
        }
        Ok(trace)
    }

    #[test]
    fn accesses_come_in_order_and_again_and_a_key_keeps_its_first_size() {
        let trace =
            read("one 100\na key 8\n\none 200\n{\"timestamp\":0,\"hash_ids\":[7,7,9]}\n").unwrap();
        let order: Vec<u32> = (0..7).map(|number| trace.access(number)).collect();
        assert_eq!(order, [0, 1, 0, 2, 2, 3, 0]);
        let keys: Vec<_> =
            (0..trace.keys()).map(|key| (trace.name(key), trace.size(key))).collect();
        let expected: [(&[u8], usize); 4] =
            [(b"one", 100), (b"a key", 8), (b"block-7", 512), (b"block-9", 512)];
        assert_eq!(keys, expected);
        assert_eq!((trace.size_max(), trace.size_mean()), (512, (100 + 8 + 100 + 3 * 512) / 6));
    }

    #[test]
    fn a_line_that_is_no_access_is_named() {
        for (line, says) in [
            ("key", "KEY SIZE"),
            ("key 0", "1 byte to"),
            ("key 99999999999", "1 byte to"),
            ("{\"hash_ids\":3}", "hash_ids"),
            ("{\"ids\":[]}", "hash_ids"),
            (" 5", "KEY SIZE"),
        ] {
            let said = read(line).unwrap_err();
            assert!(said.contains(says), "{line:?}: {said}");
        }
    }
}
