//! A count of the credits on the wire, independent of the code under test.

mod one;
mod two;

/// Counts the messages of one end, from the octets that pass its two queues.
#[derive(Debug, Default)]
pub struct Ledger {
    one: one::Account,
    two: two::Account,
}

impl Ledger {
    /// Checks a message that the end posts.
    pub fn on_sent(&mut self, message: &[u8]) {
        match version(message) {
            None => assert_ne!(word(message, 2), 0, "P1: a refusal that grants nothing"),
            Some(Version::One) => self.one.on_sent(message),
            Some(Version::Two) => self.two.on_sent(message),
        }
    }

    /// Counts a message that the end received.
    pub fn on_received(&mut self, message: &[u8]) {
        match version(message) {
            None => {}
            Some(Version::One) => self.one.on_received(message),
            Some(Version::Two) => self.two.on_received(message),
        }
    }
}

enum Version {
    One,
    Two,
}

/// Returns the version of the account that a message belongs to. An ERR_VERS message belongs to none (P6).
fn version(message: &[u8]) -> Option<Version> {
    match (word(message, 1), word(message, 3)) {
        (_, ERROR) if word(message, 4) == ERR_VERS => None,
        (1, _) => Some(Version::One),
        (2, _) => Some(Version::Two),
        (version, _) => panic!("a message of version {version}"),
    }
}

/// Returns word `at` of a message.
fn word(message: &[u8], at: usize) -> u32 {
    let word = message[4 * at..].first_chunk().expect("the message is that long");
    u32::from_be_bytes(*word)
}

/// The message type of an error, in both versions.
const ERROR: u32 = 4;
const ERR_VERS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn a_refusal_of_the_version_belongs_to_neither_account() {
        let mut ledger = Ledger::default();
        ledger.on_sent(&message(&[7, 2, 9, 7]));
        ledger.on_received(&message(&[7, 2, 1, ERROR, ERR_VERS, 1, 1]));
        ledger.on_sent(&message(&[8, 1, 9, 0, 0, 0, 0, 8, 0]));
    }

    #[test]
    #[should_panic(expected = "P1: a refusal that grants nothing")]
    fn it_grants_something() {
        Ledger::default().on_sent(&message(&[7, 2, 0, ERROR, ERR_VERS, 1, 1]));
    }
}
