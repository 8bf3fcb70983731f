//! A request to the metrics server, cut into pieces anywhere.

use haulage_apps::metrics::http::{Asked, Part, REQUEST_MAX, Request, TooLong};

use super::bound::bounded;
use super::octets::{some_octets, spoil};
use crate::world::choices::Choices;

/// Checks that a request taken whole and in pieces gives the same result, as its first line
/// determines.
pub(super) fn run(data: &[u8]) {
    let mut choices = Choices::replayed(data);
    let octets = request(&mut choices);
    let expected = expected(&octets);
    assert_eq!(taken(&octets, || usize::MAX), expected, "whole");
    let most = choices.pick(&[1, 4, 33, 1024]);
    assert_eq!(taken(&octets, || choices.of(1..=most)), expected, "cut as it may be");
}

/// Returns the first result that the octets give.
fn taken(octets: &[u8], mut piece: impl FnMut() -> usize) -> Result<Option<Asked>, TooLong> {
    let mut request = Request::default();
    let mut rest = octets;
    bounded(octets.len(), || {
        while !rest.is_empty() {
            let (next, behind) = rest.split_at(piece().min(rest.len()));
            rest = behind;
            let taken = request.take(next)?;
            if taken.is_some() {
                return Ok(taken);
            }
        }
        Ok(None)
    })
}

/// Returns the result that the octets must give, from all of them at once.
fn expected(octets: &[u8]) -> Result<Option<Asked>, TooLong> {
    let read = &octets[..octets.len().min(REQUEST_MAX)];
    let text: String = read.iter().map(|octet| char::from(*octet)).collect();
    let Some((head, _)) = text.split_once("\r\n\r\n") else {
        return if read.len() == REQUEST_MAX { Err(TooLong) } else { Ok(None) };
    };
    let line = head.split('\r').next().unwrap_or_default();
    let methods = [("GET", Part::Whole), ("HEAD", Part::Head)];
    let known = methods.into_iter().find_map(|(method, part)| {
        let rest = line.strip_prefix(method)?;
        (rest.is_empty() || rest.starts_with(' ')).then_some((rest, part))
    });
    let Some((rest, part)) = known else { return Ok(Some(Asked::NotGet)) };
    Ok(Some(match rest.strip_prefix(" /metrics") {
        // The path ends here, or a query follows it.
        Some(behind) if behind.is_empty() || behind.starts_with([' ', '?']) => Asked::Metrics(part),
        _ => Asked::Other(part),
    }))
}

/// Draws a request, most of them valid, some of them spoiled or too long.
fn request(choices: &mut Choices) -> Vec<u8> {
    let mut octets = Vec::new();
    let methods: [&[u8]; 6] = [b"GET", b"GET", b"HEAD", b"POST", b"GETS", b""];
    let paths: [&[u8]; 6] =
        [b" /metrics", b" /metrics ", b" /metrics?a=/", b" /", b"  /metrics", b""];
    octets.extend(choices.pick(&methods));
    octets.extend(choices.pick(&paths));
    octets.extend(b" HTTP/1.1");
    for _ in 0..choices.below(4) {
        octets.extend(b"\r\nHost: ");
        octets.extend(some_octets(choices, 16));
    }
    if choices.one_in(4) {
        // About the length of the longest request.
        octets.resize(REQUEST_MAX - 8 + choices.below(12), b'x');
    }
    let ends: [&[u8]; 4] = [b"\r\n\r\n", b"\r\n\r\n", b"\n\n", b"\r\n\r"];
    octets.extend(choices.pick(&ends));
    if choices.one_in(4) {
        spoil(choices, &mut octets);
    }
    octets.extend(some_octets(choices, 8));
    octets
}
