//! What the credit words on the wire allow, counted without the code under test.

/// Counts the messages of one end, as an onlooker who sees both its queues would.
#[derive(Debug, Default)]
pub struct Ledger {
    sent: u32,
    /// The credit word of the last message that was received.
    limit: Option<u32>,
    /// Credit words sent, which never go back.
    told: Option<u32>,
}

impl Ledger {
    /// Checks a message of version 2 that is posted now.
    pub fn on_sent(&mut self, message: &[u8]) {
        let (credit, header_type) = (word(message, 2), word(message, 3));
        // One message may be sent before anything was heard.
        let left = self.limit.unwrap_or(1).wrapping_sub(self.sent).cast_signed();
        let needed = i32::from(header_type != GRANT);
        assert!(left >= needed, "a message of type {header_type} is sent with {left} credits");
        self.sent = self.sent.wrapping_add(1);
        let raised = credit.wrapping_sub(self.told.unwrap_or(credit)).cast_signed();
        assert!(raised >= 0, "P1: a limit went back by {}", -raised);
        assert!(header_type != GRANT || left > 0 || raised > 0, "E3: a grant of nothing new");
        self.told = Some(credit);
    }

    /// Notes a message of version 2 that was received.
    pub fn on_received(&mut self, message: &[u8]) {
        self.limit = Some(word(message, 2));
    }
}

fn word(message: &[u8], at: usize) -> u32 {
    let word = message[4 * at..].first_chunk().expect("a message has a prefix");
    u32::from_be_bytes(*word)
}

const GRANT: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(credit: u32, header_type: u32) -> Vec<u8> {
        [7, 2, credit, header_type].iter().flat_map(|word: &u32| word.to_be_bytes()).collect()
    }

    #[test]
    fn a_grant_may_use_the_receive_beyond_the_limit() {
        let mut ledger = Ledger::default();
        ledger.on_sent(&message(u32::MAX, 7));
        ledger.on_sent(&message(3, GRANT));
        ledger.on_received(&message(3, 7));
        ledger.on_sent(&message(3, 10));
    }

    #[test]
    #[should_panic(expected = "is sent with 0 credits")]
    fn nothing_else_may() {
        let mut ledger = Ledger::default();
        ledger.on_sent(&message(2, 7));
        ledger.on_sent(&message(2, 10));
    }

    #[test]
    #[should_panic(expected = "P1: a limit went back by 1")]
    fn limits_never_go_back() {
        let mut ledger = Ledger::default();
        ledger.on_sent(&message(2, 7));
        ledger.on_received(&message(9, 7));
        ledger.on_sent(&message(1, 10));
    }
}
