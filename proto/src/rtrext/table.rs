//! Tables 1 and 2 of the draft, as data.

use super::item::{BYSIZE, CHOICE, EXRW, NOITEM, TBSN, TOOSHORT};

/// The contexts of an `xmdp_type`: the columns of Table 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// An `xmdp_loc` in a request.
    Request,
    /// An `xmdp_rsdloc` in a request.
    Direction,
    /// An `xmdp_loc` in a response.
    Response,
}

/// The meaning of an `xmdp_type` in a context: the cells of Table 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// The type locates the message's own bulk data.
    Info,
    /// The type directs the Reply's bulk data.
    Direction,
    /// The type gives the outcome of a direction.
    Result,
    /// The XDR has no such arm.
    XdrInvalid,
    /// The XDR has such an arm, but it is meaningless in this context.
    SemInvalid,
}

/// The outcome of a direction in a response: the cells of Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A Responder must not answer the direction in this way.
    Invalid,
    /// A Responder may answer in this way, and the draft has no memory to be invalidated. Memory
    /// that was offered anyway (`XMPTYPE_CHOICE` and `XMPTYPE_BYSIZE`) is invalidated like any
    /// other (E17).
    Keep,
    /// A Responder may answer in this way, and the offered memory is to be invalidated.
    TakeBack,
}

/// Table 1: the validity of each type in each context.
pub const VALIDITY: [(u32, [Validity; 3]); 6] = {
    use Validity::{Direction, Info, Result, SemInvalid, XdrInvalid};
    [
        (EXRW, [Info, Direction, Result]),
        (TBSN, [Info, Direction, Result]),
        (BYSIZE, [XdrInvalid, Direction, XdrInvalid]),
        (CHOICE, [XdrInvalid, Direction, XdrInvalid]),
        (TOOSHORT, [SemInvalid, XdrInvalid, Result]),
        (NOITEM, [SemInvalid, XdrInvalid, Result]),
    ]
};

/// Table 2: rows are directions, columns are the answers in a response.
pub const OUTCOMES: [(u32, [(u32, Outcome); 4]); 4] = {
    use Outcome::{Invalid, Keep, TakeBack};
    [
        (EXRW, [(EXRW, TakeBack), (TBSN, Invalid), (TOOSHORT, TakeBack), (NOITEM, TakeBack)]),
        (TBSN, [(EXRW, Invalid), (TBSN, Keep), (TOOSHORT, Keep), (NOITEM, Keep)]),
        (CHOICE, [(EXRW, TakeBack), (TBSN, Keep), (TOOSHORT, TakeBack), (NOITEM, TakeBack)]),
        (BYSIZE, [(EXRW, TakeBack), (TBSN, Keep), (TOOSHORT, TakeBack), (NOITEM, TakeBack)]),
    ]
};

/// Returns the validity of a type in a context by Table 1; a type that is not in the table is not
/// in the XDR either.
pub fn validity(of: u32, context: Context) -> Validity {
    let row = VALIDITY.iter().find(|(row, _)| *row == of);
    row.map_or(Validity::XdrInvalid, |(_, [request, direction, response])| match context {
        Context::Request => *request,
        Context::Direction => *direction,
        Context::Response => *response,
    })
}

/// Returns the outcome by Table 2 of a direction that was answered with `result`.
pub fn outcome(direction: u32, result: u32) -> Outcome {
    let row = OUTCOMES.iter().find(|(row, _)| *row == direction);
    let cell = row.and_then(|(_, cells)| cells.iter().find(|(column, _)| *column == result));
    cell.map_or(Outcome::Invalid, |(_, outcome)| *outcome)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::string::String;

    use super::*;
    use crate::rtrext::{Directions, Items};
    use crate::testing::Xdr;
    use crate::xdr::Reader;

    fn name(of: u32) -> &'static str {
        ["EXRW", "TBSN", "CHOICE", "BYSIZE", "TOOSHORT", "NOITEM"][of as usize - 1]
    }

    #[test]
    fn the_tables_are_those_of_the_draft() {
        let mut printed = String::new();
        for (of, [request, direction, response]) in VALIDITY {
            let of = name(of);
            writeln!(printed, "{of:9} {request:?}, {direction:?}, {response:?}").unwrap();
        }
        for (direction, results) in OUTCOMES {
            write!(printed, "{:9}", name(direction)).unwrap();
            for (result, outcome) in results {
                write!(printed, " {}: {outcome:?}", name(result)).unwrap();
            }
            printed.push('\n');
        }
        assert_eq!(
            printed,
            "EXRW      Info, Direction, Result\n\
             TBSN      Info, Direction, Result\n\
             BYSIZE    XdrInvalid, Direction, XdrInvalid\n\
             CHOICE    XdrInvalid, Direction, XdrInvalid\n\
             TOOSHORT  SemInvalid, XdrInvalid, Result\n\
             NOITEM    SemInvalid, XdrInvalid, Result\n\
             EXRW      EXRW: TakeBack TBSN: Invalid TOOSHORT: TakeBack NOITEM: TakeBack\n\
             TBSN      EXRW: Invalid TBSN: Keep TOOSHORT: Keep NOITEM: Keep\n\
             CHOICE    EXRW: TakeBack TBSN: Keep TOOSHORT: TakeBack NOITEM: TakeBack\n\
             BYSIZE    EXRW: TakeBack TBSN: Keep TOOSHORT: TakeBack NOITEM: TakeBack\n"
        );
    }

    #[test]
    fn the_codec_takes_what_table_1_calls_valid_xdr() {
        for of in 0..9 {
            // Enough empty arrays and words for whatever arm there is.
            let item = Xdr::default().words(&[1, 0, 0, of, 0, 0, 0]).0;
            let set = Xdr::default().words(&[1, 0, 0, 1, 0, of, 0, 0]).0;
            let item = Items::decode(&mut Reader::new(&item)).is_ok();
            let direction = Directions::decode(&mut Reader::new(&set)).is_ok();
            let valid = |context| validity(of, context) != Validity::XdrInvalid;
            assert_eq!((item, item), (valid(Context::Request), valid(Context::Response)), "{of}");
            assert_eq!(direction, valid(Context::Direction), "{of}");
        }
    }

    #[test]
    fn what_is_in_no_table_is_invalid() {
        assert_eq!(outcome(TOOSHORT, EXRW), Outcome::Invalid);
        assert_eq!(outcome(EXRW, CHOICE), Outcome::Invalid);
        assert_eq!(outcome(CHOICE, TBSN), Outcome::Keep);
    }
}
