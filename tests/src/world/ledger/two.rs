//! Version 2: one count of messages each way, and limits that never go back.

use super::word;

/// The messages of one end.
#[derive(Debug, Default)]
pub(super) struct Account {
    sent: u32,
    /// The credit word of the last received message.
    limit: Option<u32>,
    /// The credit word of the last sent message; it never decreases.
    told: Option<u32>,
}

impl Account {
    pub(super) fn on_sent(&mut self, message: &[u8]) {
        let (credit, header_type) = (word(message, 2), word(message, 3));
        // One message may be sent before any was received.
        let left = self.limit.unwrap_or(1).wrapping_sub(self.sent).cast_signed();
        let needed = i32::from(header_type != GRANT);
        assert!(left >= needed, "a message of type {header_type} is sent with {left} credits");
        self.sent = self.sent.wrapping_add(1);
        let raised = credit.wrapping_sub(self.told.unwrap_or(credit)).cast_signed();
        assert!(raised >= 0, "P1: a limit went back by {}", -raised);
        let is_news = left > 0 || raised > 0;
        assert!(header_type != GRANT || is_news, "E3: a grant of nothing new");
        self.told = Some(credit);
    }

    pub(super) fn on_received(&mut self, message: &[u8]) {
        self.limit = Some(word(message, 2));
    }
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
        let mut account = Account::default();
        account.on_sent(&message(u32::MAX, 7));
        account.on_sent(&message(3, GRANT));
        account.on_received(&message(3, 7));
        account.on_sent(&message(3, 10));
    }

    #[test]
    #[should_panic(expected = "is sent with 0 credits")]
    fn nothing_else_may() {
        let mut account = Account::default();
        account.on_sent(&message(2, 7));
        account.on_sent(&message(2, 10));
    }

    #[test]
    #[should_panic(expected = "P1: a limit went back by 1")]
    fn limits_never_go_back() {
        let mut account = Account::default();
        account.on_sent(&message(2, 7));
        account.on_received(&message(9, 7));
        account.on_sent(&message(1, 10));
    }

    #[test]
    #[should_panic(expected = "E3: a grant of nothing new")]
    fn a_grant_without_a_credit_raises_the_limit() {
        let mut account = Account::default();
        account.on_sent(&message(2, 7));
        account.on_received(&message(1, 7));
        account.on_sent(&message(2, GRANT));
    }
}
