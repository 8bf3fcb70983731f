//! What both ends agreed on: the properties of one end as far as the other can use them.

use super::properties::Properties;

/// The terms of one connection, seen from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Octets of the largest message we may send: the call inline threshold of our Calls, and the
    /// reply inline threshold of our Replies.
    pub send_max: u32,
    /// Octets of the largest message that comes: the reply inline threshold of the Replies to our
    /// Calls, and the call inline threshold of the peer's.
    pub receive_max: u32,
    /// Octets of the largest segment we may name (P7).
    pub segment_size_max: u32,
    /// Segments we may name in one header.
    pub segment_count_max: u32,
}

impl Terms {
    /// Settles the terms. [`Properties::default`] stands for an end that said nothing.
    pub fn new(ours: &Properties, theirs: &Properties) -> Self {
        // [V2-4.2.2-1] a threshold is what one end can send and the other can take.
        Self {
            send_max: ours.send_size_max.min(theirs.receive_buffer_size),
            receive_max: ours.receive_buffer_size.min(theirs.send_size_max),
            segment_size_max: theirs.segment_size_max,
            segment_count_max: theirs.segment_count_max,
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
        let terms = Terms::new(&ours, &Properties::default());
        assert_eq!((terms.send_max, terms.receive_max), (4096, 4096));
        assert_eq!((terms.segment_size_max, terms.segment_count_max), (1 << 20, 16));
    }

    #[test]
    fn a_threshold_is_the_smaller_of_what_is_sent_and_taken() {
        let sizes = |send_size_max, receive_buffer_size| Properties {
            send_size_max,
            receive_buffer_size,
            ..Properties::default()
        };
        let terms = Terms::new(&sizes(1000, 7000), &sizes(3000, 2000));
        assert_eq!((terms.send_max, terms.receive_max), (1000, 3000));
        let terms = Terms::new(&sizes(5000, 2500), &sizes(3000, 2000));
        assert_eq!((terms.send_max, terms.receive_max), (2000, 2500));
    }
}
