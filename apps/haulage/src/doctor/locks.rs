//! The check of what becomes of locks on the files of `haulage store serve`.

use super::{Finding, State};

/// Checks whether an rpcbind tells clients that there is no lock manager.
pub(super) fn finding(rpcbind: Option<&str>) -> Finding {
    let check = "locks";
    match rpcbind {
        None => Finding {
            check,
            state: State::Ok,
            detail: "rpcbind answers".to_owned(),
            fix: String::new(),
        },
        Some(fault) => Finding {
            check,
            state: State::Missing,
            detail: format!(
                "{fault}; locks on mounts without nolock hang (lockd: server ... not responding)"
            ),
            fix: "mount with the option nolock".to_owned(),
        },
    }
}
