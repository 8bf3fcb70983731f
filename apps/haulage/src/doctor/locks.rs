//! The check of what becomes of locks on the files of `haulage store serve`.

use super::finding::{Finding, State};

/// Checks whether clients find a lock manager; `lack` is why they find none.
pub(super) fn finding(lack: Option<&str>) -> Finding {
    let check = "locks";
    match lack {
        None => Finding {
            check,
            state: State::Ok,
            detail: "a lock manager is registered".to_owned(),
            fix: String::new(),
        },
        Some(lack) => Finding {
            check,
            state: State::Missing,
            detail: format!(
                "{lack}; locks on mounts without nolock hang (lockd: server ... not responding)"
            ),
            fix: "mount with the option nolock".to_owned(),
        },
    }
}
