//! Lines of bounded length.

use std::io::{self, BufRead, BufReader, Read};

/// A reader of lines.
#[derive(Debug)]
pub struct Lines<R> {
    input: BufReader<R>,
    held: Vec<u8>,
    number: u64,
    length_max: usize,
}

/// A line that is not blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// The line, without its end and the blanks around it.
    Whole(&'a [u8]),
    /// The line exceeds the bound, and was skipped.
    TooLong,
}

impl<R: Read> Lines<R> {
    /// Creates a reader of lines of at most `length_max` octets.
    pub fn new(input: R, length_max: usize) -> Self {
        Self { input: BufReader::new(input), held: Vec::new(), number: 0, length_max }
    }

    /// Returns the next line that is not blank, with its number, or `None` at the end.
    pub fn next_line(&mut self) -> io::Result<Option<(u64, Line<'_>)>> {
        loop {
            self.held.clear();
            let Some(complete) = self.hold_one()? else { return Ok(None) };
            self.number += 1;
            if !complete {
                return Ok(Some((self.number, Line::TooLong)));
            }
            if !self.held.trim_ascii().is_empty() {
                return Ok(Some((self.number, Line::Whole(self.held.trim_ascii()))));
            }
        }
    }

    /// Returns whether the next line needs more input than is buffered.
    pub fn must_wait(&self) -> bool {
        !self.input.buffer().contains(&b'\n')
    }

    /// Reads the next line into the buffer. Returns whether it is within the bound, or `None` at the end.
    fn hold_one(&mut self) -> io::Result<Option<bool>> {
        let mut length = 0_usize;
        let mut any = false;
        loop {
            let piece = match self.input.fill_buf() {
                Ok(piece) => piece,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if piece.is_empty() {
                return Ok(any.then_some(length <= self.length_max));
            }
            any = true;
            let end = piece.iter().position(|byte| *byte == b'\n');
            let text = &piece[..end.unwrap_or(piece.len())];
            length = length.saturating_add(text.len());
            if length <= self.length_max {
                self.held.extend_from_slice(text);
            }
            let eaten = text.len() + usize::from(end.is_some());
            self.input.consume(eaten);
            if end.is_some() {
                return Ok(Some(length <= self.length_max));
            }
        }
    }
}

/// Maximum length of a message, in octets.
pub const MESSAGE_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_numbered_and_trimmed_and_blank_ones_do_not_come() {
        let mut lines = Lines::new(&b"one\r\n\n \t\r\n  two \nthree"[..], 10);
        assert_eq!(lines.next_line().unwrap(), Some((1, Line::Whole(b"one"))));
        assert!(!lines.must_wait());
        assert_eq!(lines.next_line().unwrap(), Some((4, Line::Whole(b"two"))));
        assert!(lines.must_wait(), "the last has no end yet");
        assert_eq!(lines.next_line().unwrap(), Some((5, Line::Whole(b"three"))));
        assert_eq!(lines.next_line().unwrap(), None);
    }

    #[test]
    fn a_line_beyond_the_bound_is_counted_and_never_held() {
        let mut text = vec![b'a'; 100_000];
        text.extend_from_slice(b"\nbbbb\nccccc\n");
        let mut lines = Lines::new(&text[..], 4);
        assert_eq!(lines.next_line().unwrap(), Some((1, Line::TooLong)));
        assert!(lines.held.capacity() < 100);
        assert_eq!(lines.next_line().unwrap(), Some((2, Line::Whole(b"bbbb"))));
        assert_eq!(lines.next_line().unwrap(), Some((3, Line::TooLong)));
        assert_eq!(lines.next_line().unwrap(), None);
    }
}
