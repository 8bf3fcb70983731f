//! Calls that wait for the backend.

use crate::access::Caller;
use crate::backend::Context;
use crate::handle::FileId;
use crate::nfs3::{Attributes, Procedure, WccAttributes};

/// A Call that waits for the backend.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) procedure: Procedure,
    pub(super) file: FileId,
    pub(super) caller: Caller,
    /// The attributes of the file before it was changed, unless something else may change it meanwhile.
    pub(super) before: Option<WccAttributes>,
    /// The directory in which a CREATE found the file, the one to which a RENAME goes, or the file of a LINK; with its
    /// attributes before.
    pub(super) other: Option<(FileId, Option<WccAttributes>)>,
    /// The attributes of both after the Call has changed them, if it waits for stable storage alone.
    pub(super) after: Option<[Option<Attributes>; 2]>,
}

impl Pending {
    /// Creates the Call of a procedure that acts on a file.
    pub(super) const fn new(procedure: Procedure, file: FileId, cx: &Context<'_>) -> Self {
        Self { procedure, file, caller: *cx.caller, before: None, other: None, after: None }
    }

    /// Returns whether the Call may change the data and the times of a file at any moment.
    pub(super) fn writes(&self, file: FileId) -> bool {
        let changes =
            matches!(self.procedure, Procedure::Write | Procedure::SetAttr | Procedure::Create);
        changes && self.file == file && self.after.is_none()
    }
}
