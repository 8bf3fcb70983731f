//! Version 1: unanswered Calls, against the credits of the last answer. Each end has an account for its own Calls, so
//! the two directions are counted apart.

use super::{ERROR, word};

/// The Calls of one end.
#[derive(Debug)]
pub(super) struct Account {
    unanswered: u32,
    /// The credit word of the last answer.
    granted: u32,
}

impl Default for Account {
    fn default() -> Self {
        // One Call may be sent before any credits were granted.
        Self { unanswered: 0, granted: 1 }
    }
}

impl Account {
    pub(super) fn on_sent(&mut self, message: &[u8]) {
        assert_ne!(word(message, 2), 0, "P1: a credit word of zero");
        if is_call(message) {
            let Self { unanswered, granted } = *self;
            assert!(unanswered < granted, "{unanswered} of {granted} Calls wait, and one is sent");
            self.unanswered += 1;
        }
    }

    pub(super) fn on_received(&mut self, message: &[u8]) {
        if !is_call(message) {
            self.unanswered = self.unanswered.checked_sub(1).expect("an answer is to a Call");
            self.granted = word(message, 2);
        }
    }
}

/// Returns whether a message is a Call, and not a Reply or an error.
fn is_call(message: &[u8]) -> bool {
    match word(message, 3) {
        MSG => word(message, inline_at(message) + 1) == CALL,
        // In a Call the Read list holds the chunk of the Call; in a Reply the list is empty.
        NOMSG => word(message, 4) != 0,
        ERROR => false,
        other => panic!("nothing here sends version 1's type {other}"),
    }
}

/// Returns the number of words in front of the RPC message.
fn inline_at(message: &[u8]) -> usize {
    let mut at = 4;
    while word(message, at) != 0 {
        at += 1 + READ_SEGMENT;
    }
    at += 1;
    while word(message, at) != 0 {
        at += 1 + write_chunk(message, at + 1);
    }
    at += 1;
    match word(message, at) {
        0 => at + 1,
        _ => at + 1 + write_chunk(message, at + 1),
    }
}

/// Returns the number of words of the Write chunk at `at`: a count, and the segments.
fn write_chunk(message: &[u8], at: usize) -> usize {
    1 + SEGMENT * word(message, at) as usize
}

const MSG: u32 = 0;
const NOMSG: u32 = 1;
/// The direction of an RPC Call.
const CALL: u32 = 0;
/// Words of a segment: handle, length, offset.
const SEGMENT: usize = 4;
/// Words of a Read segment: position, handle, length, offset.
const READ_SEGMENT: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    /// Encodes a message from its words.
    fn message(parts: &[&[u32]]) -> Vec<u8> {
        parts.concat().iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    fn inline(credit: u32, direction: u32) -> Vec<u8> {
        message(&[&[7, 1, credit, MSG], &[0, 0, 0], &[7, direction]])
    }

    const READ: &[u32] = &[1, 40, 5, 100, 0, 0];
    const WRITE: &[u32] = &[1, 2, 6, 100, 0, 0, 6, 50, 0, 100];

    #[test]
    fn the_direction_is_behind_every_list() {
        let prefix: &[u32] = &[7, 1, 9, MSG];
        for direction in [0, 1] {
            let lists = [prefix, READ, READ, &[0], WRITE, WRITE, &[0], WRITE, &[7, direction]];
            assert_eq!(is_call(&message(&lists)), direction == 0);
            assert_eq!(is_call(&inline(1, direction)), direction == 0);
        }
        let special: &[u32] = &[7, 1, 9, NOMSG];
        assert!(is_call(&message(&[special, READ, &[0, 0, 0]])));
        assert!(!is_call(&message(&[special, &[0, 0], WRITE])));
    }

    #[test]
    fn answers_say_how_many_calls_may_wait() {
        let mut account = Account::default();
        account.on_sent(&inline(9, 0));
        account.on_received(&inline(2, 1));
        account.on_sent(&inline(9, 0));
        account.on_sent(&inline(9, 0));
        account.on_received(&message(&[&[7, 1, 1, ERROR, 2]]));
        account.on_received(&inline(1, 1));
        account.on_sent(&inline(9, 0));
        // The peer's messages belong to another account.
        account.on_received(&inline(9, 0));
        account.on_sent(&inline(1, 1));
    }

    #[test]
    #[should_panic(expected = "1 of 1 Calls wait, and one is sent")]
    fn no_call_goes_beyond_the_grant() {
        let mut account = Account::default();
        account.on_sent(&inline(9, 0));
        account.on_sent(&inline(9, 0));
    }

    #[test]
    #[should_panic(expected = "P1: a credit word of zero")]
    fn no_reply_grants_nothing() {
        Account::default().on_sent(&inline(0, 1));
    }
}
