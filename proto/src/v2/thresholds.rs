//! Inline thresholds (section 4.2.2): the length of the longest message in each direction.

use super::properties::Properties;

/// The inline thresholds of one connection, seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The longest message that this end may send, in octets: the call inline threshold of its
    /// Calls and the reply inline threshold of its Replies.
    pub send: u32,
    /// The longest message that this end may receive, in octets: the reply inline threshold of its
    /// Calls and the call inline threshold of the peer's Calls.
    pub receive: u32,
}

impl Thresholds {
    /// Computes the thresholds from the properties of both ends. [`Properties::default`] stands for
    /// an end that has announced none.
    pub fn new(ours: &Properties, theirs: &Properties) -> Self {
        // [V2-4.2.2-1] the threshold is the most that one end can send and the other can take.
        Self {
            send: ours.send_size_max.min(theirs.receive_buffer_size),
            receive: ours.receive_buffer_size.min(theirs.send_size_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_says_nothing_has_thresholds_of_4096() {
        let ours = Properties { send_size_max: 65536, ..Properties::default() };
        let ours = Properties { receive_buffer_size: 65536, ..ours };
        let thresholds = Thresholds::new(&ours, &Properties::default());
        assert_eq!(thresholds, Thresholds { send: 4096, receive: 4096 });
    }

    #[test]
    fn a_threshold_is_the_smaller_of_what_is_sent_and_taken() {
        let sizes = |send_size_max, receive_buffer_size| Properties {
            send_size_max,
            receive_buffer_size,
            ..Properties::default()
        };
        let thresholds = Thresholds::new(&sizes(1000, 7000), &sizes(3000, 2000));
        assert_eq!(thresholds, Thresholds { send: 1000, receive: 3000 });
        let thresholds = Thresholds::new(&sizes(5000, 2500), &sizes(3000, 2000));
        assert_eq!(thresholds, Thresholds { send: 2000, receive: 2500 });
    }
}
